package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// provider is the machine as one runtime uses it.
type provider struct {
	o   *Opener
	t   fleet.Target
	dir string // of the target, below Config.Dir
}

var _ fleet.Provider = (*provider)(nil)

// at is the directory of a unit; an error says that this is no name of one.
func (p *provider) at(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("local: %q is no name of a unit", protocol.Clip(name, 80))
	}
	return filepath.Join(p.o.cfg.Dir, p.dir, name), nil
}

// Probe implements fleet.Provider.
func (p *provider) Probe(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	for _, program := range []string{p.o.cfg.Keeper[0], p.o.cfg.Runner[0]} {
		if _, err := os.Stat(program); err != nil {
			return "", &fleet.RefusedError{Cause: fleet.CauseStart, Message: fmt.Sprintf("the program of its runners is not there: %v", err)}
		}
	}
	for _, dir := range []string{p.o.cfg.Dir, p.o.cfg.WorkDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", &fleet.RefusedError{Cause: fleet.CauseStart, Message: fmt.Sprintf("its directories cannot be made: %v", err)}
		}
	}
	c := capacity()
	return fmt.Sprintf("%s %s, the coordinator's own machine: %d cores, %d MiB", runtime.GOOS, p.o.host, c.cpu/1000, c.memoryMB), nil
}

// Launch implements fleet.Provider.
func (p *provider) Launch(ctx context.Context, o fleet.Order) error {
	if err := p.check(o); err != nil {
		return err
	}
	dir, err := p.at(o.Unit)
	if err != nil {
		return err
	}
	done, err := p.begin(dir, o)
	if err != nil || done {
		return err
	}
	doc, err := o.Document(ctx)
	if err != nil {
		return err
	}
	if err := p.complete(dir, o, doc); err != nil {
		return fmt.Errorf("local: launch %s: %w", o.Unit, err)
	}
	p.o.settle()
	p.o.changed()
	return nil
}

// check refuses what a process of this machine cannot be.
func (p *provider) check(o fleet.Order) error {
	if err := o.TooLarge(protocol.MaxBodyBytes, "a runner's memory"); err != nil {
		return err
	}
	for f, wanted := range map[fleet.Feature]bool{fleet.FeatureReuse: o.Reused, fleet.FeatureNoNetwork: o.Network == protocol.NetworkNone} {
		if why := p.o.Lacks(f); wanted && why != "" {
			return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: string(f) + ": " + why}
		}
	}
	if o.Image != "" && !p.o.cfg.Encloses {
		return &fleet.RefusedError{Cause: fleet.CauseImage, Message: fmt.Sprintf(
			"runtime %s runs its runners as processes of the coordinator's machine, and the job names the image %s: send it to a runner with Docker", p.t.Spec.ID, o.Image)}
	}
	return nil
}

// begin makes the unit's directory; done: it is there, and its launch is complete.
func (p *provider) begin(dir string, o fleet.Order) (done bool, err error) {
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	u, err := p.o.read(dir)
	switch {
	case err != nil:
		return false, err
	case u != nil && !u.gone.IsZero():
		return false, fmt.Errorf("local: unit %s is being removed", o.Unit)
	case u != nil:
		return u.launched, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return false, err
	}
	made, err := os.MkdirTemp(parent, making)
	if err != nil {
		return false, err
	}
	err = writeJSON(made, unitFile, record{
		Coordinator: p.t.Coordinator, Workspace: p.t.Workspace, Runtime: p.t.Spec.ID, Unit: o.Unit, Job: o.Job, Attempt: o.Attempt, Note: o.Note,
		CPU: o.CPU, MemoryMB: o.MemoryMB, GPU: o.GPU, Deadline: o.Deadline,
	})
	if err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		return false, errors.Join(err, os.RemoveAll(made))
	}
	return false, syncDir(parent)
}

