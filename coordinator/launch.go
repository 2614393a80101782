package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/kube"
	"github.com/everdict/everdict/coordinator/fleet/local"
	"github.com/everdict/everdict/coordinator/fleet/nomad"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Launch says how runners are launched on the clusters of registered runtimes.
type Launch struct {
	// URL is where launched runners find the coordinator; empty: none are launched, and
	// runners join pools with tokens alone.
	URL string
	// HostNetwork, ImagePullPolicy and User are as in kube.Config.
	HostNetwork     bool
	ImagePullPolicy string
	User            int64
	// Egress is as in kube.Config.
	Egress []string
	// NomadHostNetwork and NomadUser are as in nomad.Config.
	NomadHostNetwork bool
	NomadUser        int64
	// Machine launches the runners of runtimes of kind local on the coordinator's own
	// machine, as its user; nil: none are, and NoMachine says why.
	Machine   *Machine
	NoMachine string
	// Isolation is how the units of workspaces are kept apart.
	Isolation fleet.Isolation
	// Openers take the place of the technologies that this package knows, by kind of
	// runtime; nil: none do.
	Openers map[string]fleet.Opener
	// Grace, PendingTimeout and Deliver are as in fleet.Config.
	Grace, PendingTimeout, Deliver time.Duration
}

// Machine is how runners are launched on the coordinator's own machine; see local.Config
// for each.
type Machine struct {
	URL            string
	WorkDir        string
	Keeper, Runner []string
	Encloses       bool
	Drain          time.Duration
}

// unitsDir is where units of this machine are written down, in the data directory.
const unitsDir = "units"

// own are the units of the coordinator's own machine; nil: there are none.
func (l *Launch) own(cfg *Config) *local.Opener {
	m := l.Machine
	if m == nil {
		return nil
	}
	return local.New(local.Config{
		Dir: filepath.Join(cfg.DataDir, unitsDir), WorkDir: m.WorkDir, Keeper: m.Keeper, Runner: m.Runner, URL: m.URL,
		Hide: []string{cfg.DataDir}, Encloses: m.Encloses, Drain: m.Drain, Log: cfg.Log,
	})
}

// deadlineSlack is what an attempt may take beside its harness: to set up, to install, to
// grade. After it the fleet ends the attempt, as a backstop; what ends one in time is its
// runner.
const deadlineSlack = 2 * time.Hour

// clusters are the technologies on which runners are launched, by kind of runtime.
func clusters(cfg *Config, own *local.Opener, secrets func() *secret.Vault) map[string]fleet.Opener {
	all := map[string]fleet.Opener{
		protocol.RuntimeK8s: kube.New(kube.Config{
			Secrets: vault{secrets}, HostNetwork: cfg.Launch.HostNetwork, ImagePullPolicy: cfg.Launch.ImagePullPolicy,
			User: cfg.Launch.User, Egress: cfg.Launch.Egress, URL: cfg.Launch.URL, Log: cfg.Log,
		}),
		protocol.RuntimeNomad: nomad.New(nomad.Config{
			Secrets: vault{secrets}, HostNetwork: cfg.Launch.NomadHostNetwork, User: cfg.Launch.NomadUser, Log: cfg.Log,
		}),
	}
	if own != nil {
		all[protocol.RuntimeLocal] = own
	}
	maps.Copy(all, cfg.Launch.Openers)
	for kind, opener := range all {
		all[kind] = fleet.Isolate(opener, cfg.Launch.Isolation)
	}
	return all
}

// check says what is wrong with the settings of launched runners.
func (l *Launch) check(cfg *Config) error {
	if err := l.Isolation.Check(); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	if l.Machine != nil && l.Isolation.Mode == fleet.IsolationPerTenant {
		return fmt.Errorf("coordinator: trust zones are %s, and runners on the coordinator's own machine run the jobs of every workspace as one user: leave --local-units out", fleet.IsolationPerTenant)
	}
	if len(l.Egress) == 0 {
		return nil
	}
	switch {
	case l.URL == "":
		return errors.New("coordinator: a network policy for launched Pods needs the address at which they find the coordinator (--runner-url)")
	case l.HostNetwork:
		return errors.New("coordinator: no network policy holds a Pod that is in its node's network (--kube-host-network)")
	case !cfg.RequireAuth:
		return errors.New("coordinator: a run without a network reaches the coordinator, and could ask it for runs with one: --kube-network-policy needs --require-auth")
	}
	for _, cidr := range l.Egress {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("coordinator: %q is no range of addresses such as 10.0.0.7/32", cidr)
		}
	}
	return nil
}

