package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-sqlite3"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

func open(t testing.TB) *store.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "everdict.db"))
}

func openAt(t testing.TB, path string) *store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	s, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	return s
}

// start is when the first run of a test is accepted.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newRun(i int) *protocol.Run {
	at := protocol.At(start.Add(time.Duration(i) * time.Second))
	return &protocol.Run{
		ID: fmt.Sprintf("run_%06d", i), Tenant: "default", Status: protocol.StatusQueued, CaseID: "c1",
		Harness: protocol.HarnessRef{ID: "scripted", Version: "latest"}, Kind: "eval", Class: "interactive", Runtime: "auto",
		CreatedAt: at, UpdatedAt: at,
	}
}

func insert(t testing.TB, s *store.Store, runs ...*protocol.Run) {
	t.Helper()
	err := s.DB().Write(t.Context(), func(tx *sqlite.Tx) error {
		for _, r := range runs {
			if err := s.InsertRun(tx, r, []byte(`{"case":"`+r.ID+`"}`)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("insert runs: %v", err)
	}
}

func update(t testing.TB, s *store.Store, id string, change func(*protocol.Run) error) {
	t.Helper()
	if err := s.DB().Write(t.Context(), func(tx *sqlite.Tx) error { return s.UpdateRun(tx, id, change) }); err != nil {
		t.Fatalf("update %s: %v", id, err)
	}
}

func ids(runs []protocol.Run) []string {
	list := []string{}
	for _, r := range runs {
		list = append(list, r.ID)
	}
	return list
}

func TestRunIsReadAsWritten(t *testing.T) {
	t.Parallel()
	s := open(t)
	want := newRun(1)
	want.Origin = &protocol.Origin{Cause: "ci", Actor: "someone"}
	want.CaseSpec, want.Result = &protocol.Case{ID: "c1"}, &protocol.CaseResult{CaseID: "c1"}
	insert(t, s, want)

	got, err := s.Run(t.Context(), "default", want.ID)
	if err != nil {
		t.Fatalf("read the run: %v", err)
	}
	// Both are kept apart, so that a list of records stays small.
	want.CaseSpec, want.Result = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the record that was read differs from the one written (-written +read):\n%s", diff)
	}
	spec, err := s.RunSpec(t.Context(), want.ID)
	if err != nil || string(spec) != `{"case":"run_000001"}` {
		t.Errorf("spec = %q, %v; want what was inserted", spec, err)
	}
	for _, other := range []struct{ workspace, id string }{{"other", want.ID}, {"default", "run_none"}} {
		if _, err := s.Run(t.Context(), other.workspace, other.id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("run %s of workspace %s: error %v, want ErrNotFound", other.id, other.workspace, err)
		}
	}
}

func TestUpdateRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	insert(t, s, newRun(1))
	pass := true
	update(t, s, "run_000001", func(r *protocol.Run) error {
		r.Status, r.Verdict, r.UpdatedAt = protocol.StatusSucceeded, &pass, protocol.At(start.Add(time.Minute))
		r.Provenance = &protocol.Provenance{RanOn: "self-hosted", Runner: "rnr_1"}
		r.ResolvedHarness = &protocol.HarnessRef{ID: "scripted", Version: "builtin"}
		return nil
	})
	got, _, err := s.Runs(t.Context(), store.RunFilter{Workspace: "default", Verdict: &pass, Runner: "rnr_1", Harness: "scripted@builtin"})
	if err != nil || len(got) != 1 || got[0].Status != protocol.StatusSucceeded {
		t.Fatalf("list by what the update set: %d runs (%v), want the run as updated", len(got), err)
	}

	refused := errors.New("no")
	err = s.DB().Write(t.Context(), func(tx *sqlite.Tx) error {
		return s.UpdateRun(tx, "run_000001", func(r *protocol.Run) error { r.Status = protocol.StatusFailed; return refused })
	})
	if !errors.Is(err, refused) {
		t.Errorf("an update whose change fails: error %v, want the change's own", err)
	}
	if r, _ := s.Run(t.Context(), "default", "run_000001"); r.Status != protocol.StatusSucceeded {
		t.Errorf("status after a refused change = %s, want it unchanged", r.Status)
	}
	err = s.DB().Write(t.Context(), func(tx *sqlite.Tx) error {
		return s.UpdateRun(tx, "run_none", func(*protocol.Run) error { return nil })
	})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("update of an unknown run: error %v, want ErrNotFound", err)
	}
}

