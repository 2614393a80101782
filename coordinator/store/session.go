package store

import (
	"context"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlInsertSession = `INSERT INTO sessions (hash, key_id, created_at, seen_at, expires_at) VALUES (?,?,?,?,?)`
	sqlSession       = `SELECT s.hash, s.created_at, s.seen_at, s.expires_at,
		k.id, k.workspace, k.subject, k.role, k.label, k.prefix, k.hash, k.scopes, k.created_by, k.created_at
		FROM sessions s JOIN api_keys k ON k.id = s.key_id WHERE s.hash = ?`
	sqlTouchSession  = `UPDATE sessions SET seen_at = ? WHERE hash = ? AND seen_at < ?`
	sqlDeleteSession = `DELETE FROM sessions WHERE hash = ?`
	sqlDropSessions  = `DELETE FROM sessions WHERE expires_at < ?`
)

// SessionRecord is a browser that signed in with an API key.
type SessionRecord struct {
	// Hash is HashSecret of what the cookie holds.
	Hash string
	// CreatedAt, SeenAt and ExpiresAt are when it began, was last used, and is over
	// however much it is used.
	CreatedAt, SeenAt, ExpiresAt protocol.Time
	// Key is what it acts for; of a new one its ID alone matters.
	Key KeyRecord
}

// InsertSession adds a session, and drops those that have expired. A key that is gone
// is ErrNotFound.
func (s *Store) InsertSession(ctx context.Context, r SessionRecord) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(sqlDropSessions, millis(r.CreatedAt)); err != nil {
			return err
		}
		_, err := tx.Exec(sqlInsertSession, r.Hash, r.Key.ID, millis(r.CreatedAt), millis(r.SeenAt), millis(r.ExpiresAt))
		return err
	})
	if violatesReference(err) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("store: insert a session: %w", err)
	}
	return nil
}

// Session is the session with this hash and its key; one whose key is gone is gone.
func (s *Store) Session(ctx context.Context, hash string) (*SessionRecord, error) {
	r := new(SessionRecord)
	var created, seen, expires int64
	key, err := scanKey(prefixed{s.db.Reader().QueryRowContext(ctx, sqlSession, hash), []any{&r.Hash, &created, &seen, &expires}})
	if err != nil {
		return nil, notFound("find a session", err)
	}
	r.Key, r.CreatedAt, r.SeenAt, r.ExpiresAt = *key, instant(created), instant(seen), instant(expires)
	return r, nil
}

// prefixed is a row with columns before those that a scanner knows.
type prefixed struct {
	row
	first []any
}

func (p prefixed) Scan(dest ...any) error { return p.row.Scan(append(p.first, dest...)...) }

// TouchSession says when a session was last used.
func (s *Store) TouchSession(ctx context.Context, hash string, at protocol.Time) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(sqlTouchSession, millis(at), hash, millis(at))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: touch a session: %w", err)
	}
	return nil
}

// DeleteSession ends a session; if there is none, ErrNotFound.
func (s *Store) DeleteSession(ctx context.Context, hash string) error {
	return s.changeOne(ctx, "delete a session", sqlDeleteSession, hash)
}
