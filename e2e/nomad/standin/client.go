package standin

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// work is an allocation on its client: the client goes on with it whether or not the
// servers are there, and says what became of it when they are.
type work struct {
	c     *Cluster
	alloc *api.Allocation // as it was placed
	dir   string
	halt  chan struct{} // closed: its tasks are to end
	once  sync.Once
	// grace is what tasks get between being told and being killed; negative: what
	// their job says. Set before halt is closed.
	grace time.Duration

	// Guarded by Cluster.mu.
	states      map[string]*api.TaskState
	status      string
	description string
	over        bool
}

// errHalted says that an allocation was told to end before a task of it ran.
var errHalted = errors.New("halted")

// hear is the client of a node asking the servers what it is to do, and telling them
// what it did. The caller holds mu.
func (c *Cluster) hear(node string) {
	if c.s == nil || c.lost[node] {
		return
	}
	for _, a := range c.s.Allocs {
		if a.NodeID != node {
			continue
		}
		w := c.work[a.ID]
		switch {
		case w == nil && ended(a):
		case w == nil:
			w = &work{c: c, alloc: clone(a), dir: filepath.Join(c.cfg.Dir, "alloc", a.ID), halt: make(chan struct{}), grace: -1,
				states: map[string]*api.TaskState{}, status: api.AllocClientStatusPending}
			c.work[a.ID] = w
			if a.DesiredStatus != api.AllocDesiredStatusRun {
				w.stop()
			}
			c.wg.Go(w.run)
		default:
			if a.DesiredStatus != api.AllocDesiredStatusRun {
				w.stop()
			}
			w.push()
		}
	}
}

func (w *work) stop() { w.once.Do(func() { close(w.halt) }) }

// kill ends the tasks after a grace of its own.
func (w *work) kill(grace time.Duration) {
	w.once.Do(func() {
		w.grace = grace
		close(w.halt)
	})
}

// push tells the servers. The caller holds mu.
func (w *work) push() {
	c := w.c
	if c.s == nil || c.lost[w.alloc.NodeID] {
		return
	}
	a := c.s.Allocs[w.alloc.ID]
	if a == nil {
		return
	}
	a.TaskStates = *clone(&w.states)
	if a.ClientStatus != api.AllocClientStatusLost || w.over {
		a.ClientStatus, a.ClientDescription = w.status, w.description
	}
	c.touch(a)
}

// set changes what is known of the allocation, and tells the servers.
func (w *work) set(change func()) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	change()
	w.push()
	if w.over && w.c.s != nil {
		w.c.evaluate("alloc-ended") // there is room
	}
}

// event adds to what happened to a task, in the words that nomad alloc status shows
// (https://github.com/hashicorp/nomad/pull/12735 has a whole life of them). The caller
// is in set.
func (w *work) event(task, kind, message string, details map[string]string) *api.TaskEvent {
	s := w.states[task]
	if s == nil {
		s = &api.TaskState{State: "pending"}
		w.states[task] = s
	}
	e := &api.TaskEvent{Type: kind, Time: time.Now().UnixNano(), DisplayMessage: message, Details: details}
	s.Events = append(s.Events, e)
	return e
}

// run is the life of the allocation.
func (w *work) run() {
	tasks := slices.Clone(w.alloc.Job.TaskGroups[0].Tasks)
	slices.SortStableFunc(tasks, func(a, b *api.Task) int { return order(a) - order(b) })
	w.set(func() {
		for _, t := range tasks {
			w.event(t.Name, api.TaskReceived, "Task received by client", nil)
		}
	})
	failed := ""
	for _, t := range tasks {
		if failed != "" {
			w.set(func() {
				w.event(t.Name, api.TaskSiblingFailed, fmt.Sprintf("Task's sibling %q failed", failed), nil)
				w.states[t.Name].State, w.states[t.Name].Failed = "dead", true
			})
			continue
		}
		if !w.task(t) {
			failed = t.Name
		}
	}
	w.set(func() {
		w.over, w.status, w.description = true, api.AllocClientStatusComplete, "All tasks have completed"
		if failed != "" {
			w.status, w.description = api.AllocClientStatusFailed, "Failed tasks"
		}
	})
}

