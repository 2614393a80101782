package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

// TestReferenceRuntimes registers and validates every spec of examples/runtimes.
func TestReferenceRuntimes(t *testing.T) {
	t.Parallel()
	r := NewRuntimes(RuntimesConfig{Store: open(t).store})
	files, err := filepath.Glob("../../examples/runtimes/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("reference specs: %v, %v", files, err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var q protocol.RuntimeQuery
		if err := json.Unmarshal(b, &q); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if v, err := r.Validate(t.Context(), "w", q); err != nil || !v.OK {
			t.Errorf("%s: %+v, %v; want it valid", file, v, err)
		}
		if _, err := r.Register(t.Context(), "w", "ann", *q.Spec); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got, err := r.Latest(t.Context(), "w", q.Spec.ID)
		if err != nil || got.Version != q.Spec.Version {
			t.Errorf("%s: the latest is %+v, %v", file, got, err)
			continue
		}
		kinds[got.Kind] = true
	}
	if len(kinds) != 3 {
		t.Errorf("reference specs of the kinds %v, want all three", kinds)
	}
}

// TestRuntimeLimitsFollowTheLatest: however registrations race, the last word on a
// pool is that of its highest version, and a start says the same again.
func TestRuntimeLimitsFollowTheLatest(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	told := map[string]int{}
	config := RuntimesConfig{Store: open(t).store, Changed: func(_ context.Context, workspace string, s *protocol.RuntimeSpec) error {
		mu.Lock()
		defer mu.Unlock()
		told[workspace+"/"+s.ID] = s.Limits().MaxConcurrent
		return nil
	}}
	r := NewRuntimes(config)
	var all sync.WaitGroup
	for _, w := range []string{"w", "v"} {
		for n := 1; n <= 20; n++ {
			all.Go(func() {
				spec := protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "pool", Version: fmt.Sprintf("1.%d.0", n), MaxConcurrent: &n}
				if _, err := r.Register(t.Context(), w, "ann", spec); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	specs, err := r.Specs(t.Context(), "w", "pool")
	if err != nil || len(specs) != 20 {
		t.Fatalf("%d versions, %v, want 20", len(specs), err)
	}
	for i, s := range specs {
		if want := fmt.Sprintf("1.%d.0", i+1); s.Version != want || *s.MaxConcurrent != i+1 {
			t.Errorf("version %d is %s for %d runs, want %s for %d", i, s.Version, *s.MaxConcurrent, want, i+1)
		}
	}
	if specs, err := r.Specs(t.Context(), "w", "unknown"); err != nil || len(specs) != 0 {
		t.Errorf("an unknown runtime has the versions %v, %v, want none", specs, err)
	}
	want := map[string]int{"w/pool": 20, "v/pool": 20}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("limits after the race (-want +got):\n%s", d)
	}
	clear(told)
	if err := NewRuntimes(config).Announce(t.Context()); err != nil || cmp.Diff(want, told) != "" {
		t.Errorf("limits after a start: %v, %v, want %v", told, err, want)
	}
}

type prober func(ctx context.Context) (protocol.Probe, error)

func (p prober) Probe(ctx context.Context, _ string, _ *protocol.RuntimeSpec) (protocol.Probe, error) {
	return p(ctx)
}

func (p prober) Inspect(ctx context.Context, _ string, _ *protocol.RuntimeSpec) (protocol.Inspection, error) {
	_, err := p(ctx)
	return protocol.Inspection{}, err
}

// TestInspectIsBounded: as a probe, after 15 s.
func TestInspectIsBounded(t *testing.T) {
	t.Parallel()
	st := open(t).store
	synctest.Test(t, func(t *testing.T) {
		r := NewRuntimes(RuntimesConfig{Store: st, Probers: map[string]Prober{protocol.RuntimeK8s: prober(func(ctx context.Context) (protocol.Probe, error) {
			<-ctx.Done()
			return protocol.Probe{}, ctx.Err()
		})}})
		spec := protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "k", Version: "1", Image: "i"}
		if _, err := r.Register(t.Context(), "w", "ann", spec); err != nil {
			t.Fatal(err)
		}
		got, err := r.Inspect(t.Context(), "w", "k", protocol.Latest)
		if err != nil || got.Reason != protocol.ProbeUnreachable || got.Detail != "no answer within 15s" {
			t.Errorf("inspect: %+v, %v; want it unreachable after 15 s", got, err)
		}
	})
}

// TestProbeIsBounded: a cluster that swallows packets is unreachable after 10 s.
func TestProbeIsBounded(t *testing.T) {
	t.Parallel()
	st := open(t).store
	synctest.Test(t, func(t *testing.T) {
		r := NewRuntimes(RuntimesConfig{Store: st, Probers: map[string]Prober{protocol.RuntimeNomad: prober(func(ctx context.Context) (protocol.Probe, error) {
			<-ctx.Done()
			return protocol.Probe{}, fmt.Errorf("get agent: %w", ctx.Err())
		})}})
		spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "n", Version: "1", Addr: "https://n:4646", Image: "i"}
		got, err := r.Probe(t.Context(), "w", protocol.RuntimeQuery{Spec: spec})
		want := protocol.Probe{Kind: "nomad", Reason: protocol.ProbeUnreachable, Detail: "no answer within 10s"}
		if err != nil || got != want {
			t.Errorf("probe: %+v, %v; want %+v", got, err, want)
		}
	})
}

