package desktop_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/sessionbus/bustest"
	"github.com/everdict/everdict/e2e/house"
)

// tap hears what an app sends to its coordinator and writes it down: each HTTP request, and in the session of a runner each
// message and each frame of the multiplexer.
type tap struct {
	mu   sync.Mutex
	said []string
}

// hear listens to one connection.
func (p *tap) hear(r io.Reader) {
	if err := p.listen(r); err != nil {
		p.note("what this test does not understand: " + err.Error())
	}
}

func (p *tap) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, what)
}

// since is what was said after the first n.
func (p *tap) since(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said[n:])
}

// listen reads one connection to its end.
func (p *tap) listen(r io.Reader) error {
	b := bufio.NewReader(r)
	for {
		req, err := http.ReadRequest(b)
		if err != nil {
			return ended(err)
		}
		p.note(req.Method + " " + req.URL.Path)
		if req.Header.Get("Upgrade") != "" {
			break
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return ended(err)
		}
	}
	inner, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := p.multiplexed(inner)
		_ = inner.CloseWithError(io.ErrClosedPipe)
		done <- err
	}()
	err := p.websocket(b, write)
	_ = write.Close()
	if inside := <-done; inside != nil {
		return inside
	}
	return ended(err)
}

// ended is no error for the end of a connection.
func ended(err error) error {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, end) {
			return nil
		}
	}
	return err
}

// websocket takes the binary messages out of their frames (RFC 6455, section 5.2).
func (p *tap) websocket(r io.Reader, to io.Writer) error {
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := uint64(head[1] & 0x7f)
		if wide := map[uint64]int{126: 2, 127: 8}[n]; wide > 0 {
			var b [8]byte
			if _, err := io.ReadFull(r, b[8-wide:]); err != nil {
				return err
			}
			n = binary.BigEndian.Uint64(b[:])
		}
		var mask [4]byte
		if head[1]&0x80 == 0 {
			return fmt.Errorf("a client's frame is not masked")
		}
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return err
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		for i := range body {
			body[i] ^= mask[i%4]
		}
		switch op := head[0] & 0x0f; op {
		case 0, 2:
			if _, err := to.Write(body); err != nil {
				return err
			}
		default:
			p.note(fmt.Sprintf("websocket frame %d", op))
		}
	}
}

// multiplexed takes the messages out of the streams of yamux, as protocol/link describes them.
func (p *tap) multiplexed(r io.Reader) error {
	streams := map[uint32][]byte{}
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return ended(err)
		}
		kind, stream, n := head[1], binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
		if kind != 0 {
			p.note(map[byte]string{1: "window", 2: "ping", 3: "go away"}[kind])
			continue
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return ended(err)
		}
		b := append(streams[stream], body...)
		for len(b) >= 5 {
			n := 5 + int(binary.BigEndian.Uint32(b[1:]))
			if len(b) < n {
				break
			}
			var m struct{ Type string }
			if b[0] != 'J' {
				m.Type = "frame " + string(b[0])
			} else if err := json.Unmarshal(b[5:n], &m); err != nil {
				return err
			}
			p.note(m.Type)
			b = b[n:]
		}
		streams[stream] = b
	}
}

func count(all []string, what string) (n int) {
	for _, s := range all {
		if s == what {
			n++
		}
	}
	return n
}

// most is how much memory the idle app may take with its icon shown and its window closed, in kB.
const most = 30 << 10

// An idle app is small, and says nothing to its coordinator but that it is there.
func TestIdle(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	var between tap
	proxy := h.Proxy(between.hear)
	bus := bustest.Start(t)
	panel := bus.Panel(t)
	p := startProcWith(t, []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Address}, "--background")
	panel.Tray(t)
	p.url = proxy.URL()
	p.pair(h, func(...string) {})
	beats := func(from, n int) []string {
		t.Helper()
		var all []string
		house.Eventually(t, fmt.Sprintf("%d heartbeats and as many pings", n), func() bool {
			all = between.since(from)
			return count(all, "heartbeat") >= n && count(all, "ping") >= n
		})
		return all
	}
	// What was done for the pairing is over, and the runner waits for a run.
	before := beats(0, 3)
	if count(before, "pull") == 0 || count(before, "GET /agent/connect") == 0 {
		t.Fatalf("until it is idle it says %q: this test does not hear all", before)
	}
	for _, s := range beats(len(before), 10) {
		if s != "heartbeat" && s != "ping" && s != "window" {
			t.Errorf("the idle app says %q, want heartbeats and pings alone", s)
		}
	}
	var rss, pss int64
	house.Eventually(t, "the app takes less than 30 MB", func() bool {
		rss, pss, _ = usage(t, p.cmd.Process.Pid)
		return rss < most
	})
	t.Logf("resident memory %d kB, its share %d kB", rss, pss)
	if pss > rss || pss == 0 {
		t.Errorf("its share is %d kB of %d kB", pss, rss)
	}
}

// usage is what the kernel says of a process.
func usage(t testing.TB, pid int) (rss, pss, switches int64) {
	t.Helper()
	read := func(file string, keys ...string) []int64 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		out := make([]int64, len(keys))
		for line := range strings.Lines(string(b)) {
			key, rest, _ := strings.Cut(line, ":")
			if i := slices.Index(keys, key); i >= 0 {
				if _, err := fmt.Sscan(rest, &out[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		return out
	}
	m := read("smaps_rollup", "Rss", "Pss")
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		switches += read("task/"+task.Name()+"/status", "voluntary_ctxt_switches")[0]
	}
	return m[0], m[1], switches
}

// BenchmarkResident measures the idle app, tray shown and window closed, connected to a coordinator with the clocks that it has in real
// life: kB of memory, and how often its threads went to sleep in a minute. docs/benchmarks.md has the figures.
func BenchmarkResident(b *testing.B) {
	h := house.New(b)
	bus := bustest.Start(b)
	panel := bus.Panel(b)
	p := startProcWith(b, []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Address}, "--background")
	panel.Tray(b)
	p.pair(h, func(...string) {})
	for b.Loop() {
		rest := time.NewTimer(20 * time.Second) // what was done for the pairing is over
		<-rest.C
		_, _, before := usage(b, p.cmd.Process.Pid)
		rest.Reset(time.Minute)
		<-rest.C
		rss, pss, after := usage(b, p.cmd.Process.Pid)
		b.ReportMetric(float64(rss), "rss-kB")
		b.ReportMetric(float64(pss), "pss-kB")
		b.ReportMetric(float64(after-before), "switches/min")
	}
}
