package cli

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// Hooks are what the commands that start something call. A nil hook makes its
// command say that this build cannot do it.
type Hooks struct {
	// Version of the program; empty: what the Go tool recorded.
	Version string
	// Seclude hides this process's files from jobs of the process sandbox. It may replace the process by a fresh image
	// of the program, and so comes first. sweep: what killed runners left has to be ended now or never.
	Seclude func(ctx context.Context, sweep bool) error
	// Coordinator serves until ctx is cancelled and then drains. nil is exit code
	// 0; an *ExitError chooses another.
	Coordinator func(ctx context.Context, o CoordinatorOptions) error
	// RotateSecretsKey gives the secrets in a data directory a new key.
	RotateSecretsKey func(ctx context.Context, o CoordinatorOptions) (secret.Rotation, error)
	// Runner works until ctx is cancelled and then drains.
	Runner func(ctx context.Context, o RunnerOptions) error
	// Unpair ends the pairing of the machine that o describes.
	Unpair func(ctx context.Context, o RunnerOptions) (Unpaired, error)
	// Doctor finds out what this machine can do as the runner that o describes.
	Doctor func(ctx context.Context, o RunnerOptions) (doctor.Report, error)
	// GC removes what dead runners left, or only looks. The report holds also beside an error.
	GC func(ctx context.Context, o GCOptions) (agent.GarbageReport, error)
	// Up is a coordinator and a runner in one process.
	Up func(ctx context.Context, o UpOptions) error
	// RunLocal starts an in-memory coordinator and a runner, calls o.Drive with a
	// client of it, ends both, and returns what Drive returned.
	RunLocal func(ctx context.Context, o RunOptions) (code int, err error)
}

// CoordinatorOptions is what `everdict coordinator` was told. Every value is set
// and checked.
type CoordinatorOptions struct {
	DataDir string
	// Listen is host:port. Beyond loopback either RequireAuth or
	// InsecureListenWithoutAuth is set.
	Listen                    string
	RequireAuth               bool
	InsecureListenWithoutAuth bool
	// DebugSocket is where profiles are served; empty: nowhere.
	DebugSocket string
	// InternalToken is the operator's; empty: there is none.
	InternalToken string
	// SecretsKey is a key as secret.ParseKey reads it; empty: the key file in DataDir.
	// SecretsOldKeys sealed secrets before.
	SecretsKey     string
	SecretsOldKeys []string
	Lease          LeaseTimings
	// SessionIdle and SessionLife bound how long a browser stays signed in.
	SessionIdle, SessionLife time.Duration
	// TrustedProxies are believed what they say of a request's origin.
	TrustedProxies []netip.Prefix
	// NoDeviceCode refuses to pair machines by a code that somebody types in.
	NoDeviceCode bool
	// Sandbox is what runners on this machine enclose jobs in.
	Sandbox SandboxOptions
	// PoolMaxConcurrent is the slot limit of a pool that states none.
	PoolMaxConcurrent int
	Launch            LaunchOptions
	Log               *slog.Logger
	// Ready is to be called once, when requests are answered at baseURL.
	Ready func(baseURL string)
	// FirstKey is called before Ready with the first API key, when the data directory had none and RequireAuth asks for
	// keys.
	FirstKey func(key string) error
	// Hurry is closed when the user asks a second time to stop.
	Hurry <-chan struct{}
}

// LaunchOptions are about the runners that a coordinator launches on clusters; without
// RunnerURL it launches none.
type LaunchOptions struct {
	RunnerURL           string
	KubeHostNetwork     bool
	KubeImagePullPolicy string
	// KubeUser is the user id of Pods; negative: the image's own.
	KubeUser int64
	// NomadHostNetwork and NomadUser are for containers on Nomad.
	NomadHostNetwork bool
	NomadUser        int64
	// KubeNetworkPolicy are the ranges of the coordinator's addresses as network policies
	// see them; empty: none is made.
	KubeNetworkPolicy []string
	// Machine says that runners of kind local are launched on this machine, and NoMachine
	// why they are not.
	Machine   bool
	NoMachine string
	// TrustZones is how workspaces are kept apart, and TrustZoneRuntime what encloses them.
	TrustZones, TrustZoneRuntime string
	// PendingTimeout is how long a unit may wait for what its cluster lacks.
	PendingTimeout time.Duration
}

