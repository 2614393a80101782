package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

func (w *world) register(spec protocol.RuntimeSpec) {
	w.t.Helper()
	if spec.Version == "" {
		spec.Version = "1.0.0"
	}
	if spec.Kind != protocol.RuntimeLocal {
		spec.Image, spec.Addr = "job-runner:1", "https://nomad.internal:4646"
	}
	if _, err := w.runtimes.Register(w.t.Context(), "default", "ann", spec); err != nil {
		w.t.Fatalf("register %s: %v", spec.ID, err)
	}
}

// member is a runner of a runtime's pool, as a pool token gives one its identity.
func member(runtime, id string, capabilities ...string) lease.Runner {
	return lease.Runner{ID: id, Home: RuntimePool("default", runtime).String(), Capabilities: capabilities, OS: "linux", Arch: "amd64"}
}

func (w *world) serving(r lease.Runner, runtime string) lease.Runner {
	r.Serves = w.s.Serves("default", protocol.Runner{ID: r.ID, Owner: "runtime:" + runtime, Runtime: runtime}, false)
	return r
}

// joins is an online runner of a runtime's pool.
func (w *world) joins(runtime string, capabilities ...string) Holder {
	w.t.Helper()
	ctx := w.t.Context()
	issued, err := w.runners.CreatePoolToken(ctx, "default", "ann", protocol.PoolTokenRequest{Runtime: runtime})
	if err != nil {
		w.t.Fatal(err)
	}
	pool, err := w.runners.ResolvePool(ctx, issued.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	joined, err := w.runners.Join(ctx, pool, protocol.JoinRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.online(Holder{Runner: joined.Runner}, capabilities...)
}

// online says that a runner is connected, until the test is over.
func (w *world) online(h Holder, capabilities ...string) Holder {
	w.t.Helper()
	h.Runner.Capabilities = capabilities
	w.t.Cleanup(w.runners.Attach(h.Runner, pairing.Hello{Workspace: "default", Capabilities: capabilities, Slots: 1}))
	return h
}

func gpu(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{GPU: 1} }

func image(r *protocol.RunRequest) { r.Case.Image = "alpine" }

func repo(r *protocol.RunRequest) { r.Case.Env = files("a") }

// TestRuntimeOfARun: a run goes to the pool of the runtime that it names, at its
// latest version, or is refused at submit with what is missing and what helps.
func TestRuntimeOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	one := 1
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", Version: "1.2.0"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "gpus", GPU: &one})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "hosts"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "plain", Capabilities: []string{protocol.CapGit}})
	other := auth.Principal{Subject: "ann", Workspace: "other"}
	for name, row := range map[string]struct {
		who     auth.Principal
		target  string
		edit    func(*protocol.RunRequest)
		runtime string // of the record, if it is accepted
		code    protocol.Code
		says    string
	}{
		"by name":                          {target: "prod", runtime: "prod@1.2.0"},
		"an image on a cluster":            {target: "prod", edit: image, runtime: "prod@1.2.0"},
		"git is the image's":               {target: "prod", edit: repo, runtime: "prod@1.2.0"},
		"a GPU":                            {target: "gpus", edit: gpu, runtime: "gpus@1.0.0"},
		"no GPU there":                     {target: "prod", edit: gpu, code: protocol.CodeBadRequest, says: "runtime prod does not offer gpu"},
		"no GPU that anybody knows of":     {target: "hosts", edit: gpu, code: protocol.CodeBadRequest, says: "gpu"},
		"what is not declared may be seen": {target: "hosts", edit: image, runtime: "hosts@1.0.0"},
		"what is declared is all":          {target: "plain", edit: image, code: protocol.CodeBadRequest, says: "docker"},
		"unknown":                          {target: "moon", code: protocol.CodeNotFound, says: "gpus, hosts, plain, prod"},
		"of another workspace":             {who: other, target: "prod", code: protocol.CodeNotFound, says: "none is registered"},
		"one of several that lacks a GPU":  {target: "gpus,prod", edit: gpu, code: protocol.CodeBadRequest, says: "runtime prod does not offer gpu"},
		"one of several that is unknown":   {target: "prod,moon", code: protocol.CodeNotFound, says: "moon"},
		"an empty one of several":          {target: "prod,", code: protocol.CodeBadRequest, says: "empty name"},
		"auto among several":               {target: "prod,auto", code: protocol.CodeBadRequest, says: "auto is no registered runtime"},
		"several runners":                  {target: "self:rnr_1,self:rnr_2", code: protocol.CodeBadRequest, says: "names several"},
	} {
		if row.who.Subject == "" {
			row.who = ann
		}
		if row.edit == nil {
			row.edit = func(*protocol.RunRequest) {}
		}
		run, err := w.s.Submit(t.Context(), row.who, request(row.target, row.edit))
		if row.code != "" {
			var p *protocol.Problem
			if !errors.As(err, &p) || p.Code != row.code || !strings.Contains(err.Error(), row.says) || p.Hint == "" {
				t.Errorf("%s: %v, want %s that says %q, with a hint", name, err, row.code, row.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pl := run.Placement
		if pl.Runtime == nil || pl.Runtime.ID+"@"+pl.Runtime.Version != row.runtime || pl.Pool != RuntimePool("default", row.target).String() {
			t.Errorf("%s: placement %s, want %s in the pool of %s", name, dump(pl), row.runtime, row.target)
		}
	}
}

// TestAHarnessThatNeedsAGPU: what a harness declares is what its run needs; a runtime
// that was named is refused without it, and one that is chosen has it and says why.
func TestAHarnessThatNeedsAGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	_, err := registry.New(w.store, nil).Register(t.Context(), "default", "ann", registry.Submission{Spec: &protocol.HarnessSpec{
		Kind: protocol.HarnessCommand, ID: "trainer", Version: "1.0.0", Command: "train", Resources: &protocol.Resources{GPU: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "plain"})
	trains := func(r *protocol.RunRequest) { r.Harness = protocol.HarnessRef{ID: "trainer"} }
	for _, target := range []string{"plain", ""} {
		if _, err := w.s.Submit(t.Context(), ann, request(target, trains)); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "gpu") {
			t.Errorf("runtime %q without a GPU: %v, want it refused", target, err)
		}
	}
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "gpus", GPU: &one})
	w.joins("gpus", protocol.CapGPU)
	w.joins("plain")
	for _, target := range []string{"gpus", ""} {
		run, err := w.s.Submit(t.Context(), ann, request(target, trains))
		if err != nil || target == "" && !strings.HasSuffix(run.Placement.Why, "of its runtimes gpus") {
			t.Errorf("runtime %q beside one with a GPU: %v, %s", target, err, dump(run.Placement))
		}
	}
}

// launcher is one that launches for every runtime but that which it refuses and that which
// it does not know, and says the same of every run, or of those of one runtime.
type launcher struct{ refuses, unknown, says, of string }

func (l launcher) Why(_, runtime, _ string) (string, bool) {
	return l.says, l.says != "" && (l.of == "" || l.of == runtime)
}
func (l launcher) Launches(_, runtime string) bool { return runtime != l.unknown }
func (l launcher) Refuses(_ string, spec *protocol.RuntimeSpec, network string) error {
	if spec.ID == l.refuses || network == protocol.NetworkNone {
		return protocol.BadRequest("runtime %s is refused", spec.ID).WithHint("name another")
	}
	return nil
}

// TestALauncherRefuses: by name, among several, and it is not chosen.
func TestALauncherRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "a"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "b"})
	w.s.OnLaunch(launcher{refuses: "a"})
	closed := func(r *protocol.RunRequest) { r.Case.Network = &protocol.Network{Mode: protocol.NetworkNone} }
	for name, r := range map[string]*protocol.RunRequest{"named": request("a"), "among several": request("b,a"), "no network": request("b", closed)} {
		if _, err := w.s.Submit(t.Context(), ann, r); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "is refused") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	run, err := w.s.Submit(t.Context(), ann, request(""))
	if err != nil || run.Placement.Runtime == nil || run.Placement.Runtime.ID != "b" || !strings.Contains(run.Placement.Why, "runtime b launches one") {
		t.Errorf("without a runtime: %v, %s; want the other one", err, dump(run.Placement))
	}
}

