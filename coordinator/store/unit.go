package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlPutJoinToken = `INSERT INTO join_tokens (unit, id, workspace, runtime, job, hash, expires_at) VALUES (?,?,?,?,?,?,?)
		ON CONFLICT (unit) DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at, used_at = NULL`
	sqlJoinToken     = `SELECT unit, id, workspace, runtime, job, hash, expires_at, used_at FROM join_tokens WHERE hash = ?`
	sqlUseJoinToken  = `UPDATE join_tokens SET used_at = ? WHERE unit = ? AND id = ? AND used_at IS NULL AND expires_at > ?`
	sqlDropJoinToken = `DELETE FROM join_tokens WHERE expires_at < ?`
	sqlName          = `INSERT INTO identity (one, name) VALUES (1, ?) ON CONFLICT (one) DO NOTHING`
	sqlReadName      = `SELECT name FROM identity WHERE one = 1`
)

// JoinTokenRecord is the token of one launched unit, never its value.
type JoinTokenRecord struct {
	// Unit that the token was made for, and the one job that its runner takes.
	Unit, Job          string
	ID                 string
	Workspace, Runtime string
	// Hash is HashSecret of the token's value.
	Hash      string
	ExpiresAt protocol.Time
	// UsedAt is nil while nobody has joined with it.
	UsedAt *protocol.Time
}

// PutJoinToken adds the token of a unit, and deletes those that expired before a
// moment. An earlier one of the same unit is dead from then on.
func (s *Store) PutJoinToken(ctx context.Context, r JoinTokenRecord, expired protocol.Time) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(sqlDropJoinToken, millis(expired)); err != nil {
			return err
		}
		_, err := tx.Exec(sqlPutJoinToken, r.Unit, r.ID, r.Workspace, r.Runtime, r.Job, r.Hash, millis(r.ExpiresAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: put the join token of %s: %w", r.Unit, err)
	}
	return nil
}

// JoinTokenByHash is the join token with this hash, used and expired ones included.
func (s *Store) JoinTokenByHash(ctx context.Context, hash string) (*JoinTokenRecord, error) {
	r := new(JoinTokenRecord)
	var expires int64
	var used sql.NullInt64
	err := s.db.Reader().QueryRowContext(ctx, sqlJoinToken, hash).
		Scan(&r.Unit, &r.ID, &r.Workspace, &r.Runtime, &r.Job, &r.Hash, &expires, &used)
	if err != nil {
		return nil, notFound("find a join token", err)
	}
	r.ExpiresAt = instant(expires)
	if used.Valid {
		at := instant(used.Int64)
		r.UsedAt = &at
	}
	return r, nil
}

// JoinOnce adds a runner that came with a join token and uses that up, in one
// transaction. A token that is used, replaced or expired is ErrNotFound.
func (s *Store) JoinOnce(ctx context.Context, r RunnerRecord) error {
	document, err := json.Marshal(r.Runner)
	if err != nil {
		return fmt.Errorf("store: join runner %s: %w", r.ID, err)
	}
	at := millis(r.PairedAt)
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		res, err := tx.Exec(sqlUseJoinToken, at, r.Unit, r.PoolToken, at)
		if err == nil && res.RowsAffected == 0 {
			err = sql.ErrNoRows
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(sqlJoinRunner, r.ID, r.Workspace, r.Owner, r.TokenHash, at, at, r.PoolToken, document)
		return err
	})
	return notFound("join runner "+r.ID, err)
}

// Identity is the name of this coordinator, which it keeps with its data. fresh is
// taken when it has none yet.
func (s *Store) Identity(ctx context.Context, fresh string) (name string, err error) {
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(sqlName, fresh); err != nil {
			return err
		}
		return tx.QueryRow(sqlReadName).Scan(&name)
	})
	if err != nil {
		return "", fmt.Errorf("store: read the identity: %w", err)
	}
	return name, nil
}

// payloadHolder stands for a token in the row of a runner that holds a payload: it is
// tidied up as one that joined.
const payloadHolder = "payload"

// InsertHolder adds the runner that holds a payload. It stays known until a week after
// a moment, by which the payload is over.
func (s *Store) InsertHolder(ctx context.Context, r RunnerRecord, until protocol.Time) error {
	document, err := json.Marshal(r.Runner)
	if err == nil {
		err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
			_, err := tx.Exec(sqlJoinRunner, r.ID, r.Workspace, r.Owner, r.TokenHash, millis(r.PairedAt), millis(until), payloadHolder, document)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("store: insert the holder of a payload of %s: %w", r.Job, err)
	}
	return nil
}
