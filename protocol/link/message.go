package link

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Subprotocol is the websocket subprotocol, the protocol's major version.
const Subprotocol = "everdict.link.v1"

// Protocol is the minor version that this build speaks. Both ends announce theirs and use the smaller one.
const Protocol = 1

// Path is the coordinator's route for runners.
const Path = "/agent/connect"

// Secret is a credential or a lease token. It prints as "[secret]"; on the wire it is a plain JSON string.
type Secret string

// String implements fmt.Stringer and hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString implements fmt.GoStringer and hides the value.
func (s Secret) GoString() string { return s.String() }

// LogValue implements slog.LogValuer and hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Duration is a time.Duration that travels as whole milliseconds, rounded up.
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	ms := (int64(d) + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	return json.Marshal(ms)
}

// maxDuration is a week: whatever a peer says, no timer of ours runs longer.
const maxDuration = 7 * 24 * time.Hour

// UnmarshalJSON reads milliseconds. Negative values and values above a week are errors.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var ms int64
	if err := json.Unmarshal(b, &ms); err != nil {
		return err
	}
	if ms < 0 || ms > maxDuration.Milliseconds() {
		return fmt.Errorf("duration of %d ms is outside 0..%d", ms, maxDuration.Milliseconds())
	}
	*d = Duration(time.Duration(ms) * time.Millisecond)
	return nil
}

// Standing is the coordinator's word on one attempt.
type Standing string

const (
	// Stands: the attempt is the active one; its lease is renewed.
	Stands Standing = "stands"
	// Stale: another attempt has superseded it, or its lease ended. Stop the work, keep the evidence.
	Stale Standing = "stale"
	// Cancelled: the run is to end. Stop the work and send a result that says so.
	Cancelled Standing = "cancelled"
)

// AttemptRef names one attempt of one job, and proves with the token that the lease was given to the speaker.
type AttemptRef struct {
	Run   string `json:"run"`
	Job   string `json:"job"`
	Epoch int64  `json:"epoch"`
	Token Secret `json:"token,omitempty"`
}

// HeldLease is an attempt that the runner holds.
type HeldLease struct {
	AttemptRef
	// Started says that the runner began to work on it.
	Started bool `json:"started,omitempty"`
	// Frozen says that the work stands still because the runner could not renew; it thaws only on Stands.
	Frozen bool `json:"frozen,omitempty"`
	// Finished says that the result lies in the runner's outbox, waiting to be sent.
	Finished bool `json:"finished,omitempty"`
	// Offsets are the evidence bytes per channel that the coordinator has acknowledged. Only in a hello, and not of
	// finished ones, of which there may be many.
	Offsets map[string]int64 `json:"offsets,omitempty"`
}

// Resources is what a machine has to give.
type Resources struct {
	CPUs     float64 `json:"cpus,omitempty"`
	MemoryMB int64   `json:"memory_mb,omitempty"`
}

// Terms are what the owner of a machine lets its runner do, in the hello and anew in each heartbeat.
type Terms struct {
	// Scope is whose runs it takes: protocol.RunnerScopeOwner or protocol.RunnerScopeWorkspace. Empty: the first for a
	// device, and for a runner with a token what it always was.
	Scope string `json:"scope,omitempty"`
	// Paused says, for people, why it takes no runs for now, such as "paused by its owner". Empty: it is not paused. A
	// runner that is does not pull.
	Paused string `json:"paused,omitempty"`
}

