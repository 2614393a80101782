package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/protocol"
)

type secrets map[string]string

func (s secrets) Secret(_ context.Context, _, name string) (string, error) { return s[name], nil }

func pointsTo(url string) *protocol.RuntimeSpec {
	return &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "k", Version: "1", Server: url, Image: "i", AuthSecret: "token"}
}

// TestP12_NothingOfAForeignServer: an address that is no cluster's is read through no
// error.
func TestP12_NothingOfAForeignServer(t *testing.T) {
	t.Parallel()
	fleettest.Foreign(t, New(Config{Secrets: secrets{"token": "t"}}), pointsTo)
}

// TestKubernetesOwnWords: what an API server says of a request is told.
func TestKubernetesOwnWords(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"major":"1","minor":"34","gitVersion":"v1.34.4"}`)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: request timed out","code":500}`)
	}))
	defer server.Close()
	got, err := fleet.Prober{Opener: New(Config{Secrets: secrets{"token": "t"}})}.Probe(t.Context(), "w", pointsTo(server.URL))
	if err != nil || !strings.Contains(got.Detail, "etcdserver: request timed out") {
		t.Errorf("probe: %+v, %v; want the server's own words", got, err)
	}
}

// TestP12_TheTokenGoesToTheClusterAlone: a redirection is not followed.
func TestP12_TheTokenGoesToTheClusterAlone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	note := func(who string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, who+": "+r.Header.Get("Authorization"))
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note("elsewhere", r) }))
	defer elsewhere.Close()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("cluster", r)
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer cluster.Close()
	probe, err := fleet.Prober{Opener: New(Config{Secrets: secrets{"token": "the-workspace's"}})}.Probe(t.Context(), "w", pointsTo(cluster.URL))
	if err != nil || probe.Reachable || !strings.Contains(probe.Detail, "not followed") {
		t.Errorf("probe: %+v, %v; want it to say that a redirection is not followed", probe, err)
	}
	if !slices.Equal(got, []string{"cluster: Bearer the-workspace's"}) {
		t.Errorf("requests %q, want one, with the token of the workspace", got)
	}
}
