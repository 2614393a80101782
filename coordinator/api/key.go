package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) keyRoutes() []route {
	return []route{
		create("/keys", "createKey", "Make an API key; it is shown this once", (*Server).createKey).action(auth.KeysWrite),
		get("/keys", "listKeys", "List your own API keys", (*Server).listKeys).action(auth.KeysRead),
		remove("/keys/{id}", "deleteKey", "End one of your own API keys", (*Server).deleteKey).action(auth.KeysWrite).with(nameID{}),
		get("/me", "me", "Who you are here, and what you may do", func(_ *Server, c *call) (protocol.Me, error) { return c.principal.Me(), nil }),
	}
}

func (s *Server) createKey(c *call, req *protocol.KeyRequest) (protocol.IssuedKey, error) {
	c.w.Header().Set("Cache-Control", "no-store")
	return s.cfg.Keys.Issue(c.r.Context(), c.principal, *req)
}

func (s *Server) listKeys(c *call) ([]protocol.Key, error) {
	return s.cfg.Keys.List(c.r.Context(), c.principal)
}

func (s *Server) deleteKey(c *call) error {
	return s.cfg.Keys.Delete(c.r.Context(), c.principal, c.path("id"))
}
