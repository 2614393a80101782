package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// patience is how long a test waits before it gives up.
const patience = 60 * time.Second

// dispatcher is a coordinator that speaks real frames: it offers what it is told to, one
// attempt to a request until that is answered, and remembers what it hears.
type dispatcher struct {
	t      *testing.T
	server *httptest.Server
	offers chan link.Attempt

	mu       sync.Mutex
	changed  chan struct{}
	asked    map[string]link.Attempt // by request, until it is answered
	handed   map[int64]bool          // by epoch: it was offered
	session  *link.CoordinatorSession
	started  map[int64]int // by epoch
	returned map[int64][]link.GiveBack
	results  map[int64]int
	last     protocol.CaseResult // that came
	greeted  []link.HeldLease    // what the last hello named
	renewed  []link.HeldLease    // what the last heartbeat named
	deaf     bool                // it takes no evidence
}

func newDispatcher(t *testing.T) *dispatcher {
	d := &dispatcher{t: t, offers: make(chan link.Attempt, 16), changed: make(chan struct{}), asked: map[string]link.Attempt{}, handed: map[int64]bool{},
		started: map[int64]int{}, returned: map[int64][]link.GiveBack{}, results: map[int64]int{}}
	acceptor, err := link.NewAcceptor(link.AcceptConfig{Handler: d, Authenticate: func(context.Context, *http.Request, link.Secret) (link.Principal, error) {
		return link.Principal{Runner: "rnr_1"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.server = httptest.NewServer(acceptor)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := acceptor.Shutdown(ctx, 0); err != nil {
			t.Errorf("shut the acceptor down: %v", err)
		}
		d.server.Close()
	})
	return d
}

// offer offers an attempt of the epoch.
func (d *dispatcher) offer(epoch int64) {
	job, err := json.Marshal(protocol.Job{RunID: "run_1", Workspace: "w",
		Case:    protocol.Case{ID: "c1", Task: "wait", TimeoutSec: 600, Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}},
		Harness: protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "scripted", Version: "1"}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.offers <- link.Attempt{AttemptRef: link.AttemptRef{Run: "run_1", Job: "job_1", Epoch: epoch, Token: "t"}, TTL: link.Duration(time.Hour), Payload: job}
}

// note changes what is remembered.
func (d *dispatcher) note(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// until waits until what is remembered is so.
func (d *dispatcher) until(what string, ok func() bool) {
	d.t.Helper()
	late := time.After(patience)
	for {
		d.mu.Lock()
		is, changed := ok(), d.changed
		d.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-late:
			d.mu.Lock()
			defer d.mu.Unlock()
			d.t.Fatalf("waited in vain: %s; started %v, returned %v, results %v", what, d.started, d.returned, d.results)
		}
	}
}

func (d *dispatcher) Hello(_ context.Context, s *link.CoordinatorSession, h link.Hello) (link.Welcome, error) {
	d.note(func() { d.session, d.greeted = s, h.Leases })
	return link.Welcome{Leases: stand(h.Leases)}, nil
}

func (d *dispatcher) Heartbeat(_ context.Context, _ *link.CoordinatorSession, hb link.Heartbeat) (link.HeartbeatAck, error) {
	d.note(func() { d.renewed = hb.Leases })
	return link.HeartbeatAck{Leases: stand(hb.Leases)}, nil
}

func stand(held []link.HeldLease) (vs []link.LeaseVerdict) {
	for _, h := range held {
		vs = append(vs, link.LeaseVerdict{Run: h.Run, Job: h.Job, Epoch: h.Epoch, Standing: link.Stands, TTL: link.Duration(time.Hour)})
	}
	return vs
}

func (d *dispatcher) Pull(ctx context.Context, _ *link.CoordinatorSession, req link.PullRequest, answer func(*link.Attempt, error)) {
	go func() {
		d.mu.Lock()
		a, again := d.asked[req.Request]
		d.mu.Unlock()
		if again {
			answer(&a, nil)
			return
		}
		select {
		case a = <-d.offers:
			d.note(func() { d.asked[req.Request] = a; d.handed[a.Epoch] = true })
			answer(&a, nil)
		case <-ctx.Done():
			answer(nil, ctx.Err())
		}
	}()
}

// answered spends the request that an attempt was the answer to.
func (d *dispatcher) answered(ref link.AttemptRef) {
	for request, a := range d.asked {
		if a.AttemptRef == ref {
			delete(d.asked, request)
		}
	}
}

func (d *dispatcher) Started(_ context.Context, _ *link.CoordinatorSession, ref link.AttemptRef) (link.Standing, error) {
	d.note(func() { d.answered(ref); d.started[ref.Epoch]++ })
	return link.Stands, nil
}

func (d *dispatcher) GiveBack(_ context.Context, _ *link.CoordinatorSession, ref link.AttemptRef, why link.GiveBack) (link.Standing, error) {
	d.note(func() { d.answered(ref); d.returned[ref.Epoch] = append(d.returned[ref.Epoch], why) })
	return link.Stands, nil
}

func (d *dispatcher) Evidence(_ context.Context, _ *link.CoordinatorSession, ref link.AttemptRef) (link.EvidenceSink, link.EvidenceReady, error) {
	d.mu.Lock()
	deaf := d.deaf
	d.mu.Unlock()
	if deaf {
		return nil, link.EvidenceReady{}, errors.New("the evidence store is full")
	}
	return &results{d, ref.Epoch}, link.EvidenceReady{Standing: link.Stands}, nil
}

func (d *dispatcher) Ask(context.Context, *link.CoordinatorSession, link.Ask) (link.Answer, error) {
	return link.Answer{}, errors.New("nobody is asked")
}
func (d *dispatcher) Status(context.Context, *link.CoordinatorSession, link.Status) {}
func (d *dispatcher) Drain(context.Context, *link.CoordinatorSession, link.Drain)   {}
func (d *dispatcher) Closed(*link.CoordinatorSession, error)                        {}

// results takes an attempt's evidence and counts its results.
type results struct {
	d     *dispatcher
	epoch int64
}

func (s *results) Write(context.Context, string, int64, []byte) error { return nil }
func (s *results) Close()                                             {}
func (s *results) Result(_ context.Context, doc []byte) (link.ResultAck, error) {
	var result protocol.CaseResult
	if err := json.Unmarshal(doc, &result); err != nil {
		return link.ResultAck{}, err
	}
	s.d.note(func() { s.d.results[s.epoch]++; s.d.last = result })
	return link.ResultAck{Status: link.ResultAccepted}, nil
}

// waiting is a harness that runs until it is told to end, or is stopped.
type waiting struct {
	begun   chan struct{} // one for each run
	end     chan struct{}
	outcome harness.Outcome
}

func (w *waiting) Install(context.Context, harness.Env) error { return nil }

func (w *waiting) Run(ctx context.Context, _ harness.Env) (harness.Outcome, error) {
	w.begun <- struct{}{}
	select {
	case <-w.end:
		return w.outcome, nil
	case <-ctx.Done():
		return harness.Outcome{}, context.Cause(ctx)
	}
}

// world is a runner with its coordinator.
type world struct {
	*dispatcher
	r       *Runner
	harness *waiting
	events  chan Event
	// end ends Run's context; ran has what it returned, and over is closed then.
	end  context.CancelFunc
	ran  error
	over chan struct{}
}

func newWorld(t *testing.T, prepare ...func(*Runner)) *world {
	t.Helper()
	return newWorldOf(newDispatcher(t), prepare...)
}

func newWorldOf(d *dispatcher, prepare ...func(*Runner)) *world {
	t := d.t
	t.Helper()
	w := &world{dispatcher: d, harness: &waiting{begun: make(chan struct{}, 1024), end: make(chan struct{})}, events: make(chan Event, 4096), over: make(chan struct{})}
	dir := t.TempDir()
	w.r = New(Config{
		URL: w.server.URL, Credential: link.Secret("rnr_" + t.Name()), StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"),
		Capabilities: []string{}, Driver: fake.New(fake.Config{}), DrainTimeout: patience, DeliverTimeout: patience,
		Lookup:  func(*protocol.HarnessSpec) (harness.Harness, error) { return w.harness, nil },
		Observe: func(e Event) { w.events <- e },
	})
	for _, f := range prepare {
		f(w.r)
	}
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	go func() {
		w.ran = w.r.Run(ctx)
		close(w.over)
	}()
	t.Cleanup(func() {
		end()
		w.wait("the runner to end", w.over)
	})
	return w
}

func (w *world) wait(what string, c <-chan struct{}) {
	w.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		w.t.Fatalf("waited in vain: %s", what)
	}
}

// saw waits for an event.
func saw[E Event](w *world) {
	w.t.Helper()
	late := time.After(patience)
	for {
		select {
		case e := <-w.events:
			if _, ok := e.(E); ok {
				return
			}
		case <-late:
			w.t.Fatalf("waited in vain for a %T", *new(E))
		}
	}
}

// held makes the runner hold an offer that has come and is not begun: came says so, and
// what goOn is closed with it goes on.
func held() (prepare func(*Runner), came, goOn chan struct{}) {
	came, goOn = make(chan struct{}), make(chan struct{})
	var first sync.Once
	return func(r *Runner) {
		r.hesitate = func() {
			first.Do(func() {
				close(came)
				<-goOn
			})
		}
	}, came, goOn
}

// What stops, pauses or ends a runner while an offer is between the wire and the attempts
// that run finds it all the same: it does not begin, and is given back as one that has not.
func TestStopMeetsAnOfferThatIsBeingBegun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act  func(*world)
		want string // the reason that it is given back with
		ends bool   // the runner ends by it
		text string // of the reason; empty: any
	}{
		"stop now":        {act: func(w *world) { w.r.StopNow("enough") }, want: "paused", text: "enough"},
		"pause":           {act: func(w *world) { w.r.Pause("lunch") }, want: "paused", text: "lunch"},
		"stop and resume": {act: func(w *world) { w.r.StopNow("enough"); w.r.Resume() }, want: "paused"},
		"drain":           {act: func(w *world) { w.r.Drain() }, want: "draining", ends: true},
		"drain if idle": {act: func(w *world) {
			if !w.r.DrainIdle() {
				w.t.Error("a runner that works on nothing did not drain")
			}
		}, want: "draining", ends: true},
		"unpair":        {act: func(w *world) { w.r.StopNow("gone"); w.end(); w.wait("the drain", w.r.draining) }, want: "draining", ends: true},
		"quit by force": {act: func(w *world) { w.end(); w.wait("the drain", w.r.draining) }, want: "draining", ends: true},
		"nothing":       {act: func(*world) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare, came, goOn := held()
			w := newWorld(t, prepare)
			w.offer(1)
			w.wait("the offer", came)
			c.act(w)
			close(goOn)
			if c.want == "" {
				w.wait("the job", w.harness.begun)
				close(w.harness.end)
				w.until("its start and its result", func() bool { return w.started[1] == 1 && w.results[1] == 1 && len(w.returned[1]) == 0 })
				return
			}
			w.until("the offer comes back, or its start", func() bool { return len(w.returned[1]) > 0 || w.started[1] > 0 })
			w.mu.Lock()
			got, started := w.returned[1], w.started[1]
			w.mu.Unlock()
			if len(got) != 1 || got[0].Reason != c.want || got[0].Started || started != 0 || c.text != "" && got[0].Text != c.text {
				t.Errorf("given back: %+v, started %d times; want once, unstarted, for %s", got, started, c.want)
			}
			if c.ends {
				w.wait("the runner to end", w.over)
				if w.ran != nil {
					t.Errorf("the runner ended with %v", w.ran)
				}
			} else { // the slot is not lost
				w.r.Resume()
				w.offer(2)
				w.wait("the next job", w.harness.begun)
				close(w.harness.end)
				w.until("its result", func() bool { return w.results[2] == 1 })
			}
			want := 1
			if c.ends {
				want = 0
			}
			if n := w.r.Taken(); n != want {
				t.Errorf("%d attempts were begun, want %d", n, want)
			}
			w.until("there is nothing more to hear of it", func() bool { return w.started[1] == 0 && w.results[1] == 0 && len(w.returned[1]) == 1 })
		})
	}
}

