package window

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// early is how soon a browser has to end, with an error, for us to say that it did not
// start at all.
const early = 5 * time.Second

// profilePrefix names the profiles, with the process that made each.
const profilePrefix = "everdict-window-"

// app shows the page in a browser's app mode: a window without tabs or address bar. It
// has a profile of its own, so that the process lasts as long as its window and the
// page's cookie goes with it.
func app(path string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		dir := s.ProfileDir
		if dir == "" {
			dir = os.TempDir()
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		sweepProfiles(dir)
		profile, err := os.MkdirTemp(dir, profilePrefix+strconv.Itoa(os.Getpid())+"-")
		if err != nil {
			return err
		}
		defer removeProfile(profile)
		address, err := s.address(ctx)
		if err != nil {
			return err
		}
		args := []string{
			"--app=" + address,
			"--user-data-dir=" + profile,
			"--no-first-run", "--no-default-browser-check", "--disable-sync", "--disable-background-networking",
			"--class=everdict",
			fmt.Sprintf("--window-size=%d,%d", s.Width, s.Height),
		}
		cmd := exec.CommandContext(ctx, path, append(args, s.BrowserArgs...)...)
		cmd.Cancel = func() error { return politely(cmd.Process) }
		cmd.WaitDelay = 5 * time.Second // then it is killed
		cmd.Stderr = os.Stderr
		endWithUs(cmd)
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return err
		}
		s.opened(App, nil)
		err = cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && time.Since(began) < early {
			return fmt.Errorf("%w: %w", errNotShown, err)
		}
		return err
	}
}

// sweepProfiles removes profiles whose process was killed.
func sweepProfiles(dir string) {
	old, err := filepath.Glob(filepath.Join(dir, profilePrefix+"*"))
	if err != nil {
		return // a directory that is a bad pattern has none of ours
	}
	for _, profile := range old {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(profile), profilePrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 && !alive(n) {
			_ = os.RemoveAll(profile)
		}
	}
}

// removeProfile tries again for a while: what a browser started can still write into it.
func removeProfile(profile string) {
	for range 20 {
		if os.RemoveAll(profile) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// tab shows the page in the default browser, and is done.
func tab(ctx context.Context, s *session) error {
	address, err := s.address(ctx)
	if err != nil {
		return err
	}
	if err := openURL(address); err != nil {
		return err
	}
	s.shown = true
	s.say("over " + string(Browser))
	return nil
}

// found is the first of the programs that is installed.
func found(names ...string) (string, bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}
