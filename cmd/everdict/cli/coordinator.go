package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
)

// leaseKeys are the timings that a coordinator and its queue share.
var leaseKeys = []string{
	config.LeaseTTL, config.Heartbeat, config.FreezeMargin, config.StartAck, config.OnlineWindow,
	config.QueueDeadline, config.Aging, config.MaxAttempts, config.PoolMaxConcurrent,
}

// sessionKeys are about browsers that sign in, and what is done with them.
var sessionKeys = []string{config.SessionIdle, config.SessionLife, config.TrustedProxies, config.PairingDeviceCode}

// launchKeys are about runners that are launched on clusters.
var launchKeys = []string{config.RunnerURL, config.KubeHostNetwork, config.KubeImagePullPolicy, config.KubeUser, config.KubeNetworkPolicy,
	config.NomadHostNetwork, config.NomadUser, config.LocalUnits, config.TrustZones, config.TrustZoneRuntime, config.PendingTimeout}

func (a *app) coordinatorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Serve the API and the queue",
		Long: `Serve the API, the queue and the evidence from one data directory. Without --require-auth it is in development
mode: no login, the workspace from the header x-everdict-tenant, and only this machine may connect, since
everybody who can submit a run can run commands on its runners.

The first SIGINT or SIGTERM drains: runners are told when to come back, and no run is lost. A second one
hurries.`,
		Example: `  everdict coordinator
  everdict coordinator --data-dir /var/lib/everdict --listen :8787 --require-auth
  EVERDICT_LOG_FORMAT=json everdict coordinator --lease-ttl 90s`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.coordinatorOptions(false)
			if err != nil {
				return err
			}
			if a.hooks.Coordinator == nil {
				return errNoHook(cmd)
			}
			return a.served(cmd.Context(), a.hooks.Coordinator(cmd.Context(), o))
		},
	}
	config.Bind(cmd.Flags(), a.schema, append([]string{config.DataDir, config.Listen, config.RequireAuth, config.InsecureListen, config.DebugSocket, config.LogLevel, config.LogFormat}, slices.Concat(sessionKeys, leaseKeys, launchKeys)...)...)
	cmd.AddCommand(a.rotateSecretsKeyCommand())
	return cmd
}

// errNoHook says that the program was built without what cmd starts.
func errNoHook(cmd *cobra.Command) error {
	return &adviceError{fmt.Errorf("this build cannot do %s", cmd.CommandPath()), "use the everdict program of a release"}
}

// served is how a service ended: a signal is a good end.
func (a *app) served(ctx context.Context, err error) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		return err
	}
	if interrupted(ctx) != 0 && errors.Is(err, context.Canceled) {
		return nil
	}
	return secretsKeyAdvice(err)
}

// coordinatorOptions checks what configuration says about a coordinator; runner
// says that it has one of its own.
func (a *app) coordinatorOptions(runner bool) (CoordinatorOptions, error) {
	o := CoordinatorOptions{
		Listen: a.cfg.String(config.Listen), RequireAuth: a.cfg.Bool(config.RequireAuth),
		InsecureListenWithoutAuth: a.cfg.Bool(config.InsecureListen), PoolMaxConcurrent: a.cfg.Int(config.PoolMaxConcurrent), NoDeviceCode: !a.cfg.Bool(config.PairingDeviceCode),
		Lease: LeaseTimings{
			TTL: a.cfg.Duration(config.LeaseTTL), Heartbeat: a.cfg.Duration(config.Heartbeat),
			FreezeMargin: a.cfg.Duration(config.FreezeMargin), StartAck: a.cfg.Duration(config.StartAck),
			OnlineWindow: a.cfg.Duration(config.OnlineWindow), QueueDeadline: a.cfg.Duration(config.QueueDeadline),
			Aging: a.cfg.Duration(config.Aging), MaxAttempts: a.cfg.Int(config.MaxAttempts),
		},
		Hurry: a.hurry,
	}
	var err error
	if o.Launch, err = a.launchOptions(); err != nil {
		return o, err
	}
	if runner && o.Launch.TrustZones == perTenant {
		return o, &adviceError{fmt.Errorf("%s: trust_zones is %s, and the runner of everdict up runs the jobs of every workspace as one user", a.cfg.Origin(config.TrustZones), perTenant),
			"use everdict coordinator, with runners of their own for each workspace"}
	}
	if err := a.localUnits(&o, runner); err != nil {
		return o, err
	}
	if o.Sandbox, err = a.sandbox(); err != nil {
		return o, err
	}
	if o.DataDir, err = filepath.Abs(a.cfg.String(config.DataDir)); err != nil {
		return o, err
	}
	if path := a.cfg.String(config.DebugSocket); path != "" {
		if o.DebugSocket, err = filepath.Abs(path); err != nil {
			return o, err
		}
	}
	if o.InternalToken, err = a.internalToken(); err != nil {
		return o, err
	}
	if err := a.secretsKeys(&o); err != nil {
		return o, err
	}
	if err := a.sessionOptions(&o); err != nil {
		return o, err
	}
	ready := service{dataDir: o.DataDir, auth: o.RequireAuth, runner: runner, isolation: o.Launch.TrustZones}
	o.Ready = func(base string) { a.announce(base, ready) }
	o.FirstKey = a.showFirstKey
	if o.Log, err = a.logger(); err != nil {
		return o, err
	}
	if err := checkListen(o.Listen, o.RequireAuth, o.InsecureListenWithoutAuth); err != nil {
		return o, fmt.Errorf("%s: %w", a.cfg.Origin(config.Listen), err)
	}
	if err := o.Lease.check(); err != nil {
		return o, &adviceError{err, "the defaults hold together: see everdict config show"}
	}
	if o.PoolMaxConcurrent < 1 {
		return o, fmt.Errorf("%s: pool_max_concurrent is %d: want 1 or more", a.cfg.Origin(config.PoolMaxConcurrent), o.PoolMaxConcurrent)
	}
	if o.InsecureListenWithoutAuth && !o.RequireAuth && !listensOnLoopback(o.Listen) {
		p := a.palette(a.err)
		fmt.Fprintln(a.err, p.red("warning:"), "listening on "+o.Listen+" without login: everybody who reaches it can run commands on the runners")
	}
	return o, nil
}

