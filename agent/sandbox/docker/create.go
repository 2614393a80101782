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
)

// initPath is where init is mounted. The root of every image can take a file.
const initPath = "/.everdict-init"

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
		info: sandbox.Info{Driver: Name, Enclosure: "container", Freezer: "pause", Hidden: spec.Hide,
			Image: spec.Image, ImageDigest: img.digest, Platform: img.platform},
	}
	if img.arch != e.arch {
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
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: spec.Dir, Target: spec.Dir},
			{Type: mount.TypeBind, Source: e.init, Target: initPath, ReadOnly: true},
		},
	}
	if e.secured("selinux") {
		// The workspace is no container content, and giving it that label would change it for everybody else.
		p.host.SecurityOpt = append(p.host.SecurityOpt, "label=disable")
	}
	if e.secured("userns") {
		// Users are shifted by the engine, which would shut them out of the workspace.
		p.host.UsernsMode = "host"
		p.info.Notes = append(p.info.Notes, "the engine's shift of users is off for this container: its workspace is the runner's")
	}
	if isRoot(user) {
		p.host.CapAdd = rootCapabilities
	}
	if cfg.ReadonlyRoot {
		p.host.Tmpfs = map[string]string{"/tmp": "rw,nosuid,nodev,mode=1777"}
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
	if cfg.Runtime == "" {
		return nil
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

func (p *planned) limits(cfg Config, e *engine, r sandbox.Resources) error {
	h, info := p.host, e.info
	limit := func(name string, value int64, declared bool) {
		p.info.Limits = append(p.info.Limits, sandbox.Limit{Name: name, Value: value, By: Name, Default: !declared})
	}
	memory := r.MemoryMB
	if memory == 0 {
		memory = cfg.DefaultMemoryMB
	}
	if memory > 0 {
		if !info.MemoryLimit {
			return refuse("memory limit", fmt.Sprintf("%d MiB", memory), "the engine's kernel has no memory controller")
		}
		if memory < 6 {
			return refuse("memory limit", fmt.Sprintf("%d MiB", memory), "the engine's least is 6 MiB")
		}
		h.Memory = memory << 20
		h.MemorySwap = h.Memory // no swap: a limit that may be passed by swapping is none
		if !info.SwapLimit {
			p.info.Notes = append(p.info.Notes, "the engine's kernel does not account for swap: memory may go beyond its limit there")
		}
		limit("memory", h.Memory, r.MemoryMB > 0)
	}
	cpu := r.CPUMillis
	if cpu == 0 {
		cpu = cfg.DefaultCPUMillis
	}
	if cpu > 0 {
		if !info.CPUCfsQuota {
			return refuse("CPU limit", fmt.Sprintf("%d m", cpu), "the engine's kernel has no CPU quota")
		}
		if has := int64(info.NCPU) * 1000; cpu > has {
			if r.CPUMillis > 0 {
				return refuse("CPU limit", fmt.Sprintf("%d m", cpu), fmt.Sprintf("the engine has %d m", has))
			}
			cpu = has
		}
		if cpu < 10 {
			return refuse("CPU limit", fmt.Sprintf("%d m", cpu), "the engine's least is 10 m")
		}
		h.NanoCPUs = cpu * 1e6
		limit("cpu", cpu, r.CPUMillis > 0)
	}
	pids := r.PIDs
	if pids == 0 {
		pids = cfg.DefaultPIDs
	}
	if pids == 0 {
		// A kernel allows one thread per 128 KiB of memory; a sandbox gets an eighth of that.
		pids = min(max(info.MemTotal>>20, 256), 4096)
	}
	if pids > 0 {
		switch {
		case info.PidsLimit:
			h.PidsLimit = &pids
			limit("pids", pids, r.PIDs > 0)
		case r.PIDs > 0:
			return refuse("process limit", fmt.Sprint(pids), "the engine's kernel has no pids controller")
		default:
			p.info.Notes = append(p.info.Notes, "the engine's kernel has no pids controller: the number of processes has no limit")
		}
	}
	if r.GPU > 0 {
		if _, nvidia := info.Runtimes["nvidia"]; !nvidia && len(info.CDISpecDirs) == 0 {
			return refuse("GPU count", fmt.Sprint(r.GPU), "the engine has no GPU runtime (nvidia-container-toolkit)")
		}
		h.DeviceRequests = []container.DeviceRequest{{Count: r.GPU, Capabilities: [][]string{{"gpu"}}}}
		limit("gpu", int64(r.GPU), true)
	}
	return nil
}

// unavailableDevice recognises the engine's refusal of a device that it has no driver for.
func unavailableDevice(err error) bool {
	return err != nil && strings.Contains(err.Error(), "could not select device driver")
}
