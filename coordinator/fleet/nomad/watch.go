package nomad

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/everdict/everdict/coordinator/fleet"
)

const (
	// width is how many calls of a look are under way at a time. An agent takes 100
	// connections from one address by default (http_max_conns_per_client), and a
	// coordinator has as many pools as it likes: few are kept open.
	width     = 4
	idleConns = 2
	// longest is how long a query blocks, and slack what it may take beyond that: the
	// server adds up to a sixteenth.
	longest = time.Minute
	slack   = 15 * time.Second
	// gap is the least time between two looks, so that a burst of changes is one.
	gap = 50 * time.Millisecond
	// pause and longestPause are between two tries while the cluster does not answer.
	pause        = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// job is what the cluster has for one unit.
type job struct {
	*api.JobListStub
	allocs []*api.AllocationListStub
	// eval is the last evaluation that found no place; nil: none did.
	eval *api.Evaluation
}

// version of a job: it grows with each change of the job, and of the counts of its
// allocations by status. Nomad answers a blocked list of jobs after both.
func (j *job) version() uint64 {
	v := j.ModifyIndex
	if j.JobSummary != nil {
		v = max(v, j.JobSummary.ModifyIndex)
	}
	return v
}

// settled says that whatever becomes of a job changes its version. An evaluation that
// Nomad gives up may not.
func (j *job) settled() bool {
	return len(j.allocs) > 0 || j.eval != nil || j.Stop || j.Meta[metaLaunching] != ""
}

// Watch implements fleet.Provider: one blocking query for the jobs of the target, and
// the allocations of those that it shows as changed.
func (p *provider) Watch(ctx context.Context, changed func()) error {
	defer p.keep(nil)
	var known map[string]*job
	var index uint64
	wait, again := longest, pause
	for {
		g, err := p.look(ctx, index, wait, known)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.keep(nil) // List asks by itself, and says what is wrong
			if _, refused := err.(*fleet.AuthError); refused {
				return err // trying again with the same credential is of no use
			}
			p.cfg.Log.Debug("watch ended, trying again", "runtime", p.t.Spec.ID, "err", err)
			if index != 0 {
				changed() // somebody should know
			}
			known, index = nil, 0
			if !sleep(ctx, again) {
				return nil
			}
			again = min(2*again, longestPause)
			continue
		}
		p.keep(g.jobs)
		if g.changed || index == 0 {
			changed()
		}
		if g.index < index { // the cluster's state is another one
			g.index = 0
		}
		known, index, wait, again = g.jobs, g.index, g.due, pause
		if !sleep(ctx, gap) {
			return nil
		}
	}
}

// keep is what List shows from now on; nil: it asks the cluster.
func (p *provider) keep(jobs map[string]*job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs = jobs
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// glance is the outcome of a look.
type glance struct {
	jobs    map[string]*job
	index   uint64
	changed bool
	due     time.Duration // until a deadline passes
}

// look reads the jobs of the target, waiting for a change after index, and what has
// changed of their allocations since known. It ends what is to end.
func (p *provider) look(ctx context.Context, index uint64, wait time.Duration, known map[string]*job) (glance, error) {
	bounded, cancel := context.WithTimeout(ctx, wait+slack)
	defer cancel()
	stubs, meta, err := p.client.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}},
		(&api.QueryOptions{Prefix: prefix, WaitIndex: index, WaitTime: wait}).WithContext(bounded))
	if err != nil {
		return glance{}, p.err("list jobs", err)
	}
	g := glance{jobs: map[string]*job{}, index: meta.LastIndex}
	group, bounded := errgroup.WithContext(bounded)
	group.SetLimit(width)
	for _, s := range stubs {
		if !ours(p.t, s.Meta) {
			continue
		}
		j := &job{JobListStub: s}
		g.jobs[s.ID] = j
		old := known[s.ID]
		same := old != nil && old.version() == j.version()
		if same && old.settled() {
			j.allocs, j.eval = old.allocs, old.eval
			continue
		}
		g.changed = g.changed || !same
		group.Go(func() error { return p.fill(bounded, j) })
	}
	if err := group.Wait(); err != nil {
		return glance{}, err
	}
	for id, j := range g.jobs {
		old := known[id]
		g.changed = g.changed || old != nil && (len(old.allocs) != len(j.allocs) || (old.eval == nil) != (j.eval == nil))
	}
	g.changed = g.changed || len(g.jobs) != len(known)
	return g, p.end(ctx, &g)
}

