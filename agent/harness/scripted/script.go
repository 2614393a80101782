package scripted

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// The script language, one step a line; # begins a comment line. Words with
// spaces are quoted as in Go; TEXT, COMMAND and QUESTION are the rest of the line,
// or one quoted word.
//
//	create PATH TEXT      write a file (unquoted text gets a final line break)
//	append PATH TEXT      add to its end
//	replace PATH OLD NEW  replace every occurrence; none is a failure of the tool
//	delete PATH           a file or directory
//	mkdir PATH
//	run COMMAND           a shell command, as an agent's bash tool runs it
//	ask QUESTION          park the run until a person answers (everdict ask)
//	commit MESSAGE        git add and commit in the workspace
//	say TEXT              an assistant message
//	think KEY=VALUE ...   a model call: model, input, output, cacheRead, cacheWrite,
//	                      reasoning (tokens), cost (US dollars), latency (duration)
//	sleep DURATION        "200ms", "3s"
//	print N UNIT [stderr] UNIT is lines, bytes (one line of N bytes) or raw (bytes of
//	                      every value); N may end in k or M, or be forever for lines
//	fork [hold] [COMMAND] a daemon, forked twice in a session of its own, that
//	                      ignores HUP, INT and TERM; hold: it keeps the output open
//	exit CODE
//	crash [SIGNAL]        the agent ends itself by a signal, SEGV if none is named
//	hang                  for ever, deaf to HUP, INT and TERM
func parseScript(script string) (plan, error) {
	var p plan
	for i, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		parse, ok := verbs[verb]
		if !ok {
			return plan{}, fmt.Errorf("script line %d: unknown step %q", i+1, protocol.Clip(verb, 40))
		}
		s, err := parse(strings.TrimSpace(rest))
		if err != nil {
			return plan{}, fmt.Errorf("script line %d: %s: %w", i+1, verb, err)
		}
		p.steps = append(p.steps, s)
	}
	if len(p.steps) == 0 {
		return plan{}, fmt.Errorf("the script has no step")
	}
	return p, nil
}

var verbs = map[string]func(rest string) (step, error){
	"create":  withPathAndText(createStep),
	"append":  withPathAndText(appendStep),
	"replace": parseReplace,
	"delete":  withPath(deleteStep),
	"mkdir":   withPath(mkdirStep),
	"run":     withText(runStep),
	"ask": withText(func(q string) step {
		return step{tool: "ask", args: map[string]any{"question": q}, line: "everdict ask " + quote(q)}
	}),
	"commit": parseCommit,
	"say":    withText(func(t string) step { return step{say: t} }),
	"think":  parseThink,
	"sleep":  parseSleep,
	"print":  parsePrint,
	"fork":   parseFork,
	"exit":   parseExit,
	"crash":  parseCrash,
	"hang": func(string) (step, error) {
		return step{bare: "trap '' HUP INT TERM; while :; do sleep 1; done"}, nil
	},
}

func withPath(make func(string) step) func(string) (step, error) {
	return func(rest string) (step, error) {
		path, rest, err := word(rest)
		if err != nil {
			return step{}, err
		}
		if rest != "" {
			return step{}, fmt.Errorf("more than one path: quote one that has spaces")
		}
		return make(path), protocol.CheckFilePath(path)
	}
}

func withPathAndText(make func(path, text string) step) func(string) (step, error) {
	return func(rest string) (step, error) {
		path, rest, err := word(rest)
		if err != nil {
			return step{}, err
		}
		if err := protocol.CheckFilePath(path); err != nil {
			return step{}, err
		}
		if text, ok := unquoted(rest); ok {
			return make(path, text), nil
		}
		return make(path, rest+"\n"), nil
	}
}

func withText(make func(string) step) func(string) (step, error) {
	return func(rest string) (step, error) {
		if text, ok := unquoted(rest); ok {
			rest = text
		}
		if rest == "" {
			return step{}, fmt.Errorf("the text is missing")
		}
		if strings.ContainsRune(rest, 0) {
			return step{}, fmt.Errorf("the text contains a NUL byte")
		}
		return make(rest), nil
	}
}

// word takes the first word, which may be quoted.
func word(s string) (first, rest string, err error) {
	if s == "" {
		return "", "", fmt.Errorf("a word is missing")
	}
	if s[0] == '"' || s[0] == '`' {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("a quotation has no end")
		}
		first, err = strconv.Unquote(q)
		return first, strings.TrimSpace(s[len(q):]), err
	}
	first, rest, _ = strings.Cut(s, " ")
	return first, strings.TrimSpace(rest), nil
}

// unquoted is the value of s when the whole of it is one quotation.
func unquoted(s string) (string, bool) {
	if s == "" || s[0] != '"' && s[0] != '`' {
		return "", false
	}
	v, err := strconv.Unquote(s)
	return v, err == nil
}

func parseReplace(rest string) (step, error) {
	var w [3]string
	var err error
	for i := range w {
		if w[i], rest, err = word(rest); err != nil {
			return step{}, fmt.Errorf("want PATH OLD NEW: %w", err)
		}
	}
	if rest != "" || w[1] == "" || strings.ContainsAny(w[1]+w[2], "\n\x00") {
		return step{}, fmt.Errorf("want PATH OLD NEW, each one line, quoted where it has spaces")
	}
	return replaceStep(w[0], w[1], w[2]), protocol.CheckFilePath(w[0])
}

