package dashboard_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/everdict/everdict/coordinator/dashboard"
)

const html, script = "<!doctype html><title>page</title>", "/assets/index-1a2b.js"

func built(t *testing.T) *dashboard.Dashboard {
	t.Helper()
	d, err := dashboard.New(fstest.MapFS{
		"index.html":            {Data: []byte(html)},
		"assets/index-1a2b.js":  {Data: []byte(strings.Repeat("console.log(1);\n", 200))},
		"assets/font-3c.woff2":  {Data: []byte(strings.Repeat("x", 1000))},
		"assets/deep/icon.svg":  {Data: []byte("<svg/>")},
		"vite.manifest.private": {Data: []byte("not served")},
	}, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func get(t *testing.T, d http.Handler, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	for _, pattern := range dashboard.Patterns() {
		mux.Handle(pattern, d)
	}
	mux.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const browser = "text/html,application/xhtml+xml,*/*;q=0.8"

func TestPages(t *testing.T) {
	t.Parallel()
	d := built(t)
	for _, target := range []string{"/", "/ui", "/ui/", "/ui/runs/run_1?tab=log", "/ui/assets/x.js"} {
		res := get(t, d, target, "Accept", browser)
		if got := body(t, res); res.StatusCode != 200 || got != html || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: status %d, %s %q; want the page", target, res.StatusCode, res.Header.Get("Content-Type"), got)
		}
		if res.Header.Get("Cache-Control") != "no-cache" || res.Header.Get("ETag") == "" {
			t.Errorf("%s: caching %q, etag %q; want it asked for each time", target, res.Header.Get("Cache-Control"), res.Header.Get("ETag"))
		}
		if again := get(t, d, target, "Accept", browser, "If-None-Match", res.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its etag: status %d, want 304", target, again.StatusCode)
		}
	}
	for _, target := range []string{"/runs", "/index.html", "/vite.manifest.private", "/assets/none.js", "/assets/../index.html"} {
		if res := get(t, d, target, "Accept", browser); res.StatusCode == 200 {
			t.Errorf("%s is served: %s", target, body(t, res))
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	d := built(t)
	plain := get(t, d, script)
	want := body(t, plain)
	if plain.StatusCode != 200 || !strings.HasPrefix(want, "console.log") || plain.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Fatalf("the script: status %d, %s, %d bytes", plain.StatusCode, plain.Header.Get("Content-Type"), len(want))
	}
	if got := plain.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		t.Errorf("caching %q, want immutable", got)
	}
	packed := get(t, d, script, "Accept-Encoding", "br, gzip")
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatalf("the script in %q: %v", packed.Header.Get("Content-Encoding"), err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != want || packed.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("unpacked: %d bytes, %v; want the same %d", len(b), err, len(want))
	}
	if plain.Header.Get("ETag") == packed.Header.Get("ETag") {
		t.Error("both forms have one strong etag")
	}
	for _, refused := range []string{"", "br", "gzip;q=0", "gzip; q=0.000"} {
		if res := get(t, d, script, "Accept-Encoding", refused); res.Header.Get("Content-Encoding") != "" {
			t.Errorf("Accept-Encoding %q: got %s", refused, res.Header.Get("Content-Encoding"))
		}
	}
	if res := get(t, d, "/assets/font-3c.woff2", "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "" || res.Header.Get("Content-Type") != "font/woff2" {
		t.Errorf("a font: %v; want it as it is", res.Header)
	}
}

// Every answer carries the policy, and it allows neither inline script nor a frame.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	empty, err := dashboard.New(fstest.MapFS{}, "dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*dashboard.Dashboard{built(t), empty} {
		for _, target := range []string{"/", "/ui/runs", script, "/assets/none.js"} {
			res := get(t, d, target, "Accept", browser)
			policy := res.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("%s: policy %q lacks %s", target, policy, want)
				}
			}
			if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
				t.Errorf("%s: policy %q is loose", target, policy)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s: %s %q, want %q", target, name, got, want)
				}
			}
			if !strings.Contains(res.Header.Get("Permissions-Policy"), "camera=()") {
				t.Errorf("%s: Permissions-Policy %q", target, res.Header.Get("Permissions-Policy"))
			}
		}
	}
}

func TestUnbuiltSaysHow(t *testing.T) {
	t.Parallel()
	d, err := dashboard.New(fstest.MapFS{".gitkeep": {}}, "dev")
	if err != nil {
		t.Fatal(err)
	}
	res := get(t, d, "/", "Accept", browser)
	page := body(t, res)
	if d.Built() || res.StatusCode != 200 || !strings.Contains(page, "make dashboard") {
		t.Errorf("without a build: status %d, %s", res.StatusCode, page)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "style=") || strings.Contains(page, "<style") {
		t.Error("the page breaks its own policy")
	}
	if res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("caching %q: it would outlive the build", res.Header.Get("Cache-Control"))
	}
}

// A program that asks for / learns where the API is described.
func TestRootForPrograms(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/json", "*/*", ""} {
		res := get(t, built(t), "/", "Accept", accept)
		var about map[string]string
		if err := json.NewDecoder(res.Body).Decode(&about); err != nil || about["openapi"] != "/openapi.json" || about["version"] != "v1.2.3" {
			t.Errorf("Accept %q: %v, %v", accept, about, err)
		}
	}
}

// What this program was built with is whole, whether there is a page or not.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	d, err := dashboard.Embedded("dev")
	if err != nil {
		t.Fatal(err)
	}
	if res := get(t, d, "/ui/", "Accept", browser); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
}
