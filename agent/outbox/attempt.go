package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"syscall"

	"github.com/everdict/everdict/protocol"
)

// Attempt names the attempt that a spool belongs to, with what is needed to
// send its evidence after a restart of the runner.
type Attempt struct {
	Run   string `json:"run"`
	Job   string `json:"job,omitempty"`
	Epoch int64  `json:"epoch"`
	// Token proves that the lease was given to this runner. It is written to
	// attempt.json (0600) and never printed.
	Token string `json:"token,omitempty"`
	// Coordinator is the URL of the coordinator that gave the attempt.
	Coordinator string `json:"coordinator,omitempty"`
}

// String names run and epoch, without the token.
func (a Attempt) String() string { return a.Run + "." + strconv.FormatInt(a.Epoch, 10) }

// GoString is String: %#v shows no token either.
func (a Attempt) GoString() string { return a.String() }

// LogValue groups run and epoch, without the token.
func (a Attempt) LogValue() slog.Value {
	return slog.GroupValue(slog.String("run", a.Run), slog.Int64("epoch", a.Epoch))
}

func (a Attempt) validate() error {
	switch {
	case !protocol.ValidRunName(a.Run):
		return fmt.Errorf("run %q is not a name of letters, digits, dots, dashes and underscores", protocol.Clip(a.Run, 80))
	case a.Epoch < 0:
		return fmt.Errorf("epoch %d is negative", a.Epoch)
	}
	return nil
}

// dirName is the attempt's directory: <run>.<epoch>. A run's name may hold dots;
// attempt.json is what is believed.
func (a Attempt) dirName() string { return a.String() }

// Status is what became of a result.
type Status string

// Statuses of an Ack. Each is final: the result is not sent again.
const (
	// Accepted: the run is settled with it, now or by an earlier copy.
	Accepted Status = "accepted"
	// Stale: it is kept by the coordinator as late evidence and changed nothing.
	Stale Status = "stale"
	// Rejected: the coordinator can never take it. It is kept on this machine
	// for a while, see Config.RejectedBytes.
	Rejected Status = "rejected"
)

// Ack is the coordinator's last word on an attempt's result.
type Ack struct {
	Status  Status `json:"status"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

func (a Ack) final() bool {
	return a.Status == Accepted || a.Status == Stale || a.Status == Rejected
}

var (
	// ErrInUse is returned by Open when another process holds the directory.
	ErrInUse = errors.New("outbox: directory is in use by another runner")
	// ErrExists is returned by Create for an attempt that is in the outbox.
	ErrExists = errors.New("outbox: attempt exists already")
	// ErrFinished is returned by writes to, and Finish of, a spool that is
	// finished or abandoned.
	ErrFinished = errors.New("outbox: attempt is finished")
	// ErrClosed is returned after Outbox.Close.
	ErrClosed = errors.New("outbox: closed")
	// ErrShipping is returned by Ship while another Ship runs.
	ErrShipping = errors.New("outbox: another session is shipping")
	// ErrNotHere is what a Sink's Open returns for an attempt of another
	// coordinator: it is left alone until the next Ship.
	ErrNotHere = errors.New("outbox: attempt belongs to another coordinator")
)

// FullError is returned by Create when the outbox holds too much that no
// coordinator has acknowledged. It ends when a session ships it.
type FullError struct {
	Limit    int64 // Config.MaxBytes
	Measured int64 // unacknowledged bytes now
}

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("outbox: %d bytes of unacknowledged evidence, limit %d: no new attempt until they are sent", e.Measured, e.Limit)
}

// DiskFullError says that the disk did not take bytes. It wraps the system's
// error.
type DiskFullError struct {
	// What was written: a channel's name, "result" or "attempt".
	What string
	Path string
	// Bytes that were not written.
	Bytes int64
	Err   error
}

// Error implements error.
func (e *DiskFullError) Error() string {
	return fmt.Sprintf("outbox: write %s (%d bytes): disk full: %v", e.What, e.Bytes, e.Err)
}

// Is matches syscall.ENOSPC also where the system has another number for it, so
// that a writer above needs to know neither this type nor the system.
func (e *DiskFullError) Is(target error) bool { return target == syscall.ENOSPC }

// Unwrap returns the system's error.
func (e *DiskFullError) Unwrap() error { return e.Err }

func decodeAttempt(b []byte) (Attempt, error) {
	var a Attempt
	if err := json.Unmarshal(b, &a); err != nil {
		return a, err
	}
	return a, a.validate()
}

// reserved are file names of a spool that no channel may have.
func reserved(name string) bool {
	return strings.EqualFold(name, attemptFile) || strings.EqualFold(name, resultFile)
}
