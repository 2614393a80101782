package private

// Check says nothing: the directory for temporary files is the user's own by its access list.
func Check(string) error { return nil }
