package endpoint

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestF36_AsTheDockerCommand compares the choice with that of the docker command itself, where it is installed; no
// engine is needed for that.
func TestF36_AsTheDockerCommand(t *testing.T) {
	t.Parallel()
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Skip("there is no docker command on this machine to compare with")
	}
	for _, tt := range []struct {
		name    string
		env     []string
		current string
	}{
		{name: "nothing"},
		{name: "host", env: []string{"DOCKER_HOST=unix:///srv/d.sock"}},
		{name: "host without a scheme", env: []string{"DOCKER_HOST=127.0.0.1:4000"}},
		{name: "host without a port", env: []string{"DOCKER_HOST=tcp://127.0.0.1"}},
		{name: "context", env: []string{"DOCKER_CONTEXT=one"}},
		{name: "host and context", env: []string{"DOCKER_HOST=tcp://127.0.0.1:4000", "DOCKER_CONTEXT=one"}},
		{name: "current", current: "two"},
		{name: "context over current", env: []string{"DOCKER_CONTEXT=one"}, current: "two"},
		{name: "default over current", env: []string{"DOCKER_CONTEXT=default"}, current: "two"},
		{name: "host over current", env: []string{"DOCKER_HOST=unix:///srv/d.sock"}, current: "two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			env := append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "DOCKER_CONFIG=" + dir}, tt.env...)
			run := func(env []string, args ...string) string {
				cmd := exec.Command(docker, args...)
				cmd.Env = env
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				return strings.TrimSpace(string(out))
			}
			// The docker command writes the contexts itself: its own format is what is read.
			for name, host := range map[string]string{"one": "unix:///one.sock", "two": "tcp://127.0.0.1:2222"} {
				run(env[:3], "context", "create", name, "--docker", "host="+host)
			}
			if tt.current != "" {
				run(env[:3], "context", "use", tt.current)
			}
			var theirs []struct {
				Endpoints struct{ Docker struct{ Host string } }
			}
			chosen := run(env, "context", "show")
			if err := json.Unmarshal([]byte(run(env, "context", "inspect", chosen)), &theirs); err != nil {
				t.Fatal(err)
			}
			want := theirs[0].Endpoints.Docker.Host

			got := ""
			for _, c := range This(env).Candidates() {
				if c.Mend != "" { // not passed over for another
					got = c.Host
					break
				}
			}
			if got != want {
				t.Errorf("got %s, the docker command takes %s (context %s)", got, want, chosen)
			}
			if _, err := os.Stat(filepath.Join(dir, "config.json")); tt.current != "" && err != nil {
				t.Errorf("the docker command kept no current context: %v", err)
			}
		})
	}
}
