package kube

import (
	"context"
	"fmt"
	"sync"
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
	// takenWithin is how long a kubelet may take to acknowledge a Pod.
	takenWithin = 30 * time.Second
	// nodeAge is how old an answer about a node may be.
	nodeAge = 5 * time.Second
)

// bound are the Pods that have a node and have not begun. When their node is lost, the
// cluster says nothing of them until it evicts them, five minutes later by default.
type bound struct {
	now func() time.Time
	// ask says why a node is not ready; empty: it is, or that may not be asked.
	ask func(ctx context.Context, node string) string

	mu    sync.Mutex
	since map[types.UID]time.Time // when a Pod was first seen so
	nodes map[string]answer
}

type answer struct {
	at  time.Time
	why string
}

func newBound(ask func(context.Context, string) string) *bound {
	return &bound{now: time.Now, ask: ask, since: map[types.UID]time.Time{}, nodes: map[string]answer{}}
}

// doubts returns what is wrong with the nodes of Pods that have not begun, by Pod. pods
// are all that there are: the others are forgotten.
func (b *bound) doubts(ctx context.Context, pods []corev1.Pod) map[types.UID]*fleet.Trouble {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, found, since := b.now(), map[types.UID]*fleet.Trouble{}, make(map[types.UID]time.Time, len(b.since))
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodPending {
			continue
		}
		first, known := b.since[p.UID]
		if !known {
			first = now
		}
		since[p.UID] = first
		waited := now.Sub(first)
		if waited < beginsWithin {
			continue
		}
		why := b.node(ctx, p.Spec.NodeName, now)
		if why == "" && p.Status.StartTime == nil && waited >= takenWithin {
			why = fmt.Sprintf("its kubelet has not taken the Pod for %v", waited.Round(time.Second))
		}
		if why != "" {
			found[p.UID] = &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node " + p.Spec.NodeName + ": " + why, Final: true}
		}
	}
	b.since = since
	for name, a := range b.nodes {
		if now.Sub(a.at) > nodeAge {
			delete(b.nodes, name)
		}
	}
	return found
}

func (b *bound) node(ctx context.Context, name string, now time.Time) string {
	if a, ok := b.nodes[name]; ok && now.Sub(a.at) <= nodeAge {
		return a.why
	}
	why := b.ask(ctx, name)
	b.nodes[name] = answer{now, why}
	return why
}

// unready says why a node is not ready, in the cluster's words. A credential of one
// namespace may not ask, and then nothing is known.
func (p *provider) unready(ctx context.Context, name string) string {
	n, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "the cluster has it no more"
	}
	if err != nil {
		p.cfg.Log.Debug("node not seen", "runtime", p.t.Spec.ID, "node", name, "err", err)
		return ""
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "not ready: " + words(c.Reason, c.Message)
		}
	}
	return ""
}
