package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// kills is how often a process is killed in the crash test.
const kills = 200

// TestP1_P2_P3_P4_Crashes kills coordinator and runners with SIGKILL, 200 times at
// random moments under load. Every accepted run settles, once; no two attempts of
// a run are ever active together; and what clients saw of submits and states is
// linearizable.
func TestP1_P2_P3_P4_Crashes(t *testing.T) {
	// Alone: it takes the whole machine, and its clocks are short.
	bin, address, work := binary(t), house.FreeAddress(t), t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))

	coordinator := house.Coordinator(t, bin, address, house.QuickFlags...)
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(context.Background()) == nil })
	var runners []*house.Process
	for i := range 2 {
		paired, err := c.Pair(context.Background(), &protocol.PairRequest{Label: fmt.Sprintf("r%d", i), Capabilities: []string{"git"}})
		if err != nil {
			t.Fatal(err)
		}
		runners = append(runners, house.RunnerProcess(t, bin, c.BaseURL(), paired.Token, "--max-concurrent=4"))
	}

	h := &history{client: c, work: work, states: map[string]bool{}}
	load, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() { h.load(load, i) })
	}
	// Wait for a little progress between kills rather than for a time: a slow
	// machine must not see 200 kills of programs that never came up.
	for i := range kills {
		victim := coordinator
		if n := random.IntN(3); n > 0 {
			victim = runners[n-1]
		}
		h.await(load, int64(random.IntN(4)), time.Duration(random.IntN(100))*time.Millisecond)
		victim.Kill()
		victim.Start()
		if i%50 == 49 {
			t.Logf("%d kills, %d accepted, %d seen settled", i+1, h.accepted.Load(), h.settled.Load())
		}
	}
	stop()
	clients.Wait()

	ids := h.ids()
	if len(ids) == 0 {
		t.Fatal("no run was accepted")
	}
	for _, id := range ids {
		house.Eventually(t, id+" settles", func() bool {
			r, err := c.Run(context.Background(), id)
			return err == nil && r.Status.Terminal()
		})
		events, err := c.Events(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		settled := 0
		for _, e := range events {
			if e.Kind == protocol.RunSettled {
				settled++
			}
		}
		if settled != 1 {
			t.Errorf("%s settled %d times: %+v", id, settled, events)
		}
		h.read(context.Background(), 99, id)
	}
	h.checkAttempts(t)
	if res := porcupine.CheckOperations(model, h.operations()); !res {
		t.Error("what the clients saw is not linearizable")
	}
	t.Logf("%d kills, %d runs accepted, %d operations checked", kills, len(ids), len(h.operations()))
}

// history is what clients did and saw.
type history struct {
	client            *client.Client
	work              string
	accepted, settled atomic.Int64
	mu                sync.Mutex
	// changed is closed when a run is accepted or seen to settle.
	changed chan struct{}
	ops     []porcupine.Operation
	known   []string
	states  map[string]bool
}

// input and output of an operation on one run.
type input struct {
	id     string
	submit bool
}

type output struct{ state string }

// model is a run as a client may see it: it exists from its submit on, and once it
// is over it stays as it ended.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRun := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(input).id
			byRun[id] = append(byRun[id], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byRun {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return "absent" },
	Step: func(state, in, out any) (bool, any) {
		was, now := state.(string), out.(output).state
		if in.(input).submit {
			return was == "absent", "open"
		}
		switch was {
		case "absent":
			return false, was // every read names a run whose submit had returned
		case "open":
			return true, now
		default:
			return now == was, was
		}
	},
}

func (h *history) record(client int, in input, out output, from, to time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: from.UnixNano(), Return: to.UnixNano()})
	if in.submit {
		h.known = append(h.known, in.id)
		h.accepted.Add(1)
	} else if out.state != "open" && !h.states[in.id] {
		h.states[in.id] = true
		h.settled.Add(1)
	} else {
		return
	}
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// stuck is when await gives up on progress: what was killed before may be just
// what it waits for.
const stuck = 3 * time.Second

// await returns at a random moment after more runs have been accepted and settled.
func (h *history) await(ctx context.Context, more int64, after time.Duration) {
	timer := time.NewTimer(stuck)
	defer timer.Stop()
	defer func() {
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
	}()
	accepted, settled := h.accepted.Load()+min(more, 1), h.settled.Load()+more
	for h.accepted.Load() < accepted || h.settled.Load() < settled {
		h.mu.Lock()
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// load submits runs and reads them until ctx ends.
func (h *history) load(ctx context.Context, client int) {
	var open []string
	for n := 0; ctx.Err() == nil; n++ {
		if len(open) < 4 {
			req := h.request(n)
			from := time.Now()
			// One try each: a submit whose answer was lost may have been accepted,
			// and nobody knows its name.
			run, err := h.client.Submit(ctx, req)
			if err == nil {
				h.record(client, input{run.RunID, true}, output{"open"}, from, time.Now())
				open = append(open, run.RunID)
			}
		}
		var still []string
		for _, id := range open {
			if state := h.read(ctx, client, id); state == "open" || state == "" {
				still = append(still, id)
			}
		}
		open = still
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (h *history) read(ctx context.Context, client int, id string) string {
	from := time.Now()
	run, err := h.client.Run(ctx, id)
	if err != nil {
		return ""
	}
	state := "open"
	if run.Status.Terminal() {
		state = fmt.Sprintf("%s verdict=%v attempt=%d", run.Status, run.Verdict != nil && *run.Verdict, run.Attempt)
	}
	h.record(client, input{id, false}, output{state}, from, time.Now())
	return state
}

// request is a run whose attempts write down when they are active.
func (h *history) request(n int) *protocol.RunRequest {
	log := filepath.Join(h.work, "$EVERDICT_RUN_ID")
	beat := func(mark string) string { return "echo " + mark + " $EVERDICT_ATTEMPT $(date +%s%N) >> " + log }
	req := house.Scripted(fmt.Sprintf("run %s; for i in 1 2 3 4 5; do sleep 0.0%d; %s; done", beat("beat"), n%5+1, beat("beat")))
	if n%3 == 0 {
		req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"a": "1\n"}}}
	}
	return req
}

func (h *history) ids() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.known...)
}

func (h *history) operations() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]porcupine.Operation(nil), h.ops...)
}

// checkAttempts reads what the jobs wrote down: the signs of life of two attempts
// of one run never interleave (P3).
func (h *history) checkAttempts(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.work, "run_*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		type span struct {
			attempt     string
			first, last int64
		}
		spans := map[string]*span{}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			var mark, attempt string
			var at int64
			if n, _ := fmt.Sscan(scan.Text(), &mark, &attempt, &at); n != 3 {
				continue // the last line of a job that was killed
			}
			s := spans[attempt]
			if s == nil {
				s = &span{attempt: attempt, first: at}
				spans[attempt] = s
			}
			s.last = max(s.last, at)
		}
		f.Close()
		var all []*span
		for _, s := range spans {
			all = append(all, s)
		}
		sort.Slice(all, func(i, j int) bool { return all[i].first < all[j].first })
		for i := 1; i < len(all); i++ {
			if all[i].first < all[i-1].last {
				t.Errorf("%s: attempts %s and %s were active together", filepath.Base(file), all[i-1].attempt, all[i].attempt)
			}
		}
	}
	if len(files) == 0 {
		t.Error("no job has written anything: " + strings.TrimSpace(h.work))
	}
}
