package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

// wire answers requests in the caller's goroutine, so that a test can run inside
// a synctest bubble.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

func answer(status int, kind, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {kind}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

func newClient(t *testing.T, w wire, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{BaseURL: "http://coordinator.test", HTTP: &http.Client{Transport: w}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestProblemOfEveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		status  int
		kind    string
		body    string
		code    protocol.Code
		message string
		hint    string
	}{
		{"the coordinator's own", 404, "application/json", `{"code":"NOT_FOUND","message":"no run run_1","hint":"see everdict runs list"}`,
			protocol.CodeNotFound, "no run run_1", "see everdict runs list"},
		{"HTML of a proxy", 502, "text/html; charset=utf-8", "<html><head><title>502 Bad\n Gateway</title></head><body>nginx</body></html>",
			protocol.CodeUpstreamError, `502 Bad Gateway (text/html) with no error document: "502 Bad Gateway"`, "proxy"},
		{"HTML without a title", 403, "text/html", "<p>Blocked &amp; logged</p>", protocol.CodeForbidden, `"Blocked & logged"`, "proxy"},
		{"nothing at all", 500, "", "", protocol.CodeUpstreamError, "500 Internal Server Error", "proxy"},
		{"JSON that is no problem", 400, "application/json", `{"error":"x"}`, protocol.CodeBadRequest, `"{\"error\":\"x\"}"`, "proxy"},
		{"a page in place of an answer", 200, "text/html", "<title>Log in to the guest network</title>",
			protocol.CodeUpstreamError, "Log in to the guest network", "proxy"},
		{"a redirect of a POST", 307, "text/html", "", protocol.CodeUpstreamError, "307", "redirects to"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, func(*http.Request) (*http.Response, error) {
				return answer(row.status, row.kind, row.body), nil
			}, func(cfg *Config) { cfg.Retries = -1 })
			c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			_, err := c.SubmitJSON(t.Context(), json.RawMessage(`{}`))
			var p *protocol.Problem
			if !errors.As(err, &p) {
				t.Fatalf("answer %d %q gave %T %v, want a *protocol.Problem", row.status, row.body, err, err)
			}
			if p.Status != row.status || p.Code != row.code || !strings.Contains(p.Message, row.message) || !strings.Contains(p.Hint, row.hint) {
				t.Errorf("got status %d code %s message %q hint %q\nwant status %d code %s message with %q hint with %q",
					p.Status, p.Code, p.Message, p.Hint, row.status, row.code, row.message, row.hint)
			}
		})
	}
}

func TestRetriesOnlyWhatCannotDoTheWorkTwice(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, row := range []struct {
		name   string
		status int
		body   string // default: a problem with the code INTERNAL
		err    error
		// Tries of a GET, of a DELETE and of a POST that never succeed.
		get, del, post int
	}{
		{"refused", 0, "", refused, 4, 4, 4},
		{"reset", 0, "", reset, 4, 4, 1},
		{"503", 503, `{"code":"UPSTREAM_ERROR","message":"draining"}`, nil, 4, 4, 4},
		{"503 of a proxy", 503, "upstream connect error", nil, 4, 4, 1},
		{"503 of a proxy that speaks JSON", 503, `{"code":"ServiceUnavailable","message":"m"}`, nil, 4, 4, 1},
		{"502", 502, "", nil, 4, 4, 1},
		{"504", 504, "", nil, 4, 4, 1},
		{"429", 429, "", nil, 4, 4, 1},
		{"500", 500, "", nil, 1, 1, 1},
		{"400", 400, "", nil, 1, 1, 1},
		{"409", 409, "", nil, 1, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := map[string]int{}
				c := newClient(t, func(r *http.Request) (*http.Response, error) {
					tries[r.Method]++
					if r.Body != nil {
						if body, _ := io.ReadAll(r.Body); string(body) != `{"a":1}` {
							t.Errorf("try %d carried body %q", tries[r.Method], body)
						}
					}
					if row.err != nil {
						return nil, row.err
					}
					body := row.body
					if body == "" {
						body = `{"code":"INTERNAL","message":"m"}`
					}
					return answer(row.status, "application/json", body), nil
				})
				start := time.Now()
				_, errGet := c.Run(t.Context(), "run_1")
				errDel := c.RevokeKey(t.Context(), "key_1")
				_, errPost := c.SubmitJSON(t.Context(), json.RawMessage(`{"a":1}`))
				for _, err := range []error{errGet, errDel, errPost} {
					if err == nil || row.err != nil && !errors.Is(err, row.err) || row.status != StatusOf(err) {
						t.Errorf("error %v, want status %d or %v", err, row.status, row.err)
					}
				}
				want := map[string]int{"GET": row.get, "DELETE": row.del, "POST": row.post}
				if diff := cmp.Diff(want, tries); diff != "" {
					t.Errorf("tries (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("three calls took %s, want them bounded below 10 s", took)
				}
			})
		})
	}
}

