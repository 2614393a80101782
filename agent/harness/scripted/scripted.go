// Package scripted is a deterministic agent that needs no model: it carries out
// file tasks stated in plain English, or a script given in its parameters, through
// real tool calls of a real process in the sandbox.
//
// The agent is one shell process, so that its start, its crashes, its forks and
// its hangs are those of any other agent. See parseTask for the sentences and
// parseScript for the script; parameter "delay" is slept between steps.
package scripted

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Version is the version of the agent's languages.
const Version = "1.0.0"

// maxOutput is how much of a tool's output its result carries, at each end.
const maxOutput = 16 << 10

// maxArgument is how long a program may be to be an argument of sh; Linux allows
// 128 KiB. Longer ones are fed through a pipe.
const maxArgument = 96 << 10

// Harness runs the scripted agent.
type Harness struct{}

var _ harness.Harness = (*Harness)(nil)

// ladder signals every process: a shell that waits for a command heeds SIGINT
// only when the command has ended.
var ladder = sandbox.Ladder{
	{Signal: syscall.SIGINT, Grace: 2 * time.Second, Tree: true},
	{Signal: syscall.SIGTERM, Grace: time.Second, Tree: true},
}

// New returns the harness.
func New() *Harness { return &Harness{} }

// Check reports what is wrong with the parameters of a scripted harness.
func Check(params map[string]string) error {
	_, err := planFor(params, "")
	return err
}

func planFor(params map[string]string, task string) (plan, error) {
	var delay time.Duration
	if d := params["delay"]; d != "" {
		var err error
		if delay, err = time.ParseDuration(d); err != nil || delay < 0 {
			return plan{}, errors.New(`params.delay: want a duration such as "200ms"`)
		}
	}
	p := plan{}
	if script, ok := params["script"]; ok {
		var err error
		if p, err = parseScript(script); err != nil {
			return plan{}, err
		}
	} else {
		p = parseTask(task)
	}
	p.delay = delay
	return p, nil
}

// Install checks the parameters.
func (h *Harness) Install(_ context.Context, env harness.Env) error {
	if err := Check(env.Spec.Params); err != nil {
		return &protocol.Failure{Stage: protocol.StageInstall, Class: protocol.ClassConfig, Reason: protocol.ReasonSetup,
			Code: protocol.CodeBadRequest, Message: "scripted: " + err.Error()}
	}
	return nil
}

// Run implements harness.Harness.
func (h *Harness) Run(ctx context.Context, env harness.Env) (harness.Outcome, error) {
	p, err := planFor(env.Spec.Params, env.Case.Task)
	if err != nil {
		return harness.Outcome{}, h.Install(ctx, env)
	}
	env.EmitTask()
	var random [16]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	w := &watch{plan: p, env: env, codes: map[int]int{}, log: harness.NewTail(env.Stdout, 0)}
	w.usage = trace.New(trace.Config{})
	out := newFrames(mark, w.text, w.frame)
	program := p.program(mark)
	cmd := sandbox.Command{Args: []string{"sh", "-c", program}, Dir: env.WorkDir, Env: env.Environment(), Stdout: out, Ladder: ladder}
	if len(program) > maxArgument {
		cmd.Args = []string{"sh", "-c", `eval "$(cat)"`}
		cmd.Stdin = strings.NewReader(program)
	}
	ended, err := env.Exec(ctx, harness.Execution{Command: cmd})
	out.Close()
	outcome := harness.Outcome{Exit: ended.Exit, FinalMessage: w.last, Usage: w.used(ended), Version: Version}
	var failure *protocol.Failure
	switch {
	case errors.As(err, &failure):
		outcome.Failure = failure
	case err != nil:
		return outcome, err
	default:
		outcome.Failure = ended.Failure("the scripted agent")
	}
	if outcome.Failure == nil && !ended.Success() {
		env.Emit(ended.ErrorEvent("the scripted agent"))
	}
	return outcome, nil
}

// watch turns the agent's frames into trace events.
type watch struct {
	plan  plan
	env   harness.Env
	log   *harness.Tail
	open  *capture // the running tool's output
	codes map[int]int
	last  *string
	usage *trace.Recorder // sums up the model calls
}

