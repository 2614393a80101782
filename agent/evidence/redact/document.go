package redact

import (
	"encoding/json"

	"github.com/everdict/everdict/protocol"
)

// Event masks the parts of an event that a harness or a job can have written:
// all but its kind, its times and its numbers. Strings that ev points to are
// left as they are, for whoever else holds them.
func (r *Redactor) Event(ev *protocol.TraceEvent) {
	if r.Empty() {
		return
	}
	r.fields(&ev.SpanID, &ev.ParentID, &ev.Role, &ev.Model, &ev.ID, &ev.Name, &ev.Action, &ev.Message, &ev.Stream, &ev.Ref,
		&ev.MediaType, &ev.Scope, &ev.Event, &ev.Unit, &ev.Node, &ev.Service, &ev.At)
	ev.Text, ev.Output = r.pointer(ev.Text), r.pointer(ev.Output)
	for _, doc := range []*json.RawMessage{&ev.Args, &ev.Detail, &ev.Attributes} {
		*doc = r.JSON(*doc)
	}
}

// Failure masks what a failure tells. A nil f is none.
func (r *Redactor) Failure(f *protocol.Failure) {
	if r.Empty() || f == nil {
		return
	}
	r.fields(&f.Message, &f.Hint, &f.LogTail)
}

// Snapshot masks what a snapshot names.
func (r *Redactor) Snapshot(s *protocol.Snapshot) {
	if r.Empty() {
		return
	}
	r.fields(&s.Diff, &s.Output, &s.HeadSHA)
	r.list(s.ChangedFiles)
	for i := range s.Omitted {
		r.fields(&s.Omitted[i].Path)
	}
}

// Score masks what a grader said: its words, and the names that a job's own files
// can give to metrics.
func (r *Redactor) Score(s *protocol.Score) {
	if r.Empty() {
		return
	}
	r.fields(&s.Metric, &s.Label, &s.Detail)
}

// Result masks a result document. What the runner itself chooses from closed
// lists stays as it is, and so do the names that the run was submitted with.
func (r *Redactor) Result(c *protocol.CaseResult) {
	if r.Empty() {
		return
	}
	for i := range c.Trace {
		r.Event(&c.Trace[i])
	}
	r.Snapshot(&c.Snapshot)
	for i := range c.Scores {
		r.Score(&c.Scores[i])
	}
	r.Failure(c.Failure)
	if e := c.Execution; e != nil {
		r.fields(&e.HarnessPath, &e.HarnessVersion, &e.Image)
		r.list(e.Notes)
	}
	if u := c.Usage; u != nil {
		r.fields(&u.TokensSource, &u.USDSource)
	}
}

func (r *Redactor) fields(all ...*string) {
	for _, s := range all {
		*s = r.String(*s)
	}
}

func (r *Redactor) list(all []string) {
	for i := range all {
		all[i] = r.String(all[i])
	}
}

func (r *Redactor) pointer(s *string) *string {
	if s == nil {
		return nil
	}
	masked := r.String(*s)
	if masked == *s {
		return s
	}
	return &masked
}
