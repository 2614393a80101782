package executor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/grader"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
)

// breaks is an environment, a harness and a grader that break where they are told to.
type breaks struct {
	at   string
	stop context.CancelCauseFunc
}

func (b *breaks) here(at string) error {
	switch b.at {
	case at + " panics":
		panic("at the disco")
	case at + " fails":
		return errors.New(at + " cannot")
	case at + " is cancelled":
		b.stop(&Stopped{Reason: StopCancelled, Message: "by ann"})
		return context.Canceled
	}
	return nil
}

func (*breaks) Kind() string { return "breaking" }
func (b *breaks) Prepare(ctx context.Context, a environment.Attempt) (environment.Prepared, error) {
	if err := b.here("environment"); err != nil {
		return nil, err
	}
	p, err := environment.Prompt{}.Prepare(ctx, a)
	return &prepared{p, b}, err
}

type prepared struct {
	environment.Prepared
	*breaks
}

func (p *prepared) Snapshot(ctx context.Context) (*environment.Snapshot, error) {
	if err := p.here("snapshot"); err != nil {
		return nil, err
	}
	return p.Prepared.Snapshot(ctx)
}

func (b *breaks) Install(context.Context, harness.Env) error { return b.here("install") }
func (b *breaks) Run(context.Context, harness.Env) (harness.Outcome, error) {
	return harness.Outcome{}, b.here("harness")
}

// TestP7_EverythingIsReleased: whatever breaks, in whatever phase, the sandbox has ended and
// the attempt's directory is gone when Run returns, with a result that says what it was.
func TestP7_EverythingIsReleased(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"nothing":                  "",
		"environment panics":       "panicked",
		"environment fails":        "environment cannot",
		"environment is cancelled": "by ann",
		"install panics":           "panicked",
		"install fails":            "install cannot",
		"install is cancelled":     "by ann",
		"harness panics":           "panicked",
		"harness fails":            "harness cannot",
		"harness is cancelled":     "by ann",
		"snapshot panics":          "panicked",
		"snapshot fails":           "snapshot cannot",
		"grader panics":            "",
		"grader fails":             "",
		"grader is cancelled":      "by ann",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
				t.Fatal(err)
			}
			driver := fake.New(fake.Config{})
			ctx, stop := context.WithCancelCause(t.Context())
			b := &breaks{at: at, stop: stop}
			var logged, index, traced, diff bytes.Buffer
			recorder, events := log.New(log.Config{Log: &logged, Index: &index}), trace.New(trace.Config{Writer: &traced})
			graders := grader.Builtin()
			graders["breaks"] = grader.Func(func(context.Context, *grader.Input, protocol.GraderSpec) ([]protocol.Score, error) {
				return nil, b.here("grader")
			})
			started := false
			result := New(Config{
				Default: Lane{Driver: driver}, Environments: environment.SetOf(b), Graders: graders, WorkRoot: filepath.Join(dir, "work"), PrivateRoot: filepath.Join(dir, "private"),
				Lookup: func(*protocol.HarnessSpec) (harness.Harness, error) { return b, nil },
			}).Run(ctx, Attempt{
				Name: "run_x.1", Log: recorder, Trace: events, Diff: &diff,
				Job: &protocol.Job{RunID: "run_x", Case: protocol.Case{ID: "c", Task: "x", Env: protocol.EnvSpec{Kind: "breaking"}, Graders: []protocol.GraderSpec{{ID: "breaks"}}},
					Harness: protocol.HarnessSpec{ID: "h", Version: "1"}},
				Phase: func(Phase) { started = started || len(driver.Live()) > 0 },
			})
			if _, err := recorder.Close(); err != nil {
				t.Error(err)
			}
			if err := events.Close(); err != nil {
				t.Error(err)
			}
			if len(driver.Live()) > 0 || !strings.Contains(strings.Join(driver.Log(), "\n"), "release") {
				t.Errorf("sandboxes %q live; the driver was asked for\n%s", driver.Live(), strings.Join(driver.Log(), "\n"))
			}
			if strings.HasPrefix(at, "harness") && !started {
				t.Error("there was no sandbox")
			}
			if left, err := os.ReadDir(filepath.Join(dir, "work")); len(left) > 0 || err != nil && !os.IsNotExist(err) {
				t.Errorf("left behind: %v, %v", left, err)
			}
			switch f := result.Failure; {
			case want == "" && f != nil, want != "" && (f == nil || !strings.Contains(f.Message, want)):
				t.Errorf("failure %+v, want one that says %q", f, want)
			}
			if err := driver.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
