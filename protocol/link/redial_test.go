package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// A crowd that loses its coordinator at one moment comes back spread evenly over each window, each at most once in it.
func TestF33_CrowdSpreadsOverTheWindows(t *testing.T) {
	t.Parallel()
	const runners = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	edges := []time.Duration{0, 500, 1500, 3500, 7500, 15500} // ms; windows of 0.5, 1, 2, 4 and 8 s
	slots := make([][]int, len(edges)-1)
	for i := range slots {
		slots[i] = make([]int, 10)
	}
	for range runners {
		b := newBackoff(0, 0, rng.Float64)
		var at time.Duration
		for w := range len(slots) {
			at += b.next(0)
			lo, hi := edges[w]*time.Millisecond, edges[w+1]*time.Millisecond
			if at < lo || at >= hi {
				t.Fatalf("attempt %d at %v, want it in [%v, %v)", w, at, lo, hi)
			}
			slots[w][int(10*(at-lo)/(hi-lo))]++
		}
	}
	for w, counts := range slots {
		for i, n := range counts {
			// 200 are expected; five standard deviations are 67.
			if n < 133 || n > 267 {
				t.Errorf("window %d, tenth %d: %d of %d runners", w, i, n, runners)
			}
		}
	}
}

// A fleet that was told its window comes back evenly over it, at the rate that the window stands for, and all of it
// before the window ends if the coordinator is away for less than half of it.
func TestF33_AnnouncedWindowSpreadsTheFleet(t *testing.T) {
	t.Parallel()
	const runners = 5000
	const window = runners * time.Second / redialsPerSecond
	for _, away := range []time.Duration{0, time.Second, window / 2, window} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, uint64(away)))
			perSecond := make(map[time.Duration]int)
			var last time.Duration
			for range runners {
				b := newBackoff(0, 0, rng.Float64)
				b.spread(window)
				at := b.next(0)
				for at < away {
					at += b.next(0)
				}
				perSecond[at.Truncate(time.Second)]++
				last = max(last, at)
			}
			for second, n := range perSecond {
				if n > 2*redialsPerSecond+160 { // five standard deviations
					t.Errorf("second %v: %d runners, want at most twice %d", second, n, redialsPerSecond)
				}
			}
			want := window
			if away > window/2 {
				want = 3 * window // the next window is twice as long
			}
			if last >= want {
				t.Errorf("away for %v: the last runner is back after %v, want it within %v", away, last, want)
			}
		})
	}
}

// The window follows the size of the fleet, reaches the runner with the welcome and anew with each heartbeat, and is the
// first one after a lost session.
func TestF33_WindowIsAnnounced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for sessions, want := range map[int]time.Duration{1: 2 * time.Millisecond, 5000: 10 * time.Second, 1_000_000: maxRedial} {
		a := &Acceptor{sessions: make(map[*CoordinatorSession]struct{}, 1)}
		for range min(sessions, 20_000) { // the bound is reached by then
			a.sessions[new(CoordinatorSession)] = struct{}{}
		}
		if got := a.redial().Std(); got != want {
			t.Errorf("window of %d sessions: %v, want %v", sessions, got, want)
		}
	}
	s := b.dial(b.config(&runner{}))
	w, _ := s.Welcome()
	if w.Settings.Redial != Duration(2*time.Millisecond) {
		t.Errorf("welcome announces %v, want 2 ms for one session", w.Settings.Redial)
	}
	b.dial(b.config(&runner{}))
	ack, err := s.Heartbeat(t.Context())
	noErr(t, "heartbeat", err)
	if ack.Redial != Duration(4*time.Millisecond) {
		t.Errorf("heartbeat's answer announces %v, want 4 ms for two sessions", ack.Redial)
	}
	if got := time.Duration(s.redial.Load()); got != 4*time.Millisecond {
		t.Errorf("the runner remembers %v, want 4 ms", got)
	}
}

func TestF33_BackoffIsBoundedAndHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	b := newBackoff(time.Second, 8*time.Second, func() float64 { return 0.999 })
	for range 100 {
		if w := b.next(0); w >= 16*time.Second {
			t.Fatalf("waited %v with windows of at most 8 s", w)
		}
	}
	b.reset()
	if w := b.next(0); w >= time.Second {
		t.Fatalf("after a reset: waited %v, want less than one window of 1 s", w)
	}
	// The coordinator says the same number to everybody, so it is a lower bound with a window of its own on top.
	lo, hi := time.Hour, time.Duration(0)
	for range 1000 {
		w := newBackoff(time.Second, time.Minute, nil).next(10 * time.Second)
		lo, hi = min(lo, w), max(hi, w)
	}
	if lo < 10*time.Second || hi > 20*time.Second || hi-lo < 8*time.Second {
		t.Fatalf("retry_after 10 s: waits from %v to %v, want them spread over 10 to 20 s", lo, hi)
	}
}

