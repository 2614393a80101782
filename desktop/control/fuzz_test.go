package control

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// FuzzBodies: a body is read whole or refused in words, as each document that there is.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		`{"hours":[{"days":["mon"],"from":"09:00","to":"17:00"}],"appearance":"dark"}`, `{"slots":1,"sandbox":"docker","onlyMine":true}`,
		`{"coordinator":"https://everdict.example","replace":true}`, `{"question":"ask_1","connect":true,"number":"07"}`,
		`{"connection":"con_1","stop":true}`, `{"link":"everdict://open"}`, `{"place":"file"}`, `{"force":true}`, `{}{}`, `[]`, `null`, `{"id":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, into := range map[string]any{
			"settings": new(Settings), "connection": new(ConnectionSettings), "pair": new(PairRequest), "answer": new(Answer), "pause": new(PauseRequest),
			"resume": new(ResumeRequest), "keys": new(KeyMove), "dismissal": new(NoticeDismissal), "visit": new(VisitRequest), "open": new(OpenRequest),
			"quit": new(QuitRequest),
		} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(b)))
			r.Header.Set("Content-Type", "application/json")
			var p *protocol.Problem
			if err := decode(r, into); err != nil && (!errors.As(err, &p) || p.Status < 400 || p.Status > 499) {
				t.Errorf("%s: %v, want a problem of the one who asks", name, err)
			}
		}
	})
}
