package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Submission is what POST /harnesses takes: an instance of a template, or a
// resolved spec. It is an instance if it has a template.
type Submission struct {
	Instance *protocol.HarnessInstance
	Spec     *protocol.HarnessSpec
}

// UnmarshalJSON reads either form.
func (s *Submission) UnmarshalJSON(b []byte) error {
	var probe struct {
		Template json.RawMessage `json:"template"`
	}
	if err := json.Unmarshal(b, &probe); err != nil {
		return err
	}
	*s = Submission{}
	if len(probe.Template) > 0 && string(probe.Template) != "null" {
		return json.Unmarshal(b, &s.Instance)
	}
	return json.Unmarshal(b, &s.Spec)
}

// MarshalJSON writes the form that is set.
func (s Submission) MarshalJSON() ([]byte, error) {
	if s.Instance != nil {
		return json.Marshal(s.Instance)
	}
	return json.Marshal(s.Spec)
}

func (s *Submission) name() (id, version string) {
	switch {
	case s.Instance != nil:
		return s.Instance.ID, s.Instance.Version
	case s.Spec != nil:
		return s.Spec.ID, s.Spec.Version
	default:
		return "", ""
	}
}

// definition checks a submission and makes it ready to be kept. The spec is what
// it resolves to.
func (r *Registry) definition(ctx context.Context, workspace string, s Submission) (store.Definition, *protocol.HarnessSpec, error) {
	id, version := s.name()
	if id == protocol.AdapterScripted {
		// Others may stand for versions of their program; this one has no program.
		return store.Definition{}, nil, protocol.Conflict("%q is the agent that every runner has and cannot be registered", id).
			WithHint("choose another id, with adapter %q to run it with params of its own", id)
	}
	d := store.Definition{DefinitionKey: store.DefinitionKey{Collection: harnesses, Workspace: workspace, ID: id, Version: version}}
	var spec *protocol.HarnessSpec
	var body any
	switch {
	case s.Instance != nil:
		in := *s.Instance
		if in.Template.Version == "" {
			in.Template.Version = protocol.Latest
		}
		if in.Template.Version == protocol.Latest {
			// A version never changes, so it cannot follow its template.
			t, err := r.find(ctx, templates, workspace, in.Template.ID, protocol.Latest)
			if err != nil {
				return d, nil, r.unknown(err, "harness template", in.Template.ID, protocol.Latest)
			}
			in.Template.Version = t.Version
		}
		var err error
		if spec, err = r.resolveInstance(ctx, workspace, &in); err != nil {
			return d, nil, err
		}
		d.Form, body = formInstance, in
	case s.Spec != nil:
		own := *s.Spec
		own.Category = ""
		spec = &own
		if err := checkSpec(spec); err != nil {
			return d, nil, err
		}
		d.Form, body = formSpec, own
	default:
		return d, nil, protocol.BadRequest("the body is neither an instance of a template nor a harness spec")
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return d, nil, fmt.Errorf("registry: encode harness %s: %w", id, err)
	}
	d.Body = encoded
	return d, spec, nil
}

// Register adds a version of a harness; the same content again is a success,
// another content a 409, an unknown template a 404.
func (r *Registry) Register(ctx context.Context, workspace, by string, s Submission) (protocol.Registered, error) {
	d, spec, err := r.definition(ctx, workspace, s)
	if err != nil {
		return protocol.Registered{}, err
	}
	d.CreatedBy = by
	registered, err := r.put(ctx, "harness", d)
	registered.Private = err == nil && isPrivate(spec)
	return registered, err
}

// Validate says what Register would refuse.
func (r *Registry) Validate(ctx context.Context, workspace string, s Submission) (protocol.Validation, error) {
	id, version := s.name()
	_, spec, err := r.definition(ctx, workspace, s)
	kind := ""
	if spec != nil {
		kind = spec.Kind
	}
	return r.validation(ctx, harnesses, workspace, id, version, kind, err)
}