// A coordinator that drains ends the waiting pulls, tells when to come back, and is obeyed.
func TestF33_DrainIsToldAndHonoured(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := &runner{}
	var waits []time.Duration
	var losses []error
	r := &Redialer{Dial: b.config(h), Min: time.Millisecond, Max: 200 * time.Millisecond, Rand: func() float64 { return 0.5 }}
	ctx, cancel := context.WithCancel(t.Context())
	r.Lost = func(err error, wait time.Duration) {
		losses, waits = append(losses, err), append(waits, wait)
		cancel()
	}
	pulled := make(chan error, 1)
	ran := make(chan error, 1)
	go func() {
		ran <- r.Run(ctx, func(ctx context.Context, s *RunnerSession) error {
			_, err := s.Pull(ctx, PullRequest{Request: "r"})
			pulled <- err
			<-ctx.Done()
			return nil
		})
	}()
	until(t, "the pull to wait", func() bool { s := b.c.last(); return s != nil && len(s.Pulls()) == 1 })
	b.acceptor.Drain(Drain{RetryAfter: Duration(100 * time.Millisecond), Reason: "upgrade"})
	var re *RemoteError
	if err := next(t, "the pull to end", pulled); !errors.As(err, &re) || re.Code != CodeDraining {
		t.Fatalf("pull: got %v, want draining", err)
	}
	until(t, "the drain message", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.drains) == 1 })
	var de *DrainingError
	if _, err := Dial(t.Context(), b.config(&runner{})); !errors.As(err, &de) || de.RetryAfter != time.Second {
		t.Fatalf("a new runner: got %v, want draining with Retry-After rounded up to 1 s", err)
	}
	noErr(t, "shutdown", b.acceptor.Shutdown(t.Context(), 100*time.Millisecond))
	if err := next(t, "the loop", ran); !errors.Is(err, context.Canceled) {
		t.Fatalf("loop: %v", err)
	}
	if !errors.As(losses[0], &de) || de.RetryAfter != 100*time.Millisecond || waits[0] != 150*time.Millisecond {
		t.Fatalf("loss %v, wait %v; want draining and 100 ms + half a window of 100 ms", losses[0], waits[0])
	}
}

func TestRedialerReturnsWhatRunReturned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := errors.New("done")
	if err := Keep(t.Context(), b.config(&runner{}), func(context.Context, *RunnerSession) error { return want }); err != want {
		t.Fatalf("got %v", err)
	}
	if err := Keep(t.Context(), b.config(&runner{}), func(context.Context, *RunnerSession) error { return nil }); err != nil {
		t.Fatalf("got %v", err)
	}
}

// The monotonic clock stops while a laptop sleeps: the larger of both clocks counts.
func TestF51_ElapsedIsTheLargerOfBothClocks(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	slept := begin.Round(0).Add(9 * time.Hour) // no monotonic reading: only the wall went on
	if e := Elapsed(begin, slept); e != 9*time.Hour {
		t.Errorf("wall went on by 9 h: got %v", e)
	}
	if e := Elapsed(begin, begin.Add(time.Minute)); e != time.Minute {
		t.Errorf("both by a minute: got %v", e)
	}
}

// A machine that slept does not wait for a read deadline, whose clock slept as well: the session ends at the first ping.
func TestF51_SleepEndsTheSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var slept atomic.Bool
	var looked atomic.Int32
	cfg := b.config(&runner{})
	cfg.now = func() time.Time {
		defer looked.Add(1)
		now := time.Now()
		if slept.Load() {
			return now.Round(0).Add(9 * time.Hour)
		}
		return now
	}
	s := b.dial(cfg)
	until(t, "the session to look at its clock", func() bool { return looked.Load() > 0 })
	slept.Store(true)
	<-s.Done()
	if !errors.Is(s.Err(), ErrSlept) || Terminal(s.Err()) {
		t.Fatalf("session ended with %v, want ErrSlept", s.Err())
	}
}
