package link

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BenchmarkIdleSession measures what an idle connected runner costs its coordinator: heap, stacks and everything else
// that the Go runtime holds, with one waiting pull per runner, after some heartbeats. The runners live in another
// process. LINK_SESSIONS changes their number.
func BenchmarkIdleSession(b *testing.B) {
	n := 5000
	if s := os.Getenv("LINK_SESSIONS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	timing := DefaultTiming()
	timing.Handshake = time.Minute // the machine is busy with n handshakes at once
	c := newCoordinator()
	c.beat = nil
	acceptor, err := NewAcceptor(AcceptConfig{
		Handler: idleCoordinator{c}, Timing: timing,
		Authenticate: func(context.Context, *http.Request, Secret) (Principal, error) { return Principal{Runner: "r"}, nil },
	})
	noErr(b, "acceptor", err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(b, "listen", err)
	server := &http.Server{Handler: acceptor}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()

	measure := func() (m runtime.MemStats) {
		for range 2 { // the second one frees what finalizers held
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m
	}
	before := measure()
	goroutines := runtime.NumGoroutine()
	crowd := exec.Command(os.Args[0])
	crowd.Env = append(os.Environ(), "LINK_CROWD=http://"+ln.Addr().String(), fmt.Sprintf("LINK_CROWD_N=%d", n))
	stop, err := crowd.StdinPipe()
	noErr(b, "pipe", err)
	crowd.Stderr = os.Stderr
	begin := time.Now()
	noErr(b, "start crowd", crowd.Start())
	waitFor(b, 5*time.Minute, "all pulls", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.sessions) < n {
			return false
		}
		for _, s := range c.sessions {
			if len(s.Pulls()) == 0 {
				return false
			}
		}
		return c.beats >= 2*n
	})
	connected := time.Since(begin)
	after := measure()
	per := func(a, b uint64) float64 { return (float64(a) - float64(b)) / float64(n) }
	heap, stack := per(after.HeapAlloc, before.HeapAlloc), per(after.StackInuse, before.StackInuse)
	b.ReportMetric(heap, "heap-B/session")
	b.ReportMetric(stack, "stack-B/session")
	b.ReportMetric(heap+stack, "B/session")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(n), "goroutines/session")
	b.ReportMetric(connected.Seconds(), "s-until-idle")
	b.ReportMetric(0, "ns/op")
	b.Logf("%d sessions: %.0f bytes each (heap %.0f, stacks %.0f), %.1f goroutines; connected after %v", n, heap+stack, heap, stack,
		float64(runtime.NumGoroutine()-goroutines)/float64(n), connected)
	if heap+stack > 40_000 {
		b.Errorf("an idle session costs %.0f bytes, want at most 40000", heap+stack)
	}
	begin = time.Now()
	_ = stop.Close()
	_ = crowd.Wait()
	b.Logf("crowd gone after %v", time.Since(begin))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	noErr(b, "shutdown", acceptor.Shutdown(ctx, 0))
}

// idleCoordinator has no work, and waits for it without a goroutine.
type idleCoordinator struct{ *coordinator }

func (idleCoordinator) Pull(ctx context.Context, _ *CoordinatorSession, _ PullRequest, answer func(*Attempt, error)) {
	context.AfterFunc(ctx, func() { answer(nil, ctx.Err()) })
}

func waitFor(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", d, what)
		}
		<-tick.C
	}
}

// crowd is the other process of BenchmarkIdleSession: runners that connect, pull and wait until stdin ends.
func crowd(url string) {
	n, _ := strconv.Atoi(os.Getenv("LINK_CROWD_N"))
	timing := DefaultTiming()
	timing.Handshake = time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	turn := make(chan struct{}, 64)
	for i := range n {
		all.Go(func() {
			turn <- struct{}{}
			s, err := Dial(ctx, DialConfig{URL: url, Credential: testToken, Handler: &runner{}, Timing: timing,
				Hello: func() Hello {
					return Hello{Version: "1.0.0", OS: "linux", Arch: "amd64", Slots: 1, Hostname: fmt.Sprint("host-", i),
						Capabilities: []string{"git", "docker"}, Instance: "0123456789abcdef"}
				}})
			<-turn
			if err != nil {
				fmt.Fprintf(os.Stderr, "dial %d: %v\n", i, err)
				return
			}
			_, _ = s.Pull(ctx, PullRequest{Request: fmt.Sprint("req_", i)})
			s.Close(CloseReason{Code: CloseNormal})
			_ = s.Wait()
		})
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	cancel()
	all.Wait()
}

// BenchmarkPull is the round trip from an attempt that becomes available to the acknowledged start, both ends here.
func BenchmarkPull(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("job=%dkB", size>>10), func(b *testing.B) {
			bench := newBench(b, func(c *AcceptConfig) { c.Timing = DefaultTiming() })
			a := job("a", size)
			bench.c.onPull = func(context.Context) (*Attempt, error) { return &a, nil }
			s := bench.dial(bench.config(&runner{}))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				o, err := s.Pull(b.Context(), PullRequest{Request: strconv.Itoa(i)})
				noErr(b, "pull", err)
				_, err = o.Started(b.Context())
				noErr(b, "started", err)
			}
		})
	}
}

// BenchmarkEvidence is the throughput of one channel with every chunk acknowledged, both ends here, storing nothing.
func BenchmarkEvidence(b *testing.B) {
	bench := newBench(b, func(c *AcceptConfig) { c.Timing = DefaultTiming() })
	bench.c.forget = true
	s := bench.dial(bench.config(&runner{}))
	w, err := s.OpenEvidence(b.Context(), job("a", 0).AttemptRef)
	noErr(b, "open", err)
	p := make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	b.ResetTimer()
	for i := range b.N {
		noErr(b, "send", w.Send(b.Context(), "log", int64(i)*int64(len(p)), p))
	}
	noErr(b, "flush", w.Flush(b.Context()))
	b.StopTimer()
	w.Close()
}
