package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// env is a server over a real database, and what a test needs around it.
type env struct {
	t       testing.TB
	url     string
	server  *api.Server
	store   *store.Store
	keys    *auth.Keys
	runners *pairing.Runners
	secrets *secret.Vault
	runs    *fakeRuns
	// limits are what was said of the pools of runtimes, by workspace and id.
	limits map[string]int
	log    *lockedBuffer
}

type options struct {
	auth   auth.Config
	config func(*api.Config)
	// pairings are those of the environment's runners, with its clock.
	pairings pairing.PairingsConfig
	// now is the clock of keys and sessions; nil: time.Now.
	now func() time.Time
}

func newEnv(t testing.TB, o options) *env {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "everdict.db")})
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	st, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	e := &env{t: t, store: st, keys: auth.NewKeys(st, o.now), runners: pairing.New(pairing.Config{Store: st, Now: o.now}), log: new(lockedBuffer)}
	harnesses := registry.New(st, nil)
	e.limits = map[string]int{}
	runtimes := registry.NewRuntimes(registry.RuntimesConfig{Store: st, Changed: func(_ context.Context, workspace string, spec *protocol.RuntimeSpec) error {
		e.limits[workspace+"/"+spec.ID] = spec.Limits().MaxConcurrent
		return nil
	}})
	e.runs = newFakeRuns(st, harnesses, e.runners)
	ring, err := secret.NewKeyring(secret.GenerateKey())
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	if e.secrets, err = secret.Open(t.Context(), secret.Config{Store: st, Keys: ring, Referrers: []secret.Referrer{harnesses}}); err != nil {
		t.Fatalf("open the secrets: %v", err)
	}
	o.pairings.Runners, o.pairings.Now = e.runners, o.now
	o.auth.Keys, o.auth.Runners, o.auth.Pools = e.keys, e.runners, e.runners
	o.auth.Sessions = auth.NewSessions(auth.SessionsConfig{Store: st, Keys: e.keys, Now: o.now})
	cfg := api.Config{
		Auth: auth.New(o.auth), Keys: e.keys, Sessions: o.auth.Sessions, Runs: e.runs, Harnesses: harnesses, Runtimes: runtimes, Runners: e.runners, Pairings: pairing.NewPairings(o.pairings), Secrets: e.secrets, Ready: st.Ping,
		Log: slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if o.config != nil {
		o.config(&cfg)
	}
	if e.server, err = api.New(cfg); err != nil {
		t.Fatalf("make the server: %v", err)
	}
	srv := httptest.NewServer(e.server)
	t.Cleanup(srv.Close)
	e.url = srv.URL
	return e
}

// atomicTime is a clock that a test moves.
type atomicTime struct{ ms atomic.Int64 }

func newAtomicTime(t time.Time) *atomicTime {
	c := new(atomicTime)
	c.ms.Store(t.UnixMilli())
	return c
}

func (c *atomicTime) Now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *atomicTime) Advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// lockedBuffer collects a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// reply is an answer, read whole.
type reply struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// do sends a request. body is JSON text, or empty for none; header are names
// and values in turn.
func (e *env) do(method, path, body string, header ...string) reply {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return reply{e.t, method + " " + path, res.StatusCode, res.Header, b}
}

// wants ends the test unless the status is as said.
func (r reply) wants(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: status %d, want %d; body: %s", r.what, r.status, status, r.body)
	}
	return r
}

// into decodes the answer.
func (r reply) into(v any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		r.t.Fatalf("%s: decode %s: %v", r.what, r.body, err)
	}
}

// problem is the answer as an error, of a status and code.
func (r reply) problem(status int, code protocol.Code) protocol.Problem {
	r.t.Helper()
	r.wants(status)
	var p protocol.Problem
	r.into(&p)
	if p.Code != code || p.Message == "" {
		r.t.Fatalf("%s: problem %s, want code %s and a sentence", r.what, r.body, code)
	}
	// What is wrong with the input is its own next step.
	if p.Hint == "" && status != http.StatusBadRequest {
		r.t.Errorf("%s: %q has no hint", r.what, p.Message)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		r.t.Errorf("%s: content type of a problem %q, want JSON", r.what, got)
	}
	return p
}

const goodRun = `{
  "harness": { "id": "scripted", "version": "latest" },
  "case": { "id": "c1", "env": { "kind": "repo", "source": { "files": {} } },
    "task": "Create ok.txt containing the text done",
    "graders": [{ "id": "tests-pass", "config": { "cmd": "grep -q done ok.txt" } }],
    "timeoutSec": 120, "tags": [] }}`

func (e *env) submit(header ...string) string {
	e.t.Helper()
	var run protocol.SubmittedRun
	e.do("POST", "/runs", goodRun, header...).wants(http.StatusAccepted).into(&run)
	return run.RunID
}