// notLaunched are the kinds of runtimes whose runners are not launched.
func (l *Launch) notLaunched() map[string]fleet.NotLaunched {
	not := map[string]fleet.NotLaunched{}
	if l.Machine == nil && l.Openers[protocol.RuntimeLocal] == nil {
		not[protocol.RuntimeLocal] = fleet.NotLaunched{Where: "on its own machine", Why: cmp.Or(l.NoMachine, "it was not told to")}
	}
	if l.URL == "" {
		cluster := fleet.NotLaunched{Where: "on clusters", Why: "it does not know where they find it",
			Instead: "start the coordinator with --runner-url, its address as a runner on the cluster reaches it (everdict coordinator --help), or "}
		not[protocol.RuntimeK8s], not[protocol.RuntimeNomad] = cluster, cluster
	}
	return not
}

// identity is the name under which a coordinator's units are known on clusters.
func identity(ctx context.Context, st *store.Store) (string, error) {
	return st.Identity(ctx, protocol.NewID("crd_"))
}

// probers ask clusters, launched on or not.
func probers(openers map[string]fleet.Opener, identity string) map[string]registry.Prober {
	all := map[string]registry.Prober{}
	for kind, opener := range openers {
		all[kind] = fleet.Prober{Opener: opener, Coordinator: identity}
	}
	return all
}

// launch makes the fleet; nil if nothing is launched.
func (c *Coordinator) launch(checker fleet.Checker, runtimes *registry.Runtimes, identity string) *fleet.Fleet {
	l := &c.cfg.Launch
	if l.URL == "" {
		// No cluster could find the coordinator; its own machine can.
		own := checker.Openers[protocol.RuntimeLocal]
		if own == nil {
			return nil
		}
		checker.Openers = map[string]fleet.Opener{protocol.RuntimeLocal: own}
	}
	return fleet.New(fleet.Config{
		Queue: c.queue, Runs: launches{c.runs}, Runners: c.runners, Versions: runtimes.Specs, Checker: checker, Coordinator: identity, URL: l.URL,
		Bind:  func(unit, job string) { c.gateway.BindUnit(unit, job) },
		Pool:  func(workspace, runtime string) string { return run.RuntimePool(workspace, runtime).String() },
		Grace: l.Grace, PendingTimeout: l.PendingTimeout, Deliver: l.Deliver, Log: c.log,
	})
}

// StopUnits ends the units of the coordinator's own machine, and launches none any more.
// Each gives back what it has, to this coordinator, which still serves; those that have
// not ended with ctx are killed.
func (c *Coordinator) StopUnits(ctx context.Context) error {
	c.endFleet()
	if c.own == nil {
		return nil
	}
	return c.own.Stop(ctx)
}

// launches is the run service as the fleet sees it.
type launches struct{ *run.Service }

// Needs implements fleet.Runs.
func (l launches) Needs(ctx context.Context, run string) (fleet.Needs, error) {
	image, r, network, timeout, err := l.Declared(ctx, run)
	return fleet.Needs{Image: image, CPU: r.CPU, MemoryMB: r.MemoryMB, GPU: r.GPU, Network: network, Deadline: timeout + deadlineSlack}, err
}

// HandOut implements fleet.Runs.
func (l launches) HandOut(ctx context.Context, h fleet.Handing) ([]byte, error) {
	return l.HandOutTo(ctx, h.Workspace, h.Run, h.Before, h.Runtime, h.Unit, h.Life)
}

// vault is the workspace's secrets as clusters see them.
type vault struct{ open func() *secret.Vault }

// Secret implements fleet.Secrets.
func (v vault) Secret(ctx context.Context, workspace, name string) (string, error) {
	value, err := v.open().Resolve(ctx, secret.Owner{Workspace: workspace}, protocol.SecretRef{SecretRef: name, Scope: protocol.SecretWorkspace})
	if errors.Is(err, secret.ErrNotFound) {
		err = fleet.ErrNoSecret
	}
	return value, err
}
