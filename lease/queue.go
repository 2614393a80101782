package lease

import (
	"context"
	"math"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Queue is a durable lease queue. All methods are safe for concurrent use, return when what they changed is on the disk,
// and change nothing on it when they return an error.
type Queue struct {
	db    *sqlite.DB
	owner *owner
	leave func()
	wake  chan struct{} // the timer's promise is later than something that is due
	over  chan struct{} // the queue is closed
	ended bool          // owned by the writer's goroutine
}

// Open brings the queue's tables in db up to date and reads what is in them. Every lease that lives on disk gets one fresh
// TTL in which its holder can come back. Operations work from here on; time passes only while Run
// does. A database has one queue at a time, as one memory must see all changes.
func Open(ctx context.Context, db *sqlite.DB, cfg Config) (*Queue, error) {
	if err := db.Migrate(ctx, "lease", migrations()); err != nil {
		return nil, err
	}
	q := &Queue{db: db, wake: make(chan struct{}, 1), over: make(chan struct{})}
	cfg = cfg.withDefaults()
	q.owner = newOwner(&cfg)
	leave, err := db.Join(ctx, (*participant)(q), q.owner.rebuild)
	if err != nil {
		return nil, err
	}
	q.leave = leave
	return q, nil
}

// Run lets time pass: leases expire, queued jobs meet their deadlines, settled jobs are forgotten. It returns when ctx
// ends or the database is closed; the queue is closed then, and waiting pulls end with ErrClosed. An end by ctx is no error.
func (q *Queue) Run(ctx context.Context) error {
	defer q.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.over:
			return nil
		case <-q.wake:
		case <-timer.C:
		}
		var next time.Duration
		var tell bool
		err := q.do(ctx, func(tx *sqlite.Tx) error {
			o := q.owner
			wake, err := o.tick(tx)
			if err != nil {
				return err
			}
			now := o.now()
			if tell = o.nextTell <= now; tell {
				o.nextTell = now + int64(tickRetry)
				wake = min(wake, o.nextTell)
			}
			o.scheduled = max(wake, now)
			next = dur(o.scheduled - now)
			return nil
		})
		if err == nil && tell { // a group of its own: what it cannot write is not to undo the tick
			err = q.do(ctx, func(tx *sqlite.Tx) error { return q.owner.tellFenced(tx) })
		}
		if err != nil {
			next = tickRetry // a full disk: every caller gets the error too
			select {
			case <-q.wake: // the group that failed has asked for a tick at once
			default:
			}
		}
		timer.Reset(next)
	}
}

// tickRetry is how long the timer waits after a failure, and at most between two looks at the clock.
const tickRetry = time.Second

// do runs fn on the owner's memory in the next group.
func (q *Queue) do(ctx context.Context, fn func(*sqlite.Tx) error) error {
	err := q.db.Apply(ctx, func(tx *sqlite.Tx) error {
		if q.ended {
			return ErrClosed
		}
		if q.owner.broken != nil {
			if err := q.owner.rebuild(tx); err != nil {
				return err
			}
		}
		return fn(tx)
	})
	if err == sqlite.ErrClosed {
		return ErrClosed
	}
	return err
}

// participant is the queue as the writer sees it.
type participant Queue

// BeforeCommit leases to waiting pulls in the commit that made it possible.
func (p *participant) BeforeCommit(tx *sqlite.Tx) error {
	if p.ended || p.owner.broken != nil {
		return nil
	}
	return p.owner.matchAll(tx)
}

// Committed answers the waiting pulls, and the timer if something is due before it wakes.
func (p *participant) Committed() {
	o := p.owner
	if len(o.events) > 0 {
		o.cfg.Committed(o.events)
		o.events = nil
	}
	now := o.now()
	for i := range o.granted {
		g := &o.granted[i]
		g.w.tell(g.told(now), g.err)
		*g = grant{}
	}
	o.granted = o.granted[:0]
	clear(o.asked)
	o.asked = o.asked[:0]
	p.alarm()
}

// alarm wakes the timer if something is due before it would wake.
func (p *participant) alarm() {
	o := p.owner
	if next := o.nextWake(); next < o.scheduled {
		// What is overdue by now is no sign of a stall, so the promise is for now; but a promise is never put off.
		if next = max(next, o.now()); next < o.scheduled {
			o.scheduled = next
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	}
}

// RolledBack makes memory equal to the disk again and tells the pulls that were part of the group.
func (p *participant) RolledBack(tx *sqlite.Tx, err error) {
	o := p.owner
	for _, a := range o.asked {
		a.w.answer = nil // its caller gets the error
		o.withdraw(a.runner, a.w)
	}
	o.asked = nil
	for _, g := range o.granted {
		g.w.tell(Lease{}, err)
	}
	if err := o.rebuild(tx); err != nil {
		o.cfg.Log.Error("lease queue cannot be read", "err", err)
		return
	}
	p.alarm()
}

// Closed ends every wait.
func (p *participant) Closed() {
	p.ended = true
	for _, r := range p.owner.runners {
		for _, w := range r.waiting {
			w.queued = false
			w.tell(Lease{}, ErrClosed)
		}
		r.waiting = nil
	}
	p.owner.scheduled = math.MaxInt64
	close(p.over)
}