func TestSubmitListGetCancel(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var submitted protocol.SubmittedRun
	e.do("POST", "/runs", goodRun, "x-everdict-tenant", "team").wants(http.StatusAccepted).into(&submitted)
	if submitted.RunID == "" || submitted.RunID != submitted.ID || submitted.Status != protocol.StatusQueued || submitted.Tenant != "team" {
		t.Fatalf("submitted %+v, want a queued run of the tenant with runId beside id", submitted)
	}
	var run protocol.Run
	e.do("GET", "/runs/"+submitted.ID, "", "x-everdict-tenant", "team").wants(http.StatusOK).into(&run)
	if run.ID != submitted.ID {
		t.Errorf("read run %q, want %q", run.ID, submitted.ID)
	}
	e.do("GET", "/runs/"+submitted.ID, "").problem(http.StatusNotFound, protocol.CodeNotFound)
	var runs []protocol.Run
	e.do("GET", "/runs", "", "x-everdict-tenant", "team").wants(http.StatusOK).into(&runs)
	if len(runs) != 1 || runs[0].ID != submitted.ID {
		t.Errorf("list = %v, want the one run", runs)
	}
	if got := string(e.do("GET", "/runs", "").wants(http.StatusOK).body); got != "[]\n" {
		t.Errorf("list of another tenant = %q, want an empty array", got)
	}
	if got := string(e.do("GET", "/runs?scorecardId=sc_1", "", "x-everdict-tenant", "team").wants(http.StatusOK).body); got != "[]\n" {
		t.Errorf("runs of a scorecard = %q, want none", got)
	}
	if got := string(e.do("GET", "/runs/"+submitted.ID+"/attempts", "", "x-everdict-tenant", "team").wants(http.StatusOK).body); got != "[]\n" {
		t.Errorf("attempts = %q, want an empty array and not null", got)
	}
	e.do("GET", "/runs/"+submitted.ID+"/placement", "", "x-everdict-tenant", "team").wants(http.StatusOK)
	e.do("GET", "/runs/"+submitted.ID+"/events", "", "x-everdict-tenant", "team").wants(http.StatusOK)
	e.do("POST", "/runs/"+submitted.ID+"/approve", "", "x-everdict-tenant", "team").problem(http.StatusConflict, protocol.CodeConflict)
	e.do("POST", "/runs/"+submitted.ID+"/cancel", "", "x-everdict-tenant", "team").wants(http.StatusOK).into(&run)
	if run.Status != protocol.StatusFailed || run.Error.Code != protocol.CodeCancelled {
		t.Errorf("cancelled run = %+v, want failed with CANCELLED", run)
	}
	e.do("POST", "/runs/"+submitted.ID+"/cancel", "", "x-everdict-tenant", "team").problem(http.StatusConflict, protocol.CodeConflict)
}

// TestSubmitWarnings: what clients of this API may ask for, and a run does not get, is in
// the answer; what is empty, or not known at all, is not.
func TestSubmitWarnings(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	for body, want := range map[string][]string{
		`"meterUsage": true, "judge": {"model": "m"}, "teamId": "t", "later": 1`: {"meterUsage: ", "judge: ", "teamId: "},
		`"meterUsage": false, "judge": null, "webhookUrl": ""`:                   nil,
		`"later": 2, "harness": {"id": "scripted", "params": {"scirpt": "x", "delay": "1s"}}, "case": {"id": "c", "task": "x", "env": {"kind": "prompt"}, "graders": [],
			"milestones": [{"id": "m", "description": "d"}], "placement": {"isolation": "vm"}}`: {"case.milestones: ", "case.placement.isolation: ", "harness.params.scirpt: the scripted agent knows script and delay"},
	} {
		var got protocol.SubmittedRun
		request := strings.Replace(goodRun, "{", "{"+body+",", 1)
		if strings.Contains(body, "harness") {
			request = "{" + body + "}"
		}
		e.do("POST", "/runs", request).wants(http.StatusAccepted).into(&got)
		if len(got.Warnings) != len(want) {
			t.Errorf("%s: warnings %q, want %q", body, got.Warnings, want)
			continue
		}
		for i, w := range want {
			if !strings.HasPrefix(got.Warnings[i], w) {
				t.Errorf("%s: warning %q, want one that begins with %q", body, got.Warnings[i], w)
			}
		}
	}
}

// What curl -d sends without a content type header is taken as it stands.
func TestCurlNeedsNoContentType(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	e.do("POST", "/runners", `{"label":"my-mac","capabilities":["git"]}`, "Content-Type", "application/x-www-form-urlencoded").wants(http.StatusOK)
	e.do("POST", "/runs", goodRun, "Content-Type", "application/json; charset=utf-8").wants(http.StatusAccepted)
}

