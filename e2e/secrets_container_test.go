package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestP12_ASecretInAContainer: a job in a container has its secrets, and neither the
// engine's description of the container, its processes' command lines, the runner's
// state nor the evidence has them.
func TestP12_ASecretInAContainer(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	r := h.Runner("laptop", containers(t))
	setSecret(t, h.Client, "DEPLOY_TOKEN", protocol.SecretWorkspace, firstToken)
	setSecret(t, h.Client, "OWN_TOKEN", protocol.SecretUser, ownToken)
	register(t, h.Client, "deploys", `printf %s "$TOKEN" | sha256sum > sum; echo "plain $TOKEN and $OWN"; : > there; while [ ! -e go ]; do sleep 0.1; done`)
	req := secretive("deploys", r.Target)
	req.Case.Image = busybox
	id := h.Submit(req)
	work := filepath.Join(agent.WorkRoot(r.Config.WorkDir), id+".1", "work")
	house.Eventually(t, "the job has its secrets", func() bool {
		_, err := os.Stat(filepath.Join(work, "there"))
		return err == nil || h.Run(id).Status.Terminal()
	})
	names := ours(t, id)
	if len(names) != 1 {
		t.Fatalf("the containers of the run: %v; it is %+v", names, h.Run(id).Failure)
	}
	look := func(where string, content []byte) {
		t.Helper()
		searchFor(t, firstToken, where, content)
		searchFor(t, ownToken, where, content)
	}
	for _, args := range [][]string{{"inspect", names[0]}, {"top", names[0], "-eo", "pid,args"}} {
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v: %s", args, err, out)
		}
		look("docker "+args[0], out)
	}
	for _, v := range []string{firstToken, ownToken} {
		searchDirFor(t, v, "the runner's state, while the job runs", r.Config.StateDir)
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Fatalf("run: got %s %+v", run.Status, run.Failure)
	}
	for _, path := range []string{"", "/logs?raw=1", "/trace", "/diff", "/events", "/attempts"} {
		look("GET /runs/{id}"+path, fetch(t, h, "/runs/"+id+path))
	}
	if log := fetch(t, h, "/runs/"+id+"/logs?raw=1"); !bytes.Contains(log, []byte("plain [redacted:TOKEN] and [redacted:OWN]")) {
		t.Errorf("the log: %s", log)
	}
	if patch := fetch(t, h, "/runs/"+id+"/diff"); !bytes.Contains(patch, fmt.Appendf(nil, "+%x  -", sha256.Sum256([]byte(firstToken)))) {
		t.Errorf("the job did not have the value; its diff: %s", patch)
	}
	gone(t, id)
}
