package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// Bad input gets a status of its own, a code, a sentence that names the fault
// and, where there is a next step, a hint; and it changes nothing.
func TestP15_BadInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	runWith := func(old, replacement string) string {
		if !strings.Contains(goodRun, old) {
			t.Fatalf("the good run has no %s", old)
		}
		return strings.Replace(goodRun, old, replacement, 1)
	}
	const (
		bad      = protocol.CodeBadRequest
		notFound = protocol.CodeNotFound
	)
	tests := []struct {
		name         string
		method, path string
		body         string
		header       []string
		status       int
		code         protocol.Code
		says         string
		hint         string
	}{
		{name: "broken JSON", method: "POST", path: "/runs", body: "{\n  \"harness\": {\n", status: 400, code: bad, says: "line 2, column 15", hint: "brackets"},
		{name: "a comma too many", method: "POST", path: "/runs", body: "{\"harness\": {\"id\": \"x\",}}", status: 400, code: bad, says: "line 1, column 24", hint: "commas"},
		{name: "two documents", method: "POST", path: "/runs", body: goodRun + goodRun, status: 400, code: bad, says: "after top-level value"},
		{name: "array for object", method: "POST", path: "/runs", body: `[1]`, status: 400, code: bad, says: "the body: want an object, got array"},
		{name: "string for number", method: "POST", path: "/runs", body: runWith("120", `"soon"`), status: 400, code: bad, says: "case.timeoutSec: want a whole number in range, got string"},
		{name: "number out of range", method: "POST", path: "/runs", body: runWith("120", `1e99`), status: 400, code: bad, says: "case.timeoutSec"},
		{name: "too deep", method: "POST", path: "/runs", body: strings.Repeat("[", 20_000), status: 400, code: bad, says: "not JSON"},
		{name: "no body", method: "POST", path: "/runs", status: 400, code: bad, says: "harness.id"},
		{name: "null", method: "POST", path: "/runs", body: "null", status: 400, code: bad, says: "case.id"},
		{name: "unknown environment", method: "POST", path: "/runs", body: runWith(`"repo"`, `"moon"`), status: 400, code: bad, says: `unknown environment "moon"`},
		{name: "bad case id", method: "POST", path: "/runs", body: runWith(`"c1"`, `"../c1"`), status: 400, code: bad, says: "case.id"},
		{name: "bad harness id", method: "POST", path: "/runs", body: runWith(`"scripted"`, `"a/b"`), status: 400, code: bad, says: "harness.id"},
		{name: "negative timeout", method: "POST", path: "/runs", body: runWith("120", "-1"), status: 400, code: bad, says: "case.timeoutSec"},
		{name: "path traversal", method: "POST", path: "/runs", body: runWith(`"files": {}`, `"files": {"../../etc/passwd": "x"}`), status: 400, code: bad, says: "leaves the repository"},
		{name: "git metadata", method: "POST", path: "/runs", body: runWith(`"files": {}`, `"files": {".GIT/config": "x"}`), status: 400, code: bad, says: ".git"},
		{name: "unknown harness", method: "POST", path: "/runs", body: runWith(`"scripted"`, `"nobody"`), status: 404, code: notFound, says: `no harness "nobody"`, hint: "POST /harnesses"},
		{name: "unknown runtime", method: "POST", path: "/runs", body: runWith(`{`, `{"runtime": "moon",`), status: 404, code: notFound, says: `no runtime "moon"`, hint: "leave"},
		{name: "unknown runner", method: "POST", path: "/runs", body: runWith(`{`, `{"runtime": "self:rnr_gone",`), status: 404, code: notFound, says: `no runner "rnr_gone"`, hint: "POST /runners"},
		{name: "a webhook", method: "POST", path: "/runs", body: runWith(`{`, `{"webhookUrl": "https://hook.example",`), status: 400, code: bad, says: "webhookUrl: nobody would be called"},
		{name: "text body", method: "POST", path: "/runs", body: goodRun, header: []string{"Content-Type", "text/plain"}, status: 415, code: bad, says: "takes JSON", hint: "application/json"},
		{name: "form body", method: "POST", path: "/runs", body: "harness=x", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 400, code: bad, says: "not JSON"},
		{name: "20 MB", method: "POST", path: "/runs", body: `{"x":"` + strings.Repeat("a", 20<<20) + `"}`, status: 413, code: bad, says: "larger than 16 MiB", hint: "git"},
		{name: "unknown run", method: "GET", path: "/runs/run_gone", status: 404, code: notFound, says: `no run "run_gone"`, hint: "GET /runs"},
		{name: "odd run id", method: "GET", path: "/runs/%00%ff%2e%2e%2f", status: 404, code: notFound, says: "no run"},
		{name: "cancel unknown", method: "POST", path: "/runs/run_gone/cancel", status: 404, code: notFound, says: "no run"},
		{name: "status filter", method: "GET", path: "/runs?status=done", status: 400, code: bad, says: `status: want one of queued, running`},
		{name: "verdict filter", method: "GET", path: "/runs?verdict=maybe", status: 400, code: bad, says: "verdict: want true or false"},
		{name: "limit 0", method: "GET", path: "/runs?limit=0", status: 400, code: bad, says: "limit: want a number from 1 to 1000"},
		{name: "limit huge", method: "GET", path: "/runs?limit=99999999999999999999", status: 400, code: bad, says: "limit"},
		{name: "two faults", method: "GET", path: "/runs?limit=x&since=soon", status: 400, code: bad, says: "since: want an instant"},
		{name: "bad cursor", method: "GET", path: "/runs?cursor=abc", status: 400, code: bad, says: "cursor", hint: "leave it out"},
		{name: "offset too far", method: "GET", path: "/runs?limit=600&offset=500", status: 400, code: bad, says: "offset", hint: "Link"},
		{name: "log stream", method: "GET", path: "/runs/run_gone/logs?stream=stdlog", status: 400, code: bad, says: "stream: want one of stdout, stderr"},
		{name: "live lanes", method: "GET", path: "/runs/run_gone/live/stream?lanes=trace,mind", status: 400, code: bad, says: "lanes"},
		{name: "no route", method: "GET", path: "/nowhere", status: 404, code: notFound, says: "no such route: GET /nowhere", hint: "/docs"},
		{name: "unclean path", method: "POST", path: "//runs", body: goodRun, status: 404, code: notFound, says: "no such route"},
		{name: "dot path", method: "GET", path: "/runs/../runs", status: 404, code: notFound, says: "no such route"},
		{name: "slash after", method: "POST", path: "/runs/", body: goodRun, status: 404, code: notFound, says: "no such route"},
		{name: "wrong method", method: "DELETE", path: "/runs/run_1", status: 405, code: bad, says: "does not take DELETE"},
		{name: "odd method", method: "BREW", path: "/runs", status: 405, code: bad, says: "does not take BREW"},
		{name: "bad tenant", method: "POST", path: "/runs", body: goodRun, header: []string{"x-everdict-tenant", "a/b"}, status: 400, code: bad, says: "x-everdict-tenant"},
		{name: "dead key", method: "POST", path: "/runs", body: goodRun, header: []string{"Authorization", "Bearer " + protocol.NewCredential("ak_")}, status: 401, code: protocol.CodeUnauthenticated, says: "not known", hint: "POST /keys"},
		{name: "dead runner token", method: "POST", path: "/runs", body: goodRun, header: []string{"Authorization", "Bearer " + protocol.NewCredential("rnr_")}, status: 401, code: protocol.CodeUnauthenticated, says: "not known", hint: "pair"},
		{name: "some token", method: "POST", path: "/runs", body: goodRun, header: []string{"Authorization", "Bearer nonsense"}, status: 401, code: protocol.CodeUnauthenticated, says: "no known kind", hint: "ak_"},
		{name: "empty token", method: "POST", path: "/runs", body: goodRun, header: []string{"Authorization", "Bearer "}, status: 401, code: protocol.CodeUnauthenticated, says: "no known kind"},
		{name: "page of another origin", method: "POST", path: "/runs", body: goodRun, header: []string{"Origin", "https://evil.example"}, status: 403, code: protocol.CodeForbidden, says: "another origin"},
		{name: "service harness", method: "POST", path: "/harnesses", body: `{"kind":"service","id":"s","version":"1"}`, status: 400, code: bad, says: "service harnesses are not supported"},
		{name: "unknown harness kind", method: "POST", path: "/harnesses", body: `{"kind":"magic","id":"s","version":"1"}`, status: 400, code: bad, says: `unknown kind "magic"`},
		{name: "command without command", method: "POST", path: "/harnesses", body: `{"kind":"command","id":"s","version":"1"}`, status: 400, code: bad, says: "harness.command"},
		{name: "latest as a version", method: "POST", path: "/harnesses", body: `{"kind":"command","id":"s","version":"latest","command":"x"}`, status: 400, code: bad, says: "harness.version"},
		{name: "unknown adapter", method: "POST", path: "/harnesses", body: `{"kind":"process","id":"s","version":"1"}`, status: 400, code: bad, says: `no built-in adapter "s"`, hint: "command"},
		{name: "unknown template", method: "POST", path: "/harnesses", body: `{"template":{"id":"t","version":"1"},"id":"s","version":"1"}`, status: 404, code: notFound, says: `no harness template "t"`, hint: "POST /harness-templates"},
		{name: "misspelt secret", method: "POST", path: "/harnesses", body: `{"kind":"command","id":"s","version":"1","command":"x","env":{"A":{"secretRef":"k","scop":"user"}}}`, status: 400, code: bad, says: "secretRef"},
		{name: "template without category", method: "POST", path: "/harness-templates", body: `{"kind":"command","id":"t","version":"1","command":"x"}`, status: 400, code: bad, says: "category"},
		{name: "diff without versions", method: "GET", path: "/harnesses/scripted/diff?base=1", status: 400, code: bad, says: "base and candidate are required"},
		{name: "unlabelled runner", method: "POST", path: "/runners", body: `{}`, status: 400, code: bad, says: "label"},
		{name: "unknown capability", method: "POST", path: "/runners", body: `{"label":"a","capabilities":["telepathy"]}`, status: 400, code: bad, says: `unknown capability "telepathy"`},
		{name: "unknown scope", method: "POST", path: "/keys", body: `{"scopes":["root"]}`, status: 400, code: bad, says: "scopes[0]"},
		{name: "bad secret name", method: "PUT", path: "/secrets/a%20token", body: `{"value":"hunter22"}`, status: 400, code: bad, says: "letters, digits", hint: "DEPLOY_TOKEN"},
		{name: "secret without value", method: "PUT", path: "/secrets/A", body: `{}`, status: 400, code: bad, says: "value: is missing or empty"},
		{name: "secret without body", method: "PUT", path: "/secrets/A", status: 400, code: bad, says: "value: is missing or empty"},
		{name: "secret of another kind", method: "PUT", path: "/secrets/A", body: `{"value":77665544}`, status: 400, code: bad, says: "value: want a string, got number"},
		{name: "secret for whom", method: "PUT", path: "/secrets/A", body: `{"value":"hunter22","scope":"team"}`, status: 400, code: bad, says: "scope"},
		{name: "unknown scope of a secret", method: "DELETE", path: "/secrets/A?scope=team", status: 400, code: bad, says: "scope: want one of workspace, user"},
		{name: "no scopes", method: "POST", path: "/keys", body: `{"scopes":[]}`, status: 400, code: bad, says: "scopes: is empty"},
	}
	for _, tt := range tests {
		p := e.do(tt.method, tt.path, tt.body, tt.header...).problem(tt.status, tt.code)
		if !strings.Contains(p.Message, tt.says) {
			t.Errorf("%s: message %q, want it to say %q", tt.name, p.Message, tt.says)
		}
		if !strings.Contains(p.Hint, tt.hint) {
			t.Errorf("%s: hint %q, want it to say %q", tt.name, p.Hint, tt.hint)
		}
	}
	for _, path := range []string{"/runs", "/harnesses", "/harness-templates", "/keys", "/secrets", "/secrets/usage"} {
		if got := string(e.do("GET", path, "").wants(http.StatusOK).body); got != "[]\n" {
			t.Errorf("%s after nothing but bad requests = %s, want nothing", path, got)
		}
	}
	var runners protocol.Runners
	e.do("GET", "/workspace/runners", "").wants(http.StatusOK).into(&runners)
	if len(runners.Runners) != 0 {
		t.Errorf("runners after nothing but bad requests = %v, want none", runners.Runners)
	}
}

