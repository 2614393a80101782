package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

const (
	// listLag is how long a list may take to show what was launched.
	listLag = 30 * time.Second
	// tailBytes of a unit's output go into a failure, and a result is looked for in the
	// last resultBytes.
	tailBytes   = 4 << 10
	resultBytes = 8 << 20
)

// look is one comparison of wanted with seen.
type look struct {
	*pool
	spec   *protocol.RuntimeSpec // the latest
	now    time.Time
	next   time.Duration // until something is due
	units  map[string]seen
	demand lease.Demand
	words  map[string]string
	// awaited are the units whose job is queued, by job; promised is what these and the
	// units without a lease have been given of the pool's budgets.
	awaited  map[string]string
	promised amount
	// leases are those that the runners of units hold, by unit, and idle are the units
	// that take whatever fits and have nothing.
	leases map[string]lease.Lease
	idle   []idle
	// leaving are the units that are not wanted and may still run: they have their place
	// until they have ended.
	leaving int
	// stranded are those among them whose nodes do not answer.
	stranded []string
	// resumed are launches to go on with, of units that hold their run already.
	resumed []wanted
	// answered are the clusters that have said what they have.
	answered map[*cluster]bool
	// blind: the latest version's cluster does not say what it has. What is at earlier places
	// is judged all the same, and nothing is launched.
	blind bool
	// unheard: the place of an earlier version does not answer, or has not yet.
	unheard bool
	// over are the units to remove.
	over []seen
	// full says that there is no slot left; empty: there is.
	full string
}

type seen struct {
	Unit
	on *cluster
	// listed says that the cluster shows it.
	listed bool
}

// mayRun says whether a process of a unit may be running. A cluster can say that a unit
// is pending for seconds after its run is over.
func (u *seen) mayRun() bool {
	return u.State == Running || u.State == Pending && u.Node != "" && (u.Trouble == nil || !u.Trouble.Dead)
}

// pass compares once and does what is missing. It returns after how long to look again
// if nothing happens.
func (p *pool) pass(ctx context.Context) time.Duration {
	p.callsEnded(ctx)
	l := &look{pool: p, spec: p.newest(), now: p.cfg.Now(), next: p.cfg.Resync, units: map[string]seen{}, words: map[string]string{},
		awaited: map[string]string{}, leases: map[string]lease.Lease{}, answered: map[*cluster]bool{}}
	current := l.reach(ctx)
	l.see(ctx, current)
	if ctx.Err() != nil {
		return settle
	}
	if (l.blind || current == nil) && len(l.elsewhere()) == 0 {
		l.saw(nil) // that nothing is seen is what there is to say, if anything is
		return max(l.next, settle)
	}
	if err := l.ask(ctx); err != nil {
		if ctx.Err() == nil {
			p.log.Error("the queue does not say what is wanted", "err", err)
		}
		return p.cfg.Backoff
	}
	l.judge(ctx, current)
	if current != nil && !l.blind {
		l.launch(ctx, current)
	}
	l.remove(ctx, current)
	if ctx.Err() == nil && !l.blind && !l.notBefore.After(l.now) {
		if len(l.launching)+len(l.removing) == 0 { // the cluster did all that it was asked to
			l.failures = 0
		}
		if l.failures == 0 {
			l.say(l.full)
		}
	}
	l.saw(l.words)
	return max(l.next, settle)
}

// saw keeps what was seen of runs that wait.
func (p *pool) saw(words map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.words = words
}

// reach is the cluster to launch on; nil: it cannot be reached now, or runners of the latest
// version's kind are not launched.
func (l *look) reach(ctx context.Context) *cluster {
	p := l.pool
	if p.cfg.Openers[l.spec.Kind] == nil {
		if p.latest != nil {
			p.retire(false)
		}
		p.failures, p.notBefore = 0, time.Time{}
		p.say("")
		return nil
	}
	if p.takeChanged(l.spec) {
		p.notBefore = time.Time{}
		if p.latest != nil {
			p.retire(false)
			p.earlier[len(p.earlier)-1].outdated = true
		}
	}
	if p.latest == nil && p.notBefore.After(l.now) {
		l.blind = true
		l.due(p.notBefore)
		return nil
	}
	current, err := p.current(ctx, l.spec)
	if err != nil {
		l.lose(ctx, "reach its cluster", err)
	}
	return current
}

