//go:build unix

package environment

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/everdict/everdict/protocol"
)

// answer is what no agent may find.
const answer = "ANSWER-5b1f"

// upstream is a repository whose first commit is the task, with the answer in
// every place where history can keep one.
type upstream struct {
	dir    string
	task   string            // the commit of the task
	hidden map[string]string // object ids of the answer, by where they are
}

func newUpstream(t testing.TB) upstream {
	t.Helper()
	u := upstream{dir: filepath.Join(t.TempDir(), "upstream"), hidden: map[string]string{}}
	git(t, "/", "init", "-q", "-b", "main", "--template=", u.dir)
	write(t, u.dir+"/bug.txt", "bug\r\n")
	write(t, u.dir+"/.gitattributes", "*.txt text eol=crlf\n")
	write(t, u.dir+"/run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(u.dir+"/run.sh", 0o755))
	must(t, os.Symlink("bug.txt", u.dir+"/link"))
	git(t, u.dir, "add", "-A")
	git(t, u.dir, "commit", "-q", "-m", "task")
	git(t, u.dir, "tag", "-a", "task-tag", "-m", "x")
	git(t, u.dir, "branch", "task-branch")
	u.task = git(t, u.dir, "rev-parse", "HEAD")

	commit := func(where string) {
		write(t, u.dir+"/fix", answer+" in "+where+"\n")
		git(t, u.dir, "add", "fix")
		git(t, u.dir, "commit", "-q", "-m", where)
		u.hidden[where] = git(t, u.dir, "rev-parse", "HEAD")
		u.hidden[where+"'s file"] = git(t, u.dir, "rev-parse", "HEAD:fix")
	}
	commit("reflog entry")
	git(t, u.dir, "reset", "-q", "--hard", "HEAD~1")
	commit("unreachable object")
	git(t, u.dir, "reset", "-q", "--hard", "HEAD~1")
	git(t, u.dir, "repack", "-q", "-a", "-d", "-k")
	commit("tag")
	git(t, u.dir, "tag", "v2")
	git(t, u.dir, "reset", "-q", "--hard", "HEAD~1")
	write(t, u.dir+"/fix", answer+" in the stash\n")
	git(t, u.dir, "add", "fix")
	git(t, u.dir, "stash", "-q")
	u.hidden["stash"] = git(t, u.dir, "rev-parse", "refs/stash")
	commit("later commit")
	return u
}

// TestF47_NoAnswerInTheHistory looks in the workspace for everything that the
// source repository knows and the task's commit does not.
func TestF47_NoAnswerInTheHistory(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	for _, tt := range []struct {
		name   string
		source protocol.RepoSource
	}{
		{"by branch", protocol.RepoSource{Git: u.dir, Ref: "task-branch"}},
		{"by tag", protocol.RepoSource{Git: u.dir, Ref: "task-tag"}},
		{"by commit", protocol.RepoSource{Git: "file://" + u.dir, Ref: u.task}},
		{"by path", protocol.RepoSource{Path: checkout(t, u)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := attempt(t, tt.source)
			p := prepare(t, a)
			if got, want := git(t, p.Dir(), "rev-parse", "HEAD^{tree}"), git(t, u.dir, "rev-parse", u.task+"^{tree}"); got != want {
				t.Errorf("tree of the workspace: got %s, the task's commit has %s", got, want)
			}
			if got := git(t, p.Dir(), "status", "--porcelain"); got != "" {
				t.Errorf("git status: got %q, want nothing", got)
			}
			for where, id := range u.hidden {
				if out, err := tryGit(p.Dir(), "cat-file", "-p", id); err == nil {
					t.Errorf("the %s is in the workspace:\n%s", where, out)
				}
			}
			for _, ask := range [][]string{
				{"log", "--all", "--reflog", "--format=%s%n%b"}, {"stash", "list"}, {"tag"}, {"remote", "-v"}, {"reflog", "--all"}, {"fsck", "--unreachable", "--lost-found", "--no-progress"},
			} {
				if out := git(t, p.Dir(), ask...); out != "" && out != "baseline" {
					t.Errorf("git %s: got %q", strings.Join(ask, " "), out)
				}
			}
			if got := git(t, p.Dir(), "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
				t.Errorf("refs: got %q, want the branch alone", got)
			}
			if got := git(t, p.Dir(), "rev-list", "--all", "--parents"); got != p.Baseline() {
				t.Errorf("commits with parents: got %q, want %s alone", got, p.Baseline())
			}
			for _, rel := range []string{"objects/info/alternates", "logs", "FETCH_HEAD", "ORIG_HEAD", "shallow", "info/grafts"} {
				if _, err := os.Lstat(filepath.Join(p.Dir(), ".git", rel)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf(".git/%s is there: %v", rel, err)
				}
			}
			all := git(t, p.Dir(), "cat-file", "--batch-all-objects", "--batch")
			if strings.Contains(all, answer) {
				t.Errorf("an object of the workspace holds the answer")
			}
			if _, err := os.Lstat(filepath.Join(a.Root, "private", "source")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the source's store is still there while the agent runs: %v", err)
			}
		})
	}
}

// checkout is a clone at the task's commit, history and all.
func checkout(t testing.TB, u upstream) string {
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, "/", "-c", "core.autocrlf=false", "clone", "-q", "--no-checkout", u.dir, dir)
	write(t, dir+"/.git/info/attributes", "* -text !eol\n")
	git(t, dir, "checkout", "-q", u.task)
	return dir
}

