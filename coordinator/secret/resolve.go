package secret

import (
	"context"
	"errors"
	"slices"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// ErrNotFound says that nobody who was asked has such a secret.
var ErrNotFound = errors.New("secret: not found")

// tiers are the scopes in which a reference is looked for, the first first.
func tiers(ref protocol.SecretRef) []string {
	if ref.Scope != "" {
		return []string{ref.Scope}
	}
	return []string{protocol.SecretWorkspace, protocol.SecretUser}
}

// find is the row that a reference of o means, or ErrNotFound.
func (v *Vault) find(ctx context.Context, o Owner, ref protocol.SecretRef) (*store.SecretRecord, error) {
	for _, scope := range tiers(ref) {
		if scope == protocol.SecretUser && o.Subject == "" {
			continue // nobody's own: no row is
		}
		r, err := v.cfg.Store.Secret(ctx, o.key(scope, ref.SecretRef))
		if !errors.Is(err, store.ErrNotFound) {
			return r, err
		}
	}
	return nil, ErrNotFound
}

// Missing are those of refs that o has no secret for, as words, each once and in
// order: NAME, or user:NAME for one's own.
func (v *Vault) Missing(ctx context.Context, o Owner, refs []protocol.SecretRef) ([]string, error) {
	var missing []string
	for _, ref := range refs {
		switch _, err := v.find(ctx, o, ref); {
		case errors.Is(err, ErrNotFound):
			missing = append(missing, ref.String())
		case err != nil:
			return nil, err
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

// Resolve is the value that a reference of o means now. It is ErrNotFound if there
// is none, and an *UnreadableError if what is kept does not open.
//
// What it returns must go nowhere but where it is needed: no log, no row, no error.
func (v *Vault) Resolve(ctx context.Context, o Owner, ref protocol.SecretRef) (string, error) {
	r, err := v.find(ctx, o, ref)
	if err != nil {
		return "", err
	}
	return open(ctx, v.cfg.Keys, *r)
}
