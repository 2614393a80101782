package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// corporation is a network as companies have it: the coordinator is known by a name that only the proxy can resolve,
// the proxy wants a login, and the certificate is of the company's own CA.
type corporation struct {
	url     string // of the coordinator
	caFile  string
	proxy   string // with its login
	server  string // address of the TLS server, for those who are inside
	tunnels atomic.Int64
}

const (
	corporateName  = "everdict.corp.test"
	corporateLogin = "bert:h0rseb4ttery"
)

func newCorporation(t *testing.T, h *house.House) *corporation {
	t.Helper()
	c := &corporation{url: "https://" + corporateName, caFile: filepath.Join(t.TempDir(), "ca.pem")}
	target, err := url.Parse(h.URL())
	if err != nil {
		t.Fatal(err)
	}
	// It puts the coordinator's own address into Host: without login it answers under no name.
	front := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveTLS(t, l, c.certificate(t), front)
	c.server = l.Addr().String()

	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(corporateLogin)) {
			w.Header().Set("Proxy-Authenticate", `Basic realm="corp"`)
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
			return
		}
		if r.Method != http.MethodConnect || r.Host != corporateName+":443" {
			http.Error(w, "no such place", http.StatusBadGateway)
			return
		}
		c.tunnel(w)
	}))
	t.Cleanup(proxy.Close)
	c.proxy = strings.Replace(proxy.URL, "http://", "http://"+corporateLogin+"@", 1)
	return c
}

// serveTLS answers on a listener until the test ends.
func serveTLS(t *testing.T, l net.Listener, certificate tls.Certificate, handler http.Handler) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of those who do not trust it
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
}

// tunnel joins the client of a CONNECT and the TLS server.
func (c *corporation) tunnel(w http.ResponseWriter) {
	inside, err := net.Dial("tcp", c.server)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer inside.Close()
	outside, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer outside.Close()
	c.tunnels.Add(1)
	fmt.Fprint(outside, "HTTP/1.1 200 Connection established\r\n\r\n")
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(inside, buffered); done <- struct{}{} }()
	go func() { _, _ = io.Copy(outside, inside); done <- struct{}{} }()
	<-done
}

// certificate is one of a CA that is made here and written to caFile.
func (c *corporation) certificate(t *testing.T, addresses ...net.IP) tls.Certificate {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(template, parent *x509.Certificate, public any, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	caKey, leafKey := key(), key()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Corp CA"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER := sign(ca, ca, &caKey.PublicKey, caKey)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: corporateName}, NotBefore: from, NotAfter: to,
		DNSNames: []string{corporateName}, IPAddresses: append(addresses, net.IPv4(127, 0, 0, 1)),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der := sign(leaf, ca, &leafKey.PublicKey, caKey)
	if err := os.WriteFile(c.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leafKey}
}

// command is the everdict command on a machine of the corporation.
func (c *corporation) command(bin, home string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin, args...)
	cmd.Dir = home
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "EVERDICT_API_URL=" + c.url, "HTTPS_PROXY=" + c.proxy,
		"DOCKER_HOST=unix:///nowhere.sock"}, env...)
	return cmd
}

