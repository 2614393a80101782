// Package fleettest has the conformance suite that every fleet.Provider passes against
// its real engine, and a cluster in memory that passes it too, for other packages'
// tests.
package fleettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Cluster is a cluster in memory. Its containers are functions; use Config.Container to
// say what they do.
type Cluster struct {
	cfg Config

	mu       sync.Mutex
	units    map[string]*unit // by coordinator and name
	down     error            // what every call answers
	silent   bool             // calls wait for the end of their context
	refuse   error            // what calls that change something answer; lists do not know
	refused  int
	kept     error // what removals answer
	most     int   // units that its quota has room for; 0: it has none
	onEnd    func(print func(string)) time.Duration
	unread   error // what questions for an output answer
	behind   bool  // lists show launches that are complete as half done
	broken   error // what launches answer when they have the unit's document
	watchers map[int]func()
	watches  int
	asked    int // calls
	launches int
	running  sync.WaitGroup
}

// payloadLimit is the most bytes of a payload that it keeps.
const payloadLimit = 2 << 20

// Config of a Cluster.
type Config struct {
	// MemoryMB that one unit can have at most. Default 1 GiB.
	MemoryMB int
	// Container is what runs in a unit until ctx ends; its code is the exit code, and an
	// error *fleet.Trouble is what the cluster says of its end. Default Script.
	Container func(ctx context.Context, c Container) (code int, trouble *fleet.Trouble)
}

// Container is a unit's process as it is started.
type Container struct {
	fleet.Order
	// Secret is the token or the payload that the unit was given.
	Secret string
	// Print adds to the unit's output.
	Print func(string)
}

type unit struct {
	fleet.Unit
	target  string
	order   fleet.Order
	token   string
	output  bytes.Buffer
	stop    context.CancelFunc
	started bool
}

// NewCluster returns a cluster without units. Close ends what it runs.
func NewCluster(cfg Config) *Cluster {
	if cfg.MemoryMB == 0 {
		cfg.MemoryMB = 1024
	}
	if cfg.Container == nil {
		cfg.Container = Script
	}
	return &Cluster{cfg: cfg, units: map[string]*unit{}, watchers: map[int]func(){}}
}

// Close ends every unit and waits for it.
func (c *Cluster) Close() {
	c.mu.Lock()
	for _, u := range c.units {
		if u.stop != nil {
			u.stop()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
}

// Open implements fleet.Opener.
func (c *Cluster) Open(_ context.Context, t fleet.Target) (fleet.Provider, error) {
	return &provider{c, t}, nil
}

// Lacks implements fleet.Featured: its containers are functions, of which nothing is
// left when they have returned.
func (c *Cluster) Lacks(fleet.Feature) string { return "" }

// Down makes every call fail with err until it is called with nil.
func (c *Cluster) Down(err error) {
	c.mu.Lock()
	c.down = err
	c.mu.Unlock()
	c.changed()
}

// Silence makes calls wait for the end of their context, as of an address that swallows
// packets, until it is called with false.
func (c *Cluster) Silence(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = yes
}

// Asked is how many calls there were.
func (c *Cluster) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// Watchers is how many clients watch.
func (c *Cluster) Watchers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watchers)
}

// Refuse makes calls that change something fail with err until it is called with nil,
// while lists show what was there: a cluster that is away, as its watch knows it.
func (c *Cluster) Refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = err
}

// Refused is how many calls Refuse has made fail.
func (c *Cluster) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Break makes launches fail with err, which may be a *fleet.RefusedError, when they have
// asked for the unit's token or payload, until it is called with nil.
func (c *Cluster) Break(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
}

// Keep makes removals fail with err until it is called with nil.
func (c *Cluster) Keep(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = err
}

// Quota makes launches beyond so many units fail; 0: none do.
func (c *Cluster) Quota(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = most
}

