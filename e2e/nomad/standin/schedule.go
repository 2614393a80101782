package standin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// ended says that an allocation will not run any more.
func ended(a *api.Allocation) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

// touch notes that an allocation has changed; commit follows. The caller holds mu.
func (c *Cluster) touch(a *api.Allocation) {
	a.ModifyIndex, a.ModifyTime = c.s.Index+1, time.Now().UnixNano()
	c.publishAllocation(a)
	c.commit("allocs")
	c.summarize(key(a.Namespace, a.JobID))
}

// desire is the servers' wish for an allocation, which its client hears if it can.
func (c *Cluster) desire(a *api.Allocation, status, why string) {
	a.DesiredStatus, a.DesiredDescription = status, why
	c.touch(a)
	c.hear(a.NodeID)
}

// summarize counts the allocations of a job by status, and notes if the counts have
// changed: lists of jobs are answered after that, too.
func (c *Cluster) summarize(job string) {
	j, was := c.s.Jobs[job], c.s.Summaries[job]
	if j == nil || was == nil {
		return
	}
	var n api.TaskGroupSummary
	for _, a := range c.s.Allocs {
		if key(a.Namespace, a.JobID) != job {
			continue
		}
		switch a.ClientStatus {
		case api.AllocClientStatusPending:
			n.Starting++
		case api.AllocClientStatusRunning:
			n.Running++
		case api.AllocClientStatusComplete:
			n.Complete++
		case api.AllocClientStatusFailed:
			n.Failed++
		case api.AllocClientStatusLost:
			n.Lost++
		case api.AllocClientStatusUnknown:
			n.Unknown++
		}
	}
	if c.blocked(job) != nil {
		n.Queued = 1
	}
	name := *j.TaskGroups[0].Name
	if was.Summary[name] == n {
		return
	}
	was.Summary[name] = n
	was.ModifyIndex = c.s.Index + 1
	c.commit("job_summary")
}

// blocked is the evaluation of a job that waits for room; nil: none does.
func (c *Cluster) blocked(job string) *api.Evaluation {
	for _, e := range c.s.Evals {
		if key(e.Namespace, e.JobID) == job && e.Status == api.EvalStatusBlocked {
			return e
		}
	}
	return nil
}

// evaluate places what is missing, for all jobs: something has changed that may have
// made room. The caller holds mu.
func (c *Cluster) evaluate(trigger string) {
	for _, k := range slices.Sorted(maps.Keys(c.s.Jobs)) {
		if c.missing(c.s.Jobs[k]) > 0 {
			c.place(c.s.Jobs[k], trigger)
		}
	}
}

// missing is how many allocations a job lacks. One of a batch job that has ended is
// not missing; one that the servers stopped while the job goes on is.
func (c *Cluster) missing(j *api.Job) int {
	if *j.Stop {
		return 0
	}
	need := *j.TaskGroups[0].Count
	for _, a := range c.s.Allocs {
		if a.Namespace == *j.Namespace && a.JobID == *j.ID && a.DesiredStatus == api.AllocDesiredStatusRun {
			need--
		}
	}
	return max(0, need)
}

// place makes the allocation that a job lacks, or a blocked evaluation that says why
// there is no place for it.
func (c *Cluster) place(j *api.Job, trigger string) *api.Evaluation {
	job := key(*j.Namespace, *j.ID)
	e := &api.Evaluation{ID: uuid(), Priority: *j.Priority, Type: *j.Type, TriggeredBy: trigger, Namespace: *j.Namespace, JobID: *j.ID,
		JobModifyIndex: *j.JobModifyIndex, Status: api.EvalStatusComplete, CreateIndex: c.s.Index + 1, ModifyIndex: c.s.Index + 1}
	waits := c.blocked(job)
	if c.missing(j) > 0 {
		n, metric := c.choose(j)
		switch {
		case n != nil:
			if waits != nil {
				waits.Status, waits.ModifyIndex = api.EvalStatusComplete, c.s.Index+1
			}
			c.s.Evals[e.ID] = e
			c.publish("Evaluation", "EvaluationUpdated", e.ID, e.Namespace, e.JobID, e)
			c.commit("evals")
			c.allocate(j, n, e, metric)
			return e
		case waits != nil: // it still does, maybe for another reason
			if e.TriggeredBy != "job-register" {
				waits.FailedTGAllocs[*j.TaskGroups[0].Name] = metric
				return waits
			}
			waits.Status = api.EvalStatusCancelled
			fallthrough
		default:
			waits = &api.Evaluation{ID: uuid(), Priority: *j.Priority, Type: *j.Type, TriggeredBy: "queued-allocs", Namespace: *j.Namespace, JobID: *j.ID,
				Status: api.EvalStatusBlocked, StatusDescription: "created to place remaining allocations", PreviousEval: e.ID,
				FailedTGAllocs: map[string]*api.AllocationMetric{*j.TaskGroups[0].Name: metric}, CreateIndex: c.s.Index + 1, ModifyIndex: c.s.Index + 1}
			e.BlockedEval, e.FailedTGAllocs = waits.ID, waits.FailedTGAllocs
			e.QueuedAllocations = map[string]int{*j.TaskGroups[0].Name: 1}
			c.s.Evals[waits.ID] = waits
		}
	}
	c.s.Evals[e.ID] = e
	c.publish("Evaluation", "EvaluationUpdated", e.ID, e.Namespace, e.JobID, e)
	c.commit("evals")
	c.summarize(job)
	return e
}

