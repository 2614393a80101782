// Package agent is the runner: it dials out to a coordinator, pulls attempts for
// its free slots, has the executor carry them out, and sends back what they
// produced. It holds no queue and no truth: whether an attempt may run is the
// coordinator's word (tenure.go), and what an attempt produced lies in the outbox
// until the coordinator has it.
//
// Sessions come and go; attempts do not notice. Each attempt lives as long as the
// runner does, while the pulling, the heartbeat and the shipping of evidence begin
// anew with every session (session.go).
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

const (
	// giveBackBound bounds the return of attempts when a runner goes away.
	giveBackBound = 10 * time.Second
	// leaveBound is what a runner that leaves takes of its grace for each call that is to
	// reach the coordinator: it gives attempts back, and delivers, for so long.
	leaveBound = 3 * time.Second
)

// Config of a Runner. URL, Credential, StateDir, WorkDir, Driver and Lookup are
// required.
type Config struct {
	// URL of the coordinator; empty, with Given alone: there is none to be reached.
	URL        string
	Credential link.Credential
	CAFile     string
	// Timing is used until the coordinator announces its own.
	Timing link.Timing

	// Slots is how many attempts run at a time. Default 1.
	Slots int
	// Connected is called each time the coordinator has taken the credential; it
	// may be nil.
	Connected func()
	// Capabilities that are offered; nil detects them when Run begins.
	Capabilities []string
	// CapabilityEvidence is what was seen of each capability, in a sentence without
	// its full stop; detected with them.
	CapabilityEvidence map[string]string
	Version            string
	// StateDir holds the outbox and what no job may see; WorkDir the workspaces.
	StateDir, WorkDir string
	// Hide lists more host paths that no job may see.
	Hide []string
	// Listed tells more of them, which other runners of this user keep; it is asked for each source that is copied.
	// The driver hides them from jobs on its own. Nil tells none.
	Listed func() []string
	// Driver runs jobs that name no image, Images those that name one. Images may
	// be nil, or the same as Driver.
	Driver, Images sandbox.Driver
	Lookup         func(*protocol.HarnessSpec) (harness.Harness, error)
	// Environ is the environment that jobs inherit from; nil takes the process's.
	Environ []string
	// WithholdProxy keeps the proxy's variables from jobs.
	WithholdProxy bool
	// PassCA gives CAFile to jobs, beside the certificates that the system trusts.
	PassCA bool
	// Executable is linked into every job's PATH as "everdict"; empty: none.
	Executable string
	// Keep leaves workspaces on the disk, for somebody to look at.
	Keep bool
	// ExitWhenIdle makes the runner drain by itself after it was connected for so long
	// without an attempt; 0: never.
	ExitWhenIdle time.Duration
	// Once makes the runner drain by itself when its first attempt has ended.
	Once bool
	// Given is an attempt that the runner begins with, without having pulled it; nil: none.
	// It needs no session, and goes on when the coordinator turns the runner away.
	Given *Given
	// DeliverTimeout is how long a runner that leaves tries to deliver its results.
	// Default 10 s.
	DeliverTimeout time.Duration
	// Undelivered is given each result that could not be delivered when Run returns; nil:
	// they stay in the outbox for the next start.
	Undelivered func(run string, epoch int64, result []byte)
	// DrainTimeout is how long Drain lets attempts go on; 0 gives them back at once.
	DrainTimeout time.Duration
	// Scope is whose runs the coordinator is told to send: see link.Terms.
	Scope string
	// OnlyFor is the one submitter whose runs are begun; empty: everybody's. The
	// coordinator matches by it too. This is for one that is wrong, or lies.
	OnlyFor string
	// Observe is told what happens, in its order, by one goroutine; nil: nobody is. A
	// slow one holds up nothing but what it is told itself.
	Observe func(Event)
	// Paused is why the runner takes no attempts when it starts: see Pause.
	Paused string
	Log    *slog.Logger
}

// DrainedError is returned by Run when attempts did not end within the drain
// timeout and were given back.
type DrainedError struct{ GivenBack int }

// Error implements error.
func (e *DrainedError) Error() string {
	return fmt.Sprintf("agent: drain timeout: %d unfinished attempts were stopped and given back", e.GivenBack)
}

// WorkDirError is returned by Run when the work directory lies where no job may look:
// each would be refused.
type WorkDirError struct{ WorkDir, Hidden string }

