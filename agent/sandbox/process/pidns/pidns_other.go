//go:build !linux || !cgo

package pidns

// Init is number 1 of a PID namespace; here there is none.
type Init struct{}

// Start returns errors.ErrUnsupported.
func Start(string, string) (*Init, error) { return nil, errUnsupported }

// Pid is 0 here.
func (*Init) Pid() int { return 0 }

// Kill returns errors.ErrUnsupported.
func (*Init) Kill() error { return errUnsupported }

// Join returns errors.ErrUnsupported.
func (*Init) Join() error { return errUnsupported }

// Collect does nothing here.
func (*Init) Collect() {}

// Ended is true here.
func (*Init) Ended() bool { return true }

// End does nothing here.
func (*Init) End() {}
