package window

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

func ways(Options) []way {
	edge := way{App, "Edge in app mode", func(context.Context, *session) error {
		return errors.New("Microsoft Edge was not found")
	}}
	if path, ok := msedge(); ok {
		edge.show = app(path)
	}
	return []way{edge, {Browser, "default browser", tab}}
}

// msedge is where Edge is installed, which is not on PATH.
func msedge() (string, bool) {
	const appPaths = `SOFTWARE\Microsoft\Windows\CurrentVersion\App Paths\msedge.exe`
	for _, root := range []registry.Key{registry.CURRENT_USER, registry.LOCAL_MACHINE} {
		if path, ok := defaultValue(root, appPaths); ok {
			return path, true
		}
	}
	for _, dir := range []string{os.Getenv("ProgramFiles(x86)"), os.Getenv("ProgramFiles")} {
		path := filepath.Join(dir, "Microsoft", "Edge", "Application", "msedge.exe")
		if _, err := os.Stat(path); dir != "" && err == nil {
			return path, true
		}
	}
	return "", false
}

func defaultValue(root registry.Key, path string) (string, bool) {
	key, err := registry.OpenKey(root, path, registry.QUERY_VALUE)
	if err != nil {
		return "", false
	}
	defer key.Close()
	value, _, err := key.GetStringValue("")
	if err != nil {
		return "", false
	}
	_, err = os.Stat(value)
	return value, err == nil
}

func endWithUs(*exec.Cmd) {}

// politely: there is no signal that asks a program for its end.
func politely(p *os.Process) error { return p.Kill() }

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}

// openURL asks the shell of the desktop, which is no command line.
func openURL(address string) error {
	verb, err := windows.UTF16PtrFromString("open")
	if err != nil {
		return err
	}
	file, err := windows.UTF16PtrFromString(address)
	if err != nil {
		return err
	}
	return windows.ShellExecute(0, verb, file, nil, nil, windows.SW_SHOWNORMAL)
}
