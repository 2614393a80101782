//go:build unix

package docker

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/sandboxtest"
)

const (
	busybox = "test/busybox:1"
	debian  = "test/debian:1"
)

// TestMain wants an engine with the test images: these tests are about real Docker, and skip nothing.
func TestMain(m *testing.M) {
	if err := ready(); err != nil {
		fmt.Fprintf(os.Stderr, "the docker sandbox's tests need a running engine with the test images: %v\nrun \"make deps\" (e2e/docker.sh), which installs, starts and fills it\n", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e, err := connect(ctx, Config{})
	if err != nil {
		return err
	}
	defer e.api.Close()
	for _, name := range []string{busybox, debian} {
		if _, err := e.inspect(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	// Each case has a driver of its own. The engine is looked for once: Podman takes its time to say what it is.
	host := engineOf(t).host
	for _, c := range []struct{ name, image string }{{"busybox", busybox}, {"debian", debian}} {
		t.Run(c.name, func(t *testing.T) {
			sandboxtest.Run(t, sandboxtest.Lane{
				New:   func(t *testing.T, slots int) sandbox.Driver { return New(Config{Host: host, Slots: slots}) },
				Adapt: func(s *sandbox.Spec) { s.Image = c.image },
			})
		})
	}
}
