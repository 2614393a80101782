// Package registry keeps what the users of a workspace register: harnesses
// (resolved specs, and templates with the instances that pin them) and runtimes. A
// version never changes once it is registered. What a run carries out is always a
// resolved spec.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Collections and forms in the store.
const (
	harnesses = "harness"
	templates = "harness-template"
	runtimes  = "runtime"

	formSpec     = "spec"
	formInstance = "instance"
)

// BuiltinVersion is what latest means for a built-in adapter: the one that the
// runner has.
const BuiltinVersion = "builtin"

// Registry is the harnesses of all workspaces. Its methods are safe for
// concurrent use.
type Registry struct {
	shelf
	cache *resolutions
	// viewer is who sees no private harness of others; empty: whoever sees all.
	viewer string
}

// resolutions caches what Resolve found. The coordinator is the only writer of its
// database, so that an entry stays right until something is registered or deleted
// here, and then all go.
type resolutions struct {
	mu         sync.RWMutex
	resolved   map[resolvedKey]*protocol.HarnessSpec
	generation uint64
}

type resolvedKey struct{ workspace, viewer, id, version string }

// maxResolved bounds the cache; beyond it, it starts anew.
const maxResolved = 10_000

// New returns the harnesses in st. now is the clock; nil: time.Now.
func New(st *store.Store, now func() time.Time) *Registry {
	return &Registry{shelf: newShelf(st, now), cache: &resolutions{resolved: make(map[resolvedKey]*protocol.HarnessSpec)}}
}

// For is the registry as a person sees it. A version of a harness that names one of its
// submitter's own secrets is private: for all but who registered it, it is not there.
func (r *Registry) For(subject string) *Registry {
	mine := *r
	mine.viewer = subject
	mine.hidden = func(ctx context.Context, d *store.Definition) (bool, error) {
		if d.Collection != harnesses || d.CreatedBy == subject {
			return false, nil
		}
		return r.private(ctx, d)
	}
	return &mine
}

// private says whether a harness names a secret of its submitter's own. One that does not
// resolve any more names nothing.
func (r *Registry) private(ctx context.Context, d *store.Definition) (bool, error) {
	spec, err := r.spec(ctx, d)
	var problem *protocol.Problem
	if errors.As(err, &problem) {
		return false, nil
	}
	return err == nil && isPrivate(spec), err
}

func isPrivate(spec *protocol.HarnessSpec) bool {
	for _, ref := range spec.SecretEnv() {
		if ref.Scope == protocol.SecretUser {
			return true
		}
	}
	return false
}

// Resolve is the spec that a run of ref carries out, with ref.Params laid over
// its own and a concrete version. An unknown harness is a 404. The spec's maps
// and slices are shared: callers must not change them.
func (r *Registry) Resolve(ctx context.Context, workspace string, ref protocol.HarnessRef) (protocol.HarnessSpec, error) {
	if ref.Version == "" {
		ref.Version = protocol.Latest
	}
	key := resolvedKey{workspace, r.viewer, ref.ID, ref.Version}
	r.cache.mu.RLock()
	spec, found := r.cache.resolved[key]
	generation := r.cache.generation
	r.cache.mu.RUnlock()
	if !found {
		var err error
		if spec, err = r.resolve(ctx, workspace, ref); err != nil {
			return protocol.HarnessSpec{}, err
		}
		r.cache.mu.Lock()
		if r.cache.generation == generation {
			if len(r.cache.resolved) >= maxResolved {
				clear(r.cache.resolved)
			}
			r.cache.resolved[key] = spec
		}
		r.cache.mu.Unlock()
	}
	result := *spec
	if len(ref.Params) > 0 {
		result.Params = merge(result.Params, ref.Params)
	}
	return result, nil
}

func (r *Registry) resolve(ctx context.Context, workspace string, ref protocol.HarnessRef) (*protocol.HarnessSpec, error) {
	d, err := r.find(ctx, harnesses, workspace, ref.ID, ref.Version)
	if err != nil {
		if spec := builtin(ref); spec != nil && errors.Is(err, errNoID) {
			return spec, nil
		}
		return nil, r.unknown(err, "harness", ref.ID, ref.Version)
	}
	return r.spec(ctx, d)
}

// spec is the resolved spec of a registered harness of either form.
func (r *Registry) spec(ctx context.Context, d *store.Definition) (*protocol.HarnessSpec, error) {
	if d.Form == formSpec {
		return decode[protocol.HarnessSpec](d)
	}
	instance, err := decode[protocol.HarnessInstance](d)
	if err != nil {
		return nil, err
	}
	return r.resolveInstance(ctx, d.Workspace, instance)
}

// builtin is the spec of a built-in adapter, which needs no registration and exists
// in any version; nil if ref names none.
func builtin(ref protocol.HarnessRef) *protocol.HarnessSpec {
	if !slices.Contains(protocol.Adapters(), ref.ID) {
		return nil
	}
	version := ref.Version
	// The scripted agent is part of the runner and has no version of its own to
	// choose from; of the others the version is the installed program's.
	if version == protocol.Latest || ref.ID == protocol.AdapterScripted {
		version = BuiltinVersion
	}
	return &protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: ref.ID, Version: version}
}

// put registers a version and forgets what was resolved.
func (r *Registry) put(ctx context.Context, what string, d store.Definition) (protocol.Registered, error) {
	registered, err := r.shelf.put(ctx, what, d)
	if err == nil {
		r.forget()
	}
	return registered, err
}

func (r *Registry) forget() {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	r.cache.generation++
	clear(r.cache.resolved)
}

func decode[T any](d *store.Definition) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(d.Body, v); err != nil {
		return nil, fmt.Errorf("registry: decode %s %s@%s: %w", d.Collection, d.ID, d.Version, err)
	}
	return v, nil
}

// merge lays over on top of base, changing neither.
func merge[V any](base, over map[string]V) map[string]V {
	if len(over) == 0 {
		return base
	}
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(map[string]V, len(over))
	}
	maps.Copy(merged, over)
	return merged
}