// A client that sends all of its body before it reads sees why it was refused, and one
// that waits to be asked for it is not asked.
func TestP15_LargeBodyIsAnswered(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	body := strings.Repeat("a", 20<<20)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, row := range map[string]struct{ head, body string }{
		"announced": {fmt.Sprintf("Content-Length: %d\r\n", len(body)), body},
		"chunked":   {"Transfer-Encoding: chunked\r\n", chunked},
		"asks":      {fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n", len(body)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+row.head+"\r\n"+row.body); err != nil {
				t.Fatalf("send all of it: %v", err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("read the answer: %v", err)
			}
			defer res.Body.Close()
			var p protocol.Problem
			if err := json.NewDecoder(res.Body).Decode(&p); err != nil || res.StatusCode != http.StatusRequestEntityTooLarge || p.Hint == "" {
				t.Errorf("status %d, %+v, %v; want a 413 with a hint", res.StatusCode, p, err)
			}
		})
	}
}

// A body that is announced as far too large is refused before it is sent, and one
// that turns out to be is not read to its end.
func TestP15_LargeBodyIsNotReadWhole(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	host := strings.TrimPrefix(e.url, "http://")
	for name, head := range map[string]string{
		"announced": "Content-Length: 1000000000000\r\n",
		"chunked":   "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			sent := make(chan int64, 1)
			go func() {
				n, _ := io.WriteString(conn, "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+head+"\r\n")
				total := int64(n)
				if name == "chunked" {
					chunk := "10000\r\n" + strings.Repeat("a", 0x10000) + "\r\n"
					for total < 1<<30 {
						n, err := io.WriteString(conn, chunk)
						total += int64(n)
						if err != nil {
							break // the server has closed, as it should
						}
					}
				}
				sent <- total
			}()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("no answer to a body that is too large: %v", err)
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d, want 413", res.StatusCode)
			}
			conn.Close()
			if n := <-sent; n > 3*protocol.MaxBodyBytes {
				t.Errorf("the server let %d bytes in before it gave up", n)
			}
		})
	}
}

