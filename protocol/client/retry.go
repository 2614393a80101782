package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Pauses between tries: a random part of base doubled per try, at most limit.
const (
	backoffBase  = 100 * time.Millisecond
	backoffLimit = 5 * time.Second
	// afterLimit bounds what a server's Retry-After can ask for.
	afterLimit = 30 * time.Second
)

// safe reports whether a request may be carried out twice.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodDelete || method == http.MethodPut
}

// retryable reports whether the same request may be sent again after err.
func retryable(method string, err error) bool {
	if refused(err) {
		return true
	}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		return safe(method)
	}
	switch StatusOf(err) {
	case http.StatusServiceUnavailable:
		return safe(method) || notAccepted(err)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return safe(method)
	}
	return false
}

// notAccepted reports whether err, a 503, is a coordinator's own: it says so before it accepts anything. A proxy may say it of
// a request that was carried out, and whose answer it has lost.
func notAccepted(err error) bool {
	var p *protocol.Problem
	var foreign *foreignError
	return errors.As(err, &p) && p.Code == protocol.CodeUpstreamError && !errors.As(err, &foreign)
}

// backoff is how long to pause before try+1: full jitter, and never less than
// the server asked for.
func backoff(try int, after time.Duration) time.Duration {
	window := backoffLimit
	if try < 10 {
		window = min(backoffBase<<try, backoffLimit)
	}
	return min(after, afterLimit) + rand.N(window)
}

func retryAfter(err error) time.Duration {
	var p *protocol.Problem
	if !errors.As(err, &p) {
		return 0
	}
	seconds, _ := p.Data[retryAfterKey].(float64)
	return time.Duration(seconds * float64(time.Second))
}

// parseRetryAfter reads the form in seconds. The form with a date is ignored: it
// would compare the clocks of two machines.
func parseRetryAfter(header string) time.Duration {
	n, err := strconv.Atoi(header)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 3600)) * time.Second
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
