//go:build unix

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/everdict/everdict/agent/sandbox"
)

// foreignImage loads an image with one static program for another kind of machine than the engine's into the engine.
func foreignImage(t *testing.T, e *engine) (name, platform string) {
	t.Helper()
	arch := "arm64"
	if e.arch == arch {
		arch = "amd64"
	}
	program, err := programs.ReadFile("init/ask_linux_" + arch)
	if err != nil {
		t.Fatal(err)
	}
	archive := func(files map[string][]byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, content := range files {
			if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}), second(w.Write(content))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	document := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	name = "test/foreign:" + strings.ToLower(rand.Text())
	layer := archive(map[string][]byte{"program": program})
	sum := sha256.Sum256(layer)
	config := document(map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/", "NAME=" + name}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	manifest := document([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	loaded, err := e.api.ImageLoad(t.Context(), bytes.NewReader(archive(map[string][]byte{
		"manifest.json": manifest, "config.json": config, "layer.tar": layer,
	})))
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(loaded.Body)
	loaded.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := e.api.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image: %v (load said %s)", err, said)
		}
	})
	return name, "linux/" + arch
}

func second(_ int, err error) error { return err }

// TestF21_ForeignImageOfARealEngine: an image for another kind of machine is refused before a container is made. Where
// emulation is allowed, a machine that has none says so in seconds, and one that has it runs the image and tags it.
func TestF21_ForeignImageOfARealEngine(t *testing.T) {
	t.Parallel()
	e := engineOf(t)
	name, platform := foreignImage(t, e)

	r := newRig(t, Config{})
	s := r.spec(func(s *sandbox.Spec) { s.Image = name })
	_, err := r.d.Start(t.Context(), s)
	var bad *sandbox.ImageError
	if !errors.As(err, &bad) || bad.Retryable || bad.Image != name || !strings.Contains(bad.Words, platform) || !strings.Contains(bad.Words, "emulation is not allowed") {
		t.Errorf("start: %v, wanted an *ImageError that names %s", err, platform)
	}
	if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
		t.Errorf("it was refused and left %+v", left)
	}

	emulating := newRig(t, Config{AllowEmulation: true})
	s = emulating.spec(func(s *sandbox.Spec) { s.Image = name })
	begin := time.Now()
	h, err := emulating.d.Start(t.Context(), s)
	if err == nil {
		t.Logf("this machine emulates %s", platform)
		b := &box{h, emulating, s}
		if i := h.Info(); !i.Emulated || i.Platform != platform || !strings.Contains(strings.Join(i.Notes, " "), "emulated") {
			t.Errorf("the record says %+v", i)
		}
		if exit := b.wait(b.exec(sandbox.Command{Args: []string{"/program", "--help"}})); !exit.Success() {
			t.Errorf("an emulated program: %+v", exit)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.As(err, &bad) || bad.Retryable || bad.Image != name || !strings.Contains(bad.Words, "emulation is not set up") || !strings.Contains(bad.Words, platform) {
		t.Errorf("start without emulation: %v, wanted an *ImageError that says so", err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %s to fail", took)
	}
	if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
		t.Errorf("it failed and left %+v", left)
	}
}
