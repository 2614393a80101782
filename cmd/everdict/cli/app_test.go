package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/cli/clitest"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// testApp is an invocation in this process.
type testApp struct {
	*app
	stdout, stderr bytes.Buffer
	env            map[string]string
}

func newTestApp(t *testing.T, url string) *testApp {
	t.Helper()
	a := &testApp{app: newApp(showHooks()), env: map[string]string{
		"EVERDICT_API_URL": url, "XDG_CONFIG_HOME": t.TempDir(), // no settings of whoever runs the test
	}}
	a.in, a.out, a.err = strings.NewReader(""), &a.stdout, &a.stderr
	a.getenv = func(name string) string { return a.env[name] }
	return a
}

// golden compares got with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// walk visits every command that a user sees.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			walk(c, visit)
		}
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(New(Hooks{}), func(c *cobra.Command) {
		seen++
		if !strings.Contains(c.Example, "everdict") {
			t.Errorf("%s: Example %q shows no everdict command", c.CommandPath(), c.Example)
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example line %q is not indented", c.CommandPath(), line)
			}
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short %q: want a line without a full stop", c.CommandPath(), c.Short)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 120 {
				t.Errorf("%s: a line of Long is %d characters wide", c.CommandPath(), len(line))
			}
		}
	})
	if seen < 35 {
		t.Errorf("walked %d commands, want at least 35", seen)
	}
}

// quoted is an argument that may hold anything.
var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// Every example can be parsed: its command exists and takes its flags.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	walk(New(Hooks{}), func(c *cobra.Command) {
		for _, line := range strings.Split(c.Example, "\n") {
			line, _, _ = strings.Cut(line, "  #")
			_, line, found := strings.Cut(line, "everdict ")
			if !found {
				continue
			}
			line = quoted.ReplaceAllString(line, "X")
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " && ")
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " < ")
			words := strings.Fields(strings.NewReplacer(")", "", "everdict", "").Replace(line))
			target, rest, err := New(Hooks{}).Find(words)
			if err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
				continue
			}
			for _, w := range rest {
				name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
				switch {
				case strings.HasPrefix(w, "--") && target.Flags().Lookup(name) == nil && target.InheritedFlags().Lookup(name) == nil:
					t.Errorf("%s: example %q: %s has no flag --%s", c.CommandPath(), line, target.CommandPath(), name)
				case len(w) == 2 && w[0] == '-' && target.Flags().ShorthandLookup(name) == nil && target.InheritedFlags().ShorthandLookup(name) == nil:
					t.Errorf("%s: example %q: %s has no flag -%s", c.CommandPath(), line, target.CommandPath(), name)
				}
			}
		}
	})
}

func TestNoFlagTakesTheAPIKey(t *testing.T) {
	t.Parallel()
	walk(New(Hooks{}), func(c *cobra.Command) {
		if f := c.Flags().Lookup("api-key"); f != nil {
			t.Errorf("%s has --api-key: a key would stand in argv", c.CommandPath())
		}
	})
}

func TestEveryErrorSaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "http://127.0.0.1:1")
	if err := a.loadConfig(a.root()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		err  error
		want string
	}{
		{&protocol.Problem{Status: 401, Message: "m"}, "EVERDICT_API_KEY"},
		{&protocol.Problem{Status: 401, Message: "m", Hint: "send an API key as the header Authorization: Bearer ak_..."}, "set EVERDICT_API_KEY or --api-key-file"},
		{&protocol.Problem{Status: 403, Message: "m"}, "everdict keys list"},
		{&protocol.Problem{Status: 404, Message: "m"}, "everdict runs list"},
		{&protocol.Problem{Status: 409, Message: "m"}, "present state"},
		{&protocol.Problem{Status: 413, Message: "m"}, "16 MiB"},
		{&protocol.Problem{Status: 429, Message: "m"}, "wait a little"},
		{&protocol.Problem{Status: 503, Message: "m"}, "coordinator's log"},
		{&protocol.Problem{Status: 400, Message: "m"}, "--help"},
		{&protocol.Problem{Status: 404, Message: "m", Hint: "GET /runs lists them, POST /keys makes one, GET /else stays"}, "everdict runs list lists them, everdict keys create makes one, GET /else stays"},
		{&ExitError{Code: 4, Err: &link.RevokedError{Message: "revoked"}}, "pair this machine again: everdict runners pair"},
		{&link.TakenOverError{}, "end the other process"},
		{&agent.LockedError{}, "end the other process"},
		{&link.UpdateRequiredError{}, "newer everdict"},
		{&net.DNSError{Name: "nowhere", IsNotFound: true}, "not known here: check the address (http://127.0.0.1:1, from $EVERDICT_API_URL)"},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "everdict up"},
		{os.ErrDeadlineExceeded, "network up"},
		{os.ErrNotExist, "check the path"},
		{errors.New("anything"), "see everdict --help"},
	} {
		if got := a.advice(a.root(), row.err); !strings.Contains(got, row.want) {
			t.Errorf("advice on %v is %q, want it to contain %q", row.err, got, row.want)
		}
	}
}

