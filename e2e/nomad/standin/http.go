package standin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// problem is an answer that is an error: a code and plain words.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

// Words of Nomad's answers.
var (
	errDenied   = problem{http.StatusForbidden, "Permission denied"}
	errNoLeader = problem{http.StatusInternalServerError, "No cluster leader"}
	errNoPath   = problem{http.StatusNotFound, "No path to node"}
)

// call is a request. The cluster is locked while it is answered.
type call struct {
	*http.Request
	w     http.ResponseWriter
	ns    string
	can   rights
	index uint64
}

// need is errDenied where a capability is missing.
func (k *call) need(capabilities ...string) error {
	for _, name := range capabilities {
		if !k.can.namespace(k.ns, name) {
			return errDenied
		}
	}
	return nil
}

func (k *call) body(into any) error {
	if err := json.NewDecoder(k.Body).Decode(into); err != nil {
		return problem{http.StatusBadRequest, err.Error()}
	}
	return nil
}

func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*call) (any, error){
		"GET /v1/status/leader":        func(*call) (any, error) { return "127.0.0.1:4647", nil },
		"GET /v1/agent/self":           c.self,
		"GET /v1/nodes":                c.nodes,
		"GET /v1/jobs":                 c.jobs,
		"PUT /v1/jobs":                 c.register,
		"PUT /v1/validate/job":         c.validate,
		"GET /v1/job/{id}":             c.job,
		"DELETE /v1/job/{id}":          c.deregister,
		"PUT /v1/job/{id}/plan":        c.plan,
		"GET /v1/job/{id}/allocations": c.allocations,
		"GET /v1/job/{id}/evaluations": c.evaluations,
		"GET /v1/allocations":          c.allocations,
		"PUT /v1/allocation/{id}/stop": c.stopAllocation,
		"GET /v1/client/fs/logs/{id}":  c.logs,
		"GET /v1/var/{path...}":        c.variable,
		"PUT /v1/var/{path...}":        c.putVariable,
		"DELETE /v1/var/{path...}":     c.deleteVariable,
		"GET /v1/vars":                 c.variables,
		"PUT /v1/namespace":            c.putNamespace,
		"DELETE /v1/namespace/{name}":  c.deleteNamespace,
		"GET /v1/acl/token/self":       c.whose,
		"PUT /v1/acl/token":            c.putToken,
		"DELETE /v1/acl/token/{id}":    c.deleteToken,
		"PUT /v1/acl/policy/{name}":    c.putPolicy,
		"DELETE /v1/acl/policy/{name}": c.deletePolicy,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, answer) })
	}
	mux.HandleFunc("GET /v1/event/stream", c.stream)
	return mux
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	var p problem
	if !errors.As(err, &p) {
		p = problem{http.StatusInternalServerError, err.Error()}
	}
	http.Error(w, p.text, p.code)
}

func (c *Cluster) answer(w http.ResponseWriter, r *http.Request, answer func(*call) (any, error)) {
	c.mu.Lock()
	k := &call{Request: r, w: w, ns: cmp.Or(r.URL.Query().Get("namespace"), api.DefaultNamespace)}
	out, err := any(nil), error(errNoLeader)
	if c.s != nil {
		if k.can, err = c.resolve(r); err == nil {
			out, err = answer(k)
		}
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(out)
	}
	c.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(max(1, k.index), 10))
	w.Header().Set("X-Nomad-KnownLeader", "true")
	w.Header().Set("X-Nomad-LastContact", "0")
	w.Header().Set("Content-Type", "application/json")
	if raw, isPlain := out.(plain); isPlain {
		w.Header().Set("Content-Type", "text/plain")
		body = raw
	}
	if out != nil {
		_, _ = w.Write(body)
	}
}

// plain is an answer that is no document.
type plain []byte

// block is a blocking query: it returns when one of the tables has changed after the
// index that was asked for.
// https://developer.hashicorp.com/nomad/api-docs#blocking-queries
func (c *Cluster) block(k *call, tables ...string) error {
	q := k.URL.Query()
	index, _ := strconv.ParseUint(q.Get("index"), 10, 64) // none is 0
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil {
		wait = 5 * time.Minute
	}
	if index == 0 {
		wait = 0
	}
	now, up := c.await(k.Context(), index, min(wait+wait/16, 10*time.Minute), tables...)
	if !up {
		return errNoLeader
	}
	k.index = now
	return nil
}

