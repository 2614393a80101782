package nomad

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

const (
	// probeUnit is the name of a unit that never is.
	probeUnit = prefix + "probe"
	// The oldest Nomad that was seen to do what units need.
	oldestMajor, oldestMinor = 1, 6
)

// Probe implements fleet.Provider: the version, and that the token permits what a launch
// does. Nomad does not say what a token may, so each thing is asked for in a way that
// changes nothing.
func (p *provider) Probe(ctx context.Context) (string, error) {
	version, err := p.version(ctx)
	if err != nil {
		return "", err
	}
	// A variable is written only if it is as it never is.
	never := uint64(math.MaxUint64)
	job := newJob(&p.cfg, p.t, fleet.Order{Unit: probeUnit}, true)
	for _, may := range []struct {
		action string
		ask    func() error
	}{
		{"list jobs", func() error {
			_, _, err := p.client.Jobs().List((&api.QueryOptions{Prefix: probeUnit}).WithContext(ctx))
			return err
		}},
		{"read jobs", func() error { _, _, err := p.client.Jobs().Info(probeUnit, p.read(ctx)); return err }},
		{"submit jobs", func() error { _, _, err := p.client.Jobs().Plan(job, false, p.write(ctx)); return err }},
		{"write variables at nomad/jobs/" + prefix + "*", func() error {
			_, _, err := p.client.Variables().CheckedUpdate(&api.Variable{Namespace: p.namespace, Path: variable(probeUnit, nil),
				ModifyIndex: never, Items: api.VariableItems{tokenItem: "none"}}, p.write(ctx))
			return err
		}},
		{"destroy variables at nomad/jobs/" + prefix + "*", func() error {
			_, err := p.client.Variables().CheckedDelete(variable(probeUnit, nil), never, p.write(ctx))
			return err
		}},
		{"read logs", func() error { return p.readAnyLog(ctx) }},
	} {
		if err := p.permitted(may.action, may.ask()); err != nil {
			return "", err
		}
	}
	if version == "" {
		return fmt.Sprintf("nomad, whose version %s may not read (agent: read)", p.credential), nil
	}
	return "nomad " + version, nil
}

// readAnyLog asks for the log of a task that never is, in an allocation of the namespace if
// there is one: of one that is not there some versions say just that, whoever asks.
func (p *provider) readAnyLog(ctx context.Context) error {
	alloc := "00000000-0000-0000-0000-000000000000"
	all, _, err := p.client.Allocations().List((&api.QueryOptions{PerPage: 1}).WithContext(ctx))
	if err != nil {
		return err
	}
	if len(all) > 0 {
		alloc = all[0].ID
	}
	body, err := p.client.Raw().Response("/v1/client/fs/logs/"+alloc+"?"+url.Values{"task": {probeUnit}, "type": {"stdout"}, "plain": {"true"}}.Encode(), p.read(ctx))
	switch code := status(err); {
	case err == nil:
		return body.Close()
	case code == 0, code == http.StatusForbidden, code == http.StatusUnauthorized:
		return err
	}
	return nil // that the log cannot be had comes after the question who may
}

// permitted is nil where the cluster said anything but that the token may not.
func (p *provider) permitted(action string, err error) error {
	var conflict api.ErrCASConflict
	switch code := status(err); {
	case err == nil, errors.As(err, &conflict), code == http.StatusNotFound:
		return nil
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		return &fleet.AuthError{Credential: p.credential, Err: fmt.Errorf("%d: it may not %s in namespace %s", code, action, p.namespace)}
	case code != 0:
		return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: fmt.Sprintf("nomad: %s in namespace %s: %v", action, p.namespace, err)}
	}
	return p.err(action, err)
}

// version is what the asked server runs; empty if the token may not know, which is no
// harm.
func (p *provider) version(ctx context.Context) (string, error) {
	var self api.AgentSelf
	_, err := p.client.Raw().Query("/v1/agent/self", &self, p.read(ctx))
	switch {
	case status(err) == http.StatusForbidden:
		return "", p.known(ctx)
	case err != nil:
		return "", p.err("ask for the version", err)
	}
	version := self.Member.Tags["build"]
	if version == "" {
		return "", errors.New("nomad: what answers is no Nomad agent")
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		return "", &fleet.RefusedError{Cause: fleet.CausePolicy, Message: fmt.Sprintf(
			"nomad %s is too old: units need %d.%d or newer, whose lists of jobs have their meta", version, oldestMajor, oldestMinor)}
	}
	return version, nil
}

// known says whether the cluster knows the token at all.
func (p *provider) known(ctx context.Context) error {
	_, _, err := p.client.ACLTokens().Self(p.read(ctx))
	return p.err("ask whose token it is", err)
}

// Inspect implements fleet.Provider.
func (p *provider) Inspect(ctx context.Context) (protocol.Inspection, error) {
	version, err := p.version(ctx)
	if err != nil {
		return protocol.Inspection{}, err
	}
	in := protocol.Inspection{Kind: protocol.RuntimeNomad, Reachable: true, Detail: "nomad", Warnings: []string{},
		Cluster: &protocol.InspectCluster{Version: version, Namespace: p.namespace}}
	if version != "" {
		in.Detail += " " + version
	} else {
		in.Warnings = append(in.Warnings, p.credential+" may not read the agent's version")
	}
	nodes, _, err := p.client.Nodes().List((&api.QueryOptions{Params: map[string]string{"resources": "true", "os": "true"}}).WithContext(ctx))
	switch err := p.err("list nodes", err); err.(type) {
	case nil:
		in.Nodes = p.inspectNodes(nodes, &in)
	case *fleet.AuthError: // a token for one namespace is enough to launch
		in.Warnings = append(in.Warnings, p.credential+" may not list nodes")
	default:
		return in, err
	}
	list, err := p.List(ctx)
	if err != nil {
		return in, err
	}
	fleet.Show(&in, p.t, list, p.namespace, "Job")
	return in, nil
}

// inspectNodes says of each client what it is, and warns if none has the driver.
func (p *provider) inspectNodes(nodes []*api.NodeListStub, in *protocol.Inspection) *protocol.InspectNodes {
	all := &protocol.InspectNodes{Total: len(nodes), Items: []protocol.InspectNode{}}
	driver := p.t.Spec.TaskDriver()
	able := 0
	for _, n := range nodes {
		item := protocol.InspectNode{Name: n.Name, Status: n.Status, Ready: n.Status == api.NodeStatusReady, AgentVersion: n.Version, Address: n.Address,
			Schedulable: n.SchedulingEligibility == api.NodeSchedulingEligible && !n.Drain, OS: n.Attributes["os.name"]}
		if r := n.NodeResources; r != nil {
			item.CPUTotal, item.MemoryMBTotal = int64(r.Cpu.TotalCpuCores)*1000, r.Memory.MemoryMB
			for _, d := range r.Devices {
				if d.Type == "gpu" {
					item.GPUTotal += int64(len(d.Instances))
				}
			}
		}
		healthy := n.Drivers[driver] != nil && n.Drivers[driver].Healthy
		if healthy {
			item.ContainerRuntime = driver
		}
		if item.Ready {
			all.Ready++
			if healthy {
				able++
			}
		}
		all.Items = append(all.Items, item)
	}
	switch {
	case all.Ready == 0:
		in.Warnings = append(in.Warnings, "no node is ready")
	case able == 0:
		in.Warnings = append(in.Warnings, "no ready node has a healthy driver "+driver)
	}
	return all
}
