package e2e

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/kube"
	"github.com/everdict/everdict/protocol"
)

// oneSecret is the only one there is.
type oneSecret string

func (s oneSecret) Secret(context.Context, string, string) (string, error) { return string(s), nil }

// kubeconfigChild says to a process that it is the one that may write no file.
const kubeconfigChild = "EVERDICT_TEST_KUBECONFIG"

// TestP12_AKubeconfigStaysInMemory: a cluster is asked with the credential of a kubeconfig
// by a process that cannot write a byte to any file (RLIMIT_FSIZE), so that nothing is
// left of it after a crash either.
func TestP12_AKubeconfigStaysInMemory(t *testing.T) {
	if doc := os.Getenv(kubeconfigChild); doc != "" {
		askWithoutFiles(t, doc)
		return
	}
	t.Parallel()
	var asked atomic.Int32
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer cluster-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost { // may it launch?
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
			return
		}
		fmt.Fprint(w, `{"major":"1","minor":"34","gitVersion":"v1.34.4"}`)
	}))
	defer cluster.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw}))
	doc := "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"clusters: [{name: c, cluster: {server: \"" + cluster.URL + "\", certificate-authority-data: " + ca + "}}]\n" +
		"users: [{name: u, user: {token: cluster-token}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	home := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "XDG_CACHE_HOME=" + home, "PATH=" + os.Getenv("PATH"), kubeconfigChild + "=" + doc}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") || asked.Load() == 0 {
		t.Errorf("the cluster was asked %d times, %v:\n%s", asked.Load(), err, out)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("left is %v, %v; want nothing", left, err)
	}
}

// askWithoutFiles is the process that may write no file.
func askWithoutFiles(t *testing.T, doc string) {
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	// For the test's own sake: a file cannot be written to.
	if err := os.WriteFile("probe", []byte("x"), 0o600); err == nil {
		t.Fatal("a file could be written")
	}
	if err := os.Remove("probe"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "k", Version: "1", Image: "i", KubeconfigSecret: "CONFIG"}
	provider, err := kube.New(kube.Config{Secrets: oneSecret(doc)}).Open(ctx, fleet.Target{Coordinator: "c", Workspace: "default", Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	if detail, err := provider.Probe(ctx); err != nil || !strings.Contains(detail, "v1.34.4") {
		t.Errorf("the cluster says %q, %v", detail, err)
	}
}
