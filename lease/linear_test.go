package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/everdict/everdict/lease"
)

// call is one operation of a client, and reply what it was answered. They are data, so that a crash test can send them to
// another process.
type call struct {
	ID      int64
	Op      string // enqueue pull start settle return cancel get
	Job     string `json:",omitempty"`
	Attempt int64  `json:",omitempty"`
	Token   string `json:",omitempty"`
	Runner  string `json:",omitempty"`
	Request string `json:",omitempty"`
}

type reply struct {
	ID      int64
	Result  string // ok exists stale already unknown state settled stopping none, or lost: the coordinator died over it
	Job     string `json:",omitempty"`
	Attempt int64  `json:",omitempty"`
	Token   string `json:",omitempty"`
	State   lease.State
	Error   string `json:",omitempty"`
}

// perform carries out a call on a queue.
func perform(ctx context.Context, q *lease.Queue, c call) reply {
	r := reply{ID: c.ID, Result: "ok", Job: c.Job, Attempt: c.Attempt, Token: c.Token}
	ref := lease.Ref{Job: c.Job, Attempt: c.Attempt, Token: c.Token}
	var err error
	switch c.Op {
	case "enqueue":
		err = q.Enqueue(ctx, lease.Job{ID: c.Job, Workspace: "w", Pool: "p", Payload: []byte(c.Job)})
	case "pull":
		var l lease.Lease
		l, err = q.Pull(ctx, lease.PullRequest{RequestID: c.Request, Runner: plain(c.Runner)})
		r.Job, r.Attempt, r.Token = l.Job, l.Attempt, l.Token
		if err == nil && string(l.Payload) != l.Job {
			r.Error = fmt.Sprintf("payload %q of %s", l.Payload, l.Job)
		}
	case "start":
		err = q.Started(ctx, ref)
	case "settle":
		err = q.Settle(ctx, ref, lease.Result{Outcome: lease.Succeeded})
	case "return":
		var d lease.Disposition
		if d, err = q.GiveBack(ctx, ref, lease.Return{}); d.State == lease.Settled {
			r.Result = "settled"
		}
	case "cancel":
		var settled bool
		settled, err = q.Cancel(ctx, c.Job, "")
		r.Result = "stopping"
		if settled {
			r.Result = "settled"
		}
	case "get":
		var s lease.Status
		s, err = q.Get(ctx, c.Job)
		r.State, r.Attempt = s.State, s.Attempt
	}
	var state *lease.StateError
	_, stale := lease.IsStale(err)
	switch {
	case err == nil:
	case errors.Is(err, lease.ErrExists):
		r.Result = "exists"
	case errors.Is(err, lease.ErrAlreadySettled):
		r.Result = "already"
	case errors.Is(err, lease.ErrUnknownJob):
		r.Result = "unknown"
	case errors.Is(err, context.Canceled), errors.Is(err, lease.ErrClosed), errors.Is(err, lease.ErrSuperseded):
		r.Result = "none"
	case stale:
		r.Result = "stale"
	case errors.As(err, &state):
		r.Result = "state"
	default:
		r.Error = err.Error()
	}
	return r
}

// jobState is the sequential specification of one job.
type jobState struct {
	known    bool
	state    lease.State
	attempt  int64
	stopping bool
	by       int64
}

// step returns what a job in state s may be after c was answered with r; nothing if it cannot have been answered so. An
// operation whose answer was lost may have had any of its effects, or none.
func step(s jobState, c call, r reply) []jobState {
	lost := r.Result == "lost"
	var next []jobState
	if lost {
		next = append(next, s)
	}
	may := func(result string, after jobState) {
		if lost || r.Result == result {
			next = append(next, after)
		}
	}
	settled := func(by int64) jobState {
		after := s
		after.state, after.stopping, after.by = lease.Settled, false, by
		return after
	}
	holds := s.known && s.state == lease.Leased && s.attempt == r.Attempt
	refused := "stale"
	if s.known && s.state == lease.Settled && s.by == r.Attempt {
		refused = "already"
	}
	switch c.Op {
	case "enqueue":
		if s.known {
			may("exists", s)
		} else {
			may("ok", jobState{known: true})
		}
	case "pull":
		if s.known && s.state == lease.Queued && r.Attempt == s.attempt+1 {
			may("ok", jobState{known: true, state: lease.Leased, attempt: r.Attempt})
		}
	case "start":
		if holds {
			may("ok", s)
		} else {
			may(refused, s)
		}
	case "settle":
		if holds {
			may("ok", settled(r.Attempt))
		} else {
			may(refused, s)
		}
	case "return":
		switch {
		case !holds:
			may(refused, s)
		case s.stopping:
			may("settled", settled(0))
		default:
			may("ok", jobState{known: true, attempt: s.attempt})
		}
	case "cancel":
		switch {
		case !s.known:
			may("unknown", s)
		case s.state == lease.Settled:
			may("state", s)
		case s.state == lease.Leased:
			// It settles at once if its holder has not been heard of since the coordinator started.
			stopping := s
			stopping.stopping = true
			may("stopping", stopping)
			may("settled", settled(0))
		default:
			// A pull may have leased it, whose answer was lost, and which is answered with another job when it is repeated.
			unseen := settled(0)
			unseen.attempt++
			may("settled", settled(0))
			may("settled", unseen)
		}
	case "get":
		if !s.known {
			may("unknown", s)
		} else if r.State == s.state && r.Attempt == s.attempt {
			may("ok", s)
		}
	}
	return next
}

