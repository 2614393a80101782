//go:build unix

package agent

import "testing"

// While the runner is suspended nothing begins; afterwards it may.
func TestSuspendedRunnerBeginsNothing(t *testing.T) {
	t.Parallel()
	prepare, came, goOn := held()
	w := newWorld(t, prepare)
	w.offer(1)
	w.wait("the offer", came)
	release := w.r.hold()
	close(goOn)
	w.until("the offer comes back", func() bool { return len(w.returned[1]) == 1 && !w.returned[1][0].Started })
	release()
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if err := w.r.barred(arrival{}); err != nil || w.r.taken != 0 {
		t.Errorf("after it: %v, %d attempts were begun", err, w.r.taken)
	}
}
