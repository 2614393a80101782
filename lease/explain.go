package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Why a job is where it is, for programs.
type Why string

const (
	// WhyNoRunner: no runner that serves the pool is online.
	WhyNoRunner Why = "no_runner"
	// WhyCapabilities: runners are online, none offers all capabilities.
	WhyCapabilities Why = "capabilities"
	// WhyPlatform: none of those has the operating system and architecture.
	WhyPlatform Why = "platform"
	// WhyTooLarge: none of those has the memory, even when idle.
	WhyTooLarge Why = "too_large"
	// WhyPaused: those that could take it are paused.
	WhyPaused Why = "paused"
	// WhySlots: the pool of every runner that could take it has all slots in use.
	WhySlots Why = "slots"
	// WhyCPU: the pool's CPU budget is in use.
	WhyCPU Why = "cpu"
	// WhyMemory: the pool's memory budget, or the runners' memory, is in use.
	WhyMemory Why = "memory"
	// WhyBehind: others of its workspace are before it.
	WhyBehind Why = "behind"
	// WhyBusy: it is next, and every runner that could take it is busy.
	WhyBusy Why = "busy"
	// WhyRetry: its last attempt failed, and its next is not due yet.
	WhyRetry Why = "retry"
	// WhyParked: it waits for a person.
	WhyParked Why = "parked"
	// WhyStarting: it is leased, and the runner has not acknowledged the start.
	WhyStarting Why = "starting"
	// WhyRunning: it is leased and started.
	WhyRunning Why = "running"
	// WhyAway: it is leased and started, and its runner is not there. Until the lease ends the runner may come back.
	WhyAway Why = "away"
	// WhyFenced: it is leased, and its runner was fenced. It can be leased again when the lease has run out.
	WhyFenced Why = "fenced"
	// WhyStopping: it is leased, and the runner has been asked to stop it.
	WhyStopping Why = "stopping"
	// WhySettled: it is over.
	WhySettled Why = "settled"
)

// Explanation says why a job is where it is. The verdicts on the runners are those of the matcher that leases.
type Explanation struct {
	Job   string
	State State
	Why   Why
	// Sentence for people, in one line, without a full stop.
	Sentence string
	// Deadline at which a queued job settles as Unschedulable; zero otherwise.
	Deadline time.Time
	// RetryAt is when a job can be leased again, for WhyRetry.
	RetryAt time.Time
	// Online counts the runners that serve the pool and are online; Able those of them that could take the job when idle.
	Online, Able int
	// Lacking are the capabilities that no online runner of the pool offers, or, if each is offered by some, all that the
	// job needs; Offered are all that they offer.
	Lacking, Offered []string
	// Home, InUse and Limit are the pool whose slots, MiB or thousandths of a core are in use, for WhySlots, WhyMemory and
	// WhyCPU.
	Home         string
	InUse, Limit int64
	// Ahead counts the jobs of its workspace that go first, up to MaxAhead; for WhyBehind.
	Ahead int
	// Runner and Attempt of a leased job; Outcome of a settled one.
	Runner  string
	Attempt int64
	Outcome Outcome
	// Reason in words that came with the job's last change.
	Reason string
}

// MaxAhead is where Explain stops counting.
const MaxAhead = 1000

// Explain says why a job is queued, or where else it is.
func (q *Queue) Explain(ctx context.Context, job string) (Explanation, error) {
	var x Explanation
	err := q.do(ctx, func(tx *sqlite.Tx) (err error) {
		x, err = q.owner.explain(tx, job)
		return err
	})
	return x, err
}

func (o *owner) explain(tx *sqlite.Tx, job string) (Explanation, error) {
	r, err := loadJob(tx, job)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Job: job, State: r.state, Attempt: r.attempt, Runner: r.runner, Outcome: r.outcome, Reason: r.reason}
	switch r.state {
	case Settled:
		x.Why, x.Sentence = WhySettled, because("settled as "+r.outcome.String(), r.reason)
		return x, nil
	case Parked:
		x.Why, x.Sentence = WhyParked, because("parked", r.reason)
		return x, nil
	case Leased:
		l := o.live[job]
		if l == nil {
			return x, errDiverged
		}
		o.explainLive(&x, l)
		return x, nil
	}
	x.Runner = "" // of the attempt before
	x.Deadline = o.at(r.deadlineAt)
	if r.delayed {
		x.Why, x.RetryAt = WhyRetry, o.at(r.retryAt)
		x.Sentence = because(fmt.Sprintf("retries at %s after", x.RetryAt.Format(time.RFC3339)), r.reason)
		return x, nil
	}
	l, err := o.laneByID(tx, r.lane)
	if err != nil {
		return x, err
	}
	if err := o.explainQueued(tx, &x, l, r.seq); err != nil {
		return x, err
	}
	switch x.Why {
	case WhyNoRunner, WhyCapabilities, WhyPlatform, WhyTooLarge, WhyPaused:
		x.Sentence += "; settles as unschedulable at " + x.Deadline.Format(time.RFC3339)
	}
	return x, nil
}