// TestCommitThatIsNoTip asks for a commit in the middle of a branch, of a server
// that hands out tips alone, as git's protocol was before version 2.
func TestCommitThatIsNoTip(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	middle := git(t, u.dir, "rev-parse", "main")
	write(t, u.dir+"/fix", "later still\n")
	git(t, u.dir, "commit", "-q", "-a", "-m", "later still")
	last := git(t, u.dir, "rev-parse", "HEAD")
	real, err := exec.LookPath("git")
	must(t, err)
	log := filepath.Join(t.TempDir(), "log")
	old := filepath.Join(t.TempDir(), "git")
	must(t, os.WriteFile(old, []byte("#!/bin/sh\n"+real+" -c protocol.version=0 \"$@\"; code=$?; echo \"$code $*\" >> "+log+"; exit $code\n"), 0o755))
	p, err := NewSet(Config{Git: old}).Prepare(t.Context(), attempt(t, protocol.RepoSource{Git: "file://" + u.dir, Ref: middle}))
	must(t, err)
	defer p.Cleanup(context.Background())
	if b, err := os.ReadFile(filepath.Join(p.Dir(), "fix")); err != nil || string(b) != answer+" in later commit\n" {
		t.Errorf("fix at the commit in the middle: got %q, %v", b, err)
	}
	if out, err := tryGit(p.Dir(), "cat-file", "-p", last); err == nil {
		t.Errorf("a later commit is in the workspace: %s", out)
	}
	if b, err := os.ReadFile(log); err != nil || strings.Count(string(b), " fetch ") != 2 {
		t.Errorf("git was called so, %v:\n%s\nwant two fetches: the commit alone, refused, then everything", err, b)
	}
}

func TestGitSourceFailures(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	unavailable := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer unavailable.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	for _, tt := range []struct {
		name   string
		source protocol.RepoSource
		class  string
		says   string
	}{
		{"unknown ref", protocol.RepoSource{Git: u.dir, Ref: "no-such"}, protocol.ClassConfig, "no-such"},
		{"unknown commit", protocol.RepoSource{Git: u.dir, Ref: strings.Repeat("12", 20)}, protocol.ClassConfig, strings.Repeat("12", 20)},
		{"no repository", protocol.RepoSource{Git: "/nonexistent/repo"}, protocol.ClassConfig, "/nonexistent/repo"},
		{"nobody listens", protocol.RepoSource{Git: closed.URL + "/r"}, protocol.ClassInfra, "connect"},
		{"503", protocol.RepoSource{Git: unavailable.URL + "/r"}, protocol.ClassInfra, "503"},
		{"404", protocol.RepoSource{Git: missing.URL + "/r"}, protocol.ClassConfig, "not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := refused(t, Config{}, attempt(t, tt.source)).Failure
			if f.Class != tt.class || f.Retryable != (tt.class == protocol.ClassInfra) || !strings.Contains(f.Message, tt.says) {
				t.Errorf("got %+v, want class %s and %q in the message", f, tt.class, tt.says)
			}
		})
	}
}

