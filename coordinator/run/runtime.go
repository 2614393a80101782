package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// RuntimeChanged makes the limits of a runtime's latest version those of its pool,
// and lets the runners inside this process serve a runtime of kind local that has no
// units of its own. It is
// told of every runtime after a start, since the queue does not keep limits.
func (s *Service) RuntimeChanged(ctx context.Context, workspace string, latest *protocol.RuntimeSpec) error {
	most := latest.Limits()
	err := s.queue.SetLimit(ctx, RuntimePool(workspace, latest.ID).String(),
		lease.Limit{MaxConcurrent: most.MaxConcurrent, MemoryMB: int64(most.MemoryBudgetMB), CPU: int64(most.CPUBudget)})
	if err != nil {
		return err
	}
	launcher := s.launched()
	byUnits := launcher != nil && launcher.Launches(workspace, latest.ID)
	if s.cfg.Local && s.audience.serve(workspace, latest.ID, latest.Kind == protocol.RuntimeLocal && !byUnits) {
		s.audience.tell(workspace)
	}
	return nil
}

// offer is what a registered runtime has for a run.
type offer struct {
	spec *protocol.RuntimeSpec
	// offers are the declared capabilities, and those of the pool's runners that
	// are known.
	offers []string
	// gated are the capabilities that a run may not need without their being
	// offered.
	gated []string
	// served: a runner is there that takes whatever run of it comes. What is launched for
	// one run is none.
	served bool
}

