package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// Serves are the names of the pools that a runner takes jobs from, its own first.
// Local is for runners inside this process.
func (s *Service) Serves(workspace string, r protocol.Runner, local bool) []string {
	own := RunnerPool(r.ID)
	switch {
	case local:
		serves := names(own)
		for _, w := range s.audience.workspaces() {
			serves = append(append(serves, s.audience.local(w)...), s.audience.pools(w)...)
		}
		return serves
	case r.Runtime != "":
		return append(names(RuntimePool(workspace, r.Runtime)), s.audience.pools(workspace)...)
	case r.Owner == pairing.WorkspaceOwner(workspace):
		return append(names(own, workspacePool(workspace)), s.audience.pools(workspace)...)
	case r.Scope == protocol.RunnerScopeWorkspace:
		all := append(names(own, selfPool(workspace, r.Owner), sharedPool(r.ID), workspacePool(workspace)), s.audience.pools(workspace)...)
		if auto := autoPool(workspace, r.Owner).String(); !slices.Contains(all, auto) {
			all = append(all, auto)
		}
		return all
	}
	return names(own, selfPool(workspace, r.Owner), autoPool(workspace, r.Owner))
}

// route is where a run goes.
type route struct {
	pool Pool
	why  string
	// runtime is the version of a registered runtime that was named; else nil.
	runtime *protocol.RuntimeRef
}

// needs are what a run's pool must have: what the run declares, and the mode of network of
// its case.
type needs struct {
	lease.Requirements
	network string
	// sealed is why the run cannot be in the payload of a unit; nil: it can.
	sealed error
}

// route finds the pool of a target, or says what is missing.
func (s *Service) route(ctx context.Context, p auth.Principal, target string, needs needs) (route, error) {
	switch {
	case strings.Contains(target, ","):
		return s.routeSpread(ctx, p, target, needs)
	case target == protocol.TargetAuto:
		return s.routeAuto(ctx, p, needs)
	case target == protocol.TargetSelf:
		own, err := s.owned(ctx, p.Workspace, p.Subject)
		if err != nil {
			return route{}, err
		}
		if len(own) == 0 {
			return route{}, protocol.NotFound("you have no runner in workspace %s", p.Workspace).WithHint("%s", pairHint)
		}
		return route{pool: selfPool(p.Workspace, p.Subject), why: "any of the submitter's own runners"}, capable(own, needs.Capabilities)
	case target == protocol.TargetSelfWorkspace:
		shared, err := s.open(ctx, p.Workspace, "")
		if err != nil {
			return route{}, err
		}
		if len(shared) == 0 {
			return route{}, protocol.NotFound("workspace %s has no runner of its own", p.Workspace).
				WithHint("an admin pairs one: POST /workspace/runners; or the owner of a machine opens it to the workspace, on that machine")
		}
		return route{pool: workspacePool(p.Workspace), why: "any of the workspace's own runners"}, capable(shared, needs.Capabilities)
	case strings.HasPrefix(target, protocol.TargetSelfPrefix):
		return s.routeRunner(ctx, p, target, needs)
	}
	return s.routeRuntime(ctx, p, target, needs)
}

const pairHint = "pair one: everdict runners pair, then everdict runner on that machine"

// runnerID is the runner that "self:<id>" or "self:ws:<id>" names.
func runnerID(target string) string {
	return strings.TrimPrefix(strings.TrimPrefix(target, protocol.TargetSelfPrefix), "ws:")
}

func (s *Service) routeRunner(ctx context.Context, p auth.Principal, target string, needs needs) (route, error) {
	id := runnerID(target)
	r, err := s.cfg.Runners.Get(ctx, p.Workspace, id)
	if err != nil {
		return route{}, err
	}
	pool := RunnerPool(r.ID)
	switch {
	case r.Owner == p.Subject, r.Owner == pairing.WorkspaceOwner(p.Workspace):
	case r.Scope == protocol.RunnerScopeWorkspace:
		pool = sharedPool(r.ID)
	case r.Scope == protocol.RunnerScopeOwner:
		return route{}, protocol.NotFound("no runner %q of yours in workspace %s", protocol.Clip(id, 80), p.Workspace).
			WithHint("it takes its owner's runs only; its owner can open it to the workspace, on that machine")
	default:
		return route{}, protocol.NotFound("no runner %q of yours in workspace %s", protocol.Clip(id, 80), p.Workspace).
			WithHint("a personal runner takes its owner's runs only")
	}
	return route{pool: pool, why: fmt.Sprintf("runner %s was named", r.Label)}, capable([]protocol.Runner{r}, needs.Capabilities)
}

