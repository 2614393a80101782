// Package docker runs attempts in containers of a local engine: Docker from 20.10 on, and what speaks its API.
//
//	driver := docker.New(docker.Config{})
//
// # One container per attempt
//
// The container is created with its labels, and with limits, capabilities and mounts that do not change over its life
// (create.go says which and why). The workspace, Spec.Dir, is mounted at the same absolute path inside, so that a
// path means the same to the runner and to its job. Nothing else of the host is visible, least of all the engine's
// socket. The environment of commands reaches the commands only: neither the container's configuration, nor an
// argument, nor a label holds any of it.
//
// # Process 1
//
// Process 1 is our own init (init/init.c), a static program of a few KiB, mounted read-only. The driver talks to it
// over the container's stdin and stdout and has it start commands; the engine's exec is not used. A command costs a
// millisecond or two instead of a tenth of a second, and has what an exec cannot give: a subreaper of its own, so that
// everything it leaves behind is known and ends with its timeout (F11); exit status and signal as the kernel says them,
// not a shell's 128+n; a kill of everything in one system call that no fork bomb outruns; a stop that needs no free
// slot under the process limit (F44). When the runner dies, its connection closes and the container ends with it (F14);
// when the runner is stopped, init holds everything still from the lease's deadline on (P3).
// docs/decisions/014-own-init-in-containers.md has the whole argument.
//
// # Escalation
//
// Whenever init does not answer in time, or no longer knows what belonged to a command, the container is killed as a
// whole and, while the sandbox is still wanted, started again: more ends then than was asked for, never less.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/everdict/everdict/agent/sandbox"
)

// Name is the driver's name.
const Name = "docker"

// Config configures a Driver. The zero value finds the engine as the docker CLI does.
type Config struct {
	// Host is the engine's address ("unix:///var/run/docker.sock"); empty means what endpoint.Find finds.
	Host string
	// StateDir is where the driver keeps its init program. The engine must be able to mount from it, as it must from
	// workspaces. Empty means a directory below os.UserCacheDir.
	StateDir string
	// Image is what a spec without an image runs; empty: such a spec is refused.
	Image string
	// Runtime is an alternative runtime that the engine knows, such as "runsc"; empty means the engine's default.
	Runtime string
	// Network is what a spec that leaves the choice gets: sandbox.NetworkPublic (also the meaning of empty) or
	// sandbox.NetworkNone.
	Network string
	// ReadonlyRoot makes everything but the workspace and a temporary /tmp read-only.
	ReadonlyRoot bool
	// AllowEmulation runs images that were built for another kind of machine, where the system can emulate it.
	AllowEmulation bool
	// Slots is how many sandboxes the runner may have at a time. Zero means one.
	Slots int
	// DefaultPIDs and DefaultMemoryMB limit the processes and threads and the memory of a sandbox that declares
	// nothing. Zero means a slot's share of the engine's machine; negative means none.
	DefaultPIDs, DefaultMemoryMB int64
	// DefaultCPUMillis limits a sandbox that declares no CPU; zero means no limit.
	DefaultCPUMillis int64
	// User is the "uid:gid" that commands run as. Empty means the runner's own, so that the runner can remove what
	// they make; for a runner that is root, that is root of the container, without most capabilities.
	User string
	// PullTimeout bounds the pull of an image, retries included. Zero means 10 minutes.
	PullTimeout time.Duration
	// Warm is how many containers are kept ready for each of the last few kinds of sandbox that were started: what a
	// spec says but for its attempt, workspace and environment. Their workspaces are handed out by Reserve. Zero: none.
	Warm int
	// WarmRoot is where the workspaces of ready containers are made; empty means the system's temporary directory.
	// What a crashed runner leaves of them are empty directories "warm-*".
	WarmRoot string
	// SweepGrace is how long a container that is not running is left alone by Sweep. Zero means one minute, far
	// more than passes between a create and its start.
	SweepGrace time.Duration
}

// Driver is the docker sandbox.
type Driver struct {
	cfg   Config
	owner owner
	pool  *pool

	connect sync.Mutex // held while the engine is looked for
	engine  *engine    // nil until it was found; guarded by mu

	starting sync.RWMutex // held for reading by Start, for writing by Close

	mu      sync.Mutex
	closed  bool
	handles map[string]*handle // by attempt
}

var (
	_ sandbox.Driver        = (*Driver)(nil)
	_ sandbox.Reserver      = (*Driver)(nil)
	_ sandbox.ComputeHandle = (*handle)(nil)
	_ sandbox.Process       = (*command)(nil)
)

