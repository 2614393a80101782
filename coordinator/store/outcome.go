package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlCountOutcome = `INSERT INTO run_outcomes (workspace, hour, outcome, runs, usd, usd_runs, tokens, tokens_runs)
		VALUES (?,?,?,1,?,?,?,?) ON CONFLICT (workspace, hour, outcome) DO UPDATE SET runs = runs + 1, usd = usd + excluded.usd,
		usd_runs = usd_runs + excluded.usd_runs, tokens = tokens + excluded.tokens, tokens_runs = tokens_runs + excluded.tokens_runs`
	sqlDropOutcomes = `DELETE FROM run_outcomes WHERE workspace = ? AND hour < ?`
	sqlOutcomes     = `SELECT hour, outcome, runs, usd, usd_runs, tokens, tokens_runs FROM run_outcomes WHERE workspace = ? AND hour >= ? ORDER BY hour`
	sqlCountStatus  = `SELECT COUNT(*) FROM runs INDEXED BY runs_status WHERE workspace = ? AND status = ?`
)

// Outcomes in run_outcomes, beside failure:<class>.
const (
	outcomePassed    = "passed"
	outcomeFailed    = "failed"
	outcomeUngraded  = "ungraded"
	outcomeCancelled = "cancelled"
	outcomeFailure   = "failure:"
)

// outcomesKept is how long the counts of an hour are kept.
const outcomesKept = 31 * 24 * time.Hour

func outcomeOf(run *protocol.Run) string {
	switch {
	case run.Status == protocol.StatusSucceeded && run.Verdict == nil:
		return outcomeUngraded
	case run.Status == protocol.StatusSucceeded && *run.Verdict:
		return outcomePassed
	case run.Status == protocol.StatusSucceeded:
		return outcomeFailed
	case run.Error != nil && run.Error.Code == protocol.CodeCancelled:
		return outcomeCancelled
	case run.Failure != nil && run.Failure.Class != "":
		return outcomeFailure + run.Failure.Class
	}
	return outcomeFailure + protocol.ClassInfra
}

// countOutcome adds a run that has just ended to its hour.
func (s *Store) countOutcome(tx *sqlite.Tx, run *protocol.Run) error {
	var usd float64
	var tokens, usdRuns, tokensRuns int64
	if u := run.Usage; u != nil {
		if u.USD != nil {
			usd, usdRuns = *u.USD, 1
		}
		if u.TotalTokens != nil {
			tokens, tokensRuns = *u.TotalTokens, 1
		}
	}
	at := run.UpdatedAt.Time
	hour := at.Truncate(time.Hour)
	if _, err := tx.Exec(sqlCountOutcome, run.Tenant, hour.UnixMilli(), outcomeOf(run), usd, usdRuns, tokens, tokensRuns); err != nil {
		return fmt.Errorf("store: count the outcome of run %s: %w", run.ID, err)
	}
	if _, err := tx.Exec(sqlDropOutcomes, run.Tenant, hour.Add(-outcomesKept).UnixMilli()); err != nil {
		return fmt.Errorf("store: drop old outcomes: %w", err)
	}
	return nil
}

// Outcomes are how the runs of a workspace ended, by hour, for the hours that begin at
// since or later. Hours without a run are left out.
func (s *Store) Outcomes(ctx context.Context, workspace string, since time.Time) (hours []protocol.Outcomes, err error) {
	rows, err := s.db.Reader().QueryContext(ctx, sqlOutcomes, workspace, since.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("store: read outcomes: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var at int64
		var outcome string
		var usd float64
		var runs, usdRuns, tokens, tokensRuns int64
		if err := rows.Scan(&at, &outcome, &runs, &usd, &usdRuns, &tokens, &tokensRuns); err != nil {
			return nil, fmt.Errorf("store: read outcomes: %w", err)
		}
		hour := instant(at)
		if n := len(hours); n == 0 || !hours[n-1].At.Equal(hour.Time) {
			hours = append(hours, protocol.Outcomes{At: &hour, Failures: map[string]int64{}})
		}
		o := &hours[len(hours)-1]
		o.Runs += runs
		if usdRuns > 0 {
			o.AddUSD(usd, usdRuns)
		}
		if tokensRuns > 0 {
			o.AddTokens(tokens, tokensRuns)
		}
		switch outcome {
		case outcomePassed:
			o.Passed += runs
		case outcomeFailed:
			o.Failed += runs
		case outcomeUngraded:
			o.Ungraded += runs
		case outcomeCancelled:
			o.Cancelled += runs
		default:
			o.Failures[strings.TrimPrefix(outcome, outcomeFailure)] += runs
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: read outcomes: %w", err)
	}
	return hours, nil
}

// CountStatus is how many runs of a workspace are in a status. It reads an index
// alone, and as much of it as there are such runs.
func (s *Store) CountStatus(ctx context.Context, workspace string, status protocol.Status) (n int64, err error) {
	if err := s.db.Reader().QueryRowContext(ctx, sqlCountStatus, workspace, string(status)).Scan(&n); err != nil {
		return 0, fmt.Errorf("store: count runs: %w", err)
	}
	return n, nil
}
