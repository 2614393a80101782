package agent

import (
	"encoding/json"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// FuzzQuestion: a line of a job is a question that can be put, or none.
func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{`{"question":"May I?"}`, `{"question":""}`, `null`, `{"question":1}`, `"May I?"`, `{"question":"\ud800"}`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		asked := question(line)
		if asked == "" {
			return
		}
		again, err := json.Marshal(protocol.AskQuestion{Question: asked})
		if err != nil || question(again) != asked {
			t.Errorf("%q is put as %s, %v", asked, again, err)
		}
	})
}
