package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) keyRoutes() []route {
	return []route{
		create("/keys", "createKey", "Make an API key; it is shown this once", (*Server).createKey).action(auth.KeysWrite),
		get("/keys", "listKeys", "List your own API keys; for an admin those of the workspace", (*Server).listKeys).action(auth.KeysRead),
		remove("/keys/{id}", "deleteKey", "End an API key: one of your own or, as an admin, anybody's of the workspace", (*Server).deleteKey).action(auth.KeysWrite).with(nameID{}),
		create("/internal/tenant-keys", "createTenantKey", "Make an admin's API key of any workspace, as the operator; it is shown this once", (*Server).createTenantKey).operated(),
		get("/me", "me", "Who you are here, and what you may do", func(_ *Server, c *call) (protocol.Me, error) { return c.principal.Me(), nil }),
	}
}

func (s *Server) createKey(c *call, req *protocol.KeyRequest) (protocol.IssuedKey, error) {
	c.noStore()
	return s.cfg.Keys.Issue(c.r.Context(), c.principal, *req)
}

func (s *Server) createTenantKey(c *call, req *protocol.TenantKeyRequest) (protocol.TenantKey, error) {
	c.noStore()
	return s.cfg.Keys.Tenant(c.r.Context(), *req)
}

func (s *Server) listKeys(c *call) ([]protocol.Key, error) {
	return s.cfg.Keys.List(c.r.Context(), c.principal)
}

func (s *Server) deleteKey(c *call) error {
	return s.cfg.Keys.Delete(c.r.Context(), c.principal, c.path("id"))
}
