package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// member is a runner of a pool: a machine that got its identity from the
// coordinator for a pool token. The identity is kept below the state directory, so
// that what lies in the outbox is delivered as its own after a restart.
type member struct {
	o    cli.RunnerOptions
	pool link.Secret
	kept string
	// file is where the pool token is, if it is in a file, which no job may see.
	file string
}

func newMember(o cli.RunnerOptions) (*member, error) {
	pool, err := agent.ReadCredential(o.PoolToken, o.Stdin)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(pool), protocol.PoolTokenPrefix) {
		return nil, fmt.Errorf("this is no pool token, which begins with %s: a pairing token goes with --pair", protocol.PoolTokenPrefix)
	}
	sum := sha256.Sum256([]byte(pool))
	m := &member{o: o, pool: pool, kept: filepath.Join(o.StateDir, "member-"+hex.EncodeToString(sum[:8]))}
	if path, ok := strings.CutPrefix(o.PoolToken, "file:"); ok {
		if m.file, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// run works as a member of the pool. An identity that the coordinator does not know
// any more, since it was away for too long, is replaced by a new one.
func (m *member) run(ctx context.Context) error {
	for {
		token, err := agent.ReadCredential("file:"+m.kept, nil)
		fresh := errors.Is(err, os.ErrNotExist)
		if fresh {
			token, err = m.join(ctx)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil // asked to end before there was anything to drain
			}
			return exitCode(turnedAway(err))
		}
		connected := false
		err = work(ctx, m.o, token, func() { connected = true }, m.file)
		var refused *link.RevokedError
		unknown := errors.As(err, &refused) && refused.Code == string(protocol.CodeUnauthenticated)
		if !unknown || fresh && !connected || ctx.Err() != nil {
			return exitCode(turnedAway(err))
		}
		m.o.Log.Info("the coordinator does not know this runner any more, joining anew")
		if err := os.Remove(m.kept); err != nil {
			return err
		}
	}
}

// turnedAway says of a refusal that it was a pool token's.
func turnedAway(err error) error {
	var refused *link.RevokedError
	if errors.As(err, &refused) {
		return &cli.PoolTokenError{Err: err}
	}
	return err
}

// joinPause bounds the wait between two tries to join.
const joinPause = 30 * time.Second

// join gets an identity, trying for as long as the coordinator does not answer: a
// pool may be up before it.
func (m *member) join(ctx context.Context) (link.Secret, error) {
	c, err := client.New(client.Config{BaseURL: m.o.APIURL, Token: string(m.pool), CAFile: m.o.CAFile, UserAgent: "everdict-runner/" + version, Retries: -1})
	if err != nil {
		return "", err
	}
	host, _ := os.Hostname()
	req := &protocol.JoinRequest{Label: host, OS: runtime.GOOS}
	if req.Validate() != nil {
		req.Label = "" // a name that cannot be shown
	}
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, joinPause) {
		joined, err := c.Join(ctx, req)
		if err == nil {
			token := link.Secret(joined.Token)
			m.o.Log.Info("joined the pool", "runtime", joined.Runner.Runtime, "runner", joined.Runner.ID)
			return token, agent.StoreCredential(m.kept, token)
		}
		if final := refusal(err); final != nil {
			return "", final
		}
		pause := time.Duration(rand.Int64N(int64(wait))) + wait/2
		m.o.Log.Warn("could not join the pool, trying again", "url", m.o.APIURL, "err", err, "in", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", ctx.Err()
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
