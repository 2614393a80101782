package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/harnesstest"
	"github.com/everdict/everdict/agent/harness/scripted"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

func task(t testing.TB, task string) *harnesstest.Rig {
	return harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "scripted"}, task)
}

func script(t testing.TB, lines ...string) *harnesstest.Rig {
	return harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "scripted",
		Params: map[string]string{"script": strings.Join(lines, "\n")}}, "follow the script")
}

func TestTasksInPlainEnglish(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, task string
		before     map[string]string
		want       map[string]string
		final      string
	}{
		{"the demo", "Create ok.txt containing the text done", nil, map[string]string{"ok.txt": "done\n"}, "Created ok.txt."},
		{"the other demo", "Create ok.txt with the text done", nil, map[string]string{"ok.txt": "done\n"}, "Created ok.txt."},
		{"a full stop", "Create a file ok.txt containing the text done.", nil, map[string]string{"ok.txt": "done\n"}, "Created ok.txt."},
		{"in a directory, quoted", `Please create a file called "a dir/b.txt" containing 'It is "so".'`, nil,
			map[string]string{"a dir/b.txt": "It is \"so\".\n"}, "Created a dir/b.txt."},
		{"a list with one text", "Create a.txt, b/c.txt and d.txt containing x y z", nil,
			map[string]string{"a.txt": "x y z\n", "b/c.txt": "x y z\n", "d.txt": "x y z\n"}, "Created a.txt, created b/c.txt, created d.txt."},
		{"a list with texts of its own", `Create a.txt containing one and b.txt with the text "two, and three".`, nil,
			map[string]string{"a.txt": "one\n", "b.txt": "two, and three\n"}, "Created a.txt, created b.txt."},
		{"several sentences", "Create a.txt containing one. Append two to a.txt. Then replace one with 1 in a.txt and delete old.txt.",
			map[string]string{"old.txt": "x"}, map[string]string{"a.txt": "1\ntwo\n", "old.txt": "<absent>"},
			"Created a.txt, appended to a.txt, replaced the text in a.txt, deleted old.txt."},
		{"special characters of sed and sh", `Replace "a/b.*[c]&$HOME'" with "x\\1&/$(id)" in f.txt`,
			map[string]string{"f.txt": "1 a/b.*[c]&$HOME' 2 a/bb[c]\n"}, map[string]string{"f.txt": "1 x\\1&/$(id) 2 a/bb[c]\n"}, "Replaced the text in f.txt."},
		{"every occurrence in several files", "Replace foo with bar in a.go and b.go", map[string]string{"a.go": "foo foo", "b.go": "foo\n"},
			map[string]string{"a.go": "bar bar", "b.go": "bar\n"}, "Replaced the text in a.go, replaced the text in b.go."},
		{"write into", `Write "hello" to greeting.txt`, nil, map[string]string{"greeting.txt": "hello\n"}, "Created greeting.txt."},
		{"add to the end", "Add the line bye to the end of g.txt", map[string]string{"g.txt": "hi\n"}, map[string]string{"g.txt": "hi\nbye\n"}, "Appended to g.txt."},
		{"an empty file", "Create an empty file e.txt", nil, map[string]string{"e.txt": ""}, "Created e.txt."},
		{"lines", `Create l.txt containing "one\ntwo"`, nil, map[string]string{"l.txt": "one\ntwo\n"}, "Created l.txt."},
		{"unintelligible", "Prove the Riemann hypothesis", nil, nil,
			"I cannot do this: Prove the Riemann hypothesis. I understand plain file tasks only: create, append, replace and delete."},
		{"partly intelligible", "Create a.txt containing x. Make it beautiful.", nil, map[string]string{"a.txt": "x\n"},
			"Created a.txt. I cannot do this: Make it beautiful. I understand plain file tasks only: create, append, replace and delete."},
		{"outside the workspace", "Create ../evil.txt containing x", nil, map[string]string{"../evil.txt": "<absent>"},
			"I cannot do this: Create ../evil.txt containing x. I understand plain file tasks only: create, append, replace and delete."},
		{"a tool that fails", "Delete nothing.txt", nil, nil, "Could not delete nothing.txt."},
		{"an apostrophe", "Create it's.txt containing don't", nil, map[string]string{"it's.txt": "don't\n"}, "Created it's.txt."},
		{"the file first", "In f.txt, replace foo with bar", map[string]string{"f.txt": "foo"}, map[string]string{"f.txt": "bar"}, "Replaced the text in f.txt."},
		{"a list of items", "1. Create a.txt containing one\n2. Append two to a.txt\n- Delete b.txt", map[string]string{"b.txt": ""},
			map[string]string{"a.txt": "one\ntwo\n", "b.txt": "<absent>"}, "Created a.txt, appended to a.txt, deleted b.txt."},
		{"whose content", "Please add a new file named n.md whose content is \"# Title\"; then remove the file b.txt!", map[string]string{"b.txt": ""},
			map[string]string{"n.md": "# Title\n", "b.txt": "<absent>"}, "Created n.md, deleted b.txt."},
		{"a directory", "Make a directory build/out and create build/out/x containing 1", nil, map[string]string{"build/out/x": "1\n"},
			"Made the directory build/out, created build/out/x."},
		{"options as names", `Create -rf containing x and delete --help`, map[string]string{"--help": ""},
			map[string]string{"-rf": "x\n", "--help": "<absent>"}, "Created -rf, deleted --help."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig := task(t, tt.task)
			for name, content := range tt.before {
				rig.Write(t, name, content)
			}
			out := rig.Run(t, scripted.New())
			if out.Failure != nil || !out.Exit.Success() {
				t.Fatalf("task %q: exit %+v, failure %+v", tt.task, out.Exit, out.Failure)
			}
			for name, want := range tt.want {
				if got := rig.File(t, name); got != want {
					t.Errorf("task %q: %s holds %q, want %q", tt.task, name, got, want)
				}
			}
			if out.FinalMessage == nil || *out.FinalMessage != tt.final {
				t.Errorf("task %q: final message %q, want %q", tt.task, deref(out.FinalMessage), tt.final)
			}
			if rig.Stdout.String() != strings.ReplaceAll(rig.Stdout.String(), "\x1e", "") {
				t.Errorf("frames leaked into the log: %q", rig.Stdout.String())
			}
			if got := rig.Pids(); len(got) != 1 || got[0] == 0 {
				t.Errorf("started pids %v, want one", got)
			}
		})
	}
}

