package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/everdict/everdict/protocol"
)

func at(before time.Duration) protocol.Time { return protocol.At(instant.Add(-before)) }

func ptr[T any](v T) *T { return &v }

// sampleRuns are a run of each kind that a summary tells apart.
func sampleRuns() map[string]*protocol.Run {
	base := func() *protocol.Run {
		return &protocol.Run{
			ID: "run_01k0", Status: protocol.StatusSucceeded, CaseID: "c1", Harness: protocol.HarnessRef{ID: "claude-code", Version: "latest"},
			ResolvedHarness: &protocol.HarnessRef{ID: "claude-code", Version: "2.1.0"}, CreatedAt: at(3 * time.Minute), StartedAt: ptr(at(2 * time.Minute)),
			FinishedAt: ptr(at(30 * time.Second)), CaseSpec: &protocol.Case{Task: "Fix the\n\x1b[31mfailing test"}, Attempt: 1,
			Provenance: &protocol.Provenance{RanOn: "self-hosted", Runner: "rnr_1", RunnerLabel: "my-mac", Attestation: "self_reported"},
		}
	}
	passed := base()
	passed.Verdict = ptr(true)
	passed.VerdictBasis = &protocol.VerdictBasis{Authority: "ground_truth", Deciders: []protocol.Decider{{Metric: "tests_pass", Pass: true}}}
	passed.Scores = []protocol.Score{
		protocol.MeasuredPass("tests-pass", "tests_pass", true), protocol.Measured("latency", "latency_ms", 90512.5),
		protocol.Unmeasured("judge", "quality", protocol.ReasonMissingSecret, false, "ANTHROPIC_API_KEY"),
	}
	passed.Usage = &protocol.Usage{PromptTokens: ptr(int64(1200)), CompletionTokens: ptr(int64(80)), TotalTokens: ptr(int64(1280)), USD: ptr(0.0123),
		Calls: ptr(int64(3)), TokensSource: "claude-code:result.modelUsage", USDSource: "claude-code:result.total_cost_usd"}
	passed.Result = &protocol.CaseResult{
		Snapshot: protocol.Snapshot{Kind: protocol.EnvRepo, ChangedFiles: []string{"a.go", "b.go"},
			Diff:    "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,3 @@\n x\n---y\n++++z\n+w\ndiff --git a/b.go b/b.go\nGIT binary patch\n",
			Omitted: []protocol.OmittedFile{{Path: "big.bin", Reason: "over_limit"}}},
		Execution: &protocol.Execution{Driver: "process", ActsAsYou: true},
		Evidence:  &protocol.Evidence{Gaps: []protocol.Gap{{Channel: "log", Offset: 100, Bytes: 5000, Reason: "cap"}}},
	}
	timeout := base()
	timeout.Status, timeout.Attempt = protocol.StatusFailed, 2
	timeout.Failure = &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassHarness, Reason: protocol.ReasonTimeout, Code: protocol.CodeHarnessRunFailed,
		Message: "claude-code did not end in time", Limit: &protocol.Limit{Name: "timeoutSec", Unit: "s", Configured: 120, Measured: 120.40123},
		Signal: "SIGKILL", ExitCode: ptr(137), LogTail: "working\n\x1b]0;title\x07still\n"}
	timeout.Usage = &protocol.Usage{TotalTokens: ptr(int64(900)), Partial: true}
	timeout.Result = &protocol.CaseResult{Snapshot: protocol.Snapshot{Kind: protocol.EnvRepo}}
	queued := base()
	queued.Status, queued.StartedAt, queued.FinishedAt, queued.Provenance, queued.Attempt = protocol.StatusQueued, nil, nil, nil, 0
	queued.Placement = &protocol.RunPlace{Where: "runtime", Target: "self", Pool: "default/self for dev", BlockedReason: "no runner offers gpu; 1 online runner offers: docker, git", QueueDeadline: ptr(at(-5 * time.Hour))}
	asked := base()
	asked.Status, asked.FinishedAt = protocol.StatusSuspended, nil
	asked.Suspended = &protocol.Suspension{Kind: "ask", Question: "deploy?", Since: at(40 * time.Second)}
	ungraded := base()
	ungraded.Result = &protocol.CaseResult{Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt, Output: "42"}}
	exited := base()
	exited.Verdict = ptr(false)
	exited.CreatedBy, exited.Provenance = "dev", &protocol.Provenance{RanOn: "local", Runner: "rnr_1", RunnerLabel: "in this process", By: "local:"}
	exited.Usage = &protocol.Usage{Calls: ptr(int64(1))}
	exited.Result = &protocol.CaseResult{Snapshot: protocol.Snapshot{Kind: protocol.EnvRepo}, Trace: []protocol.TraceEvent{
		{Kind: protocol.EventEnvAction, Action: "command.exit", Detail: json.RawMessage(`{"command":"x","exitCode":127,"durationMs":3}`)},
		{Kind: protocol.EventError, Message: "my-agent exited with code 127"},
		{Kind: protocol.EventLog, Stream: "stderr", Text: ptr("warming up\nsh: 1: nosuchagent: not found\n")},
	}}
	// Cancelled before it started: nothing of it can be read but its steps.
	cancelled := base()
	cancelled.Status, cancelled.StartedAt, cancelled.Provenance, cancelled.Attempt = protocol.StatusFailed, nil, nil, 0
	cancelled.Failure = &protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonCancelled, Code: protocol.CodeCancelled, Message: "cancelled by dev"}
	cancelled.Result = &protocol.CaseResult{Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt}}
	return map[string]*protocol.Run{"exited": exited, "cancelled": cancelled, "passed": passed, "timeout": timeout, "queued": queued, "asked": asked, "ungraded": ungraded}
}

