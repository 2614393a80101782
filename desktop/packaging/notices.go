package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// notices are the licences of the modules that are linked into the packages pkgs for a
// target: those ask to go along with the program.
func (r release) notices(ctx context.Context, t target, cgo string, pkgs ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Module,Standard"}, pkgs...)...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS="+t.OS, "GOARCH="+t.Arch)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what is linked: %w", err)
	}
	type module struct {
		Path, Version, Dir string
		Main               bool
	}
	modules := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Module   *module
			Standard bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what is linked: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = *p.Module
		}
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	modules["Go"] = module{Path: "Go's standard library", Dir: strings.TrimSpace(string(goroot))}

	var b bytes.Buffer
	b.WriteString("Everdict is linked with the following, each under the licence that follows its name.\n")
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		texts, err := licences(m.Dir)
		if err != nil {
			return nil, fmt.Errorf("licence of %s: %w", m.Path, err)
		}
		fmt.Fprintf(&b, "\n%s\n%s %s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, bytes.Join(texts, []byte("\n")))
	}
	return b.Bytes(), nil
}

// licences are the texts in the top directory of a module.
func licences(dir string) ([][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts [][]byte
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		// A Go distribution of a system can have its licence elsewhere.
		if _, err := os.Stat(filepath.Join(dir, "VERSION")); err == nil {
			return [][]byte{[]byte("BSD-3-Clause, https://go.dev/LICENSE\n")}, nil
		}
		return nil, errors.New("there is none in " + dir)
	}
	return texts, nil
}
