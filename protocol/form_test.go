package protocol

import (
	"encoding/json"
	"testing"
)

// TestSnapshotForm checks the fields that clients read without asking.
func TestSnapshotForm(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Snapshot{
		`{"kind":"repo","changedFiles":[],"diff":"","headSha":""}`:               {Kind: EnvRepo},
		`{"kind":"repo","changedFiles":["a"],"diff":"+a\n","headSha":"12"}`:      {Kind: EnvRepo, ChangedFiles: []string{"a"}, Diff: "+a\n", HeadSHA: "12"},
		`{"kind":"prompt","output":""}`:                                          {Kind: EnvPrompt},
		`{"kind":"prompt","output":"42"}`:                                        {Kind: EnvPrompt, Output: "42"},
		`{"kind":"repo","diffBytes":9,"changedFiles":[],"diff":"","headSha":""}`: {Kind: EnvRepo, DiffBytes: 9},
	} {
		got, err := json.Marshal(s)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		var back Snapshot
		if err := json.Unmarshal(got, &back); err != nil || back.Kind != s.Kind || back.Diff != s.Diff || back.Output != s.Output {
			t.Errorf("%s reads as %+v, %v", got, back, err)
		}
	}
}

// TestHarnessSpecForm checks the defaults that clients read without asking, and
// that what was read can be registered again as the same.
func TestHarnessSpecForm(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]HarnessSpec{
		`{"kind":"process","id":"scripted","version":"1"}`: {Kind: HarnessProcess, ID: "scripted", Version: "1"},
		`{"kind":"command","id":"a","version":"1","command":"x","setup":[],"env":{},"params":{},"trace":{"kind":"none"}}`: {
			Kind: HarnessCommand, ID: "a", Version: "1", Command: "x"},
		`{"kind":"command","id":"a","version":"1","command":"x","setup":["y"],"env":{"E":"v"},"params":{"p":"1"},"trace":{"kind":"file","path":"everdict-trace.json"}}`: {
			Kind: HarnessCommand, ID: "a", Version: "1", Command: "x", Setup: []string{"y"}, Env: map[string]EnvValue{"E": {Value: "v"}},
			Params: map[string]string{"p": "1"}, Trace: &CommandTrace{Kind: TraceFile}},
	} {
		got, err := json.Marshal(h)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		var back HarnessSpec
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if again, err := json.Marshal(&back); err != nil || string(again) != want {
			t.Errorf("again: %s, %v, want %s", again, err, want)
		}
	}
}
