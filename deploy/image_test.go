package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/protocol"
)

// engine runs the container engine's own command, and returns what it printed.
func engine(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("docker", args...)
	// The builder that every engine has.
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		t.Logf("docker %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), err
}

// TestImages builds the programs as make does and the images that need no registry, and
// runs them: a coordinator that serves with its database on a volume, and a job-runner.
func TestImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Without npm the dashboard is left out, which is not what this is about.
	build := exec.Command("make", "-C", "..", "static", "job-runner", "BIN="+filepath.Join(dir, "bin"), "VERSION=image-test", "NPM=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make static job-runner: %v\n%s", err, out)
	}
	tag := func(name string) string { return "everdict-test/" + name + ":" + strings.ToLower(protocol.NewID("t")) }
	images := map[string]string{"everdict": tag("everdict"), "job-runner": tag("job-runner")}
	for name, image := range images {
		if _, err := engine(t, "build", "-q", "--network=none", "--target=bare", "-f", "../deploy/"+name+".Dockerfile", "-t", image, dir); err != nil {
			t.Fatalf("the image of %s is not built", name)
		}
		t.Cleanup(func() { _, _ = engine(t, "rmi", "-f", image) })
	}
	confined := []string{"run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
	for name, image := range images {
		out, err := engine(t, append(confined, image, "version")...)
		if err != nil || !strings.Contains(out, "image-test") {
			t.Errorf("%s says it is %q, %v", name, out, err)
		}
	}
	install := filepath.Join(dir, "install")
	if err := os.Mkdir(install, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(install, 0o777); err != nil { // the container's user is another
		t.Fatal(err)
	}
	if _, err := engine(t, append(confined, "-v", install+":/to", images["job-runner"], "install", "/to/job-runner")...); err != nil {
		t.Error("job-runner is not installed into another image's place")
	} else if out, err := exec.Command(filepath.Join(install, "job-runner"), "version").Output(); err != nil || !strings.Contains(string(out), "image-test") {
		t.Errorf("what was installed says it is %q, %v", out, err)
	}

	container := strings.ToLower(protocol.NewID("everdict-test-"))
	_, err := engine(t, "run", "-d", "--name", container, "--network=none", "--read-only", "--tmpfs=/data:uid=20250,mode=0700", "--tmpfs=/tmp",
		"--cap-drop=ALL", "--security-opt=no-new-privileges", "-e", "HOME=/data", images["everdict"], "coordinator", "--data-dir=/data/everdict", "--listen=127.0.0.1:8787")
	t.Cleanup(func() { _, _ = engine(t, "rm", "-f", container) })
	if err != nil {
		t.Fatal("the coordinator does not start")
	}
	answers := func() bool {
		return exec.Command("docker", "exec", container, "/usr/local/bin/everdict", "runs", "list", "-o", "jsonl").Run() == nil
	}
	for end := time.Now().Add(time.Minute); !answers(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			logs, _ := exec.Command("docker", "logs", container).CombinedOutput()
			t.Fatalf("the coordinator in the image does not answer: %s", logs)
		}
	}
	if _, err := engine(t, "stop", "-t", "30", container); err != nil {
		t.Error("it does not stop")
	}
	if code, err := engine(t, "inspect", "-f", "{{.State.ExitCode}}", container); err != nil || strings.TrimSpace(code) != "0" {
		t.Errorf("stopped, it ends with code %s, %v", strings.TrimSpace(code), err)
	}
}
