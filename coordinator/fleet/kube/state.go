package kube

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everdict/everdict/coordinator/fleet"
)

// units puts together what the cluster has for each unit.
func units(jobs []batchv1.Job, pods []corev1.Pod, events []corev1.Event, known doubts) []fleet.Unit {
	type parts struct {
		job  *batchv1.Job
		pods []corev1.Pod
		said *corev1.Event
	}
	found := map[string]*parts{}
	of := func(unit string) *parts {
		if found[unit] == nil {
			found[unit] = &parts{}
		}
		return found[unit]
	}
	for i := range jobs {
		of(jobs[i].Labels[labelUnit]).job = &jobs[i]
	}
	for _, p := range pods {
		q := of(p.Labels[labelUnit])
		q.pods = append(q.pods, p)
	}
	for i := range events {
		e := &events[i]
		p := found[e.InvolvedObject.Name]
		if p == nil || p.job == nil || e.InvolvedObject.UID != p.job.UID {
			continue
		}
		if p.said == nil || p.said.LastTimestamp.Before(&e.LastTimestamp) {
			p.said = e
		}
	}
	list := make([]fleet.Unit, 0, len(found))
	for name, p := range found {
		u := fleet.Unit{Name: name}
		pod := foremost(p.job, p.pods)
		notes, set := map[string]string(nil), map[string]string(nil)
		if pod != nil {
			notes, set = pod.Annotations, pod.Labels
		}
		if p.job != nil {
			notes, set = p.job.Annotations, p.job.Labels
		}
		u.Job, u.Note = notes[noteRun], notes[noteOrder]
		u.Attempt, _ = strconv.ParseInt(set[labelAttempt], 10, 64) // what is none is no attempt, and not wanted
		u.State, u.Trouble = state(p.job, pod, p.said)
		if pod != nil {
			u.Node = pod.Spec.NodeName
			// What may pass, such as a registry that does not answer, will not where nobody tries.
			if t := known[pod.UID]; t != nil && u.State == fleet.Pending && (u.Trouble == nil || !u.Trouble.Final) {
				u.Trouble = t
			}
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b fleet.Unit) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// foremost is the Pod that speaks for a unit; nil if there is none. A cluster can start
// two for one Job: as long as one of them runs, or may, the unit does. Of several the
// last that was made counts.
func foremost(j *batchv1.Job, pods []corev1.Pod) *corev1.Pod {
	if len(pods) == 0 {
		return nil
	}
	rank := map[fleet.State]int{fleet.Ended: 0, fleet.Pending: 1, fleet.Running: 2}
	p := slices.MaxFunc(pods, func(a, b corev1.Pod) int {
		x, _ := podState(j, &a)
		y, _ := podState(j, &b)
		return cmp.Or(cmp.Compare(rank[x], rank[y]), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return &p
}

// state reads a unit's state and trouble. The Job may have been removed by others.
func state(j *batchv1.Job, p *corev1.Pod, said *corev1.Event) (fleet.State, *fleet.Trouble) {
	failed := condition(j, batchv1.JobFailed)
	if failed != nil && failed.Reason == batchv1.JobReasonDeadlineExceeded {
		dead := p == nil || over(p)
		return fleet.Ended, &fleet.Trouble{Cause: fleet.CauseDeadline, Message: words(failed.Reason, failed.Message), Final: true, Dead: dead}
	}
	switch {
	case p != nil:
		return podState(j, p)
	case failed != nil: // with backoffLimit 0, that is what becomes of a Job whose Pod was deleted
		return fleet.Ended, &fleet.Trouble{Cause: fleet.CauseEvicted, Final: true,
			Message: words(failed.Reason, failed.Message) + "; its Pod was deleted"}
	case condition(j, batchv1.JobComplete) != nil:
		return fleet.Ended, nil
	case j.Spec.Suspend != nil && *j.Spec.Suspend:
		return fleet.Launching, nil
	case said != nil:
		return fleet.Pending, refusal(said.Message)
	}
	return fleet.Pending, nil
}

func condition(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	if j == nil {
		return nil
	}
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// refusal is why a Job gets no Pod, in the words of its event. A quota may have room
// later; what a policy says stays said.
func refusal(message string) *fleet.Trouble {
	if strings.Contains(message, "exceeded quota") {
		return &fleet.Trouble{Cause: fleet.CauseQuota, Message: message}
	}
	// A namespace that is new has no service account for a moment.
	passes := strings.Contains(message, "error looking up service account")
	return &fleet.Trouble{Cause: fleet.CausePolicy, Message: message,
		Final: !passes && (strings.Contains(message, "forbidden") || strings.Contains(message, "denied"))}
}

func podState(j *batchv1.Job, p *corev1.Pod) (fleet.State, *fleet.Trouble) {
	status := runnerStatus(p)
	if status != nil && status.State.Terminated != nil {
		return fleet.Ended, ending(j, p, status.State.Terminated)
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return fleet.Ended, nil
	case corev1.PodFailed:
		return fleet.Ended, unended(p)
	}
	if by := removal(j, p); by != "" { // it is on its way out, and may have a while for that
		t := &fleet.Trouble{Cause: fleet.CauseEvicted, Message: by, Final: true}
		if status != nil && status.State.Running != nil {
			return fleet.Running, t
		}
		return fleet.Pending, t
	}
	if t := waiting(p); t != nil {
		return fleet.Pending, t
	}
	if status != nil && status.State.Running != nil {
		return fleet.Running, lost(p)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return fleet.Pending, &fleet.Trouble{Cause: fleet.CauseUnschedulable, Message: c.Message}
		}
	}
	return fleet.Pending, nil
}

// lost is the trouble of a Pod whose node has not been heard of for a while; nil: it has.
// Then the cluster calls the Pod not ready, and leaves the words of its containers.
func lost(p *corev1.Pod) *fleet.Trouble {
	said := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range p.Status.Conditions {
		said[c.Type] = c.Status
	}
	if said[corev1.PodReady] == corev1.ConditionFalse && said[corev1.ContainersReady] == corev1.ConditionTrue {
		return &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node " + p.Spec.NodeName + " is not ready, and its Pods are not either", Final: true}
	}
	return nil
}

func runnerStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

// over says that no container of a Pod runs any more, for certain.
func over(p *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			if s.State.Running != nil {
				return false
			}
		}
	}
	return true
}

// ending is the trouble of a unit whose runner's container has terminated; nil if it
// ended well.
func ending(j *batchv1.Job, p *corev1.Pod, end *corev1.ContainerStateTerminated) *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseExited, Final: true, Dead: true, ExitCode: ptr(int(end.ExitCode)),
		Message: strings.TrimSpace(fmt.Sprintf("exit code %d, %s", end.ExitCode, words(end.Reason, end.Message)))}
	switch removed := removal(j, p); {
	case end.Reason == "OOMKilled":
		t.Cause = fleet.CauseOOM
	case end.ExitCode == 0 && removed == "":
		return nil
	case end.Reason == "ContainerCannotRun", end.Reason == "StartError":
		t.Cause = fleet.CauseStart
	case removed != "":
		t.Cause, t.Message = fleet.CauseEvicted, removed+"; "+t.Message
	}
	return t
}

// unended is the trouble of a Pod that the cluster has given up although it does not
// say that the runner's container has terminated.
func unended(p *corev1.Pod) *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseExited, Message: words(p.Status.Reason, p.Status.Message), Final: true, Dead: over(p)}
	if r := removal(nil, p); r != "" {
		t.Cause, t.Message = fleet.CauseEvicted, r
	}
	for _, s := range p.Status.InitContainerStatuses {
		if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
			t.Cause, t.Message = fleet.CauseStart, fmt.Sprintf("init container %s: exit code %d, %s", s.Name, end.ExitCode, words(end.Reason, end.Message))
		}
	}
	return t
}

