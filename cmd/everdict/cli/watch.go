package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// watch waits for a run and shows meanwhile how it goes. When a signal ends the
// watching, the run goes on and the error says so.
func (a *app) watch(ctx context.Context, c *client.Client, id string) (*protocol.Run, error) {
	p := a.startProgress(ctx, c, id, nil)
	run, err := c.Watch(ctx, id, p.observe)
	p.stop()
	if err != nil {
		return nil, a.detached(ctx, id, "everdict runs wait", err)
	}
	return run, nil
}

// detached is err, unless a signal ended the watching: then it says how to go on.
func (a *app) detached(ctx context.Context, id, command string, err error) error {
	code := interrupted(ctx)
	if code == 0 {
		return err
	}
	fmt.Fprintf(a.err, "stopped watching; %s goes on. Watch it again with: %s %s\n", id, command, id)
	return &ExitError{Code: code}
}

// waitAndPrint is the end of submit --wait, runs wait and run.
func (a *app) waitAndPrint(ctx context.Context, c *client.Client, id string) (int, error) {
	run, err := a.watch(ctx, c, id)
	if err != nil {
		return exitError, err
	}
	if err := a.printRun(run); err != nil {
		return exitError, err
	}
	return verdictCode(run), nil
}

// progress shows a run that is waited for: one line that is rewritten on a
// terminal, a line per change elsewhere. Its goroutine owns the state.
type progress struct {
	a      *app
	ctx    context.Context
	client *client.Client
	id     string
	events chan protocol.LiveEvent
	done   chan struct{}
	wg     sync.WaitGroup
	live   bool
	began  time.Time
	// reasons are why the run waits, as they are found out.
	reasons chan string
	// asking ends the question that is under way.
	asking context.CancelFunc
	// answers, of a local run, answer what its agent asks; said is what they say.
	answers *answers
	said    chan string

	status protocol.Status
	total  int64
	last   string
	// reason was said last, saidAt is when.
	reason string
	saidAt time.Time
}

// redraw is how often the elapsed time moves.
const redraw = 250 * time.Millisecond

// Why a run waits is asked soon, since most runs wait for nothing, and then now
// and again; another reason is said once per sayAgain at most.
const (
	askFirst = 500 * time.Millisecond
	askAgain = 5 * time.Second
	sayAgain = 30 * time.Second
)

// startProgress shows a run; by, unless nil, answers what it asks.
func (a *app) startProgress(ctx context.Context, c *client.Client, id string, by *answers) *progress {
	p := &progress{
		a: a, ctx: ctx, client: c, id: id, events: make(chan protocol.LiveEvent), done: make(chan struct{}),
		live: a.isTerminal(a.err) && a.getenv("TERM") != "dumb", began: a.now(),
		reasons: make(chan string), asking: func() {}, answers: by, said: make(chan string),
	}
	a.contact.watch()
	p.wg.Go(p.run)
	return p
}

// observe is told of what happens.
func (p *progress) observe(e protocol.LiveEvent) { p.events <- e }

// stop leaves the terminal as it was.
func (p *progress) stop() {
	close(p.done)
	p.wg.Wait()
}

func (p *progress) run() {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	defer func() { p.asking() }()
	for {
		select {
		case e := <-p.events:
			p.take(e)
		case reason := <-p.reasons:
			p.waits(reason)
		case text := <-p.said:
			p.line(text)
		case <-tick.C:
			p.line(p.a.contact.news(p.client.BaseURL()))
			p.draw()
		case <-p.done:
			p.clear()
			return
		}
	}
}

func (p *progress) take(e protocol.LiveEvent) {
	if e.Kind == protocol.LiveTrace {
		p.total = e.Total
		for _, event := range e.Events {
			if line := eventLine(event, 80); line != "" {
				p.last = line
			}
		}
		p.draw()
		return
	}
	if e.Status == "" || e.Status == p.status {
		return
	}
	p.status = e.Status
	p.asking()
	if p.status == protocol.StatusQueued {
		p.ask()
	}
	switch {
	case p.status == protocol.StatusSuspended && p.answers != nil:
		go p.answer(p.answers) // it may read from a terminal for ever
	case p.status == protocol.StatusSuspended: // said also to who wants quiet: nothing goes on without an answer
		p.clear()
		fmt.Fprintf(p.a.err, "%s waits for %s\n  everdict runs approve %s, or everdict runs reject %s\n", p.id, p.question(), p.id, p.id)
	case !p.live && !p.a.quiet:
		fmt.Fprintf(p.a.err, "%s %s after %s\n", p.id, p.status, span(p.a.now().Sub(p.began)))
	}
	p.draw()
}

