package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestF37_PrivateCAInAContainer: a job in a container calls a TLS server under the company's CA; it trusts it when
// the runner was told to pass the CA, and not else. The proxy's variables follow their own choice.
func TestF37_PrivateCAInAContainer(t *testing.T) {
	t.Parallel()
	gateway := gateway(t)
	l, err := net.Listen("tcp", net.JoinHostPort(gateway.String(), "0"))
	if err != nil {
		t.Fatalf("listen where containers reach the host: %v", err)
	}
	corp := &corporation{caFile: filepath.Join(t.TempDir(), "ca.pem")}
	serveTLS(t, l, corp.certificate(t, gateway), repository())

	h := house.New(t)
	environ := append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:9", "no_proxy="+gateway.String())
	for _, tt := range []struct {
		label string
		pass  bool
		want  string
	}{
		{"passes", true, "trusted proxied"},
		{"keeps", false, "stranger direct"},
	} {
		r := h.Runner(tt.label, containers(t), func(c *agent.Config) {
			c.CAFile, c.PassCA, c.WithholdProxy, c.Environ = corp.caFile, tt.pass, !tt.pass, environ
		})
		script := fmt.Sprintf(`run git ls-remote https://%s/r >/dev/null && a=trusted || a=stranger; [ -n "$HTTPS_PROXY" ] && b=proxied || b=direct; echo "$a $b" > seen.txt`, l.Addr())
		req := inImage(debian, script)
		req.Runtime = r.Target
		req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
		req.Case.Network = &protocol.Network{Mode: protocol.NetworkPublic}
		run := h.Settled(h.Submit(req))
		if run.Status != protocol.StatusSucceeded || !strings.Contains(run.Result.Snapshot.Diff, "+"+tt.want+"\n") {
			t.Errorf("%s: the job saw %q, want %q; failure %+v", tt.label, run.Result.Snapshot.Diff, tt.want, run.Failure)
		}
	}
}

// repository answers git as a web server with files in it does.
func repository() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/r/info/refs", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%040d\trefs/heads/main\n", 1)
	})
	mux.HandleFunc("/r/HEAD", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ref: refs/heads/main") })
	return mux
}

// gateway is the host, as containers see it: "default via 172.17.0.1 dev eth0".
func gateway(t *testing.T) net.IP {
	t.Helper()
	out, err := exec.Command("docker", "run", "--rm", "--pull", "never", busybox, "ip", "route", "show", "default").CombinedOutput()
	if err != nil {
		t.Fatalf("docker run: %v: run make deps\n%s", err, out)
	}
	_, via, _ := strings.Cut(string(out), "via ")
	address, _, _ := strings.Cut(via, " ")
	ip := net.ParseIP(address)
	if ip == nil {
		t.Fatalf("a container's default route is %q", out)
	}
	return ip
}
