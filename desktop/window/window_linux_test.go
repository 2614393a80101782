package window

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/displaytest"
	"github.com/everdict/everdict/desktop/eventually"
)

// page is what a window shows: it takes each token once.
type page struct {
	addr    string
	mu      sync.Mutex
	minted  int
	fetched chan string // tokens, as they are used
	leave   string      // where the page goes by itself
}

func newPage(t *testing.T) *page {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{addr: l.Addr().String(), fetched: make(chan string, 64)}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		p.fetched <- r.URL.Query().Get("token")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>page</title><p>it is shown</p>")
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leave != "" {
			fmt.Fprintf(w, "<script>location.href = %q</script>", p.leave)
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	return p
}

func (p *page) url() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.minted++
	return fmt.Sprintf("http://%s/?token=secret-%d-of-the-page", p.addr, p.minted), nil
}

func (p *page) wantFetch(t *testing.T, token string) {
	t.Helper()
	select {
	case got := <-p.fetched:
		if got != token {
			t.Fatalf("the page was fetched with %q, want %q", got, token)
		}
	case <-time.After(eventually.Patience):
		t.Fatalf("the page was not fetched with %q", token)
	}
}

func wantDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(eventually.Patience):
		t.Fatal("the window is closed, and its process goes on")
	}
}

// chromiumArgs are what Chromium needs as root and on a machine without a GPU.
var chromiumArgs = []string{"--no-sandbox", "--test-type", "--disable-gpu", "--disable-quic", "--disable-component-update"}

// programDir has the app as it is shipped: without cgo, which purego does another way.
var programDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		os.RemoveAll(programDir)
	}
	os.Exit(code)
}

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "everdict-window-test-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "everdict-desktop")
	cmd := exec.Command("go", "build", "-o", path, "github.com/everdict/everdict/cmd/everdict-desktop")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the app: %w\n%s", err, out)
	}
	return path, nil
})

func config(t *testing.T, environ []string, p *page, kinds ...Kind) (Config, *bytes.Buffer) {
	t.Helper()
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the window's process said:\n%s", stderr.String())
		}
	})
	return Config{
		Executable: exe, URL: p.url, Environ: environ, Stderr: &stderr,
		Options: Options{Title: "Everdict test", Kinds: kinds, ProfileDir: t.TempDir(), BrowserArgs: chromiumArgs},
	}, &stderr
}

func open(t *testing.T, cfg Config) *Process {
	t.Helper()
	w, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestWebView(t *testing.T) {
	d, p := displaytest.Start(t), newPage(t)
	cfg, _ := config(t, d.Environ(os.Environ()), p, WebView)

	t.Run("shown and closed by its frame", func(t *testing.T) {
		w := open(t, cfg)
		p.wantFetch(t, "secret-1-of-the-page")
		if w.Kind() != WebView || !w.Tracked() {
			t.Errorf("the window is %q, tracked %v, want a web view that is", w.Kind(), w.Tracked())
		}
		for _, file := range []string{"cmdline", "environ"} {
			if b := readProc(t, w.cmd.Process.Pid, file); bytes.Contains(b, []byte("secret-")) || bytes.Contains(b, []byte(p.addr)) {
				t.Errorf("%s of the window's process has the address of the page: %q", file, b)
			}
		}
		id := d.Window(t, "everdict")
		if title := d.Title(t, id); title != "Everdict test" {
			t.Errorf("the window is titled %q", title)
		}
		if err := w.Raise(); err != nil {
			t.Errorf("raise the window: %v", err)
		}
		d.CloseWindow(t, id)
		wantDone(t, w)
		if err := w.Err(); err != nil {
			t.Errorf("the window that a person closed ended with %v", err)
		}
	})
	t.Run("closed by the parent", func(t *testing.T) {
		w := open(t, cfg)
		p.wantFetch(t, "secret-2-of-the-page")
		if err := w.Close(); err != nil {
			t.Errorf("close the window: %v", err)
		}
		wantDone(t, w)
		if err := w.Close(); err != nil {
			t.Errorf("close it again: %v", err)
		}
	})
	t.Run("closed with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.wantFetch(t, "secret-3-of-the-page")
		cancel()
		wantDone(t, w)
	})
	t.Run("closed while the processes of its engine hang", func(t *testing.T) {
		w := open(t, cfg)
		p.wantFetch(t, "secret-4-of-the-page")
		for _, pid := range children(t, w.cmd.Process.Pid) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Errorf("stop process %d: %v", pid, err)
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
		}
		d.CloseWindow(t, d.Window(t, "everdict"))
		wantDone(t, w)
		if err := w.Err(); err != nil {
			t.Errorf("the window that a person closed ended with %v", err)
		}
	})
	t.Run("its process is killed", func(t *testing.T) {
		w := open(t, cfg)
		p.wantFetch(t, "secret-5-of-the-page")
		_ = w.cmd.Process.Kill()
		wantDone(t, w)
		if w.Err() == nil {
			t.Error("the window whose process was killed ended without an error")
		}
	})
}

