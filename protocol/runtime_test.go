package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func runtimeSpec(t *testing.T, text string) (*RuntimeSpec, error) {
	t.Helper()
	s := new(RuntimeSpec)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s, s.Validate()
}

// TestRuntimeCapabilities: what follows from other fields is in the spec, as
// clients read it.
func TestRuntimeCapabilities(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"kind":"local","id":"l","version":"1"}`:                                                                                                                                    {},
		`{"kind":"local","id":"l","version":"1","capabilities":["gpu","git","gpu"]}`:                                                                                                 {"git", "gpu"},
		`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","image":"i","runtime":"runsc"}`:                                                                              {"docker", "sandbox"},
		`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","driver":"raw_exec","command":"/usr/local/bin/job-runner"}`:                                                  {},
		`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","image":"i","gpu":2}`:                                                                                        {"docker", "gpu"},
		`{"kind":"k8s","id":"k","version":"1","image":"i","runtimeClass":"gvisor","traceSource":{"kind":"otel","endpoint":"http://otel:4318"}}`:                                      {"docker", "sandbox", "topology"},
		`{"kind":"k8s","id":"k","version":"1","image":"i","tolerations":[{"key":"a","operator":"Exists","effect":"NoSchedule"}],"nodeSelector":{"a":"b"},"kubeconfigSecret":"KUBE"}`: {"docker"},
	} {
		s, err := runtimeSpec(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := cmp.Diff(want, s.Capabilities); d != "" || s.Tags == nil {
			t.Errorf("%s: capabilities (-want +got):\n%s tags %v", text, d, s.Tags)
		}
		again := *s
		if err := again.Validate(); err != nil || cmp.Diff(*s, again) != "" {
			t.Errorf("%s: what was registered differs when it is registered again: %v", text, err)
		}
	}
}

// TestP15_RuntimeFaults: each fault is said with its path and with what helps.
func TestP15_RuntimeFaults(t *testing.T) {
	t.Parallel()
	const nomad = `{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","image":"i",`
	for name, row := range map[string]struct{ text, want string }{
		"no kind":             {`{"id":"x","version":"1"}`, "kind: is missing"},
		"unknown kind":        {`{"kind":"slurm","id":"x","version":"1"}`, "local, nomad or k8s"},
		"docker":              {`{"kind":"docker","id":"x","version":"1"}`, "everdict runners pair"},
		"topology":            {`{"kind":"topology","id":"x","version":"1"}`, "nomad or k8s, with traceSource"},
		"latest":              {`{"kind":"local","id":"x","version":"latest"}`, "version of its own"},
		"id is a target":      {`{"kind":"local","id":"auto","version":"1"}`, "mean something else"},
		"id is a list":        {`{"kind":"local","id":"a,b","version":"1"}`, "mean something else"},
		"id is another kind":  {`{"kind":"k8s","id":"local","version":"1","image":"i"}`, `kind "local"`},
		"no image":            {`{"kind":"k8s","id":"x","version":"1"}`, "image: is missing"},
		"no address":          {`{"kind":"nomad","id":"x","version":"1","image":"i"}`, "addr: is missing"},
		"bad address":         {`{"kind":"nomad","id":"x","version":"1","image":"i","addr":"n:4646"}`, "addr: want a URL"},
		"driver":              {nomad + `"driver":"java"}`, "driver: "},
		"no command":          {`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","driver":"raw_exec"}`, "command: want the absolute path"},
		"a program by name":   {`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","driver":"raw_exec","command":"job-runner"}`, "command: want the absolute path"},
		"an image and a path": {nomad + `"driver":"raw_exec","command":"/job-runner"}`, "image: goes with driver docker"},
		"an enclosure of none": {`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","driver":"raw_exec","command":"/job-runner","runtime":"runsc"}`,
			"runtime: goes with driver docker"},
		"a path and an image":          {nomad + `"command":"/job-runner"}`, "command: goes with driver raw_exec"},
		"a driver elsewhere":           {`{"kind":"k8s","id":"x","version":"1","image":"i","driver":"docker"}`, "driver: goes with kind nomad"},
		"no namespace":                 {`{"kind":"k8s","id":"x","version":"1","image":"i","namespace":"a/b C"}`, "namespace: want the name of a namespace"},
		"a namespace that is too long": {`{"kind":"k8s","id":"x","version":"1","image":"i","namespace":"` + strings.Repeat("a", 64) + `"}`, "namespace: want the name of a namespace"},
		"zero":                         {nomad + `"maxConcurrent":0}`, "maxConcurrent: want a whole number above 0"},
		"negative":                     {nomad + `"memoryBudgetMb":-1}`, "memoryBudgetMb"},
		"no CPU":                       {nomad + `"cpuBudget":0}`, "cpuBudget"},
		"too much kept ready":          {nomad + `"cpuBudget":1000,"warm":3,"warmSize":{"cpu":400}}`, "warmSize.cpu"},
		"another kind's":               {nomad + `"nodeSelector":{"a":"b"}}`, "nodeSelector: goes with kind k8s"},
		"of a cluster":                 {`{"kind":"local","id":"x","version":"1","image":"i"}`, "image: goes with kind nomad or k8s"},
		"ready with payload":           {nomad + `"payload":true,"warm":1}`, "warm: does not go with payload"},
		"reused with payload":          {nomad + `"payload":true,"idleSeconds":1}`, "idleSeconds: does not go with payload"},
		"capability":                   {nomad + `"capabilities":["telepathy"]}`, "telepathy"},
		"a token for nothing":          {`{"kind":"k8s","id":"x","version":"1","image":"i","authSecret":"T"}`, "authSecret: is a token for server, which is not there: name server"},
		"a token for a context":        {`{"kind":"k8s","id":"x","version":"1","image":"i","authSecret":"T","context":"c"}`, "name its secret in kubeconfigSecret"},
		"a token beside a kubeconfig":  {`{"kind":"k8s","id":"x","version":"1","image":"i","authSecret":"T","kubeconfigSecret":"K"}`, "authSecret: is not used beside kubeconfigSecret"},
		"a server beside a kubeconfig": {`{"kind":"k8s","id":"x","version":"1","image":"i","server":"https://k:6443","kubeconfigSecret":"K","context":"c"}`, "server: is not used beside kubeconfigSecret"},
		"a server and a context":       {`{"kind":"k8s","id":"x","version":"1","image":"i","server":"https://k:6443","context":"c"}`, "server: would be asked without a credential"},
		"toleration's effect":          {`{"kind":"k8s","id":"x","version":"1","image":"i","tolerations":[{"key":"a","effect":"Never"}]}`, "tolerations[0].effect"},
	} {
		_, err := runtimeSpec(t, row.text)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, row.want)
		}
	}
}

