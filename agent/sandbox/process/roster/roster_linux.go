package roster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin bounds the wait for one other runner. A runner that is stopped does not answer; its jobs are frozen soon.
const answerWithin = 2 * time.Second

// The first letters of names: what a file of the directory is.
const (
	pathPrefix   = "path-"
	socketPrefix = "runner-"
)

// Roster is an open roster.
type Roster struct {
	dir  string
	root *os.Root
	self *os.File // the directory, by which sockets are addressed: a path may be too long
}

// Open opens the roster at dir, and makes it if it is not there.
func Open(dir string) (*Roster, error) {
	r, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("roster of runners: %w", err)
	}
	return r, nil
}

func open(dir string) (*Roster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil, fmt.Errorf("%s is not a directory", dir)
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to user %d, not to this one", dir, st.Uid)
	case st.Mode&0o077 != 0:
		return nil, fmt.Errorf("%s is open to other users (mode %03o): chmod 700 it", dir, st.Mode&0o777)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Roster{dir, root, self}, nil
}

// Dir is the directory.
func (r *Roster) Dir() string { return r.dir }

// Close closes the roster; what it lists stays listed.
func (r *Roster) Close() error { return errors.Join(r.self.Close(), r.root.Close()) }

// Version changes with what is listed; that it has not changed is no proof.
func (r *Roster) Version() (time.Time, error) {
	st, err := r.root.Stat(".")
	if err != nil {
		return time.Time{}, fmt.Errorf("roster of runners: %w", err)
	}
	return st.ModTime(), nil
}

// Add lists a file or directory, which must exist.
func (r *Roster) Add(path string) error {
	if err := r.add(path); err != nil {
		return fmt.Errorf("roster of runners: list %s: %w", path, err)
	}
	return nil
}

func (r *Roster) add(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	names, err := r.names(pathPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		listed, err := r.root.Readlink(name)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(listed); errors.Is(err, fs.ErrNotExist) {
			_ = r.root.Remove(name) // stays listed, to no harm
		}
	}
	sum := sha256.Sum256([]byte(path))
	err = r.root.Symlink(path, pathPrefix+hex.EncodeToString(sum[:12]))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Paths are what is listed, sorted.
func (r *Roster) Paths() ([]string, error) {
	names, err := r.names(pathPrefix)
	if err != nil {
		return nil, fmt.Errorf("roster of runners: %w", err)
	}
	var out []string
	for _, name := range names {
		if path, err := r.root.Readlink(name); err == nil && filepath.IsAbs(path) {
			out = append(out, filepath.Clean(path))
		}
	}
	slices.Sort(out)
	return out, nil
}

// names lists the directory's files of one kind.
func (r *Roster) names(prefix string) ([]string, error) {
	d, err := r.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	return slices.DeleteFunc(all, func(n string) bool { return !strings.HasPrefix(n, prefix) }), err
}

// Listener is a runner that hides what is listed.
type Listener struct {
	roster *Roster
	name   string
	socket *net.UnixListener
	done   sync.WaitGroup
}

// Listen lets others ask this process to look again. look hides all that is listed by then, and returns what it could not
// hide. name tells this listener from all others of the machine, in up to 60 characters of a file's name.
func (r *Roster) Listen(name string, look func() []error) (*Listener, error) {
	l := &Listener{roster: r, name: socketPrefix + name}
	// Under its name it listens from the first moment: one that does not is taken for a dead runner's.
	early := "new-" + l.name
	_ = r.root.Remove(early)
	var err error
	l.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.address(early), Net: "unix"})
	if err == nil {
		l.socket.SetUnlinkOnClose(false)
		if err = r.root.Rename(early, l.name); err != nil {
			err = errors.Join(err, l.socket.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("roster of runners: %w", err)
	}
	l.done.Go(func() { l.accept(look) })
	return l, nil
}

func (l *Listener) accept(look func() []error) {
	for {
		c, err := l.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // too many open files: who asks waits
			continue
		}
		_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
		for _, err := range look() {
			if _, err := fmt.Fprintln(c, strings.ReplaceAll(err.Error(), "\n", " ")); err != nil {
				break
			}
		}
		_ = c.Close()
	}
}

// Close ends the listening.
func (l *Listener) Close() error {
	_ = l.roster.root.Remove(l.name) // nobody listens there: the next to ask would remove it
	err := l.socket.Close()
	l.done.Wait()
	return err
}

// address is a socket's.
func (r *Roster) address(name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(r.self.Fd())), name)
}

// Tell asks all other runners to look again. Its error says which jobs may see what is listed, and why.
func (r *Roster) Tell(ctx context.Context) error {
	names, err := r.names(socketPrefix)
	if err != nil {
		return fmt.Errorf("roster of runners: %w", err)
	}
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			err := r.ask(ctx, name)
			switch {
			case errors.Is(err, unix.ECONNREFUSED):
				_ = r.root.Remove(name) // of one that was killed
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				errs[i] = fmt.Errorf("jobs of another runner of this user (%s) may read this one's files: %w", strings.TrimPrefix(name, socketPrefix), err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *Roster) ask(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", r.address(name))
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	var errs []error
	s := bufio.NewScanner(io.LimitReader(c, 64<<10))
	for s.Scan() {
		errs = append(errs, errors.New(s.Text()))
	}
	if errors.Is(s.Err(), os.ErrDeadlineExceeded) {
		return fmt.Errorf("it did not answer within %s", answerWithin)
	}
	return errors.Join(append(errs, s.Err())...)
}
