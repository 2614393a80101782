package sqlite_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mattn/go-sqlite3"
	"go.uber.org/goleak"

	"github.com/everdict/everdict/lease/sqlite"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("SQLITE_TEST_HOLD"); path != "" {
		hold(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// hold is another process with a database open, until its standard input ends.
func hold(path string) {
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("open")
	buf := make([]byte, 1)
	_, _ = os.Stdin.Read(buf)
	if err := db.Close(); err != nil {
		fmt.Println(err)
	}
}

func open(tb testing.TB) *sqlite.DB {
	tb.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "odd name?#%.db")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func mustExec(tb testing.TB, db *sqlite.DB, query string, args ...any) {
	tb.Helper()
	if err := exec1(db, query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

func exec1(db *sqlite.DB, query string, args ...any) error {
	return db.Write(context.Background(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
}

func count(tb testing.TB, db *sqlite.DB, table string) int {
	tb.Helper()
	var n int
	if err := db.Reader().QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestP1_PragmasAreReadBack checks on the writer's own connection what durability rests on.
func TestP1_PragmasAreReadBack(t *testing.T) {
	t.Parallel()
	db := open(t)
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got any
		err := db.Apply(context.Background(), func(tx *sqlite.Tx) error { return tx.QueryRow("PRAGMA " + name).Scan(&got) })
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s is %v, %v, want %s", name, got, err, want)
		}
	}
	if _, err := db.Reader().Exec("CREATE TABLE t (x)"); err == nil {
		t.Error("the read pool can write")
	}
}

// TestF41_SecondOpenerIsRefused opens a database twice, from this process and from another one.
func TestF41_SecondOpenerIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := sqlite.Open(context.Background(), sqlite.Config{Path: db.Path()})
	var held *sqlite.HeldError
	if !errors.As(err, &held) || held.Holder.PID != os.Getpid() || held.Holder.Host == "" || held.Holder.Since.IsZero() {
		t.Fatalf("a second open of this process: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SQLITE_TEST_HOLD="+db.Path())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("is in use by process %d on host ", os.Getpid())
	if !strings.Contains(string(out), want) || !strings.Contains(string(out), " since ") {
		t.Fatalf("another process was told %q, want %q in it", out, want)
	}
}

// TestF41_LockDiesWithItsProcess kills a holder: the next one opens, and reads no stale name.
func TestF41_LockDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SQLITE_TEST_HOLD="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := out.Read(line); err != nil || string(line) != "open\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	_, err = sqlite.Open(context.Background(), sqlite.Config{Path: path})
	var held *sqlite.HeldError
	if !errors.As(err, &held) || held.Holder.PID != cmd.Process.Pid {
		t.Errorf("while process %d holds it: %v", cmd.Process.Pid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestF41_NoLockedErrors has 200 goroutines write and read on one processor.
func TestF41_NoLockedErrors(t *testing.T) {
	// Not parallel: it takes the processors of the whole process.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, who INTEGER NOT NULL, n INTEGER NOT NULL)")
	const goroutines, rounds = 200, 20
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range rounds {
				err := db.Write(ctx, func(tx *sqlite.Tx) error {
					var n int // read, then write by what was read
					if err := tx.QueryRow("SELECT count(*) FROM t WHERE who = ?", g).Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec("INSERT INTO t (who, n) VALUES (?, ?)", g, n)
					return err
				})
				if err != nil {
					t.Errorf("goroutine %d, round %d: write: %v", g, i, err)
					return
				}
				var n int
				if err := db.Reader().QueryRow("SELECT count(*) FROM t WHERE who = ?", g).Scan(&n); err != nil || n != i+1 {
					t.Errorf("goroutine %d, round %d: read %d, %v, want its own %d writes", g, i, n, err, i+1)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, db, "t"); n != goroutines*rounds {
		t.Errorf("%d rows, want %d", n, goroutines*rounds)
	}
}

// group makes operations share one commit: the first of them waits until all are queued.
func group(t *testing.T, db *sqlite.DB, fns ...func(*sqlite.Tx) error) []error {
	t.Helper()
	errs := make([]error, len(fns))
	gate := make(chan struct{})
	started := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = db.Write(context.Background(), func(*sqlite.Tx) error {
			close(started)
			<-gate
			return nil
		})
	})
	<-started
	for i, fn := range fns {
		wg.Go(func() { errs[i] = db.Write(context.Background(), fn) })
	}
	db.AwaitPending(len(fns))
	close(gate)
	wg.Wait()
	return errs
}

var errRefused = errors.New("refused")

// TestGroup_FailureIsContained has one of three operations of a group fail after it has written.
func TestGroup_FailureIsContained(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (x INTEGER PRIMARY KEY)")
	insert := func(x int, then error) func(*sqlite.Tx) error {
		return func(tx *sqlite.Tx) error {
			if _, err := tx.Exec("INSERT INTO t VALUES (?)", x); err != nil {
				return err
			}
			return then
		}
	}
	commits := commitCounter(t, db)
	errs := group(t, db,
		insert(1, nil), insert(2, errRefused), insert(3, nil),
		func(tx *sqlite.Tx) error { _, err := tx.Exec("INSERT INTO nowhere VALUES (1)"); return err },
		func(tx *sqlite.Tx) error {
			// A failure inside a failure's handling: the inner one is undone, the outer one stands.
			err := tx.Nested(insert(4, errRefused))
			if !errors.Is(err, errRefused) {
				return fmt.Errorf("nested: %w", err)
			}
			return insert(5, nil)(tx)
		},
		func(tx *sqlite.Tx) error {
			if err := insert(6, nil)(tx); err != nil {
				return err
			}
			rows, err := tx.Query("SELECT x FROM t")
			if err != nil || !rows.Next() { // and left open
				return fmt.Errorf("read: %w", err)
			}
			panic("a programming error")
		})
	var panicked *sqlite.PanicError
	if !errors.As(errs[5], &panicked) || panicked.Value != "a programming error" || !strings.Contains(string(panicked.Stack), "sqlite_test.go") {
		t.Errorf("a panic was answered with %v", errs[5])
	}
	if errs[0] != nil || !errors.Is(errs[1], errRefused) || errs[2] != nil || errs[3] == nil || errs[4] != nil {
		t.Errorf("errors %v", errs)
	}
	var got string
	if err := db.Reader().QueryRow("SELECT group_concat(x) FROM (SELECT x FROM t ORDER BY x)").Scan(&got); err != nil || got != "1,3,5" {
		t.Errorf("rows %s, %v, want 1,3,5", got, err)
	}
	// Nothing that was left open holds the log: all of it can be written back.
	var busy, pages, done int
	if err := db.Apply(context.Background(), func(tx *sqlite.Tx) error {
		return tx.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &done)
	}); err != nil || busy != 0 || pages != 0 {
		t.Errorf("checkpoint: busy %d, %d pages left, %v", busy, pages, err)
	}
	if n := commits(); n != 3 { // the gate's group, the one of six, and the checkpoint's
		t.Errorf("%d groups were committed, want 2", n)
	}
}

// TestGroup_ErrorFromElsewhere has a function return what SQLite said on another connection: that undoes the function and
// leaves the rest of the group alone. One that hides a full disk behind an error of its own still fails the group.
func TestGroup_ErrorFromElsewhere(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (x BLOB)")
	insert := func(x any, then error) func(*sqlite.Tx) error {
		return func(tx *sqlite.Tx) error {
			_, err := tx.Exec("INSERT INTO t VALUES (?)", x)
			return cmp.Or(then, err)
		}
	}
	busy := fmt.Errorf("ask another database: %w", sqlite3.Error{Code: sqlite3.ErrBusy})
	errs := group(t, db, insert(1, nil), insert(2, busy), func(tx *sqlite.Tx) error {
		if err := tx.Nested(insert(3, busy)); !errors.Is(err, busy) {
			return fmt.Errorf("nested: %w", err)
		}
		return insert(4, nil)(tx)
	})
	if errs[0] != nil || !errors.Is(errs[1], busy) || errs[2] != nil {
		t.Errorf("errors %v", errs)
	}
	var got string
	if err := db.Reader().QueryRow("SELECT group_concat(x) FROM (SELECT x FROM t ORDER BY x)").Scan(&got); err != nil || got != "1,4" {
		t.Errorf("rows %s, %v, want 1,4", got, err)
	}
	mustExec(t, db, "PRAGMA max_page_count = 20")
	errs = group(t, db, insert(5, nil), insert(make([]byte, 1<<20), errRefused))
	var serr sqlite3.Error
	for i, err := range errs {
		if !errors.As(err, &serr) || serr.Code != sqlite3.ErrFull {
			t.Errorf("operation %d: %v, want a full disk", i, err)
		}
	}
	if n := count(t, db, "t"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// TestGroup_FailedCommitFailsAll has a deferred constraint fail the COMMIT itself.
func TestGroup_FailedCommitFailsAll(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE parent (x INTEGER PRIMARY KEY)")
	mustExec(t, db, "CREATE TABLE child (x INTEGER REFERENCES parent (x) DEFERRABLE INITIALLY DEFERRED)")
	errs := group(t, db,
		func(tx *sqlite.Tx) error { _, err := tx.Exec("INSERT INTO parent VALUES (1)"); return err },
		func(tx *sqlite.Tx) error { _, err := tx.Exec("INSERT INTO child VALUES (7)"); return err })
	var serr sqlite3.Error
	for i, err := range errs {
		if !errors.As(err, &serr) || serr.Code != sqlite3.ErrConstraint {
			t.Errorf("operation %d: %v, want a constraint error", i, err)
		}
	}
	if n := count(t, db, "parent") + count(t, db, "child"); n != 0 {
		t.Errorf("%d rows of a failed group", n)
	}
	mustExec(t, db, "INSERT INTO parent VALUES (2)") // and the writer goes on
}

// TestP15_FullDisk fills the database to its largest size: the group fails as a whole, and the next small one succeeds.
func TestP15_FullDisk(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (x BLOB)")
	mustExec(t, db, "PRAGMA max_page_count = 20")
	big := make([]byte, 1<<20)
	errs := group(t, db,
		func(tx *sqlite.Tx) error { _, err := tx.Exec("INSERT INTO t VALUES (x'01')"); return err },
		func(tx *sqlite.Tx) error { _, err := tx.Exec("INSERT INTO t VALUES (?)", big); return err })
	var serr sqlite3.Error
	for i, err := range errs {
		if !errors.As(err, &serr) || serr.Code != sqlite3.ErrFull {
			t.Errorf("operation %d: %v, want a full disk", i, err)
		}
	}
	if n := count(t, db, "t"); n != 0 {
		t.Errorf("%d rows of a failed group", n)
	}
	mustExec(t, db, "INSERT INTO t VALUES (x'02')")
}

// TestWrite_CancelledBeforeItsGroup runs nothing.
func TestWrite_CancelledBeforeItsGroup(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	group(t, db, func(*sqlite.Tx) error {
		wg.Go(func() {
			err = db.Write(ctx, func(*sqlite.Tx) error { t.Error("ran"); return nil })
		})
		db.AwaitPending(1)
		cancel()
		wg.Wait()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
}

// TestClose_FinishesWhatCameBefore and refuses what comes after.
func TestClose_FinishesWhatCameBefore(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "x.db")})
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	group(t, db, func(*sqlite.Tx) error { ran = true; return nil })
	if err := errors.Join(db.Close(), db.Close()); err != nil || !ran {
		t.Errorf("close: %v, the operation ran: %t", err, ran)
	}
	if err := exec1(db, "SELECT 1"); !errors.Is(err, sqlite.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if _, err := os.Stat(db.Path() + "-wal"); !os.IsNotExist(err) {
		t.Errorf("the WAL is left behind after a regular close: %v", err)
	}
}

// TestMigrate_ComponentsShareOneFile and each has a version of its own; a database from the future is refused.
func TestMigrate_ComponentsShareOneFile(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx := context.Background()
	file := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + ";\n")} }
	a := fstest.MapFS{"00001_a.sql": file("CREATE TABLE a (x)")}
	b := fstest.MapFS{"00001_b.sql": file("CREATE TABLE b (x)"), "00002_b.sql": file("ALTER TABLE b ADD COLUMN y")}
	for range 2 { // the second time there is nothing to do
		for name, files := range map[string]fstest.MapFS{"first": a, "second": b} {
			if err := db.Migrate(ctx, name, files); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustExec(t, db, "INSERT INTO b (x, y) VALUES (1, 2)")
	if n := count(t, db, "a") + count(t, db, "first_schema_version") + count(t, db, "second_schema_version"); n != 2+3 {
		t.Errorf("%d rows in the tables of versions, want 5 (each has a row for version 0)", n)
	}
	delete(b, "00002_b.sql")
	if err := db.Migrate(ctx, "second", b); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("an older program: %v", err)
	}
	if err := db.Migrate(ctx, "Bad; name", a); err == nil {
		t.Error("a bad component name was accepted")
	}
	broken := fstest.MapFS{"00001_c.sql": file("CREATE TABLE c (x); CREATE TABLE a (x)")}
	if err := db.Migrate(ctx, "third", broken); err == nil {
		t.Error("a failing migration is no error")
	}
	if err := exec1(db, "SELECT * FROM c"); err == nil {
		t.Error("a failed migration left a table behind")
	}
}

// TestTx_Values writes and reads every type.
func TestTx_Values(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (i INTEGER, f REAL, s TEXT, b BLOB, k BOOLEAN, at TIMESTAMP, n TEXT)")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mustExec(t, db, "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", 1<<40, 1.5, "ä", []byte{0, 1}, true, at, nil)
	err := db.Apply(context.Background(), func(tx *sqlite.Tx) error {
		var i int64
		var f float64
		var s, n string
		var b []byte
		var k bool
		var when time.Time
		if err := tx.QueryRow("SELECT * FROM t").Scan(&i, &f, &s, &b, &k, &when, &n); err != nil {
			return err
		}
		if i != 1<<40 || f != 1.5 || s != "ä" || string(b) != "\x00\x01" || !k || !when.Equal(at) || n != "" {
			t.Errorf("read %v %v %q %v %v %v %q", i, f, s, b, k, when, n)
		}
		// One statement text read and run at the same time.
		outer, err := tx.Query("SELECT i FROM t")
		if err != nil {
			return err
		}
		for outer.Next() {
			if err := tx.QueryRow("SELECT i FROM t").Scan(&i); err != nil {
				return err
			}
		}
		if err := outer.Err(); err != nil {
			return err
		}
		if err := tx.QueryRow("SELECT s FROM t").Scan(&i); err == nil {
			t.Error("a text was scanned into a number")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

type participant struct {
	mu                            sync.Mutex
	committed, rolledBack, closed int
	refuse                        bool
}

func (p *participant) BeforeCommit(*sqlite.Tx) error {
	if p.refuse {
		return errRefused
	}
	return nil
}
func (p *participant) Committed() { p.mu.Lock(); p.committed++; p.mu.Unlock() }
func (p *participant) RolledBack(tx *sqlite.Tx, err error) {
	p.mu.Lock()
	p.rolledBack++
	p.mu.Unlock()
}
func (p *participant) Closed() { p.closed++ }

func commitCounter(t *testing.T, db *sqlite.DB) func() int {
	t.Helper()
	p := &participant{}
	leave, err := db.Join(context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.committed }
}

// TestParticipant_RefusalFailsTheGroup and leaving ends it.
func TestParticipant_RefusalFailsTheGroup(t *testing.T) {
	t.Parallel()
	db := open(t)
	mustExec(t, db, "CREATE TABLE t (x)")
	p := &participant{refuse: true}
	leave, err := db.Join(context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec1(db, "INSERT INTO t VALUES (1)"); !errors.Is(err, errRefused) || p.rolledBack != 1 || count(t, db, "t") != 0 {
		t.Errorf("refused: %v, %+v, %d rows", err, p, count(t, db, "t"))
	}
	leave()
	leave()
	mustExec(t, db, "INSERT INTO t VALUES (1)")
	if p.closed != 1 || p.committed != 0 {
		t.Errorf("after leaving: %+v", p)
	}
	if _, err := db.Join(context.Background(), p, func(*sqlite.Tx) error { return errRefused }); !errors.Is(err, errRefused) {
		t.Errorf("joining with an error: %v", err)
	}
}
