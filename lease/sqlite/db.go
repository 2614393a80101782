package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"
)

// ErrClosed is returned by every operation on a database that is closed or closing.
var ErrClosed = errors.New("sqlite: database is closed")

// Config says how to open a database. Only Path is required.
type Config struct {
	// Path of the database file; its directory must exist.
	Path string
	// MaxGroup is the largest number of operations in one commit. Default 512, beyond which a commit's fsync is small
	// against its statements and a larger group only adds latency.
	MaxGroup int
	// Readers is the size of the read pool. Default 4.
	Readers int
	// BusyTimeout is how long a connection waits for a lock. Only readers and backup tools can meet one, as there is one
	// writer. Default 5 s.
	BusyTimeout time.Duration
	// CacheKB is the page cache of the writer in KiB. Default 16384: it holds the hot ends of all indexes.
	CacheKB int
}

func (c Config) withDefaults() Config {
	if c.MaxGroup <= 0 {
		c.MaxGroup = 512
	}
	if c.Readers <= 0 {
		c.Readers = 4
	}
	if c.BusyTimeout <= 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.CacheKB <= 0 {
		c.CacheKB = 16384
	}
	return c
}

// DB is an open database: one writer, a pool of readers, and the lock that keeps others out. It is safe for concurrent
// use. The goroutine behind it ends in [DB.Close].
type DB struct {
	cfg    Config
	lock   *lockFile
	conn   *sqlite3.SQLiteConn
	reader *sql.DB

	mu      sync.Mutex
	pending []*op // in order of arrival
	spare   []*op // the slice that the writer gave back
	closing bool
	arrived chan struct{} // holds a token when pending is not empty or closing is set
	over    chan struct{} // closed when the writer's goroutine has ended

	closeOnce sync.Once
	closeErr  error

	ops sync.Pool // of *op; per database, because a channel made inside a synctest bubble must stay there

	// Owned by the writer's goroutine.
	tx    Tx
	party []*membership
}

// Open locks and opens the database, creating the file if there is none, and starts its writer. The pragmas on which
// durability rests are read back: a build of SQLite that ignores them is an error here, not a lost run later. If the
// database is held already the error is a [*HeldError].
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if cfg.Path == "" {
		return nil, errors.New("sqlite: open: no path")
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", cfg.Path, err)
	}
	cfg.Path = path
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	db := &DB{cfg: cfg, lock: lock, arrived: make(chan struct{}, 1), over: make(chan struct{})}
	db.ops.New = func() any { return &op{done: make(chan error, 1)} }
	if err := db.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s: %w", path, err), db.disconnect())
	}
	db.tx = Tx{conn: db.conn, stmts: make(map[string]*stmt)}
	go db.run()
	return db, nil
}

// pragmas of the writer, each with the answer that reading it back must give; "" is not checked.
var pragmas = []struct{ name, set, want string }{
	{"journal_mode", "wal", "wal"},
	{"synchronous", "full", "2"}, // the driver's default in WAL mode is NORMAL, which loses the last commits
	{"fullfsync", "on", ""},      // macOS: F_FULLFSYNC, because fsync there does not flush the drive
	{"foreign_keys", "on", "1"},
	{"temp_store", "memory", "2"},          // savepoint journals need no file
	{"journal_size_limit", "67108864", ""}, // a WAL that one long reader let grow is cut back to 64 MiB
}

func (db *DB) connect(ctx context.Context) error {
	// SQLite would make the file readable for everybody; its journals follow the file.
	f, err := os.OpenFile(db.cfg.Path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	conn, err := (&sqlite3.SQLiteDriver{}).Open(db.dsn("rwc", ""))
	if err != nil {
		return err
	}
	db.conn = conn.(*sqlite3.SQLiteConn)
	for _, p := range pragmas {
		if _, err := db.conn.Exec("PRAGMA "+p.name+"="+p.set, nil); err != nil {
			return fmt.Errorf("set %s: %w", p.name, err)
		}
		if p.want == "" {
			continue
		}
		got, err := readPragma(db.conn, p.name)
		if err != nil {
			return fmt.Errorf("read %s: %w", p.name, err)
		}
		if got != p.want {
			return fmt.Errorf("%s is %q after setting it to %q: commits would not be durable", p.name, got, p.set)
		}
	}
	if _, err := db.conn.Exec(fmt.Sprintf("PRAGMA cache_size=-%d", db.cfg.CacheKB), nil); err != nil {
		return fmt.Errorf("set cache_size: %w", err)
	}
	db.reader, err = sql.Open("sqlite3", db.dsn("ro", "&_query_only=true"))
	if err != nil {
		return fmt.Errorf("open the read pool: %w", err)
	}
	db.reader.SetMaxOpenConns(db.cfg.Readers)
	db.reader.SetMaxIdleConns(db.cfg.Readers)
	if err := db.reader.PingContext(ctx); err != nil {
		return fmt.Errorf("open the read pool: %w", err)
	}
	return nil
}

func (db *DB) dsn(mode, more string) string {
	// url.PathEscape would also escape the slashes, which SQLite takes literally.
	path := (&url.URL{Path: filepath.ToSlash(db.cfg.Path)}).EscapedPath()
	path = strings.ReplaceAll(path, "?", "%3f")
	return fmt.Sprintf("file:%s?mode=%s&_busy_timeout=%d&_foreign_keys=on%s", path, mode, db.cfg.BusyTimeout.Milliseconds(), more)
}

func readPragma(conn *sqlite3.SQLiteConn, name string) (string, error) {
	tx := Tx{conn: conn, stmts: make(map[string]*stmt), open: true}
	defer tx.finalize()
	var v any
	if err := tx.QueryRow("PRAGMA " + name).Scan(&v); err != nil {
		return "", err
	}
	if b, ok := v.([]byte); ok {
		v = string(b)
	}
	return fmt.Sprint(v), nil
}

// Path is the absolute path of the database file.
func (db *DB) Path() string { return db.cfg.Path }

// Reader is the pool of read-only connections. A query sees the last commit that was finished when it began, so it sees
// every change that its caller has been told of. Writing through it fails.
func (db *DB) Reader() *sql.DB { return db.reader }

// Close runs what was handed in before it, ends the writer, closes all connections and gives up the lock. Operations that
// come later get [ErrClosed]. A second Close returns what the first did.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		db.mu.Lock()
		db.closing = true
		db.mu.Unlock()
		db.signal()
		<-db.over
		db.closeErr = db.disconnect()
	})
	return db.closeErr
}

func (db *DB) disconnect() error {
	var errs []error
	if db.reader != nil {
		errs = append(errs, db.reader.Close())
	}
	db.tx.finalize()
	if db.conn != nil {
		errs = append(errs, db.conn.Close())
	}
	return errors.Join(append(errs, db.lock.release())...)
}
