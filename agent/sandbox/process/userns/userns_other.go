//go:build !linux || !cgo

package userns

// Enter returns errors.ErrUnsupported.
func Enter() error { return errUnsupported }

// Inside is false here.
func Inside() bool { return false }

// Needed is false here: there is nothing that Enter could do.
func Needed() bool { return false }

// Shed does nothing here.
func Shed() error { return nil }

// Refused is nil here.
func Refused() error { return nil }
