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
			for field, name := range spec.SecretNames() {
				fn(protocol.SecretRef{SecretRef: name, Scope: protocol.SecretWorkspace}, protocol.SecretUse{
					Kind: protocol.SecretUseRuntime, Field: field, Label: id + "@" + d.Version, ResourceID: id, Version: d.Version,
				})
			}
		}
		return nil
	})
}
