package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
)

const jobKey = "sk-ant-api03-Zx81mQ0vLw7RkT2yHc9Gd4Ns6Pb5Jf3Xa"

// TestP12_Secrets: what is taken for a secret, and by which name.
func TestP12_Secrets(t *testing.T) {
	t.Parallel()
	git := func(url string) *protocol.Job {
		return &protocol.Job{Case: protocol.Case{Env: protocol.EnvSpec{Source: &protocol.RepoSource{Git: url}}}}
	}
	for _, tt := range []struct {
		name    string
		job     *protocol.Job
		environ []string
		want    []redact.Secret
	}{
		{"nothing", &protocol.Job{}, []string{"PATH=/bin", "ANTHROPIC_MODEL=m", "HTTP_PROXY=http://proxy:3128", "NOEQUALS"}, nil},
		{"resolved values", &protocol.Job{Env: map[string]string{"B": "two", "A": "one"}}, nil, []redact.Secret{{Name: "A", Value: "one"}, {Name: "B", Value: "two"}}},
		{"credentials of the host", &protocol.Job{}, []string{"OPENAI_API_KEY=k=1", "AWS_SECRET_ACCESS_KEY=not inherited"},
			[]redact.Secret{{Name: "OPENAI_API_KEY", Value: "k=1"}}},
		{"proxy", &protocol.Job{}, []string{"https_proxy=http://me:p%40ss@proxy:3128"},
			[]redact.Secret{{Name: "https_proxy", Value: "p@ss"}, {Name: "https_proxy", Value: "me:p@ss"}}},
		{"proxy without a scheme", &protocol.Job{}, []string{"ALL_PROXY=me:pass@proxy:3128"},
			[]redact.Secret{{Name: "ALL_PROXY", Value: "pass"}, {Name: "ALL_PROXY", Value: "me:pass"}}},
		{"base URL", &protocol.Job{}, []string{"OPENAI_BASE_URL=https://u:pw@host/v1"},
			[]redact.Secret{{Name: "OPENAI_BASE_URL", Value: "pw"}, {Name: "OPENAI_BASE_URL", Value: "u:pw"}}},
		{"git over HTTP", git("https://u:pw@host/r.git"), nil, []redact.Secret{{Name: "GIT_SOURCE", Value: "pw"}, {Name: "GIT_SOURCE", Value: "u:pw"}}},
		{"git with a token", git("https://ghp_1@host/r.git"), nil, []redact.Secret{{Name: "GIT_SOURCE", Value: "ghp_1"}}},
		{"git over SSH", git("ssh://git@host/r.git"), nil, nil},
		{"git as scp writes it", git("git@host:org/r.git"), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, Secrets(tt.job, tt.environ)); d != "" {
				t.Errorf("secrets (-want +got):\n%s", d)
			}
		})
	}
}

// talker is a harness that tells its key in all ways in which a harness can.
type talker struct {
	fail   bool
	stderr *harness.Tail
}

func (*talker) Install(context.Context, harness.Env) error { return nil }

func (h *talker) Run(ctx context.Context, env harness.Env) (harness.Outcome, error) {
	h.stderr = harness.NewTail(env.Stderr, 40)
	p, err := env.Compute.Exec(ctx, sandbox.Command{Args: []string{"agent"}, Stdout: env.Stdout, Stderr: h.stderr})
	if err != nil {
		return harness.Outcome{}, err
	}
	exit, err := p.Wait()
	if err != nil {
		return harness.Outcome{}, err
	}
	var escaped strings.Builder
	for _, c := range []byte(jobKey) {
		fmt.Fprintf(&escaped, `\u%04x`, c)
	}
	said := "the key is " + jobKey
	env.Emit(protocol.TraceEvent{Kind: protocol.EventToolCall, Name: "bash", Args: json.RawMessage(`{"command": "echo ` + escaped.String() + `", "` + jobKey + `": 1}`)})
	env.Emit(protocol.TraceEvent{Kind: protocol.EventToolResult, Output: &said, Detail: json.RawMessage(`{"a":{"b":["` + jobKey + `"]}}`)})
	env.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: &said})
	env.Emit(protocol.TraceEvent{Kind: protocol.EventError, Message: said})
	out := harness.Outcome{Exit: exit, FinalMessage: &said, Version: "1.0 (" + jobKey + ")"}
	if h.fail {
		out.Failure = &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassHarness, Reason: protocol.ReasonCrashed,
			Code: protocol.CodeHarnessRunFailed, Message: "died of " + jobKey, LogTail: h.stderr.String()}
	}
	return out, nil
}

