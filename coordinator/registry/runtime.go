package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// How long a probe and an inspection may take.
const (
	probeBound   = 10 * time.Second
	inspectBound = 15 * time.Second
)

// Prober asks the cluster of a runtime whether it answers, with the client that a
// launch would use.
type Prober interface {
	// Probe resolves the spec's secrets in workspace, asks the cluster and returns
	// soon after ctx has ended. What the cluster says, or that nothing came from
	// it, is the answer; an error is one of the coordinator's own.
	Probe(ctx context.Context, workspace string, spec *protocol.RuntimeSpec) (protocol.Probe, error)
	// Inspect looks at the cluster, in the same way.
	Inspect(ctx context.Context, workspace string, spec *protocol.RuntimeSpec) (protocol.Inspection, error)
}

// RuntimesConfig of Runtimes. Only Store is required.
type RuntimesConfig struct {
	Store *store.Store
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Probers by kind of runtime. A kind without one cannot be probed.
	Probers map[string]Prober
	// Check refuses a spec whose units could not be as it says, with a *Problem; nil:
	// none is refused.
	Check func(workspace string, spec *protocol.RuntimeSpec) error
	// NoMachine is why runners of kind local are not launched, where there is no prober
	// for them; empty: nobody says.
	NoMachine string
	// MissingSecrets are those of names that a workspace does not have, in order;
	// nil: it has none.
	MissingSecrets func(ctx context.Context, workspace string, names []string) ([]string, error)
	// Changed is told the latest version of a runtime after one was registered, and
	// of all by Announce. It is called by one goroutine at a time; nil: nobody is.
	Changed func(ctx context.Context, workspace string, latest *protocol.RuntimeSpec) error
}

// Runtimes are the registered runtimes of all workspaces. Its methods are safe for
// concurrent use.
type Runtimes struct {
	shelf
	cfg RuntimesConfig

	// telling is held from the commit of a version until Changed has returned, so
	// that the last word is that of the latest version.
	telling sync.Mutex

	// known caches what is asked at every submit, by workspace. The coordinator is the
	// only writer of its database.
	mu         sync.RWMutex
	known      map[string]*shown
	generation uint64
}

// shown is what is registered in a workspace, in short.
type shown struct {
	// latest are the highest versions by id.
	latest []protocol.RuntimeSpec
	// bound are the secrets that any version names. clusters says which runtime is the
	// first that needs a secret for its cluster, by the name of the secret.
	bound    map[protocol.SecretBinding]bool
	clusters map[string]string
}

// maxRuntimeWorkspaces bounds the cache; beyond it, it starts anew.
const maxRuntimeWorkspaces = 10_000

// NewRuntimes returns the runtimes in cfg.Store.
func NewRuntimes(cfg RuntimesConfig) *Runtimes {
	return &Runtimes{shelf: newShelf(cfg.Store, cfg.Now), cfg: cfg, known: map[string]*shown{}}
}

