package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Opener makes the client of a cluster.
type Opener interface {
	// Open resolves the secrets that the spec names and returns a client. It need not
	// reach the cluster. An error is one of the spec or of its secrets.
	Open(ctx context.Context, t Target) (Provider, error)
}

// Secrets are the values that runtimes name. They serve calls of the cluster's API and
// go into no job.
type Secrets interface {
	// Secret is the value of a workspace's secret, or ErrNoSecret.
	Secret(ctx context.Context, workspace, name string) (string, error)
}

// ErrNoSecret says that a workspace has no secret of this name.
var ErrNoSecret = errors.New("the workspace has no secret of this name")

// Target is a cluster as one runtime uses it.
type Target struct {
	// Coordinator is whose units these are: those of others are not seen.
	Coordinator string
	Workspace   string
	Spec        *protocol.RuntimeSpec
}

// Provider is one cluster as one runtime of one coordinator uses it. Its methods are
// safe for concurrent use, end soon after their context, and say *AuthError when the
// cluster does not take the credential.
type Provider interface {
	// Probe asks the cluster who it is: one line, such as "kubernetes v1.34.4".
	Probe(ctx context.Context) (string, error)
	// Launch makes a unit. One that is there already is left alone; one whose launch
	// was cut off is completed. A *RefusedError says that the cluster will never take
	// this order, a *QuotaError that it does not now.
	Launch(ctx context.Context, o Order) error
	// List is every unit of the target that is there, ended ones included.
	List(ctx context.Context) ([]Unit, error)
	// Terminate ends a unit of the target and removes it. One that is not there is no
	// error; nothing else is ever touched. The unit may be seen for a while longer.
	Terminate(ctx context.Context, unit string) error
	// Forget removes the payload that a unit was given, which is running by now: where the
	// cluster starts it a second time, it waits for what is not there any more. A unit that
	// is not there is no error.
	Forget(ctx context.Context, unit string) error
	// Output is the last bytes that a unit's runner has printed, at most limit. It is
	// empty while there is none, and when there is none any more. An error says that the
	// cluster does not give it now; what it gave of it comes along.
	Output(ctx context.Context, unit string, limit int64) ([]byte, error)
	// Inspect looks at the cluster: nodes, capacity, what runs there for us.
	Inspect(ctx context.Context) (protocol.Inspection, error)
	// Watch calls changed after each change that List would show, until ctx ends or
	// the cluster is lost, and makes List cheap meanwhile. It is called once.
	Watch(ctx context.Context, changed func()) error
}

// Located is a Provider whose secrets say where its units are.
type Located interface {
	Provider
	// Location tells such places apart. It is shown to nobody.
	Location() string
}

// Order is a unit to launch.
type Order struct {
	// Unit is its name: UnitName of job and attempt, or that of a standing unit.
	Unit string
	// Job and Attempt that it is for; empty for a unit that has no job yet.
	Job     string
	Attempt int64
	// Token makes the token with which the runner joins; an earlier one is dead then.
	// It is called only when the unit has to be given one.
	Token func(ctx context.Context) (string, error)
	// Payload, in place of Token, makes the document with which the runner begins without
	// reaching the coordinator: the same one each time. From then on the unit may be at
	// work. It holds credentials and what the job may not see: the unit's runner can read
	// it, remove it, and what was removed is not there again for the job. nil: it joins
	// with its token. PayloadSize is the most bytes that it has; an order with more than
	// the cluster can keep is refused before anything is made.
	Payload     func(ctx context.Context) ([]byte, error)
	PayloadSize int
	// URL is where the runner finds the coordinator.
	URL string
	// Image is the one that the job names; empty: the runtime's own.
	Image string
	// CPU in thousandths of a core, MemoryMB in MiB and GPU, as the harness declares
	// them; 0: not declared.
	CPU, MemoryMB, GPU int
	// Deadline is when the cluster ends the unit, whatever it does; a backstop.
	Deadline time.Duration
	// Network is what the job declares: "none" is a unit that reaches the coordinator
	// and nothing else. A provider that does not hold it refuses the order.
	Network string
	// Env are further variables of the runner.
	Env map[string]string
	// Reused units take one job after the other. Their user is not root, and nothing of
	// them can be written but what the runner empties after each job. A provider that
	// does not hold this refuses the order.
	Reused bool
	// Note is kept with the unit as it is, and is Unit.Note in a list: a line of
	// printable ASCII, at most 200 bytes.
	Note string
}

// Document is what the unit is given in its file: the payload, or else the token.
func (o *Order) Document(ctx context.Context) ([]byte, error) {
	if o.Payload != nil {
		return o.Payload(ctx)
	}
	token, err := o.Token(ctx)
	return []byte(token), err
}

