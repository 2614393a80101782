package desktop

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

const (
	// firstRetry and lastRetry bound how long a runner that ended is left alone before it is started again.
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
	// lookBeats is with which heartbeat the machine is looked at again: half a minute, as a coordinator times them by default.
	lookBeats = 3
	// conditionEvery is how often something that is missing on this machine is looked for again, while there are no heartbeats.
	conditionEvery = 30 * time.Second
	// diskLow is how little of the disk makes the app take no new runs, and diskEnough how much makes it go on, in bytes.
	diskLow    = 256 << 20
	diskEnough = 512 << 20
)

// connection is one coordinator. Its goroutine (run) starts the runner again and again; App.mu guards everything else.
type connection struct {
	app *App
	rec record

	runner  *agent.Runner // nil: there is none now
	applied string        // the words of the pause that the runner has
	started record        // what the runner was started with
	// offered are the capabilities that the runner offers, and seen those that this machine was last seen to have: see renewal.
	offered, seen []string
	// uses is the container engine that the runner's sandboxes have, and engine the one that was last seen; empty: none.
	uses, engine string
	beats        int  // heartbeats since the machine was last looked at
	fresh        bool // the coordinator has not answered a heartbeat of this session yet
	online       bool
	jobs         []*job
	// trouble is why there is no session, or no runner; the zero value: none.
	trouble trouble
	// condition is what is wrong with this machine: ReasonDocker, ReasonDisk or empty.
	condition control.Reason
	degraded  string
	// override lets runs in although hours or battery say otherwise, until those change.
	override map[control.Reason]bool
	// draining: the app ends.
	draining bool

	wake   chan struct{} // start again now
	look   chan struct{} // look at the machine now
	cancel context.CancelFunc
	done   chan struct{} // run has ended; nil: it was never started
}

// job is an attempt that runs.
type job struct {
	control.Job
	entry control.Entry
}

func newConnection(a *App, r record) *connection {
	return &connection{app: a, rec: r, wake: make(chan struct{}, 1), look: make(chan struct{}, 1), override: map[control.Reason]bool{}, trouble: trouble{status: control.StatusConnecting, reason: control.ReasonStarting}}
}

// start begins to be a runner, until ctx ends or stop.
func (c *connection) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.app.mu.Lock()
	c.cancel, c.done = cancel, make(chan struct{})
	done := c.done
	c.app.mu.Unlock()
	c.app.runs.Go(func() {
		defer close(done)
		defer cancel()
		c.run(ctx)
	})
}

// stop ends the runner, gives back what runs, and waits for it.
func (c *connection) stop() {
	c.app.mu.Lock()
	cancel, done := c.cancel, c.done
	c.app.mu.Unlock()
	if done == nil {
		return
	}
	cancel()
	<-done
}

// drain lets what runs go on for a while and then ends the runner.
func (c *connection) drain() {
	c.app.mu.Lock()
	c.draining = true
	r := c.runner
	c.app.mu.Unlock()
	if r != nil {
		r.Drain()
	}
	c.nudge()
}

