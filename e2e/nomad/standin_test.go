package nomad

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/nomad"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/e2e/nomad/standin"
	"github.com/everdict/everdict/protocol"
)

// two are a pair of clients.
func two(c *standin.Config) {
	c.Clients = []standin.Client{{Name: "a", MHz: 4000, Cores: 4, MemoryMB: 4096}, {Name: "b", MHz: 4000, Cores: 4, MemoryMB: 4096}}
}

// old is a Nomad without the disconnect block.
func old(c *standin.Config) { c.Version = "1.6.1" }

// TestStandin_TheClusterDiesAndReturns: a run in its allocation does not notice, one
// that comes meanwhile is told why it waits, and is launched when the cluster is back.
func TestStandin_TheClusterDiesAndReturns(t *testing.T) {
	t.Parallel()
	c := pretend(t)
	h := launching(t, c)
	first, open := waiting(t, h)
	c.standin.Down()
	second := h.Submit(on("say hello"))
	h.Blocked(second, "cannot see what runs on its cluster: nomad: list jobs")
	if p := h.Probe("cluster"); p.Reachable || p.Reason != protocol.ProbeUnreachable {
		t.Errorf("probe: %+v, want it unreachable", p)
	}
	open()
	house.Done(t, h.Settled(first))
	if err := c.standin.Up(); err != nil {
		t.Fatal(err)
	}
	house.Done(t, h.Settled(second))
	c.empty(t)
}

// TestStandin_P5_AResultOfAClusterThatWasAway: the output is not to be had for a moment
// after the cluster is back ("No path to node"), and the result is taken all the same.
func TestStandin_P5_AResultOfAClusterThatWasAway(t *testing.T) {
	t.Parallel()
	c := pretend(t)
	h, id := untaken(t, c)
	c.standin.Down()
	if err := c.standin.Up(); err != nil {
		t.Fatal(err)
	}
	h.Start()
	house.Done(t, h.Settled(id))
	c.empty(t)
}

// TestStandin_F17_Preempted: the run may end in the time that its runner drains. What
// Nomad runs in its place once there is room does not get it.
func TestStandin_F17_Preempted(t *testing.T) {
	t.Parallel()
	c := pretend(t)
	h := launching(t, c)
	id, open := waiting(t, h)
	unit := fleet.UnitName(id, 1)
	c.standin.Preempt(c.ns, unit)
	house.Eventually(t, "it is told to end", func() bool {
		all, err := c.allocs(unit)
		return err == nil && len(all[0].TaskStates["runner"].Events) > 3 && all[0].DesiredStatus == api.AllocDesiredStatusEvict
	})
	open()
	house.Done(t, h.Settled(id))
	c.empty(t)
}

// TestStandin_AClientIsLost: its containers still run, and so does the run, which has
// its lease from its runner and not from the cluster. Nothing is run a second time.
func TestStandin_AClientIsLost(t *testing.T) {
	t.Parallel()
	c := pretend(t, two)
	h := launching(t, c)
	id, open := waiting(t, h)
	unit := fleet.UnitName(id, 1)
	c.standin.Lose("a")
	house.Eventually(t, "the cluster does not know about the unit", func() bool {
		in, err := h.Client.InspectRuntime(t.Context(), "cluster", protocol.Latest)
		return err == nil && strings.Contains(strings.Join(in.Warnings, "\n"), "alloc is unknown since its node is disconnected")
	})
	open()
	house.Done(t, h.Settled(id))
	if all, err := c.allocs(unit); err != nil || len(all) > 1 {
		t.Errorf("%d allocations, %v; want it run once", len(all), err)
	}
	c.standin.Find("a")
	c.empty(t)
}

// TestStandin_AUnitIsStartedTwice: an older Nomad runs the allocation of a lost client
// again, on another client, whatever the job says. The second runner does not get the
// run, whose token is used up, and is stopped; the first goes on with it.
func TestStandin_AUnitIsStartedTwice(t *testing.T) {
	t.Parallel()
	c := pretend(t, two, old)
	h := launching(t, c)
	id, open := waiting(t, h)
	unit := fleet.UnitName(id, 1)
	c.standin.Lose("a")
	var second *api.AllocationListStub
	house.Eventually(t, "the second allocation has ended", func() bool {
		all, err := c.allocs(unit)
		for _, a := range all {
			if a.NodeName == "b" {
				second = a
			}
		}
		return err == nil && second != nil && (second.ClientStatus == api.AllocClientStatusComplete || second.ClientStatus == api.AllocClientStatusFailed)
	})
	if run := h.Run(id); run.Status != protocol.StatusRunning || run.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d, %+v; want it to go on", run.Status, run.Attempt, run.Failure)
	}
	open()
	house.Done(t, h.Settled(id))
	c.standin.Find("a")
	c.empty(t)
}

