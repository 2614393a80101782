package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// needed is what a launch does, each of which the credential must permit.
var needed = []authv1.ResourceAttributes{
	{Group: "batch", Resource: "jobs", Verb: "create"},
	{Group: "batch", Resource: "jobs", Verb: "patch"},
	{Group: "batch", Resource: "jobs", Verb: "delete"},
	{Group: "batch", Resource: "jobs", Verb: "watch"},
	{Resource: "secrets", Verb: "create"},
	{Resource: "secrets", Verb: "delete"},
	{Resource: "pods", Verb: "watch"},
	{Resource: "pods", Subresource: "log", Verb: "get"},
	{Resource: "events", Verb: "watch"},
}

// Probe implements fleet.Provider: the version, and that the credential permits what a
// launch does.
func (p *provider) Probe(ctx context.Context) (string, error) {
	v, err := p.version(ctx)
	if err != nil {
		return "", err
	}
	rights := needed
	if p.cfg.lacksNetwork() == "" {
		rights = append(slices.Clone(rights), authv1.ResourceAttributes{Group: "networking.k8s.io", Resource: "networkpolicies", Verb: "create"})
	}
	for _, a := range rights {
		a.Namespace = p.namespace
		review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		answer, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return "", p.err("ask what the credential permits", err)
		}
		if !answer.Status.Allowed {
			what := a.Resource
			if a.Subresource != "" {
				what += "/" + a.Subresource
			}
			return "", &fleet.AuthError{Credential: p.credential, Err: fmt.Errorf("403: it may not %s %s in namespace %s", a.Verb, what, p.namespace)}
		}
	}
	return fmt.Sprintf("kubernetes %s, namespace %s", v, p.namespace), nil
}

func (p *provider) version(ctx context.Context) (string, error) {
	b, err := p.client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", p.err("ask for the version", err)
	}
	var v version.Info
	if err := json.Unmarshal(b, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("kube: what answers is no Kubernetes API server")
	}
	return v.GitVersion, nil
}

// Inspect implements fleet.Provider.
func (p *provider) Inspect(ctx context.Context) (protocol.Inspection, error) {
	v, err := p.version(ctx)
	if err != nil {
		return protocol.Inspection{}, err
	}
	in := protocol.Inspection{Kind: protocol.RuntimeK8s, Reachable: true, Detail: "kubernetes " + v, Warnings: []string{},
		Cluster: &protocol.InspectCluster{Version: v, Namespace: p.namespace}}
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	switch err := p.err("list nodes", err); err.(type) {
	case nil:
		in.Nodes = inspectNodes(nodes.Items)
		if in.Nodes.Ready == 0 {
			in.Warnings = append(in.Warnings, "no node is ready")
		}
	case *fleet.AuthError: // a credential for one namespace is enough to launch
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

func inspectNodes(nodes []corev1.Node) *protocol.InspectNodes {
	all := &protocol.InspectNodes{Total: len(nodes), Items: []protocol.InspectNode{}}
	for i := range nodes {
		n := &nodes[i]
		info := n.Status.NodeInfo
		item := protocol.InspectNode{
			Name: n.Name, Status: "NotReady", Schedulable: !n.Spec.Unschedulable,
			CPUTotal: n.Status.Allocatable.Cpu().MilliValue(), MemoryMBTotal: n.Status.Allocatable.Memory().Value() >> 20,
			OS: info.OperatingSystem, Arch: info.Architecture, Kernel: info.KernelVersion,
			ContainerRuntime: info.ContainerRuntimeVersion, AgentVersion: info.KubeletVersion,
		}
		if gpu, ok := n.Status.Allocatable[gpuResource]; ok {
			item.GPUTotal = gpu.Value()
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				item.Address = a.Address
			}
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				item.Status, item.Ready = "Ready", true
				all.Ready++
			}
		}
		all.Items = append(all.Items, item)
	}
	return all
}