func TestListPagesByLink(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	want := make(map[string]bool)
	for range 5 {
		want[e.submit()] = true
	}
	path := "/runs?limit=2&harness=scripted"
	var order []string
	for pages := 0; path != ""; pages++ {
		if pages > 3 {
			t.Fatalf("the Link header leads nowhere: %s", path)
		}
		r := e.do("GET", path, "").wants(http.StatusOK)
		var runs []protocol.Run
		r.into(&runs)
		for _, run := range runs {
			if !want[run.ID] {
				t.Errorf("page %s has %s, which is repeated or unknown", path, run.ID)
			}
			delete(want, run.ID)
			order = append(order, run.ID)
		}
		path = ""
		if link := r.header.Get("Link"); link != "" {
			target, rel, _ := strings.Cut(link, ">; ")
			if rel != `rel="next"` {
				t.Fatalf("Link header %q, want rel=next", link)
			}
			path = strings.TrimPrefix(target, "<")
			if !strings.Contains(path, "harness=scripted") {
				t.Errorf("next page %q forgets the filter", path)
			}
		}
	}
	if len(want) != 0 {
		t.Errorf("pages left out %v", want)
	}
	var runs []protocol.Run
	e.do("GET", "/runs?limit=2&offset=3", "").wants(http.StatusOK).into(&runs)
	if len(runs) != 2 || runs[0].ID != order[3] {
		t.Errorf("rows by offset = %v, want the last two of %v", runs, order)
	}
	e.do("GET", "/runs?since="+time.Now().Add(-time.Hour).Format(time.RFC3339Nano), "").wants(http.StatusOK).into(&runs)
	if len(runs) != 5 {
		t.Errorf("runs of the last hour = %d, want all 5", len(runs))
	}
	e.do("GET", "/runs?until=1h&status=queued", "").wants(http.StatusOK).into(&runs)
	if len(runs) != 0 {
		t.Errorf("runs before the last hour = %d, want none", len(runs))
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{Required: true}})
	if got := string(e.do("GET", "/healthz", "").wants(http.StatusOK).body); got != "{\"ok\":true}\n" {
		t.Errorf("healthz = %q", got)
	}
	e.do("GET", "/readyz", "").wants(http.StatusOK)
	e.do("GET", "/metrics", "").problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if err := e.store.DB().Close(); err != nil {
		t.Fatal(err)
	}
	r := e.do("GET", "/readyz", "")
	r.problem(http.StatusServiceUnavailable, protocol.CodeUpstreamError)
	if r.header.Get("Retry-After") == "" {
		t.Error("a 503 has no Retry-After")
	}
	e.do("GET", "/healthz", "").wants(http.StatusOK)
}

type gauges struct{}

func (gauges) Gauges(emit func(name, help string, value float64, labels ...string)) {
	emit("everdict_queue_jobs", "Jobs by state.", 3, "state", "queued")
	emit("everdict_queue_jobs", "Jobs by state.", 1, "state", "leased")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{config: func(c *api.Config) { c.Gauges = []api.Gauges{gauges{}} }})
	id := e.submit()
	e.do("GET", "/runs/"+id, "").wants(http.StatusOK)
	e.do("GET", "/runs/run_none", "").wants(http.StatusNotFound)
	text := string(e.do("GET", "/metrics", "").wants(http.StatusOK).body)
	for _, line := range []string{
		`everdict_http_requests_total{method="POST",route="/runs",status="202"} 1`,
		`everdict_http_requests_total{method="GET",route="/runs/{id}",status="200"} 1`,
		`everdict_http_requests_total{method="GET",route="/runs/{id}",status="404"} 1`,
		`everdict_http_request_seconds_count{method="GET",route="/runs/{id}"} 2`,
		`everdict_queue_jobs{state="queued"} 3`,
		`everdict_queue_jobs{state="leased"} 1`,
		"go_goroutines",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if strings.Contains(text, `route="/keys"`) {
		t.Error("/metrics has series of routes that nobody has asked for")
	}
	if strings.Contains(text, id) {
		t.Error("/metrics has a run id for a label, so that its series never end")
	}
}

func TestMountedHandler(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{config: func(c *api.Config) {
		c.Mount = map[string]http.Handler{"GET /agent/connect": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "panic" {
				panic("mounted")
			}
			// What a websocket library does.
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Errorf("hijack through the API: %v", err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"); err != nil {
				t.Errorf("write on the hijacked connection: %v", err)
			}
		})}
	}})
	if got := string(e.do("GET", "/agent/connect", "").wants(http.StatusOK).body); got != "ok" {
		t.Errorf("mounted handler answered %q", got)
	}
	// It is counted when it returns, which is after a hijacker has answered.
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		if text := string(e.do("GET", "/metrics", "").wants(http.StatusOK).body); strings.Contains(text, `method="GET",route="/agent/connect"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a mounted handler is not counted under its path")
		}
	}
	e.do("GET", "/agent/connect?panic", "").problem(http.StatusInternalServerError, protocol.CodeInternal)
	e.do("POST", "/agent/connect", "").problem(http.StatusMethodNotAllowed, protocol.CodeBadRequest)
}
