package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Submit sends a run. When it returns without an error, the run is on the
// coordinator's disk.
func (c *Client) Submit(ctx context.Context, req *protocol.RunRequest) (*protocol.SubmittedRun, error) {
	return send[protocol.SubmittedRun](ctx, c, post("runs"), req)
}

// SubmitJSON sends the body of a run as it stands, so that fields of a newer
// server than this client reach it.
func (c *Client) SubmitJSON(ctx context.Context, body json.RawMessage) (*protocol.SubmittedRun, error) {
	return sendJSON[protocol.SubmittedRun](ctx, c, post("runs"), body)
}

// RunFilter narrows a list of runs. The zero value lists all.
type RunFilter struct {
	Status protocol.Status
	// Verdict selects runs that passed or did not.
	Verdict *bool
	// Harness is an id or id@version, Runtime and Runner are ids.
	Harness string
	Runtime string
	Runner  string
	// Trigger and Cause say what started a run, FailureClass why it has no result.
	Trigger      string
	Cause        string
	FailureClass string
	// Since and Until bound the moment of acceptance: Since <= it < Until.
	Since, Until time.Time
	// PageSize is how many records one request asks for. Default 100.
	PageSize int
}

func (f RunFilter) query() url.Values {
	q := url.Values{}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	set("status", string(f.Status))
	set("harness", f.Harness)
	set("runtime", f.Runtime)
	set("runner", f.Runner)
	set("trigger", f.Trigger)
	set("cause", f.Cause)
	set("failureClass", f.FailureClass)
	if f.Verdict != nil {
		q.Set("verdict", strconv.FormatBool(*f.Verdict))
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		q.Set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	if f.PageSize <= 0 {
		f.PageSize = 100
	}
	q.Set("limit", strconv.Itoa(f.PageSize))
	return q
}

// Runs lists the runs that f lets through, newest first, page by page as the
// loop goes on. An error ends it.
func (c *Client) Runs(ctx context.Context, f RunFilter) iter.Seq2[*protocol.Run, error] {
	return pages[*protocol.Run](ctx, c, get("runs").with(f.query()))
}

// Run reads one run with its result.
func (c *Client) Run(ctx context.Context, id string) (*protocol.Run, error) {
	return one[protocol.Run](ctx, c, get("runs", id))
}

// Cancel ends a run. It is no error to cancel twice; a run that has ended
// otherwise is a conflict (409).
func (c *Client) Cancel(ctx context.Context, id string) (*protocol.Run, error) {
	return one[protocol.Run](ctx, c, post("runs", id, "cancel"))
}

// HandOut makes a payload of the next attempt of a queued run: a file for job-runner,
// with two credentials. From then on nobody else gets the run.
func (c *Client) HandOut(ctx context.Context, id string, req protocol.PayloadRequest) (*protocol.Payload, error) {
	return send[protocol.Payload](ctx, c, post("runs", id, "payload"), req)
}

// TakeBack ends a payload that nobody runs, or will: the run is queued again.
func (c *Client) TakeBack(ctx context.Context, id string) error {
	return c.call(ctx, del("runs", id, "payload"), nil)
}

// Deliver brings the result (JSON) of an attempt that was handed out as a payload.
func (c *Client) Deliver(ctx context.Context, id string, attempt int64, result json.RawMessage) (*protocol.PayloadResult, error) {
	return send[protocol.PayloadResult](ctx, c, post("runs", id, "attempts", strconv.FormatInt(attempt, 10), "result"), protocol.PayloadDelivery{Result: result})
}

// Approve lets a suspended run go on.
func (c *Client) Approve(ctx context.Context, id string, d protocol.Decision) (*protocol.Run, error) {
	return c.decide(ctx, id, "approve", d)
}

// Reject answers a suspended run with no.
func (c *Client) Reject(ctx context.Context, id string, d protocol.Decision) (*protocol.Run, error) {
	return c.decide(ctx, id, "reject", d)
}

func (c *Client) decide(ctx context.Context, id, verb string, d protocol.Decision) (*protocol.Run, error) {
	return send[protocol.Run](ctx, c, post("runs", id, verb), d)
}

// Events reads the steps of a run's life, oldest first.
func (c *Client) Events(ctx context.Context, id string) ([]protocol.RunEvent, error) {
	return value[[]protocol.RunEvent](ctx, c, get("runs", id, "events"))
}

// Attempts reads each try of a run, with late evidence of superseded ones.
func (c *Client) Attempts(ctx context.Context, id string) ([]protocol.Attempt, error) {
	return value[[]protocol.Attempt](ctx, c, get("runs", id, "attempts"))
}

// Trajectory reads the whole trace of a run that is over; before that it is a 404.
func (c *Client) Trajectory(ctx context.Context, id string) (*protocol.Trajectory, error) {
	return one[protocol.Trajectory](ctx, c, get("runs", id, "trajectory"))
}

// LiveTrajectory reads all trace events that there are so far.
func (c *Client) LiveTrajectory(ctx context.Context, id string) (*protocol.LiveTrajectory, error) {
	return one[protocol.LiveTrajectory](ctx, c, get("runs", id, "trajectory", "live"))
}

// Placement says where a run is and, while it waits, for what.
func (c *Client) Placement(ctx context.Context, id string) (*protocol.PlacementView, error) {
	return one[protocol.PlacementView](ctx, c, get("runs", id, "placement"))
}

// attemptQuery picks the attempt whose evidence is meant.
func attemptQuery(attempt int64) url.Values {
	q := url.Values{}
	setNumber(q, "attempt", attempt)
	return q
}

// Diff opens the whole diff of the run, or of one of its attempts if attempt is not 0,
// byte for byte as git apply takes it. The caller closes it.
func (c *Client) Diff(ctx context.Context, id string, attempt int64) (io.ReadCloser, error) {
	r := get("runs", id, "diff").with(attemptQuery(attempt))
	r.header = map[string][]string{"Accept": {"text/x-diff, text/plain;q=0.9, application/json;q=0.1"}}
	return c.openRetrying(ctx, r)
}

// openRetrying opens a body that is streamed to the caller; what breaks after
// the first byte is the caller's error.
func (c *Client) openRetrying(ctx context.Context, r request) (io.ReadCloser, error) {
	for try := 0; ; try++ {
		res, err := c.open(ctx, r)
		if err == nil {
			return res.Body, nil
		}
		if try >= c.cfg.Retries || !retryable(r.method, err) {
			return nil, err
		}
		c.away(err)
		if pause(ctx, backoff(try, retryAfter(err))) != nil {
			return nil, err
		}
	}
}
