//go:build !linux

package stopwatch

// Now reads Go's monotonic clock and the wall clock.
func Now() Reading { return goClocks() }
