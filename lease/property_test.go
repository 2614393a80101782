package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// TestP2_P3_P4_Model drives the queue with random operations, lost answers, silent runners and crashes under a fake clock,
// and holds every event, every answer and every rest against the model.
func TestP2_P3_P4_Model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			w := newWorld(rt)
			defer w.end()
			rt.Repeat(map[string]func(*rapid.T){
				"":         w.check,
				"enqueue":  w.enqueue,
				"enqueue2": w.enqueue,
				"batch":    w.enqueueAll,
				"pull":     w.pull,
				"pull2":    w.pull,
				"repeat":   w.repeatPull,
				"retool":   w.retool,
				"withdraw": w.withdraw,
				"start":    w.start,
				"settle":   w.settleOne,
				"return":   w.giveBack,
				"renew":    w.renew,
				"adopt":    w.adopt,
				"leave":    w.leave,
				"fence":    w.fence,
				"person":   w.person,
				"time":     w.advance,
				"crash":    w.crash,
			})
		})
	})
}

func (w *world) drawJob(t *rapid.T) lease.Job {
	w.n++
	j := lease.Job{
		ID:        fmt.Sprintf("run_%03d", w.n),
		Workspace: rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(t, "workspace"),
		Pool:      rapid.SampledFrom([]string{"a/self", "a/auto", "shared"}).Draw(t, "pool"),
		Class:     rapid.SampledFrom([]lease.Class{lease.Interactive, lease.Batch}).Draw(t, "class"),
		Payload:   []byte(fmt.Sprintf("payload %d", w.n)),
		Requirements: rapid.SampledFrom([]lease.Requirements{
			{}, {}, {Capabilities: []string{"docker"}}, {Capabilities: []string{"gpu", "docker"}}, {MemoryMB: 400}, {MemoryMB: 700},
			{CPU: 800}, {CPU: 1500}, {MemoryMB: 600, CPU: 1300},
			{OS: "linux", Arch: "arm64"},
		}).Draw(t, "requirements"),
		QueueDeadline: rapid.SampledFrom([]time.Duration{20 * time.Second, 5 * time.Minute, time.Hour}).Draw(t, "deadline"),
		MaxAttempts:   rapid.IntRange(1, 3).Draw(t, "attempts"),
	}
	if rapid.IntRange(0, 5).Draw(t, "parked") == 0 {
		j.Parked = "waits for approval"
	}
	return j
}

// refusing is a hook that writes something first, so that a refusal that leaves anything behind is seen.
func refusing(tx *sqlite.Tx, ev *lease.Event) error {
	if _, err := tx.Exec(`UPDATE lease_job SET attempt = 1000`); err != nil {
		return err
	}
	return errHook
}

func (w *world) options(t *rapid.T) ([]lease.Option, bool) {
	switch rapid.IntRange(0, 4).Draw(t, "hook") {
	case 0:
		return []lease.Option{lease.With(refusing)}, true
	case 1:
		return []lease.Option{lease.With(func(*sqlite.Tx, *lease.Event) error { return nil })}, false
	}
	return nil, false
}

func (w *world) enqueue(t *rapid.T) {
	j := w.drawJob(t)
	opts, refuse := w.options(t)
	if !refuse {
		w.model.jobs[j.ID] = &modelJob{Job: j}
	}
	err := w.q.Enqueue(context.Background(), j, opts...)
	if refuse != errors.Is(err, errHook) || (err != nil && !refuse) {
		t.Fatalf("enqueue with refusal %t: %v", refuse, err)
	}
	if refuse {
		return
	}
	if err := w.q.Enqueue(context.Background(), j); !errors.Is(err, lease.ErrExists) {
		t.Fatalf("enqueue of the same id again: %v", err)
	}
}

func (w *world) enqueueAll(t *rapid.T) {
	jobs := []lease.Job{w.drawJob(t), w.drawJob(t), w.drawJob(t)}
	broken := rapid.Bool().Draw(t, "broken")
	if broken {
		jobs[2].ID = jobs[0].ID
	} else {
		for _, j := range jobs {
			w.model.jobs[j.ID] = &modelJob{Job: j}
		}
	}
	if err := w.q.EnqueueAll(context.Background(), jobs); broken != errors.Is(err, lease.ErrExists) || (err != nil && !broken) {
		t.Fatalf("enqueue of three, broken %t: %v", broken, err)
	}
}

