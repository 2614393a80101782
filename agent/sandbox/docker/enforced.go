package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/sandbox"
)

// kernelLimit is a limit of a container as the kernel has it.
type kernelLimit struct {
	name   string // as refusals say it
	v1, v2 string // the file that holds it, by the version of cgroups
}

var kernelLimits = map[string]kernelLimit{
	"memory": {"memory limit", "memory/memory.limit_in_bytes", "memory.max"},
	"pids":   {"process limit", "pids/pids.max", "pids.max"},
}

// enforced looks whether the kernel has the limits that the engine was asked for: an engine may say yes and leave one out,
// with a warning that nobody reads or with none. One that was declared is refused then; one that was not is no limit, and
// the record says so. What cannot be read is taken as it was promised.
func (h *handle) enforced(ctx context.Context) error {
	if !kernelIsHosts(h.runtime) {
		return nil // its cgroup files are those of a kernel of its own
	}
	h.mu.Lock()
	link := h.link
	h.mu.Unlock()
	answers := make(map[string]<-chan fileAnswer)
	for _, l := range h.info.Limits {
		if k, ok := kernelLimits[l.Name]; ok {
			file := k.v1
			if h.engine.info.CgroupVersion == "2" {
				file = k.v2
			}
			answers[l.Name] = link.file(cgroupRoot + file)
		}
	}
	silent, end := stall()
	defer end()
	var kept []sandbox.Limit
	for _, l := range h.info.Limits {
		var a fileAnswer
		if answer := answers[l.Name]; answer != nil {
			select {
			case a = <-answer:
			case <-link.dead:
				return link.err
			case <-silent:
				return errSilent
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		has := strings.TrimSpace(string(a.content))
		switch n := number(has); {
		case a.errno != 0, has == "", n != nil && *n <= l.Value:
			kept = append(kept, l)
		case !l.Default:
			return refuse(kernelLimits[l.Name].name, fmt.Sprint(l.Value), fmt.Sprintf("the engine took it, and the kernel says %s", has))
		default:
			h.info.Notes = append(h.info.Notes, fmt.Sprintf("the engine has not set the limit of %s: the kernel says %s", l.Name, has))
		}
	}
	h.info.Limits = kept
	return nil
}

// kernelIsHosts reports whether containers of an OCI runtime run on the engine's own kernel, as far as its name tells.
func kernelIsHosts(runtime string) bool {
	return slices.Contains([]string{"runc", "crun", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux"}, runtime)
}
