package docker

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/budget"
)

// initPath is where init is mounted. The root of every image can take a file.
const initPath = "/.everdict-init"

// askPath is the container's `everdict` (init/ask.c), alone in its directory, which comes first on the PATH.
const askPath = "/.everdict/everdict"

// rootCapabilities are what root of the container keeps; everybody else has none. They are what package managers and
// build tools need to act as root on files and users of the container's own:
//
//	CHOWN, DAC_OVERRIDE, FOWNER, FSETID  unpack and install as any user
//	SETUID, SETGID                       become another user (su, apt's own user)
//	KILL                                 end what another user runs in the container
//	NET_BIND_SERVICE                     listen on a low port of the container's own network
//
// Of the engine's default this leaves out NET_RAW (forged packets on the bridge), MKNOD, SYS_CHROOT, SETPCAP, SETFCAP
// and AUDIT_WRITE.
var rootCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL", "NET_BIND_SERVICE"}

// cpuShares is half of the engine's default: what the runner and the engine do comes before their containers' work, or a
// heartbeat would wait behind N busy loops. It counts only while somebody waits for a CPU, and is mild because it counts
// beside other people's containers, too.
const cpuShares = 512

// planned is a container to be made.
type planned struct {
	name   string
	config *container.Config
	host   *container.HostConfig
	info   sandbox.Info
}

// plan lays down a container for a spec, or refuses what the engine cannot enforce.
func plan(cfg Config, e *engine, spec sandbox.Spec, img pulled, by owner) (planned, error) {
	p := planned{
		name: "everdict-" + spec.Attempt,
		info: sandbox.Info{Driver: Name, Enclosure: "container", Freezer: "pause", Hidden: spec.Hide, Asker: askPath,
			Image: spec.Image, ImageDigest: img.digest, Platform: img.platform},
	}
	if !e.ownCgroups() {
		p.info.Freezer = "sigstop" // by process 1
		p.info.Notes = append(p.info.Notes, "the engine makes no cgroup for a container: it cannot be paused, only stopped, and its usage is unknown")
	}
	if img.arch != e.arch {
		p.info.Emulated = true
		p.info.Notes = append(p.info.Notes, fmt.Sprintf("the image is for %s and is emulated on %s", img.platform, e.arch))
	}
	user := cfg.User
	if user == "" {
		user = runnerUser(e)
	}
	no := false
	p.config = &container.Config{
		Image:      img.id,
		User:       user,
		Entrypoint: []string{initPath},
		WorkingDir: "/",
		OpenStdin:  true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Labels: map[string]string{
			LabelAttempt: spec.Attempt,
			LabelRunner:  string(by),
			LabelCreated: time.Now().UTC().Format(time.RFC3339),
		},
	}
	p.host = &container.HostConfig{
		Init:           &no, // ours is process 1
		SecurityOpt:    []string{"no-new-privileges:true"},
		CapDrop:        []string{"ALL"},
		ReadonlyRootfs: cfg.ReadonlyRoot,
		LogConfig:      container.LogConfig{Type: "none"}, // what init writes is no log
		OomScoreAdj:    500,                               // when the host runs out, jobs go before the runner
		IpcMode:        "private",
		Tmpfs:          make(map[string]string),
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: spec.Dir, Target: spec.Dir},
			{Type: mount.TypeBind, Source: e.init, Target: initPath, ReadOnly: true},
			{Type: mount.TypeBind, Source: e.ask, Target: askPath, ReadOnly: true},
		},
	}
	if e.info.CPUShares {
		p.host.CPUShares = cpuShares
	}
	if e.secured("selinux") {
		// The workspace is no container content, and giving it that label would change it for everybody else.
		p.host.SecurityOpt = append(p.host.SecurityOpt, "label=disable")
	}
	if e.secured("userns") {
		// Users are shifted by the engine, which would shut them out of the workspace.
		p.host.UsernsMode = "host"
		p.info.Notes = append(p.info.Notes, "the engine's shift of users is off for this container: its workspace is the runner's, "+
			"and files of its image belong to the users that they are shifted to")
	}
	if isRoot(user) {
		p.host.CapAdd = rootCapabilities
	}
	if cfg.ReadonlyRoot {
		p.host.Tmpfs["/tmp"] = "rw,nosuid,nodev,mode=1777"
	}
	for _, hide := range spec.Hide {
		if hide != spec.Dir && within(hide, spec.Dir) {
			if st, err := os.Stat(hide); err == nil && st.IsDir() {
				p.host.Mounts = append(p.host.Mounts, mount.Mount{Type: mount.TypeTmpfs, Target: hide, ReadOnly: true})
			} else if err == nil {
				p.host.Mounts = append(p.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: os.DevNull, Target: hide, ReadOnly: true})
			}
		}
	}
	if e.podman {
		if err := p.podmanMounts(); err != nil {
			return planned{}, err
		}
	}
	if err := p.runtime(cfg, e); err != nil {
		return planned{}, err
	}
	if err := p.network(e, spec.Network); err != nil {
		return planned{}, err
	}
	if err := p.limits(cfg, e, spec.Resources); err != nil {
		return planned{}, err
	}
	return p, nil
}

