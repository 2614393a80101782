package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

const (
	// standingLife is the age at which the runner of a standing unit takes no more jobs.
	// A job that may take longer gets a unit of its own; so the cluster's backstop meets
	// no job that is within its time.
	standingLife = 12 * time.Hour
	// standingDeadline is that backstop.
	standingDeadline = 2*standingLife + waitBound
	// takeBound is how long the runner of a running unit may take until it has the job
	// that it was given. It may be emptying its container, or about to end.
	takeBound = 30 * time.Second
)

// note is what is kept with a standing unit: one that is not for a single attempt.
type note struct {
	// Spec is a digest of what the runtime says that units are made of.
	Spec     string `json:"spec"`
	CPU      int    `json:"cpu,omitempty"`
	MemoryMB int    `json:"mb,omitempty"`
	GPU      int    `json:"gpu,omitempty"`
	// Idle is how many seconds its runner waits for another job after the first; 0: it
	// takes one.
	Idle int `json:"idle,omitempty"`
}

// assignment is the job that a standing unit was given.
type assignment struct {
	job     string
	attempt int64
	// running is since when the unit has been seen running with it.
	running time.Time
}

// StandingName is a new name for a unit that has no job yet.
func StandingName() string { return "everdict-standing-" + strings.ToLower(rand.Text()) }

// bare is a spec without what units are not made of.
func bare(s *protocol.RuntimeSpec) protocol.RuntimeSpec {
	b := *s
	b.Version, b.Description, b.Tags, b.Capabilities = "", "", nil, nil
	b.MaxConcurrent, b.MemoryBudgetMB, b.CPUBudget, b.Warm, b.WarmSize, b.IdleSeconds = nil, nil, nil, 0, nil, 0
	return b
}

// sameCluster says whether two versions differ in nothing that a provider is made of.
func sameCluster(a, b *protocol.RuntimeSpec) bool { return reflect.DeepEqual(bare(a), bare(b)) }

func digest(s *protocol.RuntimeSpec) string {
	doc, err := json.Marshal(bare(s))
	if err != nil {
		panic(err) // it came from JSON
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:8])
}

// noteOf is the note of a standing unit; nil: it is for one attempt.
func noteOf(u *Unit) *note {
	n := new(note)
	if u.Note == "" || json.Unmarshal([]byte(u.Note), n) != nil {
		return nil
	}
	return n
}

func (n *note) String() string {
	doc, err := json.Marshal(n)
	if err != nil {
		panic(err) // numbers and a digest
	}
	return string(doc)
}

// reused is the note of a unit that is launched for a job and takes others after it;
// nil: it does not. What a job's own image or a GPU's memory keeps cannot be emptied.
func (l *look) reused(spec *protocol.RuntimeSpec, needs *Needs) *note {
	if spec.IdleSeconds == 0 || needs.Image != "" || needs.Network == protocol.NetworkNone || needs.GPU > 0 || spec.GPU != nil || needs.Deadline > standingLife ||
		lacks(l.cfg.Openers[spec.Kind], spec.Kind, FeatureReuse) != "" {
		return nil
	}
	return &note{Spec: digest(spec), CPU: needs.CPU, MemoryMB: needs.MemoryMB, Idle: spec.IdleSeconds}
}

func (n *note) amount() amount { return amount{int64(n.MemoryMB), int64(n.CPU)} }

// warm is the note of a unit that is launched before there is a job for it.
func (l *look) warm(spec *protocol.RuntimeSpec) *note {
	n := &note{Spec: digest(spec)}
	if r := spec.WarmSize; r != nil {
		n.CPU, n.MemoryMB, n.GPU = r.CPU, r.MemoryMB, r.GPU
	}
	if again := l.reused(spec, &Needs{GPU: n.GPU}); again != nil {
		n.Idle = again.Idle
	}
	return n
}

// fits says whether a job may go to a standing unit. Its limits are those of the unit,
// so that they have to be what the job declares, no less and no more.
func (n *note) fits(needs *Needs) bool {
	return needs.Image == "" && needs.Network != protocol.NetworkNone && needs.Deadline <= standingLife &&
		needs.CPU == n.CPU && needs.MemoryMB == n.MemoryMB && needs.GPU == n.GPU
}

