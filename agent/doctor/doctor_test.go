package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/protocol"
)

// noEngine is a machine without containers.
func noEngine(context.Context, endpoint.System) endpoint.Found {
	return endpoint.Found{Candidates: []endpoint.Candidate{{Source: endpoint.FromDefault, Host: "unix:///var/run/docker.sock",
		State: endpoint.Passed, Reason: "nobody listens there", Mend: "sudo systemctl start docker"}}}
}

// engineWith is a machine on which an engine answers.
func engineWith(change func(*endpoint.Found)) func(context.Context, endpoint.System) endpoint.Found {
	return func(context.Context, endpoint.System) endpoint.Found {
		c := endpoint.Candidate{Source: endpoint.FromHostVariable, Host: "unix:///d.sock", State: endpoint.Chosen, Reason: "it is named, as for the docker command"}
		f := endpoint.Found{Candidates: []endpoint.Candidate{c}, Chosen: &c, Engine: &endpoint.Engine{Name: "Docker Engine", Version: "20.10.24",
			APIVersion: "1.41", OS: "linux", Arch: "amd64", Runtimes: []string{"runc"}, CgroupVersion: "1", CgroupDriver: "cgroupfs", Seccomp: true,
			LimitsMemory: true, LimitsPIDs: true, LimitsCPU: true}}
		if change != nil {
			change(&f)
		}
		return f
	}
}

// program writes an executable shell script.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func file(t *testing.T, content string, elements ...string) {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, checks []Check, id string) Check {
	t.Helper()
	for _, c := range checks {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("there is no check %s", id)
	return Check{}
}

