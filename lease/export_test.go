package lease

import (
	"context"

	"github.com/everdict/everdict/lease/sqlite"
)

// PeekOffered tells which lease a request id has been answered with, without waiting for one and without taking any.
func (q *Queue) PeekOffered(ctx context.Context, runnerID, requestID string) (l Lease, ok bool, err error) {
	err = q.do(ctx, func(tx *sqlite.Tx) error {
		r := q.owner.runners[runnerID]
		if r == nil {
			return nil
		}
		for held := range r.live {
			if held.request == requestID && !held.fenced {
				l, ok = q.owner.lease(held, q.owner.now()), true
				l.Payload, err = loadPayload(tx, held.seq)
				return err
			}
		}
		return nil
	})
	return l, ok, err
}
