package nomad

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
)

// What a cluster says, and what is made of it.
func TestState(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	event := func(kind, message string, code int, details map[string]string) *api.TaskEvent {
		return &api.TaskEvent{Type: kind, DisplayMessage: message, ExitCode: code, Details: details}
	}
	exit := func(code int, message string, oom string) *api.TaskState {
		return &api.TaskState{State: "dead", StartedAt: now, Failed: code != 0,
			Events: []*api.TaskEvent{event(api.TaskStarted, "Task started by client", 0, nil), event(api.TaskTerminated, message, code, map[string]string{"oom_killed": oom})}}
	}
	driver := func(message string) *api.TaskState {
		return &api.TaskState{State: "dead", Failed: true, Events: []*api.TaskEvent{event(api.TaskDriverFailure, message, 0, nil), event(api.TaskNotRestarting, "Policy allows no restarts", 0, nil)}}
	}
	runs := &api.TaskState{State: "running", StartedAt: now}
	alloc := func(index uint64, status string, task *api.TaskState, change ...func(*api.AllocationListStub)) *api.AllocationListStub {
		a := &api.AllocationListStub{ID: "5c6328f7-48c5", NodeName: "n", CreateIndex: index, ClientStatus: status, DesiredStatus: api.AllocDesiredStatusRun,
			TaskStates: map[string]*api.TaskState{}}
		if task != nil {
			a.TaskStates[runner] = task
		}
		for _, f := range change {
			f(a)
		}
		return a
	}
	desired := func(status, why string) func(*api.AllocationListStub) {
		return func(a *api.AllocationListStub) { a.DesiredStatus, a.DesiredDescription = status, why }
	}
	installs := func(task *api.TaskState) func(*api.AllocationListStub) {
		return func(a *api.AllocationListStub) { a.TaskStates[installer] = task }
	}
	const nowhere, away = "Failed to pull `r:1`: API error (404): not found", "Failed to pull `r:1`: API error (500): dial tcp: i/o timeout"
	sibling := func(name string, more ...*api.TaskEvent) *api.TaskState {
		return &api.TaskState{State: "dead", Failed: true, Events: append([]*api.TaskEvent{event(api.TaskSiblingFailed, "Task's sibling \""+name+"\" failed", 0, nil)}, more...)}
	}
	gives := func(task *api.TaskState) func(*api.AllocationListStub) {
		return func(a *api.AllocationListStub) { a.TaskStates[giver] = task }
	}
	blocked := func(m *api.AllocationMetric) *api.Evaluation {
		return &api.Evaluation{Status: api.EvalStatusBlocked, FailedTGAllocs: map[string]*api.AllocationMetric{group: m}}
	}
	const (
		pending, running, complete, failed, lost, unknown = api.AllocClientStatusPending, api.AllocClientStatusRunning, api.AllocClientStatusComplete,
			api.AllocClientStatusFailed, api.AllocClientStatusLost, api.AllocClientStatusUnknown
	)
	type allocs = []*api.AllocationListStub
	for _, c := range []struct {
		name   string
		stub   api.JobListStub
		allocs allocs
		eval   *api.Evaluation
		late   bool
		state  fleet.State
		cause  fleet.Cause // empty: no trouble
		final  bool
		dead   bool
		says   string
	}{
		{name: "new", state: fleet.Pending},
		{name: "not launched completely", stub: api.JobListStub{Meta: map[string]string{metaLaunching: "true"}}, state: fleet.Launching},
		{name: "no room", eval: blocked(&api.AllocationMetric{NodesEvaluated: 2, NodesExhausted: 2, DimensionExhausted: map[string]int{"memory": 2}}),
			state: fleet.Pending, cause: fleet.CauseUnschedulable, says: `Dimension "memory" exhausted on 2 nodes`},
		{name: "no such client", eval: blocked(&api.AllocationMetric{NodesEvaluated: 1, NodesFiltered: 1, ConstraintFiltered: map[string]int{"missing drivers": 1}}),
			state: fleet.Pending, cause: fleet.CauseUnschedulable, says: `Constraint "missing drivers": 1 nodes excluded by filter`},
		{name: "class", eval: blocked(&api.AllocationMetric{NodesEvaluated: 1, ClassFiltered: map[string]int{"small": 1}, ClassExhausted: map[string]int{"big": 3}}),
			state: fleet.Pending, cause: fleet.CauseUnschedulable, says: `Class "big" exhausted on 3 nodes`},
		{name: "no client at all", eval: blocked(&api.AllocationMetric{NodesAvailable: map[string]int{"dc7": 0}}),
			state: fleet.Pending, cause: fleet.CauseUnschedulable, says: `No nodes are available in datacenter "dc7"`},
		{name: "quota", eval: blocked(&api.AllocationMetric{QuotaExhausted: []string{"memory exhausted (64 needed > 32 limit)"}}),
			state: fleet.Pending, cause: fleet.CauseQuota, says: "64 needed"},
		{name: "an evaluation that failed", eval: &api.Evaluation{Status: api.EvalStatusFailed, StatusDescription: "maximum attempts reached (2)"},
			state: fleet.Pending, cause: fleet.CauseUnschedulable, says: "maximum attempts"},
		{name: "stopped before it began", stub: api.JobListStub{Stop: true}, state: fleet.Ended, cause: fleet.CauseEvicted, final: true, dead: true, says: "stopped"},
		{name: "placed", allocs: allocs{alloc(1, pending, nil)}, state: fleet.Pending},
		{name: "running", allocs: allocs{alloc(1, running, runs)}, state: fleet.Running},
		{name: "done", allocs: allocs{alloc(1, complete, exit(0, "Exit Code: 0", "false"))}, state: fleet.Ended},
		{name: "an exit code", allocs: allocs{alloc(1, failed, exit(4, "Exit Code: 4", "false"))}, state: fleet.Ended, cause: fleet.CauseExited, final: true, dead: true, says: "Exit Code: 4"},
		{name: "137 alone is no OOM", allocs: allocs{alloc(1, failed, exit(137, "Exit Code: 137, Signal: 9", "false"))}, state: fleet.Ended, cause: fleet.CauseExited, final: true, dead: true, says: "Signal: 9"},
		{name: "OOM", allocs: allocs{alloc(1, failed, exit(137, `Exit Code: 137, Exit Message: "OOM Killed"`, "true"))}, state: fleet.Ended, cause: fleet.CauseOOM, final: true, dead: true, says: "OOM Killed"},
		{name: "OOM of a child", allocs: allocs{alloc(1, failed, exit(7, `Exit Code: 7, Exit Message: "OOM Killed"`, "true"))}, state: fleet.Ended, cause: fleet.CauseOOM, final: true, dead: true, says: "OOM Killed"},
		{name: "OOM of a child that its runner told of", allocs: allocs{alloc(1, complete, exit(0, "Exit Code: 0", "true"))}, state: fleet.Ended},
		{name: "an OOM that was none", allocs: allocs{alloc(1, complete, exit(137, `Exit Code: 137, Exit Message: "OOM Killed"`, "true"), desired("stop", "alloc is being migrated"))},
			state: fleet.Ended, cause: fleet.CauseEvicted, final: true, dead: true, says: "migrated"},
		{name: "no such tag", allocs: allocs{alloc(1, failed, driver("Failed to pull `x:1`: API error (404): manifest for x:1 not found: manifest unknown"))},
			state: fleet.Ended, cause: fleet.CauseImage, final: true, dead: true, says: "x:1"},
		{name: "no right to the image", allocs: allocs{alloc(1, failed, driver("Failed to pull `x:1`: API error (500): pull access denied for x"))},
			state: fleet.Ended, cause: fleet.CauseImage, final: true, dead: true, says: "denied"},
		{name: "a registry that is away", allocs: allocs{alloc(1, failed, driver("Failed to pull `x:1`: API error (500): dial tcp: i/o timeout"))},
			state: fleet.Ended, cause: fleet.CauseImage, dead: true, says: "timeout"},
		{name: "a runtime that is not allowed", allocs: allocs{alloc(1, failed, driver(`requested runtime "runsc" is not allowed`))},
			state: fleet.Ended, cause: fleet.CauseStart, final: true, dead: true, says: "runsc"},
		{name: "the runner's own image is nowhere", allocs: allocs{alloc(1, failed, &api.TaskState{State: "dead", Failed: true,
			Events: []*api.TaskEvent{event(api.TaskSiblingFailed, `Task's sibling "install" failed`, 0, nil)}},
			installs(driver("Failed to pull `r:1`: API error (404): not found")))}, state: fleet.Ended, cause: fleet.CauseImage, final: true, dead: true, says: "task install: Driver Failure"},
		{name: "the image of what gives the payload is nowhere", allocs: allocs{alloc(1, failed, sibling(giver), gives(driver(nowhere)))},
			state: fleet.Ended, cause: fleet.CauseImage, final: true, dead: true, says: "task payload: Driver Failure"},
		{name: "with another image", allocs: allocs{alloc(1, failed, sibling(giver), installs(sibling(giver)), gives(driver(nowhere)))},
			state: fleet.Ended, cause: fleet.CauseImage, final: true, dead: true, says: "task payload: Driver Failure"},
		{name: "its registry is away", allocs: allocs{alloc(1, failed, sibling(giver), gives(driver(away)),
			installs(sibling(giver, event(api.TaskTerminated, "Exit Code: 143", 143, nil))))}, state: fleet.Ended, cause: fleet.CauseImage, dead: true, says: "timeout"},
		{name: "the payload cannot be given", allocs: allocs{alloc(1, failed, sibling(giver), gives(exit(2, "Exit Code: 2", "false")))},
			state: fleet.Ended, cause: fleet.CauseStart, final: true, dead: true, says: "task payload: Exit Code: 2"},
		{name: "the runner cannot be brought", allocs: allocs{alloc(1, failed, nil, installs(exit(1, "Exit Code: 1", "false")))},
			state: fleet.Ended, cause: fleet.CauseStart, final: true, dead: true, says: "task install: Exit Code: 1"},
		{name: "a client that could not set it up", allocs: allocs{alloc(1, failed, nil, func(a *api.AllocationListStub) { a.ClientDescription = "failed to setup alloc" })},
			state: fleet.Ended, cause: fleet.CauseStart, final: true, dead: true, says: "failed to setup alloc"},
		{name: "preempted", allocs: allocs{alloc(1, complete, exit(143, "Exit Code: 143", "false"), desired("evict", "Preempted by alloc ID 7"))},
			state: fleet.Ended, cause: fleet.CauseEvicted, final: true, dead: true, says: "Preempted by alloc ID 7"},
		{name: "stopped", allocs: allocs{alloc(1, complete, exit(3, "Exit Code: 3", "false"), desired("stop", "alloc is being migrated"))},
			state: fleet.Ended, cause: fleet.CauseEvicted, final: true, dead: true, says: "migrated"},
		{name: "stopped, and done in time", allocs: allocs{alloc(1, complete, exit(0, "Exit Code: 0", "false"), desired("stop", "alloc is being migrated"))}, state: fleet.Ended},
		{name: "deadline", stub: api.JobListStub{Meta: map[string]string{metaDeadline: "2s"}}, late: true,
			allocs: allocs{alloc(1, complete, exit(143, "Exit Code: 143", "false"), desired("stop", "alloc not needed due to job update"))},
			state:  fleet.Ended, cause: fleet.CauseDeadline, final: true, dead: true, says: "deadline of 2s"},
		{name: "lost", allocs: allocs{alloc(1, lost, runs, desired("stop", "alloc is lost since its node is down"))},
			state: fleet.Ended, cause: fleet.CauseNodeLost, final: true, says: "node is down"},
		{name: "unknown", allocs: allocs{alloc(1, unknown, runs, func(a *api.AllocationListStub) {
			a.ClientDescription = "alloc is unknown since its node is disconnected"
		})},
			state: fleet.Ended, cause: fleet.CauseNodeLost, final: true, says: "disconnected"},
		{name: "started twice: the first is the unit", allocs: allocs{alloc(2, running, runs), alloc(1, complete, exit(3, "Exit Code: 3", "false"), desired("stop", "alloc is lost since its node is down"))},
			state: fleet.Ended, cause: fleet.CauseEvicted, final: true, says: "node is down"},
		{name: "started twice: the second's end says nothing of a lost first", allocs: allocs{alloc(1, lost, nil, desired("stop", "alloc is lost since its node is down")),
			alloc(2, failed, exit(4, "Exit Code: 4", "false"))}, state: fleet.Ended, cause: fleet.CauseExited, final: true, says: "Exit Code: 4"},
		{name: "placed again before it began", allocs: allocs{alloc(1, complete, nil, desired("stop", "alloc is being migrated")), alloc(2, running, runs)}, state: fleet.Running},
		{name: "both have ended", allocs: allocs{alloc(1, complete, exit(3, "Exit Code: 3", "false"), desired("stop", "x")), alloc(2, failed, exit(4, "Exit Code: 4", "false"))},
			state: fleet.Ended, cause: fleet.CauseEvicted, final: true, dead: true, says: "Exit Code: 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, trouble := state(&job{JobListStub: &c.stub, allocs: c.allocs, eval: c.eval}, c.late)
			if got != c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			switch {
			case trouble == nil && c.cause == "":
			case trouble == nil || trouble.Cause != c.cause || trouble.Final != c.final || trouble.Dead != c.dead || !strings.Contains(trouble.Message, c.says):
				t.Errorf("trouble %+v, want %s, final %v, dead %v, saying %q", trouble, c.cause, c.final, c.dead, c.says)
			}
		})
	}
}

// TestRepeated: a second allocation is one only if the first's runner has started.
func TestRepeated(t *testing.T) {
	t.Parallel()
	begun := map[string]*api.TaskState{runner: {StartedAt: time.Unix(1, 0)}}
	first := &api.AllocationListStub{CreateIndex: 1, ClientStatus: api.AllocClientStatusLost}
	second := &api.AllocationListStub{CreateIndex: 2, ClientStatus: api.AllocClientStatusPending}
	if repeated([]*api.AllocationListStub{first, second}) {
		t.Error("one that never began is replaced, and the replacement is stopped")
	}
	first.TaskStates = begun
	if !repeated([]*api.AllocationListStub{second, first}) {
		t.Error("a second is not seen")
	}
	second.ClientStatus = api.AllocClientStatusFailed
	if repeated([]*api.AllocationListStub{second, first}) {
		t.Error("a second that has ended is to be stopped")
	}
}
