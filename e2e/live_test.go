package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestLive: two people watch a run; one leaves, the other sees it to its end, and
// resumes where a cut left off.
func TestLive(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(house.Scripted(`say begin
run echo first; while [ ! -e ` + file + `.enough ]; do sleep 0.05; done; echo last
say end`))
	leaving, leave := context.WithCancel(context.Background())
	defer leave()
	left := make(chan struct{})
	go func() {
		defer close(left)
		for range h.Client.Live(leaving, id, protocol.LaneTrace, protocol.LaneLog) {
		}
	}()
	var said []string
	var end protocol.Status
	for ev, err := range h.Client.Live(context.Background(), id, protocol.LaneTrace, protocol.LaneLog) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range ev.Events {
			if e.Kind == protocol.EventMessage && e.Role == "assistant" {
				said = append(said, *e.Text)
			}
			if e.Kind == protocol.EventMessage && *e.Text == "begin" {
				leave()
				<-left
				enough(t, file)
			}
		}
		if ev.Kind == protocol.LiveEnd {
			end = ev.Status
		}
	}
	if got := strings.Join(said, ","); got != "begin,end" || end != protocol.StatusSucceeded {
		t.Errorf("watched: got %q and %q at the end, want begin,end and succeeded", got, end)
	}
}

// TestP11_F25_EndlessOutput: past the log's cap head and tail are kept, with what
// is missing between them, and the run says so.
func TestP11_F25_F23_EndlessOutput(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop")
	const script = "run echo the-very-first\nprint 144M bytes\nrun echo the-very-last"
	run := h.Settled(h.Submit(house.Scripted(script)))
	if run.Status != protocol.StatusSucceeded {
		t.Fatalf("run: got %s %+v", run.Status, run.Failure)
	}
	e := run.Result.Evidence
	var lost int64
	for _, g := range e.Gaps {
		lost += g.Bytes
	}
	if lost == 0 || e.LogBytes < 96<<20 || e.LogBytes > 120<<20 || e.LogBytes+lost < 144_000_000 {
		t.Errorf("evidence: %d bytes kept and %d lost (%+v), want what was printed accounted for", e.LogBytes, lost, e.Gaps)
	}
	body, err := h.Client.RawLog(context.Background(), run.ID, protocol.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var log strings.Builder
	buf := make([]byte, 1<<20)
	for {
		n, err := body.Read(buf)
		log.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if got := log.String(); !strings.HasPrefix(got, "the-very-first") || !strings.Contains(got, "bytes lost: cap]") || !strings.Contains(got[len(got)-2000:], "the-very-last") {
		t.Errorf("log of %d bytes: want its beginning, its end, and the gap between them", len(got))
	}
}
