//go:build unix

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent/sandbox"
)

// between serves an engine's API with change in between: it may answer, change the request, or do neither.
func between(t *testing.T, engine string, change func(w http.ResponseWriter, r *http.Request) (answered bool)) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(engine, "unix://"))
	}}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker"
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !change(w, r) {
			proxy.ServeHTTP(w, r)
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
		transport.CloseIdleConnections()
		os.RemoveAll(dir)
	})
	return "unix://" + path
}

// An engine that takes a limit and does not set it is found out before the job starts.
func TestALimitThatTheEngineDropsIsNone(t *testing.T) {
	t.Parallel()
	e := engineOf(t)
	host := between(t, e.host, func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/containers/create") {
			return false
		}
		var doc map[string]any
		if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"Memory", "MemorySwap", "PidsLimit"} {
			delete(doc["HostConfig"].(map[string]any), name)
		}
		body, err := json.Marshal(doc)
		if err != nil {
			t.Error(err)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return false
	})
	d := New(Config{Image: busybox, Host: host})
	defer d.Close()
	r := &rig{T: t, d: d, e: e}
	for what, declare := range map[string]func(*sandbox.Spec){
		"process limit": func(s *sandbox.Spec) { s.Resources.PIDs = 100 },
		"memory limit":  func(s *sandbox.Spec) { s.Resources.MemoryMB = 64 },
	} {
		s := r.spec(declare)
		_, err := d.Start(t.Context(), s)
		var not *sandbox.UnsupportedError
		if !errors.As(err, &not) || not.What != what {
			t.Errorf("start: %v, wanted a refusal of the %s", err, what)
		}
		if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
			t.Errorf("a refused start left %+v", left)
		}
	}
	info := r.start().Info()
	if len(info.Limits) != 0 || !strings.Contains(strings.Join(info.Notes, "; "), "limit") {
		t.Errorf("nothing is limited, and the record says %+v, notes %q", info.Limits, info.Notes)
	}
}

// podman is an engine that says of itself what a Podman does; the controllers are those of its own API.
func podman(t *testing.T, rootless bool, controllers ...string) *engine {
	t.Helper()
	host := between(t, engineOf(t).host, func(w http.ResponseWriter, r *http.Request) bool {
		var answer any
		switch {
		case r.URL.Path == "/v4.0.0/libpod/info":
			answer = map[string]any{"host": map[string]any{"cgroupControllers": controllers, "security": map[string]any{"rootless": rootless}}}
		case strings.HasSuffix(r.URL.Path, "/version"):
			answer = map[string]any{"ApiVersion": "1.41", "Components": []any{
				map[string]any{"Name": "Podman Engine", "Details": map[string]string{"MinAPIVersion": "4.0.0"}}}}
		case strings.HasSuffix(r.URL.Path, "/info"): // that of a Podman before 4.4: it tells of the machine
			answer = map[string]any{"OSType": "linux", "Architecture": "x86_64", "MemoryLimit": true, "PidsLimit": true, "SwapLimit": true,
				"CpuCfsQuota": true, "CPUShares": true, "CgroupVersion": "2", "CgroupDriver": "systemd", "DefaultRuntime": "crun", "NCPU": 2,
				"MemTotal": 8 << 30, "SecurityOptions": []string{"name=seccomp,profile=default"},
				"Runtimes": map[string]any{"crun": map[string]any{"path": "crun"}, "runsc": map[string]any{"path": "runsc"}}}
		default:
			return false
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
		return true
	})
	e, err := connect(t.Context(), Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.api.Close() })
	return e
}

// Rootless Podman: root of a container is the runner, and what the user's cgroup cannot limit is refused, or said.
func TestF22_RootlessPodman(t *testing.T) {
	t.Parallel()
	e := podman(t, true, "memory")
	s := (&rig{T: t}).spec()
	p, err := plan(Config{}, e, s, pulled{arch: e.arch}, "me")
	if err != nil {
		t.Fatal(err)
	}
	if p.config.User != "0:0" || p.host.CPUShares != 0 || p.host.PidsLimit != nil || p.host.Memory == 0 {
		t.Errorf("container of user %q, %+v", p.config.User, p.host.Resources)
	}
	if len(p.info.Limits) != 1 || p.info.Limits[0].Name != "memory" || !strings.Contains(fmt.Sprint(p.info.Notes), "pids controller") {
		t.Errorf("limits %+v, notes %q", p.info.Limits, p.info.Notes)
	}
	if p.info.Freezer != "pause" {
		t.Errorf("it is frozen by %q", p.info.Freezer)
	}
	if p, err := plan(Config{}, podman(t, true), s, pulled{arch: e.arch}, "me"); err != nil || p.info.Freezer != "sigstop" || len(p.info.Limits) != 0 {
		t.Errorf("without any controller: %+v, %v", p.info, err)
	}
	for _, declare := range []sandbox.Resources{{PIDs: 10}, {CPUMillis: 100}} {
		s.Resources = declare
		var not *sandbox.UnsupportedError
		if _, err := plan(Config{}, e, s, pulled{arch: e.arch}, "me"); !errors.As(err, &not) {
			t.Errorf("%+v: %v, wanted a refusal", declare, err)
		}
	}
}

