package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// prefixLength is how much of a key is kept to recognise it by.
const prefixLength = 12

// Keys issues and resolves API keys.
type Keys struct {
	store *store.Store
	now   func() time.Time

	// cache holds keys by hash. The coordinator is the only one that writes
	// them, so an entry is right until Delete drops it.
	mu    sync.RWMutex
	cache map[string]*store.KeyRecord
	// deletions counts them, so that a key that was read before its deletion is
	// not put into the cache after it.
	deletions uint64
}

// maxCached bounds the cache; a coordinator with more keys in use reads them
// from the database.
const maxCached = 10_000

// NewKeys returns the keys in st. now is the clock; nil: time.Now.
func NewKeys(st *store.Store, now func() time.Time) *Keys {
	if now == nil {
		now = time.Now
	}
	return &Keys{store: st, now: now, cache: make(map[string]*store.KeyRecord)}
}

// Issue makes a key with the role and the scopes asked for, none of which may be above
// p's own. It acts as p, or, where p is an admin, as whoever req names.
func (k *Keys) Issue(ctx context.Context, p Principal, req protocol.KeyRequest) (protocol.IssuedKey, error) {
	if req.Scopes == nil && p.Scopes != nil {
		req.Scopes = p.Scopes
	}
	if err := req.Validate(); err != nil {
		return protocol.IssuedKey{}, err
	}
	by := p.Subject
	switch req.Subject {
	case "", p.Subject:
		req.Subject, by = p.Subject, ""
		req.Role = cmp.Or(req.Role, p.Role())
	default:
		if err := p.Permits(KeysManage); err != nil {
			return protocol.IssuedKey{}, err
		}
		req.Role = cmp.Or(req.Role, protocol.RoleMember)
	}
	if !reaches(roleOrder, p.Roles, req.Role) {
		return protocol.IssuedKey{}, protocol.Forbidden("a key with the role %s may not issue one with the role %s", p.Role(), req.Role).
			WithHint("leave role out to give the new key your own")
	}
	for _, scope := range req.Scopes {
		if p.Scopes != nil && !reaches(scopeOrder, p.Scopes, scope) {
			return protocol.IssuedKey{}, protocol.Forbidden("a key with the scope %s may not issue one with the scope %s", strings.Join(p.Scopes, ", "), scope).
				WithHint("leave scopes out to give the new key your own")
		}
	}
	record, secret := k.make(p.Workspace, by, req)
	if err := k.store.InsertKey(ctx, record); err != nil {
		return protocol.IssuedKey{}, err
	}
	return protocol.IssuedKey{ID: record.ID, APIKey: secret}, nil
}

// Bootstrap makes the first key, an admin's of workspace, and returns it to be
// shown once. With a key in the database it returns "".
func (k *Keys) Bootstrap(ctx context.Context, workspace string) (string, error) {
	record, secret := k.make(workspace, "", firstKey("bootstrap"))
	err := k.store.InsertFirstKey(ctx, record)
	switch {
	case errors.Is(err, store.ErrExists):
		return "", nil
	case err != nil:
		return "", err
	}
	return secret, nil
}

// Operator is who has made a key with the operator's token.
const Operator = "operator"

// Tenant makes an admin's key of a workspace, which exists by having one. It asks
// nobody's leave: the caller has shown the operator's token.
func (k *Keys) Tenant(ctx context.Context, req protocol.TenantKeyRequest) (protocol.TenantKey, error) {
	if err := req.Validate(); err != nil {
		return protocol.TenantKey{}, err
	}
	record, secret := k.make(req.Workspace, Operator, firstKey("tenant"))
	if err := k.store.InsertKey(ctx, record); err != nil {
		return protocol.TenantKey{}, err
	}
	return protocol.TenantKey{Workspace: req.Workspace, ID: record.ID, APIKey: secret}, nil
}

// firstKey is what the others of a workspace are made with.
func firstKey(label string) protocol.KeyRequest {
	return protocol.KeyRequest{Label: label, Subject: "admin", Role: protocol.RoleAdmin, Scopes: []string{protocol.ScopeAdmin}}
}

// List are p's own keys, newest first; for an admin those of the whole workspace.
func (k *Keys) List(ctx context.Context, p Principal) ([]protocol.Key, error) {
	var records []store.KeyRecord
	var err error
	if p.Permits(KeysManage) == nil {
		records, err = k.store.WorkspaceKeys(ctx, p.Workspace)
	} else {
		records, err = k.store.Keys(ctx, p.Workspace, p.Subject)
	}
	if err != nil {
		return nil, err
	}
	keys := make([]protocol.Key, len(records))
	for i, r := range records {
		keys[i] = r.Key
	}
	return keys, nil
}

// Delete ends one of p's own keys at once, or, where p is an admin, anybody's of the
// workspace. To end one that is not there, or is not p's to end, is no error; one of
// p's own with a role or a scope above p's is refused, since a key that may write
// could otherwise leave a workspace without any that may administer it.
func (k *Keys) Delete(ctx context.Context, p Principal, id string) error {
	record, err := k.store.Key(ctx, p.Workspace, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && record.Subject != p.Subject && p.Permits(KeysManage) != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := mayDelete(p, record); err != nil {
		return err
	}
	err = k.store.DeleteKey(ctx, p.Workspace, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deletions++
	for hash, record := range k.cache {
		if record.ID == id {
			delete(k.cache, hash)
		}
	}
	return nil
}

func mayDelete(p Principal, key *store.KeyRecord) error {
	if !reaches(roleOrder, p.Roles, key.Role) {
		return protocol.Forbidden("a key with the role %s may not end %s, which has the role %s", p.Role(), key.ID, key.Role).
			WithHint("use a key that has the role %s itself", key.Role)
	}
	for _, scope := range key.Scopes {
		if p.Scopes != nil && (!slices.Contains(scopeOrder, scope) || !reaches(scopeOrder, p.Scopes, scope)) {
			return protocol.Forbidden("a key with the scope %s may not end %s, which has the scope %s", strings.Join(p.Scopes, ", "), key.ID, scope).
				WithHint("use a key that has the scope %s itself", scope)
		}
	}
	return nil
}

// make is a new key of workspace and its value. by is who made it, if not its subject.
func (k *Keys) make(workspace, by string, req protocol.KeyRequest) (store.KeyRecord, string) {
	secret := protocol.NewCredential(protocol.APIKeyPrefix)
	return store.KeyRecord{
		Key: protocol.Key{
			ID:        protocol.NewID(protocol.KeyPrefix),
			Label:     req.Label,
			Subject:   req.Subject,
			Role:      req.Role,
			CreatedBy: by,
			Prefix:    secret[:prefixLength],
			Scopes:    slices.Clone(req.Scopes),
			CreatedAt: protocol.At(k.now()),
		},
		Workspace: workspace,
		Hash:      store.HashSecret(secret),
	}, secret
}

// resolve finds a key by the hash of its value. The time that a lookup by hash
// takes reveals at most a part of the hash of 192 random bits, of no use to
// anyone; what was found is compared in constant time all the same.
func (k *Keys) resolve(ctx context.Context, secret string) (*store.KeyRecord, error) {
	hash := store.HashSecret(secret)
	k.mu.RLock()
	record, found := k.cache[hash]
	deletions := k.deletions
	k.mu.RUnlock()
	if found {
		return record, nil
	}
	record, err := k.store.KeyByHash(ctx, hash)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(record.Hash), []byte(hash)) != 1 {
		return nil, store.ErrNotFound
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.deletions == deletions && len(k.cache) < maxCached {
		k.cache[hash] = record
	}
	return record, nil
}