// Announce tells Changed of every runtime there is, as after a start.
func (r *Runtimes) Announce(ctx context.Context) error {
	all, err := r.store.Collection(ctx, runtimes)
	if err != nil {
		return err
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	known := map[store.DefinitionKey]bool{}
	for _, d := range all {
		key := store.DefinitionKey{Workspace: d.Workspace, ID: d.ID}
		if known[key] {
			continue
		}
		known[key] = true
		if err := r.tell(ctx, d.Workspace, d.ID); err != nil {
			return err
		}
	}
	return nil
}

// tell calls Changed. The caller holds telling.
func (r *Runtimes) tell(ctx context.Context, workspace, id string) error {
	if r.cfg.Changed == nil {
		return nil
	}
	spec, err := r.Latest(ctx, workspace, id)
	if err != nil {
		return err
	}
	return r.cfg.Changed(ctx, workspace, spec)
}

// Register adds a version of a runtime; the same content again is a success,
// another content a 409. The content is compared after defaults and derived
// capabilities are filled in.
func (r *Runtimes) Register(ctx context.Context, workspace, by string, spec protocol.RuntimeSpec) (protocol.Registered, error) {
	if err := r.check(workspace, &spec); err != nil {
		return protocol.Registered{}, err
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return protocol.Registered{}, fmt.Errorf("registry: encode runtime %s: %w", spec.ID, err)
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	registered, err := r.put(ctx, "runtime", store.Definition{
		DefinitionKey: store.DefinitionKey{Collection: runtimes, Workspace: workspace, ID: spec.ID, Version: spec.Version},
		Form:          formSpec, Body: body, CreatedBy: by,
	})
	if err != nil {
		return protocol.Registered{}, err
	}
	r.mu.Lock()
	r.generation++
	delete(r.known, workspace)
	r.mu.Unlock()
	return registered, r.tell(ctx, workspace, spec.ID)
}

// check says what is wrong with a spec, in itself or here.
func (r *Runtimes) check(workspace string, spec *protocol.RuntimeSpec) error {
	if err := spec.Validate(); err != nil || r.cfg.Check == nil {
		return err
	}
	return r.cfg.Check(workspace, spec)
}

// Validate says what Register would refuse, and which secrets the spec names that
// are not there. A name of a registered runtime stands for its spec.
func (r *Runtimes) Validate(ctx context.Context, workspace string, q protocol.RuntimeQuery) (protocol.RuntimeValidation, error) {
	spec, fault := r.spec(ctx, workspace, q)
	id, version, kind := spec.ID, spec.Version, spec.Kind
	v, err := r.validation(ctx, runtimes, workspace, id, version, kind, fault)
	if err != nil || !v.OK {
		return protocol.RuntimeValidation{Validation: v}, err
	}
	var missing []string
	for b := range spec.SecretBindings() {
		missing = append(missing, b.Name)
	}
	if len(missing) == 0 {
		return protocol.RuntimeValidation{Validation: v}, nil
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if r.cfg.MissingSecrets != nil {
		if missing, err = r.cfg.MissingSecrets(ctx, workspace, missing); err != nil {
			return protocol.RuntimeValidation{}, err
		}
	}
	if missing == nil {
		missing = []string{}
	}
	return protocol.RuntimeValidation{Validation: v, MissingSecrets: &missing}, nil
}

// spec is what a query means, checked. With a fault the spec names what was asked
// for as far as it goes.
func (r *Runtimes) spec(ctx context.Context, workspace string, q protocol.RuntimeQuery) (*protocol.RuntimeSpec, error) {
	switch {
	case q.Fault != nil && q.Spec != nil:
		return q.Spec, q.Fault
	case q.Fault != nil:
		return &protocol.RuntimeSpec{}, q.Fault
	case q.Ref != nil:
		version := q.Ref.Version
		if version == "" {
			version = protocol.Latest
		}
		spec, err := r.Get(ctx, workspace, q.Ref.ID, version)
		if err != nil {
			return &protocol.RuntimeSpec{ID: q.Ref.ID, Version: version}, err
		}
		return spec, nil
	case q.Spec != nil:
		spec := *q.Spec
		err := r.check(workspace, &spec)
		return &spec, err
	}
	return &protocol.RuntimeSpec{}, protocol.BadRequest("the body is neither a runtime's spec nor the id of a registered one")
}

// Probe asks whether a runtime's cluster answers, for at most 10 s. A spec that
// could not be registered is a 400, an unknown name a 404.
func (r *Runtimes) Probe(ctx context.Context, workspace string, q protocol.RuntimeQuery) (protocol.Probe, error) {
	spec, err := r.spec(ctx, workspace, q)
	if err != nil {
		return protocol.Probe{}, err
	}
	answer := protocol.Probe{Kind: spec.Kind}
	prober := r.cfg.Probers[spec.Kind]
	if spec.Kind == protocol.RuntimeLocal && prober == nil {
		answer.Reachable = true
		answer.Detail = "there is no cluster to reach: " + r.local()
		return answer, nil
	}
	if prober == nil {
		answer.Detail = "this build cannot probe runtimes of kind " + spec.Kind
		return answer, nil
	}
	bounded, cancel := context.WithTimeout(ctx, probeBound)
	defer cancel()
	answer, err = prober.Probe(bounded, workspace, spec)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return protocol.Probe{Kind: spec.Kind, Reason: protocol.ProbeUnreachable, Detail: fmt.Sprintf("no answer within %v", probeBound)}, nil
	}
	answer.Kind = spec.Kind
	return answer, err
}

// local says where the runners of kind local come from that are not launched.
func (r *Runtimes) local() string {
	const whose = "the coordinator's own (everdict up) and those that join with a pool token"
	if r.cfg.NoMachine == "" {
		return "its runners are " + whose
	}
	return "its runners are " + whose + "; none are launched: " + r.cfg.NoMachine
}

// Inspect looks at the cluster of a registered runtime for at most 15 s: its nodes, its
// capacity, what runs there for this runtime. An unknown one is a 404; a cluster that
// does not answer is an answer.
func (r *Runtimes) Inspect(ctx context.Context, workspace, id, version string) (protocol.Inspection, error) {
	spec, err := r.Get(ctx, workspace, id, version)
	if err != nil {
		return protocol.Inspection{}, err
	}
	answer := protocol.Inspection{Kind: spec.Kind, Warnings: []string{}}
	prober := r.cfg.Probers[spec.Kind]
	switch {
	case spec.Kind == protocol.RuntimeLocal && prober == nil:
		answer.Reachable, answer.Detail = true, "there is no cluster; everdict pools list shows its runners: "+r.local()
		return answer, nil
	case prober == nil:
		answer.Detail = "this build cannot look at runtimes of kind " + spec.Kind
		return answer, nil
	}
	bounded, cancel := context.WithTimeout(ctx, inspectBound)
	defer cancel()
	in, err := prober.Inspect(bounded, workspace, spec)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		answer.Reason, answer.Detail = protocol.ProbeUnreachable, fmt.Sprintf("no answer within %v", inspectBound)
		return answer, nil
	}
	return in, err
}

// List are the runtimes of a workspace by id.
func (r *Runtimes) List(ctx context.Context, workspace string) ([]protocol.RuntimeEntry, error) {
	entries := []protocol.RuntimeEntry{}
	err := r.each(ctx, runtimes, workspace, func(id string, versions []store.Definition) error {
		latest := versions[len(versions)-1]
		spec, err := decode[protocol.RuntimeSpec](&latest)
		if err != nil {
			return err
		}
		e := protocol.RuntimeEntry{ID: id, Versions: names(versions), Owner: workspace, VersionTags: tags(versions),
			Capabilities: spec.Capabilities, Kind: spec.Kind, LatestVersion: latest.Version, CreatedBy: latest.CreatedBy}
		for _, d := range versions {
			if d.CreatedAt.After(e.UpdatedAt.Time) {
				e.UpdatedAt = d.CreatedAt
			}
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// Get is one version of a runtime, which may be asked for as latest; unknown is a
// 404.
func (r *Runtimes) Get(ctx context.Context, workspace, id, version string) (*protocol.RuntimeSpec, error) {
	d, err := r.find(ctx, runtimes, workspace, id, version)
	if err != nil {
		return nil, r.unknown(err, "runtime", id, version)
	}
	return decode[protocol.RuntimeSpec](d)
}

// Specs are all versions of a runtime, the latest last; none if it is unknown.
func (r *Runtimes) Specs(ctx context.Context, workspace, id string) ([]protocol.RuntimeSpec, error) {
	versions, err := r.versions(ctx, runtimes, workspace, id)
	if err != nil {
		return nil, err
	}
	var all []protocol.RuntimeSpec
	for i := range versions {
		spec, err := decode[protocol.RuntimeSpec](&versions[i])
		if err != nil {
			return nil, err
		}
		all = append(all, *spec)
	}
	return all, nil
}

// SetTags replaces the tags of a version.
func (r *Runtimes) SetTags(ctx context.Context, workspace, id, version string, t protocol.Tags) (protocol.Tagged, error) {
	return r.tag(ctx, runtimes, "runtime", workspace, id, version, t)
}

// Latest is the highest version of a runtime; unknown is a 404. It is asked at
// every submit and comes from memory. The spec is shared: callers must not change
// it. On nil, nothing is registered.
func (r *Runtimes) Latest(ctx context.Context, workspace, id string) (*protocol.RuntimeSpec, error) {
	all, err := r.All(ctx, workspace)
	if err != nil {
		return nil, err
	}
	i, found := slices.BinarySearchFunc(all, id, func(s protocol.RuntimeSpec, id string) int { return strings.Compare(s.ID, id) })
	if !found {
		return nil, protocol.NotFound("no runtime %q in workspace %s", protocol.Clip(id, 80), protocol.Clip(workspace, 80)).
			WithHint("%s", registerHint("runtime"))
	}
	return &all[i], nil
}

// All are the highest versions of the runtimes of a workspace, by id. They are
// shared: callers must not change them. On nil, there are none.
func (r *Runtimes) All(ctx context.Context, workspace string) ([]protocol.RuntimeSpec, error) {
	if r == nil {
		return nil, nil
	}
	k, err := r.read(ctx, workspace)
	if err != nil {
		return nil, err
	}
	return k.latest, nil
}

// read is what is registered in a workspace. It comes from memory.
func (r *Runtimes) read(ctx context.Context, workspace string) (*shown, error) {
	r.mu.RLock()
	k, found := r.known[workspace]
	generation := r.generation
	r.mu.RUnlock()
	if found {
		return k, nil
	}
	k = &shown{bound: map[protocol.SecretBinding]bool{}, clusters: map[string]string{}}
	err := r.each(ctx, runtimes, workspace, func(_ string, versions []store.Definition) error {
		for i := range versions {
			spec, err := decode[protocol.RuntimeSpec](&versions[i])
			if err != nil {
				return err
			}
			k.bind(spec)
			if i == len(versions)-1 {
				k.latest = append(k.latest, *spec)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation == generation {
		if len(r.known) >= maxRuntimeWorkspaces {
			clear(r.known)
		}
		r.known[workspace] = k
	}
	return k, nil
}

// bind adds the secrets that a version names.
func (k *shown) bind(spec *protocol.RuntimeSpec) {
	for b := range spec.SecretBindings() {
		k.bound[b] = true
		if b.ForCluster() && k.clusters[b.Name] == "" {
			k.clusters[b.Name] = spec.ID + "@" + spec.Version
		}
	}
}
