package store

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// Every query that runs are read by goes through an index, in its order: no
// table scan, no sort.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "everdict.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := Open(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	type query struct {
		name, text, index string
		args              []any
	}
	queries := []query{
		{"run", sqlRun, "sqlite_autoindex_runs_1", []any{"", ""}},
		{"record", sqlRunRecord, "sqlite_autoindex_runs_1", []any{""}},
		{"spec", sqlRunSpec, "sqlite_autoindex_runs_1", []any{""}},
		{"events", sqlRunEvents, "PRIMARY KEY", []any{1}},
		{"append event", sqlAppendEvent, "sqlite_autoindex_runs_1", []any{0, "", 0, "", "", ""}},
		{"put attempt", sqlPutAttempt, "sqlite_autoindex_runs_1", []any{0, "", "", ""}},
		{"attempts", sqlAttempts, "sqlite_autoindex_run_attempts_1", []any{""}},
		{"attempt", sqlAttempt, "sqlite_autoindex_run_attempts_1", []any{"", 1}},
		{"runner", sqlRunner, "PRIMARY KEY", []any{""}},
		{"runner by token", sqlRunnerToken, "sqlite_autoindex_runners_2", []any{""}},
		{"touch", sqlTouchRunner, "PRIMARY KEY", []any{0, "", ""}},
		{"revoke", sqlRevokeRunner, "PRIMARY KEY", []any{0, "", ""}},
		{"runners", sqlRunners, "runners_workspace", []any{""}},
		{"pool token", sqlPoolToken, "sqlite_autoindex_pool_tokens_2", []any{""}},
		{"pool tokens", sqlPoolTokens, "pool_tokens_workspace", []any{""}},
		{"join token", sqlJoinToken, "sqlite_autoindex_join_tokens_2", []any{""}},
		{"use join token", sqlUseJoinToken, "PRIMARY KEY", []any{0, "", "", 0}},
		{"drop join tokens", sqlDropJoinToken, "join_tokens_expiry", []any{0}},
		{"revoke joined", sqlRevokeJoined, "runners_pool_token", []any{0, ""}},
		{"leave", sqlLeaveRunners, "runners_pool_present", []any{0, 0}},
		{"return", sqlReturnRunner, "PRIMARY KEY", []any{""}},
		{"to tidy", sqlToTidy, "runners_pool_present", []any{0, 0}},
		{"forget", sqlForgetRunners, "runners_gone", []any{0}},
		{"key by hash", sqlKeyByHash, "sqlite_autoindex_api_keys_2", []any{""}},
		{"secret", sqlSecret, "sqlite_autoindex_secrets_1", []any{"", "", "", ""}},
		{"names of secrets", sqlSecretNames, "sqlite_autoindex_secrets_1", []any{"", "", ""}},
		{"delete a secret", sqlDeleteSecret, "sqlite_autoindex_secrets_1", []any{"", "", "", ""}},
		{"runner by key", sqlRunnerKey, "runners_public_key", []any{""}},
		{"session", sqlSession, "PRIMARY KEY", []any{""}},
		{"touch a session", sqlTouchSession, "PRIMARY KEY", []any{0, "", 0}},
		{"delete a session", sqlDeleteSession, "PRIMARY KEY", []any{""}},
		{"drop sessions", sqlDropSessions, "sessions_expiry", []any{0}},
		{"runs by id", sqlSeqsByID, "sqlite_autoindex_runs_1", []any{"", "", "", 1}},
		{"outcomes", sqlOutcomes, "PRIMARY KEY", []any{"", 0}},
		{"drop outcomes", sqlDropOutcomes, "PRIMARY KEY", []any{"", 0}},
		{"runs by status", sqlCountStatus, "COVERING INDEX runs_status", []any{"", ""}},
		{"key", sqlKey, "PRIMARY KEY", []any{"", ""}},
		{"keys", sqlKeys, "api_keys_subject", []any{"", ""}},
		{"keys of a workspace", sqlWorkspaceKeys, "api_keys_workspace", []any{""}},
	}
	yes := true
	all := RunFilter{
		Workspace: "w", Status: protocol.StatusQueued, Verdict: &yes, Harness: "h@1", Runtime: "r", Runner: "rnr", Cause: "ci",
		Trigger: "web", FailureClass: "infra", Since: time.Now(), Until: time.Now(),
	}
	one := func(name, index string, f RunFilter) {
		f.Workspace = "w"
		q, err := newRunQuery(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range q.conditions {
			if c.index == "" {
				continue
			}
			text, args := q.probe(c)
			queries = append(queries, query{name + ": count by " + c.column, text, "COVERING INDEX " + c.index, args})
			q.driver = c.index
			text, args = q.page()
			queries = append(queries, query{name + ": page by " + c.column, text, "INDEX " + c.index, args})
		}
		if index != "" {
			text, args := q.page()
			queries = append(queries, query{name, text, index, args})
		}
	}
	one("no filter", indexWorkspace, RunFilter{})
	one("every filter", "", all)
	for name, f := range map[string]RunFilter{"none": {}, "one": {Status: protocol.StatusFailed}, "several": all, "an id": {ID: "run_01", Status: protocol.StatusFailed}} {
		f.Workspace = "w"
		q, err := newRunQuery(f)
		if err != nil {
			t.Fatal(err)
		}
		if f.Status != "" {
			q.driver = "runs_status"
		}
		text, args, _ := q.count()
		queries = append(queries, query{"count with " + name, text, "INDEX " + q.driver, args})
		text, args = q.page()
		queries = append(queries, query{"page with " + name, text, "INDEX " + q.driver, args})
		q.seqs = []int64{1, 2, 3}
		text, args = q.page()
		queries = append(queries, query{"page of a few with " + name, text, "INTEGER PRIMARY KEY", args})
	}
	for _, q := range queries {
		rows, err := db.Reader().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+q.text, q.args...)
		if err != nil {
			t.Errorf("%s: %v", q.name, err)
			continue
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(plan, "\n")
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "SCAN") && !strings.HasPrefix(line, "SCAN (subquery") || strings.Contains(line, "TEMP B-TREE") {
				t.Errorf("%s: plan has %q, want neither scan nor sort:\n%s", q.name, line, text)
			}
		}
		if !strings.Contains(text, q.index) {
			t.Errorf("%s: plan does not use %q:\n%s", q.name, q.index, text)
		}
	}
}
