package desktop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// standIn is a program that is found first and does nothing but stay, with its arguments to be read.
func standIn(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nwhile :; do sleep 1; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// secretsOf are what a process keeps for itself: the seeds of its device keys, and of a pairing its verifier and grant.
func secretsOf(t *testing.T, p *proc) (seeds, pending []string) {
	t.Helper()
	keys, err := filepath.Glob(filepath.Join(p.dirs.Config, "keys", "*.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		b, err := os.ReadFile(k)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was written anew
		}
		if err != nil {
			t.Fatal(err)
		}
		var kept struct {
			Seed    string `json:"seed"`
			Pending struct {
				Verifier, Grant string
			} `json:"pending"`
		}
		if err := json.Unmarshal(b, &kept); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []struct {
			text string
			to   *[]string
		}{{kept.Seed, &seeds}, {kept.Pending.Verifier, &pending}, {kept.Pending.Grant, &pending}} {
			if secret.text != "" {
				*secret.to = append(*secret.to, secret.text)
			}
		}
	}
	return seeds, pending
}

// What everybody can read of the app, its window and the browser while it is being connected has no secret in it: not
// their arguments, not their environment, not the log.
func TestNothingToReadDuringPairing(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	programs := t.TempDir()
	standIn(t, programs, "xdg-open")
	standIn(t, programs, "chromium")
	// GTK cannot open this display: the page is shown by what is taken for a browser.
	p := startProcWith(t, []string{"DISPLAY=:none", "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH")})
	t.Cleanup(func() {
		p.kill()
		for _, left := range below(t, p.home) { // a browser outlives the app
			_ = syscall.Kill(left.pid, syscall.SIGKILL)
		}
	})
	// What there has to be to look at: the program's name, and a word of its arguments.
	want := map[string]string{"the app": "--background", "the window": "window", "its browser": "--app=http://127.0.0.1:", "the browser": "xdg-open"}
	look := func(secrets ...string) {
		files := []string{p.dirs.Log()}
		for _, r := range below(t, p.home) {
			files = append(files, fmt.Sprintf("/proc/%d/cmdline", r.pid), fmt.Sprintf("/proc/%d/environ", r.pid))
		}
		if _, err := os.Stat(filepath.Join(p.dirs.Config, "connections.json")); err == nil {
			files = append(files, filepath.Join(p.dirs.Config, "connections.json"))
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) && file != p.dirs.Log() || errors.Is(err, syscall.ESRCH) {
				continue // that process has ended
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range append(secrets, protocol.DeviceSessionPrefix, protocol.PairGrantPrefix) {
				if bytes.Contains(b, []byte(secret)) {
					t.Errorf("%s has a secret in it: %q", file, b)
				}
			}
			for what, word := range want {
				if strings.HasSuffix(file, "/cmdline") && bytes.Contains(b, []byte(word)) {
					delete(want, what)
				}
			}
		}
	}
	if out, err := p.command("everdict://open").CombinedOutput(); err != nil {
		t.Fatalf("open the window: %v, %s", err, out)
	}
	house.Eventually(t, "window and browser are there", func() bool {
		look()
		return len(want) == 1 // the other browser comes with the pairing
	})
	p.pair(h, func(secrets ...string) {
		seeds, pending := secretsOf(t, p)
		if len(seeds) != 1 {
			t.Fatalf("there are %d keys to look for, want one", len(seeds))
		}
		if len(secrets) == 0 { // it waits for its approval
			if len(pending) != 1 {
				t.Fatalf("there are %d secrets of the pairing to look for, want its verifier", len(pending))
			}
			house.Eventually(t, "the browser is there", func() bool { look(append(seeds, pending...)...); return len(want) == 0 })
		}
		look(slices.Concat(secrets, seeds, pending)...)
	})
}
