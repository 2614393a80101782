// Command image writes an image archive of one layer, as docker save does, without any
// engine: image -o FILE -name NAME -entry PATH [-busybox PATH] [-env K=V] [-user NAME] SRC:DEST...
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
)

func main() {
	out := flag.String("o", "", "archive to write")
	name := flag.String("name", "", "name of the image")
	entry := flag.String("entry", "", "entry point; empty: none")
	busybox := flag.String("busybox", "", "static busybox, installed with all of its names")
	env := flag.String("env", "", "variable K=V of the image; empty: none")
	user := flag.String("user", "", "user of the image; empty: root")
	flag.Parse()
	if err := write(*out, *name, *entry, *env, *user, *busybox, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, name, entry, env, user, busybox string, files []string) error {
	layer, err := layer(busybox, files)
	if err != nil {
		return err
	}
	environ := []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	if env != "" {
		environ = append(environ, env)
	}
	config := map[string]any{"architecture": runtime.GOARCH, "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"config": map[string]any{"Env": environ, "User": user}}
	if entry != "" {
		config["config"].(map[string]any)["Entrypoint"] = []string{entry}
	}
	doc, err := json.Marshal(config)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": digest(doc) + ".json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{{digest(doc) + ".json", doc}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := add(w, &tar.Header{Name: f.name, Mode: 0o644}, f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}

func layer(busybox string, files []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"bin", "etc", "usr", "usr/bin", "usr/local", "usr/local/bin", "root", "tmp", "var", "var/run"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}); err != nil {
			return nil, err
		}
	}
	if err := add(w, &tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n")); err != nil {
		return nil, err
	}
	if busybox != "" {
		files = append(files, busybox+":/bin/busybox")
		names, err := exec.Command(busybox, "--list").Output()
		if err != nil {
			return nil, err
		}
		for n := range strings.FieldsSeq(string(names)) {
			if n == "busybox" {
				continue
			}
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + n, Linkname: "/bin/busybox", Mode: 0o777}); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range files {
		src, dest, ok := strings.Cut(f, ":")
		if !ok {
			return nil, fmt.Errorf("%q is not SRC:DEST", f)
		}
		data, err := os.ReadFile(src)
		if err != nil {
			return nil, err
		}
		if err := add(w, &tar.Header{Name: strings.TrimPrefix(path.Clean(dest), "/"), Mode: 0o755}, data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func add(w *tar.Writer, h *tar.Header, data []byte) error {
	h.Size = int64(len(data))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
