package api

import (
	"net/http"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/protocol"
)

type nameID struct {
	ID string `path:"id"`
}

type nameVersion struct {
	ID      string `path:"id"`
	Version string `path:"version" description:"a version, or latest"`
}

type diffQuery struct {
	Base      string `query:"base" required:"true"`
	Candidate string `query:"candidate" required:"true"`
}

func (s *Server) harnessRoutes() []route {
	return []route{
		create("/harnesses", "registerHarness", "Register a harness: a resolved spec, or an instance of a template", (*Server).registerHarness).action(auth.HarnessesRegister),
		post("/harnesses/validate", "validateHarness", "Say what registering would refuse", (*Server).validateHarness).action(auth.HarnessesRegister),
		get("/harnesses", "listHarnesses", "List harnesses", (*Server).listHarnesses).action(auth.HarnessesRead),
		get("/harnesses/{id}", "getHarness", "The versions of a harness", (*Server).harnessVersions).action(auth.HarnessesRead).with(nameID{}),
		get("/harnesses/{id}/diff", "diffHarness", "Compare two versions", (*Server).diffHarness).action(auth.HarnessesRead).with(nameID{}, diffQuery{}),
		get("/harnesses/{id}/{version}", "getHarnessVersion", "What a version resolves to", (*Server).harnessSpec).action(auth.HarnessesRead).with(nameVersion{}),
		get("/harnesses/{id}/{version}/instance", "getHarnessInstance", "The instance that a version was registered as", (*Server).harnessInstance).action(auth.HarnessesRead).with(nameVersion{}),
		create("/harnesses/{id}/pins", "pinHarness", "Register a version with other pins", (*Server).pinHarness).or(http.StatusOK).action(auth.HarnessesRegister).with(nameID{}),
		put("/harnesses/{id}/versions/{version}/tags", "tagHarness", "Replace the tags of a version", (*Server).tagHarness).action(auth.HarnessesRegister).with(nameVersion{}),
		// Who registered a version may delete it: the action is checked by hand.
		deleting("/harnesses/{id}/versions/{version}", "deleteHarness", "Delete a version; runs that used it keep it", (*Server).deleteHarness).with(nameVersion{}),
	}
}

// deleting ends something and says what.
func deleting[A any](path, id, summary string, fn func(*Server, *call) (A, error)) route {
	return answering(http.MethodDelete, path, id, summary, http.StatusOK, fn)
}

// harnesses are those that the principal sees.
func (c *call) harnesses() *registry.Registry { return c.s.cfg.Harnesses.For(c.principal.Subject) }

func (s *Server) registerHarness(c *call, sub *registry.Submission) (protocol.Registered, error) {
	return c.harnesses().Register(c.r.Context(), c.principal.Workspace, c.principal.Subject, *sub)
}

func (s *Server) validateHarness(c *call, sub *registry.Submission) (protocol.Validation, error) {
	return c.harnesses().Validate(c.r.Context(), c.principal.Workspace, *sub)
}

func (s *Server) listHarnesses(c *call) ([]protocol.HarnessEntry, error) {
	return c.harnesses().Harnesses(c.r.Context(), c.principal.Workspace)
}

func (s *Server) harnessVersions(c *call) (protocol.Versions, error) {
	return c.harnesses().Versions(c.r.Context(), c.principal.Workspace, c.path("id"))
}

func (s *Server) harnessSpec(c *call) (protocol.HarnessSpec, error) {
	return c.harnesses().Resolve(c.r.Context(), c.principal.Workspace, protocol.HarnessRef{ID: c.path("id"), Version: c.path("version")})
}

func (s *Server) harnessInstance(c *call) (*protocol.HarnessInstance, error) {
	return c.harnesses().Instance(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
}

func (s *Server) diffHarness(c *call) (protocol.SpecDiff, error) {
	q := c.query()
	base, candidate := q.get("base"), q.get("candidate")
	if base == "" || candidate == "" {
		return protocol.SpecDiff{}, protocol.BadRequest("base and candidate are required: the two versions to compare").
			WithHint("GET /harnesses/%s lists its versions", protocol.Clip(c.path("id"), 80))
	}
	return c.harnesses().Diff(c.r.Context(), c.principal.Workspace, c.path("id"), base, candidate)
}

func (s *Server) pinHarness(c *call, req *protocol.PinsRequest) (protocol.Pinned, error) {
	pinned, err := c.harnesses().Pin(c.r.Context(), c.principal.Workspace, c.principal.Subject, c.path("id"), *req)
	if pinned.Unchanged {
		c.override = http.StatusOK
	}
	return pinned, err
}

func (s *Server) tagHarness(c *call, t *protocol.Tags) (protocol.Tagged, error) {
	return c.harnesses().SetTags(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"), *t)
}

func (s *Server) deleteHarness(c *call) (protocol.Deleted, error) {
	by, err := c.harnesses().CreatedBy(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
	if permitErr := c.principal.PermitsOwn(auth.HarnessesDelete, by); permitErr != nil {
		return protocol.Deleted{}, permitErr
	}
	if err != nil {
		return protocol.Deleted{}, err
	}
	return c.harnesses().Delete(c.r.Context(), c.principal.Workspace, c.path("id"), c.path("version"))
}