// TestF26_P12_NothingOfAKeyLeavesTheExecutor: events in any escapes, halves that
// meet in the log, tails that are cut, final words, failures and the runner's own log.
func TestF26_P12_NothingOfAKeyLeavesTheExecutor(t *testing.T) {
	t.Parallel()
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail %v", fail), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			half := len(jobKey) / 2
			// The key ends 10 bytes before the end of stderr: of the last 40 bytes, 30
			// would be of the key.
			driver := fake.New(fake.Config{Script: fmt.Sprintf("exec agent: print %q; print %q; err %q; err %q\nrelease: fail %s cannot be removed",
				"key "+jobKey[:half], jobKey[half:]+" end\n", "fatal: "+jobKey[:half], jobKey[half:]+" refused!\n", jobKey)})
			var logged, index, traced, diff, own bytes.Buffer
			recorder := log.New(log.Config{Log: &logged, Index: &index})
			events := trace.New(trace.Config{Writer: &traced})
			red := redact.New([]redact.Secret{{Name: "JOB_KEY", Value: jobKey}, {Name: "SHORT", Value: "abc"}})
			agent := &talker{fail: fail}
			exec := New(Config{
				Default: Lane{Driver: driver}, Environments: environment.NewSet(environment.Config{}),
				Lookup:   func(*protocol.HarnessSpec) (harness.Harness, error) { return agent, nil },
				WorkRoot: dir, PrivateRoot: filepath.Join(dir, "private"), Log: slog.New(slog.NewTextHandler(&own, nil)),
			})
			result := exec.Run(t.Context(), Attempt{
				Name: "run_1.1", Log: recorder, Trace: events, Diff: &diff, Redact: red,
				Job: &protocol.Job{RunID: "run_1", Case: protocol.Case{ID: "c1", Task: "talk", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt},
					Graders: []protocol.GraderSpec{{ID: "answer-match", Config: []byte(`{"expect":"nothing of it"}`)}}},
					Harness: protocol.HarnessSpec{ID: "talker", Version: "1"}},
			})
			if _, err := recorder.Close(); err != nil {
				t.Fatal(err)
			}
			if err := events.Close(); err != nil {
				t.Fatal(err)
			}
			doc, err := json.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			for what, text := range map[string]string{"log": logged.String(), "trace": traced.String(), "result": string(doc), "runner's log": own.String()} {
				if !strings.Contains(text, "[redacted:JOB_KEY]") {
					t.Errorf("the %s has no marker: %s", what, text)
				}
				for at := 0; at+10 <= len(jobKey); at++ {
					piece := jobKey[at : at+10]
					var escaped strings.Builder
					for _, c := range []byte(piece) {
						fmt.Fprintf(&escaped, `\u%04x`, c)
					}
					if strings.Contains(text, piece) || strings.Contains(text, escaped.String()) {
						t.Fatalf("the %s holds %q of the key: %s", what, piece, text)
					}
				}
			}
			if got, want := logged.String(), "key [redacted:JOB_KEY] end\n"; !strings.Contains(got, want) {
				t.Errorf("log: got %q, want %q in it", got, want)
			}
			if got := agent.stderr.String(); got != "fatal: [redacted:JOB_KEY] refused!\n" {
				t.Errorf("the harness keeps %q of stderr", got)
			}
			if got := result.Snapshot.Output; got != "the key is [redacted:JOB_KEY]" {
				t.Errorf("the final message is %q", got)
			}
			if (result.Failure != nil) != fail || fail && result.Failure.Message != "died of [redacted:JOB_KEY]" {
				t.Errorf("failure: got %+v", result.Failure)
			}
			if !strings.Contains(strings.Join(result.Execution.Notes, "\n"), "the value of SHORT is too short") {
				t.Errorf("notes: got %q", result.Execution.Notes)
			}
			if _, err := os.Stat(filepath.Join(dir, "run_1.1")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the attempt's directory is still there: %v", err)
			}
		})
	}
}

