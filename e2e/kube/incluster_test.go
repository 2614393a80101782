//go:build kube

package kube

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/protocol"
)

// insideEnv says that a test has a mount namespace of its own.
const insideEnv = "EVERDICT_TEST_INSIDE"

// TestACoordinatorInTheCluster: where a runtime names no credential and no namespace, it
// launches with the service account of the coordinator's Pod, in that Pod's namespace. A
// Pod finds both at a fixed path, which this test has to itself in a second process.
func TestACoordinatorInTheCluster(t *testing.T) {
	t.Parallel()
	if os.Getenv(insideEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), insideEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("in a Pod's place: %v\n%s", err, out)
		}
		return
	}
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		inPlaceOfAPod(t, s.Namespace)
		s.Namespace, s.KubeconfigSecret = "", ""
	})
	if p := h.Probe("cluster"); !p.Reachable || !strings.Contains(p.Detail, "namespace "+ns) {
		t.Errorf("probe: %+v, want the namespace of the coordinator's Pod, %s", p, ns)
	}
	succeeded(t, h.Settled(h.Submit(on("say hello"))), 1)
	noUnits(t, ns)
}

// inPlaceOfAPod gives this process what a Pod has of the launcher's service account.
func inPlaceOfAPod(t *testing.T, ns string) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(os.Getenv("EVERDICT_KUBE_STATE"), "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"token": launcher(t, ns), "namespace": ns, "ca.crt": string(ca)}
	run, err := filepath.EvalSymlinks("/var/run")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(run, "secrets", "kubernetes.io", "serviceaccount")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.Setenv, which a parallel test may not use: nothing else runs in this process.
	for name, value := range map[string]string{"KUBERNETES_SERVICE_HOST": server.Hostname(), "KUBERNETES_SERVICE_PORT": server.Port()} {
		if err := os.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
	}
}
