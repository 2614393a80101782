package command

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/protocol"
)

// maxTraceFile is how much of a trace file is read: what a recorder keeps.
const maxTraceFile = trace.DefaultMaxBytes

// fileTrace emits the events of the file that the command left. A file that is
// missing or broken costs the run its trace, not its grading: an error event says
// so.
func (h *Harness) fileTrace(env harness.Env, started time.Time, out *harness.Outcome) {
	name := env.Spec.Trace.Path
	if name == "" {
		name = protocol.DefaultTracePath
	}
	f, err := openRegular(env.Files, cmp.Or(env.Spec.WorkDir, "work"), name)
	if err != nil {
		env.Emit(protocol.TraceEvent{Kind: protocol.EventError, Message: fmt.Sprintf("no trace: %s: %v", name, err)})
		return
	}
	defer f.Close()
	seen := trace.New(trace.Config{})
	base := trace.Millis(started)
	limited := &io.LimitedReader{R: f, N: maxTraceFile}
	invalid, err := trace.Read(limited, func(ev protocol.TraceEvent) error {
		ev.T = rebase(ev.T, base)
		seen.Emit(ev)
		env.Emit(ev)
		return nil
	})
	sum := seen.Summary()
	out.FinalMessage = sum.FinalMessage
	if out.Usage = sum.Usage; out.Usage != nil {
		sources(out.Usage)
	}
	if invalid > 0 || err != nil || limited.N == 0 {
		attributes, _ := json.Marshal(map[string]any{"path": name, "invalid": invalid, "cut": limited.N == 0, "error": message(err)})
		env.Emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: "everdict.trace_file", Attributes: attributes})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func sources(u *protocol.Usage) {
	const source = "trace-file:llm_call"
	if u.TokensSource != "" {
		u.TokensSource = source
	}
	if u.USDSource != "" {
		u.USDSource = source
	}
}

// rebase brings a foreign time to epoch milliseconds. The unit is the emitter's:
// below 10^11 (March 1973 in epoch milliseconds) it is an offset in milliseconds
// from the start of the run.
func rebase(t, base float64) float64 {
	if t < 1e11 {
		return base + max(t, 0)
	}
	return t
}

// openRegular opens a file below dir without leaving it, nor dir the attempt's files,
// whatever links the agent made, and without hanging on a pipe.
func openRegular(files *os.Root, dir, name string) (*os.File, error) {
	root, err := files.OpenRoot(filepath.FromSlash(dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the command left no such file")
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is no regular file"), err, f.Close())
	}
	return f, nil
}

// traceparent is a W3C trace context whose trace id is derived from the run id
// (four FNV-1a hashes of it), so that spans find their run.
func traceparent(runID string) string {
	var id []byte
	for i := range 4 {
		f := fnv.New32a()
		fmt.Fprintf(f, "%d:%s", i, runID)
		id = f.Sum(id)
	}
	var span [8]byte
	rand.Read(span[:])
	return "00-" + hex.EncodeToString(id) + "-" + hex.EncodeToString(span[:]) + "-01"
}