// TestP12_RuntimeFaultsRepeatNoSecret: who puts a value where a name belongs does
// not read it in the answer, nor anybody in a log.
func TestP12_RuntimeFaultsRepeatNoSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"kind":"k8s","id":"x","version":"1","image":"i","kubeconfigSecret":"apiVersion: v1\nhunter2"}`,
		`{"kind":"nomad","id":"x","version":"1","image":"i","addr":"https://me:hunter2@n:4646"}`,
		`{"kind":"nomad","id":"x","version":"1","image":"i","addr":"https://n:4646","authSecret":"a/hunter2"}`,
	} {
		if _, err := runtimeSpec(t, text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want a refusal without the secret", text, err)
		}
	}
}

// TestRuntimeAccess: ways into a Kubernetes cluster that are whole are taken, also more
// than one: the first of them counts.
func TestRuntimeAccess(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{
		`"kubeconfigSecret":"K"`, `"kubeconfigSecret":"K","context":"c"`, `"server":"https://k:6443","authSecret":"T"`, `"server":"http://127.0.0.1:8001"`,
		`"context":"c"`, `"namespace":"n"`, `"server":"https://k:6443","authSecret":"T","context":"c"`,
		`"kubeconfigSecret":"K","server":"https://k:6443","authSecret":"T","context":"c"`,
	} {
		if _, err := runtimeSpec(t, `{"kind":"k8s","id":"x","version":"1","image":"i",`+fields+`}`); err != nil {
			t.Errorf("%s: %v, want it taken", fields, err)
		}
	}
}

func TestRuntimeSecrets(t *testing.T) {
	t.Parallel()
	s, err := runtimeSpec(t, `{"kind":"k8s","id":"k","version":"1","image":"i","server":"https://k:6443","authSecret":"b","kubeconfigSecret":"a","traceSource":{"kind":"otel","endpoint":"http://o","authSecret":"b"}}`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for b := range s.SecretBindings() {
		got = append(got, fmt.Sprint(b.Field, " ", b.Name, " ", b.Address, " ", b.ForCluster()))
	}
	if !slices.Equal(got, []string{"cluster-token b https://k:6443 true", "kubeconfig a  true", "trace-auth b http://o false"}) {
		t.Errorf("secrets %q, want a and b", got)
	}
}

// TestRuntimeQuery: a name has nothing but id and version; all else is a spec, so
// that a spec without its kind is told so.
func TestRuntimeQuery(t *testing.T) {
	t.Parallel()
	for text, ref := range map[string]bool{
		`{"id":"a"}`: true, `{"id":"a","version":"latest"}`: true,
		`{"id":"a","version":"1","addr":"x"}`: false, `{"kind":"local","id":"a","version":"1"}`: false, `{}`: false, `{"version":"1"}`: false,
	} {
		var q RuntimeQuery
		if err := json.Unmarshal([]byte(text), &q); err != nil || (q.Ref != nil) != ref || (q.Spec != nil) == ref {
			t.Errorf("%s reads as %+v, %v; a name: %v", text, q, err, ref)
		}
	}
}
