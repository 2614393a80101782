package cli

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// secretRoutes keep secrets as the API does, and let tests look at their values.
func (f *fake) secretRoutes(handle handleFunc) {
	list := func() []protocol.Secret {
		refs := slices.SortedFunc(maps.Keys(f.values), func(a, b protocol.SecretRef) int {
			return strings.Compare(b.Scope+a.SecretRef, a.Scope+b.SecretRef)
		})
		out := []protocol.Secret{}
		for _, r := range refs {
			out = append(out, protocol.Secret{Name: r.SecretRef, Scope: r.Scope, Kind: protocol.SecretPlain, UpdatedAt: protocol.At(time.Now())})
		}
		return out
	}
	handle("GET /secrets", http.StatusOK, func(*http.Request) (any, error) { return list(), nil })
	handle("GET /secrets/usage", http.StatusOK, func(*http.Request) (any, error) {
		out := []protocol.SecretUsage{}
		for _, s := range list() {
			u := protocol.SecretUsage{Secret: s, Refs: []protocol.SecretUse{}}
			for _, docs := range f.specs {
				var spec protocol.HarnessSpec
				if err := json.Unmarshal(docs[len(docs)-1], &spec); err != nil {
					return nil, err
				}
				for variable, ref := range spec.SecretEnv() {
					if ref.SecretRef == s.Name {
						u.Refs = append(u.Refs, protocol.SecretUse{Kind: protocol.SecretUseHarness, Field: protocol.SecretUseEnv, Label: spec.ID + "@" + spec.Version, Detail: variable})
					}
				}
			}
			out = append(out, u)
		}
		return out, nil
	})
	handle("PUT /secrets/{name}", http.StatusNoContent, func(r *http.Request) (any, error) {
		var req protocol.SecretRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return nil, protocol.BadRequest("%v", err)
		}
		if err := protocol.CheckSecretName(r.PathValue("name")); err != nil {
			return nil, err
		}
		if err := req.Validate(); err != nil {
			return nil, err
		}
		f.values[protocol.SecretRef{SecretRef: r.PathValue("name"), Scope: req.Scope}] = req.Value
		return nil, nil
	})
	handle("DELETE /secrets/{name}", http.StatusNoContent, func(r *http.Request) (any, error) {
		delete(f.values, protocol.SecretRef{SecretRef: r.PathValue("name"), Scope: r.URL.Query().Get("scope")})
		return nil, nil
	})
}
