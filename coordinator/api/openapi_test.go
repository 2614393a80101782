package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// The routes that clients rely on, as they call them.
var promised = []string{
	"GET /runs", "POST /runs", "GET /runs/{id}", "POST /runs/{id}/cancel", "POST /runs/{id}/approve", "POST /runs/{id}/reject", "POST /runs/{id}/retry", "GET /summary",
	"GET /runs/{id}/logs", "GET /runs/{id}/logs/search", "GET /runs/{id}/logs/stream", "GET /runs/{id}/trace", "GET /runs/{id}/trajectory", "GET /runs/{id}/trajectory/live",
	"GET /runs/{id}/live/stream", "GET /events", "GET /runs/{id}/diff", "GET /runs/{id}/events", "GET /runs/{id}/placement", "GET /runs/{id}/attempts",
	"POST /harnesses", "GET /harnesses", "POST /harnesses/validate", "GET /harnesses/{id}", "GET /harnesses/{id}/diff",
	"GET /harnesses/{id}/{version}", "GET /harnesses/{id}/{version}/instance", "POST /harnesses/{id}/pins",
	"DELETE /harnesses/{id}/versions/{version}", "PUT /harnesses/{id}/versions/{version}/tags",
	"POST /harness-templates", "GET /harness-templates", "POST /harness-templates/validate", "GET /harness-templates/{id}", "GET /harness-templates/{id}/{version}",
	"POST /runtimes", "POST /runtimes/validate", "POST /runtimes/probe", "GET /runtimes/{id}/versions/{version}/inspect", "GET /runtimes",
	"GET /runtimes/{id}/versions/{version}", "PUT /runtimes/{id}/versions/{version}/tags",
	"GET /pools", "POST /pools/tokens", "GET /pools/tokens", "DELETE /pools/tokens/{id}", "POST /agent/join", "POST /agent/nonce",
	"POST /runners", "GET /runners", "DELETE /runners/{id}", "DELETE /runners/self",
	"POST /pairings", "GET /pairings/{id}", "POST /pairings/lookup", "POST /pairings/{id}/approve", "POST /pairings/{id}/deny", "POST /pairings/{id}/redeem",
	"POST /pair-codes", "GET /pair-codes/{id}",
	"POST /workspace/runners", "GET /workspace/runners", "GET /workspace/runners/owned", "DELETE /workspace/runners/{id}",
	"POST /runs/{id}/payload", "DELETE /runs/{id}/payload", "POST /runs/{id}/attempts/{attempt}/result",
	"GET /secrets", "GET /secrets/usage", "PUT /secrets/{name}", "DELETE /secrets/{name}",
	"POST /keys", "GET /keys", "DELETE /keys/{id}", "GET /me", "POST /internal/tenant-keys",
	"GET /session", "POST /session", "DELETE /session",
	"GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs/json", "GET /docs",
}

// twofold are the operations with a second status of success.
var twofold = map[string]string{"POST /harnesses/{id}/pins": "200", "POST /pairings/{id}/redeem": "202"}

type openAPI struct {
	OpenAPI    string                               `json:"openapi"`
	Paths      map[string]map[string]map[string]any `json:"paths"`
	Components struct {
		Schemas         map[string]map[string]any `json:"schemas"`
		SecuritySchemes map[string]any            `json:"securitySchemes"`
	} `json:"components"`
}

