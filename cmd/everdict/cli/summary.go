package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// verdictCode is the exit code of a run that is over: whether it passed, did
// not, or could not be measured.
func verdictCode(r *protocol.Run) int {
	switch {
	case r.Status != protocol.StatusSucceeded || r.Verdict == nil:
		return exitError
	case *r.Verdict:
		return exitPass
	default:
		return exitFail
	}
}

// summary is a run in a screenful: what came of it, why, where, at what cost,
// and how to see more.
type summary struct {
	a    *app
	p    palette
	run  *protocol.Run
	rows [][]string
	// local: the run was of a coordinator that is gone.
	local bool
	// log is the end of the run's log, for where it cannot be read afterwards.
	log string
}

// printRun writes a run as -o asks for.
func (a *app) printRun(r *protocol.Run) error { return a.printRunWith(r, summary{}) }

func (a *app) printRunWith(r *protocol.Run, s summary) error {
	if a.forPrograms() {
		return a.json(r)
	}
	s.a, s.p, s.run = a, a.palette(a.out), r
	s.head()
	s.what()
	s.where()
	s.waiting()
	s.scores()
	s.usage()
	s.diff()
	s.evidence()
	s.failure()
	s.exit()
	s.logEnd()
	s.next()
	writeTable(a.out, nil, s.rows)
	return nil
}

// add puts a line under a label; the label is shown once.
func (s *summary) add(label string, lines ...string) {
	for i, line := range lines {
		if i > 0 {
			label = ""
		}
		s.rows = append(s.rows, []string{"  " + s.p.dim(label), line})
	}
}

func (s *summary) head() {
	r := s.run
	line := s.p.bold(cell(r.ID)) + "  " + s.p.status(r.Status)
	if r.Verdict != nil {
		verdict := s.p.bold(s.p.green("PASS"))
		if !*r.Verdict {
			verdict = s.p.bold(s.p.red("FAIL"))
		}
		line += "  " + verdict
		if b := r.VerdictBasis; b != nil && len(b.Deciders) > 0 {
			var deciders []string
			for _, d := range b.Deciders {
				deciders = append(deciders, cell(d.Metric)+" "+s.passed(d.Pass))
			}
			line += s.p.dim(fmt.Sprintf("  by %s: %s", cell(b.Authority), strings.Join(deciders, ", ")))
		}
	} else if r.Status == protocol.StatusSucceeded {
		line += "  " + s.p.yellow("no verdict") + s.p.dim("  no grader decided")
	}
	fmt.Fprintln(s.a.out, line)
}

func (s *summary) passed(pass bool) string {
	if pass {
		return "passed"
	}
	return "failed"
}

