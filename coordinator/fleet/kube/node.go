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
	// be asked about: as long as Kubernetes itself waits for a kubelet before it calls the
	// node unready (node-monitor-grace-period, 50 s or 40 s).
	takenWithin = 45 * time.Second
	// nodeEvery is how often nodes are asked about, as long as there is a Pod to ask for.
	nodeEvery = 5 * time.Second
	// nodeBound bounds one question.
	nodeBound = 5 * time.Second
)

// doubts are what is wrong with the nodes of Pods that have not begun, by Pod. When a node
// is lost, the cluster says nothing of such Pods until it evicts them, five minutes later by
// default.
type doubts map[types.UID]*fleet.Trouble

// followNodes keeps the doubts until ctx ends, and tells when they have changed.
func (p *provider) followNodes(ctx context.Context, pods func() []corev1.Pod, changed func()) {
	defer p.doubts.Store(nil)
	w := waits{}
	tick := time.NewTicker(nodeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			found := w.doubts(pods(), now, func(node string) readiness { return p.ready(ctx, node) })
			before := p.doubts.Swap(&found)
			if before == nil && len(found) > 0 || before != nil && !maps.EqualFunc(*before, found, func(a, b *fleet.Trouble) bool { return a.Message == b.Message }) {
				changed()
			}
		}
	}
}

// waits is since when Pods have had a node and not begun.
type waits map[types.UID]time.Time

// doubts looks at all Pods that there are; the others are forgotten.
func (w waits) doubts(pods []corev1.Pod, now time.Time, ready func(node string) readiness) doubts {
	found, there, nodes := doubts{}, map[types.UID]bool{}, map[string]readiness{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodPending {
			continue
		}
		there[p.UID] = true
		since, known := w[p.UID]
		if !known {
			since = now
			w[p.UID] = now
		}
		waited := now.Sub(since)
		if waited < beginsWithin {
			continue
		}
		node, asked := nodes[p.Spec.NodeName]
		if !asked {
			node = ready(p.Spec.NodeName)
			nodes[p.Spec.NodeName] = node
		}
		why := node.why
		if node.hidden && p.Status.StartTime == nil && waited >= takenWithin {
			why = fmt.Sprintf("no kubelet has taken the Pod within %v", takenWithin)
		}
		if why != "" {
			found[p.UID] = &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node " + p.Spec.NodeName + ": " + why, Final: true}
		}
	}
	maps.DeleteFunc(w, func(uid types.UID, _ time.Time) bool { return !there[uid] })
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
