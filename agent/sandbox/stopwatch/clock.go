package stopwatch

import "time"

// epoch anchors the monotonic clock.
var epoch = time.Now()

// goClocks is the portable pair: Go's monotonic clock and the wall clock.
func goClocks() Reading {
	now := time.Now()
	return Reading{Mono: now.Sub(epoch), Wall: now.Round(0).Sub(epoch.Round(0))}
}
