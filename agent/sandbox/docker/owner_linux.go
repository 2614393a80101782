package docker

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// bootID changes with every start of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// startTime is when a process started, in ticks since the boot: with it a number that was given again is found out.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The program's name may hold anything; 20 fields behind its closing bracket comes the time.
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(f) < 20 {
		return ""
	}
	return f[19]
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