// Hello is the runner's first message on the control stream.
type Hello struct {
	// Protocol is filled in by Dial.
	Protocol     int      `json:"protocol"`
	Version      string   `json:"version"`
	OS           string   `json:"os"`
	Arch         string   `json:"arch"`
	Hostname     string   `json:"hostname,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// CapabilityEvidence is what was seen of each capability, for people.
	CapabilityEvidence map[string]string `json:"capability_evidence,omitempty"`
	Resources          Resources         `json:"resources"`
	Slots              int               `json:"slots"`
	Labels             map[string]string `json:"labels,omitempty"`
	// Leases are all attempts that the runner still holds, finished ones with an unacknowledged result included.
	Leases []HeldLease `json:"leases,omitempty"`
	// Instance distinguishes two processes that use one credential. Constant for the life of the process.
	Instance string `json:"instance,omitempty"`
	Terms
}

// Settings are the coordinator's numbers, which the runner follows.
type Settings struct {
	Heartbeat        Duration `json:"heartbeat_ms"`
	HeartbeatTimeout Duration `json:"heartbeat_timeout_ms"`
	LeaseTTL         Duration `json:"lease_ttl_ms"`
	LeaseMargin      Duration `json:"lease_margin_ms"`
	StartAck         Duration `json:"start_ack_ms"`
	Ping             Duration `json:"ping_ms"`
	DeadPeer         Duration `json:"dead_peer_ms"`
	// Redial is the window over which the runners spread their return when all lose this coordinator at one moment.
	// Each heartbeat's answer says it anew, as the fleet grows.
	Redial Duration `json:"redial_ms,omitempty"`
}

// LeaseVerdict is the coordinator's word on one held lease.
type LeaseVerdict struct {
	Run      string   `json:"run"`
	Job      string   `json:"job"`
	Epoch    int64    `json:"epoch"`
	Standing Standing `json:"standing"`
	// TTL is how long the lease lasts from the moment before the question was sent. Only with Stands.
	TTL Duration `json:"ttl_ms,omitempty"`
	// Reason says why it does not stand, for people.
	Reason string `json:"reason,omitempty"`
}

// Welcome answers a hello that is accepted.
type Welcome struct {
	// Protocol is filled in by the coordinator's session.
	Protocol int `json:"protocol"`
	// Session is the coordinator's name for this session, for logs.
	Session string `json:"session,omitempty"`
	// Version is the coordinator's version.
	Version string `json:"version,omitempty"`
	// Runner is the id under which the coordinator knows this runner.
	Runner string `json:"runner,omitempty"`
	// Settings are filled in by the coordinator's session from its Timing.
	Settings Settings `json:"settings"`
	// Leases has a verdict per lease of the hello: what to keep and what to stop. One without is not renewed.
	Leases []LeaseVerdict `json:"leases,omitempty"`
}

// Heartbeat is the runner's sign of life and its request to renew.
type Heartbeat struct {
	// Leases are the attempts to renew.
	Leases []HeldLease `json:"leases,omitempty"`
	// Pulls are the request ids of the waiting pulls, filled in by the session.
	Pulls []string `json:"pulls,omitempty"`
	// Free is the number of free slots.
	Free int `json:"free"`
	// Degraded says, for people, why the runner takes less than it could. Empty when all is well.
	Degraded string `json:"degraded,omitempty"`
	Terms
}

// HeartbeatAck answers a heartbeat.
type HeartbeatAck struct {
	// Leases has a verdict per lease of the heartbeat. One without is not renewed.
	Leases []LeaseVerdict `json:"leases,omitempty"`
	// LostPulls are request ids that the runner waits on and the coordinator does not know, filled in by the session.
	LostPulls []string `json:"lost_pulls,omitempty"`
	// Redial is Settings.Redial as it is now, filled in by the session.
	Redial Duration `json:"redial_ms,omitempty"`
}

// Cancel tells a runner to end an attempt.
type Cancel struct {
	Run    string `json:"run"`
	Job    string `json:"job"`
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason,omitempty"`
}

// Drain says that its sender is about to leave: a coordinator gives no more attempts and closes soon, a runner takes
// no more attempts.
type Drain struct {
	RetryAfter Duration `json:"retry_after_ms,omitempty"`
	Reason     string   `json:"reason,omitempty"`
}

// Status is a line for people: on the coordinator's page about the runner, or in the runner's log and tray.
type Status struct {
	Text string `json:"text"`
	// Level is "info", "warn" or "error".
	Level string `json:"level,omitempty"`
}

// UpdateRequired answers a hello of a runner that is too old.
type UpdateRequired struct {
	MinProtocol int    `json:"min_protocol,omitempty"`
	MinVersion  string `json:"min_version,omitempty"`
	Message     string `json:"message,omitempty"`
}

