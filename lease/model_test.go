package lease_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/everdict/everdict/lease"
)

// model is the queue's specification, small enough to be believed: a map of jobs and the rules. It is fed every event in
// the order in which the queue committed them and says which one was not allowed.
type model struct {
	cfg    lease.Config
	limits map[string]lease.Limit
	jobs   map[string]*modelJob
	seq    int
	vtime  float64
	finish map[string]float64
	fenced map[string]bool // runners
}

type modelJob struct {
	lease.Job
	seq                          int
	state                        lease.State
	attempt                      int64
	failures, unstarted          int
	enqueued, deadline           time.Time
	retryAt                      time.Time // not leased before; zero: at once
	runner                       lease.Runner
	grants                       map[int64]string // attempt -> runner
	requests                     map[int64]string // attempt -> request that was answered with it
	seen                         time.Time        // zero: its runner is not there
	started, held                bool
	restored                     bool // not heard of since a restart
	fenced                       bool // its runner was
	stop, outcome                lease.Outcome
	settledBy                    int64
	terminal                     int // how many times it settled
	leaseDeadline, startDeadline time.Time
}

func newModel(cfg lease.Config, limits map[string]lease.Limit) *model {
	return &model{cfg: cfg, limits: limits, jobs: map[string]*modelJob{}, finish: map[string]float64{}, fenced: map[string]bool{}}
}

func (m *model) home(r lease.Runner) string {
	if r.Home != "" {
		return r.Home
	}
	return r.Serves[0]
}

// placeable says whether a runner may take a job now.
func (m *model) placeable(r lease.Runner, j *modelJob, now time.Time) bool {
	if now.Before(j.retryAt) || j.state != lease.Queued || !slices.Contains(r.Serves, j.Pool) {
		return false
	}
	req := j.Requirements
	for _, c := range req.Capabilities {
		if !slices.Contains(r.Capabilities, c) {
			return false
		}
	}
	if (req.OS != "" && req.OS != r.OS) || (req.Arch != "" && req.Arch != r.Arch) {
		return false
	}
	limit := m.limits[m.home(r)]
	var slots int
	var memory, cpu, own int64
	for _, o := range m.jobs {
		if o.state != lease.Leased {
			continue
		}
		if m.home(o.runner) == m.home(r) {
			slots++
			memory += o.Requirements.MemoryMB
			cpu += o.Requirements.CPU
		}
		if o.runner.ID == r.ID {
			own += o.Requirements.MemoryMB
		}
	}
	if limit.MaxConcurrent > 0 && slots >= limit.MaxConcurrent {
		return false
	}
	if req.MemoryMB > 0 && limit.MemoryMB > 0 && memory+req.MemoryMB > limit.MemoryMB {
		return false
	}
	if req.CPU > 0 && limit.CPU > 0 && cpu+req.CPU > limit.CPU {
		return false
	}
	return req.MemoryMB == 0 || r.MemoryMB == 0 || own+req.MemoryMB <= r.MemoryMB
}

type modelRank struct {
	late  bool
	start float64
	seq   int
}

func (m *model) rank(j *modelJob, now time.Time) modelRank {
	return modelRank{
		late:  j.Class == lease.Batch && now.Sub(j.enqueued) < m.cfg.Aging,
		start: math.Max(m.vtime, m.finish[j.Workspace]),
		seq:   j.seq,
	}
}

func (a modelRank) before(b modelRank) bool {
	switch {
	case a.late != b.late:
		return b.late
	case a.start != b.start:
		return a.start < b.start
	}
	return a.seq < b.seq
}

