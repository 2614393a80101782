package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Slots that an instance of a command template can pin.
const (
	slotImage = "image"
	slotModel = "model"
)

var slots = []string{slotImage, slotModel}

// resolveInstance lays an instance over its template.
func (r *Registry) resolveInstance(ctx context.Context, workspace string, in *protocol.HarnessInstance) (*protocol.HarnessSpec, error) {
	d, err := r.find(ctx, templates, workspace, in.Template.ID, in.Template.Version)
	if err != nil {
		return nil, r.unknown(err, "harness template", in.Template.ID, in.Template.Version)
	}
	template, err := decode[protocol.HarnessTemplate](d)
	if err != nil {
		return nil, err
	}
	return lay(*template, in)
}

// lay resolves an instance of template. template is a copy, but its maps are
// not changed either.
func lay(template protocol.HarnessTemplate, in *protocol.HarnessInstance) (*protocol.HarnessSpec, error) {
	spec := template
	spec.ID, spec.Version, spec.Category = in.ID, in.Version, ""
	if in.Description != "" {
		spec.Description = in.Description
	}
	if spec.Kind != protocol.HarnessCommand && len(in.Pins) > 0 {
		return nil, protocol.BadRequest("pins: a template of kind %s has no slots to pin", spec.Kind)
	}
	if err := checkSlots(in.Pins); err != nil {
		return nil, err
	}
	if image, ok := in.Pins[slotImage]; ok {
		spec.Image = image
	}
	if model, ok := in.Pins[slotModel]; ok {
		spec.Model = &protocol.ModelBinding{Name: model}
	}
	if o := in.Overrides; o != nil {
		spec.Env = merge(spec.Env, o.Env)
		if len(o.UnsetEnv) > 0 {
			spec.Env = merge(map[string]protocol.EnvValue{}, spec.Env)
			for _, name := range o.UnsetEnv {
				delete(spec.Env, name)
			}
		}
		spec.Params = merge(spec.Params, o.Params)
		if o.Resources != nil {
			spec.Resources = o.Resources
		}
	}
	if spec.Kind == protocol.HarnessProcess && spec.Adapter == "" {
		// The built-in adapter is chosen by the id, which was the template's.
		spec.Adapter = template.ID
	}
	if err := checkSpec(&spec); err != nil {
		return nil, err
	}
	return &spec, nil
}

func checkSlots(pins map[string]string) error {
	for slot, value := range pins {
		if !slices.Contains(slots, slot) {
			return protocol.BadRequest("pins: unknown slot %q: a command template has %s", protocol.Clip(slot, 40), strings.Join(slots, " and "))
		}
		if strings.TrimSpace(value) == "" {
			return protocol.BadRequest("pins.%s is empty", slot)
		}
	}
	return nil
}

// checkSpec checks what protocol cannot know: which adapters exist.
func checkSpec(spec *protocol.HarnessSpec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if spec.Kind != protocol.HarnessProcess {
		return nil
	}
	if !slices.Contains(protocol.Adapters(), spec.AdapterName()) {
		return protocol.BadRequest("harness.adapter: no built-in adapter %q: want one of %s", protocol.Clip(spec.AdapterName(), 40), strings.Join(protocol.Adapters(), ", ")).
			WithHint("a program of your own is a harness of kind %q", protocol.HarnessCommand)
	}
	return nil
}

// RegisterTemplate adds a version of a template; the same content again is a
// success, another content a 409.
func (r *Registry) RegisterTemplate(ctx context.Context, workspace, by string, t protocol.HarnessTemplate) (protocol.Registered, error) {
	if err := checkTemplate(&t); err != nil {
		return protocol.Registered{}, err
	}
	body, err := json.Marshal(t)
	if err != nil {
		return protocol.Registered{}, fmt.Errorf("registry: encode template %s: %w", t.ID, err)
	}
	return r.put(ctx, "harness template", store.Definition{
		DefinitionKey: store.DefinitionKey{Collection: templates, Workspace: workspace, ID: t.ID, Version: t.Version},
		Form:          formSpec, Body: body, CreatedBy: by,
	})
}

func checkTemplate(t *protocol.HarnessTemplate) error {
	if !protocol.ValidName(t.Category, protocol.MaxNameBytes) {
		return protocol.BadRequest("category: want 1 to %d printable characters: it groups templates in lists", protocol.MaxNameBytes)
	}
	return checkSpec(t)
}

// ValidateTemplate says what RegisterTemplate would refuse.
func (r *Registry) ValidateTemplate(ctx context.Context, workspace string, t protocol.HarnessTemplate) (protocol.Validation, error) {
	return r.validation(ctx, templates, workspace, t.ID, t.Version, t.Kind, checkTemplate(&t))
}

// Templates lists the templates of a workspace by id.
func (r *Registry) Templates(ctx context.Context, workspace string) ([]protocol.TemplateEntry, error) {
	entries := []protocol.TemplateEntry{}
	err := r.each(ctx, templates, workspace, func(id string, versions []store.Definition) error {
		latest := versions[len(versions)-1]
		t, err := decode[protocol.HarnessTemplate](&latest)
		if err != nil {
			return err
		}
		entries = append(entries, protocol.TemplateEntry{
			ID: id, Versions: names(versions), Owner: workspace, LatestVersion: latest.Version, Kind: t.Kind, Category: t.Category,
		})
		return nil
	})
	return entries, err
}

// TemplateVersions lists the versions of a template.
func (r *Registry) TemplateVersions(ctx context.Context, workspace, id string) (protocol.Versions, error) {
	return r.listVersions(ctx, templates, "harness template", workspace, id)
}

// Template is one version of a template, which may be asked for as latest.
func (r *Registry) Template(ctx context.Context, workspace, id, version string) (*protocol.HarnessTemplate, error) {
	d, err := r.find(ctx, templates, workspace, id, version)
	if err != nil {
		return nil, r.unknown(err, "harness template", id, version)
	}
	return decode[protocol.HarnessTemplate](d)
}
