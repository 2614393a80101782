package lease

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/lease/sqlite"
)

// TestPlans reads the plan of every statement that runs per job or per tick: each must be a search in the index named, and
// none may scan a table or sort.
func TestPlans(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "x.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Migrate(context.Background(), "lease", migrations()); err != nil {
		t.Fatal(err)
	}
	const rowid = "USING INTEGER PRIMARY KEY"
	rows := []struct {
		name, query, index string
	}{
		{"lease", updateLeased, rowid},
		{"start", updateStarted, rowid},
		{"requeue", updateRequeued, rowid},
		{"unplaced", updateAttempt, rowid},
		{"park", updateParked, rowid},
		{"hold", updateHeld, rowid},
		{"resume", updateResumed, rowid},
		{"stop", updateStop, rowid},
		{"settle", updateSettled, rowid},
		{"job by id", selectJob, "sqlite_autoindex_lease_job_1 (id=?)"},
		{"payload", selectPayload, rowid},
		{"window", selectWindow, "USING INDEX lease_job_queued (lane=?)"},
		{"window with payloads", selectWindowPayloads, "USING INDEX lease_job_queued (lane=?)"},
		{"next deadline", selectNextDeadline, "USING COVERING INDEX lease_job_deadline"},
		{"retried", updateRetried, rowid},
		{"next retry", selectNextRetry, "USING COVERING INDEX lease_job_delayed"},
		{"retries", selectRetries, "USING INDEX lease_job_delayed (retry_at<?)"},
		{"overdue", selectOverdue, "USING INDEX lease_job_deadline (deadline_at>? AND deadline_at<?)"},
		{"ahead", countAhead, "USING COVERING INDEX lease_job_queued (lane=? AND seq<?)"},
		{"leased", selectLeased, "USING INDEX lease_job_leased (state=?)"},
		{"count queued", countQueued, "USING COVERING INDEX lease_job_queued"},
		{"count parked", countParked, "USING COVERING INDEX lease_job_parked"},
		{"lane by key", selectLaneByKey, "sqlite_autoindex_lease_lane_1"},
		{"lane", selectLane, rowid},
		{"payloads to prune", selectPayloadJobs, rowid},
		{"jobs to prune", selectSettledFrom, rowid},
		{"prune payload", deletePayload, rowid},
		{"prune job", deleteJob, rowid},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			// The plan is asked for with every parameter unbound, as the statement is prepared.
			r, err := db.Reader().Query("EXPLAIN QUERY PLAN "+row.query, make([]any, strings.Count(row.query, "?"))...)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var plan []string
			for r.Next() {
				var id, parent, unused int
				var detail string
				if err := r.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				plan = append(plan, detail)
			}
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			all := strings.Join(plan, "; ")
			if !strings.Contains(all, row.index) {
				t.Errorf("plan %q, want %q in it", all, row.index)
			}
			for _, step := range plan {
				bare := strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "INDEX") && !strings.Contains(step, "(subquery")
				if bare || strings.Contains(step, "TEMP B-TREE") {
					t.Errorf("plan %q has %q", all, step)
				}
			}
		})
	}
}