// TestP9_WhyOfWhereItWent: the reason is that of the runtime in whose pool a run is, whatever
// it named; and a budget that is too small is a reason to go elsewhere.
func TestP9_WhyOfWhereItWent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	core := 1000
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "a", CPUBudget: &core})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "b"})
	w.s.OnLaunch(launcher{says: "connection refused"})
	wide := func(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{CPU: 1500} }
	if _, err := w.s.Submit(t.Context(), ann, request("b,a", wide)); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "cpuBudget of runtime a is 1000") {
		t.Errorf("one of several that is too small: %v, want it refused", err)
	}
	for target, of := range map[string]string{"b": "b", "a,b": "", "": "b"} {
		edit := wide
		if target == "a,b" {
			edit = func(*protocol.RunRequest) {}
		}
		run, err := w.s.Get(t.Context(), ann, w.submit(request(target, edit)))
		if err != nil || of != "" && run.Placement.Runtime.ID != of {
			t.Fatalf("runtime %q: %v, %s; want it in %q", target, err, dump(run.Placement), of)
		}
		if want := "runtime " + run.Placement.Runtime.ID + ": connection refused; settles as unschedulable"; !strings.HasPrefix(run.Placement.BlockedReason, want) {
			t.Errorf("runtime %q: it waits because %q, want %q", target, run.Placement.BlockedReason, want)
		}
	}
	w.s.OnLaunch(launcher{})
	run, err := w.s.Get(t.Context(), ann, w.submit(request("b")))
	if err != nil || !strings.HasPrefix(run.Placement.BlockedReason, "runtime b: a runner is launched for it") {
		t.Errorf("with nothing said of it: %q, %v", run.Placement.BlockedReason, err)
	}
}