func (s *summary) what() {
	r := s.run
	harness := cell(r.Harness.String())
	if h := r.ResolvedHarness; h != nil && h.String() != r.Harness.String() {
		harness += s.p.dim(" = ") + cell(h.String())
	}
	s.add("harness", harness)
	text := cell(r.CaseID)
	if r.CaseSpec != nil {
		text += s.p.dim("  " + oneLine(r.CaseSpec.Task, 90))
	}
	s.add("case", text)
	times := "submitted " + s.a.ago(r.CreatedAt)
	if r.StartedAt != nil && !r.StartedAt.IsZero() {
		times += ", waited " + span(r.StartedAt.Sub(r.CreatedAt.Time))
		if r.FinishedAt != nil && !r.FinishedAt.IsZero() {
			times += ", took " + span(r.FinishedAt.Sub(r.StartedAt.Time))
		} else {
			times += ", running for " + span(s.a.now().Sub(r.StartedAt.Time))
		}
	}
	if r.Attempt > 1 {
		times += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	s.add("time", times)
}

func (s *summary) where() {
	p := s.run.Provenance
	if p == nil && s.run.Result != nil {
		p = s.run.Result.Provenance
	}
	label, line := "ran on", ""
	if p != nil {
		line = cell(p.RanOn)
		if p.Runner != "" {
			line = cell(firstOf(p.RunnerLabel, p.Hostname, p.Runner)) + s.p.dim(" "+cell(p.Runner)+", "+cell(p.RanOn))
		}
		if p.By != "" && p.By != s.run.CreatedBy {
			line += s.p.dim(", of " + cell(ownerOf(p.By)))
		}
		if p.Attestation == "self_reported" {
			line += s.p.dim(", self-reported")
		}
	} else if place := s.run.Placement; place != nil {
		line = cell(firstOf(place.Target, place.Pool, place.Where))
		label = "meant for"
	}
	if s.run.Result != nil && s.run.Result.Execution != nil {
		e := s.run.Result.Execution
		if e.Driver != "" {
			line += s.p.dim(", " + cell(e.Driver))
		}
		if e.ActsAsYou {
			line += s.p.yellow(", could act as you")
		}
		if e.Emulated {
			line += s.p.yellow(", emulating " + cell(e.Platform))
		}
	}
	if line != "" {
		s.add(label, line)
	}
}

func (s *summary) waiting() {
	r := s.run
	if w := r.Suspended; w != nil {
		text := "for approval before it starts"
		if w.Question != "" {
			text = "for an answer: " + oneLine(w.Question, 400)
		}
		s.add("waits", s.p.yellow(text)+s.p.dim(" since "+s.a.ago(w.Since)))
	} else if p := r.Placement; p != nil && p.BlockedReason != "" && !r.Status.Terminal() {
		text := oneLine(p.BlockedReason, 400)
		if p.QueueDeadline != nil {
			text += s.p.dim("; gives up in " + span(p.QueueDeadline.Sub(s.a.now())))
		}
		s.add("waits", s.p.yellow(text))
	}
}

func (s *summary) scores() {
	scores := s.run.Scores
	if scores == nil && s.run.Result != nil {
		scores = s.run.Result.Scores
	}
	width := 0
	for _, sc := range scores {
		width = max(width, len([]rune(cell(sc.Metric))))
	}
	var lines []string
	for _, sc := range scores {
		name := cell(sc.Metric)
		line := name + strings.Repeat(" ", width-len([]rune(name))+2)
		switch {
		case sc.Status == protocol.ScoreMeasured && sc.Value != nil:
			line += strconv.FormatFloat(*sc.Value, 'g', 6, 64)
			if sc.Pass != nil {
				line += " " + s.p.verdict(sc.Pass)
			}
		default:
			line += s.p.yellow(cell(sc.Status)) + s.p.dim(" "+cell(sc.Reason))
		}
		if detail := oneLine(firstOf(sc.Label, sc.Detail), 100); detail != "" {
			line += s.p.dim("  " + detail)
		}
		lines = append(lines, line)
	}
	s.add("scores", lines...)
}

func (s *summary) usage() {
	u := s.run.Usage
	if u == nil && s.run.Result != nil {
		u = s.run.Result.Usage
	}
	if u == nil {
		if s.run.Status.Terminal() && s.run.StartedAt != nil {
			s.add("usage", s.p.dim("tokens unknown, cost unknown"))
		}
		return
	}
	tokens, cost := "tokens unknown", "cost unknown"
	if u.TotalTokens != nil || u.PromptTokens != nil || u.CompletionTokens != nil {
		tokens = fmt.Sprintf("tokens %s (%s in, %s out)", count(u.TotalTokens), count(u.PromptTokens), count(u.CompletionTokens))
		tokens += s.source(u.TokensSource)
	}
	if u.USD != nil {
		cost = "cost $" + strconv.FormatFloat(*u.USD, 'f', 4, 64) + s.source(u.USDSource)
	}
	if u.Calls != nil {
		tokens = plural(int(*u.Calls), "model call") + ", " + tokens
	}
	line := tokens + ", " + cost
	if u.Partial {
		line += s.p.yellow(" (at least: the harness was cut short)")
	}
	s.add("usage", line)
}

func (s *summary) source(from string) string {
	if from == "" {
		return ""
	}
	return s.p.dim(" from " + cell(from))
}

func count(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

// maxListed is how many changed files a summary names.
const maxListed = 6

func (s *summary) diff() {
	if s.run.Result == nil {
		return
	}
	snap := s.run.Result.Snapshot
	if snap.Kind == protocol.EnvPrompt {
		if out := oneLine(snap.Output, 200); out != "" {
			s.add("answer", out)
		}
		return
	}
	if snap.Kind != protocol.EnvRepo {
		return
	}
	if len(snap.ChangedFiles) == 0 && snap.DiffBytes == 0 && len(snap.Omitted) == 0 {
		if s.run.Failure == nil {
			s.add("diff", "nothing changed")
		}
		return
	}
	line := plural(len(snap.ChangedFiles), "file") + " changed"
	switch {
	case snap.DiffTruncated:
		line += s.p.dim(", " + plural(int(snap.DiffBytes), "byte") + " of diff")
	case snap.Diff != "":
		line += ", " + statOf(snap.Diff).String()
	}
	names := snap.ChangedFiles
	if len(names) > maxListed {
		names = names[:maxListed]
	}
	var shown []string
	for _, n := range names {
		shown = append(shown, cell(n))
	}
	if more := len(snap.ChangedFiles) - len(names); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	lines := []string{line + s.p.dim("  "+strings.Join(shown, ", "))}
	if len(snap.Omitted) > 0 {
		o := snap.Omitted[0]
		lines = append(lines, s.p.yellow(fmt.Sprintf("%s not in the diff, such as %s (%s)", plural(len(snap.Omitted), "file"), cell(o.Path), cell(o.Reason))))
	}
	s.add("diff", lines...)
}

func (s *summary) evidence() {
	if s.run.Result == nil || s.run.Result.Evidence == nil {
		return
	}
	for _, g := range s.run.Result.Evidence.Gaps {
		s.add("missing", s.p.yellow(fmt.Sprintf("%s of the %s at %d: %s", plural(int(g.Bytes), "byte"), cell(g.Channel), g.Offset, cell(g.Reason))))
	}
}

func (s *summary) next() {
	id := cell(s.run.ID)
	switch {
	case s.local:
	case s.run.Status == protocol.StatusSuspended:
		s.add("next", "everdict runs approve "+id, "everdict runs reject "+id)
	case !s.run.Status.Terminal():
		s.add("next", "everdict runs wait "+id, "everdict runs trace -f "+id)
	case s.run.Result == nil, s.run.StartedAt == nil:
		s.add("next", "everdict runs events "+id)
	default:
		next := []string{"everdict runs trace " + id, "everdict runs logs " + id}
		if snap := s.run.Result.Snapshot; snap.Kind == protocol.EnvRepo && (snap.DiffBytes > 0 || snap.Diff != "") {
			next = append(next, "everdict runs diff "+id)
		}
		s.add("next", next...)
	}
}

// number is f with at most three decimals.
func number(f float64) string { return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