// apply checks an event against the rules and follows it. runners has what each runner last said of itself.
func (m *model) apply(ev lease.Event, runners map[string]lease.Runner) error {
	j := m.jobs[ev.Job]
	if j == nil {
		return fmt.Errorf("%s of a job that was never accepted", ev.Kind)
	}
	if j.terminal > 0 {
		return fmt.Errorf("%s of a job that has settled", ev.Kind)
	}
	due := func() time.Time {
		if !j.started && j.startDeadline.Before(j.leaseDeadline) {
			return j.startDeadline
		}
		return j.leaseDeadline
	}
	switch ev.Kind {
	case lease.JobEnqueued:
		m.seq++
		j.seq, j.enqueued, j.state = m.seq, ev.At, ev.State
		j.deadline = ev.At.Add(j.QueueDeadline)
	case lease.JobLeased:
		r := runners[ev.Runner]
		if !m.placeable(r, j, ev.At) {
			return fmt.Errorf("leased to %s, which may not take it (it is %s)", ev.Runner, j.state)
		}
		for _, o := range m.jobs {
			if o.retryAt.Equal(ev.At) {
				continue // its retry is due in this moment, perhaps a little later
			}
			if m.placeable(r, o, ev.At) && m.rank(o, ev.At).before(m.rank(j, ev.At)) {
				return fmt.Errorf("leased to %s before %s, which goes first", ev.Runner, o.ID)
			}
		}
		if ev.Attempt != j.attempt+1 {
			return fmt.Errorf("attempt %d follows %d", ev.Attempt, j.attempt)
		}
		m.vtime = math.Max(m.vtime, m.finish[j.Workspace])
		m.finish[j.Workspace] = m.vtime + 1
		if j.grants == nil {
			j.grants, j.requests = map[int64]string{}, map[int64]string{}
		}
		j.grants[ev.Attempt] = ev.Runner
		if m.fenced[ev.Runner] {
			return fmt.Errorf("leased to %s, which was fenced", ev.Runner)
		}
		j.restored, j.fenced = false, false
		j.state, j.attempt, j.runner, j.started, j.held, j.stop = lease.Leased, ev.Attempt, r, false, false, lease.OutcomeNone
		j.seen, j.leaseDeadline, j.startDeadline = ev.At, ev.At.Add(m.cfg.TTL), ev.At.Add(m.cfg.StartAck)
	case lease.JobRequeued:
		if j.state != lease.Leased || j.stop != lease.OutcomeNone {
			return fmt.Errorf("requeued while %s, stop %s", j.state, j.stop)
		}
		if ev.Cause != lease.CauseCaller && ev.At.Before(due()) {
			return fmt.Errorf("requeued as %s at %s, before it was due at %s", ev.Cause, ev.At, due())
		}
		if ev.Cause == lease.CauseStartTimeout && j.started {
			return fmt.Errorf("start timeout of a started attempt")
		}
		if (ev.Cause == lease.CauseRestart) != j.restored && !j.fenced && (ev.Cause == lease.CauseRestart || ev.Cause == lease.CauseExpired) {
			return fmt.Errorf("cause %s, heard of since the restart: %t", ev.Cause, !j.restored)
		}
		if ev.Cause != lease.CauseCaller && (ev.Cause == lease.CauseFenced) != j.fenced {
			return fmt.Errorf("cause %s, fenced: %t", ev.Cause, j.fenced)
		}
		failures := j.failures
		m.count(j, ev)
		if j.failures >= j.MaxAttempts || j.unstarted >= m.cfg.MaxUnstarted {
			return fmt.Errorf("requeued after %d failures and %d leases without a start", j.failures, j.unstarted)
		}
		if j.started {
			j.deadline = ev.At.Add(j.QueueDeadline)
		}
		if err := m.retry(j, ev, j.failures > failures); err != nil {
			return err
		}
		j.state = lease.Queued
	case lease.JobStarted:
		if j.state != lease.Leased || j.started {
			return fmt.Errorf("started while %s, started %t", j.state, j.started)
		}
		j.started = true
	case lease.JobParked:
		switch {
		case ev.State == lease.Parked && j.state == lease.Queued:
			j.state = lease.Parked
		case ev.State == lease.Leased && j.state == lease.Leased && !j.held:
			j.held = true
		default:
			return fmt.Errorf("parked to %s while %s", ev.State, j.state)
		}
	case lease.JobResumed:
		switch {
		case ev.State == lease.Queued && j.state == lease.Parked:
			j.state, j.deadline, j.retryAt = lease.Queued, ev.At.Add(j.QueueDeadline), time.Time{}
		case ev.State == lease.Leased && j.state == lease.Leased && j.held:
			j.held = false
		default:
			return fmt.Errorf("resumed to %s while %s", ev.State, j.state)
		}
	case lease.JobStopping:
		if j.state != lease.Leased || j.stop != lease.OutcomeNone {
			return fmt.Errorf("stopping while %s, stop %s", j.state, j.stop)
		}
		if !m.holderLives(j, ev.At) {
			return fmt.Errorf("a holder that is not there was asked to stop")
		}
		j.stop = ev.Stop
	case lease.JobFenced:
		if j.state != lease.Leased || j.fenced || !m.fenced[j.runner.ID] || !ev.Deadline.Equal(due()) {
			return fmt.Errorf("fenced until %s while %s, due %s, fenced %t", ev.Deadline, j.state, due(), j.fenced)
		}
		j.fenced, j.held, j.seen = true, false, time.Time{}
	case lease.JobSettled:
		if err := m.settle(j, ev, due()); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown kind %d", ev.Kind)
	}
	if ev.State != j.state {
		return fmt.Errorf("%s says the job is %s, it should be %s", ev.Kind, ev.State, j.state)
	}
	return nil
}