func TestSummaries(t *testing.T) {
	t.Parallel()
	for name, run := range sampleRuns() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTestApp(t, "")
			a.output, a.now = "table", func() time.Time { return instant }
			if err := a.printRun(run); err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(a.stdout.String(), "\x1b\x07") {
				t.Errorf("a control character reached stdout: %q", &a.stdout)
			}
			golden(t, "summary-"+name+".txt", a.stdout.String())
		})
	}
}

// A local run leaves nothing to ask afterwards: what it wrote last is shown with
// it, once.
func TestALocalRunShowsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, run, log string
		wants          []string
		times          int
	}{
		{"exited", "exited", "warming up\nsh: 1: nosuchagent: not found\n", []string{"agent    exited with 127\n", "log      | warming up\n", "| sh: 1: nosuchagent: not found\n"}, 2},
		{"a failure that quotes it", "timeout", "working\n", []string{"| working\n"}, 2},
		{"a long one", "exited", strings.Repeat("line\n", 100) + "last\n", []string{"| last\n"}, maxQuoted},
		{"nothing written", "exited", "", []string{"agent    exited with 127: sh: 1: nosuchagent: not found\n"}, 0},
	} {
		a := newTestApp(t, "")
		a.output, a.now = "table", func() time.Time { return instant }
		if err := a.printRunWith(sampleRuns()[row.run], summary{local: true, log: row.log}); err != nil {
			t.Fatal(err)
		}
		out := a.stdout.String()
		for _, want := range row.wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the summary lacks %q:\n%s", row.name, want, out)
			}
		}
		if got := strings.Count(out, "| "); got != row.times || strings.Contains(out, "everdict runs") {
			t.Errorf("%s: %d quoted lines, want %d and nothing to ask the server:\n%s", row.name, got, row.times, out)
		}
	}
}

func TestExitOf(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		`{"exitCode":0}`: "", `{"exitCode":1}`: "exited with 1", `{"exitCode":-1,"signal":"SIGKILL"}`: "was ended by signal SIGKILL", `nonsense`: "", `{}`: "",
	} {
		if got := exitOf([]byte(detail)); got != want {
			t.Errorf("%s is %q, want %q", detail, got, want)
		}
	}
}

