package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

// timedConn is the TCP (or, on the accepting side, TLS) connection below the websocket. Once armed, each read and each
// write gets its own deadline: that finds a dead peer without a goroutine and without a timer per session.
type timedConn struct {
	net.Conn
	// pre holds bytes that net/http had already read when the connection was hijacked.
	pre         []byte
	armed       atomic.Bool
	closing     atomic.Bool
	read, write atomic.Int64 // nanoseconds
}

// arm starts the deadlines. It also removes those that an http.Server left behind.
func (c *timedConn) arm(read, write time.Duration) {
	c.read.Store(int64(read))
	c.write.Store(int64(write))
	_ = c.Conn.SetDeadline(time.Time{})
	c.armed.Store(true)
	// The read that is already waiting began without a deadline.
	_ = c.Conn.SetReadDeadline(time.Now().Add(read))
}

// lastWords gives everything that is still to happen on this connection one deadline.
func (c *timedConn) lastWords(d time.Duration) {
	c.closing.Store(true)
	_ = c.Conn.SetDeadline(time.Now().Add(d))
}

func (c *timedConn) Read(p []byte) (int, error) {
	if len(c.pre) > 0 {
		n := copy(p, c.pre)
		if c.pre = c.pre[n:]; len(c.pre) == 0 {
			c.pre = nil
		}
		return n, nil
	}
	if c.armed.Load() && !c.closing.Load() {
		_ = c.Conn.SetReadDeadline(time.Now().Add(time.Duration(c.read.Load())))
	}
	return c.Conn.Read(p)
}

func (c *timedConn) Write(p []byte) (int, error) {
	if c.armed.Load() && !c.closing.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Duration(c.write.Load())))
	}
	return c.Conn.Write(p)
}

// lightHijacker hands the hijacked connection on as a timedConn with small buffers. net/http's own pair of 4 kB
// buffers would stay for the life of the websocket, which is most of what an idle session may cost.
type lightHijacker struct {
	http.ResponseWriter
	conn *timedConn
}

func (h *lightHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &timedConn{Conn: raw}
	if n := rw.Reader.Buffered(); n > 0 {
		b, _ := rw.Reader.Peek(n)
		h.conn.pre = append([]byte(nil), b...)
	}
	return h.conn, bufio.NewReadWriter(bufio.NewReaderSize(h.conn, serverReader), bufio.NewWriterSize(h.conn, serverWriter)), nil
}

// wsConn carries yamux inside binary websocket messages.
type wsConn struct {
	ws  *websocket.Conn
	raw *timedConn
	r   io.Reader
	// held is the header of a data frame, kept back until its body follows, so that both travel as one message.
	held  [yamuxHeader]byte
	holds bool

	// head, got and body follow the frames of what is read: got bytes of a header in head, and how many of its body are
	// still to come.
	head [yamuxHeader]byte
	got  int
	body uint32
	// opening is told, on yamux's reading goroutine, of each stream that the peer opens, before yamux is.
	opening func()

	// over is closed by the first error.
	over chan struct{}
	// failed is told of the first error, before yamux is, and when yamux lets the connection go.
	failed func()

	mu  sync.Mutex
	err error // the first error of either direction
}

// yamuxHeader is the length of a yamux frame's header: a version (1 byte), a type (1 byte; data, the only one with a body,
// a window update, or others), flags (2 bytes; the first says that the frame opens a stream), the stream's number (4 bytes)
// and the body's length (4 bytes).
const (
	yamuxHeader       = 12
	yamuxData         = 0
	yamuxWindowUpdate = 1
	yamuxOpens        = 1
)

// reasonWait is how long a failed write waits for the reader to say why.
const reasonWait = 100 * time.Millisecond

// scratch holds buffers for joining a header and its body.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func newWSConn(ws *websocket.Conn, raw *timedConn) *wsConn {
	// One message is one yamux frame. Peers of other builds may write a whole window at once.
	ws.SetReadLimit(yamuxWindow + yamuxHeader)
	return &wsConn{ws: ws, raw: raw, over: make(chan struct{})}
}