// lose notes that the latest version's cluster is not seen in this look. One that was asked
// before its time, since something else has happened, is not asked later for that.
func (l *look) lose(ctx context.Context, action string, err error) {
	l.blind = true
	var auth *AuthError
	if ctx.Err() == nil && (!l.notBefore.After(l.now) || errors.As(err, &auth)) {
		l.failed(action, err)
	}
	l.due(l.notBefore)
}

// due asks for a look at a moment.
func (l *look) due(at time.Time) { l.next = min(l.next, at.Sub(l.now)) }

// see reads the units that are there.
func (l *look) see(ctx context.Context, current *cluster) {
	l.askEarlier(ctx)
	if current != nil {
		l.list(ctx, current)
	}
	l.findEarlier(ctx)
	l.askEarlier(ctx)
	l.hearEarlier(ctx)
	if l.blind {
		return // what is known of units that are not seen now is still true
	}
	for name, u := range l.launched {
		if l.now.Sub(u.at) > listLag {
			delete(l.launched, name)
			continue
		}
		l.units[name] = seen{u.Unit, u.on, false}
	}
	for name, u := range l.launching {
		if _, there := l.units[name]; !there {
			l.units[name] = seen{u.Unit, u.on, false}
		}
	}
	for name := range l.marks {
		if _, there := l.units[name]; !there {
			delete(l.marks, name)
		}
	}
	l.tidyHanded()
	for name := range l.assigned {
		if _, there := l.units[name]; !there {
			l.unassign(name)
		}
	}
}

// list reads what the latest version's cluster has.
func (l *look) list(ctx context.Context, current *cluster) {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	units, err := current.List(bounded)
	if err != nil {
		l.lose(ctx, "see what runs on its cluster", err)
		return
	}
	l.answered[current] = true
	l.merge()
	l.show(current, units)
}

// show takes units for those that are there. What the latest version's cluster shows comes
// first.
func (l *look) show(c *cluster, units []Unit) {
	for _, u := range units {
		if _, there := l.units[u.Name]; !there {
			l.units[u.Name] = seen{u, c, true}
		}
		if l.launched[u.Name].on == c {
			delete(l.launched, u.Name)
		}
	}
}

// ask reads what the queue wants, and where the jobs of units stand. It comes after
// see: what a unit did before it ended is in the queue by then.
func (l *look) ask(ctx context.Context) (err error) {
	var ids []string
	asked := map[string]bool{"": true}
	ask := func(job string) {
		if !asked[job] {
			asked[job] = true
			ids = append(ids, job)
		}
	}
	for _, u := range l.units {
		ask(u.Job)
	}
	for _, a := range l.assigned {
		ask(a.job)
	}
	// Twice the slots, for jobs that are skipped because they do not fit.
	l.demand, err = l.cfg.Queue.Demand(ctx, l.name, 2*l.spec.Limits().MaxConcurrent, ids)
	if err != nil {
		return err
	}
	holders := map[string]string{}
	for _, h := range l.demand.Leases {
		unit, known := l.holders[h.Runner]
		if !known {
			if unit, err = l.unitOf(ctx, h.Runner); err != nil {
				return fmt.Errorf("find the unit of runner %s: %w", h.Runner, err)
			}
		}
		holders[h.Runner] = unit
		if unit != "" {
			l.leases[unit] = h
		}
	}
	l.holders = holders
	for unit := range l.revoked {
		if _, held := l.leases[unit]; !held {
			delete(l.revoked, unit) // its run has a result, or was cancelled
		}
	}
	return nil
}