// apply makes an order one for a standing unit.
func (n *note) apply(o *Order) {
	o.Note, o.CPU, o.MemoryMB, o.GPU = n.String(), n.CPU, n.MemoryMB, n.GPU
	o.Deadline = standingDeadline
	o.Reused = n.Idle > 0
	o.Env = map[string]string{EnvLife: standingLife.String(), EnvIdle: (time.Duration(n.Idle) * time.Second).String()}
	if o.Job == "" {
		o.Env[EnvFirst] = standingLife.String()
	}
}

// Variables of the runner of a standing unit.
const (
	// EnvFirst is how long it waits for its first job.
	EnvFirst = "EVERDICT_FIRST_TIMEOUT"
	// EnvIdle is how long it waits for each further one; 0: it takes one.
	EnvIdle = "EVERDICT_IDLE_TIMEOUT"
	// EnvDeliver is how long it tries to deliver its result.
	EnvDeliver = "EVERDICT_DELIVER_TIMEOUT"
	// EnvLife is the age at which it takes no more.
	EnvLife = "EVERDICT_LIFE"
)

// stand judges a standing unit. Which job it has follows from the lease that its runner
// holds, else from what it was given, else from what it was launched for.
func (l *look) stand(ctx context.Context, u seen, n *note, held map[string]bool) {
	m := l.mark(u.Name)
	if h, ok := l.leases[u.Name]; ok {
		m.used, m.had, m.unwanted = true, h.Ref, time.Time{}
		held[h.Job] = true
		u.Job, u.Attempt = h.Job, h.Attempt
		l.held(ctx, u, lease.JobState{State: lease.Leased, Attempt: h.Attempt, Lease: &h})
		return
	}
	given, ok := l.assigned[u.Name]
	if job := l.demand.Jobs[given.job]; ok && waits(job, given.attempt) && u.State != Ended && u.Trouble == nil && l.taking(&given, u.State) {
		m.unwanted = time.Time{}
		l.assigned[u.Name] = given
		u.Job, u.Attempt = given.job, given.attempt
		l.await(ctx, u, job)
		return
	}
	if ok {
		l.unassign(u.Name)
		// A run can be over between two looks.
		m.used = m.used || l.demand.Jobs[given.job].Attempt >= given.attempt
		m.going = m.going || l.now.Sub(given.running) >= takeBound && !given.running.IsZero()
	}
	if job, known := l.demand.Jobs[u.Job]; known && !ok && !m.used && waits(job, u.Attempt) {
		m.unwanted = time.Time{}
		l.await(ctx, u, job)
		return
	}
	if why := l.retire(u, n, m); why != "" {
		l.log.Debug("standing unit is not wanted", "unit", u.Name, "why", why)
		l.sweep(u)
		return
	}
	m.unwanted = time.Time{}
	l.idle = append(l.idle, idle{u, n})
}

// waits says whether a job is queued for an attempt.
func waits(job lease.JobState, attempt int64) bool {
	return job.State == lease.Queued && !job.Delayed && attempt == job.Attempt+1
}

// taking says whether a unit may still come to take what it was given.
func (l *look) taking(a *assignment, s State) bool {
	if s != Running {
		return true
	}
	taking := l.since(&a.running) < takeBound
	l.due(a.running.Add(takeBound))
	return taking
}

// retire is why a standing unit without a job is not wanted; empty: it is.
func (l *look) retire(u seen, n *note, m *marks) string {
	used := m.used || u.Job != ""
	switch {
	case u.State == Ended:
		if t := u.Trouble; t != nil && !used {
			l.coldUntil(t.Message)
		}
		return "it has ended"
	case m.going:
		return "it is on its way out"
	case l.latest != nil && u.on.at != l.latest.at:
		return "it is where the runtime is not any more"
	case n.Spec != digest(l.spec):
		return "the runtime's latest version is another"
	case used && (n.Idle == 0 || l.spec.IdleSeconds == 0):
		return "it has had its job"
	case u.Trouble == nil:
		m.trouble = time.Time{}
		return ""
	case u.Trouble.Final, l.since(&m.trouble) >= l.cfg.PendingTimeout:
		l.coldUntil(u.Trouble.Message)
		return u.Trouble.Message
	}
	l.due(m.trouble.Add(l.cfg.PendingTimeout))
	return ""
}

