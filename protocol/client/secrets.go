package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/everdict/everdict/protocol"
)

// Secrets lists the caller's own secrets and, for an admin, the workspace's: never a
// value.
func (c *Client) Secrets(ctx context.Context) ([]protocol.Secret, error) {
	return value[[]protocol.Secret](ctx, c, get("secrets"))
}

// SecretUsage lists secrets with what refers to each.
func (c *Client) SecretUsage(ctx context.Context) ([]protocol.SecretUsage, error) {
	return value[[]protocol.SecretUsage](ctx, c, get("secrets", "usage"))
}

// SetSecret adds a secret, or replaces its value.
func (c *Client) SetSecret(ctx context.Context, name string, req protocol.SecretRequest) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return c.call(ctx, request{method: http.MethodPut, path: []string{"secrets", name}, body: body}, nil)
}

// DeleteSecret deletes a secret of the workspace or, with the scope
// protocol.SecretUser, one of the caller's own. It is no error to delete what is not
// there.
func (c *Client) DeleteSecret(ctx context.Context, name, scope string) error {
	return c.call(ctx, del("secrets", name).with(url.Values{"scope": {scope}}), nil)
}
