package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/protocol/client"
)

// shows waits until the screen has had a text.
func (term *terminal) shows(t *testing.T, want string) {
	t.Helper()
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		term.mu.Lock()
		has := strings.Contains(term.text.String(), want)
		term.mu.Unlock()
		if has {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the screen never has %q", want)
		}
	}
}

// TestAnswerAtTheTerminal: a person at the terminal answers what the agent of a local run asks.
func TestAnswerAtTheTerminal(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{"yes\n": "answered yes", "Y\n": "answered yes", "\n": "answered no", "never\n": "answered no"} {
		t.Run(want+" "+strings.TrimSpace(typed), func(t *testing.T) {
			t.Parallel()
			url := newFake(t).serve(false)
			term := newTerminal(t)
			a := newTestApp(t, url)
			a.in, a.err = term.screen, term.screen
			a.hooks.RunLocal = func(ctx context.Context, o RunOptions) (int, error) {
				c, err := client.New(client.Config{BaseURL: url})
				if err != nil {
					return exitError, err
				}
				return o.Drive(ctx, c)
			}
			code := make(chan int, 1)
			go func() {
				code <- a.run(t.Context(), []string{"run", "--task", "x", "--param", "script=ask Shall I?\ncreate a b", "--test", "grep -q b a"})
			}()
			term.shows(t, "yes or no?")
			if _, err := term.keyboard.WriteString(typed); err != nil {
				t.Fatal(err)
			}
			got := <-code
			// A real agent goes on after a no; the fake's run ends there.
			if screen := term.close(); want == "answered yes" && got != exitPass || !strings.Contains(screen, "an answer to: Shall I?") || !strings.Contains(screen, want) {
				t.Errorf("exit code %d, the screen has %q, want %q", got, screen, want)
			}
		})
	}
}