func TestRunTable(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "")
	a.output, a.now = "table", func() time.Time { return instant }
	runs := sampleRuns()
	runs["queued"].ID = "run_01m8m2qgvcgtyvwpwmpen4dh2z"
	runs["asked"].CaseID = "宽字符-case"
	if _, err := a.printRuns(each([]*protocol.Run{runs["passed"], runs["timeout"], runs["queued"], runs["asked"]})); err != nil {
		t.Fatal(err)
	}
	golden(t, "runs.txt", a.stdout.String())
}

func TestRunnerTable(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "")
	a.now = func() time.Time { return instant }
	a.printRunners([]protocol.Runner{
		{ID: "rnr_1", Label: "my-mac", Owner: "ann", Online: true, OS: "darwin", Arch: "arm64", Slots: 2, Busy: 1, Capabilities: []string{"git", "docker"}, LastSeenAt: ptr(at(4 * time.Second)), Version: "1.0.0"},
		{ID: "rnr_2", Label: "old", Owner: "ws:acme", UpdateRequired: true, LastSeenAt: ptr(at(50 * time.Hour)), Status: &protocol.RunnerStatus{Text: "protocol 1 is too old", Level: "error"}},
		{ID: "rnr_3", Label: "new", Owner: "local:", UpdateRequired: true},
	})
	golden(t, "runners.txt", a.stdout.String())
}

func TestInspection(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "")
	a.printInspection(&protocol.Inspection{
		Kind: protocol.RuntimeK8s, Reachable: true, Detail: "kubernetes v1.34.4",
		Cluster:  &protocol.InspectCluster{Name: "prod", Version: "v1.34.4", Namespace: "runs"},
		Capacity: &protocol.InspectCapacity{Total: 24, Used: 2, Free: 22},
		Nodes: &protocol.InspectNodes{Total: 2, Ready: 1, Items: []protocol.InspectNode{
			{Name: "one", Status: "Ready", Ready: true, Schedulable: true, CPUTotal: 7500, MemoryMBTotal: 31744, GPUTotal: 1, OS: "linux", Arch: "amd64", AgentVersion: "v1.34.4"},
			{Name: "two\x1b[2J", Status: "NotReady"},
		}},
		Workload: []protocol.InspectUnit{{ID: "u1", Name: "everdict-01k0-1", Status: "running", Node: "one", Role: "eval"}, {ID: "u2", Status: "pending", Role: "eval"}},
		Warnings: []string{"1 of 2 nodes is not ready"},
	})
	a.printInspection(&protocol.Inspection{Kind: protocol.RuntimeK8s, Reason: protocol.ProbeAuth, Detail: "the cluster refuses authSecret K8S_TOKEN: Unauthorized"})
	a.printInspection(&protocol.Inspection{Kind: protocol.RuntimeNomad, Reason: protocol.ProbeUnreachable, Detail: "no answer within 15s"})
	golden(t, "inspection.txt", a.stdout.String()+a.stderr.String())
}

func TestVerdictCode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status  protocol.Status
		verdict *bool
		want    int
	}{
		{protocol.StatusSucceeded, ptr(true), 0},
		{protocol.StatusSucceeded, ptr(false), 1},
		{protocol.StatusSucceeded, nil, 2},
		{protocol.StatusFailed, nil, 2},
		{protocol.StatusFailed, ptr(false), 2},
		{protocol.StatusFailed, ptr(true), 2},
	} {
		if got := verdictCode(&protocol.Run{Status: row.status, Verdict: row.verdict}); got != row.want {
			t.Errorf("%s with verdict %v: exit code %d, want %d", row.status, row.verdict, got, row.want)
		}
	}
}

func TestDiffStat(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, diff string
		want       diffStat
	}{
		{"nothing", "", diffStat{}},
		{"lines that look like headers", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ f\n--- a/y\n-@@ -1 +1 @@\n+++ b/y\n+diff --git a b\n", diffStat{added: 2, removed: 2, files: 1}},
		{"no final newline", "diff --git a/x b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", diffStat{added: 1, removed: 1, files: 1}},
		{"binary", "diff --git a/x b/x\nGIT binary patch\nliteral 3\n+abc\n", diffStat{binary: 1, files: 1}},
		{"two hunks", "diff --git a/x b/x\n@@ -1,0 +2 @@\n+a\n@@ -5,2 +7,0 @@\n-b\n-c\n", diffStat{added: 1, removed: 2, files: 1}},
		{"a broken header", "@@ -x +y\n+a\n@@\n", diffStat{added: 1}},
	} {
		if got := statOf(row.diff); got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.name, got, row.want)
		}
	}
}

