package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoGit is a machine without git.
var ErrNoGit = errors.New("git is not installed: no git in PATH")

// git runs git inside the private store, and nowhere else: the working
// directory, GIT_DIR and the configuration are the store's own. Nothing of the
// environment can turn it to another repository, configuration or helper.
type git struct {
	program string // empty: "git" in PATH
	store   string
	made    bool // the store exists
}

// keep are variables that git, or the wrapper that an operating system has in
// its place, needs to start.
var keep = []string{"PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "DEVELOPER_DIR", "LD_LIBRARY_PATH"}

func (g *git) env() []string {
	env := []string{
		"HOME=" + g.store,
		"XDG_CONFIG_HOME=" + g.store,
		"GIT_DIR=" + g.store,
		"GIT_OBJECT_DIRECTORY=" + g.store,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_TERMINAL_PROMPT=0",
		"LC_ALL=C",
	}
	for _, name := range keep {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// settings are given with every call, so that they hold whatever git's defaults are.
var settings = []string{
	"--no-pager",
	"-c", "core.bare=true",
	"-c", "safe.directory=*",
	"-c", "core.hooksPath=" + os.DevNull,
	"-c", "core.fsmonitor=false",
	"-c", "core.attributesFile=" + os.DevNull,
	"-c", "core.excludesFile=" + os.DevNull,
	"-c", "core.quotePath=true",
	"-c", "core.ignoreCase=false",
	"-c", "core.precomposeUnicode=false",
}

// run runs one git process. codes are the exit codes besides 0 that are an answer.
func (g *git) run(ctx context.Context, stage Stage, stdin io.Reader, stdout io.Writer, env, args []string, codes ...int) error {
	program := g.program
	if program == "" {
		program = "git"
	}
	path, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) {
		return &Error{Stage: stage, Err: ErrNoGit}
	}
	if err != nil {
		return &Error{Stage: stage, Err: err}
	}
	if err := g.ensure(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append(settings[:len(settings):len(settings)], args...)...)
	cmd.Dir = g.store
	cmd.Env = append(g.env(), env...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	stderr := &tail{}
	cmd.Stderr = stderr
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		for _, code := range codes {
			if exit.ExitCode() == code {
				return nil
			}
		}
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &Error{Stage: stage, Stderr: stderr.String(), Err: fmt.Errorf("git %s: %w", args[0], err)}
}

// tail keeps the last bytes that are written to it.
type tail struct{ b []byte }

const tailBytes = 2000

func (t *tail) Write(b []byte) (int, error) {
	if t.b = append(t.b, b...); len(t.b) > 4*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	b := t.b
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// packs is the directory of the store's packs.
func (g *git) packs() string { return filepath.Join(g.store, "pack") }

// spill makes a file for a pack that outgrows memory.
func (g *git) spill() (*os.File, error) {
	if err := g.ensure(); err != nil {
		return nil, err
	}
	return os.CreateTemp(g.store, "tmp_pack_")
}

// ensure makes the private store when it is first needed: as little as git
// accepts as a bare repository, and nothing that git's templates or configuration would
// put there. Most attempts on small repositories that change nothing never need it.
func (g *git) ensure() error {
	if g.made {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(g.store), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{g.store, filepath.Join(g.store, "refs"), g.packs()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// HEAD names a branch that never exists: newer versions of git read
	// attributes of a bare repository from the tree of its HEAD.
	if err := os.WriteFile(filepath.Join(g.store, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600); err != nil {
		return err
	}
	g.made = true
	return nil
}
