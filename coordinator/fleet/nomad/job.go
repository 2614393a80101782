package nomad

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Meta keys of everything that is ours.
const (
	metaCoordinator = "everdict_coordinator"
	metaWorkspace   = "everdict_workspace"
	metaRuntime     = "everdict_runtime"
	metaRun         = "everdict_run"
	metaAttempt     = "everdict_attempt"
	metaDeadline    = "everdict_deadline"
	metaNote        = "everdict_note"
	// metaPayload is on jobs whose runner is given a payload.
	metaPayload = "everdict_payload"
	// metaLaunching is on jobs whose launch is not complete.
	metaLaunching = "everdict_launching"
)

const (
	// prefix is how the ids of our jobs begin; see fleet.UnitName.
	prefix = "everdict-"
	group  = "unit"
	runner = "runner"
	// installer is the task that brings the runner into another image's container.
	installer = "install"

	// killTimeout is what a runner has between SIGTERM and SIGKILL, and the most that
	// clients grant by default (max_kill_timeout); it drains for drainTimeout of it.
	killTimeout  = 30 * time.Second
	drainTimeout = 15 * time.Second
	// lostAfter is how long a client may be away, in an upgrade say, and find its
	// allocations still its own. Whether a run goes on meanwhile is its lease's to say.
	lostAfter = time.Hour

	// What a job that declares nothing is counted as: Nomad has no allocation without a
	// size, and its own defaults (100 MHz, 300 MB) are no place for an agent.
	defaultMHz      = 1000
	defaultMemoryMB = 1024

	tokenFile = "${NOMAD_SECRETS_DIR}/everdict-token"
	tokenItem = "token"
	// giver is the task that puts the payload where the runner finds it and removes it:
	// what a client renders for a task it may render again, beside the job. payloadFile is
	// where the giver has it, and sharedPayload where the runner finds it.
	giver         = "payload"
	payloadFile   = "${NOMAD_SECRETS_DIR}/everdict-payload"
	sharedPayload = "${NOMAD_ALLOC_DIR}/everdict-payload"
	runnerPath    = "${NOMAD_ALLOC_DIR}/job-runner"
	gpuDevice     = "nvidia/gpu"

	// payloadLimit is what of a variable's 64 KiB, keys included, is the payload's.
	// https://developer.hashicorp.com/nomad/docs/concepts/variables
	payloadLimit = 64<<10 - 64
)

// ours says whether a job's meta is that of the target.
func ours(t fleet.Target, meta map[string]string) bool {
	return meta[metaCoordinator] == t.Coordinator && meta[metaWorkspace] == t.Workspace && meta[metaRuntime] == t.Spec.ID
}

// variable is where the token or the payload of a unit is kept: of all tasks, only the one
// that the path names may read it, with its workload identity.
func variable(unit string, meta map[string]string) string {
	task := runner
	if meta[metaPayload] != "" {
		task = giver
	}
	return "nomad/jobs/" + unit + "/" + group + "/" + task
}

// document is the template of what is in a unit's variable.
func document(cfg *Config, path, file string, t fleet.Target) *api.Template {
	tmpl := &api.Template{
		EmbeddedTmpl: ptr(fmt.Sprintf("{{ with nomadVar %q }}{{ .%s }}{{ end }}", path, tokenItem)),
		DestPath:     ptr(file), Perms: ptr("0400"), ChangeMode: ptr("noop"),
	}
	switch {
	case t.Spec.TaskDriver() == protocol.NomadRawExec:
	case cfg.User >= 0:
		tmpl.Uid, tmpl.Gid = ptr(int(cfg.User)), ptr(int(cfg.User))
	default:
		tmpl.Perms = ptr("0444") // whoever the image's user is; the directory is the task's own
	}
	return tmpl
}

