package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Sentinels of this package.
var (
	// ErrClosed: this end closed the session, or the connection was lost with no reason given.
	ErrClosed = errors.New("link: session closed")
	// ErrDeadPeer: no byte arrived for Timing.DeadPeer.
	ErrDeadPeer = errors.New("link: peer is silent")
	// ErrSlept: this machine was suspended for longer than Timing.DeadPeer; the connection cannot be trusted.
	ErrSlept = errors.New("link: machine slept")
	// ErrPullLost: the coordinator does not know a pull that the runner waits on. Pull again with the same request id.
	ErrPullLost = errors.New("link: pull lost")
	// ErrAnswered: Started or Refuse was already called on this offer.
	ErrAnswered = errors.New("link: offer already answered")
)

// LimitError: an item is larger than a limit of the wire permits. Nothing was sent.
type LimitError struct {
	// Limit names the limit, such as "job" or "message".
	Limit string
	// Configured is the limit and Measured what was met, both in bytes or in items.
	Configured, Measured int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("link: %s of %d exceeds the limit of %d", e.Limit, e.Measured, e.Configured)
}

// ProtocolError: the peer sent what the protocol does not allow. It ends the stream; on the control stream, the session.
type ProtocolError struct {
	Op  string
	Err error
}

func (e *ProtocolError) Error() string { return fmt.Sprintf("link: %s: protocol: %v", e.Op, e.Err) }
func (e *ProtocolError) Unwrap() error { return e.Err }

// TimeoutError: an answer or a turn to write did not come in time.
type TimeoutError struct {
	Op    string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("link: %s: no answer within %v", e.Op, e.After)
}

// Timeout makes it a net.Error's kind of timeout.
func (e *TimeoutError) Timeout() bool { return true }

