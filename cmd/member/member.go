// Package member is how a machine becomes a runner of a runtime's pool: it joins with a
// token and gets an identity of its own. It also has the codes with which every runner
// program exits, so that whatever starts it again knows whether to.
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// Exit codes of a runner.
const (
	ExitFailed   = 2 // any other error
	ExitGaveBack = 3 // the drain timeout passed: unfinished runs were given back
	ExitRevoked  = 4 // revoked, expired, used, or never paired here
	ExitTakeOver = 5 // another process uses the credential
	ExitUpdate   = 6 // too old for the coordinator
)

// ExitCode is the code for how a runner ended.
func ExitCode(err error) int {
	var (
		drained *agent.DrainedError
		revoked *link.RevokedError
		taken   *link.TakenOverError
		update  *link.UpdateRequiredError
		locked  *agent.LockedError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &drained):
		return ExitGaveBack
	case errors.As(err, &revoked):
		return ExitRevoked
	case errors.As(err, &taken), errors.As(err, &locked):
		return ExitTakeOver
	case errors.As(err, &update):
		return ExitUpdate
	}
	return ExitFailed
}

// Config of a Join. All but CAFile and Log are required.
type Config struct {
	URL    string
	CAFile string
	// Token of a pool, or of one launched unit.
	Token   link.Secret
	Version string
	Log     *slog.Logger
}

// joinPause bounds the wait between two tries to join.
const joinPause = 30 * time.Second

// Join gets an identity, trying until ctx ends for as long as the coordinator does not
// answer: a machine may be up before it. A *link.RevokedError says that the token is
// good for nothing, any other error that no repetition can help.
func Join(ctx context.Context, cfg Config) (*protocol.Joined, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c, err := client.New(client.Config{BaseURL: cfg.URL, Token: string(cfg.Token), CAFile: cfg.CAFile, UserAgent: "everdict-runner/" + cfg.Version, Retries: -1})
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	req := &protocol.JoinRequest{Label: host, OS: runtime.GOOS}
	if req.Validate() != nil {
		req.Label = "" // a name that cannot be shown
	}
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, joinPause) {
		joined, err := c.Join(ctx, req)
		if err == nil {
			cfg.Log.Info("joined the pool", "runtime", joined.Runner.Runtime, "runner", joined.Runner.ID)
			return joined, nil
		}
		if final := refusal(err); final != nil {
			return nil, final
		}
		pause := time.Duration(rand.Int64N(int64(wait))) + wait/2
		cfg.Log.Warn("could not join the pool, trying again", "url", cfg.URL, "err", err, "in", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// refusal is the coordinator's word that no repetition can change; nil for
// everything else, a proxy's word included.
func refusal(err error) error {
	var p *protocol.Problem
	if !errors.As(err, &p) {
		return nil
	}
	_, word := p.Data["reason"]
	switch {
	case p.Status == http.StatusUnauthorized && word:
		return &link.RevokedError{Code: fmt.Sprint(p.Data["reason"]), Message: p.Message}
	case p.Status == http.StatusBadRequest || p.Status == http.StatusForbidden && p.Data["action"] != nil:
		return err
	}
	return nil
}
