package store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// RunFilter selects runs of one workspace. Zero fields select everything.
type RunFilter struct {
	Workspace string
	Status    protocol.Status
	Verdict   *bool
	// Harness is an id, or id@version.
	Harness string
	Runtime string
	// Runner is the id of the runner that took the run.
	Runner       string
	Cause        string
	Trigger      string
	FailureClass string
	// Class is the scheduling class.
	Class string
	// ID is the beginning of an id, or all of it.
	ID string
	// Since and Until bound the moment of acceptance: Since <= it < Until.
	Since, Until time.Time
	// Limit is the size of a page, at most protocol.MaxListed; 0: that many.
	Limit int
	// Cursor is where the page before ended.
	Cursor string
}

// ErrBadCursor says that a cursor is not one that a list has given.
var ErrBadCursor = errors.New("store: not a cursor of this list")

// Runs is a page of runs, newest first, and the cursor of the next one, empty at
// the end. Runs accepted meanwhile never shift the pages that follow.
func (s *Store) Runs(ctx context.Context, f RunFilter) (runs []protocol.Run, next string, err error) {
	q, err := newRunQuery(f)
	if err != nil {
		return nil, "", err
	}
	if err := q.choose(ctx, s); err != nil {
		return nil, "", err
	}
	text, args := q.page()
	rows, err := s.db.Reader().QueryContext(ctx, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("store: list runs: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	runs = []protocol.Run{}
	var last int64
	for rows.Next() {
		var seq int64
		var record []byte
		if err := rows.Scan(&seq, &record); err != nil {
			return nil, "", fmt.Errorf("store: list runs: %w", err)
		}
		if len(runs) == q.limit {
			return runs, encodeCursor(last), nil
		}
		run, err := decodeRun(record)
		if err != nil {
			return nil, "", err
		}
		runs, last = append(runs, *run), seq
	}
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("store: list runs: %w", err)
	}
	return runs, "", nil
}

// condition is one equality of a filter and the index that answers it in order.
type condition struct {
	column string
	value  any
	index  string // empty: only ever checked beside an indexed one
}

// runQuery is a filter made ready: which index drives it, and the range of seq.
type runQuery struct {
	workspace  string
	id         string  // beginning
	seqs       []int64 // of the runs whose id begins so, if they are few
	conditions []condition
	from, to   int64 // from <= seq < to
	limit      int
	driver     string
}

const indexWorkspace = "runs_workspace"

func newRunQuery(f RunFilter) (*runQuery, error) {
	q := &runQuery{workspace: f.Workspace, to: 1<<63 - 1, limit: f.Limit, driver: indexWorkspace, id: f.ID}
	if q.limit <= 0 || q.limit > protocol.MaxListed {
		q.limit = protocol.MaxListed
	}
	add := func(column, index, value string) {
		if value != "" {
			q.conditions = append(q.conditions, condition{column, value, index})
		}
	}
	id, version, _ := strings.Cut(f.Harness, "@")
	// The order breaks ties between indexes that select about as much.
	add("runner", "runs_runner", f.Runner)
	add("failure_class", "runs_failure", f.FailureClass)
	if f.Verdict != nil {
		q.conditions = append(q.conditions, condition{"verdict", *f.Verdict, "runs_verdict"})
	}
	add("trigger_label", "runs_trigger", f.Trigger)
	add("harness_id", "runs_harness", id)
	add("harness_version", "", version)
	add("runtime", "runs_runtime", f.Runtime)
	add("cause", "runs_cause", f.Cause)
	add("status", "runs_status", string(f.Status))
	add("class", "runs_class", f.Class)
	if !f.Since.IsZero() {
		q.from = seqAt(f.Since)
	}
	if !f.Until.IsZero() {
		q.to = seqAt(f.Until)
	}
	if f.Cursor != "" {
		before, err := decodeCursor(f.Cursor)
		if err != nil {
			return nil, err
		}
		q.to = min(q.to, before)
	}
	return q, nil
}

// probeLimit bounds what choose spends on one index: below it the exact count is
// known, and an index that selects so little makes any page cheap.
const probeLimit = 1000

// choose picks the index that selects least. SQLite keeps no statistics of these
// columns (they would be stale), so of two filters it could scan a million
// succeeded runs to find ten of a rare harness.
func (q *runQuery) choose(ctx context.Context, s *Store) error {
	if q.id != "" {
		if err := q.find(ctx, s); err != nil || q.seqs != nil {
			return err
		}
	}
	var indexed []condition
	for _, c := range q.conditions {
		if c.index != "" {
			indexed = append(indexed, c)
		}
	}
	if len(indexed) == 0 {
		return nil
	}
	q.driver = indexed[0].index
	if len(indexed) == 1 {
		return nil
	}
	least := probeLimit + 1
	for _, c := range indexed {
		var n int
		text, args := q.probe(c)
		if err := s.db.Reader().QueryRowContext(ctx, text, args...).Scan(&n); err != nil {
			return fmt.Errorf("store: list runs: %w", err)
		}
		if n < least {
			least, q.driver = n, c.index
		}
	}
	return nil
}

const sqlSeqsByID = `SELECT seq FROM runs WHERE id >= ? AND id < ? AND +workspace = ? ORDER BY id DESC LIMIT ?`

// find looks up the runs whose id begins with q.id. If those are many, the page is read
// as without it, and checked.
func (q *runQuery) find(ctx context.Context, s *Store) (err error) {
	rows, err := s.db.Reader().QueryContext(ctx, sqlSeqsByID, q.id, q.id+"\U0010ffff", q.workspace, probeLimit+1)
	if err != nil {
		return fmt.Errorf("store: find runs by id: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	seqs := []int64{}
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return fmt.Errorf("store: find runs by id: %w", err)
		}
		seqs = append(seqs, seq)
	}
	if len(seqs) <= probeLimit {
		q.seqs = seqs
	}
	return rows.Err()
}

// probe counts what one condition selects, up to probeLimit, from its index
// alone.
func (q *runQuery) probe(c condition) (string, []any) {
	return `SELECT COUNT(*) FROM (SELECT 1 FROM runs INDEXED BY ` + c.index +
		` WHERE workspace = ? AND ` + c.column + ` = ? AND seq >= ? AND seq < ? LIMIT ?)`, []any{q.workspace, c.value, q.from, q.to, probeLimit}
}

// page selects one row more than the limit, which tells whether a next page
// exists.
func (q *runQuery) page() (string, []any) {
	where, args := q.where()
	return `SELECT seq, record ` + where + ` ORDER BY seq DESC LIMIT ?`, append(args, q.limit+1)
}

func (q *runQuery) where() (string, []any) {
	var b strings.Builder
	b.WriteString(`FROM runs `)
	args := []any{q.workspace}
	switch {
	case q.seqs != nil:
		b.WriteString(`NOT INDEXED WHERE workspace = ? AND seq IN (` + strings.TrimSuffix(strings.Repeat("?,", len(q.seqs)), ",") + `)`)
		for _, seq := range q.seqs {
			args = append(args, seq)
		}
	default:
		b.WriteString(`INDEXED BY ` + q.driver + ` WHERE workspace = ?`)
		if q.id != "" {
			b.WriteString(` AND +id >= ? AND +id < ?`)
			args = append(args, q.id, q.id+"\U0010ffff")
		}
	}
	for _, c := range q.conditions {
		b.WriteString(` AND ` + c.column + ` = ?`)
		args = append(args, c.value)
	}
	b.WriteString(` AND seq >= ? AND seq < ?`)
	return b.String(), append(args, q.from, q.to)
}

// Bounds of what CountRuns looks at: with one condition the index alone answers, with
// more the rows do.
const countIndexed, countRows = 100_000, 20_000

// CountRuns is how many runs a filter selects, whatever its Limit and Cursor. more says
// that there are at least so many: it counted as far as is cheap.
func (s *Store) CountRuns(ctx context.Context, f RunFilter) (n int64, more bool, err error) {
	f.Cursor = ""
	q, err := newRunQuery(f)
	if err != nil {
		return 0, false, err
	}
	if err := q.choose(ctx, s); err != nil {
		return 0, false, err
	}
	text, args, bound := q.count()
	var looked int64
	if err := s.db.Reader().QueryRowContext(ctx, text, args...).Scan(&n, &looked); err != nil {
		return 0, false, fmt.Errorf("store: count runs: %w", err)
	}
	return n, looked >= bound, nil
}

// count counts what is selected among the rows, up to a bound, that the driver gives,
// and those rows.
func (q *runQuery) count() (text string, args []any, bound int64) {
	if q.seqs != nil || q.id == "" && len(q.conditions) <= 1 {
		where, args := q.where()
		return `SELECT COUNT(*), COUNT(*) FROM (SELECT 1 ` + where + ` LIMIT ?)`, append(args, countIndexed), countIndexed
	}
	driven := *q
	driven.conditions, driven.id = nil, ""
	columns, checks := []string{"id"}, []string{}
	var checked []any
	if q.id != "" {
		checks, checked = append(checks, "id >= ? AND id < ?"), append(checked, q.id, q.id+"\U0010ffff")
	}
	for _, c := range q.conditions {
		if c.index == q.driver {
			driven.conditions = append(driven.conditions, c)
			continue
		}
		columns, checks, checked = append(columns, c.column), append(checks, c.column+" = ?"), append(checked, c.value)
	}
	where, args := driven.where()
	return `SELECT COALESCE(SUM(` + strings.Join(checks, " AND ") + `), 0), COUNT(*) FROM (SELECT ` + strings.Join(columns, ", ") + ` ` + where +
		` ORDER BY seq DESC LIMIT ?)`, append(append(checked, args...), countRows), countRows
}

// seqAt is the lowest seq of a run accepted at t, clamped to what seq can hold.
func seqAt(t time.Time) int64 {
	const year2248 = 1 << (63 - seqShift)
	return min(max(t.UnixMilli(), 0), year2248-1) << seqShift
}

// A cursor is the seq of the last row of a page behind a version byte.
const cursorVersion = 1

func encodeCursor(seq int64) string {
	b := make([]byte, 9)
	b[0] = cursorVersion
	binary.BigEndian.PutUint64(b[1:], uint64(seq))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (int64, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 9 || b[0] != cursorVersion || b[1]&0x80 != 0 {
		return 0, ErrBadCursor
	}
	return int64(binary.BigEndian.Uint64(b[1:])), nil
}