func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func (o *owner) explainLive(x *Explanation, l *live) {
	switch {
	case l.fenced:
		x.Why, x.Sentence = WhyFenced, fmt.Sprintf("runner %s, which has attempt %d, was revoked; the attempt is given up at %s",
			x.Runner, x.Attempt, o.at(l.due()).Format(time.RFC3339))
	case l.stop != OutcomeNone:
		x.Why, x.Sentence = WhyStopping, because(fmt.Sprintf("runner %s has been asked to stop attempt %d", x.Runner, x.Attempt), l.reason)
	case l.held:
		x.Why, x.Sentence = WhyParked, because(fmt.Sprintf("parked on runner %s", x.Runner), l.reason)
	case !l.started:
		x.Why, x.Sentence = WhyStarting, fmt.Sprintf("leased to runner %s as attempt %d, which must acknowledge the start by %s",
			x.Runner, x.Attempt, o.at(l.startBy).Format(time.RFC3339))
	case !o.online(l.runner, o.now()):
		x.Why, x.Sentence = WhyAway, fmt.Sprintf("runner %s, which has attempt %d, is not connected; the attempt is given up at %s",
			x.Runner, x.Attempt, o.at(l.deadline).Format(time.RFC3339))
	default:
		x.Why, x.Sentence = WhyRunning, fmt.Sprintf("attempt %d runs on runner %s", x.Attempt, x.Runner)
	}
}

// explainQueued asks the matcher about every runner of the pool, and takes the verdict of the one that came closest.
func (o *owner) explainQueued(tx *sqlite.Tx, x *Explanation, l *lane, seq int64) error {
	var serving, able []*runner
	closest := lacksPool
	now := o.now()
	for _, r := range o.runners {
		if !o.online(r, now) || !slices.Contains(r.Serves, l.key.pool) || (r.Job != "" && r.Job != x.Job) {
			continue
		}
		serving = append(serving, r)
		v := r.offers(l)
		if v == fits {
			able = append(able, r)
		}
		if closest == lacksPool || v == fits || (closest != fits && v > closest) {
			closest = v
		}
	}
	byID := func(a, b *runner) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(serving, byID)
	slices.SortFunc(able, byID)
	x.Online, x.Able = len(serving), len(able)
	switch closest {
	case lacksPool:
		x.Why, x.Sentence = WhyNoRunner, "no runner is connected for "+l.key.pool
		return nil
	case lacksCapabilities:
		x.lackCapabilities(l, serving)
		return nil
	case otherPlatform:
		x.Why, x.Sentence = WhyPlatform, fmt.Sprintf("no runner runs %s; %s online: %s", platform(l.key.os, l.key.arch),
			count(len(serving), "runner"), strings.Join(platforms(serving), ", "))
		return nil
	case tooSmall:
		var most int64
		for _, r := range serving {
			if v := r.offers(l); v == tooSmall {
				most = max(most, r.MemoryMB)
			}
		}
		x.Why, x.InUse, x.Limit = WhyTooLarge, l.key.memoryMB, most
		x.Sentence = fmt.Sprintf("needs %d MiB of memory; the largest of %s online has %d MiB", l.key.memoryMB,
			count(len(serving), "runner"), most)
		return nil
	case onPause:
		x.paused(l, serving)
		return nil
	}
	return o.explainWaiting(tx, x, l, seq, able)
}

// paused is for a job that only runners could take which take nothing for now.
func (x *Explanation) paused(l *lane, serving []*runner) {
	var resting []*runner
	for _, r := range serving {
		if r.offers(l) == onPause {
			resting = append(resting, r)
		}
	}
	x.Why = WhyPaused
	x.Sentence = fmt.Sprintf("runner %s takes no runs: %s", resting[0].ID, resting[0].Paused)
	if n := len(resting); n > 1 {
		x.Sentence = fmt.Sprintf("%s that could take it are paused; runner %s: %s", count(n, "runner"), resting[0].ID, resting[0].Paused)
	}
}