// TestSpread: runs that name several runtimes are spread evenly over their pools, and each
// record says which and why.
func TestSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "a"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "b"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "c"})
	got := map[string]int{}
	submit := func(target string) protocol.Run {
		t.Helper()
		run, err := w.s.Submit(t.Context(), ann, request(target))
		if err != nil {
			t.Fatal(err)
		}
		pl := run.Placement
		if pl.Runtime == nil || pl.Pool != RuntimePool("default", pl.Runtime.ID).String() || run.Runtime != target || !strings.Contains(pl.Why, "the one with the fewest runs: "+pl.Runtime.ID) {
			t.Errorf("placement %s, runtime %q; want one of %s with the reason", dump(pl), run.Runtime, target)
		}
		got[pl.Runtime.ID]++
		return run
	}
	for range 9 {
		submit("a, b,c,a")
	}
	if got["a"] != 3 || got["b"] != 3 || got["c"] != 3 {
		t.Errorf("nine runs went to %v, want three to each", got)
	}
	w.submit(request("a"))
	clear(got)
	submit("a,b")
	if got["b"] != 1 {
		t.Errorf("a has a run more, and the next went to %v", got)
	}
	// One at a time: each pool is as empty as the other.
	clear(got)
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "d"})
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "e"})
	for range 4 {
		run := submit("d,e")
		if _, err := w.s.Cancel(t.Context(), ann, run.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got["d"] != 2 || got["e"] != 2 {
		t.Errorf("four runs, one after the other, went to %v, want two to each", got)
	}
}

// TestRuntimesOfAuto: a run without a runtime considers the registered ones, says
// so, and is taken by a runner of such a pool.
func TestRuntimesOfAuto(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.s.Submit(t.Context(), ann, request("")); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "everdict runtimes register") {
			t.Errorf("without any pool: %v", err)
		}
		one := 1
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod"})
		if _, err := w.s.Submit(t.Context(), ann, request("", gpu)); code(err) != protocol.CodeBadRequest {
			t.Errorf("a GPU that no pool has: %v, want it refused", err)
		}
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "gpus", GPU: &one})
		waits, err := w.s.Get(t.Context(), ann, w.submit(request("", repo)))
		if err != nil || !strings.Contains(waits.Placement.BlockedReason, "no runner that takes runs of ann is connected, and none of runtime gpus, prod; settles") {
			t.Errorf("nobody is there, and it waits because %q, %v", waits.Placement.BlockedReason, err)
		}
		run, err := w.s.Submit(t.Context(), ann, request("", gpu))
		if err != nil || strings.Contains(run.Placement.Why, "of its runtimes") {
			t.Fatalf("a GPU that a runtime has which nobody serves: %v, why %q", err, run.Placement.Why)
		}
		w.joins("gpus", protocol.CapGPU)
		if _, err := w.s.Cancel(t.Context(), ann, run.ID); err != nil {
			t.Fatal(err)
		}
		run, err = w.s.Submit(t.Context(), ann, request("", gpu))
		if err != nil || !strings.HasSuffix(run.Placement.Why, "of its runtimes gpus") {
			t.Fatalf("a GPU that a runtime has: %v, why %q", err, run.Placement.Why)
		}
		l, err := w.q.Pull(t.Context(), lease.PullRequest{RequestID: "1", Runner: w.serving(member("gpus", "rnr_g", protocol.CapGPU), "gpus")})
		if err != nil || l.Job != run.ID {
			t.Errorf("the pool's runner took %s, %v; want %s", l.Job, err, run.ID)
		}
	})
}

