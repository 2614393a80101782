// Package doctor finds out what this machine can do as a runner, each thing with its evidence and, where it is missing,
// with what mends it.
//
// A runner announces what Capabilities finds, and `everdict doctor` prints what Examine finds; both ask the same checks,
// so that they never disagree. A check says what it saw and never what it read: of a login only that its file is there.
//
// Each check is bounded in time. One that hangs nevertheless, on a dead network file system for example, is given up and
// reported as such; its goroutine ends when the system lets it.
package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Status is what a check found.
type Status string

// The statuses.
const (
	// OK: it is there.
	OK Status = "ok"
	// Warn: it is there, with something against it.
	Warn Status = "warn"
	// Missing: it is not there, or does not work.
	Missing Status = "missing"
)

// Bounds of the checks.
const (
	// programBound is for a program that is asked for its version.
	programBound = 3 * time.Second
	// networkBound is for one request to the coordinator.
	networkBound = 5 * time.Second
	// checkBound is for a whole check, above all the others, those of endpoint.Find included.
	checkBound = 14 * time.Second
)

// Check is one finding.
type Check struct {
	// ID is a capability of protocol, or the name of something that every runner needs: process-sandbox, state-dir,
	// work-dir, coordinator, credential, certificates, proxy.
	ID string `json:"id"`
	// Capability says that ID is one.
	Capability bool   `json:"capability"`
	Status     Status `json:"status"`
	// Required says that no runner works without it.
	Required bool `json:"required"`
	// Evidence is what was seen, in a sentence without its full stop.
	Evidence string `json:"evidence"`
	// Mend is the command, or what else helps; empty when all is well or nothing can help.
	Mend string `json:"mend,omitempty"`
	// TookMs is how long it took, in milliseconds.
	TookMs float64 `json:"tookMs"`
	// Docker says how the engine was looked for; of the check docker only.
	Docker *endpoint.Found `json:"docker,omitempty"`
}

// Report is everything that was found.
type Report struct {
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// CanWork says that a runner on this machine, started as configured, could work.
	CanWork bool `json:"canWork"`
	// Capabilities are what it would offer.
	Capabilities []string `json:"capabilities"`
	Checks       []Check  `json:"checks"`
}

// Config says what to look at. The zero value looks at the machine and no coordinator.
type Config struct {
	// Environ is the environment of the runner, "K=V"; nil takes the process's.
	Environ []string
	// Version is the runner's.
	Version string
	// Sandbox is the one that the runner is to use: "process" (the default) or "docker".
	Sandbox string
	// Runtime is the OCI runtime that containers are to run under; empty: the engine's default.
	Runtime string
	// Slots is how many jobs the runner is to take at a time; zero means one.
	Slots int
	// RosterDir is where the runners of this user find each other (process.Config.Roster); empty: they do not.
	RosterDir string
	// StateDir and WorkDir are the runner's directories; empty: they are not looked at.
	StateDir, WorkDir string
	// URL is the coordinator's address; empty: it is not looked for.
	URL string
	// CAFile is trusted beside the system's certificates.
	CAFile string
	// CredentialFile is where the credential is kept, and ReadCredential reads it. An error that wraps os.ErrNotExist
	// says that the machine is not paired.
	CredentialFile string
	ReadCredential func(path string) (link.Credential, error)
	// PassProxy and PassCA say what of the network's settings jobs get.
	PassProxy, PassCA bool

	// engine replaces endpoint.Find in tests.
	engine func(context.Context, endpoint.System) endpoint.Found
}

// machine is what the checks share.
type machine struct {
	Config
	home string
	// docker looks for the engine once.
	docker func() endpoint.Found
}

func newMachine(ctx context.Context, cfg Config) *machine {
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	if cfg.engine == nil {
		cfg.engine = endpoint.Find
	}
	m := &machine{Config: cfg}
	m.home = m.getenv("HOME")
	if runtime.GOOS == "windows" {
		m.home = m.getenv("USERPROFILE")
	}
	m.docker = sync.OnceValue(func() endpoint.Found { return cfg.engine(ctx, endpoint.This(cfg.Environ)) })
	return m
}

// check is one thing to find out.
type check struct {
	id         string
	capability bool
	required   bool
	run        func(context.Context) Check
}

// Capabilities are the checks of those capabilities of protocol that this machine has, in the order of that vocabulary. It
// takes some seconds at most.
func Capabilities(ctx context.Context, cfg Config) []Check {
	return offered(all(ctx, newMachine(ctx, cfg).capabilities(), checkBound))
}

// Examine makes every check, all at the same time.
func Examine(ctx context.Context, cfg Config) Report {
	m := newMachine(ctx, cfg)
	checks := all(ctx, append(m.needs(), m.capabilities()...), checkBound)
	r := Report{Version: cfg.Version, OS: runtime.GOOS, Arch: runtime.GOARCH, CanWork: true, Capabilities: []string{}, Checks: checks}
	for _, c := range offered(checks) {
		r.Capabilities = append(r.Capabilities, c.ID)
	}
	for _, c := range checks {
		if c.Required && c.Status == Missing {
			r.CanWork = false
		}
	}
	return r
}

func offered(checks []Check) []Check {
	var out []Check
	for _, c := range checks {
		if c.Capability && c.Status != Missing {
			out = append(out, c)
		}
	}
	return out
}

// all runs the checks side by side and gives up those that take longer than bound.
func all(ctx context.Context, checks []check, bound time.Duration) []Check {
	out := make([]Check, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { out[i] = bounded(ctx, c, bound) })
	}
	wg.Wait()
	return out
}

func bounded(ctx context.Context, c check, bound time.Duration) Check {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	from := time.Now()
	done := make(chan Check, 1)
	go func() { done <- c.run(ctx) }()
	var found Check
	select {
	case found = <-done:
	case <-ctx.Done():
		found = missing(fmt.Sprintf("the check did not end within %s", bound), "")
		select {
		case found = <-done: // it heard of the end itself, and can say more
		case <-time.After(bound / 8):
		}
	}
	found.ID, found.Capability, found.Required = c.id, c.capability, c.required
	found.TookMs = float64(time.Since(from).Microseconds()) / 1000
	return found
}

func ok(format string, args ...any) Check {
	return Check{Status: OK, Evidence: fmt.Sprintf(format, args...)}
}

func warn(evidence, mend string) Check { return Check{Status: Warn, Evidence: evidence, Mend: mend} }

func missing(evidence, mend string) Check {
	return Check{Status: Missing, Evidence: evidence, Mend: mend}
}

func (m *machine) getenv(name string) (value string) {
	for _, kv := range m.Environ {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			value = v
		}
	}
	return value
}

// lookPath finds a program on the runner's PATH; empty: it is not there.
func (m *machine) lookPath(name string) string {
	for _, dir := range filepath.SplitList(m.getenv("PATH")) {
		if !filepath.IsAbs(dir) { // the working directory of a runner is nobody's choice
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// output is the first line that a program prints, within programBound.
func (m *machine) output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programBound, fmt.Errorf("no answer within %s", programBound))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = m.Environ, os.TempDir()
	// A child of the program that keeps its output open does not keep the check.
	cmd.WaitDelay = programBound / 8
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return protocol.Clip(line, 200), err
}
