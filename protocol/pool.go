package protocol

import "time"

// Prefixes of the credentials with which machines join pools, and of their ids.
const (
	PoolTokenPrefix   = "plt_"
	PoolTokenIDPrefix = "ptk_"
	// JoinTokenPrefix begins the token of one launched unit: it is good once, for the
	// unit's runner.
	JoinTokenPrefix   = "jnt_"
	JoinTokenIDPrefix = "jtk_"
)

// Bounds of a pool token's life.
const (
	DefaultPoolTokenLife = 30 * 24 * time.Hour
	MaxPoolTokenLife     = 366 * 24 * time.Hour
)

// PoolTokenRequest is the body of POST /pools/tokens.
type PoolTokenRequest struct {
	// Runtime is the registered runtime whose pool the token lets machines join.
	Runtime string `json:"runtime"`
	Label   string `json:"label,omitempty"`
	// ExpiresInSec is the token's life; absent: DefaultPoolTokenLife.
	ExpiresInSec *int64 `json:"expiresInSec,omitempty"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (r *PoolTokenRequest) Validate() error {
	var k checker
	k.name("runtime", r.Runtime)
	if r.Label != "" && !ValidName(r.Label, 80) {
		k.add("label", "want at most 80 printable characters")
	}
	if s := r.ExpiresInSec; s != nil && (*s < 1 || *s > int64(MaxPoolTokenLife/time.Second)) {
		k.add("expiresInSec", "want 1 to %d (366 days), got %d", int64(MaxPoolTokenLife/time.Second), *s)
	}
	return k.err()
}

// Life is how long the token is good.
func (r *PoolTokenRequest) Life() time.Duration {
	if r.ExpiresInSec == nil {
		return DefaultPoolTokenLife
	}
	return time.Duration(*r.ExpiresInSec) * time.Second
}

// PoolToken is a token with which machines join a pool, as it is listed: its
// prefix, never its value.
type PoolToken struct {
	ID        string `json:"id"`
	Runtime   string `json:"runtime"`
	Label     string `json:"label,omitempty"`
	Prefix    string `json:"prefix"`
	CreatedBy string `json:"createdBy,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	ExpiresAt Time   `json:"expiresAt"`
}

// IssuedPoolToken is the answer of POST /pools/tokens. The token is shown this
// once.
type IssuedPoolToken struct {
	PoolToken PoolToken `json:"poolToken"`
	Token     string    `json:"token"`
	// JoinCommand starts a runner that joins; the token goes in on standard input.
	JoinCommand string `json:"joinCommand,omitempty"`
}

// JoinRequest is the body of POST /agent/join, which takes a pool token as its
// credential.
type JoinRequest struct {
	// Label is a name to show for the machine; empty: its host name is not known.
	Label string `json:"label,omitempty"`
	OS    string `json:"os,omitempty"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (r *JoinRequest) Validate() error {
	var k checker
	if r.Label != "" && !ValidName(r.Label, 80) {
		k.add("label", "want at most 80 printable characters, got %q", Clip(r.Label, 40))
	}
	if r.OS != "" && !ValidName(r.OS, 40) {
		k.add("os", "want at most 40 printable characters")
	}
	return k.err()
}

// Joined is the answer of POST /agent/join: the identity that the machine got, and
// the token that it connects with. It is good as long as the pool token is not
// revoked and the machine does not stay away.
type Joined struct {
	Runner Runner `json:"runner"`
	Token  string `json:"token"`
}

// Pool is what runs for a registered runtime, and what waits, with its runners.
type Pool struct {
	PoolUse
	// Runners of the pool that are shown: online, or gone since a short while.
	Runners []Runner `json:"runners"`
}

// PoolLimits are what a pool takes at a time: runs, MiB of declared memory, and
// thousandths of a core of declared CPU; a budget of 0 is none.
type PoolLimits struct {
	MaxConcurrent  int `json:"maxConcurrent"`
	MemoryBudgetMB int `json:"memoryBudgetMb,omitempty"`
	CPUBudget      int `json:"cpuBudget,omitempty"`
}

// PoolUse is what runs for a registered runtime, and what waits.
type PoolUse struct {
	Runtime string `json:"runtime"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Launched says that this coordinator launches runners for it.
	Launched bool `json:"launched,omitempty"`
	PoolLimits
	// Running, MemoryMB and CPU, in thousandths of a core, are what counts against them.
	Running  int   `json:"running"`
	MemoryMB int64 `json:"memoryMb,omitempty"`
	CPU      int64 `json:"cpu,omitempty"`
	// Queued are the runs that name this runtime and wait.
	Queued int `json:"queued"`
	// Online runners and their Slots.
	Online int `json:"online"`
	Slots  int `json:"slots"`
}
