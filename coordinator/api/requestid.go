package api

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/everdict/everdict/coordinator/auth"
)

// requestIDs names requests: a part that is random per process and a number.
type requestIDs struct {
	prefix string
	last   atomic.Uint64
}

func newRequestIDs() *requestIDs { return &requestIDs{prefix: rand.Text()[:8] + "-"} }

// of is the client's own id, so that it can follow a request through, if it is
// short, plain and not a credential; else a new one.
func (ids *requestIDs) of(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && plain(id) && auth.Redact(id) == id {
		return id
	}
	return ids.prefix + strconv.FormatUint(ids.last.Add(1), 10)
}

func plain(id string) bool {
	for _, r := range []byte(id) {
		alphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !alphanumeric && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return len(id) <= 64
}
