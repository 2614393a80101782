package kube

import (
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
// is not ready, or, where that may not be asked, when no kubelet has taken it.
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
	backsOff := func(p *corev1.Pod) {
		started(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "timeout"}}}}
	}
	all := []corev1.Pod{pod("new", ""), pod("bound", "good"), pod("pulls", "good", started), pod("bound to the lost", "lost"), pod("pulls on the lost", "lost", started), pod("runs on the lost", "lost", runs),
		pod("backs off on the lost", "lost", backsOff), pod("bound to the hidden", "hidden"), pod("pulls on the hidden", "hidden", started)}

	start, asked := time.Unix(1000, 0), 0
	w := newWaits()
	doubted := func(after time.Duration, pods []corev1.Pod, away bool) string {
		found := w.doubts(pods, start.Add(after), func(node string) readiness {
			asked++
			if away {
				return readiness{}
			}
			return map[string]readiness{"lost": {why: "not ready"}, "hidden": {hidden: true}}[node]
		})
		var all []string
		for i := range pods {
			t := found[pods[i].UID]
			if t == nil {
				continue
			}
			all = append(all, string(pods[i].UID))
			if t.Cause != fleet.CauseNodeLost || !t.Final || t.Dead || !strings.HasPrefix(t.Message, "node "+pods[i].Spec.NodeName+": ") {
				all = append(all, fmt.Sprintf("%+v", *t))
			}
		}
		return strings.Join(all, ", ")
	}
	const lost = "bound to the lost, pulls on the lost, backs off on the lost"
	for _, step := range []struct {
		after  time.Duration
		pods   []corev1.Pod
		away   bool // the cluster does not answer
		asked  int  // once for a node, and not before a Pod of it has waited
		doubts string
	}{
		{after: 0, pods: all},
		{after: beginsWithin - 1, pods: all},
		{after: beginsWithin, pods: all, asked: 3},
		{after: beginsWithin + 1, pods: all, asked: 6, away: true},
		{after: beginsWithin + 2, pods: all, asked: 9},
		{after: beginsWithin + 3, pods: all, asked: 12, doubts: lost},
		{after: takenWithin, pods: all, asked: 15, doubts: lost},
		{after: takenWithin + 1, pods: all, asked: 18, doubts: lost + ", bound to the hidden"},
		{after: takenWithin + 2, pods: all[:1], asked: 18},
		{after: takenWithin + 3, pods: all, asked: 18}, // what was gone is new
	} {
		if got := doubted(step.after, step.pods, step.away); got != step.doubts || asked != step.asked {
			t.Errorf("after %v: in doubt are %q, asked %d times; want %q, %d", step.after, got, asked, step.doubts, step.asked)
		}
	}
	// A unit is in doubt as its Pod is, unless the Pod has begun meanwhile; what may pass
	// otherwise does not count then.
	doubt := &fleet.Trouble{Cause: fleet.CauseNodeLost}
	for _, u := range units(nil, all, nil, doubts{"bound to the lost": doubt, "runs on the lost": doubt, "backs off on the lost": doubt}) {
		if want := u.Name == "bound to the lost" || u.Name == "backs off on the lost"; (u.Trouble == doubt) != want {
			t.Errorf("unit %s: %+v", u.Name, u.Trouble)
		}
	}
}
