package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everdict/everdict/coordinator/fleet"
)

const (
	// beginsWithin is how long a Pod may take to begin before its node is asked about.
	beginsWithin = 10 * time.Second
	// takenWithin is how long a kubelet may take to acknowledge a Pod, where its node cannot
	// be asked about: about as long as Kubernetes itself waits for a kubelet before it calls
	// the node unready (node-monitor-grace-period, by default 50 s, and 40 s before 1.32).
	takenWithin = 45 * time.Second
	// nodeEvery is how often nodes are asked about, as long as there is a Pod to ask for.
	nodeEvery = 5 * time.Second
	// nodeBound bounds one question, and nodeRound all of one look.
	nodeBound, nodeRound = 5 * time.Second, 15 * time.Second
)

// doubts are what is wrong with the nodes of Pods that have not begun, by Pod. When a node
// is lost, the cluster says nothing of such Pods until it evicts them, five minutes later by
// default.
type doubts map[types.UID]*fleet.Trouble

// followNodes keeps the doubts until ctx ends, and tells when they have changed.
func (p *provider) followNodes(ctx context.Context, pods func() []corev1.Pod, changed func()) {
	defer p.doubts.Store(nil)
	w := newWaits()
	tick := time.NewTicker(nodeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		round, cancel := context.WithTimeout(ctx, nodeRound)
		found := w.doubts(pods(), time.Now(), func(node string) readiness { return p.ready(round, node) })
		cancel()
		before := p.doubts.Swap(&found)
		if before == nil && len(found) > 0 || before != nil && !maps.EqualFunc(*before, found, func(a, b *fleet.Trouble) bool { return a.Message == b.Message }) {
			changed()
		}
	}
}

// waits is what is known of Pods that have a node and have not begun.
type waits struct {
	since map[types.UID]time.Time
	// why is what spoke against each at the look before.
	why map[types.UID]string
}

func newWaits() *waits { return &waits{since: map[types.UID]time.Time{}, why: map[types.UID]string{}} }

// doubts looks at all Pods that there are; the others are forgotten. There is doubt where two
// looks in a row find something: one can come upon a kubelet that is started again, or upon
// Pods from before an outage of the API.
func (w *waits) doubts(pods []corev1.Pod, now time.Time, ready func(node string) readiness) doubts {
	since, why, nodes := map[types.UID]time.Time{}, map[types.UID]string{}, map[string]readiness{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodPending {
			continue
		}
		first, known := w.since[p.UID]
		if !known {
			first = now
		}
		since[p.UID] = first
		waited := now.Sub(first)
		if waited < beginsWithin {
			continue
		}
		node, asked := nodes[p.Spec.NodeName]
		if !asked {
			node = ready(p.Spec.NodeName)
			nodes[p.Spec.NodeName] = node
		}
		switch {
		case node.why != "":
			why[p.UID] = node.why
		case node.hidden && p.Status.StartTime == nil && waited >= takenWithin:
			why[p.UID] = fmt.Sprintf("no kubelet has taken the Pod within %v", takenWithin)
		}
	}
	found := doubts{}
	for i := range pods {
		p := &pods[i]
		if now := why[p.UID]; now != "" && w.why[p.UID] != "" {
			found[p.UID] = &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node " + p.Spec.NodeName + ": " + now, Final: true}
		}
	}
	w.since, w.why = since, why
	return found
}

// readiness is what the cluster says of a node. The zero value is that nothing speaks
// against it.
type readiness struct {
	// why it is not ready.
	why string
	// hidden says that the credential, which may be one of a namespace, may not ask.
	hidden bool
}

func (p *provider) ready(ctx context.Context, name string) readiness {
	ctx, cancel := context.WithTimeout(ctx, nodeBound)
	defer cancel()
	n, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return readiness{why: "the cluster has it no more"}
	case apierrors.IsForbidden(err):
		return readiness{hidden: true}
	case err != nil: // a cluster that does not answer says nothing of its nodes
		p.cfg.Log.Debug("node not seen", "runtime", p.t.Spec.ID, "node", name, "err", err)
		return readiness{}
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 || n.Status.Conditions[i].Status == corev1.ConditionTrue {
		return readiness{}
	}
	return readiness{why: "not ready: " + words(n.Status.Conditions[i].Reason, n.Status.Conditions[i].Message)}
}