// Error implements error.
func (e *WorkDirError) Error() string {
	return fmt.Sprintf("agent: the work directory %s lies in %s, which is hidden from jobs", e.WorkDir, e.Hidden)
}

// checkWorkDir finds the work directory in what is hidden.
func (c *Config) checkWorkDir() error {
	work := resolved(c.WorkDir)
	for _, hidden := range append([]string{c.StateDir}, c.Hide...) {
		rel, err := filepath.Rel(resolved(hidden), work)
		if err == nil && filepath.IsLocal(rel) {
			return &WorkDirError{c.WorkDir, hidden}
		}
	}
	return nil
}

// resolved is an absolute path without symbolic links, as far as it is there.
func resolved(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path)
	}
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if r, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(r, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// Runner is a runner. Use New, then Run once.
type Runner struct {
	cfg  Config
	log  *slog.Logger
	exec *executor.Executor
	out  *outbox.Outbox
	// unlockWork gives the work directory up.
	unlockWork func() error

	slots    []*slot
	draining chan struct{}
	drain    sync.Once
	leaving  chan struct{} // closed by Leave
	nobody   chan struct{} // closed when there is no coordinator to deliver to
	stirred  chan struct{} // an attempt has begun or ended; see untilIdle
	gate     *gate
	redial   chan struct{} // somebody does not want to wait; see Redial
	news     *news

	// hesitate is called when an offer has come and is not begun yet; nil but in tests.
	hesitate func()

	mu       sync.Mutex
	active   map[string]*attempt
	session  *link.RunnerSession
	arrived  chan struct{} // closed and replaced when session changes
	timing   link.Timing
	degraded string
	gaveBack int
	taken    int
	listed   int // how many were ever in active
	// arriving is how many offers are on their way into active, or are being given back.
	arriving  int
	suspended bool      // see hold
	drained   time.Time // when the drain timeout is over for who leaves; zero: Leave was not called

	// attempts counts those in active that are worked on, and arriving. It is added to with
	// the mutex, and not by an offer once draining is closed: after that Wait misses none.
	attempts sync.WaitGroup
	laying   sync.Mutex // held while directories are made

	// life ends with Run, and asides are what it waits for then: see aside.
	life    context.Context
	endLife context.CancelFunc
	asides  sync.WaitGroup
}

// New returns a runner that does nothing yet.
func New(cfg Config) *Runner {
	if cfg.Slots <= 0 {
		cfg.Slots = 1
	}
	if cfg.DeliverTimeout == 0 {
		cfg.DeliverTimeout = giveBackBound
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	r := &Runner{
		cfg: cfg, log: cfg.Log,
		draining: make(chan struct{}),
		leaving:  make(chan struct{}),
		nobody:   make(chan struct{}),
		stirred:  make(chan struct{}, 1),
		active:   map[string]*attempt{},
		arrived:  make(chan struct{}),
		timing:   cfg.Timing,
		gate:     newGate(cfg.Paused),
		redial:   make(chan struct{}, 1),
		news:     newNews(cfg.Observe),
	}
	r.life, r.endLife = context.WithCancel(context.Background())
	for range cfg.Slots {
		r.slots = append(r.slots, newSlot())
	}
	return r
}

// Drain stops the pulling: what is not begun now does not begin. Run returns when the
// attempts have ended and their results are delivered, or after the drain timeout.
func (r *Runner) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainNow()
}

// Leave is Drain for a runner that is ended soon, whether it is ready or not. What is not
// delivered a moment after the drain timeout goes to Undelivered, however long
// DeliverTimeout is.
func (r *Runner) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drained.IsZero() {
		r.drained = time.Now().Add(r.cfg.DrainTimeout)
		close(r.leaving)
	}
	r.drainNow()
}

// drainNow is Drain for who has the mutex.
func (r *Runner) drainNow() { r.drain.Do(func() { close(r.draining) }) }

