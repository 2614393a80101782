package hold

import (
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

func TestP3_TheLastHoldThaws(t *testing.T) {
	t.Parallel()
	var now stopwatch.Reading
	at := func(d time.Duration) stopwatch.Reading { return stopwatch.Reading{Mono: d, Wall: d} }
	w := stopwatch.New(func() stopwatch.Reading { return now }, false)
	h := New(w)
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	check := func(what string, frozen bool) {
		t.Helper()
		_, _, paused, _ := w.Read()
		if h.Any() != frozen || paused != frozen || closed(h.Frozen()) != frozen || closed(h.Thawed()) == frozen {
			t.Errorf("%s: held %v, watch paused %v, frozen closed %v, thawed closed %v; wanted frozen %v",
				what, h.Any(), paused, closed(h.Frozen()), closed(h.Thawed()), frozen)
		}
	}
	check("at first", false)
	h.Drop(Freeze)
	check("after a thaw of nothing", false)
	now = at(10 * time.Second)
	h.TakeSince(Deadline, at(4*time.Second))
	check("the deadline", true)
	h.Take(Freeze)
	check("both", true)
	if h.Only(Deadline) || !h.Has(Deadline) || !h.Has(Freeze) {
		t.Errorf("both hold: only the deadline %v, deadline %v, freeze %v", h.Only(Deadline), h.Has(Deadline), h.Has(Freeze))
	}
	h.Drop(Freeze)
	check("Thaw, which leaves the deadline", true)
	h.Drop(Deadline)
	check("none", false)
	if ran, frozen, _, _ := w.Read(); ran != 4*time.Second || frozen != 6*time.Second {
		t.Errorf("ran %s, frozen %s; wanted 4s and 6s", ran, frozen)
	}
	h.Take(Freeze)
	h.TakeSince(Deadline, now)
	h.Clear()
	check("cleared", false)
}
