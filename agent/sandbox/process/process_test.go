//go:build unix

package process

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDriver returns a driver of one kind, and skips where this machine does not offer it.
func newDriver(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d := New(cfg)
	info, err := d.Probe()
	if err != nil {
		t.Skipf("enclosure %q: %v", cfg.Enclosure, err)
	}
	if cfg.Enclosure != "" && info.Enclosure != cfg.Enclosure {
		t.Fatalf("asked for %q, got %q", cfg.Enclosure, info.Enclosure)
	}
	return d
}

// best is the enclosure that this machine chooses by itself.
func best(t *testing.T) string {
	t.Helper()
	info, err := New(Config{}).Probe()
	if err != nil {
		t.Fatalf("this machine offers no enclosure: %v", err)
	}
	return info.Enclosure
}

func TestConformance(t *testing.T) {
	for _, kind := range []string{EnclosureCgroup, EnclosureReaper, EnclosureGroup} {
		t.Run(kind, func(t *testing.T) {
			if _, err := New(Config{Enclosure: kind}).Probe(); err != nil {
				if kind == best(t) {
					t.Errorf("the best of this machine is not offered: %v", err)
				}
				t.Logf("not on this machine: %v", err)
				return
			}
			// Jobs of root's are kept apart in one of two ways; for anybody else this is twice the same.
			for _, without := range []bool{false, true} {
				t.Run(fmt.Sprintf("without Landlock %v", without), func(t *testing.T) {
					sandboxtest.Run(t, sandboxtest.Lane{New: func(t *testing.T, slots int) sandbox.Driver {
						return hiding{newDriver(t, Config{Enclosure: kind, Slots: slots, noLandlock: without}), t.TempDir()}
					}})
				})
			}
		})
	}
}

// hiding is a driver that hides a directory from all sandboxes, as a runner has it.
type hiding struct {
	*Driver
	dir string
}

func (d hiding) Start(ctx context.Context, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	spec.Hide = append(spec.Hide, d.dir)
	return d.Driver.Start(ctx, spec)
}