// Taken is how many attempts this runner has begun.
func (r *Runner) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Run connects and works until ctx ends (attempts are stopped and given back at
// once), Drain has finished, or the coordinator turns this runner away for good
// (link.Terminal). A *LockedError or outbox.ErrInUse says that another process of
// this machine uses the credential or the state directory, a *WorkDirError that no job
// could run.
func (r *Runner) Run(ctx context.Context) (err error) {
	defer r.news.deliver()()
	unlock, err := lockCredential(r.cfg.Credential)
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() {
		r.endAsides()
		err = errors.Join(err, r.out.Close(), r.unlockWork())
	}()
	if err := r.beginGiven(); err != nil {
		return err
	}

	sweeping, endSweep := context.WithCancel(ctx)
	var sweeps sync.WaitGroup
	sweeps.Go(func() { r.sweepOften(sweeping) })
	defer sweeps.Wait()
	defer endSweep()

	// Attempts and sessions outlive ctx for as long as it takes to give back.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	served := make(chan error, 1)
	go func() { served <- r.connect(work) }()
	suspend := make(chan struct{})
	go func() {
		defer close(suspend)
		r.heedSuspend(work)
	}()
	defer func() {
		stop(context.Canceled)
		<-suspend
	}()

	select {
	case err = <-served:
		r.stopAll(&executor.Stopped{Reason: executor.StopStale, Message: fmt.Sprintf("the coordinator has turned this runner away: %v", err)})
		r.attempts.Wait()
		r.handOver()
		return err
	case <-ctx.Done():
		r.Drain()
		err = r.leave()
	case <-r.draining:
		r.log.Info("draining: no new runs are taken; ask again to give back at once what still runs", "for", r.cfg.DrainTimeout)
		timeout, cancel := context.WithTimeout(ctx, r.cfg.DrainTimeout)
		err = r.leaveBy(timeout)
		cancel()
	}
	stop(context.Canceled)
	return errors.Join(err, ignoreCancel(<-served))
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// leaveBy waits for the attempts until ctx ends, then stops the rest.
func (r *Runner) leaveBy(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		r.attempts.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	return r.leave()
}

// leave stops what still runs, gives it back, and delivers results for at most
// DeliverTimeout. What cannot be delivered stays in the outbox for the next start.
func (r *Runner) leave() error {
	r.stopAll(&executor.Stopped{Reason: executor.StopDrained, Message: "the runner is shutting down"})
	r.attempts.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.DeliverTimeout)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-r.nobody:
		case <-r.leaving:
			select {
			case <-r.nobody:
			case <-time.After(r.leaveTime()):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}()
	if err := r.out.Drained(ctx); err != nil {
		r.log.Warn("results remain in the outbox for the next start", "bytes", r.out.Unacknowledged())
		r.handOver()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gaveBack > 0 {
		return &DrainedError{GivenBack: r.gaveBack}
	}
	return nil
}

// leaveTime is how long a runner that leaves goes on delivering.
func (r *Runner) leaveTime() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.drained)) + leaveBound
}

// giveBackTime is how long the return of an attempt is tried.
func (r *Runner) giveBackTime() time.Duration {
	select {
	case <-r.leaving:
		return leaveBound
	default:
		return giveBackBound
	}
}

// handOver gives Undelivered what lies in the outbox.
func (r *Runner) handOver() {
	give := r.cfg.Undelivered
	if give == nil {
		return
	}
	err := r.out.Undelivered(func(a outbox.Attempt, result json.RawMessage) { give(a.Run, a.Epoch, result) })
	if err != nil {
		r.log.Error("a result could not be read", "err", err)
	}
}

