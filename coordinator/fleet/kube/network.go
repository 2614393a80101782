package kube

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// networkNone tells a runner that its Pod is held to "network: none".
const networkNone = "EVERDICT_NETWORK"

// closed says whether an order is for a Pod that reaches the coordinator alone.
func closed(o fleet.Order) bool { return o.Network == protocol.NetworkNone }

// lacksNetwork is why Pods are not held to a network policy; empty: they are.
func (c *Config) lacksNetwork() string {
	switch {
	case c.HostNetwork:
		return "Pods are in their node's network, which no network policy holds"
	case len(c.Egress) == 0:
		return "the operator has not said that the cluster enforces network policies (--kube-network-policy)"
	}
	return ""
}

// policy is what lets the Pod of a unit reach the coordinator and nothing else, and
// nobody reach the Pod. Whether it is enforced is up to the cluster's network.
func policy(cfg *Config, j *batchv1.Job) (*netv1.NetworkPolicy, error) {
	port, err := portOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	rule := netv1.NetworkPolicyEgressRule{Ports: []netv1.NetworkPolicyPort{{Protocol: ptr(corev1.ProtocolTCP), Port: ptr(intstr.FromInt32(port))}}}
	for _, cidr := range cfg.Egress {
		rule.To = append(rule.To, netv1.NetworkPolicyPeer{IPBlock: &netv1.IPBlock{CIDR: cidr}})
	}
	return &netv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Labels: j.Labels, OwnerReferences: ownedBy(j)},
		Spec: netv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelManaged: managedBy, labelUnit: j.Labels[labelUnit]}},
			PolicyTypes: []netv1.PolicyType{netv1.PolicyTypeIngress, netv1.PolicyTypeEgress},
			Egress:      []netv1.NetworkPolicyEgressRule{rule},
		},
	}, nil
}

func portOf(address string) (int32, error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, fmt.Errorf("kube: the coordinator's address: %w", err)
	}
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		return 443, nil
	case port == "":
		return 80, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return int32(n), err
}

// aliases are the coordinator's addresses under its name, for a Pod that may not ask a
// name server.
func aliases(ctx context.Context, address string) ([]corev1.HostAlias, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("kube: the coordinator's address: %w", err)
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return nil, nil
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("kube: find the coordinator's address for a Pod without a name server: %w", err)
	}
	var all []corev1.HostAlias
	for _, ip := range found {
		all = append(all, corev1.HostAlias{IP: ip, Hostnames: []string{host}})
	}
	return all, nil
}
