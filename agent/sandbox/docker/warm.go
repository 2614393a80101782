package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

const (
	// warmKinds is for how many kinds of sandbox containers are kept ready; the kind that was not used for longest goes.
	warmKinds = 4
	// warmIdle is how long an unused kind is kept ready.
	warmIdle = 10 * time.Minute
	// reservedFor is how long a reserved container waits for its Start.
	reservedFor = time.Minute
)

// kind is what two specs have in common when one's container can serve the other.
type kind struct {
	image, network string
	resources      sandbox.Resources
}

// pool keeps containers ready, each with a workspace of its own and never used before: a mount is fixed when a
// container is made, so that it is the workspace which is handed out, and the container with it.
type pool struct {
	d      *Driver
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	kinds    []*warmKind // the last used first
	reserved map[string]*reservation
}

type warmKind struct {
	kind    kind
	used    time.Time
	ready   []*handle
	filling int
	failed  bool // the last try: the next use tries again
}

type reservation struct {
	kind  kind
	h     *handle
	timer *time.Timer
}

func newPool(d *Driver) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &pool{d: d, ctx: ctx, cancel: cancel, reserved: make(map[string]*reservation)}
}

func (d *Driver) kindOf(spec sandbox.Spec) kind {
	k := kind{image: spec.Image, network: spec.Network, resources: spec.Resources}
	if k.image == "" {
		k.image = d.cfg.Image
	}
	if k.network == "" {
		k.network = d.cfg.Network
	}
	return k
}

// Reserve implements sandbox.Reserver.
func (d *Driver) Reserve(spec sandbox.Spec) (dir string, ok bool) {
	if d.cfg.Warm <= 0 {
		return "", false
	}
	return d.pool.reserve(d.kindOf(spec))
}

func (p *pool) reserve(k kind) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", false
	}
	p.retire()
	w := p.use(k)
	for len(w.ready) > 0 {
		h := w.ready[0]
		w.ready = w.ready[1:]
		p.fill(w)
		if h.lost() {
			p.discard(h)
			continue
		}
		dir, r := h.spec.Dir, &reservation{kind: k, h: h}
		r.timer = time.AfterFunc(reservedFor, func() { p.expire(dir, r) })
		p.reserved[dir] = r
		return dir, true
	}
	p.fill(w)
	return "", false
}

// take returns the container whose workspace was reserved for the spec.
func (p *pool) take(spec sandbox.Spec, k kind) *handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reserved[spec.Dir]
	if r == nil || p.closed {
		return nil
	}
	delete(p.reserved, spec.Dir)
	r.timer.Stop()
	hidden := slices.ContainsFunc(spec.Hide, func(path string) bool { return within(path, spec.Dir) })
	if r.kind != k || hidden || r.h.lost() {
		// What is started for it now is made for it; the workspace is the caller's all the same.
		p.discard(r.h)
		return nil
	}
	return r.h
}

func (p *pool) expire(dir string, r *reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.reserved[dir] != r {
		return
	}
	delete(p.reserved, dir)
	p.discard(r.h)
}

// want says that a kind is in use: containers of it are made ready.
func (p *pool) want(k kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.retire()
	p.fill(p.use(k))
}

// use returns a kind, and puts it first. mu is held.
func (p *pool) use(k kind) *warmKind {
	i := slices.IndexFunc(p.kinds, func(w *warmKind) bool { return w.kind == k })
	w := &warmKind{kind: k}
	if i >= 0 {
		w = p.kinds[i]
		p.kinds = slices.Delete(p.kinds, i, i+1)
	}
	w.used, w.failed = time.Now(), false
	p.kinds = slices.Insert(p.kinds, 0, w)
	return w
}

// retire drops kinds that are not used any more. mu is held.
func (p *pool) retire() {
	p.kinds = slices.DeleteFunc(p.kinds, func(w *warmKind) bool {
		old := time.Since(w.used) > warmIdle
		if old {
			p.drop(w)
		}
		return old
	})
	for len(p.kinds) > warmKinds {
		p.drop(p.kinds[len(p.kinds)-1])
		p.kinds = p.kinds[:len(p.kinds)-1]
	}
}

func (p *pool) drop(w *warmKind) {
	for _, h := range w.ready {
		p.removeWorkspace(h)
		p.discard(h)
	}
	w.ready = nil
}

// fill makes containers until enough are ready. mu is held.
func (p *pool) fill(w *warmKind) {
	for len(w.ready)+w.filling < p.d.cfg.Warm && !w.failed {
		w.filling++
		p.wg.Go(func() {
			h, err := p.d.warm(p.ctx, w.kind)
			p.mu.Lock()
			defer p.mu.Unlock()
			w.filling--
			switch {
			case err != nil:
				w.failed = true // whoever starts one of this kind meets the error, and is told
			case p.closed || !slices.Contains(p.kinds, w):
				p.removeWorkspace(h)
				if !p.closed { // else Close releases it with all others
					p.discard(h)
				}
			default:
				w.ready = append(w.ready, h)
			}
		})
	}
}

// discard releases a container beside.
func (p *pool) discard(h *handle) { p.wg.Go(func() { _ = h.Release(context.Background()) }) }

// removeWorkspace removes one that was never handed out: it is empty.
func (p *pool) removeWorkspace(h *handle) { _ = os.Remove(h.spec.Dir) }

// close ends the filling. What is ready is released by the driver, with its other handles.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, r := range p.reserved {
		r.timer.Stop()
	}
	for _, w := range p.kinds {
		for _, h := range w.ready {
			p.removeWorkspace(h)
		}
	}
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// warm makes one container that waits for its attempt.
func (d *Driver) warm(ctx context.Context, k kind) (*handle, error) {
	root := d.cfg.WarmRoot
	if root == "" {
		root = os.TempDir()
	}
	name := "warm-" + strings.ToLower(rand.Text())
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("docker: make a workspace: %w", err)
	}
	h, err := d.begin(ctx, sandbox.Spec{Attempt: name, Dir: dir, Image: k.image, Network: k.network, Resources: k.resources})
	if err != nil {
		_ = os.Remove(dir)
		return nil, err
	}
	return h, nil
}

// adopt gives a waiting container to an attempt. Its label stays the one that it was made with.
func (d *Driver) adopt(h *handle, spec sandbox.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handles[spec.Attempt] != nil {
		return fmt.Errorf("docker: start %s: %w", spec.Attempt, sandbox.ErrInUse)
	}
	h.mu.Lock()
	h.spec = spec
	h.info.Hidden, h.info.Image = spec.Hide, spec.Image
	h.mu.Unlock()
	d.handles[spec.Attempt] = h
	return nil
}

// lost reports whether the container has ended.
func (h *handle) lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loss != nil
}
