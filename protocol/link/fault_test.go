package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// keep runs a Redialer in the background until the test ends and hands out its sessions.
func keep(t testing.TB, cfg DialConfig) (sessions chan *RunnerSession, result chan error) {
	t.Helper()
	sessions, result = make(chan *RunnerSession, 16), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := &Redialer{Dial: cfg, Min: 10 * time.Millisecond, Max: 30 * time.Millisecond}
		result <- r.Run(ctx, func(ctx context.Context, s *RunnerSession) error {
			sessions <- s
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return sessions, result
}

func next[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(15 * time.Second):
		t.Fatalf("waited 15 s for %s", what)
		panic("unreachable")
	}
}

// Loss of every packet for longer than an answer may take ends the session; after healing the runner is back by itself
// and pulls.
func TestF4_TotalLossTearsDownAndRedials(t *testing.T) {
	t.Parallel()
	b := newBench(t, lossy)
	p := newFaultProxy(t, b.server)
	cfg := b.config(&runner{})
	cfg.URL = p.url()
	sessions, _ := keep(t, cfg)
	s := next(t, "the first session", sessions)
	until(t, "a heartbeat", func() bool { return len(b.c.beat) > 0 })

	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(context.Background(), PullRequest{Request: "slot1-1"})
		pulled <- err
	}()
	until(t, "the pull to wait", func() bool { return len(b.c.last().Pulls()) == 1 })
	lost := time.Now()
	p.set(func(up, down *faults) { up.stall, down.stall = true, true })
	err := next(t, "the pull to fail", pulled)
	if err == nil || s.Err() == nil {
		t.Fatalf("pull during total loss: got %v, session %v; want the session's end", err, s.Err())
	}
	if took := time.Since(lost); took > 5*time.Second {
		t.Errorf("the session ended %v after the loss, want about %v", took, b.timing.HeartbeatTimeout)
	}
	p.set(func(up, down *faults) { *up, *down = faults{}, faults{} })
	healed := time.Now()
	s = next(t, "a session after healing", sessions)
	b.c.jobs <- job("a", 10)
	o, err := s.Pull(t.Context(), PullRequest{Request: "slot1-1"})
	noErr(t, "pull after healing", err)
	if _, err := o.Started(t.Context()); err != nil {
		t.Fatalf("started after healing: %v", err)
	}
	t.Logf("back and pulling %v after healing", time.Since(healed))
}

// The pull dies while the heartbeat lives: its stream stays open with nobody behind it. The runner learns it from the
// heartbeat's answers and pulls again.
func TestF6_LostPullIsNoticedByTheHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int32
	b.c.onPull = func(ctx context.Context) (*Attempt, error) {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		a := job("a", 10)
		return &a, nil
	}
	s := b.dial(b.config(&runner{}))
	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(context.Background(), PullRequest{Request: "slot1-1"})
		pulled <- err
	}()
	until(t, "the pull to wait", func() bool { return len(b.c.last().Pulls()) == 1 })
	c := b.c.last()
	c.mu.Lock()
	delete(c.pulls, "slot1-1")
	c.mu.Unlock()
	if err := next(t, "the pull to fail", pulled); !errors.Is(err, ErrPullLost) {
		t.Fatalf("pull: got %v, want ErrPullLost", err)
	}
	if s.Err() != nil {
		t.Fatalf("the session ended: %v", s.Err())
	}
	o, err := s.Pull(t.Context(), PullRequest{Request: "slot1-1"})
	noErr(t, "pull again", err)
	if st, err := o.Started(t.Context()); err != nil || st != Stands {
		t.Fatalf("started: got %q, %v", st, err)
	}
}

// A pull that is ended by the coordinator's side of the stream fails at once.
func TestF6_ResetPullFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.c.onPull = func(context.Context) (*Attempt, error) { return nil, &RemoteError{Code: "unknown_runner"} }
	s := b.dial(b.config(&runner{}))
	_, err := s.Pull(t.Context(), PullRequest{Request: "r"})
	var re *RemoteError
	if !errors.As(err, &re) || re.Code != "unknown_runner" {
		t.Fatalf("pull: got %v, want the coordinator's error", err)
	}
	if s.Err() != nil {
		t.Fatalf("the session ended: %v", s.Err())
	}
}