// removal is by whom or why a Pod was taken away; empty: it was not, or the Job is
// being removed as well, which is our own doing.
func removal(j *batchv1.Job, p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return words(c.Reason, c.Message)
		}
	}
	if p.Status.Reason == "Evicted" || p.Status.Reason == "Preempting" || p.Status.Reason == "NodeLost" || p.Status.Reason == "NodeShutdown" {
		return words(p.Status.Reason, p.Status.Message)
	}
	if p.DeletionTimestamp != nil && j != nil && j.DeletionTimestamp == nil && condition(j, batchv1.JobFailureTarget) == nil {
		return "its Pod was deleted"
	}
	return ""
}

// permanent are the words of a registry, or of the kubelet, after which another try of
// the same image does not help.
var permanent = regexp.MustCompile(`(?i)not found|manifest unknown|unauthorized|denied|forbidden|no match for platform|invalid reference|not present with pull policy`)

// waiting is the trouble of a container that cannot start; nil: none waits in vain.
func waiting(p *corev1.Pod) *fleet.Trouble {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil {
				continue
			}
			message := words(w.Reason, w.Message)
			if !strings.Contains(message, list[i].Image) {
				message += " (image " + list[i].Image + ")"
			}
			switch w.Reason {
			case "InvalidImageName", "ErrImageNeverPull":
				return &fleet.Trouble{Cause: fleet.CauseImage, Message: message, Final: true, Dead: true}
			case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable":
				return &fleet.Trouble{Cause: fleet.CauseImage, Message: message, Final: permanent.MatchString(w.Message), Dead: true}
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return &fleet.Trouble{Cause: fleet.CauseStart, Message: message, Final: !strings.Contains(w.Message, "secret"), Dead: true}
			}
		}
	}
	return nil
}

func words(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}
