package api

import (
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/protocol"
)

type nameName struct {
	Name string `path:"name"`
}

type secretQuery struct {
	Scope string `query:"scope" description:"workspace (default), or user for one of your own" enum:"workspace,user"`
}

func (s *Server) secretRoutes() []route {
	return []route{
		get("/secrets", "listSecrets", "List your own secrets and, as an admin, the workspace's; never a value", (*Server).listSecrets).action(auth.OwnSecretsRead),
		get("/secrets/usage", "secretUsage", "List secrets with what refers to each", (*Server).secretUsage).action(auth.SecretsRead),
		// Whose secret it is decides what that takes: the actions for the workspace's
		// are checked by hand.
		replace("/secrets/{name}", "putSecret", "Set a secret of your own or, as an admin, of the workspace", (*Server).putSecret).action(auth.OwnSecretsWrite).with(nameName{}),
		remove("/secrets/{name}", "deleteSecret", "Delete a secret of your own or, as an admin, of the workspace", (*Server).deleteSecret).action(auth.OwnSecretsWrite).with(nameName{}, secretQuery{}),
	}
}

// secretOwner is whose secrets a request is about.
func (c *call) secretOwner() secret.Owner {
	return secret.Owner{Workspace: c.principal.Workspace, Subject: c.principal.Subject}
}

// mayWriteSecrets is nil if the principal may change secrets of a scope.
func (c *call) mayWriteSecrets(scope string) error {
	if scope == protocol.SecretUser {
		return nil // the route has asked
	}
	return c.principal.Permits(auth.SecretsWrite)
}

func (s *Server) listSecrets(c *call) ([]protocol.Secret, error) {
	scopes := []string{protocol.SecretUser}
	if c.principal.Permits(auth.SecretsRead) == nil {
		scopes = []string{protocol.SecretWorkspace, protocol.SecretUser}
	}
	return s.cfg.Secrets.List(c.r.Context(), c.secretOwner(), scopes...)
}

func (s *Server) secretUsage(c *call) ([]protocol.SecretUsage, error) {
	return s.cfg.Secrets.Usage(c.r.Context(), c.secretOwner(), protocol.SecretWorkspace, protocol.SecretUser)
}

func (s *Server) putSecret(c *call, req *protocol.SecretRequest) error {
	// First the form: without a scope that is known there is nobody to ask for.
	if err := req.Validate(); err != nil {
		return err
	}
	if err := c.mayWriteSecrets(req.Scope); err != nil {
		return err
	}
	return s.cfg.Secrets.Set(c.r.Context(), c.secretOwner(), c.path("name"), *req)
}

func (s *Server) deleteSecret(c *call) error {
	q := c.query()
	scope := q.oneOf("scope", protocol.SecretWorkspace, protocol.SecretUser)
	if err := q.err(); err != nil {
		return err
	}
	if scope == "" {
		scope = protocol.SecretWorkspace
	}
	if err := c.mayWriteSecrets(scope); err != nil {
		return err
	}
	return s.cfg.Secrets.Delete(c.r.Context(), c.secretOwner(), scope, c.path("name"))
}
