package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) poolRoutes() []route {
	return []route{
		get("/pools", "listPools", "List the pools of runtimes: limits, what runs, what waits, who is there", (*Server).listPools).action(auth.RuntimesRead),
		// Whoever has such a token gets the workspace's runs, as a paired machine of
		// the workspace does.
		create("/pools/tokens", "createPoolToken", "Make a token with which machines join the pool of a runtime; it is shown this once", (*Server).createPoolToken).action(auth.SettingsWrite),
		get("/pools/tokens", "listPoolTokens", "List the pool tokens that are not revoked, newest first", (*Server).listPoolTokens).action(auth.SettingsWrite),
		remove("/pools/tokens/{id}", "revokePoolToken", "Revoke a pool token and every runner that joined with it", (*Server).revokePoolToken).action(auth.SettingsWrite).with(nameID{}),
		// The credential is the pool token itself, which permits nothing else.
		create("/agent/join", "joinPool", "With a pool token: get an identity of one's own in its pool, shown this once", (*Server).join),
	}
}

func (s *Server) listPools(c *call) ([]protocol.Pool, error) {
	return s.cfg.Runs.Pools(c.r.Context(), c.principal)
}

func (s *Server) createPoolToken(c *call, req *protocol.PoolTokenRequest) (protocol.IssuedPoolToken, error) {
	if err := req.Validate(); err != nil {
		return protocol.IssuedPoolToken{}, err
	}
	if _, err := s.cfg.Runtimes.Latest(c.r.Context(), c.principal.Workspace, req.Runtime); err != nil {
		return protocol.IssuedPoolToken{}, err
	}
	issued, err := s.cfg.Runners.CreatePoolToken(c.r.Context(), c.principal.Workspace, c.principal.Subject, *req)
	if err != nil {
		return protocol.IssuedPoolToken{}, err
	}
	issued.JoinCommand = "everdict runner --pool-token - --api-url " + shellWord(c.baseURL())
	c.w.Header().Set("Cache-Control", "no-store")
	return issued, nil
}

func (s *Server) listPoolTokens(c *call) ([]protocol.PoolToken, error) {
	return s.cfg.Runners.PoolTokens(c.r.Context(), c.principal.Workspace)
}

func (s *Server) revokePoolToken(c *call) error {
	_, err := s.cfg.Runners.RevokePoolToken(c.r.Context(), c.principal.Workspace, c.path("id"))
	return err
}

func (s *Server) join(c *call, req *protocol.JoinRequest) (protocol.Joined, error) {
	if c.principal.Join != nil {
		c.w.Header().Set("Cache-Control", "no-store")
		return s.cfg.Runners.JoinOnce(c.r.Context(), c.principal.Join, *req)
	}
	if c.principal.Pool == nil {
		return protocol.Joined{}, protocol.Forbidden("this takes a pool token as its credential").
			WithHint("make one: everdict pools token create --runtime ID")
	}
	joined, err := s.cfg.Runners.Join(c.r.Context(), c.principal.Pool, *req)
	if err == nil {
		c.w.Header().Set("Cache-Control", "no-store")
	}
	return joined, err
}
