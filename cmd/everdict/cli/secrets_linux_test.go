package cli

import (
	"context"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/protocol"
)

// silent waits until the terminal does not show what is typed, or does again.
func (term *terminal) silent(t *testing.T, want bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond) // nothing tells of a change
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		state, err := unix.IoctlGetTermios(term.fd, unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if (state.Lflag&unix.ECHO == 0) == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the terminal is silent: %v, want %v", !want, want)
		}
	}
}

// TestP12_ThePromptShowsNothing: a person types the value, and the screen never has it.
func TestP12_ThePromptShowsNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	term := newTerminal(t)
	a := newTestApp(t, f.serve(false))
	a.in, a.out, a.err = term.screen, term.screen, term.screen
	code := make(chan int, 1)
	go func() { code <- a.run(t.Context(), []string{"secrets", "set", "DEPLOY_TOKEN", "--scope", "user"}) }()
	term.silent(t, true)
	if _, err := term.keyboard.WriteString("typed-by-hand\n"); err != nil {
		t.Fatal(err)
	}
	got := <-code
	term.silent(t, false)
	screen := term.close()
	if want := "Value of DEPLOY_TOKEN (not shown): \r\nDEPLOY_TOKEN set for you alone\r\n"; got != 0 || len(screen) < len(want) || screen[:len(want)] != want {
		t.Errorf("exit code %d, the screen has %q, want it to begin with %q", got, screen, want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.values[protocol.SecretRef{SecretRef: "DEPLOY_TOKEN", Scope: protocol.SecretUser}]; v != "typed-by-hand" {
		t.Errorf("set to %q", v)
	}
}

// TestAnInterruptedPromptLeavesTheTerminalAsItWas: what is typed afterwards is seen
// again, and nothing was set.
func TestAnInterruptedPromptLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	term := newTerminal(t)
	a := newTestApp(t, f.serve(false))
	a.in, a.err = term.screen, term.screen
	ctx, interrupt := context.WithCancelCause(t.Context())
	code := make(chan int, 1)
	go func() { code <- a.run(ctx, []string{"secrets", "set", "DEPLOY_TOKEN"}) }()
	term.silent(t, true)
	interrupt(&interruptError{syscall.SIGINT})
	if got := <-code; got != exitInterrupted {
		t.Errorf("exit code %d, want %d", got, exitInterrupted)
	}
	term.silent(t, false)
	// The read is over with the process, which here goes on.
	if _, err := term.keyboard.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	term.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.values) != 0 {
		t.Errorf("set: %v", f.values)
	}
}
