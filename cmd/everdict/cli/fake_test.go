package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/protocol"
)

// fake is a coordinator with a runner that behaves as the API says, in memory:
// its agent knows enough of the scripted harness to create files, print, ask,
// sleep and hang.
type fake struct {
	t      *testing.T
	ctx    context.Context
	wg     sync.WaitGroup
	mu     sync.Mutex
	change chan struct{} // closed and replaced at every change
	runs   []*fakeRun
	specs  map[string][]json.RawMessage
	rows   []protocol.Runner
	keys   []protocol.Key
	values map[protocol.SecretRef]string // of secrets, by name and scope
	bad    map[string]int                // path -> how many 503 it still answers
	serial int
}

// fakeRun is a run with its evidence.
type fakeRun struct {
	protocol.Run
	log      []string
	trace    []protocol.TraceEvent
	diff     string
	steps    []protocol.RunEvent
	decision chan bool
	cancel   context.CancelFunc
}

func newFake(t *testing.T) *fake {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fake{t: t, ctx: ctx, change: make(chan struct{}), specs: map[string][]json.RawMessage{}, values: map[protocol.SecretRef]string{}, bad: map[string]int{}}
	t.Cleanup(func() { cancel(); f.wg.Wait() })
	return f
}

// serve answers at a new address; cut breaks every stream after one event.
func (f *fake) serve(cut bool) string {
	mux := http.NewServeMux()
	handle := func(pattern string, status int, fn func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.bad[r.URL.Path] > 0 {
				f.bad[r.URL.Path]--
				writeProblem(w, protocol.Unavailable("draining"))
				return
			}
			answer, err := fn(r)
			if err != nil {
				writeProblem(w, err)
				return
			}
			if next, ok := answer.(page); ok {
				if next.link != "" {
					w.Header().Set("Link", next.link)
				}
				answer = next.rows
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if answer != nil {
				json.NewEncoder(w).Encode(answer)
			}
		})
	}
	f.runRoutes(mux, handle, cut)
	f.otherRoutes(handle)
	f.secretRoutes(handle)
	mux.HandleFunc("GET /teapot/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "<html><title>Bad Gateway</title></html>")
	})
	s := httptest.NewServer(mux)
	f.t.Cleanup(s.Close)
	return s.URL
}

type page struct {
	rows any
	link string
}

