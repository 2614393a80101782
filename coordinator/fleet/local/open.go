package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Config of the units of this machine. Dir, WorkDir, Keeper, Runner and URL are required.
type Config struct {
	// Dir is where units are written down, a directory of the coordinator's own.
	Dir string
	// WorkDir is where each runner gets a directory to work in. Jobs may look there, and
	// so it is not in a directory of Hide.
	WorkDir string
	// Keeper is the program, with its arguments, that calls Keep with one more argument.
	Keeper []string
	// Runner is the program of a unit, with its arguments: job-runner, or what does the
	// same.
	Runner []string
	// URL is where the runners find the coordinator.
	URL string
	// Hide are directories that no job may see.
	Hide []string
	// Encloses says that Runner has sandboxes of its own, as a paired machine's has: it
	// runs images, and holds a job to its network or refuses it.
	Encloses bool
	// Drain is how long a run may go on in a unit that is told to end. Default 15 s.
	Drain time.Duration
	// Environ is what runners inherit, and of it jobs; nil: what this process has.
	// Variables that begin with EVERDICT_ are never in it.
	Environ []string
	Log     *slog.Logger
}

const (
	// killSlack is what a runner has, once it has drained, to end by itself.
	killSlack = 15 * time.Second
	// keepSlack is what a keeper has to end what its runner has left.
	keepSlack = 15 * time.Second
)

// Opener makes providers for runtimes of kind local, which all use the same machine.
type Opener struct {
	cfg  Config
	host string

	// mu is held while what is on the disk is compared and changed.
	mu sync.Mutex
	// children are the keepers that this process has started, by directory of the unit.
	children map[string]*exec.Cmd
	stopped  bool
	swept    bool // leavings were asked for
	// watchers are called when something may have changed.
	watchers map[int]func()
	watches  int
}

var _ fleet.Featured = (*Opener)(nil)

// New returns an opener. It touches nothing.
func New(cfg Config) *Opener {
	cfg.Drain = cmp.Or(cfg.Drain, 15*time.Second)
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	var environ []string
	for _, kv := range cfg.Environ {
		if !strings.HasPrefix(kv, "EVERDICT_") {
			environ = append(environ, kv)
		}
	}
	cfg.Environ = environ
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return &Opener{cfg: cfg, host: host, children: map[string]*exec.Cmd{}, watchers: map[int]func(){}}
}

// Lacks implements fleet.Featured.
func (o *Opener) Lacks(f fleet.Feature) string {
	switch f {
	case fleet.FeatureReuse:
		return "what a job leaves on the machine cannot be removed for certain"
	case fleet.FeatureNoNetwork:
		if o.cfg.Encloses {
			return ""
		}
		return "a process shares the machine's network"
	}
	return fmt.Sprintf("processes of this machine do not hold %q", f)
}

// Open implements fleet.Opener.
func (o *Opener) Open(_ context.Context, t fleet.Target) (fleet.Provider, error) {
	if t.Spec.Kind != protocol.RuntimeLocal {
		return nil, fmt.Errorf("local: runtime %s is of kind %s", t.Spec.ID, t.Spec.Kind)
	}
	if !Supported {
		return nil, errors.New("local: runners are launched on the coordinator's own machine on Linux only")
	}
	return &provider{o: o, t: t, dir: targetDir(t)}, nil
}

// changed tells all who watch.
func (o *Opener) changed() {
	o.mu.Lock()
	var all []func()
	for _, f := range o.watchers {
		all = append(all, f)
	}
	o.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// Stop ends every unit: each runner drains, and gives back what it has. Those that still
// run when ctx ends are killed. No unit is started after it.
func (o *Opener) Stop(ctx context.Context) error {
	tick := time.NewTicker(stopPause)
	defer tick.Stop()
	for {
		running, err := o.stopAll(syscall.SIGTERM)
		if err != nil || running == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if running, err = o.stopAll(syscall.SIGKILL); running > 0 {
				o.cfg.Log.Warn("units that did not end in time were killed", "units", running)
			}
			return err
		}
	}
}

const stopPause = 100 * time.Millisecond

func (o *Opener) stopAll(how syscall.Signal) (running int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	units, err := o.readAll()
	for _, u := range units {
		if u.alive() {
			running++
			o.end(u, how)
		}
	}
	return running, err
}
