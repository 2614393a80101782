package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

const (
	killedDir = "EVERDICT_TEST_KILLED_DIR"
	// killedAfter is how many answers the process that is killed has given.
	killedAfter = 40
)

// TestP1_P4_KilledRightAfterTheAnswer: a process that is killed with SIGKILL at the
// moment at which Submit has returned has lost nothing that it answered, and has
// left no record without a job and no job without a record.
func TestP1_P4_KilledRightAfterTheAnswer(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		submitUntilKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended with %v, want killed\n%s", err, out)
	}
	var mac protocol.Runner
	answered := map[string]bool{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "accepted "); ok {
			answered[id] = true
		} else if doc, ok := strings.CutPrefix(lines.Text(), "runner "); ok {
			if err := json.Unmarshal([]byte(doc), &mac); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(answered) < killedAfter {
		t.Fatalf("%d runs were answered, want %d\n%s", len(answered), killedAfter, out)
	}

	w := newWorld(t, dir)
	for id := range answered {
		if got := w.story(id); got != "queued\nsubmitted" {
			t.Errorf("%s was accepted and is now\n%s", id, got)
		}
		r, err := w.s.Get(t.Context(), ann, id)
		if err != nil || r.CaseSpec == nil || r.CaseSpec.Task != "Say done" {
			t.Errorf("%s was accepted and is now read as %s, %v", id, dump(r), err)
		}
	}
	// What was not answered may be there, but whole.
	runs, _, err := w.s.List(t.Context(), ann, store.RunFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.queued(); got != len(runs) {
		t.Errorf("%d records and %d jobs", len(runs), got)
	}
	h := Holder{Runner: mac}
	for range runs {
		w.finish(h, w.begin(h).Ref, passed(true))
	}
	if runs, _, err = w.s.List(t.Context(), ann, store.RunFilter{Status: protocol.StatusSucceeded}); err != nil || len(runs) < len(answered) {
		t.Errorf("%d of %d runs were carried out, %v", len(runs), len(answered), err)
	}
}

// submitUntilKilled is the process that is killed.
func submitUntilKilled(t *testing.T, dir string) {
	w := newWorld(t, dir)
	mac := w.pair("ann", "mac")
	fmt.Printf("runner %s\n", dump(mac.Runner))
	var mu sync.Mutex
	n := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				run, err := w.s.Submit(t.Context(), ann, request(protocol.TargetSelfPrefix+mac.Runner.ID))
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				mu.Lock() // for good by the one that kills
				fmt.Printf("accepted %s\n", run.ID)
				if n++; n == killedAfter {
					if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
						t.Error(err)
					}
					select {}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// queued counts the jobs that wait.
func (w *world) queued() int {
	w.t.Helper()
	stats, err := w.q.Stats(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, c := range stats.Counts {
		n += c.Queued + c.Leased + c.Parked
	}
	return n
}

// TestP1_WhatIsAccepted: the record has what was asked, who asked is known from the
// credential, and the job waits where the target says.
func TestP1_WhatIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	mac := w.pair("ann", "mac", protocol.CapGit)
	w.pair(pairing.WorkspaceOwner("default"), "shared", protocol.CapDocker)
	for name, row := range map[string]struct {
		target string
		edit   func(*protocol.RunRequest)
		pool   Pool
		class  lease.Class
		check  func(t *testing.T, r *protocol.Run)
	}{
		"a runner":        {target: "self:" + mac.Runner.ID, pool: RunnerPool(mac.Runner.ID)},
		"own runners":     {target: "self", pool: selfPool("default", "ann")},
		"the workspace's": {target: "self:ws", pool: workspacePool("default")},
		"any":             {target: "", pool: autoPool("default", "ann")},
		"the case's own target": {edit: func(r *protocol.RunRequest) { r.Case.Placement = &protocol.Placement{Target: "self"} },
			pool: selfPool("default", "ann")},
		"batch": {target: "self", edit: func(r *protocol.RunRequest) { r.Priority = protocol.ClassBatch },
			pool: selfPool("default", "ann"), class: lease.Batch},
		"an origin that lies about its actor": {target: "self", pool: selfPool("default", "ann"),
			edit: func(r *protocol.RunRequest) { r.Origin = &protocol.Origin{Cause: "ci", Actor: "root"} },
			check: func(t *testing.T, r *protocol.Run) {
				if r.Origin.Actor != "ann" || r.Origin.Cause != "ci" || r.CreatedBy != "ann" {
					t.Errorf("origin %s by %s", dump(r.Origin), r.CreatedBy)
				}
			}},
		"approval": {target: "self", edit: beforeStart, pool: selfPool("default", "ann"), check: func(t *testing.T, r *protocol.Run) {
			if r.Status != protocol.StatusSuspended || r.Suspended.Kind != protocol.ApprovalBeforeStart {
				t.Errorf("suspended %s", dump(r))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			edit := row.edit
			if edit == nil {
				edit = func(*protocol.RunRequest) {}
			}
			run, err := w.s.Submit(t.Context(), ann, request(row.target, edit))
			if err != nil {
				t.Fatal(err)
			}
			w.t = t
			stored := w.record(run.ID)
			if dump(run) != dump(stored) {
				t.Errorf("answered %s\nstored %s", dump(run), dump(stored))
			}
			job, err := w.q.Get(t.Context(), run.ID)
			if err != nil || job.Pool != row.pool.String() || stored.Placement.Pool != job.Pool || job.Class != row.class || job.Workspace != "default" {
				t.Errorf("job %+v, %v; placement %s; want pool %s, class %s", job, err, dump(stored.Placement), row.pool, row.class)
			}
			if stored.ResolvedHarness == nil || stored.ResolvedHarness.Version == protocol.Latest {
				t.Errorf("resolved harness %v", stored.ResolvedHarness)
			}
			if row.check != nil {
				row.check(t, stored)
			}
		})
	}
}

// TestP15_BadRequestsChangeNothing: each is refused as a problem of the client, and
// neither a record nor a job is there afterwards.
func TestP15_BadRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	mac := w.pair("ann", "mac", protocol.CapGit)
	bobs := w.pair("bob", "bobs")
	other, err := w.runners.Pair(t.Context(), "other", "ann", protocol.PairRequest{Label: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	gone := w.pair("ann", "gone")
	if _, err := w.runners.Revoke(t.Context(), "default", "ann", gone.Runner.ID); err != nil {
		t.Fatal(err)
	}
	reg := registry.New(w.store, nil)
	if _, err := reg.Register(t.Context(), "default", "ann", registry.Submission{Spec: &protocol.HarnessSpec{
		Kind: "command", ID: "secretive", Version: "1", Command: "agent {{task}}",
		Env: map[string]protocol.EnvValue{"KEY": {Secret: &protocol.SecretRef{SecretRef: "api-key"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	before := w.submit(request("self"))

	nobody := auth.Principal{Subject: "eve", Workspace: "empty"}
	for name, row := range map[string]struct {
		who    auth.Principal
		target string
		edit   func(*protocol.RunRequest)
		want   protocol.Code
	}{
		"no task":                {edit: func(r *protocol.RunRequest) { r.Case.Task = " " }},
		"a task with NUL":        {edit: func(r *protocol.RunRequest) { r.Case.Task = "a\x00b" }},
		"no case id":             {edit: func(r *protocol.RunRequest) { r.Case.ID = "" }},
		"an unknown environment": {edit: func(r *protocol.RunRequest) { r.Case.Env.Kind = "moon" }},
		"a path that leaves":     {edit: func(r *protocol.RunRequest) { r.Case.Env = files("../x") }},
		"an unknown priority":    {edit: func(r *protocol.RunRequest) { r.Priority = "soon" }},
		"an unknown cause":       {edit: func(r *protocol.RunRequest) { r.Origin = &protocol.Origin{Cause: "moon"} }},
		"an unknown approval":    {edit: func(r *protocol.RunRequest) { r.Case.Approval = "sometime" }},
		"a negative timeout":     {edit: func(r *protocol.RunRequest) { r.Case.TimeoutSec = -1 }},
		"an unknown grader":      {edit: func(r *protocol.RunRequest) { r.Case.Graders = []protocol.GraderSpec{{ID: "moon"}} }},
		"a grader without its own": {edit: func(r *protocol.RunRequest) {
			r.Case.Graders = []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":3}`)}}
		}},
		"an unknown harness":         {edit: func(r *protocol.RunRequest) { r.Harness.ID = "moon" }, want: protocol.CodeNotFound},
		"an unknown version":         {edit: func(r *protocol.RunRequest) { r.Harness = protocol.HarnessRef{ID: "secretive", Version: "9"} }, want: protocol.CodeNotFound},
		"a harness with secrets":     {edit: func(r *protocol.RunRequest) { r.Harness = protocol.HarnessRef{ID: "secretive"} }},
		"an unknown runtime":         {target: "moon", want: protocol.CodeNotFound},
		"local, where there is none": {target: LocalRuntime, want: protocol.CodeNotFound},
		"an unknown runner":          {target: "self:rnr_moon", want: protocol.CodeNotFound},
		"somebody else's runner":     {target: "self:" + bobs.Runner.ID, want: protocol.CodeNotFound},
		"another workspace's":        {target: "self:" + other.Runner.ID, want: protocol.CodeNotFound},
		"a revoked runner":           {target: "self:" + gone.Runner.ID, want: protocol.CodeNotFound},
		"self without runners":       {who: nobody, target: "self", want: protocol.CodeNotFound},
		"self:ws without runners":    {who: nobody, target: "self:ws", want: protocol.CodeNotFound},
		"auto without runners":       {who: nobody, target: ""},
		"a GPU that nobody has": {target: "self:" + mac.Runner.ID,
			edit: func(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{GPU: 1} }},
	} {
		who, want := row.who, row.want
		if who.Subject == "" {
			who = ann
		}
		if want == "" {
			want = protocol.CodeBadRequest
		}
		target := row.target
		if target == "" && who.Subject == "ann" {
			target = "self"
		}
		r := request(target)
		if row.edit != nil {
			row.edit(r)
		}
		_, err := w.s.Submit(t.Context(), who, r)
		var p *protocol.Problem
		if !errors.As(err, &p) || p.Code != want || p.Message == "" {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if runs, _, err := w.s.List(t.Context(), ann, store.RunFilter{}); err != nil || len(runs) != 1 || runs[0].ID != before {
		t.Errorf("records afterwards: %s, %v", dump(runs), err)
	}
	if n := w.queued(); n != 1 {
		t.Errorf("%d jobs afterwards, want 1", n)
	}
}

func files(name string) protocol.EnvSpec {
	return protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{name: "x"}}}
}

// TestP4_LocalRunnersServeWhatWaited: a run for the runtime "local" that was
// accepted before a restart is taken after it, though nobody has submitted since.
func TestP4_LocalRunnersServeWhatWaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		inside := w.pair("local:", "inside", protocol.CapGit)
		inside.Local = true
		elsewhere := auth.Principal{Subject: "ann", Workspace: "other"}
		named, err := w.s.Submit(t.Context(), elsewhere, request(LocalRuntime))
		if err != nil {
			t.Fatal(err)
		}
		w.restart()
		if l := w.begin(inside); l.Job != named.ID {
			t.Errorf("leased %s, want %s", l.Job, named.ID)
		}
		auto := w.submit(request(""))
		w.restart()
		if l := w.begin(inside); l.Job != auto {
			t.Errorf("leased %s, want %s", l.Job, auto)
		}
	}, func(w *world) { w.conf.Local = true })
}

// TestAGPUThatThisMachineHasNot: with runners inside the process a GPU that none offers is
// refused at once, as elsewhere; before one has come it may still be one that does.
func TestAGPUThatThisMachineHasNot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.s.Submit(t.Context(), ann, request("", gpu)); err != nil {
			t.Errorf("before the runner has come: %v", err)
		}
		inside := w.pair("local:", "inside", protocol.CapGit)
		inside.Local = true
		if err := w.q.SetRunner(t.Context(), w.leaseRunner(inside)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.s.Submit(t.Context(), ann, request("", gpu)); code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "offers gpu") {
			t.Errorf("a GPU that nobody has: %v, want it refused", err)
		}
		w.submit(request("", image)) // an engine can come at any time
	}, func(w *world) { w.conf.Local = true })
}

// TestP4_TheAudienceSurvivesARestart: a workspace's runner serves "auto" of everybody who
// has submitted there, and of nobody elsewhere; a personal one serves its owner.
func TestP4_TheAudienceSurvivesARestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		shared := w.pair(pairing.WorkspaceOwner("default"), "shared")
		bobs := w.pair("bob", "bobs")
		var told []string
		w.s.OnAudience(func(workspace string) { told = append(told, workspace) })
		a := w.submit(request(""))
		w.submit(request(""))
		if len(told) != 1 || told[0] != "default" {
			t.Errorf("told of %q, want once of default", told)
		}
		w.restart()
		if l := w.take(shared); l.Job != a {
			t.Errorf("the workspace's runner took %s, want %s", l.Job, a)
		}
		for _, pool := range w.s.Serves("default", bobs.Runner, false) {
			if pool == autoPool("default", "ann").String() || pool == workspacePool("default").String() {
				t.Errorf("bob's own runner serves %q", pool)
			}
		}
		if pools := w.s.Serves("other", protocol.Runner{ID: "r", Owner: pairing.WorkspaceOwner("other")}, false); len(pools) != 2 {
			t.Errorf("a runner of another workspace serves %q", pools)
		}
	})
}
