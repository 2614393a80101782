//go:build unix

package diff

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/everdict/everdict/agent/evidence/redact"
)

const key = "sk-ant-api03-Zx81mQ0vLw7RkT2yHc9Gd4Ns6Pb5Jf3Xa"

// mask makes of the files on disk what the diff may carry of them.
func (w *world) mask(now files) {
	red := w.base.cfg.Redact
	keep := func(p string) {
		delete(now, p)
		if n, ok := w.original[p]; ok {
			now[p] = n
		}
	}
	for _, p := range append(sortedPaths(now), sortedPaths(w.original)...) {
		n, there := now[p]
		if there && n == w.original[p] {
			continue
		}
		switch secret := red.Contains([]byte(n.Content)); {
		case red.Contains([]byte(p)), secret && strings.Contains(n.Content, "\x00"):
			keep(p)
		case secret:
			n.Content = red.String(n.Content)
			now[p] = n
		}
	}
}

// TestP10_F26_SecretsInTheDiff: no secret is in the diff, in text, in names, or
// packed; and the diff still applies, to the masked files.
func TestP10_F26_SecretsInTheDiff(t *testing.T) {
	t.Parallel()
	start := files{
		"README": text("hello\n"), "bin": text("\x00\x01\x02"), "link": symlink("README"), "d/x": text("x\n"),
		"old.env": text("A=1\nKEY=" + key + "\nB=2\n"), "old.bin": text("\x00" + key), "still.env": text("KEY=" + key + "\n"),
		"named-" + key: text("x\n"),
	}
	masked := "[redacted:THE_KEY]"
	for _, tt := range []struct {
		name    string
		do      func(w *world)
		changed []Change
		omitted []Omission
		clean   bool // nothing has to be masked
	}{
		{"nothing", func(*world) {}, nil, nil, true},
		{"a change without secrets", func(w *world) { w.put("README", text("hello "+key[:20]+"\n")) }, []Change{{"README", Modified}}, nil, true},
		{"added to text", func(w *world) { w.put("README", text("hello\n"+key+"\n")) }, []Change{{"README", Modified}}, nil, false},
		{"a new file", func(w *world) { w.put(".env", executable("KEY="+key)) }, []Change{{".env", Added}}, nil, false},
		{"base64", func(w *world) {
			w.put("b64", text("c2stYW50LWFwaTAzLVp4ODFtUTB2THc3UmtUMnlIYzlHZDROczZQYjVKZjNYYQ==\n"))
		}, []Change{{"b64", Added}}, nil, false},
		{"a symlink to it", func(w *world) { w.put("link", symlink("/run/"+key)) }, []Change{{"link", Modified}}, nil, false},
		{"a binary file", func(w *world) { w.put("bin", text("\x00\x01"+key)) }, nil,
			[]Omission{{Path: "bin", Reason: Secret, Kind: Modified, Bytes: int64(len(key) + 2)}}, false},
		{"a new binary file", func(w *world) { w.put("d/new", text("\x00"+key)) }, nil,
			[]Omission{{Path: "d/new", Reason: Secret, Kind: Added, Bytes: int64(len(key) + 1)}}, false},
		{"a file name", func(w *world) { w.put("d/"+key+".txt", text("x\n")) }, nil,
			[]Omission{{Path: "d/" + masked + ".txt", Reason: Secret, Kind: Added, Bytes: 2}}, false},
		{"a directory's name", func(w *world) { w.put(key+"/a", text("\x00")) }, nil,
			[]Omission{{Path: masked + "/a", Reason: Secret, Kind: Added, Bytes: 1}}, false},
		{"a line beside one of the source's", func(w *world) { w.put("old.env", text("A=2\nKEY="+key+"\nB=2\n")) }, []Change{{"old.env", Modified}}, nil, false},
		{"the source's is taken out", func(w *world) { w.put("old.env", text("A=1\nB=2\n")) }, []Change{{"old.env", Modified}}, nil, true},
		{"the source's file is deleted", func(w *world) { must(t, os.Remove(w.at("old.env"))) }, []Change{{"old.env", Deleted}}, nil, true},
		{"the source's binary file is deleted", func(w *world) { must(t, os.Remove(w.at("old.bin"))) }, []Change{{"old.bin", Deleted}}, nil, true},
		{"the source's file gives way to a directory", func(w *world) { w.put("old.env/a", text("a\n")) }, []Change{{"old.env", Deleted}, {"old.env/a", Added}}, nil, true},
		{"the source's file becomes executable", func(w *world) { w.put("old.env", executable(start["old.env"].Content)) }, []Change{{"old.env", Modified}}, nil, false},
		{"a file of the source with such a name changes", func(w *world) { w.put("named-"+key, text("y\n")) }, nil,
			[]Omission{{Path: "named-" + masked, Reason: Secret, Kind: Modified, Bytes: 2}}, false},
		{"a file of the source with such a name goes", func(w *world) { must(t, os.Remove(w.at("named-"+key))) }, nil,
			[]Omission{{Path: "named-" + masked, Reason: Secret, Kind: Deleted, Bytes: 2}}, false},
		{"a pipe with such a name", func(w *world) { w.put(key+"/.git/x", text("")) }, nil,
			[]Omission{{Path: masked + "/.git/", Reason: NestedGit}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), start, Config{Redact: redact.New([]redact.Secret{{Name: "THE_KEY", Value: key}})})
			tt.do(w)
			s := w.snapshot()
			if d := cmp.Diff(tt.changed, s.Changed); d != "" {
				t.Errorf("changed (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.omitted, s.Omitted, cmpopts.IgnoreFields(Omission{}, "Detail")); d != "" {
				t.Errorf("omitted (-want +got):\n%s", d)
			}
			if s.Redacted == tt.clean {
				t.Errorf("redacted: got %v, want %v", s.Redacted, !tt.clean)
			}
			r, err := s.Open()
			must(t, err)
			patch, err := io.ReadAll(r)
			must(t, errorsOf(err, r.Close()))
			if bytes.Contains(patch, []byte(key)) {
				t.Errorf("the diff holds the secret:\n%s", patch)
			}
			if bytes.Count(patch, []byte("\nliteral ")) != bytes.Count(patch, []byte("\nliteral 0\n")) { // that deletes
				t.Errorf("the diff packs content:\n%s", patch)
			}
		})
	}
}

// TestF26_APackedSecretIsThere shows why secrets are looked for in files and not
// in the diff: there a binary file is packed, and no search finds them.
func TestF26_APackedSecretIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), files{"a": text("a\n")}, Config{})
	w.put("bin", text("\x00"+key))
	s := w.snapshot()
	if len(s.Changed) != 1 || s.Redacted {
		t.Fatalf("changed %v, redacted %v", s.Changed, s.Redacted)
	}
	r, err := s.Open()
	must(t, err)
	patch, err := io.ReadAll(r)
	must(t, errorsOf(err, r.Close()))
	if bytes.Contains(patch, []byte(key)) || !bytes.Contains(patch, []byte("GIT binary patch")) {
		t.Fatalf("the diff is not packed:\n%s", patch)
	}
}
