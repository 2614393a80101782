// Package secret keeps the secrets of workspaces and people: sealed at rest,
// listed by name, opened only for the attempt that needs them. No value leaves it
// but through Resolve (P12).
//
// A value is sealed with AES-256-GCM by a data key of its own, and that by a key
// that is not in the database (KeyService). Both are bound to the workspace, scope,
// owner and name, so that a row cannot stand for another one.
package secret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Referrer knows things that refer to secrets, such as the harnesses of a
// workspace.
type Referrer interface {
	// EachSecretRef calls fn for every reference that something of the workspace has.
	EachSecretRef(ctx context.Context, workspace string, fn func(protocol.SecretRef, protocol.SecretUse)) error
}

// Config of a Vault. Store and Keys are required.
type Config struct {
	Store *store.Store
	Keys  KeyService
	// Referrers are asked by Usage.
	Referrers []Referrer
	// Changed is told of a secret of a workspace that has another value, or none any more;
	// nil: nobody is.
	Changed func(workspace, name string)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Vault is the secrets of all workspaces. Its methods are safe for concurrent use,
// and leave permission to their callers.
type Vault struct{ cfg Config }

// WrongKeyError says that secrets are sealed by keys that are not given. Ids name
// keys and reveal nothing of them.
type WrongKeyError struct {
	Wanted []string
	// Given is the key that would seal from now on; empty: none was given.
	Given string
}

// Error implements error.
func (e *WrongKeyError) Error() string {
	given := "no key is given"
	if e.Given != "" {
		given = "the key given is " + e.Given
	}
	return fmt.Sprintf("secret: the secrets in this database are sealed by the key %s, and %s", strings.Join(e.Wanted, " and the key "), given)
}

// Open returns the secrets in cfg.Store once it is certain that cfg.Keys open them.
// Those that another key than the current one seals are sealed anew, all in one
// transaction. A *WrongKeyError says which key is missing; nothing was changed
// then.
func Open(ctx context.Context, cfg Config) (*Vault, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Vault{cfg: cfg}
	ids, err := cfg.Store.SecretKeyIDs(ctx)
	if err != nil {
		return nil, err
	}
	if err := check(cfg.Keys, ids); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(ids, func(id string) bool { return id != cfg.Keys.KeyID() }) {
		if _, err := v.reseal(ctx); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// check is a *WrongKeyError if secrets that need the keys ids cannot be opened.
func check(keys KeyService, ids []string) error {
	missing := slices.DeleteFunc(slices.Clone(ids), keys.Has)
	if len(missing) > 0 {
		return &WrongKeyError{Wanted: missing, Given: keys.KeyID()}
	}
	return nil
}

// reseal seals every secret by the current key.
func (v *Vault) reseal(ctx context.Context) (int, error) {
	n, err := v.cfg.Store.ResealSecrets(ctx, func(r store.SecretRecord) (store.SecretRecord, error) {
		value, err := open(ctx, v.cfg.Keys, r)
		if err != nil {
			return r, err
		}
		return seal(ctx, v.cfg.Keys, r.SecretKey, value)
	})
	if err != nil {
		return 0, err
	}
	v.cfg.Log.Info("secrets are sealed by a new key", "secrets", n, "key", v.cfg.Keys.KeyID())
	return n, nil
}

// Owner is whose secrets are meant: a workspace's, and with a Subject also that
// person's own.
type Owner struct{ Workspace, Subject string }

func (o Owner) key(scope, name string) store.SecretKey {
	k := store.SecretKey{Workspace: o.Workspace, Scope: scope, Name: name}
	if scope == protocol.SecretUser {
		k.Owner = o.Subject
	}
	return k
}

// List are the secrets of o in the scopes that are named, each scope by name.
func (v *Vault) List(ctx context.Context, o Owner, scopes ...string) ([]protocol.Secret, error) {
	var all []protocol.Secret
	for _, scope := range scopes {
		list, err := v.cfg.Store.SecretNames(ctx, o.key(scope, ""))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// MissingNames are those of names that the workspace has no secret of, in their order.
func (v *Vault) MissingNames(ctx context.Context, workspace string, names []string) ([]string, error) {
	refs := make([]protocol.SecretRef, len(names))
	for i, name := range names {
		refs[i] = protocol.SecretRef{SecretRef: name, Scope: protocol.SecretWorkspace}
	}
	return v.Missing(ctx, Owner{Workspace: workspace}, refs)
}

// Set adds a secret of o, or replaces its value: attempts that are handed out from
// now on get the new one. A *protocol.Problem says what is wrong with the request;
// nothing was changed then (P15).
func (v *Vault) Set(ctx context.Context, o Owner, name string, req protocol.SecretRequest) error {
	if err := protocol.CheckSecretName(name); err != nil {
		return err
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if req.Scope == protocol.SecretUser && o.Subject == "" {
		return protocol.BadRequest("this credential is no person's, who could have a secret of their own").
			WithHint("set it for the workspace: scope %s", protocol.SecretWorkspace)
	}
	record, err := seal(ctx, v.cfg.Keys, o.key(req.Scope, name), req.Value)
	if err != nil {
		return err
	}
	record.UpdatedAt = protocol.At(v.cfg.Now())
	if err := v.cfg.Store.PutSecret(ctx, record); err != nil {
		return err
	}
	v.changed(o, req.Scope, name)
	return nil
}

func (v *Vault) changed(o Owner, scope, name string) {
	if v.cfg.Changed != nil && scope == protocol.SecretWorkspace {
		v.cfg.Changed(o.Workspace, name)
	}
}

// Delete ends a secret of o: attempts that are handed out from now on do without. To
// delete one that is not there is no error.
func (v *Vault) Delete(ctx context.Context, o Owner, scope, name string) error {
	err := v.cfg.Store.DeleteSecret(ctx, o.key(scope, name))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		v.changed(o, scope, name)
	}
	return err
}

// Usage are the secrets of List with whatever refers to each.
func (v *Vault) Usage(ctx context.Context, o Owner, scopes ...string) ([]protocol.SecretUsage, error) {
	list, err := v.List(ctx, o, scopes...)
	if err != nil {
		return nil, err
	}
	usage := make([]protocol.SecretUsage, len(list))
	at := make(map[protocol.SecretRef]int, len(list))
	for i, s := range list {
		usage[i] = protocol.SecretUsage{Secret: s, Refs: []protocol.SecretUse{}}
		at[protocol.SecretRef{SecretRef: s.Name, Scope: s.Scope}] = i
	}
	for _, referrer := range v.cfg.Referrers {
		err := referrer.EachSecretRef(ctx, o.Workspace, func(ref protocol.SecretRef, use protocol.SecretUse) {
			for _, scope := range tiers(ref) {
				if scope == protocol.SecretUser && use.By != o.Subject {
					continue // a harness gets the own secrets of who registered it alone
				}
				if i, found := at[protocol.SecretRef{SecretRef: ref.SecretRef, Scope: scope}]; found {
					usage[i].Refs = append(usage[i].Refs, use)
					return
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return usage, nil
}
