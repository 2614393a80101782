package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlInsertRunner = `INSERT INTO runners (id, workspace, owner, token_hash, public_key, paired_at, document) VALUES (?,?,?,?,?,?,?)`
	sqlRunnerFields = `SELECT workspace, token_hash, public_key, revoked_at, document FROM runners `
	sqlRunner       = sqlRunnerFields + `WHERE id = ?`
	sqlRunnerToken  = sqlRunnerFields + `WHERE token_hash = ?`
	sqlRunnerKey    = sqlRunnerFields + `WHERE public_key = ?`
	sqlRunners      = sqlRunnerFields + `WHERE workspace = ? AND revoked_at IS NULL AND gone_at IS NULL ORDER BY paired_at DESC, id DESC`
	sqlTouchRunner  = `UPDATE runners SET last_seen_at = ?, document = ? WHERE id = ? AND revoked_at IS NULL`
	sqlRevokeRunner = `UPDATE runners SET revoked_at = ? WHERE id = ? AND workspace = ? AND revoked_at IS NULL`
)

// RunnerRecord is a paired runner as it was last written. What changes by the
// second (online, busy, status) is the pairing package's, in memory.
type RunnerRecord struct {
	protocol.Runner
	Workspace string
	// TokenHash is HashSecret of the runner's token. A device has none: InsertRunner puts
	// something in its place that is the hash of nothing.
	TokenHash string
	// PublicKey is that of a device; empty for a runner with a token.
	PublicKey string
	// RevokedAt is nil while the pairing stands.
	RevokedAt *protocol.Time
	// PoolToken is the id of the pool token that the runner joined with; empty for a
	// paired machine. It is written by JoinRunner and not read back.
	PoolToken string
}

// devicePrefix precedes the id in the token_hash of a device.
const devicePrefix = "device:"

// InsertRunner adds a paired runner. A device whose key a runner has already, revoked
// ones included, is ErrExists.
func (s *Store) InsertRunner(ctx context.Context, r RunnerRecord) error {
	document, err := json.Marshal(r.Runner)
	if err != nil {
		return fmt.Errorf("store: insert runner %s: %w", r.ID, err)
	}
	if r.PublicKey != "" {
		r.TokenHash = devicePrefix + r.ID
	}
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		if r.PublicKey != "" {
			_, err := scanRunner(tx.QueryRow(sqlRunnerKey, r.PublicKey))
			if err == nil {
				return ErrExists
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		_, err := tx.Exec(sqlInsertRunner, r.ID, r.Workspace, r.Owner, r.TokenHash, optional(r.PublicKey), millis(r.PairedAt), document)
		return err
	})
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("store: insert runner %s: %w", r.ID, err)
	}
	return err
}

// Runner is a runner of any workspace, revoked ones included.
func (s *Store) Runner(ctx context.Context, id string) (*RunnerRecord, error) {
	r, err := scanRunner(s.db.Reader().QueryRowContext(ctx, sqlRunner, id))
	return r, notFound("read runner "+id, err)
}

// RunnerByToken is the runner with this token hash, revoked ones included.
func (s *Store) RunnerByToken(ctx context.Context, hash string) (*RunnerRecord, error) {
	r, err := scanRunner(s.db.Reader().QueryRowContext(ctx, sqlRunnerToken, hash))
	return r, notFound("find a runner by its token", err)
}

// RunnerByKey is the device with this public key, revoked ones included.
func (s *Store) RunnerByKey(ctx context.Context, publicKey string) (*RunnerRecord, error) {
	r, err := scanRunner(s.db.Reader().QueryRowContext(ctx, sqlRunnerKey, publicKey))
	return r, notFound("find a runner by its key", err)
}

// Runners are the runners of a workspace, newest first, without revoked ones and
// without those of pools that have left.
func (s *Store) Runners(ctx context.Context, workspace string) ([]RunnerRecord, error) {
	return list(ctx, s, "list runners", scanRunner, sqlRunners, workspace)
}

// TouchRunners writes what was last seen of runners, all in one transaction.
// Runners that are unknown or revoked are passed over. It returns the workspaces in
// which a runner that had left is back.
func (s *Store) TouchRunners(ctx context.Context, seen []protocol.Runner) (back []string, err error) {
	documents := make([][]byte, len(seen))
	for i, r := range seen {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("store: touch runner %s: %w", r.ID, err)
		}
		documents[i] = b
	}
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		back = nil
		for i, r := range seen {
			var at any
			if r.LastSeenAt != nil {
				at = millis(*r.LastSeenAt)
			}
			if _, err := tx.Exec(sqlTouchRunner, at, documents[i], r.ID); err != nil {
				return err
			}
			if r.Runtime == "" {
				continue
			}
			workspace, err := returned(tx, r.ID)
			if err != nil {
				return err
			}
			if workspace != "" {
				back = append(back, workspace)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: touch runners: %w", err)
	}
	return back, nil
}

// RevokeRunner ends a pairing. A runner that is unknown, revoked already or of
// another workspace is ErrNotFound.
func (s *Store) RevokeRunner(ctx context.Context, workspace, id string, at protocol.Time) error {
	return s.changeOne(ctx, "revoke runner "+id, sqlRevokeRunner, millis(at), id, workspace)
}

// changeOne runs a statement that has to change a row; if none, ErrNotFound.
func (s *Store) changeOne(ctx context.Context, action, query string, args ...any) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		res, err := tx.Exec(query, args...)
		if err == nil && res.RowsAffected == 0 {
			return sql.ErrNoRows
		}
		return err
	})
	return notFound(action, err)
}

func scanRunner(from row) (*RunnerRecord, error) {
	r := new(RunnerRecord)
	var revoked sql.NullInt64
	var key sql.NullString
	var document []byte
	if err := from.Scan(&r.Workspace, &r.TokenHash, &key, &revoked, &document); err != nil {
		return nil, err
	}
	r.PublicKey = key.String
	if revoked.Valid {
		at := instant(revoked.Int64)
		r.RevokedAt = &at
	}
	if err := json.Unmarshal(document, &r.Runner); err != nil {
		return nil, fmt.Errorf("decode a runner: %w", err)
	}
	return r, nil
}