// runnerUser is the runner's own user and group, so that it can remove what its jobs make.
func runnerUser(e *engine) string {
	if runtime.GOOS != "linux" || e.secured("rootless") {
		return "0:0" // the engine maps root of a container to the runner's user
	}
	return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
}

// secured reports whether the engine names a security option: "rootless", "userns", "selinux".
func (e *engine) secured(option string) bool {
	for _, o := range e.info.SecurityOptions {
		if o == "name="+option || strings.HasPrefix(o, "name="+option+",") || o == option {
			return true
		}
	}
	return false
}

func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "0" || name == "root"
}

func (p *planned) runtime(cfg Config, e *engine) error {
	switch {
	case cfg.Runtime == "":
		return nil
	case e.podman && cfg.Runtime == e.info.DefaultRuntime:
		return nil
	case e.podman:
		// It would say yes and take its own.
		return refuse("runtime", cfg.Runtime, fmt.Sprintf("Podman runs every container of its API in %s; to change that, "+
			"set runtime in the section [engine] of containers.conf and restart its service", e.info.DefaultRuntime))
	}
	if _, ok := e.info.Runtimes[cfg.Runtime]; !ok {
		known := make([]string, 0, len(e.info.Runtimes))
		for name := range e.info.Runtimes {
			known = append(known, name)
		}
		return refuse("runtime", cfg.Runtime, "the engine does not know it; it knows "+strings.Join(sorted(known), ", "))
	}
	p.host.Runtime = cfg.Runtime
	return nil
}

func (p *planned) network(e *engine, mode string) error {
	switch mode {
	case sandbox.NetworkNone:
		p.host.NetworkMode = "none"
	case "", sandbox.NetworkPublic:
		// The engine's shared bridge: no network is made per attempt, so none can run out (F19).
		p.host.NetworkMode = "default"
	default:
		return refuse("network", mode, "only "+sandbox.NetworkNone+" and "+sandbox.NetworkPublic+" can be enforced")
	}
	return nil
}

// limits sets what is declared and what is default; it refuses what the engine cannot enforce or never has.
func (p *planned) limits(cfg Config, e *engine, r sandbox.Resources) error {
	has := budget.Machine{Memory: e.info.MemTotal, PIDs: budget.KernelPIDs(e.info.MemTotal, e.info.NCPU)}
	share := has.Share(cfg.Slots)
	if err := p.memory(cfg, e, r.MemoryMB, has.Memory>>20, share.Memory>>20); err != nil {
		return err
	}
	if err := p.cpu(cfg, e, r.CPUMillis); err != nil {
		return err
	}
	if err := p.pids(cfg, e, r.PIDs, share.PIDs); err != nil {
		return err
	}
	return p.gpu(e, r.GPU)
}

