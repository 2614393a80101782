package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/everdict/everdict/protocol"
)

// DetectCapabilities looks at what this machine can do. Only cheap facts count:
// a program on PATH, a file, a device.
func DetectCapabilities() []string {
	var found []string
	add := func(name string, ok bool) {
		if ok {
			found = append(found, name)
		}
	}
	home, _ := os.UserHomeDir()
	add(protocol.CapGit, onPath("git"))
	add(protocol.CapCodexLogin, exists(filepath.Join(home, ".codex", "auth.json")))
	add(protocol.CapClaudeLogin, exists(filepath.Join(home, ".claude.json")))
	add(protocol.CapGPU, exists("/dev/nvidia0"))
	add(protocol.CapOSMacOS, runtime.GOOS == "darwin")
	add(protocol.CapOSWindows, runtime.GOOS == "windows")
	return found
}

func onPath(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
