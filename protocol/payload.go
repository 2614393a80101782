package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// PayloadVersion is the version of Payload that this project writes and reads.
const PayloadVersion = 1

// Bounds of how long a payload may be out.
const (
	DefaultPayloadLife = 24 * time.Hour
	MaxPayloadLife     = 7 * 24 * time.Hour
)

// Payload is one attempt of a run as a file, for a machine from which the coordinator
// cannot be reached, or not always. The coordinator writes it when it hands the attempt
// out; from then on nobody else gets the run, and no heartbeat is asked for, until the
// result is there, the payload was taken back, or its time is over. A runner that
// can reach the coordinator after all delivers as every runner does; one that cannot
// prints the result after ResultSentinel.
//
// It holds two credentials, both good for this attempt alone, and no value of a secret
// that the harness names: those come from where it is run.
type Payload struct {
	// Version is PayloadVersion.
	Version int `json:"version"`
	// Attempt is the epoch that the payload was handed out under.
	Attempt int64 `json:"attempt"`
	// RunnerToken is the credential of the runner that holds the attempt, LeaseToken the
	// proof that it does.
	RunnerToken string `json:"runnerToken"`
	LeaseToken  string `json:"leaseToken"`
	// Job has no Env.
	Job Job `json:"job"`
}

// String names the attempt, without the credentials.
func (p *Payload) String() string { return fmt.Sprintf("%s.%d", p.Job.RunID, p.Attempt) }

// GoString is String: %#v shows no credential either.
func (p *Payload) GoString() string { return p.String() }

// Validate checks what a runner relies on.
func (p *Payload) Validate() error {
	var k checker
	if p.Version != PayloadVersion {
		k.add("version", "want %d, got %d: use the job-runner of the coordinator's version", PayloadVersion, p.Version)
		return k.err()
	}
	if p.Attempt < 1 {
		k.add("attempt", "want 1 or more, got %d", p.Attempt)
	}
	if !ValidRunName(p.Job.RunID) {
		k.add("job.runId", "want the id of a run")
	}
	if !strings.HasPrefix(p.RunnerToken, RunnerTokenPrefix) {
		k.add("runnerToken", "want one that begins with %s", RunnerTokenPrefix)
	}
	if p.LeaseToken == "" {
		k.add("leaseToken", "is missing")
	}
	if len(p.Job.Env) > 0 {
		k.add("job.env", "a payload holds no values: leave it out, and set the harness's secrets where the payload is run")
	}
	p.Job.Case.check(&k, "job.case")
	p.Job.Harness.check(&k, "job.harness")
	return k.err()
}

// DecodePayload reads a payload strictly: what it does not know could change what the
// run means, and is an error. No error quotes the document.
func DecodePayload(doc []byte) (*Payload, error) {
	if len(doc) > MaxBodyBytes {
		return nil, fmt.Errorf("the payload has %d bytes, the limit is %d", len(doc), MaxBodyBytes)
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	p := new(Payload)
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("the payload cannot be read: %w", plain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload cannot be read: there is something after the document")
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("the payload is not one that this runner can run: %w", err)
	}
	return p, nil
}

// plain is an error of the decoder without words of the document, which may be anything
// where a file is not what somebody thought that it is.
func plain(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("%s has a value of the wrong kind at byte %d", Clip(kind.Field, 80), kind.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return errors.New(Clip(strings.TrimPrefix(err.Error(), "json: "), 120) + ": use the job-runner of the coordinator's version")
	}
	return errors.New("a value in it is not of its form")
}

// PayloadRequest is the body of POST /runs/{id}/payload.
type PayloadRequest struct {
	// ExpiresInSec is how long the payload may be out; absent: DefaultPayloadLife. A run
	// whose result is not there by then has failed.
	ExpiresInSec *int64 `json:"expiresInSec,omitempty"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (r *PayloadRequest) Validate() error {
	var k checker
	if s := r.ExpiresInSec; s != nil && (*s < 1 || *s > int64(MaxPayloadLife/time.Second)) {
		k.add("expiresInSec", "want 1 to %d (7 days), got %d", int64(MaxPayloadLife/time.Second), *s)
	}
	return k.err()
}

// Life is how long the payload may be out.
func (r *PayloadRequest) Life() time.Duration {
	if r.ExpiresInSec == nil {
		return DefaultPayloadLife
	}
	return time.Duration(*r.ExpiresInSec) * time.Second
}

// HandedOut says of an attempt that it was handed out as a payload.
type HandedOut struct {
	// By is who took it.
	By string `json:"by,omitempty"`
	// Until is when the run fails if there is no result.
	Until Time `json:"until"`
	// Unit is the launched unit that has it; empty: a person does.
	Unit string `json:"unit,omitempty"`
}

// PayloadDelivery is the body of POST /runs/{id}/attempts/{attempt}/result.
type PayloadDelivery struct {
	// Result is the CaseResult that the runner has printed.
	Result json.RawMessage `json:"result"`
}

// CaseResult reads the result; a *Problem says that it is none.
func (d *PayloadDelivery) CaseResult() (*CaseResult, error) {
	var r *CaseResult
	if err := json.Unmarshal(d.Result, &r); err != nil || r == nil || r.CaseID == "" {
		problem := BadRequest("result: is not a result")
		if err != nil {
			problem = BadRequest("result: is not a result: %s", Clip(err.Error(), 200))
		}
		return nil, problem.WithHint("send the JSON after %s in what job-runner printed", ResultSentinel)
	}
	return r, nil
}

// PayloadResult is the answer of POST /runs/{id}/attempts/{attempt}/result.
type PayloadResult struct {
	RunID   string `json:"runId"`
	Attempt int64  `json:"attempt"`
	// Late says that the run had gone on without this attempt: the result is kept as
	// evidence and changed nothing.
	Late bool `json:"late,omitempty"`
}

// ResultIn is the last result in what a runner printed, as JSON; nil if there is none. A
// line that was cut off is none.
func ResultIn(output []byte) []byte {
	i := bytes.LastIndex(output, []byte("\n"+ResultSentinel))
	if i < 0 {
		if !bytes.HasPrefix(output, []byte(ResultSentinel)) {
			return nil
		}
		i = -1
	}
	line, _, complete := bytes.Cut(output[i+1+len(ResultSentinel):], []byte("\n"))
	if !complete {
		return nil
	}
	return line
}
