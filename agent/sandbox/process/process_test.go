//go:build unix

package process

import (
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

func TestConformance(t *testing.T) {
	for _, kind := range []string{EnclosureCgroup, EnclosureReaper, EnclosureGroup} {
		t.Run(kind, func(t *testing.T) {
			if _, err := New(Config{Enclosure: kind}).Probe(); err != nil {
				t.Skipf("not on this machine: %v", err)
			}
			sandboxtest.Run(t, sandboxtest.Lane{New: func(t *testing.T) sandbox.Driver {
				return newDriver(t, Config{Enclosure: kind})
			}})
		})
	}
}
