package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// idleRunners is the size of the idle fleet.
const idleRunners = 5000

// BenchmarkIdleFleet connects 5,000 idle runners to a coordinator in a process of
// its own, reports what each costs it in memory, kills it, and reports how long
// they take to come back and what a submit costs meanwhile, of 100 a second.
func BenchmarkIdleFleet(b *testing.B) {
	for b.Loop() {
		idleFleet(b)
	}
}

func idleFleet(b *testing.B) {
	address := house.FreeAddress(b)
	coordinator := house.Coordinator(b, binary(b), address, "--log-level=error")
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	house.Eventually(b, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	tokens := pairMany(b, c, idleRunners+1)
	target := "self:" + tokens[idleRunners].Runner.ID
	before := residentKB(b, coordinator.Pid())

	var online, begun, learned atomic.Int64
	var sessions sync.WaitGroup
	for _, paired := range tokens[:idleRunners] {
		sessions.Go(func() { idle(ctx, c.BaseURL(), paired.Token, &online, &begun, &learned) })
	}
	house.Eventually(b, "the fleet is connected", func() bool { return online.Load() == idleRunners })
	// Those that came first were welcomed to a small fleet.
	house.Eventually(b, "a heartbeat has told each runner the size of the fleet", func() bool { return learned.Load() == idleRunners })
	b.ReportMetric(float64(residentKB(b, coordinator.Pid())-before)/idleRunners, "kB/runner")

	body := fmt.Sprintf(submitBody, target) // nobody is there to take it
	calm := 0
	took := steadily(b, c.BaseURL(), body, func() bool { calm++; return calm <= 500 })
	b.ReportMetric(took.quantile(99), "idle-submit-p99-ms")

	from := time.Now()
	coordinator.Kill()
	coordinator.Start()
	house.Eventually(b, "the coordinator is ready again", func() bool { return c.Ready(ctx) == nil })
	b.ReportMetric(time.Since(from).Seconds(), "s-until-ready")
	took = steadily(b, c.BaseURL(), body, func() bool {
		if time.Since(from) > house.Patience {
			b.Fatalf("only %d of %d runners are back after %v", online.Load(), idleRunners, house.Patience)
		}
		return begun.Load() < 2*idleRunners || online.Load() < idleRunners
	})
	b.ReportMetric(time.Since(from).Seconds(), "s-until-back")
	b.ReportMetric(took.quantile(99), "submit-p99-ms")
	b.ReportMetric(float64(len(took)), "submits")
	for line := range strings.Lines(memory(b, c.BaseURL())) {
		b.Log(strings.TrimSpace(line))
	}
	stop()
	sessions.Wait()
}

// steadily submits 100 runs a second as long as more says so, however long each takes, and returns how long it took from
// its moment on.
func steadily(b *testing.B, url, body string, more func() bool) durations {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	var took durations
	var posts sync.WaitGroup
	moment := time.NewTicker(10 * time.Millisecond)
	defer moment.Stop()
	for more() {
		at := <-moment.C
		posts.Go(func() {
			if err := post(&http.Client{Transport: transport}, url+"/runs", []byte(body)); err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took.add(time.Since(at))
		})
	}
	posts.Wait()
	return took
}

// idle is a runner that never gets work. online counts the sessions that live, begun those that ever did, learned the
// runners that know the size of the fleet, within a hundredth, by the window in which it is to come back.
func idle(ctx context.Context, url, token string, online, begun, learned *atomic.Int64) {
	_ = link.Keep(ctx, link.DialConfig{
		URL: url, Credential: link.Secret(token), Handler: &learner{learned: learned},
		Hello: func() link.Hello {
			return link.Hello{Version: "bench", OS: "linux", Arch: "amd64", Slots: 1, Instance: token, Capabilities: []string{"git"}}
		},
	}, func(ctx context.Context, s *link.RunnerSession) error {
		online.Add(1)
		begun.Add(1)
		defer online.Add(-1)
		_, err := s.Pull(ctx, link.PullRequest{Request: protocol.NewID("req_")})
		return err
	})
}

// learner notes the size of the fleet.
type learner struct {
	idleHandler
	learned *atomic.Int64
	knows   bool
}

func (h *learner) Renewed(_ time.Time, ack link.HeartbeatAck) {
	if !h.knows && ack.Redial.Std() >= idleRunners*2*time.Millisecond*99/100 {
		h.knows = true
		h.learned.Add(1)
	}
}

type idleHandler struct{}

func (idleHandler) Beat() link.Heartbeat                 { return link.Heartbeat{Free: 1} }
func (idleHandler) Renewed(time.Time, link.HeartbeatAck) {}
func (idleHandler) Cancel(link.Cancel)                   {}
func (idleHandler) Drain(link.Drain)                     {}
func (idleHandler) Status(link.Status)                   {}

func pairMany(b *testing.B, c *client.Client, n int) []protocol.Paired {
	b.Helper()
	all := make([]protocol.Paired, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				p, err := c.Pair(context.Background(), &protocol.PairRequest{Label: fmt.Sprintf("idle-%d", i)})
				if err != nil {
					b.Error(err)
					return
				}
				all[i] = *p
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return all
}

// memory is what the coordinator says of its own memory.
func memory(b *testing.B, url string) string {
	b.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(resp.Body); err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(all.String()) {
		if strings.HasPrefix(line, "go_memstats_") && strings.Contains(line, "_bytes") || strings.HasPrefix(line, "go_goroutines") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// residentKB is the resident memory of a process in kB.
func residentKB(b *testing.B, pid int) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb
		}
	}
	b.Fatal("no VmRSS in the process's status")
	return 0
}

// BenchmarkSubmitHTTP measures durable submits over HTTP on 64 connections, with
// the coordinator in a process of its own.
func BenchmarkSubmitHTTP(b *testing.B) {
	address := house.FreeAddress(b)
	house.Coordinator(b, binary(b), address, "--log-level=error")
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(b, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	paired, err := c.Pair(ctx, &protocol.PairRequest{Label: "nobody"})
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(fmt.Sprintf(submitBody, "self:"+paired.Runner.ID))
	const connections = 64
	transport := &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	http := &http.Client{Transport: transport}
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := post(http, c.BaseURL()+"/runs", body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
}

// submitBody is the run of the README, for a target.
const submitBody = `{"harness":{"id":"scripted","version":"latest"},"runtime":%q,"case":{"id":"c1",
	"env":{"kind":"repo","source":{"files":{}}},"task":"Create ok.txt containing the text done",
	"graders":[{"id":"tests-pass","config":{"cmd":"grep -q done ok.txt"}}],"timeoutSec":120,"tags":[]}}`

func post(c *http.Client, url string, body []byte) error {
	resp, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("submit: %s: %s", resp.Status, answer.String())
	}
	return nil
}