func TestEventsAndAttempts(t *testing.T) {
	t.Parallel()
	s := open(t)
	insert(t, s, newRun(1), newRun(2))
	at := protocol.At(start.Add(time.Hour))
	write := func(fn func(*sqlite.Tx) error) error { return s.DB().Write(t.Context(), fn) }
	for i, kind := range []string{protocol.RunLeased, protocol.RunStarted} {
		if err := write(func(tx *sqlite.Tx) error {
			return s.AppendEvent(tx, "run_000001", protocol.RunEvent{At: at, Kind: kind, Attempt: int64(i + 1), Runner: "rnr_1"})
		}); err != nil {
			t.Fatalf("append %s: %v", kind, err)
		}
	}
	want := []protocol.RunEvent{
		{Seq: 1, At: newRun(1).CreatedAt, Kind: protocol.RunSubmitted},
		{Seq: 2, At: at, Kind: protocol.RunLeased, Attempt: 1, Runner: "rnr_1"},
		{Seq: 3, At: at, Kind: protocol.RunStarted, Attempt: 2, Runner: "rnr_1"},
	}
	got, err := s.RunEvents(t.Context(), "run_000001")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("events (%v) (-want +got):\n%s", err, diff)
	}
	if other, err := s.RunEvents(t.Context(), "run_000002"); err != nil || len(other) != 1 {
		t.Errorf("events of another run: %v, %v; want only its submission", other, err)
	}

	// A late result joins the attempt that was superseded, and a later write of
	// the attempt does not lose it.
	a := protocol.Attempt{Attempt: 1, Runner: "rnr_1", Outcome: protocol.AttemptExpired, LeasedAt: &at}
	for _, step := range []func(){func() {}, func() { a.Result, a.LateAt = &protocol.CaseResult{CaseID: "c1"}, &at }, func() { a.Result, a.Message = nil, "seen" }} {
		step()
		if err := write(func(tx *sqlite.Tx) error { return s.PutAttempt(tx, "run_000001", a) }); err != nil {
			t.Fatalf("write the attempt: %v", err)
		}
	}
	a.Result = &protocol.CaseResult{CaseID: "c1"}
	attempts, err := s.Attempts(t.Context(), "run_000001")
	if diff := cmp.Diff([]protocol.Attempt{a}, attempts); err != nil || diff != "" {
		t.Errorf("attempts (%v) (-want +got):\n%s", err, diff)
	}
	one, err := s.Attempt(t.Context(), "run_000001", 1)
	if diff := cmp.Diff(&a, one); err != nil || diff != "" {
		t.Errorf("one attempt (%v) (-want +got):\n%s", err, diff)
	}
	for name, fn := range map[string]func(*sqlite.Tx) error{
		"AppendEvent": func(tx *sqlite.Tx) error { return s.AppendEvent(tx, "run_none", protocol.RunEvent{At: at}) },
		"PutAttempt":  func(tx *sqlite.Tx) error { return s.PutAttempt(tx, "run_none", a) },
		"ReadAttempt": func(tx *sqlite.Tx) error { _, err := s.ReadAttempt(tx, "run_000001", 9); return err },
	} {
		if err := write(fn); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s of what is not there: error %v, want ErrNotFound", name, err)
		}
	}
}

func TestRunnersAndKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	at := protocol.At(start)
	r := store.RunnerRecord{Runner: protocol.Runner{ID: "rnr_1", Label: "mac", Owner: "dev", Capabilities: []string{"git"}, PairedAt: at},
		Workspace: "default", TokenHash: store.HashSecret("secret")}
	if err := s.InsertRunner(ctx, r); err != nil {
		t.Fatal(err)
	}
	got, err := s.RunnerByToken(ctx, store.HashSecret("secret"))
	if diff := cmp.Diff(&r, got); err != nil || diff != "" {
		t.Errorf("runner by token (%v) (-want +got):\n%s", err, diff)
	}
	seen := r.Runner
	seen.LastSeenAt, seen.Version = &at, "1.2.3"
	if _, err := s.TouchRunners(ctx, []protocol.Runner{seen, {ID: "rnr_unknown"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeRunner(ctx, "other", "rnr_1", at); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoke from another workspace: %v, want ErrNotFound", err)
	}
	if err := s.RevokeRunner(ctx, "default", "rnr_1", at); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeRunner(ctx, "default", "rnr_1", at); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoke twice: %v, want ErrNotFound", err)
	}
	if got, err = s.Runner(ctx, "rnr_1"); err != nil || got.RevokedAt == nil || got.Version != "1.2.3" {
		t.Errorf("revoked runner = %+v, %v; want it with RevokedAt and what was last seen", got, err)
	}
	if list, err := s.Runners(ctx, "default"); err != nil || len(list) != 0 {
		t.Errorf("runners after the revocation = %v, %v; want none", list, err)
	}

	k := store.KeyRecord{Key: protocol.Key{ID: "key_1", Subject: "dev", Role: "member", Prefix: "ak_123456789", Scopes: []string{"read", "write"}, CreatedBy: "ann", CreatedAt: at},
		Workspace: "default", Hash: store.HashSecret("ak_")}
	if err := s.InsertFirstKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	second := k
	second.ID, second.Hash = "key_2", store.HashSecret("ak_2")
	if err := s.InsertFirstKey(ctx, second); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second first key: %v, want ErrExists", err)
	}
	key, err := s.KeyByHash(ctx, store.HashSecret("ak_"))
	if diff := cmp.Diff(&k, key); err != nil || diff != "" {
		t.Errorf("key by hash (%v) (-want +got):\n%s", err, diff)
	}
	other := k
	other.ID, other.Subject, other.Hash, other.CreatedAt = "key_3", "ben", store.HashSecret("ak_3"), protocol.At(at.Add(time.Second))
	if err := s.InsertKey(ctx, other); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what string
		list func() ([]store.KeyRecord, error)
		want []store.KeyRecord
	}{
		{"of dev", func() ([]store.KeyRecord, error) { return s.Keys(ctx, "default", "dev") }, []store.KeyRecord{k}},
		{"of the workspace", func() ([]store.KeyRecord, error) { return s.WorkspaceKeys(ctx, "default") }, []store.KeyRecord{other, k}},
		{"of another workspace", func() ([]store.KeyRecord, error) { return s.WorkspaceKeys(ctx, "elsewhere") }, nil},
	} {
		list, err := row.list()
		if diff := cmp.Diff(row.want, list); err != nil || diff != "" {
			t.Errorf("keys %s (%v) (-want +got):\n%s", row.what, err, diff)
		}
	}
	if _, err := s.Key(ctx, "elsewhere", "key_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the key of another workspace: %v, want ErrNotFound", err)
	}
	if err := s.DeleteKey(ctx, "elsewhere", "key_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("delete the key of another workspace: %v, want ErrNotFound", err)
	}
	if err := s.DeleteKey(ctx, "default", "key_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeyByHash(ctx, k.Hash); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a deleted key: %v, want ErrNotFound", err)
	}
}

