package nomad

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
)

// instance is the allocation that a unit is: the first whose runner has started, as the
// token is good once and for it; while none has, the last. nil if there is none. Nomad
// makes another where a client was lost, a person stopped the first, or a node drains.
func instance(allocs []*api.AllocationListStub) *api.AllocationListStub {
	var first, last *api.AllocationListStub
	for _, a := range allocs {
		if started(a) && (first == nil || a.CreateIndex < first.CreateIndex) {
			first = a
		}
		if last == nil || a.CreateIndex > last.CreateIndex {
			last = a
		}
	}
	if first != nil {
		return first
	}
	return last
}

// started says whether the runner of an allocation is known to have started.
func started(a *api.AllocationListStub) bool {
	t := a.TaskStates[runner]
	return t != nil && !t.StartedAt.IsZero()
}

// alive says whether the cluster has, or is about to have, a process of an allocation.
func alive(a *api.AllocationListStub) bool {
	return a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning
}

// over says that no process of an allocation runs any more, for certain: its client says
// so. One that is lost may go on on a client that nobody hears from.
func over(a *api.AllocationListStub) bool {
	return a.ClientStatus == api.AllocClientStatusComplete || a.ClientStatus == api.AllocClientStatusFailed
}

// finished says that the cluster has nothing to do for any of them.
func finished(allocs []*api.AllocationListStub) bool { return !slices.ContainsFunc(allocs, alive) }

func running(allocs []*api.AllocationListStub) bool {
	a := instance(allocs)
	return a != nil && a.ClientStatus == api.AllocClientStatusRunning
}

// repeated says that the cluster has a second allocation for a unit that has started.
func repeated(allocs []*api.AllocationListStub) bool {
	unit := instance(allocs)
	return unit != nil && started(unit) &&
		slices.ContainsFunc(allocs, func(a *api.AllocationListStub) bool { return a.CreateIndex > unit.CreateIndex && alive(a) })
}

// state reads a unit's state and trouble. late says that it was stopped at its deadline.
func state(j *job, late bool) (fleet.State, *fleet.Trouble) {
	a := instance(j.allocs)
	switch {
	case a != nil:
	case j.Meta[metaLaunching] != "":
		return fleet.Launching, nil
	case j.Stop:
		return fleet.Ended, &fleet.Trouble{Cause: fleet.CauseEvicted, Message: "the job was stopped before it had an allocation", Final: true, Dead: true}
	case j.eval != nil:
		return fleet.Pending, unplaced(j.eval)
	default:
		return fleet.Pending, nil
	}
	s, t := allocState(a)
	if t == nil {
		return s, nil
	}
	if late && s == fleet.Ended {
		t.Cause, t.Message = fleet.CauseDeadline, "it was stopped at its deadline of "+j.Meta[metaDeadline]+"; "+t.Message
	}
	// The runner may be in another allocation than is thought.
	t.Dead = t.Dead && !slices.ContainsFunc(j.allocs, func(a *api.AllocationListStub) bool { return !over(a) })
	return s, t
}

func allocState(a *api.AllocationListStub) (fleet.State, *fleet.Trouble) {
	switch a.ClientStatus {
	case api.AllocClientStatusPending:
		return fleet.Pending, nil
	case api.AllocClientStatusRunning:
		return fleet.Running, nil
	case api.AllocClientStatusLost, api.AllocClientStatusUnknown:
		return fleet.Ended, &fleet.Trouble{Cause: fleet.CauseNodeLost, Final: true,
			Message: fmt.Sprintf("allocation %.8s on %s is %s: %s", a.ID, a.NodeName, a.ClientStatus, or(a.DesiredDescription, a.ClientDescription))}
	}
	return fleet.Ended, ending(a)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// ending is the trouble of an allocation whose client says that it has ended; nil if it
// ended well.
func ending(a *api.AllocationListStub) *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseStart, Final: true, Dead: true, Message: or(a.ClientDescription, "allocation is "+a.ClientStatus)}
	exit := -1
	for _, name := range []string{installer, giver, runner} {
		task := a.TaskStates[name]
		if task == nil {
			continue
		}
		e := last(task, api.TaskTerminated)
		if last(task, api.TaskSiblingFailed) != nil && (name != runner || e == nil) {
			continue // it was well: another one's trouble has ended it
		}
		if e != nil {
			// What is stopped is killed, and some engines take that for an OOM:
			// https://github.com/hashicorp/nomad/issues/9425
			if e.Details["oom_killed"] == "true" && e.ExitCode != 0 && a.DesiredStatus == api.AllocDesiredStatusRun {
				t.Cause, t.Message, t.ExitCode = fleet.CauseOOM, words(e), &e.ExitCode
				return t
			}
			if name == runner {
				t.Cause, t.Message, t.ExitCode, exit = fleet.CauseExited, words(e), &e.ExitCode, e.ExitCode
				continue
			}
			if e.ExitCode != 0 {
				t.Message = "task " + name + ": " + words(e)
				break
			}
			continue
		}
		if task.Failed {
			faulty(t, name, task)
			break
		}
	}
	switch {
	case exit == 0:
		return nil
	case a.PreemptedByAllocation != "" || a.DesiredStatus == api.AllocDesiredStatusEvict, a.DesiredStatus == api.AllocDesiredStatusStop:
		t.Cause, t.Message = fleet.CauseEvicted, or(a.DesiredDescription, "the allocation was stopped")+"; "+t.Message
	}
	return t
}