// fill reads the allocations of a job, or why it has none.
func (p *provider) fill(ctx context.Context, j *job) error {
	var err error
	if j.allocs, _, err = p.client.Jobs().Allocations(j.ID, false, p.read(ctx)); err != nil {
		return p.err("list the allocations", err)
	}
	if len(j.allocs) > 0 || j.Meta[metaLaunching] != "" {
		return nil
	}
	evals, _, err := p.client.Jobs().Evaluations(j.ID, p.read(ctx))
	if err != nil {
		return p.err("list the evaluations", err)
	}
	for _, e := range evals {
		if (len(e.FailedTGAllocs) > 0 || e.Status == api.EvalStatusFailed) && (j.eval == nil || e.ModifyIndex >= j.eval.ModifyIndex) {
			j.eval = e
		}
	}
	return nil
}

// end stops what is past its deadline and what Nomad runs a second time, and removes
// what Terminate has ended.
func (p *provider) end(ctx context.Context, g *glance) error {
	g.due = longest
	p.forget(g.jobs)
	for name, j := range g.jobs {
		do := p.ending(j, g)
		if do == nil {
			continue
		}
		g.changed = true
		if err := do(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// ending is what is to be done to a unit now; nil: nothing. It notes in g when that
// may change.
func (p *provider) ending(j *job, g *glance) func(ctx context.Context, unit string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop := func(ctx context.Context, unit string) error { return p.stop(ctx, unit, false) }
	switch {
	case p.removed[j.ID] && finished(j.allocs):
		return func(ctx context.Context, unit string) error { return p.purge(ctx, unit, j.Meta) }
	case j.Stop:
		return nil
	case repeated(j.allocs):
		p.cfg.Log.Warn("the cluster runs a unit a second time, it is stopped", "unit", j.ID)
		return stop
	case !running(j.allocs):
		return nil
	}
	deadline, err := time.ParseDuration(j.Meta[metaDeadline])
	if err != nil {
		return nil // it has none
	}
	now := time.Now()
	if p.began[j.ID].IsZero() {
		p.began[j.ID] = now
	}
	if left := deadline - now.Sub(p.began[j.ID]); left > 0 {
		g.due = min(g.due, max(left, gap))
		return nil
	}
	p.late[j.ID] = true
	return stop
}

// forget drops what is remembered of units that are gone.
func (p *provider) forget(jobs map[string]*job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.began, func(name string, _ time.Time) bool { return jobs[name] == nil })
	for _, set := range []map[string]bool{p.late, p.removed} {
		maps.DeleteFunc(set, func(name string, _ bool) bool { return jobs[name] == nil })
	}
}

// List implements fleet.Provider.
func (p *provider) List(ctx context.Context) ([]fleet.Unit, error) {
	p.mu.Lock()
	jobs := p.jobs
	p.mu.Unlock()
	if jobs == nil {
		g, err := p.look(ctx, 0, longest, nil)
		if err != nil {
			return nil, err
		}
		jobs = g.jobs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	units := make([]fleet.Unit, 0, len(jobs))
	for name, j := range jobs {
		if p.removed[name] && finished(j.allocs) {
			continue
		}
		u := fleet.Unit{Name: name, Job: j.Meta[metaRun], Note: j.Meta[metaNote]}
		u.Attempt, _ = strconv.ParseInt(j.Meta[metaAttempt], 10, 64) // what is none is no attempt, and not wanted
		u.State, u.Trouble = state(j, p.late[name])
		if a := instance(j.allocs); a != nil {
			u.Node = a.NodeName
		}
		units = append(units, u)
	}
	slices.SortFunc(units, func(a, b fleet.Unit) int { return cmp.Compare(a.Name, b.Name) })
	return units, nil
}