// TestLinkOutOfThePage: it opens in the default browser, and the window stays at the page.
func TestLinkOutOfThePage(t *testing.T) {
	d, p := displaytest.Start(t), newPage(t)
	bin := newBin(t)
	bin.script("xdg-open", "echo \"$1\" > "+bin.dir+"/part && mv "+bin.dir+"/part "+bin.dir+"/opened\n")
	p.leave = "https://everdict.example/runs/run_1?x=1#y"
	cfg, _ := config(t, bin.environ(d), p, WebView)
	w := open(t, cfg)
	p.wantFetch(t, "secret-1-of-the-page")
	eventually.Nil(t, "the link to be opened", func() error {
		b, err := os.ReadFile(bin.dir + "/opened")
		if err == nil && string(b) != p.leave+"\n" {
			err = fmt.Errorf("xdg-open was given %q, want %q", b, p.leave)
		}
		return err
	})
	select {
	case <-w.Done():
		t.Errorf("the window is gone: %v", w.Err())
	default:
	}
}

// bin is a directory of programs that is looked into first.
type bin struct {
	t   *testing.T
	dir string
}

func newBin(t *testing.T) bin { return bin{t, t.TempDir()} }

func (b bin) script(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func (b bin) environ(d *displaytest.Display) []string {
	environ := slices.DeleteFunc(d.Environ(os.Environ()), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	return append(environ, "PATH="+b.dir+":/usr/bin:/bin")
}

func TestAppMode(t *testing.T) {
	d, p := displaytest.Start(t), newPage(t)
	cfg, _ := config(t, d.Environ(os.Environ()), p, App)
	dir := cfg.Options.ProfileDir
	left := filepath.Join(dir, profilePrefix+strconv.Itoa(deadPid(t))+"-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}

	w := open(t, cfg)
	p.wantFetch(t, "secret-1-of-the-page")
	if w.Kind() != App || !w.Tracked() {
		t.Errorf("the window is %q, tracked %v, want a browser in app mode that is", w.Kind(), w.Tracked())
	}
	if err := w.Raise(); !errors.Is(err, ErrNotOurs) {
		t.Errorf("raise a browser's window: %v, want %v", err, ErrNotOurs)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the profile of a process that was killed is still there: %v", err)
	}
	d.CloseWindow(t, d.Window(t, "everdict"))
	wantDone(t, w)
	if err := w.Err(); err != nil {
		t.Errorf("the window that a person closed ended with %v", err)
	}

	w = open(t, cfg)
	p.wantFetch(t, "secret-2-of-the-page")
	if err := w.Close(); err != nil {
		t.Errorf("close the window: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("profiles are left: %v, %v", files, err)
	}

	// The resident process is killed: its end of the pipe goes. The window's own process is:
	// the browser goes with the thread that started it.
	w = open(t, cfg)
	p.wantFetch(t, "secret-3-of-the-page")
	browser := children(t, w.cmd.Process.Pid)
	_ = w.cmd.Process.Kill()
	wantDone(t, w)
	for _, pid := range browser {
		eventually.Nil(t, fmt.Sprintf("browser process %d to end", pid), func() error { return ended(pid) })
	}
}

func TestNextWay(t *testing.T) {
	d, p := displaytest.Start(t), newPage(t)

	// A browser that does not start, and xdg-open that keeps what it was given.
	bin := newBin(t)
	bin.script("chromium", "exit 7\n")
	bin.script("xdg-open", "printf '%s\\n' \"$#\" \"$1\" > "+filepath.Join(bin.dir, "opened")+"\n")
	environ := bin.environ(d)
	cfg, _ := config(t, environ, p, App, Browser)
	w := open(t, cfg)
	wantDone(t, w)
	if w.Kind() != Browser || w.Tracked() || w.Err() != nil {
		t.Errorf("the window is %q, tracked %v, %v, want a tab of the default browser", w.Kind(), w.Tracked(), w.Err())
	}
	b, err := os.ReadFile(filepath.Join(bin.dir, "opened"))
	if want := fmt.Sprintf("1\nhttp://%s/?token=secret-2-of-the-page\n", p.addr); err != nil || string(b) != want {
		t.Errorf("xdg-open was given %q (%v), want one argument with an address of its own: %q", b, err, want)
	}

	bin.script("xdg-open", "exit 3\n")
	cfg, _ = config(t, environ, p, App, Browser)
	w = open(t, cfg) // the browser was started, and failed afterwards
	wantDone(t, w)
	if err := w.Err(); err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no browser is set up") {
		t.Errorf("with nothing that works: %v, want both reasons", err)
	}
}

func TestNoDisplay(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	environ := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "DISPLAY=") || strings.HasPrefix(kv, "WAYLAND_DISPLAY=")
	})
	cfg, stderr := config(t, environ, p)
	_, err := Open(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), ErrNoDisplay.Error()) {
		t.Errorf("without a display: %v, want %v", err, ErrNoDisplay)
	}
	// One that is named, and is not there.
	cfg, stderr = config(t, append(environ, "DISPLAY=:4095"), p, WebView)
	_, err = Open(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), ErrNoDisplay.Error()) || strings.Contains(stderr.String(), "panic") {
		t.Errorf("with a display that is not there: %v, want %v; stderr %s", err, ErrNoDisplay, stderr)
	}
	if p.minted != 0 {
		t.Errorf("%d addresses were made for windows that never were", p.minted)
	}
}

