package control

import (
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/protocol"
)

// State is everything that a tray and the first screen of a page show.
type State struct {
	// Rev grows with each change.
	Rev     int64  `json:"rev"`
	Version string `json:"version"`
	Device  Device `json:"device"`
	// Status is the one that matters most among all connections, for the icon; StatusNone without a connection. Text
	// says it in a sentence.
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Connections are in the order in which they were made. Never null.
	Connections []Connection `json:"connections"`
	// Pairing is the one that is going on, or the last one until it is dismissed; null: none.
	Pairing *Pairing `json:"pairing"`
	// Question is what a deep link asks; null: none.
	Question *Question `json:"question"`
	Settings Settings  `json:"settings"`
	Keys     Keys      `json:"keys"`
	Power    Power     `json:"power"`
	// Notices are what the user should read once. Never null.
	Notices    []Notice `json:"notices"`
	HistoryRev int64    `json:"historyRev"`
	MachineRev int64    `json:"machineRev"`
}

// Device is this computer.
type Device struct {
	Name string `json:"name"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// Status is how a connection is.
type Status string

// The statuses, in the order in which they go before each other in State.Status, the last first.
const (
	// StatusNone: there is no connection.
	StatusNone Status = "none"
	// StatusPaused: no new runs are taken; Reason says by whom. Jobs may still run.
	StatusPaused Status = "paused"
	// StatusConnecting: there is no session; it is tried again at RetryAt.
	StatusConnecting Status = "connecting"
	// StatusConnected: the session has just begun. Runs may come, and the coordinator has not answered a heartbeat yet.
	StatusConnected Status = "connected"
	// StatusIdle: connected, and waiting for a run.
	StatusIdle Status = "idle"
	// StatusRunning: there are jobs.
	StatusRunning Status = "running"
	// StatusAttention: somebody has to do something: Next.
	StatusAttention Status = "attention"
)

// Reason says why a connection is paused, connecting or in need of attention.
type Reason string

// Reasons. A client that does not know one shows Text and Next.
const (
	// Paused, by:
	ReasonUser    Reason = "user"
	ReasonHours   Reason = "hours"   // outside the allowed hours
	ReasonBattery Reason = "battery" // on battery

	// Connecting:
	ReasonStarting    Reason = "starting"    // the runner is being started
	ReasonUnreachable Reason = "unreachable" // no answer
	ReasonSlept       Reason = "slept"       // the machine was suspended
	ReasonRestarting  Reason = "restarting"  // the coordinator drains or has restarted
	ReasonRefused     Reason = "refused"     // something on the way answered
	ReasonCertificate Reason = "certificate" // its certificate is not trusted

	// Attention:
	ReasonRevoked    Reason = "revoked"     // the coordinator does not know this computer any more: connect anew
	ReasonUpdate     Reason = "update"      // this program is too old
	ReasonElsewhere  Reason = "elsewhere"   // another process, or a copy of the key on another machine, has the connection
	ReasonClock      Reason = "clock"       // this computer's clock is wrong
	ReasonDocker     Reason = "docker"      // no container engine answers
	ReasonDisk       Reason = "disk"        // the disk is full, or nearly so
	ReasonKeyLocked  Reason = "key_locked"  // the keyring is locked
	ReasonKeyMissing Reason = "key_missing" // the device key is gone
	ReasonFailed     Reason = "failed"      // anything else that ended the runner; it is started again at RetryAt
)

// Connection is this computer as a runner of one coordinator.
type Connection struct {
	// ID names it on this computer alone.
	ID string `json:"id"`
	// Coordinator is its address, Host that for people.
	Coordinator string           `json:"coordinator"`
	Host        string           `json:"host"`
	Account     protocol.Account `json:"account"`
	// Runner is its id over there and Label its name; Target is what a run names to run here.
	Runner   string        `json:"runner"`
	Label    string        `json:"label"`
	Target   string        `json:"target"`
	PairedAt protocol.Time `json:"pairedAt"`

	Status Status `json:"status"`
	Reason Reason `json:"reason,omitempty"`
	// Text says what is, in a sentence, and Next what helps, in another; Next can be empty.
	Text string `json:"text"`
	Next string `json:"next,omitempty"`
	// Online says that there is a session now, whatever Status is.
	Online bool `json:"online"`
	// Paused says that no new runs are taken, whatever Status is, and Pauses by what.
	Paused bool     `json:"paused"`
	Pauses []Reason `json:"pauses,omitempty"`
	// CanResume says that POST api/resume would end a pause, and CanRetry that POST api/connections/ID/retry would try or
	// look at something.
	CanResume bool `json:"canResume"`
	CanRetry  bool `json:"canRetry"`
	// RetryAt is when it is tried again by itself.
	RetryAt *protocol.Time `json:"retryAt,omitempty"`
	// ResumesAt is when allowed hours begin.
	ResumesAt *protocol.Time `json:"resumesAt,omitempty"`
	// Jobs are what runs now. Never null.
	Jobs []Job `json:"jobs"`
	// Undelivered is how many results wait on the disk for the coordinator.
	Undelivered int                `json:"undelivered"`
	Settings    ConnectionSettings `json:"settings"`
	// Key says where the device key is: keyring or file.
	Key KeyPlace `json:"key"`
}

// Job is an attempt that runs on this computer.
type Job struct {
	Run     string `json:"run"`
	Epoch   int64  `json:"epoch"`
	Case    string `json:"case"`
	Harness string `json:"harness"`
	// Submitter is who wants it; empty if the coordinator did not say.
	Submitter string `json:"submitter,omitempty"`
	Workspace string `json:"workspace"`
	// Phase is one of the Phases.
	Phase Phase `json:"phase"`
	// Held says that it is held still: the lease could not be renewed, or a person is asked.
	Held bool `json:"held"`
	// ActsAsYou says that it runs as this computer's user, without a container.
	ActsAsYou bool          `json:"actsAsYou"`
	StartedAt protocol.Time `json:"startedAt"`
	// URL is its page at the coordinator.
	URL string `json:"url"`
}

// Phase is how far a job is.
type Phase string

// Phases, in their order.
const (
	PhasePrepare Phase = "prepare" // sandbox and environment are made
	PhaseInstall Phase = "install" // the harness is found and prepared
	PhaseRun     Phase = "run"     // the agent works
	PhaseCollect Phase = "collect" // what it did is recorded
	PhaseGrade   Phase = "grade"   // and judged
)

// Outcome is how a job ended.
type Outcome string

// Outcomes.
const (
	OutcomePassed    Outcome = "passed"
	OutcomeFailed    Outcome = "failed"    // judged, and not good enough
	OutcomeUnjudged  Outcome = "unjudged"  // it ended well and nothing said whether it is good
	OutcomeError     Outcome = "error"     // Failure says why
	OutcomeCancelled Outcome = "cancelled" // by whoever submitted it, or an admin
	OutcomeReturned  Outcome = "returned"  // stopped here, and given back to the queue
	OutcomeLost      Outcome = "lost"      // this program or computer ended under it
)

// Entry is a job of this computer that has ended.
type Entry struct {
	Connection string `json:"connection"`
	Host       string `json:"host"`
	Run        string `json:"run"`
	Epoch      int64  `json:"epoch"`
	Case       string `json:"case"`
	Harness    string `json:"harness"`
	Submitter  string `json:"submitter,omitempty"`
	Workspace  string `json:"workspace"`

	StartedAt  protocol.Time `json:"startedAt"`
	EndedAt    protocol.Time `json:"endedAt"`
	DurationMs int64         `json:"durationMs"`

	Outcome Outcome `json:"outcome"`
	// Verdict is the one that the coordinator comes to from the same scores; null: none.
	Verdict *bool `json:"verdict"`
	// CostUSD is what the harness's own trace says; null: unknown.
	CostUSD *float64      `json:"costUsd"`
	Failure *EntryFailure `json:"failure,omitempty"`
	URL     string        `json:"url"`
}

// EntryFailure is why a job produced no result.
type EntryFailure struct {
	Stage   string `json:"stage"`
	Class   string `json:"class"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// History is the answer of GET api/history.
type History struct {
	Rev int64 `json:"rev"`
	// Entries are of this computer alone, the newest first. Never null.
	Entries []Entry `json:"entries"`
}

// Machine is what this computer can do and what is missing.
type Machine struct {
	Rev int64         `json:"rev"`
	At  protocol.Time `json:"at"`
	doctor.Report
}

// PairRequest begins to connect this computer.
type PairRequest struct {
	// Coordinator is the address that was typed. A bare host is taken as https.
	Coordinator string `json:"coordinator"`
	// Label is the name that the runner will have; empty: the computer's.
	Label string `json:"label,omitempty"`
	// Replace says that a connection with the same coordinator may be replaced; without it that is 409 CONFLICT.
	Replace bool `json:"replace,omitempty"`
}

// PairingStatus is how far a pairing is.
type PairingStatus string

// Statuses of a Pairing.
const (
	PairingContacting PairingStatus = "contacting" // the coordinator is asked
	PairingWaiting    PairingStatus = "waiting"    // for the approval in the browser; Number and URL are shown
	PairingRedeeming  PairingStatus = "redeeming"  // it was approved
	PairingDone       PairingStatus = "done"       // Connection is there
	PairingFailed     PairingStatus = "failed"     // Text says why, and Next what helps
)

// Pairing is this computer becoming a runner.
type Pairing struct {
	Coordinator string        `json:"coordinator"`
	Host        string        `json:"host"`
	Status      PairingStatus `json:"status"`
	// ByLink says that it began in the dashboard: there is nothing to approve.
	ByLink bool `json:"byLink"`
	// Number is two digits, which the browser must show as well.
	Number string `json:"number,omitempty"`
	// URL is the page for the approval.
	URL       string         `json:"url,omitempty"`
	ExpiresAt *protocol.Time `json:"expiresAt,omitempty"`
	Text      string         `json:"text"`
	Next      string         `json:"next,omitempty"`
	// Connection is its id once the pairing is done.
	Connection string `json:"connection,omitempty"`
}

// Question is what a deep link asks: "Connect this computer to HOST as ACCOUNT?". Nothing has been contacted.
type Question struct {
	// ID goes into the Answer: an answer to an older question is refused.
	ID          string           `json:"id"`
	Coordinator string           `json:"coordinator"`
	Host        string           `json:"host"`
	Account     protocol.Account `json:"account"`
	// Known is the id of a connection that there is with the same coordinator, which a yes replaces; empty: none.
	Known     string        `json:"known,omitempty"`
	ExpiresAt protocol.Time `json:"expiresAt"`
}

// Answer answers a Question.
type Answer struct {
	Question string `json:"question"`
	Connect  bool   `json:"connect"`
	// Number is the two digits that the dashboard shows; needed for a yes.
	Number string `json:"number,omitempty"`
	Label  string `json:"label,omitempty"`
	// Replace says that Known may be replaced.
	Replace bool `json:"replace,omitempty"`
	// Instead says that a pairing which goes on may be ended for this one; without it that is 409 CONFLICT. One that is
	// being redeemed is never ended.
	Instead bool `json:"instead,omitempty"`
}

// PauseRequest is the body of POST api/pause.
type PauseRequest struct {
	// Connection that is paused; empty: all.
	Connection string `json:"connection,omitempty"`
	// Stop ends what runs at once and gives it back. Without it what runs goes on to its end.
	Stop bool `json:"stop,omitempty"`
}

// ResumeRequest is the body of POST api/resume. It ends a pause by the user, and overrides one by hours or battery until
// those next change.
type ResumeRequest struct {
	Connection string `json:"connection,omitempty"`
}

// Unpaired is the answer of POST api/connections/ID/unpair.
type Unpaired struct {
	// Told says that the coordinator knows; otherwise Text says what to do there.
	Told bool   `json:"told"`
	Text string `json:"text"`
}

// Settings are those of the whole computer.
type Settings struct {
	// Hours in which runs are taken; empty: always. Never null.
	Hours []Hours `json:"hours"`
	// PauseOnBattery takes no new runs on battery.
	PauseOnBattery bool `json:"pauseOnBattery"`
	// StartAtLogin starts the app, without a window, when the user signs in. While there are connections it is what the
	// system does, whoever arranged that; before the first it is what will be done then.
	StartAtLogin bool `json:"startAtLogin"`
	// Notifications are shown for what needs attention and for jobs that end.
	Notifications bool `json:"notifications"`
	// Appearance of the page: "system", "light" or "dark".
	Appearance string `json:"appearance"`
}

// Hours are allowed hours, by this computer's clock and time zone.
type Hours struct {
	// Days on which they begin: "mon" to "sun".
	Days []string `json:"days"`
	// From and To are "HH:MM". To is not included; "24:00" is midnight. To before From ends on the day after.
	From string `json:"from"`
	To   string `json:"to"`
}

// Sandboxes of a connection.
const (
	SandboxProcess = "process" // on the machine itself: a job can act as you
	SandboxDocker  = "docker"
)

// ConnectionSettings are those of one connection.
type ConnectionSettings struct {
	// Slots is how many jobs run at a time, 1 to 64.
	Slots int `json:"slots"`
	// Sandbox is where jobs that name no image run.
	Sandbox string `json:"sandbox"`
	// Image is what runs that name none run in, with Sandbox docker; empty: those are refused.
	Image string `json:"image,omitempty"`
	// OnlyMine takes the runs of Account alone. Turning it off is done here and nowhere else.
	OnlyMine bool `json:"onlyMine"`
	// Understood confirms that others' jobs may act as this computer's user: needed for Sandbox process without
	// OnlyMine. It is not kept.
	Understood bool `json:"understood,omitempty"`
}

// KeyPlace is where device keys are kept.
type KeyPlace string

// Places.
const (
	KeyringPlace KeyPlace = "keyring"
	FilePlace    KeyPlace = "file"
)

// Keys says where new device keys go and why.
type Keys struct {
	Place KeyPlace `json:"place"`
	// Keyring says that the system's keyring can be used now.
	Keyring bool `json:"keyring"`
	// Warning is shown while keys lie in a file; empty: none do.
	Warning string `json:"warning,omitempty"`
}

// KeyMove is the body of POST api/keys.
type KeyMove struct {
	Place KeyPlace `json:"place"`
}

// Power is the supply of this computer.
type Power struct {
	// Known says that the system tells; otherwise it is taken as mains.
	Known     bool `json:"known"`
	OnBattery bool `json:"onBattery"`
}

// Notice is something to read once.
type Notice struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Next string `json:"next,omitempty"`
	// Level is info, warn or error.
	Level string        `json:"level"`
	At    protocol.Time `json:"at"`
}

// NoticeDismissal is the body of POST api/notices/dismiss. The id "pairing" dismisses the last pairing.
type NoticeDismissal struct {
	ID string `json:"id"`
}

// OpenRequest is the body of POST api/open.
type OpenRequest struct {
	// Link is a deep link; empty: only the window is shown.
	Link string `json:"link,omitempty"`
}

// Opened is the answer of POST api/open.
type Opened struct {
	// Refused says in words why the link was not taken; empty: it was.
	Refused string `json:"refused,omitempty"`
}

// QuitRequest is the body of POST api/quit.
type QuitRequest struct {
	// Force gives back what runs. Without it a running job is an answer 409.
	Force bool `json:"force,omitempty"`
}

// VisitRequest is the body of POST api/visit.
type VisitRequest struct {
	// Connection whose coordinator's page is opened, and Run, if it is one of its runs' pages.
	Connection string `json:"connection"`
	Run        string `json:"run,omitempty"`
}

// LogChunk is an event of api/jobs/RUN/EPOCH/log.
type LogChunk struct {
	// Text is the next piece, in UTF-8; what was none is replaced.
	Text string `json:"text"`
	// Skipped says that bytes before it are not shown: they are in the evidence.
	Skipped bool `json:"skipped,omitempty"`
}
