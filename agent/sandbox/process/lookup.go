//go:build unix

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/everdict/everdict/agent/sandbox"
)

// environment merges lists of NAME=VALUE, the last value of a name counting, in order of first appearance.
func environment(lists ...[]string) []string {
	size := 0
	for _, l := range lists {
		size += len(l)
	}
	env, at := make([]string, 0, size), make(map[string]int, size)
	for _, l := range lists {
		for _, kv := range l {
			name, _, _ := strings.Cut(kv, "=")
			if i, ok := at[name]; ok {
				env[i] = kv
				continue
			}
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

func valueOf(env []string, name string) string {
	for _, kv := range env {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v
		}
	}
	return ""
}

// lookup finds the file of a command as execvp would in the command's own environment and directory. The runner's
// PATH plays no part.
func lookup(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, name)
		}
		if err := executable(path); err != nil {
			return "", notFound(name, err)
		}
		return path, nil
	}
	var denied error
	for _, entry := range filepath.SplitList(valueOf(env, "PATH")) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(dir, entry) // an empty entry means the working directory, as in execvp
		}
		path := filepath.Join(entry, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", notFound(name, denied)
	}
	return "", fmt.Errorf("process: command %q: not in the PATH of its environment: %w", name, sandbox.ErrNotFound)
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return syscall.EISDIR
	}
	if st.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

func notFound(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("process: command %q: %w", name, sandbox.ErrNotFound)
	}
	return fmt.Errorf("process: command %q: %w", name, err)
}

// workdir resolves a command's directory.
func workdir(root, dir string) (string, error) {
	switch {
	case dir == "":
		dir = root
	case !filepath.IsAbs(dir):
		dir = filepath.Join(root, dir)
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("process: working directory %q: %w", dir, sandbox.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("process: working directory: %w", err)
	case !st.IsDir():
		return "", fmt.Errorf("process: working directory %q: %w", dir, syscall.ENOTDIR)
	}
	return dir, nil
}
