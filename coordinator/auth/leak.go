package auth

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// credential matches what protocol.NewCredential makes, of every kind that
// exists or that existing clients know. A runner's id has the prefix of its
// token but is shorter; a device session begins with such an id.
var credential = regexp.MustCompile(`\b(?:(drs)_[A-Za-z0-9_.-]{32,}|(ak|rnr|plt|jnt|agt|inv|ses|prc|pgc)_[A-Za-z0-9_-]{32})`)

// Redact masks credentials in a text that is going to be logged.
func Redact(s string) string {
	if !strings.Contains(s, "_") {
		return s
	}
	return credential.ReplaceAllString(s, "${1}${2}_***")
}

// queryNames are parameters that carry a credential in APIs that allow it.
var queryNames = map[string]bool{
	"token": true, "access_token": true, "api_key": true, "apikey": true, "authorization": true, "bearer": true,
}

// RefuseQueryCredentials is a 400 if a URL carries a credential in its query:
// queries end up in the logs of every proxy on the way. The answer does not
// repeat it.
func RefuseQueryCredentials(u *url.URL) error {
	if u.RawQuery == "" {
		return nil
	}
	// A query that does not parse can still carry a credential: look at what is
	// there.
	values, _ := url.ParseQuery(u.RawQuery)
	for name, list := range values {
		if queryNames[strings.ToLower(name)] {
			return queryCredential()
		}
		for _, v := range list {
			if credential.MatchString(v) {
				return queryCredential()
			}
		}
	}
	if credential.MatchString(u.RawQuery) {
		return queryCredential()
	}
	return nil
}

func queryCredential() error {
	return protocol.BadRequest("the URL carries a credential in its query string, which proxies log").
		WithHint("send it as the header Authorization: Bearer ...; revoke this one, since it may be in a log already")
}