func TestMissingLibrary(t *testing.T) {
	t.Parallel()
	if _, err := library("libeverdict-is-not-there.so.0", "libnor-is-this.so"); err == nil || !strings.Contains(err.Error(), "libnor-is-this") {
		t.Errorf("open libraries that are not there: %v, want an error that names them", err)
	}
	libc, err := library("libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	var f func() int32
	if err := bind(libc, map[string]any{"everdict_is_no_function_of_c": &f}); err == nil || !strings.Contains(err.Error(), "everdict_is_no_function_of_c") {
		t.Errorf("bind a function that is not there: %v, want an error that names it", err)
	}
	if err := bind(libc, map[string]any{"getpid": &f}); err != nil || int(f()) != os.Getpid() {
		t.Errorf("bind getpid: %v, it says %d, want %d", err, f(), os.Getpid())
	}
}

// TestAddressThatIsRefused: a parent that goes wrong cannot make the window a browser of
// other pages.
func TestAddressThatIsRefused(t *testing.T) {
	d, p := displaytest.Start(t), newPage(t)
	cfg, _ := config(t, d.Environ(os.Environ()), p, WebView)
	cfg.URL = func() (string, error) { return "http://192.0.2.1/?token=secret", nil }
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "loopback") || strings.Contains(err.Error(), "secret") {
		t.Errorf("an address of another machine: %v, want it refused, and not repeated", err)
	}
	cfg.URL = func() (string, error) { return "", errors.New("the page is not up") }
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the page is not up") {
		t.Errorf("no address: %v, want the reason", err)
	}
}

func readProc(t *testing.T, pid int, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func children(t *testing.T, pid int) []int {
	t.Helper()
	var pids []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(b, []byte(") "))
		if f := strings.Fields(string(rest)); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	if len(pids) == 0 {
		t.Fatalf("process %d has no children", pid)
	}
	return pids
}

// ended says nil if the process has, or just waits for its parent to look.
func ended(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, rest, _ := bytes.Cut(b, []byte(") ")); err != nil || bytes.HasPrefix(rest, []byte("Z")) {
		return nil
	}
	return fmt.Errorf("it is there: %s", b)
}

// deadPid is the id of a process that has ended.
func deadPid(t *testing.T) int {
	t.Helper()
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return p.Pid
}
