package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestP4_LinksOfAJob: where a job made links to the host of directories that the runner goes into after it, nothing behind
// the links is written, removed or told, whatever the sandbox.
func TestP4_LinksOfAJob(t *testing.T) {
	t.Parallel()
	for name, image := range map[string]string{"process": "", "docker": busybox} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := house.New(t)
			var with []func(*agent.Config)
			if image != "" {
				with = append(with, containers(t))
			}
			h.Runner("laptop", with...)
			host := t.TempDir()
			for file, content := range map[string]string{"precious": "precious", protocol.DefaultTracePath: `{"kind":"log","t":1,"stream":"stdout","text":"told"}`} {
				if err := os.WriteFile(filepath.Join(host, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			spec, err := json.Marshal(protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "linking-" + name, Version: "1", WorkDir: "work/sub",
				Setup: []string{}, Command: "rmdir ../sub && ln -s " + host + " ../sub", Trace: &protocol.CommandTrace{Kind: protocol.TraceFile}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Client.RegisterHarness(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			req := house.Scripted("")
			req.Harness = protocol.HarnessRef{ID: "linking-" + name, Version: "1"}
			req.Case.Image = image
			req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"sub/.keep": ""}}, Setup: []string{"rm sub/.keep"}}
			for _, config := range []string{
				`{"language":"python","code":"print(1)","cwd":"work/sub","contextPath":"precious"}`,
				`{"language":"python","code":"print(1)","contextPath":"sub/precious"}`,
				`{"language":"python","entrypoint":"precious","cwd":"work/sub"}`,
			} {
				req.Case.Graders = append(req.Case.Graders, protocol.GraderSpec{ID: protocol.GraderScript, Config: json.RawMessage(config)})
			}
			run := h.Settled(h.Submit(req))
			if run.Status != protocol.StatusSucceeded {
				t.Fatalf("run: got %s %+v", run.Status, run.Failure)
			}
			if len(run.Scores) != len(req.Case.Graders) {
				t.Errorf("%d scores, want %d", len(run.Scores), len(req.Case.Graders))
			}
			for _, s := range run.Scores {
				if s.Reason != protocol.ReasonGraderError {
					t.Errorf("score %+v, want %s", s, protocol.ReasonGraderError)
				}
			}
			said := false
			for _, ev := range run.Result.Trace {
				if ev.Text != nil && *ev.Text == "told" {
					t.Error("the trace has a file of the host's")
				}
				said = said || strings.HasPrefix(ev.Message, "no trace: ")
			}
			if !said {
				t.Error("no event says that there is no trace file")
			}
			if b, err := os.ReadFile(filepath.Join(host, "precious")); string(b) != "precious" || err != nil {
				t.Errorf("the host's file is %q, %v", b, err)
			}
			if left, err := os.ReadDir(host); len(left) != 2 || err != nil {
				t.Errorf("the host's directory has %v, %v", left, err)
			}
		})
	}
}

// TestP12_F27_SourceOfWhatIsHidden: the state of the runner, and what other runners list, is copied for no job.
func TestP12_F27_SourceOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	listed, own := t.TempDir(), t.TempDir()
	r := h.Runner("laptop", func(c *agent.Config) {
		c.Hide, c.Listed = []string{own}, func() []string { return []string{listed} }
	})
	for _, path := range []string{r.Config.StateDir, filepath.Join(r.Config.StateDir, "outbox"), own, listed} {
		req := house.Scripted("run ls")
		req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Path: path}}
		run := h.Settled(h.Submit(req))
		if f := run.Failure; run.Status != protocol.StatusFailed || f == nil || f.Class != protocol.ClassConfig || !strings.Contains(f.Message, "hidden from jobs") {
			t.Errorf("%s: got %s %+v, want a refusal", path, run.Status, f)
		}
	}
}
