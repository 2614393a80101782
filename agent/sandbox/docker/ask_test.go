//go:build unix

package docker

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// desk is the runner's end of the questions of a box.
type desk struct {
	*box
	socket  string
	lines   *bufio.Reader
	answers *io.PipeWriter
	p       sandbox.Process
}

func (b *box) desk() *desk {
	b.r.Helper()
	stdin, answers := io.Pipe()
	questions, stdout := io.Pipe()
	d := &desk{box: b, lines: bufio.NewReader(questions), answers: answers}
	d.p = b.exec(sandbox.Command{Args: []string{b.Info().Asker, "carry"}, Stdin: stdin, Stdout: stdout})
	b.r.Cleanup(func() { answers.Close(); questions.Close() })
	d.socket = d.line()
	return d
}

func (d *desk) line() string {
	d.r.Helper()
	got := make(chan string, 1)
	go func() {
		line, _ := d.lines.ReadString('\n')
		got <- line
	}()
	select {
	case line := <-got:
		if line == "" {
			d.r.Fatal("the sandbox's end of the questions has ended")
		}
		return strings.TrimSuffix(line, "\n")
	case <-time.After(patience):
		d.r.Fatalf("waited %s for a question", patience)
	}
	return ""
}

func (d *desk) answer(line string) {
	d.r.Helper()
	if _, err := io.WriteString(d.answers, line+"\n"); err != nil {
		d.r.Fatalf("answer: %v", err)
	}
}

// job starts a script whose output is read when it has ended.
func (d *desk) job(script string) (sandbox.Process, *lines) {
	var out lines
	c := sh(script)
	c.Env, c.Stdout, c.Stderr = []string{protocol.AskSocketEnv + "=" + d.socket}, &out, &out
	return d.exec(c), &out
}

// TestAskInAContainer: a question of a container's command reaches the runner, and its answer the command, whoever the
// command is; nothing else does. What it asks survives that the container stands still.
func TestAskInAContainer(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Image: debian})
	d := r.start(func(s *sandbox.Spec) { s.Env = nil }).desk()
	want := func(p sandbox.Process, out *lines, code int, text string) {
		t.Helper()
		if exit := d.wait(p); exit.Code != code || !strings.Contains(out.String(), text) {
			t.Errorf("%+v, %q; want code %d, %q", exit, out, code, text)
		}
	}
	if got := d.ok("command -v everdict"); got != askPath+"\n" {
		t.Errorf("everdict is %q", got)
	}
	if got := d.ok("(echo x >" + askPath + ") 2>/dev/null || echo no"); got != "no\n" {
		t.Error("a job can change its everdict, which all containers share")
	}

	// Two at once: they are asked one after the other.
	a, aOut := d.job("everdict ask A")
	first := d.line()
	b, bOut := d.job("everdict ask B")
	d.freezeThaw()
	if first != `{"question":"A"}` {
		t.Errorf("asked %q", first)
	}
	d.answer(`{"approved":true,"comment":"yes A"}`)
	want(a, aOut, 0, "yes A\n")
	if second := d.line(); second != `{"question":"B"}` {
		t.Errorf("then asked %q", second)
	}
	if err := d.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.answer(`{"approved":false,"comment":"no B"}`)
	if err := d.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(b, bOut, 1, "no B\n")

	// Another user of the container.
	u, uOut := d.job(`exec python3 -c 'import os; os.setuid(4711); os.execvp("everdict", ["everdict", "ask", "U"])'`)
	if got := d.line(); got != `{"question":"U"}` {
		t.Errorf("asked %q", got)
	}
	d.answer(`{"approved":true,"comment":"you, too"}`)
	want(u, uOut, 0, "you, too\n")

	// Who asks and does not wait, who says nothing, who says too much: the next one is heard all the same.
	raw := func(script string) (sandbox.Process, *lines) {
		return d.job("exec python3 -c 'import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(os.environ[\"" + protocol.AskSocketEnv + "\"])\n" + script + "'")
	}
	silent, silentOut := raw("")
	want(silent, silentOut, 0, "")
	impatient, impatientOut := raw(`s.sendall(b"I\n")`)
	want(impatient, impatientOut, 0, "")
	if got := d.line(); got != "I" {
		t.Errorf("asked %q", got)
	}
	d.answer(`{"approved":true}`)
	much, muchOut := raw(`try: s.sendall(b"x" * 100000)
except OSError: pass
print(s.recv(100).decode())`)
	want(much, muchOut, 0, "longer than 16 KiB")
	last, lOut := d.job("everdict ask L")
	if got := d.line(); got != `{"question":"L"}` {
		t.Errorf("asked %q", got)
	}
	d.answer(fmt.Sprintf(`{"approved":true,"comment":"%s"}`, strings.Repeat("y", 90_000)))
	want(last, lOut, 0, strings.Repeat("y", 90_000))

	// When the runner takes no more questions, whoever asks hears it.
	d.answers.Close()
	if exit := d.wait(d.p); exit.Code != 0 {
		t.Errorf("carry ended with %+v", exit)
	}
	late, lateOut := d.job("everdict ask N")
	want(late, lateOut, 2, "nobody listens")
}

func (d *desk) freezeThaw() {
	d.r.Helper()
	if err := d.Freeze(d.r.Context()); err != nil {
		d.r.Fatal(err)
	}
	if err := d.Thaw(d.r.Context()); err != nil {
		d.r.Fatal(err)
	}
}

// TestAskWhereLittleCanBeWritten: neither a read-only image, nor a user that it does not know, nor a PATH of its own
// keeps a job from asking.
func TestAskWhereLittleCanBeWritten(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"read-only": {ReadonlyRoot: true},
		"a user":    {User: "4711:4711"},
		"debian":    {Image: debian, ReadonlyRoot: true, User: "4711:4711"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg)
			d := r.start(func(s *sandbox.Spec) {
				s.Env = nil
				if err := os.Chmod(s.Dir, 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(filepath.Dir(s.Dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}).desk()
			p, out := d.job("everdict ask Q")
			if got := d.line(); got != `{"question":"Q"}` {
				t.Errorf("asked %q", got)
			}
			d.answer(`{"approved":true,"comment":"fine"}`)
			if exit := d.wait(p); exit.Code != 0 || out.String() != "fine\n" {
				t.Errorf("%+v, %q", exit, out)
			}
		})
	}
}

func TestWithAsk(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"/bin:/sbin": "/.everdict:/bin:/sbin", "": "/.everdict", "/bin:": "/.everdict:/bin:"} {
		if got := withAsk([]string{"A=b", "PATH=" + list}); got[0] != "A=b" || got[1] != "PATH="+want {
			t.Errorf("PATH=%s became %q", list, got)
		}
	}
}