func (s *Service) routeAuto(ctx context.Context, p auth.Principal, needs needs) (route, error) {
	usable, err := s.open(ctx, p.Workspace, p.Subject)
	if err != nil {
		return route{}, err
	}
	runtimes, err := s.runtimes(ctx, p.Workspace)
	if err != nil {
		return route{}, err
	}
	if len(usable)+len(runtimes) == 0 && !s.cfg.Local {
		return route{}, protocol.BadRequest("workspace %s has no pool that can run this: no runner of yours or the workspace's is paired, and no runtime is registered", p.Workspace).
			WithHint("%s; or register a runtime: everdict runtimes register", pairHint)
	}
	to, err := s.toLaunched(ctx, p, runtimes, needs)
	if err != nil {
		return route{}, err
	}
	if to != nil {
		return *to, nil
	}
	why := "no runtime was named: any pool of the workspace that can run it"
	var able []string
	for _, r := range runtimes {
		// As a runner that offers what the runtime does.
		usable = append(usable, protocol.Runner{Capabilities: r.offers})
		if r.served && s.refusal(p.Workspace, &r, needs) == nil {
			able = append(able, r.spec.ID)
		}
	}
	if len(able) > 0 {
		why += ", of its runtimes " + strings.Join(able, ", ")
	}
	inside, err := s.inside(ctx, needs)
	if err != nil {
		return route{}, err
	}
	if !s.cfg.Local || len(inside) > 0 { // else the runner of this process may be about to come
		if err := capable(append(usable, inside...), needs.Capabilities); err != nil {
			return route{}, err
		}
	}
	s.welcome(p.Workspace, p.Subject)
	return route{pool: autoPool(p.Workspace, p.Subject), why: why}, nil
}

// inside are the runners that are online, where some of them are in this process and take
// everybody's runs. They are looked at for a run that needs what a machine has or has not.
func (s *Service) inside(ctx context.Context, needs needs) ([]protocol.Runner, error) {
	if !s.cfg.Local || !slices.Contains(needs.Capabilities, protocol.CapGPU) {
		return nil, nil
	}
	all, err := s.queue.Runners(ctx)
	if err != nil {
		return nil, err
	}
	var online []protocol.Runner
	for _, r := range all {
		if r.Online {
			online = append(online, protocol.Runner{Capabilities: r.Capabilities})
		}
	}
	return online, nil
}

// owned are the runners of a workspace that belong to one owner.
func (s *Service) owned(ctx context.Context, workspace, owner string) ([]protocol.Runner, error) {
	return s.those(ctx, workspace, func(r *protocol.Runner) bool { return r.Owner == owner })
}

// open are the runners of a workspace that take everybody's runs, and subject's own.
func (s *Service) open(ctx context.Context, workspace, subject string) ([]protocol.Runner, error) {
	all := pairing.WorkspaceOwner(workspace)
	return s.those(ctx, workspace, func(r *protocol.Runner) bool {
		return r.Owner == all || r.Scope == protocol.RunnerScopeWorkspace || subject != "" && r.Owner == subject
	})
}

func (s *Service) those(ctx context.Context, workspace string, which func(*protocol.Runner) bool) ([]protocol.Runner, error) {
	roster, err := s.cfg.Runners.Roster(ctx, workspace)
	if err != nil {
		return nil, err
	}
	var some []protocol.Runner
	for i := range roster {
		if r := &roster[i]; r.Job == "" && which(r) { // else it takes one run alone
			some = append(some, *r)
		}
	}
	return some, nil
}

// capable refuses a run that none of the runners could ever take. A runner that
// has never connected offers what its pairing declared.
func capable(runners []protocol.Runner, needs []string) error {
	var have []string
	for _, r := range runners {
		if !slices.ContainsFunc(needs, func(n string) bool { return !slices.Contains(r.Capabilities, n) }) {
			return nil
		}
		have = append(have, r.Capabilities...)
	}
	slices.Sort(have)
	have = slices.Compact(have)
	var missing []string
	for _, n := range needs {
		if !slices.Contains(have, n) {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return nil // each is there, though on no single machine yet: the placement says so
	}
	// Only what no laptop can grow overnight is refused; the rest waits and says why.
	if !slices.Contains(missing, protocol.CapGPU) {
		return nil
	}
	return protocol.BadRequest("no runner that this run can go to offers %s", strings.Join(missing, ", ")).
		WithHint("the runners offer: %s; pair a machine with a GPU whose runner offers it (everdict doctor says why one does not), or register a runtime with gpu", orNothing(have)).
		WithData("need", needs).WithData("missing", missing).WithData("have", have)
}

// Requirements is what a runner must offer for a case with a harness.
func Requirements(c *protocol.Case, h *protocol.HarnessSpec) lease.Requirements {
	var r lease.Requirements
	need := func(capability string) {
		if !slices.Contains(r.Capabilities, capability) {
			r.Capabilities = append(r.Capabilities, capability)
		}
	}
	if c.Env.Kind == protocol.EnvRepo {
		need(protocol.CapGit)
	}
	if c.Image != "" || h.Image != "" {
		need(protocol.CapDocker)
	}
	for _, res := range []*protocol.Resources{h.Resources, c.Resources} {
		if res == nil {
			continue
		}
		if res.GPU > 0 {
			need(protocol.CapGPU)
		}
		if res.MemoryMB > 0 {
			r.MemoryMB = int64(res.MemoryMB)
		}
		if res.CPU > 0 {
			r.CPU = int64(res.CPU)
		}
	}
	if c.Placement != nil {
		switch c.Placement.OS {
		case "windows":
			need(protocol.CapOSWindows)
			r.OS = "windows"
		case "macos":
			need(protocol.CapOSMacOS)
			r.OS = "darwin"
		case "linux":
			r.OS = "linux"
		}
	}
	return r
}