// nudge makes run look again now.
func (c *connection) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// lookNow makes once look at the machine. Unlike a nudge it starts no runner that has ended.
func (c *connection) lookNow() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// run starts the runner, and again when it has ended for a reason that may pass.
func (c *connection) run(ctx context.Context) {
	wait := firstRetry
	for {
		c.app.mu.Lock()
		revoked, leaving, unpairing := c.rec.Revoked, c.draining, c.rec.Unpairing
		c.app.mu.Unlock()
		if leaving || ctx.Err() != nil {
			return
		}
		var err error
		switch {
		case unpairing:
			err = &link.RevokedError{Message: "this computer was disconnected here"}
		case revoked != "":
			err = &link.RevokedError{Code: "revoked", Message: revoked}
		default:
			began := time.Now()
			err = c.once(ctx)
			if time.Since(began) > lastRetry {
				wait = firstRetry
			}
		}
		c.app.mu.Lock()
		leaving = c.draining
		c.app.mu.Unlock()
		if leaving || ctx.Err() != nil {
			return
		}
		again := err == nil // see renewal
		if again {
			wait = firstRetry
			continue
		}
		t := ended(err, hostOf(c.rec.Coordinator))
		var timer *time.Timer
		var retry <-chan time.Time
		if !t.final {
			at := protocol.At(time.Now().Add(wait))
			t.retryAt = &at
			timer = time.NewTimer(wait)
			retry = timer.C
			wait = min(2*wait, lastRetry)
		}
		c.app.log.Error("runner has ended", "coordinator", c.rec.Coordinator, "err", err, "again", !t.final)
		c.app.change(func() {
			c.trouble, c.online = t, false
			if t.reason == control.ReasonRevoked && !c.rec.Unpairing && c.rec.Revoked == "" {
				c.rec.Revoked = t.text
				if err := c.app.save(); err != nil {
					c.app.log.Error("connections cannot be kept", "err", err)
				}
			}
		})
		select {
		case <-ctx.Done():
		case <-retry:
		case <-c.wake:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// once is one life of the runner. nil: it was stopped to be started anew.
func (c *connection) once(ctx context.Context) error {
	c.app.mu.Lock()
	rec := c.rec
	c.app.mu.Unlock()
	c.app.change(func() {
		c.trouble = trouble{status: control.StatusConnecting, reason: control.ReasonStarting, text: "The runner is being started."}
	})
	secret, err := c.app.vault.Get(ctx, rec.ID, rec.Key)
	if err != nil {
		return err
	}
	state, work := c.app.cfg.Dirs.Runner(rec.ID)
	l := lanes.Find(ctx, lanes.Config{Driver: rec.Settings.Sandbox, StateDir: state, WorkDir: work, Slots: rec.Settings.Slots, Image: rec.Settings.Image, Roster: c.app.cfg.Roster})
	defer func() {
		if err := l.Close(); err != nil {
			c.app.log.Warn("sandboxes could not be closed", "coordinator", rec.Coordinator, "err", err)
		}
	}()
	life, end := context.WithCancel(ctx)
	defer end()
	condition := c.lookAtMachine(rec, l.Engine != "")
	cfg := c.config(rec, secret.Key, l, state, work)
	restart := false
	var leaving bool
	var r *agent.Runner
	c.app.change(func() {
		leaving = c.draining
		c.condition, c.degraded, c.beats = condition, "", 0
		c.started, c.offered, c.seen, c.uses, c.engine = rec, l.Capabilities, l.Capabilities, l.Engine, l.Engine
		c.app.sawDocker(l.Engine != "")
		c.applied = c.pauseWords()
		cfg.Paused = c.applied
		r = agent.New(cfg)
		c.runner = r
	})
	if leaving {
		r.Drain()
	}
	ran := make(chan error, 1)
	go func() { ran <- r.Run(life) }()
	seldom := time.NewTimer(conditionEvery)
	defer seldom.Stop()
	for {
		seldom.Stop()
		c.app.mu.Lock()
		if c.condition != "" && !c.online { // otherwise the heartbeats do
			seldom.Reset(conditionEvery)
		}
		c.app.mu.Unlock()
		select {
		case err = <-ran:
			c.app.change(func() { c.runner, c.online, c.jobs = nil, false, nil })
			if restart || ctx.Err() != nil {
				return nil
			}
			if err == nil {
				return nil // drained
			}
			return err
		case <-c.wake:
		case <-c.look:
			c.checkMachine(ctx)
		case <-seldom.C:
			c.checkMachine(ctx)
		}
		if c.renew() {
			restart = true
			end()
		}
	}
}

func (c *connection) config(rec record, key ed25519.PrivateKey, l *lanes.Lanes, state, work string) agent.Config {
	only, scope := "", protocol.RunnerScopeWorkspace
	if rec.Settings.OnlyMine {
		only, scope = rec.Account.Subject, protocol.RunnerScopeOwner
	}
	return agent.Config{
		URL: rec.Coordinator, Credential: link.DeviceKey{Runner: rec.Runner, Key: key}, CAFile: c.app.cfg.CAFile, Timing: c.app.cfg.Timing,
		Slots: rec.Settings.Slots, Capabilities: l.Capabilities, CapabilityEvidence: l.Evidence, Version: c.app.cfg.Version,
		StateDir: state, WorkDir: work, Hide: c.app.cfg.Dirs.Private(), Listed: lanes.Listed(c.app.cfg.Roster),
		Driver: l.Plain, Images: l.Images, Lookup: c.app.cfg.Lookup, Executable: c.app.cfg.Everdict, Environ: os.Environ(),
		DrainTimeout: c.app.cfg.DrainTimeout, OnlyFor: only, Scope: scope, Observe: c.observe, Log: c.app.log.With("coordinator", hostOf(rec.Coordinator)),
	}
}

// lookAtMachine is what is wrong with this machine.
func (c *connection) lookAtMachine(rec record, docker bool) control.Reason {
	if rec.Settings.Sandbox == control.SandboxDocker && !docker {
		return control.ReasonDocker
	}
	low := uint64(diskLow)
	c.app.mu.Lock()
	if c.condition == control.ReasonDisk {
		low = diskEnough
	}
	c.app.mu.Unlock()
	state, work := c.app.cfg.Dirs.Runner(rec.ID)
	for _, dir := range []string{state, work} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			continue // the runner says so itself
		}
		if free, err := doctor.FreeBytes(dir); err == nil && free < low {
			return control.ReasonDisk
		}
	}
	return ""
}

// checkMachine looks whether what was missing is there, or what was there is missing.
func (c *connection) checkMachine(ctx context.Context) {
	c.app.mu.Lock()
	rec, had := c.rec, c.engine
	c.beats = 0
	c.app.mu.Unlock()
	engine := findEngine(ctx, had)
	docker := engine != ""
	condition := c.lookAtMachine(rec, docker)
	if ctx.Err() != nil {
		return
	}
	c.app.mu.Lock()
	same := condition == c.condition && engine == c.engine && slices.Contains(c.seen, protocol.CapDocker) == docker
	c.app.mu.Unlock()
	if same {
		return
	}
	if engine != had {
		c.app.log.Info("the container engine has come, gone or moved", "coordinator", hostOf(rec.Coordinator), "was", had, "is", engine)
	}
	// In one step: in between a runner without containers would take runs.
	c.app.change(func() {
		c.condition, c.engine = condition, engine
		c.seen = slices.DeleteFunc(slices.Clone(c.seen), func(name string) bool { return name == protocol.CapDocker })
		if docker {
			c.seen = append(c.seen, protocol.CapDocker)
		}
		c.app.sawDocker(docker)
	})
}

// findEngine is where the container engine is; empty: none answers. One that was there is only pinged, which is least to it.
func findEngine(ctx context.Context, had string) string {
	system := endpoint.This(nil)
	for _, k := range system.Candidates() {
		if k.Host == had && k.State == endpoint.Open && pinged(ctx, k) {
			return had
		}
	}
	if found := endpoint.Find(ctx, system); found.Chosen != nil {
		return found.Chosen.Host
	}
	return ""
}

func pinged(ctx context.Context, k endpoint.Candidate) bool {
	ctx, cancel := context.WithTimeout(ctx, endpoint.ProbeTimeout)
	defer cancel()
	return endpoint.Ping(ctx, k) == nil
}

// observe is what the runner says.
func (c *connection) observe(e agent.Event) {
	a := c.app
	switch e := e.(type) {
	case agent.SessionUp:
		a.lookAround(context.Background())
		a.change(func() { c.online, c.fresh, c.trouble = true, true, trouble{} })
	case agent.SessionLost:
		a.lookAround(context.Background())
		a.change(func() {
			at := protocol.At(time.Now().Add(e.Retry))
			c.online, c.trouble = false, lost(e.Err, hostOf(c.rec.Coordinator))
			c.trouble.retryAt = &at
			c.beats = lookBeats // much may have changed until there is one again
		})
		c.lookNow()
	case agent.AttemptBegun:
		a.change(func() { c.jobs = append(c.jobs, c.newJob(e)) })
	case agent.AttemptPhase:
		a.change(func() {
			if j := c.job(e.Run, e.Epoch); j != nil {
				j.Phase = control.Phase(e.Phase)
			}
		})
	case agent.AttemptHeld:
		a.change(func() {
			if j := c.job(e.Run, e.Epoch); j != nil {
				j.Held = e.Held
			}
		})
	case agent.AttemptEnded:
		c.ended(e)
	case agent.Idle:
		c.renewLater()
	case agent.Delivered:
		a.change(func() {})
	case agent.Degraded:
		a.change(func() { c.degraded = e.Why })
		if e.Why != "" {
			c.lookNow()
		}
	case agent.Said:
		a.change(func() { a.notice(e.Level, protocol.Clip(hostOf(c.rec.Coordinator)+" says: "+e.Text, 500), "") })
	case agent.Beat:
		c.heard()
		a.beat()
		a.mu.Lock()
		c.beats++
		due := c.beats >= lookBeats
		a.mu.Unlock()
		if due {
			c.lookNow()
		}
	}
}

// heard is called with each heartbeat that was answered.
func (c *connection) heard() {
	c.app.mu.Lock()
	fresh := c.fresh
	c.app.mu.Unlock()
	if fresh {
		c.app.change(func() { c.fresh = false })
	}
}

func (c *connection) newJob(e agent.AttemptBegun) *job {
	page := runURL(c.rec.Coordinator, e.Run)
	return &job{
		Job: control.Job{Run: e.Run, Epoch: e.Epoch, Case: e.Case, Harness: e.Harness, Submitter: e.Submitter, Workspace: e.Workspace,
			Phase: control.PhasePrepare, StartedAt: protocol.At(e.At), URL: page, ActsAsYou: c.rec.Settings.Sandbox == control.SandboxProcess},
		entry: control.Entry{Connection: c.rec.ID, Host: hostOf(c.rec.Coordinator), Run: e.Run, Epoch: e.Epoch, Case: e.Case, Harness: e.Harness,
			Submitter: e.Submitter, Workspace: e.Workspace, StartedAt: protocol.At(e.At), URL: page},
	}
}

func (c *connection) job(run string, epoch int64) *job {
	for _, j := range c.jobs {
		if j.Run == run && j.Epoch == epoch {
			return j
		}
	}
	return nil
}

func (c *connection) jobList() []control.Job {
	out := []control.Job{}
	for _, j := range c.jobs {
		out = append(out, j.Job)
	}
	return out
}

// ended puts a job into the history.
func (c *connection) ended(e agent.AttemptEnded) {
	a := c.app
	a.mu.Lock()
	j := c.job(e.Run, e.Epoch)
	a.mu.Unlock()
	if j == nil {
		return
	}
	entry := judged(j.entry, e)
	if err := a.history.Add(entry); err != nil {
		a.log.Error("a job is missing from the history", "run", e.Run, "err", err)
	}
	a.change(func() {
		c.jobs = slices.DeleteFunc(c.jobs, func(k *job) bool { return k == j })
		a.historyRev++
	})
	a.tellEnd(entry)
	// What has just failed for a reason that lies with this machine is looked at.
	if f := e.Result.Failure; f != nil && f.Class == protocol.ClassInfra && e.Stopped == nil {
		c.lookNow()
	}
}

// pauses are why no new runs are taken now, the one that is told first. The caller has the mutex.
func (c *connection) pauses() []control.Reason {
	var out []control.Reason
	if c.rec.Paused {
		out = append(out, control.ReasonUser)
	}
	if !c.app.hoursOpen && !c.override[control.ReasonHours] {
		out = append(out, control.ReasonHours)
	}
	if c.app.settings.PauseOnBattery && c.app.power.OnBattery && !c.override[control.ReasonBattery] {
		out = append(out, control.ReasonBattery)
	}
	if c.condition != "" {
		out = append(out, c.condition)
	}
	return out
}

// pauseWords are what the coordinator shows; empty: it is not paused.
func (c *connection) pauseWords() string {
	var words []string
	for _, p := range c.pauses() {
		words = append(words, pauseWords[p])
	}
	if why := c.renewal(); why != "" && !c.canWait(why) && (why != renewGone || c.condition != control.ReasonDocker) {
		words = append(words, renewalWords[why])
	}
	return strings.Join(words, ", ")
}

// applyPauses tells the runner. The caller has the mutex.
func (c *connection) applyPauses() {
	words := c.pauseWords()
	if c.runner == nil || words == c.applied {
		return
	}
	c.applied = words
	if words == "" {
		c.runner.Resume()
		return
	}
	c.runner.Pause(words)
}

// view is the connection as it is shown. The caller has the mutex.
func (c *connection) view() control.Connection {
	v := control.Connection{
		ID: c.rec.ID, Coordinator: c.rec.Coordinator, Host: hostOf(c.rec.Coordinator), Account: c.rec.Account, Runner: c.rec.Runner, Label: c.rec.Label,
		Target: c.rec.Target, PairedAt: c.rec.PairedAt, Online: c.online, Pauses: c.pauses(), Jobs: c.jobList(), Settings: c.rec.Settings, Key: c.rec.Key,
	}
	v.Paused = len(v.Pauses) > 0
	v.CanResume, v.CanRetry = slices.ContainsFunc(v.Pauses, resumable), c.canRetry()
	if c.runner != nil {
		v.Undelivered = c.runner.Undelivered()
	}
	if slices.Contains(v.Pauses, control.ReasonHours) && !c.app.hoursChange.IsZero() {
		at := protocol.At(c.app.hoursChange)
		v.ResumesAt = &at
	}
	c.describe(&v)
	return v
}

// resumable says whether Resume ends a pause: the others end with what they are for.
func resumable(pause control.Reason) bool {
	return pause == control.ReasonUser || pause == control.ReasonHours || pause == control.ReasonBattery
}

// canRetry says whether Retry would try or look at something now. The caller has the mutex.
func (c *connection) canRetry() bool {
	if c.rec.Unpairing || c.rec.Revoked != "" {
		return false
	}
	return c.condition != "" || c.trouble.status == control.StatusAttention || c.trouble.retryAt != nil
}

// keyLocked says whether an error is one of the vault's that a person can mend.
func keyLocked(err error) bool { return errors.Is(err, vault.ErrLocked) }

func hostOf(coordinator string) string {
	u, err := url.Parse(coordinator)
	if err != nil {
		return coordinator
	}
	return u.Host
}

// runURL is the page of a run.
func runURL(coordinator, run string) string {
	return strings.TrimSuffix(coordinator, "/") + "/ui/runs/" + url.PathEscape(run)
}
