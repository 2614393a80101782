package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

func TestIsolation(t *testing.T) {
	t.Parallel()
	perTenant := fleet.Isolation{Mode: fleet.IsolationPerTenant}
	for name, c := range map[string]struct {
		policy    fleet.Isolation
		workspace string
		spec      protocol.RuntimeSpec
		encloses  string // the container runtime and the namespace of its units
		namespace string
		refused   string
	}{
		"as declared":        {spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, RuntimeClass: "runc", Namespace: "x"}, encloses: "runc", namespace: "x"},
		"nothing declared":   {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s}, encloses: "gvisor", namespace: "everdict-acme"},
		"another default":    {policy: fleet.Isolation{Mode: fleet.IsolationPerTenant, Runtime: "kata"}, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s}, encloses: "kata", namespace: "everdict-acme"},
		"hardened":           {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, RuntimeClass: "kata", Namespace: "everdict-acme"}, encloses: "kata", namespace: "everdict-acme"},
		"not hardened":       {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, RuntimeClass: "runc"}, refused: "runtimeClass runc is none of"},
		"another namespace":  {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, Namespace: "everdict-other"}, refused: "name everdict-acme"},
		"no name for one":    {policy: perTenant, workspace: "A_b", spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s}, refused: "everdict-A_b, which no cluster can have"},
		"nomad":              {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeNomad}, encloses: "runsc", namespace: "everdict-acme"},
		"nomad not hardened": {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, Runtime: "runc"}, refused: "runtime runc is none of"},
		"no container":       {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, Driver: protocol.NomadRawExec}, refused: "driver raw_exec runs its jobs in no container"},
		"no units":           {policy: perTenant, spec: protocol.RuntimeSpec{Kind: protocol.RuntimeLocal}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workspace := c.workspace
			if workspace == "" {
				workspace = "acme"
			}
			c.spec.ID = "prod"
			before := c.spec
			got, err := c.policy.Apply(workspace, &c.spec)
			if c.refused != "" {
				var p *protocol.Problem
				if !errors.As(err, &p) || p.Code != protocol.CodeBadRequest || !strings.Contains(p.Message, "runtime prod does not meet") || !strings.Contains(p.Message, c.refused) {
					t.Errorf("%v, want a 400 with %q", err, c.refused)
				}
				if _, err := fleet.Isolate(fleettest.NewCluster(fleettest.Config{}), c.policy).Open(t.Context(), fleet.Target{Workspace: workspace, Spec: &c.spec}); err == nil {
					t.Error("its cluster is opened all the same")
				}
				return
			}
			if err != nil || got.RuntimeClass+got.Runtime != c.encloses || got.Namespace != c.namespace {
				t.Errorf("%+v, %v; want units in %s, %s", got, err, c.encloses, c.namespace)
			}
			if c.spec.Namespace != before.Namespace || c.spec.RuntimeClass != before.RuntimeClass {
				t.Error("the registered spec was changed")
			}
		})
	}
	for _, i := range []fleet.Isolation{{Mode: "per-planet"}, {Mode: fleet.IsolationPerTenant, Runtime: "runc"}} {
		if err := i.Check(); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%+v: %v, want it refused with what there is", i, err)
		}
	}
}

// opener is one that says what its units do not hold.
type opener struct {
	fleet.Opener
	lacks string
}

func (o opener) Lacks(fleet.Feature) string { return o.lacks }

type plain struct{}

func (plain) Open(context.Context, fleet.Target) (fleet.Provider, error) {
	return nil, errors.New("no")
}

func TestChecker(t *testing.T) {
	t.Parallel()
	c := fleet.Checker{Openers: map[string]fleet.Opener{protocol.RuntimeK8s: opener{plain{}, ""}, protocol.RuntimeNomad: plain{}}, NotLaunched: map[string]fleet.NotLaunched{protocol.RuntimeLocal: {Where: "on its own machine", Why: "nobody said so"}, "another": {Where: "there", Why: "it has no address"}}}
	for name, row := range map[string]struct {
		kind    string
		idle    int
		network string
		refused string
	}{
		"held":                 {protocol.RuntimeK8s, 10, protocol.NetworkNone, ""},
		"runners used again":   {protocol.RuntimeNomad, 10, "", "its runners take one run each"},
		"one run each":         {protocol.RuntimeNomad, 0, protocol.NetworkPublic, ""},
		"no network":           {protocol.RuntimeNomad, 0, protocol.NetworkNone, `does not hold network "none"`},
		"a list of hosts":      {protocol.RuntimeK8s, 0, protocol.NetworkAllowlist, "no list of hosts"},
		"runners of one's own": {protocol.RuntimeLocal, 0, protocol.NetworkNone, ""},
		"launched nowhere":     {"another", 10, "", "it launches none there: it has no address (leave"},
		"used again by nobody": {protocol.RuntimeLocal, 10, "", "it launches none on its own machine: nobody said so"},
	} {
		spec := &protocol.RuntimeSpec{Kind: row.kind, ID: "prod", IdleSeconds: row.idle}
		err := errors.Join(c.Spec("acme", spec), c.Network(spec, row.network))
		if row.refused == "" && err != nil || row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused) || !strings.Contains(err.Error(), "runtime prod")) {
			t.Errorf("%s: %v, want %q", name, err, row.refused)
		}
	}
}

// A runtime that was registered before the operator's policy is refused when a run names
// it.
func TestRefuses(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "prod"}
		if err := w.f.Refuses("default", spec, ""); err != nil {
			t.Errorf("%v, want it taken", err)
		}
		if err := w.f.Refuses("default", spec, protocol.NetworkAllowlist); err == nil {
			t.Error("a list of hosts is taken")
		}
		spec.ID = "another, which nobody launches for"
		if err := w.f.Refuses("default", spec, protocol.NetworkAllowlist); err != nil {
			t.Errorf("%v, want it left to the runners that somebody starts", err)
		}
	})
}
