package agent

import (
	"os"
	"strconv"
	"strings"
)

// machineMemoryMB is the machine's memory in MiB as Linux tells it, 0 where it is
// not known.
func machineMemoryMB() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kb >> 10
		}
	}
	return 0
}
