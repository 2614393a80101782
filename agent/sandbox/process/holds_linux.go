package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"github.com/everdict/everdict/agent/sandbox"
)

var _ sandbox.Holder = (*handle)(nil)

// Holds implements sandbox.Holder.
func (h *handle) Holds(pid int) bool {
	switch e := h.enc.(type) {
	case *cgroup:
		return e.holds(pid)
	case *tree:
		return e.holds(pid)
	}
	return false
}

func (c *cgroup) holds(pid int) bool {
	var buf [4096]byte
	where := buf[:readSmall("/proc/"+strconv.Itoa(pid)+"/cgroup", buf[:])]
	return bytes.Contains(where, []byte("/everdict/"+c.root.instance+"/"+filepath.Base(c.dir)+"/")) || c.marks.holds(pid)
}

func (t *tree) holds(pid int) bool {
	k := t.root.find(pid)
	return k != nil && k.tree == t
}

// find finds the command of one process, as scan does for all: by the topmost of its ancestors that belongs to any.
func (r *treeRoot) find(pid int) *mark {
	inits := r.initPIDs()
	self := os.Getpid()
	for pid > 1 {
		p, ok := statProc(pid)
		if !ok {
			return nil
		}
		as := foreign
		switch {
		case inits[p.ppid]:
			as = job
		case p.ppid == self:
			as = handed
		}
		if as != foreign {
			k, _ := r.whose(p, as, inits)
			return k
		}
		pid = p.ppid
	}
	return nil
}
