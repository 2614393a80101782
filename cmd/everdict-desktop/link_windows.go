package main

// withoutArgument does nothing: this system cannot replace the image of a process. The arguments of a process can be read
// by programs of the same user alone.
func withoutArgument(string, string) error { return nil }
