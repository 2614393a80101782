package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// right is what of one resource a credential must permit. The Role in deploy/kubernetes says
// the same.
type right struct {
	group, resource, subresource string
	verbs                        []string
}

// needed is what launching, watching, reading and removing units asks of a cluster.
var needed = []right{
	{"batch", "jobs", "", []string{"create", "get", "list", "watch", "patch", "delete"}},
	{"", "secrets", "", []string{"create", "delete"}},
	{"", "pods", "", []string{"list", "watch", "deletecollection"}},
	{"", "pods", "log", []string{"get"}},
	{"", "events", "", []string{"list", "watch"}},
}

// neededForPolicies is needed too, where Pods are held to network policies.
var neededForPolicies = right{"networking.k8s.io", "networkpolicies", "", []string{"create"}}

func (r right) String() string {
	if r.subresource != "" {
		return r.resource + "/" + r.subresource
	}
	return r.resource
}

// probeUnit is the name of a unit that never is.
const probeUnit = "everdict-probe"

// Probe implements fleet.Provider: the version, that the credential permits all that units
// need, and that a Job would be taken.
func (p *provider) Probe(ctx context.Context) (string, error) {
	v, err := p.version(ctx)
	if err != nil {
		return "", err
	}
	rights := needed
	if p.cfg.lacksNetwork() == "" {
		rights = append(slices.Clone(rights), neededForPolicies)
	}
	missing, err := p.missing(ctx, rights)
	if err != nil {
		return "", p.err("ask what the credential permits", err)
	}
	if len(missing) > 0 {
		return "", &fleet.AuthError{Credential: p.credential, Err: fmt.Errorf("403: it may not %s in namespace %s", strings.Join(missing, "; "), p.namespace)}
	}
	if err := p.rehearse(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("kubernetes %s, namespace %s", v, p.namespace), nil
}

// rehearse has the cluster admit a Job without making it: the namespace has to be there,
// and policies may have a word. A quota that has no room now may have it later.
func (p *provider) rehearse(ctx context.Context) error {
	_, err := p.client.BatchV1().Jobs(p.namespace).Create(ctx, job(&p.cfg, p.t, fleet.Order{Unit: probeUnit}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if overQuota(err) || apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run") {
		return nil
	}
	return p.unmade("create a Job, as a dry run", err)
}

// missing are the rights that the credential does not have, by resource. The cluster is
// asked for all at a time: a probe has a bound.
func (p *provider) missing(ctx context.Context, rights []right) ([]string, error) {
	denied := make([][]bool, len(rights))
	all, ctx := errgroup.WithContext(ctx)
	for i, r := range rights {
		denied[i] = make([]bool, len(r.verbs))
		for j, verb := range r.verbs {
			all.Go(func() error {
				review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
					Namespace: p.namespace, Group: r.group, Resource: r.resource, Subresource: r.subresource, Verb: verb,
				}}}
				answer, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				if err == nil {
					denied[i][j] = !answer.Status.Allowed
				}
				return err
			})
		}
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	var missing []string
	for i, r := range rights {
		var verbs []string
		for j, verb := range r.verbs {
			if denied[i][j] {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			missing = append(missing, strings.Join(verbs, ", ")+" "+r.String())
		}
	}
	return missing, nil
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