// PullRequest asks for one attempt.
type PullRequest struct {
	// Request is made by the runner and names the slot's wish for one attempt. Asking again with the same id, on this
	// or a later session, returns the same attempt.
	Request string `json:"request"`
	// MaxMemoryMB bounds what the attempt may declare; 0 means no bound of the runner's own.
	MaxMemoryMB int64 `json:"max_memory_mb,omitempty"`
}

// Attempt is what the coordinator leases to a runner.
type Attempt struct {
	AttemptRef
	// TTL is the lease's life from the offer on.
	TTL Duration `json:"ttl_ms,omitempty"`
	// StartWithin is how long the coordinator waits to hear that it has begun, from the offer on: then it gives the attempt
	// away, whatever is left of the TTL. 0: [Timing.StartAck].
	StartWithin Duration `json:"start_within_ms,omitempty"`
	// Payload is the job document, opaque to this package, at most MaxJob bytes. It can hold the values of secrets:
	// neither end logs it or keeps it.
	Payload json.RawMessage `json:"-"`
}

// GiveBackLost is the reason of an attempt that ran and whose result the runner could not keep. It uses up one of the
// run's attempts, as one does whose runner was lost; no other reason does.
const GiveBackLost = "lost"

// GiveBack returns an attempt without a result.
type GiveBack struct {
	// Reason is a code: "refused", "draining", "withdrawn", GiveBackLost, ...
	Reason string `json:"reason"`
	// Text says more, for people.
	Text string `json:"text,omitempty"`
	// Started says that work had begun.
	Started bool `json:"started,omitempty"`
}

// EvidenceOpen opens the evidence stream of an attempt.
type EvidenceOpen struct {
	AttemptRef
}

// EvidenceReady answers EvidenceOpen.
type EvidenceReady struct {
	// Standing of the attempt. Evidence of a stale one is taken, as late evidence.
	Standing Standing `json:"standing"`
	// Offsets are the bytes per channel that are stored; a channel that is missing has none.
	Offsets map[string]int64 `json:"offsets,omitempty"`
}

// ResultStatus is what became of a result.
type ResultStatus string

const (
	// ResultAccepted: the run is settled with it, now or by an earlier copy of the same result.
	ResultAccepted ResultStatus = "accepted"
	// ResultStale: it is kept as late evidence of a superseded attempt and changed nothing.
	ResultStale ResultStatus = "stale"
	// ResultRejected: it can never be taken as it is; Code and Message say why.
	ResultRejected ResultStatus = "rejected"
)

// ResultAck answers a result. Each status ends the matter: the sender never sends the same result again.
type ResultAck struct {
	Status  ResultStatus `json:"status"`
	Code    string       `json:"code,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Ask is a question of a running job to a person.
type Ask struct {
	AttemptRef
	// ID names the question; asking again with the same id is the same question.
	ID       string `json:"id"`
	Question string `json:"question"`
}

// Answer is a person's answer.
type Answer struct {
	ID       string `json:"id"`
	Approved bool   `json:"approved"`
	Comment  string `json:"comment,omitempty"`
}

// StreamOpen opens a stream from the coordinator into a running attempt.
type StreamOpen struct {
	// Kind is "file", "exec", "attach", or a later one.
	Kind    string     `json:"kind"`
	Attempt AttemptRef `json:"attempt"`
	// Params is a FileOpen, an ExecOpen or an AttachOpen.
	Params json.RawMessage `json:"params,omitempty"`
}

// Kinds of streams that a coordinator opens.
const (
	KindFile   = "file"
	KindExec   = "exec"
	KindAttach = "attach"
)

// FileOpen views a file or lists a directory of a running sandbox.
type FileOpen struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	// Limit is the number of bytes wanted; 0 means to the end.
	Limit int64 `json:"limit,omitempty"`
	List  bool  `json:"list,omitempty"`
}

// ExecOpen runs a command in a running sandbox.
type ExecOpen struct {
	Argv []string          `json:"argv"`
	Dir  string            `json:"dir,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	TTY  bool              `json:"tty,omitempty"`
	Rows int               `json:"rows,omitempty"`
	Cols int               `json:"cols,omitempty"`
}

// AttachOpen follows the harness's own output.
type AttachOpen struct {
	Stdin bool `json:"stdin,omitempty"`
}

// Resize changes the terminal of an exec stream.
type Resize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Exit ends an exec stream.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}
