//go:build unix

// Package process runs attempts as processes of the host, as the runner's user, with the logins that are already
// on the machine. It encloses every process of an attempt with the best means of the machine (a cgroup v2; else a
// subreaper with a scan of the process table), so that the whole tree can be frozen, measured and ended.
//
// There is no helper program between the runner and a command: commands are forked from a locked thread that lives
// in a mount namespace in which the runner's secrets are masked, and born inside their cgroup.
package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/everdict/everdict/agent/sandbox"
)

// Name is the driver's name.
const Name = "process"

// Enclosures, as reported in sandbox.Info.
const (
	EnclosureCgroup = "cgroup2"       // Linux: a cgroup v2 per attempt and command
	EnclosureReaper = "subreaper"     // Linux: every orphan comes back to the runner and is recognised by marks
	EnclosureGroup  = "process-group" // other systems: process groups and descent
)

// Config configures a Driver. The zero value probes the machine and takes the best.
type Config struct {
	// Enclosure forces one kind instead of the best; Start fails where the machine does not offer it.
	Enclosure string
	// CgroupDir is a directory of a cgroup v2 hierarchy that is delegated to this process; empty means the
	// runner's own cgroup.
	CgroupDir string
	// Slots is how many sandboxes the runner may have at a time. Zero means one.
	Slots int
	// DefaultPIDs and DefaultMemoryMB limit the processes and threads and the memory of a sandbox that declares
	// nothing, where limits can be enforced. Zero means a slot's share of the machine; negative means none.
	DefaultPIDs, DefaultMemoryMB int64
	// NoMask leaves the mount namespace alone: nothing is hidden from commands.
	NoMask bool
	// Roster is the directory where the runners of this user list what no job may see, of theirs or of others; see package
	// roster. Empty: what other runners have stays visible. It has an effect on Linux.
	Roster string

	noLandlock bool // as on a kernel that has none, for tests
}

// Driver is the process sandbox.
type Driver struct {
	cfg     Config
	probe   sync.Once
	machine *machine
	err     error

	starting sync.RWMutex // held for reading by Start, for writing by Close

	mu      sync.Mutex
	closed  bool
	handles map[string]*handle // by attempt
}

var (
	_ sandbox.Driver        = (*Driver)(nil)
	_ sandbox.ComputeHandle = (*handle)(nil)
	_ sandbox.Process       = (*command)(nil)
)

// New returns a Driver. It touches nothing; the machine is probed by the first call that needs it.
func New(cfg Config) *Driver {
	return &Driver{cfg: cfg, handles: make(map[string]*handle)}
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Probe says what the machine offers: an Info as a sandbox without declarations would have it.
func (d *Driver) Probe() (sandbox.Info, error) {
	m, err := d.probed()
	if err != nil {
		return sandbox.Info{}, err
	}
	return m.info(), nil
}

func (d *Driver) probed() (*machine, error) {
	d.probe.Do(func() {
		if d.err = keepDescriptors(); d.err != nil {
			d.err = fmt.Errorf("process: keep open files from commands: %w", d.err)
			return
		}
		d.machine, d.err = probe(d.cfg)
	})
	return d.machine, d.err
}

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := check(spec); err != nil {
		return nil, err
	}
	m, err := d.probed()
	if err != nil {
		return nil, err
	}
	h := &handle{driver: d, spec: spec, live: make(map[*command]struct{}),
		gate: make(chan struct{}, 1), release: make(chan struct{}, 1)}
	d.starting.RLock()
	defer d.starting.RUnlock()
	// The name is taken before anything is made under it, so that two starts of one attempt cannot share a cgroup.
	d.mu.Lock()
	switch {
	case d.closed:
		err = fmt.Errorf("process: start %s: driver is closed", spec.Attempt)
	case d.handles[spec.Attempt] != nil:
		err = fmt.Errorf("process: start %s: %w", spec.Attempt, sandbox.ErrInUse)
	default:
		d.handles[spec.Attempt] = h
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := h.start(m); err != nil {
		d.forget(h)
		return nil, err
	}
	return h, nil
}

// check refuses what the process lane cannot carry out on any machine.
func check(spec sandbox.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	refuse := func(what, wanted, reason string) error {
		return &sandbox.UnsupportedError{Driver: Name, What: what, Wanted: wanted, Reason: reason}
	}
	switch {
	case spec.Image != "":
		return refuse("image", spec.Image, "commands run on the host's own system; an image needs the docker sandbox")
	case spec.Network == sandbox.NetworkNone:
		return refuse("network", spec.Network, "a process of the host shares the host's network; this needs the docker sandbox")
	case spec.Resources.GPU > 0:
		return refuse("GPU count", fmt.Sprint(spec.Resources.GPU), "a process of the host can open every GPU of the host")
	}
	st, err := os.Stat(spec.Dir)
	if err != nil {
		return fmt.Errorf("process: start %s: workspace: %w", spec.Attempt, err)
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

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// resolved is a path without symbolic links, where that is possible.
func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(ctx context.Context, keep func(attempt string) bool) ([]sandbox.Swept, error) {
	m, err := d.probed()
	if err != nil {
		return nil, err
	}
	swept, err := m.sweep(ctx, func(attempt string) bool {
		return keep != nil && keep(attempt)
	}, func(attempt string) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.handles[attempt] != nil
	})
	slices.SortFunc(swept, func(a, b sandbox.Swept) int {
		return cmp.Or(strings.Compare(a.Attempt, b.Attempt), strings.Compare(a.Kind, b.Kind))
	})
	return swept, err
}

// Close implements sandbox.Driver. Handles that are still live are released.
func (d *Driver) Close() error {
	d.starting.Lock() // a Start that is under way gets its sandbox, which is then released below
	defer d.starting.Unlock()
	d.mu.Lock()
	d.closed = true
	live := make([]*handle, 0, len(d.handles))
	for _, h := range d.handles {
		live = append(live, h)
	}
	d.mu.Unlock()
	var firstErr error
	for _, h := range live {
		if err := h.Release(context.Background()); err != nil && firstErr == nil {
			firstErr = err
		}
	}
	// A driver that was never used has nothing to close, and must not probe now.
	d.probe.Do(func() { d.err = fmt.Errorf("process: driver is closed") })
	if d.machine != nil {
		d.machine.close()
	}
	return firstErr
}

func (d *Driver) forget(h *handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handles[h.spec.Attempt] == h {
		delete(d.handles, h.spec.Attempt)
	}
}
