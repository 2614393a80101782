package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/protocol"
)

// fuzzBody checks that a decoder answers each body with a document or with a
// problem that can be sent, and that a document survives its own encoding.
func fuzzBody[T any](f *testing.F, check func(*T) error, seeds ...string) {
	for _, s := range append(seeds, ``, `null`, `{}`, `[]`, `"x"`, `{"a":`, "{\n\n\"id\": 1e999}", "\xff\xfe{}", strings.Repeat(`{"case":`, 50)) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v := new(T)
		err := decodeJSON(body, v)
		if err == nil {
			err = check(v)
		}
		if err != nil {
			var p *protocol.Problem
			if !errors.As(err, &p) {
				t.Fatalf("body %q: error %v is not a problem", body, err)
			}
			if p.Status < 400 || p.Status > 499 || p.Code == "" || p.Message == "" {
				t.Fatalf("body %q: problem %+v, want a 4xx with a code and a sentence", body, p)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("body %q: problem cannot be sent: %v", body, err)
			}
			return
		}
		first, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("body %q: decoded, but does not encode: %v", body, err)
		}
		again := new(T)
		if err := json.Unmarshal(first, again); err != nil {
			t.Fatalf("body %q: its own encoding %s does not decode: %v", body, first, err)
		}
		second, err := json.Marshal(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("body %q: encoded %s, then %s (%v)", body, first, second, err)
		}
	})
}

func FuzzRunRequest(f *testing.F) {
	fuzzBody(f, (*protocol.RunRequest).Validate,
		`{"harness":{"id":"scripted","version":"latest"},"case":{"id":"c1","env":{"kind":"repo","source":{"files":{}}},"task":"t","graders":[{"id":"tests-pass","config":{"cmd":"true"}}],"timeoutSec":120,"tags":[]}}`,
		`{"harness":{"id":"h","params":{"a":"b"}},"runtime":"self:rnr_1","case":{"id":"c","env":{"kind":"prompt"},"task":"t","network":{"mode":"none"},"resources":{"gpu":1}},"origin":{"cause":"ci"},"priority":"batch"}`)
}

func FuzzHarnessSubmission(f *testing.F) {
	fuzzBody(f, func(s *registry.Submission) error {
		if s.Instance == nil && s.Spec == nil {
			return protocol.BadRequest("neither")
		}
		if s.Spec != nil {
			return s.Spec.Validate()
		}
		return nil
	},
		`{"template":{"id":"t","version":"1"},"id":"i","version":"1","pins":{"image":"x"},"overrides":{"env":{"A":{"secretRef":"s"}},"unsetEnv":["B"]}}`,
		`{"kind":"command","id":"c","version":"1","command":"x {{task}}","env":{"A":"b","C":{"secretRef":"s","scope":"user"}},"model":{"ref":"m","version":"1"},"trace":{"kind":"file","path":"t.json"}}`)
}

func FuzzRuntimeSpec(f *testing.F) {
	fuzzBody(f, (*protocol.RuntimeSpec).Validate,
		`{"kind":"local","id":"l","version":"1","capabilities":["gpu"],"maxConcurrent":2,"memoryBudgetMb":1024,"warm":1,"idleSeconds":5}`,
		`{"kind":"nomad","id":"n","version":"1","addr":"https://n:4646","image":"i","runtime":"runsc","datacenters":["dc1"],"constraints":[{"attribute":"a","value":"b"}],"authSecret":"S","gpu":1}`,
		`{"kind":"k8s","id":"k","version":"1","image":"i","server":"https://k","authSecret":"S","nodeSelector":{"a":"b"},"tolerations":[{"key":"a","effect":"NoExecute"}],"traceSource":{"kind":"otel","endpoint":"http://o","mapping":{"a":["b"]}}}`)
}

func FuzzRuntimeQuery(f *testing.F) {
	fuzzBody(f, func(q *protocol.RuntimeQuery) error {
		if q.Ref == nil && q.Spec == nil {
			return protocol.BadRequest("neither")
		}
		if q.Spec != nil {
			return q.Spec.Validate()
		}
		return nil
	}, `{"id":"a","version":"latest"}`, `{"id":"a"}`, `{"kind":"local","id":"l","version":"1"}`)
}

func FuzzSmallBodies(f *testing.F) {
	type all struct {
		Pair   protocol.PairRequest
		Key    protocol.KeyRequest
		Tenant protocol.TenantKeyRequest
		Secret protocol.SecretRequest
		Tags   protocol.Tags
		Pins   protocol.PinsRequest
		Choice protocol.Decision
		Pool   protocol.PoolTokenRequest
		Join   protocol.JoinRequest
		Out    protocol.PayloadRequest
		Result protocol.PayloadDelivery
	}
	fuzzBody(f, func(a *all) error {
		return errors.Join(a.Pair.Validate(), a.Key.Validate(), a.Tenant.Validate(), a.Tags.Validate(), a.Secret.Validate(), a.Pool.Validate(), a.Join.Validate(), a.Out.Validate())
	},
		`{"pair":{"label":"mac","os":"linux","capabilities":["git"]},"key":{"subject":"ann","role":"member","scopes":["read"]},"tenant":{"workspace":"acme"},"secret":{"value":"v","scope":"user"},"tags":{"tags":["a"]},"pins":{"pins":{"image":"x"}},"choice":{"comment":"ok"},"pool":{"runtime":"prod","label":"ci","expiresInSec":60},"join":{"label":"pod-1","os":"linux"},"out":{"expiresInSec":60},"result":{"result":{"caseId":"c1"}}}`)
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://localhost:8787": "http://localhost:8787", "http://[::1]:80": "http://[::1]:80",
		"http://x;reboot": "'http://x;reboot'", "http://a'b": `'http://a'\''b'`, "http://$(x)": "'http://$(x)'", "http://ü": "'http://ü'",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
}
