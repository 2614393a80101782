package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

func TestDeepLinkRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []protocol.DeepLink{
		{Kind: protocol.LinkOpen},
		{Kind: protocol.LinkPair, Coordinator: "https://everdict.example/eval", Account: protocol.Account{Subject: "ada@example.com", Workspace: "team blue"}, Code: protocol.NewCredential(protocol.PairCodePrefix)},
		{Kind: protocol.LinkPair, Coordinator: "http://[::1]:8787", Account: protocol.Account{Subject: "dev", Workspace: "default"}, Code: protocol.NewCredential(protocol.PairCodePrefix)},
		{Kind: protocol.LinkGranted, Pairing: protocol.NewID(protocol.PairingPrefix), Code: protocol.NewCredential(protocol.PairGrantPrefix), State: protocol.NewVerifier()},
	} {
		got, err := protocol.ParseDeepLink(want.String())
		if err != nil {
			t.Fatalf("ParseDeepLink(%s): %v", want, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseDeepLink(%s): -want +got\n%s", want, diff)
		}
	}
}

// TestF38_HostileLinks has what a page, a mail or another program could hand over.
func TestF38_HostileLinks(t *testing.T) {
	t.Parallel()
	code := "prc_" + strings.Repeat("a", 32)
	pair := "everdict://pair?c=https%3A%2F%2Feverdict.example&as=ada&ws=blue&code=" + code
	if _, err := protocol.ParseDeepLink(pair); err != nil {
		t.Fatalf("the link that the others are made from: %v", err)
	}
	for name, link := range map[string]string{
		"empty":                    "",
		"another scheme":           strings.Replace(pair, "everdict:", "https:", 1),
		"scheme in capitals":       strings.Replace(pair, "everdict:", "EVERDICT:", 1),
		"no slashes":               strings.Replace(pair, "//", "", 1),
		"unknown kind":             strings.Replace(pair, "pair?", "run?", 1),
		"a path":                   strings.Replace(pair, "pair?", "pair/../open?", 1),
		"user information":         strings.Replace(pair, "//pair", "//a@pair", 1),
		"a port":                   strings.Replace(pair, "pair?", "pair:80?", 1),
		"unknown key":              pair + "&token=x",
		"a key twice":              pair + "&code=" + code,
		"a key missing":            strings.Replace(pair, "&as=ada", "", 1),
		"a key empty":              strings.Replace(pair, "as=ada", "as=", 1),
		"an empty pair":            pair + "&",
		"a fragment":               pair + "#x",
		"a space":                  pair + " --flag",
		"a line break":             pair + "\n",
		"a line break, escaped":    strings.Replace(pair, "as=ada", "as=ada%0A", 1),
		"a NUL, escaped":           strings.Replace(pair, "as=ada", "as=ada%00", 1),
		"bytes that are no UTF-8":  strings.Replace(pair, "as=ada", "as=%ff%fe", 1),
		"right to left":            strings.Replace(pair, "as=ada", "as=ada%E2%80%AEmoc", 1),
		"half an escape":           strings.Replace(pair, "as=ada", "as=%4", 1),
		"http":                     strings.Replace(pair, "https%3A", "http%3A", 1),
		"http that looks local":    strings.Replace(pair, "https%3A%2F%2Feverdict.example", "http%3A%2F%2Flocalhost.evil.example", 1),
		"http with local user":     strings.Replace(pair, "https%3A%2F%2Feverdict.example", "http%3A%2F%2F127.0.0.1%40evil.example", 1),
		"a file":                   strings.Replace(pair, "https%3A%2F%2Feverdict.example", "file%3A%2F%2F%2Fetc%2Fpasswd", 1),
		"javascript":               strings.Replace(pair, "https%3A%2F%2Feverdict.example", "javascript%3Aalert(1)", 1),
		"coordinator with a query": strings.Replace(pair, "everdict.example", "everdict.example%3Fx%3D1", 1),
		"coordinator, look-alike":  strings.Replace(pair, "everdict.example", "%D0%B5verdict.example", 1),
		"an option as coordinator": strings.Replace(pair, "https%3A%2F%2Feverdict.example", "--help", 1),
		"no host, but a port":      strings.Replace(pair, "everdict.example", "%3A443", 1),
		"a port without a number":  strings.Replace(pair, "everdict.example", "everdict.example%3A", 1),
		"a port that is too large": strings.Replace(pair, "everdict.example", "everdict.example%3A99999", 1),
		"port 0":                   strings.Replace(pair, "everdict.example", "everdict.example%3A0", 1),
		"a port with a zero ahead": strings.Replace(pair, "everdict.example", "everdict.example%3A0443", 1),
		"a path that climbs":       strings.Replace(pair, "everdict.example", "everdict.example%2F..%2Fx", 1),
		"the same, escaped twice":  strings.Replace(pair, "everdict.example", "everdict.example%2F%252e%252e%2Fx", 1),
		"a path to itself":         strings.Replace(pair, "everdict.example", "everdict.example%2F.%2Fx", 1),
		"a slash, escaped twice":   strings.Replace(pair, "everdict.example", "everdict.example%2Fa%252Fb", 1),
		"values without escapes":   strings.Replace(pair, "https%3A%2F%2F", "https://", 1),
		"escapes without need":     strings.Replace(pair, "as=ada", "as=%61da", 1),
		"escapes in small letters": strings.Replace(pair, "https%3A", "https%3a", 1),
		"a space as %20":           strings.Replace(pair, "ws=blue", "ws=team%20blue", 1),
		"another order":            strings.Replace(pair, "as=ada&ws=blue", "ws=blue&as=ada", 1),
		"two slashes":              strings.Replace(pair, "pair?", "pair//?", 1),
		"a runner token":           strings.Replace(pair, code, "rnr_"+strings.Repeat("a", 32), 1),
		"a code too long":          pair + "a",
		"a code with a quote":      strings.Replace(pair, code, code[:35]+"%22", 1),
		"too long":                 strings.Replace(pair, "as=ada", "as="+strings.Repeat("a", protocol.MaxDeepLink), 1),
		"open with a parameter":    "everdict://open?x=1",
		"open with a question":     "everdict://open?",
		"granted with a pair code": "everdict://granted?p=prq_0&code=" + code + "&state=abc",
		"granted, path as pairing": "everdict://granted?p=prq_..%2F..%2Fme&code=pgc_" + strings.Repeat("a", 32) + "&state=abc",
	} {
		got, err := protocol.ParseDeepLink(link)
		if !errors.Is(err, protocol.ErrDeepLink) {
			t.Errorf("%s: ParseDeepLink(%q) = %+v, %v; want a refusal", name, link, got, err)
		}
		if got != (protocol.DeepLink{}) {
			t.Errorf("%s: ParseDeepLink(%q) refuses, and returns %+v", name, link, got)
		}
	}
	// Browsers make everdict://pair an address with a path.
	if _, err := protocol.ParseDeepLink(strings.Replace(pair, "pair?", "pair/?", 1)); err != nil {
		t.Errorf("with the slash that a browser adds: %v", err)
	}
}