func TestSpansAndInstants(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "")
	a.now = func() time.Time { return instant }
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Second: "0s", 310 * time.Millisecond: "310ms", 2490 * time.Millisecond: "2.4s", 9990 * time.Millisecond: "9.9s", 12 * time.Second: "12s", 245 * time.Second: "4m05s", 200 * time.Minute: "3h20m", 52 * time.Hour: "2d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("span of %s is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 0: "just now", 40 * time.Second: "40s ago", 3 * time.Minute: "3m ago", 30 * time.Hour: "30h ago", 72 * time.Hour: "3d ago", 100 * 24 * time.Hour: "2025-09-24",
	} {
		if got := a.ago(at(d)); got != want {
			t.Errorf("%s ago is %q, want %q", d, got, want)
		}
	}
	if got := a.ago(protocol.Time{}); got != "-" {
		t.Errorf("no instant is %q, want -", got)
	}
}

func TestEventLines(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ event, want string }{
		{`{"kind":"message","t":1,"role":"assistant","text":"a\nb\u001b[2J"}`, "assistant: a b^[[2J"},
		{`{"kind":"llm_call","t":1,"model":"m","cost":{"inputTokens":3,"usd":0.5}}`, "model call m (3 in, $0.5000)"},
		{`{"kind":"tool_call","t":1,"name":"bash","args":{"command":"ls -l"}}`, "tool bash ls -l"},
		{`{"kind":"tool_call","t":1,"name":"edit","args":{"a":1,"b":2}}`, `tool edit {"a":1,"b":2}`},
		{`{"kind":"tool_result","t":1,"ok":false,"output":"no"}`, "tool failed: no"},
		{`{"kind":"tool_result","t":1,"ok":true,"output":"yes"}`, "result yes"},
		{`{"kind":"error","t":1,"message":"boom"}`, "error: boom"},
		{`{"kind":"novelty","t":1,"message":"m"}`, "novelty m"},
		{`{"kind":"message","t":1}`, "message:"},
		{`{"kind":"log","t":1,"stream":"stderr","text":"0123456789012345678901234567890123456789"}`, "stderr: 012345678901234567890…"},
	} {
		var e protocol.TraceEvent
		if err := json.Unmarshal([]byte(row.event), &e); err != nil {
			t.Fatal(err)
		}
		if got := eventLine(e, 30); got != row.want {
			t.Errorf("%s\n got %q\nwant %q", row.event, got, row.want)
		}
	}
}

