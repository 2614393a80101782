package desktop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// liar is a coordinator that answers what a test wants.
type liar struct {
	*httptest.Server
	mu       sync.Mutex
	start    func(url string, s *protocol.PairingStarted) // spoils an honest answer; nil: it is honest
	redeem   func(w http.ResponseWriter, r *http.Request)
	redeemed chan struct{} // room for one: somebody has come to redeem
	state    string
	port     int
}

func newLiar(t *testing.T) *liar {
	l := &liar{redeemed: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pairings", func(w http.ResponseWriter, r *http.Request) {
		var req protocol.PairingRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Callback == nil {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state, l.port = req.Callback.State, req.Callback.Port
		s := protocol.PairingStarted{ID: "prq_1", Number: "07", URL: l.URL + "/ui/pair/prq_1", ExpiresInSec: 300}
		if l.start != nil {
			l.start(l.URL, &s)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("POST /pairings/{id}/redeem", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		answer := l.redeem
		l.mu.Unlock()
		select {
		case l.redeemed <- struct{}{}:
		default:
		}
		answer(w, r)
	})
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	return l
}

func (l *liar) redeems(f func(w http.ResponseWriter, r *http.Request)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redeem = f
}

// paired is an answer that makes the machine a runner.
func paired(runner, subject string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(protocol.PairedDevice{Status: protocol.PairingDone, Runner: &protocol.Runner{ID: runner},
			Account: &protocol.Account{Subject: subject, Workspace: "team"}})
	}
}

// hangs answers when the one who asks is gone.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // before that, nobody looks whether the one who asks is there
	<-r.Context().Done()
}

// callback is where the browser would come back to.
func (l *liar) callback() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("http://127.0.0.1:%d/callback?pairing=prq_1&grant=pgc_x&state=%s", l.port, l.state)
}