func (c *Cluster) self(k *call) (any, error) {
	if !k.can.agent() {
		return nil, errDenied
	}
	return map[string]any{"config": map[string]any{}, "stats": map[string]any{},
		"member": api.AgentMember{Name: "server-1.global", Addr: "127.0.0.1", Status: "alive", Tags: map[string]string{"build": c.cfg.Version, "role": "nomad"}}}, nil
}

func (c *Cluster) nodes(k *call) (any, error) {
	if !k.can.nodes() {
		return nil, errDenied
	}
	if err := c.block(k, "nodes"); err != nil {
		return nil, err
	}
	all := []*api.NodeListStub{}
	for _, n := range c.s.Nodes {
		stub := &api.NodeListStub{ID: n.ID, Name: n.Client.Name, Datacenter: n.Client.Datacenter, Address: "127.0.0.1", Version: c.cfg.Version, Status: n.Status,
			SchedulingEligibility: api.NodeSchedulingEligible, Drain: n.Client.Drain, Drivers: map[string]*api.DriverInfo{}}
		for name, d := range c.drivers(n) {
			stub.Drivers[name] = &d
		}
		if k.URL.Query().Get("os") == "true" {
			stub.Attributes = map[string]string{"os.name": "debian"}
		}
		if k.URL.Query().Get("resources") == "true" {
			stub.NodeResources = &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: int64(n.Client.MHz), TotalCpuCores: uint16(n.Client.Cores)},
				Memory: api.NodeMemoryResources{MemoryMB: int64(n.Client.MemoryMB)}}
		}
		all = append(all, stub)
	}
	return all, nil
}

func (c *Cluster) jobs(k *call) (any, error) {
	if err := k.need("list-jobs"); err != nil {
		return nil, err
	}
	if err := c.block(k, "jobs", "job_summary"); err != nil {
		return nil, err
	}
	all := []*api.JobListStub{}
	for _, id := range slices.Sorted(maps.Keys(c.s.Jobs)) {
		j := c.s.Jobs[id]
		if *j.Namespace != k.ns || !strings.HasPrefix(*j.ID, k.URL.Query().Get("prefix")) {
			continue
		}
		stub := &api.JobListStub{ID: *j.ID, Name: *j.Name, Namespace: *j.Namespace, Datacenters: j.Datacenters, Type: *j.Type, Priority: *j.Priority,
			Stop: *j.Stop, Status: c.status(j), JobSummary: c.s.Summaries[id], CreateIndex: *j.CreateIndex, ModifyIndex: *j.ModifyIndex,
			JobModifyIndex: *j.JobModifyIndex, SubmitTime: *j.SubmitTime}
		if k.URL.Query().Get("meta") == "true" {
			stub.Meta = j.Meta
		}
		all = append(all, stub)
	}
	return all, nil
}

// status of a job: what runs of it, or may.
func (c *Cluster) status(j *api.Job) string {
	for _, a := range c.s.Allocs {
		if a.Namespace == *j.Namespace && a.JobID == *j.ID && !ended(a) {
			return "running"
		}
	}
	if !*j.Stop && c.missing(j) > 0 {
		return "pending"
	}
	return "dead"
}

func (c *Cluster) find(k *call) (*api.Job, error) {
	if err := k.need("read-job"); err != nil {
		return nil, err
	}
	j := c.s.Jobs[key(k.ns, k.PathValue("id"))]
	if j == nil {
		return nil, problem{http.StatusNotFound, "job not found"}
	}
	return j, nil
}

func (c *Cluster) job(k *call) (any, error) {
	j, err := c.find(k)
	if err != nil {
		return nil, err
	}
	j = clone(j)
	j.Status = ptr(c.status(j))
	return j, nil
}

// faults are what a job is refused for.
func (c *Cluster) faults(j *api.Job) (all []string) {
	if len(j.TaskGroups) == 0 {
		return []string{"Missing job task groups"}
	}
	for _, k := range j.Constraints {
		if !slices.Contains([]string{"=", "==", "is", "!=", "not", ">", ">=", "<", "<=", "regexp", "version", "semver", "set_contains", "is_set", "is_not_set",
			"distinct_hosts", "distinct_property"}, k.Operand) {
			all = append(all, fmt.Sprintf("Constraint 1 validation failed: Unknown constraint type %q", k.Operand))
		}
	}
	for _, t := range j.TaskGroups[0].Tasks {
		if r := t.Resources; r.CPU != nil && *r.CPU < 1 || *r.MemoryMB < 10 {
			all = append(all, fmt.Sprintf("Task group %s validation failed: Task %s validation failed: Task's resource ask below the minimum", *j.TaskGroups[0].Name, t.Name))
		}
	}
	return all
}

