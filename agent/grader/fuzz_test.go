package grader

import (
	"bytes"
	"math"
	"testing"
)

// FuzzParseScores: whatever a script prints is scores with names and values, or an error.
func FuzzParseScores(f *testing.F) {
	for _, seed := range []string{``, `{"metric":"m","value":1}`, "noise\n[{\"metric\":\"m\",\"value\":1,\"pass\":true}]\n", "[\n[\n{", `{"metric":"m","status":"unmeasured"}`, "\xff\n{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		scores, err := parseScores(out)
		if err == nil && len(scores) == 0 {
			t.Fatal("no score and no error")
		}
		for _, s := range scores {
			if s.Metric == "" || s.Value == nil && s.Status == "" {
				t.Fatalf("score %+v", s)
			}
		}
	})
}

// FuzzParseRewards: a reward is a number that was written, or there is an error.
func FuzzParseRewards(f *testing.F) {
	for _, seed := range []string{`{"reward":1}`, `{"reward":null}`, `{"a":1e999}`, `{"a":{}}`, `[]`, `{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rewards, err := parseRewards(b)
		if err == nil && len(rewards) == 0 {
			t.Fatal("no reward and no error")
		}
		for key, v := range rewards {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("reward %q is %v", key, v)
			}
		}
	})
}

// TestF25_OutputOfBrackets: the search for scores in an output that nests ever deeper comes
// to its end. It decodes no more than parseBound, where all of it would be terabytes.
func TestF25_OutputOfBrackets(t *testing.T) {
	t.Parallel()
	if scores, err := parseScores(bytes.Repeat([]byte("[\n"), 1<<20)); err == nil {
		t.Errorf("scores %+v", scores)
	}
	// Among many lines the last document is still found.
	out := append(bytes.Repeat([]byte("{ is how a log line begins\n"), 10_000), "[{\"metric\":\"m\",\"value\":1}]\n"...)
	if scores, err := parseScores(out); err != nil || len(scores) != 1 {
		t.Errorf("scores %+v, %v", scores, err)
	}
}
