package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

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

// lineage says how a process came to where the scan finds it.
type lineage int

const (
	foreign lineage = iota // below a process of this one's own, such as git: another runner's jobs may be there
	handed                 // a child of this process, forked or an orphan
	job                    // started by a job
)

// scan returns every process that belongs to a sandbox of this process and has not ended.
func (r *treeRoot) scan() ([]member, error) {
	all, err := procs()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	seen := make(map[int]bool, len(all))
	for _, p := range all {
		seen[p.pid] = true
	}
	children := make(map[int][]proc, len(all))
	for i, p := range all {
		if p.ppid != 0 && !seen[p.ppid] { // orphaned while the table was read: it has another parent by now
			if now, ok := statProc(p.pid); ok && now.start == p.start {
				all[i] = now
			}
		}
		children[all[i].ppid] = append(children[all[i].ppid], all[i])
	}
	inits := r.initPIDs()
	var out []member
	var add func(p proc, k *mark)
	add = func(p proc, k *mark) {
		if !p.dead() {
			out = append(out, member{p, k})
		}
		for _, c := range children[p.pid] {
			add(c, k)
		}
	}
	var judge func(p proc, as lineage)
	judge = func(p proc, as lineage) {
		k, as := r.whose(p, as, inits)
		if k != nil {
			add(p, k)
			return
		}
		// It may be one of the runner's own, or one of ours that ended while its marks were being looked for: what it
		// started is judged for itself.
		if now, ok := statProc(p.pid); as == handed && ok && !now.dead() && now.start == p.start {
			as = foreign
		}
		if inits[p.pid] {
			as = job
		}
		for _, c := range children[p.pid] {
			judge(c, as)
		}
	}
	for _, p := range all {
		if p.ppid == self || p.ppid != 0 && !seen[p.ppid] {
			judge(p, handed)
		}
	}
	return out, nil
}

// initPIDs are the first processes of PID namespaces: commands are born below them, and are no jobs themselves.
func (r *treeRoot) initPIDs() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[int]bool, len(r.inits))
	for i := range r.inits {
		out[i.Pid()] = true
	}
	return out
}

// whose finds the command or at least the sandbox of a process, and whether it is a job's.
func (r *treeRoot) whose(p proc, as lineage, inits map[int]bool) (*mark, lineage) {
	k := r.owner(p, as)
	if as == handed && k == nil && !inits[p.pid] && r.strange(p.pid) {
		as = job
	}
	if as == job && k == nil {
		k = r.stray(p)
	}
	return k, as
}

// owner finds the command to which a process belongs by what it carries.
func (r *treeRoot) owner(p proc, as lineage) *mark {
	r.mu.Lock()
	k := r.byPID[p.pid]
	r.mu.Unlock()
	if k != nil {
		return k
	}
	if _, marker := environMarks(p.pid); marker != "" {
		instance, seq, ok := splitMarker(marker)
		if !ok {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if k := r.bySeq[seq]; k != nil && k.tree.instance == instance {
			return k
		}
		return nil // another instance's, which may be a runner inside a sandbox of ours
	}
	if as == foreign {
		return nil // all runners give the same limits
	}
	v, ok := queueMark(p.pid)
	if !ok {
		return nil
	}
	return r.marked(v)
}

// strange reports whether a child of this process was started by a command of a sandbox, and not by what this process
// starts for itself: that has this one's limit on message queues, and none of the commands' views of the mounts. A job
// can lower its limit; only one of root's can put it back.
func (r *treeRoot) strange(pid int) bool {
	if remarked(pid) {
		return true
	}
	view, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.views[view]
	return ok
}

// remarked reports whether a process has another limit on message queues than this one.
func remarked(pid int) bool {
	v, ok := queueMark(pid)
	var own unix.Rlimit
	return ok && ownQueue() != 0 && v != ownQueue() && // which somebody may have changed meanwhile
		unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, nil, &own) == nil && v != own.Max
}

// stray finds the sandbox of a process that a job has started, where nothing says which: the only one of those that live
// which did so at the process's start. Where several did, none: it might be a neighbour's. So it ends with the last of
// them.
func (r *treeRoot) stray(p proc) *mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	var only *mark
	for t := range r.trees {
		switch {
		case t.born > p.start:
		case only != nil:
			return nil
		default:
			only = t.strays
		}
	}
	return only
}
