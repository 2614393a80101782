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
	sqlInsertPoolToken = `INSERT INTO pool_tokens (id, workspace, runtime, hash, created_at, expires_at, document) VALUES (?,?,?,?,?,?,?)`
	sqlPoolTokenFields = `SELECT workspace, hash, revoked_at, document FROM pool_tokens `
	sqlPoolToken       = sqlPoolTokenFields + `WHERE hash = ?`
	sqlPoolTokens      = sqlPoolTokenFields + `WHERE workspace = ? AND revoked_at IS NULL ORDER BY created_at DESC, id DESC`
	sqlRevokePoolToken = `UPDATE pool_tokens SET revoked_at = ? WHERE id = ? AND workspace = ? AND revoked_at IS NULL`
	sqlPoolTokenStands = `SELECT EXISTS (SELECT 1 FROM pool_tokens WHERE id = ? AND revoked_at IS NULL AND expires_at > ?)`
	sqlJoinRunner      = `INSERT INTO runners (id, workspace, owner, token_hash, paired_at, last_seen_at, pool_token, document) VALUES (?,?,?,?,?,?,?,?)`
	sqlRevokeJoined    = `UPDATE runners SET revoked_at = ? WHERE pool_token = ? AND revoked_at IS NULL RETURNING id, token_hash, workspace`
	// Nothing is written where there is nothing to do: this is asked all the time.
	sqlToTidy = `SELECT 1 FROM runners WHERE pool_token IS NOT NULL AND gone_at IS NULL AND last_seen_at < ?
		UNION ALL SELECT 1 FROM runners WHERE gone_at IS NOT NULL AND gone_at < ? LIMIT 1`
	sqlLeaveRunners = `UPDATE runners SET gone_at = ? WHERE pool_token IS NOT NULL AND gone_at IS NULL AND last_seen_at < ?
		RETURNING id, token_hash, workspace`
	sqlReturnRunner  = `UPDATE runners SET gone_at = NULL WHERE id = ? AND gone_at IS NOT NULL RETURNING workspace`
	sqlForgetRunners = `DELETE FROM runners WHERE gone_at IS NOT NULL AND gone_at < ? RETURNING id, token_hash, workspace`
)

// PoolTokenRecord is a token with which machines join the pool of a runtime,
// never its value.
type PoolTokenRecord struct {
	protocol.PoolToken
	Workspace string
	// Hash is HashSecret of the token's value.
	Hash string
	// RevokedAt is nil while the token stands.
	RevokedAt *protocol.Time
}

// RunnerKey is a runner, the hash that its token is known by, and its workspace.
type RunnerKey struct{ ID, TokenHash, Workspace string }

// InsertPoolToken adds a pool token.
func (s *Store) InsertPoolToken(ctx context.Context, p PoolTokenRecord) error {
	document, err := json.Marshal(p.PoolToken)
	if err == nil {
		err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
			_, err := tx.Exec(sqlInsertPoolToken, p.ID, p.Workspace, p.Runtime, p.Hash, millis(p.CreatedAt), millis(p.ExpiresAt), document)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("store: insert pool token %s: %w", p.ID, err)
	}
	return nil
}

// PoolTokenByHash is the pool token with this hash, revoked and expired ones
// included.
func (s *Store) PoolTokenByHash(ctx context.Context, hash string) (*PoolTokenRecord, error) {
	p, err := scanPoolToken(s.db.Reader().QueryRowContext(ctx, sqlPoolToken, hash))
	return p, notFound("find a pool token", err)
}

// PoolTokens are the tokens of a workspace that are not revoked, newest first.
func (s *Store) PoolTokens(ctx context.Context, workspace string) ([]PoolTokenRecord, error) {
	return list(ctx, s, "list pool tokens", scanPoolToken, sqlPoolTokens, workspace)
}

// RevokePoolToken ends a token and, in the same transaction, every runner that
// joined with it; it returns those. A token that is unknown, revoked already or of
// another workspace is ErrNotFound.
func (s *Store) RevokePoolToken(ctx context.Context, workspace, id string, at protocol.Time) (joined []RunnerKey, err error) {
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		res, err := tx.Exec(sqlRevokePoolToken, millis(at), id, workspace)
		if err == nil && res.RowsAffected == 0 {
			err = sql.ErrNoRows
		}
		if err != nil {
			return err
		}
		joined, err = runnerKeys(tx, sqlRevokeJoined, millis(at), id)
		return err
	})
	return joined, notFound("revoke pool token "+id, err)
}

// JoinRunner adds a runner that came with a pool token, if that stands at this
// moment; else it is ErrNotFound.
func (s *Store) JoinRunner(ctx context.Context, r RunnerRecord) error {
	document, err := json.Marshal(r.Runner)
	if err != nil {
		return fmt.Errorf("store: join runner %s: %w", r.ID, err)
	}
	at := millis(r.PairedAt)
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var stands bool
		if err := tx.QueryRow(sqlPoolTokenStands, r.PoolToken, at).Scan(&stands); err != nil {
			return err
		}
		if !stands {
			return sql.ErrNoRows
		}
		_, err := tx.Exec(sqlJoinRunner, r.ID, r.Workspace, r.Owner, r.TokenHash, at, at, r.PoolToken, document)
		return err
	})
	return notFound("join runner "+r.ID, err)
}

// TidyRunners takes the runners of pools that were last seen before leave out of the
// lists, from where they can come back, and deletes those that had left before
// forget. It returns both.
func (s *Store) TidyRunners(ctx context.Context, at, leave, forget protocol.Time) (gone, forgotten []RunnerKey, err error) {
	const action = "tidy up runners of pools"
	var some int
	err = s.db.Reader().QueryRowContext(ctx, sqlToTidy, millis(leave), millis(forget)).Scan(&some)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, notFound(action, err)
	}
	err = s.db.Write(ctx, func(tx *sqlite.Tx) (err error) {
		if gone, err = runnerKeys(tx, sqlLeaveRunners, millis(at), millis(leave)); err != nil {
			return err
		}
		forgotten, err = runnerKeys(tx, sqlForgetRunners, millis(forget))
		return err
	})
	if err != nil {
		return nil, nil, notFound(action, err)
	}
	return gone, forgotten, nil
}

// returned puts a runner that had left back into the lists.
func returned(tx *sqlite.Tx, id string) (workspace string, err error) {
	err = tx.QueryRow(sqlReturnRunner, id).Scan(&workspace)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return workspace, err
}

func runnerKeys(tx *sqlite.Tx, query string, args ...any) (keys []RunnerKey, err error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k RunnerKey
		if err := rows.Scan(&k.ID, &k.TokenHash, &k.Workspace); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

func scanPoolToken(from row) (*PoolTokenRecord, error) {
	p := new(PoolTokenRecord)
	var revoked sql.NullInt64
	var document []byte
	if err := from.Scan(&p.Workspace, &p.Hash, &revoked, &document); err != nil {
		return nil, err
	}
	if revoked.Valid {
		at := instant(revoked.Int64)
		p.RevokedAt = &at
	}
	if err := json.Unmarshal(document, &p.PoolToken); err != nil {
		return nil, fmt.Errorf("decode a pool token: %w", err)
	}
	return p, nil
}
