package nomad

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/nomad"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// provider is the client of a runtime with the rights of docs/nomad.md.
func (c *cluster) provider(t *testing.T, coordinator string) fleet.Provider {
	t.Helper()
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "r", Version: "1.0.0", Addr: c.url, Namespace: c.ns, AuthSecret: "t", Image: made.unitImage}
	p, err := nomad.New(nomad.Config{Secrets: secrets{"t": c.token}, Log: quiet}).Open(t.Context(), fleet.Target{Coordinator: coordinator, Workspace: "w", Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// through puts something between the cluster and who asks it.
func (c *cluster) through(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, forward http.Handler)) {
	t.Helper()
	target, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorLog = log.New(io.Discard, "", 0) // blocked queries are given up
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, forward) }))
	t.Cleanup(proxy.Close)
	c.url = proxy.URL
}

// TestF14_TheAnswerToALaunchIsLost: twice, after each of the two steps. The launch goes
// on where it was, and there is one allocation.
func TestF14_TheAnswerToALaunchIsLost(t *testing.T) {
	t.Parallel()
	c := start(t)
	var registered atomic.Int64
	c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" {
			// The second is refused, because the first was not lost for the cluster; the
			// third is the job with its allocation.
			if n := registered.Add(1); n == 1 || n == 3 {
				forward.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
		}
		forward.ServeHTTP(w, r)
	})
	p := c.provider(t, "c")
	run := protocol.NewID(protocol.RunPrefix)
	tokens := 0
	o := fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1", MemoryMB: 64,
		Token: func(context.Context) (string, error) { tokens++; return "exit 0", nil }}
	for i, wants := range []bool{false, false, true} {
		if err := p.Launch(t.Context(), o); (err == nil) != wants {
			t.Fatalf("launch %d: %v", i+1, err)
		}
	}
	house.Eventually(t, "it has ended", func() bool {
		units, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(units) == 1 && units[0].State == fleet.Ended && units[0].Trouble == nil
	})
	if all, err := c.allocs(o.Unit); err != nil || len(all) != 1 || tokens != 1 {
		t.Errorf("%d allocations, %d tokens, %v; want one of each", len(all), tokens, err)
	}
	if err := p.Terminate(t.Context(), o.Unit); err != nil {
		t.Fatal(err)
	}
	c.empty(t)
}

// TestALaunchThatIsOvertaken: somebody removes the job while it is being launched. No
// job is made in its place, and no token is left behind.
func TestALaunchThatIsOvertaken(t *testing.T) {
	t.Parallel()
	c := start(t)
	run := protocol.NewID(protocol.RunPrefix)
	o := fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1"}
	o.Token = func(context.Context) (string, error) {
		_, _, err := c.Jobs().Deregister(o.Unit, true, &api.WriteOptions{Namespace: c.ns})
		return "exit 0", err
	}
	if err := c.provider(t, "c").Launch(t.Context(), o); err == nil {
		t.Error("the launch says that it is done")
	}
	c.empty(t)
}

// TestAJobOfAnother has the name of a unit: it is neither taken for it nor touched.
func TestAJobOfAnother(t *testing.T) {
	t.Parallel()
	c := start(t)
	run := protocol.NewID(protocol.RunPrefix)
	o := fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1",
		Token: func(context.Context) (string, error) { return "wait", nil }}
	mine, others := c.provider(t, "mine"), c.provider(t, "others")
	if err := others.Launch(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var refused *fleet.RefusedError
	if err := mine.Launch(t.Context(), o); !errors.As(err, &refused) {
		t.Errorf("launch: %v, want it refused", err)
	}
	if out, err := mine.Output(t.Context(), o.Unit, 100); err != nil || out != nil {
		t.Errorf("output %q, %v; want nothing of another's", out, err)
	}
	if err := mine.Terminate(t.Context(), o.Unit); err != nil {
		t.Errorf("terminate: %v, want nothing to happen", err)
	}
	if units, err := others.List(t.Context()); err != nil || len(units) != 1 || units[0].State == fleet.Ended {
		t.Errorf("the other's units are %+v, %v; want it there", units, err)
	}
	if err := others.Terminate(t.Context(), o.Unit); err != nil {
		t.Fatal(err)
	}
}

