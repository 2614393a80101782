package grader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// MaxDetail is how much of a command's output a score's detail holds: 2,000
// bytes, as existing clients expect; of longer output head and tail.
const MaxDetail = 2000

// maxKept is how much of a command's output is kept for patterns and scores, at
// each end.
const maxKept = 1 << 20

// stopLadder ends a grader's command: nothing is waited for that a grader could
// still say.
var stopLadder = sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: time.Second, Tree: true}}

// job is one command of a grader.
type job struct {
	args       []string
	cwd        string // relative to the attempt's root, "work" is the workspace
	env        []string
	timeoutSec int
	stdoutOnly bool // keep stdout alone; stderr goes to the log and to errOut
}

// result is what a grader's command left.
type result struct {
	exit sandbox.Exit
	out  *ends // stdout and stderr as they came, or stdout alone
	err  *ends // stderr, when job.stdoutOnly
}

// pass reports whether the command ended by itself with code 0.
func (r result) pass() bool { return r.exit.Success() }

// detail is the output, and how the command ended where that is not a plain exit.
func (r result) detail() string {
	text := strings.TrimSpace(r.out.String())
	if r.exit.Signal != "" {
		text = strings.TrimSpace("ended by " + r.exit.Signal + "\n" + text)
	}
	return clipDetail(text)
}

// shell runs a command line in the sandbox.
func shell(line string) []string { return []string{"sh", "-c", line} }

// run executes a grader's command and waits for its end. A command that was not
// allowed to end by itself has no result: that is an error.
func (in *Input) run(ctx context.Context, j job) (result, error) {
	if in.Compute == nil {
		return result{}, &Unmeasured{Reason: protocol.ReasonUnsupported, Detail: "this grader needs a sandbox, and there is none any more"}
	}
	r := result{out: &ends{max: maxKept, tee: in.Log}}
	cmd := sandbox.Command{
		Args:    j.args,
		Dir:     in.dir(j.cwd),
		Env:     append(in.environ(), j.env...),
		Stdout:  r.out,
		Stderr:  r.out,
		Timeout: time.Duration(j.timeoutSec) * time.Second,
		Ladder:  stopLadder,
	}
	if j.stdoutOnly {
		r.err = &ends{max: maxKept, tee: in.Log}
		cmd.Stderr = r.err
	}
	oomBefore := in.oomKills(ctx)
	p, err := in.Compute.Exec(ctx, cmd)
	if err != nil {
		if errors.Is(err, sandbox.ErrNotFound) {
			return r, fmt.Errorf("the command or its directory %s does not exist (did the agent delete it?): %w", j.cwd, err)
		}
		return r, err
	}
	select {
	case <-p.Done():
		r.exit, err = p.Wait()
	case <-ctx.Done():
		// The command ends also when the time for grading is over.
		p.Stop(ctx, stopLadder)
		return r, context.Cause(ctx)
	}
	var lost *sandbox.OutputError
	if err != nil && !errors.As(err, &lost) {
		return r, err
	}
	switch r.exit.Reason {
	case sandbox.ReasonTimeout, sandbox.ReasonIdle:
		return r, &Unmeasured{Reason: protocol.ReasonGraderTimeout, Detail: fmt.Sprintf(
			"not done after %d s (measured %.1f s)\n%s", j.timeoutSec, r.exit.Ran.Seconds(), r.detail())}
	case sandbox.ReasonStopped, sandbox.ReasonKilled:
		return r, &Unmeasured{Reason: protocol.ReasonGraderError, Retryable: true, Detail: "the grader's command was ended from outside"}
	}
	if !r.exit.Success() && in.oomKills(ctx) > oomBefore {
		return r, &Unmeasured{Reason: protocol.ReasonGraderError, Retryable: true, Detail: "the grader's command ran out of memory\n" + r.detail()}
	}
	if program := missingProgram(j.args, r); program != "" {
		return r, &Unmeasured{Reason: protocol.ReasonGraderError, Detail: fmt.Sprintf("there is no program %s where the grader ran\n%s", program, r.detail())}
	}
	return r, nil
}

// missingProgram is the program that a grader's shell line begins with, if the
// shell did not find it: a slip of who wrote the case, not the agent's. A path may
// well be what the agent was to make, so that its absence is a result.
func missingProgram(args []string, r result) string {
	if len(args) != 3 || args[0] != "sh" || r.exit.Code != 127 {
		return ""
	}
	program, _, _ := strings.Cut(strings.TrimSpace(args[2]), " ")
	said := r.out.String()
	if r.err != nil {
		said += r.err.String()
	}
	if strings.ContainsAny(program, "/$\"'`(){}=;&|<>") || !strings.Contains(said, program+": not found") && !strings.Contains(said, program+": command not found") {
		return ""
	}
	return program
}

// oomKills is 0 also where the machine cannot tell: then no change is seen, and
// an exit code stays what it is.
func (in *Input) oomKills(ctx context.Context) int64 {
	u, err := in.Compute.Usage(ctx)
	if err != nil || u.OOMKills == nil {
		return 0
	}
	return *u.OOMKills
}

func (in *Input) dir(cwd string) string {
	if cwd == "" || cwd == "work" {
		return in.WorkDir
	}
	if rest, ok := strings.CutPrefix(cwd, "work/"); ok {
		return filepath.Join(in.WorkDir, filepath.FromSlash(rest))
	}
	return filepath.Join(in.Root, filepath.FromSlash(cwd))
}

func (in *Input) environ() []string {
	env := append([]string(nil), in.Environ...)
	return append(env, "EVERDICT_RUN_ID="+in.RunID, "EVERDICT_CASE_ID="+in.Case.ID)
}

// clipDetail keeps head and tail of s in MaxDetail bytes.
func clipDetail(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= MaxDetail {
		return s
	}
	const note = 40
	half := (MaxDetail - note) / 2
	head := strings.ToValidUTF8(s[:half], "")
	tail := strings.ToValidUTF8(s[len(s)-half:], "")
	return head + fmt.Sprintf("\n[... %d bytes ...]\n", len(s)-len(head)-len(tail)) + tail
}

// ends is an io.Writer that keeps the first and the last max bytes of what is
// written, so that memory stays flat whatever a command prints. The sandbox
// calls Write from one goroutine at a time.
type ends struct {
	max        int
	tee        io.Writer
	head, tail []byte
	total      int64
}

// Write never fails: a log that cannot be written must not end a grader.
func (e *ends) Write(p []byte) (int, error) {
	if e.tee != nil {
		if _, err := e.tee.Write(p); err != nil {
			e.tee = nil
		}
	}
	n := len(p)
	e.total += int64(n)
	if room := e.max - len(e.head); room > 0 {
		k := min(room, len(p))
		e.head = append(e.head, p[:k]...)
		p = p[k:]
	}
	e.tail = append(e.tail, p...)
	if len(e.tail) > 2*e.max {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-e.max:]...)
	}
	return n, nil
}

func (e *ends) missing() int64 {
	return e.total - int64(len(e.head)) - int64(min(len(e.tail), e.max))
}

// Bytes returns what was kept, with a note where bytes are missing.
func (e *ends) Bytes() []byte {
	tail := e.tail[max(0, len(e.tail)-e.max):]
	out := append([]byte(nil), e.head...)
	if m := e.missing(); m > 0 {
		out = fmt.Appendf(out, "\n[... %d bytes ...]\n", m)
	}
	return append(out, tail...)
}

// String is Bytes as text.
func (e *ends) String() string { return strings.ToValidUTF8(string(e.Bytes()), "�") }
