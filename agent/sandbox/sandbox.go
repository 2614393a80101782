// Package sandbox holds the roles of the places where an attempt's commands run: a Driver starts compute, a
// ComputeHandle executes in it, freezes, measures and releases it, a Process is one command. The technologies
// live in packages named after them (process, docker); sandboxtest is the suite that each of them passes.
//
// What every implementation promises:
//
//   - Whatever a command leaves behind (double-forked daemons, other sessions and process groups, processes that
//     ignore signals) is part of the sandbox and is gone when Kill or Release returns without an error.
//   - A command sees the environment of its Spec and Command and the driver's own EVERDICT_ markers, nothing else.
//   - Timeouts count running time: the time for which the sandbox was frozen does not count; the time for which
//     the machine slept does.
//   - Release is safe at any moment, from any goroutine, any number of times.
//
// The workspace is a directory of the runner's host in every lane: a container gets it as a bind mount.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// Markers that a driver adds to the environment of every command. They identify a sandbox's processes on the
// host; nothing in them is secret.
const (
	// EnvAttempt names the attempt (Spec.Attempt).
	EnvAttempt = "EVERDICT_ATTEMPT"
	// EnvMarker is an opaque value of the driver, which tells the commands of one attempt apart.
	EnvMarker = "EVERDICT_MARKER"
)

// Values of Spec.Network. The zero value leaves the choice to the driver.
const (
	NetworkPublic = "public" // the host's network, or one with a way to the internet
	NetworkNone   = "none"   // no network but loopback
)

// Driver starts sandboxes of one technology. Its methods may be called from any goroutine.
type Driver interface {
	// Name is the technology: "process", "docker".
	Name() string
	// Start makes a sandbox. It returns *SpecError for a spec that no driver could start, *UnsupportedError for
	// one that this driver cannot enforce as declared on this machine. ctx bounds the start, not the sandbox.
	// After an error nothing is left behind.
	Start(ctx context.Context, spec Spec) (ComputeHandle, error)
	// Sweep ends everything on this machine that carries this driver's labels and whose attempt is not kept:
	// what a crashed runner left. Sandboxes of living runners, this one's included, are left alone. It returns
	// what it ended, and the joined errors of what it could not.
	// keep is asked only about what would be ended otherwise: one that keeps everything, and notes what it is asked
	// about, looks without ending anything.
	Sweep(ctx context.Context, keep func(attempt string) bool) ([]Swept, error)
	// Close ends what the driver itself holds (threads, connections). Handles must be released before.
	Close() error
}

// Reserver is what a Driver may be beside: one that keeps sandboxes ready before they are asked for.
type Reserver interface {
	// Reserve hands out a workspace whose sandbox is ready: an empty directory, which is the caller's from now on, to
	// remove as well. A Start whose spec has it as Dir and agrees with this one in all but Attempt, Env and Progress
	// takes no time; any other Start is as good as without. ok is false when nothing is ready: then the caller makes a
	// directory of its own. Reserve does not wait.
	Reserve(spec Spec) (dir string, ok bool)
}

// Spec says what a sandbox must be.
type Spec struct {
	// Attempt labels everything that the sandbox makes: "run_x.1", unique among the live sandboxes of a machine,
	// 1 to 128 characters of [A-Za-z0-9._-].
	Attempt string
	// Dir is the workspace root: an absolute directory on the host, which exists and belongs to the caller.
	// It is the working directory of commands that name none.
	Dir string
	// Env is the base environment of every command, "K=V", complete: nothing is inherited from the runner.
	Env []string
	// Resources are the limits that the case declares.
	Resources Resources
	// Network is "", NetworkPublic or NetworkNone.
	Network string
	// Image is the image to run, for drivers that run images; others refuse it.
	Image string
	// Progress receives lines about a start that takes long, such as the pull of an image; nil discards. Start does
	// not use it after it has returned.
	Progress io.Writer
	// Hide lists absolute host paths that commands must not be able to read, such as the directory of the runner's
	// credential. Name directories rather than files: a file that is replaced by a rename comes back into view
	// until the next Exec. What could not be hidden is in Info.NotHidden.
	Hide []string
}

