package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everdict/everdict/coordinator/fleet"
)

// TestF17_DoubtsOfANode: a Pod that has a node and does not begin is in doubt when the node
// is not ready, or, where that may not be asked, when no kubelet takes it.
func TestF17_DoubtsOfANode(t *testing.T) {
	t.Parallel()
	taken := metav1.NewTime(time.Unix(1, 0))
	pod := func(uid, node string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Labels: map[string]string{labelUnit: uid}}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	started := func(p *corev1.Pod) { p.Status.StartTime = &taken }
	runs := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	all := []corev1.Pod{pod("new", ""), pod("bound", "good"), pod("pulls", "good", started), pod("bound to the lost", "lost"), pod("pulls on the lost", "lost", started), pod("runs on the lost", "lost", runs)}

	now, asked := time.Unix(1000, 0), []string(nil)
	b := newBound(func(_ context.Context, node string) string {
		asked = append(asked, node)
		if node == "lost" {
			return "not ready"
		}
		return ""
	})
	b.now = func() time.Time { return now }
	for _, step := range []struct {
		after  time.Duration
		pods   []corev1.Pod
		asked  int
		doubts []string
	}{
		{after: 0, pods: all},
		{after: beginsWithin - 1, pods: all},
		{after: beginsWithin, pods: all, asked: 2, doubts: []string{"bound to the lost", "pulls on the lost"}},
		{after: beginsWithin + nodeAge, pods: all, asked: 2, doubts: []string{"bound to the lost", "pulls on the lost"}},
		{after: beginsWithin + nodeAge + 1, pods: all, asked: 4, doubts: []string{"bound to the lost", "pulls on the lost"}},
		{after: takenWithin, pods: all, asked: 6, doubts: []string{"bound", "bound to the lost", "pulls on the lost"}},
		{after: takenWithin + 1, pods: all[:1], asked: 6},
		{after: takenWithin + 2, pods: all, asked: 6}, // what was gone is new
	} {
		now = time.Unix(1000, 0).Add(step.after)
		found := b.doubts(context.Background(), step.pods)
		var got []string
		for i := range step.pods {
			t := found[step.pods[i].UID]
			if t == nil {
				continue
			}
			got = append(got, string(step.pods[i].UID))
			if t.Cause != fleet.CauseNodeLost || !t.Final || t.Dead || !strings.HasPrefix(t.Message, "node "+step.pods[i].Spec.NodeName+": ") {
				got = append(got, fmt.Sprintf("%+v", t))
			}
		}
		if strings.Join(got, ", ") != strings.Join(step.doubts, ", ") || len(asked) != step.asked {
			t.Errorf("after %v: in doubt are %q, asked %d times; want %q, %d", step.after, got, len(asked), step.doubts, step.asked)
		}
	}
	// A unit is in doubt as its Pod is, unless the Pod has begun meanwhile.
	doubt := &fleet.Trouble{Cause: fleet.CauseNodeLost}
	for _, u := range units(nil, all, nil, map[types.UID]*fleet.Trouble{"bound to the lost": doubt, "runs on the lost": doubt}) {
		if (u.Trouble == doubt) != (u.Name == "bound to the lost") {
			t.Errorf("unit %s: %+v", u.Name, u.Trouble)
		}
	}
}
