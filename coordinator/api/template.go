package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) templateRoutes() []route {
	return []route{
		create("/harness-templates", "registerTemplate", "Register a harness template", (*Server).registerTemplate).action(auth.TemplatesWrite),
		post("/harness-templates/validate", "validateTemplate", "Say what registering would refuse", (*Server).validateTemplate).action(auth.TemplatesWrite),
		get("/harness-templates", "listTemplates", "List harness templates", (*Server).listTemplates).action(auth.HarnessesRead),
		get("/harness-templates/{id}", "getTemplate", "The versions of a template", (*Server).templateVersions).action(auth.HarnessesRead).with(nameID{}),
		get("/harness-templates/{id}/{version}", "getTemplateVersion", "One version of a template", (*Server).template).action(auth.HarnessesRead).with(nameVersion{}),
	}
}

func (s *Server) registerTemplate(c *call, t *protocol.HarnessTemplate) (protocol.Registered, error) {
	return s.cfg.Harnesses.RegisterTemplate(c.r.Context(), c.principal.Workspace, c.principal.Subject, *t)
}

func (s *Server) validateTemplate(c *call, t *protocol.HarnessTemplate) (protocol.Validation, error) {
	return s.cfg.Harnesses.ValidateTemplate(c.r.Context(), c.principal.Workspace, *t)
}

func (s *Server) listTemplates(c *call) ([]protocol.TemplateEntry, error) {
	return s.cfg.Harnesses.Templates(c.r.Context(), c.principal.Workspace)
}

func (s *Server) templateVersions(c *call) (protocol.Versions, error) {
	return s.cfg.Harnesses.TemplateVersions(c.r.Context(), c.principal.Workspace, c.path("id"))
}

func (s *Server) template(c *call) (*protocol.HarnessTemplate, error) {
	return s.cfg.Harnesses.Template(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
}