// capture keeps head and tail of a tool's output.
type capture struct {
	head  []byte
	tail  *harness.Tail
	total int
}

func (c *capture) write(b []byte) {
	c.total += len(b)
	if room := maxOutput - len(c.head); room > 0 {
		n := min(room, len(b))
		c.head = append(c.head, b[:n]...)
		b = b[n:]
	}
	c.tail.Write(b)
}

func (c *capture) result() (text string, cut bool) {
	text = strings.ToValidUTF8(string(c.head), "�")
	tail := c.tail.String()
	if missing := c.total - len(c.head) - maxOutput; missing > 0 {
		return text + "\n[... " + strconv.Itoa(missing) + " bytes ...]\n" + tail, true
	}
	return text + tail, false
}

func (w *watch) text(b []byte) {
	w.log.Write(b)
	if w.open != nil {
		w.open.write(b)
	}
}

func (w *watch) frame(words []byte) {
	f := strings.Fields(string(bytes.TrimSpace(words)))
	var n [2]int
	for i, s := range f[min(1, len(f)):] {
		if i < len(n) {
			n[i], _ = strconv.Atoi(s)
		}
	}
	if len(f) == 0 || n[0] < 0 || f[0] != "z" && n[0] >= len(w.plan.steps) {
		return
	}
	switch f[0] {
	case "b":
		w.begin(n[0])
	case "e":
		w.end(n[0], n[1])
	case "s":
		if s := w.plan.steps[n[0]]; s.think != nil {
			w.env.Emit(*s.think)
			w.usage.Emit(*s.think)
		} else {
			w.say(s.say)
		}
	case "z":
		w.conclude()
	}
}

func toolID(n int) string { return "step-" + strconv.Itoa(n+1) }

func (w *watch) begin(n int) {
	s := w.plan.steps[n]
	args, _ := json.Marshal(s.args)
	w.env.Emit(protocol.TraceEvent{Kind: protocol.EventToolCall, ID: toolID(n), Name: s.tool, Args: args, SpanID: toolID(n)})
	w.open = &capture{tail: harness.NewTail(nil, maxOutput)}
}

func (w *watch) end(n, code int) {
	w.codes[n] = code
	ok, output, cut := code == 0, "", false
	if w.open != nil {
		output, cut = w.open.result()
		w.open = nil
	}
	if !ok {
		output = strings.TrimRight(output, "\n") + "\n[exit code " + strconv.Itoa(code) + "]"
	}
	w.env.Emit(protocol.TraceEvent{Kind: protocol.EventToolResult, ID: toolID(n), OK: &ok, Output: &output, ParentID: toolID(n), Truncated: cut})
}

func (w *watch) say(text string) {
	w.last = &text
	w.env.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: &text})
}

// conclude says what was done, unless a script said something itself.
func (w *watch) conclude() {
	if !w.plan.summary {
		if w.last == nil {
			w.say("done")
		}
		return
	}
	var parts []string
	for i, s := range w.plan.steps {
		if code, ran := w.codes[i]; ran && code == 0 {
			parts = append(parts, s.done)
		} else {
			parts = append(parts, s.failed)
		}
	}
	var text string
	if len(parts) > 0 {
		text = strings.ToUpper(parts[0][:1]) + parts[0][1:]
		if rest := parts[1:]; len(rest) > 0 {
			text += ", " + strings.Join(rest, ", ")
		}
		text += "."
	}
	if len(w.plan.unclear) > 0 {
		text = strings.TrimSpace(text + " I cannot do this: " + strings.Join(w.plan.unclear, "; ") +
			". I understand plain file tasks only: create, append, replace and delete.")
	}
	w.say(text)
}

// used is nil for an agent that made no model call: there is nothing to report.
func (w *watch) used(ended harness.Ended) *protocol.Usage {
	u := w.usage.Summary().Usage
	if u == nil {
		return nil
	}
	if u.TokensSource != "" {
		u.TokensSource = "scripted:think"
	}
	if u.USDSource != "" {
		u.USDSource = "scripted:think"
	}
	u.Partial = ended.Reason != sandbox.ReasonNone
	return u
}
