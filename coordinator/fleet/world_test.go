package fleet_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// world is a fleet over a cluster in memory, with a queue whose jobs a test moves by
// hand. Its clock moves when everybody waits.
type world struct {
	t       *testing.T
	cluster *fleettest.Cluster
	limit   lease.Limit
	spec    protocol.RuntimeSpec          // what version registers
	places  map[string]*fleettest.Cluster // by server; the others are at cluster
	f       *fleet.Fleet
	stop    func()

	mu       sync.Mutex
	order    []string
	jobs     map[string]*job
	asked    int // the most jobs that were asked for at once
	unplaced []told
	ended    []told
	foretold []told
	adopted  []string
	bound    map[string]string // by unit
	slow     map[string]bool   // jobs whose launch takes slowLaunch
	handed   []string          // the units that were given payloads
	unhanded error             // why none is
	unsized  error             // why no run can have one
	versions []protocol.RuntimeSpec
	expired  map[string]int64  // attempts that were held and have no result, by run
	late     []string          // results that were recovered
	vault    map[string]string // the servers that kubeconfigs name, by secret
	unread   error             // why runners cannot be read
	untaken  error             // why no result is adopted
	log      bytes.Buffer      // warnings and errors; slog writes one at a time
}

// slowLaunch is less than what one call of a cluster may take.
const slowLaunch = 20 * time.Second

type job struct {
	lease.JobState
	runner string
	asks   bool // it waits for a person
	needs  fleet.Needs
}

// told is what the fleet said of a run.
type told struct {
	run     string
	attempt int64
	protocol.Failure
}

const (
	grace   = 10 * time.Second
	pending = 10 * time.Minute
)

func inWorld(t *testing.T, limit lease.Limit, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, limit, protocol.RuntimeSpec{}, test)
}

// inWorldOf is inWorld with a runtime that says more than its limits.
func inWorldOf(t *testing.T, limit lease.Limit, spec protocol.RuntimeSpec, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, limit: limit, spec: spec, jobs: map[string]*job{}, bound: map[string]string{}, cluster: newCluster(), places: map[string]*fleettest.Cluster{}}
		w.begin()
		test(t, w)
		w.stop()
		w.cluster.Close()
		for _, c := range w.places {
			c.Close()
		}
	})
}

// newCluster has containers that run until they are ended.
func newCluster() *fleettest.Cluster {
	return fleettest.NewCluster(fleettest.Config{Container: func(ctx context.Context, _ fleettest.Container) (int, *fleet.Trouble) {
		<-ctx.Done()
		return 143, nil
	}})
}

// begin starts a life of the fleet; stop ends it and keeps the cluster.
func (w *world) begin() {
	w.f = fleet.New(fleet.Config{
		Queue: w, Runs: w, Runners: w, Checker: fleet.Checker{Openers: map[string]fleet.Opener{protocol.RuntimeK8s: placed{w.cluster, w}}}, Versions: w.stored,
		Pool: func(workspace, runtime string) string { return workspace + "/" + runtime }, Coordinator: "crd", URL: "http://here",
		Grace: grace, PendingTimeout: pending, Bind: w.bind, Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	latest := "1.0.0"
	if n := len(w.versions); n > 0 {
		latest = w.versions[n-1].Version
	}
	w.version(latest)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.f.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
	}
	w.pass(time.Second)
}

// version registers a version of the runtime.
func (w *world) version(v string) {
	spec, slots := w.spec, w.limit.MaxConcurrent
	spec.Kind = cmp.Or(spec.Kind, protocol.RuntimeK8s)
	spec.ID, spec.Version, spec.MaxConcurrent = "prod", v, &slots
	w.mu.Lock()
	w.versions = append(slices.DeleteFunc(w.versions, func(s protocol.RuntimeSpec) bool { return s.Version == v }), spec)
	w.mu.Unlock()
	w.f.RuntimeChanged("default", &spec)
}

// stored is fleet.Config.Versions.
func (w *world) stored(context.Context, string, string) ([]protocol.RuntimeSpec, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.versions), nil
}

// placed opens the cluster that a version names.
type placed struct {
	*fleettest.Cluster
	w *world
}