func FuzzParseDeepLink(f *testing.F) {
	f.Add("everdict://open")
	f.Add("everdict://pair?c=https%3A%2F%2Feverdict.example&as=ada&ws=blue&code=prc_" + strings.Repeat("a", 32))
	f.Add("everdict://pair/?c=https://h:99999/%2e%2e/x&ws=blue&as=ada&code=prc_" + strings.Repeat("a", 32))
	f.Add("everdict://granted?p=prq_0&code=pgc_" + strings.Repeat("a", 32) + "&state=abcdefghijklmnop")
	f.Fuzz(func(t *testing.T, s string) {
		link, err := protocol.ParseDeepLink(s)
		if err != nil {
			return
		}
		// What is taken means one thing only, and is written in one way, but for the slash that browsers add.
		if w := link.String(); s != w && strings.Replace(s, "/?", "?", 1) != w && s != w+"/" {
			t.Errorf("ParseDeepLink(%q) took what is written %q", s, w)
		}
		again, err := protocol.ParseDeepLink(link.String())
		if err != nil || again != link {
			t.Errorf("ParseDeepLink(%q) = %+v, which is written %q and read as %+v, %v", s, link, link, again, err)
		}
		if link.Kind == protocol.LinkPair && protocol.CheckCoordinator(link.Coordinator) != nil {
			t.Errorf("ParseDeepLink(%q) took the coordinator %q", s, link.Coordinator)
		}
	})
}

func TestDeviceSession(t *testing.T) {
	t.Parallel()
	key, other := protocol.NewDeviceKey(), protocol.NewDeviceKey()
	credential := protocol.SignSession(key, "rnr_1", "nonce")
	d, err := protocol.ParseDeviceSession(credential)
	if err != nil || d.Runner != "rnr_1" || d.Nonce != "nonce" {
		t.Fatalf("ParseDeviceSession(%s) = %+v, %v", credential, d, err)
	}
	public := func(s string) []byte {
		k, err := protocol.ParsePublicKey(s)
		if err != nil {
			t.Fatalf("ParsePublicKey(%s): %v", s, err)
		}
		return k
	}
	if !d.Signed(public(protocol.PublicKey(key))) {
		t.Error("the key that signed a session does not verify it")
	}
	if d.Signed(public(protocol.PublicKey(other))) {
		t.Error("another key verifies a session")
	}
	moved := d
	moved.Runner = "rnr_2"
	if moved.Signed(public(protocol.PublicKey(key))) {
		t.Error("a signature of one runner's session is good for another's")
	}
	if proof := protocol.SignPairing(key, "rnr_1", "nonce"); strings.HasSuffix(credential, "."+proof) {
		t.Error("the proof of a pairing is the signature of a session")
	}
}

