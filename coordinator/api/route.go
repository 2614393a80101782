package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// route is one operation: what serves it and what OpenAPI says of it, so that
// the two cannot drift apart.
type route struct {
	method, path string
	// id names the operation for generated clients.
	id, summary string
	// permit is the action that the principal needs; empty: any principal.
	permit auth.Action
	// public needs no principal at all.
	public bool
	// operator needs the operator of the coordinator.
	operator bool

	// parameters are structs with path and query tags.
	parameters []any
	// body is a zero request body, nil if there is none.
	body         any
	bodyOptional bool
	// answer is a zero answer, nil if there is none; media is its type.
	answer any
	media  string
	status int
	// also is a second status that the same answer can have; 0: none.
	also int
	// list says that answer is a slice, which is never null.
	list bool

	handle func(*Server, *call) error
}

const (
	mediaJSON   = "application/json"
	mediaLines  = "application/x-ndjson"
	mediaText   = "text/plain"
	mediaDiff   = "text/x-diff"
	mediaEvents = "text/event-stream"
)

// get is an operation that answers JSON.
func get[A any](path, id, summary string, fn func(*Server, *call) (A, error)) route {
	return answering(http.MethodGet, path, id, summary, http.StatusOK, fn)
}

// postEmpty takes no body.
func postEmpty[A any](path, id, summary string, fn func(*Server, *call) (A, error)) route {
	return answering(http.MethodPost, path, id, summary, http.StatusOK, fn)
}

// post takes a JSON body.
func post[B, A any](path, id, summary string, fn func(*Server, *call, *B) (A, error)) route {
	return taking(http.MethodPost, path, id, summary, http.StatusOK, fn)
}

// postOptional takes a JSON body that may be left out.
func postOptional[B, A any](path, id, summary string, fn func(*Server, *call, *B) (A, error)) route {
	rt := taking(http.MethodPost, path, id, summary, http.StatusOK, fn)
	rt.bodyOptional = true
	return rt
}

// create makes something: 201.
func create[B, A any](path, id, summary string, fn func(*Server, *call, *B) (A, error)) route {
	return taking(http.MethodPost, path, id, summary, http.StatusCreated, fn)
}

// createEmpty is create without a body.
func createEmpty[A any](path, id, summary string, fn func(*Server, *call) (A, error)) route {
	return answering(http.MethodPost, path, id, summary, http.StatusCreated, fn)
}

// submit accepts something that happens later: 202.
func submit[B, A any](path, id, summary string, fn func(*Server, *call, *B) (A, error)) route {
	return taking(http.MethodPost, path, id, summary, http.StatusAccepted, fn)
}

// put replaces something.
func put[B, A any](path, id, summary string, fn func(*Server, *call, *B) (A, error)) route {
	return taking(http.MethodPut, path, id, summary, http.StatusOK, fn)
}

// replace puts something in the place of what was there and answers nothing: 204.
func replace[B any](path, id, summary string, fn func(*Server, *call, *B) error) route {
	return route{method: http.MethodPut, path: path, id: id, summary: summary, status: http.StatusNoContent, body: *new(B),
		handle: func(s *Server, c *call) error {
			body := new(B)
			if err := c.decode(body); err != nil {
				return err
			}
			if err := fn(s, c, body); err != nil {
				return err
			}
			c.w.WriteHeader(http.StatusNoContent)
			return nil
		}}
}

// remove ends something and answers nothing: 204.
func remove(path, id, summary string, fn func(*Server, *call) error) route {
	return route{method: http.MethodDelete, path: path, id: id, summary: summary, status: http.StatusNoContent,
		handle: func(s *Server, c *call) error {
			if err := fn(s, c); err != nil {
				return err
			}
			c.w.WriteHeader(http.StatusNoContent)
			return nil
		}}
}

// stream writes its answer of type media itself.
func stream(path, id, summary, media string, fn func(*Server, *call) error) route {
	return route{method: http.MethodGet, path: path, id: id, summary: summary, status: http.StatusOK, media: media, handle: fn}
}

func answering[A any](method, path, id, summary string, status int, fn func(*Server, *call) (A, error)) route {
	rt := route{method: method, path: path, id: id, summary: summary, status: status, media: mediaJSON, answer: *new(A), list: isList[A]()}
	list := rt.list
	rt.handle = func(s *Server, c *call) error {
		answer, err := fn(s, c)
		if err != nil {
			return err
		}
		return c.json(c.status(status), &answer, list)
	}
	return rt
}

func taking[B, A any](method, path, id, summary string, status int, fn func(*Server, *call, *B) (A, error)) route {
	rt := answering(method, path, id, summary, status, func(s *Server, c *call) (A, error) {
		body := new(B)
		if err := c.decode(body); err != nil {
			return *new(A), err
		}
		return fn(s, c, body)
	})
	rt.body = *new(B)
	return rt
}

func isList[A any]() bool { return reflect.TypeFor[A]().Kind() == reflect.Slice }

func (rt route) action(a auth.Action) route {
	rt.permit = a
	return rt
}

func (rt route) open() route {
	rt.public = true
	return rt
}

// or says that the answer can have another status.
func (rt route) or(status int) route {
	rt.also = status
	return rt
}

// operated is for the operator of the coordinator alone.
func (rt route) operated() route {
	rt.operator = true
	return rt
}

// with describes path and query parameters.
func (rt route) with(parameters ...any) route {
	rt.parameters = append(rt.parameters, parameters...)
	return rt
}

func (s *Server) routes() []route {
	var all []route
	for _, noun := range [][]route{
		s.runRoutes(), s.evidenceRoutes(), s.liveRoutes(), s.feedRoutes(), s.harnessRoutes(), s.templateRoutes(),
		s.runtimeRoutes(), s.poolRoutes(), s.runnerRoutes(), s.pairingRoutes(), s.secretRoutes(), s.keyRoutes(), s.sessionRoutes(), s.healthRoutes(), s.documentRoutes(),
	} {
		all = append(all, noun...)
	}
	return all
}

// notFound answers what no route serves: 405 with Allow if the path exists under
// another method, else 404.
func (s *Server) notFound(c *call) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if unclean(c.r.URL.Path) {
			break
		}
		probe := *c.r
		probe.Method = method
		if _, pattern := s.mux.Handler(&probe); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return protocol.NotFound("no such route: %s %s", c.r.Method, auth.Redact(protocol.Clip(c.r.URL.Path, 200))).
			WithHint("GET /docs lists them all")
	}
	for _, method := range allowed {
		c.w.Header().Add("Allow", method)
	}
	if c.r.Method == http.MethodOptions {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return (&protocol.Problem{
		Status: http.StatusMethodNotAllowed, Code: protocol.CodeBadRequest,
		Message: "this path does not take " + protocol.Clip(c.r.Method, 20),
	}).WithData("allow", allowed).WithHint("it takes %s; GET /docs lists every route", strings.Join(allowed, ", "))
}
