package codex

import "testing"

// FuzzTokenCount: a line of a session file is a usage or is none, and a usage can be told.
func FuzzTokenCount(f *testing.F) {
	for _, seed := range []string{
		`{"payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":10,"output_tokens":2,"cached_input_tokens":4}}}}`,
		`{"payload":{"type":"token_count","info":null}}`, `{"payload":[]}`, `[`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		u := tokenCount(line)
		if u == nil {
			return
		}
		total := u.total("rollout")
		if (total.TotalTokens == nil) != (u.Input == nil || u.Output == nil) {
			t.Errorf("usage %+v has the total %v", u, total.TotalTokens)
		}
		if ev := u.aggregate(&usage{}); ev.Cost == nil {
			t.Errorf("usage %+v makes the event %+v", u, ev)
		}
	})
}