// order of tasks: those of the prestart hook come first.
func order(t *api.Task) int {
	if t.Lifecycle != nil && t.Lifecycle.Hook == api.TaskLifecycleHookPrestart {
		return 0
	}
	return 1
}

// task runs one and says whether it did not fail.
func (w *work) task(t *api.Task) bool {
	w.set(func() { w.event(t.Name, api.TaskSetup, "Building Task Directory", nil) })
	p, err := w.prepare(t)
	if errors.Is(err, errHalted) {
		w.set(func() {
			w.event(t.Name, api.TaskKilled, "Task successfully killed", nil)
			w.states[t.Name].State, w.states[t.Name].FinishedAt = "dead", time.Now()
		})
		return true
	}
	if err != nil {
		w.set(func() {
			e := w.event(t.Name, api.TaskDriverFailure, err.Error(), map[string]string{"driver_error": err.Error()})
			e.DriverError = err.Error()
			w.event(t.Name, api.TaskNotRestarting, "Policy allows no restarts", nil).FailsTask = true
			s := w.states[t.Name]
			s.State, s.Failed, s.FinishedAt = "dead", true, time.Now()
		})
		return false
	}
	w.set(func() {
		w.event(t.Name, api.TaskStarted, "Task started by client", nil)
		s := w.states[t.Name]
		s.State, s.StartedAt = "running", time.Now()
		w.status, w.description = api.AllocClientStatusRunning, "Tasks are running"
	})
	killed := w.await(t, p)
	end := p.end()
	w.set(func() {
		message := fmt.Sprintf("Exit Code: %d", end.code)
		if end.signal != 0 {
			message += fmt.Sprintf(", Signal: %d", end.signal)
		}
		if end.message != "" {
			message += fmt.Sprintf(", Exit Message: %q", end.message)
		}
		e := w.event(t.Name, api.TaskTerminated, message, map[string]string{"exit_code": itoa(end.code), "signal": itoa(end.signal),
			"oom_killed": strconv.FormatBool(end.oom), "exit_message": end.message})
		e.ExitCode, e.Signal, e.Message = end.code, end.signal, end.message
		s := w.states[t.Name]
		s.State, s.FinishedAt = "dead", time.Now()
		switch {
		case killed:
			w.event(t.Name, api.TaskKilled, "Task successfully killed", nil)
		case end.code != 0:
			s.Failed = true
			w.event(t.Name, api.TaskNotRestarting, "Policy allows no restarts", nil).FailsTask = true
		}
	})
	return killed || end.code == 0
}

// await waits for the end of a process, and brings it about when the allocation is to
// end.
func (w *work) await(t *api.Task, p process) (killed bool) {
	select {
	case <-p.done():
		return false
	case <-w.halt:
	}
	grace := w.grace
	if grace < 0 {
		grace = *t.KillTimeout
	}
	w.set(func() {
		w.event(t.Name, api.TaskKilling, fmt.Sprintf("Sent interrupt. Waiting %v before force killing", grace), nil)
	})
	sig := syscall.SIGINT
	if t.KillSignal == "SIGTERM" || t.Driver == "docker" {
		sig = syscall.SIGTERM
	}
	p.signal(sig)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done():
	case <-timer.C:
		p.signal(syscall.SIGKILL)
		<-p.done()
	}
	return true
}