// explainWaiting is for a job that some online runner could take.
func (o *owner) explainWaiting(tx *sqlite.Tx, x *Explanation, l *lane, seq int64, able []*runner) error {
	var refusal verdict
	var refused *runner
	for _, r := range able {
		v := r.admits(o.peekHome(r), l)
		if v == fits {
			refused = nil
			break
		}
		if refused == nil {
			refusal, refused = v, r
		}
	}
	if refused != nil {
		h := o.peekHome(refused)
		x.Home = h.name
		switch refusal {
		case slotsInUse:
			x.Why, x.InUse, x.Limit = WhySlots, int64(len(h.live)), int64(h.limit.MaxConcurrent)
			x.Sentence = fmt.Sprintf("waits for a slot: pool %s has %d of %d in use", h.name, x.InUse, x.Limit)
		case budgetInUse:
			x.Why, x.InUse, x.Limit = WhyMemory, h.memory(), h.limit.MemoryMB
			x.Sentence = fmt.Sprintf("waits for memory: pool %s has %d of %d MiB in use and the job declares %d", h.name, x.InUse,
				x.Limit, l.key.memoryMB)
		case coresInUse:
			x.Why, x.InUse, x.Limit = WhyCPU, h.cpu(), h.limit.CPU
			x.Sentence = fmt.Sprintf("waits for CPU: pool %s has %s of %s cores in use and the job declares %s", h.name, Cores(x.InUse),
				Cores(x.Limit), Cores(l.key.cpu))
		default:
			x.Why, x.InUse, x.Limit = WhyMemory, refused.memory(), refused.MemoryMB
			x.Sentence = fmt.Sprintf("waits for memory: runner %s has %d of %d MiB in use and the job declares %d", refused.ID,
				x.InUse, x.Limit, l.key.memoryMB)
		}
		return nil
	}
	ahead, err := o.ahead(tx, l, seq)
	if err != nil {
		return err
	}
	if x.Ahead = ahead; ahead > 0 {
		x.Why = WhyBehind
		n := count(ahead, "run")
		if ahead >= MaxAhead {
			n = fmt.Sprintf("%d or more runs", MaxAhead)
		}
		x.Sentence = fmt.Sprintf("waits behind %s of this workspace", n)
		return nil
	}
	x.Why = WhyBusy
	x.Sentence = fmt.Sprintf("next of this workspace: waits for one of %s to become free", count(len(able), "runner"))
	return nil
}

// peekHome is the runner's home without creating it for good.
func (o *owner) peekHome(r *runner) *home {
	h := o.home(r.Runner.home())
	o.dropHome(h)
	return h
}

// ahead counts the queued jobs of the lane's workspace and pool that go before a job of it.
func (o *owner) ahead(tx *sqlite.Tx, l *lane, seq int64) (int, error) {
	now := o.now()
	late := func(l *lane) (bool, error) {
		head, err := l.head(o, tx)
		if err != nil {
			return false, err
		}
		return o.rank(l, head, now).late, nil
	}
	mine, err := late(l)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, other := range l.pool.lanes {
		if other.space != l.space || other.queued == 0 || n >= MaxAhead {
			continue
		}
		theirs, err := late(other)
		if err != nil {
			return 0, err
		}
		switch {
		case theirs && !mine:
		case !theirs && mine:
			n += other.queued
		default:
			var older int
			if err := tx.QueryRow(countAhead, other.id, seq, MaxAhead).Scan(&older); err != nil {
				return 0, err
			}
			n += older
		}
	}
	return min(n, MaxAhead), nil
}

func (x *Explanation) lackCapabilities(l *lane, serving []*runner) {
	x.Why = WhyCapabilities
	for _, r := range serving {
		x.Offered = append(x.Offered, r.Capabilities...)
	}
	slices.Sort(x.Offered)
	x.Offered = slices.Compact(x.Offered)
	for _, c := range l.caps {
		if !slices.Contains(x.Offered, c) {
			x.Lacking = append(x.Lacking, c)
		}
	}
	together := ""
	if len(x.Lacking) == 0 {
		x.Lacking = slices.Clone(l.caps)
		together = " together"
	}
	online := "1 online runner offers"
	if len(serving) > 1 {
		online = fmt.Sprintf("%d online runners offer", len(serving))
	}
	offered := strings.Join(x.Offered, ", ")
	if offered == "" {
		offered = "nothing"
	}
	x.Sentence = fmt.Sprintf("no runner offers %s%s; %s: %s", strings.Join(x.Lacking, ", "), together, online, offered)
}

// Cores writes thousandths of a core as cores: 1500 as 1.5.
func Cores(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func platform(os, arch string) string {
	return cmp.Or(os, "any system") + "/" + cmp.Or(arch, "any architecture")
}

func platforms(runners []*runner) []string {
	var all []string
	for _, r := range runners {
		all = append(all, cmp.Or(r.OS, "unknown")+"/"+cmp.Or(r.Arch, "unknown"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// whyUnschedulable is the reason that a job settles with at its queue deadline: what Explain would have said.
func (o *owner) whyUnschedulable(tx *sqlite.Tx, r *row) (string, error) {
	l, err := o.laneByID(tx, r.lane)
	if err != nil {
		return "", err
	}
	x := Explanation{Job: r.id}
	if err := o.explainQueued(tx, &x, l, r.seq); err != nil {
		return "", err
	}
	return fmt.Sprintf("queued for %s: %s", dur(r.wait).Round(time.Millisecond), x.Sentence), nil
}
