package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// TestRunServesNobodyElse: the coordinator of everdict run listens where every user of the
// machine can come, and answers only the command that it lives for.
func TestRunServesNobodyElse(t *testing.T) {
	t.Parallel()
	code, err := runLocal(t.Context(), cli.RunOptions{
		Request: &protocol.RunRequest{}, Log: slog.New(slog.DiscardHandler), Stderr: io.Discard,
		Sandbox: cli.SandboxOptions{RosterDir: t.TempDir()},
		Drive: func(ctx context.Context, c *client.Client) (int, error) {
			res, err := http.Get(c.BaseURL() + "/runs")
			if err != nil {
				return 0, err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("a stranger is answered %s", res.Status)
			}
			who, err := c.Me(ctx)
			if err != nil || who == nil {
				t.Errorf("its own command: %+v, %v", who, err)
			}
			return 7, nil
		},
	})
	if code != 7 || err != nil {
		t.Errorf("got %d, %v; want what Drive returned", code, err)
	}
}