func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var doc openAPI
	r := e.do("GET", "/openapi.json", "").wants(http.StatusOK)
	r.into(&doc)
	if other := e.do("GET", "/docs/json", "").wants(http.StatusOK); string(other.body) != string(r.body) {
		t.Error("/docs/json differs from /openapi.json")
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("openapi %q, want 3.1", doc.OpenAPI)
	}
	var described []string
	seen := make(map[string]string)
	parameter := regexp.MustCompile(`\{(\w+)\}`)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			described = append(described, name)
			id, _ := op["operationId"].(string)
			if id == "" || seen[id] != "" {
				t.Errorf("%s: operationId %q is empty or taken by %q", name, id, seen[id])
			}
			seen[id] = name
			if s, _ := op["summary"].(string); s == "" {
				t.Errorf("%s has no summary", name)
			}
			responses, _ := op["responses"].(map[string]any)
			want := 2
			if second := twofold[name]; second != "" {
				if want = 3; responses[second] == nil {
					t.Errorf("%s: responses %v, want %s among them", name, responses, second)
				}
			}
			if len(responses) != want || responses["default"] == nil {
				t.Errorf("%s: responses %v, want its success and the problem", name, responses)
			}
			for _, m := range parameter.FindAllStringSubmatch(path, -1) {
				if !hasParameter(op, m[1], "path") {
					t.Errorf("%s: path parameter %q is not described", name, m[1])
				}
			}
		}
	}
	slices.Sort(described)
	want := slices.Sorted(slices.Values(promised))
	if !slices.Equal(described, want) {
		t.Errorf("described operations:\n%s\nwant:\n%s", strings.Join(described, "\n"), strings.Join(want, "\n"))
	}

	// Every reference leads somewhere.
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				name, local := strings.CutPrefix(ref, "#/components/schemas/")
				if !local || doc.Components.Schemas[name] == nil {
					t.Errorf("%s: reference %q leads nowhere", at, ref)
				}
			}
			for key, child := range v {
				walk(at+"/"+key, child)
			}
		case []any:
			for _, child := range v {
				walk(at, child)
			}
		}
	}
	var whole any
	r.into(&whole)
	walk("#", whole)

	run := doc.Components.Schemas["Run"]
	required, _ := run["required"].([]any)
	properties, _ := run["properties"].(map[string]any)
	if !slices.Contains(required, any("id")) || slices.Contains(required, any("verdict")) || properties["verdict"] == nil {
		t.Errorf("schema Run: required %v of %d properties; want id and not verdict", required, len(properties))
	}
	for name, want := range map[string][]any{"Case": {"id", "env", "task"}, "HarnessRef": {"id"}, "RunRequest": {"harness", "case"}} {
		if got, _ := doc.Components.Schemas[name]["required"].([]any); !slices.Equal(got, want) {
			t.Errorf("schema %s requires %v, want %v: the rest has defaults", name, got, want)
		}
	}
	created, _ := properties["createdAt"].(map[string]any)
	if created["$ref"] != "#/components/schemas/Time" || doc.Components.Schemas["Time"]["format"] != "date-time" {
		t.Errorf("schema Run: createdAt is %v and Time is %v, want a date-time", created, doc.Components.Schemas["Time"])
	}
	if doc.Components.SecuritySchemes["bearer"] == nil {
		t.Error("no bearer security scheme")
	}
	if op := doc.Paths["/healthz"]["get"]; op["security"] != nil {
		t.Errorf("/healthz needs %v, want nothing", op["security"])
	}
	if op := doc.Paths["/runs"]["post"]; op["security"] == nil {
		t.Error("POST /runs says nothing of a credential")
	}
}

func hasParameter(op map[string]any, name, in string) bool {
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		p, _ := p.(map[string]any)
		if p["name"] == name && p["in"] == in {
			return true
		}
	}
	return false
}

// Each described operation is served: none is a 404 of the router.
func TestEveryDescribedRouteIsServed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	fill := strings.NewReplacer("{id}", "x", "{version}", "1", "{name}", "X")
	for _, name := range promised {
		method, path, _ := strings.Cut(name, " ")
		if path == "/events" {
			method = http.MethodHead // the stream has no end
		}
		r := e.do(method, fill.Replace(path), "")
		if r.status == http.StatusMethodNotAllowed || r.status >= 500 || strings.Contains(string(r.body), "no such route") {
			t.Errorf("%s: status %d, %s", name, r.status, r.body)
		}
	}
}

// The page works offline and under a policy without exceptions.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	r := e.do("GET", "/docs", "").wants(http.StatusOK)
	page := string(r.body)
	policy := r.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q, want one that allows nothing", policy)
	}
	for _, forbidden := range []string{"<script", "http://", "https://", "src=", "style=", "onclick", "ZgotmplZ"} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %q", forbidden)
		}
	}
	_, rest, _ := strings.Cut(page, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(policy, "'sha256-"+hash+"'") {
		t.Errorf("policy %q does not allow the page's own style (sha256-%s)", policy, hash)
	}
	for _, name := range promised {
		_, path, _ := strings.Cut(name, " ")
		if !strings.Contains(page, "<code>"+path+"</code>") {
			t.Errorf("the page lacks %s", path)
		}
	}
	targets := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(targets) < 50 {
		t.Errorf("the page has %d inner links, which are too few", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("link to #%s leads nowhere", m[1])
		}
	}
}