func parseCommit(rest string) (step, error) {
	if text, ok := unquoted(rest); ok {
		rest = text
	}
	if rest == "" {
		rest = "Work of the scripted agent"
	}
	return step{tool: "git_commit", args: map[string]any{"message": rest},
		line: "git add -A && git -c user.name=scripted -c user.email=scripted@everdict.invalid -c commit.gpgsign=false commit -q -m " + quote(rest)}, nil
}

func parseThink(rest string) (step, error) {
	ev := protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: "scripted", Cost: &protocol.Cost{}}
	var s step
	tokens := map[string]**int64{
		"input": &ev.Cost.InputTokens, "output": &ev.Cost.OutputTokens, "cacheRead": &ev.Cost.CacheReadTokens,
		"cacheWrite": &ev.Cost.CacheWriteTokens, "reasoning": &ev.Cost.ReasoningTokens,
	}
	for _, pair := range strings.Fields(rest) {
		key, value, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case key == "model":
			ev.Model, err = value, nil
		case key == "cost":
			var usd float64
			usd, err = strconv.ParseFloat(value, 64)
			ev.Cost.USD = &usd
			if usd < 0 || usd-usd != 0 {
				err = fmt.Errorf("want US dollars, got %q", value)
			}
		case key == "latency":
			var d time.Duration
			d, err = time.ParseDuration(value)
			ms := d.Seconds() * 1000
			ev.LatencyMs = &ms
			s.bare = sleepLine(d)
		case tokens[key] != nil:
			if n < 0 {
				err = fmt.Errorf("want a count, got %q", value)
			}
			*tokens[key] = &n
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return step{}, err
		}
	}
	s.think = &ev
	return s, nil
}

func parseSleep(rest string) (step, error) {
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return step{}, fmt.Errorf("want a duration such as 200ms or 3s, got %q", protocol.Clip(rest, 40))
	}
	return step{bare: sleepLine(d)}, nil
}

// sleepLine sleeps by the sleep command, with fractions as all of today's have
// them.
func sleepLine(d time.Duration) string {
	return "sleep " + strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

func parsePrint(rest string) (step, error) {
	f := strings.Fields(rest)
	if len(f) == 3 && f[2] == "stderr" || len(f) == 2 {
		n, err := count(f[0])
		to := ""
		if len(f) == 3 {
			to = " >&2"
		}
		switch {
		case f[0] == "forever" && f[1] == "lines":
			return step{bare: "yes 'a line of output'" + to}, nil
		case err != nil:
			return step{}, err
		case f[1] == "lines":
			return step{bare: fmt.Sprintf("yes 'a line of output' | head -n %d%s", n, to)}, nil
		case f[1] == "bytes":
			return step{bare: fmt.Sprintf(`{ head -c %d /dev/zero | tr '\000' x; echo; }%s`, n, to)}, nil
		case f[1] == "raw":
			return step{bare: fmt.Sprintf(`{ i=0; while [ $i -lt %d ]; do printf %s; i=$((i+256)); done; } | head -c %d%s`, n, quote(everyByte()), n, to)}, nil
		}
	}
	return step{}, fmt.Errorf("want: print N lines|bytes|raw [stderr], got %q", protocol.Clip(rest, 60))
}

// everyByte is a printf format that prints the 256 byte values.
func everyByte() string {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintf(&b, `\%03o`, i)
	}
	return b.String()
}

func count(s string) (int64, error) {
	factor := int64(1)
	digits := s
	switch {
	case strings.HasSuffix(s, "k"):
		factor, digits = 1000, s[:len(s)-1]
	case strings.HasSuffix(s, "M"):
		factor, digits = 1000_000, s[:len(s)-1]
	}
	n, err := strconv.ParseInt(digits, 10, 40)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("want a count such as 100, 10k or 5M, got %q", protocol.Clip(s, 40))
	}
	return n * factor, nil
}

func parseFork(rest string) (step, error) {
	// In the background of a subshell that ends at once: the daemon's parent is init.
	out := " >/dev/null 2>&1"
	if rest == "hold" || strings.HasPrefix(rest, "hold ") {
		out, rest = "", strings.TrimSpace(strings.TrimPrefix(rest, "hold"))
	}
	if text, ok := unquoted(rest); ok {
		rest = text
	}
	if rest == "" {
		rest = "while :; do sleep 1; done"
	}
	daemon := quote("trap '' HUP INT TERM; " + rest)
	line := "( if command -v setsid >/dev/null; then setsid sh -c " + daemon + "; else sh -c " + daemon + "; fi </dev/null" + out + " & )"
	return step{bare: line}, nil
}

func parseExit(rest string) (step, error) {
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 || n > 255 {
		return step{}, fmt.Errorf("want an exit code of 0 to 255, got %q", protocol.Clip(rest, 40))
	}
	return step{bare: "exit " + strconv.Itoa(n)}, nil
}

func parseCrash(rest string) (step, error) {
	signal := strings.TrimPrefix(strings.ToUpper(rest), "SIG")
	switch signal {
	case "":
		signal = "SEGV"
	case "SEGV", "ABRT", "BUS", "FPE", "ILL", "KILL", "TERM", "HUP", "INT", "QUIT", "PIPE", "USR1":
	default:
		return step{}, fmt.Errorf("unknown signal %q", protocol.Clip(rest, 40))
	}
	// No core file; trap - undoes a shell's own handling.
	return step{bare: "ulimit -c 0; trap - " + trapName(signal) + "; kill -s " + signal + " $$; sleep 5; exit 70"}, nil
}

// trapName keeps to signals that a trap may be set on.
func trapName(signal string) string {
	if signal == "KILL" {
		return "TERM"
	}
	return signal
}
