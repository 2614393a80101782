package stopwatch

import (
	"testing"
	"time"
)

func TestP3_PauseSince(t *testing.T) {
	t.Parallel()
	var now Reading
	at := func(d time.Duration) Reading { return Reading{Mono: d, Wall: d} }
	w := New(func() Reading { return now }, false)
	check := func(what string, ran, frozen time.Duration, paused bool) {
		t.Helper()
		if r, f, p, _ := w.Read(); r != ran || f != frozen || p != paused {
			t.Errorf("%s: ran %s, frozen %s, paused %v; wanted %s, %s, %v", what, r, f, p, ran, frozen, paused)
		}
	}
	now = at(10 * time.Second)
	w.PauseSince(at(4 * time.Second))
	check("stopped at 4 s, noticed at 10 s", 4*time.Second, 6*time.Second, true)
	w.PauseSince(at(9 * time.Second))
	check("noticed twice", 4*time.Second, 6*time.Second, true)
	w.Set(false)
	now = at(12 * time.Second)
	w.PauseSince(at(time.Second))
	check("stopped before the present stretch", 4*time.Second, 8*time.Second, true)
}
