package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

var (
	// ErrNotFound says that there is no such row in this workspace.
	ErrNotFound = errors.New("store: not found")
	// ErrExists says that a row with this key is there already.
	ErrExists = errors.New("store: exists already")
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is the records of a coordinator.
type Store struct {
	db *sqlite.DB
	// lastSeq is the highest seq given to a run. Only functions that hold a
	// transaction touch it, and those run one after another on the writer's
	// goroutine; one that is rolled back leaves a gap.
	lastSeq int64
}

// Open brings the tables up to date and returns the records in db.
func Open(ctx context.Context, db *sqlite.DB) (*Store, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	if err := db.Migrate(ctx, "store", files); err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	s := &Store{db: db}
	var last sql.NullInt64
	if err := db.Reader().QueryRowContext(ctx, `SELECT MAX(seq) FROM runs`).Scan(&last); err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	s.lastSeq = last.Int64
	return s, nil
}

// DB is the database under the store, for transactions that span packages.
func (s *Store) DB() *sqlite.DB { return s.db }

const sqlPing = `INSERT INTO probe (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at`

// Ping commits a small write: nil means that the writer lives and that the disk
// takes what it is given.
func (s *Store) Ping(ctx context.Context) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(sqlPing, time.Now().UnixMilli())
		return err
	})
	if err != nil {
		return fmt.Errorf("store: ping: %w", err)
	}
	return nil
}

// Unavailable is the 503 for an error that comes from the state of the
// database and not from the request: a full disk, a coordinator that is shutting
// down. For all other errors it is nil.
func Unavailable(err error) *protocol.Problem {
	var fault sqlite3.Error
	switch {
	case errors.Is(err, sqlite.ErrClosed):
		return protocol.Unavailable("the coordinator is shutting down").WithHint("try again in a few seconds")
	case errors.As(err, &fault) && fault.Code == sqlite3.ErrFull:
		return protocol.Unavailable("the coordinator's disk is full; nothing was changed").
			WithHint("free space under the coordinator's data directory, then try again")
	default:
		return nil
	}
}

// HashSecret is the form in which a credential is kept: SHA-256 in hex. The
// credentials have 192 random bits, so that nothing slower is needed.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// violatesReference says whether a statement named a row that is not there.
func violatesReference(err error) bool {
	var fault sqlite3.Error
	return errors.As(err, &fault) && fault.ExtendedCode == sqlite3.ErrConstraintForeignKey
}

func millis(t protocol.Time) int64 { return t.UnixMilli() }

func instant(ms int64) protocol.Time { return protocol.At(time.UnixMilli(ms)) }

// optional makes NULL of an empty string, so that partial indexes leave it out.
func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// notFound turns the absence of a row into ErrNotFound and names the action on
// every other error.
func notFound(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	default:
		return fmt.Errorf("store: %s: %w", action, err)
	}
}

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(dest ...any) error }

// list reads all rows of a query. action is for the error.
func list[T any](ctx context.Context, s *Store, action string, scan func(row) (*T, error), query string, args ...any) (all []T, err error) {
	defer func() {
		if err != nil {
			all, err = nil, fmt.Errorf("store: %s: %w", action, err)
		}
	}()
	rows, err := s.db.Reader().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, *v)
	}
	return all, rows.Err()
}
