//go:build unix && !linux

package process

// Elsewhere a thread has no priority that its children inherit.
func standBack() {}

func standBackAs(int) {}

func goFirst(int) {}

func onMainThread() bool { return false }
