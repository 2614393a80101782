package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// noRuns accepts everything and keeps nothing: what is left is the API itself.
type noRuns struct{ api.Runs }

var accepted = protocol.At(time.Unix(1_700_000_000, 0))

func (noRuns) Submit(_ context.Context, p auth.Principal, req *protocol.RunRequest) (protocol.Run, error) {
	return protocol.Run{
		ID: "run_01hf0000000000000000000000", Tenant: p.Workspace, Status: protocol.StatusQueued, CaseID: req.Case.ID, Harness: req.Harness,
		Kind: "eval", Class: req.Priority, Runtime: req.Target(), CreatedBy: p.Subject, CreatedAt: accepted, UpdatedAt: accepted,
	}, nil
}

func quiet(runs func(api.Runs) api.Runs) options {
	return options{config: func(c *api.Config) {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Runs = runs(c.Runs)
	}}
}

// BenchmarkSubmitHTTP submits over 64 connections: "api" to a Runs that does
// nothing, "sqlite" durably to a database, "handler" without a network.
func BenchmarkSubmitHTTP(b *testing.B) {
	none := func(api.Runs) api.Runs { return noRuns{} }
	real := func(r api.Runs) api.Runs { return r }
	b.Run("handler", func(b *testing.B) {
		e := newEnv(b, quiet(none))
		b.ReportAllocs()
		for b.Loop() {
			r := httptest.NewRequest("POST", "http://localhost/runs", strings.NewReader(goodRun))
			r.Header["Content-Type"] = []string{"application/json"}
			w := httptest.NewRecorder()
			e.server.ServeHTTP(w, r)
			if w.Code != http.StatusAccepted {
				b.Fatalf("status %d: %s", w.Code, w.Body)
			}
		}
	})
	for name, runs := range map[string]func(api.Runs) api.Runs{"api": none, "sqlite": real} {
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, quiet(runs))
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			defer client.CloseIdleConnections()
			b.SetParallelism(32) // times two processors
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					res, err := client.Post(e.url+"/runs", "application/json", strings.NewReader(goodRun))
					if err != nil {
						b.Error(err)
						return
					}
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if err != nil || res.StatusCode != http.StatusAccepted {
						b.Errorf("status %d, %v", res.StatusCode, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
		})
	}
}
