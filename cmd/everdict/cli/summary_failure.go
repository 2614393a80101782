package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// failure is the card of a run that has no result to judge.
func (s *summary) failure() {
	f := s.run.Failure
	if f == nil && s.run.Result != nil {
		f = s.run.Result.Failure
	}
	if f == nil {
		if e := s.run.Error; e != nil {
			s.add("failure", s.p.red(cell(string(e.Code)))+" "+oneLine(e.Message, 0))
		}
		return
	}
	lines := []string{s.p.red(cell(f.Class)+"/"+cell(f.Reason)) + " while " + stageName(f.Stage) + s.p.dim("  "+cell(string(f.Code))), oneLine(f.Message, 0)}
	if l := f.Limit; l != nil {
		unit := oneLine(l.Unit, 0)
		lines = append(lines, fmt.Sprintf("limit %s: configured %s %s, measured %s %s", cell(l.Name), number(l.Configured), unit, number(l.Measured), unit))
	}
	if f.Hint != "" {
		lines = append(lines, oneLine(f.Hint, 0))
	}
	if f.Signal != "" || f.ExitCode != nil {
		end := "ended"
		if f.Signal != "" {
			end += " by signal " + cell(f.Signal)
		}
		if f.ExitCode != nil {
			end += fmt.Sprintf(" with exit code %d", *f.ExitCode)
		}
		lines = append(lines, end)
	}
	switch {
	case f.Reason == protocol.ReasonCancelled, f.Reason == protocol.ReasonRejected:
		// A person ended it: whether it would have succeeded is another question.
	case f.Reason == protocol.ReasonSecret:
		lines = append(lines, "submit it again when the secret is set: everdict secrets set NAME")
	case f.Retryable:
		lines = append(lines, "the same run can succeed when it is tried again")
	default:
		lines = append(lines, "trying the same again will not help")
	}
	s.add("failure", append(lines, s.quoted(f.LogTail)...)...)
}

// maxQuoted is how many lines of a log a summary quotes.
const maxQuoted = 12

// quoted is the last lines of a text from a run.
func (s *summary) quoted(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = oneLine(line, 160); line != "" {
			lines = append(lines, s.p.dim("| "+line))
		}
	}
	return lines[max(0, len(lines)-maxQuoted):]
}

// exit is how the agent's command ended, where it ended badly and no failure has
// said so: what it left is judged all the same, and this is often why it fails.
func (s *summary) exit() {
	r := s.run
	if r.Result == nil || r.Failure != nil || r.Result.Failure != nil {
		return
	}
	ended, stderr := "", ""
	for _, e := range r.Result.Trace {
		switch {
		case e.Kind == protocol.EventEnvAction && e.Action == actionCommandExit:
			ended = exitOf(e.Detail)
		case e.Kind == protocol.EventLog && e.Stream == protocol.StreamStderr && e.Text != nil:
			stderr = *e.Text
		}
	}
	if ended == "" {
		return
	}
	if last := s.quoted(stderr); len(last) > 0 && s.log == "" {
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		ended += ": " + oneLine(lines[len(lines)-1], 160)
	}
	s.add("agent", s.p.yellow(ended))
}

// actionCommandExit is the trace event of a command harness that ended.
const actionCommandExit = "command.exit"

// exitOf says how a command ended, "" when it ended well.
func exitOf(detail json.RawMessage) string {
	var d struct {
		ExitCode int    `json:"exitCode"`
		Signal   string `json:"signal"`
	}
	switch err := json.Unmarshal(detail, &d); {
	case err != nil || d.ExitCode == 0 && d.Signal == "":
		return ""
	case d.Signal != "":
		return "was ended by signal " + oneLine(d.Signal, 40)
	}
	return fmt.Sprintf("exited with %d", d.ExitCode)
}

// logEnd is the end of the log, unless the failure has quoted it.
func (s *summary) logEnd() {
	if f := s.run.Failure; f == nil || f.LogTail == "" {
		s.add("log", s.quoted(s.log)...)
	}
}

func stageName(stage string) string {
	switch stage {
	case protocol.StageDispatch:
		return "finding a place to run"
	case protocol.StageInstall:
		return "preparing"
	case protocol.StageRun:
		return "running"
	case protocol.StageCollect:
		return "collecting evidence"
	case protocol.StageGrade:
		return "grading"
	}
	return cell(stage)
}
