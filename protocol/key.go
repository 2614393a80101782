package protocol

import "strings"

// Roles and API key scopes, each containing the one before.
const (
	RoleViewer = "viewer"
	RoleMember = "member"
	RoleAdmin  = "admin"

	ScopeRead  = "read"
	ScopeWrite = "write"
	ScopeAdmin = "admin"
)

// KeyRequest is the body of POST /keys.
type KeyRequest struct {
	Label string `json:"label,omitempty"`
	// Subject is who the key acts as; empty: whoever asks. Another's needs an admin.
	Subject string `json:"subject,omitempty"`
	// Role is at most that of the key that asks; empty: the same for oneself, member for
	// another.
	Role   string   `json:"role,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
}

// Validate fills the default scope and reports everything that is wrong.
func (r *KeyRequest) Validate() error {
	var k checker
	switch {
	case r.Subject == "":
	case strings.Contains(r.Subject, ":"):
		k.add("subject", "has a colon: such names are the coordinator's own")
	case !ValidName(r.Subject, MaxNameBytes):
		k.add("subject", "want at most %d printable characters without / or \\", MaxNameBytes)
	}
	if r.Role != "" {
		k.oneOf("role", r.Role, RoleViewer, RoleMember, RoleAdmin)
	}
	if r.Label != "" && !ValidName(r.Label, 80) {
		k.add("label", "want at most 80 printable characters")
	}
	if r.Scopes == nil {
		r.Scopes = []string{ScopeAdmin}
	}
	if len(r.Scopes) == 0 {
		k.add("scopes", "is empty: leave it out for %q", ScopeAdmin)
	}
	for i, s := range r.Scopes {
		k.oneOf(indexed("scopes", i), s, ScopeRead, ScopeWrite, ScopeAdmin)
	}
	return k.err()
}

// IssuedKey is the answer of POST /keys. The key is shown this once.
type IssuedKey struct {
	ID     string `json:"id"`
	APIKey string `json:"apiKey"`
}

// Key is an API key as it is listed: its prefix, never its value.
type Key struct {
	ID    string `json:"id"`
	Label string `json:"label,omitempty"`
	// Subject is who the key acts as, with Role.
	Subject string   `json:"subject"`
	Role    string   `json:"role"`
	Prefix  string   `json:"prefix"`
	Scopes  []string `json:"scopes,omitempty"`
	// CreatedBy is who made it, where that is somebody else than Subject.
	CreatedBy string `json:"createdBy,omitempty"`
	CreatedAt Time   `json:"createdAt"`
}

// InternalTokenHeader has the token of whoever operates the coordinator.
const InternalTokenHeader = "X-Internal-Token"

// TenantKeyRequest is the body of POST /internal/tenant-keys.
type TenantKeyRequest struct {
	Workspace string `json:"workspace"`
}

// Validate reports everything that is wrong.
func (r *TenantKeyRequest) Validate() error {
	var k checker
	if !ValidName(r.Workspace, MaxNameBytes) {
		k.add("workspace", "want 1 to %d printable characters without / or \\", MaxNameBytes)
	}
	return k.err()
}

// TenantKey is the answer of POST /internal/tenant-keys: an admin's key of the
// workspace, shown this once.
type TenantKey struct {
	Workspace string `json:"workspace"`
	ID        string `json:"id"`
	APIKey    string `json:"apiKey"`
}

// Me is the answer of GET /me.
type Me struct {
	Subject   string   `json:"subject"`
	Workspace string   `json:"workspace"`
	Roles     []string `json:"roles"`
	Via       string   `json:"via"`
	Scopes    []string `json:"scopes,omitempty"`
	RunnerID  string   `json:"runnerId,omitempty"`
}
