package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// query reads the parameters of a request and collects what is wrong with them.
type query struct {
	values map[string][]string
	faults []string
}

func (c *call) query() *query {
	if c.r.URL.RawQuery == "" {
		return &query{}
	}
	return &query{values: c.r.URL.Query()}
}

func (q *query) get(name string) string {
	if v := q.values[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (q *query) fault(name, want string) {
	q.faults = append(q.faults, name+": want "+want+", got "+strconv.Quote(protocol.Clip(q.get(name), 40)))
}

func (q *query) name(name string) string {
	v := q.get(name)
	if v != "" && !protocol.ValidName(v, 2*protocol.MaxNameBytes) {
		q.fault(name, "printable characters")
	}
	return v
}

func (q *query) oneOf(name string, allowed ...string) string {
	v := q.get(name)
	if v == "" {
		return ""
	}
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	q.fault(name, "one of "+strings.Join(allowed, ", "))
	return ""
}

func (q *query) bool(name string) *bool {
	v := q.get(name)
	if v == "" {
		return nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		q.fault(name, "true or false")
		return nil
	}
	return &b
}

func (q *query) number(name string, low, high int64) int64 {
	v := q.get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		q.fault(name, "a number from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10))
		return 0
	}
	return n
}

func (q *query) instant(name string, now time.Time) time.Time {
	v := q.get(name)
	if v == "" {
		return time.Time{}
	}
	if ago, err := time.ParseDuration(v); err == nil && ago >= 0 {
		return now.Add(-ago)
	}
	// A + that was not escaped arrives as a space.
	t, err := time.Parse(time.RFC3339Nano, strings.Replace(v, " ", "+", 1))
	if err != nil {
		q.fault(name, "an instant such as 2006-01-02T15:04:05Z or a duration before now such as 24h")
	}
	return t
}

func (q *query) err() error {
	if len(q.faults) == 0 {
		return nil
	}
	return protocol.BadRequest("%s", strings.Join(q.faults, "; ")).WithData("faults", q.faults)
}

// totalHeader says how many rows there are beside those of a page.
const totalHeader = "X-Everdict-Total"

// next announces the page that follows, with the same query and another cursor.
func (c *call) next(cursor string) {
	if cursor == "" {
		return
	}
	values := c.r.URL.Query()
	values.Set("cursor", cursor)
	// Relative, so that it is right behind every proxy.
	c.w.Header().Set("Link", "<"+c.r.URL.EscapedPath()+"?"+values.Encode()+`>; rel="next"`)
}

// wants reports whether the client asks for a media type by name.
func wants(r *http.Request, mediaType string) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), mediaType) {
				return true
			}
		}
	}
	return false
}