func FuzzParseDeviceSession(f *testing.F) {
	f.Add(protocol.SignSession(protocol.NewDeviceKey(), "rnr_1", "nonce"))
	f.Add("drs_rnr_..")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := protocol.ParseDeviceSession(s)
		if err == nil && (d.Runner == "" || d.Nonce == "" || len(d.Nonce) > protocol.MaxNonce) {
			t.Errorf("ParseDeviceSession(%q) = %+v", s, d)
		}
	})
}

func TestVerifier(t *testing.T) {
	t.Parallel()
	// The example of RFC 7636, appendix B.
	if got, want := protocol.PairingChallenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"; got != want {
		t.Errorf("PairingChallenge = %s, want %s", got, want)
	}
	v := protocol.NewVerifier()
	if !protocol.VerifierMeets(v, protocol.PairingChallenge(v)) || protocol.VerifierMeets(v, protocol.PairingChallenge(protocol.NewVerifier())) {
		t.Error("a verifier meets its own challenge and no other")
	}
}

// Each fault of a machine's request is named by its field.
func TestPairingRequestFaults(t *testing.T) {
	t.Parallel()
	good := func() *protocol.PairingRequest {
		return &protocol.PairingRequest{Label: "mac", OS: "darwin", Hostname: "mac.local", Capabilities: []string{protocol.CapGit},
			PublicKey: protocol.PublicKey(protocol.NewDeviceKey()), Challenge: protocol.PairingChallenge("v")}
	}
	code := protocol.NewCredential(protocol.PairCodePrefix)
	for name, row := range map[string]struct {
		change func(*protocol.PairingRequest)
		fault  string // empty: there is none
	}{
		"as it is": {func(*protocol.PairingRequest) {}, ""},
		"a callback": {func(r *protocol.PairingRequest) {
			r.Callback = &protocol.PairingCallback{Port: 1, State: strings.Repeat("a", 16)}
		}, ""},
		"a code":                {func(r *protocol.PairingRequest) { r.Code, r.Number = code, "07" }, ""},
		"no label":              {func(r *protocol.PairingRequest) { r.Label = "" }, "label"},
		"a label right to left": {func(r *protocol.PairingRequest) { r.Label = "mac\u202efdp" }, "label"},
		"an invisible host":     {func(r *protocol.PairingRequest) { r.Hostname = "a\u200bb" }, "hostname"},
		"a long host":           {func(r *protocol.PairingRequest) { r.Hostname = strings.Repeat("a", 254) }, "hostname"},
		"a system with a line":  {func(r *protocol.PairingRequest) { r.OS = "linux\n" }, "os"},
		"an unknown capability": {func(r *protocol.PairingRequest) { r.Capabilities = []string{"flight"} }, "capabilities[0]"},
		"too many capabilities": {func(r *protocol.PairingRequest) { r.Capabilities = make([]string, 100) }, "capabilities"},
		"half a key":            {func(r *protocol.PairingRequest) { r.PublicKey = r.PublicKey[:20] }, "publicKey"},
		"a key with padding":    {func(r *protocol.PairingRequest) { r.PublicKey += "=" }, "publicKey"},
		"the verifier itself":   {func(r *protocol.PairingRequest) { r.Challenge = "v" }, "challenge"},
		"port 0": {func(r *protocol.PairingRequest) {
			r.Callback = &protocol.PairingCallback{State: strings.Repeat("a", 16)}
		}, "callback.port"},
		"a short state": {func(r *protocol.PairingRequest) { r.Callback = &protocol.PairingCallback{Port: 1, State: "a"} }, "callback.state"},
		"a state with a query": {func(r *protocol.PairingRequest) {
			r.Callback = &protocol.PairingCallback{Port: 1, State: strings.Repeat("a", 16) + "&b=c"}
		}, "callback.state"},
		"a number and no code":  {func(r *protocol.PairingRequest) { r.Number = "07" }, "number"},
		"a code and no number":  {func(r *protocol.PairingRequest) { r.Code = code }, "number"},
		"a number of one digit": {func(r *protocol.PairingRequest) { r.Code, r.Number = code, "7" }, "number"},
		"a grant as the code":   {func(r *protocol.PairingRequest) { r.Code, r.Number = "pgc_"+code[4:], "07" }, "code"},
		"a code and a callback": {func(r *protocol.PairingRequest) {
			r.Code, r.Number, r.Callback = code, "07", &protocol.PairingCallback{Port: 1, State: strings.Repeat("a", 16)}
		}, "callback"},
	} {
		r := good()
		row.change(r)
		err := r.Validate()
		if row.fault == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), row.fault+":") {
			t.Errorf("%s: %v, want a fault of %s", name, err, row.fault)
		}
	}
}