// Open implements fleet.Opener.
func (o placed) Open(ctx context.Context, t fleet.Target) (fleet.Provider, error) {
	server := t.Spec.Server
	if name := t.Spec.KubeconfigSecret; name != "" {
		o.w.mu.Lock()
		server = cmp.Or(o.w.vault[name], "nowhere")
		o.w.mu.Unlock()
	}
	if server == "nowhere" {
		return nil, fleet.ErrNoSecret
	}
	return cmp.Or(o.w.places[server], o.Cluster).Open(ctx, t)
}

// moveTo makes a new place that of the versions that are registered from now on.
func (w *world) moveTo(server string) *fleettest.Cluster {
	c := newCluster()
	w.places[server], w.spec.Server = c, server
	return c
}

// secret gives a secret another value; empty: it is deleted.
func (w *world) secret(name, value string) {
	w.mu.Lock()
	w.vault = map[string]string{name: value}
	w.mu.Unlock()
	w.f.SecretChanged("default", name)
	w.pass(time.Second)
}

// bind is fleet.Config.Bind.
func (w *world) bind(unit, job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bound[unit] = job
}

// boundTo is the unit that was given a job; empty: none was.
func (w *world) boundTo(job string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for unit, j := range w.bound {
		if j == job {
			return unit
		}
	}
	return ""
}

// pass lets time pass, and everything happen that follows.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// submit queues jobs.
func (w *world) submit(needs fleet.Needs, ids ...string) {
	w.mu.Lock()
	for _, id := range ids {
		w.order = append(w.order, id)
		w.jobs[id] = &job{JobState: lease.JobState{State: lease.Queued, MemoryMB: int64(needs.MemoryMB), CPU: int64(needs.CPU)}, needs: needs}
	}
	w.mu.Unlock()
	w.changed()
}

// move changes a job.
func (w *world) move(id string, f func(*job)) {
	w.mu.Lock()
	f(w.jobs[id])
	w.mu.Unlock()
	w.changed()
}

// taken says that the runner of a job's unit holds it.
func (w *world) taken(id string) { w.takenBy(id, "") }

// takenBy says that the runner of a unit holds a job; no unit: that of its own.
func (w *world) takenBy(id, unit string) {
	w.move(id, func(j *job) {
		j.State, j.Attempt = lease.Leased, j.Attempt+1
		j.runner = "runner of " + cmp.Or(unit, fleet.UnitName(id, j.Attempt))
	})
}

func settled(j *job) { j.State = lease.Settled }

func (w *world) changed() {
	w.f.Committed([]lease.Event{{Pool: "default/prod"}})
	w.pass(time.Second)
}

// most is how many jobs were asked for at once.
func (w *world) most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// told is what was said so far.
func (w *world) told(list *[]told) []told {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*list)
}

// units are the names of those that are there.
func (w *world) units() []string { return unitsOf(w.cluster) }

func unitsOf(c *fleettest.Cluster) []string {
	names := []string{}
	for _, u := range c.Units() {
		names = append(names, u.Name)
	}
	return names
}

func (w *world) why(run string) string {
	word, _ := w.f.Why("default", "prod", run)
	return word
}

// Demand implements fleet.Queue.
func (w *world) Demand(_ context.Context, _ string, n int, ids []string) (lease.Demand, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = max(w.asked, n, len(ids))
	d := lease.Demand{Jobs: map[string]lease.JobState{}, Use: lease.HomeUse{Limit: w.limit}}
	for _, id := range w.order {
		j := w.jobs[id]
		switch {
		case j.State == lease.Leased:
			d.Use.Leases++
			d.Use.MemoryMB, d.Use.CPU = d.Use.MemoryMB+j.MemoryMB, d.Use.CPU+j.CPU
			l := lease.Lease{Ref: lease.Ref{Job: id, Attempt: j.Attempt}, Runner: j.runner, Parked: j.asks}
			j.Lease = &l
			d.Leases = append(d.Leases, l)
		case j.State == lease.Queued && !j.Delayed && len(d.Next) < n:
			d.Next = append(d.Next, lease.Waiting{Job: id, Attempt: j.Attempt, Requirements: lease.Requirements{MemoryMB: j.MemoryMB, CPU: j.CPU}})
		}
	}
	for _, id := range ids {
		if j := w.jobs[id]; j != nil {
			d.Jobs[id] = j.JobState
		}
	}
	return d, nil
}

