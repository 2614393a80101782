package endpoint

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// socketDir is short enough for a socket's path.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

const (
	versionAnswer = `{"Platform":{"Name":""},"Components":[{"Name":"Engine"}],"Version":"20.10.24","ApiVersion":"1.41","Os":"linux","Arch":"amd64","KernelVersion":"6.1"}`
	infoAnswer    = `{"OperatingSystem":"Debian 12","Driver":"overlay2","CgroupDriver":"cgroupfs","CgroupVersion":"1","DefaultRuntime":"runc",
		"Runtimes":{"runsc":{"path":"runsc"},"runc":{"path":"runc"}},"SecurityOptions":["name=seccomp,profile=default"],"NCPU":2,"MemTotal":4096}`
)

func engineHandler(version, info string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version) })
	mux.HandleFunc("/info", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, info) })
	return mux
}

// engine answers on a socket as an engine does.
func engine(t *testing.T, path string, handler http.Handler) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}

// silent listens on a socket, takes connections and never answers.
func silent(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

// stale leaves a socket file behind which nobody listens.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func open(source Source, path string) Candidate {
	return Candidate{Source: source, Host: "unix://" + path, State: Open, Reason: "the socket is there", Mend: "start it"}
}

// TestF36_FirstThatAnswers checks that a stale socket, a silent engine and a server that is none are passed over, each
// with its reason, and that the first in order is taken, not the fastest.
func TestF36_FirstThatAnswers(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	stale(t, at("stale"))
	silent(t, at("silent"))
	engine(t, at("web"), http.NotFoundHandler())
	engine(t, at("old"), engineHandler(`{"Version":"19.03.1","ApiVersion":"1.40"}`, "{}"))
	slow := make(chan struct{})
	engine(t, at("slow"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-slow
		engineHandler(versionAnswer, infoAnswer).ServeHTTP(w, r)
	}))
	engine(t, at("fast"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		engineHandler(versionAnswer, infoAnswer).ServeHTTP(w, r)
		if r.URL.Path == "/info" {
			close(slow) // the second in order has answered before the first does
		}
	}))
	f := find(t.Context(), []Candidate{
		open(FromDefault, at("stale")), open(FromRootless, at("silent")), open(FromDesktop, at("web")), open(FromColima, at("old")),
		open(FromRancher, at("gone")), open(FromPodman, at("slow")), open(FromPodman, at("fast")),
	}, time.Second, time.Minute)
	for i, want := range []string{
		"nobody listens there", "it did not answer within 1s", "it does not answer as an engine does: status 404",
		`it speaks API "1.40", and 1.41 (Docker 20.10) or newer is needed`, "there is no such socket",
		"nobody answers on the default socket, and this one does", "podman answers, too, and comes first",
	} {
		if got := f.Candidates[i].Reason; !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, want %q", f.Candidates[i], got, want)
		}
	}
	if f.Chosen == nil || f.Chosen.Host != "unix://"+at("slow") || f.Err() != nil {
		t.Fatalf("chosen: got %v, error %v", f.Chosen, f.Err())
	}
	e := f.Engine
	if e.Name != "Docker Engine" || e.Version != "20.10.24" || e.APIVersion != "1.41" || e.CgroupDriver != "cgroupfs" || !e.Seccomp || e.Rootless ||
		!slices.Equal(e.Runtimes, []string{"runc", "runsc"}) || !slices.Equal(e.Hardened(), []string{"runsc"}) {
		t.Errorf("engine: got %+v", e)
	}
}

// TestF36_HangingProbe checks the bound that users get.
func TestF36_HangingProbe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "silent")
	silent(t, path)
	s := This([]string{"DOCKER_HOST=unix://" + path})
	from := time.Now()
	f := Find(t.Context(), s)
	if took := time.Since(from); took < ProbeTimeout || took > ProbeTimeout+10*time.Second {
		t.Errorf("a silent engine was waited for %v, want %v", took, ProbeTimeout)
	}
	if f.Chosen != nil || !errors.Is(f.Err(), ErrNone) || !strings.Contains(f.Err().Error(), "did not answer within 3s") {
		t.Errorf("got %v, %v", f.Chosen, f.Err())
	}
	if !strings.Contains(f.Mend(), "DOCKER_HOST") {
		t.Errorf("mend: got %q", f.Mend())
	}
}

