package page_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/everdict/everdict/desktop/page"
)

const html = "<!doctype html><title>page</title>"

func built(t *testing.T) *page.Page {
	t.Helper()
	p, err := page.New(fstest.MapFS{
		"index.html":             {Data: []byte(html)},
		"assets/index-1a2b.js":   {Data: []byte("console.log(1)\n")},
		"assets/index-1a2b.css":  {Data: []byte("body{}\n")},
		"assets/font-3c.woff2":   {Data: []byte("xxxx")},
		"assets/deep/icon.svg":   {Data: []byte("<svg/>")},
		"vite.manifest.private":  {Data: []byte("not served")},
		"assets/unknown.thing99": {Data: []byte("bytes")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(p http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(method, "http://127.0.0.1"+target, nil))
	return w
}

func TestServes(t *testing.T) {
	t.Parallel()
	p := built(t)
	for target, want := range map[string][2]string{
		"/":                      {"text/html; charset=utf-8", html},
		"/assets/index-1a2b.js":  {"text/javascript; charset=utf-8", "console.log(1)\n"},
		"/assets/index-1a2b.css": {"text/css; charset=utf-8", "body{}\n"},
		"/assets/font-3c.woff2":  {"font/woff2", "xxxx"},
		"/assets/deep/icon.svg":  {"image/svg+xml", "<svg/>"},
		"/assets/unknown.thing99": {
			"application/octet-stream", "bytes"},
	} {
		w := ask(p, http.MethodGet, target)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want[0] || w.Body.String() != want[1] {
			t.Errorf("%s: %d, %s, %q; want 200, %s, %q", target, w.Code, w.Header().Get("Content-Type"), w.Body, want[0], want[1])
		}
		if head := ask(p, http.MethodHead, target); head.Code != http.StatusOK || head.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d with %d bytes; want 200 with none", target, head.Code, head.Body.Len())
		}
	}
	// Stripped of its prefix, a path may also be empty.
	stripped := httptest.NewRecorder()
	http.StripPrefix("/w/secret/", p).ServeHTTP(stripped, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/w/secret/", nil))
	if stripped.Code != http.StatusOK || stripped.Body.String() != html {
		t.Errorf("below a prefix: %d %q; want the page", stripped.Code, stripped.Body)
	}
	for _, target := range []string{"/index.html", "/vite.manifest.private", "/assets", "/assets/", "/assets/../index.html", "/api/state", "/assets/none.js"} {
		if w := ask(p, http.MethodGet, target); w.Code != http.StatusNotFound || w.Body.Len() != 0 {
			t.Errorf("%s: %d %q; want an empty 404", target, w.Code, w.Body)
		}
	}
	if w := ask(p, http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", w.Code)
	}
}

// Every answer has the policy, and the policy allows nothing inline and nothing from elsewhere.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	empty, err := page.New(fstest.MapFS{".gitkeep": {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*page.Page{built(t), empty} {
		for _, target := range []string{"/", "/assets/index-1a2b.js", "/assets/none.js"} {
			h := ask(p, http.MethodGet, target).Header()
			policy := h.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("%s: policy %q lacks %s", target, policy, want)
				}
			}
			if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
				t.Errorf("%s: policy %q is loose", target, policy)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s: %s %q, want %q", target, name, got, want)
				}
			}
		}
	}
}

func TestUnbuiltSaysHow(t *testing.T) {
	t.Parallel()
	p, err := page.New(fstest.MapFS{".gitkeep": {}})
	if err != nil {
		t.Fatal(err)
	}
	w := ask(p, http.MethodGet, "/")
	if got := w.Body.String(); p.Built() || w.Code != http.StatusOK || !strings.Contains(got, "make dashboard") {
		t.Errorf("without a build: built %t, %d, %s", p.Built(), w.Code, got)
	}
	if strings.Contains(w.Body.String(), "<script") || strings.Contains(w.Body.String(), "style") {
		t.Error("the page breaks its own policy")
	}
}

// What this program was built with is whole, whether there is a page or not, and knows no address of its own.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	p, err := page.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	w := ask(p, http.MethodGet, "/")
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	for _, bad := range []string{`src="/`, `href="/`, "<style", "style="} {
		if strings.Contains(w.Body.String(), bad) {
			t.Errorf("the page has %s: it lies below a path that it does not know", bad)
		}
	}
}