// OnTerminate says what units do when they are told to end: print, and stay for a time.
func (c *Cluster) OnTerminate(do func(print func(string)) (stays time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onEnd = do
}

// Unread makes outputs unreadable with err until it is called with nil.
func (c *Cluster) Unread(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread = err
}

// Behind makes lists show units that were launched as half launched, until it is called
// with false.
func (c *Cluster) Behind(yes bool) {
	c.mu.Lock()
	c.behind = yes
	c.mu.Unlock()
	c.changed()
}

// Document is what a unit has of its token or payload; empty: it was made to forget it.
func (c *Cluster) Document(name string) (doc string) {
	c.each(name, func(u *unit) { doc = u.token })
	return doc
}

// Launches is how many units were ever made.
func (c *Cluster) Launches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launches
}

// Units are those that are there, by name.
func (c *Cluster) Units() []fleet.Unit {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []fleet.Unit
	for _, u := range c.units {
		all = append(all, u.Unit)
	}
	slices.SortFunc(all, func(a, b fleet.Unit) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Say sets what the cluster says of a unit. It ends one that it says is dead.
func (c *Cluster) Say(name string, t *fleet.Trouble) {
	c.each(name, func(u *unit) {
		u.Trouble = t
		if t == nil || !t.Dead {
			return
		}
		u.State = fleet.Ended
		if u.stop != nil {
			u.stop()
		}
	})
}

// Print adds to a unit's output.
func (c *Cluster) Print(name, text string) {
	c.each(name, func(u *unit) { u.output.WriteString(text) })
}

// Evict takes a unit away as a person with a right to does.
func (c *Cluster) Evict(name string) {
	c.Say(name, &fleet.Trouble{Cause: fleet.CauseEvicted, Message: "the unit was deleted", Final: true, Dead: true})
}

// Lag makes the cluster call a unit that runs pending, on its node.
func (c *Cluster) Lag(name string) {
	c.each(name, func(u *unit) { u.State = fleet.Pending })
}

// Exit ends a unit's container by itself, with code 0.
func (c *Cluster) Exit(name string) {
	c.each(name, func(u *unit) {
		u.State = fleet.Ended
		if u.stop != nil {
			u.stop()
		}
	})
}

// Vanish removes a unit without a trace.
func (c *Cluster) Vanish(name string) {
	c.each(name, func(u *unit) {
		if u.stop != nil {
			u.stop()
		}
		delete(c.units, u.target+"/"+u.Name)
	})
}

func (c *Cluster) each(name string, f func(*unit)) {
	c.mu.Lock()
	for _, u := range c.units {
		if u.Name == name {
			f(u)
		}
	}
	c.mu.Unlock()
	c.changed()
}

func (c *Cluster) changed() {
	c.mu.Lock()
	var all []func()
	for _, f := range c.watchers {
		all = append(all, f)
	}
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// provider is the cluster as one runtime uses it.
type provider struct {
	c *Cluster
	t fleet.Target
}

var (
	_ fleet.Featured = (*Cluster)(nil)
	_ fleet.Located  = (*provider)(nil)
)

// Location implements fleet.Located: each cluster is a place.
func (p *provider) Location() string { return fmt.Sprintf("%p", p.c) }

func (p *provider) target() string {
	return p.t.Coordinator + "/" + p.t.Workspace + "/" + p.t.Spec.ID
}

func (p *provider) key(name string) string { return p.target() + "/" + name }

// lock takes the cluster, unless it is down.
func (p *provider) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.c.mu.Lock()
	p.c.asked++
	if p.c.silent {
		p.c.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if err := p.c.down; err != nil {
		p.c.mu.Unlock()
		return err
	}
	if p.t.Spec.AuthSecret == "wrong" {
		p.c.mu.Unlock()
		return &fleet.AuthError{Credential: "authSecret wrong", Err: errors.New("401 Unauthorized")}
	}
	return nil
}

// change is lock for a call that changes something.
func (p *provider) change(ctx context.Context) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	if err := p.c.refuse; err != nil {
		p.c.refused++
		p.c.mu.Unlock()
		return err
	}
	return nil
}

// Probe implements fleet.Provider.
func (p *provider) Probe(ctx context.Context) (string, error) {
	if err := p.lock(ctx); err != nil {
		return "", err
	}
	defer p.c.mu.Unlock()
	return "memory v1", nil
}

// Launch implements fleet.Provider.
func (p *provider) Launch(ctx context.Context, o fleet.Order) error {
	if err := p.change(ctx); err != nil {
		return err
	}
	if err := o.TooLarge(payloadLimit, "the memory of a test"); err != nil {
		p.c.mu.Unlock()
		return err
	}
	u := p.c.units[p.key(o.Unit)]
	if u == nil {
		if strings.ToLower(o.Image) != o.Image {
			p.c.mu.Unlock()
			return &fleet.RefusedError{Cause: fleet.CauseImage, Message: fmt.Sprintf("couldn't parse image name %q: invalid reference format", o.Image)}
		}
		if used := len(p.c.units); p.c.most > 0 && used >= p.c.most {
			most := p.c.most
			p.c.mu.Unlock()
			return &fleet.QuotaError{Message: fmt.Sprintf("exceeded quota: %d of %d units", used, most)}
		}
		u = &unit{Unit: fleet.Unit{Name: o.Unit, Job: o.Job, Attempt: o.Attempt, Note: o.Note}, target: p.target(), order: o}
		p.c.units[p.key(o.Unit)] = u
		p.c.launches++
	}
	started := u.started
	p.c.mu.Unlock()
	p.c.changed()
	if started {
		return nil
	}
	doc, err := o.Document(ctx)
	if err != nil {
		return err
	}
	p.c.mu.Lock()
	if p.c.broken != nil {
		err := p.c.broken
		p.c.mu.Unlock()
		return err
	}
	u.token, u.started, u.State, u.Node = string(doc), true, fleet.Running, "memory"
	switch {
	case strings.HasPrefix(o.Image, "missing"):
		u.State, u.Node = fleet.Pending, ""
		u.Trouble = &fleet.Trouble{Cause: fleet.CauseImage, Message: "image " + o.Image + " is not present", Final: true}
	case o.MemoryMB > p.c.cfg.MemoryMB:
		u.State, u.Node = fleet.Pending, ""
		u.Trouble = &fleet.Trouble{Cause: fleet.CauseUnschedulable, Message: fmt.Sprintf("0/1 nodes are available: insufficient memory: %d MiB", o.MemoryMB)}
	default:
		p.c.start(u)
	}
	p.c.mu.Unlock()
	p.c.changed()
	return nil
}

// start runs the container of a unit. The caller holds mu.
func (c *Cluster) start(u *unit) {
	ctx, stop := context.WithCancel(context.Background())
	u.stop = stop
	box := Container{Order: u.order, Secret: u.token, Print: func(s string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		u.output.WriteString(s)
	}}
	late := make(<-chan time.Time)
	if u.order.Deadline > 0 {
		late = time.After(u.order.Deadline)
	}
	done := make(chan struct{})
	c.running.Go(func() {
		select {
		case <-late:
			c.Say(u.Name, &fleet.Trouble{Cause: fleet.CauseDeadline, Message: "active longer than its deadline", Final: true, Dead: true})
			stop()
		case <-done:
		}
	})
	c.running.Go(func() {
		defer stop()
		defer close(done)
		code, trouble := c.cfg.Container(ctx, box)
		c.mu.Lock()
		if u.State != fleet.Ended {
			u.State, u.Trouble = fleet.Ended, trouble
			if trouble == nil && code != 0 {
				u.Trouble = &fleet.Trouble{Cause: fleet.CauseExited, Message: fmt.Sprintf("exit code %d", code), Final: true, Dead: true, ExitCode: &code}
			}
		}
		c.mu.Unlock()
		c.changed()
	})
}

// List implements fleet.Provider.
func (p *provider) List(ctx context.Context) ([]fleet.Unit, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.c.mu.Unlock()
	var all []fleet.Unit
	for _, u := range p.c.units {
		if u.target != p.target() {
			continue
		}
		shown := u.Unit
		if p.c.behind {
			shown.State, shown.Node, shown.Trouble = fleet.Launching, "", nil
		}
		all = append(all, shown)
	}
	return all, nil
}

// Terminate implements fleet.Provider.
func (p *provider) Terminate(ctx context.Context, name string) error {
	if err := p.change(ctx); err != nil {
		return err
	}
	if err := p.c.kept; err != nil {
		p.c.mu.Unlock()
		return err
	}
	u := p.c.units[p.key(name)]
	if u == nil {
		p.c.mu.Unlock()
		return nil
	}
	gone := func() {
		p.c.mu.Lock()
		delete(p.c.units, p.key(name))
		p.c.mu.Unlock()
		if u.stop != nil {
			u.stop()
		}
		p.c.changed()
	}
	if do := p.c.onEnd; do != nil {
		time.AfterFunc(do(func(s string) { u.output.WriteString(s) }), gone)
		p.c.mu.Unlock()
		return nil
	}
	p.c.mu.Unlock()
	gone()
	return nil
}

// Forget implements fleet.Provider.
func (p *provider) Forget(ctx context.Context, name string) error {
	if err := p.change(ctx); err != nil {
		return err
	}
	defer p.c.mu.Unlock()
	if u := p.c.units[p.key(name)]; u != nil {
		u.token = ""
	}
	return nil
}

// Output implements fleet.Provider.
func (p *provider) Output(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.c.mu.Unlock()
	u := p.c.units[p.key(name)]
	if u == nil {
		return nil, nil
	}
	if p.c.unread != nil {
		return nil, p.c.unread
	}
	b := bytes.Clone(u.output.Bytes())
	return b[max(0, int64(len(b))-limit):], nil
}

// Inspect implements fleet.Provider.
func (p *provider) Inspect(ctx context.Context) (protocol.Inspection, error) {
	units, err := p.List(ctx)
	in := protocol.Inspection{Kind: p.t.Spec.Kind, Reachable: err == nil, Detail: "memory v1", Warnings: []string{},
		Nodes: &protocol.InspectNodes{Total: 1, Ready: 1, Items: []protocol.InspectNode{{Name: "memory", Status: "Ready", Ready: true, Schedulable: true}}}}
	for _, u := range units {
		in.Workload = append(in.Workload, protocol.InspectUnit{ID: u.Name, Name: u.Name, Status: u.State.String(), Node: u.Node, Role: "eval"})
	}
	return in, err
}

// Watch implements fleet.Provider.
func (p *provider) Watch(ctx context.Context, changed func()) error {
	p.c.mu.Lock()
	p.c.watches++
	id := p.c.watches
	p.c.watchers[id] = changed
	p.c.mu.Unlock()
	changed()
	<-ctx.Done()
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	delete(p.c.watchers, id)
	return nil
}

// Script is a container that does what its token says, one word of it after the other
// between semicolons: "say TEXT" with $VARIABLES, "exit N", "oom", "wait".
func Script(ctx context.Context, c Container) (int, *fleet.Trouble) {
	for step := range strings.SplitSeq(c.Secret, ";") {
		what, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch what {
		case "say":
			c.Print(os.Expand(arg, func(name string) string { return c.Env[name] }) + "\n")
		case "exit":
			code := 0
			_, _ = fmt.Sscan(arg, &code)
			return code, nil
		case "oom":
			code := 137
			return code, &fleet.Trouble{Cause: fleet.CauseOOM, Message: "OOMKilled", Final: true, Dead: true, ExitCode: &code}
		case "wait":
			<-ctx.Done()
			return 143, nil
		}
	}
	return 0, nil
}