// TestP12_TokenReachesTheServerAlone fetches from git's own HTTP server with a token, and
// makes sure that the token is on no command line and in no message (P12).
func TestP12_TokenReachesTheServerAlone(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	real, err := exec.LookPath("git")
	must(t, err)
	backend := filepath.Join(git(t, "/", "--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("this git has no HTTP server: %v", err)
	}
	const token = "tok-3f9a-secret"
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))
	handler := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(u.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mu.Lock()
		asked++
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	argv := filepath.Join(t.TempDir(), "argv")
	wrapper := filepath.Join(t.TempDir(), "git")
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\necho \"$@\" >> "+argv+"\nexec "+real+" \"$@\"\n"), 0o755))
	url := server.URL + "/upstream"

	check := func(name string, a Attempt) {
		t.Helper()
		var log strings.Builder
		a.Progress = &log
		p, err := NewSet(Config{Git: wrapper}).Prepare(t.Context(), a)
		must(t, err)
		defer p.Cleanup(context.Background())
		seen, err := os.ReadFile(argv)
		must(t, err)
		dir := git(t, p.Dir(), "config", "--list", "--show-origin")
		for what, text := range map[string]string{"command lines": string(seen), "progress": log.String(), "workspace's configuration": dir} {
			if strings.Contains(text, token) || strings.Contains(text, strings.TrimPrefix(want, "Basic ")) {
				t.Errorf("%s: the token is in the %s:\n%s", name, what, text)
			}
		}
	}
	a := attempt(t, protocol.RepoSource{Git: url, Ref: "task-branch"})
	a.Token = token
	check("as a token", a)
	check("in the URL", attempt(t, protocol.RepoSource{Git: strings.Replace(url, "://", "://x-access-token:"+token+"@", 1), Ref: u.task}))
	if asked == 0 {
		t.Error("the server was never asked with the token")
	}
	a = attempt(t, protocol.RepoSource{Git: strings.Replace(url, "://", "://user:wrong-"+token+"@", 1), Ref: "task-branch"})
	e := refused(t, Config{}, a)
	if e.Failure.Class != protocol.ClassConfig || strings.Contains(e.Error()+e.Failure.LogTail, token) {
		t.Errorf("a wrong password: got %+v, want a config failure without the password", e.Failure)
	}
}

// TestP12_TokenIsNotSentOn: a server that sends git to another server does not send the
// token there (P12); to another path of its own it may.
func TestP12_TokenIsNotSentOn(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	backend := filepath.Join(git(t, "/", "--exec-path"), "git-http-backend")
	handler := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(u.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	const token = "tok-3f9a-secret"
	var mu sync.Mutex
	var elsewhere []string // what came to the other server
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		elsewhere = append(elsewhere, fmt.Sprintf("%s %s %q", r.Method, r.URL, r.Header["Authorization"]))
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		query := "?" + r.URL.RawQuery
		switch {
		case strings.HasPrefix(r.URL.Path, "/away/"):
			http.Redirect(w, r, other.URL+"/"+rest+query, http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/renamed/"):
			http.Redirect(w, r, "/twice/"+rest+query, http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/twice/"):
			http.Redirect(w, r, "/"+rest+query, http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/round/"):
			http.Redirect(w, r, r.URL.Path+query, http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/later/") && r.Method == http.MethodPost:
			http.Redirect(w, r, other.URL+"/"+rest, http.StatusTemporaryRedirect)
		default:
			r.URL.Path = strings.TrimPrefix(r.URL.Path, "/later")
			handler.ServeHTTP(w, r)
		}
	}))
	defer server.Close()

	for _, tt := range []struct{ name, path, ref, says string }{
		{"to another server", "/away/upstream", "task-branch", "sends git on to " + other.URL + "/upstream, and the credential is not for that server"},
		{"to another server, for a commit", "/away/upstream", u.task, "sends git on to " + other.URL + "/upstream, and the credential is not for that server"},
		{"to another server at the second request", "/later/upstream", "task-branch", "sends git on to " + other.URL + "/upstream, and the credential is not for that server"},
		{"round and round", "/round/upstream", "task-branch", "more than 5 times"},
		{"to another path of the server", "/renamed/upstream", "task-branch", ""},
		{"nowhere", "/upstream", "task-branch", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := attempt(t, protocol.RepoSource{Git: server.URL + tt.path, Ref: tt.ref})
			a.Token = token
			if tt.says == "" {
				if got := git(t, prepare(t, a).Dir(), "ls-files"); !strings.Contains(got, "bug.txt") {
					t.Errorf("files of the workspace: %q, want those of the repository", got)
				}
			} else if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassConfig || !strings.Contains(f.Message, tt.says) || strings.Contains(f.Message+f.LogTail, token) {
				t.Errorf("failure %+v, want one of class config that says %q", f, tt.says)
			}
			if len(elsewhere) > 0 {
				t.Errorf("the other server got %v, want nothing", elsewhere)
			}
		})
	}
	t.Run("without a token", func(t *testing.T) {
		prepare(t, attempt(t, protocol.RepoSource{Git: server.URL + "/away/upstream", Ref: "task-branch"}))
		if len(elsewhere) == 0 {
			t.Error("the other server was never asked")
		}
	})
}

func TestCopySource(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	write(t, src+"/a", "a\n")
	write(t, src+"/ro/b", "b\n")
	write(t, src+"/nested/.git/HEAD", answer)
	write(t, src+"/nested/c", "c\n")
	write(t, src+"/.git/HEAD", answer)
	write(t, src+"/.gitignore", "deps/\n")
	write(t, src+"/deps/d", "d\n")
	must(t, os.Symlink("/etc/passwd", src+"/link"))
	must(t, os.Chmod(src+"/a", 0o755))
	must(t, os.Chmod(src+"/ro", 0o555))
	t.Cleanup(func() { os.Chmod(src+"/ro", 0o755) })
	must(t, syscall.Mkfifo(src+"/pipe", 0o644))
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	must(t, os.Chtimes(src+"/a", old, old))
	var log strings.Builder
	a := attempt(t, protocol.RepoSource{Path: src})
	a.Progress = &log
	p := prepare(t, a)
	if got := git(t, p.Dir(), "ls-files"); got != ".gitignore\na\nlink\nnested/c\nro/b" {
		t.Errorf("files of the commit: got %q", got)
	}
	if _, err := os.Stat(p.Dir() + "/deps/d"); err != nil {
		t.Errorf("an ignored file was not copied: %v", err)
	}
	if to, err := os.Readlink(p.Dir() + "/link"); to != "/etc/passwd" || err != nil {
		t.Errorf("link: got %q, %v", to, err)
	}
	info, err := os.Stat(p.Dir() + "/a")
	must(t, err)
	if info.Mode().Perm() != 0o755 || !info.ModTime().Equal(old) || info.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Errorf("a: got %v, %v", info.Mode(), info.ModTime())
	}
	if info, err := os.Stat(p.Dir() + "/ro"); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("ro: got %v, %v", info, err)
	}
	if _, err := os.Lstat(p.Dir() + "/nested/.git"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a nested repository's history was copied: %v", err)
	}
	for _, says := range []string{"pipe", "nested/.git"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("progress does not name %s: %q", says, log.String())
		}
	}
	write(t, p.Dir()+"/a", "changed\n")
	if b, err := os.ReadFile(src + "/a"); err != nil || string(b) != "a\n" {
		t.Errorf("the original after a change in the workspace: got %q, %v", b, err)
	}
}

func TestCopySourceThatHoldsTheWorkspace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := attemptIn(t, root, protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Path: filepath.Dir(root)}})
	if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassConfig {
		t.Errorf("got %+v, want a config failure", f)
	}
}

// TestP12_SourceThatIsHidden: what no job may see is not copied for one either, whatever its path is called.
func TestP12_SourceThatIsHidden(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	write(t, top+"/home/state/credential", "token")
	write(t, top+"/home/state/outbox/log", "log")
	write(t, top+"/home/project/main.go", "package main")
	write(t, top+"/home/project/token", "token")
	write(t, top+"/home/other/a", "a")
	must(t, os.Symlink(top+"/home", top+"/link"))
	must(t, os.Symlink(top+"/home/state", top+"/home/other/state"))
	write(t, top+"/keys/key", "key")
	write(t, top+"/second/main.go", "package main")
	must(t, os.Link(top+"/keys/key", top+"/second/key"))
	c := Config{Hidden: func() []string {
		return []string{top + "/home/state", top + "/home/project/token", top + "/gone", top + "/keys/key"}
	}}
	for name, path := range map[string]string{
		"itself":              "/home/state",
		"below":               "/home/state/outbox",
		"above":               "/home",
		"far above":           "",
		"a file of it":        "/home/project",
		"a second name of it": "/second",
		"by a link":           "/link/state",
		"by a link of its":    "/home/other/state",
		"below by a link":     "/home/other/state/outbox",
		"with dots":           "/home/other/../state",
		"by the process's /":  "@/home/state",
		"below the process's": "@/home/state/outbox",
		"above by that":       "@/home",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := top + path
			if alias, ok := strings.CutPrefix(path, top+"@"); ok {
				if runtime.GOOS != "linux" {
					return
				}
				path = "/proc/self/root" + top + alias
			}
			e := refused(t, c, attempt(t, protocol.RepoSource{Path: path}))
			if f := e.Failure; f.Class != protocol.ClassConfig || f.Retryable || !strings.Contains(f.Message, "hidden from jobs") {
				t.Errorf("got %+v, want a refusal that says why", f)
			}
		})
	}
	t.Run("beside it", func(t *testing.T) {
		t.Parallel()
		a := attempt(t, protocol.RepoSource{Path: top + "/home/other"})
		p, err := NewSet(c).Prepare(t.Context(), a)
		must(t, err)
		defer p.Cleanup(context.Background())
		if b, err := os.ReadFile(p.Dir() + "/a"); string(b) != "a" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

// TestP8_FetchIsBounded: a server that takes the connection and says nothing holds a fetch for as long as it may take.
func TestP8_FetchIsBounded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	a := attempt(t, protocol.RepoSource{Git: "http://user:pass@" + l.Addr().String() + "/r.git"})
	a.Limit = 300 * time.Millisecond
	f := refused(t, Config{}, a).Failure
	want := &protocol.Limit{Name: LimitPrepare, Unit: "s", Configured: 0.3}
	if f.Reason != protocol.ReasonTimeout || f.Class != protocol.ClassInfra || !f.Retryable || f.Limit == nil || f.Limit.Measured < 0.3 ||
		!cmp.Equal(want, f.Limit, cmpopts.IgnoreFields(protocol.Limit{}, "Measured")) || strings.Contains(f.Message, "pass") {
		t.Errorf("got %+v with limit %+v, want a timeout of %+v", f, f.Limit, want)
	}
}

func TestP8_LateSetup(t *testing.T) {
	t.Parallel()
	a := attempt(t, protocol.RepoSource{Files: map[string]string{}}, "sleep 100000")
	a.Exec = func(context.Context, string, string, io.Writer) (int, error) {
		return 0, &LateError{Configured: 30 * time.Minute, Measured: 1801 * time.Second}
	}
	f := refused(t, Config{}, a).Failure
	if f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonTimeout || f.Retryable || f.ExitCode != nil || f.Limit == nil ||
		*f.Limit != (protocol.Limit{Name: LimitPrepare, Unit: "s", Configured: 1800, Measured: 1801}) || !strings.Contains(f.Message, "sleep 100000") {
		t.Errorf("got %+v with limit %+v, want a timeout of the setup line", f, f.Limit)
	}
}

func FuzzValidateFiles(f *testing.F) {
	for _, p := range []string{"a", "a/b", "../a", "/a", "a/../b", ".git/config", ".GIT/x", "git~1/x", "a\x00b", "", "a//b", "a/", "C:\\x", ".git./x", "\xff"} {
		f.Add(p, "x/y")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		files := map[string]string{first: "1", second: "2"}
		if ValidateFiles(files) != nil {
			return
		}
		top := t.TempDir()
		dir := filepath.Join(top, "work")
		must(t, os.Mkdir(dir, 0o755))
		if err := writeFiles(dir, files); err != nil {
			if errors.Is(err, syscall.EILSEQ) || errors.Is(err, syscall.ENAMETOOLONG) {
				return
			}
			t.Fatalf("%q passes but cannot be written: %v", []string{first, second}, err)
		}
		for p, content := range files {
			if b, err := os.ReadFile(filepath.Join(dir, p)); err != nil || string(b) != content {
				t.Errorf("%q: got %q, %v, want %q", p, b, err, content)
			}
		}
		if list, err := os.ReadDir(top); err != nil || len(list) != 1 {
			t.Errorf("%q: something was written beside the workspace: %v, %v", []string{first, second}, list, err)
		}
	})
}

func FuzzCheckGitSource(f *testing.F) {
	for _, u := range []string{"https://h/r", "ext::sh -c x", "-x", "git@h:r", "/abs", "file:///x", "ssh://-oProxyCommand=x/r", "a@b::c"} {
		f.Add(u, "main")
	}
	f.Add("https://u:p@h/r", "refs/heads/x")
	f.Fuzz(func(t *testing.T, rawURL, ref string) {
		if checkGitSource(rawURL, ref) != nil {
			return
		}
		s := splitURL(rawURL, "tok")
		if strings.HasPrefix(s.clean, "-") || strings.ContainsAny(s.clean+s.header+ref, "\n\x00") || strings.HasPrefix(ref, "-") || strings.Contains(ref, ":") {
			t.Errorf("%q %q passes as %q %q", rawURL, ref, s.clean, s.header)
		}
	})
}

func FuzzPackedRef(f *testing.F) {
	f.Add("# pack-refs\n"+strings.Repeat("ab", 20)+" refs/heads/x\n", "refs/heads/x")
	f.Fuzz(func(t *testing.T, packed, ref string) {
		if id := packedRef(packed, ref); id != "" && len(id) != 40 && len(id) != 64 {
			t.Errorf("got %q, which is no id", id)
		}
	})
}
