package fleet

import (
	"errors"
	"testing"
	"time"
)

// TestDeadlineOfAStandingUnit: what a failure names is the unit's, not that of the job which
// it happened to have.
func TestDeadlineOfAStandingUnit(t *testing.T) {
	t.Parallel()
	needs := Needs{Deadline: time.Hour}
	late := &Trouble{Cause: CauseDeadline, Message: "late", Final: true, Dead: true}
	for note, want := range map[string]time.Duration{"": time.Hour + waitBound, payloadNote: time.Hour, (&note{Idle: 60}).String(): 24*time.Hour + waitBound} {
		f := failure(&Unit{Name: "u", Note: note}, late, needs, false)
		if f.Limit == nil || f.Limit.Configured != want.Seconds() {
			t.Errorf("with note %q: %+v, want %v", note, f.Limit, want)
		}
	}
}

// TestSaid: an answer to a probe names its cluster once.
func TestSaid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nomad: ask for the version: refused": "ask for the version: refused",
		"kube: read: no route":                "read: no route",
		"the cluster refuses it: 403":         "the cluster refuses it: 403",
		"plain":                               "plain",
	} {
		if got := said(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