// prepare makes a task's directories and files and starts it.
func (w *work) prepare(t *api.Task) (process, error) {
	shared, task := filepath.Join(w.dir, "alloc"), filepath.Join(w.dir, t.Name)
	local, secrets := filepath.Join(task, "local"), filepath.Join(task, "secrets")
	for _, d := range []string{filepath.Join(shared, "logs"), filepath.Join(shared, "data"), filepath.Join(shared, "tmp"), local, secrets} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{shared, local, secrets} { // for tasks of any user
		if err := os.Chmod(d, 0o777); err != nil {
			return nil, err
		}
	}
	env := map[string]string{"NOMAD_ALLOC_DIR": "/alloc", "NOMAD_TASK_DIR": "/local", "NOMAD_SECRETS_DIR": "/secrets"}
	if t.Driver == "raw_exec" {
		env = map[string]string{"NOMAD_ALLOC_DIR": shared, "NOMAD_TASK_DIR": local, "NOMAD_SECRETS_DIR": secrets}
	}
	on := map[string]string{"${NOMAD_ALLOC_DIR}": shared, "${NOMAD_TASK_DIR}": local, "${NOMAD_SECRETS_DIR}": secrets}
	vars := make([]string, 0, 2*len(env))
	for k, v := range env {
		vars = append(vars, "${"+k+"}", v)
	}
	insert := strings.NewReplacer(vars...)
	for k, v := range w.alloc.Job.Meta {
		env["NOMAD_META_"+k] = v
	}
	for k, v := range t.Env {
		env[k] = insert.Replace(v)
	}
	env["NOMAD_ALLOC_ID"] = w.alloc.ID
	for _, tmpl := range t.Templates {
		text, err := w.render(t, *tmpl.EmbeddedTmpl)
		if err != nil {
			return nil, err
		}
		path := *tmpl.DestPath
		for name, dir := range on {
			path = strings.ReplaceAll(path, name, dir)
		}
		if err := write(path, text, tmpl); err != nil {
			return nil, err
		}
	}
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	start := command{task: t, alloc: w.alloc, env: list, insert: insert.Replace, dir: task, shared: shared,
		stdout: filepath.Join(shared, "logs", t.Name+".stdout.0"), stderr: filepath.Join(shared, "logs", t.Name+".stderr.0")}
	select {
	case <-w.halt:
		return nil, errHalted
	default:
	}
	if t.Driver == "raw_exec" {
		return start.rawExec()
	}
	w.c.mu.Lock()
	perCore := 1000
	for _, n := range w.c.cfg.Clients {
		if n.Name == w.alloc.NodeName {
			perCore = n.MHz / n.Cores
		}
	}
	w.c.mu.Unlock()
	return start.docker(w.c.cfg.Docker, w.c.cfg.Runtimes, perCore)
}

// block is the one form of template that the stand-in renders: an item of a variable.
var block = regexp.MustCompile(`^\{\{ with nomadVar "([^"]+)" \}\}\{\{ \.(\w+) \}\}\{\{ end \}\}$`)

// render is what a template says, once the variable that it names is there. A task may
// read the variables under the paths of its job, its group and itself.
// https://developer.hashicorp.com/nomad/docs/concepts/variables#task-access-to-variables
func (w *work) render(t *api.Task, text string) (string, error) {
	found := block.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("the stand-in does not render %q", text)
	}
	job := "nomad/jobs/" + w.alloc.JobID
	if !slices.Contains([]string{"nomad/jobs", job, job + "/" + w.alloc.TaskGroup, job + "/" + w.alloc.TaskGroup + "/" + t.Name}, found[1]) {
		return "", fmt.Errorf("Template failed: nomad.var.get(%s): Unexpected response code: 403 (Permission denied)", found[1])
	}
	c := w.c
	for {
		c.mu.Lock()
		changed := c.changed
		var v *api.Variable
		if c.s != nil && !c.lost[w.alloc.NodeID] {
			v = c.s.Variables[key(w.alloc.Namespace, found[1])]
		}
		c.mu.Unlock()
		if v != nil {
			return v.Items[found[2]], nil
		}
		select {
		case <-changed:
		case <-w.halt:
			return "", errHalted
		}
	}
}

// write makes the file of a template.
func write(path, text string, t *api.Template) error {
	perms, err := strconv.ParseUint(*t.Perms, 8, 32)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), os.FileMode(perms)); err != nil {
		return err
	}
	id := func(p *int) int {
		if p == nil {
			return -1
		}
		return *p
	}
	return os.Chown(path, id(t.Uid), id(t.Gid))
}