// TestP1_AnswerLostByAProxy submits through a proxy that forwards the request, loses the answer and says 503, as Envoy does
// when the connection to the coordinator ends. The run must not be submitted a second time.
func TestP1_AnswerLostByAProxy(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	coordinator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"runId":"run_%d"}`, runs.Add(1))
	}))
	defer coordinator.Close()
	to, err := url.Parse(coordinator.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(*http.Response) error { return errors.New("connection termination") },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "upstream connect error. reset reason: %v", err)
		},
	}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	c, err := New(Config{BaseURL: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Submit(t.Context(), &protocol.RunRequest{})
	var p *protocol.Problem
	if !errors.As(err, &p) || p.Status != 503 || !strings.Contains(p.Message, "connection termination") || !strings.Contains(p.Hint, "may have done") {
		t.Errorf("submit: %v, want a 503 with the proxy's words, and that the run may be there", err)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("the coordinator has %d runs, want 1", n)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := newClient(t, func(*http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				res := answer(503, "application/json", `{"code":"UPSTREAM_ERROR","message":"draining"}`)
				res.Header.Set("Retry-After", "7")
				return res, nil
			}
			return answer(202, "application/json", `{"runId":"run_1","id":"run_1","status":"queued"}`), nil
		})
		start := time.Now()
		run, err := c.Submit(t.Context(), &protocol.RunRequest{})
		if err != nil || run.RunID != "run_1" || run.ID != "run_1" {
			t.Fatalf("submit: %+v, %v", run, err)
		}
		if took := time.Since(start); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("the second try came after %s, want 7 s and some jitter", took)
		}
	})
}

func TestConnectionRefusedIsFoundInTheError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := New(Config{BaseURL: "http://" + address, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Healthy(t.Context())
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), address) {
		t.Errorf("got %T %v, want an UnreachableError with ECONNREFUSED and the address", err, err)
	}
}

// P12, F48: the key travels in the Authorization header and nowhere else, and
// does not follow a redirect to another host.
func TestP12_TokenOnlyInTheHeader(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("the redirect carried Authorization %q to another host", got)
		}
		fmt.Fprint(w, `{}`)
	}))
	defer elsewhere.Close()
	const key = "ak_0123456789"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.String(), key) {
			t.Errorf("the key is in the URL %s", r.URL)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("Authorization %q", got)
		}
		if got := r.Header.Get("X-Everdict-Tenant"); got != "acme" {
			t.Errorf("tenant %q, want acme", got)
		}
		if r.URL.Path == "/me" {
			// Another name for the same machine is another host.
			http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)+"/me", http.StatusFound)
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	}))
	defer server.Close()
	c, err := New(Config{BaseURL: server.URL + "/", Token: key, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Me(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestF37_PrivateCA(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"ok":true}`) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "bad.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(good, block, 0o600), os.WriteFile(bad, []byte("no certificate"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if c, err := New(Config{BaseURL: server.URL, CAFile: good}); err != nil || c.Healthy(t.Context()) != nil {
		t.Errorf("with the server's certificate: %v, %v", err, c.Healthy(t.Context()))
	}
	if c, err := New(Config{BaseURL: server.URL, Retries: -1}); err != nil || c.Healthy(t.Context()) == nil {
		t.Errorf("without it the call must fail (err %v)", err)
	}
	if _, err := New(Config{BaseURL: server.URL, CAFile: bad}); err == nil || !strings.Contains(err.Error(), "bad.pem") {
		t.Errorf("a file without a certificate gave %v", err)
	}
	if _, err := New(Config{BaseURL: server.URL, CAFile: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
}

func TestNewRefusesAnAddressThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"localhost:8787", "ftp://host", "http://", "http://user:pw@host", "http://host?x=1", "http://ho st"} {
		if _, err := New(Config{BaseURL: base}); err == nil {
			t.Errorf("New accepted %q", base)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
	if _, err := New(Config{Token: "ak_x\ny"}); err == nil {
		t.Error("New accepted a key with a line break")
	}
}

func TestPathsAreEscaped(t *testing.T) {
	t.Parallel()
	var got []string
	c := newClient(t, func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Method+" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery)
		return answer(200, "application/json", `{}`), nil
	}, func(cfg *Config) { cfg.BaseURL = "http://host/ever%2Fdict/" })
	ctx := t.Context()
	c.Run(ctx, "../keys")
	c.Cancel(ctx, "run 1?x=#y")
	c.Harness(ctx, "a/b", "1.0 ü")
	c.HarnessDiff(ctx, "h", "1&2", "3")
	c.Log(ctx, "r", protocol.LogQuery{Stream: protocol.StreamStderr})
	c.RawLog(ctx, "r", protocol.LogQuery{Attempt: 2, Offset: 3, Tail: 4})
	c.Diff(ctx, "r", 2)
	for range c.Trace(ctx, "r", 2) {
	}
	want := []string{
		"GET /ever%2Fdict/runs/..%2Fkeys?",
		"POST /ever%2Fdict/runs/run%201%3Fx=%23y/cancel?",
		"GET /ever%2Fdict/harnesses/a%2Fb/1.0%20%C3%BC?",
		"GET /ever%2Fdict/harnesses/h/diff?base=1%262&candidate=3",
		"GET /ever%2Fdict/runs/r/logs?stream=stderr",
		"GET /ever%2Fdict/runs/r/logs?attempt=2&offset=3&raw=1&tail=4",
		"GET /ever%2Fdict/runs/r/diff?attempt=2",
		"GET /ever%2Fdict/runs/r/trace?attempt=2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRunsPages(t *testing.T) {
	t.Parallel()
	var asked []string
	c := newClient(t, func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.RawQuery)
		res := answer(200, "application/json", `[{"id":"run_3"},{"id":"run_2"}]`)
		if r.URL.Query().Get("cursor") == "" {
			res.Header.Add("Link", `<http://inside:1/runs?limit=1>; rel="first", </runs?cursor=c1&limit=2&status=queued>; rel="next"`)
			return res, nil
		}
		// A server that names the page itself as the next must not be asked for ever.
		res.Header.Set("Link", `</runs?`+r.URL.RawQuery+`>; rel=next`)
		res.Body = io.NopCloser(strings.NewReader(`[{"id":"run_1"}]`))
		return res, nil
	})
	var ids []string
	for run, err := range c.Runs(t.Context(), RunFilter{Status: protocol.StatusQueued, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	if diff := cmp.Diff([]string{"run_3", "run_2", "run_1"}, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"limit=2&status=queued", "cursor=c1&limit=2&status=queued"}, asked); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	for range c.Runs(t.Context(), RunFilter{PageSize: 2}) {
		break
	}
	if len(asked) != 3 {
		t.Errorf("a loop that was left asked for %d pages more, want 1", len(asked)-2)
	}
}

func TestDiffIsPassedByteForByte(t *testing.T) {
	t.Parallel()
	diff := "diff --git a/x b/x\r\n\x00\xff not UTF-8\n"
	c := newClient(t, func(r *http.Request) (*http.Response, error) { return answer(200, "text/x-diff", diff), nil })
	body, err := c.Diff(t.Context(), "run_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != diff {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestCancelledContextIsTheError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, func(r *http.Request) (*http.Response, error) {
		cancel()
		return nil, r.Context().Err()
	})
	if _, err := c.Run(ctx, "run_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
