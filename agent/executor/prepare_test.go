package executor

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
)

// TestAnAttemptIsRemovedOnlyItself: a job that puts another directory in the place of the workspaces does not have a
// directory of its attempt's name in there removed.
func TestAnAttemptIsRemovedOnlyItself(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	workRoot := filepath.Join(top, "jobs")
	for _, dir := range []string{"jobs", "other/run_x.1"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &swaps{do: func() error {
		return errors.Join(os.Rename(workRoot, filepath.Join(top, "away")), os.Symlink(filepath.Join(top, "other"), workRoot))
	}}
	recorder, events := log.New(log.Config{Log: io.Discard, Index: io.Discard}), trace.New(trace.Config{Writer: io.Discard})
	New(Config{
		Default: Lane{Driver: fake.New(fake.Config{})}, Environments: environment.NewSet(environment.Config{}), WorkRoot: workRoot,
		PrivateRoot: filepath.Join(top, "private"), Lookup: func(*protocol.HarnessSpec) (harness.Harness, error) { return b, nil },
	}).Run(t.Context(), Attempt{Name: "run_x.1", Log: recorder, Trace: events, Diff: io.Discard,
		Job: &protocol.Job{RunID: "run_x", Case: protocol.Case{ID: "c", Task: "x", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}}, Harness: protocol.HarnessSpec{ID: "h", Version: "1"}}})
	if _, err := recorder.Close(); err != nil {
		t.Error(err)
	}
	if err := events.Close(); err != nil {
		t.Error(err)
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	if _, err := os.Lstat(filepath.Join(top, "other", "run_x.1")); err != nil {
		t.Errorf("what the job put in the place was removed: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(top, "away", "run_x.1", "work")); !os.IsNotExist(err) {
		t.Errorf("the workspace itself is left: %v", err)
	}
}

// swaps is a harness that does something to the machine.
type swaps struct {
	do  func() error
	err error
}

func (s *swaps) Install(context.Context, harness.Env) error { return nil }
func (s *swaps) Run(context.Context, harness.Env) (harness.Outcome, error) {
	s.err = s.do()
	return harness.Outcome{}, s.err
}

// TestP8_SetupIsBounded: a line of set-up that does not end is ended after the case's time, and after half an hour where
// that is longer, with all that it started.
func TestP8_SetupIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeoutSec int
		want       time.Duration
	}{
		"a quick agent": {3, 30 * time.Minute},
		"a slow one":    {7200, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, err := fake.New(fake.Config{Script: `exec sh: hang`}).Start(t.Context(), sandbox.Spec{Attempt: "run_1.1", Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				x := &execution{compute: h, a: Attempt{Job: &protocol.Job{Case: protocol.Case{TimeoutSec: tt.timeoutSec}}}}
				begin := time.Now()
				_, err = x.setup(t.Context(), "sleep 100000", "/", io.Discard)
				var late *environment.LateError
				if !errors.As(err, &late) || late.Configured != tt.want || late.Measured < tt.want {
					t.Errorf("got %v, want a *LateError of %s", err, tt.want)
				}
				if took := time.Since(begin); took < tt.want || took > tt.want+10*time.Second {
					t.Errorf("it took %s, want %s", took, tt.want)
				}
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
