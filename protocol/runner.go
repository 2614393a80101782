package protocol

import "slices"

// Capabilities that a runner can offer. Placement asks for the first eight; the
// rest is for people to see.
const (
	CapGit         = "git"
	CapDocker      = "docker"
	CapBrowser     = "browser"
	CapComputerUse = "computer-use"
	CapTopology    = "topology"
	CapOSWindows   = "os-windows"
	CapOSMacOS     = "os-macos"
	CapGPU         = "gpu"
	CapSandbox     = "sandbox"
	CapCodexLogin  = "codex-login"
	CapClaudeLogin = "claude-login"
)

var capabilities = []string{CapGit, CapDocker, CapBrowser, CapComputerUse, CapTopology, CapOSWindows, CapOSMacOS, CapGPU,
	CapSandbox, CapCodexLogin, CapClaudeLogin}

// Capabilities is the vocabulary.
func Capabilities() []string { return slices.Clone(capabilities) }

// KnownCapability reports whether name is in the vocabulary.
func KnownCapability(name string) bool { return slices.Contains(capabilities, name) }

// PairRequest is the body of POST /runners.
type PairRequest struct {
	Label        string   `json:"label"`
	OS           string   `json:"os,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (p *PairRequest) Validate() error {
	var k checker
	if !ValidName(p.Label, 80) {
		k.add("label", "want 1 to 80 printable characters, got %q", Clip(p.Label, 40))
	}
	if p.OS != "" && !ValidName(p.OS, 40) {
		k.add("os", "want at most 40 printable characters")
	}
	for i, c := range p.Capabilities {
		if !KnownCapability(c) {
			k.add(indexed("capabilities", i), "unknown capability %q", Clip(c, 40))
		}
	}
	return k.err()
}

// Paired is the answer of POST /runners. The token is shown this once.
type Paired struct {
	Runner Runner `json:"runner"`
	Token  string `json:"token"`
	// AttachCommand starts the runner on its machine; the token goes in on
	// standard input.
	AttachCommand string `json:"attachCommand,omitempty"`
}

// Runners is the answer of GET /runners.
type Runners struct {
	Runners []Runner `json:"runners"`
}

// Runner is a paired machine.
type Runner struct {
	ID           string   `json:"id"`
	Label        string   `json:"label"`
	Owner        string   `json:"owner,omitempty"`
	OS           string   `json:"os,omitempty"`
	Arch         string   `json:"arch,omitempty"`
	Hostname     string   `json:"hostname,omitempty"`
	Capabilities []string `json:"capabilities"`
	// CapabilityEvidence is what the runner saw of each capability when it came last,
	// in a sentence; empty for one that has not come since the coordinator started.
	CapabilityEvidence map[string]string `json:"capabilityEvidence,omitempty"`
	PairedAt           Time              `json:"pairedAt"`
	LastSeenAt         *Time             `json:"lastSeenAt,omitempty"`
	Version            string            `json:"version,omitempty"`
	Protocol           int               `json:"protocol,omitempty"`
	UpdateRequired     bool              `json:"updateRequired,omitempty"`
	Online             bool              `json:"online"`
	Slots              int               `json:"slots,omitempty"`
	Busy               int               `json:"busy,omitempty"`
	Status             *RunnerStatus     `json:"status,omitempty"`
	// Device says that it proves with a key of its own that it is itself, and has no token.
	Device bool `json:"device,omitempty"`
	// Scope is whose runs a paired machine takes, as it says itself; empty for one with a
	// token that says nothing: its owner's.
	Scope string `json:"scope,omitempty"`
	// Paused says why it takes no runs for now, such as "paused by its owner"; empty: it is
	// not paused.
	Paused string `json:"paused,omitempty"`
	// Runtime is the runtime whose pool the runner has joined with a pool token;
	// empty for a paired machine.
	Runtime string `json:"runtime,omitempty"`
	// Unit is what the coordinator launched on a cluster and this runner runs in, and
	// Job the run that it was launched for; empty for a runner that nobody launched, and
	// Job for one that was launched to be ready.
	Unit string `json:"unit,omitempty"`
	Job  string `json:"job,omitempty"`
	// Target is what a run names to run on this machine, or in its runtime's pool.
	Target string `json:"target,omitempty"`
}

// Scopes of a paired machine. The machine alone can widen its own.
const (
	// RunnerScopeOwner: runs that its owner submitted.
	RunnerScopeOwner = "owner"
	// RunnerScopeWorkspace: runs of everybody in its workspace.
	RunnerScopeWorkspace = "workspace"
)

// RunnerStatus is a short line about a runner. Level is info, warn or error.
type RunnerStatus struct {
	Text  string `json:"text"`
	Level string `json:"level"`
	At    Time   `json:"at"`
}