// TestATokenForTheNamespaceAlone is enough to launch: that it may not see the clients,
// nor the version, is a warning.
func TestATokenForTheNamespaceAlone(t *testing.T) {
	t.Parallel()
	c := start(t)
	namespace, _, _ := strings.Cut(policy(t, c.ns), "agent {")
	c.token = c.grant(t, namespace)
	p := c.provider(t, "c")
	if detail, err := p.Probe(t.Context()); err != nil || !strings.Contains(detail, "authSecret t may not read") {
		t.Errorf("probe: %q, %v; want it reachable, and why no version is told", detail, err)
	}
	in, err := p.Inspect(t.Context())
	if err != nil || !in.Reachable || in.Nodes != nil || !slices.Contains(in.Warnings, "authSecret t may not list nodes") {
		t.Errorf("inspect: %+v, %v; want a warning about the nodes", in, err)
	}
}

// TestTheProbeNamesWhatATokenLacks: a token that may do all but one thing is not reported as
// good, whether something runs in the namespace or not.
func TestTheProbeNamesWhatATokenLacks(t *testing.T) {
	t.Parallel()
	c := start(t)
	p := c.provider(t, "c")
	if _, err := p.Probe(t.Context()); err != nil {
		t.Fatalf("probe in an empty namespace: %v", err)
	}
	run := protocol.NewID(protocol.RunPrefix)
	o := fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1",
		Token: func(context.Context) (string, error) { return "wait", nil }}
	if err := p.Launch(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "it has an allocation", func() bool {
		all, err := c.allocs(o.Unit)
		return err == nil && len(all) > 0
	})
	if _, err := p.Probe(t.Context()); err != nil {
		t.Errorf("probe with the rights that the docs name: %v", err)
	}
	c.token = c.grant(t, strings.ReplaceAll(policy(t, c.ns), `, "read-logs"`, ""))
	var auth *fleet.AuthError
	if _, err := c.provider(t, "c").Probe(t.Context()); !errors.As(err, &auth) || !strings.Contains(err.Error(), "may not read logs") {
		t.Errorf("probe without read-logs: %v, want that it may not read logs", err)
	}
	if err := p.Terminate(t.Context(), o.Unit); err != nil {
		t.Fatal(err)
	}
}

// TestAPoolThatIsWatchedAsksForNothing: a list costs the cluster no call, and neither
// does a unit that just runs.
func TestAPoolThatIsWatchedAsksForNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	var calls atomic.Int64
	c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		calls.Add(1)
		forward.ServeHTTP(w, r)
	})
	p := c.provider(t, "c")
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var watched atomic.Bool
	watching.Go(func() {
		if err := p.Watch(ctx, func() { watched.Store(true) }); err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	defer watching.Wait()
	defer stop()
	house.Eventually(t, "the pool is watched", watched.Load)
	run := protocol.NewID(protocol.RunPrefix)
	o := fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1", MemoryMB: 64,
		Token: func(context.Context) (string, error) { return "wait", nil }}
	if err := p.Launch(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	unit := func() (fleet.Unit, bool) {
		units, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(units) == 0 {
			return fleet.Unit{}, false
		}
		return units[0], true
	}
	house.Eventually(t, "it runs", func() bool {
		u, there := unit()
		return there && u.State == fleet.Running
	})
	launched := calls.Load()
	for range 200 {
		unit()
	}
	// What is still under way of the last change.
	if n := calls.Load() - launched; n > 5 {
		t.Errorf("200 lists took %d calls, want none", n)
	}
	if err := p.Terminate(t.Context(), o.Unit); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "it is gone", func() bool {
		_, there := unit()
		return !there
	})
	c.empty(t)
	t.Logf("%d calls to see it launched and running, %d in its life", launched, calls.Load())
}
