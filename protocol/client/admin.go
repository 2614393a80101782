package client

import (
	"context"
	"encoding/json"
	"net/http"

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
	return send[protocol.Paired](ctx, c, r, req)
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

// OwnedRunners lists the runners that belong to the workspace itself.
func (c *Client) OwnedRunners(ctx context.Context) ([]protocol.Runner, error) {
	out, err := value[protocol.Runners](ctx, c, get("workspace", "runners", "owned"))
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

// Keys lists the caller's API keys by prefix, never by value; for an admin those of the
// workspace.
func (c *Client) Keys(ctx context.Context) ([]protocol.Key, error) {
	return value[[]protocol.Key](ctx, c, get("keys"))
}

// CreateKey makes an API key, which is shown this once.
func (c *Client) CreateKey(ctx context.Context, req *protocol.KeyRequest) (*protocol.IssuedKey, error) {
	return send[protocol.IssuedKey](ctx, c, post("keys"), req)
}

// CreateTenantKey makes an admin's API key of a workspace, which is shown this once, for
// whoever has the coordinator's internal token.
func (c *Client) CreateTenantKey(ctx context.Context, token string, req *protocol.TenantKeyRequest) (*protocol.TenantKey, error) {
	r := post("internal", "tenant-keys")
	r.header = http.Header{protocol.InternalTokenHeader: {token}}
	return send[protocol.TenantKey](ctx, c, r, req)
}

// RevokeKey makes a key useless. It is no error to revoke what is not there.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, del("keys", id), nil)
}
