package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestF36_DoctorAndRunnerAgree: what a runner announces is what doctor shows, also where the engine's socket is stale.
func TestF36_DoctorAndRunnerAgree(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]string{"as it is": "", "named and gone": "unix:///nowhere.sock"} {
		environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DOCKER_HOST=" + host}
		want := doctor.Examine(t.Context(), doctor.Config{Environ: environ}).Capabilities
		r := h.Runner(name, func(c *agent.Config) { c.Environ = environ })
		h.Online(r.ID)
		all, err := h.Client.Runners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(x protocol.Runner) bool { return x.ID == r.ID })
		got := slices.Sorted(slices.Values(all[i].Capabilities))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the runner offers %v, doctor shows %v", name, got, want)
		}
		if !slices.Contains(got, protocol.CapClaudeLogin) || host != "" && slices.Contains(got, protocol.CapDocker) {
			t.Errorf("%s: offered is %v, want the login, and no engine that is gone", name, got)
		}
	}
}

// TestP6_F14_GCAfterKill9: what a runner leaves that is killed with its job, gc shows and then removes.
func TestP6_F14_GCAfterKill9(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	bin, dir := binary(t), t.TempDir()
	paired := h.Pair("doomed")
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(paired.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	places := []string{"--state-dir", filepath.Join(dir, "s"), "--work-dir", filepath.Join(dir, "w")}
	everdict := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, append(args, places...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(), "DOCKER_HOST=unix:///nowhere.sock"}
		return cmd
	}
	p := house.NewProcess(t, "runner", func() *exec.Cmd {
		return everdict("runner", "--pair", "file:"+token, "--api-url", h.URL(), "--capabilities", "git")
	})
	ticks := filepath.Join(dir, "ticks")
	req := ticking(ticks)
	req.Runtime = protocol.TargetSelfPrefix + paired.Runner.ID
	id := h.Submit(req)
	h.Running(id)
	grows(t, ticks)

	gc := func(args ...string) (report agent.GarbageReport) {
		t.Helper()
		cmd := everdict(append([]string{"runner", "gc", "-o", "json"}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gc: %v\n%s", err, out)
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("gc printed %q: %v", out, err)
		}
		return report
	}
	mine := func(r agent.GarbageReport) (kinds []string) {
		for _, g := range r.Items {
			if g.Attempt == id+".1" {
				kinds = append(kinds, g.Kind)
			}
		}
		return kinds
	}
	if r := gc(); r.InUse == "" || len(mine(r)) != 0 {
		t.Errorf("beside the living runner gc reports %+v, want to hear that it is in use", r)
	}
	grows(t, ticks) // gc has not ended it

	p.Kill()
	standsStill(t, ticks)
	if r := gc("--dry-run"); r.InUse != "" || !slices.Contains(mine(r), agent.GarbageWorkspace) {
		t.Errorf("after the kill gc --dry-run reports %+v, want the workspace of %s.1", r, id)
	}
	workspace := filepath.Join(dir, "w", "work", id+".1")
	if _, err := os.Stat(workspace); err != nil {
		t.Fatalf("the dry run removed the workspace: %v", err)
	}
	if r := gc(); !slices.Contains(mine(r), agent.GarbageWorkspace) {
		t.Errorf("gc reports %+v, want the workspace of %s.1", r, id)
	}
	if _, err := os.Stat(workspace); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
	if r := gc(); len(mine(r)) != 0 {
		t.Errorf("a second gc reports %+v, want nothing", r)
	}
	// The attempt that was not finished is still the runner's to report.
	if entries, err := os.ReadDir(filepath.Join(dir, "s", "outbox")); err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), id) }) {
		t.Errorf("the outbox holds %v, %v, want the attempt of %s", entries, err, id)
	}
}
