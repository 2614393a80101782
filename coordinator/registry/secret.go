package registry

import (
	"context"
	"errors"

	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

var (
	_ secret.Referrer = (*Registry)(nil)
	_ secret.Referrer = (*Runtimes)(nil)
)

// EachSecretRef implements secret.Referrer: the variables of every live version of
// every harness, in order. An instance counts with what it has of its template.
func (r *Registry) EachSecretRef(ctx context.Context, workspace string, fn func(protocol.SecretRef, protocol.SecretUse)) error {
	return r.each(ctx, harnesses, workspace, func(id string, versions []store.Definition) error {
		for i := range versions {
			spec, err := r.spec(ctx, &versions[i])
			var problem *protocol.Problem
			if errors.As(err, &problem) {
				continue // it does not resolve, so nothing that runs refers to anything
			}
			if err != nil {
				return err
			}
			for variable, ref := range spec.SecretEnv() {
				fn(ref, protocol.SecretUse{
					Kind: protocol.SecretUseHarness, Field: protocol.SecretUseEnv, Label: spec.ID + "@" + spec.Version,
					ResourceID: spec.ID, Version: spec.Version, Detail: variable, By: versions[i].CreatedBy,
				})
			}
		}
		return nil
	})
}

// EachSecretRef implements secret.Referrer: what every version of every runtime needs
// secrets for, in order.
func (r *Runtimes) EachSecretRef(ctx context.Context, workspace string, fn func(protocol.SecretRef, protocol.SecretUse)) error {
	return r.each(ctx, runtimes, workspace, func(id string, versions []store.Definition) error {
		for _, d := range versions {
			spec, err := decode[protocol.RuntimeSpec](&d)
			if err != nil {
				return err
			}
			for b := range spec.SecretBindings() {
				fn(protocol.SecretRef{SecretRef: b.Name, Scope: protocol.SecretWorkspace}, protocol.SecretUse{
					Kind: protocol.SecretUseRuntime, Field: b.Field, Label: id + "@" + d.Version, ResourceID: id, Version: d.Version,
				})
			}
		}
		return nil
	})
}

// ClusterSecrets are the secrets of a workspace that serve calls of a cluster's API, each
// with a version of a runtime that names it. It comes from memory and is shared: callers
// must not change it. On nil, there are none.
func (r *Runtimes) ClusterSecrets(ctx context.Context, workspace string) (map[string]string, error) {
	if r == nil {
		return nil, nil
	}
	k, err := r.read(ctx, workspace)
	if err != nil {
		return nil, err
	}
	return k.clusters, nil
}

// Unbound are the secrets that a spec gives to an address to which no registered version
// of a runtime of the workspace gives them, or for something else than any does. Versions
// are never removed, so what is bound stays so. A query that Probe or Register would
// refuse is the same error here.
func (r *Runtimes) Unbound(ctx context.Context, workspace string, q protocol.RuntimeQuery) ([]protocol.SecretBinding, error) {
	spec, err := r.spec(ctx, workspace, q)
	if err != nil {
		return nil, err
	}
	k, err := r.read(ctx, workspace)
	if err != nil {
		return nil, err
	}
	var unbound []protocol.SecretBinding
	for b := range spec.SecretBindings() {
		if !k.bound[b] {
			unbound = append(unbound, b)
		}
	}
	return unbound, nil
}