// ask finds out why the run waits for as long as it is queued, apart from the
// goroutine that draws.
func (p *progress) ask() {
	if p.a.quiet {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.asking = cancel
	p.wg.Go(func() {
		next := time.NewTimer(askFirst)
		defer next.Stop()
		for {
			select {
			case <-next.C:
			case <-ctx.Done():
				return
			}
			// That the server is away is said by whoever watches the run.
			if view, err := p.client.Placement(ctx, p.id); err == nil && view.Placement != nil && view.Placement.BlockedReason != "" {
				select {
				case p.reasons <- view.Placement.BlockedReason:
				case <-ctx.Done():
					return
				}
			}
			next.Reset(askAgain)
		}
	})
}

// waits says why the run waits: when that is first known, and when it has changed.
func (p *progress) waits(reason string) {
	now := p.a.now()
	if reason = oneLine(reason, 400); reason == p.reason || !p.saidAt.IsZero() && now.Sub(p.saidAt) < sayAgain {
		return
	}
	p.reason, p.saidAt = reason, now
	p.line(p.id + " waits: " + reason)
	p.draw()
}

// line is said for good, above the line that is rewritten.
func (p *progress) line(text string) {
	if text == "" || p.a.quiet {
		return
	}
	p.clear()
	fmt.Fprintln(p.a.err, text)
}

// question is what a suspended run waits for, from its record: the stream says
// only that it waits.
func (p *progress) question() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	if run, err := p.client.Run(ctx, p.id); err == nil && run.Suspended != nil && run.Suspended.Question != "" {
		return "an answer to: " + oneLine(run.Suspended.Question, 400)
	}
	return "approval"
}

func (p *progress) draw() {
	if !p.live || p.a.quiet || p.answers != nil && p.status == protocol.StatusSuspended {
		return // a person types there
	}
	status := p.status
	if status == "" {
		status = "waiting"
	}
	c := p.a.palette(p.a.err)
	line := fmt.Sprintf("%s  %s  %s", p.id, c.status(status), span(p.a.now().Sub(p.began)))
	if p.last != "" {
		line += c.dim("  " + plural(int(p.total), "event") + ", " + p.last)
	}
	// Without wrapping (?7l), so that a narrow terminal does not scroll.
	fmt.Fprintf(p.a.err, "\x1b[?7l\r\x1b[K%s\x1b[?7h", line)
}

func (p *progress) clear() {
	if p.live && !p.a.quiet {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}

// eventLine says in one line what a trace event is; max bounds its text (0: all).
func eventLine(e protocol.TraceEvent, max int) string {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	var line string
	switch e.Kind {
	case protocol.EventMessage:
		line = firstOf(e.Role, "message") + ": " + text(e.Text)
	case protocol.EventLLMCall:
		line = "model call " + e.Model + costOf(e.Cost)
	case protocol.EventToolCall:
		line = "tool " + e.Name + " " + compact(e.Args)
	case protocol.EventToolResult:
		line = "result " + firstOf(text(e.Output), "ok")
		if e.OK != nil && !*e.OK {
			line = "tool failed: " + text(e.Output)
		}
	case protocol.EventEnvAction:
		line = "action " + e.Action + " " + compact(e.Detail)
	case protocol.EventError:
		line = "error: " + e.Message
	case protocol.EventLog:
		line = firstOf(e.Stream, "log") + ": " + text(e.Text)
	case protocol.EventArtifact:
		line = "artifact " + e.Name + " " + e.Ref
	case protocol.EventSpan:
		line = "span " + e.Name
	case protocol.EventInfra:
		line = firstOf(e.Scope, "infra") + ": " + e.Message
	default:
		line = e.Kind + " " + e.Message
	}
	return oneLine(line, max)
}

func costOf(c *protocol.Cost) string {
	if c == nil {
		return ""
	}
	var parts []string
	if c.InputTokens != nil {
		parts = append(parts, fmt.Sprintf("%d in", *c.InputTokens))
	}
	if c.OutputTokens != nil {
		parts = append(parts, fmt.Sprintf("%d out", *c.OutputTokens))
	}
	if c.USD != nil {
		parts = append(parts, fmt.Sprintf("$%.4f", *c.USD))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// compact is JSON for a line: a single string field is shown as its text.
func compact(raw json.RawMessage) string {
	var one map[string]string
	if json.Unmarshal(raw, &one) == nil && len(one) == 1 {
		for _, v := range one {
			return v
		}
	}
	return string(raw)
}
