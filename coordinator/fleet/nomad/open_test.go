package nomad

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/protocol"
)

func pointsTo(url string) *protocol.RuntimeSpec {
	return &protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "n", Version: "1", Addr: url, Image: "i", AuthSecret: "token"}
}

// TestP12_NothingOfAForeignServer: an address that is no cluster's is read through no
// error.
func TestP12_NothingOfAForeignServer(t *testing.T) {
	t.Parallel()
	fleettest.Foreign(t, New(Config{Secrets: secrets{"token": "t"}}), pointsTo)
}

// TestNomadsOwnWords: what Nomad says of a request is told, if it can only be Nomad's or
// the server is known by then.
func TestNomadsOwnWords(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		self, jobs func(w http.ResponseWriter) // answers of /v1/agent/self and /v1/jobs
		want       string
		not        string
	}{
		"a token that it does not know": {self: refuses(403, "ACL token not found"), jobs: refuses(403, "ACL token not found"), want: "403 (ACL token not found). Check authSecret token"},
		"no leader":                     {self: refuses(500, "No cluster leader"), want: "500 (No cluster leader)"},
		"by way of another server":      {self: refuses(500, "rpc error: Permission denied"), want: "500 (rpc error: Permission denied)"},
		"other words of a stranger":     {self: refuses(500, "out of cheese"), want: "500", not: "cheese"},
		"other words of a known server": {self: agent, jobs: refuses(500, "out of cheese"), want: "500 (out of cheese)"},
		"packed words":                  {self: agent, jobs: packed(500, "out of cheese"), want: "500 (out of cheese)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/agent/self" {
					row.self(w)
				} else {
					row.jobs(w)
				}
			}))
			defer server.Close()
			prober := fleet.Prober{Opener: New(Config{Secrets: secrets{"token": "t"}})}
			got, err := prober.Probe(t.Context(), "w", pointsTo(server.URL))
			if err != nil || !strings.Contains(got.Detail, row.want) || row.not != "" && strings.Contains(got.Detail, row.not) {
				t.Errorf("probe: %+v, %v; want %q", got, err, row.want)
			}
		})
	}
}

func refuses(code int, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { http.Error(w, text, code) }
}

func packed(code int, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(code)
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
	}
}

func agent(w http.ResponseWriter) {
	w.Header().Set("X-Nomad-Index", "7")
	fmt.Fprint(w, `{"member":{"Tags":{"build":"1.8.2"}}}`)
}

// TestP12_AnAcquaintanceIsAnAddress: the name of a server that was known may lead to
// another one, which is not.
func TestP12_AnAcquaintanceIsAnAddress(t *testing.T) {
	t.Parallel()
	known := new(acquaintance)
	read := &http.Response{StatusCode: 200, Header: http.Header{"X-Nomad-Index": {"7"}}}
	refusal := &http.Response{StatusCode: 404, Header: http.Header{}}
	if known.says(refusal, []byte("hunter2"), "192.0.2.1:80") {
		t.Error("a stranger is taken for Nomad")
	}
	known.says(read, nil, "192.0.2.1:80")
	if !known.says(refusal, []byte("words"), "192.0.2.1:80") {
		t.Error("Nomad is not known again")
	}
	if known.says(refusal, []byte("hunter2"), "127.0.0.1:80") {
		t.Error("another address is taken for the one that is known")
	}
}
