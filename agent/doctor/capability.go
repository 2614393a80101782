package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// capabilities are the checks of every capability of protocol.
func (m *machine) capabilities() []check {
	capability := func(id string, run func(context.Context) Check) check {
		return check{id: id, capability: true, run: run}
	}
	container := capability(protocol.CapDocker, m.checkDocker)
	container.required = m.Sandbox == "docker"
	return []check{
		capability(protocol.CapGit, m.checkGit),
		container,
		capability(protocol.CapBrowser, m.checkBrowser),
		capability(protocol.CapComputerUse, m.checkScreen),
		capability(protocol.CapTopology, func(context.Context) Check {
			return missing("runners of this version start no service topologies", "")
		}),
		capability(protocol.CapGPU, m.checkGPU),
		capability(protocol.CapOSMacOS, system("darwin")),
		capability(protocol.CapOSWindows, system("windows")),
		capability(protocol.CapSandbox, m.checkHardened),
		capability(protocol.CapClaudeLogin, m.login(".claude.json", "claude", "claude, then /login")),
		capability(protocol.CapCodexLogin, m.login(filepath.Join(".codex", "auth.json"), "codex", "codex login")),
	}
}

func system(goos string) func(context.Context) Check {
	return func(context.Context) Check {
		if runtime.GOOS == goos {
			return ok("this is %s/%s", runtime.GOOS, runtime.GOARCH)
		}
		return missing(fmt.Sprintf("this is %s/%s", runtime.GOOS, runtime.GOARCH), "")
	}
}

func (m *machine) checkGit(ctx context.Context) Check {
	mend := map[string]string{"linux": "sudo apt-get install git", "darwin": "xcode-select --install", "windows": "winget install Git.Git"}[runtime.GOOS]
	path := m.lookPath("git")
	if path == "" {
		return missing("there is no git on the PATH", mend)
	}
	version, err := m.output(ctx, path, "--version")
	if err != nil || !strings.HasPrefix(version, "git version") {
		return missing(fmt.Sprintf("%s does not work: %v", path, orText(err, version)), mend)
	}
	return ok("%s (%s)", version, path)
}

func orText(err error, text string) any {
	if err != nil {
		return err
	}
	return fmt.Sprintf("it said %q", text)
}

func (m *machine) checkDocker(context.Context) Check {
	f := m.docker()
	if f.Chosen == nil {
		c := missing(strings.TrimPrefix(f.Err().Error(), "endpoint: "), f.Mend())
		c.Docker = &f
		return c
	}
	e := f.Engine
	if m.Runtime != "" && !slices.Contains(e.Runtimes, m.Runtime) {
		c := missing(fmt.Sprintf("%s %s at %s has no runtime %q, only %s", e.Name, e.Version, f.Chosen.Host, m.Runtime, strings.Join(e.Runtimes, ", ")),
			"add it to the engine's daemon.json (for gVisor: sudo runsc install) and restart the engine, or leave --docker-runtime out")
		c.Docker = &f
		return c
	}
	c := ok("%s %s, API %s, at %s (%s)", e.Name, e.Version, e.APIVersion, f.Chosen.Host, f.Chosen.Source)
	c.Evidence += fmt.Sprintf("; %s/%s, runtimes %s, cgroup v%s by %s", e.OS, e.Arch, orNone(strings.Join(e.Runtimes, " ")), orNone(e.CgroupVersion), orNone(e.CgroupDriver))
	if e.Rootless {
		c.Evidence += ", rootless"
	}
	if e.UserNamespaces {
		c.Evidence += ", users are shifted"
	}
	var against []string
	if f.Chosen.Warning != "" {
		against = append(against, f.Chosen.Warning)
	}
	if e.OS != "linux" {
		against = append(against, "it runs "+e.OS+" containers only")
	}
	if e.OS == "linux" && !e.Seccomp {
		against = append(against, "it filters no system calls (seccomp is off)")
	}
	var unlimited []string
	for _, l := range []struct {
		what string
		has  bool
	}{{"memory", e.LimitsMemory}, {"processes", e.LimitsPIDs}, {"CPU", e.LimitsCPU}} {
		if !l.has {
			unlimited = append(unlimited, l.what)
		}
	}
	if e.OS == "linux" && len(unlimited) > 0 {
		against = append(against, "it cannot limit "+strings.Join(unlimited, ", ")+": a case that declares such a limit is refused, any other has none")
		if e.Rootless && e.CgroupVersion != "2" {
			c.Mend = "boot the engine's machine with cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1)"
		} else if e.Rootless {
			c.Mend = "let systemd delegate the controllers to the user (https://rootlesscontaine.rs/getting-started/common/cgroup2/), and log in anew"
		}
	}
	if len(against) > 0 {
		c.Status, c.Evidence = Warn, c.Evidence+": "+strings.Join(against, "; ")
	}
	c.Docker = &f
	return c
}

func orNone(s string) string {
	if s == "" {
		return "?"
	}
	return s
}