// LeaseTimings are the clocks of the queue; they are checked to hold together.
type LeaseTimings struct {
	TTL           time.Duration
	Heartbeat     time.Duration
	FreezeMargin  time.Duration
	StartAck      time.Duration
	OnlineWindow  time.Duration
	QueueDeadline time.Duration
	Aging         time.Duration
	MaxAttempts   int
}

// RunnerOptions is what `everdict runner` was told.
type RunnerOptions struct {
	APIURL string
	// APIURLGiven says that somebody gave APIURL. Otherwise a device connects to where it
	// was paired.
	APIURLGiven bool
	CAFile      string
	// Pair says where the pairing token is: "-" is Stdin, "file:PATH", "fd:N"; on
	// systems where a program cannot replace itself also the token. PairDevice: there is
	// none, and somebody approves this machine. Empty: what StateDir holds.
	Pair string
	// Pairing is called while a machine waits to be approved, Paired when it is.
	Pairing func(PairingProgress)
	Paired  func(runner string, account protocol.Account)
	// PoolToken says where the pool token is, in the same way. Empty: this is a paired
	// machine.
	PoolToken string
	Stdin     io.Reader
	// ExitWhenIdle ends the runner after so long without a run; 0: never.
	ExitWhenIdle time.Duration
	// Scope is whose runs a paired machine takes; empty: what its pairing says.
	Scope string
	// WorkDir may be empty: a directory for caches.
	WorkDir       string
	StateDir      string
	MaxConcurrent int
	// Capabilities replace what is found on the machine; nil: they do not.
	Capabilities []string
	DrainTimeout time.Duration
	Sandbox      SandboxOptions
	// PassProxy gives runs the proxy's variables of this machine, PassCA the certificates of CAFile.
	PassProxy, PassCA bool
	Log               *slog.Logger
	Hurry             <-chan struct{}
}

// PairDevice as RunnerOptions.Pair means that somebody approves the machine.
const PairDevice = "device"

// PairingProgress is how it stands with a machine that waits to be approved.
type PairingProgress struct {
	// Started is set once, at its beginning.
	Started *protocol.PairingStarted
	// Until is when it is over.
	Until time.Time
}

// Unpaired is what `everdict runner unpair` has done.
type Unpaired struct {
	Coordinator string `json:"coordinator"`
	Runner      string `json:"runner,omitempty"`
	// NotTold is why the coordinator could not be told; empty: it was.
	NotTold string `json:"notTold,omitempty"`
}

// GCOptions is what `everdict runner gc` was told.
type GCOptions struct {
	StateDir string
	// WorkDir may be empty: the one that a runner with StateDir would have.
	WorkDir string
	DryRun  bool
	Log     *slog.Logger
}

// UpOptions is what `everdict up` was told.
type UpOptions struct {
	Coordinator   CoordinatorOptions
	MaxConcurrent int
	// WorkDir may be empty: a directory for caches.
	WorkDir      string
	Capabilities []string
	DrainTimeout time.Duration
	Sandbox      SandboxOptions
	// CAFile is given to runs if PassCA; PassProxy gives them the proxy's variables.
	CAFile            string
	PassProxy, PassCA bool
}

// RunOptions is what `everdict run` was told.
type RunOptions struct {
	// Request is what Drive will submit: RunLocal can see what it needs.
	Request *protocol.RunRequest
	// Keep says that the workspace of the run is left on the disk; RunLocal says
	// where on stderr.
	Keep    bool
	Sandbox SandboxOptions
	Log     *slog.Logger
	Stderr  io.Writer
	// Drive submits the run, watches it, prints it and returns the exit code.
	Drive func(ctx context.Context, c *client.Client) (code int, err error)
}

// PoolTokenError says that the coordinator has turned away a runner of a pool: its
// token is not good, or not any more.
type PoolTokenError struct{ Err error }

// Error returns the text of Err.
func (e *PoolTokenError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PoolTokenError) Unwrap() error { return e.Err }

// ExitError ends the program with Code. Err, when not nil, is said first.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }
