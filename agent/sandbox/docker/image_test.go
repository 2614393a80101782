//go:build unix

package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/sandbox"
)

func TestF16_ImpossibleImagesFailInSeconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	for _, c := range []struct {
		image, words string
		retryable    bool
	}{
		{"localhost:1/nope:0", "connection refused", true},
		{"UPPER::bad", "invalid reference format", false},
		{"Upper/case", "must be lowercase", false},
	} {
		t.Run(c.image, func(t *testing.T) {
			t.Parallel()
			var log lines
			begin := time.Now()
			_, err := r.d.Start(t.Context(), r.spec(func(s *sandbox.Spec) { s.Image, s.Progress = c.image, &log }))
			var bad *sandbox.ImageError
			if !errors.As(err, &bad) || bad.Image != c.image || bad.Retryable != c.retryable || !strings.Contains(bad.Words, c.words) {
				t.Errorf("start: %v (%+v), wanted an *ImageError with %q", err, bad, c.words)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("it took %s to fail", took)
			}
			if c.retryable && !strings.Contains(log.String(), "pulling "+c.image) {
				t.Errorf("the run's log is %q", &log)
			}
		})
	}
}

func TestF16_Judge(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]verdict{
		"manifest for alpine:nope not found: manifest unknown: manifest unknown":                                             permanent,
		"pull access denied for nope, repository does not exist or may require 'docker login': denied: requested access ...": permanent,
		"unauthorized: authentication required":                                                                              permanent,
		"no matching manifest for linux/arm64/v8 in the manifest list entries":                                               permanent,
		`choosing an image from manifest list docker://x: no image found in image index for architecture arm64, OS linux`:    permanent,
		"Get \"https://registry.invalid/v2/\": x509: certificate signed by unknown authority":                                permanent,
		"Get \"https://registry.invalid/v2/\": dial tcp: lookup registry.invalid: no such host":                              silent,
		"Get \"http://localhost:1/v2/\": dial tcp 127.0.0.1:1: connect: connection refused":                                  silent,
		"toomanyrequests: You have reached your pull rate limit":                                                             transient,
		"received unexpected HTTP status: 503 Service Unavailable":                                                           transient,
		"Get \"https://registry.invalid/v2/\": net/http: TLS handshake timeout":                                              transient,
		"unexpected EOF": transient,
	} {
		if got := judge(words); got != want {
			t.Errorf("judge(%q) = %v, wanted %v", words, got, want)
		}
	}
}

// fakeEngine answers what a start asks before it makes a container, for an image that only a registry has.
type fakeEngine struct {
	host      string
	platforms []string // of the image in the registry
	answers   []string // of pulls, in order: an error's words, or "" for success
	podman    bool

	mu    sync.Mutex
	pulls int
	has   string // platform of the pulled image; "": not pulled
}

func newFakeEngine(t *testing.T, f *fakeEngine) *fakeEngine {
	t.Helper()
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		w.Header().Set("Api-Version", "1.41")
		switch p := q.URL.Path; {
		case p == "/_ping":
		case path.Base(p) == "info":
			reply(w, 200, system.Info{OSType: "linux", Architecture: "x86_64", PidsLimit: true, MemTotal: 8 << 30})
		case path.Base(p) == "version" && f.podman:
			reply(w, 200, map[string]any{"Components": []any{map[string]any{"Name": "Podman Engine", "Details": map[string]string{"MinAPIVersion": "4.0.0"}}}})
		case path.Base(p) == "version", path.Base(p) == "_ping":
			reply(w, 200, map[string]any{})
		case strings.Contains(p, "/distribution/") && f.podman:
			reply(w, 404, map[string]string{"message": "Not Found"})
		case strings.Contains(p, "/distribution/"):
			var list []map[string]string
			for _, s := range f.platforms {
				sys, arch, _ := strings.Cut(s, "/")
				list = append(list, map[string]string{"os": sys, "architecture": arch})
			}
			reply(w, 200, map[string]any{"Platforms": list})
		case strings.HasSuffix(p, "/images/create"):
			words := f.answers[min(f.pulls, len(f.answers)-1)]
			f.pulls++
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "Pulling from nowhere", "id": "1"})
			if words != "" {
				_ = json.NewEncoder(w).Encode(map[string]any{"error": words})
				return
			}
			f.has = f.platforms[0]
		case strings.Contains(p, "/images/"):
			if f.has == "" {
				reply(w, 404, map[string]string{"message": "No such image"})
				return
			}
			sys, arch, _ := strings.Cut(f.has, "/")
			reply(w, 200, map[string]any{"Id": "sha256:1", "Os": sys, "Architecture": arch, "RepoDigests": []string{"far/away@sha256:2"},
				"Config": map[string]any{"Env": []string{"PATH=/image/bin"}}})
		default:
			reply(w, 500, map[string]string{"message": "the fake engine makes no containers"})
		}
	}))
	t.Cleanup(server.Close)
	f.host = "tcp://" + strings.TrimPrefix(server.URL, "http://")
	return f
}

