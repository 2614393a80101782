package lease

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/everdict/everdict/lease/sqlite"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return sub
}

// Every statement of the queue. Those that run per job must be answered by an index; a test reads their plans.
const (
	jobColumns = `seq, id, lane, state, max_attempts, wait, enqueued_at, deadline_at, attempt, failures, unstarted,
		token, runner, home, request, started_at, held, stop, reason, outcome, settled_by, retry_at, fenced`

	insertJob = `INSERT INTO lease_job (seq, id, lane, state, max_attempts, wait, enqueued_at, deadline_at, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	insertPayload = `INSERT INTO lease_payload (seq, payload) VALUES (?, ?)`

	updateLeased = `UPDATE lease_job SET state = 1, attempt = ?, token = ?, runner = ?, home = ?, request = ?,
		leased_at = ?, started_at = 0, held = 0, stop = 0, fenced = 0, reason = '' WHERE seq = ?`
	updateStarted  = `UPDATE lease_job SET started_at = ? WHERE seq = ?`
	updateRequeued = `UPDATE lease_job SET state = ?, retry_at = ?, deadline_at = ?, failures = ?, unstarted = ?, held = 0, reason = ?
		WHERE seq = ?`
	updateAttempt = `UPDATE lease_job SET attempt = ? WHERE seq = ?`
	updateRetried = `UPDATE lease_job SET state = 0 WHERE seq = ?`
	updateParked  = `UPDATE lease_job SET state = 2, reason = ? WHERE seq = ?`
	updateHeld    = `UPDATE lease_job SET held = ?, reason = ? WHERE seq = ?`
	updateResumed = `UPDATE lease_job SET state = 0, deadline_at = ?, reason = '' WHERE seq = ?`
	updateStop    = `UPDATE lease_job SET stop = ?, reason = ? WHERE seq = ?`
	updateFenced  = `UPDATE lease_job SET fenced = 1, held = 0, reason = '' WHERE seq = ?`
	updateSettled = `UPDATE lease_job SET state = 3, outcome = ?, settled_by = ?, settled_at = ?, failures = ?, reason = ?
		WHERE seq = ?`

	selectJob     = `SELECT ` + jobColumns + ` FROM lease_job WHERE id = ?`
	selectPayload = `SELECT payload FROM lease_payload WHERE seq = ?`
	selectWindow  = `SELECT seq, id, max_attempts, wait, enqueued_at, deadline_at, attempt, failures, unstarted
		FROM lease_job WHERE lane = ? AND state = 0 ORDER BY seq LIMIT ?`
	// selectWindowPayloads is selectWindow with the payloads that are small enough to be kept with the window; length does
	// not read the others.
	selectWindowPayloads = `SELECT seq, id, max_attempts, wait, enqueued_at, deadline_at, attempt, failures, unstarted,
		(SELECT CASE WHEN length(payload) <= 4096 THEN payload END FROM lease_payload p WHERE p.seq = j.seq)
		FROM lease_job j WHERE lane = ? AND state = 0 ORDER BY seq LIMIT ?`
	selectNextDeadline = `SELECT deadline_at FROM lease_job WHERE state = 0 ORDER BY deadline_at LIMIT 1`
	selectOverdue      = `SELECT ` + jobColumns + ` FROM lease_job WHERE state = 0 AND deadline_at <= ? AND (deadline_at, seq) > (?, ?)
		ORDER BY deadline_at, seq LIMIT ?`
	selectNextRetry = `SELECT retry_at FROM lease_job WHERE state = 4 ORDER BY retry_at LIMIT 1`
	selectRetries   = `SELECT ` + jobColumns + ` FROM lease_job WHERE state = 4 AND retry_at <= ? ORDER BY retry_at LIMIT ?`
	countAhead      = `SELECT count(*) FROM (SELECT 1 FROM lease_job WHERE lane = ? AND state = 0 AND seq < ? LIMIT ?)`

	selectLeased = `SELECT ` + jobColumns + ` FROM lease_job WHERE state = 1`
	countQueued  = `SELECT lane, count(*) FROM lease_job WHERE state = 0 GROUP BY lane`
	countDelayed = `SELECT lane, count(*) FROM lease_job WHERE state = 4 GROUP BY lane`
	countParked  = `SELECT lane, count(*) FROM lease_job WHERE state = 2 GROUP BY lane`
	maxSeq       = `SELECT max(coalesce((SELECT max(seq) FROM lease_job), 0), coalesce((SELECT max(seq) FROM lease_payload), 0))`

	insertLane = `INSERT INTO lease_lane (workspace, pool, class, capabilities, os, arch, memory_mb, cpu)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	selectLaneByKey = `SELECT id FROM lease_lane WHERE workspace = ? AND pool = ? AND class = ? AND capabilities = ?
		AND os = ? AND arch = ? AND memory_mb = ? AND cpu = ?`
	selectLane = `SELECT workspace, pool, class, capabilities, os, arch, memory_mb, cpu FROM lease_lane WHERE id = ?`

	selectPayloadJobs = `SELECT p.seq, coalesce(j.state, 3) FROM lease_payload p LEFT JOIN lease_job j ON j.seq = p.seq
		WHERE p.seq > ? ORDER BY p.seq LIMIT ?`
	selectSettledFrom = `SELECT seq, state = 3 AND settled_at <= ? FROM lease_job WHERE seq > ? ORDER BY seq LIMIT ?`
	deletePayload     = `DELETE FROM lease_payload WHERE seq = ?`
	deleteJob         = `DELETE FROM lease_job WHERE seq = ?`
)