// The heartbeat stops while the connection lives: the coordinator ends the session.
func TestF3_HeartbeatLostOnALivingConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, lossy)
	cfg := b.config(&silentRunner{runner: &runner{}, after: 3})
	s := b.dial(cfg)
	<-s.Done()
	if err := s.Err(); !errors.Is(err, ErrDeadPeer) {
		t.Fatalf("session ended with %v, want the coordinator's timeout", err)
	}
}

// silentRunner stops beating, as one does whose goroutine is stuck; pings go on.
type silentRunner struct {
	*runner
	after int32
	beats atomic.Int32
}

func (r *silentRunner) Beat() Heartbeat {
	if r.beats.Add(1) > r.after {
		<-time.After(2 * time.Second)
	}
	return r.runner.Beat()
}

func TestF32_PingsKeepAnIdleProxyOpen(t *testing.T) {
	t.Parallel()
	// Heartbeats alone would be too rare for this proxy.
	timing := quick()
	timing.Heartbeat, timing.HeartbeatTimeout, timing.DeadPeer, timing.LeaseTTL = 4*time.Second, 8*time.Second, 10*time.Second, 20*time.Second
	timing.Ping = 100 * time.Millisecond
	b := newBench(t, func(c *AcceptConfig) { c.Timing = timing })
	p := newFaultProxy(t, b.server)
	p.mu.Lock()
	p.idleClose = 2 * time.Second
	p.mu.Unlock()
	cfg := b.config(&runner{})
	cfg.URL = p.url()
	s := b.dial(cfg)
	select {
	case <-s.Done():
		t.Fatalf("session ended: %v", s.Err())
	case <-time.After(3 * time.Second):
	}
	if n := p.connections(); n != 1 {
		t.Fatalf("%d connections, want 1", n)
	}
}

func TestF32_BlackholeIsFoundByBothEnds(t *testing.T) {
	t.Parallel()
	for name, hole := range map[string]func(up, down *faults){
		"both":             func(up, down *faults) { up.eat, down.eat = true, true },
		"from runner":      func(up, _ *faults) { up.eat = true },
		"from coordinator": func(_, down *faults) { down.eat = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, lossy)
			p := newFaultProxy(t, b.server)
			cfg := b.config(&runner{})
			cfg.URL = p.url()
			s := b.dial(cfg)
			c := b.c.last()
			until(t, "a heartbeat", func() bool { return len(b.c.beat) > 0 })
			p.set(hole)
			begin := time.Now()
			<-s.Done()
			runnerTook := time.Since(begin)
			<-c.Done()
			coordinatorTook := time.Since(begin)
			// 45 s for the defaults' 40 s, in proportion, and what a busy machine takes.
			limit := b.timing.DeadPeer*45/40 + 3*time.Second
			if runnerTook > limit || coordinatorTook > limit+b.timing.Close {
				t.Errorf("found after %v and %v, want within %v", runnerTook, coordinatorTook, limit)
			}
			t.Logf("runner: %v after %v; coordinator: %v after %v", s.Err(), runnerTook, c.Err(), coordinatorTook)
		})
	}
}

// A sender that saturates a slow link does not starve the heartbeat.
func TestF53_HeartbeatBesideBulkOnASlowLink(t *testing.T) {
	t.Parallel()
	timing := quick()
	timing.Heartbeat, timing.HeartbeatTimeout, timing.LeaseTTL, timing.DeadPeer = 100*time.Millisecond, 6*time.Second, 15*time.Second, 8*time.Second
	b := newBench(t, func(c *AcceptConfig) { c.Timing = timing })
	p := newFaultProxy(t, b.server)
	const rate = 256 << 10
	p.set(func(up, _ *faults) { up.rate = rate })
	h := &runner{}
	cfg := b.config(h)
	cfg.URL = p.url()
	s := b.dial(cfg)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const senders = 4
	done := make(chan error, senders)
	for i := range senders {
		go func() {
			w, err := s.OpenEvidence(ctx, job(fmt.Sprint(i), 0).AttemptRef)
			if err != nil {
				done <- err
				return
			}
			p := bytes.Repeat([]byte("bulk"), 1<<20)
			done <- w.Send(ctx, "log", 0, p)
			w.Close()
		}()
	}
	until(t, "a megabyte through the slow link", func() bool { return p.count(up) > 1<<20 })
	before := h.beaten()
	until(t, "heartbeats beside bulk", func() bool { return h.beaten() >= before+10 })
	h.mu.Lock()
	worst := h.slowest
	h.mu.Unlock()
	// What lies before a heartbeat: pacerDelay's worth, one piece per sender, and the proxy's own queue.
	if worst > 3*time.Second {
		t.Errorf("worst heartbeat took %v on a link of %d kB/s", worst, rate>>10)
	}
	t.Logf("slowest heartbeat: %v", worst)
	cancel()
	for range senders {
		<-done
	}
}