// Two problems in one error: both are told, the hints of neither inside.
func TestMessageOfSeveralProblems(t *testing.T) {
	t.Parallel()
	err := errors.Join(fmt.Errorf("a: %w", protocol.NotFound("no a").WithHint("look")), fmt.Errorf("b: %w", protocol.Conflict("not b")))
	if got, want := messageOf(err), "a: no a\nb: not b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Ctrl-C leaves the run alone, says how to go on, and exits with 130; SIGTERM
// with 143.
func TestInterruptDetachesFromWatching(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	url := f.serve(false)
	for _, row := range []struct {
		args   []string
		signal os.Signal
		code   int
	}{
		{[]string{"runs", "wait"}, os.Interrupt, 130},
		{[]string{"runs", "wait", "-o", "json"}, syscall.SIGTERM, 143},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			t.Parallel()
			a := newTestApp(t, url)
			a.in = strings.NewReader(`{"harness":{"id":"scripted","params":{"script":"hang"}},"case":{"id":"c","task":"x","env":{"kind":"prompt"}}}`)
			if code := a.run(t.Context(), []string{"submit", "-f", "-"}); code != 0 {
				t.Fatalf("submit: exit code %d: %s", code, &a.stderr)
			}
			id, _, _ := strings.Cut(a.stdout.String(), " ")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, append(row.args, id)...)
			cmd.Args[0] = "everdict"
			cmd.Env = append(os.Environ(), "EVERDICT_API_URL="+url)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stderr)
			for line := ""; !strings.Contains(line, "running after"); {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatalf("before it watched: %q, %v", line, err)
				}
			}
			if err := cmd.Process.Signal(row.signal); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(lines)
			if code := clitest.ExitCode(cmd.Wait()); code != row.code {
				t.Errorf("exit code %d, want %d", code, row.code)
			}
			if want := fmt.Sprintf("%s goes on. Watch it again with: everdict runs wait %s\n", id, id); !strings.HasSuffix(string(rest), want) || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q: want the end %q and nothing", rest, &stdout, want)
			}
			a.stdout.Reset()
			if a.run(t.Context(), []string{"runs", "get", id}); !strings.Contains(a.stdout.String(), "running") {
				t.Errorf("the run did not go on: %s", &a.stdout)
			}
		})
	}
}

// A run that asks while somebody watches it: the question is shown with what
// answers it.
func TestWaitShowsTheQuestion(t *testing.T) {
	t.Parallel()
	url := newFake(t).serve(false)
	a := newTestApp(t, url)
	a.in = strings.NewReader(`{"harness":{"id":"scripted","params":{"script":"ask deploy to \u001b[2J production?\ncreate a b"}},
		"case":{"id":"c","task":"x","env":{"kind":"repo","source":{"files":{}}},"graders":[{"id":"tests-pass","config":{"cmd":"grep -q b a"}}]}}`)
	if code := a.run(t.Context(), []string{"submit", "-f", "-"}); code != 0 {
		t.Fatalf("submit: %s", &a.stderr)
	}
	id, _, _ := strings.Cut(a.stdout.String(), " ")
	w := newTestApp(t, url)
	pr, pw := io.Pipe()
	w.err = pw
	done := make(chan int, 1)
	go func() {
		done <- w.run(t.Context(), []string{"runs", "wait", id})
		pw.Close()
	}()
	lines := bufio.NewReader(pr)
	for line := ""; !strings.Contains(line, "waits for"); {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("before the question: %v", err)
		}
		if strings.Contains(line, "waits for") && !strings.Contains(line, id+" waits for an answer to: deploy to ^[[2J production?") {
			t.Errorf("the question is shown as %q", line)
		}
	}
	if line, _ := lines.ReadString('\n'); !strings.Contains(line, "everdict runs approve "+id) {
		t.Errorf("the next line is %q, want how to answer", line)
	}
	go io.Copy(io.Discard, lines)
	if code := newTestApp(t, url).run(t.Context(), []string{"runs", "approve", id}); code != 0 {
		t.Errorf("approve: exit code %d", code)
	}
	if code := <-done; code != 0 || !strings.Contains(w.stdout.String(), "PASS") {
		t.Errorf("wait: exit code %d, %s", code, &w.stdout)
	}
}