func (c *Cluster) validate(k *call) (any, error) {
	var in api.JobValidateRequest
	if err := k.body(&in); err != nil {
		return nil, err
	}
	in.Job.Canonicalize()
	out := api.JobValidateResponse{DriverConfigValidated: true, ValidationErrors: c.faults(in.Job)}
	if n := len(out.ValidationErrors); n > 0 {
		out.Error = fmt.Sprintf("%d error occurred:\n\t* %s\n\n", n, strings.Join(out.ValidationErrors, "\n\t* "))
	}
	return out, nil
}

func (c *Cluster) plan(k *call) (any, error) {
	var in api.JobPlanRequest
	if err := k.need("submit-job"); err != nil {
		return nil, err
	}
	if err := k.body(&in); err != nil {
		return nil, err
	}
	return api.JobPlanResponse{}, nil
}

func (c *Cluster) register(k *call) (any, error) {
	var in api.JobRegisterRequest
	if err := k.body(&in); err != nil {
		return nil, err
	}
	j := in.Job
	j.Canonicalize()
	k.ns = *j.Namespace
	if err := k.need("submit-job"); err != nil {
		return nil, err
	}
	if c.s.Namespaces[k.ns] == nil {
		return nil, fmt.Errorf("job %q is in nonexistent namespace %q", *j.ID, k.ns)
	}
	if faults := c.faults(j); len(faults) > 0 {
		return nil, fmt.Errorf("%d error occurred:\n\t* %s\n\n", len(faults), strings.Join(faults, "\n\t* "))
	}
	id := key(k.ns, *j.ID)
	was := c.s.Jobs[id]
	if in.EnforceIndex {
		switch n := in.JobModifyIndex; {
		case n == 0 && was != nil:
			return nil, errors.New("Enforcing job modify index 0: job already exists")
		case n != 0 && was == nil:
			return nil, fmt.Errorf("Enforcing job modify index %d: job does not exist", n)
		case n != 0 && *was.JobModifyIndex != n:
			return nil, fmt.Errorf("Enforcing job modify index %d: job exists with conflicting job modify index: %d", n, *was.JobModifyIndex)
		}
	}
	index := c.s.Index + 1
	j.CreateIndex, j.Version = ptr(index), ptr(uint64(0))
	if was != nil {
		j.CreateIndex, j.Version = was.CreateIndex, ptr(*was.Version+1)
	}
	j.ModifyIndex, j.JobModifyIndex, j.SubmitTime, j.Stop = ptr(index), ptr(index), ptr(time.Now().UnixNano()), ptr(false)
	c.s.Jobs[id] = j
	if c.s.Summaries[id] == nil {
		c.s.Summaries[id] = &api.JobSummary{JobID: *j.ID, Namespace: k.ns, Summary: map[string]api.TaskGroupSummary{}, CreateIndex: index, ModifyIndex: index}
	}
	c.publish("Job", "JobRegistered", *j.ID, k.ns, "", j)
	c.commit("jobs")
	e := c.place(j, "job-register")
	k.index = c.s.Index
	return api.JobRegisterResponse{EvalID: e.ID, EvalCreateIndex: e.CreateIndex, JobModifyIndex: index}, nil
}

func (c *Cluster) deregister(k *call) (any, error) {
	if err := k.need("submit-job"); err != nil {
		return nil, err
	}
	id := key(k.ns, k.PathValue("id"))
	j := c.s.Jobs[id]
	if j == nil {
		return nil, problem{http.StatusNotFound, "job not found"}
	}
	j.Stop, j.ModifyIndex, j.JobModifyIndex = ptr(true), ptr(c.s.Index+1), ptr(c.s.Index+1)
	if waits := c.blocked(id); waits != nil {
		waits.Status, waits.ModifyIndex = api.EvalStatusCancelled, c.s.Index+1
	}
	if k.URL.Query().Get("purge") == "true" {
		delete(c.s.Jobs, id)
		delete(c.s.Summaries, id)
	}
	c.publish("Job", "JobDeregistered", *j.ID, k.ns, "", j)
	c.commit("jobs", "evals")
	for _, a := range c.s.Allocs {
		if a.Namespace == k.ns && a.JobID == *j.ID && a.DesiredStatus == api.AllocDesiredStatusRun && !ended(a) {
			c.desire(a, api.AllocDesiredStatusStop, "alloc not needed due to job update")
		}
	}
	c.summarize(id)
	return api.JobDeregisterResponse{EvalID: uuid(), JobModifyIndex: c.s.Index}, nil
}

