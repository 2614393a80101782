package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// pairing is this machine on its way to become a runner by a code that somebody types
// in.
type pairing struct {
	o      cli.RunnerOptions
	client *client.Client
	key    ed25519.PrivateKey
}

// pairDevice makes this machine a runner: it shows a code and waits until somebody who is
// signed in has approved it. A coordinator that is restarted meanwhile has forgotten the
// code, and another one is shown.
func pairDevice(ctx context.Context, o cli.RunnerOptions) (agent.Device, error) {
	c, err := client.New(client.Config{BaseURL: o.APIURL, CAFile: o.CAFile, UserAgent: "everdict-runner/" + version, Retries: -1})
	if err != nil {
		return agent.Device{}, err
	}
	p := pairing{o: o, client: c, key: protocol.NewDeviceKey()}
	for {
		d, err := p.once(ctx)
		if !errors.Is(err, errForgotten) {
			return d, err
		}
		o.Log.Warn("the coordinator was restarted and has forgotten the code: here is another one")
	}
}

// errForgotten says that the coordinator knows nothing of a request that is not over.
var errForgotten = errors.New("the coordinator has forgotten the request")

// minLeft is how much of a request's life must be left for it to be forgotten rather
// than over: two clocks run at almost the same speed.
const minLeft = 10 * time.Second

func (p *pairing) once(ctx context.Context) (agent.Device, error) {
	verifier := protocol.NewVerifier()
	begun := time.Now()
	started, err := p.client.StartPairing(ctx, p.request(ctx, verifier))
	if err == nil {
		err = started.Check()
	}
	if err != nil {
		return agent.Device{}, pairingEnded(err)
	}
	until := begun.Add(time.Duration(started.ExpiresInSec) * time.Second)
	p.o.Pairing(cli.PairingProgress{Started: started, Until: until})
	redeem := &protocol.PairingRedeem{Verifier: verifier, Proof: protocol.SignPairing(p.key, started.ID, "")}
	for {
		pause := time.Duration(max(1, started.IntervalSec)) * time.Second
		paired, err := p.client.RedeemPairing(ctx, started.ID, redeem)
		var problem *protocol.Problem
		switch {
		case err == nil && paired.Status == protocol.PairingDone:
			if err := paired.Check(); err != nil {
				return agent.Device{}, pairingEnded(err)
			}
			return p.device(paired), nil
		case err == nil:
		case !errors.As(err, &problem), problem.Status >= http.StatusInternalServerError:
			if ctx.Err() == nil {
				p.o.Log.Warn("the coordinator does not answer, trying again", "err", err)
			}
		case problem.Status == http.StatusTooManyRequests:
			if wait, ok := problem.Data["retryAfterSec"].(float64); ok {
				pause = max(pause, time.Duration(min(wait, 60))*time.Second)
			}
		case problem.Data["reason"] == protocol.ReasonUsed:
			// It was approved, and the answer that said so was lost.
			if d := protocol.UsedBefore(problem); d != nil {
				return p.device(d), nil
			}
			return agent.Device{}, pairingEnded(err)
		case problem.Data["reason"] == protocol.ReasonExpired && time.Until(until) > minLeft:
			return agent.Device{}, errForgotten
		default:
			return agent.Device{}, pairingEnded(err)
		}
		if !time.Now().Before(until.Add(minLeft)) {
			return agent.Device{}, pairingEnded(errors.New("nobody has approved this machine in time"))
		}
		p.o.Pairing(cli.PairingProgress{Until: until})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return agent.Device{}, context.Cause(ctx)
		}
	}
}

func (p *pairing) request(ctx context.Context, verifier string) *protocol.PairingRequest {
	host, _ := os.Hostname()
	req := &protocol.PairingRequest{
		Label: host, Hostname: host, OS: runtime.GOOS, Arch: runtime.GOARCH, Version: version, Capabilities: p.o.Capabilities,
		PublicKey: protocol.PublicKey(p.key), Challenge: protocol.PairingChallenge(verifier),
	}
	if req.Capabilities == nil {
		req.Capabilities, _ = agent.DetectCapabilities(ctx, os.Environ())
	}
	if req.Validate() != nil {
		req.Label, req.Hostname = "runner", "" // a name that cannot be shown
	}
	return req
}