var specification = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byJob := make(map[string][]porcupine.Operation)
		for _, op := range history {
			job := op.Output.(reply).Job
			byJob[job] = append(byJob[job], op)
		}
		return slices.Collect(maps.Values(byJob))
	},
	Init: func() []any { return []any{jobState{}} },
	Step: func(s, in, out any) []any {
		var next []any
		for _, after := range step(s.(jobState), in.(call), out.(reply)) {
			next = append(next, after)
		}
		return next
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

var jobModel = specification.ToModel()

// drive has submitters and workers use a queue through do until every job has settled, and returns the history.
func drive(t *testing.T, jobs, submitters, workers int, do func(ctx context.Context, c call) reply) []porcupine.Operation {
	t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	var ids atomic.Int64
	settled := make(map[string]bool)
	ctx, finish := context.WithCancel(t.Context())
	defer finish()
	begin := time.Now()
	send := func(client int, c call) reply {
		c.ID = ids.Add(1)
		called := time.Since(begin)
		r := do(ctx, c)
		for c.Op == "pull" && r.Result == "lost" { // its request id makes it one operation, however often it is sent
			r = do(ctx, c)
		}
		returned := time.Since(begin)
		if r.Error != "" {
			t.Errorf("%+v: %s", c, r.Error)
			finish()
		}
		if r.Result == "none" { // a wait that ended, or the end of the test: nothing was said
			return r
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: c, Output: r, Call: int64(called), Return: int64(returned)})
		if r.Result == "settled" || r.Result == "state" || r.Result == "already" || (c.Op == "settle" && r.Result == "ok") || r.State == lease.Settled {
			settled[r.Job] = true
		}
		if len(settled) == jobs {
			finish()
		}
		return r
	}
	run := func(client int, c call) reply {
		for {
			if r := send(client, c); r.Result != "lost" {
				return r
			}
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for client := range submitters {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(client)))
			for {
				n := next.Add(1)
				if n > int64(jobs) {
					return
				}
				id := fmt.Sprintf("j%04d", n)
				run(client, call{Op: "enqueue", Job: id})
				other := fmt.Sprintf("j%04d", max(1, n-rnd.Int64N(8)))
				run(client, call{Op: [...]string{"get", "get", "enqueue", "cancel"}[rnd.IntN(4)], Job: other})
			}
		})
	}
	for w := range workers {
		wg.Go(func() {
			client := submitters + w
			rnd := rand.New(rand.NewPCG(2, uint64(w)))
			var before reply
			for i := 0; ctx.Err() == nil; i++ {
				runner := fmt.Sprintf("r%d", w)
				held := run(client, call{Op: "pull", Runner: runner, Request: fmt.Sprintf("%s-%d", runner, i)})
				if held.Result != "ok" {
					continue
				}
				act := func(op string, r reply) {
					got := run(client, call{Op: op, Job: r.Job, Attempt: r.Attempt, Token: r.Token})
					if got.Result == "stale" {
						// A return that settled a cancelled job may have been answered to nobody.
						run(client, call{Op: "get", Job: r.Job})
					}
				}
				act("start", held)
				if before.Job != "" && rnd.IntN(3) == 0 {
					act("settle", before) // an old attempt
				}
				if rnd.IntN(3) == 0 {
					act("return", held)
				} else {
					act("settle", held)
				}
				if rnd.IntN(4) == 0 {
					act("settle", held)
				}
				before = held
			}
		})
	}
	wg.Wait()
	return history
}

func checkLinear(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	result, _ := porcupine.CheckOperationsVerbose(jobModel, history, time.Minute)
	if result == porcupine.Ok {
		return
	}
	for _, part := range jobModel.Partition(history) {
		if porcupine.CheckOperations(jobModel, part) {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range part {
			t.Logf("%8d..%8d us, client %2d: %s", op.Call/1000, op.Return/1000, op.ClientId, jobModel.DescribeOperation(op.Input, op.Output))
		}
		t.Fatalf("the history of a job is %s linearizable", map[porcupine.CheckResult]string{porcupine.Illegal: "not", porcupine.Unknown: "not known to be"}[result])
	}
	t.Fatalf("%s", result)
}

// TestP2_P4_Linearizable checks a concurrent history: every answer is as if the operations had happened one by one.
func TestP2_P4_Linearizable(t *testing.T) {
	t.Parallel()
	q := openQueue(t, openDB(t), lease.Config{Limit: &lease.Limit{}})
	history := drive(t, 600, 8, 12, func(ctx context.Context, c call) reply { return perform(ctx, q, c) })
	t.Logf("%d operations", len(history))
	checkLinear(t, history)
}
