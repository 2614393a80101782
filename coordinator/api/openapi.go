package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/swaggest/jsonschema-go"
	"github.com/swaggest/openapi-go"
	"github.com/swaggest/openapi-go/openapi31"

	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/protocol"
)

// documents describe the API: they are made once, from the routes.
type documents struct {
	openapi []byte
	page    []byte
	policy  string
}

const (
	bearerScheme   = "bearer"
	operatorScheme = "internalToken"
)

func newDocuments(routes []route, version string) (*documents, error) {
	reflector := openapi31.NewReflector()
	reflector.SpecEns().Info.WithTitle("Everdict").WithVersion(version).
		WithDescription("Runs evaluations of AI agents on machines that you own. Every error is a Problem.")
	reflector.SpecEns().SetHTTPBearerTokenSecurity(bearerScheme, "", "An API key (ak_...). A coordinator in development mode needs none.")
	reflector.SpecEns().SetAPIKeySecurity(operatorScheme, strings.ToLower(protocol.InternalTokenHeader), openapi.InHeader, "The coordinator's EVERDICT_INTERNAL_TOKEN.")
	reflector.DefaultOptions = append(reflector.DefaultOptions,
		jsonschema.StripDefinitionNamePrefix("Protocol", "Api"), jsonschema.InterceptProp(describePresence))
	describeUnions(reflector)
	for _, rt := range routes {
		if err := describe(reflector, rt); err != nil {
			return nil, fmt.Errorf("describe %s %s: %w", rt.method, rt.path, err)
		}
	}
	doc, err := json.MarshalIndent(reflector.Spec, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	page, policy, err := renderPage(doc)
	if err != nil {
		return nil, fmt.Errorf("render the page of the OpenAPI document: %w", err)
	}
	return &documents{openapi: doc, page: page, policy: policy}, nil
}

// defaulted are fields that an answer always has and that a request may leave
// out.
var defaulted = map[reflect.Type][]string{
	reflect.TypeFor[protocol.Case]():       {"graders", "timeoutSec", "tags"},
	reflect.TypeFor[protocol.HarnessRef](): {"version"},
	// Of a runtime's spec a request may leave out what an answer always has.
	reflect.TypeFor[protocol.RuntimeSpec](): {"tags", "capabilities"},
}

// describePresence marks what a document always has: fields without omitempty that
// have no default. Null is only what is a pointer among them: other fields are
// left out when there is nothing to say, and lists and maps are empty.
func describePresence(p jsonschema.InterceptPropParams) error {
	if !p.Processed || p.Field.Tag.Get("json") == "" {
		return nil
	}
	describeWording(p)
	tag := p.Field.Tag.Get("json")
	optional := strings.Contains(tag, ",omitempty") || strings.Contains(tag, ",omitzero")
	if optional || p.Field.Type.Kind() != reflect.Pointer {
		p.PropertySchema.RemoveType(jsonschema.Null)
	}
	if optional {
		return nil
	}
	if parent := p.ParentSchema.ReflectType; parent != nil && slices.Contains(defaulted[indirect(parent)], p.Name) {
		return nil
	}
	p.ParentSchema.Required = append(p.ParentSchema.Required, p.Name)
	return nil
}

func indirect(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// describeUnions says what types with JSON forms of their own look like.
func describeUnions(r *openapi31.Reflector) {
	instant := jsonschema.Schema{}
	instant.WithType(jsonschema.String.Type()).WithFormat("date-time").WithExamples("2026-01-02T15:04:05.000Z")
	r.AddTypeMapping(protocol.Time{}, instant)
	r.AddTypeMapping(json.RawMessage{}, jsonschema.Schema{})
	r.AddTypeMapping(protocol.EnvValue{}, jsonschema.OneOf("", protocol.SecretRef{}))
	r.AddTypeMapping(protocol.ModelBinding{}, jsonschema.OneOf("", modelReference{}))
}

// modelReference is a protocol.ModelBinding that is no plain name.
type modelReference struct {
	Ref     string `json:"ref"`
	Version string `json:"version,omitempty"`
}

// bodyUnions are request bodies of more than one form. They are written as
// references to what other operations answer: the reflector would look in such a
// type for the fields of a form, find none, and leave the body out.
var bodyUnions = map[reflect.Type][]reflect.Type{
	reflect.TypeFor[registry.Submission]():   {reflect.TypeFor[protocol.HarnessInstance](), reflect.TypeFor[protocol.HarnessSpec]()},
	reflect.TypeFor[protocol.RuntimeQuery](): {reflect.TypeFor[protocol.RuntimeSpec](), reflect.TypeFor[protocol.RuntimeRef]()},
}

func unionBody(forms []reflect.Type) *openapi31.RequestBodyOrReference {
	var refs []any
	for _, form := range forms {
		refs = append(refs, map[string]any{"$ref": "#/components/schemas/" + form.Name()})
	}
	body := new(openapi31.RequestBody)
	body.WithContentItem(mediaJSON, openapi31.MediaType{Schema: map[string]any{"oneOf": refs}})
	return new(openapi31.RequestBodyOrReference).WithRequestBody(*body)
}

func describe(r *openapi31.Reflector, rt route) error {
	oc, err := r.NewOperationContext(rt.method, rt.path)
	if err != nil {
		return err
	}
	oc.SetID(rt.id)
	oc.SetSummary(rt.summary)
	oc.SetTags(noun(rt.path))
	if rt.permit != "" {
		oc.SetDescription("Needs the permission " + string(rt.permit) + ".")
	}
	switch {
	case rt.operator:
		oc.AddSecurity(operatorScheme)
	case !rt.public:
		oc.AddSecurity(bearerScheme)
	}
	for _, p := range rt.parameters {
		oc.AddReqStructure(p)
	}
	union := bodyUnions[reflect.TypeOf(rt.body)]
	if rt.body != nil && union == nil {
		oc.AddReqStructure(rt.body, openapi.WithContentType(mediaJSON))
	}
	switch {
	case rt.answer != nil:
		oc.AddRespStructure(rt.answer, openapi.WithHTTPStatus(rt.status), openapi.WithContentType(mediaJSON))
	case rt.status == http.StatusNoContent:
		oc.AddRespStructure(nil, openapi.WithHTTPStatus(rt.status))
	default:
		oc.AddRespStructure("", openapi.WithHTTPStatus(rt.status), openapi.WithContentType(rt.media))
	}
	if rt.also != 0 {
		oc.AddRespStructure(rt.answer, openapi.WithHTTPStatus(rt.also), openapi.WithContentType(mediaJSON))
	}
	oc.AddRespStructure(protocol.Problem{}, func(cu *openapi.ContentUnit) {
		cu.IsDefault = true
		cu.ContentType = mediaJSON
		cu.Description = "What went wrong, and where it helps what to do."
	})
	operation := oc.(openapi31.OperationExposer).Operation()
	if union != nil {
		operation.RequestBody = unionBody(union)
	}
	if err := r.AddOperation(oc); err != nil {
		return err
	}
	if body := operation.RequestBody; body != nil && body.RequestBody != nil && !rt.bodyOptional {
		required := reflect.TypeOf(rt.body).Kind() == reflect.Struct
		body.RequestBody.Required = &required
	}
	return nil
}

// noun is the first segment of a path, by which operations are grouped.
func noun(path string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch segment {
	case "workspace", "agent":
		return "runners"
	case "internal":
		return "keys"
	case "healthz", "readyz", "metrics", "openapi.json", "docs":
		return "operation"
	}
	return segment
}

func (s *Server) documentRoutes() []route {
	document := func(s *Server, c *call) error {
		docs, err := s.documents()
		if err != nil {
			return err
		}
		c.w.Header()["Content-Type"] = jsonType
		_, err = c.w.Write(docs.openapi)
		return c.unlessGone(err)
	}
	page := func(s *Server, c *call) error {
		docs, err := s.documents()
		if err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		c.w.Header().Set("Content-Security-Policy", docs.policy)
		_, err = c.w.Write(docs.page)
		return c.unlessGone(err)
	}
	return []route{
		stream("/openapi.json", "openapi", "This API as OpenAPI 3.1", mediaJSON, document).open(),
		stream("/docs/json", "docsJSON", "The same as /openapi.json", mediaJSON, document).open(),
		stream("/docs", "docs", "This API as a page to read", "text/html", page).open(),
	}
}
