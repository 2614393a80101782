package fake

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rule is one line of a script.
type rule struct {
	op      string // start, exec, freeze, thaw, kill, release, usage, sweep
	match   string // exec only: what the command line must contain; empty matches every command
	actions []action
	once    bool
	used    bool
}

// action is one step of a rule.
type action struct {
	verb string
	text string
	n    int64
	d    time.Duration
}

// verbs are the words of the language: which operations they may stand in, and what they take.
var verbs = map[string]struct {
	ops  string
	args string // "", "text", "text?", "duration", "number", "signal"
}{
	"ok":          {"start exec freeze thaw kill release usage sweep", ""},
	"fail":        {"start exec freeze thaw kill release usage sweep", "text?"},
	"unsupported": {"start", "text?"},
	"delay":       {"start exec freeze thaw kill release", "duration"},
	"block":       {"start exec freeze thaw", ""},
	"print":       {"exec", "text"},
	"err":         {"exec", "text"},
	"sleep":       {"exec", "duration"},
	"exit":        {"exec", "number"},
	"signal":      {"exec", "signal"},
	"hang":        {"exec", ""},
	"stubborn":    {"exec", ""},
	"answer":      {"exec", "number"},
	"write":       {"exec", "text"},
	"append":      {"exec", "text"},
	"remove":      {"exec", "text"},
	"cat":         {"exec", ""},
	"env":         {"exec", "text"},
	"leave":       {"exec", ""},
	"hold":        {"exec", ""},
	"lost":        {"exec", "text?"},
	"oom":         {"exec usage", ""},
	"pids":        {"exec usage", ""},
	"memory":      {"exec usage", "number"},
	"cpu":         {"exec usage", "duration"},
}

// Check reports the first mistake in a script.
func Check(script string) error {
	_, err := parse(script)
	return err
}

func parse(script string) ([]*rule, error) {
	var rules []*rule
	n := 0
	for line := range strings.Lines(script) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("fake: line %d: %q: %w", n, line, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseLine(line string) (*rule, error) {
	head, tail, ok := strings.Cut(line, ":")
	if !ok {
		return nil, fmt.Errorf("wanted OPERATION: ACTION; ACTION...")
	}
	r := &rule{}
	r.op, r.match, _ = strings.Cut(strings.TrimSpace(head), " ")
	r.match = strings.TrimSpace(r.match)
	switch r.op {
	case "start", "exec", "freeze", "thaw", "kill", "release", "usage", "sweep":
	default:
		return nil, fmt.Errorf("unknown operation %q", r.op)
	}
	if r.match == "once" {
		r.match, r.once = "", true
	} else if m, ok := strings.CutPrefix(r.match, "once "); ok {
		r.match, r.once = strings.TrimSpace(m), true
	}
	if r.match != "" && r.op != "exec" {
		return nil, fmt.Errorf("only exec has commands to match")
	}
	for part := range strings.SplitSeq(tail, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		a, err := parseAction(r.op, part)
		if err != nil {
			return nil, err
		}
		r.actions = append(r.actions, a)
	}
	return r, nil
}

func parseAction(op, part string) (action, error) {
	verb, arg, _ := strings.Cut(part, " ")
	arg = strings.TrimSpace(arg)
	v, ok := verbs[verb]
	if !ok {
		return action{}, fmt.Errorf("unknown action %q", verb)
	}
	if !strings.Contains(" "+v.ops+" ", " "+op+" ") {
		return action{}, fmt.Errorf("%s cannot %s", op, verb)
	}
	a := action{verb: verb}
	var err error
	switch v.args {
	case "text", "text?":
		if arg == "" && v.args == "text" {
			return action{}, fmt.Errorf("%s wants a text", verb)
		}
		a.text = arg
		if strings.HasPrefix(arg, `"`) {
			if a.text, err = strconv.Unquote(arg); err != nil {
				return action{}, fmt.Errorf("%s wants a Go string", verb)
			}
		} else if verb == "print" || verb == "err" {
			a.text += "\n"
		}
	case "duration":
		a.d, err = time.ParseDuration(arg)
	case "number":
		a.n, err = strconv.ParseInt(arg, 10, 64)
	case "signal":
		if _, ok := signals[arg]; !ok {
			err = fmt.Errorf("unknown signal %q", arg)
		}
		a.text = arg
	default:
		if arg != "" {
			err = fmt.Errorf("%s takes nothing, %q was given", verb, arg)
		}
	}
	return a, err
}

// signals are the names that a script may use.
var signals = map[string]syscall.Signal{
	"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "SIGSEGV": syscall.SIGSEGV,
	"SIGABRT": syscall.SIGABRT, "SIGHUP": syscall.SIGHUP, "SIGQUIT": syscall.SIGQUIT,
}

func signalName(sig syscall.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return fmt.Sprintf("signal %d", int(sig))
}