// row is a job as the table has it.
type row struct {
	entry
	lane      int64
	state     State
	token     string
	runner    string
	home      string
	request   string
	startedAt int64
	held      bool
	stop      Outcome
	reason    string
	outcome   Outcome
	settledBy int64
	delayed   bool // Queued, but not before retryAt
	retryAt   int64
	fenced    bool
}

// delayed is on disk the state of a queued job that waits for its retry.
const delayed State = 4

func (r *row) scan(rows interface{ Scan(...any) error }) error {
	var state, stop, outcome int64
	err := rows.Scan(&r.seq, &r.id, &r.lane, &state, &r.maxAttempts, &r.wait, &r.enqueuedAt, &r.deadlineAt, &r.attempt,
		&r.failures, &r.unstarted, &r.token, &r.runner, &r.home, &r.request, &r.startedAt, &r.held, &stop, &r.reason,
		&outcome, &r.settledBy, &r.retryAt, &r.fenced)
	r.state, r.stop, r.outcome = State(state), Outcome(stop), Outcome(outcome)
	if r.delayed = r.state == delayed; r.delayed {
		r.state = Queued
	}
	return err
}

// loadJob reads a job by its id; the error is ErrUnknownJob if there is none.
func loadJob(tx *sqlite.Tx, id string) (*row, error) {
	var r row
	err := r.scan(tx.QueryRow(selectJob, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w %.64q", ErrUnknownJob, id)
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

func loadPayload(tx *sqlite.Tx, seq int64) ([]byte, error) {
	var b []byte
	if err := tx.QueryRow(selectPayload, seq).Scan(&b); err != nil {
		return nil, fmt.Errorf("lease: read payload %d: %w", seq, err)
	}
	return b, nil
}

// loadRows runs a query of jobColumns.
func loadRows(tx *sqlite.Tx, query string, args ...any) ([]*row, error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	var all []*row
	for rows.Next() {
		r := new(row)
		if err := r.scan(rows); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

func loadCounts(tx *sqlite.Tx, query string) (map[int64]int, error) {
	rows, err := tx.Query(query)
	if err != nil {
		return nil, err
	}
	counts := make(map[int64]int)
	for rows.Next() {
		var lane int64
		var n int
		if err := rows.Scan(&lane, &n); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		counts[lane] = n
	}
	return counts, rows.Err()
}

func loadLaneKey(tx *sqlite.Tx, id int64) (laneKey, error) {
	var k laneKey
	var class int64
	err := tx.QueryRow(selectLane, id).Scan(&k.workspace, &k.pool, &class, &k.capabilities, &k.os, &k.arch, &k.memoryMB, &k.cpu)
	k.class = Class(class)
	if err != nil {
		return k, fmt.Errorf("lease: read lane %d: %w", id, err)
	}
	return k, nil
}

// laneID finds or creates the number of a lane.
func laneID(tx *sqlite.Tx, k laneKey) (int64, error) {
	args := []any{k.workspace, k.pool, int64(k.class), k.capabilities, k.os, k.arch, k.memoryMB, k.cpu}
	var id int64
	err := tx.QueryRow(selectLaneByKey, args...).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	res, err := tx.Exec(insertLane, args...)
	return res.LastInsertID, err
}

func splitCapabilities(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
