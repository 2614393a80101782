package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlAppendEvent = `INSERT INTO run_events (run_seq, seq, at, kind, attempt, runner, message)
		SELECT r.seq, COALESCE((SELECT MAX(e.seq) FROM run_events e WHERE e.run_seq = r.seq), 1) + 1, ?, ?, ?, ?, ?
		FROM runs r WHERE r.id = ?`
	sqlRunKey    = `SELECT seq, created_at FROM runs WHERE id = ?`
	sqlRunEvents = `SELECT seq, at, kind, attempt, runner, message FROM run_events WHERE run_seq = ? ORDER BY seq`

	sqlPutAttempt = `INSERT INTO run_attempts (run_seq, attempt, document, result)
		SELECT seq, ?, ?, ? FROM runs WHERE id = ?
		ON CONFLICT (run_seq, attempt) DO UPDATE SET document = excluded.document, result = COALESCE(excluded.result, result)`
	sqlAttempts = `SELECT a.document, a.result FROM runs r JOIN run_attempts a ON a.run_seq = r.seq WHERE r.id = ? ORDER BY a.attempt`
	sqlAttempt  = `SELECT a.document, a.result FROM runs r JOIN run_attempts a ON a.run_seq = r.seq WHERE r.id = ? AND a.attempt = ?`
)

// AppendEvent adds a step to a run's life and numbers it; e.Seq is ignored. That
// a run was submitted is told by its record and needs no event: it is number 1.
func (s *Store) AppendEvent(tx *sqlite.Tx, runID string, e protocol.RunEvent) error {
	res, err := tx.Exec(sqlAppendEvent, millis(e.At), e.Kind, e.Attempt, e.Runner, e.Message, runID)
	if err != nil {
		return fmt.Errorf("store: append an event to run %s: %w", runID, err)
	}
	if res.RowsAffected == 0 {
		return ErrNotFound
	}
	return nil
}

// RunEvents is a run's life in order, beginning with its submission.
func (s *Store) RunEvents(ctx context.Context, runID string) ([]protocol.RunEvent, error) {
	action := "read the events of run " + runID
	var seq, created int64
	if err := s.db.Reader().QueryRowContext(ctx, sqlRunKey, runID).Scan(&seq, &created); err != nil {
		return nil, notFound(action, err)
	}
	rows, err := s.db.Reader().QueryContext(ctx, sqlRunEvents, seq)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", action, err)
	}
	defer rows.Close()
	events := []protocol.RunEvent{{Seq: 1, At: instant(created), Kind: protocol.RunSubmitted}}
	for rows.Next() {
		var e protocol.RunEvent
		var at int64
		if err := rows.Scan(&e.Seq, &at, &e.Kind, &e.Attempt, &e.Runner, &e.Message); err != nil {
			return nil, fmt.Errorf("store: %s: %w", action, err)
		}
		e.At = instant(at)
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", action, err)
	}
	return events, nil
}

// PutAttempt writes one attempt of a run, over what was known of it. A result
// that is there already stays when a.Result is nil.
func (s *Store) PutAttempt(tx *sqlite.Tx, runID string, a protocol.Attempt) error {
	action := fmt.Sprintf("write attempt %d of run %s", a.Attempt, runID)
	var result any
	if a.Result != nil {
		b, err := json.Marshal(a.Result)
		if err != nil {
			return fmt.Errorf("store: %s: %w", action, err)
		}
		result = b
	}
	a.Result = nil
	document, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("store: %s: %w", action, err)
	}
	res, err := tx.Exec(sqlPutAttempt, a.Attempt, document, result, runID)
	if err != nil {
		return fmt.Errorf("store: %s: %w", action, err)
	}
	if res.RowsAffected == 0 {
		return ErrNotFound
	}
	return nil
}

// ReadAttempt is one attempt as the transaction sees it, with its result.
func (s *Store) ReadAttempt(tx *sqlite.Tx, runID string, attempt int64) (*protocol.Attempt, error) {
	var document, result []byte
	if err := tx.QueryRow(sqlAttempt, runID, attempt).Scan(&document, &result); err != nil {
		return nil, notFound(fmt.Sprintf("read attempt %d of run %s", attempt, runID), err)
	}
	return decodeAttempt(document, result)
}

// Attempt is one attempt of a run with its result.
func (s *Store) Attempt(ctx context.Context, runID string, attempt int64) (*protocol.Attempt, error) {
	var document, result []byte
	if err := s.db.Reader().QueryRowContext(ctx, sqlAttempt, runID, attempt).Scan(&document, &result); err != nil {
		return nil, notFound(fmt.Sprintf("read attempt %d of run %s", attempt, runID), err)
	}
	return decodeAttempt(document, result)
}

// Attempts are all attempts of a run that were written, with their results.
func (s *Store) Attempts(ctx context.Context, runID string) (attempts []protocol.Attempt, err error) {
	action := "read the attempts of run " + runID
	rows, err := s.db.Reader().QueryContext(ctx, sqlAttempts, runID)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", action, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	attempts = []protocol.Attempt{}
	for rows.Next() {
		var document, result []byte
		if err := rows.Scan(&document, &result); err != nil {
			return nil, fmt.Errorf("store: %s: %w", action, err)
		}
		a, err := decodeAttempt(document, result)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, *a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", action, err)
	}
	return attempts, nil
}

func decodeAttempt(document, result []byte) (*protocol.Attempt, error) {
	a := new(protocol.Attempt)
	if err := json.Unmarshal(document, a); err != nil {
		return nil, fmt.Errorf("store: decode an attempt: %w", err)
	}
	if result == nil {
		return a, nil
	}
	a.Result = new(protocol.CaseResult)
	if err := json.Unmarshal(result, a.Result); err != nil {
		return nil, fmt.Errorf("store: decode the result of an attempt: %w", err)
	}
	return a, nil
}