func (w *world) ask(runner, request string) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pulling{runner: runner, cancel: cancel, answer: make(chan pulled, 1)}
	w.pulls[request] = p
	r := w.runners[runner]
	go func() {
		l, err := w.q.Pull(ctx, lease.PullRequest{RequestID: request, Runner: r})
		p.answer <- pulled{l, err}
	}()
	w.observe()
}

func (w *world) pull(t *rapid.T) {
	w.n++
	w.ask(w.runner(t), fmt.Sprintf("req_%d", w.n))
}

// repeatPull asks again with the request id of a lost answer: the same attempt must come, if it still stands.
func (w *world) repeatPull(t *rapid.T) {
	if len(w.lost) == 0 {
		t.Skip("no answer was lost")
	}
	i := rapid.IntRange(0, len(w.lost)-1).Draw(t, "lost")
	h := w.lost[i]
	w.lost = slices.Delete(w.lost, i, i+1)
	if w.pulls[h.request] != nil || w.model.fenced[h.runner] {
		t.Skip("it is being asked for, or nobody is there to ask")
	}
	stands := w.stands(h.Ref)
	peeked, offered, err := w.q.PeekOffered(context.Background(), h.runner, h.request)
	if err != nil || offered != stands || (offered && peeked.Ref != h.Ref) {
		t.Fatalf("peek of %+v, standing %t: %+v, %t, %v", h, stands, peeked, offered, err)
	}
	known := len(w.refs) + len(w.lost)
	w.ask(h.runner, h.request)
	if !stands {
		return
	}
	if w.pulls[h.request] != nil || len(w.refs)+len(w.lost) != known+1 {
		t.Fatalf("the request of the standing lease %+v was not answered", h)
	}
	again := append(slices.Clone(w.refs), w.lost...)
	if !slices.Contains(again, h) {
		t.Fatalf("asking again with %s did not answer %+v", h.request, h)
	}
}

// retool gives a runner that waits other capabilities: it says so in its session, else with a pull that it asks again.
func (w *world) retool(t *rapid.T) {
	if len(w.pulls) == 0 {
		t.Skip("nobody waits")
	}
	request := rapid.SampledFrom(slices.Sorted(maps.Keys(w.pulls))).Draw(t, "request")
	p := w.pulls[request]
	r := w.runners[p.runner]
	r.Capabilities = rapid.SampledFrom([][]string{nil, {"docker"}, {"docker", "gpu"}}).Draw(t, "capabilities")
	w.runners[p.runner] = r
	if w.sessions[p.runner] {
		if err := w.q.SetRunner(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		return
	}
	w.ask(p.runner, request)
	p.cancel() // it was told that another has come in its place
}

// runner is one that is trusted.
func (w *world) runner(t *rapid.T) string { return rapid.SampledFrom(w.ids).Draw(t, "runner") }

func (w *world) withdraw(t *rapid.T) {
	if len(w.pulls) == 0 {
		t.Skip("nobody waits")
	}
	w.pulls[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pulls))).Draw(t, "request")].cancel()
}

func (w *world) ref(t *rapid.T) holding {
	if len(w.refs) == 0 {
		t.Skip("nobody holds anything")
	}
	// Mostly a recent one; an old one is stale.
	i := len(w.refs) - 1 - rapid.IntRange(0, min(len(w.refs)-1, 9)).Draw(t, "held")
	return w.refs[i]
}

func (w *world) stands(r lease.Ref) bool {
	j := w.model.jobs[r.Job]
	return j.state == lease.Leased && j.attempt == r.Attempt && !j.fenced
}

// verdict checks the answer to an operation of a holder.
func (w *world) verdict(t *rapid.T, h holding, refuse bool, err error) (done bool) {
	j := w.model.jobs[h.Job]
	_, stale := lease.IsStale(err)
	switch {
	case w.stands(h.Ref) && refuse && errors.Is(err, errHook):
	case w.stands(h.Ref) && !refuse && err == nil:
		return true
	case !w.stands(h.Ref) && j.settledBy == h.Attempt && errors.Is(err, lease.ErrAlreadySettled):
	case !w.stands(h.Ref) && j.settledBy != h.Attempt && stale:
	default:
		t.Fatalf("%+v, standing %t, refusal %t, was answered %v; the model has %+v", h.Ref, w.stands(h.Ref), refuse, err, j)
	}
	return false
}

