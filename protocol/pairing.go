package protocol

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
)

// How a machine becomes a runner without anybody copying a token:
//
//  1. The machine makes a device key and a verifier, and asks: POST /pairings. What it
//     gets names its request (prq_) and is worth nothing by itself. A number of two digits
//     is shown by the machine and, in 2, by the page.
//  2. Somebody who is signed in looks at the request on a page of the coordinator and
//     approves it. With a callback, the approval sends the browser back to the machine with
//     a grant (pgc_), by way of its loopback address or of a deep link.
//  3. The machine redeems: POST /pairings/{id}/redeem with the verifier, a proof that it has
//     the device key, and the grant, if its request has a callback. A machine without one
//     asks again and again, and gets a 202 until it is approved.
//
// The other way round, a click in the dashboard makes a pair code (prc_), which is good
// once and for minutes, and a deep link with it. The machine asks the person at it, who
// reads the number off the dashboard, and sends both with its request, which is approved
// with that: the link alone, read by somebody else, is not enough.
//
// From then on the machine proves with each connection that it has the key, by signing a
// nonce of the coordinator's (DeviceSession). The key never leaves the machine.

// Prefixes of what takes part in a pairing.
const (
	// PairingPrefix begins the id of a machine's request.
	PairingPrefix = "prq_"
	// PairCodePrefix begins what a deep link of the dashboard carries.
	PairCodePrefix = "prc_"
	// PairCodeIDPrefix begins the id by which the dashboard asks what became of it.
	PairCodeIDPrefix = "pci_"
	// PairGrantPrefix begins the one-use code of an approval.
	PairGrantPrefix = "pgc_"
)

// PairingLifeSec is how long a machine's request, a pair code and a grant are good, in
// seconds: the five minutes that RFC 8628 has in its example.
const PairingLifeSec = 5 * 60

// MaxPairingState bounds PairingCallback.State, in bytes.
const MaxPairingState = 128