// nothingLeft checks that a pairing that has failed left nothing behind.
func (a *app) nothingLeft(name string) {
	a.t.Helper()
	keys, err := filepath.Glob(filepath.Join(a.cfg.Dirs.Config, "keys", "*.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	if s := a.State(); len(s.Connections) != 0 || len(keys) != 0 {
		a.t.Errorf("%s: %d connections and keys %v are left", name, len(s.Connections), keys)
	}
}

// A coordinator cannot have the app open, keep or show what it likes.
func TestLyingCoordinator(t *testing.T) {
	t.Parallel()
	a := newApp(t, quickHouse(t))
	ctx := context.Background()
	for name, spoil := range map[string]func(url string, s *protocol.PairingStarted){
		"a script":              func(_ string, s *protocol.PairingStarted) { s.URL = "javascript:alert(1)" },
		"a file":                func(_ string, s *protocol.PairingStarted) { s.URL = "file:///etc/passwd" },
		"another site":          func(_ string, s *protocol.PairingStarted) { s.URL = "http://127.0.0.1:1/ui/pair/prq_1" },
		"a name and a password": func(u string, s *protocol.PairingStarted) { s.URL = strings.Replace(u, "http://", "http://a:b@", 1) },
		"an address of 1 MiB":   func(u string, s *protocol.PairingStarted) { s.URL = u + "/" + strings.Repeat("a", 1<<20) },
		"a terminal's escape":   func(_ string, s *protocol.PairingStarted) { s.Number = "\x1b[" },
		"an id of 1 MiB":        func(_ string, s *protocol.PairingStarted) { s.ID += strings.Repeat("1", 1<<20) },
		"no time at all":        func(_ string, s *protocol.PairingStarted) { s.ExpiresInSec = -1 },
	} {
		l := newLiar(t)
		l.start = spoil
		if _, err := a.Pair(ctx, control.PairRequest{Coordinator: l.URL}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := a.paired(control.PairingFailed)
		if strings.ContainsAny(s.Pairing.Text+s.Pairing.Next, "\x1b\n") || len(s.Pairing.Text) > 1000 {
			t.Errorf("%s: the app says %q", name, s.Pairing.Text)
		}
		select {
		case address := <-a.opened:
			t.Errorf("%s: the browser was opened at %s", name, address)
		default:
		}
		a.nothingLeft(name)
	}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"a subject of 9 MiB":    paired("rnr_1", strings.Repeat("a", 9<<20)),
		"a subject that steers": paired("rnr_1", "ana\x1b]0;x\a"),
		"a runner with a path":  paired("rnr_1/../..", "ana"),
		"another kind of id":    paired("run_1", "ana"),
	} {
		l := newLiar(t)
		l.redeems(answer)
		if _, err := a.Pair(ctx, control.PairRequest{Coordinator: l.URL}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a.until("the pairing waits", func(s control.State) bool { return s.Pairing.Status == control.PairingWaiting })
		<-a.opened
		if status, text := browse(t, l.callback()); status != http.StatusOK {
			t.Fatalf("%s: the callback answers %d: %s", name, status, text)
		}
		a.paired(control.PairingFailed)
		a.nothingLeft(name)
	}
}

// Any page can send requests to every port of this machine. They do not keep the browser's from coming.
func TestCallbackBearsAFlood(t *testing.T) {
	t.Parallel()
	a := newApp(t, quickHouse(t))
	_, id := a.waiting()
	good := a.approve(id).Callback
	for range 100 {
		if status, _ := browse(t, strings.Replace(good, "state=", "state=x", 1), "Origin", "https://evil.example"); status != http.StatusForbidden {
			t.Fatalf("a page's request: %d", status)
		}
	}
	if status, _ := browse(t, good, "Sec-Fetch-Dest", "document"); status != http.StatusOK {
		t.Fatalf("the browser's answer after the flood: %d", status)
	}
	a.paired(control.PairingDone)
}

// approvedBy begins to connect to a liar, whose page brings the grant.
func (a *app) approvedBy(l *liar) {
	a.t.Helper()
	if _, err := a.Pair(context.Background(), control.PairRequest{Coordinator: l.URL, Replace: true}); err != nil {
		a.t.Fatal(err)
	}
	a.until("the pairing waits", func(s control.State) bool { return s.Pairing.Status == control.PairingWaiting })
	if status, text := browse(a.t, l.callback()); status != http.StatusOK {
		a.t.Fatalf("the callback answers %d: %s", status, text)
	}
}

// While the coordinator is making this computer a runner nothing can be cancelled; an app that ends then does not wait for the
// answer, and its next life gets it.
func TestEndWhileRedeeming(t *testing.T) {
	t.Parallel()
	a, l := newApp(t, quickHouse(t)), newLiar(t)
	l.redeems(hangs)
	ctx := context.Background()
	a.approvedBy(l)
	<-l.redeemed
	if err := a.PairCancel(ctx); problemOf(err) == nil {
		t.Errorf("cancelled while it is made a runner: %v", err)
	}
	endSoftly(t, a)
	a.start()
	<-l.redeemed // the coordinator still does not answer
	endSoftly(t, a)
	l.redeems(paired("rnr_1", "ana"))
	a.start()
	c := a.until("it is connected", func(s control.State) bool { return len(s.Connections) == 1 }).Connections[0]
	if c.Runner != "rnr_1" || c.Account.Subject != "ana" {
		t.Errorf("the connection is %+v", c)
	}
}

// endSoftly ends an app as SIGTERM does, once.
func endSoftly(t *testing.T, a *app) {
	t.Helper()
	a.stop()
	select {
	case err := <-a.done:
		if err != nil {
			t.Fatal(err)
		}
		a.stop = nil
	case <-time.After(house.Patience):
		t.Fatal("the app waits for a coordinator that does not answer")
	}
}

// What cannot be written is not done: no settings that the next start does not have, and no connection that is half gone.
func TestNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	keys := &ring{kept: map[string]string{}}
	a := newApp(t, h)
	ctx := context.Background()
	c := a.pair()
	list := filepath.Join(a.cfg.Dirs.Config, "connections.json")
	was, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	block := func() { // a directory that is not empty cannot be replaced by a file, not even by root
		if err := os.Remove(list); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(list, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	unblock := func() {
		if err := os.RemoveAll(list); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(list, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	block()
	wide := c.Settings
	wide.OnlyMine, wide.Understood = false, true
	if _, err := a.SetConnection(ctx, c.ID, wide); err == nil {
		t.Error("settings that cannot be written were taken")
	}
	if _, err := a.Unpair(ctx, c.ID); err == nil {
		t.Error("a connection was removed that cannot be taken off the list")
	}
	now := a.connection("it is as it was", is(control.StatusIdle))
	if !now.Settings.OnlyMine || !now.Online {
		t.Errorf("the connection is %+v, want it as it was", now)
	}
	unblock()
	a.end()

	a.cfg.Keyring = keys
	a.start()
	a.connection("it is idle", is(control.StatusIdle))
	block()
	if _, err := a.MoveKeys(ctx, control.KeyMove{Place: control.KeyringPlace}); err == nil {
		t.Error("a key was moved, and nothing says where to")
	}
	if len(keys.kept) != 0 {
		t.Error("a copy of the key is left in the keyring")
	}
	unblock()
	if _, err := a.Unpair(ctx, c.ID); err != nil {
		t.Errorf("with room again: %v", err)
	}

	// A disk that is full when the coordinator has made this computer a runner.
	a.end()
	a.cfg.Keyring = nil
	a.start()
	_, id := a.waiting()
	block()
	if status, text := browse(t, a.approve(id).Callback); status != http.StatusOK {
		t.Fatalf("the callback answers %d: %s", status, text)
	}
	a.paired(control.PairingDone)
	s := a.until("it says that the list was not written", func(s control.State) bool { return len(s.Notices) > 0 })
	if n := s.Notices[0]; n.Level != "error" || n.Next == "" {
		t.Errorf("the notice is %+v", n)
	}
	a.connection("it works all the same", func(c control.Connection) bool { return c.Online })
}
