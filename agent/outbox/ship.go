package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Ship sends everything over one session until ctx ends, which is how the caller
// says that the session is over; it returns ctx's error. Attempts are sent live
// while they run. Finished ones that nobody works on any more are replayed
// oldest first, eight at a time; one that fails goes to the end of the line.
func (o *Outbox) Ship(ctx context.Context, sink Sink) error {
	o.mu.Lock()
	if o.shipping || o.closed {
		defer o.mu.Unlock()
		if o.closed {
			return ErrClosed
		}
		return ErrShipping
	}
	o.shipping = true
	o.mu.Unlock()

	var wg sync.WaitGroup
	replays := make(chan struct{}, sendParallel)
	taken := map[*Spool]bool{}
	for ctx.Err() == nil {
		o.mu.Lock()
		changed, spools := o.changed, o.byAge()
		o.mu.Unlock()
		for _, s := range spools {
			if taken[s] {
				continue
			}
			taken[s] = true
			turn := replays
			if !s.isFinished() {
				turn = nil // a running attempt waits for no turn
			}
			wg.Go(func() { o.shipSpool(ctx, sink, s, turn) })
		}
		for s := range taken {
			if !slices.Contains(spools, s) {
				delete(taken, s)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	wg.Wait()
	o.mu.Lock()
	o.shipping = false
	o.mu.Unlock()
	return ctx.Err()
}

// shipSpool sends one attempt until it is gone or ctx ends.
func (o *Outbox) shipSpool(ctx context.Context, sink Sink, s *Spool, turn chan struct{}) {
	log := o.cfg.Logger.With("attempt", s.attempt)
	for wait := o.cfg.RetryMin; ; wait = min(2*wait, o.cfg.RetryMax) {
		if turn != nil {
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		progress, ack, err := s.send(ctx, sink)
		if turn != nil {
			<-turn
		}
		var rejected *RejectedError
		if errors.As(err, &rejected) {
			// A running attempt is not ended by this: its owner learns from its
			// lease. It is asked again when there is a result to send.
			if s.isFinished() {
				ack, err = Ack{Status: Rejected, Code: rejected.Code, Message: rejected.Message}, nil
			} else if !s.awaitFinish(ctx) {
				return
			}
		}
		switch {
		case ack.final():
			switch ack.Status {
			case Stale:
				log.Info("outbox: the run has gone on without this attempt, its result is kept as late evidence")
			case Rejected:
				log.Warn("outbox: the coordinator cannot take the result, it is kept aside", "code", ack.Code, "message", ack.Message)
			}
			if err := s.end(ack); err != nil {
				log.Error("outbox: remove attempt failed", "error", err)
			}
			return
		case errors.Is(err, errGone), errors.Is(err, ErrNotHere), ctx.Err() != nil:
			return
		}
		log.Info("outbox: send failed, will be tried again", "error", err)
		if progress {
			wait = o.cfg.RetryMin
		}
		pause := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-pause.C:
		case <-s.done:
			pause.Stop()
			return
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, maxChunk); return &b }}

var errGone = errors.New("outbox: attempt is gone")

// awaitFinish returns true when the spool is finished, false when it is gone or
// ctx has ended.
func (s *Spool) awaitFinish(ctx context.Context) bool {
	for {
		s.mu.Lock()
		changed, finished, gone := s.changed, s.finished, s.gone
		s.mu.Unlock()
		if finished || gone {
			return !gone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// send opens a stream and sends until the result is answered. progress says that
// the coordinator took something.
func (s *Spool) send(ctx context.Context, sink Sink) (progress bool, ack Ack, err error) {
	var st Stream
	err = s.call(ctx, func(ctx context.Context) error {
		st, err = sink.Open(ctx, s.attempt)
		return err
	})
	if err != nil {
		return false, Ack{}, err
	}
	defer func() { err = errors.Join(err, closeQuiet(st, ack)) }()
	files := map[string]io.ReaderAt{}
	defer func() {
		for _, f := range files {
			f.(io.Closer).Close()
		}
	}()
	sent := map[string]int64{}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := (*pooled)[:s.o.cfg.ChunkBytes]
	for {
		s.mu.Lock()
		changed, finished, gone := s.changed, s.finished, s.gone
		work := make([]piece, 0, len(s.channels))
		for _, c := range s.channels {
			off, known := sent[c.name]
			if !known {
				off = st.Resume(c.name)
				sent[c.name] = off
			}
			// Monotonic: a coordinator that lost its last bytes to a power cut
			// makes Unacknowledged too small until they are sent again.
			c.acked = max(c.acked, min(st.Acked(c.name), c.size))
			if off < c.size {
				work = append(work, piece{c.name, off, c.size})
			}
		}
		s.mu.Unlock()
		if gone {
			return progress, Ack{}, errGone
		}
		// One piece of each channel in turn, so that a large log does not hold
		// back the trace.
		for _, w := range work {
			n, err := s.sendPiece(ctx, st, files, w, buf)
			if errors.Is(err, errUnreadable) {
				s.cutShort(w, err)
				continue
			}
			if err != nil {
				return progress, Ack{}, err
			}
			progress = true
			sent[w.channel] += int64(n)
		}
		switch {
		case len(work) > 0:
			continue
		case finished:
			ack, err := s.sendResult(ctx, st)
			return progress, ack, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return progress, Ack{}, ctx.Err()
		}
	}
}

type piece struct {
	channel   string
	off, size int64
}

func (s *Spool) sendPiece(ctx context.Context, st Stream, files map[string]io.ReaderAt, w piece, buf []byte) (int, error) {
	f := files[w.channel]
	if f == nil {
		opened, err := os.Open(s.file(w.channel))
		if err != nil {
			return 0, errors.Join(errUnreadable, err)
		}
		f, files[w.channel] = opened, opened
	}
	p := buf[:min(int64(len(buf)), w.size-w.off)]
	n, err := f.ReadAt(p, w.off)
	if n == 0 {
		return 0, errors.Join(errUnreadable, err)
	}
	p = p[:n]
	return len(p), s.call(ctx, func(ctx context.Context) error { return st.Send(ctx, w.channel, w.off, p) })
}

// errUnreadable is a channel's file that was removed, cut or damaged by others.
var errUnreadable = errors.New("outbox: channel is not readable")

// cutShort ends a channel where its file can no longer be read: what is gone must
// not keep the result from being sent.
func (s *Spool) cutShort(w piece, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.channels {
		if c.name == w.channel {
			s.o.cfg.Logger.Error("outbox: evidence is lost", "attempt", s.attempt, "channel", c.name,
				"offset", w.off, "bytes", c.size-w.off, "error", err)
			s.gaps = append(s.gaps, protocol.Gap{Channel: c.name, Offset: w.off, Bytes: c.size - w.off, Reason: protocol.GapWriteError})
			c.size = w.off
		}
	}
}

// call bounds one call of the session. The stream outlives the call's context.
func (s *Spool) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

// sendResult sends the result when every byte before it is acknowledged, or
// refused for good.
func (s *Spool) sendResult(ctx context.Context, st Stream) (Ack, error) {
	if err := s.call(ctx, st.Flush); err != nil {
		return Ack{}, err
	}
	s.mu.Lock()
	for _, c := range s.channels {
		got := st.Acked(c.name)
		c.acked = min(got, c.size)
		if got < c.size {
			// After Flush only a channel that the coordinator closed is short.
			s.o.cfg.Logger.Warn("outbox: coordinator took only a part of a channel",
				"attempt", s.attempt, "channel", c.name, "bytes", c.size, "acked", got)
		}
	}
	s.mu.Unlock()
	result, err := os.ReadFile(filepath.Join(s.dir, resultFile))
	if err != nil {
		return Ack{}, fmt.Errorf("outbox: read result: %w", err)
	}
	var ack Ack
	err = s.call(ctx, func(ctx context.Context) error {
		ack, err = st.Result(ctx, result)
		return err
	})
	if err == nil && !ack.final() {
		err = fmt.Errorf("outbox: answer to the result has status %q", ack.Status)
	}
	return ack, err
}

// closeQuiet closes the stream. Its error counts only while there is no answer:
// after one nothing depends on it.
func closeQuiet(st Stream, ack Ack) error {
	err := st.Close()
	if ack.final() {
		return nil
	}
	return err
}