func (w *world) renewed(j *modelJob) {
	j.seen, j.leaseDeadline, j.restored = time.Now(), time.Now().Add(w.cfg.TTL), false
}

func (w *world) start(t *rapid.T) {
	h := w.ref(t)
	j := w.model.jobs[h.Job]
	opts, refuse := w.options(t)
	refuse = refuse && !j.started // the second acknowledgement runs no hook
	if w.verdict(t, h, refuse, w.q.Started(context.Background(), h.Ref, opts...)) {
		w.renewed(j)
	}
}

func (w *world) settleOne(t *rapid.T) {
	h := w.ref(t)
	if w.stands(h.Ref) && rapid.Bool().Draw(t, "forged") {
		forged := h
		if rapid.Bool().Draw(t, "of the token") {
			forged.Token = "forged"
		} else {
			forged.Attempt++
		}
		if _, stale := lease.IsStale(w.q.Settle(context.Background(), forged.Ref, lease.Result{Outcome: lease.Failed})); !stale {
			t.Fatal("a forged reference settled a job")
		}
	}
	opts, refuse := w.options(t)
	outcome := rapid.SampledFrom([]lease.Outcome{lease.Succeeded, lease.Failed}).Draw(t, "outcome")
	err := w.q.Settle(context.Background(), h.Ref, lease.Result{Outcome: outcome}, opts...)
	if w.verdict(t, h, refuse, err) {
		w.observe()
		if j := w.model.jobs[h.Job]; j.outcome != outcome {
			t.Fatalf("settled as %s, want %s", j.outcome, outcome)
		}
	}
}

func (w *world) giveBack(t *rapid.T) {
	h := w.ref(t)
	j := w.model.jobs[h.Job]
	before := j.failures
	counted := rapid.Bool().Draw(t, "counted")
	opts, refuse := w.options(t)
	d, err := w.q.GiveBack(context.Background(), h.Ref, lease.Return{Reason: "drain", Counted: counted}, opts...)
	if !w.verdict(t, h, refuse, err) {
		return
	}
	w.observe()
	if counted {
		before++
	}
	settles := j.stop != lease.OutcomeNone || before >= j.MaxAttempts
	if settles != (d.State == lease.Settled) || j.failures != before {
		t.Fatalf("giving back, counted %t: %+v; the model has %+v, want %d failures", counted, d, j, before)
	}
}

// renew is the heartbeat of one runner for some of what it holds; the rest of the world is partitioned from it.
func (w *world) renew(t *rapid.T) {
	runner := w.runner(t)
	var refs []lease.Ref
	for _, h := range w.refs {
		if h.runner == runner {
			refs = append(refs, h.Ref)
		}
	}
	answers, err := w.q.Renew(context.Background(), runner, refs)
	if err != nil {
		t.Fatal(err)
	}
	w.standings(t, refs, answers)
}

func (w *world) standings(t *rapid.T, refs []lease.Ref, answers []lease.Standing) {
	if len(answers) != len(refs) {
		t.Fatalf("%d answers to %d leases", len(answers), len(refs))
	}
	for i, a := range answers {
		j := w.model.jobs[refs[i].Job]
		want := lease.Stale
		if w.stands(refs[i]) {
			want = lease.Stands
			if j.stop != lease.OutcomeNone {
				want = lease.Stop
			}
			w.renewed(j)
		}
		if a.Ref != refs[i] || a.Verdict != want || (want != lease.Stale && (a.Parked != j.held || a.Stop != j.stop)) {
			t.Fatalf("renewal of %+v: %+v, want %s; the model has %+v", refs[i], a, want, j)
		}
	}
}

func (w *world) adopt(t *rapid.T) {
	runner := w.runner(t)
	var refs []lease.Ref
	for _, h := range w.refs {
		if h.runner == runner && rapid.Bool().Draw(t, "remembers") {
			refs = append(refs, h.Ref)
		}
	}
	w.sessions[runner] = true
	a, err := w.q.Adopt(context.Background(), w.runners[runner], refs)
	if err != nil {
		t.Fatal(err)
	}
	w.standings(t, refs, a.Held)
	missing := 0
	for _, j := range w.model.jobs {
		if j.state == lease.Leased && j.runner.ID == runner && !slices.ContainsFunc(refs, func(r lease.Ref) bool { return r.Job == j.ID && w.stands(r) }) {
			missing++
		}
	}
	if missing != len(a.Missing) {
		t.Fatalf("adoption of %s misses %+v, want %d", runner, a.Missing, missing)
	}
}