// open takes the directories, ends what a crashed runner left, and reports its
// attempts as lost.
func (r *Runner) open(ctx context.Context) error {
	if err := r.cfg.checkWorkDir(); err != nil {
		return err
	}
	if err := r.directories(); err != nil {
		return err
	}
	out, err := outbox.Open(outbox.Config{Dir: filepath.Join(r.cfg.StateDir, outboxDir), Logger: r.log})
	if err != nil {
		return err
	}
	r.out = out
	if r.cfg.Capabilities == nil {
		r.cfg.Capabilities, r.cfg.CapabilityEvidence = DetectCapabilities(ctx, r.cfg.Environ)
	}
	r.sweep(ctx)
	// After the sweep: a job that a dead runner left could hold the lock.
	if r.unlockWork, err = lockWorkDir(r.cfg.WorkDir); err != nil {
		return errors.Join(err, out.Close())
	}
	left := out.Finished() // not what is reported as lost: those runs are given back at once
	for _, spool := range out.Unfinished() {
		if err := r.reportLost(spool); err != nil {
			r.log.Error("lost attempt could not be reported", "attempt", spool.Attempt(), "err", err)
		}
	}
	for _, dir := range []string{r.workRoot(), r.privateRoot(), r.askRoot()} {
		if err := emptyDir(ctx, dir); err != nil {
			r.log.Error("workspace of an earlier runner could not be removed and is retired", "dir", dir, "err", err)
		}
	}
	environ, certificates, err := r.network()
	if err != nil {
		return errors.Join(err, out.Close(), r.unlockWork())
	}
	hide := append([]string{r.cfg.StateDir, private.Path()}, r.cfg.Hide...)
	hidden := func() []string {
		if r.cfg.Listed == nil {
			return hide
		}
		return append(slices.Clone(hide), r.cfg.Listed()...)
	}
	r.exec = executor.New(executor.Config{
		Default:      r.lane(r.cfg.Driver, environ),
		Images:       r.lane(r.cfg.Images, environ),
		Environments: environment.NewSet(environment.Config{MachineGit: true, Hidden: hidden, Logger: r.log}),
		Lookup:       r.cfg.Lookup,
		WorkRoot:     r.workRoot(),
		PrivateRoot:  r.privateRoot(),
		Program:      r.cfg.Executable,
		Hide:         hide,
		Certificates: certificates,
		Keep:         r.cfg.Keep,
		Log:          r.log,
	})
	r.takeUp(left)
	return nil
}

// lane is how a driver's jobs run.
func (r *Runner) lane(d sandbox.Driver, host []string) executor.Lane {
	if d == nil || d.Name() == "process" {
		return executor.Lane{Driver: d, Environ: host}
	}
	return executor.Lane{Driver: d, Environ: executor.ContainerEnviron(host), Container: true}
}

// network is what jobs inherit of the runner's environment, and the certificates
// that they are given, as far as the owner of the machine wants it.
func (r *Runner) network() (environ []string, c executor.Certificates, err error) {
	environ = executor.HostEnviron(r.cfg.Environ)
	if r.cfg.WithholdProxy {
		environ = executor.WithoutProxy(environ)
	} else if name := executor.ProxyLogin(environ); name != "" {
		r.log.Warn("jobs can read the login of the proxy: --pass-proxy=false keeps the proxy's variables from them", "variable", name)
	}
	if r.cfg.PassCA && r.cfg.CAFile != "" {
		c, err = executor.ReadCertificates(r.cfg.CAFile, r.cfg.Environ)
	}
	return environ, c, err
}

// WorkRoot is where a runner with this work directory makes the workspaces.
func WorkRoot(dir string) string { return filepath.Join(dir, workDir) }

func (r *Runner) workRoot() string    { return WorkRoot(r.cfg.WorkDir) }
func (r *Runner) askRoot() string     { return filepath.Join(r.cfg.WorkDir, askDir) }
func (r *Runner) privateRoot() string { return filepath.Join(r.cfg.StateDir, privateDir) }

// directories makes what is missing of the runner's directories: at its start, and
// again before each attempt, because a job, or whoever tidies a cache up, may have
// removed them, and every later attempt would fail.
func (r *Runner) directories() error {
	r.laying.Lock()
	defer r.laying.Unlock()
	for dir, mode := range map[string]os.FileMode{
		r.cfg.StateDir: 0o700, r.privateRoot(): 0o700, r.cfg.WorkDir: 0o755, r.workRoot(): 0o755, r.askRoot(): 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("agent: make directories: %w", err)
		}
	}
	return nil
}

func emptyDir(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, environment.RemoveTree(ctx, filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

// reportLost finishes an attempt whose runner died under it.
func (r *Runner) reportLost(spool *outbox.Spool) error {
	a := spool.Attempt()
	return finish(spool, &protocol.CaseResult{
		CaseID: a.Run, EvidenceVersion: protocol.EvidenceVersion,
		Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt}, Scores: []protocol.Score{},
		Failure: &protocol.Failure{
			Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonLost, Code: protocol.CodeUpstreamError,
			Message: "the runner was restarted while it ran this attempt", Retryable: true,
		},
	})
}

// stopAll stops every attempt that was admitted. That no other follows is for the caller to
// see to, before: see barred.
func (r *Runner) stopAll(why *executor.Stopped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.active {
		a.stop(why)
	}
}
