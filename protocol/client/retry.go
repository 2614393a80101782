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

// retryable reports whether the same request may be sent again after err.
func retryable(method string, err error) bool {
	if refused(err) {
		return true
	}
	safe := method == http.MethodGet || method == http.MethodDelete || method == http.MethodPut
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		return safe
	}
	switch StatusOf(err) {
	case http.StatusServiceUnavailable:
		return true
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return safe
	}
	return false
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