// allocate gives a job a place.
func (c *Cluster) allocate(j *api.Job, n *node, e *api.Evaluation, m *api.AllocationMetric) {
	g := j.TaskGroups[0]
	a := &api.Allocation{ID: uuid(), Namespace: *j.Namespace, EvalID: e.ID, Name: *j.ID + "." + *g.Name + "[0]", NodeID: n.ID, NodeName: n.Client.Name,
		JobID: *j.ID, Job: clone(j), TaskGroup: *g.Name, Metrics: m, DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusPending,
		CreateIndex: c.s.Index + 1, CreateTime: time.Now().UnixNano()}
	for _, before := range c.s.Allocs {
		if before.JobID == a.JobID && before.Namespace == a.Namespace && before.NextAllocation == "" {
			before.NextAllocation, a.PreviousAllocation = a.ID, before.ID
		}
	}
	c.s.Allocs[a.ID] = a
	c.touch(a)
	c.hear(n.ID)
}

// size is what the tasks of a group need at a time: those that run before the others
// do not add to them.
func size(g *api.TaskGroup) (mhz, cores, memoryMB, gpus int) {
	for _, t := range g.Tasks {
		r := t.Resources
		mhz, cores, memoryMB = max(mhz, deref(r.CPU)), max(cores, deref(r.Cores)), max(memoryMB, deref(r.MemoryMB))
		for _, d := range r.Devices {
			gpus += int(*d.Count)
		}
	}
	return mhz, cores, memoryMB, gpus
}

func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

// choose is a client with room for a job, and what kept others out.
func (c *Cluster) choose(j *api.Job) (*node, *api.AllocationMetric) {
	g := j.TaskGroups[0]
	m := &api.AllocationMetric{NodesAvailable: map[string]int{}, ConstraintFiltered: map[string]int{}, DimensionExhausted: map[string]int{},
		ClassFiltered: map[string]int{}, ClassExhausted: map[string]int{}}
	mhz, cores, memory, gpus := size(g)
	if limit, there := c.s.Quotas[*j.Namespace]; there && c.used("", *j.Namespace, 2)+memory > limit {
		m.QuotaExhausted = []string{"memory exhausted (" + itoa(c.used("", *j.Namespace, 2)+memory) + " needed > " + itoa(limit) + " limit)"}
		return nil, m
	}
	var nodes []*node
	for _, n := range c.s.Nodes {
		if n.Status == api.NodeStatusReady && !n.Client.Drain && within(j.Datacenters, n.Client.Datacenter) {
			nodes = append(nodes, n)
			m.NodesAvailable[n.Client.Datacenter]++
		}
	}
	for _, dc := range j.Datacenters {
		if !strings.Contains(dc, "*") && m.NodesAvailable[dc] == 0 {
			m.NodesAvailable[dc] = 0
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.Client.Name, b.Client.Name) })
	for _, n := range nodes {
		m.NodesEvaluated++
		if why := c.filtered(n, j, gpus); why != "" {
			m.NodesFiltered++
			m.ConstraintFiltered[why]++
			continue
		}
		dimension := ""
		switch {
		case cores > 0 && c.used(n.ID, "", 1)+cores > n.Client.Cores:
			dimension = "cores"
		case c.used(n.ID, "", 0)+mhz > n.Client.MHz:
			dimension = "cpu"
		case c.used(n.ID, "", 2)+memory > n.Client.MemoryMB:
			dimension = "memory"
		case gpus > 0 && c.used(n.ID, "", 3)+gpus > n.Client.GPUs:
			dimension = "devices: no devices match request"
		}
		if dimension == "" {
			return n, m
		}
		m.NodesExhausted++
		m.DimensionExhausted[dimension]++
	}
	return nil, m
}

// within says whether a datacenter is among those of a job, which may have wildcards.
func within(all []string, dc string) bool {
	return slices.ContainsFunc(all, func(pattern string) bool { return glob(pattern, dc) })
}

// filtered is the constraint that keeps a job from a client; empty: none does.
func (c *Cluster) filtered(n *node, j *api.Job, gpus int) string {
	for _, t := range j.TaskGroups[0].Tasks {
		if !c.drivers(n)[t.Driver].Healthy {
			return "missing drivers"
		}
	}
	if gpus > 0 && n.Client.GPUs == 0 {
		return "missing devices"
	}
	for _, k := range j.Constraints {
		value, known := c.attribute(n, k.LTarget)
		ok := known && value == k.RTarget
		switch k.Operand {
		case "!=", "not":
			ok = value != k.RTarget
		case "is_set":
			ok = known
		case "is_not_set":
			ok = !known
		}
		if !ok {
			return k.LTarget + " " + k.Operand + " " + k.RTarget
		}
	}
	return ""
}

func (c *Cluster) attribute(n *node, name string) (string, bool) {
	switch name {
	case "${node.datacenter}":
		return n.Client.Datacenter, true
	case "${node.unique.name}":
		return n.Client.Name, true
	case "${attr.kernel.name}":
		return "linux", true
	}
	v, known := n.Client.Attributes[strings.TrimSuffix(strings.TrimPrefix(name, "${"), "}")]
	return v, known
}

func (c *Cluster) drivers(n *node) map[string]api.DriverInfo {
	docker, raw := c.cfg.Docker != nil, !n.Client.HasNoRawExec
	return map[string]api.DriverInfo{
		"docker":   {Detected: docker, Healthy: docker},
		"raw_exec": {Detected: raw, Healthy: raw},
	}
}

// used is how much of dimension what (MHz, cores, memory, GPUs) is taken, on a node or
// in a namespace.
func (c *Cluster) used(node, namespace string, what int) int {
	sum := 0
	for _, a := range c.s.Allocs {
		if ended(a) || node != "" && a.NodeID != node || namespace != "" && a.Namespace != namespace {
			continue
		}
		var of [4]int
		of[0], of[1], of[2], of[3] = size(a.Job.TaskGroups[0])
		sum += of[what]
	}
	return sum
}
