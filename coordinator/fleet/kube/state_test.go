package kube

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator/fleet"
)

// What a cluster says that the one under e2e/kube cannot be made to say: registries,
// preemption, lost nodes.
func TestState(t *testing.T) {
	t.Parallel()
	waits := func(reason, message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: container, Image: "reg/x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	over := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	pod := func(phase corev1.PodPhase, state corev1.ContainerState, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: state}}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	target := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "because"})
		}
	}
	conditions := func(ready, containers corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}, {Type: corev1.ContainersReady, Status: containers}}
		}
	}
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	failed := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too many"}}}}
	removed := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
	said := func(message string) *corev1.Event { return &corev1.Event{Message: message} }
	for _, c := range []struct {
		name  string
		job   *batchv1.Job
		pod   *corev1.Pod
		said  *corev1.Event
		state fleet.State
		cause fleet.Cause // empty: no trouble
		final bool
		dead  bool
	}{
		{"new", &batchv1.Job{}, nil, nil, fleet.Pending, "", false, false},
		{"not launched completely", &batchv1.Job{Spec: batchv1.JobSpec{Suspend: ptr(true)}}, nil, nil, fleet.Launching, "", false, false},
		{"quota", &batchv1.Job{}, nil, said(`pods "x" is forbidden: exceeded quota: q, requested: pods=1`), fleet.Pending, fleet.CauseQuota, false, false},
		{"policy", &batchv1.Job{}, nil, said(`pods "x" is forbidden: violates PodSecurity "restricted:latest"`), fleet.Pending, fleet.CausePolicy, true, false},
		{"a new namespace", &batchv1.Job{}, nil, said(`pods "x" is forbidden: error looking up service account runs/default: serviceaccount "default" not found`), fleet.Pending, fleet.CausePolicy, false, false},
		{"no such tag", &batchv1.Job{}, waits("ImagePullBackOff", `Back-off pulling image "reg/x:1": ErrImagePull: reg/x:1: not found`), nil, fleet.Pending, fleet.CauseImage, true, true},
		{"no right to the image", &batchv1.Job{}, waits("ErrImagePull", "pull access denied, authorization failed"), nil, fleet.Pending, fleet.CauseImage, true, true},
		{"a registry that is away", &batchv1.Job{}, waits("ErrImagePull", "dial tcp: i/o timeout"), nil, fleet.Pending, fleet.CauseImage, false, true},
		{"never pulled", &batchv1.Job{}, waits("ErrImageNeverPull", "not present with pull policy of Never"), nil, fleet.Pending, fleet.CauseImage, true, true},
		{"a name that is none", &batchv1.Job{}, waits("InvalidImageName", "invalid reference format"), nil, fleet.Pending, fleet.CauseImage, true, true},
		{"root in an image", &batchv1.Job{}, waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"), nil, fleet.Pending, fleet.CauseStart, true, true},
		{"its secret is on the way", &batchv1.Job{}, waits("CreateContainerConfigError", `secret "x" not found`), nil, fleet.Pending, fleet.CauseStart, false, true},
		{"creating", &batchv1.Job{}, waits("ContainerCreating", ""), nil, fleet.Pending, "", false, false},
		{"running", &batchv1.Job{}, pod(corev1.PodRunning, running), nil, fleet.Running, "", false, false},
		{"done", &batchv1.Job{}, pod(corev1.PodRunning, over(0, "Completed")), nil, fleet.Ended, "", false, false},
		{"an exit code", &batchv1.Job{}, pod(corev1.PodFailed, over(4, "Error")), nil, fleet.Ended, fleet.CauseExited, true, true},
		{"137 alone is no OOM", &batchv1.Job{}, pod(corev1.PodFailed, over(137, "Error")), nil, fleet.Ended, fleet.CauseExited, true, true},
		{"OOM", &batchv1.Job{}, pod(corev1.PodFailed, over(137, "OOMKilled")), nil, fleet.Ended, fleet.CauseOOM, true, true},
		{"OOM of a child", &batchv1.Job{}, pod(corev1.PodFailed, over(2, "OOMKilled")), nil, fleet.Ended, fleet.CauseOOM, true, true},
		{"no such program", &batchv1.Job{}, pod(corev1.PodFailed, over(128, "StartError")), nil, fleet.Ended, fleet.CauseStart, true, true},
		{"preempted", &batchv1.Job{}, pod(corev1.PodFailed, over(143, "Error"), target("PreemptionByScheduler")), nil, fleet.Ended, fleet.CauseEvicted, true, true},
		{"evicted by the API", &batchv1.Job{}, pod(corev1.PodFailed, over(3, "Error"), target("EvictionByEvictionAPI")), nil, fleet.Ended, fleet.CauseEvicted, true, true},
		{"evicted by the kubelet", &batchv1.Job{}, pod(corev1.PodFailed, corev1.ContainerState{}, func(p *corev1.Pod) {
			p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses = "Evicted", "The node was low on resource: memory", nil
		}), nil, fleet.Ended, fleet.CauseEvicted, true, true},
		{"a node of which nothing is heard", &batchv1.Job{}, pod(corev1.PodRunning, running, conditions(corev1.ConditionFalse, corev1.ConditionTrue)), nil, fleet.Running, fleet.CauseNodeLost, true, false},
		{"a node that answers", &batchv1.Job{}, pod(corev1.PodRunning, running, conditions(corev1.ConditionTrue, corev1.ConditionTrue)), nil, fleet.Running, "", false, false},
		{"node lost", &batchv1.Job{}, pod(corev1.PodFailed, running, target("DeletionByTaintManager")), nil, fleet.Ended, fleet.CauseEvicted, true, false},
		{"about to be evicted", &batchv1.Job{}, pod(corev1.PodRunning, running, target("DeletionByTaintManager")), nil, fleet.Running, fleet.CauseEvicted, true, false},
		{"evicted before it began", &batchv1.Job{}, pod(corev1.PodPending, corev1.ContainerState{}, deleted), nil, fleet.Pending, fleet.CauseEvicted, true, false},
		{"deleted with grace", &batchv1.Job{}, pod(corev1.PodFailed, over(3, "Error"), deleted), nil, fleet.Ended, fleet.CauseEvicted, true, true},
		{"removed by us", removed, pod(corev1.PodFailed, over(3, "Error"), deleted), nil, fleet.Ended, fleet.CauseExited, true, true},
		{"deleted by force", failed, nil, nil, fleet.Ended, fleet.CauseEvicted, true, false},
		{"a Pod whose Job is gone", nil, pod(corev1.PodRunning, running), nil, fleet.Running, "", false, false},
		{"deadline", &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, Message: "active longer"}}}},
			pod(corev1.PodFailed, over(137, "Error")), nil, fleet.Ended, fleet.CauseDeadline, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, trouble := state(c.job, c.pod, c.said)
			if got != c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			switch {
			case trouble == nil && c.cause == "":
			case trouble == nil || trouble.Cause != c.cause || trouble.Final != c.final || trouble.Dead != c.dead || trouble.Message == "":
				t.Errorf("trouble %+v, want %s, final %v, dead %v, with words", trouble, c.cause, c.final, c.dead)
			}
		})
	}
}

// Of two Pods that a cluster has started for one unit, the one that still runs counts.
func TestTwoPodsOfAUnit(t *testing.T) {
	t.Parallel()
	set := map[string]string{labelUnit: "u"}
	made := func(name string, at int64, s corev1.ContainerState) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set, CreationTimestamp: metav1.Unix(at, 0)},
			Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: s}}}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	refused := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 4, Reason: "Error"}}
	jobs := []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Name: "u", Labels: set}}}
	for name, c := range map[string]struct {
		pods  []corev1.Pod
		node  string
		state fleet.State
	}{
		"the second is turned away": {[]corev1.Pod{made("a", 1, running), made("b", 2, refused)}, "a", fleet.Running},
		"both run":                  {[]corev1.Pod{made("b", 2, running), made("a", 1, running)}, "b", fleet.Running},
		"both are over":             {[]corev1.Pod{made("a", 1, refused), made("b", 2, refused)}, "b", fleet.Ended},
	} {
		if u := units(jobs, c.pods, nil, nil); len(u) != 1 || u[0].State != c.state || u[0].Node != c.node {
			t.Errorf("%s: %+v, want one unit, %s, on %s", name, u, c.state, c.node)
		}
	}
}
