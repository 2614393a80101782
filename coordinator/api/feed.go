package api

import (
	"context"
	"encoding/json"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) feedRoutes() []route {
	return []route{
		stream("/events", "streamEvents", "What changes in the workspace: runs, runners, pools", mediaEvents, (*Server).streamEvents).
			action(auth.RunsRead).with(resume{}),
	}
}

func (s *Server) streamEvents(c *call) error {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel() // ends what feeds changes
	changes, err := s.cfg.Runs.Follow(ctx, c.principal, c.r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	goodbye, err := json.Marshal(protocol.FeedEvent{Kind: protocol.FeedEnd, Reason: protocol.EndSession})
	if err != nil {
		return err
	}
	return sendEvents(s, c, ctx, changes, event{name: protocol.FeedEnd, data: goodbye}, func(e protocol.FeedEvent) (event, bool, error) {
		e.Version = s.cfg.Version
		data, err := json.Marshal(e)
		return event{id: e.ID, name: e.Kind, data: data}, false, err
	})
}
