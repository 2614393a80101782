package link

import (
	"bytes"
	"context"
	"testing"
	"time"
)

func TestHelloWelcomeHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := &runner{leases: []HeldLease{{AttemptRef: AttemptRef{Run: "r", Job: "j", Epoch: 3, Token: "t"}}}}
	s := b.dial(b.config(h))

	w, asked := s.Welcome()
	if w.Runner != "rnr_1" || w.Version != "test" || w.Protocol != Protocol || asked.IsZero() {
		t.Fatalf("welcome: got %+v at %v", w, asked)
	}
	if got := b.c.last().Hello(); got.OS != "linux" || got.Capabilities[0] != "git" {
		t.Fatalf("hello: got %+v", got)
	}
	until(t, "three heartbeats", func() bool { return h.beaten() >= 3 })
	h.mu.Lock()
	v := h.renewals[0].Leases[0]
	h.mu.Unlock()
	if v.Job != "j" || v.Standing != Stands || v.TTL.Std() != 2*time.Second {
		t.Fatalf("verdict: got %+v", v)
	}
}

func TestPullStartedAndBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.dial(b.config(&runner{}))
	for _, size := range []int{0, 100, 70_000, 3 << 20} {
		want := job("a", size)
		b.c.jobs <- want
		o, err := s.Pull(t.Context(), PullRequest{Request: "req" + string(rune('a'+size%26))})
		noErr(t, "pull", err)
		if o.AttemptRef != want.AttemptRef || !bytes.Equal(o.Payload, want.Payload) {
			t.Fatalf("pull of %d bytes: got %+v and %d bytes", size, o.AttemptRef, len(o.Payload))
		}
		st, err := o.Started(t.Context())
		if err != nil || st != Stands {
			t.Fatalf("started: got %q, %v", st, err)
		}
		if _, err := o.Started(t.Context()); err != ErrAnswered {
			t.Fatalf("second started: got %v, want ErrAnswered", err)
		}
	}
}

func TestEvidenceAndResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.dial(b.config(&runner{}))
	ref := job("e", 0).AttemptRef
	w, err := s.OpenEvidence(t.Context(), ref)
	noErr(t, "open", err)
	log := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	noErr(t, "send log", w.Send(t.Context(), "log", 0, log))
	noErr(t, "send trace", w.Send(t.Context(), "trace", 0, []byte("{}\n")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ack, err := w.Result(ctx, []byte(`{"ok":true}`))
	if err != nil || ack.Status != ResultAccepted {
		t.Fatalf("result: got %+v, %v", ack, err)
	}
	if got := b.c.bytes(ref.Job, "log"); !bytes.Equal(got, log) {
		t.Fatalf("log: stored %d bytes, sent %d", len(got), len(log))
	}
	if got := b.c.bytes(ref.Job, "trace"); len(got) != 3 {
		t.Fatalf("trace: stored %d bytes, want 3", len(got))
	}
	until(t, "sink closed", func() bool { b.c.mu.Lock(); defer b.c.mu.Unlock(); return b.c.stored[ref.Job].closes == 1 })
}
