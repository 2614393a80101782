package protocol

import (
	"errors"
	"strings"
	"testing"
)

// TestP15_OriginIsSmall: what each row of a list has of where a run comes from is bounded.
func TestP15_OriginIsSmall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		origin Origin
		want   string
	}{
		"as it is":    {origin: Origin{Cause: "ci", EventID: strings.Repeat("é", maxOrigin/2)}},
		"an event":    {origin: Origin{EventID: strings.Repeat("x", maxOrigin+1)}, want: "origin.eventId: want at most 512 bytes, got 513"},
		"an executor": {origin: Origin{Executor: strings.Repeat("x", 1<<20)}, want: "origin.executor"},
		"a cause":     {origin: Origin{Cause: "moon"}, want: "origin.cause"},
	} {
		r := RunRequest{Harness: HarnessRef{ID: "scripted"}, Case: Case{ID: "c", Env: EnvSpec{Kind: EnvPrompt}, Task: "x"}, Origin: &row.origin}
		err := r.Validate()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

// TestP15_NULBytesAreRefused: what becomes an argument, a variable or a path of a process
// cannot hold one, and is refused before any runner finds out.
func TestP15_NULBytesAreRefused(t *testing.T) {
	t.Parallel()
	const bad = "a\x00b"
	run := func(edit func(r *RunRequest)) error {
		r := &RunRequest{Harness: HarnessRef{ID: "h"}, Case: Case{ID: "c", Task: "do it", Env: EnvSpec{Kind: EnvRepo, Source: &RepoSource{Files: map[string]string{}}}}}
		edit(r)
		return r.Validate()
	}
	harness := func(edit func(h *HarnessSpec)) error {
		h := &HarnessSpec{Kind: HarnessCommand, ID: "h", Version: "1", Command: "agent"}
		edit(h)
		return h.Validate()
	}
	for path, err := range map[string]error{
		"case.task":        run(func(r *RunRequest) { r.Case.Task = bad }),
		"case.env.setup":   run(func(r *RunRequest) { r.Case.Env.Setup = []string{"true", bad} }),
		"case.env.context": run(func(r *RunRequest) { r.Case.Env.Context = bad }),
		"harness.params.p": run(func(r *RunRequest) { r.Harness.Params = map[string]string{"p": bad} }),
		"harness.command":  harness(func(h *HarnessSpec) { h.Command = bad }),
		"harness.setup":    harness(func(h *HarnessSpec) { h.Setup = []string{bad} }),
		"harness.env.E":    harness(func(h *HarnessSpec) { h.Env = map[string]EnvValue{"E": {Value: bad}} }),
		"harness.params.q": harness(func(h *HarnessSpec) { h.Params = map[string]string{"q": bad} }),
	} {
		if err == nil || err.Error() != path+": contains a NUL byte" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(run(func(*RunRequest) {}), harness(func(*HarnessSpec) {})); err != nil {
		t.Error(err)
	}
}
