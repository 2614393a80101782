package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// provider is a cluster as one runtime uses it.
type provider struct {
	cfg        Config
	t          fleet.Target
	client     *api.Client
	namespace  string
	credential string

	mu sync.Mutex
	// jobs is what Watch keeps current; nil while it does not.
	jobs map[string]*job
	// began is when a unit was first seen running, by this process's clock; late are
	// those that were stopped at their deadline, removed those that Terminate was
	// called for.
	began         map[string]time.Time
	late, removed map[string]bool
}

var _ fleet.Provider = (*provider)(nil)

func (p *provider) read(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{}).WithContext(ctx)
}

func (p *provider) write(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{}).WithContext(ctx)
}

// Launch implements fleet.Provider: a job without an allocation, then the variable with
// the token, then the job goes. A launch that was cut off is found without one. Each
// registration is bound to the version before it, so that none makes a job that
// somebody has removed meanwhile.
func (p *provider) Launch(ctx context.Context, o fleet.Order) error {
	if err := p.check(o); err != nil {
		return err
	}
	index, err := p.register(ctx, newJob(&p.cfg, p.t, o, true), 0)
	if conflict(err) {
		var there *api.Job
		if there, err = p.own(ctx, o.Unit); err != nil {
			return err
		}
		switch {
		case there == nil:
			return &fleet.RefusedError{Cause: fleet.CauseStart, Message: fmt.Sprintf("a job %s is there already, and is not this coordinator's", o.Unit)}
		case there.Meta[metaLaunching] == "":
			return nil
		}
		index = *there.JobModifyIndex
	}
	if err != nil {
		return err
	}
	doc, err := o.Document(ctx)
	if err != nil {
		return err
	}
	whole := newJob(&p.cfg, p.t, o, false)
	_, _, err = p.client.Variables().Create(&api.Variable{Namespace: p.namespace, Path: variable(o.Unit, whole.Meta), Items: api.VariableItems{tokenItem: string(doc)}}, p.write(ctx))
	if err != nil {
		return p.err("write the variable of the unit", err)
	}
	if _, err = p.register(ctx, whole, index); conflict(err) {
		// Whoever removed the job did not see the variable.
		if there, gone := p.own(ctx, o.Unit); there == nil && gone == nil {
			err = errors.Join(err, p.unset(ctx, o.Unit, whole.Meta))
		}
		err = fmt.Errorf("nomad: launch %s: somebody else has changed its job: %w", o.Unit, err)
	}
	return err
}

// check refuses what no cluster of this runtime can run.
func (p *provider) check(o fleet.Order) error {
	if err := o.TooLarge(payloadLimit, "a variable of Nomad"); err != nil {
		return err
	}
	for f, wanted := range map[fleet.Feature]bool{fleet.FeatureReuse: o.Reused, fleet.FeatureNoNetwork: o.Network == protocol.NetworkNone} {
		if wanted {
			return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: string(f) + ": " + lacks(f)}
		}
	}
	if p.t.Spec.TaskDriver() == protocol.NomadRawExec {
		if o.Image == "" {
			return nil
		}
		return &fleet.RefusedError{Cause: fleet.CauseImage, Message: fmt.Sprintf(
			"runtime %s runs its runner as a process (driver %s), and the job names the image %s: send it to a runtime with driver %s",
			p.t.Spec.ID, protocol.NomadRawExec, o.Image, protocol.NomadDocker)}
	}
	for _, image := range []string{p.t.Spec.Image, o.Image} {
		if image == "" {
			continue
		}
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			return &fleet.RefusedError{Cause: fleet.CauseImage, Message: fmt.Sprintf("%q is no name of an image: %v", image, err)}
		}
	}
	return nil
}

// register writes a job if it is as index says; 0: if it is not there. A job that the
// cluster would never take is told apart by asking it what it thinks of it.
func (p *provider) register(ctx context.Context, j *api.Job, index uint64) (uint64, error) {
	done, _, err := p.client.Jobs().RegisterOpts(j, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: index}, p.write(ctx))
	if err == nil {
		return done.JobModifyIndex, nil
	}
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) && !conflict(err) && answer.StatusCode() != http.StatusForbidden {
		said, _, invalid := p.client.Jobs().Validate(j, p.write(ctx))
		switch {
		case invalid == nil && said.Error != "":
			return 0, &fleet.RefusedError{Cause: fleet.CauseStart, Message: said.Error}
		case strings.Contains(answer.Body(), "nonexistent namespace"):
			return 0, &fleet.RefusedError{Cause: fleet.CausePolicy, Message: answer.Body()}
		}
	}
	return 0, p.err("register the job", err)
}

// conflict says that a job was not as a registration wanted it.
func conflict(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Enforcing job modify index")
}

// own is a job of the target; nil if there is none of that name, or another's.
func (p *provider) own(ctx context.Context, unit string) (*api.Job, error) {
	j, _, err := p.client.Jobs().Info(unit, p.read(ctx))
	if status(err) == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, p.err("read the job", err)
	}
	if !ours(p.t, j.Meta) {
		return nil, nil
	}
	return j, nil
}