// TestF37_CorporateProxyAndPrivateCA pairs a machine, runs a runner and a job there, with everything that the network
// asks for given to the command line, and sees what of it the job gets.
func TestF37_CorporateProxyAndPrivateCA(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl to play the job's TLS client")
	}
	h := house.New(t)
	corp := newCorporation(t, h)
	bin, home := binary(t), t.TempDir()
	run := func(code int, env []string, args ...string) string {
		t.Helper()
		cmd := corp.command(bin, home, env, args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("everdict %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
		}
		if strings.Contains(string(out), "h0rseb4ttery") {
			t.Errorf("everdict %s shows the proxy's password:\n%s", strings.Join(args, " "), out)
		}
		return string(out)
	}

	// Without the CA nothing is sent, and the way out is named.
	if out := run(2, nil, "runners", "pair", "--token-file", "no"); !strings.Contains(out, "--ca-file") {
		t.Errorf("pairing without the CA says\n%s, want --ca-file", out)
	}
	if out := run(1, nil, "doctor"); !strings.Contains(out, "of a CA that is not trusted here") || !strings.Contains(out, "...@127.0.0.1") {
		t.Errorf("doctor without the CA says\n%s", out)
	}
	if out := run(1, []string{"HTTPS_PROXY=" + strings.Replace(corp.proxy, corporateLogin+"@", "", 1)}, "doctor"); !strings.Contains(out, "roxy") || strings.Contains(out, "coordinator      ok") {
		t.Errorf("doctor without the proxy's login says\n%s", out)
	}
	if out := run(1, []string{"NO_PROXY=" + corporateName}, "doctor", "--ca-file", corp.caFile); !strings.Contains(out, "none for "+corporateName) {
		t.Errorf("doctor with NO_PROXY says\n%s", out)
	}
	run(0, nil, "runners", "pair", "--label", "direct", "--token-file", "token", "--ca-file", corp.caFile)
	run(0, []string{"EVERDICT_CA_FILE=" + corp.caFile}, "runners", "pair", "--label", "shy", "--token-file", "token2")

	// seen is what a job of a runner saw.
	seen := func(label string, env []string, flags ...string) string {
		t.Helper()
		state := t.TempDir()
		p := house.NewProcess(t, "runner "+label, func() *exec.Cmd {
			return corp.command(bin, home, env, append([]string{"runner", "--state-dir", filepath.Join(state, "s"), "--work-dir", filepath.Join(state, "w")}, flags...)...)
		})
		var id string
		house.Eventually(t, label+" is online", func() bool {
			all, err := h.Client.Runners(t.Context())
			for _, r := range all {
				if r.Label == label && r.Online {
					id = r.ID
				}
			}
			return err == nil && id != ""
		})
		file := filepath.Join(t.TempDir(), "seen")
		req := house.Scripted(fmt.Sprintf(`run { %s -sf --noproxy '*' https://%s/healthz >/dev/null && echo trusted || echo stranger; echo "proxy=$HTTPS_PROXY"; } > %s`, curl, corp.server, file))
		req.Runtime = protocol.TargetSelfPrefix + id
		if r := h.Settled(h.Submit(req)); r.Status != protocol.StatusSucceeded {
			t.Fatalf("%s: got %s, %+v", label, r.Status, r.Failure)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if tail := p.Tail(1 << 20); strings.Contains(tail, "h0rseb4ttery") {
			t.Errorf("%s logs the proxy's password:\n%s", label, tail)
		} else if warned := strings.Contains(tail, "jobs can read the login of the proxy"); warned != strings.Contains(string(b), corporateLogin) {
			t.Errorf("%s warns of the proxy's password: %t; its job saw\n%s", label, warned, b)
		}
		if code := p.Terminate(); code != 0 {
			t.Errorf("%s ended with code %d", label, code)
		}
		return string(b)
	}
	before := corp.tunnels.Load()
	if got, want := seen("direct", nil, "--pair", "file:token", "--ca-file", corp.caFile, "--pass-ca"), "trusted\nproxy="+corp.proxy+"\n"; got != want {
		t.Errorf("a job with --pass-ca saw\n%s, want\n%s", got, want)
	}
	if got, want := seen("shy", []string{"EVERDICT_CA_FILE=" + corp.caFile}, "--pair", "file:token2", "--pass-proxy=false"), "stranger\nproxy=\n"; got != want {
		t.Errorf("a job with --pass-proxy=false saw\n%s, want\n%s", got, want)
	}
	if corp.tunnels.Load() < before+2 {
		t.Errorf("the runners made %d tunnels, want one each", corp.tunnels.Load()-before)
	}
}
