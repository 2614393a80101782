package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// shelf is what all that can be registered has in common: versions that never
// change, of which the highest is the latest.
type shelf struct {
	store *store.Store
	now   func() time.Time
	// hidden says of a version that it is not shown; nil: all are.
	hidden func(context.Context, *store.Definition) (bool, error)
}

// shown are those versions that are not hidden.
func (s *shelf) shown(ctx context.Context, all []store.Definition) ([]store.Definition, error) {
	if s.hidden == nil {
		return all, nil
	}
	var kept []store.Definition
	for i := range all {
		hidden, err := s.hidden(ctx, &all[i])
		if err != nil {
			return nil, err
		}
		if !hidden {
			kept = append(kept, all[i])
		}
	}
	return kept, nil
}

func newShelf(st *store.Store, now func() time.Time) shelf {
	if now == nil {
		now = time.Now
	}
	return shelf{store: st, now: now}
}

// errNoID says that nothing is registered under an id, errNoVersion that this
// version is not. Both are store.ErrNotFound.
var (
	errNoID      = fmt.Errorf("no such id: %w", store.ErrNotFound)
	errNoVersion = fmt.Errorf("no such version: %w", store.ErrNotFound)
)

// find is one live version, which may be asked for as latest.
func (s *shelf) find(ctx context.Context, collection, workspace, id, version string) (*store.Definition, error) {
	versions, err := s.versions(ctx, collection, workspace, id)
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
func (s *shelf) versions(ctx context.Context, collection, workspace, id string) ([]store.Definition, error) {
	versions, err := s.store.Versions(ctx, collection, workspace, id)
	if err == nil {
		versions, err = s.shown(ctx, versions)
	}
	sortVersions(versions)
	return versions, err
}

// put registers a version.
func (s *shelf) put(ctx context.Context, what string, d store.Definition) (protocol.Registered, error) {
	d.CreatedAt = protocol.At(s.now())
	err := s.store.PutDefinition(ctx, d)
	if errors.Is(err, store.ErrExists) {
		return protocol.Registered{}, protocol.Conflict("%s %s@%s is registered with another content, and a version never changes", what, d.ID, d.Version).
			WithHint("register it under a new version")
	}
	if err != nil {
		return protocol.Registered{}, err
	}
	return protocol.Registered{Workspace: d.Workspace, ID: d.ID, Version: d.Version}, nil
}

// unknown makes the 404 of find's errors.
func (s *shelf) unknown(err error, what, id, version string) error {
	id, version = protocol.Clip(id, 80), protocol.Clip(version, 80)
	switch {
	case errors.Is(err, errNoID) && what == "harness" && slices.Contains(protocol.Adapters(), id):
		return protocol.NotFound("harness %q is built in, and this workspace has registered no version of it", id).
			WithHint("GET /harnesses/%s/%s is what it resolves to", id, BuiltinVersion)
	case errors.Is(err, errNoID):
		return protocol.NotFound("no %s %q in this workspace", what, id).WithHint("%s", registerHint(what))
	case errors.Is(err, store.ErrNotFound):
		list := routes[what] + "/" + id
		if what == "runtime" {
			list = routes[what]
		}
		return protocol.NotFound("%s %q has no version %q", what, id, version).
			WithHint("GET %s lists its versions, and %q is the highest", list, protocol.Latest)
	default:
		return err
	}
}

var routes = map[string]string{"harness": "/harnesses", "harness template": "/harness-templates", "runtime": "/runtimes"}

func registerHint(what string) string {
	hint := "register it with POST " + routes[what]
	if what == "harness" {
		hint += ", or use one that is built in: " + strings.Join(protocol.Adapters(), ", ")
	}
	return hint
}

// validation is the answer of a validate route, given what a check said.
func (s *shelf) validation(ctx context.Context, collection, workspace, id, version, kind string, fault error) (protocol.Validation, error) {
	existing, err := s.versions(ctx, collection, workspace, id)
	if err != nil {
		return protocol.Validation{}, err
	}
	v := protocol.Validation{ExistingVersions: names(existing)}
	v.VersionExists = slices.Contains(v.ExistingVersions, version)
	if fault == nil {
		v.OK, v.Kind, v.ID, v.Version = true, kind, id, version
		return v, nil
	}
	var problem *protocol.Problem
	if !errors.As(fault, &problem) {
		return protocol.Validation{}, fault
	}
	if v.Errors, _ = problem.Data["faults"].([]string); len(v.Errors) == 0 {
		v.Errors = []string{problem.Message}
	}
	return v, nil
}

// tag replaces the tags of a version.
func (s *shelf) tag(ctx context.Context, collection, what, workspace, id, version string, t protocol.Tags) (protocol.Tagged, error) {
	if err := t.Validate(); err != nil {
		return protocol.Tagged{}, err
	}
	if t.Tags == nil {
		t.Tags = []string{}
	}
	d, err := s.find(ctx, collection, workspace, id, version)
	if err == nil {
		err = s.store.TagDefinition(ctx, d.DefinitionKey, t.Tags)
	}
	if err != nil {
		return protocol.Tagged{}, s.unknown(err, what, id, version)
	}
	return protocol.Tagged{Workspace: workspace, ID: id, Version: d.Version, Tags: t.Tags}, nil
}

func (s *shelf) listVersions(ctx context.Context, collection, what, workspace, id string) (protocol.Versions, error) {
	versions, err := s.versions(ctx, collection, workspace, id)
	if err == nil && len(versions) == 0 {
		err = errNoID
	}
	if err != nil {
		return protocol.Versions{}, s.unknown(err, what, id, "")
	}
	return protocol.Versions{ID: id, Versions: names(versions), VersionTags: tags(versions)}, nil
}

// each calls fn for every id of a collection, in order of ids, with its versions
// lowest first.
func (s *shelf) each(ctx context.Context, collection, workspace string, fn func(id string, versions []store.Definition) error) error {
	all, err := s.store.Definitions(ctx, collection, workspace)
	if err == nil {
		all, err = s.shown(ctx, all)
	}
	if err != nil {
		return err
	}
	byID := make(map[string][]store.Definition)
	for _, d := range all {
		byID[d.ID] = append(byID[d.ID], d)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		sortVersions(byID[id])
		if err := fn(id, byID[id]); err != nil {
			return err
		}
	}
	return nil
}

func names(versions []store.Definition) []string {
	list := make([]string, len(versions))
	for i, d := range versions {
		list[i] = d.Version
	}
	return list
}

func tags(versions []store.Definition) map[string][]string {
	var m map[string][]string
	for _, d := range versions {
		if len(d.Tags) > 0 {
			if m == nil {
				m = make(map[string][]string)
			}
			m[d.Version] = d.Tags
		}
	}
	return m
}