// An offer whose session ends before it is begun counts as lost: it is asked for again, by
// the same request, and begun once.
func TestOfferOfASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	prepare, came, goOn := held()
	w := newWorld(t, prepare)
	w.offer(1)
	w.wait("the offer", came)
	w.r.mu.Lock()
	s := w.r.session
	w.r.mu.Unlock()
	w.mu.Lock()
	theirs := w.session
	w.mu.Unlock()
	theirs.Close(link.CloseReason{Code: link.CloseNormal})
	w.wait("the runner to see the session's end", s.Done())
	close(goOn)
	saw[SessionLost](w)
	if n := w.r.Taken(); n != 0 {
		t.Errorf("without a session %d attempts were begun, want none", n)
	}
	w.r.Redial()
	w.wait("the job", w.harness.begun)
	close(w.harness.end)
	w.until("its result", func() bool { return w.results[1] == 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started[1] != 1 || len(w.returned[1]) != 0 || w.r.Taken() != 1 {
		t.Errorf("started %d times, given back %v, %d begun; want it begun once", w.started[1], w.returned[1], w.r.Taken())
	}
}

// A runner that works is not drained as idle, and says when it can be.
func TestDrainIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(1)
	w.wait("the job", w.harness.begun)
	if w.r.DrainIdle() || closed(w.r.draining) {
		t.Fatal("a runner that works was drained as idle")
	}
	w.harness.end <- struct{}{}
	saw[Idle](w)
	w.offer(2) // it goes on
	w.wait("the next job", w.harness.begun)
	w.harness.end <- struct{}{}
	saw[Idle](w)
	if !w.r.DrainIdle() {
		t.Fatal("a runner that works on nothing did not drain")
	}
	w.wait("the runner to end", w.over)
	if w.ran != nil {
		t.Errorf("the runner ended with %v", w.ran)
	}
	w.until("both results", func() bool { return w.results[1] == 1 && w.results[2] == 1 })
}