// Terminate implements fleet.Provider. A unit that runs is stopped, and seen until its
// process has ended; the look that sees that removes it.
func (p *provider) Terminate(ctx context.Context, unit string) error {
	j, err := p.own(ctx, unit)
	if err != nil || j == nil {
		return err
	}
	p.mu.Lock()
	p.removed[unit] = true
	p.mu.Unlock()
	allocs, _, err := p.client.Jobs().Allocations(unit, false, p.read(ctx))
	if err != nil {
		return p.err("list the allocations", err)
	}
	if finished(allocs) {
		return p.purge(ctx, unit, j.Meta)
	}
	return p.stop(ctx, unit, false)
}

// stop ends what runs of a unit, and with purge forgets its job.
func (p *provider) stop(ctx context.Context, unit string, purge bool) error {
	_, _, err := p.client.Jobs().Deregister(unit, purge, p.write(ctx))
	if status(err) == http.StatusNotFound {
		err = nil
	}
	return p.err("stop the job", err)
}

// Forget implements fleet.Provider. A second allocation, which Nomad makes where the first
// was lost or stopped, waits for the variable and never has it.
func (p *provider) Forget(ctx context.Context, unit string) error {
	j, err := p.own(ctx, unit)
	if err != nil || j == nil {
		return err
	}
	return p.unset(ctx, unit, j.Meta)
}

// purge forgets a unit and its variable.
func (p *provider) purge(ctx context.Context, unit string, meta map[string]string) error {
	if err := p.unset(ctx, unit, meta); err != nil {
		return err
	}
	return p.stop(ctx, unit, true)
}

// unset removes the variable of a unit.
func (p *provider) unset(ctx context.Context, unit string, meta map[string]string) error {
	_, err := p.client.Variables().Delete(variable(unit, meta), p.write(ctx))
	if status(err) == http.StatusNotFound {
		err = nil
	}
	return p.err("remove the variable of the unit", err)
}

const (
	// logPatience is how long the log of a task that has started may be nowhere, as it
	// is for a moment after the start and after a restart of the client.
	logPatience = 5 * time.Second
	logPause    = 200 * time.Millisecond
)

// Output implements fleet.Provider: what the runner printed, after the end of what it
// logged, as far as both fit.
func (p *provider) Output(ctx context.Context, unit string, limit int64) ([]byte, error) {
	j, err := p.own(ctx, unit)
	if err != nil || j == nil {
		return nil, err
	}
	allocs, _, err := p.client.Jobs().Allocations(unit, false, p.read(ctx))
	if err != nil {
		return nil, p.err("list the allocations", err)
	}
	a := instance(allocs)
	if a == nil || !started(a) {
		return nil, nil
	}
	printed, err := p.log(ctx, a.ID, "stdout", limit)
	if err != nil || int64(len(printed)) >= limit {
		return printed, err
	}
	logged, err := p.log(ctx, a.ID, "stderr", limit-int64(len(printed))-1)
	if len(logged) > 0 && logged[len(logged)-1] != '\n' {
		logged = append(logged, '\n')
	}
	return append(logged, printed...), err
}

// log is the end of a stream of a task. It goes through the server that is asked: the
// API's own client would dial the node, at an address of the cluster's choice.
func (p *provider) log(ctx context.Context, alloc, stream string, limit int64) ([]byte, error) {
	if limit <= 0 {
		return nil, nil
	}
	q := url.Values{"task": {runner}, "type": {stream}, "plain": {"true"}, "origin": {"end"}, "offset": {strconv.FormatInt(limit, 10)}}
	patience := time.NewTimer(logPatience)
	defer patience.Stop()
	for {
		body, err := p.client.Raw().Response("/v1/client/fs/logs/"+alloc+"?"+q.Encode(), p.read(ctx))
		if err == nil {
			defer body.Close()
			out, err := io.ReadAll(io.LimitReader(body, limit))
			return out, p.err("read the output", err)
		}
		if status(err) != http.StatusNotFound {
			return nil, p.err("read the output", err)
		}
		select {
		case <-ctx.Done():
			return nil, p.err("read the output", err)
		case <-patience.C:
			return nil, p.err("read the output", err)
		case <-time.After(logPause):
		}
	}
}

// status is the HTTP code of an answer that was an error; 0: there was none.
func status(err error) int {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode()
	}
	return 0
}

// err says what an error of the cluster means; nil stays nil.
func (p *provider) err(action string, err error) error {
	if err == nil {
		return nil
	}
	switch code := status(err); {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &fleet.AuthError{Credential: p.credential, Err: fmt.Errorf("%s: %w", action, err)}
	case code >= 300 && code < 400:
		return fmt.Errorf("nomad: %s: %s answers with a redirection, which is not followed: it would take the token along", action, p.t.Spec.Addr)
	}
	if foreign(err) {
		return fmt.Errorf("nomad: %s: what answers is no Nomad server", action)
	}
	return fmt.Errorf("nomad: %s: %w", action, err)
}

// foreign says that an error comes of an answer that Nomad does not give, and may quote it.
func foreign(err error) bool {
	var form *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var number *strconv.NumError
	var instant *time.ParseError
	return errors.As(err, &form) || errors.As(err, &kind) || errors.As(err, &number) || errors.As(err, &instant)
}
