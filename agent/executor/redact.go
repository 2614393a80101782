package executor

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Where secrets are taken out, in the order in which data flows:
//
//   - what commands print: between the sandbox and everybody who reads it
//     (redactedCompute). So the log, the tails and heads that harnesses and graders
//     keep, and what they read out of it are masked before anything is cut: half a
//     secret cannot be found any more.
//   - progress of the environment, which no command printed: before the log (prepare).
//   - trace events, whose text can be written in any escapes: before the recorder (emit).
//   - changed files: before they enter the diff (environment, diff), and the diff once
//     more on its way out (collect).
//   - the result document, as the last thing (finish).
//
// Each wrapper is closed by who made it: an output by the command's end, progress by
// prepare, the diff by collect. The recorders behind them belong to the caller.

// credentialVariables are the host's variables whose value is a secret.
var credentialVariables = []string{"CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"}

// addressVariables are those whose value is an address, which can hold a password.
var addressVariables = append([]string{"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"}, proxyVariables...)

// Secrets returns what a job can know and its evidence may not show: the resolved
// values of its environment, the credentials among the variables that it inherits,
// and the password in the address of its source.
func Secrets(job *protocol.Job, environ []string) []redact.Secret {
	var out []redact.Secret
	for name, value := range job.Env {
		out = append(out, redact.Secret{Name: name, Value: value})
	}
	slices.SortFunc(out, func(a, b redact.Secret) int { return strings.Compare(a.Name, b.Name) })
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains(credentialVariables, name):
			out = append(out, redact.Secret{Name: name, Value: value})
		case slices.Contains(addressVariables, name):
			if !strings.Contains(value, "://") {
				value = "http://" + value // as a proxy may be written
			}
			if u, err := url.Parse(value); err == nil {
				out = append(out, password(name, u)...)
			}
		}
	}
	if s := job.Case.Env.Source; s != nil {
		out = append(out, sourceSecrets(s.Git)...)
	}
	return out
}

// sourceSecrets returns the secret in a clone URL: its password, or over HTTP the
// user's name when that stands alone, as tokens do.
func sourceSecrets(address string) []redact.Secret {
	const name = "GIT_SOURCE"
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return nil
	}
	if out := password(name, u); out != nil {
		return out
	}
	if u.Scheme == "http" || u.Scheme == "https" {
		return []redact.Secret{{Name: name, Value: u.User.Username()}}
	}
	return nil
}

// password returns the password in a URL, alone and with the user in front, as
// HTTP encodes them together.
func password(name string, u *url.URL) []redact.Secret {
	if u.User == nil {
		return nil
	}
	value, ok := u.User.Password()
	if !ok || value == "" {
		return nil
	}
	return []redact.Secret{{Name: name, Value: value}, {Name: name, Value: u.User.Username() + ":" + value}}
}

// emit records an event without its secrets.
func (x *execution) emit(ev protocol.TraceEvent) {
	x.a.Redact.Event(&ev)
	x.a.Trace.Emit(ev)
}

// redactedCompute masks what commands print.
type redactedCompute struct {
	sandbox.ComputeHandle
	red *redact.Redactor
}

// redacted returns compute with its commands' outputs masked; compute itself when
// there is nothing to mask.
func redacted(compute sandbox.ComputeHandle, red *redact.Redactor) sandbox.ComputeHandle {
	if red.Empty() {
		return compute
	}
	return &redactedCompute{ComputeHandle: compute, red: red}
}

// Exec implements sandbox.ComputeHandle.
func (c *redactedCompute) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	outputs := map[string]io.Closer{}
	wrap := func(stream string, w io.Writer) io.Writer {
		if w == nil {
			return nil
		}
		masked := c.red.Writer(w)
		outputs[stream] = masked
		return masked
	}
	if same(cmd.Stdout, cmd.Stderr) {
		cmd.Stdout = wrap(protocol.StreamStdout, cmd.Stdout)
		cmd.Stderr = cmd.Stdout
	} else {
		cmd.Stdout, cmd.Stderr = wrap(protocol.StreamStdout, cmd.Stdout), wrap(protocol.StreamStderr, cmd.Stderr)
	}
	p, err := c.ComputeHandle.Exec(ctx, cmd)
	if err != nil || len(outputs) == 0 {
		return p, err
	}
	r := &redactedProcess{Process: p, done: make(chan struct{})}
	go func() {
		<-p.Done()
		for stream, o := range outputs {
			if err := o.Close(); err != nil {
				r.err = errors.Join(r.err, &sandbox.OutputError{Stream: stream, Err: err})
			}
		}
		close(r.done)
	}()
	return r, nil
}

// same reports whether two outputs are one writer, which then shares one masking
// writer too; an incomparable writer is no reason to panic.
func same(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}

// redactedProcess has ended when what its outputs held back is written as well.
type redactedProcess struct {
	sandbox.Process
	done chan struct{}
	err  error // of the last writes; set before done is closed
}

// Done implements sandbox.Process.
func (p *redactedProcess) Done() <-chan struct{} { return p.done }

// Wait implements sandbox.Process.
func (p *redactedProcess) Wait() (sandbox.Exit, error) { return p.ended(p.Process.Wait()) }

// Stop implements sandbox.Process.
func (p *redactedProcess) Stop(ctx context.Context, ladder sandbox.Ladder) (sandbox.Exit, error) {
	return p.ended(p.Process.Stop(ctx, ladder))
}

func (p *redactedProcess) ended(exit sandbox.Exit, err error) (sandbox.Exit, error) {
	<-p.done
	if err == nil {
		err = p.err
	}
	return exit, err
}
