package run

import (
	"context"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// Again submits a new run with the request of one that is over, as the principal.
func (s *Service) Again(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.Run{}, err
	}
	if !r.Status.Terminal() {
		return protocol.Run{}, protocol.Conflict("run %s is not over: it is %s", r.ID, r.Status).
			WithHint("wait for it, or end it: POST /runs/%s/cancel", r.ID)
	}
	sp, err := s.spec(ctx, r.ID)
	if err != nil {
		return protocol.Run{}, err
	}
	sp.asSubmitted(r)
	return s.Submit(ctx, p, &protocol.RunRequest{
		Harness: r.Harness, Case: sp.Case, Runtime: r.Runtime, Trigger: r.Trigger, Priority: r.Class,
		Origin: &protocol.Origin{Cause: "run", CausedByRunID: r.ID},
	})
}