// TooLarge refuses a payload of more than limit bytes; nil: it fits.
func (o *Order) TooLarge(limit int, where string) error {
	if o.PayloadSize <= limit {
		return nil
	}
	return &RefusedError{Cause: CausePolicy, Message: fmt.Sprintf(
		"the payload of the run has up to %d bytes, and %s holds %d: make the case smaller (files of its repository by URL, say), or send it to a runtime without payload",
		o.PayloadSize, where, limit)}
}

// Feature is what the units of some technologies can hold.
type Feature string

const (
	// FeatureReuse is Order.Reused.
	FeatureReuse Feature = "reuse"
	// FeatureNoNetwork is Order.Network "none".
	FeatureNoNetwork Feature = "network none"
)

// Featured is an Opener whose units can hold Features; those of any other hold none.
type Featured interface {
	Opener
	// Lacks says in one sentence why units do not hold a feature; empty: they do.
	Lacks(f Feature) string
}

// lacks is why the units of a kind of runtime do not hold a feature; empty: they do.
func lacks(o Opener, kind string, f Feature) string {
	if featured, ok := o.(Featured); ok {
		return featured.Lacks(f)
	}
	return fmt.Sprintf("units of kind %s do not hold %q", kind, f)
}

// State of a unit.
type State int8

const (
	// Launching units were not launched completely: Launch goes on with them.
	Launching State = iota
	// Pending units have no running process yet.
	Pending
	// Running units have one.
	Running
	// Ended units have none any more, and will not have another.
	Ended
)

func (s State) String() string { return [...]string{"launching", "pending", "running", "ended"}[s] }

// Unit is what the cluster has for one attempt of a job, or, standing, for one job after
// the other.
type Unit struct {
	Name    string
	Job     string
	Attempt int64
	// Note is what Order.Note was.
	Note  string
	State State
	// Node is where it runs, if that is known.
	Node string
	// Trouble is what the cluster says is wrong with it; nil: nothing. A unit that
	// ended with exit code 0 has none.
	Trouble *Trouble
}

// Cause is what kind of trouble a unit is in.
type Cause string

const (
	// CauseImage: the image cannot be had.
	CauseImage Cause = "image"
	// CauseStart: the container cannot be created or started.
	CauseStart Cause = "start"
	// CausePolicy: the cluster does not admit such a unit.
	CausePolicy Cause = "policy"
	// CauseUnschedulable: no node has room for it.
	CauseUnschedulable Cause = "unschedulable"
	// CauseQuota: a quota of the cluster is used up.
	CauseQuota Cause = "quota"
	// CauseOOM: the kernel ended it at its memory limit.
	CauseOOM Cause = "oom"
	// CauseEvicted: the cluster, or somebody with a right to, took it away.
	CauseEvicted Cause = "evicted"
	// CauseDeadline: Order.Deadline has passed.
	CauseDeadline Cause = "deadline"
	// CauseNodeLost: its node does not answer.
	CauseNodeLost Cause = "node_lost"
	// CauseExited: its process ended with a code that is not 0.
	CauseExited Cause = "exited"
)

// Trouble is what a cluster says is wrong with a unit.
type Trouble struct {
	Cause Cause
	// Message has the cluster's own words.
	Message string
	// Final says that waiting does not help.
	Final bool
	// Dead says that no process of the unit runs any more, for certain.
	Dead bool
	// ExitCode of the process, if one ran and its code is known.
	ExitCode *int
}

// AuthError says that a cluster did not take the credential.
type AuthError struct {
	// Credential names what was used, never its value.
	Credential string
	Err        error
}

// Error implements error.
func (e *AuthError) Error() string {
	return fmt.Sprintf("the cluster refuses %s: %v", e.Credential, e.Err)
}

// Unwrap returns the cluster's error.
func (e *AuthError) Unwrap() error { return e.Err }

// RefusedError says that a cluster will never take an order.
type RefusedError struct {
	Cause   Cause
	Message string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// QuotaError says that a quota of a cluster has no room for an order, which others may make.
type QuotaError struct{ Message string }

// Error implements error.
func (e *QuotaError) Error() string { return e.Message }

// UnitName is the name of the unit for an attempt of a run: letters, digits and "-", at
// most 63. The same attempt has the same name, so that no unit is launched twice.
func UnitName(run string, attempt int64) string {
	id := strings.ToLower(strings.TrimPrefix(run, protocol.RunPrefix))
	return fmt.Sprintf("everdict-%.40s-%d", id, attempt)
}
