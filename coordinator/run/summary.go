package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

const (
	// summaryHours are the hours that a summary looks back, beside the one that is not
	// over.
	summaryHours = 24
	// summaryWaits bounds how many kinds of waiting runs are looked at.
	summaryWaits = 200
)

// Summary is the principal's workspace now, and its last day.
func (s *Service) Summary(ctx context.Context, p auth.Principal) (protocol.Summary, error) {
	sum := protocol.Summary{At: s.now()}
	var err error
	for status, n := range map[protocol.Status]*int64{
		protocol.StatusQueued: &sum.Runs.Queued, protocol.StatusRunning: &sum.Runs.Running, protocol.StatusSuspended: &sum.Runs.Suspended,
	} {
		if *n, err = s.cfg.Store.CountStatus(ctx, p.Workspace, status); err != nil {
			return sum, err
		}
	}
	if sum.Waiting, err = s.waits(ctx, p.Workspace); err != nil {
		return sum, err
	}
	if sum.Pools, err = s.poolUse(ctx, p); err != nil {
		return sum, err
	}
	runners, err := s.cfg.Runners.List(ctx, p.Workspace, "")
	if err != nil {
		return sum, err
	}
	for i := range runners {
		count(&sum.Runners, &runners[i])
	}
	return sum, s.outcomes(ctx, p.Workspace, &sum)
}

func count(c *protocol.RunnerCounts, r *protocol.Runner) {
	c.Total++
	if !r.Online {
		return
	}
	c.Online++
	c.Busy += r.Busy
	c.Slots += r.Slots
	if r.Status != nil && r.Status.Level != "info" {
		c.Degraded++
	}
	if r.UpdateRequired {
		c.UpdateRequired++
	}
}

func (s *Service) outcomes(ctx context.Context, workspace string, sum *protocol.Summary) error {
	first := sum.At.Truncate(time.Hour).Add(-summaryHours * time.Hour)
	counted, err := s.cfg.Store.Outcomes(ctx, workspace, first)
	if err != nil {
		return err
	}
	byHour := map[int64]protocol.Outcomes{}
	for _, o := range counted {
		byHour[o.At.UnixMilli()] = o
	}
	sum.Day.Failures = map[string]int64{}
	for i := range summaryHours + 1 {
		at := protocol.At(first.Add(time.Duration(i) * time.Hour))
		o, found := byHour[at.UnixMilli()]
		if !found {
			o = protocol.Outcomes{At: &at, Failures: map[string]int64{}}
		}
		sum.Hours = append(sum.Hours, o)
		sum.Day.Add(o)
	}
	return nil
}

// waits are why the runs of a workspace wait, those that wait for the same together.
func (s *Service) waits(ctx context.Context, workspace string) ([]protocol.WaitGroup, error) {
	lanes, err := s.queue.Waits(ctx, workspace, summaryWaits)
	if err != nil {
		return nil, fmt.Errorf("run: read why runs wait: %w", err)
	}
	groups := []protocol.WaitGroup{}
	type reason struct{ pool, why, sentence string }
	known := map[reason]int{}
	for _, l := range lanes {
		g := protocol.WaitGroup{Why: string(l.First.Why), Reason: l.First.Sentence, Count: l.Count, Pool: l.Pool, RunID: l.First.Job}
		if l.First.Job != "" {
			since := protocol.At(l.Since)
			g.Since = &since
			r, err := s.cfg.Store.Run(ctx, workspace, l.First.Job)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
			if err == nil {
				g.Reason = s.why(ctx, r, l.First)
			}
		}
		if i, found := known[reason{g.Pool, g.Why, g.Reason}]; found {
			groups[i].Count += g.Count
			continue
		}
		known[reason{g.Pool, g.Why, g.Reason}] = len(groups)
		groups = append(groups, g)
	}
	return groups, nil
}