func writeProblem(w http.ResponseWriter, err error) {
	var p *protocol.Problem
	if !errors.As(err, &p) {
		p = protocol.Internal("%s", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

type handleFunc func(pattern string, status int, fn func(r *http.Request) (any, error))

func (f *fake) runRoutes(mux *http.ServeMux, handle handleFunc, cut bool) {
	handle("POST /runs", http.StatusAccepted, f.submit)
	handle("GET /runs", http.StatusOK, f.list)
	one := func(fn func(run *fakeRun, r *http.Request) (any, error)) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) {
			run := f.find(r.PathValue("id"))
			if run == nil {
				return nil, protocol.NotFound("no run %q in workspace %s", r.PathValue("id"), r.Header.Get("X-Everdict-Tenant")).WithHint("GET /runs lists the runs of this workspace")
			}
			return fn(run, r)
		}
	}
	handle("GET /runs/{id}", http.StatusOK, one(func(run *fakeRun, _ *http.Request) (any, error) { return run.Run, nil }))
	handle("GET /runs/{id}/events", http.StatusOK, one(func(run *fakeRun, _ *http.Request) (any, error) { return run.steps, nil }))
	handle("GET /runs/{id}/attempts", http.StatusOK, one(func(run *fakeRun, _ *http.Request) (any, error) {
		if run.StartedAt == nil {
			return []protocol.Attempt{}, nil
		}
		return []protocol.Attempt{{Attempt: 1, Runner: "rnr_fake", RunnerLabel: "fake", Outcome: protocol.AttemptSettled, StartedAt: run.StartedAt, EndedAt: run.FinishedAt}}, nil
	}))
	handle("GET /runs/{id}/placement", http.StatusOK, one(func(run *fakeRun, _ *http.Request) (any, error) {
		v := protocol.PlacementView{Status: run.Status, Found: true, Placement: &protocol.CasePlacement{Phase: string(run.Status), Events: []protocol.PlacementEvent{}}}
		if run.Placement != nil {
			v.Placement.BlockedReason, v.Placement.QueueDeadline = run.Placement.BlockedReason, run.Placement.QueueDeadline
		}
		return v, nil
	}))
	handle("GET /runs/{id}/trace", http.StatusOK, one(func(run *fakeRun, r *http.Request) (any, error) {
		at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		end := min(at+2, len(run.trace)) // small pages, so that they are followed
		return page{run.trace[at:end], fmt.Sprintf(`</runs/%s/trace?cursor=%d>; rel="next"`, run.ID, end)}, nil
	}))
	handle("POST /runs/{id}/cancel", http.StatusOK, one(func(run *fakeRun, _ *http.Request) (any, error) {
		if run.Status.Terminal() && run.Error == nil {
			return nil, protocol.Conflict("run %s has %s already", run.ID, run.Status)
		}
		run.cancel()
		f.fail(run, protocol.ReasonCancelled, protocol.CodeCancelled, "cancelled on request")
		return run.Run, nil
	}))
	decide := func(approved bool) func(*http.Request) (any, error) {
		return one(func(run *fakeRun, _ *http.Request) (any, error) {
			if run.Status != protocol.StatusSuspended {
				return nil, protocol.Conflict("run %s waits for nobody", run.ID)
			}
			run.Suspended = nil
			f.status(run, protocol.StatusQueued)
			run.decision <- approved
			return run.Run, nil
		})
	}
	handle("POST /runs/{id}/approve", http.StatusOK, decide(true))
	handle("POST /runs/{id}/reject", http.StatusOK, decide(false))
	mux.HandleFunc("GET /runs/{id}/diff", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if run := f.find(r.PathValue("id")); run != nil && run.Result != nil {
			w.Header().Set("Content-Type", "text/x-diff")
			fmt.Fprint(w, run.diff)
			return
		}
		writeProblem(w, protocol.NotFound("the run has no diff"))
	})
	mux.HandleFunc("GET /runs/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		run := f.find(r.PathValue("id"))
		switch {
		case run == nil:
			writeProblem(w, protocol.NotFound("no run %q", r.PathValue("id")))
		case r.URL.Query().Get("raw") == "1":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, strings.Join(run.log, ""))
		default:
			json.NewEncoder(w).Encode(protocol.LogView{Status: run.Status, Found: true, Text: strings.Join(run.log, "")})
		}
	})
	mux.HandleFunc("GET /runs/{id}/live/stream", func(w http.ResponseWriter, r *http.Request) {
		f.stream(w, r, cut, func(run *fakeRun, at int) (string, int) {
			if at < len(run.trace) {
				b, _ := json.Marshal(protocol.LiveEvent{Kind: protocol.LiveTrace, Events: run.trace[at : at+1], Total: int64(len(run.trace))})
				return fmt.Sprintf("id: %d\nevent: trace\ndata: %s\n\n", at+1, b), at + 1
			}
			return "", at
		}, true)
	})
	mux.HandleFunc("GET /runs/{id}/logs/stream", func(w http.ResponseWriter, r *http.Request) {
		f.stream(w, r, cut, func(run *fakeRun, at int) (string, int) {
			if at < len(run.log) {
				b, _ := json.Marshal(run.log[at])
				return fmt.Sprintf("id: %d\ndata: %s\n\n", at+1, b), at + 1
			}
			return "", at
		}, false)
	})
}

