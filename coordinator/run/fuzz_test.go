package run

import (
	"encoding/json"
	"testing"

	"github.com/everdict/everdict/lease"
)

// FuzzResult: whatever a runner sends as its result becomes one in shape, that can be kept.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{`null`, `{}`, `{"scores":[{"metric":"m","value":1}],"snapshot":{"kind":"prompt"}}`, `{"failure":{"class":"infra"}}`, `[]`, `{"usage":{"usd":-1}}`, `{"trace":[{"kind":"x"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r := new(Service).decode(lease.Ref{Job: "run_x", Attempt: 1}, Holder{}, doc)
		if r == nil || r.Scores == nil || r.Trace == nil || len(r.Trace) > 0 || r.Provenance == nil {
			t.Fatalf("result %+v", r)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPlaces: of the places in streams and traces those are taken back that were given, and
// no others.
func FuzzPlaces(f *testing.F) {
	for _, seed := range []string{"1-0-0", "1-350", "abcdef-7", "-1-2-3", "1-2-3-4", "01-2-3", "9223372036854775808-1-1", "", "x-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePosition(s); err == nil && s != "" && p.String() != s {
			t.Errorf("the position %q is read as %+v", s, p)
		}
		if c, err := parseTraceCursor(s); err == nil && c.String() != s {
			t.Errorf("the cursor %q is read as %+v", s, c)
		}
		feed := newFeed()
		if from, why, err := feed.place(s); err == nil && (from < 1 || from > feed.next || s != "" && why == "" && feed.id(from) != s) {
			t.Errorf("the event id %q is read as %d, %q", s, from, why)
		}
	})
}