func TestMethodNotAllowedNamesTheOthers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	r := e.do("PUT", "/runs", "{}")
	r.problem(http.StatusMethodNotAllowed, protocol.CodeBadRequest)
	if got := strings.Join(r.header.Values("Allow"), ", "); got != "GET, POST" {
		t.Errorf("Allow = %q, want GET and POST", got)
	}
	e.do("OPTIONS", "/runs", "").wants(http.StatusNoContent)
	e.do("OPTIONS", "/nowhere", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	if got := e.do("HEAD", "/runs", "").wants(http.StatusOK); len(got.body) != 0 {
		t.Errorf("HEAD answered a body: %s", got.body)
	}
}

// An error that is not a problem, and a panic, are a 500 that says nothing of
// the inside and names the request under which the log has it.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{"error": errors.New("the secret inside"), "panic": errPanic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, options{})
			e.runs.breakWith(broken)
			r := e.do("GET", "/runs/run_1", "", "X-Request-Id", "trace-me-1")
			p := r.problem(http.StatusInternalServerError, protocol.CodeInternal)
			if strings.Contains(string(r.body), "secret") || strings.Contains(string(r.body), "fell over") {
				t.Errorf("the answer tells what happened inside: %s", r.body)
			}
			if !strings.Contains(p.Hint, "trace-me-1") || r.header.Get("X-Request-Id") != "trace-me-1" {
				t.Errorf("hint %q and header %q, want both to name the request", p.Hint, r.header.Get("X-Request-Id"))
			}
			log := e.log.String()
			want := map[string]string{"error": "the secret inside", "panic": "fell over"}[name]
			if !strings.Contains(log, "level=WARN") || !strings.Contains(log, want) || !strings.Contains(log, "trace-me-1") {
				t.Errorf("the log does not have the reason:\n%s", log)
			}
			e.runs.breakWith(nil)
			e.do("GET", "/healthz", "").wants(http.StatusOK)
		})
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	first := e.do("GET", "/healthz", "").header.Get("X-Request-Id")
	second := e.do("GET", "/healthz", "").header.Get("X-Request-Id")
	if first == "" || first == second {
		t.Errorf("request ids %q and %q, want two", first, second)
	}
	for _, odd := range []string{"a b", "<script>", strings.Repeat("a", 65), protocol.NewCredential("ak_")} {
		if got := e.do("GET", "/healthz", "", "X-Request-Id", odd).header.Get("X-Request-Id"); got == odd {
			t.Errorf("request id %q was taken over", odd)
		}
	}
}