// checkHardened: jobs can get a kernel of their own.
func (m *machine) checkHardened(context.Context) Check {
	var evidence, against []string
	if runtime.GOOS == "linux" {
		switch f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); {
		case err == nil:
			f.Close()
			evidence = append(evidence, "/dev/kvm can be opened")
		case errors.Is(err, fs.ErrNotExist):
			against = append(against, "there is no /dev/kvm")
		default:
			against = append(against, "/dev/kvm cannot be opened: "+pathless(err).Error())
		}
	}
	f := m.docker()
	if f.Engine != nil {
		if hardened := f.Engine.Hardened(); len(hardened) > 0 {
			evidence = append(evidence, "the container engine has the runtime "+strings.Join(hardened, ", "))
		} else {
			against = append(against, "the container engine has neither runsc nor kata")
		}
	} else {
		against = append(against, "there is no container engine")
	}
	if len(evidence) > 0 {
		return ok("%s", strings.Join(evidence, "; "))
	}
	return missing(strings.Join(against, "; "), "install gVisor (https://gvisor.dev/docs/user_guide/install/), then: sudo runsc install && sudo systemctl restart docker")
}

func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// checkGPU looks for what existing clients look for: NVIDIA's tool, else its device.
func (m *machine) checkGPU(ctx context.Context) Check {
	if path := m.lookPath("nvidia-smi"); path != "" {
		line, err := m.output(ctx, path, "-L")
		if err == nil && strings.HasPrefix(line, "GPU ") {
			return ok("%s", line)
		}
	}
	const device = "/dev/nvidia0"
	if _, err := os.Stat(device); err == nil {
		return ok("%s is there", device)
	}
	return missing("neither nvidia-smi nor "+device+" tells of a GPU", "")
}

// checkBrowser looks for a browser that Playwright has installed.
func (m *machine) checkBrowser(context.Context) Check {
	dir := m.getenv("PLAYWRIGHT_BROWSERS_PATH")
	if dir == "" {
		switch {
		case runtime.GOOS == "darwin" && m.home != "":
			dir = filepath.Join(m.home, "Library", "Caches", "ms-playwright")
		case runtime.GOOS == "windows" && m.getenv("LOCALAPPDATA") != "":
			dir = filepath.Join(m.getenv("LOCALAPPDATA"), "ms-playwright")
		case m.getenv("XDG_CACHE_HOME") != "":
			dir = filepath.Join(m.getenv("XDG_CACHE_HOME"), "ms-playwright")
		case m.home != "":
			dir = filepath.Join(m.home, ".cache", "ms-playwright")
		}
	}
	const mend = "npx playwright install chromium"
	if dir == "" {
		return missing("this user has no directory for browsers", mend)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return missing(fmt.Sprintf("there is no browser of Playwright: %s: %v", dir, pathless(err)), mend)
	}
	var found []string
	for _, e := range entries {
		kind, _, numbered := strings.Cut(e.Name(), "-")
		if e.IsDir() && numbered && slices.Contains([]string{"chromium", "chromium_headless_shell", "firefox", "webkit"}, kind) {
			found = append(found, e.Name())
		}
	}
	if len(found) == 0 {
		return missing("there is no browser of Playwright in "+dir, mend)
	}
	return ok("%s in %s", strings.Join(found, ", "), dir)
}

// checkScreen: there is a screen to look at and to click on.
func (m *machine) checkScreen(context.Context) Check {
	switch runtime.GOOS {
	case "darwin", "windows":
		return ok("this is %s", runtime.GOOS)
	}
	for _, name := range []string{"DISPLAY", "WAYLAND_DISPLAY"} {
		if v := m.getenv(name); v != "" {
			return ok("%s is %s", name, protocol.Clip(v, 80))
		}
	}
	return missing("neither DISPLAY nor WAYLAND_DISPLAY is set", "start the runner in a desktop session, or under: xvfb-run everdict runner")
}

// login looks whether a login's file is there; it never opens it.
func (m *machine) login(file, program, command string) func(context.Context) Check {
	return func(context.Context) Check {
		if m.home == "" {
			return missing("this user has no home directory", "")
		}
		info, err := os.Stat(filepath.Join(m.home, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missing(fmt.Sprintf("there is no ~/%s", filepath.ToSlash(file)), command)
		case err != nil:
			return missing(fmt.Sprintf("~/%s cannot be looked at: %v", filepath.ToSlash(file), pathless(err)), "")
		case !info.Mode().IsRegular() || info.Size() == 0:
			return missing(fmt.Sprintf("~/%s holds nothing", filepath.ToSlash(file)), command)
		}
		c := ok("~/%s is there", filepath.ToSlash(file))
		if path := m.lookPath(program); path != "" {
			c.Evidence += ", and " + path
		} else {
			c.Status, c.Evidence, c.Mend = Warn, c.Evidence+", but no "+program+" is on the PATH", "install "+program
		}
		return c
	}
}