// newJob is the job of a unit; launching: without an allocation, as its token has to be
// there first.
func newJob(cfg *Config, t fleet.Target, o fleet.Order, launching bool) *api.Job {
	meta := map[string]string{
		metaCoordinator: t.Coordinator, metaWorkspace: t.Workspace, metaRuntime: t.Spec.ID,
		metaRun: o.Job, metaAttempt: strconv.FormatInt(o.Attempt, 10),
	}
	if o.Deadline > 0 {
		meta[metaDeadline] = o.Deadline.String()
	}
	if o.Note != "" {
		meta[metaNote] = o.Note
	}
	if o.Payload != nil {
		meta[metaPayload] = "true"
	}
	count := 1
	if launching {
		count = 0
		meta[metaLaunching] = "true"
	}
	datacenters := t.Spec.Datacenters
	if len(datacenters) == 0 {
		datacenters = []string{"*"}
	}
	g := &api.TaskGroup{
		Name: ptr(group), Count: &count,
		// Nothing is tried again and nothing is replaced: another attempt is another
		// unit. What Nomad replaces all the same is seen; see instance.
		RestartPolicy:    &api.RestartPolicy{Attempts: ptr(0), Mode: ptr(api.RestartPolicyModeFail)},
		ReschedulePolicy: &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)},
		Disconnect:       &api.DisconnectStrategy{LostAfter: ptr(lostAfter), Replace: ptr(false), Reconcile: ptr(api.ReconcileOptionKeepOriginal)},
		Tasks:            []*api.Task{task(cfg, t, o)},
	}
	if o.Payload != nil {
		give(g, cfg, t, o, variable(o.Unit, meta))
	}
	if o.Image != "" {
		g.Tasks = append(g.Tasks, install(cfg, t))
	}
	return &api.Job{
		ID: &o.Unit, Name: &o.Unit, Type: ptr(api.JobTypeBatch), Namespace: ptr(namespaceOf(t)), Datacenters: datacenters,
		Constraints: constraints(t.Spec), Meta: meta, TaskGroups: []*api.TaskGroup{g},
	}
}

func namespaceOf(t fleet.Target) string {
	if t.Spec.Namespace != "" {
		return t.Spec.Namespace
	}
	return api.DefaultNamespace
}

func constraints(spec *protocol.RuntimeSpec) []*api.Constraint {
	var all []*api.Constraint
	for _, c := range spec.Constraints {
		all = append(all, api.NewConstraint(c.Attribute, c.Operator, c.Value))
	}
	return all
}

// task runs the runner.
func task(cfg *Config, t fleet.Target, o fleet.Order) *api.Task {
	work := &api.Task{
		Name: runner, Driver: t.Spec.TaskDriver(), KillSignal: "SIGTERM", KillTimeout: ptr(killTimeout),
		Templates: []*api.Template{document(cfg, variable(o.Unit, nil), tokenFile, t)},
		Resources: resources(t.Spec, o),
		LogConfig: &api.LogConfig{MaxFiles: ptr(3), MaxFileSizeMB: ptr(10)},
		Env: map[string]string{
			"EVERDICT_API_URL":         o.URL,
			"EVERDICT_JOIN_TOKEN_FILE": tokenFile,
			"EVERDICT_DRAIN_TIMEOUT":   drainTimeout.String(),
			"EVERDICT_RUNNER_DIR":      "${NOMAD_TASK_DIR}/everdict",
			"HOME":                     "${NOMAD_TASK_DIR}",
		},
	}
	maps.Copy(work.Env, o.Env)
	if t.Spec.TaskDriver() == protocol.NomadRawExec {
		work.Config = map[string]any{"command": t.Spec.Command}
		// There is no container around the job, and others' tasks beside it.
		work.Env["EVERDICT_SHARED_MACHINE"] = "true"
		return work
	}
	work.Config = container(cfg, t.Spec, t.Spec.Image)
	if user := cfg.User; user >= 0 {
		work.User = fmt.Sprintf("%d:%d", user, user)
	}
	if o.CPU > 0 && t.Spec.CPUMHzPerCore != nil {
		work.Config["cpu_hard_limit"] = true // a share alone would let a job take what is idle, and other jobs' numbers vary with it
	}
	if o.Image != "" {
		work.Config["image"] = o.Image
		work.Config["entrypoint"] = []string{runnerPath}
		work.Env["EVERDICT_IMAGE"] = o.Image
	}
	return work
}