func TestF21_ForeignArchitectureIsRefusedBeforeThePull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		platforms []string
		has       string
		emulate   bool
		refused   bool
		pulls     int
	}{
		{name: "only foreign", platforms: []string{"linux/arm64", "unknown/unknown"}, refused: true},
		{name: "ours among them", platforms: []string{"linux/amd64", "linux/arm64"}, pulls: 1},
		{name: "foreign and present", has: "linux/arm64", refused: true},
		{name: "foreign, emulation allowed", platforms: []string{"linux/arm64"}, emulate: true, pulls: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeEngine(t, &fakeEngine{platforms: c.platforms, has: c.has, answers: []string{""}})
			cfg := Config{Host: f.host, AllowEmulation: c.emulate, PullTimeout: patience}
			e, err := connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer e.api.Close()
			img, err := e.ensure(t.Context(), cfg, "far/away:1", nil)
			var bad *sandbox.ImageError
			if refused := errors.As(err, &bad); refused != c.refused || f.pulls != c.pulls {
				t.Errorf("%v after %d pulls, wanted refused=%v after %d", err, f.pulls, c.refused, c.pulls)
			}
			if c.refused {
				if !strings.Contains(err.Error(), "linux/arm64") || !strings.Contains(err.Error(), "linux/amd64") {
					t.Errorf("the refusal names not both: %v", err)
				}
				return
			}
			p, err := plan(cfg, e, sandbox.Spec{Attempt: "a", Dir: t.TempDir(), Image: "far/away:1"}, img, "x")
			if err != nil {
				t.Fatal(err)
			}
			if got := []string{p.info.Image, p.info.ImageDigest, p.info.Platform}; !slices.Equal(got, []string{"far/away:1", "sha256:2", c.platforms[0]}) {
				t.Errorf("the record says %q", got)
			}
			if noted := strings.Contains(fmt.Sprint(p.info.Notes), "emulated"); noted != c.emulate || p.info.Emulated != c.emulate {
				t.Errorf("emulated %v, notes %q", p.info.Emulated, p.info.Notes)
			}
			if diff := cmp.Diff([]string{"PATH=/image/bin"}, img.env); diff != "" {
				t.Errorf("the image's environment: %s", diff)
			}
		})
	}
}

func TestF16_TransientPullsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, podman := range []bool{false, true} { // which asks no registry for the platforms of an image
		t.Run(fmt.Sprintf("podman %v", podman), func(t *testing.T) {
			t.Parallel()
			transientPull(t, &fakeEngine{podman: podman, platforms: []string{"linux/amd64"}, answers: []string{"unexpected EOF", ""}})
		})
	}
}

func transientPull(t *testing.T, f *fakeEngine) {
	newFakeEngine(t, f)
	cfg := Config{Host: f.host, PullTimeout: patience}
	e, err := connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.api.Close()
	var log lines
	if _, err := e.ensure(t.Context(), cfg, "far/away:1", &log); err != nil || f.pulls != 2 {
		t.Errorf("%v after %d pulls, wanted success at the second", err, f.pulls)
	}
	for _, want := range []string{"pulling far/away:1", "1: Pulling from nowhere", "trying again in 1s: unexpected EOF"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the run's log lacks %q: %s", want, &log)
		}
	}
	f = newFakeEngine(t, &fakeEngine{platforms: []string{"linux/amd64"}, answers: []string{"toomanyrequests: slow down"}})
	cfg = Config{Host: f.host, PullTimeout: 1200 * time.Millisecond}
	if e, err = connect(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer e.api.Close()
	_, err = e.ensure(t.Context(), cfg, "far/away:1", nil)
	var bad *sandbox.ImageError
	if !errors.As(err, &bad) || !bad.Retryable || !strings.Contains(bad.Words, "toomanyrequests: slow down") || !strings.Contains(bad.Words, "1.2s") {
		t.Errorf("%v, wanted the registry's words and the deadline", err)
	}
}

func TestInfoSaysWhatRuns(t *testing.T) {
	t.Parallel()
	i := newRig(t, Config{}).start().Info()
	if i.Image != busybox || !strings.HasPrefix(i.ImageDigest, "sha256:") || i.Platform != "linux/"+engineOf(t).arch || i.ActsAsUser {
		t.Errorf("info %+v", i)
	}
}