// failures are the events that say why a task did not start, in the order of what they
// explain.
var failures = []string{
	api.TaskDriverFailure, api.TaskFailedValidation, api.TaskArtifactDownloadFailed, api.TaskSetupFailure,
	"Template", api.TaskKilling, api.TaskNotRestarting,
}

// image are the words of the docker driver about images, and permanent those after which
// another try of the same one does not help.
var (
	image     = regexp.MustCompile(`(?i)failed to (pull|find|load|parse|resolve)[^:]*(image|repo|tag|\x60)|no such image|invalid reference format`)
	permanent = regexp.MustCompile(`(?i)not found|no such image|manifest unknown|does not exist|unauthorized|denied|forbidden|no matching manifest|no match for platform|invalid reference`)
)

// faulty says why a task did not start.
func faulty(t *fleet.Trouble, name string, task *api.TaskState) {
	for _, kind := range failures {
		e := last(task, kind)
		if e == nil {
			continue
		}
		t.Message = "task " + name + ": " + kind + ": " + words(e)
		if kind == api.TaskDriverFailure && image.MatchString(t.Message) {
			t.Cause, t.Final = fleet.CauseImage, permanent.MatchString(t.Message)
		}
		return
	}
}

// last is the last event of a kind; nil if there is none.
func last(t *api.TaskState, kind string) *api.TaskEvent {
	for _, e := range slices.Backward(t.Events) {
		if e.Type == kind {
			return e
		}
	}
	return nil
}

func words(e *api.TaskEvent) string { return or(e.DisplayMessage, or(e.Message, e.DriverError)) }

// unplaced is why a job has no allocation, in the words of Nomad's own command line.
func unplaced(e *api.Evaluation) *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseUnschedulable, Message: or(e.StatusDescription, "the evaluation has failed")}
	m := e.FailedTGAllocs[group]
	if m == nil {
		return t
	}
	var say []string
	if m.NodesEvaluated == 0 {
		say = append(say, "No nodes were eligible for evaluation")
	}
	for _, dc := range sorted(m.NodesAvailable) {
		if m.NodesAvailable[dc] == 0 {
			say = append(say, fmt.Sprintf("No nodes are available in datacenter %q", dc))
		}
	}
	list := func(format string, of map[string]int) {
		for _, k := range sorted(of) {
			say = append(say, fmt.Sprintf(format, k, of[k]))
		}
	}
	list("Class %q: %d nodes excluded by filter", m.ClassFiltered)
	list("Constraint %q: %d nodes excluded by filter", m.ConstraintFiltered)
	if m.NodesExhausted > 0 {
		say = append(say, fmt.Sprintf("Resources exhausted on %d nodes", m.NodesExhausted))
	}
	list("Class %q exhausted on %d nodes", m.ClassExhausted)
	list("Dimension %q exhausted on %d nodes", m.DimensionExhausted)
	for _, q := range m.QuotaExhausted {
		t.Cause = fleet.CauseQuota
		say = append(say, fmt.Sprintf("Quota limit hit %q", q))
	}
	t.Message = strings.Join(say, "; ")
	return t
}

func sorted(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