func TestDocumentsNeedNoCredential(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	e.do("GET", "/docs", "", "Authorization", "Bearer nonsense").wants(http.StatusOK)
	e.do("GET", "/me", "", "Authorization", "Bearer nonsense").problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
}

// TestOpenAPINulls holds the document against what is sent: unknown numbers of a
// usage are null (P13), and nothing else is.
func TestOpenAPINulls(t *testing.T) {
	t.Parallel()
	var doc openAPI
	newEnv(t, options{}).do("GET", "/openapi.json", "").wants(http.StatusOK).into(&doc)
	for name, schema := range doc.Components.Schemas {
		properties, _ := schema["properties"].(map[string]any)
		for field, property := range properties {
			kinds, _ := property.(map[string]any)["type"].([]any)
			required, _ := schema["required"].([]any)
			if null := slices.Contains(kinds, any("null")); null != (name == "Usage" && slices.Contains(required, any(field))) {
				t.Errorf("%s.%s: null is allowed: %v", name, field, null)
			}
		}
	}
}

// noBody are the operations that take none.
var noBody = []string{"POST /runs/{id}/cancel", "POST /runs/{id}/retry", "POST /pairings/{id}/approve", "POST /pairings/{id}/deny", "POST /pair-codes", "POST /agent/nonce"}

// Whatever takes a body describes it to the last field, and what it may be.
func TestOpenAPIBodies(t *testing.T) {
	t.Parallel()
	var doc openAPI
	newEnv(t, options{}).do("GET", "/openapi.json", "").wants(http.StatusOK).into(&doc)
	described := make(map[string]bool)
	var fields func(at string, schema any)
	fields = func(at string, schema any) {
		switch v := schema.(type) {
		case []any:
			for _, child := range v {
				fields(at, child)
			}
			return
		case map[string]any:
			for _, key := range []string{"oneOf", "anyOf", "items", "additionalProperties"} {
				fields(at, v[key])
			}
			ref, _ := v["$ref"].(string)
			name := strings.TrimPrefix(ref, "#/components/schemas/")
			if name == "" || described[name] {
				return
			}
			described[name] = true
			properties, _ := doc.Components.Schemas[name]["properties"].(map[string]any)
			if len(properties) == 0 && name != "Time" {
				t.Errorf("%s: schema %s has no properties", at, name)
			}
			for field, property := range properties {
				if text, _ := property.(map[string]any)["description"].(string); text == "" {
					t.Errorf("%s.%s has no description", name, field)
				}
				fields(name+"."+field, property)
			}
		}
	}
	bodies := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			if method != "post" && method != "put" || slices.Contains(noBody, name) {
				continue
			}
			bodies++
			body, _ := op["requestBody"].(map[string]any)
			content, _ := body["content"].(map[string]any)
			media, _ := content["application/json"].(map[string]any)
			schema, _ := media["schema"].(map[string]any)
			if len(schema) == 0 {
				t.Errorf("%s takes a body and describes none: %v", name, op["requestBody"])
			}
			fields(name, schema)
		}
	}
	if bodies < 12 {
		t.Errorf("%d operations take a body, want at least 12", bodies)
	}
	for _, name := range []string{"RunRequest", "Network", "HarnessSpec", "HarnessInstance", "RuntimeSpec", "RuntimeRef", "KeyRequest", "PairRequest", "SecretRequest", "Decision"} {
		if !described[name] {
			t.Errorf("no body leads to the schema %s", name)
		}
	}
	network, _ := doc.Components.Schemas["Network"]["properties"].(map[string]any)
	mode, _ := network["mode"].(map[string]any)
	if enum, _ := mode["enum"].([]any); !slices.Equal(enum, []any{"public", "none", "allowlist"}) {
		t.Errorf("Network.mode is one of %v, want public, none, allowlist", enum)
	}
	keys, _ := doc.Components.Schemas["KeyRequest"]["properties"].(map[string]any)
	scopes, _ := keys["scopes"].(map[string]any)
	items, _ := scopes["items"].(map[string]any)
	if enum, _ := items["enum"].([]any); !slices.Equal(enum, []any{"read", "write", "admin"}) {
		t.Errorf("an element of KeyRequest.scopes is one of %v, want read, write, admin", enum)
	}
}