// minInternalToken is the shortest internal token, in bytes. Nothing slows down whoever
// guesses it.
const minInternalToken = 32

// internalToken is that of the operator, "" without one.
func (a *app) internalToken() (string, error) {
	token, err := a.cfg.Secret(config.InternalToken)
	if err != nil {
		return "", err
	}
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return "", &adviceError{fmt.Errorf("%s: internal_token has a character that a header cannot carry", a.cfg.Origin(config.InternalToken)), makeInternalToken}
		}
	}
	if token != "" && len(token) < minInternalToken {
		return "", &adviceError{fmt.Errorf("%s: internal_token has %d characters: want %d or more", a.cfg.Origin(config.InternalToken), len(token), minInternalToken), makeInternalToken}
	}
	return token, nil
}

const makeInternalToken = "make one with: openssl rand -hex 32"

// sessionOptions checks what configuration says about browsers that sign in.
func (a *app) sessionOptions(o *CoordinatorOptions) error {
	o.SessionIdle, o.SessionLife = a.cfg.Duration(config.SessionIdle), a.cfg.Duration(config.SessionLife)
	for key, d := range map[string]time.Duration{config.SessionIdle: o.SessionIdle, config.SessionLife: o.SessionLife} {
		if d < time.Minute {
			return fmt.Errorf("%s: %s is %s: want 1m or more", a.cfg.Origin(key), strings.TrimPrefix(key, "coordinator."), d)
		}
	}
	for _, s := range a.cfg.List(config.TrustedProxies) {
		prefix, err := netip.ParsePrefix(s)
		if addr, bad := netip.ParseAddr(s); bad == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return &adviceError{fmt.Errorf("%s: %q is no address of a proxy", a.cfg.Origin(config.TrustedProxies), s), "give addresses or networks, such as 10.0.0.5,10.1.0.0/16"}
		}
		o.TrustedProxies = append(o.TrustedProxies, prefix.Masked())
	}
	return nil
}

// localUnits decides whether runners are launched on this machine. They run jobs as the
// coordinator's own user, which beside a person's own use somebody has to want.
func (a *app) localUnits(o *CoordinatorOptions, runner bool) error {
	const allows = "; --local-units on allows it"
	l, mode := &o.Launch, a.cfg.String(config.LocalUnits)
	here := listensOnLoopback(o.Listen)
	switch {
	case mode == "on" && l.TrustZones == perTenant:
		return &adviceError{fmt.Errorf("%s: local_units is on, and trust_zones is %s: on this machine the jobs of every workspace are one user's", a.cfg.Origin(config.LocalUnits), perTenant),
			"use runners of their own for each workspace"}
	case mode == "on":
		l.Machine = true
		if !here {
			fmt.Fprintln(a.err, a.palette(a.err).yellow("warning:"), "listening on "+o.Listen+" with --local-units on: whoever may submit runs can run commands here, as the user of the coordinator")
		}
	case mode == "off":
		l.NoMachine = "--local-units is off"
	case mode != "auto":
		return fmt.Errorf("%s: local_units is %q: want on, off or auto", a.cfg.Origin(config.LocalUnits), mode)
	case !runner:
		l.NoMachine = "everdict coordinator runs no jobs as its own user" + allows
	case !here:
		l.NoMachine = "it listens on " + o.Listen + ", beyond this machine, and would run jobs as its own user" + allows
	default:
		l.Machine = true
	}
	return nil
}