// stream sends what next finds after the position that Last-Event-ID names, and
// in between the status when it has changed.
func (f *fake) stream(w http.ResponseWriter, r *http.Request, cut bool, next func(*fakeRun, int) (string, int), statuses bool) {
	f.mu.Lock()
	run := f.find(r.PathValue("id"))
	f.mu.Unlock()
	if run == nil {
		writeProblem(w, protocol.NotFound("no run %q", r.PathValue("id")))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	at, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	var told protocol.Status
	for {
		f.mu.Lock()
		text, change, status := "", f.change, run.Status
		if statuses && status != told && !status.Terminal() {
			text, told = fmt.Sprintf("event: status\ndata: {\"status\":%q}\n\n", status), status
		} else if text, at = next(run, at); text == "" && status.Terminal() {
			text = fmt.Sprintf("event: end\ndata: {\"status\":%q}\n\n", status)
		}
		f.mu.Unlock()
		if text != "" {
			fmt.Fprint(w, text)
			w.(http.Flusher).Flush()
			if strings.HasPrefix(text, "event: end") || cut && strings.HasPrefix(text, "id: ") {
				return
			}
			continue
		}
		select {
		case <-change:
		case <-r.Context().Done():
			return
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *fake) find(id string) *fakeRun {
	for _, r := range f.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// status changes a run; f.mu is held.
func (f *fake) status(run *fakeRun, s protocol.Status) {
	run.Status = s
	f.changed(run)
}

func (f *fake) changed(run *fakeRun) {
	run.UpdatedAt = protocol.At(time.Now())
	close(f.change)
	f.change = make(chan struct{})
}

func (f *fake) step(run *fakeRun, kind string) {
	run.steps = append(run.steps, protocol.RunEvent{Seq: int64(len(run.steps) + 1), At: protocol.At(time.Now()), Kind: kind})
}

func (f *fake) submit(r *http.Request) (any, error) {
	var req protocol.RunRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, protocol.BadRequest("the body is not JSON: %v", err)
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if id := req.Harness.ID; len(f.specs[id]) == 0 && !slices.Contains(protocol.Adapters(), id) {
		return nil, protocol.NotFound("no harness %q in this workspace", id).WithHint("register it with POST /harnesses, or use one that is built in: %s", strings.Join(protocol.Adapters(), ", "))
	}
	if strings.HasPrefix(req.Runtime, protocol.TargetSelfPrefix) {
		return nil, protocol.NotFound("no runner %q in this workspace", strings.TrimPrefix(req.Runtime, protocol.TargetSelfPrefix)).WithHint("GET /runners lists them")
	}
	ctx, cancel := context.WithCancel(f.ctx)
	f.serial++
	run := &fakeRun{decision: make(chan bool, 1), cancel: cancel, Run: protocol.Run{
		ID: fmt.Sprintf("run_%026d", f.serial), Tenant: r.Header.Get("X-Everdict-Tenant"), Status: protocol.StatusQueued, CaseID: req.Case.ID,
		Harness: req.Harness, Kind: "eval", Class: req.Priority, Runtime: req.Target(), CaseSpec: &req.Case, CreatedAt: protocol.At(time.Now()),
		Placement: &protocol.RunPlace{Where: "runtime", Target: req.Target()},
	}}
	f.runs = append(f.runs, run)
	f.step(run, protocol.RunSubmitted)
	if req.Runtime == "nowhere" {
		run.Placement.BlockedReason = "no runner of this workspace is online"
		return protocol.SubmittedRun{RunID: run.ID, Run: run.Run}, nil
	}
	if req.Case.Approval != "" {
		run.Suspended = &protocol.Suspension{Kind: req.Case.Approval, Since: run.CreatedAt}
		run.Status = protocol.StatusSuspended
	}
	f.wg.Go(func() { f.execute(ctx, run) })
	return protocol.SubmittedRun{RunID: run.ID, Run: run.Run}, nil
}

func (f *fake) list(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	at, _ := strconv.Atoi(q.Get("cursor"))
	rows := []protocol.Run{}
	for i := len(f.runs) - 1 - at; i >= 0; i-- {
		if s := q.Get("status"); s != "" && string(f.runs[i].Status) != s {
			continue
		}
		if len(rows) == limit {
			q.Set("cursor", strconv.Itoa(len(f.runs)-1-i))
			return page{rows, "</runs?" + q.Encode() + `>; rel="next"`}, nil
		}
		rows = append(rows, f.runs[i].Run)
	}
	return rows, nil
}

// execute is the runner: it waits for approval, carries the plan out, and grades.
func (f *fake) execute(ctx context.Context, run *fakeRun) {
	if run.CaseSpec.Approval != "" && !f.decided(ctx, run) {
		return
	}
	f.do(ctx, run, func() {
		now := protocol.At(time.Now())
		run.StartedAt, run.Attempt = &now, 1
		f.step(run, protocol.RunStarted)
		f.status(run, protocol.StatusRunning)
	})
	files := map[string]string{}
	script := strings.Split(run.Harness.Params["script"], "\n")
	if w := strings.Fields(run.CaseSpec.Task); len(w) >= 6 && w[0] == "Create" {
		script = []string{"create " + w[1] + " " + w[len(w)-1]}
	}
	for _, line := range script {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "create":
			name, text, _ := strings.Cut(rest, " ")
			files[name] = text + "\n"
			f.event(ctx, run, protocol.TraceEvent{Kind: protocol.EventToolCall, Name: "create_file", Args: json.RawMessage(fmt.Sprintf(`{"path":%q}`, name))})
		case "run":
			text := strings.Trim(strings.TrimPrefix(rest, "echo "), `"'`)
			if esc, found := strings.CutPrefix(rest, "printf "); found {
				text, _ = strconv.Unquote(`"` + strings.ReplaceAll(strings.Trim(esc, "'"), `\033`, `\x1b`) + `"`)
			}
			f.do(ctx, run, func() { run.log = append(run.log, text+"\n") })
		case "say":
			f.event(ctx, run, protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: &rest})
		case "ask":
			f.do(ctx, run, func() {
				run.Suspended = &protocol.Suspension{Kind: "ask", Question: rest, Since: protocol.At(time.Now())}
				f.status(run, protocol.StatusSuspended)
			})
			if !f.decided(ctx, run) {
				return
			}
			f.do(ctx, run, func() { f.status(run, protocol.StatusRunning) })
		case "hang":
			<-ctx.Done()
		}
	}
	f.do(ctx, run, func() { f.settle(run, files) })
}

// do changes a run that was not cancelled.
func (f *fake) do(ctx context.Context, run *fakeRun, change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		change()
		f.changed(run)
	}
}

func (f *fake) event(ctx context.Context, run *fakeRun, e protocol.TraceEvent) {
	f.do(ctx, run, func() {
		e.T = float64(time.Now().UnixMilli())
		run.trace = append(run.trace, e)
	})
}

// decided waits for a person; no fails the run.
func (f *fake) decided(ctx context.Context, run *fakeRun) bool {
	select {
	case yes := <-run.decision:
		if !yes {
			f.do(ctx, run, func() { f.fail(run, protocol.ReasonRejected, protocol.CodeCancelled, "a person said no") })
		}
		return yes
	case <-ctx.Done():
		return false
	}
}

func (f *fake) fail(run *fakeRun, reason string, code protocol.Code, message string) {
	now := protocol.At(time.Now())
	run.FinishedAt = &now
	run.Error = &protocol.RunError{Code: code, Message: message}
	run.Failure = &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: reason, Code: code, Message: message}
	f.step(run, protocol.RunSettled)
	f.status(run, protocol.StatusFailed)
}

