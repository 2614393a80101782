// Package fake is a sandbox driver without processes, for the tests of other packages. It behaves as a real one
// does: timeouts count running time, a frozen command stands still, a stop walks its ladder, Release ends
// everything. What goes wrong is written in a small language, one rule a line:
//
//	# OPERATION [once] [WHAT THE COMMAND LINE CONTAINS]: ACTION; ACTION...
//	start: fail no space left on device
//	exec claude: print {"type":"result"}; write ok.txt done; sleep 2s; exit 0
//	exec once git: exit 128
//	exec: hang
//	freeze: fail cgroup is busy
//	release once: fail container is busy
//
// The first rule of an operation that matches and is not used up counts; without a rule an operation succeeds, a
// command exits 0 and prints nothing. A text in double quotes is a Go string; print and err end an unquoted text
// with a newline; a semicolon separates actions, in quoted texts too: write \x3b.
//
// For every operation: ok, fail TEXT, and for most delay D. For start: unsupported WHAT. block waits for the context.
// For exec, as steps: print TEXT, err TEXT (stderr), sleep D (running time), exit N, signal SIGNAME (dies of it),
// hang (until something ends it), stubborn (from here on only SIGKILL ends it), answer N (from here on SIGINT and
// SIGTERM make it exit N), write FILE TEXT, append FILE TEXT, remove FILE (in the workspace), cat (stdin to stdout),
// env NAME (prints it), leave (a descendant lives on after it), hold (one that holds the output open, too),
// lost TEXT (Wait reports an error), oom, pids, memory BYTES, cpu D (added to Usage). As the first step fail TEXT
// makes Exec itself fail. For usage: the same measures, from the beginning.
//
// The script of one sandbox is Spec.Image if it is set, else Config.Script. Time is package time's: tests run in
// testing/synctest.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// Name is the driver's name.
const Name = "fake"

// Config configures a Driver. The zero value is a driver on which everything succeeds.
type Config struct {
	// Script is the behaviour of sandboxes whose Spec.Image is empty.
	Script string
	// Info is what handles report; Driver, Enclosure and Freezer have defaults.
	Info sandbox.Info
}

// Driver is a sandbox.Driver.
type Driver struct {
	cfg Config

	mu      sync.Mutex
	handles map[string]*handle
	strays  map[string]int // what a crashed runner left: attempt to processes
	log     []string
	pid     int
}

var (
	_ sandbox.Driver        = (*Driver)(nil)
	_ sandbox.ComputeHandle = (*handle)(nil)
	_ sandbox.Process       = (*process)(nil)
)

// New returns a Driver. A mistake in the script is reported by Start; Check finds it earlier.
func New(cfg Config) *Driver {
	return &Driver{cfg: cfg, handles: make(map[string]*handle), strays: make(map[string]int)}
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Close implements sandbox.Driver. It returns an error that names the sandboxes that were not released.
func (d *Driver) Close() error {
	if live := d.Live(); len(live) > 0 {
		return fmt.Errorf("fake: closed with live sandboxes: %s", strings.Join(live, ", "))
	}
	return nil
}

// Live returns the attempts whose sandboxes are not released, sorted.
func (d *Driver) Live() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]string, 0, len(d.handles))
	for a := range d.handles {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}

// Log returns what was called, in order: "start run_1.1", "exec run_1.1 git status", "freeze run_1.1", ...
func (d *Driver) Log() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// AddStray makes Sweep find something that a crashed runner left.
func (d *Driver) AddStray(attempt string, processes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.strays[attempt] = processes
}

