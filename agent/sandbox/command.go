package sandbox

import (
	"context"
	"io"
	"strings"
	"syscall"
	"time"
)

// DefaultWaitDelay bounds how long after the main process's end its output is still waited for.
const DefaultWaitDelay = 2 * time.Second

// EndWithin bounds how long a driver itself waits for killed processes to be gone: promise P6.
const EndWithin = 10 * time.Second

// Command is one command to execute in a sandbox.
type Command struct {
	// Args is the command with its arguments. A name without a slash is looked up in the PATH of the command's own
	// environment. No shell is involved. Arguments are visible to every process of the machine: no secrets here.
	Args []string
	// Dir is the working directory: absolute, or relative to Spec.Dir; empty means Spec.Dir.
	Dir string
	// Env is added to Spec.Env; the last value of a name counts.
	Env []string
	// Stdin is copied to the command and then closed; nil is the null device. Wait does not wait for a Read of it
	// that never returns.
	Stdin io.Reader
	// Stdout and Stderr receive what the command writes, as it comes; nil discards. When both are the same
	// comparable value they share one pipe and at most one Write runs at a time. A Write that blocks makes the
	// command wait. After a Write error (or panic) the rest is discarded, and Wait reports an *OutputError.
	Stdout, Stderr io.Writer
	// Timeout ends the command, with everything that it started, after so much running time; zero means none.
	Timeout time.Duration
	// IdleTimeout ends it when it has not written anything for so much running time; zero means none.
	IdleTimeout time.Duration
	// WaitDelay bounds the wait for output that descendants hold open after the main process has ended;
	// zero means DefaultWaitDelay.
	WaitDelay time.Duration
	// Ladder is how a timeout ends the command; nil means DefaultLadder.
	Ladder Ladder
}

// Validate returns a *SpecError for a command that no driver can execute.
func (c Command) Validate() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return &SpecError{Field: "args", Reason: "no command is named"}
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return &SpecError{Field: "args", Reason: "an argument holds a NUL byte"}
		}
	}
	if strings.ContainsRune(c.Dir, 0) {
		return &SpecError{Field: "dir", Reason: "it holds a NUL byte"}
	}
	if name, ok := badEnv(c.Env); !ok {
		return &SpecError{Field: "env", Reason: name + " is not NAME=VALUE without NUL bytes"}
	}
	if c.Timeout < 0 || c.IdleTimeout < 0 || c.WaitDelay < 0 {
		return &SpecError{Field: "timeout", Reason: "a duration is negative"}
	}
	return nil
}

// Ladder is how a command is asked to end before it is made to: each rung sends a signal and waits. After the
// last rung every process of the command is killed, also when the main process has ended by itself. An empty,
// non-nil Ladder kills at once.
type Ladder []Rung

// Rung is one step of a Ladder.
type Rung struct {
	Signal syscall.Signal
	Grace  time.Duration // how long the main process has to end before the next rung
	Tree   bool          // send to every process of the command, not to the main process alone
}

// DefaultLadder asks the main process with SIGINT, on which agents still print their result and cost, then every
// process with SIGTERM. Its graces leave room for the kill within the 10 s of promise P6.
var DefaultLadder = Ladder{
	{Signal: syscall.SIGINT, Grace: 5 * time.Second},
	{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Tree: true},
}

// Hurried is the ladder with half of each grace, for the stop of an attempt as a whole: within the same 10 s its sandbox
// has to go as well, and an engine takes 3 s and more to remove forty containers at once. A nil ladder is DefaultLadder.
func (l Ladder) Hurried() Ladder {
	if l == nil {
		l = DefaultLadder
	}
	out := make(Ladder, len(l))
	for i, r := range l {
		r.Grace /= 2
		out[i] = r
	}
	return out
}

// Process is a command that was started. Its methods may be called from any goroutine.
type Process interface {
	// Pid is the host's number of the main process, 0 when the driver does not know it.
	Pid() int
	// Done is closed when Wait would not block.
	Done() <-chan struct{}
	// Wait returns when the main process has ended and its output is complete or given up after WaitDelay. It may
	// be called repeatedly. The error is not about how the command ended, which Exit tells, but about what could
	// not be observed: *OutputError when a writer failed, or the driver's loss of the process.
	Wait() (Exit, error)
	// Signal sends one signal to the main process. It returns ErrEnded when that has ended already.
	Signal(sig syscall.Signal) error
	// Stop walks the ladder (nil: the command's own), waits for the end of every process of the command, and then
	// returns as Wait does. When ctx ends first, the remaining rungs are skipped and everything is killed at once.
	// Of a command that has ended, it ends what that left behind.
	Stop(ctx context.Context, ladder Ladder) (Exit, error)
}

// Reason says who ended a command.
type Reason string

// Reasons. A command that ended by itself, a crash included, has ReasonNone.
const (
	ReasonNone    Reason = ""        // it ended by itself
	ReasonTimeout Reason = "timeout" // Command.Timeout
	ReasonIdle    Reason = "idle"    // Command.IdleTimeout
	ReasonStopped Reason = "stopped" // Process.Stop
	ReasonKilled  Reason = "killed"  // ComputeHandle.Kill or Release
)

// Exit is how a command ended.
type Exit struct {
	// Code is the exit code, -1 when a signal ended the main process. A code that follows a Reason is the command's
	// answer to being stopped: some agents exit 0 then, which is no success.
	Code int
	// Signal is the name of the signal that ended the main process ("SIGKILL"), empty otherwise.
	Signal string
	// Reason is who ended it.
	Reason Reason
	// Fired is the timer that fired, when Reason is ReasonTimeout or ReasonIdle.
	Fired *Timer
	// Sent are the signals that the ladder sent, in order; the final kill is "SIGKILL".
	Sent []string
	// Started and Ended are the wall clock at the start and end of the main process.
	Started, Ended time.Time
	// Ran is the running time: the larger of monotonic and wall, without Frozen.
	Ran time.Duration
	// Frozen is for how long the command was frozen.
	Frozen time.Duration
	// OutputHeld is true when a descendant held the output open past WaitDelay: what it writes later is discarded.
	OutputHeld bool
}

// Success reports whether the command ended by itself with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == "" && e.Reason == ReasonNone }

// Timer is a limit on time that fired.
type Timer struct {
	Name       string        // "timeout" or "idle"
	Configured time.Duration // what the Command says
	Measured   time.Duration // what had passed
}
