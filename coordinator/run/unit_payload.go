package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// A unit of a runtime with RuntimeSpec.Payload is given its run as a payload. Its holder
// is a runner of that unit and of the runtime's pool, against whose limits it counts; who
// ends it without a result is the fleet, which sees the unit, or its time.

// credentialBytes is more than an attempt's number and its credentials add to a payload.
const credentialBytes = 1 << 10

// PayloadSize is the most bytes that the payload of a run has. A *protocol.Problem says
// that it cannot have one.
func (s *Service) PayloadSize(ctx context.Context, run string) (int, error) {
	sp, err := s.spec(ctx, run)
	if err != nil {
		return 0, err
	}
	if err := noSecrets(&sp.Harness); err != nil {
		return 0, err
	}
	r := &protocol.Run{ID: run, Tenant: strings.Repeat("w", credentialBytes/4), CreatedBy: sp.SubmittedBy}
	doc, err := json.Marshal(payloadOf(r, &sp))
	if err != nil {
		return 0, fmt.Errorf("run: the payload of %s: %w", run, err)
	}
	return len(doc) + credentialBytes, nil
}

// noSecrets is why a harness cannot be in the payload of a unit; nil: it can. A unit's
// documents are the cluster's to read, and hold no value of a secret (P12).
func noSecrets(h *protocol.HarnessSpec) error {
	var names []string
	for _, ref := range h.SecretEnv() {
		names = append(names, ref.String())
	}
	if len(names) == 0 {
		return nil
	}
	return protocol.BadRequest("harness %s@%s names secrets, which the runners of a runtime with payload are not given: %s", h.ID, h.Version, strings.Join(names, ", ")).
		WithHint("send it to a runtime whose runners reach the coordinator, which is asked for them then").WithData("secrets", names)
}

// HandOutTo makes a payload of the next attempt of a queued run, for the unit that is being
// launched for it, out for life at most. before is the epoch of the attempt before it. A
// *protocol.Problem says that the run cannot be handed out now.
func (s *Service) HandOutTo(ctx context.Context, workspace, run string, before int64, runtime, unit string, life time.Duration) ([]byte, error) {
	moved := protocol.Conflict("run %s has gone on without unit %s", run, unit)
	r, err := s.cfg.Store.Run(ctx, workspace, run)
	if errors.Is(err, store.ErrNotFound) {
		return nil, moved
	}
	if err != nil {
		return nil, err
	}
	sp, err := s.spec(ctx, run)
	if err != nil {
		return nil, err
	}
	if err := noSecrets(&sp.Harness); err != nil {
		return nil, err
	}
	st, err := s.queue.Get(ctx, run)
	switch {
	case errors.Is(err, lease.ErrUnknownJob):
		return nil, moved
	case err != nil:
		return nil, err
	case st.State != lease.Queued || st.Attempt != before:
		return nil, moved
	}
	out := protocol.HandedOut{By: r.CreatedBy, Until: protocol.At(s.cfg.Now().Add(life)), Unit: unit}
	holder, err := s.cfg.Runners.UnitHolder(ctx, workspace, runtime, unit, run, out.Until.Time)
	if err != nil {
		return nil, err
	}
	p, err := s.handOut(ctx, r, &sp, holder, RuntimePool(workspace, runtime), out)
	if err != nil {
		return nil, err
	}
	if p.Attempt != before+1 { // it has moved between the two
		return nil, errors.Join(moved, s.unhand(ctx, run))
	}
	return json.Marshal(p)
}

// unhand takes back a payload that nobody has been given.
func (s *Service) unhand(ctx context.Context, run string) error {
	one, out := s.payloads.of(run)
	if !out {
		return nil
	}
	_, err := s.queue.GiveBack(ctx, one.lease.Ref, lease.Return{Reason: "the payload came to no unit"})
	if err == nil {
		s.payloads.over(one)
	}
	return err
}