func (d *Driver) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	script := d.cfg.Script
	if spec.Image != "" {
		script = spec.Image
	}
	rules, err := parse(script)
	if err != nil {
		return nil, err
	}
	h := &handle{d: d, spec: spec, rules: rules, thawed: closed(), changed: make(chan struct{}), procs: make(map[*process]struct{})}
	d.mu.Lock()
	d.log = append(d.log, "start "+spec.Attempt)
	if d.handles[spec.Attempt] != nil {
		err = fmt.Errorf("fake: start %s: %w", spec.Attempt, sandbox.ErrInUse)
	} else {
		d.handles[spec.Attempt] = h
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := h.do(ctx, "start"); err != nil {
		d.forget(h)
		return nil, err
	}
	return h, nil
}

func (d *Driver) forget(h *handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.handles, h.spec.Attempt)
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(_ context.Context, keep func(string) bool) ([]sandbox.Swept, error) {
	d.note("sweep")
	rules, err := parse(d.cfg.Script)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		for _, a := range r.actions {
			if r.op == "sweep" && a.verb == "fail" {
				return nil, errors.New(or(a.text, "sweep failed"))
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []sandbox.Swept
	for a, n := range d.strays {
		if keep == nil || !keep(a) {
			out = append(out, sandbox.Swept{Attempt: a, Kind: "processes", Processes: n})
			delete(d.strays, a)
		}
	}
	slices.SortFunc(out, func(a, b sandbox.Swept) int { return strings.Compare(a.Attempt, b.Attempt) })
	return out, nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// handle is one sandbox.
type handle struct {
	d     *Driver
	spec  sandbox.Spec
	rules []*rule

	// mu is taken before a process's mutex, never inside it.
	mu        sync.Mutex
	procs     map[*process]struct{} // with a living main process or descendant
	frozen    bool
	frozenAt  time.Time
	frozenSum time.Duration
	thawed    chan struct{} // closed while not frozen
	changed   chan struct{} // closed and replaced by freeze and thaw
	released  bool
	usage     sandbox.Usage
}

// rule takes the rule for an operation.
func (h *handle) rule(op, command string) *rule {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rules {
		if r.op == op && !(r.once && r.used) && strings.Contains(command, r.match) {
			r.used = true
			return r
		}
	}
	return nil
}

// do carries out an operation that is not exec.
func (h *handle) do(ctx context.Context, op string) error {
	r := h.rule(op, "")
	if r == nil {
		return nil
	}
	for _, a := range r.actions {
		if err := h.act(ctx, op, a); err != nil {
			return err
		}
	}
	return nil
}

func (h *handle) act(ctx context.Context, op string, a action) error {
	switch a.verb {
	case "fail":
		return fmt.Errorf("fake: %s %s: %s", op, h.spec.Attempt, or(a.text, "failed"))
	case "unsupported":
		return &sandbox.UnsupportedError{Driver: Name, What: or(a.text, "memory limit"), Wanted: "as declared", Reason: "the script says so"}
	case "block":
		<-ctx.Done()
		return context.Cause(ctx)
	case "delay":
		t := time.NewTimer(a.d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Info implements sandbox.ComputeHandle.
func (h *handle) Info() sandbox.Info {
	i := h.d.cfg.Info
	i.Driver, i.Enclosure, i.Freezer = or(i.Driver, Name), or(i.Enclosure, "fake"), or(i.Freezer, "fake")
	return i
}

// Freeze implements sandbox.ComputeHandle.
func (h *handle) Freeze(ctx context.Context) error {
	h.d.note("freeze %s", h.spec.Attempt)
	if err := h.alive(); err != nil {
		return err
	}
	if err := h.do(ctx, "freeze"); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.frozen {
		h.frozen, h.frozenAt, h.thawed = true, time.Now(), make(chan struct{})
		h.change()
	}
	return nil
}

// FreezeAt implements sandbox.ComputeHandle. The fake's processes are goroutines of this process, and stand still
// with it by nature: there is nothing to do.
func (h *handle) FreezeAt(context.Context, time.Time) error { return h.alive() }

// Thaw implements sandbox.ComputeHandle.
func (h *handle) Thaw(ctx context.Context) error {
	h.d.note("thaw %s", h.spec.Attempt)
	if err := h.alive(); err != nil {
		return err
	}
	if err := h.do(ctx, "thaw"); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.thawLocked()
	return nil
}

func (h *handle) thawLocked() {
	if h.frozen {
		h.frozen = false
		h.frozenSum += time.Since(h.frozenAt)
		close(h.thawed)
		h.change()
	}
}

func (h *handle) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *handle) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return sandbox.ErrReleased
	}
	return nil
}

// frozenFor is how long the sandbox has been frozen so far.
func (h *handle) frozenFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		return h.frozenSum + time.Since(h.frozenAt)
	}
	return h.frozenSum
}

// await waits for d of running time; false when stop came first.
func (h *handle) await(d time.Duration, stop ...<-chan struct{}) bool {
	for len(stop) < 2 {
		stop = append(stop, nil)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		h.mu.Lock()
		frozen, changed := h.frozen, h.changed
		h.mu.Unlock()
		start := time.Now()
		var tick <-chan time.Time
		if !frozen {
			timer.Reset(d)
			tick = timer.C
		}
		select {
		case <-tick:
			return true
		case <-stop[0]:
			return false
		case <-stop[1]:
			return false
		case <-changed:
			if !frozen {
				d -= time.Since(start)
			}
		}
	}
}

// Usage implements sandbox.ComputeHandle.
func (h *handle) Usage(ctx context.Context) (sandbox.Usage, error) {
	h.mu.Lock()
	u := h.usage
	var r *rule
	for _, x := range h.rules {
		if x.op == "usage" {
			r = x
			break
		}
	}
	procs := slices.Collect(maps.Keys(h.procs))
	h.mu.Unlock()
	n := int64(0)
	for _, p := range procs {
		n += int64(p.alive())
	}
	u.PIDs = &n
	u.Frozen = h.frozenFor()
	if r != nil {
		for _, a := range r.actions {
			if a.verb == "fail" {
				return sandbox.Usage{}, fmt.Errorf("fake: usage %s: %s", h.spec.Attempt, or(a.text, "failed"))
			}
			measure(&u, a)
		}
	}
	return u, nil
}

// measure adds what an action says was used.
func measure(u *sandbox.Usage, a action) {
	add := func(p **int64, n int64) {
		v := n
		if *p != nil {
			v += **p
		}
		*p = &v
	}
	switch a.verb {
	case "oom":
		add(&u.OOMKills, 1)
	case "pids":
		add(&u.PIDsHits, 1)
	case "memory":
		if u.PeakMemory == nil || *u.PeakMemory < a.n {
			n := a.n
			u.PeakMemory = &n
		}
	case "cpu":
		d := a.d
		if u.CPU != nil {
			d += *u.CPU
		}
		u.CPU = &d
	}
}

// Kill implements sandbox.ComputeHandle.
func (h *handle) Kill(ctx context.Context) error {
	h.d.note("kill %s", h.spec.Attempt)
	if err := h.alive(); err != nil {
		return err
	}
	if err := h.do(ctx, "kill"); err != nil {
		return err
	}
	h.end()
	return nil
}

// end kills everything, and waits for the main processes.
func (h *handle) end() {
	h.mu.Lock()
	procs := slices.Collect(maps.Keys(h.procs))
	h.thawLocked()
	h.mu.Unlock()
	for _, p := range procs {
		p.claim(sandbox.ReasonKilled, nil)
		p.killAll()
		<-p.ended
	}
}

// Release implements sandbox.ComputeHandle.
func (h *handle) Release(ctx context.Context) error {
	h.d.note("release %s", h.spec.Attempt)
	h.mu.Lock()
	if h.released {
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	if err := h.do(context.WithoutCancel(ctx), "release"); err != nil {
		return err
	}
	h.mu.Lock()
	h.released = true
	h.mu.Unlock()
	h.end()
	h.d.forget(h)
	return nil
}
