package kube

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator/fleet"
)

// The policy of a unit lets its Pod out to the coordinator's addresses and port, and
// nobody in.
func TestPolicy(t *testing.T) {
	t.Parallel()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: "uid", Labels: map[string]string{labelManaged: managedBy, labelUnit: "u"}}}
	for url, port := range map[string]int{"https://e.example": 443, "http://e.example": 80, "https://10.0.0.7:8787": 8787} {
		p, err := policy(&Config{URL: url, Egress: []string{"10.0.0.7/32", "10.0.0.8/32"}}, j)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Spec
		if len(s.PolicyTypes) != 2 || len(s.Ingress) != 0 || len(s.Egress) != 1 || len(s.Egress[0].To) != 2 || s.Egress[0].To[0].IPBlock.CIDR != "10.0.0.7/32" ||
			len(s.Egress[0].Ports) != 1 || s.Egress[0].Ports[0].Port.IntValue() != port || s.PodSelector.MatchLabels[labelUnit] != "u" || p.OwnerReferences[0].UID != "uid" {
			t.Errorf("%s: %+v, want port %d of two ranges and nothing else, for the unit, owned by its Job", url, p, port)
		}
		if s.PolicyTypes[0] != netv1.PolicyTypeIngress || s.PolicyTypes[1] != netv1.PolicyTypeEgress {
			t.Errorf("policy types %v", s.PolicyTypes)
		}
	}
}

// A Pod is held to no network only where the operator has said that the cluster does it.
func TestLacks(t *testing.T) {
	t.Parallel()
	egress := []string{"10.0.0.7/32"}
	for _, c := range []struct {
		cfg     Config
		feature fleet.Feature
		lacks   bool
	}{
		{Config{}, fleet.FeatureNoNetwork, true},
		{Config{Egress: egress}, fleet.FeatureNoNetwork, false},
		{Config{Egress: egress, HostNetwork: true}, fleet.FeatureNoNetwork, true},
		{Config{}, fleet.FeatureReuse, false},
		{Config{User: -1}, fleet.FeatureReuse, true},
	} {
		if why := New(c.cfg).Lacks(c.feature); (why != "") != c.lacks {
			t.Errorf("%+v lacks %q: %q, want %v", c.cfg, c.feature, why, c.lacks)
		}
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	if got, err := aliases(t.Context(), "http://10.0.0.7:80"); err != nil || got != nil {
		t.Errorf("an address: %v, %v; want none", got, err)
	}
	got, err := aliases(t.Context(), "http://localhost:80")
	if err != nil || len(got) == 0 || got[0].Hostnames[0] != "localhost" || got[0].IP == "" {
		t.Errorf("a name: %v, %v; want its addresses", got, err)
	}
}
