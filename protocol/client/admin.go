package client

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/everdict/everdict/protocol"
)

// Healthy reports nil when the coordinator's process answers.
func (c *Client) Healthy(ctx context.Context) error { return c.call(ctx, get("healthz"), nil) }

// Ready reports nil when the coordinator takes work.
func (c *Client) Ready(ctx context.Context) error { return c.call(ctx, get("readyz"), nil) }

// Me says as whom the server sees the caller.
func (c *Client) Me(ctx context.Context) (*protocol.Me, error) {
	return one[protocol.Me](ctx, c, get("me"))
}

// OpenAPI reads the description of the API that the server serves.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return value[json.RawMessage](ctx, c, get("openapi.json"))
}

// Pair registers a machine and returns its token, which is shown this once.
func (c *Client) Pair(ctx context.Context, req *protocol.PairRequest) (*protocol.Paired, error) {
	return c.pair(ctx, post("runners"), req)
}

// PairForWorkspace registers a machine that everybody of the workspace may use.
func (c *Client) PairForWorkspace(ctx context.Context, req *protocol.PairRequest) (*protocol.Paired, error) {
	return c.pair(ctx, post("workspace", "runners"), req)
}

func (c *Client) pair(ctx context.Context, r request, req *protocol.PairRequest) (*protocol.Paired, error) {
	r, err := r.json(req)
	if err != nil {
		return nil, err
	}
	return one[protocol.Paired](ctx, c, r)
}

// Runners lists the caller's own runners, newest first.
func (c *Client) Runners(ctx context.Context) ([]protocol.Runner, error) {
	out, err := value[protocol.Runners](ctx, c, get("runners"))
	return out.Runners, err
}

// WorkspaceRunners lists every runner of the workspace, newest first.
func (c *Client) WorkspaceRunners(ctx context.Context) ([]protocol.Runner, error) {
	out, err := value[protocol.Runners](ctx, c, get("workspace", "runners"))
	return out.Runners, err
}

// RevokeRunner ends a runner's pairing: its session closes and its job stops. It
// is no error to revoke what is not there.
func (c *Client) RevokeRunner(ctx context.Context, id string) error {
	return c.call(ctx, del("runners", id), nil)
}

// RevokeWorkspaceRunner is RevokeRunner for a runner of the workspace.
func (c *Client) RevokeWorkspaceRunner(ctx context.Context, id string) error {
	return c.call(ctx, del("workspace", "runners", id), nil)
}

// Registered names one version of a harness or template.
type Registered struct {
	Workspace string `json:"workspace"`
	ID        string `json:"id"`
	Version   string `json:"version"`
	// Deleted is set in the answer of a deletion.
	Deleted bool `json:"deleted,omitempty"`
}

// Validation is what the server thinks of a spec without registering it.
type Validation struct {
	OK               bool     `json:"ok"`
	Kind             string   `json:"kind,omitempty"`
	ID               string   `json:"id,omitempty"`
	Version          string   `json:"version,omitempty"`
	Errors           []string `json:"errors,omitempty"`
	ExistingVersions []string `json:"existingVersions,omitempty"`
	VersionExists    bool     `json:"versionExists,omitempty"`
}

// HarnessEntry is a harness or a template as it is listed.
type HarnessEntry struct {
	ID            string   `json:"id"`
	Owner         string   `json:"owner,omitempty"`
	Versions      []string `json:"versions"`
	LatestVersion string   `json:"latestVersion,omitempty"`
	Kind          string   `json:"kind,omitempty"`
	Category      string   `json:"category,omitempty"`
	// TemplateID and TemplateVersion are set on instances.
	TemplateID      string         `json:"templateId,omitempty"`
	TemplateVersion string         `json:"templateVersion,omitempty"`
	CreatedBy       string         `json:"createdBy,omitempty"`
	CreatedAt       *protocol.Time `json:"createdAt,omitempty"`
	UpdatedAt       *protocol.Time `json:"updatedAt,omitempty"`
}

// Harnesses lists the harnesses that a run can name.
func (c *Client) Harnesses(ctx context.Context) ([]HarnessEntry, error) {
	return value[[]HarnessEntry](ctx, c, get("harnesses"))
}

// HarnessVersions lists the versions of one harness, oldest first.
func (c *Client) HarnessVersions(ctx context.Context, id string) ([]string, error) {
	out, err := value[HarnessEntry](ctx, c, get("harnesses", id))
	return out.Versions, err
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
func (c *Client) HarnessDiff(ctx context.Context, id, base, candidate string) (json.RawMessage, error) {
	q := url.Values{"base": {base}, "candidate": {candidate}}
	return value[json.RawMessage](ctx, c, get("harnesses", id, "diff").with(q))
}

// RegisterHarness stores a resolved spec or an instance (JSON), which never
// changes afterwards. The same content again is no error; another one under the
// same version is a conflict.
func (c *Client) RegisterHarness(ctx context.Context, spec json.RawMessage) (*Registered, error) {
	return c.register(ctx, post("harnesses"), spec)
}

// ValidateHarness checks a spec without storing it.
func (c *Client) ValidateHarness(ctx context.Context, spec json.RawMessage) (*Validation, error) {
	return c.validate(ctx, post("harnesses", "validate"), spec)
}

// DeleteHarness hides one version; runs that used it keep their record.
func (c *Client) DeleteHarness(ctx context.Context, id, version string) (*Registered, error) {
	return one[Registered](ctx, c, del("harnesses", id, "versions", version))
}

// Templates lists the harness templates.
func (c *Client) Templates(ctx context.Context) ([]HarnessEntry, error) {
	return value[[]HarnessEntry](ctx, c, get("harness-templates"))
}

// TemplateVersions lists the versions of one template, oldest first.
func (c *Client) TemplateVersions(ctx context.Context, id string) ([]string, error) {
	out, err := value[HarnessEntry](ctx, c, get("harness-templates", id))
	return out.Versions, err
}

// Template reads one version of a template.
func (c *Client) Template(ctx context.Context, id, version string) (*protocol.HarnessTemplate, error) {
	return one[protocol.HarnessTemplate](ctx, c, get("harness-templates", id, version))
}

// RegisterTemplate stores a template (JSON), which never changes afterwards.
func (c *Client) RegisterTemplate(ctx context.Context, spec json.RawMessage) (*Registered, error) {
	return c.register(ctx, post("harness-templates"), spec)
}

// ValidateTemplate checks a template without storing it.
func (c *Client) ValidateTemplate(ctx context.Context, spec json.RawMessage) (*Validation, error) {
	return c.validate(ctx, post("harness-templates", "validate"), spec)
}

func (c *Client) register(ctx context.Context, r request, spec json.RawMessage) (*Registered, error) {
	r.body = spec
	return one[Registered](ctx, c, r)
}

func (c *Client) validate(ctx context.Context, r request, spec json.RawMessage) (*Validation, error) {
	r.body = spec
	return one[Validation](ctx, c, r)
}

// Keys lists the caller's API keys by prefix, never by value.
func (c *Client) Keys(ctx context.Context) ([]protocol.Key, error) {
	return value[[]protocol.Key](ctx, c, get("keys"))
}

// CreateKey makes an API key, which is shown this once.
func (c *Client) CreateKey(ctx context.Context, req *protocol.KeyRequest) (*protocol.IssuedKey, error) {
	r, err := post("keys").json(req)
	if err != nil {
		return nil, err
	}
	return one[protocol.IssuedKey](ctx, c, r)
}

// RevokeKey makes a key useless. It is no error to revoke what is not there.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, del("keys", id), nil)
}