// Podman takes no runtime from a request: it would run the job in its own without a word.
func TestPodmanRefusesARuntime(t *testing.T) {
	t.Parallel()
	e := podman(t, false, "memory", "pids", "cpu")
	s := (&rig{T: t}).spec()
	var not *sandbox.UnsupportedError
	if _, err := plan(Config{Runtime: "runsc"}, e, s, pulled{arch: e.arch}, "me"); !errors.As(err, &not) || not.What != "runtime" {
		t.Errorf("runsc: %v, wanted a refusal", err)
	}
	if p, err := plan(Config{Runtime: "crun"}, e, s, pulled{arch: e.arch}, "me"); err != nil || p.host.Runtime != "" {
		t.Errorf("its own: %v, %q", err, p.host.Runtime)
	}
}

func TestF27_PodmanMounts(t *testing.T) {
	t.Parallel()
	e := podman(t, false, "memory", "pids", "cpu")
	for name, c := range map[string]struct {
		dir     string
		hide    string
		refused string
		tmpfs   bool
		mounts  int
	}{
		"a plain path":                   {dir: "plain"},
		"what breaks CSV":                {dir: "a,b\n\"c\""},
		"a colon":                        {dir: "a:b", mounts: 1},
		"a colon and what breaks CSV":    {dir: "a:b,c", refused: "mount"},
		"a hidden directory":             {dir: "plain", hide: "key", tmpfs: true},
		"a hidden directory and a colon": {dir: "a:b", hide: "key", refused: "hidden path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := (&rig{T: t}).spec()
			s.Dir = filepath.Join(s.Dir, c.dir)
			if c.hide != "" {
				s.Hide = []string{filepath.Join(s.Dir, c.hide)}
			}
			if err := os.MkdirAll(filepath.Join(s.Dir, c.hide), 0o755); err != nil {
				t.Fatal(err)
			}
			p, err := plan(Config{}, e, s, pulled{arch: e.arch}, "me")
			if c.refused != "" {
				var not *sandbox.UnsupportedError
				if !errors.As(err, &not) || not.What != c.refused {
					t.Errorf("%v, wanted a refusal of the %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.mounts == 0 && !slices.Contains(p.host.Binds, s.Dir+":"+s.Dir) || len(p.host.Mounts) != c.mounts {
				t.Errorf("binds %q, mounts %+v", p.host.Binds, p.host.Mounts)
			}
			// Without notmpcopyup, Podman copies what is to be hidden into what hides it.
			want := map[string]string(nil)
			if c.tmpfs {
				want = map[string]string{s.Hide[0]: "ro,notmpcopyup"}
			}
			if !maps.Equal(p.host.Tmpfs, want) {
				t.Errorf("tmpfs %v, wanted %v", p.host.Tmpfs, want)
			}
		})
	}
}

// Counters of a cgroup that is not the container's own are nobody's: they would call any other's OOM the run's.
func TestF15_CountersAreTheContainersOwn(t *testing.T) {
	t.Parallel()
	ask := func(driver, version string, memory, pids, cpu bool) (paths []string) {
		h := &handle{engine: &engine{}}
		i := &h.engine.info
		i.CgroupDriver, i.CgroupVersion, i.MemoryLimit, i.PidsLimit, i.CPUShares = driver, version, memory, pids, cpu
		for _, q := range h.questions() {
			paths = append(paths, strings.TrimPrefix(q.path, cgroupRoot))
		}
		return paths
	}
	if got := ask("none", "1", false, false, false); len(got) != 0 {
		t.Errorf("a rootless engine on cgroup v1 is asked for %q", got)
	}
	if got := ask("cgroupfs", "1", false, false, false); len(got) != 0 {
		t.Errorf("rootless Podman on cgroup v1 is asked for %q", got)
	}
	if got := ask("cgroupfs", "1", false, true, true); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "memory") }) || len(got) != 4 {
		t.Errorf("an engine without a memory controller is asked for %q", got)
	}
	if got := ask("cgroupfs", "1", true, true, true); len(got) != len(cgroup1) {
		t.Errorf("a whole engine is asked for %q", got)
	}
	if got := ask("systemd", "2", true, true, false); len(got) != len(cgroup2) {
		t.Errorf("a rootless engine on cgroup v2 is asked for %q", got)
	}
}

// Podman prepares the container when it is attached to. What is wrong with the container comes in its words.
func TestWordsOfARefusedAttach(t *testing.T) {
	t.Parallel()
	e := engineOf(t)
	const reason = "crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted"
	host := between(t, e.host, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/attach") && !strings.HasSuffix(r.URL.Path, "/start") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		if err := json.NewEncoder(w).Encode(map[string]string{"message": reason}); err != nil {
			t.Error(err)
		}
		return true
	})
	d := New(Config{Image: busybox, Host: host})
	defer d.Close()
	s := (&rig{T: t}).spec()
	if _, err := d.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("start: %v, wanted the engine's words %q", err, reason)
	}
	if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
		t.Errorf("a failed start left %+v", left)
	}
}

// A container that Podman has killed and does not know to have ended is asked for again.
func TestRemoveOutlastsAnImproperState(t *testing.T) {
	t.Parallel()
	e := engineOf(t)
	refusals := make(chan struct{}, 3)
	for range cap(refusals) {
		refusals <- struct{}{}
	}
	host := between(t, e.host, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		select {
		case <-refusals:
		default:
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"message":"container state improper: stopped"}`)
		return true
	})
	d := New(Config{Image: busybox, Host: host})
	defer d.Close()
	s := (&rig{T: t}).spec()
	h, err := d.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 || len(refusals) != 0 {
		t.Errorf("left %+v after all but %d refusals", left, len(refusals))
	}
}
