package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) runtimeRoutes() []route {
	return []route{
		create("/runtimes", "registerRuntime", "Register a runtime: a place to run, with its limits", (*Server).registerRuntime).action(auth.RuntimesWrite),
		post("/runtimes/validate", "validateRuntime", "Say what registering would refuse, and which secrets are missing", (*Server).validateRuntime).action(auth.RuntimesWrite),
		post("/runtimes/probe", "probeRuntime", "Ask the cluster of a runtime whether it answers; nothing is kept", (*Server).probeRuntime).action(auth.RuntimesWrite),
		get("/runtimes", "listRuntimes", "List runtimes by id", (*Server).listRuntimes).action(auth.RuntimesRead),
		get("/runtimes/{id}/versions/{version}", "getRuntime", "One version of a runtime", (*Server).getRuntime).action(auth.RuntimesRead).with(nameVersion{}),
		get("/runtimes/{id}/versions/{version}/inspect", "inspectRuntime", "Look at the cluster of a runtime: nodes, capacity, what runs there for it", (*Server).inspectRuntime).action(auth.RuntimesRead).with(nameVersion{}),
		put("/runtimes/{id}/versions/{version}/tags", "tagRuntime", "Replace the tags of a version", (*Server).tagRuntime).action(auth.RuntimesWrite).with(nameVersion{}),
	}
}

func (s *Server) registerRuntime(c *call, spec *protocol.RuntimeSpec) (protocol.Registered, error) {
	return s.cfg.Runtimes.Register(c.r.Context(), c.principal.Workspace, c.principal.Subject, *spec)
}

func (s *Server) validateRuntime(c *call, q *protocol.RuntimeQuery) (protocol.RuntimeValidation, error) {
	return s.cfg.Runtimes.Validate(c.r.Context(), c.principal.Workspace, *q)
}

func (s *Server) probeRuntime(c *call, q *protocol.RuntimeQuery) (protocol.Probe, error) {
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
