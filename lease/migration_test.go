package lease

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/everdict/everdict/lease/sqlite"
)

// TestP2_MigrationOfLanes: the jobs of a database from before lanes had CPU stay in their lanes, and a way back brings
// lanes that differ in CPU alone together again.
func TestP2_MigrationOfLanes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(t.TempDir(), "x.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := fstest.MapFS{}
	for _, name := range []string{"00001_queue.sql", "00002_retry.sql", "00003_fence.sql"} {
		b, err := fs.ReadFile(migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = &fstest.MapFile{Data: b}
	}
	if err := db.Migrate(ctx, "lease", before); err != nil {
		t.Fatal(err)
	}
	exec := func(statements ...string) {
		t.Helper()
		err := db.Write(ctx, func(tx *sqlite.Tx) error {
			for _, s := range statements {
				if _, err := tx.Exec(s); err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO lease_lane (id, workspace, pool, class, capabilities, os, arch, memory_mb) VALUES (7, 'w', 'p', 0, '', '', '', 64)`,
		`INSERT INTO lease_job (seq, id, lane, state, max_attempts, wait, enqueued_at, deadline_at) VALUES (1, 'old', 7, 0, 1, 1, 1, 9e18)`,
		`INSERT INTO lease_payload (seq, payload) VALUES (1, 'x')`)

	q, err := Open(ctx, db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	same := Job{ID: "same", Workspace: "w", Pool: "p", Payload: []byte("x"), Requirements: Requirements{MemoryMB: 64}}
	other := same
	other.ID, other.Requirements.CPU = "other", 500
	if err := q.EnqueueAll(ctx, []Job{same, other}); err != nil {
		t.Fatal(err)
	}
	d, err := q.Demand(ctx, "p", 10, nil)
	if err != nil || len(d.Next) != 3 || d.Next[0].Job != "old" || d.Next[0].Requirements.CPU != 0 || d.Next[2].Requirements.CPU != 500 {
		t.Errorf("queued: %+v, %v", d.Next, err)
	}
	lanes := func() string {
		t.Helper()
		rows, err := db.Reader().Query(`SELECT j.id, l.id FROM lease_job j JOIN lease_lane l ON l.id = j.lane ORDER BY j.seq`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all []string
		for rows.Next() {
			var job string
			var lane int
			if err := rows.Scan(&job, &lane); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(job, ":", lane))
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
	if got, want := lanes(), "old:7 same:7 other:8"; got != want {
		t.Errorf("lanes %s, want %s", got, want)
	}
	last, err := fs.ReadFile(migrations(), "00004_cpu.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, down, _ := strings.Cut(string(last), "-- +goose Down\n")
	for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(down), ";"), ";\n") {
		exec(statement)
	}
	if got, want := lanes(), "old:7 same:7 other:7"; got != want {
		t.Errorf("lanes on the way back %s, want %s", got, want)
	}
}
