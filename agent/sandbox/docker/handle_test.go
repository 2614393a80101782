package docker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// Somebody holds the gate and waits for an engine that does not answer: nobody else waits without a bound.
func TestP6_TheGateIsWaitedForWithABound(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func(*handle) error{
		"kill":                         func(h *handle) error { return h.Kill(context.Background()) },
		"kill with a ctx that is over": func(h *handle) error { return h.Kill(over) },
		"release":                      func(h *handle) error { return h.Release(context.Background()) },
		"end of one command": func(h *handle) error {
			c := &command{h: h, gone: make(chan struct{})}
			h.paused = true
			return c.endTree(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHandle(&Driver{}, sandbox.Spec{Attempt: "a"})
				h.gate <- struct{}{}
				began := time.Now()
				err := end(h)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != gateWithin {
					t.Errorf("%v after %s, want %v after %s", err, took, context.DeadlineExceeded, gateWithin)
				}
				if len(h.gate) != 1 {
					t.Error("the gate was left by somebody who did not hold it")
				}
			})
		})
	}
}

// What guard and feed say behind the end does not race with who waits for it. The race detector tells.
func TestWaitBesideALateFailure(t *testing.T) {
	t.Parallel()
	c := &command{done: make(chan struct{})}
	close(c.done)
	late := errors.New("late")
	failed := make(chan struct{})
	go func() {
		c.fail(late)
		close(failed)
	}()
	_, _ = c.Wait()
	<-failed
	if _, err := c.Wait(); !errors.Is(err, late) {
		t.Errorf("wait after a late failure: %v, want it", err)
	}
}