// lacks are the needs for which a run is refused here.
func (o *offer) lacks(needs []string) []string {
	var missing []string
	for _, n := range needs {
		if slices.Contains(o.gated, n) && !slices.Contains(o.offers, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// runtimes are what the registered runtimes of a workspace offer.
func (s *Service) runtimes(ctx context.Context, workspace string) ([]offer, error) {
	specs, err := s.cfg.Runtimes.All(ctx, workspace)
	if err != nil || len(specs) == 0 {
		return nil, err
	}
	offers := make([]offer, len(specs))
	for i := range specs {
		if offers[i], err = s.offer(ctx, workspace, &specs[i]); err != nil {
			return nil, err
		}
	}
	return offers, nil
}

func (s *Service) offer(ctx context.Context, workspace string, spec *protocol.RuntimeSpec) (offer, error) {
	o := offer{spec: spec, offers: slices.Clone(spec.Capabilities), served: s.cfg.Local && s.audience.serves(workspace, spec.ID)}
	roster, err := s.cfg.Runners.Roster(ctx, workspace)
	if err != nil {
		return o, err
	}
	for _, r := range roster {
		if r.Runtime == spec.ID {
			o.offers = append(o.offers, r.Capabilities...)
			o.served = o.served || r.Online && r.Job == "" && r.Unit == ""
		}
	}
	switch {
	case spec.Kind != protocol.RuntimeLocal || len(spec.Capabilities) > 0:
		o.gated = slices.DeleteFunc(protocol.FunctionalCapabilities(), func(c string) bool {
			// A program of the runner's image, of which only the runner knows.
			return c == protocol.CapGit
		})
	case !s.cfg.Local:
		// Nothing is declared, and what its machines are will be seen; none grows a
		// GPU by itself.
		o.gated = []string{protocol.CapGPU}
	}
	return o, nil
}

// refusal is why a run may not go to a registered runtime; nil: it may.
func (s *Service) refusal(workspace string, o *offer, n needs) error {
	if missing := o.lacks(n.Capabilities); len(missing) > 0 {
		slices.Sort(o.offers)
		have := slices.Compact(o.offers)
		return protocol.BadRequest("runtime %s does not offer %s, which this run needs", o.spec.ID, strings.Join(missing, ", ")).
			WithHint("it offers: %s; name another runtime, or register a version that declares what its runners have (capabilities, gpu)", orNothing(have)).
			WithData("runtime", o.spec.ID).WithData("need", n.Capabilities).WithData("missing", missing).WithData("have", have)
	}
	for _, of := range []struct {
		declares int64
		budget   *int
		in       string
	}{{n.MemoryMB, o.spec.MemoryBudgetMB, "%d MiB of memory, and memoryBudgetMb of runtime %s is %d"}, {n.CPU, o.spec.CPUBudget, "%d thousandths of a core, and cpuBudget of runtime %s is %d"}} {
		if of.budget != nil && of.declares > int64(*of.budget) {
			return protocol.BadRequest("the run declares "+of.in, of.declares, o.spec.ID, *of.budget).
				WithHint("let the case or the harness declare less (resources), name another runtime, or register a version with a larger budget").
				WithData("runtime", o.spec.ID)
		}
	}
	if l := s.launched(); l != nil {
		if n.sealed != nil && o.spec.Payload && l.Launches(workspace, o.spec.ID) {
			return n.sealed
		}
		return l.Refuses(workspace, o.spec, n.network)
	}
	return nil
}

// routeRuntime finds the pool of a registered runtime; an unknown one is a 404, one
// that lacks what the run needs a 400.
func (s *Service) routeRuntime(ctx context.Context, p auth.Principal, target string, n needs) (route, error) {
	spec, err := s.cfg.Runtimes.Latest(ctx, p.Workspace, target)
	var unknown *protocol.Problem
	switch {
	case errors.As(err, &unknown) && unknown.Status == http.StatusNotFound:
		if target == LocalRuntime && s.cfg.Local {
			s.welcome(p.Workspace, p.Subject)
			return route{pool: RuntimePool(p.Workspace, LocalRuntime), why: "the runtime that was named"}, nil
		}
		return route{}, s.noRuntime(ctx, p, target)
	case err != nil:
		return route{}, err
	}
	o, err := s.offer(ctx, p.Workspace, spec)
	if err == nil {
		err = s.refusal(p.Workspace, &o, n)
	}
	if err != nil {
		return route{}, err
	}
	return route{pool: RuntimePool(p.Workspace, spec.ID), why: "the runtime that was named",
		runtime: &protocol.RuntimeRef{ID: spec.ID, Version: spec.Version}}, nil
}

// routeSpread gives a run to one of several registered runtimes: that whose pool has the
// fewest runs, waiting or running. One that is unknown, or could not take the run,
// refuses it: whoever names it means to use it.
func (s *Service) routeSpread(ctx context.Context, p auth.Principal, target string, n needs) (route, error) {
	var all []route
	for name := range strings.SplitSeq(target, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return route{}, protocol.BadRequest("runtime %q has an empty name in its list", protocol.Clip(target, 80)).
				WithHint("name registered runtimes, with a comma between each two")
		case name == protocol.TargetAuto, name == protocol.TargetSelf, strings.HasPrefix(name, protocol.TargetSelfPrefix):
			return route{}, protocol.BadRequest("%q names several, and %s is no registered runtime", protocol.Clip(target, 80), protocol.Clip(name, 40)).
				WithHint("a list is one of registered runtimes; %s and %s are not in it", protocol.TargetAuto, protocol.TargetSelf)
		case slices.ContainsFunc(all, func(r route) bool { return r.pool.of == name }):
			continue
		}
		to, err := s.routeRuntime(ctx, p, name, n)
		if err != nil {
			return route{}, err
		}
		all = append(all, to)
	}
	runs, err := s.runsIn(ctx, p.Workspace)
	if err != nil {
		return route{}, err
	}
	to := s.fewest(all, runs)
	to.why = fmt.Sprintf("of the runtimes that were named, %s, the one with the fewest runs: %s has %d", runtimesOf(all), to.pool.of, runs(to))
	return to, nil
}

// runsIn counts the runs that wait or run in the pool of a route.
func (s *Service) runsIn(ctx context.Context, workspace string) (func(route) int, error) {
	stats, err := s.queue.Stats(ctx)
	return func(r route) (n int) {
		name := r.pool.String()
		for _, c := range stats.Counts {
			if c.Workspace == workspace && c.Pool == name {
				n += c.Queued + c.Leased
			}
		}
		return n
	}, err
}

// fewest is the route to the pool with the fewest runs, of several with as few another
// one each time.
func (s *Service) fewest(all []route, runs func(route) int) route {
	k := int(s.spreads.Add(1)-1) % len(all)
	return slices.MinFunc(slices.Concat(all[k:], all[:k]), func(a, b route) int { return runs(a) - runs(b) })
}

// runtimesOf are the names of the runtimes of routes.
func runtimesOf(all []route) string {
	ids := make([]string, len(all))
	for i, r := range all {
		ids[i] = r.pool.of
	}
	return strings.Join(ids, ", ")
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// noRuntime is the 404 of a target that names nothing.
func (s *Service) noRuntime(ctx context.Context, p auth.Principal, target string) error {
	problem := protocol.NotFound("no runtime %q in workspace %s", protocol.Clip(target, 80), p.Workspace)
	const forms = "a run names a registered runtime, or several with a comma between each two, self, self:ws, self:<runner id>, or leaves runtime out to take any pool that can run it"
	specs, err := s.cfg.Runtimes.All(ctx, p.Workspace)
	if err != nil {
		return err
	}
	var ids []string
	for _, spec := range specs {
		ids = append(ids, spec.ID)
	}
	if len(ids) == 0 {
		return problem.WithHint("none is registered; %s", forms)
	}
	return problem.WithHint("registered are %s; %s", protocol.Clip(strings.Join(ids, ", "), 400), forms)
}

// Pools are the pools of the registered runtimes of a workspace, by id.
func (s *Service) Pools(ctx context.Context, p auth.Principal) ([]protocol.Pool, error) {
	specs, err := s.cfg.Runtimes.All(ctx, p.Workspace)
	if err != nil {
		return nil, err
	}
	roster, err := s.cfg.Runners.List(ctx, p.Workspace, "")
	if err != nil {
		return nil, err
	}
	stats, err := s.queue.Stats(ctx)
	if err != nil {
		return nil, err
	}
	pools, launcher := make([]protocol.Pool, len(specs)), s.launched()
	for i := range specs {
		pools[i] = poolOf(p.Workspace, &specs[i], roster, &stats)
		pools[i].Launched = launcher != nil && launcher.Launches(p.Workspace, specs[i].ID)
	}
	return pools, nil
}

func poolOf(workspace string, spec *protocol.RuntimeSpec, roster []protocol.Runner, stats *lease.Stats) protocol.Pool {
	pool := protocol.Pool{PoolUse: protocol.PoolUse{Runtime: spec.ID, Version: spec.Version, Kind: spec.Kind}, Runners: []protocol.Runner{}}
	pool.PoolLimits = spec.Limits()
	name := RuntimePool(workspace, spec.ID).String()
	for _, c := range stats.Counts {
		if c.Workspace == workspace && c.Pool == name {
			pool.Queued += c.Queued
		}
	}
	for _, h := range stats.Homes {
		if h.Pool == name {
			pool.Running, pool.MemoryMB, pool.CPU = h.Leases, h.MemoryMB, h.CPU
		}
	}
	for _, r := range roster {
		if r.Runtime != spec.ID {
			continue
		}
		pool.Runners = append(pool.Runners, r)
		if r.Online {
			pool.Online++
			pool.Slots += r.Slots
		}
	}
	return pool
}