// Explain implements fleet.Queue.
func (w *world) Explain(_ context.Context, job string) (lease.Explanation, error) {
	return lease.Explanation{Job: job, Online: 1, Sentence: "no runner offers git; 1 online runner offers: nothing"}, nil
}

// Roster implements fleet.Runners: the runner of a job that needs the image "bare" is
// there, and cannot take it.
func (w *world) Roster(context.Context, string) ([]protocol.Runner, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []protocol.Runner
	for id, j := range w.jobs {
		if j.needs.Image == "bare" {
			all = append(all, protocol.Runner{Online: true, Unit: fleet.UnitName(id, j.Attempt+1)})
		}
	}
	return all, nil
}

// Needs implements fleet.Runs.
func (w *world) Needs(_ context.Context, run string) (fleet.Needs, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[run].needs, nil
}

// Unplaced implements fleet.Runs: the attempt counts, as in the queue.
func (w *world) Unplaced(_ context.Context, run string, before int64, f protocol.Failure) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[run]
	if j.State != lease.Queued || j.Attempt != before {
		return nil
	}
	j.Attempt++
	if !f.Retryable {
		j.State = lease.Settled
	}
	w.unplaced = append(w.unplaced, told{run, before + 1, f})
	return nil
}

// Ended implements fleet.Runs.
func (w *world) Ended(_ context.Context, l lease.Lease, f protocol.Failure) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[l.Job].State = lease.Settled
	w.ended = append(w.ended, told{l.Job, l.Attempt, f})
	return nil
}

// Adopt implements fleet.Runs.
func (w *world) Adopt(_ context.Context, l lease.Lease, result []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.untaken != nil {
		return w.untaken
	}
	w.jobs[l.Job].State = lease.Settled
	w.adopted = append(w.adopted, l.Job+" "+string(result))
	return nil
}

// Recover implements fleet.Runs.
func (w *world) Recover(ctx context.Context, _, run string, attempt int64, _ string, output func(context.Context) []byte) error {
	w.mu.Lock()
	misses := w.expired[run] == attempt
	w.mu.Unlock()
	if !misses {
		return nil
	}
	found := output(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, fmt.Sprintf("%s/%d %s", run, attempt, found))
	return nil
}

// expires takes the lease of a job back, as when it has run out.
func (w *world) expires(id string) {
	w.move(id, func(j *job) {
		j.State = lease.Settled
		w.expired = map[string]int64{id: j.Attempt}
	})
}

// Foretell implements fleet.Runs.
func (w *world) Foretell(run string, attempt int64, f protocol.Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foretold = append(w.foretold, told{run, attempt, f})
}

// Get implements fleet.Runners: a runner is named for its unit.
func (w *world) Get(_ context.Context, _, id string) (protocol.Runner, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread != nil {
		return protocol.Runner{}, w.unread
	}
	var unit string
	if _, err := fmt.Sscanf(id, "runner of %s", &unit); err != nil {
		return protocol.Runner{}, protocol.NotFound("no such runner")
	}
	return protocol.Runner{ID: id, Unit: unit}, nil
}

// CreateJoinToken implements fleet.Runners.
func (w *world) CreateJoinToken(_ context.Context, _, _, _, job string, _ time.Duration) (string, error) {
	w.mu.Lock()
	slow := w.slow[job]
	w.mu.Unlock()
	if slow {
		time.Sleep(slowLaunch)
	}
	return "token", nil
}

// PayloadSize implements fleet.Runs.
func (w *world) PayloadSize(context.Context, string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 100, w.unsized
}

// HandOut implements fleet.Runs: the unit holds the lease.
func (w *world) HandOut(_ context.Context, h fleet.Handing) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[h.Run]
	if w.unhanded != nil {
		return nil, w.unhanded
	}
	if j.State != lease.Queued || j.Attempt != h.Before {
		return nil, errors.New("the run has gone on")
	}
	j.State, j.Attempt, j.runner = lease.Leased, j.Attempt+1, "runner of "+h.Unit
	w.handed = append(w.handed, h.Unit)
	return fmt.Appendf(nil, "payload %d of %s", len(w.handed), h.Run), nil
}

// handouts are the units that were given payloads, by name.
func (w *world) handouts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.handed))
}
