package api

import (
	"context"
	"time"

	"github.com/everdict/everdict/protocol"
)

// health is the answer of /healthz and /readyz.
type health struct {
	OK bool `json:"ok"`
}

// readyWithin bounds how long /readyz waits for the database.
const readyWithin = 5 * time.Second

func (s *Server) healthRoutes() []route {
	return []route{
		get("/healthz", "healthz", "The process is alive", func(*Server, *call) (health, error) { return health{OK: true}, nil }).open(),
		get("/readyz", "readyz", "Work can be accepted: the database takes a write", (*Server).ready).open(),
		s.metricsRoute(),
	}
}

func (s *Server) ready(c *call) (health, error) {
	if s.cfg.Ready == nil {
		return health{OK: true}, nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), readyWithin)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		s.cfg.Log.WarnContext(ctx, "not ready", "error", err)
		return health{}, protocol.Unavailable("the coordinator cannot accept work now").
			WithHint("its log has the reason under the request id %s", c.requestID)
	}
	return health{OK: true}, nil
}
