package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// pages yields the elements of a list, following the header Link rel="next". An
// empty page and one that names itself as the next end the list.
func pages[T any](ctx context.Context, c *Client, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			var page []T
			header, err := c.callHeader(ctx, r, &page)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			next := nextQuery(header)
			if next == nil || len(page) == 0 || next.Encode() == r.query.Encode() {
				return
			}
			r.query = next
		}
	}
}

// nextQuery is the query of the page that the header Link calls next, or nil.
// Only the query is taken: behind a proxy the server may not know under which
// address and path the client reaches it.
func nextQuery(h http.Header) url.Values {
	for _, line := range h.Values("Link") {
		for part := range strings.SplitSeq(line, ",") {
			target, params, ok := strings.Cut(part, ">")
			if !ok || !isNext(params) {
				continue
			}
			u, err := url.Parse(strings.TrimPrefix(strings.TrimSpace(target), "<"))
			if err != nil {
				continue
			}
			return u.Query()
		}
	}
	return nil
}

func isNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "rel") && strings.Trim(value, `"`) == "next" {
			return true
		}
	}
	return false
}
