package run

import (
	"strings"

	"github.com/everdict/everdict/protocol"
)

// LocalRuntime is the id of the runtime that runners inside the coordinator's
// process serve.
const LocalRuntime = "local"

// A Pool is what a job is queued for: whoever serves it may take the job. The
// queue knows its name alone, which a person can read in a sentence. A name is
// on the disk with each job that waits, so that it must not change its form.
type Pool struct {
	kind poolKind
	// workspace is empty for the pools that are not one workspace's: those of one
	// runner, and homes.
	workspace string
	// of is the runner, the runtime or the subject.
	of string
}

type poolKind int8

const (
	poolRunner    poolKind = iota // one runner
	poolShared                    // one runner, for others than its owner
	poolHome                      // no job's: what limits the runners of a runtime together
	poolWorkspace                 // the runners of a whole workspace
	poolSelf                      // the runners of a subject
	poolRuntime                   // the runners of a runtime
	poolAuto                      // whoever may run what a subject submits
)

// What stands before a name's last part. A workspace's name has no slash.
const (
	ofRunner  = "runner "
	ofShared  = "shared runner "
	ofRuntime = "runtime "
	ofSelf    = "self of "
	ofAuto    = "auto for "
)

// RunnerPool is the pool of one runner.
func RunnerPool(id string) Pool { return Pool{kind: poolRunner, of: id} }

// sharedPool is the pool of one runner for runs of others than its owner, whom it serves
// for as long as its scope is the workspace.
func sharedPool(id string) Pool { return Pool{kind: poolShared, of: id} }

// RuntimeHome is the pool whose admission limits the runners inside this process
// count against, whatever pools they serve. Those of a registered runtime are at
// home in its RuntimePool.
func RuntimeHome(runtime string) Pool { return Pool{kind: poolHome, of: runtime} }

func workspacePool(workspace string) Pool { return Pool{kind: poolWorkspace, workspace: workspace} }

func selfPool(workspace, subject string) Pool {
	return Pool{kind: poolSelf, workspace: workspace, of: subject}
}

// RuntimePool is the pool of a registered runtime, and the home of its own runners.
func RuntimePool(workspace, runtime string) Pool {
	return Pool{kind: poolRuntime, workspace: workspace, of: runtime}
}

func autoPool(workspace, subject string) Pool {
	return Pool{kind: poolAuto, workspace: workspace, of: subject}
}

// String is the pool's name in the queue.
func (p Pool) String() string {
	switch p.kind {
	case poolRunner:
		return ofRunner + p.of
	case poolShared:
		return ofShared + p.of
	case poolHome:
		return ofRuntime + p.of
	case poolWorkspace:
		return p.workspace + "/" + protocol.TargetSelfWorkspace
	case poolSelf:
		return p.workspace + "/" + ofSelf + p.of
	case poolRuntime:
		return p.workspace + "/" + ofRuntime + p.of
	default:
		return p.workspace + "/" + ofAuto + p.of
	}
}

// parsePool reads a name back; false if it is none of ours.
func parsePool(name string) (Pool, bool) {
	workspace, last, inWorkspace := strings.Cut(name, "/")
	if id, ok := strings.CutPrefix(name, ofRunner); ok && !inWorkspace {
		return RunnerPool(id), true
	}
	if id, ok := strings.CutPrefix(name, ofShared); ok && !inWorkspace {
		return sharedPool(id), true
	}
	if id, ok := strings.CutPrefix(name, ofRuntime); ok && !inWorkspace {
		return RuntimeHome(id), true
	}
	if !inWorkspace {
		return Pool{}, false
	}
	if last == protocol.TargetSelfWorkspace {
		return workspacePool(workspace), true
	}
	for _, form := range []struct {
		prefix string
		make   func(workspace, of string) Pool
	}{{ofSelf, selfPool}, {ofRuntime, RuntimePool}, {ofAuto, autoPool}} {
		if of, ok := strings.CutPrefix(last, form.prefix); ok {
			return form.make(workspace, of), true
		}
	}
	return Pool{}, false
}

// RuntimeOf is the runtime whose pool a name is; false if it is none of a runtime.
func RuntimeOf(pool string) (runtime string, ok bool) {
	p, _ := parsePool(pool)
	return p.of, p.kind == poolRuntime
}

// names are pools as the queue wants them.
func names(pools ...Pool) []string {
	all := make([]string, len(pools))
	for i, p := range pools {
		all[i] = p.String()
	}
	return all
}
