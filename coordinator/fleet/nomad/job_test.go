package nomad

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// TestCPU: thousandths of a core become MHz where the operator says of how many a core
// has, and whole cores where not; never less than was declared.
func TestCPU(t *testing.T) {
	t.Parallel()
	fast := 2600
	for _, c := range []struct {
		name       string
		milli      int
		perCore    *int
		mhz, cores int
	}{
		{"not declared", 0, nil, defaultMHz, 0},
		{"not declared, and known", 0, &fast, defaultMHz, 0},
		{"a quarter", 250, &fast, 650, 0},
		{"rounded up", 1, &fast, 3, 0},
		{"whole cores", 2000, nil, 0, 2},
		{"a part of a core", 50, nil, 0, 1},
		{"a core and a half", 1500, nil, 0, 2},
	} {
		r := resources(&protocol.RuntimeSpec{CPUMHzPerCore: c.perCore}, fleet.Order{CPU: c.milli})
		mhz, cores := 0, 0
		if r.CPU != nil {
			mhz = *r.CPU
		}
		if r.Cores != nil {
			cores = *r.Cores
		}
		if mhz != c.mhz || cores != c.cores {
			t.Errorf("%s: %d MHz, %d cores; want %d, %d", c.name, mhz, cores, c.mhz, c.cores)
		}
	}
}

// TestDevices: what a job declares goes before what the runtime says of all.
func TestDevices(t *testing.T) {
	t.Parallel()
	two := 2
	for want, r := range map[uint64]fleet.Order{2: {}, 1: {GPU: 1}} {
		devices := resources(&protocol.RuntimeSpec{GPU: &two}, r).Devices
		if len(devices) != 1 || devices[0].Name != "nvidia/gpu" || *devices[0].Count != want {
			t.Errorf("order %+v has devices %+v, want %d of nvidia/gpu", r, devices, want)
		}
	}
}

// TestP12_TheTokenGoesToTheClusterAlone: a redirection is not followed, nor does a
// token of the coordinator's own environment go anywhere.
func TestP12_TheTokenGoesToTheClusterAlone(t *testing.T) {
	t.Setenv("NOMAD_TOKEN", "the-operators-own")
	t.Setenv("NOMAD_ADDR", "http://127.0.0.1:1")
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, "elsewhere: "+r.Header.Get("X-Nomad-Token"))
	}))
	defer elsewhere.Close()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, "cluster: "+r.Header.Get("X-Nomad-Token")+r.URL.Query().Get("token"))
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer cluster.Close()
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "n", Addr: cluster.URL, AuthSecret: "token"}
	p, err := New(Config{Secrets: secrets{"token": "the-workspace's"}}).Open(t.Context(), fleet.Target{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.List(t.Context()); err == nil || !strings.Contains(err.Error(), "redirection") {
		t.Errorf("list: %v, want it to say that a redirection is not followed", err)
	}
	if len(got) != 1 || got[0] != "cluster: the-workspace's" {
		t.Errorf("requests %q, want one, with the token of the workspace in its header", got)
	}
}

type secrets map[string]string

func (s secrets) Secret(_ context.Context, _, name string) (string, error) { return s[name], nil }

// TestP12_NoTokenInTheJob: whatever the spec says, what is registered holds no token.
func TestP12_NoTokenInTheJob(t *testing.T) {
	t.Parallel()
	for _, spec := range []protocol.RuntimeSpec{
		{Kind: protocol.RuntimeNomad, ID: "n", Image: "i:1", AuthSecret: "cluster"},
		{Kind: protocol.RuntimeNomad, ID: "n", Driver: protocol.NomadRawExec, Command: "/bin/job-runner", AuthSecret: "cluster"},
	} {
		j := newJob(&Config{}, fleet.Target{Coordinator: "c", Workspace: "w", Spec: &spec}, fleet.Order{Unit: "everdict-x-1", URL: "http://c", Image: ""}, false)
		doc, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, never := range []string{"cluster", protocol.JoinTokenPrefix} {
			if strings.Contains(string(doc), never) {
				t.Errorf("the job has %q in it: %s", never, doc)
			}
		}
		given := fleet.Order{Unit: "everdict-x-1", Payload: func(context.Context) ([]byte, error) { return nil, nil }}
		if j := newJob(&Config{}, fleet.Target{Coordinator: "c", Workspace: "w", Spec: &spec}, given, false); len(j.TaskGroups[0].Tasks[0].Templates) > 0 {
			t.Errorf("the runner's own task has the payload rendered: it may be again, beside the job")
		}
		if j.TaskGroups[0].Tasks[0].Driver != spec.TaskDriver() {
			t.Errorf("driver %s, want %s", j.TaskGroups[0].Tasks[0].Driver, spec.TaskDriver())
		}
	}
}

// TestAUnitOfATrustZone: what the operator's policy and a unit without a run ask for is in
// the job that the cluster gets.
func TestAUnitOfATrustZone(t *testing.T) {
	t.Parallel()
	declared := protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "n", Image: "i:1", Warm: 1}
	spec, err := fleet.Isolation{Mode: fleet.IsolationPerTenant}.Apply("acme", &declared)
	if err != nil {
		t.Fatal(err)
	}
	o := fleet.Order{Unit: fleet.StandingName(), URL: "http://c", Note: `{"spec":"1"}`, Env: map[string]string{fleet.EnvFirst: "12h0m0s"}}
	j := newJob(&Config{}, fleet.Target{Coordinator: "c", Workspace: "acme", Spec: spec}, o, false)
	work := j.TaskGroups[0].Tasks[0]
	if *j.Namespace != "everdict-acme" || work.Config["runtime"] != fleet.DefaultTrustZoneRuntime {
		t.Errorf("namespace %s, runtime %v; want everdict-acme and %s", *j.Namespace, work.Config["runtime"], fleet.DefaultTrustZoneRuntime)
	}
	if j.Meta[metaNote] != o.Note || j.Meta[metaRun] != "" || work.Env[fleet.EnvFirst] != "12h0m0s" {
		t.Errorf("meta %v, variables %v; want the unit's note, no run, and how long it waits for its first", j.Meta, work.Env)
	}
}
