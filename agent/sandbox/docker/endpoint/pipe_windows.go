package endpoint

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// fileFlagOverlapped lets a pipe have deadlines.
const fileFlagOverlapped = 0x40000000

// dialPipe opens a named pipe. A pipe is a file here: there is nothing to connect and to wait for.
func dialPipe(ctx context.Context, name string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path := strings.ReplaceAll(name, "/", `\`)
	p, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(p, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_EXISTING, fileFlagOverlapped, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &pipe{os.NewFile(uintptr(handle), path)}, nil
}

// pipe makes a connection of a file.
type pipe struct{ *os.File }

func (p *pipe) LocalAddr() net.Addr  { return pipeAddr(p.Name()) }
func (p *pipe) RemoteAddr() net.Addr { return pipeAddr(p.Name()) }

func (p *pipe) SetDeadline(t time.Time) error      { return p.File.SetDeadline(t) }
func (p *pipe) SetReadDeadline(t time.Time) error  { return p.File.SetReadDeadline(t) }
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.File.SetWriteDeadline(t) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }
