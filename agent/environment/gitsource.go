package environment

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// schemes are the transports that a source may use. Git has others that run
// programs ("ext::").
var schemes = []string{"https", "http", "ssh", "git", "file"}

var (
	scpLike  = regexp.MustCompile(`^[A-Za-z0-9_.~-]+@[A-Za-z0-9_.\[\]:-]+?:[^:].*$`)
	commitID = regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)
	refBad   = regexp.MustCompile("[\x00-\x20\x7f~^:?*\\[\\\\]|\\.\\.|@\\{|//|^[-/+]|/$|\\.$|\\.lock(/|$)|(^|/)\\.")
)

// checkGitSource refuses a URL that is no URL of an allowed transport, and a ref that git
// could take for an option, a pattern or a pair.
func checkGitSource(rawURL, ref string) error {
	if strings.HasPrefix(rawURL, "-") || strings.ContainsFunc(rawURL, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return errors.New("the git URL is not a clone URL")
	}
	if scheme, _, ok := strings.Cut(rawURL, "://"); ok {
		if !slices.Contains(schemes, scheme) {
			return fmt.Errorf("the git URL's scheme %q is none of %s", protocol.Clip(scheme, 20), strings.Join(schemes, ", "))
		}
		u, err := url.Parse(rawURL)
		if err != nil {
			return errors.New("the git URL cannot be parsed") // err quotes it, with its password
		}
		if scheme != "file" && (u.Host == "" || strings.HasPrefix(u.Host, "-")) {
			return errors.New("the git URL names no host")
		}
	} else if !filepath.IsAbs(rawURL) && (!scpLike.MatchString(rawURL) || strings.Contains(rawURL, "::")) {
		return errors.New("the git URL is neither scheme://host/path, user@host:path nor an absolute path")
	}
	if ref != "" && (refBad.MatchString(ref) || ref == "@" || len(ref) > 1000) {
		return fmt.Errorf("the ref %q is not a branch, a tag or a full commit id", protocol.Clip(ref, 80))
	}
	return nil
}

// sourceURL is a clone URL with its credentials taken out of it: what git gets
// on its command line, which every process of the machine can read, has none (P12).
type sourceURL struct {
	clean  string
	header string   // "Authorization: ..." for an HTTP server, or ""
	scope  string   // the server that the header goes to
	secret []string // what may not be in any message
}

func splitURL(rawURL, token string) sourceURL {
	s := sourceURL{clean: rawURL}
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		if err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok {
				s.secret = append(s.secret, password)
				u.User = url.User(u.User.Username())
				s.clean = u.String()
			}
		}
		return s
	}
	user, password := "", ""
	if u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
		u.User = nil
		s.clean = u.String()
	}
	if token != "" {
		user, password = "x-access-token", token
	}
	if user == "" && password == "" {
		return s
	}
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	s.header, s.scope = "Authorization: Basic "+basic, u.Scheme+"://"+u.Host+"/"
	s.secret = append(s.secret, basic)
	if password != "" {
		s.secret = append(s.secret, password)
	} else {
		s.secret = append(s.secret, user) // a token in the place of a name
	}
	return s
}

func (s sourceURL) redact(text string) string {
	for _, secret := range s.secret {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// rawAttributes turn every conversion off that a repository can ask for: the
// workspace holds the bytes of its blobs, so the diff applies to the upstream commit,
// and no filter program of the machine runs.
const rawAttributes = "* -text !eol !crlf -ident !filter !working-tree-encoding\n"

// fetch gets one commit of a repository into a store of its own, writes its
// files to the workspace and removes the store, and with it every other commit.
func (r *Repo) fetch(ctx context.Context, a Attempt, p *preparedRepo) error {
	began, whole := time.Now(), ctx
	if a.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(whole, a.Limit)
		defer cancel()
	}
	err := r.fetchWithin(ctx, a, p)
	if ctx.Err() == nil || whole.Err() != nil || err == nil {
		return err
	}
	late := &LateError{Configured: a.Limit, Measured: time.Since(began)}
	e := configError(protocol.CodeUpstreamError, "", late, "fetch of %s: %v", splitURL(a.Spec.Source.Git, a.Token).clean, late)
	e.Failure.Class, e.Failure.Retryable = protocol.ClassInfra, true
	late.on(&e.Failure)
	return e
}

func (r *Repo) fetchWithin(ctx context.Context, a Attempt, p *preparedRepo) error {
	src := splitURL(a.Spec.Source.Git, a.Token)
	ref := a.Spec.Source.Ref
	if ref == "" {
		ref = "HEAD"
	}
	g := &fetcher{repo: r, store: filepath.Join(p.private, "source"), work: p.dir, src: src}
	if err := os.MkdirAll(g.store, 0o700); err != nil {
		return hostError("make the store for the source", err)
	}
	if _, err := g.run(ctx, "init", "--quiet", "--bare", "--template=", g.store); err != nil {
		return g.failure(ctx, err, ref)
	}
	if err := os.MkdirAll(filepath.Join(g.store, "info"), 0o700); err != nil {
		return hostError("write the source's attributes", err)
	}
	if err := os.WriteFile(filepath.Join(g.store, "info", "attributes"), []byte(rawAttributes), 0o600); err != nil {
		return hostError("write the source's attributes", err)
	}
	fmt.Fprintf(a.Progress, "fetching %s of %s\n", ref, src.clean)
	commit, err := g.commitOfServer(ctx, ref)
	if err != nil {
		return g.failure(ctx, err, ref)
	}
	if _, err := g.run(ctx, "read-tree", "--reset", "-u", commit); err != nil {
		return g.failure(ctx, err, ref)
	}
	fmt.Fprintf(a.Progress, "fetched commit %s\n", commit)
	if err := RemoveTree(ctx, g.store); err != nil {
		return hostError("remove the source's history", err)
	}
	return nil
}

type fetcher struct {
	repo        *Repo
	store, work string
	src         sourceURL
}

const sourceRef = "refs/everdict/source"

// commit fetches ref, alone where the server allows, and returns its commit.
func (g *fetcher) commit(ctx context.Context, ref string) (string, error) {
	fetch := []string{"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"}
	_, err := g.run(ctx, append(fetch, "--depth=1", "--", g.src.clean, "+"+ref+":"+sourceRef)...)
	want := sourceRef
	if err != nil && ctx.Err() == nil && commitID.MatchString(ref) && !transient(err) {
		// Some servers hand out the tips of branches only. The commit is then
		// looked for in everything that they have.
		want = ref
		_, err = g.run(ctx, append(fetch, "--", g.src.clean, "+refs/heads/*:refs/everdict/heads/*", "+refs/tags/*:refs/everdict/tags/*")...)
	}
	if err != nil {
		return "", err
	}
	out, err := g.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", want+"^{commit}")
	if err != nil {
		return "", &gitError{args: "rev-parse", stderr: "there is no such commit", err: err}
	}
	return strings.TrimSpace(out), nil
}

// gitError is a git process that failed.
type gitError struct {
	args, stderr string
	err          error
}

func (e *gitError) Error() string { return fmt.Sprintf("git %s: %v: %s", e.args, e.err, e.stderr) }
func (e *gitError) Unwrap() error { return e.err }

// run runs one git process in the store.
func (g *fetcher) run(ctx context.Context, args ...string) (string, error) {
	return g.runEnv(ctx, nil, args...)
}

// runEnv is run with more variables.
func (g *fetcher) runEnv(ctx context.Context, more []string, args ...string) (string, error) {
	path, err := exec.LookPath(g.repo.cfg.Git)
	if err != nil {
		return "", err
	}
	all := []string{
		"--no-pager",
		"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false",
		"-c", "core.autocrlf=false", "-c", "core.attributesFile=" + os.DevNull,
		"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false",
		"-c", "fetch.writeCommitGraph=false", "-c", "protocol.allow=never", "-c", "safe.directory=*",
	}
	for _, s := range schemes {
		all = append(all, "-c", "protocol."+s+".allow=always")
	}
	cmd := exec.CommandContext(ctx, path, append(all, args...)...)
	cmd.Dir = g.store
	cmd.Env = append(g.env(), more...)
	if args[0] == "read-tree" { // the only one that has to see the workspace
		cmd.Env = append(cmd.Env, "GIT_WORK_TREE="+g.work)
	}
	cmd.WaitDelay = 5 * time.Second
	ownSession(cmd)
	var stdout bytes.Buffer
	stderr := &outputTail{}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	if err := cmd.Run(); err != nil {
		return "", &gitError{args: args[0], stderr: g.src.redact(stderr.String()), err: err}
	}
	return stdout.String(), nil
}

// env is git's environment: of the runner's own only what a program needs to
// start and to reach a server, unless the machine's git configuration is wanted.
func (g *fetcher) env() []string {
	own := g.repo.cfg.MachineGit
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		switch {
		case slices.Contains([]string{"PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "DEVELOPER_DIR", "LD_LIBRARY_PATH",
			"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"}, upper):
			env = append(env, kv)
		case own && slices.Contains([]string{"HOME", "USERPROFILE", "APPDATA", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "USER", "LOGNAME",
			"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "DBUS_SESSION_BUS_ADDRESS"}, upper):
			env = append(env, kv)
		}
	}
	env = append(env,
		"GIT_DIR="+g.store, "GIT_INDEX_FILE="+filepath.Join(g.store, "index"),
		"GIT_TERMINAL_PROMPT=0", "GCM_INTERACTIVE=never", "SSH_ASKPASS_REQUIRE=never", "GIT_LFS_SKIP_SMUDGE=1", "LC_ALL=C",
	)
	if !own {
		env = append(env,
			"HOME="+g.store, "XDG_CONFIG_HOME="+g.store, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_ATTR_NOSYSTEM=1",
			"GIT_SSH_COMMAND=ssh -F none -oBatchMode=yes -oIdentityAgent=none -oIdentityFile=none",
		)
	}
	if g.src.header != "" {
		// Git looks up once which headers a server gets, and sends them wherever that
		// one sends it (see commitOfServer).
		env = append(env, "GIT_CONFIG_COUNT=2",
			"GIT_CONFIG_KEY_0=http."+g.src.scope+".extraHeader", "GIT_CONFIG_VALUE_0="+g.src.header,
			"GIT_CONFIG_KEY_1=http."+g.src.scope+".followRedirects", "GIT_CONFIG_VALUE_1=false")
	}
	return env
}

// transientWords are in git's messages about servers that could not be reached, which
// another try may reach.
var transientWords = []string{
	"could not resolve host", "connection refused", "connection timed out", "connection reset", "operation timed out", "network is unreachable",
	"failed to connect", "early eof", "unexpected disconnect", "the remote end hung up unexpectedly", "returned error: 5", "returned error: 429",
	"temporary failure in name resolution", "could not read from remote repository", "tls connection was non-properly terminated",
}

func transient(err error) bool {
	var e *gitError
	if !errors.As(err, &e) {
		return false
	}
	text := strings.ToLower(e.stderr)
	if strings.Contains(text, "permission denied") || strings.Contains(text, "host key verification failed") || strings.Contains(text, "does not appear to be a git repository") {
		return false
	}
	return slices.ContainsFunc(transientWords, func(w string) bool { return strings.Contains(text, w) })
}

// failure says what a failed fetch means for the run.
func (g *fetcher) failure(ctx context.Context, err error, ref string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ge *gitError
	switch {
	case diskFull(err), errors.As(err, &ge) && strings.Contains(ge.stderr, "No space left on device"):
		e := hostError("fetch the source", err)
		e.Failure.Reason = protocol.ReasonDiskFull
		return e
	case ge == nil:
		return hostError("fetch the source", err)
	}
	e := configError(protocol.CodeBadRequest, protocol.ReasonSetup, err, "could not fetch %s of %s: %s", ref, g.src.clean, protocol.Clip(lastLine(ge.stderr), 300))
	e.Failure.LogTail = ge.stderr
	if transient(err) {
		e.Failure.Class, e.Failure.Code, e.Failure.Retryable = protocol.ClassInfra, protocol.CodeUpstreamError, true
	}
	return e
}

// lastLine returns the last line that git marks as an error, or the last of all.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "fatal: ") || strings.HasPrefix(line, "error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}