// TestP9_WhyARuntimeWaits: the sentence names the runtime and what its pool lacks.
func TestP9_WhyARuntimeWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, few, core := 1, 100, 1000
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", MaxConcurrent: &one, MemoryBudgetMB: &few})
		first := w.submit(request("prod"))
		why := func(id, want string) {
			t.Helper()
			r, err := w.s.Get(t.Context(), ann, id)
			if err != nil || !strings.Contains(r.Placement.BlockedReason, want) {
				t.Errorf("it waits because %q, %v; want %q", r.Placement.BlockedReason, err, want)
			}
			view, err := w.s.Placement(t.Context(), ann, id)
			if err != nil || view.Placement.BlockedReason != r.Placement.BlockedReason {
				t.Errorf("the placement says %+v, %v; the record %q", view.Placement, err, r.Placement.BlockedReason)
			}
		}
		why(first, "runtime prod has no runner online: start some with everdict runner --pool-token")
		why(first, "everdict pools token create --runtime prod")
		r := w.serving(member("prod", "rnr_p"), "prod")
		if err := w.q.SetRunner(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		why(w.submit(request("prod", image)), "runtime prod: no runner offers docker")
		if _, err := w.q.Pull(t.Context(), lease.PullRequest{RequestID: "1", Runner: r}); err != nil {
			t.Fatal(err)
		}
		second := w.submit(request("prod"))
		why(second, "runtime prod: waits for a slot: pool default/runtime prod has 1 of 1 in use")
		two := 2
		large := func(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{MemoryMB: 200} }
		if _, err := w.s.Submit(t.Context(), ann, request("prod", large)); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "memoryBudgetMb of runtime prod is 100") {
			t.Errorf("a run that the pool can never take: %v, want it refused", err)
		}
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", Version: "1.0.1", MaxConcurrent: &two})
		big := w.submit(request("prod", large))
		wide := w.submit(request("prod", func(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{CPU: 1500} }))
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", Version: "1.1.0", MaxConcurrent: &two, MemoryBudgetMB: &few, CPUBudget: &core})
		why(big, "runtime prod: waits for memory: pool default/runtime prod has 0 of 100 MiB")
		why(wide, "runtime prod: waits for CPU: pool default/runtime prod has 0 of 1 cores")
		w.restart()
		if err := w.q.SetRunner(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		why(big, "has 0 of 100 MiB")
		why(wide, "has 0 of 1 cores")
	})
}

// TestP4_PoolLimitsSurviveARestart: the slots of a runtime's pool hold over all of
// its runners, follow a new version, and are the same after a restart.
func TestP4_PoolLimitsSurviveARestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		two := 2
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", MaxConcurrent: &two})
		for range 6 {
			w.submit(request("prod"))
		}
		leased := func(want int) {
			t.Helper()
			if all, err := w.q.List(t.Context()); err != nil || len(all) != want {
				t.Errorf("%d runs are leased, %v; want %d", len(all), err, want)
			}
		}
		pulls := func(from string) {
			for _, id := range []string{"rnr_a", "rnr_b"} {
				for _, n := range []string{"1", "2", "3"} {
					err := w.q.PullFunc(t.Context(), lease.PullRequest{RequestID: from + id + n, Runner: w.serving(member("prod", id), "prod")}, func(lease.Lease, error) {})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		pulls("before")
		leased(2)
		w.restart()
		pulls("after")
		leased(2)
		three := 3
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", Version: "1.1.0", MaxConcurrent: &three})
		leased(3)
	})
}

// TestLocalRuntimes: the runners inside this process serve the runtimes of kind
// local of every workspace, also those that are registered while they are there.
func TestLocalRuntimes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		inside := protocol.Runner{ID: "rnr_in", Owner: "local:"}
		var told []string
		w.s.OnAudience(func(workspace string) { told = append(told, workspace) })
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "mine"})
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "mine"})
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod"})
		if d := cmp.Diff([]string{"default"}, told); d != "" {
			t.Errorf("told (-want +got):\n%s", d)
		}
		want := []string{"runner rnr_in", "default/runtime local", "default/runtime mine"}
		if got := w.s.Serves("default", inside, true); !slices.Equal(got, want) {
			t.Errorf("the runner inside serves %q, want %q", got, want)
		}
		w.restart()
		if got := w.s.Serves("default", inside, true); !slices.Equal(got, want) {
			t.Errorf("after a restart it serves %q, want %q", got, want)
		}
		w.submit(request("mine", gpu)) // what this machine has is seen when it runs
	}, func(w *world) { w.conf.Local = true })
}
