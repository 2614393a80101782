package protocol

import (
	"strings"
	"testing"
)

// TestP15_OriginIsSmall: what each row of a list has of where a run comes from is bounded.
func TestP15_OriginIsSmall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		origin Origin
		want   string
	}{
		"as it is":    {origin: Origin{Cause: "ci", EventID: strings.Repeat("é", maxOrigin/2)}},
		"an event":    {origin: Origin{EventID: strings.Repeat("x", maxOrigin+1)}, want: "origin.eventId: want at most 512 bytes, got 513"},
		"an executor": {origin: Origin{Executor: strings.Repeat("x", 1<<20)}, want: "origin.executor"},
		"a cause":     {origin: Origin{Cause: "moon"}, want: "origin.cause"},
	} {
		r := RunRequest{Harness: HarnessRef{ID: "scripted"}, Case: Case{ID: "c", Env: EnvSpec{Kind: EnvPrompt}, Task: "x"}, Origin: &row.origin}
		err := r.Validate()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}
