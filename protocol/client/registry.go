package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/everdict/everdict/protocol"
)

// Harnesses lists the harnesses that were registered and that a run can name.
func (c *Client) Harnesses(ctx context.Context) ([]protocol.HarnessEntry, error) {
	return value[[]protocol.HarnessEntry](ctx, c, get("harnesses"))
}

// HarnessVersions lists the versions of one harness, lowest first.
func (c *Client) HarnessVersions(ctx context.Context, id string) (*protocol.Versions, error) {
	return one[protocol.Versions](ctx, c, get("harnesses", id))
}

// Harness reads a resolved spec; version may be protocol.Latest.
func (c *Client) Harness(ctx context.Context, id, version string) (*protocol.HarnessSpec, error) {
	return one[protocol.HarnessSpec](ctx, c, get("harnesses", id, version))
}

// HarnessInstance reads the template, pins and overrides behind a version.
func (c *Client) HarnessInstance(ctx context.Context, id, version string) (*protocol.HarnessInstance, error) {
	return one[protocol.HarnessInstance](ctx, c, get("harnesses", id, version, "instance"))
}

// HarnessDiff compares two versions of a harness.
func (c *Client) HarnessDiff(ctx context.Context, id, base, candidate string) (*protocol.SpecDiff, error) {
	q := url.Values{"base": {base}, "candidate": {candidate}}
	return one[protocol.SpecDiff](ctx, c, get("harnesses", id, "diff").with(q))
}

// RegisterHarness stores a resolved spec or an instance (JSON), which never
// changes afterwards. The same content again is no error; another one under the
// same version is a conflict.
func (c *Client) RegisterHarness(ctx context.Context, spec json.RawMessage) (*protocol.Registered, error) {
	return sendJSON[protocol.Registered](ctx, c, post("harnesses"), spec)
}

// ValidateHarness checks a spec without storing it.
func (c *Client) ValidateHarness(ctx context.Context, spec json.RawMessage) (*protocol.Validation, error) {
	return sendJSON[protocol.Validation](ctx, c, post("harnesses", "validate"), spec)
}

// PinHarness registers a version with other pins.
func (c *Client) PinHarness(ctx context.Context, id string, req *protocol.PinsRequest) (*protocol.Pinned, error) {
	return send[protocol.Pinned](ctx, c, post("harnesses", id, "pins"), req)
}

// TagHarness replaces the tags of a version.
func (c *Client) TagHarness(ctx context.Context, id, version string, tags []string) (*protocol.Tagged, error) {
	r := request{method: http.MethodPut, path: []string{"harnesses", id, "versions", version, "tags"}}
	return send[protocol.Tagged](ctx, c, r, protocol.Tags{Tags: tags})
}

// DeleteHarness hides one version; runs that used it keep their record.
func (c *Client) DeleteHarness(ctx context.Context, id, version string) (*protocol.Deleted, error) {
	return one[protocol.Deleted](ctx, c, del("harnesses", id, "versions", version))
}

// Templates lists the harness templates.
func (c *Client) Templates(ctx context.Context) ([]protocol.TemplateEntry, error) {
	return value[[]protocol.TemplateEntry](ctx, c, get("harness-templates"))
}

// TemplateVersions lists the versions of one template, lowest first.
func (c *Client) TemplateVersions(ctx context.Context, id string) (*protocol.Versions, error) {
	return one[protocol.Versions](ctx, c, get("harness-templates", id))
}

// Template reads one version of a template.
func (c *Client) Template(ctx context.Context, id, version string) (*protocol.HarnessTemplate, error) {
	return one[protocol.HarnessTemplate](ctx, c, get("harness-templates", id, version))
}

// RegisterTemplate stores a template (JSON), which never changes afterwards.
func (c *Client) RegisterTemplate(ctx context.Context, spec json.RawMessage) (*protocol.Registered, error) {
	return sendJSON[protocol.Registered](ctx, c, post("harness-templates"), spec)
}

// ValidateTemplate checks a template without storing it.
func (c *Client) ValidateTemplate(ctx context.Context, spec json.RawMessage) (*protocol.Validation, error) {
	return sendJSON[protocol.Validation](ctx, c, post("harness-templates", "validate"), spec)
}