// TestStandin_ALostClientReturns: an older Nomad stops what ran there, and runs it again
// beside it. The run is tried again, once, in a unit of its own.
func TestStandin_ALostClientReturns(t *testing.T) {
	t.Parallel()
	c := pretend(t, old)
	h := launching(t, c, expiring)
	id, open := waiting(t, h)
	c.standin.Lose("client-1")
	c.standin.Find("client-1")
	h.Until(id, "the second attempt runs", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt == 2 })
	open()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 2 || run.Provenance.RunnerLabel != fleet.UnitName(id, 2) {
		t.Errorf("the run is %s, attempt %d, by %s, %+v; want it done in the second unit", run.Status, run.Attempt, run.Provenance.RunnerLabel, run.Failure)
	}
	c.empty(t)
}

// TestStandin_F9_AQuota: the run says what the cluster says, and goes on when there is
// room.
func TestStandin_F9_AQuota(t *testing.T) {
	t.Parallel()
	c := pretend(t)
	h := launching(t, c, patient)
	c.standin.Quota(c.ns, 32)
	id := h.Submit(on("say hello"))
	h.Blocked(id, `quota: No nodes were eligible for evaluation; Quota limit hit "memory exhausted (64 needed > 32 limit)"`)
	c.standin.Quota(c.ns, 0)
	house.Done(t, h.Settled(id))
	c.empty(t)
}

// TestStandin_ACertificateThatHasExpired: the probe says so.
func TestStandin_ACertificateThatHasExpired(t *testing.T) {
	t.Parallel()
	cert := expired(t)
	s, err := standin.Start(standin.Config{Dir: t.TempDir(), Certificate: &cert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := house.New(t)
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: s.URL(), Image: "any:1"})
	if p := h.Probe("cluster"); p.Reachable || p.Reason != protocol.ProbeUnreachable || !strings.Contains(p.Detail, "certificate has expired") {
		t.Errorf("probe: %+v, want the certificate named", p)
	}
}

// expired is a certificate of loopback that was good until an hour ago.
func expired(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nomad"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestStandin_AnAddressThatSwallows: the probe ends at its own bound.
func TestStandin_AnAddressThatSwallows(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: swallow(t), Image: "any:1"})
	if p := h.Probe("cluster"); p.Reachable || p.Reason != protocol.ProbeUnreachable || !strings.Contains(p.Detail, "no answer within") {
		t.Errorf("probe: %+v, want it unreachable at the bound", p)
	}
}

// TestStandin_ANomadThatIsTooOld: the probe says so, and which would do.
func TestStandin_ANomadThatIsTooOld(t *testing.T) {
	t.Parallel()
	s, err := standin.Start(standin.Config{Dir: t.TempDir(), Version: "1.4.14"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: s.URL(), Image: "any:1"}
	p, err := fleet.Prober{Opener: nomad.New(nomad.Config{})}.Probe(context.Background(), "default", &spec)
	if err != nil || p.Reachable || p.Reason != protocol.ProbeError || !strings.Contains(p.Detail, "1.6 or newer") {
		t.Errorf("probe: %+v, %v; want the version named", p, err)
	}
}

// TestStandin_WithoutACLs: no secret is needed, and the version is told.
func TestStandin_WithoutACLs(t *testing.T) {
	t.Parallel()
	s, err := standin.Start(standin.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: s.URL(), Image: "any:1"}
	p, err := fleet.Prober{Opener: nomad.New(nomad.Config{})}.Probe(context.Background(), "default", &spec)
	if err != nil || !p.Reachable || p.Detail != "nomad 1.8.2" {
		t.Errorf("probe: %+v, %v; want nomad 1.8.2", p, err)
	}
	spec.Namespace, spec.Constraints = "default", []protocol.Constraint{{Attribute: "a", Operator: "about", Value: "b"}}
	provider, err := nomad.New(nomad.Config{}).Open(t.Context(), fleet.Target{Coordinator: "c", Workspace: "w", Spec: &spec})
	if err != nil {
		t.Fatal(err)
	}
	err = provider.Launch(t.Context(), fleet.Order{Unit: fleet.UnitName("run_1", 1), Job: "run_1", Attempt: 1})
	if err == nil || !strings.Contains(err.Error(), `Unknown constraint type "about"`) {
		t.Errorf("launch: %v, want the job refused in the cluster's words", err)
	}
}
