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