// TestPodmanSaysMoreInItsOwnAPI checks what Docker's API of a rootless Podman has wrong, and that of the OCI runtimes which it
// has heard of only the one that it uses is one that a container can have.
func TestPodmanSaysMoreInItsOwnAPI(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	mux := http.NewServeMux()
	mux.Handle("/", engineHandler(
		`{"Components":[{"Name":"Podman Engine","Details":{"MinAPIVersion":"4.0.0"}}],"Version":"4.3.1","ApiVersion":"1.41","Os":"linux","Arch":"amd64"}`,
		`{"CgroupDriver":"systemd","CgroupVersion":"2","DefaultRuntime":"crun","MemoryLimit":true,"PidsLimit":true,"CpuCfsQuota":true,
		"Runtimes":{"crun":{"path":"crun"},"runsc":{"path":"runsc"},"kata":{"path":"kata"}},"SecurityOptions":["name=seccomp,profile=default"]}`))
	mux.HandleFunc("/v4.0.0/libpod/info", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"host":{"cgroupControllers":["memory","pids"],"security":{"rootless":true}}}`)
	})
	engine(t, path, mux)
	f := find(t.Context(), []Candidate{open(FromPodman, path)}, time.Minute, time.Minute)
	if f.Chosen == nil {
		t.Fatal(f.Err())
	}
	if e := f.Engine; e.Name != "Podman Engine" || !e.Rootless || !e.LimitsMemory || !e.LimitsPIDs || e.LimitsCPU ||
		!slices.Equal(e.Runtimes, []string{"crun"}) || len(e.Hardened()) != 0 {
		t.Errorf("engine: got %+v", e)
	}
}

// TestF36_SilentAboutItself checks that an engine which answers, and then hangs over what it is, is cut, and said to be there.
func TestF36_SilentAboutItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	engine(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_ping" {
			<-r.Context().Done()
		}
	}))
	f := find(t.Context(), []Candidate{open(FromDefault, path)}, time.Minute, time.Second)
	if got, want := f.Candidates[0].Reason, "it answers, but did not say what it is within 1s"; f.Chosen != nil || got != want {
		t.Errorf("chosen %v, reason %q, want %q", f.Chosen, got, want)
	}
}

// TestF36_Cancelled checks that a caller who goes away does not wait.
func TestF36_Cancelled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "silent")
	silent(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f := find(ctx, []Candidate{open(FromDefault, path)}, time.Hour, time.Hour); f.Chosen != nil {
		t.Errorf("got %v", f.Chosen)
	}
}

// TestF36_Blame checks the sentence and the advice for a machine on which nobody answers.
func TestF36_Blame(t *testing.T) {
	t.Parallel()
	pass := func(source Source, reason, mend string) Candidate {
		return Candidate{Source: source, Host: "unix:///x", State: Passed, Reason: reason, Mend: mend}
	}
	for _, tt := range []struct {
		name       string
		candidates []Candidate
		err, mend  string
	}{
		{"what was named", []Candidate{pass(FromHostVariable, "nobody listens there", "unset it"), pass(FromDefault, "DOCKER_HOST decides", "")}, "DOCKER_HOST (unix:///x): nobody listens there", "unset it"},
		{"what is there", []Candidate{pass(FromDefault, noSocket, "a"), pass(FromPodman, noSocket, "b"), pass(FromColima, "nobody listens there", "colima start")}, "colima (unix:///x): nobody listens there", "colima start"},
		{"the default before others", []Candidate{pass(FromDefault, "this user may not open it", "usermod"), pass(FromColima, "nobody listens there", "colima start")}, "default (unix:///x): this user may not open it", "usermod"},
		{"nothing at all", []Candidate{pass(FromDefault, noSocket, "a"), pass(FromPodman, noSocket, "b")}, "default (unix:///x): there is no such socket", "install Docker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := Found{Candidates: tt.candidates}
			if err := f.Err(); !errors.Is(err, ErrNone) || !strings.HasSuffix(err.Error(), tt.err) {
				t.Errorf("Err: got %v, want %q", err, tt.err)
			}
			if !strings.Contains(f.Mend(), tt.mend) {
				t.Errorf("Mend: got %q, want %q", f.Mend(), tt.mend)
			}
		})
	}
}

// TestF36_Permission checks that a socket of another user is said to be one.
func TestF36_Permission(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		if got := sentence(&os.PathError{Op: "dial", Err: os.ErrPermission}); got != "this user may not open it" {
			t.Errorf("got %q", got)
		}
		return // root may open everything
	}
	path := filepath.Join(socketDir(t), "s")
	engine(t, path, engineHandler(versionAnswer, infoAnswer))
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	f := find(t.Context(), []Candidate{open(FromDefault, path)}, ProbeTimeout, DescribeTimeout)
	if f.Chosen != nil || f.Candidates[0].Reason != "this user may not open it" || !strings.Contains(f.Candidates[0].Mend, "usermod") {
		t.Errorf("got %+v", f.Candidates[0])
	}
}

// TestF36_TLSEngine asks an engine that wants to see a client's certificate.
func TestF36_TLSEngine(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificates(t)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	srv := httptest.NewUnstartedServer(engineHandler(versionAnswer, infoAnswer))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of the one who comes without TLS
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	for name, content := range map[string]string{"ca.pem": ca, "cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host := "tcp://" + srv.Listener.Addr().String()
	f := Find(t.Context(), This([]string{"DOCKER_HOST=" + host, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + dir}))
	if f.Chosen == nil || f.Engine.Version != "20.10.24" {
		t.Errorf("with certificates: got %v, %v", f.Chosen, f.Err())
	}
	if f := Find(t.Context(), This([]string{"DOCKER_HOST=" + host})); f.Chosen != nil {
		t.Error("without TLS: an engine that wants TLS was chosen")
	}
}

// certificates are one self-signed certificate for 127.0.0.1, as CA, certificate and key.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("CERTIFICATE", der), block("PRIVATE KEY", encoded)
}
