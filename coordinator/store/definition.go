package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const (
	sqlInsertDefinition = `INSERT INTO definitions
		(collection, workspace, id, version, form, body, digest, tags, created_by, created_at) VALUES (?,?,?,?,?,?,?,?,?,?)`
	sqlDefinitionFields = `SELECT collection, workspace, id, version, form, body, tags, created_by, created_at FROM definitions `
	sqlVersions         = sqlDefinitionFields + `WHERE collection = ? AND workspace = ? AND id = ? AND deleted_at IS NULL ORDER BY seq`
	sqlDefinitions      = sqlDefinitionFields + `WHERE collection = ? AND workspace = ? AND deleted_at IS NULL ORDER BY seq`
	sqlCollection       = sqlDefinitionFields + `WHERE collection = ? AND deleted_at IS NULL ORDER BY seq`
	sqlKnownDefinition  = `SELECT seq, form, digest, deleted_at FROM definitions
		WHERE collection = ? AND workspace = ? AND id = ? AND version = ?`
	sqlReviveDefinition = `UPDATE definitions SET deleted_at = NULL WHERE seq = ?`
	sqlDeleteDefinition = `UPDATE definitions SET deleted_at = ?
		WHERE collection = ? AND workspace = ? AND id = ? AND version = ? AND deleted_at IS NULL`
	sqlTagDefinition = `UPDATE definitions SET tags = ?
		WHERE collection = ? AND workspace = ? AND id = ? AND version = ? AND deleted_at IS NULL`
)

// DefinitionKey names one version of something registered.
type DefinitionKey struct {
	Collection string
	Workspace  string
	ID         string
	Version    string
}

// Definition is one version of something registered. Body never changes.
type Definition struct {
	DefinitionKey
	// Form says how to read Body, where a collection has several.
	Form      string
	Body      []byte
	Tags      []string
	CreatedBy string
	CreatedAt protocol.Time
}

// PutDefinition registers a version. The same form and body again is a success
// and changes nothing, except that a deleted version is there again; another
// body is ErrExists, also for a deleted version, since runs may name it.
func (s *Store) PutDefinition(ctx context.Context, d Definition) error {
	tags, err := encodeTags(d.Tags)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(d.Body)
	digest := hex.EncodeToString(sum[:])
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var seq, deleted int64
		var knownForm, knownDigest string
		err := tx.QueryRow(sqlKnownDefinition, d.Collection, d.Workspace, d.ID, d.Version).Scan(&seq, &knownForm, &knownDigest, &deleted)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			_, err = tx.Exec(sqlInsertDefinition, d.Collection, d.Workspace, d.ID, d.Version, d.Form, d.Body, digest, tags,
				d.CreatedBy, millis(d.CreatedAt))
			return err
		case err != nil:
			return err
		case knownForm != d.Form || knownDigest != digest:
			return ErrExists
		case deleted != 0:
			_, err = tx.Exec(sqlReviveDefinition, seq)
			return err
		default:
			return nil
		}
	})
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("store: register %s %s@%s: %w", d.Collection, d.ID, d.Version, err)
	}
	return err
}

// Versions are the live versions of one id, in the order of registration.
func (s *Store) Versions(ctx context.Context, collection, workspace, id string) ([]Definition, error) {
	return s.definitions(ctx, sqlVersions, collection, workspace, id)
}

// Definitions are all live versions of a workspace, in the order of
// registration.
func (s *Store) Definitions(ctx context.Context, collection, workspace string) ([]Definition, error) {
	return s.definitions(ctx, sqlDefinitions, collection, workspace)
}

// Collection are all live versions of all workspaces, in the order of registration.
func (s *Store) Collection(ctx context.Context, collection string) ([]Definition, error) {
	return s.definitions(ctx, sqlCollection, collection)
}

// DeleteDefinition makes a version invisible; if there is none, ErrNotFound.
func (s *Store) DeleteDefinition(ctx context.Context, key DefinitionKey, at protocol.Time) error {
	return s.changeOne(ctx, "delete "+key.Collection+" "+key.ID, sqlDeleteDefinition, millis(at), key.Collection, key.Workspace, key.ID, key.Version)
}

// TagDefinition replaces the tags of a version; if there is none, ErrNotFound.
func (s *Store) TagDefinition(ctx context.Context, key DefinitionKey, tags []string) error {
	b, err := encodeTags(tags)
	if err != nil {
		return err
	}
	return s.changeOne(ctx, "tag "+key.Collection+" "+key.ID, sqlTagDefinition, b, key.Collection, key.Workspace, key.ID, key.Version)
}

func (s *Store) definitions(ctx context.Context, query string, args ...any) ([]Definition, error) {
	return list(ctx, s, "list definitions", scanDefinition, query, args...)
}

func scanDefinition(from row) (*Definition, error) {
	d := new(Definition)
	var tags []byte
	var created int64
	if err := from.Scan(&d.Collection, &d.Workspace, &d.ID, &d.Version, &d.Form, &d.Body, &tags, &d.CreatedBy, &created); err != nil {
		return nil, err
	}
	d.CreatedAt = instant(created)
	if err := json.Unmarshal(tags, &d.Tags); err != nil {
		return nil, fmt.Errorf("decode tags: %w", err)
	}
	return d, nil
}

func encodeTags(tags []string) ([]byte, error) {
	if tags == nil {
		tags = []string{}
	}
	b, err := json.Marshal(tags)
	if err != nil {
		return nil, fmt.Errorf("store: encode tags: %w", err)
	}
	return b, nil
}
