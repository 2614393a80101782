package run

import (
	"fmt"
	"testing"
)

// TestF25_WatchersForgetWhoLeft: watching a run that never changes again costs
// nothing once nobody does, however many runs were watched, and whoever is left is
// still woken.
func TestF25_WatchersForgetWhoLeft(t *testing.T) {
	t.Parallel()
	w := watchers{waiting: map[string]*watched{}}
	for i := range 1000 {
		_, leave := w.changed(fmt.Sprint("run_", i))
		leave()
	}
	if n := len(w.waiting); n != 0 {
		t.Errorf("%d runs are remembered that nobody watches", n)
	}
	_, first := w.changed("run")
	changed, second := w.changed("run")
	first()
	w.wake("run")
	select {
	case <-changed:
	default:
		t.Error("a watcher was not woken after another one of the same run had left")
	}
	// Who leaves after the change must not take a newer watcher's place away.
	again, third := w.changed("run")
	second()
	w.wake("run")
	select {
	case <-again:
	default:
		t.Error("a watcher was not woken after one of an earlier change had left")
	}
	third()
	if n := len(w.waiting); n != 0 {
		t.Errorf("%d runs are remembered at the end", n)
	}
}
