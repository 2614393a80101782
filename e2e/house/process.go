package house

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program of the product that can be killed and started again.
type Process struct {
	t    testing.TB
	name string
	args func() *exec.Cmd
	// roster is where a runner finds others of its user, unless its environment says: none.
	roster string

	mu  sync.Mutex
	cmd *exec.Cmd
	out bytes.Buffer
}

// rosterEnv is the variable that says where runners of one user find each other. Those of different tests do not.
const rosterEnv = "EVERDICT_ROSTER_DIR"

// NewProcess starts a program; it is killed when the test ends.
func NewProcess(t testing.TB, name string, command func() *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: name, args: command, roster: t.TempDir()}
	p.Start()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("--- %s, its last words:\n%s", name, p.Tail(4000))
		}
	})
	return p
}

// Start starts the program again.
func (p *Process) Start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = p.args()
	if env := p.cmd.Environ(); !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, rosterEnv+"=") }) {
		p.cmd.Env = append(env, rosterEnv+"="+filepath.Join(p.roster, "roster"))
	}
	p.cmd.Stdout, p.cmd.Stderr = (*processOutput)(p), (*processOutput)(p)
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
}

// Kill ends the program with SIGKILL and waits for its end.
func (p *Process) Kill() { p.signal(syscall.SIGKILL) }

// Terminate asks the program to end, waits, and returns its exit code.
func (p *Process) Terminate() int {
	p.signal(syscall.SIGTERM)
	return p.cmd.ProcessState.ExitCode()
}

// Wait waits for the program to end by itself and returns its exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	late := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	if !late.Stop() {
		p.t.Errorf("%s did not end within %v", p.name, Patience)
	}
	return cmd.ProcessState.ExitCode()
}

func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Signal(s) // it may have ended by itself
	_ = cmd.Wait()
}

// Signal sends a signal and does not wait.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// Pid is the process's number.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Tail is the end of what the program printed.
func (p *Process) Tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.out.Bytes()
	return string(b[max(0, len(b)-n):])
}

// processOutput keeps the output of a program, bounded.
type processOutput Process

func (o *processOutput) Write(b []byte) (int, error) {
	p := (*Process)(o)
	// Start holds p.mu only until the program runs; output comes after that.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.Len() > 1<<20 {
		p.out.Next(p.out.Len() / 2)
	}
	return p.out.Write(b)
}

// FreeAddress is a loopback address that nobody listens on at this moment.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// QuickFlags are the flags of a coordinator whose clocks are as in Quick.
var QuickFlags = []string{"--lease-ttl=3s", "--heartbeat=300ms", "--freeze-margin=1s", "--start-ack=2s", "--online-window=2s"}

// LastingFlags are those of a coordinator whose clocks are as in Lasting, and that waits longer for the start of a run.
var LastingFlags = append(slices.Clone(QuickFlags), "--lease-ttl=30s", "--start-ack=20s")

// Coordinator starts the coordinator's program.
func Coordinator(t testing.TB, binary, address string, flags ...string) *Process {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	return NewProcess(t, "coordinator", func() *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"coordinator", "--listen=" + address, "--data-dir=" + dir}, flags...)...)
		cmd.Env = environ(home)
		return cmd
	})
}

// RunnerProcess starts a runner's program with its token in a file.
func RunnerProcess(t testing.TB, binary, url, token string, flags ...string) *Process {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewProcess(t, "runner", func() *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"runner", "--pair=file:" + file, "--api-url=" + url,
			"--state-dir=" + filepath.Join(dir, "state"), "--work-dir=" + filepath.Join(dir, "work")}, flags...)...)
		cmd.Env = environ(home)
		return cmd
	})
}

// PoolRunner starts a runner's program that joins a pool, with the token in a file.
func PoolRunner(t testing.TB, binary, url, token string, flags ...string) *Process {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewProcess(t, "pool runner", func() *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"runner", "--pool-token=file:" + file, "--api-url=" + url,
			"--state-dir=" + filepath.Join(dir, "state"), "--work-dir=" + filepath.Join(dir, "work")}, flags...)...)
		cmd.Env = environ(home)
		return cmd
	})
}

// environ is the environment of a program that knows nothing of this user.
func environ(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, fmt.Sprintf("TMPDIR=%s", os.TempDir())}
}
