package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Redialer keeps a runner connected. Dial is required, the rest has defaults.
type Redialer struct {
	Dial DialConfig
	// Min and Max bound the window of which each attempt takes a random moment. Defaults 500 ms and 30 s.
	Min, Max time.Duration
	// Lost is told each time why there is no session and how long the next attempt waits. May be nil.
	Lost func(err error, wait time.Duration)
	// Now ends a wait when it gives something: somebody is at the machine and does not want to wait. May be nil.
	Now <-chan struct{}
	// Rand returns a number in [0, 1). Defaults to math/rand/v2.
	Rand func() float64
}

// Keep is a Redialer with its defaults.
func Keep(ctx context.Context, cfg DialConfig, run func(context.Context, *RunnerSession) error) error {
	return (&Redialer{Dial: cfg}).Run(ctx, run)
}

// Run dials, calls run with the session, and begins again when the session was lost, until ctx ends or it makes no
// sense any more. The context that run gets ends with the session, its cause then being the session's error; run must return
// soon after. The session is closed, and its goroutines are gone, before run is called again.
//
// Run returns nil when run returned nil while the session lived, run's error when it returned one while the session
// lived, the cause of ctx, or an error for which Terminal is true. Nothing else ends it.
func (r *Redialer) Run(ctx context.Context, run func(context.Context, *RunnerSession) error) error {
	b := newBackoff(r.Min, r.Max, r.Rand)
	for {
		err, lived, crowd := r.once(ctx, run)
		var over *ended
		switch {
		case errors.As(err, &over):
			return over.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case Terminal(err):
			return err
		}
		if lived >= r.Dial.Timing.withDefaults().Heartbeat {
			b.reset()
		}
		b.spread(crowd)
		wait := b.next(retryAfterOf(err))
		if r.Lost != nil {
			r.Lost(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.Now:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// ended wraps what Run is to return.
type ended struct{ err error }

func (e *ended) Error() string { return "link: ended" }

// once is one session: why it ended, how long it lived, and the window that the coordinator last announced.
func (r *Redialer) once(ctx context.Context, run func(context.Context, *RunnerSession) error) (err error, lived, crowd time.Duration) {
	s, err := Dial(ctx, r.Dial)
	if err != nil {
		return err, 0, 0
	}
	begin := time.Now()
	runCtx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(s.Err()) })
	err = run(runCtx, s)
	lost := s.Err()
	stop()
	cancel(nil)
	s.Close(CloseReason{Code: CloseNormal})
	_ = s.Wait()
	switch {
	case lost != nil:
		err = lost
	case ctx.Err() != nil && err != nil:
		err = context.Cause(ctx)
	default:
		err = &ended{err}
	}
	return err, time.Since(begin), time.Duration(s.redial.Load())
}

// retryAfterOf is how long the coordinator asked to be left alone.
func retryAfterOf(err error) time.Duration {
	var (
		draining *DrainingError
		http     *HTTPError
		remote   *RemoteError
	)
	switch {
	case errors.As(err, &draining):
		return draining.RetryAfter
	case errors.As(err, &http):
		return http.RetryAfter
	case errors.As(err, &remote):
		return remote.RetryAfter.Std()
	}
	return 0
}

// backoff is full jitter in windows: each attempt takes a uniformly random moment of its window, and the next window
// begins when that one ends, not when the attempt failed. So a crowd that lost its coordinator at one moment spreads
// evenly over each window, and nobody comes more than once in it.
//
// The first window after a session is at least what the coordinator announced for its fleet. In that one alone, whoever
// comes in vain in its first half draws again from what is left: a coordinator that restarts in a moment has all of them
// back within the window, at no more than twice the even rate.
type backoff struct {
	min, max time.Duration
	rand     func() float64
	window   time.Duration // of the next attempt
	rest     time.Duration // of the window before
	first    bool          // the next window is an announced one
	redraw   time.Duration // attempts draw again while more than this is left of an announced window
}

func newBackoff(lo, hi time.Duration, random func() float64) *backoff {
	if lo <= 0 {
		lo = 500 * time.Millisecond
	}
	if hi <= 0 {
		hi = 30 * time.Second
	}
	if random == nil {
		random = rand.Float64
	}
	b := &backoff{min: lo, max: max(lo, hi), rand: random}
	b.reset()
	return b
}

// reset begins anew after a session that lived.
func (b *backoff) reset() { b.window, b.rest, b.first, b.redraw = b.min, 0, false, 0 }

// spread makes the next window at least d.
func (b *backoff) spread(d time.Duration) {
	if d = min(d, b.max); d > b.window {
		b.window, b.first, b.redraw = d, true, 0
	}
}

// next is how long to wait before the next attempt. after is the coordinator's wish, on top of which a window of at
// least the same length is spread: it says the same number to everybody.
func (b *backoff) next(after time.Duration) time.Duration {
	if b.redraw > 0 && b.rest > b.redraw && after == 0 {
		wait := time.Duration(b.rand() * float64(b.rest))
		b.rest -= wait
		return wait
	}
	window := b.window
	if after > 0 {
		window = max(window, min(after, b.max))
	}
	at := time.Duration(b.rand() * float64(window))
	wait := max(b.rest, after) + at
	b.rest = window - at
	b.window = min(b.max, 2*b.window)
	if b.redraw = 0; b.first {
		b.redraw, b.first = window/2, false
	}
	return wait
}
