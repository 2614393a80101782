package agent

import (
	"io"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/protocol"
)

// tailBytes is how much of the end of a log is kept for who looks at it.
const tailBytes = 64 << 10

// Event is something that a runner did or met: one of the types below.
type Event interface{ event() }

type (
	// SessionUp: the coordinator has taken the credential.
	SessionUp struct {
		// Runner is this runner's id, Coordinator the other's version.
		Runner, Coordinator string
	}
	// SessionLost: there is no session, and the next try is in Retry.
	SessionLost struct {
		Err   error
		Retry time.Duration
	}
	// AttemptBegun: an attempt was taken and its job read.
	AttemptBegun struct {
		Run       string
		Epoch     int64
		Case      string
		Harness   string // id@version
		Submitter string
		Workspace string
		At        time.Time
	}
	// AttemptPhase: a phase begins.
	AttemptPhase struct {
		Run   string
		Epoch int64
		Phase executor.Phase
	}
	// AttemptHeld: its sandbox is held still, or goes on.
	AttemptHeld struct {
		Run   string
		Epoch int64
		Held  bool
	}
	// AttemptEnded: the result lies in the outbox.
	AttemptEnded struct {
		Run   string
		Epoch int64
		At    time.Time
		// Result has no secrets. It must not be changed.
		Result *protocol.CaseResult
		// Stopped is set when it did not end by itself.
		Stopped *executor.Stopped
	}
	// Idle: no attempt is worked on any more. Another may be by the time that it is told:
	// see DrainIdle.
	Idle struct{}
	// Delivered: the coordinator has the result.
	Delivered struct {
		Run   string
		Epoch int64
	}
	// Degraded: the runner takes less than it could, or does no more if Why is empty.
	Degraded struct{ Why string }
	// Said: a line of the coordinator's for people.
	Said struct{ Text, Level string }
	// Beat: the coordinator has answered a heartbeat. It is told so that who has to look
	// at something now and then can do it while this machine is awake anyway.
	Beat struct{}
)

func (SessionUp) event()    {}
func (SessionLost) event()  {}
func (AttemptBegun) event() {}
func (AttemptPhase) event() {}
func (AttemptHeld) event()  {}
func (AttemptEnded) event() {}
func (Idle) event()         {}
func (Delivered) event()    {}
func (Degraded) event()     {}
func (Said) event()         {}
func (Beat) event()         {}

// Undelivered is how many results wait for the coordinator.
func (r *Runner) Undelivered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.active {
		if a.finished {
			n++
		}
	}
	return n
}

// Tail is the end of the log of an attempt that runs, to be read along; nil: it does not
// run here, or nobody observes this runner.
func (r *Runner) Tail(run string, epoch int64) *log.Tail {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.active[attemptName(run, epoch)]; a != nil {
		return a.tail
	}
	return nil
}

// live is where the log goes for who looks on; nil: nobody can.
func (a *attempt) live() io.Writer {
	if a.tail == nil {
		return nil
	}
	return a.tail
}

func (a *attempt) tellBegun() {
	a.r.news.put(AttemptBegun{Run: a.ref.Run, Epoch: a.ref.Epoch, Case: a.job.Case.ID, Harness: a.job.Harness.ID + "@" + a.job.Harness.Version,
		Submitter: a.job.SubmittedBy, Workspace: a.job.Workspace, At: time.Now()})
}

func (a *attempt) tellEnded(result *protocol.CaseResult, stopped *executor.Stopped) {
	if a.tail != nil {
		a.tail.Close()
	}
	a.r.news.put(AttemptEnded{Run: a.ref.Run, Epoch: a.ref.Epoch, At: time.Now(), Result: result, Stopped: stopped})
}

// news brings events to the observer. They are few (log output is not among them), so that
// the queue needs no bound. A nil news tells nobody.
type news struct {
	tell func(Event)

	mu    sync.Mutex
	queue []Event
	some  chan struct{}
}

func newNews(tell func(Event)) *news {
	if tell == nil {
		return nil
	}
	return &news{tell: tell, some: make(chan struct{}, 1)}
}

func (n *news) put(e Event) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.queue = append(n.queue, e)
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// deliver begins to tell; end tells what is left, and returns when it has.
func (n *news) deliver() (end func()) {
	if n == nil {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-n.some:
				n.flush()
			case <-over:
				n.flush()
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

func (n *news) flush() {
	for {
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, e := range queue {
			n.tell(e)
		}
	}
}