// settle grades: "grep -q WORD FILE" passes when the file contains the word.
func (f *fake) settle(run *fakeRun, files map[string]string) {
	now := protocol.At(time.Now())
	run.FinishedAt = &now
	names := []string{}
	for name, text := range files {
		names = append(names, name)
		run.diff += fmt.Sprintf("diff --git a/%s b/%s\nnew file mode 100644\nindex 0000000..1111111\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+%s", name, name, name, text)
	}
	run.Result = &protocol.CaseResult{CaseID: run.CaseID, Harness: run.Harness.String(), Snapshot: protocol.Snapshot{
		Kind: protocol.EnvRepo, Diff: run.diff, DiffBytes: int64(len(run.diff)), ChangedFiles: names}}
	for _, g := range run.CaseSpec.Graders {
		var config struct {
			Cmd string `json:"cmd"`
		}
		json.Unmarshal(g.Config, &config)
		w := strings.Fields(config.Cmd)
		pass := len(w) == 4 && strings.Contains(files[w[3]], w[2])
		run.Scores = append(run.Scores, protocol.MeasuredPass(g.ID, "tests_pass", pass))
		run.Verdict = &pass
	}
	run.Provenance = &protocol.Provenance{RanOn: "self-hosted", Runner: "rnr_fake", RunnerLabel: "fake", Attestation: "self_reported"}
	f.step(run, protocol.RunSettled)
	f.status(run, protocol.StatusSucceeded)
}

