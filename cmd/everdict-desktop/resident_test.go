package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/tray"
)

// The help says where the files are, and not that some other command did.
func TestHelpSaysWhereFilesAre(t *testing.T) { // not parallel: it sets the environment
	t.Setenv(home.Variable, t.TempDir())
	dirs, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := residentCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dirs.Config, dirs.Log()} {
		if !strings.Contains(out.String(), path) {
			t.Errorf("the help does not name %s:\n%s", path, out.String())
		}
	}
}

// A tray whose bus is not there yet, or ends, is shown again, soon at first and then seldom; one that cannot be is left alone.
func TestTrayIsTriedAgain(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere nothing carries the tray that could come back")
	}
	none, gone := fmt.Errorf("look: %w", tray.ErrNoBus), fmt.Errorf("look: %w", tray.ErrGone)
	for name, c := range map[string]struct {
		ends []error // of the trays that are shown; after the last one, the app ends
		took time.Duration
	}{
		"the bus comes late":     {[]error{none, none, none, nil}, (2 + 4 + 8) * time.Second},
		"the bus goes and comes": {[]error{gone, none, nil}, (2 + 4) * time.Second},
		"it goes again":          {[]error{none, none, gone, nil}, (2 + 4 + 2) * time.Second},
		"it cannot be shown":     {[]error{errors.New("no icon")}, 0},
		"there is one already":   {[]error{tray.ErrRunning}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin, shown := time.Now(), 0
				keepTray(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) error {
					shown++
					return c.ends[shown-1]
				})
				if took := time.Since(begin); shown != len(c.ends) || took != c.took {
					t.Errorf("it was shown %d times in %v, want %d times in %v", shown, took, len(c.ends), c.took)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		shown, last := 0, time.Time{}
		keepTray(ctx, slog.New(slog.DiscardHandler), func(context.Context) error {
			if !last.IsZero() && time.Since(last) > lastTray {
				t.Errorf("it was left alone for %v", time.Since(last))
			}
			last = time.Now()
			if shown++; shown == 20 {
				time.AfterFunc(time.Second, end) // while it waits
			}
			return none
		})
		if shown != 20 {
			t.Errorf("it was shown %d times, want 20, and none after the end", shown)
		}
	})
}