// give makes the document of a group's runner a payload.
func give(g *api.TaskGroup, cfg *Config, t fleet.Target, o fleet.Order, path string) {
	work := g.Tasks[0]
	work.Templates = nil
	delete(work.Env, "EVERDICT_JOIN_TOKEN_FILE")
	work.Env["EVERDICT_PAYLOAD_FILE"] = sharedPayload
	before := prestart(cfg, t, giver, "copy", payloadFile, sharedPayload)
	before.Templates = []*api.Template{document(cfg, path, payloadFile, t)}
	g.Tasks = append(g.Tasks, before)
}

// install brings the runner, one static program, from the runtime's image to where the
// container of another image finds it.
func install(cfg *Config, t fleet.Target) *api.Task {
	return prestart(cfg, t, installer, "install", runnerPath)
}

// prestart is a task that runs the runtime's runner before the unit's, to its end.
func prestart(cfg *Config, t fleet.Target, name string, args ...string) *api.Task {
	before := &api.Task{
		Name: name, Driver: t.Spec.TaskDriver(), KillSignal: "SIGTERM",
		Lifecycle: &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart},
		Resources: &api.Resources{CPU: ptr(100), MemoryMB: ptr(64)},
		LogConfig: &api.LogConfig{MaxFiles: ptr(1), MaxFileSizeMB: ptr(1)},
	}
	if t.Spec.TaskDriver() == protocol.NomadRawExec {
		before.Config = map[string]any{"command": t.Spec.Command, "args": args}
		return before
	}
	before.Config = container(cfg, t.Spec, t.Spec.Image)
	before.Config["args"] = args
	if cfg.User >= 0 {
		before.User = fmt.Sprintf("%d:%d", cfg.User, cfg.User)
	}
	return before
}

// container is the docker driver's part of a task.
func container(cfg *Config, spec *protocol.RuntimeSpec, image string) map[string]any {
	c := map[string]any{
		"image": image, "cap_drop": []string{"all"}, "security_opt": []string{"no-new-privileges"},
	}
	if spec.Runtime != "" {
		c["runtime"] = spec.Runtime
	}
	if cfg.HostNetwork {
		c["network_mode"] = "host"
	}
	return c
}

// resources are what the job declares.
//
// Nomad counts a task's CPU in MHz or in whole cores, and a job declares thousandths of
// a core. The runtime's cpuMhzPerCore makes MHz of them: what a client reports as
// cpu.totalcompute over cpu.numcores, which only the operator knows for all of them.
// Without it whole cores are reserved, rounded up, so that a job has at least what it
// declares on clients of any speed.
// https://developer.hashicorp.com/nomad/docs/job-specification/resources
func resources(spec *protocol.RuntimeSpec, o fleet.Order) *api.Resources {
	r := &api.Resources{CPU: ptr(defaultMHz), MemoryMB: ptr(defaultMemoryMB)}
	if o.MemoryMB > 0 {
		r.MemoryMB = &o.MemoryMB
	}
	switch perCore := spec.CPUMHzPerCore; {
	case o.CPU == 0:
	case perCore != nil:
		r.CPU = ptr(ceil(o.CPU*(*perCore), 1000))
	default:
		r.CPU, r.Cores = nil, ptr(ceil(o.CPU, 1000))
	}
	gpu := o.GPU
	if gpu == 0 && spec.GPU != nil {
		gpu = *spec.GPU
	}
	if gpu > 0 {
		r.Devices = []*api.RequestedDevice{{Name: gpuDevice, Count: ptr(uint64(gpu))}}
	}
	return r
}

func ceil(a, b int) int { return (a + b - 1) / b }

func ptr[T any](v T) *T { return &v }
