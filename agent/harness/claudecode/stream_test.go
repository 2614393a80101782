package claudecode

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/streamtest"
	"github.com/everdict/everdict/protocol"
)

func newStream(emit func(protocol.TraceEvent)) harness.Stream { return NewStream(emit) }

func TestStream(t *testing.T) { streamtest.Run(t, newStream) }

// Not parallel: it looks at the memory of the process.
func TestF25_IDsOfAnyLengthAndNumber(t *testing.T) {
	for name, line := range map[string]string{
		"messages": `{"type":"assistant","message":{"id":%q,"model":"m","content":[],"usage":{"input_tokens":1}}}`,
		"outputs": `{"type":"stream_event","event":{"type":"message_start","message":{"id":%q}}}` + "\n" +
			`{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Flood(t, newStream, func(id string) string { return fmt.Sprintf(line, id) })
		})
	}
}

func TestOutputsOfMessagesAddUp(t *testing.T) {
	t.Parallel()
	start := `{"type":"stream_event","event":{"type":"message_start","message":{"id":%q}}}` + "\n"
	delta := `{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":%d}}}` + "\n"
	var b bytes.Buffer
	fmt.Fprint(&b, `{"type":"assistant","message":{"id":"a","model":"m","content":[],"usage":{"input_tokens":1}}}`+"\n")
	fmt.Fprintf(&b, delta, 1000) // of no message
	fmt.Fprintf(&b, start+delta+delta+delta, "a", 3, 10, 7)
	fmt.Fprintf(&b, start+delta, "b", 100)
	fmt.Fprintf(&b, start, "c")
	u := streamtest.Feed(newStream, b.Bytes(), b.Len()).Report.Usage
	if u == nil || !u.Partial || u.CompletionTokens == nil || *u.CompletionTokens != 110 {
		t.Errorf("usage %+v, want the output of both messages: 110 tokens", u)
	}
}

func FuzzStream(f *testing.F) { streamtest.Fuzz(f, newStream) }