// sanitized is in after the sanitizer, written in pieces of n bytes.
func sanitized(t *testing.T, in string, n int) string {
	t.Helper()
	var out bytes.Buffer
	s := &sanitizer{w: &out}
	for len(in) > 0 {
		k := min(n, len(in))
		if _, err := s.Write([]byte(in[:k])); err != nil {
			t.Fatal(err)
		}
		in = in[k:]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestP11_TerminalViewsAreSanitised(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, in, want string }{
		{"plain", "a\tb\nü 宽\n", "a\tb\nü 宽\n"},
		{"colours are left out", "\x1b[1;31mred\x1b[0m\x1b[38:5:1mx", "redx"},
		{"cursor and screen", "\x1b[2J\x1b[H", "^[[2J^[[H"},
		{"title", "\x1b]0;owned\x07", "^[]0;owned^G"},
		{"a line that overwrites another", "rm -rf /\rls\r\n", "rm -rf /\nls\n"},
		{"C1 controls", "\u009b31m", "<U+009B>31m"},
		{"text turned around", "\u202egpj.exe", "<U+202E>gpj.exe"},
		{"no UTF-8", "a\xffb\xc3", "a�b�"},
		{"a sequence without an end", "\x1b[31", "^[[31"},
		{"a very long sequence", "\x1b[" + strings.Repeat("1;", 40) + "m", "^[[" + strings.Repeat("1;", 40) + "m"},
		{"backspace and delete", "a\bb\x7f", "a^Hb^?"},
	} {
		for _, n := range []int{1, 2, 3, 1000} {
			if got := sanitized(t, row.in, n); got != row.want {
				t.Errorf("%s in pieces of %d: got %q, want %q", row.name, n, got, row.want)
			}
		}
	}
}

func FuzzSanitizer(f *testing.F) {
	f.Add("\x1b[1;31mred\x1b[0m\r\n\x1b]0;t\x07\u202e\xff", 3)
	f.Fuzz(func(t *testing.T, in string, n int) {
		if n < 1 {
			n = 1
		}
		got := sanitized(t, in, n)
		if !utf8.ValidString(got) {
			t.Errorf("%q became %q, which is no UTF-8", in, got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && visible(r) != string(r) {
				t.Errorf("%q in pieces of %d became %q, which holds %q", in, n, got, r)
			}
		}
	})
}

// What is listened on is not always what a client can connect to.
func TestReachableAddresses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		base, here string
		everywhere bool
	}{
		{"http://127.0.0.1:8787", "http://127.0.0.1:8787", false},
		{"http://[::1]:8787", "http://[::1]:8787", false},
		{"http://192.168.1.2:80", "http://192.168.1.2:80", false},
		{"http://[::]:8787", "http://127.0.0.1:8787", true},
		{"http://0.0.0.0:9000", "http://127.0.0.1:9000", true},
	} {
		here, everywhere := reachable(row.base)
		if here != row.here || (everywhere != "") != row.everywhere {
			t.Errorf("%s: here %q, everywhere %q; want %q and a name: %t", row.base, here, everywhere, row.here, row.everywhere)
		}
		if row.everywhere && (strings.Contains(everywhere, "::") || strings.Contains(everywhere, "0.0.0.0") || !strings.HasPrefix(everywhere, "http://")) {
			t.Errorf("%s: everywhere %q is no name of this machine", row.base, everywhere)
		}
	}
}

// The run that is shown is one that the API takes.
func TestTheShownRunIsValid(t *testing.T) {
	t.Parallel()
	var req protocol.RunRequest
	if err := json.Unmarshal([]byte(aRun), &req); err != nil {
		t.Fatal(err)
	}
	if err := req.Validate(); err != nil {
		t.Error(err)
	}
	if m := misspelt([]byte(aRun), reflect.TypeFor[protocol.RunRequest]()); len(m) > 0 {
		t.Errorf("it has keys that nobody reads: %v", m)
	}
}

func TestListenChecks(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"127.0.0.1:8787": true, "127.9.9.9:0": true, "localhost:1": true, "[::1]:8787": true,
		":8787": false, "0.0.0.0:8787": false, "[::]:8787": false, "192.168.1.2:8787": false, "example.com:80": false, "[::ffff:10.0.0.1]:1": false,
		"8787": false, "127.0.0.1": false, "127.0.0.1:port": false,
	} {
		if err := checkListen(address, false, false); (err == nil) != ok {
			t.Errorf("%s without login: %v, want accepted: %t", address, err, ok)
		}
	}
	if err := checkListen(":8787", true, false); err != nil {
		t.Errorf("with login: %v", err)
	}
	if err := checkListen(":8787", false, true); err != nil {
		t.Errorf("with the flag: %v", err)
	}
}

func TestNearestCommand(t *testing.T) {
	t.Parallel()
	root := New(Hooks{})
	for typed, want := range map[string]string{"rnus": "runs", "runz": "run", "sumbit": "submit", "coord": "coordinator", "compl": "completion", "zzz": "", "x": ""} {
		if got := nearest(root, typed); got != want {
			t.Errorf("nearest to %q is %q, want %q", typed, got, want)
		}
	}
}
