package desktop

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// FuzzCallback: whatever is asked of the callback, a grant comes of its own state and pairing alone, once, and nobody waits.
func FuzzCallback(f *testing.F) {
	const state, id = "0123456789abcdef", "prq_1"
	f.Add("pairing=prq_1&grant=pgc_x&state=0123456789abcdef", "document")
	f.Add("pairing=prq_1&grant=pgc_x&state=0123456789abcdef&state=", "")
	f.Add("pairing=prq_1;grant=pgc_x&state=%00", "iframe")
	f.Fuzz(func(t *testing.T, query, dest string) {
		granted := make(chan string, 1)
		c := &callback{port: 1, state: state, request: func() string { return id }, granted: granted, turn: make(chan struct{}, 1)}
		for range 2 {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1/callback", nil)
			r.URL.RawQuery = query
			r.Header.Set("Sec-Fetch-Dest", dest)
			c.ServeHTTP(httptest.NewRecorder(), r)
		}
		select {
		case grant := <-granted:
			q, _ := url.ParseQuery(query)
			if q.Get("state") != state || q.Get("pairing") != id || q.Get("grant") != grant || !grantLike(grant) || dest != "" && dest != "document" {
				t.Errorf("%q of %q brought the grant %q", query, dest, grant)
			}
		default:
		}
		if len(granted) != 0 {
			t.Errorf("%q brought two grants", query)
		}
	})
}

// A grant that came by a deep link leaves no place for the callback's: the browser is answered all the same.
func TestCallbackAfterTheDeepLink(t *testing.T) {
	t.Parallel()
	granted := make(chan string, 1)
	granted <- "pgc_by_link"
	c := &callback{port: 1, state: "s", request: func() string { return "prq_1" }, granted: granted, turn: make(chan struct{}, 1)}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1/callback?state=s&pairing=prq_1&grant=pgc_x", nil))
	if w.Code != http.StatusOK || <-granted != "pgc_by_link" {
		t.Errorf("the browser's answer: %d; want 200, and the grant that was first", w.Code)
	}
}

// FuzzConnections: a list of connections that is read has ids that stay in their directories, and coordinators that are
// reached by https.
func FuzzConnections(f *testing.F) {
	f.Add([]byte(`{"connections":[{"id":"con_1","coordinator":"https://everdict.example","runner":"rnr_1","settings":{"slots":1,"sandbox":"docker"}}],"leftovers":[{"id":"con_2"}]}`))
	f.Add([]byte(`{"connections":[{"id":"..","coordinator":"https://everdict.example","runner":"rnr_1","settings":{"slots":1,"sandbox":"docker"}}]}`))
	f.Add([]byte(`{"leftovers":[{"id":".."}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k keptConnections
		if json.Unmarshal(b, &k) != nil || k.check() != nil {
			return
		}
		ids := []string{}
		for _, r := range k.Connections {
			ids = append(ids, r.ID)
			if err := protocol.CheckCoordinator(r.Coordinator); err != nil {
				t.Error(err)
			}
		}
		for _, l := range k.Leftovers {
			ids = append(ids, l.ID)
		}
		for _, id := range ids {
			if filepath.Dir(filepath.Join("/state/runners", id)) != "/state/runners" {
				t.Errorf("the id %q leads elsewhere", id)
			}
		}
	})
}