// allocations are those of a job, or of a namespace.
func (c *Cluster) allocations(k *call) (any, error) {
	if err := k.need("read-job"); err != nil {
		return nil, err
	}
	if err := c.block(k, "allocs"); err != nil {
		return nil, err
	}
	all := []*api.AllocationListStub{}
	for _, a := range c.s.Allocs {
		if job := k.PathValue("id"); a.Namespace == k.ns && (job == "" || a.JobID == job) {
			all = append(all, a.Stub())
		}
	}
	return all, nil
}

func (c *Cluster) evaluations(k *call) (any, error) {
	if err := k.need("read-job"); err != nil {
		return nil, err
	}
	if err := c.block(k, "evals"); err != nil {
		return nil, err
	}
	all := []*api.Evaluation{}
	for _, e := range c.s.Evals {
		if e.Namespace == k.ns && e.JobID == k.PathValue("id") {
			all = append(all, e)
		}
	}
	return all, nil
}

// stopAllocation is nomad alloc stop: it makes another one in its place.
func (c *Cluster) stopAllocation(k *call) (any, error) {
	a := c.s.Allocs[k.PathValue("id")]
	if a == nil {
		return nil, problem{http.StatusNotFound, "alloc not found"}
	}
	k.ns = a.Namespace
	if err := k.need("alloc-lifecycle"); err != nil {
		return nil, err
	}
	c.desire(a, api.AllocDesiredStatusStop, "alloc is being migrated")
	c.evaluate("alloc-stop")
	return api.AllocStopResponse{EvalID: uuid()}, nil
}

// logs is the log of a task, whole or from an offset, without framing.
// https://developer.hashicorp.com/nomad/api-docs/client#stream-logs
func (c *Cluster) logs(k *call) (any, error) {
	q := k.URL.Query()
	a := c.s.Allocs[k.PathValue("id")]
	if a == nil {
		return nil, problem{http.StatusNotFound, fmt.Sprintf("Unknown allocation %q", k.PathValue("id"))}
	}
	k.ns = a.Namespace
	if k.need("read-logs") != nil && k.need("read-fs") != nil {
		return nil, errDenied
	}
	if q.Get("plain") != "true" || q.Get("follow") == "true" {
		return nil, problem{http.StatusNotImplemented, "the stand-in has plain logs, and follows none"}
	}
	if c.lost[a.NodeID] || c.noPath[a.NodeID] {
		delete(c.noPath, a.NodeID)
		return nil, errNoPath
	}
	task := q.Get("task")
	if !slices.ContainsFunc(a.Job.TaskGroups[0].Tasks, func(t *api.Task) bool { return t.Name == task }) {
		return nil, problem{http.StatusNotFound, fmt.Sprintf("task group %q does not have task with name %q", a.TaskGroup, task)}
	}
	if s := a.TaskStates[task]; s == nil || s.StartedAt.IsZero() || time.Since(s.StartedAt) < c.cfg.LogLag {
		return nil, problem{http.StatusNotFound, fmt.Sprintf("task %q not started yet. No logs available", task)}
	}
	offset, err := strconv.ParseInt(cmp.Or(q.Get("offset"), "0"), 10, 64)
	if err != nil {
		return nil, problem{http.StatusBadRequest, "error parsing offset: " + err.Error()}
	}
	f, err := os.Open(filepath.Join(c.cfg.Dir, "alloc", a.ID, "alloc", "logs", task+"."+q.Get("type")+".0"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if q.Get("origin") == "end" {
		offset = max(0, info.Size()-offset)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, offset, info.Size()))
	return plain(b), err
}

// clone is a copy that shares nothing.
func clone[T any](v *T) *T {
	b, err := json.Marshal(v)
	out := new(T)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		panic(err) // what came in as JSON goes out as JSON
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
