package e2e

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestF27_P12_TheJobCannotSeeTheRunnersToken: however the token was given, a job
// finds it in no environment, no command line and no file.
func TestF27_P12_TheJobCannotSeeTheRunnersToken(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	for _, way := range []string{"stdin", "file", "variable", "argument"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := house.New(t)
			paired := h.Pair("laptop")
			dir := t.TempDir()
			state := filepath.Join(dir, "state")
			file := filepath.Join(dir, "token")
			house.NewProcess(t, "runner", func() *exec.Cmd {
				args := []string{"runner", "--api-url=" + h.URL(), "--state-dir=" + state, "--work-dir=" + filepath.Join(dir, "work")}
				env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
				var stdin io.Reader
				switch way {
				case "stdin":
					args, stdin = append(args, "--pair=-"), strings.NewReader(paired.Token+"\n")
				case "file":
					if err := os.WriteFile(file, []byte(paired.Token), 0o600); err != nil {
						t.Error(err)
					}
					args = append(args, "--pair=file:"+file)
				case "variable":
					env = append(env, "EVERDICT_RUNNER_TOKEN="+paired.Token)
				case "argument":
					args = append(args, "--pair="+paired.Token)
				}
				cmd := exec.Command(bin, args...)
				cmd.Env, cmd.Stdin = env, stdin
				return cmd
			})
			h.Online(paired.Runner.ID)
			if way == "file" {
				if err := os.Remove(file); err != nil { // whoever wrote it there takes it away
					t.Fatal(err)
				}
			}
			req := house.Scripted("run env > seen; cat /proc/*/environ /proc/*/cmdline >> seen 2>/dev/null; grep -rs '' " + state + " >> seen; true")
			req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
			id := h.Submit(req)
			if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
				t.Fatalf("run: got %s %+v", run.Status, run.Failure)
			}
			diff, err := h.Client.Diff(context.Background(), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer diff.Close()
			seen, err := io.ReadAll(diff)
			if err != nil {
				t.Fatal(err)
			}
			// The diff is binary, and so packed; what the job saw comes out of it.
			repo := t.TempDir()
			apply := exec.Command("git", "apply", "--unsafe-paths", "--directory="+repo, "-")
			apply.Stdin = strings.NewReader(string(seen))
			apply.Dir = repo
			if out, err := apply.CombinedOutput(); err != nil {
				t.Fatalf("apply the diff: %v: %s", err, out)
			}
			found, err := os.ReadFile(filepath.Join(repo, "seen"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(found), "EVERDICT_RUN_ID") {
				t.Errorf("the job saw nothing of its own: %d bytes", len(found))
			}
			if strings.Contains(string(found), paired.Token) {
				t.Error("the job saw the runner's token")
			}
		})
	}
}
