package executor

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
)

// TestP8_SetupIsBounded: a line of set-up that does not end is ended after the case's time, and after half an hour where
// that is longer, with all that it started.
func TestP8_SetupIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeoutSec int
		want       time.Duration
	}{
		"a quick agent": {3, 30 * time.Minute},
		"a slow one":    {7200, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, err := fake.New(fake.Config{Script: `exec sh: hang`}).Start(t.Context(), sandbox.Spec{Attempt: "run_1.1", Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				x := &execution{compute: h, a: Attempt{Job: &protocol.Job{Case: protocol.Case{TimeoutSec: tt.timeoutSec}}}}
				begin := time.Now()
				_, err = x.setup(t.Context(), "sleep 100000", "/", io.Discard)
				var late *environment.LateError
				if !errors.As(err, &late) || late.Configured != tt.want || late.Measured < tt.want {
					t.Errorf("got %v, want a *LateError of %s", err, tt.want)
				}
				if took := time.Since(begin); took < tt.want || took > tt.want+10*time.Second {
					t.Errorf("it took %s, want %s", took, tt.want)
				}
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