// A coordinator without authentication is for this machine: a web page cannot
// reach it through a name that resolves here.
func TestDevelopmentModeAnswersLocalNamesOnly(t *testing.T) {
	t.Parallel()
	local, named := newEnv(t, options{}), newEnv(t, options{auth: auth.Config{AnyHost: true}})
	for _, tt := range []struct {
		e      *env
		host   string
		status int
	}{
		{local, "localhost:8787", 200}, {local, "127.0.0.1", 200}, {local, "[::1]:8787", 200}, {local, "app.localhost", 200},
		{local, "evil.example", 403}, {local, "localhost.evil.example:8787", 403}, {named, "evil.example", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", tt.e.url+"/runs", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tt.host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("host %s (any name: %v): status %d, want %d", tt.host, tt.e == named, res.StatusCode, tt.status)
		}
	}
}

// altered is a credential that differs in its last character.
func altered(secret string) string {
	last := "A"
	if strings.HasSuffix(secret, last) {
		last = "B"
	}
	return secret[:len(secret)-1] + last
}

// No credential of any kind reaches the log, not even one that a client put
// where it does not belong, and none is accepted in a URL.
func TestF48_NoCredentialInLogsOrURLs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{Required: true}})
	admin, err := e.keys.Bootstrap(t.Context(), "default")
	if err != nil || admin == "" {
		t.Fatalf("bootstrap: %q, %v", admin, err)
	}
	bearer := []string{"Authorization", "Bearer " + admin}
	var paired protocol.Paired
	e.do("POST", "/runners", `{"label":"mac"}`, bearer...).wants(http.StatusOK).into(&paired)
	var issued protocol.IssuedKey
	e.do("POST", "/keys", `{"label":"ci"}`, bearer...).wants(http.StatusCreated).into(&issued)
	secrets := []string{admin, paired.Token, issued.APIKey}

	if strings.Contains(paired.AttachCommand, paired.Token) {
		t.Errorf("the attach command has the token in its arguments: %s", paired.AttachCommand)
	}
	for i, secret := range secrets {
		for _, path := range []string{"/runs?token=%s", "/runs?access_token=%s", "/runs?x=%s", "/healthz?api_key=%s", "/nowhere?q=a%%20%s"} {
			p := e.do("GET", fmt.Sprintf(path, secret), "", bearer...).problem(http.StatusBadRequest, protocol.CodeBadRequest)
			if !strings.Contains(p.Message, "credential") || strings.Contains(p.Message+p.Hint, secret) {
				t.Errorf("answer to credential %d in %s: %q, %q", i, path, p.Message, p.Hint)
			}
		}
		// The same where it is merely misplaced.
		e.do("GET", "/"+secret, "", bearer...).wants(http.StatusNotFound)
		e.do("GET", "/runs/"+secret, "", bearer...).wants(http.StatusNotFound)
		e.do("GET", "/runs", "", "Authorization", "Bearer "+altered(secret)).wants(http.StatusUnauthorized)
		e.do("GET", "/runs", "", "Authorization", "Bearer "+secret, "X-Request-Id", secret)
	}
	// The id of a runner looks like its token and is none.
	e.do("GET", "/runs?runner="+paired.Runner.ID, "", bearer...).wants(http.StatusOK)

	e.runs.breakWith(errPanic)
	e.do("GET", "/runs/run_1", "", bearer...).wants(http.StatusInternalServerError)

	log := e.log.String()
	if !strings.Contains(log, "route=/runs") {
		t.Fatalf("nothing was logged:\n%s", log)
	}
	for i, secret := range append(secrets, "ak_"+strings.Repeat("x", 32)) {
		if strings.Contains(log, secret) || strings.Contains(log, secret[:len(secret)-1]) {
			t.Errorf("credential %d is in the log", i)
		}
	}
}
