package store

import (
	"context"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlPutSecret = `INSERT INTO secrets (workspace, scope, owner, name, key_id, data_key, sealed, updated_at) VALUES (?,?,?,?,?,?,?,?)
		ON CONFLICT (workspace, scope, owner, name) DO UPDATE
		SET key_id = excluded.key_id, data_key = excluded.data_key, sealed = excluded.sealed, updated_at = excluded.updated_at`
	sqlSecretFields = `SELECT workspace, scope, owner, name, key_id, data_key, sealed, updated_at FROM secrets `
	sqlSecret       = sqlSecretFields + `WHERE workspace = ? AND scope = ? AND owner = ? AND name = ?`
	sqlEverySecret  = sqlSecretFields + `ORDER BY workspace, scope, owner, name`
	sqlSecretNames  = `SELECT name, updated_at FROM secrets WHERE workspace = ? AND scope = ? AND owner = ? ORDER BY name`
	sqlDeleteSecret = `DELETE FROM secrets WHERE workspace = ? AND scope = ? AND owner = ? AND name = ?`
	sqlSecretKeys   = `SELECT DISTINCT key_id FROM secrets ORDER BY key_id`
)

// SecretKey names one secret.
type SecretKey struct {
	Workspace string
	// Scope is protocol.SecretWorkspace or protocol.SecretUser.
	Scope string
	// Owner is the subject whose secret it is; empty for the workspace's.
	Owner string
	Name  string
}

// SecretRecord is a secret as it is kept. Who can open it is the business of
// package secret.
type SecretRecord struct {
	SecretKey
	// KeyID names the key that wraps DataKey, which seals Sealed.
	KeyID     string
	DataKey   []byte
	Sealed    []byte
	UpdatedAt protocol.Time
}

// PutSecret adds a secret, or replaces its value.
func (s *Store) PutSecret(ctx context.Context, r SecretRecord) error {
	if err := s.db.Write(ctx, func(tx *sqlite.Tx) error { return putSecret(tx, r) }); err != nil {
		return fmt.Errorf("store: put secret %s: %w", r.Name, err)
	}
	return nil
}

func putSecret(tx *sqlite.Tx, r SecretRecord) error {
	_, err := tx.Exec(sqlPutSecret, r.Workspace, r.Scope, r.Owner, r.Name, r.KeyID, r.DataKey, r.Sealed, millis(r.UpdatedAt))
	return err
}

// Secret is one secret.
func (s *Store) Secret(ctx context.Context, k SecretKey) (*SecretRecord, error) {
	r, err := scanSecret(s.db.Reader().QueryRowContext(ctx, sqlSecret, k.Workspace, k.Scope, k.Owner, k.Name))
	return r, notFound("read secret "+k.Name, err)
}

// SecretNames are the secrets of one owner by name. Of the key only Name is not
// looked at.
func (s *Store) SecretNames(ctx context.Context, of SecretKey) ([]protocol.Secret, error) {
	return list(ctx, s, "list secrets", func(from row) (*protocol.Secret, error) {
		m := protocol.Secret{Scope: of.Scope, Kind: protocol.SecretPlain}
		var updated int64
		err := from.Scan(&m.Name, &updated)
		m.UpdatedAt = instant(updated)
		return &m, err
	}, sqlSecretNames, of.Workspace, of.Scope, of.Owner)
}

// DeleteSecret removes a secret; if there is none, ErrNotFound.
func (s *Store) DeleteSecret(ctx context.Context, k SecretKey) error {
	return s.changeOne(ctx, "delete secret "+k.Name, sqlDeleteSecret, k.Workspace, k.Scope, k.Owner, k.Name)
}

// SecretKeyIDs are the ids of all keys that some secret needs to be opened.
func (s *Store) SecretKeyIDs(ctx context.Context) ([]string, error) {
	return list(ctx, s, "list the keys of secrets", func(from row) (*string, error) {
		id := new(string)
		return id, from.Scan(id)
	}, sqlSecretKeys)
}

// ResealSecrets gives every secret of every workspace to reseal and keeps what it
// returns, in one transaction: after an error all are as they were. It returns how
// many there are. reseal holds up the writer, and must ask nobody.
func (s *Store) ResealSecrets(ctx context.Context, reseal func(SecretRecord) (SecretRecord, error)) (int, error) {
	n := 0
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		all, err := everySecret(tx)
		if err != nil {
			return err
		}
		for _, old := range all {
			next, err := reseal(old)
			if err != nil {
				return err
			}
			next.SecretKey, next.UpdatedAt = old.SecretKey, old.UpdatedAt
			if err := putSecret(tx, next); err != nil {
				return err
			}
		}
		n = len(all)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("store: seal the secrets anew: %w", err)
	}
	return n, nil
}

func everySecret(tx *sqlite.Tx) ([]SecretRecord, error) {
	rows, err := tx.Query(sqlEverySecret)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []SecretRecord
	for rows.Next() {
		r, err := scanSecret(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	return all, rows.Err()
}

func scanSecret(from row) (*SecretRecord, error) {
	r := new(SecretRecord)
	var updated int64
	if err := from.Scan(&r.Workspace, &r.Scope, &r.Owner, &r.Name, &r.KeyID, &r.DataKey, &r.Sealed, &updated); err != nil {
		return nil, err
	}
	r.UpdatedAt = instant(updated)
	return r, nil
}