// unitOf is the unit that a runner runs in; "" if nobody launched it, or it is none of the
// workspace's any more.
func (l *look) unitOf(ctx context.Context, runner string) (string, error) {
	r, err := l.cfg.Runners.Get(ctx, l.workspace, runner)
	var unknown *protocol.Problem
	if errors.As(err, &unknown) && unknown.Status == http.StatusNotFound {
		return "", nil
	}
	return r.Unit, err
}

// judge goes through the units and does what follows from where their jobs stand.
func (l *look) judge(ctx context.Context, current *cluster) {
	held := map[string]bool{}
	for _, u := range l.units {
		if n := noteOf(&u.Unit); n != nil {
			l.stand(ctx, u, n, held)
			continue
		}
		job, known := l.demand.Jobs[u.Job]
		switch {
		case known && job.State == lease.Leased && l.holders[job.Lease.Runner] == u.Name:
			held[u.Job] = true
			l.mark(u.Name).unwanted = time.Time{}
			if !l.out(ctx, u, job, current) {
				l.held(ctx, u, job)
			}
		case known && waits(job, u.Attempt):
			l.mark(u.Name).unwanted = time.Time{}
			l.await(ctx, u, job)
		default:
			l.sweep(u)
		}
	}
	// A runner of ours that holds a lease, and whose unit is not there any more.
	unseen := map[string]bool{}
	for _, h := range l.demand.Leases {
		if unit := l.holders[h.Runner]; unit != "" && !held[h.Job] {
			if r := l.revoked[unit]; r != nil {
				l.gone(ctx, h, unit, r)
				continue
			}
			if l.blind { // where it may be was not asked
				unseen[unit] = l.unseen[unit]
				continue
			}
			unseen[unit] = true
			gone := Trouble{Cause: CauseEvicted, Message: "it is not on the cluster any more"}
			if l.unheard {
				gone = Trouble{Cause: CauseNodeLost, Message: "the place of an earlier version of the runtime, where it may be, does not answer"}
			}
			l.cfg.Runs.Foretell(h.Job, h.Attempt, failure(&Unit{Name: unit}, &gone, Needs{}, false))
		}
	}
	l.unseen = unseen
}

func (p *pool) mark(unit string) *marks {
	m := p.marks[unit]
	if m == nil {
		m = &marks{}
		p.marks[unit] = m
	}
	return m
}

// since sets a mark when it is first asked for, and returns how long that is ago.
func (l *look) since(at *time.Time) time.Duration {
	if at.IsZero() {
		*at = l.now
	}
	return l.now.Sub(*at)
}

// held is for the unit whose runner holds the lease of its job.
func (l *look) held(ctx context.Context, u seen, job lease.JobState) {
	t := u.Trouble
	switch {
	case u.State == Ended && t == nil:
		t = &Trouble{Cause: CauseExited, Message: "its runner ended by itself", Final: true, Dead: true}
	case t == nil || !t.Final && u.State != Ended:
		if l.overran(ctx, u, job) {
			return
		}
		if m := l.mark(u.Name); m.foretold || l.unseen[u.Name] { // what was wrong has passed
			m.foretold = false
			l.cfg.Runs.Foretell(u.Job, job.Attempt, protocol.Failure{})
		}
		return
	}
	f := failure(&u.Unit, t, l.needs(ctx, u.Job), false)
	if r := l.revoked[u.Name]; r != nil {
		f = r.failure // it ended because it was removed
	}
	if !t.Dead {
		delete(l.revoked, u.Name) // that it is gone from a list would not say that it is over
		l.mark(u.Name).foretold = true
		l.cfg.Runs.Foretell(u.Job, job.Attempt, f)
		return
	}
	settled, output, err := l.adopt(ctx, u, job, l.cfg.PendingTimeout)
	if settled {
		return
	}
	f.LogTail = string(output[max(0, len(output)-tailBytes):])
	if err != nil {
		f.Message += fmt.Sprintf("; a result that it has printed could not be had within %v: %s", l.cfg.PendingTimeout, protocol.Clip(err.Error(), 400))
	}
	if err := l.cfg.Runs.Ended(ctx, *job.Lease, f); err != nil {
		l.log.Warn("the end of an attempt could not be written", "run", u.Job, "unit", u.Name, "err", err)
		l.due(l.now.Add(l.cfg.Backoff))
		return
	}
	l.log.Info("attempt ended by its cluster", "run", u.Job, "unit", u.Name, "cause", t.Cause)
}

