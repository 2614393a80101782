package lease

import (
	"errors"
	"slices"
	"strings"

	"github.com/everdict/everdict/lease/sqlite"
)

// laneKey is everything about a job that a matcher can see. Jobs of equal keys are taken by the same runners, so only the
// first of them is ever looked at.
type laneKey struct {
	workspace, pool string
	class           Class
	capabilities    string // sorted, unique, comma between
	os, arch        string
	memoryMB, cpu   int64
}

func keyOf(j *Job) laneKey {
	k := laneKey{workspace: j.Workspace, pool: j.Pool, class: j.Class, os: j.Requirements.OS, arch: j.Requirements.Arch,
		memoryMB: j.Requirements.MemoryMB, cpu: j.Requirements.CPU}
	switch caps := j.Requirements.Capabilities; len(caps) {
	case 0:
	case 1:
		k.capabilities = caps[0]
	default:
		caps = slices.Clone(caps)
		slices.Sort(caps)
		k.capabilities = strings.Join(slices.Compact(caps), ",")
	}
	return k
}

// entry is a queued job in a lane's window.
type entry struct {
	seq         int64
	id          string
	maxAttempts int
	wait        int64
	enqueuedAt  int64
	deadlineAt  int64
	attempt     int64
	failures    int
	unstarted   int
	payload     []byte // nil if it must be read
}

const (
	// refillSize is how many heads a lane reads at once, and windowSize how many it keeps: a million jobs in one lane cost
	// as much memory as a hundred.
	refillSize = 64
	windowSize = 2 * refillSize
	// payloadCache bounds the payloads kept with window entries, in bytes over all lanes. It only saves reading back
	// what was enqueued a moment ago.
	payloadCache = 8 << 20
)

// lane is the FIFO of the jobs of one key. Its window is a prefix of the queued jobs in the order of seq; the rest stays
// on disk.
type lane struct {
	id      int64
	key     laneKey
	caps    []string
	pool    *pool
	space   *workspace
	queued  int // jobs in state Queued, on disk and in the window
	delayed int // jobs that are queued when their retry is due
	parked  int // jobs in state Parked
	live    int // jobs leased
	window  []entry
	dirty   bool // in owner.dirtyLanes
}

// complete says that the window has every queued job.
func (l *lane) complete() bool { return len(l.window) == l.queued }

// head makes sure that the first job is in the window; nil if there is none.
func (l *lane) head(o *owner, tx *sqlite.Tx) (*entry, error) {
	if len(l.window) == 0 {
		if l.queued == 0 {
			return nil, nil
		}
		if err := l.refill(o, tx); err != nil {
			return nil, err
		}
	}
	return &l.window[0], nil
}

// refill reads the next heads, with their small payloads if there is room for them: one statement then does what would be
// one for each lease.
func (l *lane) refill(o *owner, tx *sqlite.Tx) error {
	query := selectWindowPayloads
	if o.payloadBytes > payloadCache/2 {
		query = selectWindow
	}
	rows, err := tx.Query(query, l.id, refillSize)
	if err != nil {
		return err
	}
	l.window = make([]entry, 0, windowSize)
	for rows.Next() {
		var e entry
		dest := []any{&e.seq, &e.id, &e.maxAttempts, &e.wait, &e.enqueuedAt, &e.deadlineAt, &e.attempt, &e.failures, &e.unstarted,
			&e.payload}
		if query == selectWindow {
			dest = dest[:len(dest)-1]
		}
		if err := rows.Scan(dest...); err != nil {
			return errors.Join(err, rows.Close())
		}
		o.payloadBytes += len(e.payload)
		l.window = append(l.window, e)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(l.window) == 0 {
		return errDiverged
	}
	return nil
}

// add counts a job that has become queued and puts it into the window if it belongs there.
func (l *lane) add(o *owner, e entry) {
	complete := l.complete()
	l.queued++
	i, _ := slices.BinarySearchFunc(l.window, e.seq, func(a entry, seq int64) int { return int(a.seq - seq) })
	if i == len(l.window) && (!complete || i >= windowSize) {
		return // behind the window; it is read when its turn comes
	}
	if e.payload != nil {
		if o.payloadBytes+len(e.payload) > payloadCache {
			e.payload = nil
		}
		o.payloadBytes += len(e.payload)
	}
	l.window = slices.Insert(l.window, i, e)
	if len(l.window) > windowSize {
		o.payloadBytes -= len(l.window[windowSize].payload)
		l.window[windowSize] = entry{}
		l.window = l.window[:windowSize]
	}
}

// remove forgets a queued job.
func (l *lane) remove(o *owner, seq int64) {
	l.queued--
	i, ok := slices.BinarySearchFunc(l.window, seq, func(a entry, seq int64) int { return int(a.seq - seq) })
	if !ok {
		return
	}
	o.payloadBytes -= len(l.window[i].payload)
	if i == 0 { // the usual case: no copying
		l.window[0] = entry{}
		l.window = l.window[1:]
		return
	}
	l.window = slices.Delete(l.window, i, i+1)
}

// pool is a name that jobs target and runners serve.
type pool struct {
	name   string
	lanes  []*lane  // with something queued, parked or leased
	crowds []*crowd // of the runners serving it that have a pull that waits
	cursor int      // where the next search for one of them begins
}

// workspace is one party of the fair order.
type workspace struct {
	name   string
	weight float64
	finish float64 // virtual time at which its last leased job is over
	lanes  int
}
