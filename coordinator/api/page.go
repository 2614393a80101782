package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageTemplate string

//go:embed page.css
var pageStyle string

// pageOperation and pageSchema are what the page shows of an OpenAPI document.
type pageOperation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []pageField
	Body, Answer                           template.HTML
	Status                                 string
}

type pageField struct {
	Name, In, Description string
	Type                  template.HTML
	Required              bool
}

type pageSchema struct {
	Name        string
	Description string
	Fields      []pageField
}

type pageGroup struct {
	Name       string
	Operations []pageOperation
}

// schema is the part of JSON schema that the page can show.
type schema struct {
	Ref         string            `json:"$ref"`
	Type        any               `json:"type"`
	Format      string            `json:"format"`
	Description string            `json:"description"`
	Enum        []any             `json:"enum"`
	Items       *schema           `json:"items"`
	OneOf       []schema          `json:"oneOf"`
	Additional  json.RawMessage   `json:"additionalProperties"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
}

type openAPIOperation struct {
	ID          string   `json:"operationId"`
	Tags        []string `json:"tags"`
	Summary     string   `json:"summary"`
	Description string   `json:"description"`
	Parameters  []struct {
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Schema      schema `json:"schema"`
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]struct{ Schema schema } `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct{ Schema schema } `json:"content"`
	} `json:"responses"`
}

// renderPage makes a page out of an OpenAPI document: HTML and one style sheet,
// no script, nothing from elsewhere, so that it works offline under the
// strictest policy, which it returns.
func renderPage(document []byte) (page []byte, policy string, err error) {
	var doc struct {
		Info struct {
			Title, Version, Description string
		} `json:"info"`
		Paths      map[string]map[string]openAPIOperation `json:"paths"`
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, "", err
	}
	groups := make(map[string]*pageGroup)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			group := cmp.Or(strings.Join(op.Tags, " "), "other")
			if groups[group] == nil {
				groups[group] = &pageGroup{Name: group}
			}
			groups[group].Operations = append(groups[group].Operations, operationOf(method, path, op))
		}
	}
	sorted := make([]*pageGroup, 0, len(groups))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		slices.SortFunc(g.Operations, func(a, b pageOperation) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
		})
		sorted = append(sorted, g)
	}
	var schemas []pageSchema
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		schemas = append(schemas, schemaOf(name, doc.Components.Schemas[name]))
	}
	tpl, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	err = tpl.Execute(&b, map[string]any{
		"Title": doc.Info.Title, "Version": doc.Info.Version, "Description": doc.Info.Description,
		"Groups": sorted, "Schemas": schemas, "Style": template.CSS(pageStyle),
	})
	sum := sha256.Sum256([]byte(pageStyle))
	policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return b.Bytes(), policy, err
}

func operationOf(method, path string, op openAPIOperation) pageOperation {
	out := pageOperation{ID: op.ID, Method: strings.ToUpper(method), Path: path, Summary: op.Summary, Description: op.Description}
	for _, p := range op.Parameters {
		out.Parameters = append(out.Parameters, pageField{
			Name: p.Name, In: p.In, Description: p.Description, Type: typeOf(p.Schema), Required: p.Required,
		})
	}
	for _, content := range op.RequestBody.Content {
		out.Body = typeOf(content.Schema)
	}
	for status, response := range op.Responses {
		if status == "default" {
			continue
		}
		out.Status = status
		for media, content := range response.Content {
			out.Answer = typeOf(content.Schema)
			if media != mediaJSON {
				out.Answer = template.HTML(template.HTMLEscapeString(media))
			}
		}
	}
	return out
}

func schemaOf(name string, s schema) pageSchema {
	out := pageSchema{Name: name, Description: s.Description}
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[field]
		out.Fields = append(out.Fields, pageField{
			Name: field, Description: p.Description, Type: typeOf(p), Required: slices.Contains(s.Required, field),
		})
	}
	return out
}

// typeOf names a schema, with links to the named ones.
func typeOf(s schema) template.HTML {
	text := func(t string) template.HTML { return template.HTML(template.HTMLEscapeString(t)) }
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		escaped := template.HTMLEscapeString(name)
		return template.HTML(`<a href="#schema-` + escaped + `">` + escaped + `</a>`)
	}
	if len(s.OneOf) > 0 {
		var parts []string
		for _, one := range s.OneOf {
			parts = append(parts, string(typeOf(one)))
		}
		return template.HTML(strings.Join(parts, " or "))
	}
	if len(s.Enum) > 0 {
		var parts []string
		for _, v := range s.Enum {
			b, err := json.Marshal(v)
			if err != nil {
				continue // came from JSON
			}
			parts = append(parts, string(b))
		}
		return text(strings.Join(parts, " | "))
	}
	if s.Items != nil {
		return typeOf(*s.Items) + "[]"
	}
	var values schema
	if len(s.Additional) > 0 && json.Unmarshal(s.Additional, &values) == nil && (values.Ref != "" || values.Type != nil || values.OneOf != nil) {
		return "map of " + typeOf(values)
	}
	kinds := []string{}
	switch t := s.Type.(type) {
	case string:
		kinds = append(kinds, t)
	case []any:
		for _, k := range t {
			if k, ok := k.(string); ok && k != "null" {
				kinds = append(kinds, k)
			}
		}
	}
	kind := cmp.Or(strings.Join(kinds, " or "), "any")
	if s.Format != "" {
		kind += " (" + s.Format + ")"
	}
	return text(kind)
}