// perTenant keeps workspaces apart on their clusters.
const perTenant = "per-tenant"

// trustZones are the ways to keep workspaces apart.
var trustZones = []string{"runtime-declared", perTenant}

// leastPending is shorter than any cluster takes for a place that it can have.
const leastPending = 10 * time.Second

// launchOptions checks what configuration says about launched runners.
func (a *app) launchOptions() (LaunchOptions, error) {
	o := LaunchOptions{RunnerURL: a.cfg.String(config.RunnerURL), KubeHostNetwork: a.cfg.Bool(config.KubeHostNetwork),
		KubeImagePullPolicy: a.cfg.String(config.KubeImagePullPolicy), KubeUser: int64(a.cfg.Int(config.KubeUser)),
		NomadHostNetwork: a.cfg.Bool(config.NomadHostNetwork), NomadUser: int64(a.cfg.Int(config.NomadUser)),
		KubeNetworkPolicy: a.cfg.List(config.KubeNetworkPolicy), TrustZones: a.cfg.String(config.TrustZones), TrustZoneRuntime: a.cfg.String(config.TrustZoneRuntime),
		PendingTimeout: a.cfg.Duration(config.PendingTimeout)}
	if u, err := url.Parse(o.RunnerURL); o.RunnerURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return o, &adviceError{fmt.Errorf("%s: runner_url is no address", a.cfg.Origin(config.RunnerURL)), "give one that a Pod can reach, such as https://everdict.example"}
	}
	if p := o.KubeImagePullPolicy; p != "" && !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, p) {
		return o, fmt.Errorf("%s: kube_image_pull_policy is %q: want Always, IfNotPresent or Never", a.cfg.Origin(config.KubeImagePullPolicy), p)
	}
	for _, key := range []string{config.KubeUser, config.NomadUser} {
		if a.cfg.Int(key) == 0 {
			return o, &adviceError{fmt.Errorf("%s: %s is 0: runners are not launched as root", a.cfg.Origin(key), strings.TrimPrefix(key, "coordinator.")),
				"give the id of another user, or -1 for the image's own, whichever that is"}
		}
	}
	if !slices.Contains(trustZones, o.TrustZones) {
		return o, fmt.Errorf("%s: trust_zones is %q: want %s", a.cfg.Origin(config.TrustZones), o.TrustZones, strings.Join(trustZones, " or "))
	}
	if o.PendingTimeout < leastPending {
		return o, fmt.Errorf("%s: pending_timeout is %s: want %s or more", a.cfg.Origin(config.PendingTimeout), o.PendingTimeout, leastPending)
	}
	return o, nil
}

// checkListen refuses an address beyond loopback where nobody has to log in.
func checkListen(address string, auth, insecure bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return &adviceError{fmt.Errorf("%q is no address to listen on", address), "give host:port, such as 127.0.0.1:8787"}
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return &adviceError{fmt.Errorf("%q is no port", port), "give host:port, such as 127.0.0.1:8787"}
	}
	if auth || insecure || loopbackHost(host) {
		return nil
	}
	return &adviceError{
		fmt.Errorf("refusing to listen on %s without login: everybody who reaches it could run commands on the runners", address),
		"add --require-auth, or listen on 127.0.0.1; --insecure-listen-without-auth overrides this",
	}
}

func listensOnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

// check reports timings that cannot work together.
func (t LeaseTimings) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat", t.Heartbeat}, {"lease_ttl", t.TTL}, {"freeze_margin", t.FreezeMargin}, {"start_ack", t.StartAck},
		{"online_window", t.OnlineWindow}, {"queue_deadline", t.QueueDeadline}, {"aging", t.Aging},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s is %s: want more than 0", d.name, d.value)
		}
	}
	switch {
	case t.FreezeMargin >= t.TTL:
		return fmt.Errorf("freeze_margin (%s) is not below lease_ttl (%s): a runner would stop every run at once", t.FreezeMargin, t.TTL)
	case 2*t.Heartbeat > t.TTL-t.FreezeMargin:
		return fmt.Errorf("heartbeat (%s) does not fit twice into lease_ttl - freeze_margin (%s): one lost heartbeat would stop runs", t.Heartbeat, t.TTL-t.FreezeMargin)
	case t.OnlineWindow < 2*t.Heartbeat:
		return fmt.Errorf("online_window (%s) is below two heartbeats (%s): a runner would look offline while it works", t.OnlineWindow, 2*t.Heartbeat)
	case t.MaxAttempts < 1:
		return fmt.Errorf("max_attempts is %d: want 1 or more", t.MaxAttempts)
	}
	return nil
}