// Resources are limits. Zero means undeclared: the driver's default, or no limit.
type Resources struct {
	MemoryMB  int64 // MiB of memory for all processes together
	CPUMillis int64 // thousandths of one CPU
	PIDs      int64 // processes and threads
	GPU       int   // number of GPUs
}

// Validate returns a *SpecError for a spec that no driver may start. It does not look at the disk.
func (s Spec) Validate() error {
	bad := func(field, format string, args ...any) error {
		return &SpecError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if !ValidAttempt(s.Attempt) {
		return bad("attempt", "%q is not 1 to 128 characters of [A-Za-z0-9._-] that start with a letter or digit", s.Attempt)
	}
	if !filepath.IsAbs(s.Dir) || strings.ContainsRune(s.Dir, 0) {
		return bad("dir", "%q is not an absolute path", s.Dir)
	}
	if name, ok := badEnv(s.Env); !ok {
		return bad("env", "%s is not NAME=VALUE without NUL bytes", name)
	}
	r := s.Resources
	for _, f := range []struct {
		name  string
		value int64
	}{{"memoryMb", r.MemoryMB}, {"cpuMillis", r.CPUMillis}, {"pids", r.PIDs}, {"gpu", int64(r.GPU)}} {
		if f.value < 0 {
			return bad("resources."+f.name, "%d is negative", f.value)
		}
	}
	switch s.Network {
	case "", NetworkPublic, NetworkNone:
	default:
		return bad("network", "%q is none of %q, %q", s.Network, NetworkPublic, NetworkNone)
	}
	for _, p := range s.Hide {
		if !filepath.IsAbs(p) || strings.ContainsRune(p, 0) {
			return bad("hide", "%q is not an absolute path", p)
		}
	}
	return nil
}

// ValidAttempt reports whether s can label a sandbox: it becomes a file name, an environment value and a container label.
func ValidAttempt(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '.' || c == '_' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return true
}

// badEnv returns the first entry that execve would misread: by its name, or by its place when it has none. Values are
// kept out of errors, because an environment holds secrets.
func badEnv(env []string) (which string, ok bool) {
	for i, kv := range env {
		name, _, found := strings.Cut(kv, "=")
		switch {
		case !found || name == "" || strings.ContainsRune(name, 0):
			return fmt.Sprintf("entry %d", i+1), false
		case strings.ContainsRune(kv, 0):
			return name, false
		}
	}
	return "", true
}

// ComputeHandle is one running sandbox. Its methods may be called from any goroutine.
type ComputeHandle interface {
	// Exec starts a command. ctx bounds the start only; what ends the command is its timeouts, Stop, Kill and
	// Release. While the sandbox is frozen Exec waits for the thaw or for ctx. It returns ErrReleased after
	// Release, and an error matching ErrNotFound when there is no such command.
	Exec(ctx context.Context, cmd Command) (Process, error)
	// Freeze, Thaw and Kill return ErrReleased after Release.
	//
	// Freeze stops every process of the sandbox, including those that are being forked meanwhile, and returns
	// when none runs. It is idempotent. After an error the sandbox is thawed again; ErrBrokenOff is that of a Freeze
	// which a Kill broke off.
	Freeze(ctx context.Context) error
	// Thaw lets a frozen sandbox go on. It is idempotent; of an unfrozen sandbox it is a no-op.
	Thaw(ctx context.Context) error
	// FreezeAt has the sandbox frozen at a deadline even if this process stands still by then (promise P3), unless
	// the deadline is moved before; zero means never. The freeze is up to 1 s late, and is counted as frozen time.
	// Moving a deadline that has passed into the future, or to never, ends that freeze, and nothing else but Kill
	// does: Thaw undoes Freeze, and of a sandbox that both hold it is the second of the two that thaws. It returns ErrReleased after Release, and ErrNoDeadline where the driver offers none.
	FreezeAt(ctx context.Context, deadline time.Time) error
	// Usage returns what is measured so far; after Release, what was measured at its end.
	Usage(ctx context.Context) (Usage, error)
	// Kill ends every process now, frozen or not, and returns when none is left. The handle stays usable, so that
	// graders can look at what a killed harness left; a frozen sandbox is thawed by it. The processes are sent their
	// end even when ctx has ended already; it bounds the wait for their being gone.
	Kill(ctx context.Context) error
	// Release ends every process and removes everything that the sandbox made, except Spec.Dir. Calls after the
	// first wait for it and return its result; after an error a further call tries again. Cleaning up after what
	// was cancelled is its purpose: it gives ctx's values on, ignores that ctx has ended, and bounds itself by 10 s.
	Release(ctx context.Context) error
	// Info says what encloses the sandbox. It does not change over the life of the handle.
	Info() Info
}

// Holder is what a ComputeHandle may be beside: one whose commands are processes of the host, and that can tell which.
type Holder interface {
	// Holds reports whether a process of the host is one of the sandbox's.
	Holds(pid int) bool
}

// Usage is what a sandbox consumed. Nil means that this machine cannot tell: unknown is never zero.
type Usage struct {
	CPU        *time.Duration // user and system time of all processes, ended ones included
	PeakMemory *int64         // bytes, the highest sum over all processes
	PIDs       *int64         // processes and threads alive now
	PeakPIDs   *int64         // the most that were alive together
	OOMKills   *int64         // processes that the kernel killed for the memory limit, children included
	PIDsHits   *int64         // forks that were refused because of the pids limit
	Frozen     time.Duration  // for how long the sandbox has been frozen, all freezes together
}

// Info describes the enclosure: facts for the record of a run.
type Info struct {
	Driver    string // the driver's name
	Enclosure string // what finds and ends every process: "cgroup2", "subreaper", "process-group", "container"
	// Freezer is what stops the processes: "cgroup2", "sigstop", "pause"; empty: this machine cannot freeze.
	Freezer string
	Limits  []Limit  // every limit in force, the driver's defaults included
	Hidden  []string // paths of Spec.Hide that commands cannot see
	// NotHidden are the paths of Spec.Hide that stay visible, each with its reason.
	NotHidden []NotHidden
	// ActsAsUser is true when the commands run as the runner's user on its host: the job can act as you.
	ActsAsUser bool
	// Image is the image as the spec names it, ImageDigest what the engine ran ("sha256:..."; the registry's digest
	// where there is one, else the image's id), Platform its system ("linux/amd64"). Empty where nothing is an image.
	Image, ImageDigest, Platform string
	// Emulated is true when the image is for another kind of machine than runs it.
	Emulated bool
	// Asker is the path, inside, of a program that stands on the PATH of commands as "everdict" and asks a person as that
	// does (protocol.AskSocketEnv). Empty: commands reach the host's sockets and programs. "Asker carry" is the other end
	// of its socket, to be run in the sandbox: it prints the socket's path, then each question that comes there, a line
	// of JSON, and reads a line that answers it before it takes the next. It ends when its stdin is closed.
	Asker string
	// Notes are sentences about what is weaker here than elsewhere, for the doctor and the run's record.
	Notes []string
}

// Limit is one limit in force.
type Limit struct {
	Name  string // "memory", "pids", "cpu", "gpu"
	Value int64  // bytes, count, thousandths of a CPU, count
	By    string // what enforces it: "cgroup2", "cgroup1", "docker"
	// Default is true when the driver chose the value because the spec declares none.
	Default bool
	// Slots is set for a default that is a share of the machine: over how many slots of the runner it was divided.
	Slots int
}

// NotHidden is a path that the machine cannot hide from commands.
type NotHidden struct {
	Path   string
	Reason string
}

// Swept is something that Sweep ended.
type Swept struct {
	Attempt   string // the label it carried
	Kind      string // "cgroup", "processes", "container"
	Processes int    // processes that were alive in it
}