// TestEachCapability sets each capability up and takes it away.
func TestEachCapability(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the machines that are made up here are Linux")
	}
	for _, tt := range []struct {
		name     string
		set      func(t *testing.T, home, bin string, c *Config)
		id       string
		status   Status
		evidence string
		mend     string
	}{
		{"git", func(t *testing.T, _, bin string, _ *Config) { program(t, bin, "git", "echo git version 2.39.5") }, protocol.CapGit, OK, "git version 2.39.5 (", ""},
		{"no git", nil, protocol.CapGit, Missing, "no git on the PATH", "apt-get install git"},
		{"a broken git", func(t *testing.T, _, bin string, _ *Config) { program(t, bin, "git", "exit 127") }, protocol.CapGit, Missing, "does not work: exit status 127", "install git"},
		{"another git", func(t *testing.T, _, bin string, _ *Config) { program(t, bin, "git", "echo hello") }, protocol.CapGit, Missing, `it said "hello"`, "install git"},
		{"docker", func(_ *testing.T, _, _ string, c *Config) { c.engine = engineWith(nil) }, protocol.CapDocker, OK,
			"Docker Engine 20.10.24, API 1.41, at unix:///d.sock (DOCKER_HOST); linux/amd64, runtimes runc, cgroup v1 by cgroupfs", ""},
		{"F36 no docker", nil, protocol.CapDocker, Missing, "no container engine answers: default (unix:///var/run/docker.sock): nobody listens there", "systemctl start docker"},
		{"a runtime that is not there", func(_ *testing.T, _, _ string, c *Config) { c.engine, c.Runtime = engineWith(nil), "runsc" },
			protocol.CapDocker, Missing, `at unix:///d.sock has no runtime "runsc", only runc`, "runsc install"},
		{"a runtime that is there", func(_ *testing.T, _, _ string, c *Config) { c.engine, c.Runtime = engineWith(nil), "runc" },
			protocol.CapDocker, OK, "runtimes runc", ""},
		{"docker elsewhere", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) { f.Chosen.Warning = "the engine is on another machine" })
		}, protocol.CapDocker, Warn, "on another machine", ""},
		{"docker for Windows", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) { f.Engine.OS = "windows" })
		}, protocol.CapDocker, Warn, "windows containers only", ""},
		{"docker without seccomp", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) { f.Engine.Seccomp = false })
		}, protocol.CapDocker, Warn, "seccomp is off", ""},
		{"an engine that shifts users", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) { f.Engine.UserNamespaces = true })
		}, protocol.CapDocker, OK, "cgroupfs, users are shifted", ""},
		{"a rootless engine on cgroup v1", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) {
				f.Engine.Rootless, f.Engine.LimitsMemory, f.Engine.LimitsPIDs, f.Engine.LimitsCPU = true, false, false, false
			})
		}, protocol.CapDocker, Warn, "rootless: it cannot limit memory, processes, CPU: a case that declares such a limit is refused", "cgroup v2"},
		{"a rootless engine without every controller", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) {
				f.Engine.CgroupVersion, f.Engine.Rootless, f.Engine.LimitsCPU = "2", true, false
			})
		}, protocol.CapDocker, Warn, "it cannot limit CPU:", "delegate"},
		{"gVisor", func(_ *testing.T, _, _ string, c *Config) {
			c.engine = engineWith(func(f *endpoint.Found) { f.Engine.Runtimes = []string{"runc", "runsc"} })
		}, protocol.CapSandbox, OK, "the runtime runsc", ""},
		{"gpu", func(t *testing.T, _, bin string, _ *Config) {
			program(t, bin, "nvidia-smi", "echo 'GPU 0: NVIDIA A100 (UUID: x)'; echo more")
		}, protocol.CapGPU, OK, "GPU 0: NVIDIA A100 (UUID: x)", ""},
		{"gpu tool without a gpu", func(t *testing.T, _, bin string, _ *Config) { program(t, bin, "nvidia-smi", "echo no devices; exit 9") }, protocol.CapGPU, Missing, "of a GPU", ""},
		{"browser", func(t *testing.T, home, _ string, _ *Config) {
			file(t, "", home, ".cache", "ms-playwright", "chromium-1148", "INSTALLATION_COMPLETE")
		}, protocol.CapBrowser, OK, "chromium-1148 in ", ""},
		{"browser elsewhere", func(t *testing.T, home, _ string, c *Config) {
			file(t, "", home, "b", "webkit-2", "x")
			c.Environ = append(c.Environ, "PLAYWRIGHT_BROWSERS_PATH="+filepath.Join(home, "b"))
		}, protocol.CapBrowser, OK, "webkit-2 in ", ""},
		{"no browser", nil, protocol.CapBrowser, Missing, "no such file", "playwright install"},
		{"what browsers need alone", func(t *testing.T, home, _ string, _ *Config) {
			file(t, "", home, ".cache", "ms-playwright", "ffmpeg-1010", "x")
		}, protocol.CapBrowser, Missing, "no browser", "playwright install"},
		{"a screen", func(_ *testing.T, _, _ string, c *Config) { c.Environ = append(c.Environ, "DISPLAY=:1") }, protocol.CapComputerUse, OK, "DISPLAY is :1", ""},
		{"a Wayland screen", func(_ *testing.T, _, _ string, c *Config) { c.Environ = append(c.Environ, "WAYLAND_DISPLAY=wayland-0") }, protocol.CapComputerUse, OK, "wayland-0", ""},
		{"no screen", nil, protocol.CapComputerUse, Missing, "neither DISPLAY", "xvfb-run"},
		{"codex", func(t *testing.T, home, bin string, _ *Config) {
			file(t, `{"secret":"s3cr3t"}`, home, ".codex", "auth.json")
			program(t, bin, "codex", "")
		}, protocol.CapCodexLogin, OK, "~/.codex/auth.json is there, and ", ""},
		{"codex that is not installed", func(t *testing.T, home, _ string, _ *Config) { file(t, `s3cr3t`, home, ".codex", "auth.json") },
			protocol.CapCodexLogin, Warn, "no codex is on the PATH", "install codex"},
		{"no codex login", nil, protocol.CapCodexLogin, Missing, "there is no ~/.codex/auth.json", "codex login"},
		{"an empty login", func(t *testing.T, home, _ string, _ *Config) { file(t, "", home, ".claude.json") }, protocol.CapClaudeLogin, Missing, "holds nothing", "claude"},
		{"claude", func(t *testing.T, home, bin string, _ *Config) {
			file(t, `{"secret":"s3cr3t"}`, home, ".claude.json")
			program(t, bin, "claude", "")
		}, protocol.CapClaudeLogin, OK, "~/.claude.json is there", ""},
		{"topology", nil, protocol.CapTopology, Missing, "no service topologies", ""},
		{"macOS", nil, protocol.CapOSMacOS, Missing, "this is linux", ""},
		{"Windows", nil, protocol.CapOSWindows, Missing, "this is linux", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home, bin := t.TempDir(), t.TempDir()
			cfg := Config{Environ: []string{"HOME=" + home, "PATH=" + bin}, engine: noEngine}
			if tt.set != nil {
				tt.set(t, home, bin, &cfg)
			}
			m := newMachine(t.Context(), cfg)
			checks := all(t.Context(), m.capabilities(), checkBound)
			c := find(t, checks, tt.id)
			if c.Status != tt.status || !strings.Contains(c.Evidence, tt.evidence) || !strings.Contains(c.Mend, tt.mend) || !c.Capability {
				t.Errorf("%s: got %s, %q, mend %q, want %s, %q, %q", tt.id, c.Status, c.Evidence, c.Mend, tt.status, tt.evidence, tt.mend)
			}
			doc, err := json.Marshal(checks)
			if err != nil || strings.Contains(string(doc), "s3cr3t") {
				t.Errorf("the report holds what a login's file holds: %v %s", err, doc)
			}
			// What doctor shows is what a runner offers.
			offers := slices.ContainsFunc(Capabilities(t.Context(), cfg), func(c Check) bool { return c.ID == tt.id && c.Evidence != "" })
			if got, want := offers, tt.status != Missing; got != want {
				t.Errorf("a runner offers %s: %t, want %t", tt.id, got, want)
			}
		})
	}
}