// retry checks when a job may be leased again: at once, or in the second half of a delay that grows with its failures,
// and not after its deadline, unless that has passed.
func (m *model) retry(j *modelJob, ev lease.Event, counted bool) error {
	j.retryAt = ev.RetryAt
	if !counted {
		if !ev.RetryAt.IsZero() {
			return fmt.Errorf("an uncounted return waits until %s", ev.RetryAt)
		}
		return nil
	}
	delay := time.Second
	for range j.failures - 1 {
		delay = min(4*delay, time.Minute)
	}
	early, late, by := ev.At.Add(delay/2), ev.At.Add(delay), j.deadline
	if by.Before(ev.At) {
		by = ev.At
	}
	if by.Before(early) {
		early = by
	}
	if ev.RetryAt.Before(early) || ev.RetryAt.After(late) || ev.RetryAt.After(by) {
		return fmt.Errorf("failed at %s for the %d. time, retry at %s, want it between %s and %s and by %s", ev.At, j.failures,
			ev.RetryAt, early, late, by)
	}
	return nil
}

func (m *model) holderLives(j *modelJob, now time.Time) bool {
	return !j.seen.IsZero() && now.Sub(j.seen) < m.cfg.OnlineWindow
}

// count does the sums of an attempt that ended without a result.
func (m *model) count(j *modelJob, ev lease.Event) {
	switch {
	case ev.Cause == lease.CauseCaller:
		j.failures = ev.Failures // counted or not as the caller said; the test checks it where it calls
	case j.started:
		j.failures++
	default:
		j.unstarted++
	}
}

func (m *model) settle(j *modelJob, ev lease.Event, due time.Time) error {
	j.terminal++
	switch ev.Outcome {
	case lease.Unschedulable:
		if j.state != lease.Queued || ev.At.Before(j.deadline) {
			return fmt.Errorf("unschedulable while %s at %s, deadline %s", j.state, ev.At, j.deadline)
		}
	case lease.Exhausted:
		if j.state != lease.Leased || (ev.Cause != lease.CauseCaller && ev.At.Before(due)) {
			return fmt.Errorf("exhausted while %s at %s, due %s", j.state, ev.At, due)
		}
		m.count(j, ev)
		if j.failures < j.MaxAttempts && j.unstarted < m.cfg.MaxUnstarted {
			return fmt.Errorf("exhausted after %d of %d attempts", j.failures, j.MaxAttempts)
		}
	case lease.Succeeded, lease.Failed:
		if j.state != lease.Leased {
			return fmt.Errorf("settled by a holder while %s", j.state)
		}
		j.settledBy = ev.Attempt
	case lease.Cancelled, lease.Rejected:
		if ev.Cause != lease.CauseCaller && (j.stop != ev.Outcome || ev.At.Before(due)) {
			return fmt.Errorf("settled as %s by %s with stop %s at %s, due %s", ev.Outcome, ev.Cause, j.stop, ev.At, due)
		}
		if j.state == lease.Leased {
			m.count(j, ev)
		}
	}
	j.state, j.outcome = lease.Settled, ev.Outcome
	return nil
}

// restart is what the end of a coordinator and the start of the next one do.
func (m *model) restart(now time.Time) {
	m.vtime, m.finish = 0, map[string]float64{}
	for _, j := range m.jobs {
		if j.state == lease.Leased {
			j.seen, j.restored = time.Time{}, true
			j.leaseDeadline, j.startDeadline = now.Add(m.cfg.TTL), now.Add(m.cfg.StartAck)
		}
	}
}

// rest checks what must hold when nothing is under way: nothing is overdue, and no waiting pull could have a job.
func (m *model) rest(now time.Time, waiting []lease.Runner) error {
	for _, j := range m.jobs {
		switch {
		case j.state == lease.Queued && !now.Before(j.deadline):
			return fmt.Errorf("%s is queued past its deadline", j.ID)
		case j.state == lease.Leased && !now.Before(j.leaseDeadline):
			return fmt.Errorf("%s is leased past its deadline", j.ID)
		case j.state == lease.Leased && !j.started && !now.Before(j.startDeadline):
			return fmt.Errorf("%s is leased and not started past the time for it", j.ID)
		}
		for _, r := range waiting {
			if m.placeable(r, j, now) {
				return fmt.Errorf("%s is queued and %s waits, and could take it", j.ID, r.ID)
			}
		}
	}
	return nil
}
