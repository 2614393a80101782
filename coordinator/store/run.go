package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlInsertRun = `INSERT INTO runs (seq, id, workspace, status, class, harness_id, harness_version, runtime, runner, cause,
		trigger_label, verdict, failure_class, created_at, updated_at, record)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	sqlInsertSpec = `INSERT INTO run_specs (seq, spec) VALUES (?,?)`
	sqlRunRecord  = `SELECT seq, record FROM runs WHERE id = ?`
	sqlUpdateRun  = `UPDATE runs SET status=?, class=?, harness_version=?, runtime=?, runner=?, cause=?, trigger_label=?, verdict=?,
		failure_class=?, updated_at=?, record=? WHERE seq=?`
	sqlRun     = `SELECT record FROM runs WHERE id = ? AND workspace = ?`
	sqlRunSpec = `SELECT s.spec FROM runs r JOIN run_specs s ON s.seq = r.seq WHERE r.id = ?`
)

// seqShift leaves room for a million runs in each millisecond before seq runs
// ahead of the clock, which it may.
const seqShift = 20

// nextSeq orders runs by acceptance even when the clock stands still or steps
// back.
func (s *Store) nextSeq(at protocol.Time) int64 {
	s.lastSeq = max(s.lastSeq+1, millis(at)<<seqShift)
	return s.lastSeq
}

// InsertRun adds a run and what it carries out. run.CreatedAt places it in the
// order of lists. Result and CaseSpec are not part of a record.
func (s *Store) InsertRun(tx *sqlite.Tx, run *protocol.Run, spec []byte) error {
	record, err := encodeRun(run)
	if err != nil {
		return err
	}
	seq := s.nextSeq(run.CreatedAt)
	c := columnsOf(run)
	if _, err := tx.Exec(sqlInsertRun, seq, run.ID, run.Tenant, string(run.Status), run.Class, run.Harness.ID, c.version, run.Runtime,
		c.runner, c.cause, c.trigger, c.verdict, c.failure, millis(run.CreatedAt), millis(run.UpdatedAt), record); err != nil {
		return fmt.Errorf("store: insert run %s: %w", run.ID, err)
	}
	if _, err := tx.Exec(sqlInsertSpec, seq, spec); err != nil {
		return fmt.Errorf("store: insert the spec of run %s: %w", run.ID, err)
	}
	return nil
}

// UpdateRun lets change alter the record of a run. An error of change is
// returned as it is and leaves the record alone. An unknown run is ErrNotFound.
// ID, Tenant, Harness and CreatedAt are fixed at insertion.
func (s *Store) UpdateRun(tx *sqlite.Tx, id string, change func(*protocol.Run) error) error {
	var seq int64
	var record []byte
	if err := tx.QueryRow(sqlRunRecord, id).Scan(&seq, &record); err != nil {
		return notFound("update run "+id, err)
	}
	run, err := decodeRun(record)
	if err != nil {
		return err
	}
	wasOver := run.Status.Terminal()
	if err := change(run); err != nil {
		return err
	}
	if !wasOver && run.Status.Terminal() {
		if err := s.countOutcome(tx, run); err != nil {
			return err
		}
	}
	if record, err = encodeRun(run); err != nil {
		return err
	}
	c := columnsOf(run)
	if _, err := tx.Exec(sqlUpdateRun, string(run.Status), run.Class, c.version, run.Runtime, c.runner, c.cause, c.trigger, c.verdict,
		c.failure, millis(run.UpdatedAt), record, seq); err != nil {
		return fmt.Errorf("store: update run %s: %w", id, err)
	}
	return nil
}

// Run is the record of a run, without Result and CaseSpec.
func (s *Store) Run(ctx context.Context, workspace, id string) (*protocol.Run, error) {
	var record []byte
	if err := s.db.Reader().QueryRowContext(ctx, sqlRun, id, workspace).Scan(&record); err != nil {
		return nil, notFound("read run "+id, err)
	}
	return decodeRun(record)
}

// RunSpec is what InsertRun was given as the run's spec.
func (s *Store) RunSpec(ctx context.Context, id string) ([]byte, error) {
	var spec []byte
	err := s.db.Reader().QueryRowContext(ctx, sqlRunSpec, id).Scan(&spec)
	return spec, notFound("read the spec of run "+id, err)
}

// columns are the parts of a record that lists filter by and that can be absent.
type columns struct {
	version, runner, cause, trigger, verdict, failure any
}

func columnsOf(run *protocol.Run) columns {
	c := columns{version: run.Harness.Version, trigger: optional(run.Trigger)}
	if run.ResolvedHarness != nil {
		c.version = run.ResolvedHarness.Version
	}
	if run.Provenance != nil {
		c.runner = optional(run.Provenance.Runner)
	}
	if run.Origin != nil {
		c.cause = optional(run.Origin.Cause)
	}
	if run.Verdict != nil {
		c.verdict = *run.Verdict
	}
	if run.Failure != nil {
		c.failure = optional(run.Failure.Class)
	}
	return c
}

func encodeRun(run *protocol.Run) ([]byte, error) {
	record := *run
	record.Result, record.CaseSpec = nil, nil
	b, err := json.Marshal(&record)
	if err != nil {
		return nil, fmt.Errorf("store: encode run %s: %w", run.ID, err)
	}
	return b, nil
}

func decodeRun(record []byte) (*protocol.Run, error) {
	run := new(protocol.Run)
	if err := json.Unmarshal(record, run); err != nil {
		return nil, fmt.Errorf("store: decode a run: %w", err)
	}
	return run, nil
}
