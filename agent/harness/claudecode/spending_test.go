package claudecode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness/harnesstest"
	"github.com/everdict/everdict/protocol"
)

// agentURL makes the test binary an agent that calls the model server there
// without end, as the CLI does: usage with every message, totals on SIGINT.
const agentURL = "EVERDICT_TEST_AGENT_URL"

const pricePerCall = 0.125

func TestMain(m *testing.M) {
	if url := os.Getenv(agentURL); url != "" {
		spend(url)
		return
	}
	os.Exit(m.Run())
}

func spend(url string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	calls := 0
	for {
		select {
		case <-interrupted:
			fmt.Printf(`{"type":"result","subtype":"error_during_execution","is_error":true,"total_cost_usd":%g,"modelUsage":{"m":{"inputTokens":%d,"outputTokens":%d}}}`+"\n",
				float64(calls)*pricePerCall, 10*calls, 3*calls)
			os.Exit(1)
		default:
		}
		answer, err := http.Get(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		answer.Body.Close()
		calls++
		fmt.Printf(`{"type":"assistant","message":{"id":"msg_%d","model":"m","content":[{"type":"text","text":"on it"}],"usage":{"input_tokens":10,"output_tokens":1}}}`+"\n", calls)
	}
}

func TestF12_NothingIsSpentAfterTheDeadline(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var last atomic.Int64 // UnixNano of the last request
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		last.Store(time.Now().UnixNano())
	}))
	defer server.Close()
	r := harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "claude-code", Params: map[string]string{"bin": os.Args[0]}}, "spend")
	r.Env.Environ = append(r.Env.Environ, agentURL+"="+server.URL)
	r.Env.Timeout = 3 * time.Second // it covers the start of the program
	out := r.Run(t, New())
	if f := out.Failure; f == nil || f.Reason != protocol.ReasonTimeout {
		t.Fatalf("failure %+v, want timeout; stderr %s", out.Failure, r.Stderr.String())
	}
	if late := time.Unix(0, last.Load()).Sub(out.Exit.Ended); late > 0 {
		t.Errorf("the last request came %v after the recorded end", late)
	}
	n := calls.Load()
	if n == 0 || out.Usage == nil || out.Usage.USD == nil || *out.Usage.USD != float64(n)*pricePerCall || *out.Usage.PromptTokens != 10*n || *out.Usage.Calls != n {
		t.Errorf("the server counted %d calls, the run reports %+v", n, out.Usage)
	}
}
