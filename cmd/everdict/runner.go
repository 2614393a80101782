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
	"sync"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// credentialFile is where a runner keeps its token or device key, below its state directory.
const credentialFile = "credential"

func runRunner(ctx context.Context, o cli.RunnerOptions) error {
	if o.PoolToken != "" {
		m, err := newPoolMember(o)
		if err != nil {
			return err
		}
		return m.run(ctx)
	}
	if o.Pair == cli.PairDevice {
		c, device, err := paired(ctx, o)
		if err != nil {
			return err
		}
		o.APIURL = address(o, device)
		return exitCode(work(ctx, o, c, device, func() {}, ""))
	}
	token, device, given, err := credential(o)
	if err != nil {
		return err
	}
	o.APIURL = address(o, device)
	kept := filepath.Join(o.StateDir, credentialFile)
	from := tokenFile(o.Pair)
	announce(ctx, o, from)
	// A token that was given replaces the one that is kept only when it has proved
	// good: a slip must not unpair the machine.
	keep := func() {}
	if given {
		keep = sync.OnceFunc(func() {
			if err := agent.StoreCredential(kept, token.(link.Secret)); err != nil {
				o.Log.Error("the token could not be kept: later starts need --pair again", "err", err)
				return
			}
			file, found := strings.CutPrefix(o.Pair, "file:")
			if found {
				o.Log.Info("the token is kept, later starts need no --pair: remove the file it came from", "file", file)
			}
		})
	}
	return exitCode(work(ctx, o, token, device, keep, from))
}

// work is a runner with its credential, which is that of device, or a token. connected is
// called each time that has proved good; hide is a file that no job may see, or empty.
func work(ctx context.Context, o cli.RunnerOptions, credential link.Credential, device *agent.Device, connected func(), hide string) error {
	if err := process.HideSelf(); err != nil {
		o.Log.Warn("other programs of this user can look into the runner", "err", err)
	}
	var hidden []string
	if hide != "" {
		hidden = []string{hide}
	}
	sandboxes := findLanes(ctx, o.Sandbox, o.StateDir, workDir(o.WorkDir, o.StateDir), o.MaxConcurrent, o.Capabilities)
	defer sandboxes.Close()
	// The coordinator keeps to the scope; a machine that knows its owner does not have to
	// believe it.
	only := ""
	if device != nil && o.Scope != protocol.RunnerScopeWorkspace {
		only = device.Account.Subject
	}
	r := agent.New(agent.Config{
		Scope: o.Scope, OnlyFor: only,
		URL: o.APIURL, Credential: credential, CAFile: o.CAFile, Connected: connected,
		Slots: o.MaxConcurrent, Capabilities: sandboxes.Capabilities, CapabilityEvidence: sandboxes.Evidence, Version: version,
		StateDir: o.StateDir, WorkDir: workDir(o.WorkDir, o.StateDir), Hide: hidden, Listed: lanes.Listed(o.Sandbox.RosterDir),
		Driver: sandboxes.Plain, Images: sandboxes.Images, Lookup: builtin.Lookup, Executable: executable(),
		WithholdProxy: !o.PassProxy, PassCA: o.PassCA,
		DrainTimeout: o.DrainTimeout, ExitWhenIdle: o.ExitWhenIdle, Log: o.Log,
	})
	return drive(ctx, r, o.Hurry)
}

// announce tells the other runners of this user what their jobs must not see; file may be empty.
func announce(ctx context.Context, o cli.RunnerOptions, file string) {
	var files []string
	if file != "" {
		files = []string{file}
	}
	if err := lanes.Enlist(ctx, o.Sandbox.RosterDir, []string{o.StateDir}, files...); err != nil && ctx.Err() == nil {
		o.Log.Warn("jobs of other runners of this user may read this runner's files", "err", err)
	}
}

// tokenFile is the file that a token is read from; empty when that is none.
func tokenFile(source string) string {
	path, ok := strings.CutPrefix(source, "file:")
	if !ok {
		return ""
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	return path
}

// credential reads the token from where it was given, or takes the kept one.
func credential(o cli.RunnerOptions) (c link.Credential, device *agent.Device, given bool, err error) {
	if o.Pair != "" {
		token, err := agent.ReadCredential(o.Pair, o.Stdin)
		switch {
		case err != nil:
		case strings.HasPrefix(string(token), protocol.PoolTokenPrefix):
			err = errors.New("this is a pool token: give it as --pool-token")
		case !strings.HasPrefix(string(token), protocol.RunnerTokenPrefix):
			// What lies in a wrong file is not sent anywhere.
			err = &cli.ExitError{Code: member.ExitRevoked, Err: cli.Advise(
				fmt.Errorf("what --pair was given is no runner token: these begin with %s", protocol.RunnerTokenPrefix),
				"everdict runners pair --token-file PATH writes one; an API key (ak_...) is for other commands")}
		}
		return token, nil, true, err
	}
	c, device, err = agent.LoadCredential(filepath.Join(o.StateDir, credentialFile))
	if errors.Is(err, os.ErrNotExist) {
		err = &cli.ExitError{Code: member.ExitRevoked,
			Err: cli.Advise(fmt.Errorf("this machine is not paired: there is no token in %s", o.StateDir),
				"everdict runner --pair pairs it; or everdict runners pair --token-file ./token, then everdict runner --pair file:./token")}
	}
	return c, device, false, err
}

// workDir is where workspaces are. It cannot lie in the state directory, which no
// job may see.
func workDir(chosen, stateDir string) string {
	abs, err := filepath.Abs(stateDir)
	if err != nil {
		abs = stateDir
	}
	if chosen != "" {
		if c, err := filepath.Abs(chosen); err == nil {
			return c
		}
		return chosen
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(base, "everdict", hex.EncodeToString(sum[:6]))
}

// executable is this program, for the PATH of jobs; empty when it is not known.
func executable() string {
	path, err := os.Executable()
	if err != nil || strings.HasSuffix(path, ".test") {
		return ""
	}
	return path
}

// drive runs r until ctx ends and it has drained, or the user hurries.
func drive(ctx context.Context, r *agent.Runner, hurry <-chan struct{}) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- r.Run(work) }()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			r.Drain()
			ctx = context.WithoutCancel(ctx)
		case <-hurry:
			stop()
			hurry = nil
		}
	}
}

func exitCode(err error) error {
	if code := member.ExitCode(err); code != 0 && code != member.ExitFailed {
		return &cli.ExitError{Code: code, Err: err}
	}
	return err
}
