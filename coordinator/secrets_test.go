package coordinator

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/everdict/everdict/coordinator/secret"
)

// fakeKMS is a key management service: it keeps the data keys itself and gives out
// tickets, each good for what it was bound to.
type fakeKMS struct {
	mu     sync.Mutex
	sealed map[string][]byte // data keys by ticket
}

func (k *fakeKMS) KeyID() string { return "kms/key-1" }

func (k *fakeKMS) Has(id string) bool { return id == k.KeyID() }

func (k *fakeKMS) Wrap(_ context.Context, dataKey, associated []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ticket := bind([]byte(rand.Text()), associated)
	k.sealed[string(ticket)] = append([]byte{}, dataKey...)
	return ticket, nil
}

func (k *fakeKMS) Unwrap(_ context.Context, _ string, wrapped, associated []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, found := k.sealed[string(wrapped)]
	if !found || string(bind(wrapped[:26], associated)) != string(wrapped) {
		return nil, errors.New("no such ticket")
	}
	return append([]byte{}, key...), nil
}

// bind is a ticket: 26 bytes of its own and a code of what it is bound to.
func bind(own, associated []byte) []byte {
	code := hmac.New(sha256.New, own)
	code.Write(associated)
	return code.Sum(append([]byte{}, own...))
}

// ask sends a request to a coordinator in development mode.
func ask(t *testing.T, c *Coordinator, method, path, body string, want int) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r)
	if w.Code != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
	}
	return w.Body.String()
}

// TestSecretsOfAKeyService: an embedder's key service seals the secrets of a coordinator
// and opens them again, over a restart, and no key file is made. Secrets that the key file
// sealed before are taken over with that key as an old one.
func TestSecretsOfAKeyService(t *testing.T) {
	t.Parallel()
	tokens := make(chan string, 100)
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case tokens <- r.Header.Get("X-Nomad-Token"):
		default:
		}
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	defer cluster.Close()
	dir := t.TempDir()
	open := func(cfg Config) *Coordinator {
		t.Helper()
		cfg.DataDir = dir
		c, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatalf("open the coordinator: %v", err)
		}
		return c
	}
	shut := func(c *Coordinator) {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Fatalf("close the coordinator: %v", err)
		}
	}
	// A probe gives the secret to the cluster, which is how a value is seen here.
	resolves := func(c *Coordinator, name, want string) {
		t.Helper()
		ask(t, c, "POST", "/runtimes/probe", `{"kind":"nomad","id":"n","version":"1","image":"i","addr":"`+cluster.URL+`","authSecret":"`+name+`"}`, http.StatusOK)
		for got := range tokens {
			if got != want {
				t.Errorf("%s is %q to the cluster, want %q", name, got, want)
			}
			if len(tokens) == 0 {
				return
			}
		}
	}
	path := filepath.Join(dir, secretsKeyFile)

	c := open(Config{})
	ask(t, c, "PUT", "/secrets/BEFORE", `{"value":"sealed by the key file"}`, http.StatusNoContent)
	shut(c)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	kms := &fakeKMS{sealed: map[string][]byte{}}
	var wrong *secret.WrongKeyError
	if _, err := Open(t.Context(), Config{DataDir: dir, SecretsKeyService: kms}); !errors.As(err, &wrong) {
		t.Errorf("without the old key: got %v, want that it is missing", err)
	}
	c = open(Config{SecretsKeyService: kms, SecretsOldKeys: []string{string(old)}})
	ask(t, c, "PUT", "/secrets/AFTER", `{"value":"sealed by the service"}`, http.StatusNoContent)
	resolves(c, "AFTER", "sealed by the service")
	shut(c)

	c = open(Config{SecretsKeyService: kms})
	resolves(c, "BEFORE", "sealed by the key file")
	resolves(c, "AFTER", "sealed by the service")
	shut(c)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key file beside a key service: %v", err)
	}
	if len(kms.sealed) != 2 {
		t.Errorf("the service has wrapped %d data keys, want one for each secret", len(kms.sealed))
	}

	if _, err := Open(t.Context(), Config{DataDir: dir, SecretsKeyService: kms, SecretsKey: secret.GenerateKey().Encode()}); err == nil || !strings.Contains(err.Error(), "old key") {
		t.Errorf("two keys that seal: got %v, want a refusal that says what to do", err)
	}
	if _, err := RotateSecretsKey(t.Context(), Config{DataDir: dir, SecretsKeyService: kms}); !errors.Is(err, secret.ErrKeyFromOutside) {
		t.Errorf("rotate: got %v, want that the key is not in the file", err)
	}
}

// TestP12_ASecretThatARuntimeNames: from the moment a runtime is registered, no harness
// gets the secret with which its cluster is called.
func TestP12_ASecretThatARuntimeNames(t *testing.T) {
	t.Parallel()
	c, err := Open(t.Context(), Config{DataDir: t.TempDir(), Local: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the coordinator: %v", err)
		}
	}()
	const run = `{"harness":{"id":"deployer","version":"1"},"case":{"id":"c","env":{"kind":"prompt"},"task":"say"}}`
	ask(t, c, "PUT", "/secrets/TOKEN", `{"value":"the value"}`, http.StatusNoContent)
	ask(t, c, "POST", "/harnesses", `{"kind":"command","id":"deployer","version":"1","command":"deploy","env":{"TOKEN":{"secretRef":"TOKEN"}}}`, http.StatusCreated)
	ask(t, c, "POST", "/runs", run, http.StatusAccepted)
	ask(t, c, "POST", "/runtimes", `{"kind":"nomad","id":"prod","version":"1","image":"i","addr":"http://127.0.0.1:9","authSecret":"TOKEN"}`, http.StatusCreated)
	if got := ask(t, c, "POST", "/runs", run, http.StatusBadRequest); !strings.Contains(got, "runtime prod@1") || !strings.Contains(got, "another name") {
		t.Errorf("the refusal: %s", got)
	}
}
