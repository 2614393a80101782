package config

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzFile: a file of settings is taken or refused with a place; it never ends the program.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"api-url: http://127.0.0.1:1\n", "log:\n  level: debug\n", "a: &a [*a]\n", "- x\n", "listen: [1, 2]\n", "\t", "a: !!binary x\n", "{", "api-url: {x: 1}\n"} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		none := func(string) string { return "" }
		file := filepath.Join(dir, "everdict.yaml")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{Schema: Schema(dir, none), File: file, Getenv: none, Home: dir, Dir: dir})
		if err == nil && c == nil {
			t.Error("no settings and no error")
		}
	})
}