func (p *pairing) device(d *protocol.PairedDevice) agent.Device {
	return agent.Device{Coordinator: p.client.BaseURL(), Runner: d.Runner.ID, Account: *d.Account, Key: p.key}
}

// pairingEnded is an end of a pairing that no repetition changes, with the next step.
func pairingEnded(err error) error {
	advice := "everdict runner --pair begins again"
	var problem *protocol.Problem
	if errors.As(err, &problem) {
		err = errors.New(problem.Message)
		if problem.Data["reason"] != protocol.ReasonExpired && problem.Hint != "" {
			advice = problem.Hint
		}
	}
	return &cli.ExitError{Code: member.ExitRevoked, Err: cli.Advise(fmt.Errorf("this machine was not paired: %w", err), advice)}
}

// paired is the credential of this machine, which is paired now if it is not yet.
func paired(ctx context.Context, o cli.RunnerOptions) (link.Credential, *agent.Device, error) {
	kept := filepath.Join(o.StateDir, credentialFile)
	credential, device, err := agent.LoadCredential(kept)
	if err == nil {
		url := address(o, device)
		err := link.Check(ctx, link.DialConfig{URL: url, Credential: credential, CAFile: o.CAFile, UserAgent: "everdict-runner/" + version})
		var revoked *link.RevokedError
		if !errors.As(err, &revoked) {
			o.Log.Info("this machine is paired already: everdict runner unpair ends that", "url", url)
			return credential, device, nil
		}
		o.Log.Warn("the credential of this machine is good for nothing any more: pairing anew", "reason", revoked.Message)
	} else if !errors.Is(err, os.ErrNotExist) {
		o.Log.Warn("the credential of this machine cannot be read: pairing anew", "err", err)
	}
	d, err := pairDevice(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if err := agent.StoreDevice(kept, d); err != nil {
		return nil, nil, cli.Advise(err, "revoke "+d.Runner+" in the dashboard, and pair again when the state directory can be written to")
	}
	o.Paired(d.Runner, d.Account)
	return d.Credential(), &d, nil
}

// address is where the coordinator of this machine is: a device knows it.
func address(o cli.RunnerOptions, device *agent.Device) string {
	if device != nil && !o.APIURLGiven && device.Coordinator != "" {
		return device.Coordinator
	}
	return o.APIURL
}

// unpair ends the pairing of this machine: the coordinator is told first, with the
// credential that is then removed. One that cannot be told is named in the answer; without
// its credential the machine is no runner in any case.
func unpair(ctx context.Context, o cli.RunnerOptions) (cli.Unpaired, error) {
	kept := filepath.Join(o.StateDir, credentialFile)
	credential, device, err := agent.LoadCredential(kept)
	if errors.Is(err, os.ErrNotExist) {
		return cli.Unpaired{}, cli.Advise(fmt.Errorf("this machine is not paired: there is no credential in %s", o.StateDir), "a machine that was paired with another --state-dir is unpaired with the same")
	}
	out := cli.Unpaired{Coordinator: address(o, device)}
	if device != nil {
		out.Runner = device.Runner
	}
	if err == nil {
		err = tellUnpaired(ctx, o, out.Coordinator, credential)
	}
	if err != nil {
		out.NotTold = err.Error()
	}
	if err := os.Remove(kept); err != nil {
		return out, fmt.Errorf("remove the credential: %w", err)
	}
	return out, nil
}

// tellUnpaired is nil as well if the coordinator does not know the machine any more.
func tellUnpaired(ctx context.Context, o cli.RunnerOptions, url string, credential link.Credential) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cfg := client.Config{BaseURL: url, CAFile: o.CAFile, UserAgent: "everdict-runner/" + version, Retries: -1}
	anonymous, err := client.New(cfg)
	if err != nil {
		return err
	}
	bearer, err := credential.Bearer(ctx, func(ctx context.Context) (string, error) {
		n, err := anonymous.Nonce(ctx)
		if err != nil {
			return "", err
		}
		return n.Nonce, nil
	})
	if err != nil {
		return err
	}
	cfg.Token = string(bearer)
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	err = c.Unpair(ctx)
	var problem *protocol.Problem
	if errors.As(err, &problem) && problem.Status == http.StatusUnauthorized && (problem.Data["reason"] == "revoked" || problem.Data["reason"] == "unknown") {
		return nil
	}
	return err
}
