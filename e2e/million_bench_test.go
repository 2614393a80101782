package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// BenchmarkMillionQueued fills a coordinator with a million queued runs over HTTP
// (QUEUED in the environment changes the number), reports its memory, kills it, and
// reports how long it takes from its start to the first lease of a runner that has
// been dialling all the time.
func BenchmarkMillionQueued(b *testing.B) {
	for b.Loop() {
		millionQueued(b)
	}
}

func millionQueued(b *testing.B) {
	n := int64(1_000_000)
	if v := os.Getenv("QUEUED"); v != "" {
		var err error
		if n, err = strconv.ParseInt(v, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	address := house.FreeAddress(b)
	coordinator := house.Coordinator(b, binary(b), address, "--log-level=error")
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	house.Eventually(b, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	paired, err := c.Pair(ctx, &protocol.PairRequest{Label: "late", Capabilities: []string{"git"}})
	if err != nil {
		b.Fatal(err)
	}
	const connections = 32
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	body := []byte(fmt.Sprintf(submitBody, "self:"+paired.Runner.ID))
	var left atomic.Int64
	left.Store(n)
	var wg sync.WaitGroup
	from := time.Now()
	for range connections {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := post(&http.Client{Transport: transport}, c.BaseURL()+"/runs", body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(n)/time.Since(from).Seconds(), "submits/s")
	b.ReportMetric(float64(residentKB(b, coordinator.Pid()))/1024, "MB-filled")

	coordinator.Kill()
	from = time.Now()
	coordinator.Start()
	offer := firstOffer(b, ctx, c.BaseURL(), paired.Token)
	b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-to-first-lease")
	if _, err := offer.Started(ctx); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(residentKB(b, coordinator.Pid()))/1024, "MB-restarted")
}

// firstOffer dials without a pause until the coordinator gives an attempt.
func firstOffer(b *testing.B, ctx context.Context, url, token string) *link.Offer {
	b.Helper()
	for {
		s, err := link.Dial(ctx, link.DialConfig{
			URL: url, Credential: link.Secret(token), Handler: idleHandler{},
			Hello: func() link.Hello {
				return link.Hello{Version: "bench", OS: "linux", Arch: "amd64", Slots: 1, Instance: "one", Capabilities: []string{"git"}}
			},
		})
		if err != nil {
			if link.Terminal(err) {
				b.Fatal(err)
			}
			continue
		}
		offer, err := s.Pull(ctx, link.PullRequest{Request: protocol.NewID("req_")})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close(link.CloseReason{Code: link.CloseNormal}) })
		return offer
	}
}