// adopt takes the result that is in the output of a unit that holds its lease. settled: it
// was taken, or it is not known yet whether there is one, and the cluster is asked again,
// for as long as patience. Else there is none in output, or err says why nobody knows.
func (l *look) adopt(ctx context.Context, u seen, job lease.JobState, patience time.Duration) (settled bool, output []byte, err error) {
	m := l.mark(u.Name)
	if m.readAgain.After(l.now) {
		return l.unread(u, m, patience)
	}
	output, m.readErr = l.output(ctx, u, resultBytes)
	if result := result(output); result != nil {
		var never *protocol.Problem
		switch err := l.cfg.Runs.Adopt(ctx, *job.Lease, result); {
		case err == nil:
			l.log.Info("result adopted from the output", "run", u.Job, "unit", u.Name)
			return true, output, nil
		case errors.As(err, &never):
			l.log.Warn("the result in the output is not taken", "run", u.Job, "unit", u.Name, "err", err)
			m.readErr = nil
		default:
			m.readErr = err
		}
	}
	if m.readErr == nil {
		m.unread, m.reads = time.Time{}, 0
		return false, output, nil
	}
	if m.reads == 0 {
		l.log.Warn("the result of a unit cannot be had yet", "run", u.Job, "unit", u.Name, "err", m.readErr)
	}
	m.readAgain = l.cfg.Now().Add(l.cfg.delay(m.reads))
	m.reads++
	settled, _, err = l.unread(u, m, patience)
	return settled, output, err
}

// unread is what adopt says of a unit whose result could not be had.
func (l *look) unread(u seen, m *marks, patience time.Duration) (settled bool, output []byte, err error) {
	if l.since(&m.unread) >= patience {
		return false, nil, m.readErr
	}
	l.due(m.readAgain)
	l.due(m.unread.Add(patience))
	return true, nil, nil
}

// await is for a unit whose job waits for its runner.
func (l *look) await(ctx context.Context, u seen, job lease.JobState) {
	l.awaited[u.Job] = u.Name
	l.promised.add(amount{job.MemoryMB, job.CPU})
	m, t := l.mark(u.Name), u.Trouble
	waited := l.since(&m.awaited)
	switch {
	case u.State == Ended && t == nil:
		t = &Trouble{Cause: CauseExited, Message: "its runner ended by itself", Final: true, Dead: true}
	case t == nil && waited >= l.cfg.TokenLife:
		t = &Trouble{Cause: CauseStart, Message: fmt.Sprintf("its runner did not come within %v", l.cfg.TokenLife)}
		l.unplaced(ctx, u, failure(&u.Unit, t, l.needs(ctx, u.Job), true))
		return
	case t == nil:
		m.trouble = time.Time{}
		if why := l.unable(ctx, u); why != "" {
			l.unplaced(ctx, u, unsupported(&u.Unit, why))
			return
		}
		l.due(m.awaited.Add(l.cfg.TokenLife))
		l.words[u.Job] = fmt.Sprintf("unit %s is %s%s", u.Name, u.State, on(u.Node))
		return
	}
	if t.Final || u.State == Ended {
		l.unplaced(ctx, u, failure(&u.Unit, t, l.needs(ctx, u.Job), true))
		return
	}
	troubled := l.since(&m.trouble)
	if troubled >= l.cfg.PendingTimeout {
		l.unplaced(ctx, u, overdue(failure(&u.Unit, t, l.needs(ctx, u.Job), true), troubled, l.cfg.PendingTimeout))
		return
	}
	l.due(m.trouble.Add(l.cfg.PendingTimeout))
	l.words[u.Job] = fmt.Sprintf("unit %s waits: %s: %s", u.Name, t.Cause, protocol.Clip(t.Message, 600))
}