// leave ends a runner's session. What it holds stands, but nobody is there to be asked.
func (w *world) leave(t *rapid.T) {
	runner := w.runner(t)
	delete(w.sessions, runner)
	if err := w.q.RemoveRunner(context.Background(), runner); err != nil {
		t.Fatal(err)
	}
	for _, j := range w.model.jobs {
		if j.state == lease.Leased && j.runner.ID == runner {
			j.seen = time.Time{}
		}
	}
}

// fence takes the trust from a runner for good; another one comes in its place.
func (w *world) fence(t *rapid.T) {
	id := w.runner(t)
	w.model.fenced[id] = true
	if err := w.q.Fence(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	w.observe()
	for _, j := range w.model.jobs {
		if j.state == lease.Leased && j.runner.ID == id && (!j.fenced || j.stop != lease.OutcomeNone) {
			t.Fatalf("after the fence of %s the model has %+v", id, j)
		}
	}
	for request, p := range w.pulls {
		if p.runner == id {
			t.Fatalf("pull %s of %s goes on waiting", request, id)
		}
	}
	next := w.runners[id]
	next.ID += "'"
	w.runners[next.ID] = next
	w.ids[slices.Index(w.ids, id)] = next.ID
}

// person cancels, rejects, parks and resumes.
func (w *world) person(t *rapid.T) {
	if len(w.model.jobs) == 0 {
		t.Skip("no jobs")
	}
	ctx := context.Background()
	j := w.model.jobs[rapid.SampledFrom(slices.Sorted(maps.Keys(w.model.jobs))).Draw(t, "job")]
	opts, refuse := w.options(t)
	var err error
	allowed, silent := false, false
	action := rapid.SampledFrom([]string{"cancel", "reject", "park", "hold", "resume"}).Draw(t, "action")
	held := j.state == lease.Leased && j.held
	switch action {
	case "cancel", "reject":
		allowed = j.state != lease.Settled && (action == "cancel" || j.state == lease.Parked || held)
		lives := j.state == lease.Leased && w.model.holderLives(j, time.Now())
		silent = lives && j.stop != lease.OutcomeNone
		var settled bool
		if action == "cancel" {
			settled, err = w.q.Cancel(ctx, j.ID, "changed my mind", opts...)
		} else {
			settled, err = w.q.Reject(ctx, j.ID, "no", opts...)
		}
		if err == nil && settled == lives {
			t.Fatalf("%s settled %t, the holder lives %t", action, settled, lives)
		}
	case "park":
		allowed = j.state == lease.Queued
		err = w.q.Park(ctx, j.ID, "waits for a person", opts...)
	case "hold":
		h := w.ref(t)
		silent = w.model.jobs[h.Job].held
		err = w.q.ParkLease(ctx, h.Ref, "asks a person", opts...)
		w.verdict(t, h, refuse && !silent, err)
		return
	case "resume":
		allowed = j.state == lease.Parked || held
		err = w.q.Resume(ctx, j.ID, opts...)
	}
	var state *lease.StateError
	switch {
	case !allowed && errors.As(err, &state) && state.State == j.state:
	case allowed && refuse && !silent && errors.Is(err, errHook):
	case allowed && (!refuse || silent) && err == nil:
	default:
		t.Fatalf("%s, allowed %t, refusal %t: %v; the model has %+v", action, allowed, refuse, err, j)
	}
}

func (w *world) advance(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, 29 * time.Second, 31 * time.Second,
		61 * time.Second, 10 * time.Minute}).Draw(t, "for"))
}

// crash goes on with what the files held at this moment, sometimes with a torn write behind the last commit. The old coordinator is ended afterwards, on files that nobody
// looks at again, so nothing that it does in ending can help.
func (w *world) crash(t *rapid.T) {
	w.observe()
	from := w.path()
	w.file++
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "-wal" { // what a commit that nobody was told of had come to
			b = append(b, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "torn")...)
		}
		if err := os.WriteFile(w.path()+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.shut()
	w.mu.Lock()
	w.events = nil
	w.mu.Unlock()
	if rapid.Bool().Draw(t, "stays away") {
		time.Sleep(2 * time.Minute)
	}
	clear(w.sessions)
	w.model.restart(time.Now())
	w.open()
}
