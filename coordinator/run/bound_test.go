package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestP8_P15_ResultOfALyingRunner: whatever a runner sends, the record stays small,
// its failure is one of the closed lists, and no score is left out quietly.
func TestP8_P15_ResultOfALyingRunner(t *testing.T) {
	t.Parallel()
	score := `{"graderId":"g","metric":"m","value":1,"pass":true,"status":"measured"}`
	long := strings.Repeat("x", 1<<20)
	quoted, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		doc    string
		failed string // the failure's reason; empty: none
	}{
		"null":               {`null`, protocol.ReasonMalformed},
		"a list":             {`[]`, protocol.ReasonMalformed},
		"nothing":            {``, protocol.ReasonMalformed},
		"one score":          {`{"scores":[` + score + `]}`, ""},
		"too many scores":    {`{"scores":[` + strings.Repeat(score+",", 50_000) + score + `]}`, protocol.ReasonMalformed},
		"a class of its own": {`{"failure":{"stage":"run","class":"flaky","reason":"timeout","message":"m"}}`, protocol.ReasonMalformed},
		"a stage of its own": {`{"failure":{"stage":"later","class":"infra","reason":"timeout","message":"m"}}`, protocol.ReasonMalformed},
		"an honest failure":  {`{"failure":{"stage":"run","class":"harness","reason":"timeout","message":"m"}}`, "timeout"},
		"long texts": {`{"harness":` + string(quoted) + `,"scores":[{"graderId":` + string(quoted) + `,"metric":"m","value":1,"label":` + string(quoted) +
			`,"detail":` + string(quoted) + `,"status":"measured"}],"failure":{"stage":"run","class":"infra","reason":"lost","code":` + string(quoted) +
			`,"message":` + string(quoted) + `,"signal":` + string(quoted) + `,"logTail":` + string(quoted) + `}}`, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := new(Service).decode(lease.Ref{Job: "run_1", Attempt: 1}, Holder{Runner: protocol.Runner{ID: "rnr_1"}}, []byte(tc.doc))
			got := ""
			if r.Failure != nil {
				got = r.Failure.Reason
			}
			if got != tc.failed {
				t.Errorf("failure %+v, want reason %q", r.Failure, tc.failed)
			}
			record, err := json.Marshal(struct {
				Scores  []protocol.Score
				Failure *protocol.Failure
				Harness string
			}{r.Scores, r.Failure, r.Harness})
			if err != nil {
				t.Fatal(err)
			}
			if len(record) > 256<<10 || len(r.Scores) > maxScores {
				t.Errorf("%d scores, %d bytes for the record", len(r.Scores), len(record))
			}
		})
	}
}