// complete gives the unit its token or payload, and what it is started with.
func (p *provider) complete(dir string, o fleet.Order, doc []byte) error {
	work := p.o.workOf(p.dir, o.Unit)
	variable, file := "EVERDICT_JOIN_TOKEN_FILE", tokenFile
	if o.Payload != nil {
		variable, file = "EVERDICT_PAYLOAD_FILE", payloadFile
	}
	s := start{Args: p.o.cfg.Runner, Deadline: o.Deadline, Kill: p.o.cfg.Drain + killSlack, Env: []string{
		"EVERDICT_API_URL=" + p.o.cfg.URL,
		variable + "=" + filepath.Join(dir, file),
		"EVERDICT_DRAIN_TIMEOUT=" + p.o.cfg.Drain.String(),
		"EVERDICT_RUNNER_DIR=" + work,
		"EVERDICT_HIDE=" + strings.Join(p.o.cfg.Hide, string(os.PathListSeparator)),
		"EVERDICT_SHARED_MACHINE=true",
	}}
	for name, value := range o.Env {
		s.Env = append(s.Env, name+"="+value)
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	u, err := p.o.read(dir)
	switch {
	case err != nil:
		return err
	case u == nil || !u.gone.IsZero():
		return errors.New("it was removed meanwhile")
	case u.launched:
		return nil
	}
	return errors.Join(writeFile(dir, file, doc), writeJSON(dir, startFile, &s))
}

// Forget implements fleet.Provider: no keeper starts a runner twice, and the runner removes
// its payload itself.
func (p *provider) Forget(context.Context, string) error { return nil }

// List implements fleet.Provider.
func (p *provider) List(ctx context.Context) ([]fleet.Unit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	short := p.o.settle()
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	units, err := p.o.readTarget(p.dir)
	if err != nil {
		return nil, err
	}
	var all []fleet.Unit
	for _, u := range units {
		all = append(all, u.state(p.o.host, short[u.dir]))
	}
	return all, nil
}

// Terminate implements fleet.Provider. A unit that runs is told to end, and seen until
// nothing of it runs any more.
func (p *provider) Terminate(_ context.Context, unit string) error {
	dir, err := p.at(unit)
	if err != nil {
		return err
	}
	p.o.mu.Lock()
	u, err := p.o.read(dir)
	if err == nil && u != nil && u.gone.IsZero() {
		err = writeFile(dir, goneFile, nil)
	}
	p.o.mu.Unlock()
	if err != nil || u == nil {
		return err
	}
	p.o.settle()
	p.o.changed()
	return nil
}

// Output implements fleet.Provider: what the runner printed, after the end of what it
// logged, as far as both fit.
func (p *provider) Output(_ context.Context, unit string, limit int64) ([]byte, error) {
	dir, err := p.at(unit)
	if err != nil {
		return nil, err
	}
	printed, err := tail(filepath.Join(dir, outFile), limit)
	if err != nil || int64(len(printed)) >= limit {
		return printed, err
	}
	logged, err := tail(filepath.Join(dir, logFile), limit-int64(len(printed))-1)
	if len(logged) > 0 && logged[len(logged)-1] != '\n' {
		logged = append(logged, '\n')
	}
	return append(logged, printed...), err
}

// tail is the end of a bounded file and of what was before it.
func tail(path string, limit int64) ([]byte, error) {
	var all []byte
	for _, name := range []string{path, path + before} {
		left := limit - int64(len(all))
		if left <= 0 {
			break
		}
		b, err := end(name, left)
		if err != nil {
			return nil, err
		}
		all = append(b, all...)
	}
	return all, nil
}

// end is the end of a file; none if it is not there.
func end(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-limit)
	return io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
}

// Inspect implements fleet.Provider.
func (p *provider) Inspect(ctx context.Context) (protocol.Inspection, error) {
	detail, err := p.Probe(ctx)
	if err != nil {
		return protocol.Inspection{}, err
	}
	units, err := p.List(ctx)
	if err != nil {
		return protocol.Inspection{}, err
	}
	c := capacity()
	in := protocol.Inspection{Kind: protocol.RuntimeLocal, Reachable: true, Detail: detail, Warnings: []string{},
		Nodes: &protocol.InspectNodes{Total: 1, Ready: 1, Items: []protocol.InspectNode{{
			Name: p.o.host, Status: "ready", Ready: true, Schedulable: true, CPUTotal: int64(c.cpu), MemoryMBTotal: int64(c.memoryMB), GPUTotal: int64(c.gpu),
			OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernel(),
		}}}}
	fleet.Show(&in, p.t, units, "", "process")
	return in, nil
}

// watchPause is how often units that are there are looked at. The end of those whose
// keeper this process has started is seen at once.
const watchPause = 250 * time.Millisecond

// Watch implements fleet.Provider.
func (p *provider) Watch(ctx context.Context, changed func()) error {
	kicked := make(chan struct{}, 1)
	p.o.mu.Lock()
	p.o.watches++
	id := p.o.watches
	p.o.watchers[id] = func() {
		select {
		case kicked <- struct{}{}:
		default:
		}
	}
	p.o.mu.Unlock()
	defer func() {
		p.o.mu.Lock()
		defer p.o.mu.Unlock()
		delete(p.o.watchers, id)
	}()
	changed()
	var last []fleet.Unit
	for {
		units, err := p.List(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(units, last) {
			last = units
			changed()
		}
		// Without units, what changes comes from this process.
		var later <-chan time.Time
		if len(units) > 0 {
			later = time.After(watchPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-kicked:
		case <-later:
		}
	}
}
