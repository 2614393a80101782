package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) runtimeRoutes() []route {
	return []route{
		create("/runtimes", "registerRuntime", "Register a runtime: a place to run, with its limits", (*Server).registerRuntime).action(auth.RuntimesWrite),
		validateRuntimes("/runtimes/validate", "validateRuntime", "Say what registering would refuse or ignore, and which secrets are missing").action(auth.RuntimesWrite),
		post("/runtimes/probe", "probeRuntime", "Ask the cluster of a runtime whether it answers; nothing is kept", (*Server).probeRuntime).action(auth.RuntimesWrite),
		get("/runtimes", "listRuntimes", "List runtimes by id", (*Server).listRuntimes).action(auth.RuntimesRead),
		get("/runtimes/{id}/versions/{version}", "getRuntime", "One version of a runtime", (*Server).getRuntime).action(auth.RuntimesRead).with(nameVersion{}),
		get("/runtimes/{id}/versions/{version}/inspect", "inspectRuntime", "Look at the cluster of a runtime: nodes, capacity, what runs there for it", (*Server).inspectRuntime).action(auth.RuntimesRead).with(nameVersion{}),
		put("/runtimes/{id}/versions/{version}/tags", "tagRuntime", "Replace the tags of a version", (*Server).tagRuntime).action(auth.RuntimesWrite).with(nameVersion{}),
	}
}

// mayBind is nil if the principal may have a spec's secrets sent to where it says. Who
// gives a secret to an address for the first time could as well read it.
func (c *call) mayBind(q protocol.RuntimeQuery) error {
	denied := c.principal.Permits(auth.SecretsRead)
	if denied == nil || q.Spec == nil { // what is registered is bound
		return nil
	}
	unbound, err := c.s.cfg.Runtimes.Unbound(c.r.Context(), c.principal.Workspace, q)
	if err != nil || len(unbound) == 0 {
		return err
	}
	var problem *protocol.Problem
	if !errors.As(denied, &problem) {
		return denied
	}
	b := unbound[0]
	problem.Message = fmt.Sprintf("no registered runtime of this workspace gives the secret %s to %s yet, and to be the first takes %s", b.Name, b.Address, auth.SecretsRead)
	if b.Address == "" {
		problem.Message = fmt.Sprintf("no registered runtime of this workspace uses the secret %s as %s yet, and to be the first takes %s", b.Name, b.Field, auth.SecretsRead)
	}
	return problem.WithHint("an admin registers a runtime with it first (everdict runtimes register, with a key of the scope %s); "+
		"then whoever may register runtimes can use the same secret with the same address", protocol.ScopeAdmin)
}

func (s *Server) registerRuntime(c *call, spec *protocol.RuntimeSpec) (protocol.Registered, error) {
	if err := c.mayBind(protocol.RuntimeQuery{Spec: spec}); err != nil {
		return protocol.Registered{}, err
	}
	return s.cfg.Runtimes.Register(c.r.Context(), c.principal.Workspace, c.principal.Subject, *spec)
}

// validateRuntimes is a post whose answer says what is wrong with its body, if that is JSON.
func validateRuntimes(path, id, summary string) route {
	rt := post(path, id, summary, func(s *Server, c *call, doc *json.RawMessage) (protocol.RuntimeValidation, error) {
		q := new(protocol.RuntimeQuery)
		if len(*doc) > 0 {
			q.Fault = decodeJSON(*doc, q)
		}
		v, err := s.validateRuntime(c, q)
		if q.Ref == nil {
			for _, key := range protocol.UnknownKeys(*doc, reflect.TypeFor[protocol.RuntimeSpec]()) {
				v.Warnings = append(v.Warnings, key.String())
			}
		}
		return v, err
	})
	rt.body = protocol.RuntimeQuery{}
	return rt
}

func (s *Server) validateRuntime(c *call, q *protocol.RuntimeQuery) (protocol.RuntimeValidation, error) {
	v, err := s.cfg.Runtimes.Validate(c.r.Context(), c.principal.Workspace, *q)
	if err != nil || !v.OK {
		return v, err
	}
	var problem *protocol.Problem
	if err := c.mayBind(*q); errors.As(err, &problem) {
		return protocol.RuntimeValidation{Validation: protocol.Validation{Errors: []string{problem.Message},
			VersionExists: v.VersionExists, ExistingVersions: v.ExistingVersions}}, nil
	} else if err != nil {
		return protocol.RuntimeValidation{}, err
	}
	return v, nil
}

func (s *Server) probeRuntime(c *call, q *protocol.RuntimeQuery) (protocol.Probe, error) {
	if err := c.mayBind(*q); err != nil {
		return protocol.Probe{}, err
	}
	return s.cfg.Runtimes.Probe(c.r.Context(), c.principal.Workspace, *q)
}

func (s *Server) listRuntimes(c *call) ([]protocol.RuntimeEntry, error) {
	return s.cfg.Runtimes.List(c.r.Context(), c.principal.Workspace)
}

func (s *Server) getRuntime(c *call) (*protocol.RuntimeSpec, error) {
	return s.cfg.Runtimes.Get(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
}

func (s *Server) inspectRuntime(c *call) (protocol.Inspection, error) {
	return s.cfg.Runtimes.Inspect(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
}

func (s *Server) tagRuntime(c *call, t *protocol.Tags) (protocol.Tagged, error) {
	return s.cfg.Runtimes.SetTags(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"), *t)
}