// PairingRequest is the body of POST /pairings. It needs no credential.
type PairingRequest struct {
	// Label is the name that the runner will have.
	Label        string   `json:"label"`
	OS           string   `json:"os,omitempty"`
	Arch         string   `json:"arch,omitempty"`
	Hostname     string   `json:"hostname,omitempty"`
	Version      string   `json:"version,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// PublicKey is the device key's public half: 32 bytes of Ed25519 in base64url.
	PublicKey string `json:"publicKey"`
	// Challenge is PairingChallenge of the verifier (PKCE's S256, RFC 7636).
	Challenge string `json:"challenge"`
	// Callback is where the browser brings the grant; nil: the machine has none, and asks
	// until it is approved (RFC 8628).
	Callback *PairingCallback `json:"callback,omitempty"`
	// Code and Number are those of a deep link and of the dashboard that made it. A wrong
	// number spoils the code.
	Code   string `json:"code,omitempty"`
	Number string `json:"number,omitempty"`
}

// PairingCallback is http://127.0.0.1:PORT/callback on the machine that asks (RFC 8252).
type PairingCallback struct {
	Port int `json:"port"`
	// State comes back with the grant, so that the machine knows its own: 16 to
	// MaxPairingState characters of base64url.
	State string `json:"state"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (p *PairingRequest) Validate() error {
	var k checker
	if !ValidName(p.Label, 80) {
		k.add("label", "want 1 to 80 printable characters, got %q", Clip(p.Label, 40))
	}
	for path, s := range map[string]string{"os": p.OS, "arch": p.Arch, "version": p.Version} {
		if s != "" && !ValidName(s, 40) {
			k.add(path, "want at most 40 printable characters")
		}
	}
	// What is shown to whoever approves must not be able to look like something else.
	for path, s := range map[string]string{"label": p.Label, "hostname": p.Hostname, "os": p.OS, "arch": p.Arch, "version": p.Version} {
		if strings.ContainsFunc(s, unprintable) {
			k.add(path, "has a character that cannot be seen")
		}
	}
	if p.Hostname != "" && !ValidName(p.Hostname, 253) {
		k.add("hostname", "want at most 253 printable characters")
	}
	if len(p.Capabilities) > len(capabilities) {
		k.add("capabilities", "want at most %d, got %d", len(capabilities), len(p.Capabilities))
	} else {
		for i, c := range p.Capabilities {
			if !KnownCapability(c) {
				k.add(indexed("capabilities", i), "unknown capability %q", Clip(c, 40))
			}
		}
	}
	if _, err := ParsePublicKey(p.PublicKey); err != nil {
		k.add("publicKey", "want the 32 bytes of an Ed25519 key in base64url without padding")
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(p.Challenge); err != nil || len(b) != sha256.Size {
		k.add("challenge", "want the SHA-256 of the verifier in base64url without padding")
	}
	if c := p.Callback; c != nil {
		if c.Port < 1 || c.Port > 65535 {
			k.add("callback.port", "want 1 to 65535, got %d", c.Port)
		}
		if len(c.State) < 16 || len(c.State) > MaxPairingState || !base64URL(c.State) {
			k.add("callback.state", "want 16 to %d characters of base64url", MaxPairingState)
		}
	}
	switch {
	case p.Code == "" && p.Number != "":
		k.add("number", "goes with a code")
	case p.Code != "" && p.Callback != nil:
		k.add("callback", "a request with a code is approved already and needs none")
	case p.Code != "" && !validCredential(p.Code, PairCodePrefix):
		k.add("code", "want one that begins with %s", PairCodePrefix)
	case p.Code != "" && !validNumber(p.Number):
		k.add("number", "want the two digits that the dashboard shows")
	}
	return k.err()
}

// PairingStarted is the answer of POST /pairings.
type PairingStarted struct {
	ID string `json:"id"`
	// Number is two digits, which machine and page both show.
	Number string `json:"number"`
	// URL is the page on which the request is approved; empty for one that is approved.
	URL string `json:"url,omitempty"`
	// UserCode and EnterURL are for a machine without a browser: the page on which the
	// code is typed in. Empty for a request with a callback or a code.
	UserCode string `json:"userCode,omitempty"`
	EnterURL string `json:"enterUrl,omitempty"`
	// ExpiresInSec is how long the request is good.
	ExpiresInSec int `json:"expiresInSec"`
	// IntervalSec is how long to wait between two tries to redeem, at the least.
	IntervalSec int `json:"intervalSec,omitempty"`
	// Account is who approved it with a code.
	Account *Account `json:"account,omitempty"`
}

// Account is who a runner works for.
type Account struct {
	Subject   string `json:"subject"`
	Workspace string `json:"workspace"`
}

// PairingStatus is where a request is.
type PairingStatus string

const (
	// PairingPending: nobody has decided.
	PairingPending PairingStatus = "pending"
	// PairingApproved: the machine has not redeemed it yet.
	PairingApproved PairingStatus = "approved"
	// PairingDenied: somebody said no.
	PairingDenied PairingStatus = "denied"
	// PairingDone: the machine is a runner.
	PairingDone PairingStatus = "done"
	// PairingExpired: it took too long.
	PairingExpired PairingStatus = "expired"
)

// Pairing is a machine's request as the page shows it to somebody who is signed in.
type Pairing struct {
	ID           string        `json:"id"`
	Status       PairingStatus `json:"status"`
	Label        string        `json:"label"`
	OS           string        `json:"os,omitempty"`
	Arch         string        `json:"arch,omitempty"`
	Hostname     string        `json:"hostname,omitempty"`
	Version      string        `json:"version,omitempty"`
	Capabilities []string      `json:"capabilities"`
	// From is the address that the request came from.
	From   string `json:"from"`
	Number string `json:"number"`
	// Headless says that the machine has no browser, and that the person may be far from it.
	Headless     bool `json:"headless,omitempty"`
	RequestedAt  Time `json:"requestedAt"`
	ExpiresInSec int  `json:"expiresInSec"`
	// Runner is its id once there is one.
	Runner string `json:"runner,omitempty"`
}

// PairingLookup is the body of POST /pairings/lookup: the code that somebody typed in.
// Case, spaces and hyphens do not matter.
type PairingLookup struct {
	UserCode string `json:"userCode"`
}

// PairingApproval is the answer of POST /pairings/{id}/approve. For a request with a
// callback it says where the browser brings the grant.
type PairingApproval struct {
	Pairing Pairing `json:"pairing"`
	// Callback is the loopback address with the grant in its query.
	Callback string `json:"callback,omitempty"`
	// Link is the deep link with the same, for a browser that cannot reach the callback.
	Link string `json:"link,omitempty"`
}

// PairingRedeem is the body of POST /pairings/{id}/redeem. It needs no credential.
type PairingRedeem struct {
	Verifier string `json:"verifier"`
	// Grant of an approval, if the request has a callback.
	Grant string `json:"grant,omitempty"`
	// Proof is SignPairing with the device key.
	Proof string `json:"proof"`
}

// PairedDevice is the answer of POST /pairings/{id}/redeem: 200 when the machine is a
// runner, 202 with PairingPending while nobody has decided.
type PairedDevice struct {
	Status  PairingStatus `json:"status"`
	Runner  *Runner       `json:"runner,omitempty"`
	Account *Account      `json:"account,omitempty"`
}

// Check says what is wrong with the answer of a coordinator that says whose runner this
// machine is: what is kept and shown of it is bounded, and can be read.
func (p *PairedDevice) Check() error {
	switch r, a := p.Runner, p.Account; {
	case p.Status != PairingDone || r == nil || a == nil:
		return errors.New("protocol: this is no paired device")
	case !strings.HasPrefix(r.ID, RunnerPrefix) || len(r.ID) > 64 || !base64URL(r.ID):
		return errors.New("protocol: the id of the runner cannot be one")
	case !readable(a.Subject, MaxNameBytes) || !readable(a.Workspace, MaxNameBytes):
		return errors.New("protocol: the account of the runner cannot be one")
	case r.Label != "" && !readable(r.Label, 80):
		return errors.New("protocol: the label of the runner cannot be one")
	}
	return nil
}

// readable says whether s can be kept and shown as the name of something.
func readable(s string, max int) bool {
	return s != "" && len(s) <= max && !strings.ContainsFunc(s, unprintable)
}

// UsedBefore is what this machine has become, by a problem with ReasonUsed: the answer that
// said so was lost. nil: the problem does not say.
func UsedBefore(p *Problem) *PairedDevice {
	runner, _ := p.Data["runner"].(string)
	account, _ := p.Data["account"].(map[string]any)
	subject, _ := account["subject"].(string)
	workspace, _ := account["workspace"].(string)
	d := &PairedDevice{Status: PairingDone, Runner: &Runner{ID: runner}, Account: &Account{Subject: subject, Workspace: workspace}}
	if p.Data["reason"] != ReasonUsed || d.Check() != nil {
		return nil
	}
	return d
}

// Check says what is wrong with the answer of a coordinator that took in a request.
func (s *PairingStarted) Check() error {
	switch {
	case !strings.HasPrefix(s.ID, PairingPrefix) || len(s.ID) > 64 || !base64URL(s.ID):
		return errors.New("protocol: the id of the request cannot be one")
	case !validNumber(s.Number):
		return errors.New("protocol: the number of the request is not two digits")
	case len(s.URL) > MaxDeepLink || len(s.EnterURL) > MaxDeepLink || len(s.UserCode) > 64:
		return errors.New("protocol: where the request is approved is too long")
	case s.ExpiresInSec < 1 || s.ExpiresInSec > 3600 || s.IntervalSec < 0 || s.IntervalSec > 60:
		return errors.New("protocol: the times of the request cannot be right")
	}
	return nil
}

// Reasons in the data of a problem that a pairing ends with. With ReasonUsed, the machine
// itself is also told "runner" and "account", in case the first answer was lost.
const (
	ReasonExpired  = "expired"  // 404: the request, code or grant is over
	ReasonDenied   = "denied"   // 403: somebody said no
	ReasonUsed     = "used"     // 409: it was redeemed, or the code was used
	ReasonVerifier = "verifier" // 403: not the machine that asked
	ReasonProof    = "proof"    // 403: not the device key of the machine that asked
	ReasonGrant    = "grant"    // 403: not the grant of the approval
	ReasonNumber   = "number"   // 403: not the number of the dashboard; the code is spoilt
	ReasonOff      = "off"      // 403: the operator has switched this way off
)

// PairCode is the answer of POST /pair-codes, and what GET /pair-codes/{id} says later,
// without the code and the link.
type PairCode struct {
	ID string `json:"id"`
	// Link opens the desktop app. It carries the code.
	Link string `json:"link,omitempty"`
	// Number is what the person types into the app.
	Number       string         `json:"number"`
	Status       PairCodeStatus `json:"status"`
	ExpiresInSec int            `json:"expiresInSec"`
	// Runner has come of it.
	Runner *Runner `json:"runner,omitempty"`
}

// PairCodeStatus is what has become of a pair code.
type PairCodeStatus string

const (
	// PairCodeWaiting: no machine has come with it.
	PairCodeWaiting PairCodeStatus = "waiting"
	// PairCodeUsed: a machine has; Runner is there when it has redeemed.
	PairCodeUsed PairCodeStatus = "used"
	// PairCodeSpoilt: a machine came with a wrong number.
	PairCodeSpoilt PairCodeStatus = "spoilt"
	// PairCodeExpired: none came in time.
	PairCodeExpired PairCodeStatus = "expired"
)

// NewVerifier makes a verifier: 256 random bits in base64url.
func NewVerifier() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// PairingChallenge is what a verifier is known by (S256 of RFC 7636).
func PairingChallenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// VerifierMeets says whether a verifier is the one of a challenge.
func VerifierMeets(verifier, challenge string) bool {
	return subtle.ConstantTimeCompare([]byte(PairingChallenge(verifier)), []byte(challenge)) == 1
}

// pairingContext keeps a signature for one purpose from being one for another.
const pairingContext = "everdict pairing v1\n"

// SignPairing proves, for one request and grant, that one has the device key.
func SignPairing(key ed25519.PrivateKey, pairing, grant string) string {
	return base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(pairingContext+pairing+"\n"+grant)))
}

// VerifyPairing checks what SignPairing made.
func VerifyPairing(key ed25519.PublicKey, pairing, grant, proof string) bool {
	sig, err := base64.RawURLEncoding.Strict().DecodeString(proof)
	return err == nil && ed25519.Verify(key, []byte(pairingContext+pairing+"\n"+grant), sig)
}

func validNumber(s string) bool {
	return len(s) == 2 && s[0] >= '0' && s[0] <= '9' && s[1] >= '0' && s[1] <= '9'
}

// validCredential says whether s could have come from NewCredential.
func validCredential(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && len(rest) == 32 && base64URL(rest)
}
