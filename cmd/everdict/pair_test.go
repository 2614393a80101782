package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// patience is how long a test waits for what has to come: machines are shared.
const patience = time.Minute

// program is everdict as a process whose lines on standard output are read one by one.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string
	errout lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, home string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command("everdict", args...), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home+"/cache", "XDG_STATE_HOME="+home+"/state")
	p.cmd.Dir, p.cmd.Stderr = home, &p.errout
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// said waits for a line that holds a document under a key.
func (p *program) said(key string, into any) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%v ended before it said %s; stderr:\n%s", p.cmd.Args, key, p.errout.String())
			}
			var doc map[string]json.RawMessage
			if json.Unmarshal([]byte(line), &doc) == nil && doc[key] != nil {
				if err := json.Unmarshal(doc[key], into); err != nil {
					p.t.Fatalf("%s: %v", line, err)
				}
				return
			}
		case <-deadline:
			p.t.Fatalf("%v did not say %s; stderr:\n%s", p.cmd.Args, key, p.errout.String())
		}
	}
}

// ends waits for the end and returns the exit code.
func (p *program) ends() int {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) stop() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.ends()
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The whole way of a machine without a browser, with the real programs: it asks, the
// coordinator is restarted and has forgotten it, it asks again, somebody approves it, it
// carries out a run, starts again without --pair, and is unpaired from its own side.
func TestPairByDeviceCode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("programs are stopped by SIGTERM here")
	}
	home, address := t.TempDir(), free(t)
	url := "http://" + address
	serve := func() *program {
		t.Helper()
		c := start(t, home, "coordinator", "--listen", address, "--data-dir", home+"/data", "-o", "json")
		var ready string
		c.said("ready", &ready)
		return c
	}
	coordinator := serve()
	c, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()

	runner := start(t, home, "runner", "--pair", "--api-url", url, "--drain-timeout", "0s", "-o", "json")
	var first, second protocol.PairingStarted
	runner.said("pairing", &first)
	if first.UserCode == "" || first.EnterURL != url+"/ui/pair" || first.Number == "" {
		t.Errorf("the runner shows %+v, want a code, a number, and where to type it in", first)
	}
	if code := coordinator.stop(); code != 0 {
		t.Fatalf("the coordinator ended with %d", code)
	}
	coordinator = serve()
	runner.said("pairing", &second)
	if second.ID == first.ID {
		t.Errorf("after a restart the runner shows %s again, want another request", second.ID)
	}
	seen, err := c.LookupPairing(ctx, strings.ToLower(second.UserCode))
	if err != nil || seen.Number != second.Number || !seen.Headless {
		t.Fatalf("the code finds %+v, %v; want number %s", seen, err, second.Number)
	}
	if _, err := c.ApprovePairing(ctx, seen.ID); err != nil {
		t.Fatal(err)
	}
	var paired struct {
		Runner  string           `json:"runner"`
		Account protocol.Account `json:"account"`
	}
	runner.said("paired", &paired)
	if paired.Account.Subject != "dev" || paired.Account.Workspace != "default" {
		t.Errorf("paired for %+v", paired.Account)
	}
	kept := filepath.Join(home, "state", "everdict", "credential")
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the credential: %v, %v; want a file of mode 0600", info, err)
	}
	works := func(when string) {
		t.Helper()
		run, err := c.Submit(ctx, &protocol.RunRequest{
			Harness: protocol.HarnessRef{ID: "scripted", Version: protocol.Latest, Params: map[string]string{"script": "print 1 lines"}},
			Case:    protocol.Case{ID: "c1", Task: "Follow the script", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}},
			Runtime: protocol.TargetSelfPrefix + paired.Runner,
		})
		if err != nil {
			t.Fatalf("%s: submit: %v", when, err)
		}
		for {
			r, err := c.Run(ctx, run.RunID)
			if err != nil {
				t.Fatalf("%s: %v; the runner:\n%s", when, err, runner.errout.String())
			}
			if r.Status.Terminal() {
				if r.Status != protocol.StatusSucceeded || r.Provenance == nil || r.Provenance.Runner != paired.Runner {
					t.Errorf("%s: the run ended %s on %+v: %+v", when, r.Status, r.Provenance, r.Failure)
				}
				return
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}
	works("paired")
	if code := runner.stop(); code != 0 {
		t.Errorf("the runner ended with %d: %s", code, runner.errout.String())
	}
	if s := runner.errout.String(); strings.Contains(s, "drs_") || strings.Contains(s, second.UserCode) {
		t.Errorf("the log repeats a credential or the code:\n%s", s)
	}

	scope := func(want string) {
		t.Helper()
		r, err := c.Runners(ctx)
		if err != nil || len(r) != 1 || r[0].Scope != want {
			t.Errorf("the runners are %+v, %v; want one with scope %s", r, err, want)
		}
	}
	scope(protocol.RunnerScopeOwner)

	// It knows who it is, and where: neither --pair nor --api-url is needed.
	runner = start(t, home, "runner", "--drain-timeout", "0s", "--scope", "workspace")
	works("started again")
	scope(protocol.RunnerScopeWorkspace)
	out, err := exec.Command("everdict", "runner", "unpair", "--state-dir", filepath.Dir(kept), "-o", "json").Output()
	if err != nil || !strings.Contains(string(out), paired.Runner) || strings.Contains(string(out), "notTold") {
		t.Errorf("unpair: %s, %v", out, err)
	}
	if code := runner.ends(); code != member.ExitRevoked {
		t.Errorf("the runner that was unpaired ended with %d, want %d: %s", code, member.ExitRevoked, runner.errout.String())
	}
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the credential is still there: %v", err)
	}
	if left, err := c.Runners(ctx); err != nil || len(left) != 0 {
		t.Errorf("the coordinator still has %+v, %v", left, err)
	}

	// Somebody says no, and the person at the machine is told; Ctrl-C is a clean end.
	runner = start(t, home, "runner", "--pair", "--api-url", url, "-o", "json")
	runner.said("pairing", &first)
	if _, err := c.DenyPairing(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	if code, s := runner.ends(), runner.errout.String(); code != member.ExitRevoked || !strings.Contains(s, "was not paired: the request was denied") || !strings.Contains(s, `"hint":"ask whoever denied it`) {
		t.Errorf("denied: %d, %s", code, s)
	}
	runner = start(t, home, "runner", "--pair", "--api-url", url, "-o", "json")
	runner.said("pairing", &first)
	if err := runner.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := runner.ends(); code != 0 {
		t.Errorf("interrupted: %d, %s", code, runner.errout.String())
	}
	if code := coordinator.stop(); code != 0 {
		t.Errorf("the coordinator ended with %d", code)
	}
}
