package executor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// meddler is a harness that changes its attempt's directory.
type meddler func(root string) error

func (meddler) Install(context.Context, harness.Env) error { return nil }
func (m meddler) Run(_ context.Context, env harness.Env) (harness.Outcome, error) {
	return harness.Outcome{}, m(env.Root)
}

// What an agent puts on the PATH is on no grader's, and on no other attempt's.
func TestGradersHaveTheirOwnCommands(t *testing.T) {
	t.Parallel()
	plant := func(root string) error {
		return os.WriteFile(filepath.Join(root, binDir, "grep"), []byte("#!/bin/sh\n"), 0o755)
	}
	for name, tt := range map[string]struct {
		meddle meddler
		fails  bool
	}{
		"leaves it":   {meddle: func(string) error { return nil }},
		"plants":      {meddle: plant},
		"removes it":  {meddle: func(root string) error { return os.RemoveAll(filepath.Join(root, binDir)) }},
		"locks it":    {meddle: func(root string) error { return errors.Join(plant(root), os.Chmod(filepath.Join(root, binDir), 0)) }},
		"locks above": {meddle: func(root string) error { return errors.Join(plant(root), os.Chmod(root, 0o500)) }},
		"swaps a link": {meddle: func(root string) error {
			return errors.Join(os.RemoveAll(filepath.Join(root, binDir)), os.Symlink("/", filepath.Join(root, binDir)))
		}},
		"swaps above": {meddle: func(root string) error {
			return errors.Join(os.Rename(root, root+"-away"), os.MkdirAll(filepath.Join(root, binDir), 0o700), plant(root))
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			work := filepath.Join(dir, "work")
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			graded, planted := false, false
			graders := grader.Registry{"look": grader.Func(func(_ context.Context, in *grader.Input, _ protocol.GraderSpec) ([]protocol.Score, error) {
				graded = true
				entries, err := os.ReadDir(filepath.Join(in.Root, binDir))
				if err != nil || len(entries) != 1 || entries[0].Name() != "everdict" {
					t.Errorf("graders find the commands %v, %v", entries, err)
				}
				if to, err := os.Readlink(filepath.Join(in.Root, binDir, "everdict")); err != nil || to != "/opt/everdict" {
					t.Errorf("everdict is %q, %v", to, err)
				}
				return nil, nil
			})}
			driver := fake.New(fake.Config{})
			var logged, index, traced, diff bytes.Buffer
			recorder, events := log.New(log.Config{Log: &logged, Index: &index}), trace.New(trace.Config{Writer: &traced})
			m := meddler(func(root string) error {
				_, err := os.Lstat(filepath.Join(root, binDir, "everdict"))
				planted = true
				return errors.Join(err, tt.meddle(root))
			})
			result := New(Config{
				Default: Lane{Driver: driver, Environ: []string{"PATH=/usr/bin"}}, Environments: environment.NewSet(environment.Config{}), Graders: graders,
				WorkRoot: work, PrivateRoot: filepath.Join(dir, "private"), Program: "/opt/everdict",
				Lookup: func(*protocol.HarnessSpec) (harness.Harness, error) { return m, nil },
			}).Run(t.Context(), Attempt{
				Name: "run_x.1", Log: recorder, Trace: events, Diff: &diff,
				Job: &protocol.Job{RunID: "run_x", Case: protocol.Case{ID: "c", Task: "x", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Graders: []protocol.GraderSpec{{ID: "look"}}},
					Harness: protocol.HarnessSpec{ID: "h", Version: "1"}},
			})
			if _, err := recorder.Close(); err != nil {
				t.Error(err)
			}
			if err := errors.Join(events.Close(), driver.Close()); err != nil {
				t.Error(err)
			}
			if f := result.Failure; !planted || graded == tt.fails || tt.fails != (f != nil) || f != nil && !strings.Contains(f.Message, "in the place of") {
				t.Errorf("the agent ran %v, graders %v, failure %+v", planted, graded, f)
			}
		})
	}
}

// The PATH begins with a directory of the attempt's own.
func TestPathOfAnAttempt(t *testing.T) {
	t.Parallel()
	path := func(root, program string) string {
		x := &execution{Executor: New(Config{Program: program}), root: root, in: Lane{Environ: []string{"PATH=/usr/bin"}}}
		env := x.environ()
		return env[slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })]
	}
	if a, want := path("/w/a", "/opt/everdict"), "PATH=/w/a/bin:/usr/bin"; a != want {
		t.Errorf("got %s, want %s", a, want)
	}
	if a, want := path("/w/a", ""), "PATH=/usr/bin"; a != want {
		t.Errorf("without the program: got %s, want %s", a, want)
	}
}
