package protocol

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DeepLinkScheme is the scheme of the links that open the desktop app.
const DeepLinkScheme = "everdict"

// MaxDeepLink bounds a link, in bytes. A real one has about 200.
const MaxDeepLink = 1024

// A DeepLink opens the desktop app. Any web page can make one, so that it says what
// somebody wants and grants nothing. There are three:
//
//	everdict://pair?c=ORIGIN&as=SUBJECT&ws=WORKSPACE&code=prc_...   connect this computer
//	everdict://granted?p=prq_...&code=pgc_...&state=...             an approval, back from the browser
//	everdict://open                                                 show the window
type DeepLink struct {
	// Kind is one of the LinkKinds.
	Kind LinkKind
	// Coordinator is the address to connect to, https, or http on this machine alone.
	Coordinator string
	// Account is who the coordinator says it is for.
	Account Account
	// Code is a pair code or a grant.
	Code string
	// Pairing and State are those of the request that was approved.
	Pairing, State string
}

// LinkKind is what a deep link wants.
type LinkKind string

const (
	LinkPair    LinkKind = "pair"
	LinkGranted LinkKind = "granted"
	LinkOpen    LinkKind = "open"
)

// linkKeys are the keys of each kind, in their order. A link has all of them, and no other.
var linkKeys = map[LinkKind][]string{
	LinkPair:    {"c", "as", "ws", "code"},
	LinkGranted: {"p", "code", "state"},
	LinkOpen:    {},
}

func (d *DeepLink) field(key string) *string {
	switch key {
	case "c":
		return &d.Coordinator
	case "as":
		return &d.Account.Subject
	case "ws":
		return &d.Account.Workspace
	case "p":
		return &d.Pairing
	case "state":
		return &d.State
	}
	return &d.Code
}

// String is the link.
func (d DeepLink) String() string {
	s := DeepLinkScheme + "://" + string(d.Kind)
	for i, key := range linkKeys[d.Kind] {
		s += string("?&"[min(i, 1)]) + key + "=" + url.QueryEscape(*d.field(key))
	}
	return s
}

// ErrDeepLink is in every error of ParseDeepLink.
var ErrDeepLink = errors.New("this is no link for Everdict")

// ParseDeepLink reads a link. Everything that String would not have written is refused:
// unknown kinds and keys, keys that are missing, there twice or in another order, a value
// that is escaped in another way, a path other than the slash that browsers add, a
// fragment, a coordinator that CheckCoordinator refuses.
func ParseDeepLink(s string) (DeepLink, error) {
	bad := func(format string, args ...any) (DeepLink, error) {
		return DeepLink{}, fmt.Errorf("%w: "+format, append([]any{ErrDeepLink}, args...)...)
	}
	if len(s) > MaxDeepLink {
		return bad("it is longer than %d bytes", MaxDeepLink)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return bad("it has a character that no link has")
		}
	}
	rest, ok := strings.CutPrefix(s, DeepLinkScheme+"://")
	if !ok {
		return bad("it does not begin with %s://", DeepLinkScheme)
	}
	kind, query, hasQuery := strings.Cut(rest, "?")
	// Browsers make everdict://open an address with a path.
	d := DeepLink{Kind: LinkKind(strings.TrimSuffix(kind, "/"))}
	keys, ok := linkKeys[d.Kind]
	if !ok {
		return bad("%q is nothing that it could want", Clip(string(d.Kind), 20))
	}
	if hasQuery != (len(keys) > 0) {
		return bad("a link of kind %s has %d parameters", d.Kind, len(keys))
	}
	seen := map[string]bool{}
	if hasQuery {
		for pair := range strings.SplitSeq(query, "&") {
			key, value, _ := strings.Cut(pair, "=")
			if !slices.Contains(keys, key) {
				return bad("there is no parameter %q", Clip(key, 20))
			}
			if seen[key] {
				return bad("parameter %s is there twice", key)
			}
			seen[key] = true
			plain, err := url.QueryUnescape(value)
			if err != nil || strings.ContainsFunc(plain, unprintable) {
				return bad("parameter %s cannot be read", key)
			}
			*d.field(key) = plain
		}
	}
	for _, key := range keys {
		if *d.field(key) == "" {
			return bad("parameter %s is missing", key)
		}
	}
	written := DeepLinkScheme + "://" + string(d.Kind)
	if hasQuery {
		written += "?" + query
	}
	if d.String() != written {
		return bad("it is written in another way than Everdict writes links")
	}
	if err := d.check(); err != nil {
		return DeepLink{}, err
	}
	return d, nil
}

func (d *DeepLink) check() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrDeepLink}, args...)...)
	}
	switch d.Kind {
	case LinkPair:
		if err := CheckCoordinator(d.Coordinator); err != nil {
			return refuse("%w", err)
		}
		if !ValidName(d.Account.Subject, MaxNameBytes) || !ValidName(d.Account.Workspace, MaxNameBytes) {
			return refuse("its account cannot be one")
		}
		if !validCredential(d.Code, PairCodePrefix) {
			return refuse("its code cannot be one")
		}
	case LinkGranted:
		if !validCredential(d.Code, PairGrantPrefix) || !strings.HasPrefix(d.Pairing, PairingPrefix) || len(d.Pairing) > 64 || !base64URL(d.Pairing) {
			return refuse("its code cannot be one")
		}
		if len(d.State) > MaxPairingState || !base64URL(d.State) {
			return refuse("its state cannot be one")
		}
	}
	return nil
}

// CheckCoordinator says what is wrong with the address of a coordinator that somebody
// typed in or clicked on: it is https://HOST[:PORT][/PATH] without anything else, or http
// where the host is this machine (localhost or a loopback address). The path has no escapes
// and no dot segments: two programs could take those for different places.
func CheckCoordinator(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("the coordinator's address is no URL such as https://everdict.example")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#"):
		return errors.New("the coordinator's address has more than host, port and path")
	case u.Scheme == "https":
	case u.Scheme == "http" && LoopbackHost(u.Hostname()):
	default:
		return fmt.Errorf("the coordinator %s is not reached by https", Clip(u.Host, 80))
	}
	if !validPort(u) {
		return fmt.Errorf("the coordinator's address %s has no port of 1 to 65535", Clip(u.Host, 80))
	}
	if strings.ContainsFunc(u.Host, func(r rune) bool { return r >= 0x7f }) || strings.ContainsAny(u.EscapedPath(), "\\%;") {
		return errors.New("the coordinator's address has characters that no address has")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return errors.New("the coordinator's address has a path with dots that lead elsewhere")
		}
	}
	return nil
}

// validPort says whether the port of an address, if it has one, is a number as it is usually
// written.
func validPort(u *url.URL) bool {
	port := u.Port()
	if port == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// LoopbackHost says whether a host name or address, without a port, is this machine's own.
func LoopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// unprintable is what could make a name look like another one, direction marks included.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