func (c *wsConn) Read(p []byte) (int, error) {
	for {
		if c.r == nil {
			typ, r, err := c.ws.Reader(context.Background())
			if err != nil {
				return 0, c.fail(err)
			}
			if typ != websocket.MessageBinary {
				return 0, c.fail(&ProtocolError{Op: "read", Err: errors.New("websocket message is not binary")})
			}
			c.r = r
		}
		n, err := c.r.Read(p)
		if errors.Is(err, io.EOF) {
			c.r, err = nil, nil
		}
		if err != nil {
			return n, c.fail(err)
		}
		if n > 0 {
			c.watch(p[:n])
			return n, nil
		}
	}
}

// watch follows the frames in what was read and tells of those that open a stream. It spares a session the goroutine that
// would wait in AcceptStream all its life.
func (c *wsConn) watch(p []byte) {
	for len(p) > 0 {
		if c.body > 0 {
			n := min(c.body, uint32(len(p)))
			c.body -= n
			p = p[n:]
			continue
		}
		n := copy(c.head[c.got:], p)
		c.got += n
		p = p[n:]
		if c.got < yamuxHeader {
			return
		}
		c.got = 0
		kind := c.head[1]
		if kind == yamuxData {
			c.body = binary.BigEndian.Uint32(c.head[8:])
		}
		if kind <= yamuxWindowUpdate && binary.BigEndian.Uint16(c.head[2:])&yamuxOpens != 0 {
			c.opening()
		}
	}
}

// Write is called by yamux's one sending goroutine only.
func (c *wsConn) Write(p []byte) (int, error) {
	if !c.holds && len(p) == yamuxHeader && p[1] == yamuxData && binary.BigEndian.Uint32(p[8:]) > 0 {
		copy(c.held[:], p)
		c.holds = true
		return len(p), nil
	}
	msg := p
	if c.holds {
		c.holds = false
		buf := scratch.Get().(*[]byte)
		*buf = append(append((*buf)[:0], c.held[:]...), p...)
		msg = *buf
		defer scratch.Put(buf)
	}
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, msg); err != nil {
		// The reader may be about to learn the reason from a close frame, which is worth more than "broken pipe".
		wait := time.NewTimer(reasonWait)
		defer wait.Stop()
		select {
		case <-c.over:
		case <-wait.C:
		}
		return 0, c.fail(err)
	}
	return len(p), nil
}

// fail keeps the first error; the others are its consequences.
func (c *wsConn) fail(err error) error {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first {
		c.failed()
		close(c.over)
	}
	return err
}

// cause is the first error, as the callers of this package see it.
func (c *wsConn) cause() error {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	var ce websocket.CloseError
	var pe *ProtocolError
	switch {
	case err == nil:
		return ErrClosed
	case errors.As(err, &ce):
		return closeError(CloseCode(ce.Code), ce.Reason)
	case errors.As(err, &pe):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrDeadPeer, err)
	default:
		return fmt.Errorf("%w: connection lost: %w", ErrClosed, err)
	}
}

// Close cuts the connection; yamux calls it. It must not wait for anything: yamux lets every waiting Stream.Read spin
// from the moment its session ends until this returns.
func (c *wsConn) Close() error {
	c.failed()
	return c.raw.Close()
}

// yamuxConfig is set on purpose: no keepalive (our pings and read deadlines do it without a goroutine per session), the
// smallest window, and a close timeout that frees a half-closed stream within the time of a reply.
func yamuxConfig(t Timing, log *slog.Logger) *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          yamuxBacklog,
		EnableKeepAlive:        false,
		KeepAliveInterval:      t.Ping, // unused, but yamux checks it
		ConnectionWriteTimeout: t.Write,
		MaxStreamWindowSize:    yamuxWindow,
		StreamOpenTimeout:      t.Reply,
		StreamCloseTimeout:     t.Reply,
		Logger:                 yamuxLog{log},
	}
}

// yamuxLog sends yamux's log to slog. Its lines begin with [ERR] or [WARN] and speak of a connection that is already
// failing, which the session reports itself, so they are of interest to developers only.
type yamuxLog struct{ log *slog.Logger }

func (l yamuxLog) Printf(format string, v ...any) { l.line(fmt.Sprintf(format, v...)) }
func (l yamuxLog) Print(v ...any)                 { l.line(fmt.Sprint(v...)) }
func (l yamuxLog) Println(v ...any)               { l.line(strings.TrimSuffix(fmt.Sprintln(v...), "\n")) }

func (l yamuxLog) line(s string) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "[ERR] "), "[WARN] ")
	l.log.Debug("yamux", "line", strings.TrimPrefix(s, "yamux: "))
}