func (f *fake) otherRoutes(handle handleFunc) {
	for scope, owner := range map[string]string{"/runners": "dev", "/workspace/runners": "ws:default"} {
		handle("POST "+scope, http.StatusOK, func(r *http.Request) (any, error) {
			var req protocol.PairRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				return nil, protocol.BadRequest("%v", err)
			}
			f.serial++
			runner := protocol.Runner{ID: fmt.Sprintf("rnr_%d", f.serial), Label: req.Label, Owner: owner, Capabilities: req.Capabilities, PairedAt: protocol.At(time.Now())}
			f.rows = append([]protocol.Runner{runner}, f.rows...)
			return protocol.Paired{Runner: runner, Token: "rnr_secret"}, nil
		})
		mine := func(r protocol.Runner) bool { return scope != "/runners" || r.Owner == owner }
		handle("GET "+scope, http.StatusOK, func(*http.Request) (any, error) {
			return protocol.Runners{Runners: slices.DeleteFunc(slices.Concat([]protocol.Runner{}, f.rows), func(r protocol.Runner) bool { return !mine(r) })}, nil
		})
		handle("DELETE "+scope+"/{id}", http.StatusNoContent, func(r *http.Request) (any, error) {
			f.rows = slices.DeleteFunc(f.rows, func(x protocol.Runner) bool { return x.ID == r.PathValue("id") && mine(x) })
			return nil, nil
		})
	}
	handle("POST /keys", http.StatusCreated, func(r *http.Request) (any, error) {
		var req protocol.KeyRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return nil, protocol.BadRequest("%v", err)
		}
		f.serial++
		if req.Scopes == nil && r.Header.Get("Authorization") != "" {
			req.Scopes = []string{protocol.ScopeWrite}
		}
		if err := req.Validate(); err != nil {
			return nil, err
		}
		key := protocol.Key{ID: fmt.Sprintf("key_%d", f.serial), Label: req.Label, Scopes: req.Scopes,
			Subject: cmp.Or(req.Subject, "dev"), Role: cmp.Or(req.Role, protocol.RoleMember), Prefix: "ak_012345678", CreatedAt: protocol.At(time.Now())}
		f.keys = append(f.keys, key)
		return protocol.IssuedKey{ID: key.ID, APIKey: "ak_0123456789abcdef"}, nil
	})
	handle("POST /internal/tenant-keys", http.StatusCreated, func(r *http.Request) (any, error) {
		if r.Header.Get(protocol.InternalTokenHeader) != strings.Repeat("operator", 4) {
			return nil, protocol.Forbidden("this is not the internal token of the coordinator")
		}
		var req protocol.TenantKeyRequest
		err := json.NewDecoder(r.Body).Decode(&req)
		return protocol.TenantKey{Workspace: req.Workspace, ID: "key_first", APIKey: "ak_first"}, err
	})
	handle("GET /keys", http.StatusOK, func(*http.Request) (any, error) { return slices.Concat([]protocol.Key{}, f.keys), nil })
	handle("DELETE /keys/{id}", http.StatusNoContent, func(r *http.Request) (any, error) {
		f.keys = slices.DeleteFunc(f.keys, func(x protocol.Key) bool { return x.ID == r.PathValue("id") })
		return nil, nil
	})
	handle("POST /harnesses", http.StatusCreated, func(r *http.Request) (any, error) {
		var spec protocol.HarnessSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return nil, protocol.BadRequest("%v", err)
		}
		if err := spec.Validate(); err != nil {
			return nil, err
		}
		b, err := json.Marshal(spec)
		f.specs[spec.ID] = append(f.specs[spec.ID], b)
		return protocol.Registered{Workspace: "default", ID: spec.ID, Version: spec.Version}, err
	})
	handle("POST /harnesses/validate", http.StatusOK, func(r *http.Request) (any, error) {
		var spec protocol.HarnessSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return nil, protocol.BadRequest("%v", err)
		}
		if err := spec.Validate(); err != nil {
			return protocol.Validation{Errors: []string{err.Error()}}, nil
		}
		return protocol.Validation{OK: true, Kind: spec.Kind, ID: spec.ID, Version: spec.Version}, nil
	})
	handle("GET /harnesses", http.StatusOK, func(*http.Request) (any, error) {
		out := []protocol.HarnessEntry{}
		for id, specs := range f.specs {
			if len(specs) > 0 {
				out = append(out, protocol.HarnessEntry{ID: id, Owner: "default", Versions: []string{"1.0.0"}, LatestVersion: "1.0.0", Kind: protocol.HarnessCommand, UpdatedAt: protocol.At(time.Now())})
			}
		}
		return out, nil
	})
	handle("GET /harnesses/{id}/{version}", http.StatusOK, func(r *http.Request) (any, error) {
		specs := f.specs[r.PathValue("id")]
		if len(specs) == 0 {
			return nil, protocol.NotFound("no harness %q", r.PathValue("id")).WithHint("GET /harnesses lists them")
		}
		return specs[len(specs)-1], nil
	})
	handle("GET /harness-templates/{id}/{version}", http.StatusOK, func(r *http.Request) (any, error) {
		return nil, protocol.NotFound("no harness template %q", r.PathValue("id")).WithHint("register it with POST /harness-templates")
	})
	handle("DELETE /harnesses/{id}/versions/{version}", http.StatusOK, func(r *http.Request) (any, error) {
		delete(f.specs, r.PathValue("id"))
		return protocol.Deleted{ID: r.PathValue("id"), Version: r.PathValue("version"), Deleted: true}, nil
	})
	handle("GET /me", http.StatusOK, func(r *http.Request) (any, error) {
		me := protocol.Me{Subject: "dev", Workspace: r.Header.Get("X-Everdict-Tenant"), Roles: []string{protocol.RoleAdmin}}
		if r.Header.Get("Authorization") != "" {
			me.Scopes = []string{protocol.ScopeWrite}
		}
		return me, nil
	})
}
