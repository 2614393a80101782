package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func payload(edit ...func(*Payload)) *Payload {
	p := &Payload{Version: PayloadVersion, Attempt: 2, RunnerToken: "rnr_secret", LeaseToken: "leasesecret", Job: Job{
		RunID: "run_1", Workspace: "default",
		Case:    Case{ID: "c1", Task: "do it", TimeoutSec: 60, Env: EnvSpec{Kind: EnvPrompt}},
		Harness: HarnessSpec{Kind: HarnessCommand, ID: "h", Version: "1", Command: "true", Env: map[string]EnvValue{"KEY": {Secret: &SecretRef{SecretRef: "NAME"}}}},
	}}
	for _, f := range edit {
		f(p)
	}
	return p
}

func encode(t testing.TB, p *Payload) string {
	t.Helper()
	doc, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func TestDecodePayload(t *testing.T) {
	t.Parallel()
	good := encode(t, payload())
	p, err := DecodePayload([]byte(good))
	if err != nil || encode(t, p) != good {
		t.Fatalf("decoded %v, %v; want what was encoded", p, err)
	}
	for name, row := range map[string]struct{ doc, want string }{
		"nothing":           {"", "ends too early"},
		"cut off":           {good[:len(good)/2], "ends too early"},
		"not JSON":          {"kind: Pod", "not JSON"},
		"two documents":     {good + good, "after the document"},
		"unknown key":       {strings.Replace(good, `{"version"`, `{"extra":1,"version"`, 1), `unknown field "extra"`},
		"unknown in a case": {strings.Replace(good, `"task"`, `"extra":1,"task"`, 1), `unknown field "extra"`},
		"wrong kind":        {strings.Replace(good, `"attempt":2`, `"attempt":"2"`, 1), "attempt has a value of the wrong kind"},
		"another version":   {encode(t, payload(func(p *Payload) { p.Version = 2 })), "want 1, got 2"},
		"no attempt":        {encode(t, payload(func(p *Payload) { p.Attempt = 0 })), "attempt: want 1 or more"},
		"no run":            {encode(t, payload(func(p *Payload) { p.Job.RunID = "" })), "job.runId"},
		"a path as run":     {encode(t, payload(func(p *Payload) { p.Job.RunID = "../x" })), "job.runId"},
		"no credential":     {encode(t, payload(func(p *Payload) { p.RunnerToken = "ak_x" })), "runnerToken"},
		"no lease":          {encode(t, payload(func(p *Payload) { p.LeaseToken = "" })), "leaseToken"},
		"values of secrets": {encode(t, payload(func(p *Payload) { p.Job.Env = map[string]string{"KEY": "hunter2hunter2"} })), "holds no values"},
		"a bad case":        {encode(t, payload(func(p *Payload) { p.Job.Case.Env.Kind = "moon" })), "job.case"},
		"a bad harness":     {encode(t, payload(func(p *Payload) { p.Job.Harness.Command = "" })), "job.harness.command"},
	} {
		_, err := DecodePayload([]byte(row.doc))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q in it", name, err, row.want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret\"") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: the error quotes the document: %v", name, err)
		}
	}
	if _, err := DecodePayload(bytes.Repeat([]byte(" "), MaxBodyBytes+1)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("too large: %v", err)
	}
}

// TestP12_PayloadIsNotPrinted: no way to print one shows a credential.
func TestP12_PayloadIsNotPrinted(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("payload", "payload", payload())
	for _, text := range []string{fmt.Sprint(payload()), fmt.Sprintf("%+v", payload()), fmt.Sprintf("%#v", payload()), logged.String()} {
		if strings.Contains(text, "secret") || !strings.Contains(text, "run_1.2") {
			t.Errorf("printed as %q, want the attempt alone", text)
		}
	}
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(encode(f, payload())))
	f.Add([]byte(encode(f, payload(func(p *Payload) { p.Job.Env = map[string]string{"A": "b"} }))))
	f.Add([]byte(`{"version":1,"attempt":1,"runnerToken":"rnr_","leaseToken":"t","job":{}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, err := DecodePayload(doc)
		if err != nil {
			return
		}
		// What is taken is whole, and is the same when it was written and read again.
		if p.Validate() != nil || len(p.Job.Env) > 0 || p.Attempt < 1 {
			t.Fatalf("taken was %q", doc)
		}
		again, err := DecodePayload([]byte(encode(t, p)))
		if err != nil || encode(t, again) != encode(t, p) {
			t.Fatalf("%q was read as %s, and that as %v, %v", doc, encode(t, p), again, err)
		}
	})
}

func FuzzResultIn(f *testing.F) {
	f.Add([]byte("noise\n" + ResultSentinel + `{"a":1}` + "\nmore\n"))
	f.Add([]byte(ResultSentinel + "{}\n" + ResultSentinel + "cut"))
	f.Fuzz(func(t *testing.T, output []byte) {
		got := ResultIn(output)
		if bytes.ContainsRune(got, '\n') {
			t.Fatalf("a result of several lines: %q of %q", got, output)
		}
		// One more line is the last, whatever was before it.
		more := append(bytes.Clone(output), "\n"+ResultSentinel+"{}\n"...)
		if got := string(ResultIn(more)); got != "{}" {
			t.Fatalf("of %q the last result is %q", more, got)
		}
	})
}

func TestResultIn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ output, want string }{
		"none":                   {"hello\n", ""},
		"alone":                  {ResultSentinel + "{}\n", "{}"},
		"among others":           {"a\n" + ResultSentinel + "{}\nb\n", "{}"},
		"the last of two":        {ResultSentinel + "1\n" + ResultSentinel + "2\n", "2"},
		"in the middle of words": {"x " + ResultSentinel + "1\n", ""},
		"cut off":                {ResultSentinel + "{", ""},
	} {
		if got := string(ResultIn([]byte(row.output))); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
