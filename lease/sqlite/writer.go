package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Participant takes part in every group. All methods run on the writer's goroutine, so what only they (and functions
// given to Apply) touch needs no lock. They must not wait for the database.
type Participant interface {
	// BeforeCommit is the last to change something in a group. An error fails the group.
	BeforeCommit(tx *Tx) error
	// Committed says that the group is on the disk. It runs before any caller is told.
	Committed()
	// RolledBack says that the group failed and nothing of it is on the disk. reads can be used to read what is.
	RolledBack(reads *Tx, err error)
	// Closed says that no group will follow.
	Closed()
}

type membership struct{ Participant }

// op is one function that waits for its group.
type op struct {
	apply  func(*Tx) error
	mode   mode
	done   chan error
	err    error
	status atomic.Int32
}

type mode int8

const (
	contained mode = iota // inside a savepoint
	bare                  // without one
	alone                 // between groups, outside any transaction
)

const (
	opWaiting int32 = iota
	opTaken
	opWithdrawn
)

// Write runs fn in the next group and returns when that group is on the disk, or has failed. An error of fn undoes what
// fn did and nothing else. If ctx ends before the group starts, fn is not run; later, ctx is ignored, so that a returned
// nil means committed and an error means not. A panic of fn is returned as a [*PanicError].
func (db *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	return db.submit(ctx, contained, fn)
}

// Apply is Write without the savepoint: fn may return an error only if it has changed nothing, or if a statement failed,
// and then the whole group fails.
func (db *DB) Apply(ctx context.Context, fn func(*Tx) error) error {
	return db.submit(ctx, bare, fn)
}

// Join makes p a participant of all groups that begin after it returns, until leave is called. joined, if not nil, runs
// on the writer's goroutine at the moment of joining; an error from it means p has not joined.
func (db *DB) Join(ctx context.Context, p Participant, joined func(*Tx) error) (leave func(), err error) {
	m := &membership{p}
	err = db.submit(ctx, alone, func(tx *Tx) error {
		if joined != nil {
			if err := joined(tx); err != nil {
				return err
			}
		}
		db.party = append(db.party, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() {
		// A closed database has told p already.
		_ = db.submit(context.Background(), alone, func(*Tx) error {
			if i := slices.Index(db.party, m); i >= 0 {
				db.party = slices.Delete(db.party, i, i+1)
				m.Closed()
			}
			return nil
		})
	}, nil
}

func (db *DB) submit(ctx context.Context, how mode, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := db.ops.Get().(*op)
	o.apply, o.mode, o.err = fn, how, nil
	o.status.Store(opWaiting)

	db.mu.Lock()
	if db.closing {
		db.mu.Unlock()
		db.recycle(o)
		return ErrClosed
	}
	db.pending = append(db.pending, o)
	first := len(db.pending) == 1
	db.mu.Unlock()
	if first {
		db.signal()
	}

	if ctx.Done() != nil {
		select {
		case err := <-o.done:
			db.recycle(o)
			return err
		case <-ctx.Done():
			if o.status.CompareAndSwap(opWaiting, opWithdrawn) {
				return ctx.Err() // the writer drops the op; it is not reused
			}
		}
	}
	err := <-o.done
	db.recycle(o)
	return err
}

func (db *DB) recycle(o *op) {
	o.apply = nil
	db.ops.Put(o)
}

func (db *DB) signal() {
	select {
	case db.arrived <- struct{}{}:
	default:
	}
}

// run is the writer's goroutine.
func (db *DB) run() {
	defer close(db.over)
	for {
		group := db.take()
		if group == nil {
			break
		}
		if group[0].mode == alone {
			db.runAlone(group[0])
		} else {
			db.runGroup(group)
		}
		clear(group)
		db.spare = group[:0]
	}
	for _, m := range db.party {
		m.Closed()
	}
}

// take waits for operations and removes the next group from the queue: all that wait, up to MaxGroup and up to the next
// one that runs alone. It returns nil when the database closes and nothing is left.
func (db *DB) take() []*op {
	for {
		db.mu.Lock()
		n := min(len(db.pending), db.cfg.MaxGroup)
		for i, o := range db.pending[:n] {
			if o.mode == alone {
				n = max(i, 1)
				break
			}
		}
		if n > 0 {
			group := db.pending[:n:n]
			if n == len(db.pending) {
				db.pending = db.spare // swap the two slices instead of growing new ones
			} else {
				db.pending = append([]*op(nil), db.pending[n:]...)
				db.signal()
			}
			db.spare = nil
			db.mu.Unlock()
			return group
		}
		closing := db.closing
		db.mu.Unlock()
		if closing {
			return nil
		}
		<-db.arrived
	}
}

func (db *DB) runAlone(o *op) {
	if !o.status.CompareAndSwap(opWaiting, opTaken) {
		return
	}
	db.tx.open = true
	err := o.apply(&db.tx)
	db.tx.closeRows(0)
	if db.tx.begun {
		err = errors.Join(err, db.tx.finish(err == nil))
	}
	db.tx.open, db.tx.err = false, nil
	o.done <- err
}

func (db *DB) runGroup(group []*op) {
	tx := &db.tx
	tx.open = true
	for _, o := range group {
		if !o.status.CompareAndSwap(opWaiting, opTaken) {
			continue
		}
		if tx.err != nil {
			continue
		}
		if o.mode == contained {
			o.err = tx.Nested(o.apply)
		} else {
			o.err = o.apply(tx)
			tx.closeRows(0)
		}
	}
	err := tx.err
	for _, m := range db.party {
		if err != nil {
			break
		}
		if err = m.BeforeCommit(tx); err == nil {
			err = tx.err
		}
	}
	tx.closeRows(0)
	if tx.begun {
		err = errors.Join(err, tx.finish(err == nil))
	}
	tx.err = nil
	if err != nil {
		err = fmt.Errorf("sqlite: commit: %w", err)
	}
	for _, m := range db.party {
		if err != nil {
			m.RolledBack(tx, err)
		} else {
			m.Committed()
		}
	}
	tx.closeRows(0)
	if tx.begun { // a participant wrote while it should have read
		_ = tx.finish(false)
	}
	tx.open, tx.err = false, nil
	for _, o := range group {
		if o.status.Load() == opWithdrawn {
			continue
		}
		result := o.err
		if err != nil {
			result = err
		}
		o.done <- result
	}
}

// finish commits or rolls back. A failed commit is rolled back.
func (tx *Tx) finish(commit bool) error {
	tx.begun = false
	var err error
	if commit {
		if err = tx.run("COMMIT"); err == nil {
			return nil
		}
	}
	tx.err = nil
	if tx.conn.AutoCommit() {
		return err
	}
	return errors.Join(err, tx.run("ROLLBACK"))
}
