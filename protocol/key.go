package protocol

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
	Label  string   `json:"label,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
}

// Validate fills the default scope and reports everything that is wrong.
func (r *KeyRequest) Validate() error {
	var k checker
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
	ID        string   `json:"id"`
	Label     string   `json:"label,omitempty"`
	Prefix    string   `json:"prefix"`
	Scopes    []string `json:"scopes,omitempty"`
	CreatedAt Time     `json:"createdAt"`
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
