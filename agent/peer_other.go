//go:build !linux

package agent

import (
	"context"
	"net"
)

// peer does not know who has made a connection.
func peer(net.Conn) (pid int, ok bool) { return 0, false }

// awaitClose returns when ctx ends: whether the other end is closed shows when the answer is written.
func awaitClose(ctx context.Context, _ net.Conn) { <-ctx.Done() }