// TestEveryCapabilityIsChecked holds the checks against the vocabulary.
func TestEveryCapabilityIsChecked(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, c := range newMachine(t.Context(), Config{engine: noEngine}).capabilities() {
		if seen[c.id]++; !protocol.KnownCapability(c.id) {
			t.Errorf("%q is no capability", c.id)
		}
	}
	for _, c := range []string{protocol.CapGit, protocol.CapDocker, protocol.CapBrowser, protocol.CapComputerUse, protocol.CapTopology, protocol.CapGPU,
		protocol.CapOSMacOS, protocol.CapOSWindows, protocol.CapSandbox, protocol.CapClaudeLogin, protocol.CapCodexLogin} {
		if seen[c] != 1 {
			t.Errorf("%s is checked %d times, want once", c, seen[c])
		}
	}
}

// TestF36_SilentEngine checks that an engine that never answers costs three seconds and the capability, nothing else.
func TestF36_SilentEngine(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skipf("no unix sockets here: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	from := time.Now()
	var got []string
	for _, c := range Capabilities(t.Context(), Config{Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DOCKER_HOST=unix://" + l.Addr().String()}}) {
		got = append(got, c.ID)
	}
	if took := time.Since(from); took > endpoint.ProbeTimeout+5*time.Second {
		t.Errorf("it took %v, want at most %v", took, endpoint.ProbeTimeout)
	}
	if slices.Contains(got, protocol.CapDocker) || !slices.Contains(got, protocol.CapGit) {
		t.Errorf("got %v, want git and no docker", got)
	}
}

// TestAHangingCheckIsGivenUp checks the bound that holds when a system call does not return.
func TestAHangingCheckIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		from := time.Now()
		got := all(t.Context(), []check{
			{id: "deaf", required: true, run: func(context.Context) Check { <-end; return ok("never") }},
			{id: "polite", run: func(ctx context.Context) Check { <-ctx.Done(); return missing("it said so itself", "") }},
			{id: "quick", run: func(context.Context) Check { return ok("at once") }},
		}, 8*time.Second)
		if took := time.Since(from); took != 9*time.Second {
			t.Errorf("it took %v, want 8s and an eighth", took)
		}
		for i, want := range []string{"did not end within 8s", "it said so itself", "at once"} {
			if !strings.Contains(got[i].Evidence, want) {
				t.Errorf("%s: got %q, want %q", got[i].ID, got[i].Evidence, want)
			}
		}
		if got[0].Status != Missing || !got[0].Required || got[2].TookMs != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestAProgramThatHangsIsCut uses the real bound of programs.
func TestAProgramThatHangsIsCut(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a shell script")
	}
	bin := t.TempDir()
	program(t, bin, "git", "sleep 600 & sleep 600")
	m := newMachine(t.Context(), Config{Environ: []string{"PATH=" + bin + string(os.PathListSeparator) + "/bin" + string(os.PathListSeparator) + "/usr/bin"}, engine: noEngine})
	from := time.Now()
	c := m.checkGit(t.Context())
	if took := time.Since(from); took > programBound+10*time.Second {
		t.Errorf("it took %v, want about %v", took, programBound)
	}
	if c.Status != Missing || !strings.Contains(c.Evidence, "no answer within 3s") {
		t.Errorf("got %+v", c)
	}
}

// TestDirectories checks a directory that is there, one that will be, and those that cannot serve.
func TestDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file(t, "x", dir, "file")
	for _, tt := range []struct {
		name, path string
		status     Status
		evidence   string
	}{
		{"there", dir, OK, dir + ", "},
		{"to be made", filepath.Join(dir, "a", "b"), OK, "will be made"},
		{"a file", filepath.Join(dir, "file"), Missing, "is not a directory"},
		{"below a file", filepath.Join(dir, "file", "x"), Missing, ""},
	} {
		c := directory(tt.path)(t.Context())
		if c.Status == Warn && tt.status == OK && strings.Contains(c.Evidence, "free") {
			c.Status = OK // a machine with little room
		}
		if c.Status != tt.status || !strings.Contains(c.Evidence, tt.evidence) {
			t.Errorf("%s: got %s %q, want %s %q", tt.name, c.Status, c.Evidence, tt.status, tt.evidence)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking made the directory: %v", err)
	}
	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		if c := directory(filepath.Join(closed, "x"))(t.Context()); c.Status != Missing {
			t.Errorf("a directory that may not be written: got %s %q", c.Status, c.Evidence)
		}
	}
	for bytes, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 64 << 20: "64 MiB", 5<<30 + 1<<29: "5.5 GiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d): got %s, want %s", bytes, got, want)
		}
	}
}

// TestProcessSandbox tries the real one.
func TestProcessSandbox(t *testing.T) {
	t.Parallel()
	c := newMachine(t.Context(), Config{engine: noEngine}).checkProcess(t.Context())
	if runtime.GOOS == "windows" {
		if c.Status != Missing || !strings.Contains(c.Mend, "docker") {
			t.Errorf("got %+v", c)
		}
		return
	}
	if c.Status == Missing || !strings.Contains(c.Evidence, "enclosed by ") || !strings.Contains(c.Evidence, "secrets") {
		t.Errorf("got %s %q", c.Status, c.Evidence)
	}
	if c.Status == Warn && runtime.GOOS == "linux" && c.Mend == "" {
		t.Errorf("a warning without what mends it: %q", c.Evidence)
	}
}