// Harnesses lists the harnesses of a workspace by id.
func (r *Registry) Harnesses(ctx context.Context, workspace string) ([]protocol.HarnessEntry, error) {
	entries := []protocol.HarnessEntry{}
	err := r.each(ctx, harnesses, workspace, func(id string, versions []store.Definition) error {
		latest := versions[len(versions)-1]
		first, newest := versions[0], versions[0]
		for _, d := range versions {
			if d.CreatedAt.Before(first.CreatedAt.Time) {
				first = d
			}
			if d.CreatedAt.After(newest.CreatedAt.Time) {
				newest = d
			}
		}
		e := protocol.HarnessEntry{
			ID: id, Owner: workspace, Versions: names(versions), LatestVersion: latest.Version, VersionCount: len(versions),
			CreatedBy: first.CreatedBy, LatestCreatedBy: latest.CreatedBy, CreatedAt: first.CreatedAt, UpdatedAt: newest.CreatedAt,
			VersionTags: tags(versions),
		}
		if latest.Form == formInstance {
			in, err := decode[protocol.HarnessInstance](&latest)
			if err != nil {
				return err
			}
			e.TemplateID, e.TemplateVersion = in.Template.ID, in.Template.Version
			if t, err := r.Template(ctx, workspace, in.Template.ID, in.Template.Version); err == nil {
				e.Kind, e.Category = t.Kind, t.Category
			}
		} else {
			spec, err := decode[protocol.HarnessSpec](&latest)
			if err != nil {
				return err
			}
			e.Kind = spec.Kind
		}
		var err error
		if e.Private, err = r.private(ctx, &latest); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// Versions lists the versions of a harness; of a built-in one that nobody has registered
// the one that every runner has.
func (r *Registry) Versions(ctx context.Context, workspace, id string) (protocol.Versions, error) {
	versions, err := r.listVersions(ctx, harnesses, "harness", workspace, id)
	var p *protocol.Problem
	if spec := builtin(protocol.HarnessRef{ID: id, Version: protocol.Latest}); spec != nil && errors.As(err, &p) && p.Code == protocol.CodeNotFound {
		return protocol.Versions{ID: id, Versions: []string{spec.Version}}, nil
	}
	return versions, err
}

// Instance is the instance that a version was registered as; a version that was
// registered as a spec has none (404).
func (r *Registry) Instance(ctx context.Context, workspace, id, version string) (*protocol.HarnessInstance, error) {
	d, err := r.find(ctx, harnesses, workspace, id, version)
	if err != nil {
		return nil, r.unknown(err, "harness", id, version)
	}
	if d.Form != formInstance {
		return nil, protocol.NotFound("harness %s@%s was registered as a spec, not as an instance of a template", d.ID, d.Version).
			WithHint("GET /harnesses/%s/%s is the spec", d.ID, d.Version)
	}
	return decode[protocol.HarnessInstance](d)
}

// Pin registers a version whose pins are those of a base with some replaced.
func (r *Registry) Pin(ctx context.Context, workspace, by, id string, req protocol.PinsRequest) (protocol.Pinned, error) {
	if req.Base == "" {
		req.Base = protocol.Latest
	}
	if len(req.Pins) == 0 {
		return protocol.Pinned{}, protocol.BadRequest("pins: is empty: give at least one slot with its value")
	}
	base, err := r.Instance(ctx, workspace, id, req.Base)
	if err != nil {
		return protocol.Pinned{}, err
	}
	if err := checkSlots(req.Pins); err != nil {
		return protocol.Pinned{}, err
	}
	if image, ok := req.Pins[slotImage]; ok && !req.AllowTags && !strings.Contains(image, "@sha256:") {
		return protocol.Pinned{}, protocol.BadRequest("pins.image: %q has no digest, so that what runs could change", protocol.Clip(image, 80)).
			WithHint("pin name@sha256:..., or set allowTags")
	}
	pins := merge(base.Pins, req.Pins)
	answer := protocol.Pinned{Workspace: workspace, ID: id, Version: base.Version, Base: base.Version, Unchanged: true, Pins: pins}
	if maps.Equal(pins, base.Pins) {
		return answer, nil
	}
	next := *base
	next.Version, next.Pins = req.Version, pins
	registered, err := r.Register(ctx, workspace, by, Submission{Instance: &next})
	if err != nil {
		return protocol.Pinned{}, err
	}
	answer.Version, answer.Unchanged = registered.Version, false
	return answer, nil
}

// CreatedBy says who registered a version.
func (r *Registry) CreatedBy(ctx context.Context, workspace, id, version string) (string, error) {
	d, err := r.find(ctx, harnesses, workspace, id, version)
	if err != nil {
		return "", r.unknown(err, "harness", id, version)
	}
	return d.CreatedBy, nil
}

// Delete makes a version invisible; runs that used it keep what they resolved.
func (r *Registry) Delete(ctx context.Context, workspace, id, version string) (protocol.Deleted, error) {
	d, err := r.find(ctx, harnesses, workspace, id, version)
	if err == nil {
		err = r.store.DeleteDefinition(ctx, d.DefinitionKey, protocol.At(r.now()))
	}
	if err != nil {
		return protocol.Deleted{}, r.unknown(err, "harness", id, version)
	}
	r.forget()
	return protocol.Deleted{Workspace: workspace, ID: id, Version: d.Version, Deleted: true}, nil
}

// SetTags replaces the tags of a version.
func (r *Registry) SetTags(ctx context.Context, workspace, id, version string, t protocol.Tags) (protocol.Tagged, error) {
	return r.tag(ctx, harnesses, "harness", workspace, id, version, t)
}