func TestAnUnencryptedKeyIsWarnedOf(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]bool{"http://coordinator.invalid": true, "https://coordinator.invalid": false, "http://127.0.0.1:1": false} {
		a := newTestApp(t, base)
		a.env["EVERDICT_API_KEY"], a.output = "ak_precious", "table"
		if err := a.loadConfig(a.root()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.client(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(a.stderr.String(), "unencrypted"); got != want || strings.Contains(a.stderr.String(), "precious") {
			t.Errorf("%s: stderr %q, want a warning: %t", base, &a.stderr, want)
		}
	}
}

// listenAsk is a runner that can be asked once, by what it does with the connection.
func listenAsk(t *testing.T, serve func(conn net.Conn)) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ask") // not t.TempDir: a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	return l.Addr().String()
}

// What is exchanged, and whatever goes wrong with it, is package ask's; here is what the command makes of it.
func TestAsk(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, reply string
		code        int
		stdout      string
		stderr      string
	}{
		{"approved", `{"approved":true,"comment":"go ahead"}` + "\n", 0, "go ahead\n", ""},
		{"rejected", `{"approved":false}` + "\n", 1, "", ""},
		{"nobody there", `{"error":"the run was cancelled"}` + "\n", 2, "", "the run was cancelled\n  next: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			a := newTestApp(t, "")
			a.env[protocol.AskSocketEnv] = listenAsk(t, func(conn net.Conn) {
				line, _ := bufio.NewReader(conn).ReadString('\n')
				asked <- line
				io.WriteString(conn, row.reply)
			})
			code := a.run(t.Context(), []string{"ask", `May "I"?`})
			if got, want := <-asked, `{"question":"May \"I\"?"}`+"\n"; got != want {
				t.Errorf("the runner was sent %q, want %q", got, want)
			}
			if code != row.code || a.stdout.String() != row.stdout || !strings.Contains(a.stderr.String(), row.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q, %q", code, &a.stdout, &a.stderr, row.code, row.stdout, row.stderr)
			}
		})
	}
}

func TestAskOutsideARun(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "")
	if code := a.run(t.Context(), []string{"ask", "anybody?"}); code != 2 || !strings.Contains(a.stderr.String(), "inside a run only") {
		t.Errorf("exit code %d, %s", code, &a.stderr)
	}
}

func TestAskIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := newTestApp(t, "")
	a.env[protocol.AskSocketEnv] = listenAsk(t, func(conn net.Conn) {
		bufio.NewReader(conn).ReadString('\n')
		cancel(&interruptError{os.Interrupt})
		io.Copy(io.Discard, conn) // until the command has hung up
	})
	if code := a.run(ctx, []string{"ask", "anybody?"}); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, &a.stderr)
	}
}

func TestServicesEndWellOnASignal(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		err  error
		want int
	}{
		{"drained", nil, 0},
		{"cancelled", fmt.Errorf("serve: %w", context.Canceled), 0},
		{"a code of its own", &ExitError{Code: 4, Err: errors.New("revoked")}, 4},
		{"broken", errors.New("disk full"), 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			a := newTestApp(t, "http://127.0.0.1:1")
			a.hooks.Coordinator = func(context.Context, CoordinatorOptions) error {
				cancel(&interruptError{syscall.SIGTERM})
				return row.err
			}
			if code := a.run(ctx, []string{"coordinator", "--data-dir", t.TempDir()}); code != row.want {
				t.Errorf("exit code %d, want %d: %s", code, row.want, &a.stderr)
			}
		})
	}
}

// A local run has nobody to go on without: an interrupt ends it and says so.
func TestAnInterruptedLocalRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := newTestApp(t, "http://127.0.0.1:1")
	a.hooks.RunLocal = func(ctx context.Context, _ RunOptions) (int, error) {
		cancel(&interruptError{os.Interrupt})
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	code := a.run(ctx, []string{"run", "--task", "x", "-o", "json"})
	if code != 130 || !strings.Contains(a.stderr.String(), `{"code":"CANCELLED","message":"the run was ended before it was over","hint":"run it again`) || a.stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &a.stdout, &a.stderr)
	}
}

func TestABuildWithoutHooksSaysSo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"up"}, {"coordinator"}, {"runner"}, {"run", "--task", "x"}} {
		a := newTestApp(t, "http://127.0.0.1:1")
		a.hooks = Hooks{}
		if code := a.run(t.Context(), args); code != 2 || !strings.Contains(a.stderr.String(), "this build cannot do everdict "+args[0]) {
			t.Errorf("%v: exit code %d, %s", args, code, &a.stderr)
		}
	}
}

// instant is what the clock of golden files shows.
var instant = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
