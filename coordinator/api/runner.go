package api

import (
	"strings"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

func (s *Server) runnerRoutes() []route {
	return []route{
		post("/runners", "pairRunner", "Pair a machine of your own; the token is shown this once", (*Server).pairRunner).action(auth.RunnersWrite),
		get("/runners", "listRunners", "List your own runners, newest first", (*Server).listRunners).action(auth.RunnersRead),
		remove("/runners/self", "unpairRunner", "End the pairing of the machine whose credential this is", (*Server).unpairRunner),
		remove("/runners/{id}", "revokeRunner", "Revoke one of your own runners", (*Server).revokeRunner).action(auth.RunnersWrite).with(nameID{}),
		post("/workspace/runners", "pairWorkspaceRunner", "Pair a machine that belongs to the workspace", (*Server).pairWorkspaceRunner).action(auth.SettingsWrite),
		get("/workspace/runners", "listWorkspaceRunners", "List every runner in the workspace", (*Server).listWorkspaceRunners).action(auth.MembersRead),
		get("/workspace/runners/owned", "listOwnedRunners", "List the runners that belong to the workspace", (*Server).listOwnedRunners).action(auth.SettingsWrite),
		remove("/workspace/runners/{id}", "revokeWorkspaceRunner", "Revoke any runner of the workspace", (*Server).revokeWorkspaceRunner).action(auth.SettingsWrite).with(nameID{}),
	}
}

func (s *Server) pairRunner(c *call, req *protocol.PairRequest) (protocol.Paired, error) {
	return s.pair(c, c.principal.Subject, req)
}

func (s *Server) pairWorkspaceRunner(c *call, req *protocol.PairRequest) (protocol.Paired, error) {
	return s.pair(c, pairing.WorkspaceOwner(c.principal.Workspace), req)
}

func (s *Server) pair(c *call, owner string, req *protocol.PairRequest) (protocol.Paired, error) {
	paired, err := s.cfg.Runners.Pair(c.r.Context(), c.principal.Workspace, owner, *req)
	if err != nil {
		return protocol.Paired{}, err
	}
	// The token goes in on standard input: arguments are everybody's to read.
	paired.AttachCommand = "everdict runner --pair - --api-url " + shellWord(c.baseURL())
	c.w.Header().Set("Cache-Control", "no-store")
	return paired, nil
}

func (s *Server) listRunners(c *call) (protocol.Runners, error) {
	runners, err := s.cfg.Runners.List(c.r.Context(), c.principal.Workspace, c.principal.Subject)
	return protocol.Runners{Runners: runners}, err
}

func (s *Server) listWorkspaceRunners(c *call) (protocol.Runners, error) {
	runners, err := s.cfg.Runners.List(c.r.Context(), c.principal.Workspace, "")
	return protocol.Runners{Runners: runners}, err
}

func (s *Server) listOwnedRunners(c *call) (protocol.Runners, error) {
	runners, err := s.cfg.Runners.List(c.r.Context(), c.principal.Workspace, pairing.WorkspaceOwner(c.principal.Workspace))
	return protocol.Runners{Runners: runners}, err
}

func (s *Server) revokeRunner(c *call) error {
	_, err := s.cfg.Runners.Revoke(c.r.Context(), c.principal.Workspace, c.principal.Subject, c.path("id"))
	return err
}

// unpairRunner is for a paired machine itself, with its own credential.
func (s *Server) unpairRunner(c *call) error {
	if c.principal.RunnerID == "" {
		return protocol.Forbidden("this is for the credential of a paired machine").WithHint("DELETE /runners/{id} revokes a runner of yours")
	}
	_, err := s.cfg.Runners.Revoke(c.r.Context(), c.principal.Workspace, "", c.principal.RunnerID)
	return err
}

func (s *Server) revokeWorkspaceRunner(c *call) error {
	_, err := s.cfg.Runners.Revoke(c.r.Context(), c.principal.Workspace, "", c.path("id"))
	return err
}

// baseURL is where this client reaches the server.
func (c *call) baseURL() string {
	scheme := "http"
	if c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	return scheme + "://" + c.r.Host
}

// shellWord quotes s for a shell if it has to be: a Host header is the client's
// to choose, and the command is made to be pasted.
func shellWord(s string) string {
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-[]%", r) {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}
