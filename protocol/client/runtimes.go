package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/everdict/everdict/protocol"
)

// Runtimes lists the registered runtimes by id.
func (c *Client) Runtimes(ctx context.Context) ([]protocol.RuntimeEntry, error) {
	return value[[]protocol.RuntimeEntry](ctx, c, get("runtimes"))
}

// Runtime reads one version of a runtime; version may be protocol.Latest.
func (c *Client) Runtime(ctx context.Context, id, version string) (*protocol.RuntimeSpec, error) {
	return one[protocol.RuntimeSpec](ctx, c, get("runtimes", id, "versions", version))
}

// RegisterRuntime stores a spec (JSON), which never changes afterwards. The same
// content again is no error; another one under the same version is a conflict.
func (c *Client) RegisterRuntime(ctx context.Context, spec json.RawMessage) (*protocol.Registered, error) {
	return sendJSON[protocol.Registered](ctx, c, post("runtimes"), spec)
}

// ValidateRuntime checks a spec, or the {id, version} of a registered one, without
// storing anything.
func (c *Client) ValidateRuntime(ctx context.Context, query json.RawMessage) (*protocol.RuntimeValidation, error) {
	return sendJSON[protocol.RuntimeValidation](ctx, c, post("runtimes", "validate"), query)
}

// ProbeRuntime asks the cluster of a spec, or of the {id, version} of a registered
// one, whether it answers.
func (c *Client) ProbeRuntime(ctx context.Context, query json.RawMessage) (*protocol.Probe, error) {
	return sendJSON[protocol.Probe](ctx, c, post("runtimes", "probe"), query)
}

// InspectRuntime looks at the cluster of a runtime.
func (c *Client) InspectRuntime(ctx context.Context, id, version string) (*protocol.Inspection, error) {
	return one[protocol.Inspection](ctx, c, get("runtimes", id, "versions", version, "inspect"))
}

// TagRuntime replaces the tags of a version.
func (c *Client) TagRuntime(ctx context.Context, id, version string, tags []string) (*protocol.Tagged, error) {
	r := request{method: http.MethodPut, path: []string{"runtimes", id, "versions", version, "tags"}}
	return send[protocol.Tagged](ctx, c, r, protocol.Tags{Tags: tags})
}

// Pools lists the pools of the registered runtimes by id: limits, what runs, what
// waits, who is there.
func (c *Client) Pools(ctx context.Context) ([]protocol.Pool, error) {
	return value[[]protocol.Pool](ctx, c, get("pools"))
}

// PoolTokens lists the pool tokens that are not revoked by prefix, never by value.
func (c *Client) PoolTokens(ctx context.Context) ([]protocol.PoolToken, error) {
	return value[[]protocol.PoolToken](ctx, c, get("pools", "tokens"))
}

// CreatePoolToken makes a token with which machines join the pool of a runtime. It
// is shown this once.
func (c *Client) CreatePoolToken(ctx context.Context, req *protocol.PoolTokenRequest) (*protocol.IssuedPoolToken, error) {
	return send[protocol.IssuedPoolToken](ctx, c, post("pools", "tokens"), req)
}

// RevokePoolToken makes a pool token useless and ends every runner that joined with
// it. It is no error to revoke what is not there.
func (c *Client) RevokePoolToken(ctx context.Context, id string) error {
	return c.call(ctx, del("pools", "tokens", id), nil)
}

// Join gets an identity in the pool of the pool token that the client has as its
// Token.
func (c *Client) Join(ctx context.Context, req *protocol.JoinRequest) (*protocol.Joined, error) {
	return send[protocol.Joined](ctx, c, post("agent", "join"), req)
}
