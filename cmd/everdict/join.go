package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// poolMember is a runner of a pool: a machine that got its identity from the
// coordinator for a pool token. The identity is kept below the state directory, so
// that what lies in the outbox is delivered as its own after a restart.
type poolMember struct {
	o    cli.RunnerOptions
	pool link.Secret
	kept string
	// file is where the pool token is, if it is in a file, which no job may see.
	file string
}

func newPoolMember(o cli.RunnerOptions) (*poolMember, error) {
	pool, err := agent.ReadCredential(o.PoolToken, o.Stdin)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(pool), protocol.PoolTokenPrefix) {
		return nil, fmt.Errorf("this is no pool token, which begins with %s: a pairing token goes with --pair", protocol.PoolTokenPrefix)
	}
	sum := sha256.Sum256([]byte(pool))
	m := &poolMember{o: o, pool: pool, kept: filepath.Join(o.StateDir, "member-"+hex.EncodeToString(sum[:8]))}
	m.file = tokenFile(o.PoolToken)
	return m, nil
}

// run works as a member of the pool. An identity that the coordinator does not know
// any more, since it was away for too long, is replaced by a new one.
func (m *poolMember) run(ctx context.Context) error {
	announce(ctx, m.o, m.file)
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
		err = work(ctx, m.o, token, nil, func() { connected = true }, m.file)
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

// join gets an identity and keeps it.
func (m *poolMember) join(ctx context.Context) (link.Secret, error) {
	joined, err := member.Join(ctx, member.Config{URL: m.o.APIURL, CAFile: m.o.CAFile, Token: m.pool, Version: version, Log: m.o.Log})
	if err != nil {
		return "", err
	}
	token := link.Secret(joined.Token)
	return token, agent.StoreCredential(m.kept, token)
}