// choose takes what is declared, else what is configured for who declares nothing, else a slot's share.
func choose(name string, declared, configured, share int64, slots int) sandbox.Limit {
	l := sandbox.Limit{Name: name, By: Name, Value: declared}
	switch {
	case declared > 0:
	case configured != 0:
		l.Value, l.Default = configured, true
	default:
		l.Value, l.Default, l.Slots = share, true, max(slots, 1)
	}
	return l
}

func (p *planned) memory(cfg Config, e *engine, declared, has, share int64) error {
	l := choose("memory", declared, cfg.DefaultMemoryMB, share, cfg.Slots)
	wanted := fmt.Sprintf("%d MiB", l.Value)
	switch {
	case l.Value <= 0:
		return nil
	case !e.info.MemoryLimit && l.Default:
		p.info.Notes = append(p.info.Notes, "the engine's kernel has no memory controller: memory has no limit")
		return nil
	case !e.info.MemoryLimit:
		return refuse("memory limit", wanted, "the engine's kernel has no memory controller")
	case l.Value < 6:
		return refuse("memory limit", wanted, "the engine's least is 6 MiB")
	case has > 0 && l.Value > has && !l.Default:
		return refuse("memory limit", wanted, fmt.Sprintf("the engine has %d MiB", has))
	}
	l.Value <<= 20
	p.host.Memory = l.Value
	p.host.MemorySwap = l.Value // no swap: a limit that may be passed by swapping is none
	if !e.info.SwapLimit {
		p.info.Notes = append(p.info.Notes, "the engine's kernel does not account for swap: memory may go beyond its limit there")
	}
	p.info.Limits = append(p.info.Limits, l)
	return nil
}

func (p *planned) cpu(cfg Config, e *engine, declared int64) error {
	l := choose("cpu", declared, cfg.DefaultCPUMillis, 0, 0)
	if l.Value <= 0 {
		return nil
	}
	wanted, has := fmt.Sprintf("%d m", l.Value), int64(e.info.NCPU)*1000
	switch {
	case !e.info.CPUCfsQuota:
		return refuse("CPU limit", wanted, "the engine's kernel has no CPU quota")
	case l.Value > has && !l.Default:
		return refuse("CPU limit", wanted, fmt.Sprintf("the engine has %d m", has))
	case l.Value < 10:
		return refuse("CPU limit", wanted, "the engine's least is 10 m")
	}
	l.Value = min(l.Value, has)
	p.host.NanoCPUs = l.Value * 1e6
	p.info.Limits = append(p.info.Limits, l)
	return nil
}

func (p *planned) pids(cfg Config, e *engine, declared, share int64) error {
	l := choose("pids", declared, cfg.DefaultPIDs, share, cfg.Slots)
	switch {
	case l.Value <= 0:
		return nil
	case !e.info.PidsLimit && l.Default:
		p.info.Notes = append(p.info.Notes, "the engine's kernel has no pids controller: the number of processes has no limit")
		return nil
	case !e.info.PidsLimit:
		return refuse("process limit", fmt.Sprint(l.Value), "the engine's kernel has no pids controller")
	}
	p.host.PidsLimit = &l.Value
	p.info.Limits = append(p.info.Limits, l)
	return nil
}

func (p *planned) gpu(e *engine, count int) error {
	if count <= 0 {
		return nil
	}
	if _, nvidia := e.info.Runtimes["nvidia"]; !nvidia && len(e.info.CDISpecDirs) == 0 {
		return refuse("GPU count", fmt.Sprint(count), "the engine has no GPU runtime (nvidia-container-toolkit)")
	}
	p.host.DeviceRequests = []container.DeviceRequest{{Count: count, Capabilities: [][]string{{"gpu"}}}}
	p.info.Limits = append(p.info.Limits, sandbox.Limit{Name: "gpu", Value: int64(count), By: Name})
	return nil
}

// unavailableDevice recognises the engine's refusal of a device that it has no driver for.
func unavailableDevice(err error) bool {
	return err != nil && strings.Contains(err.Error(), "could not select device driver")
}
