// Package auth says who makes a request and what they may do: API keys, runner
// tokens and the development mode, roles and scopes. It compares credentials by
// their hashes and keeps none.
package auth

import (
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// RoleRunner is the role of a runner's token, which may connect and take work, and
// of a pool token, which may join; they have nothing that a role permits.
const RoleRunner = "runner"

// Ways in which a principal was recognised.
const (
	ViaAPIKey   = "api-key"
	ViaSession  = "session"
	ViaRunner   = "runner"
	ViaPool     = "pool-token"
	ViaOperator = "internal-token"
)

// Principal is who makes a request.
type Principal struct {
	// Subject is the person or machine that acts; what is created is theirs.
	Subject   string
	Workspace string
	Roles     []string
	Via       string
	// Scopes narrow what the roles permit; nil does not.
	Scopes []string
	// RunnerID is set for a runner's credential, Pool for a pool token.
	RunnerID string
	Pool     *store.PoolTokenRecord
	// Join is set for the token of one launched unit.
	Join *store.JoinTokenRecord
}

// Action is something that a role and a scope permit.
type Action string

// The actions.
const (
	RunsRead          Action = "runs:read"
	RunsSubmit        Action = "runs:submit"
	HarnessesRead     Action = "harnesses:read"
	HarnessesRegister Action = "harnesses:register"
	HarnessesDelete   Action = "harnesses:delete"
	TemplatesWrite    Action = "templates:write"
	MembersRead       Action = "members:read"
	SettingsWrite     Action = "settings:write"
	RuntimesRead      Action = "runtimes:read"
	RuntimesWrite     Action = "runtimes:write"
	// SecretsRead and SecretsWrite are about the workspace's secrets.
	SecretsRead  Action = "secrets:read"
	SecretsWrite Action = "secrets:write"
	// RunnersRead and RunnersWrite are about one's own runners, KeysRead and
	// KeysWrite about one's own keys, OwnSecretsRead and OwnSecretsWrite about one's
	// own secrets: every person's, but no runner's.
	RunnersRead  Action = "runners:read"
	RunnersWrite Action = "runners:write"
	KeysRead     Action = "keys:read"
	KeysWrite    Action = "keys:write"
	// KeysManage is about the keys of everybody in the workspace.
	KeysManage      Action = "keys:manage"
	OwnSecretsRead  Action = "own-secrets:read"
	OwnSecretsWrite Action = "own-secrets:write"
)

// permission is the lowest role and the scope that permit an action.
type permission struct{ role, scope string }

var permissions = map[Action]permission{
	RunsRead:          {protocol.RoleViewer, protocol.ScopeRead},
	RunsSubmit:        {protocol.RoleMember, protocol.ScopeWrite},
	HarnessesRead:     {protocol.RoleViewer, protocol.ScopeRead},
	HarnessesRegister: {protocol.RoleViewer, protocol.ScopeWrite},
	HarnessesDelete:   {protocol.RoleAdmin, protocol.ScopeAdmin},
	TemplatesWrite:    {protocol.RoleViewer, protocol.ScopeWrite},
	MembersRead:       {protocol.RoleViewer, protocol.ScopeRead},
	SettingsWrite:     {protocol.RoleAdmin, protocol.ScopeAdmin},
	RuntimesRead:      {protocol.RoleViewer, protocol.ScopeRead},
	RuntimesWrite:     {protocol.RoleViewer, protocol.ScopeWrite},
	SecretsRead:       {protocol.RoleAdmin, protocol.ScopeAdmin},
	SecretsWrite:      {protocol.RoleAdmin, protocol.ScopeAdmin},
	RunnersRead:       {protocol.RoleViewer, protocol.ScopeRead},
	RunnersWrite:      {protocol.RoleViewer, protocol.ScopeWrite},
	KeysRead:          {protocol.RoleViewer, protocol.ScopeRead},
	KeysWrite:         {protocol.RoleViewer, protocol.ScopeWrite},
	KeysManage:        {protocol.RoleAdmin, protocol.ScopeAdmin},
	OwnSecretsRead:    {protocol.RoleViewer, protocol.ScopeRead},
	OwnSecretsWrite:   {protocol.RoleViewer, protocol.ScopeWrite},
}

var (
	roleOrder  = []string{protocol.RoleViewer, protocol.RoleMember, protocol.RoleAdmin}
	scopeOrder = []string{protocol.ScopeRead, protocol.ScopeWrite, protocol.ScopeAdmin}
)

// Permits is nil if p may do what action says, else a 403 that names the
// workspace, the roles and the action.
func (p Principal) Permits(action Action) error {
	need, known := permissions[action]
	if known && reaches(roleOrder, p.Roles, need.role) && (p.Scopes == nil || reaches(scopeOrder, p.Scopes, need.scope)) {
		return nil
	}
	return p.forbidden(action)
}

// PermitsOwn is Permits, except that who created the thing needs no role for it,
// only the scope.
func (p Principal) PermitsOwn(action Action, createdBy string) error {
	need, known := permissions[action]
	if known && createdBy != "" && createdBy == p.Subject && p.RunnerID == "" && p.Pool == nil && p.Join == nil && (p.Scopes == nil || reaches(scopeOrder, p.Scopes, need.scope)) {
		return nil
	}
	return p.Permits(action)
}

// Admin reports whether p has the admin role, whatever its scopes.
func (p Principal) Admin() bool { return slices.Contains(p.Roles, protocol.RoleAdmin) }

// Role is the highest role of p, empty for a runner.
func (p Principal) Role() string {
	for _, role := range slices.Backward(roleOrder) {
		if slices.Contains(p.Roles, role) {
			return role
		}
	}
	return ""
}

// Me is p as GET /me shows it.
func (p Principal) Me() protocol.Me {
	return protocol.Me{Subject: p.Subject, Workspace: p.Workspace, Roles: p.Roles, Via: p.Via, Scopes: p.Scopes, RunnerID: p.RunnerID}
}

// forbidden says what p lacks: the scope of its key, where the role would do, else
// the role.
func (p Principal) forbidden(action Action) error {
	need, known := permissions[action]
	if known && reaches(roleOrder, p.Roles, need.role) {
		problem := protocol.Forbidden("this API key has the scope %s, and %s needs %s", strings.Join(p.Scopes, ", "), action, need.scope)
		if len(p.Scopes) == 0 {
			problem = protocol.Forbidden("this API key has no scope, and %s needs %s", action, need.scope)
		}
		return p.facts(problem, action).WithData("scopes", p.Scopes).
			WithHint("use a key with the scope %s; one that has it makes more: POST /keys", need.scope)
	}
	problem := p.facts(protocol.Forbidden("%s may not do %s in workspace %s", p.Subject, action, p.Workspace), action)
	switch {
	case p.Pool != nil:
		return problem.WithHint("this is a pool token, with which machines join runtime %s: use an API key", p.Pool.Runtime)
	case p.Join != nil:
		return problem.WithHint("this is the token of one launched unit, which joins runtime %s: use an API key", p.Join.Runtime)
	case p.RunnerID != "":
		problem.Message = "this is the token of a runner, which only connects"
		return problem.WithHint("use an API key")
	case known:
		return problem.WithHint("it needs the role %s or higher", need.role)
	}
	return problem
}

func (p Principal) facts(problem *protocol.Problem, action Action) *protocol.Problem {
	return problem.WithData("workspace", p.Workspace).WithData("roles", p.Roles).WithData("action", action)
}

// reaches reports whether one of have is want or above it in order.
func reaches(order, have []string, want string) bool {
	least := slices.Index(order, want)
	for _, h := range have {
		if slices.Index(order, h) >= least {
			return true
		}
	}
	return false
}
