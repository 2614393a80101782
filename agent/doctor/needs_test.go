package doctor

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol/link"
)

const token = link.Secret("rnr_right")

// coordinatorLike takes runners in with one credential.
func coordinatorLike(t *testing.T) http.Handler {
	t.Helper()
	a, err := link.NewAcceptor(link.AcceptConfig{
		Handler: nobody{},
		Authenticate: func(_ context.Context, _ *http.Request, got link.Secret) (link.Principal, error) {
			if got != token {
				return link.Principal{}, &link.RefusedError{Status: http.StatusUnauthorized, Code: "UNAUTHENTICATED", Message: "this credential is not known here"}
			}
			return link.Principal{Runner: "rnr_1"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nobody panics when a session is made: doctor must make none.
type nobody struct{ link.Handler }

// examined makes the checks of what every runner needs.
func examined(t *testing.T, cfg Config) (Report, map[string]Check) {
	t.Helper()
	cfg.engine = noEngine
	r := Examine(t.Context(), cfg)
	byID := map[string]Check{}
	for _, c := range r.Checks {
		byID[c.ID] = c
	}
	return r, byID
}

// configOf is a configuration with which a runner could work for a coordinator.
func configOf(t *testing.T, url string) Config {
	t.Helper()
	dir := t.TempDir()
	file(t, string(token), dir, "credential")
	return Config{
		URL: url, StateDir: dir, WorkDir: filepath.Join(dir, "w"), Version: "test", CredentialFile: filepath.Join(dir, "credential"),
		ReadCredential: func(path string) (link.Credential, error) {
			b, err := os.ReadFile(path)
			return link.Secret(b), err
		},
	}
}

func TestCoordinatorAndCredential(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(coordinatorLike(t))
	t.Cleanup(srv.Close)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, tt := range []struct {
		name       string
		change     func(*Config)
		canWork    bool
		id         string
		status     Status
		evidence   string
		mend       string
		credential Status
	}{
		{"all is well", func(*Config) {}, true, "coordinator", OK, "answers within", "", OK},
		{"not paired", func(c *Config) { c.CredentialFile += ".gone" }, false, "coordinator", OK, "answers within", "", Missing},
		{"nobody listens", func(c *Config) { c.URL = "http://" + gone.Addr().String() }, false, "coordinator", Missing, "nobody listens", "everdict up", OK},
		{"a web server", func(c *Config) { c.URL = web.URL }, false, "coordinator", Missing, "status 404 is no coordinator", "--api-url", OK},
		{"an unknown host", func(c *Config) { c.URL = "http://everdict.invalid" }, false, "coordinator", Missing, "everdict.invalid", "--api-url", OK},
		{"no address", func(c *Config) { c.URL = "ftp://x" }, false, "coordinator", Missing, `scheme "ftp"`, "--api-url", OK},
		{"another credential", func(c *Config) {
			c.ReadCredential = func(string) (link.Credential, error) { return link.Secret("rnr_wrong"), nil }
		}, false, "credential", Missing, "does not accept the credential", "everdict runner --pair", Missing},
		{"a credential that cannot be read", func(c *Config) {
			c.ReadCredential = func(string) (link.Credential, error) { return nil, errors.New("it is a riddle") }
		}, false, "credential", Missing, "it is a riddle", "everdict runner --pair", Missing},
		{"a CA file that is not there", func(c *Config) { c.CAFile = "/nowhere.pem" }, false, "certificates", Missing, "cannot be read", "--ca-file", OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := configOf(t, srv.URL)
			tt.change(&cfg)
			r, by := examined(t, cfg)
			c := by[tt.id]
			if c.Status != tt.status || !strings.Contains(c.Evidence, tt.evidence) || !strings.Contains(c.Mend, tt.mend) {
				t.Errorf("%s: got %s %q, mend %q, want %s %q %q", tt.id, c.Status, c.Evidence, c.Mend, tt.status, tt.evidence, tt.mend)
			}
			if by["credential"].Status != tt.credential {
				t.Errorf("credential: got %s %q, want %s", by["credential"].Status, by["credential"].Evidence, tt.credential)
			}
			if r.CanWork != tt.canWork {
				t.Errorf("CanWork: got %t, want %t: %+v", r.CanWork, tt.canWork, r.Checks)
			}
			for _, c := range r.Checks {
				if strings.Contains(c.Evidence+c.Mend, "rnr_") && !strings.Contains(c.Evidence, "rnr_1") {
					t.Errorf("%s shows a credential: %q", c.ID, c.Evidence)
				}
			}
		})
	}
}

// TestCredentialOfOthers: a credential that everybody can read is said to be one.
func TestCredentialOfOthers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(coordinatorLike(t))
	t.Cleanup(srv.Close)
	cfg := configOf(t, srv.URL)
	if err := os.Chmod(cfg.CredentialFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, by := examined(t, cfg); by["credential"].Status != Warn || !strings.HasPrefix(by["credential"].Mend, "chmod 600 ") {
		t.Errorf("got %+v", by["credential"])
	}
}

// TestF37_PrivateCA checks a coordinator whose certificate is of a CA of one's own.
func TestF37_PrivateCA(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(coordinatorLike(t))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of the one who does not trust it
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cfg := configOf(t, srv.URL)
	r, by := examined(t, cfg)
	if c := by["coordinator"]; r.CanWork || c.Status != Missing || !strings.Contains(c.Mend, "--ca-file") {
		t.Errorf("without the CA: can work %t, got %+v", r.CanWork, c)
	}
	cfg.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})), cfg.CAFile)
	r, by = examined(t, cfg)
	if !r.CanWork || by["coordinator"].Status != OK || !strings.Contains(by["certificates"].Evidence, "with 1 more; jobs do not get it") {
		t.Errorf("with the CA: can work %t, got %+v, %+v", r.CanWork, by["coordinator"], by["certificates"])
	}
	cfg.PassCA = true
	if _, by = examined(t, cfg); !strings.Contains(by["certificates"].Evidence, "jobs get it, too") {
		t.Errorf("with --pass-ca: got %+v", by["certificates"])
	}
	file(t, "no certificate", cfg.CAFile)
	if r, by = examined(t, cfg); r.CanWork || by["certificates"].Status != Missing {
		t.Errorf("with a file without certificates: got %+v", by["certificates"])
	}
}

// TestDockerIsRequired: which sandbox has to work depends on which is chosen.
func TestDockerIsRequired(t *testing.T) {
	t.Parallel()
	for sandbox, want := range map[string]string{"": "process-sandbox", "process": "process-sandbox", "docker": "docker"} {
		r, _ := examined(t, Config{Sandbox: sandbox})
		for _, c := range r.Checks {
			if c.Required != (c.ID == want) {
				t.Errorf("sandbox %q: %s is required: %t", sandbox, c.ID, c.Required)
			}
		}
		if sandbox == "docker" && r.CanWork {
			t.Error("--sandbox docker without an engine: can work, want not")
		}
	}
}