func deref(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

func TestToolCallsAreRealAndInOrder(t *testing.T) {
	t.Parallel()
	rig := script(t, "say first", "run echo out; echo err >&2; exit 3", "create a/b.txt \"exact\"", "append a/b.txt more words",
		"# a comment", "", "think model=m input=10 output=5 cost=0.25", "say last")
	out := rig.Run(t, scripted.New())
	type seen struct{ Kind, Name, Text, Output, OK string }
	var got []seen
	for _, ev := range rig.Events() {
		s := seen{Kind: ev.Kind, Name: ev.Name}
		if ev.Text != nil {
			s.Text = *ev.Text
		}
		if ev.Output != nil {
			s.Output, s.OK = *ev.Output, fmt.Sprint(*ev.OK)
		}
		got = append(got, s)
	}
	want := []seen{
		{Kind: "message", Text: "follow the script"},
		{Kind: "message", Text: "first"},
		{Kind: "tool_call", Name: "bash"},
		{Kind: "tool_result", Output: "out\nerr\n[exit code 3]", OK: "false"},
		{Kind: "tool_call", Name: "create_file"},
		{Kind: "tool_result", OK: "true"},
		{Kind: "tool_call", Name: "append_file"},
		{Kind: "tool_result", OK: "true"},
		{Kind: "llm_call"},
		{Kind: "message", Text: "last"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if got := rig.File(t, "a/b.txt"); got != "exactmore words\n" {
		t.Errorf("a/b.txt holds %q", got)
	}
	if out.Usage == nil || *out.Usage.USD != 0.25 || *out.Usage.PromptTokens != 10 || *out.Usage.Calls != 1 || out.Usage.USDSource != "scripted:think" {
		t.Errorf("usage %+v", out.Usage)
	}
	if got := rig.Stdout.String(); got != "out\nerr\n" {
		t.Errorf("log %q, want the tool's output and nothing else", got)
	}
}

func TestP13_AnAgentWithoutModelCallsReportsNoUsage(t *testing.T) {
	t.Parallel()
	if out := task(t, "Create a.txt containing x").Run(t, scripted.New()); out.Usage != nil {
		t.Errorf("usage %+v, want nil: nothing was reported", out.Usage)
	}
	out := script(t, "think input=3").Run(t, scripted.New())
	if out.Usage == nil || out.Usage.USD != nil || out.Usage.CompletionTokens != nil || out.Usage.TotalTokens != nil || *out.Usage.PromptTokens != 3 {
		t.Errorf("usage %+v, want 3 prompt tokens and all else unknown", out.Usage)
	}
}

func TestP8_HowTheAgentEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		script  string
		env     func(*harness.Env)
		failure *protocol.Failure // nil: graded
		measure func(f *protocol.Failure) error
		says    string
	}{
		{"a non-zero exit is graded", "exit 7", nil, nil, nil, "the scripted agent exited with code 7"},
		{"exit 137 is no signal and no OOM", "exit 137", nil, nil, nil, "the scripted agent exited with code 137"},
		{"a crash", "crash", nil, &protocol.Failure{Reason: protocol.ReasonCrashed, Class: protocol.ClassHarness, Signal: "SIGSEGV"}, nil,
			"the scripted agent was ended by SIGSEGV, which Everdict did not send"},
		{"SIGKILL from nobody", "crash KILL", nil, &protocol.Failure{Reason: protocol.ReasonCrashed, Class: protocol.ClassHarness, Signal: "SIGKILL"}, nil,
			"the scripted agent was ended by SIGKILL, which Everdict did not send"},
		{"a timeout", "sleep 60s", func(e *harness.Env) { e.Timeout = 300 * time.Millisecond },
			&protocol.Failure{Reason: protocol.ReasonTimeout, Class: protocol.ClassHarness, Signal: "SIGINT"}, limit("timeoutSec", 0.3),
			"the scripted agent was still running after 0.3 s of running time (timeoutSec) and was ended"},
		{"silence", "print 1 lines\nsleep 60s", func(e *harness.Env) { e.IdleTimeout = 300 * time.Millisecond },
			&protocol.Failure{Reason: protocol.ReasonStalled, Class: protocol.ClassHarness, Signal: "SIGINT"}, limit("idleTimeoutSec", 0.3),
			"the scripted agent printed nothing for 0.3 s (idleTimeoutSec) and was ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig := script(t, tt.script)
			if tt.env != nil {
				tt.env(&rig.Env)
			}
			out := rig.Run(t, scripted.New())
			events := rig.Events()
			if out.Failure != nil {
				if out.Failure.Message != tt.says {
					t.Errorf("failure %q, want %q", out.Failure.Message, tt.says)
				}
			} else if last := events[len(events)-1]; last.Kind != protocol.EventError || last.Message != tt.says {
				t.Errorf("last event %s %q, want error %q", last.Kind, last.Message, tt.says)
			}
			if tt.failure == nil {
				if out.Failure != nil {
					t.Fatalf("failure %+v, want none: it is to be graded", out.Failure)
				}
				return
			}
			f := out.Failure
			if f == nil || f.Stage != protocol.StageRun || f.Code != protocol.CodeHarnessRunFailed || f.Class != tt.failure.Class ||
				f.Reason != tt.failure.Reason || f.Signal != tt.failure.Signal {
				t.Fatalf("failure %+v, want %+v", f, tt.failure)
			}
			if tt.measure != nil {
				if err := tt.measure(f); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func limit(name string, configured float64) func(*protocol.Failure) error {
	return func(f *protocol.Failure) error {
		if l := f.Limit; l == nil || l.Name != name || l.Unit != "s" || l.Configured != configured || l.Measured < configured || l.Measured > 30 {
			return fmt.Errorf("limit %+v, want %s of %g s with what was measured", l, name, configured)
		}
		return nil
	}
}

func TestHangIsEndedAndForksAreGone(t *testing.T) {
	t.Parallel()
	rig := script(t, "fork echo $$ > daemon.pid; while :; do sleep 1; done", "run while [ ! -s daemon.pid ]; do sleep 0.01; done", "hang")
	rig.Env.Timeout = 3 * time.Second // it must not run out before the hang
	ladder := time.Now()
	out := rig.Run(t, scripted.New())
	if out.Failure == nil || out.Failure.Reason != protocol.ReasonTimeout || out.Failure.Signal != "SIGKILL" {
		t.Fatalf("failure %+v, want a timeout that needed SIGKILL", out.Failure)
	}
	if took := time.Since(ladder); took > 30*time.Second {
		t.Errorf("ending it took %v", took)
	}
	var pid int
	if _, err := fmt.Sscan(rig.File(t, "daemon.pid"), &pid); err != nil {
		t.Fatalf("daemon.pid: %v", err)
	}
	if err := rig.Env.Compute.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the daemon %d is still there: %s", pid, stat)
	}
}

func TestCancelStopsTheAgent(t *testing.T) {
	t.Parallel()
	rig := script(t, "print 1 lines", "think input=5", "run echo ready", "sleep 60s")
	cause := errors.New("the run was cancelled")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	type result struct {
		out harness.Outcome
		err error
	}
	done := make(chan result)
	go func() {
		out, err := scripted.New().Run(ctx, rig.Env)
		done <- result{out, err}
	}()
	harnesstest.Eventually(t, "the agent's output", func() bool { return strings.Contains(rig.Stdout.String(), "ready") })
	cancel(cause)
	r := <-done
	if !errors.Is(r.err, cause) {
		t.Errorf("error %v, want the cause of the cancel", r.err)
	}
	if r.out.Exit.Reason != sandbox.ReasonStopped || r.out.Usage == nil || !r.out.Usage.Partial {
		t.Errorf("outcome %+v, want stopped with a partial usage", r.out)
	}
}

func TestKilledUnderTheAgent(t *testing.T) {
	t.Parallel()
	rig := script(t, "run echo ready", "sleep 60s")
	done := make(chan error)
	go func() {
		_, err := scripted.New().Run(context.Background(), rig.Env)
		done <- err
	}()
	harnesstest.Eventually(t, "the agent's output", func() bool { return strings.Contains(rig.Stdout.String(), "ready") })
	if err := rig.Env.Compute.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, harness.ErrKilled) {
		t.Errorf("error %v, want ErrKilled", err)
	}
}

func TestF25_OutputOfAnyShape(t *testing.T) {
	t.Parallel()
	rig := script(t, "print 3 lines", "print 3M bytes", "print 1k raw", "print 2 lines stderr", "run head -c 2000000 /dev/zero | tr '\\000' y; echo end")
	out := rig.Run(t, scripted.New())
	if !out.Exit.Success() {
		t.Fatalf("exit %+v", out.Exit)
	}
	log := rig.Stdout.String()
	if want := 3*len("a line of output\n") + 3000_000 + 1 + 1000 + 2000_000 + len("end\n"); len(log) != want {
		t.Errorf("log has %d bytes, want %d", len(log), want)
	}
	for b := range 256 {
		if !strings.Contains(log, string([]byte{byte(b)})) {
			t.Fatalf("byte %#x is missing: raw output was altered", b)
		}
	}
	if got := rig.Stderr.String(); got != "a line of output\na line of output\n" {
		t.Errorf("stderr %q", got)
	}
	for _, ev := range rig.Events() {
		if ev.Kind != protocol.EventToolResult {
			continue
		}
		if !ev.Truncated || len(*ev.Output) > 40<<10 || !strings.HasSuffix(*ev.Output, "yend\n") {
			t.Errorf("tool result of %d bytes, truncated %v, want head and tail with a mark", len(*ev.Output), ev.Truncated)
		}
	}
}

func TestAskAndCommit(t *testing.T) {
	t.Parallel()
	rig := script(t, `ask "May I?"`, "run git init -q .", "create a.txt x", "commit one", "run git log --format=%s")
	rig.Program(t, "everdict", "#!/bin/sh\necho \"$1: $2 approved\"\n")
	rig.Run(t, scripted.New())
	var outputs []string
	for _, ev := range rig.Events() {
		if ev.Kind == protocol.EventToolResult {
			outputs = append(outputs, *ev.Output)
		}
	}
	if want := []string{"ask: May I? approved\n", "", "", "", "one\n"}; !cmp.Equal(outputs, want) {
		t.Errorf("tool outputs %q, want %q", outputs, want)
	}
}

func TestDelayAndLargeProgram(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 20<<10)
	rig := script(t, "create big.txt "+large, "run wc -c < big.txt", "say ok")
	rig.Env.Spec.Params["delay"] = "20ms"
	out := rig.Run(t, scripted.New())
	if got := rig.File(t, "big.txt"); got != large+"\n" {
		t.Errorf("big.txt has %d bytes, want %d", len(got), len(large)+1)
	}
	if out.Exit.Ran < 40*time.Millisecond {
		t.Errorf("ran for %v with two delays of 20 ms", out.Exit.Ran)
	}
}

func TestBadScripts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ script, want string }{
		{"dance", `script line 1: unknown step "dance"`},
		{"say hi\nexit 300", `script line 2: exit: want an exit code of 0 to 255, got "300"`},
		{"create ../x y", "leaves the repository"},
		{"", "the script has no step"},
		{"sleep never", "want a duration"},
		{"print many lines", "want a count"},
		{"think cost=-1", "want US dollars"},
		{"think foo=1", `unknown key "foo"`},
		{"replace a b", "want PATH OLD NEW"},
		{"crash FOO", "unknown signal"},
	} {
		err := scripted.New().Install(context.Background(), script(t, tt.script).Env)
		var f *protocol.Failure
		if !errors.As(err, &f) || f.Class != protocol.ClassConfig || !strings.Contains(f.Message, tt.want) {
			t.Errorf("script %q: %v, want a config failure with %q", tt.script, err, tt.want)
		}
	}
}

// BenchmarkRun measures whole runs of the demo's task, and of each the time until
// the agent's process has started.
func BenchmarkRun(b *testing.B) {
	rig := task(b, "Create ok.txt containing the text done")
	var begun time.Time
	var toStart time.Duration
	rig.Env.Started = func(int) { toStart += time.Since(begun) }
	for b.Loop() {
		begun = time.Now()
		if out, err := scripted.New().Run(context.Background(), rig.Env); err != nil || !out.Exit.Success() {
			b.Fatal(out, err)
		}
	}
	b.ReportMetric(float64(toStart.Microseconds())/float64(b.N), "µs-to-start/op")
}
