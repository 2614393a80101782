//go:build !linux

package docker

import "os"

// Other systems do not say in one place when they were started; a process's number must do.

func bootID() string { return "" }

func startTime(int) string { return "" }

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return stillThere(p)
}
