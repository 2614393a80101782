package lease_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// TestP14_TimesToldAreOfTheWallClock: when the wall clock is set, or has gone on while the
// machine slept, no lease ends by it, and what is told from then on is of the new time.
func TestP14_TimesToldAreOfTheWallClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var step atomic.Int64
	q := openQueue(t, openDB(t), lease.Config{Now: func() time.Time { return stepped(time.Now(), time.Duration(step.Load())) }})
	if err := q.Enqueue(t.Context(), lease.Job{ID: "j", Workspace: "w", Pool: "p"}); err != nil {
		t.Fatal(err)
	}
	l, err := q.Pull(t.Context(), lease.PullRequest{RequestID: "1", Runner: plain("r")})
	if err != nil {
		t.Fatal(err)
	}
	const hours = 5 * time.Hour
	if at := stepped(began, hours); at.Sub(began) != 0 || at.UnixNano()-began.UnixNano() != int64(hours) {
		t.Fatalf("the time that was to be ahead by %s of the wall clock alone is %s", hours, at)
	}
	step.Store(int64(hours))
	var told time.Time
	if err := q.Started(t.Context(), l.Ref, lease.With(func(_ *sqlite.Tx, ev *lease.Event) error { told = ev.At; return nil })); err != nil {
		t.Fatalf("the lease did not outlive a step of the wall clock: %v", err)
	}
	if d := told.Sub(began); d < hours || d > hours+time.Minute {
		t.Errorf("told %s after the beginning, the wall clock says %s", d, hours)
	}
}

// stepped is t with its wall clock ahead by whole seconds, and its monotonic clock as it is.
// No function makes such a time; package time has the seconds above 30 bits of nanoseconds.
func stepped(t time.Time, ahead time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(ahead/time.Second) << 30
	return t
}