// unable is why the runner of a unit, which is there, can never take its run: what its
// image lacks. Empty: it is not there, or it can.
func (l *look) unable(ctx context.Context, u seen) string {
	if u.State != Running {
		return ""
	}
	roster, err := l.cfg.Runners.Roster(ctx, l.workspace)
	if err != nil || !slices.ContainsFunc(roster, func(r protocol.Runner) bool { return r.Online && r.Unit == u.Name }) {
		return ""
	}
	x, err := l.cfg.Queue.Explain(ctx, u.Job)
	if err != nil || x.Online == 0 || x.Able > 0 {
		return ""
	}
	return x.Sentence
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// unplaced ends the attempt that a unit was for. The unit is not wanted any more, and
// the next look sees that.
func (l *look) unplaced(ctx context.Context, u seen, f protocol.Failure) {
	l.words[u.Job] = f.Message
	if u.State == Ended || u.State == Running {
		tail, err := l.output(ctx, u, tailBytes)
		if err != nil {
			l.log.Debug("output of a unit cannot be read", "unit", u.Name, "err", err)
		}
		f.LogTail = string(tail)
	}
	if err := l.cfg.Runs.Unplaced(ctx, u.Job, u.Attempt-1, f); err != nil {
		l.log.Warn("the end of an attempt could not be written", "run", u.Job, "unit", u.Name, "err", err)
	} else {
		l.log.Info("unit came to nothing", "run", u.Job, "unit", u.Name, "reason", f.Reason, "message", f.Message)
	}
	l.due(l.now.Add(settle))
}

// sweep notes that a unit is not wanted: it has its place until it has ended, and is
// removed when that is so for Grace.
func (l *look) sweep(u seen) {
	m := l.mark(u.Name)
	if u.mayRun() {
		l.leaving++
		if t := u.Trouble; t != nil && t.Cause == CauseNodeLost {
			l.stranded = append(l.stranded, u.Name+on(u.Node))
		}
		if n := noteOf(&u.Unit); n != nil {
			l.promised.add(n.amount())
		} else {
			job := l.demand.Jobs[u.Job]
			l.promised.add(amount{job.MemoryMB, job.CPU})
		}
	}
	if l.since(&m.unwanted) < l.cfg.Grace {
		l.due(m.unwanted.Add(l.cfg.Grace))
		return
	}
	_, launching := l.launching[u.Name]
	if _, removing := l.removing[u.Name]; !launching && !removing {
		l.over = append(l.over, u)
	}
}

// remove terminates units that are over. The cluster of the latest version is not asked while
// it fails.
func (l *look) remove(ctx context.Context, current *cluster) {
	for _, u := range l.over {
		if u.on == current && l.notBefore.After(l.now) {
			l.due(l.notBefore)
			continue
		}
		l.beginRemoval(ctx, u)
	}
}

// needs of a run; what cannot be read is not declared.
func (l *look) needs(ctx context.Context, run string) Needs {
	n, err := l.cfg.Runs.Needs(ctx, run)
	if err != nil {
		l.log.Warn("the needs of a run are not known", "run", run, "err", err)
	}
	return n
}

// output is the end of what a unit printed.
func (l *look) output(ctx context.Context, u seen, limit int64) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return u.on.Output(bounded, u.Name, limit)
}

// result is the last one in a unit's output; nil if there is none.
func result(output []byte) []byte {
	i := bytes.LastIndex(output, []byte("\n"+protocol.ResultSentinel))
	if i < 0 {
		if !bytes.HasPrefix(output, []byte(protocol.ResultSentinel)) {
			return nil
		}
		i = -1
	}
	line, _, complete := bytes.Cut(output[i+1+len(protocol.ResultSentinel):], []byte("\n"))
	if !complete {
		return nil // it was cut off
	}
	return line
}
