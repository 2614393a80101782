// Package registry keeps the harnesses of a workspace: resolved specs, and
// templates with the instances that pin them. A version never changes once it is
// registered. What a run carries out is always a resolved spec.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Collections and forms in the store.
const (
	harnesses = "harness"
	templates = "harness-template"

	formSpec     = "spec"
	formInstance = "instance"
)

// BuiltinVersion is what latest means for a built-in adapter: the one that the
// runner has.
const BuiltinVersion = "builtin"

// Registry is the harnesses of all workspaces. Its methods are safe for
// concurrent use.
type Registry struct {
	store *store.Store
	now   func() time.Time

	// resolved caches what Resolve found. The coordinator is the only writer of
	// its database, so that an entry stays right until something is registered
	// or deleted here, and then all go.
	mu         sync.RWMutex
	resolved   map[resolvedKey]*protocol.HarnessSpec
	generation uint64
}

type resolvedKey struct{ workspace, id, version string }

// maxResolved bounds the cache; beyond it, it starts anew.
const maxResolved = 10_000

// New returns the harnesses in st. now is the clock; nil: time.Now.
func New(st *store.Store, now func() time.Time) *Registry {
	if now == nil {
		now = time.Now
	}
	return &Registry{store: st, now: now, resolved: make(map[resolvedKey]*protocol.HarnessSpec)}
}

// Resolve is the spec that a run of ref carries out, with ref.Params laid over
// its own and a concrete version. An unknown harness is a 404. The spec's maps
// and slices are shared: callers must not change them.
func (r *Registry) Resolve(ctx context.Context, workspace string, ref protocol.HarnessRef) (protocol.HarnessSpec, error) {
	if ref.Version == "" {
		ref.Version = protocol.Latest
	}
	key := resolvedKey{workspace, ref.ID, ref.Version}
	r.mu.RLock()
	spec, found := r.resolved[key]
	generation := r.generation
	r.mu.RUnlock()
	if !found {
		var err error
		if spec, err = r.resolve(ctx, workspace, ref); err != nil {
			return protocol.HarnessSpec{}, err
		}
		r.mu.Lock()
		if r.generation == generation {
			if len(r.resolved) >= maxResolved {
				clear(r.resolved)
			}
			r.resolved[key] = spec
		}
		r.mu.Unlock()
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

// errNoID says that nothing is registered under an id, errNoVersion that this
// version is not. Both are store.ErrNotFound.
var (
	errNoID      = fmt.Errorf("no such id: %w", store.ErrNotFound)
	errNoVersion = fmt.Errorf("no such version: %w", store.ErrNotFound)
)

// find is one live version, which may be asked for as latest.
func (r *Registry) find(ctx context.Context, collection, workspace, id, version string) (*store.Definition, error) {
	versions, err := r.versions(ctx, collection, workspace, id)
	if err != nil {
		return nil, err
	}
	if len(versions) == 0 {
		return nil, errNoID
	}
	if version == protocol.Latest {
		return &versions[len(versions)-1], nil
	}
	for i := range versions {
		if versions[i].Version == version {
			return &versions[i], nil
		}
	}
	return nil, errNoVersion
}

// versions are the live versions of an id, lowest first.
func (r *Registry) versions(ctx context.Context, collection, workspace, id string) ([]store.Definition, error) {
	versions, err := r.store.Versions(ctx, collection, workspace, id)
	sortVersions(versions)
	return versions, err
}

// put registers a version and forgets what was resolved.
func (r *Registry) put(ctx context.Context, what string, d store.Definition) (protocol.Registered, error) {
	d.CreatedAt = protocol.At(r.now())
	err := r.store.PutDefinition(ctx, d)
	if errors.Is(err, store.ErrExists) {
		return protocol.Registered{}, protocol.Conflict("%s %s@%s is registered with another content, and a version never changes", what, d.ID, d.Version).
			WithHint("register it under a new version")
	}
	if err != nil {
		return protocol.Registered{}, err
	}
	r.forget()
	return protocol.Registered{Workspace: d.Workspace, ID: d.ID, Version: d.Version}, nil
}

func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	clear(r.resolved)
}

// unknown makes the 404 of find's errors.
func (r *Registry) unknown(err error, what, id, version string) error {
	id, version = protocol.Clip(id, 80), protocol.Clip(version, 80)
	switch {
	case errors.Is(err, errNoID):
		return protocol.NotFound("no %s %q in this workspace", what, id).WithHint("%s", registerHint(what))
	case errors.Is(err, store.ErrNotFound):
		return protocol.NotFound("%s %q has no version %q", what, id, version).
			WithHint("GET %s/%s lists its versions, and %q is the highest", routes[what], id, protocol.Latest)
	default:
		return err
	}
}

var routes = map[string]string{"harness": "/harnesses", "harness template": "/harness-templates"}

func registerHint(what string) string {
	hint := "register it with POST " + routes[what]
	if what == "harness" {
		hint += ", or use one that is built in: " + strings.Join(protocol.Adapters(), ", ")
	}
	return hint
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
