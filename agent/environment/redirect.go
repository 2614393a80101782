package environment

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxRedirects is how often in a row a server may send git to another path. A
// renamed repository takes one, a missing ".git" another.
const maxRedirects = 5

// errRedirected is a server that sent git on, and was not followed.
var errRedirected = errors.New("redirected")

// answered3xx is git's message when it may not follow a redirection.
var answered3xx = regexp.MustCompile(`returned error: 30[12378]\b`)

// locationHeader is a redirection's target in what git writes to GIT_TRACE_CURL.
var locationHeader = regexp.MustCompile(`(?im)<= recv header: *location: *(\S+)`)

// commitOfServer is commit for a server that may send git on. Git would send the
// credential, which it takes for the first server's, along to any other. So with a
// credential it does not follow; what leads to another path of the same server is
// followed here.
func (g *fetcher) commitOfServer(ctx context.Context, ref string) (string, error) {
	for range maxRedirects {
		commit, err := g.commit(ctx, ref)
		if g.src.header == "" || err == nil || ctx.Err() != nil || !answered3xx.MatchString(stderrOf(err)) {
			return commit, err
		}
		if err := g.follow(ctx, err); err != nil {
			return "", err
		}
	}
	return "", &gitError{args: "fetch", stderr: fmt.Sprintf("the server sent git on more than %d times", maxRedirects), err: errRedirected}
}

func stderrOf(err error) string {
	if e := (*gitError)(nil); errors.As(err, &e) {
		return e.stderr
	}
	return ""
}

// follow finds out where the server sends git, by asking once more, and takes that
// for the source if it is the same server's.
func (g *fetcher) follow(ctx context.Context, cause error) error {
	trace := filepath.Join(g.store, "curl.trace")
	// Git leaves the credential out of it.
	_, err := g.runEnv(ctx, []string{"GIT_TRACE_CURL=" + trace, "GIT_TRACE_CURL_NO_DATA=1"}, "ls-remote", "--quiet", "--", g.src.clean, "HEAD")
	if err == nil {
		return nil // it sends nobody on any more
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		return cause
	}
	if err := os.Remove(trace); err != nil {
		return err
	}
	found := locationHeader.FindAllSubmatch(text, -1)
	asked, err := url.Parse(strings.TrimSuffix(g.src.clean, "/") + "/info/refs")
	if err != nil || len(found) == 0 {
		return cause
	}
	to, err := asked.Parse(string(found[len(found)-1][1]))
	if err != nil {
		return cause
	}
	to.User, to.RawQuery, to.Fragment = nil, "", ""
	path, ok := strings.CutSuffix(to.Path, "/info/refs")
	to.Path, to.RawPath = strings.TrimSuffix(path, "/git-upload-pack"), ""
	if !sameServer(asked, to) {
		return &gitError{args: "fetch", err: errRedirected, stderr: g.src.redact(fmt.Sprintf(
			"the server sends git on to %s, and the credential is not for that server: give that URL, if it is to have it", to))}
	}
	if !ok {
		return cause
	}
	g.src.clean = to.String()
	return nil
}

// sameServer reports whether two URLs have the same scheme, host and port.
func sameServer(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}
