package executor

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestF37_WhatJobsInherit checks the choice of variables.
func TestF37_WhatJobsInherit(t *testing.T) {
	t.Parallel()
	runner := []string{"HOME=/home/u", "PATH=/bin", "LANG=C", "OPENAI_API_KEY=sk", "HTTPS_PROXY=http://u:pw@proxy:3128", "no_proxy=x", "all_proxy=socks5://p",
		"SSL_CERT_FILE=/c.pem", "EVERDICT_API_KEY=ak_1", "EVERDICT_RUNNER_TOKEN=rnr_1", "AWS_SECRET_ACCESS_KEY=1", "DOCKER_HOST=tcp://x", "NOEQUALS"}
	for _, tt := range []struct {
		name string
		got  []string
		want []string
	}{
		{"process", HostEnviron(runner), []string{"HOME=/home/u", "PATH=/bin", "LANG=C", "OPENAI_API_KEY=sk", "HTTPS_PROXY=http://u:pw@proxy:3128", "no_proxy=x", "all_proxy=socks5://p", "SSL_CERT_FILE=/c.pem"}},
		{"process without the proxy", WithoutProxy(HostEnviron(runner)), []string{"HOME=/home/u", "PATH=/bin", "LANG=C", "OPENAI_API_KEY=sk", "SSL_CERT_FILE=/c.pem"}},
		{"container", ContainerEnviron(runner), []string{"LANG=C", "OPENAI_API_KEY=sk", "HTTPS_PROXY=http://u:pw@proxy:3128", "no_proxy=x", "all_proxy=socks5://p"}},
		{"container without the proxy", WithoutProxy(ContainerEnviron(runner)), []string{"LANG=C", "OPENAI_API_KEY=sk"}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for env, want := range map[string]string{"HTTPS_PROXY=http://u:pw@proxy:3128": "HTTPS_PROXY", "http_proxy=u@proxy": "http_proxy", "HTTP_PROXY=proxy:3128": "", "OTHER=http://u:pw@h": ""} {
		if got := ProxyLogin([]string{env}); got != want {
			t.Errorf("ProxyLogin(%s): got %q, want %q", env, got, want)
		}
	}
}

// selfSigned is a certificate in PEM.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

// TestF37_Certificates checks that a job gets the CA beside what the system trusts, and no key.
func TestF37_Certificates(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), selfSigned(t)
	write := func(name string, content ...[]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, slices.Concat(content...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("s3cr3t")})
	system := write("system.pem", ca)
	file := write("ca.pem", key, ca)

	c, err := ReadCertificates(file, []string{"SSL_CERT_FILE=" + system})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := c.lay(root); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, certificatesFile))
	if err != nil || strings.Count(string(b), "BEGIN CERTIFICATE") != 2 || strings.Contains(string(b), "PRIVATE") {
		t.Errorf("the job gets %s, %v, want the system's certificate and the other, no key", b, err)
	}
	if info, err := os.Stat(filepath.Join(root, certificatesFile)); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("mode: got %v, %v, want 0444", info.Mode(), err)
	}
	path := filepath.Join(root, certificatesFile)
	want := []string{"HOME=/h", "NODE_EXTRA_CA_CERTS=" + path, "SSL_CERT_FILE=" + path, "CURL_CA_BUNDLE=" + path, "REQUESTS_CA_BUNDLE=" + path, "GIT_SSL_CAINFO=" + path}
	if diff := cmp.Diff(want, c.environ([]string{"HOME=/h", "SSL_CERT_FILE=" + system}, root)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}

	// Where the system's are not known, the file must not take their place.
	c, err = ReadCertificates(file, []string{"SSL_CERT_FILE=" + filepath.Join(dir, "gone")})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.environ(nil, root); !slices.Equal(got, []string{"NODE_EXTRA_CA_CERTS=" + path}) {
		t.Errorf("without the system's: got %v", got)
	}

	for _, bad := range []string{write("empty"), write("key.pem", key), filepath.Join(dir, "gone")} {
		if _, err := ReadCertificates(bad, nil); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v, want an error", bad, err)
		}
	}
	var none Certificates
	if err := none.lay(filepath.Join(dir, "nowhere")); err != nil || len(none.environ([]string{"A=b"}, root)) != 1 {
		t.Errorf("the zero value does something: %v", err)
	}
}
