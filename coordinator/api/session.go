package api

import (
	"errors"
	"net/http"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) sessionRoutes() []route {
	return []route{
		get("/session", "getSession", "Whether you are signed in, and as whom; never a 401", (*Server).getSession).open(),
		post("/session", "beginSession", "Exchange an API key for a session in an HttpOnly cookie", (*Server).beginSession).open(),
		remove("/session", "endSession", "Sign out", (*Server).endSession).open(),
	}
}

func (s *Server) getSession(c *call) (protocol.Session, error) {
	c.w.Header().Set("Cache-Control", "no-store")
	answer := s.session()
	session, err := s.cfg.Auth.Session(c.r)
	switch {
	case session != nil:
		return signedIn(answer, session), nil
	case errors.Is(err, auth.ErrSessionExpired):
		answer.Reason = protocol.SessionExpired
	case errors.Is(err, auth.ErrSessionRevoked):
		answer.Reason = protocol.SessionRevoked
	case err != nil:
		return protocol.Session{}, err
	}
	if answer.Reason != "" {
		http.SetCookie(&c.w, s.cfg.Auth.Cookie(c.r, "", s.cfg.Now()))
	}
	p, err := s.cfg.Auth.Authenticate(c.r)
	var problem *protocol.Problem
	if errors.As(err, &problem) && problem.Status == http.StatusUnauthorized {
		return answer, nil
	}
	if err != nil {
		return protocol.Session{}, err
	}
	return as(answer, p), nil
}

func (s *Server) session() protocol.Session {
	return protocol.Session{AuthRequired: s.cfg.Auth.Required(), Version: s.cfg.Version, Workspaces: []protocol.Membership{}}
}

func as(answer protocol.Session, p auth.Principal) protocol.Session {
	me := p.Me()
	answer.SignedIn, answer.Principal = true, &me
	answer.Workspaces = []protocol.Membership{{ID: p.Workspace, Role: p.Role()}}
	return answer
}

func signedIn(answer protocol.Session, session *auth.Session) protocol.Session {
	expires, idle := protocol.At(session.ExpiresAt), protocol.At(session.IdleExpiresAt)
	answer.ExpiresAt, answer.IdleExpiresAt = &expires, &idle
	return as(answer, session.Principal)
}

func (s *Server) beginSession(c *call, req *protocol.SessionRequest) (protocol.Session, error) {
	if s.cfg.Sessions == nil {
		return protocol.Session{}, protocol.NotFound("this coordinator has no sessions").WithHint("send an API key as the header Authorization: Bearer ak_...")
	}
	// So that no other site signs a browser in as somebody else.
	if err := s.cfg.Auth.CheckOrigin(c.r, false); err != nil {
		return protocol.Session{}, err
	}
	if req.APIKey == "" {
		return protocol.Session{}, protocol.BadRequest("apiKey: is required").WithHint("everdict coordinator shows the first one at its first start; POST /keys makes more")
	}
	from := auth.Network(s.cfg.Auth.Client(c.r))
	if err := s.throttle.Check(from); err != nil {
		return protocol.Session{}, err
	}
	value, session, err := s.cfg.Sessions.Begin(c.r.Context(), req.APIKey)
	if err != nil {
		var problem *protocol.Problem
		if errors.As(err, &problem) && problem.Status == http.StatusUnauthorized {
			s.throttle.Count(from)
		}
		return protocol.Session{}, err
	}
	// Another session of this browser is over: its cookie is about to be replaced.
	if old := s.cfg.Auth.SessionValue(c.r); old != "" {
		if err := s.cfg.Sessions.End(c.r.Context(), old); err != nil {
			return protocol.Session{}, err
		}
	}
	c.w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(&c.w, s.cfg.Auth.Cookie(c.r, value, session.ExpiresAt))
	return signedIn(s.session(), &session), nil
}

func (s *Server) endSession(c *call) error {
	value := s.cfg.Auth.SessionValue(c.r)
	if value == "" {
		return nil
	}
	if err := s.cfg.Auth.CheckOrigin(c.r, true); err != nil {
		return err
	}
	if s.cfg.Sessions != nil {
		if err := s.cfg.Sessions.End(c.r.Context(), value); err != nil {
			return err
		}
	}
	http.SetCookie(&c.w, s.cfg.Auth.Cookie(c.r, "", s.cfg.Now()))
	return nil
}