// sink is a writer that can fail, and tells of a Write if somebody asks.
type sink struct {
	buf   bytes.Buffer
	err   error
	wrote func()
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.wrote != nil {
		defer s.wrote()
	}
	return s.buf.Write(p)
}

// TestP12_OutputIsCompleteWhenTheCommandEnds: what was held back is written before
// Done, and an error of that write is Wait's.
func TestP12_OutputIsCompleteWhenTheCommandEnds(t *testing.T) {
	t.Parallel()
	red := redact.New([]redact.Secret{{Name: "JOB_KEY", Value: jobKey}})
	driver := fake.New(fake.Config{Script: fmt.Sprintf("exec half: print %q; exit 3\nexec hang: print %q; hang", jobKey[:20], "ready\n"+jobKey[:20])})
	handle, err := driver.Start(t.Context(), sandbox.Spec{Attempt: "run_1.1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = handle.Release(context.Background()) })
	if got := redacted(handle, redact.New(nil)); got != handle {
		t.Error("a sandbox without secrets is wrapped")
	}
	compute := redacted(handle, red)

	both := &sink{}
	p, err := compute.Exec(t.Context(), sandbox.Command{Args: []string{"half"}, Stdout: both, Stderr: both})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if got := both.buf.String(); got != jobKey[:20] {
		t.Errorf("at the end of the command there is %q, want %q", got, jobKey[:20])
	}
	if exit, err := p.Wait(); exit.Code != 3 || err != nil {
		t.Errorf("wait: %+v, %v, want code 3", exit, err)
	}

	full := errors.New("disk full")
	if p, err = compute.Exec(t.Context(), sandbox.Command{Args: []string{"half"}, Stdout: &sink{err: full}, Stderr: both}); err != nil {
		t.Fatal(err)
	}
	var lost *sandbox.OutputError
	if exit, err := p.Wait(); exit.Code != 3 || !errors.As(err, &lost) || lost.Stream != protocol.StreamStdout || !errors.Is(err, full) {
		t.Errorf("wait with a full disk: %+v, %v, want code 3 and a lost stdout", exit, err)
	}

	ready := make(chan struct{})
	hangs := &sink{wrote: sync.OnceFunc(func() { close(ready) })}
	if p, err = compute.Exec(t.Context(), sandbox.Command{Args: []string{"hang"}, Stdout: hangs}); err != nil {
		t.Fatal(err)
	}
	<-ready
	if exit, err := p.Stop(t.Context(), sandbox.Ladder{}); exit.Reason != sandbox.ReasonStopped || err != nil {
		t.Errorf("stop: %+v, %v", exit, err)
	}
	if got, want := hangs.buf.String(), "ready\n"+jobKey[:20]; got != want {
		t.Errorf("after Stop there is %q, want %q", got, want)
	}

	if p, err = compute.Exec(t.Context(), sandbox.Command{Args: []string{"half"}}); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); exit.Code != 3 || err != nil {
		t.Errorf("wait without outputs: %+v, %v", exit, err)
	}
	if same(io.Discard, nil) || !same(both, both) || same(uncomparable{}, uncomparable{}) {
		t.Error("same does not tell one writer from two")
	}
}

type uncomparable []byte

func (uncomparable) Write(p []byte) (int, error) { return len(p), nil }