// A coordinator that is slow with one stream does not hold up the others.
func TestF53_SlowSinkHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release := make(chan struct{})
	b.c.onWrite = func(ctx context.Context, channel string, _ int64, _ []byte) error {
		if channel == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	}
	h := &runner{}
	s := b.dial(b.config(h))
	slow, err := s.OpenEvidence(t.Context(), job("slow", 0).AttemptRef)
	noErr(t, "open slow", err)
	sent := make(chan error, 1)
	go func() { sent <- slow.Send(context.Background(), "slow", 0, make([]byte, 1<<20)) }()

	before := h.beaten()
	fast, err := s.OpenEvidence(t.Context(), job("fast", 0).AttemptRef)
	noErr(t, "open fast", err)
	until(t, "heartbeats beside the slow sink", func() bool { return h.beaten() >= before+5 })
	close(release)
	noErr(t, "send slow", next(t, "the slow send", sent))
	noErr(t, "send fast", fast.Send(t.Context(), "log", 0, []byte("x")))
	noErr(t, "flush slow", slow.Flush(t.Context()))
	noErr(t, "flush fast", fast.Flush(t.Context()))
}

// Whatever byte the connection is cut at, in either direction, the transfer resumes and what is stored is what was
// produced, with exactly one accepted result.
func TestP11_CutAnywhereResumes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := newFaultProxy(t, b.server)
	cfg := b.config(&runner{})
	cfg.URL = p.url()
	sessions, _ := keep(t, cfg)
	s := next(t, "the first session", sessions)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		at := job(fmt.Sprintf("cut%d", n), 0)
		log := []byte(strings.Repeat("log line\n", rapid.IntRange(0, 20_000).Draw(rt, "lines")))
		trace := bytes.Repeat([]byte{1, 2, 3}, rapid.IntRange(0, 5_000).Draw(rt, "trace"))
		cuts := rapid.SliceOfN(rapid.Int64Range(1, 250_000), 0, 3).Draw(rt, "cuts")
		dirs := rapid.SliceOfN(rapid.Bool(), 3, 3).Draw(rt, "directions")
		result := []byte(fmt.Sprintf(`{"n":%d}`, n))

		var ack ResultAck
		for try := 0; ; try++ {
			if try > 20 {
				rt.Fatalf("no result after %d sessions", try)
			}
			p.set(func(up, down *faults) {
				*up, *down = faults{}, faults{}
				if try < len(cuts) {
					if dirs[try] {
						up.cutAt = cuts[try]
					} else {
						down.cutAt = 1 + cuts[try]/20
					}
				}
			})
			p.cut() // cutAt counts from a connection's beginning
			<-s.Done()
			s = next(t, "a session", sessions)
			var err error
			if ack, err = transfer(s, at.AttemptRef, map[string][]byte{"log": log, "trace": trace}, result); err == nil {
				break
			}
		}
		if ack.Status != ResultAccepted {
			rt.Fatalf("result: got %+v", ack)
		}
		if got := b.c.bytes(at.Job, "log"); !bytes.Equal(got, log) {
			rt.Fatalf("log: stored %d bytes, produced %d", len(got), len(log))
		}
		if got := b.c.bytes(at.Job, "trace"); !bytes.Equal(got, trace) {
			rt.Fatalf("trace: stored %d bytes, produced %d", len(got), len(trace))
		}
	})
}

// transfer sends what is missing of the channels, then the result.
func transfer(s *RunnerSession, ref AttemptRef, channels map[string][]byte, result []byte) (ResultAck, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w, err := s.OpenEvidence(ctx, ref)
	if err != nil {
		return ResultAck{}, err
	}
	defer w.Close()
	for name, b := range channels {
		off := w.Resume(name)
		if err := w.Send(ctx, name, off, b[off:]); err != nil {
			return ResultAck{}, err
		}
	}
	return w.Result(ctx, result)
}
