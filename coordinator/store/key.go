package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlInsertKey = `INSERT INTO api_keys (id, workspace, subject, role, label, prefix, hash, scopes, created_by, created_at)
		VALUES (?,?,?,?,?,?,?,?,?,?)`
	sqlKeyFields     = `SELECT id, workspace, subject, role, label, prefix, hash, scopes, created_by, created_at FROM api_keys `
	sqlKey           = sqlKeyFields + `WHERE id = ? AND workspace = ?`
	sqlKeyByHash     = sqlKeyFields + `WHERE hash = ?`
	sqlKeys          = sqlKeyFields + `WHERE workspace = ? AND subject = ? ORDER BY created_at DESC, id DESC`
	sqlWorkspaceKeys = sqlKeyFields + `WHERE workspace = ? ORDER BY created_at DESC, id DESC`
	sqlDeleteKey     = `DELETE FROM api_keys WHERE id = ? AND workspace = ?`
	sqlAnyKey        = `SELECT EXISTS (SELECT 1 FROM api_keys)`
)

// KeyRecord is an API key: whose it is and what it may do, never its value.
type KeyRecord struct {
	protocol.Key
	Workspace string
	// Hash is HashSecret of the key's value.
	Hash string
}

// InsertKey adds an API key.
func (s *Store) InsertKey(ctx context.Context, k KeyRecord) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error { return insertKey(tx, k) })
	if err != nil {
		return fmt.Errorf("store: insert key %s: %w", k.ID, err)
	}
	return nil
}

// InsertFirstKey adds an API key if there is none at all, else it is ErrExists.
func (s *Store) InsertFirstKey(ctx context.Context, k KeyRecord) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var found bool
		if err := tx.QueryRow(sqlAnyKey).Scan(&found); err != nil {
			return err
		}
		if found {
			return ErrExists
		}
		return insertKey(tx, k)
	})
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("store: insert key %s: %w", k.ID, err)
	}
	return err
}

func insertKey(tx *sqlite.Tx, k KeyRecord) error {
	_, err := tx.Exec(sqlInsertKey, k.ID, k.Workspace, k.Subject, k.Role, k.Label, k.Prefix, k.Hash, strings.Join(k.Scopes, ","),
		k.CreatedBy, millis(k.CreatedAt))
	return err
}

// Key is an API key of a workspace.
func (s *Store) Key(ctx context.Context, workspace, id string) (*KeyRecord, error) {
	k, err := scanKey(s.db.Reader().QueryRowContext(ctx, sqlKey, id, workspace))
	return k, notFound("find an API key", err)
}

// KeyByHash is the API key with this hash.
func (s *Store) KeyByHash(ctx context.Context, hash string) (*KeyRecord, error) {
	k, err := scanKey(s.db.Reader().QueryRowContext(ctx, sqlKeyByHash, hash))
	return k, notFound("find an API key", err)
}

// Keys are the API keys of one subject in a workspace, newest first.
func (s *Store) Keys(ctx context.Context, workspace, subject string) ([]KeyRecord, error) {
	return s.keys(ctx, sqlKeys, workspace, subject)
}

// WorkspaceKeys are all API keys of a workspace, newest first.
func (s *Store) WorkspaceKeys(ctx context.Context, workspace string) ([]KeyRecord, error) {
	return s.keys(ctx, sqlWorkspaceKeys, workspace)
}

func (s *Store) keys(ctx context.Context, query string, args ...any) ([]KeyRecord, error) {
	return list(ctx, s, "list API keys", scanKey, query, args...)
}

// DeleteKey ends an API key of a workspace; if there is none, ErrNotFound.
func (s *Store) DeleteKey(ctx context.Context, workspace, id string) error {
	return s.changeOne(ctx, "delete key "+id, sqlDeleteKey, id, workspace)
}

func scanKey(from row) (*KeyRecord, error) {
	k := new(KeyRecord)
	var scopes string
	var created int64
	if err := from.Scan(&k.ID, &k.Workspace, &k.Subject, &k.Role, &k.Label, &k.Prefix, &k.Hash, &scopes, &k.CreatedBy, &created); err != nil {
		return nil, err
	}
	k.Scopes, k.CreatedAt = strings.Split(scopes, ","), instant(created)
	return k, nil
}
