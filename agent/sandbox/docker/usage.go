package docker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// counters are what the kernel counts for a container. Nil: it does not tell.
type counters struct {
	cpu                                   *time.Duration
	peakMemory, pids, peakPIDs, oom, hits *int64
}

// plus adds those of a later life of the container.
func (a counters) plus(b counters) counters {
	return counters{
		cpu:        sum(a.cpu, b.cpu),
		peakMemory: most(a.peakMemory, b.peakMemory),
		pids:       b.pids,
		peakPIDs:   most(a.peakPIDs, b.peakPIDs),
		oom:        sum(a.oom, b.oom),
		hits:       sum(a.hits, b.hits),
	}
}

func sum[T ~int64](a, b *T) *T {
	if a == nil || b == nil {
		return either(a, b)
	}
	s := *a + *b
	return &s
}

func most(a, b *int64) *int64 {
	if a == nil || b == nil {
		return either(a, b)
	}
	m := max(*a, *b)
	return &m
}

func either[T any](a, b *T) *T {
	if a == nil {
		return b
	}
	return a
}

func (a counters) usage() sandbox.Usage {
	return sandbox.Usage{CPU: a.cpu, PeakMemory: a.peakMemory, PIDs: a.pids, PeakPIDs: a.peakPIDs, OOMKills: a.oom, PIDsHits: a.hits}
}

// Usage implements sandbox.ComputeHandle. PIDs counts init and the supervisor of each command, as the limit does. Of a
// paused one it is what was measured when it froze.
func (h *handle) Usage(ctx context.Context) (sandbox.Usage, error) {
	h.mu.Lock()
	if h.released {
		defer h.mu.Unlock()
		return h.final, nil
	}
	paused := h.paused
	h.mu.Unlock()
	if !paused {
		h.notice()
		h.look(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.base.plus(h.last).usage()
	_, u.Frozen, _, _ = h.watch.Read()
	return u, nil
}

// look reads the counters. Init reads them for us, in the container: that works with every engine, wherever it runs.
// What init does not answer stays as it was read last.
func (h *handle) look(ctx context.Context) {
	h.mu.Lock()
	l := h.link
	h.mu.Unlock()
	ask := h.questions()
	answers := make([]<-chan fileAnswer, len(ask))
	for i, q := range ask {
		answers[i] = l.file(q.path)
	}
	silent, end := stall()
	defer end()
	var c counters
	for i, q := range ask {
		select {
		case a := <-answers[i]:
			if a.errno == 0 {
				q.read(string(a.content), &c)
			}
		case <-l.dead:
			return
		case <-ctx.Done():
			return
		case <-silent:
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l {
		h.keep(c)
	}
}

// keep makes c what was read last. mu is held.
func (h *handle) keep(c counters) {
	if c.peakPIDs == nil {
		// Kernels before 6.11 keep no peak. What is known for sure: the limit, once it was hit; else what is there now.
		c.peakPIDs = c.pids
		if c.hits != nil && *c.hits > 0 {
			for _, limit := range h.info.Limits {
				if limit.Name == "pids" {
					c.peakPIDs = &limit.Value
				}
			}
		}
	}
	c.peakPIDs = most(c.peakPIDs, h.last.peakPIDs)
	h.last = c
}

// questions are the counters that are the container's own.
func (h *handle) questions() []question {
	i := h.engine.info
	switch {
	case !h.engine.ownCgroups():
		return nil
	case i.CgroupVersion == "2":
		return cgroup2
	}
	own := map[string]bool{"memory": i.MemoryLimit, "pids": i.PidsLimit, "cpuacct": i.CPUShares}
	var q []question
	for _, c := range cgroup1 {
		if controller, _, _ := strings.Cut(strings.TrimPrefix(c.path, cgroupRoot), "/"); own[controller] {
			q = append(q, c)
		}
	}
	return q
}

// ownCgroups reports whether the engine can make a cgroup for a container. Where it cannot, as a rootless one on cgroup v1,
// it cannot pause either, and the counters that a container sees are somebody else's, perhaps the whole machine's.
func (e *engine) ownCgroups() bool {
	return e.info.CgroupDriver != "none" && (e.info.MemoryLimit || e.info.PidsLimit || e.info.CPUShares)
}

// question is one file of the container's cgroup.
type question struct {
	path string
	read func(content string, c *counters)
}

const cgroupRoot = "/sys/fs/cgroup/"

var cgroup1 = []question{
	{cgroupRoot + "cpuacct/cpuacct.usage", func(s string, c *counters) {
		if n := number(s); n != nil {
			d := time.Duration(*n)
			c.cpu = &d
		}
	}},
	{cgroupRoot + "memory/memory.max_usage_in_bytes", func(s string, c *counters) { c.peakMemory = number(s) }},
	{cgroupRoot + "memory/memory.oom_control", func(s string, c *counters) { c.oom = field(s, "oom_kill") }},
	{cgroupRoot + "pids/pids.current", func(s string, c *counters) { c.pids = number(s) }},
	{cgroupRoot + "pids/pids.peak", func(s string, c *counters) { c.peakPIDs = number(s) }},
	{cgroupRoot + "pids/pids.events", func(s string, c *counters) { c.hits = field(s, "max") }},
}

var cgroup2 = []question{
	{cgroupRoot + "cpu.stat", func(s string, c *counters) {
		if n := field(s, "usage_usec"); n != nil {
			d := time.Duration(*n) * time.Microsecond
			c.cpu = &d
		}
	}},
	{cgroupRoot + "memory.peak", func(s string, c *counters) { c.peakMemory = number(s) }},
	{cgroupRoot + "memory.events", func(s string, c *counters) { c.oom = field(s, "oom_kill") }},
	{cgroupRoot + "pids.current", func(s string, c *counters) { c.pids = number(s) }},
	{cgroupRoot + "pids.peak", func(s string, c *counters) { c.peakPIDs = number(s) }},
	{cgroupRoot + "pids.events", func(s string, c *counters) { c.hits = field(s, "max") }},
}

func number(s string) *int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// field finds the line "name value".
func field(s, name string) *int64 {
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(line, " "); ok && k == name {
			return number(v)
		}
	}
	return nil
}
