//go:build !unix

package cli

// reexec does nothing where a program cannot replace itself: no other process
// reads this one's arguments through a file there.
func reexec(string, tokenSetting) error { return nil }
