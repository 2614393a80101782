package protocol

// SessionRequest is the body of POST /session.
type SessionRequest struct {
	APIKey string `json:"apiKey"`
}

// Session is the answer of GET and POST /session: what a page must know before
// anything else.
type Session struct {
	// AuthRequired says that requests need a credential.
	AuthRequired bool `json:"authRequired"`
	// SignedIn says that they have one, or need none.
	SignedIn bool `json:"signedIn"`
	// Reason is why a session that was there is over: SessionExpired or SessionRevoked.
	Reason    string `json:"reason,omitempty"`
	Principal *Me    `json:"principal,omitempty"`
	// Workspaces are those that the principal may see.
	Workspaces []Membership `json:"workspaces"`
	// Version of the coordinator.
	Version string `json:"version"`
	// ExpiresAt is when the session ends in any case, IdleExpiresAt when it does unless
	// it is used before. Absent: there is no session.
	ExpiresAt     *Time `json:"expiresAt,omitempty"`
	IdleExpiresAt *Time `json:"idleExpiresAt,omitempty"`
}

// Membership is a workspace and a principal's role in it.
type Membership struct {
	ID   string `json:"id"`
	Role string `json:"role"`
}

// Why a session is over.
const (
	SessionExpired = "expired"
	SessionRevoked = "revoked"
)