// coldUntil puts off the launch of warm units: one came to nothing.
func (p *pool) coldUntil(why string) {
	now := p.cfg.Now()
	if p.cold.After(now) {
		return
	}
	p.cold = now.Add(p.cfg.MaxBackoff)
	p.log.Warn("a unit to be kept ready came to nothing", "why", why, "again in", p.cfg.MaxBackoff)
}

// assign gives a job to an idle unit of its size; false if there is none.
func (l *look) assign(ctx context.Context, w lease.Waiting) bool {
	if len(l.idle) == 0 {
		return false
	}
	needs, err := l.cfg.Runs.Needs(ctx, w.Job)
	if err != nil {
		return false // launching it says so
	}
	for i, u := range l.idle {
		if u.Trouble != nil || u.State == Launching || !u.note.fits(&needs) {
			continue
		}
		l.idle = slices.Delete(l.idle, i, i+1)
		l.assigned[u.Name] = assignment{job: w.Job, attempt: w.Attempt + 1}
		l.mark(u.Name).awaited = time.Time{}
		l.cfg.Bind(u.Name, w.Job)
		l.awaited[w.Job] = u.Name
		l.words[w.Job] = fmt.Sprintf("unit %s is %s%s, and takes it", u.Name, u.State, on(u.Node))
		l.due(l.now.Add(takeBound))
		l.log.Info("job given to a unit that is there", "run", w.Job, "unit", u.Name)
		return true
	}
	return false
}

// unassign takes back what a unit was given.
func (l *look) unassign(unit string) {
	delete(l.assigned, unit)
	l.cfg.Bind(unit, "")
}

// giveWay removes idle units that have what waiting jobs are short of.
func (l *look) giveWay(short shortage) {
	for _, u := range l.idle {
		switch {
		case short.slots > 0:
			short.slots--
		case short.memory > 0 && u.note.MemoryMB > 0:
			short.memory--
		case short.cpu > 0 && u.note.CPU > 0:
			short.cpu--
		default:
			continue
		}
		m := l.mark(u.Name)
		m.going, m.unwanted = true, l.now.Add(-l.cfg.Grace)
		l.sweep(u.seen)
	}
}

// keepWarm is what is missing of the units that are kept ready, as far as there is
// room that no job waits for, and removes those that are too many.
func (l *look) keepWarm(slots int, short shortage) []wanted {
	n := l.warm(l.spec)
	var ready int
	for _, u := range l.idle {
		if l.mark(u.Name).going {
			continue
		}
		fresh := u.Job == "" && !l.mark(u.Name).used
		switch {
		case fresh && (*u.note != *n || ready >= l.spec.Warm):
			l.mark(u.Name).going = true
			l.sweep(u.seen)
		case u.note.CPU == n.CPU && u.note.MemoryMB == n.MemoryMB && u.note.GPU == n.GPU:
			ready++
		}
	}
	if short.slots > 0 || short.memory > 0 && n.MemoryMB > 0 || short.cpu > 0 && n.CPU > 0 {
		return nil
	}
	if l.cold.After(l.now) {
		l.due(l.cold)
		return nil
	}
	var all []wanted
	for ; ready < l.spec.Warm && slots > 0; ready++ {
		if memory, cpu := l.lacks(n.amount()); memory || cpu {
			break
		}
		slots--
		l.promised.add(n.amount())
		all = append(all, wanted{unit: StandingName(), note: n})
	}
	return all
}

// idle is a standing unit without a job.
type idle struct {
	seen
	note *note
}

// sortIdle puts those first that run, and among them those that have had a job: the
// others stay as ready as they are.
func (l *look) sortIdle() {
	rank := func(u idle) string {
		return strconv.FormatBool(u.State != Running) + strconv.FormatBool(u.Job == "" && !l.mark(u.Name).used) + u.Name
	}
	slices.SortFunc(l.idle, func(a, b idle) int { return cmp.Compare(rank(a), rank(b)) })
}