func TestDefinitionNeverChanges(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	d := store.Definition{DefinitionKey: store.DefinitionKey{Collection: "harness", Workspace: "default", ID: "mine", Version: "1.0.0"},
		Form: "spec", Body: []byte(`{"a":1}`), CreatedBy: "dev", CreatedAt: protocol.At(start)}
	other := d
	other.Body = []byte(`{"a":2}`)
	steps := []struct {
		name string
		do   func() error
		want error
	}{
		{"register", func() error { return s.PutDefinition(ctx, d) }, nil},
		{"the same again", func() error { return s.PutDefinition(ctx, d) }, nil},
		{"another body", func() error { return s.PutDefinition(ctx, other) }, store.ErrExists},
		{"tag", func() error { return s.TagDefinition(ctx, d.DefinitionKey, []string{"prod"}) }, nil},
		{"delete", func() error { return s.DeleteDefinition(ctx, d.DefinitionKey, protocol.At(start)) }, nil},
		{"delete again", func() error { return s.DeleteDefinition(ctx, d.DefinitionKey, protocol.At(start)) }, store.ErrNotFound},
		{"read deleted", func() error {
			left, err := s.Versions(ctx, d.Collection, d.Workspace, d.ID)
			if len(left) > 0 {
				t.Errorf("deleted, and still there: %+v", left)
			}
			return err
		}, nil},
		{"another body over deleted", func() error { return s.PutDefinition(ctx, other) }, store.ErrExists},
		{"the same revives", func() error { return s.PutDefinition(ctx, d) }, nil},
	}
	for _, step := range steps {
		if err := step.do(); !errors.Is(err, step.want) {
			t.Fatalf("%s: error %v, want %v", step.name, err, step.want)
		}
	}
	got, err := s.Versions(ctx, d.Collection, d.Workspace, d.ID)
	d.Tags = []string{"prod"}
	if diff := cmp.Diff([]store.Definition{d}, got); err != nil || diff != "" {
		t.Errorf("definition (%v) (-want +got):\n%s", err, diff)
	}
}

func TestReopenKeepsTheOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "everdict.db")
	func() {
		db, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s, err := store.Open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		insert(t, s, newRun(5))
	}()
	s := openAt(t, path)
	// The clock has stepped back: the newer run still comes first.
	insert(t, s, newRun(3))
	runs, _, err := s.Runs(t.Context(), store.RunFilter{Workspace: "default"})
	if diff := cmp.Diff([]string{"run_000003", "run_000005"}, ids(runs)); err != nil || diff != "" {
		t.Errorf("order after a restart with an earlier clock (%v) (-want +got):\n%s", err, diff)
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "everdict.db")})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	err = s.Ping(t.Context())
	if problem := store.Unavailable(err); problem == nil || problem.Status != 503 {
		t.Errorf("ping of a closed database: %v, which Unavailable takes for %v; want a 503", err, problem)
	}
	full := fmt.Errorf("commit: %w", sqlite3.Error{Code: sqlite3.ErrFull})
	if problem := store.Unavailable(full); problem == nil || problem.Status != 503 || !strings.Contains(problem.Message, "disk is full") {
		t.Errorf("Unavailable of a full disk = %v, want a 503 that says so", problem)
	}
	if problem := store.Unavailable(errors.New("else")); problem != nil {
		t.Errorf("Unavailable of any other error = %v, want nil", problem)
	}
}