// RemoteError: the other end answered with an error. A handler that returns one chooses what the caller sees; any
// other error of a handler arrives as code "internal".
type RemoteError struct {
	// Code is one of the Code constants or the application's own.
	Code string `json:"code"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// RetryAfter is how long to wait before the same is tried again; 0 says nothing.
	RetryAfter Duration `json:"retry_after_ms,omitempty"`
}

func (e *RemoteError) Error() string {
	if e.Message == "" {
		return "link: remote: " + e.Code
	}
	return "link: remote: " + e.Code + ": " + e.Message
}

// Codes of RemoteError that this package uses itself.
const (
	CodeInternal    = "internal"
	CodeUnsupported = "unsupported"
	CodeProtocol    = "protocol"
	CodeDraining    = "draining"
	CodeReplaced    = "replaced"
	CodeTooLarge    = "too_large"
	// CodeNonce: the nonce that a device session has signed is not, or no longer, good. With another one it is tried
	// again.
	CodeNonce = "nonce"
)

// ChannelClosedError: the coordinator takes no more bytes of this channel (its cap is reached). Returned by a sink, and
// seen by the runner's Send. Other channels and the result go on.
type ChannelClosedError struct {
	Channel, Code, Message string
}

func (e *ChannelClosedError) Error() string {
	return fmt.Sprintf("link: channel %s closed: %s %s", e.Channel, e.Code, e.Message)
}

// OffsetError: Send was called with an offset that does not follow the last one.
type OffsetError struct {
	Channel   string
	Got, Want int64
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("link: channel %s: offset %d, want %d", e.Channel, e.Got, e.Want)
}

// RevokedError: the credential is not, or no longer, good. Terminal: a runner must stop and say so.
type RevokedError struct {
	// Code is the coordinator's word, such as "revoked" or "unauthorized".
	Code, Message string
}

func (e *RevokedError) Error() string { return "link: " + orElse(e.Code, "revoked") + ": " + e.Message }

// UpdateRequiredError: this build is too old (or the coordinator is, see Message). Terminal.
type UpdateRequiredError struct {
	MinProtocol         int
	MinVersion, Message string
}

func (e *UpdateRequiredError) Error() string {
	return fmt.Sprintf("link: update required: %s: install everdict %s", orElse(e.Message, "this runner is too old"), orElse(e.MinVersion, "of the coordinator's version"))
}

// TakenOverError: a newer session of the same runner has replaced this one. Terminal: reconnecting would only begin a
// quarrel between two processes with one credential.
type TakenOverError struct{ Message string }

func (e *TakenOverError) Error() string { return "link: taken over: " + e.Message }

// DrainingError: the coordinator is going away. Redial after RetryAfter.
type DrainingError struct {
	RetryAfter time.Duration
	Message    string
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("link: coordinator drains, retry after %v: %s", e.RetryAfter, e.Message)
}

// HTTPError: the upgrade was answered with something else. Not terminal: a proxy, a captive portal or a starting
// coordinator may have spoken.
type HTTPError struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration
}

func (e *HTTPError) Error() string {
	return fmt.Sprintf("link: connect: http %d %s %s", e.Status, e.Code, e.Message)
}

// CloseCode is why a session is closed, sent as the websocket's close code.
type CloseCode int

// Codes from 4000 on are ours; 1000 is the websocket's normal closure.
const (
	CloseNormal         CloseCode = 1000
	CloseRevoked        CloseCode = 4001
	CloseTakenOver      CloseCode = 4002
	CloseUpdateRequired CloseCode = 4003
	CloseDraining       CloseCode = 4004
	CloseProtocol       CloseCode = 4005
	CloseTimeout        CloseCode = 4006
	CloseInternal       CloseCode = 4007
)

// CloseReason is what a session is closed with; the other end sees it as a typed error.
type CloseReason struct {
	Code CloseCode
	// Message is for people. It is cut to what fits into a websocket close frame, about 90 bytes.
	Message string
	// RetryAfter goes with CloseDraining.
	RetryAfter time.Duration
	// MinVersion goes with CloseUpdateRequired.
	MinVersion string
}

// maxCloseText is the room that RFC 6455 leaves for a close frame's reason.
const maxCloseText = 123

type closeText struct {
	Message    string   `json:"m,omitempty"`
	RetryAfter Duration `json:"r,omitempty"`
	MinVersion string   `json:"v,omitempty"`
}

func (r CloseReason) text() string {
	t := closeText{Message: r.Message, RetryAfter: Duration(min(r.RetryAfter, maxDuration)), MinVersion: r.MinVersion}
	for {
		b, err := json.Marshal(t)
		if err == nil && len(b) <= maxCloseText {
			return string(b)
		}
		switch {
		case t.Message != "":
			_, n := utf8.DecodeLastRuneInString(t.Message)
			t.Message = t.Message[:len(t.Message)-n]
		case t.MinVersion != "":
			t.MinVersion = ""
		default:
			return ""
		}
	}
}

// closeError turns a received close frame into what the caller sees. A code or a text that this build does not know
// is a plain ErrClosed, so that newer peers can add codes.
func closeError(code CloseCode, text string) error {
	var t closeText
	if json.Unmarshal([]byte(text), &t) != nil {
		t = closeText{Message: text}
	}
	switch code {
	case CloseRevoked:
		return &RevokedError{Code: "revoked", Message: t.Message}
	case CloseTakenOver:
		return &TakenOverError{Message: t.Message}
	case CloseUpdateRequired:
		return &UpdateRequiredError{MinVersion: t.MinVersion, Message: t.Message}
	case CloseDraining:
		return &DrainingError{RetryAfter: t.RetryAfter.Std(), Message: t.Message}
	case CloseProtocol:
		return &ProtocolError{Op: "peer", Err: errors.New(orElse(t.Message, "closed by peer"))}
	case CloseTimeout:
		return fmt.Errorf("%w: peer gave up: %s", ErrDeadPeer, t.Message)
	default:
		return fmt.Errorf("%w by peer: %d %s", ErrClosed, code, t.Message)
	}
}

// localError is what the closer itself sees for the same reason.
func (r CloseReason) localError() error {
	if r.Code == CloseNormal {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, closeError(r.Code, r.text()))
}

// Terminal reports whether redialling cannot help: the credential is bad, this build is too old, or another process
// has taken over.
func Terminal(err error) bool {
	var (
		revoked *RevokedError
		update  *UpdateRequiredError
		taken   *TakenOverError
		config  *ConfigError
	)
	return errors.As(err, &revoked) || errors.As(err, &update) || errors.As(err, &taken) || errors.As(err, &config)
}

// ConfigError: a configuration that can never work, such as a token in the URL. Terminal.
type ConfigError struct{ Message string }

func (e *ConfigError) Error() string { return "link: configuration: " + e.Message }

func orElse(s, d string) string {
	if s == "" {
		return d
	}
	return s
}