// A runner that waits for work does not give up with work at its door.
func TestIdleRunnerWithAnOfferAtItsDoor(t *testing.T) {
	t.Parallel()
	drained := make(chan bool, 1)
	w := newWorld(t, func(r *Runner) {
		r.hesitate = func() { drained <- r.drainIf(r.unused) }
	})
	w.offer(1)
	w.wait("the job", w.harness.begun)
	if <-drained {
		t.Error("the runner drained itself with an offer in its hands")
	}
	close(w.harness.end)
	w.until("its result", func() bool { return w.results[1] == 1 })
}

// Whatever crosses what: an attempt either begins, and is given back as one that has, or is
// given back as one that has not (P3); and with the runner it is over.
func TestStopsCrossOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rounds = 40
	for epoch := int64(1); epoch <= rounds; epoch++ {
		w.offer(epoch)
		w.until("it is offered", func() bool { return w.handed[epoch] })
		if epoch == rounds { // what has not come yet is not heard of any more
			w.end()
			break
		}
		w.r.StopNow("enough")
		w.until("it is given back", func() bool { return len(w.returned[epoch]) > 0 })
		w.r.Resume()
	}
	w.wait("the runner to end", w.over)
	w.mu.Lock()
	defer w.mu.Unlock()
	begun := 0
	for epoch, back := range w.returned {
		if len(back) != 1 || !back[0].Started && w.started[epoch] > 0 {
			t.Errorf("attempt %d was started %d times and given back %+v", epoch, w.started[epoch], back)
		}
		if back[0].Started {
			begun++
		}
	}
	if n := w.r.Taken(); n != begun {
		t.Errorf("%d attempts were begun, and %d given back as such", n, begun)
	}
}
