package watchdog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// obedient is a command that ends at the signal it obeys, and at End.
type obedient struct {
	obeys           syscall.Signal
	frozen, blocked bool

	mu       sync.Mutex
	dog      *Watchdog
	endCalls int
}

func (o *obedient) Signal(r sandbox.Rung) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Signal == unknown {
		return "", errors.New("there is no such signal")
	}
	if r.Signal == o.obeys {
		o.dog.Ended()
	}
	return r.Signal.String(), nil
}

func (o *obedient) End(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endCalls++
	o.dog.Ended()
	return nil
}

func (o *obedient) Frozen() bool  { return o.frozen }
func (o *obedient) Blocked() bool { return o.blocked }

const unknown = syscall.Signal(99)

func start(o *obedient, cmd sandbox.Command) *Watchdog {
	o.dog = New(o, cmd, stopwatch.New(stopwatch.Now, false))
	o.dog.Begin()
	return o.dog
}

func TestLadderIsWalkedUntilTheCommandEnds(t *testing.T) {
	t.Parallel()
	ladder := sandbox.Ladder{{Signal: syscall.SIGINT}, {Signal: unknown}, {Signal: syscall.SIGTERM}, {Signal: syscall.SIGHUP}}
	for obeys, want := range map[syscall.Signal][]string{
		syscall.SIGINT:  {"interrupt"},
		syscall.SIGTERM: {"interrupt", "terminated"},
		0:               {"interrupt", "terminated", "hangup", "SIGKILL"},
	} {
		o := &obedient{obeys: obeys}
		dog := start(o, sandbox.Command{Ladder: ladder})
		if err := dog.Stop(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		exit := dog.Exit()
		if exit.Reason != sandbox.ReasonStopped || !slices.Equal(exit.Sent, want) || o.endCalls != 1 {
			t.Errorf("obeys %s: %+v, ended %d times, want sent %q", obeys, exit, o.endCalls, want)
		}
	}
}

func TestAFrozenCommandIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	o := &obedient{obeys: syscall.SIGINT, frozen: true}
	dog := start(o, sandbox.Command{Ladder: sandbox.Ladder{{Signal: syscall.SIGINT, Grace: time.Hour}}})
	if err := dog.Stop(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if exit := dog.Exit(); !slices.Equal(exit.Sent, []string{"SIGKILL"}) {
		t.Errorf("%+v: it cannot answer a signal", exit)
	}
}

func TestF51_LimitsByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cmd  sandbox.Command
		want sandbox.Reason
	}{
		"timeout": {sandbox.Command{Timeout: time.Millisecond, IdleTimeout: time.Hour}, sandbox.ReasonTimeout},
		"idle":    {sandbox.Command{Timeout: time.Hour, IdleTimeout: time.Millisecond}, sandbox.ReasonIdle},
	} {
		c.cmd.Ladder = sandbox.Ladder{}
		dog := start(&obedient{}, c.cmd)
		if err := dog.Watch(); err != nil {
			t.Fatal(err)
		}
		exit := dog.Exit()
		if exit.Reason != c.want || exit.Fired == nil || exit.Fired.Name != name || exit.Fired.Configured != time.Millisecond || exit.Fired.Measured < time.Millisecond {
			t.Errorf("%s: %+v, fired %+v", name, exit, exit.Fired)
		}
	}
}

// A command whose output nobody takes is not idle: it waits for us.
func TestF51_BlockedIsNotIdle(t *testing.T) {
	t.Parallel()
	dog := start(&obedient{blocked: true}, sandbox.Command{Timeout: 20 * time.Millisecond, IdleTimeout: time.Millisecond, Ladder: sandbox.Ladder{}})
	if err := dog.Watch(); err != nil {
		t.Fatal(err)
	}
	if exit := dog.Exit(); exit.Reason != sandbox.ReasonTimeout {
		t.Errorf("%+v, wanted the timeout", exit)
	}
}

// The first who ends a command is its reason, and only while it lives.
func TestTheFirstReasonCounts(t *testing.T) {
	t.Parallel()
	dog := start(&obedient{obeys: syscall.SIGINT}, sandbox.Command{Ladder: sandbox.Ladder{{Signal: syscall.SIGINT}}})
	dog.Killed()
	if err := dog.Stop(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if exit := dog.Exit(); exit.Reason != sandbox.ReasonKilled {
		t.Errorf("killed, then stopped: %+v", exit)
	}
	dog = start(&obedient{}, sandbox.Command{})
	dog.Ended()
	dog.Killed()
	if exit := dog.Exit(); exit.Reason != sandbox.ReasonNone || exit.Sent != nil {
		t.Errorf("ended, then killed: %+v", exit)
	}
}
