package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// background is a job-runner that goes on beside the test.
type background struct {
	*exec.Cmd
	mu        sync.Mutex
	out, errs strings.Builder
	over      chan struct{}
}

// start begins it, and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) *background {
	t.Helper()
	b := &background{Cmd: cmd, over: make(chan struct{})}
	cmd.Stdout = print{func(s string) { b.mu.Lock(); defer b.mu.Unlock(); b.out.WriteString(s) }}
	cmd.Stderr = print{func(s string) { b.mu.Lock(); defer b.mu.Unlock(); b.errs.WriteString(s) }}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.over)
		_ = cmd.Wait() // the test reads its code
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-b.over
		if t.Failed() {
			t.Logf("the runner said:\n%s", b.errs.String())
		}
	})
	return b
}

// says whether it has said something so far.
func (b *background) says(what string) func() bool {
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(b.errs.String(), what)
	}
}

// ends waits for its end, and returns the result that it has printed.
func (b *background) ends(t *testing.T, code int) []byte {
	t.Helper()
	house.Eventually(t, "the runner ends by itself", func() bool {
		select {
		case <-b.over:
			return true
		default:
			return false
		}
	})
	if got := b.ProcessState.ExitCode(); got != code {
		t.Errorf("it ended with code %d, want %d", got, code)
	}
	result := protocol.ResultIn([]byte(b.out.String()))
	if result == nil {
		t.Fatalf("it printed %q, want its result", b.out.String())
	}
	return result
}

// poolRunner is the real job-runner, which joins the pool "pool" and takes one run.
func poolRunner(t *testing.T, h *house.House, more ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(h.PoolToken("pool", 600).Token), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(jobRunner(t))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "EVERDICT_RUNNER_DIR=" + dir, "EVERDICT_JOIN_TOKEN_FILE=" + token, "EVERDICT_API_URL=" + h.URL()}, more...)
	return cmd
}

// gated submits a run to the pool "pool" that ends when the gate is there.
func gated(t *testing.T, h *house.House) (run, gate string) {
	t.Helper()
	gate = filepath.Join(t.TempDir(), "gate")
	req := house.Scripted("run while [ ! -e " + gate + " ]; do sleep 0.02; done")
	req.Runtime = "pool"
	return h.Submit(req), gate
}

func open(t *testing.T, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// succeeded brings a result, and wants the run done by it.
func succeeded(t *testing.T, h *house.House, run string, result []byte) {
	t.Helper()
	if _, err := h.Client.Deliver(t.Context(), run, 1, result); err != nil {
		t.Errorf("deliver: %v", err)
	}
	if r := h.Settled(run); r.Status != protocol.StatusSucceeded || r.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d: %+v; want it done at once", r.Status, r.Attempt, r.Failure)
	}
}

// TestF18_ARunnerThatHasToEnd: a launched runner that is told to end while it cannot deliver
// prints its result, long before the time for delivering is over: what it has in its
// container goes with it.
func TestF18_ARunnerThatHasToEnd(t *testing.T) {
	t.Parallel()
	t.Run("payload", func(t *testing.T) {
		t.Parallel()
		h := house.New(t, house.Quick)
		run, file := handOut(t, h, house.Scripted("say an hour of work"))
		h.Stop()
		b := start(t, payloadRunner(t, file, "EVERDICT_API_URL="+h.URL(), "EVERDICT_DRAIN_TIMEOUT=1s"))
		house.Eventually(t, "its run has ended", b.says("attempt ended"))
		_ = b.Process.Signal(syscall.SIGTERM)
		result := b.ends(t, 0)
		h.Start()
		succeeded(t, h, run, result)
	})
	t.Run("token", func(t *testing.T) {
		t.Parallel()
		h := house.New(t, house.Lasting)
		h.Runtime("pool", 1)
		run, gate := gated(t, h)
		b := start(t, poolRunner(t, h, "EVERDICT_DRAIN_TIMEOUT=1s"))
		h.Running(run)
		h.Stop()
		open(t, gate)
		house.Eventually(t, "its run has ended", b.says("attempt ended"))
		_ = b.Process.Signal(syscall.SIGTERM)
		b.ends(t, 2)
	})
}

// TestATurnedAwayRunner: one that may not speak to its coordinator any more prints the
// result that it has, and one with a payload does its work before.
func TestATurnedAwayRunner(t *testing.T) {
	t.Parallel()
	t.Run("payload", func(t *testing.T) {
		t.Parallel()
		h := house.New(t, house.Quick)
		gate := filepath.Join(t.TempDir(), "gate")
		run, file := handOut(t, h, house.Scripted("run while [ ! -e "+gate+" ]; do sleep 0.02; done"))
		b := start(t, payloadRunner(t, file, "EVERDICT_API_URL=http://"+refusing(t, "127.0.0.1:0")))
		house.Eventually(t, "it is turned away", b.says("has turned this runner away"))
		open(t, gate)
		succeeded(t, h, run, b.ends(t, 0))
	})
	t.Run("token", func(t *testing.T) {
		t.Parallel()
		h := house.New(t, house.Lasting)
		h.Runtime("pool", 1)
		run, gate := gated(t, h)
		b := start(t, poolRunner(t, h))
		h.Running(run)
		h.Stop()
		open(t, gate)
		house.Eventually(t, "its run has ended", b.says("attempt ended"))
		refusing(t, h.Address)
		b.ends(t, 4)
	})
}

// refusing is a coordinator that takes no runner.
func refusing(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"code":"FORBIDDEN","message":"this runner is revoked"}`)
	})}
	go func() { _ = srv.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}