// New returns a Driver. It touches nothing; the engine is looked for by the first call that needs it.
func New(cfg Config) *Driver {
	if cfg.PullTimeout == 0 {
		cfg.PullTimeout = 10 * time.Minute
	}
	if cfg.SweepGrace == 0 {
		cfg.SweepGrace = time.Minute
	}
	d := &Driver{cfg: cfg, owner: thisProcess(), handles: make(map[string]*handle)}
	d.pool = newPool(d)
	return d
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if spec.Image == "" {
		spec.Image = d.cfg.Image
	}
	if spec.Network == "" {
		spec.Network = d.cfg.Network
	}
	if err := check(spec); err != nil {
		return nil, err
	}
	k := d.kindOf(spec)
	if h := d.pool.take(spec, k); h != nil {
		if err := d.adopt(h, spec); err != nil {
			return nil, errors.Join(err, h.Release(ctx))
		}
		return h, nil
	}
	h, err := d.begin(ctx, spec)
	if err != nil {
		return nil, err
	}
	if d.cfg.Warm > 0 {
		d.pool.want(k)
	}
	return h, nil
}

// begin starts a container for a spec that was checked.
func (d *Driver) begin(ctx context.Context, spec sandbox.Spec) (*handle, error) {
	h := newHandle(d, spec)
	d.starting.RLock()
	defer d.starting.RUnlock()
	var err error
	d.mu.Lock()
	switch {
	case d.closed:
		err = fmt.Errorf("docker: start %s: driver is closed", spec.Attempt)
	case d.handles[spec.Attempt] != nil:
		err = fmt.Errorf("docker: start %s: %w", spec.Attempt, sandbox.ErrInUse)
	default:
		d.handles[spec.Attempt] = h
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := h.start(ctx); err != nil {
		d.forget(h)
		return nil, err
	}
	return h, nil
}

// check refuses what no engine can carry out.
func check(spec sandbox.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if spec.Image == "" {
		return refuse("a sandbox", "without an image", "neither the case nor the harness nor the runner names one")
	}
	if runtime.GOOS == "windows" {
		return refuse("image", spec.Image, "a workspace of Windows has no path inside a Linux container; run the runner in WSL")
	}
	st, err := os.Stat(spec.Dir)
	if err != nil {
		return fmt.Errorf("docker: start %s: workspace: %w", spec.Attempt, err)
	}
	if !st.IsDir() {
		return &sandbox.SpecError{Field: "dir", Reason: spec.Dir + " is not a directory"}
	}
	for _, p := range spec.Hide {
		if within(spec.Dir, p) {
			return &sandbox.SpecError{Field: "hide", Reason: "the workspace " + spec.Dir + " lies in the hidden path " + p}
		}
	}
	return nil
}

// within reports whether path is dir or lies below it, symbolic links resolved where that is possible.
func within(path, dir string) bool {
	for _, p := range []*string{&path, &dir} {
		if r, err := filepath.EvalSymlinks(*p); err == nil {
			*p = r
		}
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// found returns the engine. What was not found is looked for again at the next call: it may have been started.
func (d *Driver) found(ctx context.Context) (*engine, error) {
	d.connect.Lock()
	defer d.connect.Unlock()
	d.mu.Lock()
	e, closed := d.engine, d.closed
	d.mu.Unlock()
	if e != nil {
		return e, nil
	}
	if closed {
		return nil, errors.New("docker: driver is closed")
	}
	e, err := connect(ctx, d.cfg)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.engine = e
	d.mu.Unlock()
	return e, nil
}

// Close implements sandbox.Driver. Handles that are still live are released.
func (d *Driver) Close() error {
	d.pool.close()
	d.starting.Lock() // a Start that is under way gets its sandbox, which is then released below
	defer d.starting.Unlock()
	d.mu.Lock()
	d.closed = true
	live := make(map[*handle]struct{}) // one that was adopted has two names
	for _, h := range d.handles {
		live[h] = struct{}{}
	}
	e := d.engine
	d.mu.Unlock()
	var wg sync.WaitGroup
	results := make(chan error, len(live))
	for h := range live {
		wg.Go(func() { results <- h.Release(context.Background()) })
	}
	wg.Wait()
	close(results)
	var errs []error
	for err := range results {
		errs = append(errs, err)
	}
	if e != nil {
		errs = append(errs, e.api.Close())
	}
	return errors.Join(errs...)
}

func (d *Driver) forget(h *handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.handles, func(_ string, other *handle) bool { return other == h })
}

func (d *Driver) holds(attempt string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles[attempt] != nil
}

// progress prints a line for the run's log.
func progress(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, format+"\n", args...) // a log that cannot be written is its owner's matter
	}
}

// refuse is the error of what this engine cannot enforce.
func refuse(what, wanted, reason string) error {
	return &sandbox.UnsupportedError{Driver: Name, What: what, Wanted: wanted, Reason: reason}
}

// unreachable tells an engine that does not answer from one that refuses.
func unreachable(err error) bool { return client.IsErrConnectionFailed(err) }