type secretNames []string

func (s secretNames) Missing(_ context.Context, _ string, names []string) (missing []string, _ error) {
	for _, n := range names {
		if !strings.Contains(strings.Join(s, " "), n) {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

func TestMissingSecrets(t *testing.T) {
	t.Parallel()
	st := open(t).store
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "k", Version: "1", Image: "i", Server: "https://k:6443", AuthSecret: "TOKEN", KubeconfigSecret: "KUBE"}
	for name, row := range map[string]struct {
		secrets secretNames
		want    []string
	}{
		"none are kept": {nil, []string{"KUBE", "TOKEN"}},
		"one is there":  {secretNames{"TOKEN"}, []string{"KUBE"}},
		"all are there": {secretNames{"TOKEN", "KUBE"}, []string{}},
	} {
		cfg := RuntimesConfig{Store: st}
		if row.secrets != nil {
			cfg.MissingSecrets = row.secrets.Missing
		}
		v, err := NewRuntimes(cfg).Validate(t.Context(), "w", protocol.RuntimeQuery{Spec: spec})
		if err != nil || v.MissingSecrets == nil || !cmp.Equal(*v.MissingSecrets, row.want) {
			t.Errorf("%s: %+v, %v; want %q missing", name, v, err, row.want)
		}
	}
}

// TestRuntimesReferToSecrets: every version says what it needs which secret for.
func TestRuntimesReferToSecrets(t *testing.T) {
	t.Parallel()
	r := NewRuntimes(RuntimesConfig{Store: open(t).store})
	for _, spec := range []protocol.RuntimeSpec{
		{Kind: protocol.RuntimeK8s, ID: "k", Version: "1.0.0", Image: "i", KubeconfigSecret: "kube"},
		{Kind: protocol.RuntimeK8s, ID: "k", Version: "1.1.0", Image: "i", Server: "https://k:6443", AuthSecret: "TOKEN"},
		{Kind: protocol.RuntimeLocal, ID: "l", Version: "1.0.0"},
	} {
		if _, err := r.Register(t.Context(), "w", "ann", spec); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := r.EachSecretRef(t.Context(), "w", func(ref protocol.SecretRef, use protocol.SecretUse) {
		got = append(got, strings.Join([]string{ref.String(), use.Kind, use.Field, use.Label}, " "))
	})
	want := []string{"kube runtime kubeconfig k@1.0.0", "TOKEN runtime cluster-token k@1.1.0"}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// TestNoRuntimes: a service without a registry of runtimes has none.
func TestNoRuntimes(t *testing.T) {
	t.Parallel()
	var r *Runtimes
	var problem *protocol.Problem
	if _, err := r.Latest(t.Context(), "w", "x"); !errors.As(err, &problem) || problem.Status != 404 {
		t.Errorf("latest: %v, want a 404", err)
	}
}
