package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what is written to screen is read as a person
// would get it.
type terminal struct {
	screen *os.File
	// keyboard is where a person types.
	keyboard *os.File
	fd       int // of the keyboard; asking it for that again would be a race
	mu       sync.Mutex
	text     strings.Builder
	done     chan struct{}
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{keyboard: master, fd: fd, done: make(chan struct{})}
	if term.screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(term.done)
		defer master.Close()
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.text.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return // EIO: the screen is closed
			}
		}
	}()
	return term
}

// close ends the terminal and returns all that came to it.
func (term *terminal) close() string {
	term.screen.Close()
	<-term.done
	return term.text.String()
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	url := f.serve(false)
	submit := func(t *testing.T, body string) string {
		a := newTestApp(t, url)
		a.in = strings.NewReader(body)
		if code := a.run(t.Context(), []string{"submit", "-f", "-", "-q"}); code != 0 {
			t.Fatalf("submit: %s", &a.stderr)
		}
		id, _, _ := strings.Cut(a.stdout.String(), " ")
		return id
	}
	talks := submit(t, `{"harness":{"id":"scripted","params":{"script":"run printf 'safe \\033]0;owned\\007'\nsay hello\ncreate ok.txt done"}},
		"case":{"id":"c","task":"x","env":{"kind":"repo","source":{"files":{}}},"graders":[{"id":"tests-pass","config":{"cmd":"grep -q done ok.txt"}}]}}`)
	// Until it is over: what follows reads its evidence.
	a := newTestApp(t, url)
	if code := a.run(t.Context(), []string{"runs", "wait", talks}); code != 0 {
		t.Fatalf("wait: exit code %d: %s", code, &a.stderr)
	}

	for _, row := range []struct {
		name        string
		args        []string
		env         map[string]string
		both        bool // stderr is the terminal, too
		want, never []string
	}{
		{"the log is made safe", []string{"runs", "logs", talks}, nil, false, []string{"safe ^[]0;owned^G"}, []string{"\x1b]0"}},
		{"unless raw", []string{"runs", "logs", talks, "--raw"}, nil, false, []string{"safe \x1b]0;owned\x07"}, nil},
		{"followed too", []string{"runs", "logs", "-f", talks}, nil, false, []string{"safe ^[]0;owned^G"}, []string{"\x1b]0"}},
		{"the diff has colours", []string{"runs", "diff", talks}, nil, false, []string{"\x1b[32m+done\x1b[0m"}, nil},
		{"the list has colours", []string{"runs", "list"}, nil, false, []string{"\x1b[32msucceeded\x1b[0m"}, nil},
		{"not with NO_COLOR", []string{"runs", "list"}, map[string]string{"NO_COLOR": "1"}, false, []string{"succeeded"}, []string{"\x1b["}},
		{"not on a dumb terminal", []string{"runs", "wait", talks}, map[string]string{"TERM": "dumb"}, true, []string{"PASS", "succeeded after"}, []string{"\x1b["}},
		{"a wait has one line that is rewritten and gone", []string{"runs", "wait", talks}, nil, true, []string{"\r\x1b[K" + talks, "assistant: hello", "\r\x1b[K\x1b[1m" + talks}, []string{"succeeded after"}},
		{"quiet has none", []string{"runs", "wait", talks, "-q"}, nil, true, []string{"PASS"}, []string{"\r\x1b[K"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal(t)
			a := newTestApp(t, url)
			for k, v := range row.env {
				a.env[k] = v
			}
			a.out = term.screen
			if row.both {
				a.err = term.screen
			} else {
				a.err = io.Discard
			}
			code := a.run(t.Context(), row.args)
			got := term.close()
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range row.want {
				if !strings.Contains(got, want) {
					t.Errorf("the terminal got %q, want it to contain %q", got, want)
				}
			}
			for _, never := range row.never {
				if strings.Contains(got, never) {
					t.Errorf("the terminal got %q, which contains %q", got, never)
				}
			}
		})
	}
}
