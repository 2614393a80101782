package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
)

// sampleReport is a machine with one of each status. What machines say of themselves is not trusted.
func sampleReport(canWork bool) doctor.Report {
	found := &endpoint.Found{Candidates: []endpoint.Candidate{
		{Source: endpoint.FromCurrentContext, Context: "co\x1b[31mlima", Host: "unix:///c.sock", State: endpoint.Passed, Reason: "nobody listens there", Mend: "colima start"},
		{Source: endpoint.FromDefault, Host: "unix:///var/run/docker.sock", State: endpoint.Passed, Reason: "current context colima decides"},
	}}
	status := doctor.OK
	if !canWork {
		status = doctor.Missing
	}
	return doctor.Report{CanWork: canWork, Capabilities: []string{"git", "codex-login"}, Checks: []doctor.Check{
		{ID: "coordinator", Status: status, Required: true, Evidence: "http://127.0.0.1:8787", Mend: map[bool]string{false: "everdict up"}[canWork]},
		{ID: "git", Capability: true, Status: doctor.OK, Evidence: "git version 2.39.5 \x1b]0;x\x07(/usr/bin/git)"},
		{ID: "docker", Capability: true, Status: doctor.Missing, Evidence: "no container engine answers", Mend: "colima start", Docker: found},
		{ID: "codex-login", Capability: true, Status: doctor.Warn, Evidence: "~/.codex/auth.json is there, but no codex is on the PATH", Mend: "install codex"},
	}}
}

func TestDoctorTable(t *testing.T) {
	t.Parallel()
	for name, canWork := range map[string]bool{"doctor-works": true, "doctor-missing": false} {
		a := newTestApp(t, "")
		a.output = "table"
		a.printReport(sampleReport(canWork))
		if strings.ContainsAny(a.stdout.String(), "\x1b\x07") {
			t.Errorf("%s: a control character reached stdout: %q", name, &a.stdout)
		}
		golden(t, name+".txt", a.stdout.String())
	}
}

// TestDoctorExitCodes: 0 when a runner could work, 1 when not, 2 when it could not be found out.
func TestDoctorExitCodes(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		name    string
		canWork bool
		err     error
		code    int
	}{{"works", true, nil, 0}, {"does not", false, nil, 1}, {"unknown", true, broken, 2}} {
		for _, output := range []string{"table", "json"} {
			a := newTestApp(t, "")
			a.hooks.Doctor = func(context.Context, RunnerOptions) (doctor.Report, error) { return sampleReport(tt.canWork), tt.err }
			if code := a.run(t.Context(), []string{"doctor", "-o", output}); code != tt.code {
				t.Errorf("%s, -o %s: exit code %d, want %d; stderr %s", tt.name, output, code, tt.code, &a.stderr)
			}
		}
	}
}

func TestGarbageTable(t *testing.T) {
	t.Parallel()
	report := agent.GarbageReport{InUse: "a runner works with /s", Items: []agent.Garbage{
		{Kind: "container", Driver: "docker", Attempt: "run_a.1", Processes: 3},
		{Kind: agent.GarbageWorkspace, Attempt: "run_a.1", Path: "/w/work/run_a.1", Bytes: 5 << 20},
		{Kind: agent.GarbageWorkspace, Attempt: "run_b.1", Path: "/w/work/run_b.1", Bytes: 7, Error: "permission\ndenied"},
	}}
	a := newTestApp(t, "")
	a.hooks.GC = func(_ context.Context, o GCOptions) (agent.GarbageReport, error) {
		if o.DryRun || o.StateDir != "/s" || o.WorkDir != "" || o.Log == nil {
			t.Errorf("options: got %+v", o)
		}
		return report, errors.New("permission denied")
	}
	if code := a.run(t.Context(), []string{"runner", "gc", "--state-dir", "/s"}); code != exitError {
		t.Errorf("something is left: exit code %d, want %d", code, exitError)
	}
	golden(t, "gc.txt", a.stdout.String())
	if got := a.stderr.String(); !strings.Contains(got, "a runner works with /s: its directories were left alone") || !strings.Contains(got, "next: everdict runner gc --dry-run") {
		t.Errorf("stderr: got %s", got)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 20 << 30: "20.0 GiB", 3 << 50: "3072.0 TiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d): got %s, want %s", n, got, want)
		}
	}
}
