package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// Prober asks clusters with the clients that launches use.
type Prober struct {
	Opener      Opener
	Coordinator string
}

// Probe says whether a runtime's cluster answers and takes the credential. ctx bounds
// it; an error is ctx's.
func (p Prober) Probe(ctx context.Context, workspace string, spec *protocol.RuntimeSpec) (protocol.Probe, error) {
	answer := protocol.Probe{Kind: spec.Kind}
	provider, err := p.Opener.Open(ctx, Target{Coordinator: p.Coordinator, Workspace: workspace, Spec: spec})
	if err != nil {
		answer.Reason, answer.Detail = protocol.ProbeError, said(err)
		return answer, ctx.Err()
	}
	detail, err := provider.Probe(ctx)
	if err == nil {
		answer.Reachable, answer.Detail = true, detail
		return answer, nil
	}
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	answer.Reason, answer.Detail = reason(err)
	return answer, nil
}

// Inspect looks at a runtime's cluster; see Probe.
func (p Prober) Inspect(ctx context.Context, workspace string, spec *protocol.RuntimeSpec) (protocol.Inspection, error) {
	failed := func(reason, detail string) protocol.Inspection {
		return protocol.Inspection{Kind: spec.Kind, Reason: reason, Detail: detail, Warnings: []string{}}
	}
	provider, err := p.Opener.Open(ctx, Target{Coordinator: p.Coordinator, Workspace: workspace, Spec: spec})
	if err != nil {
		return failed(protocol.ProbeError, said(err)), ctx.Err()
	}
	in, err := provider.Inspect(ctx)
	if err != nil {
		return failed(reason(err)), ctx.Err()
	}
	return in, nil
}

// reason is why a cluster was not reached, with what may mend it.
func reason(err error) (reason, detail string) {
	var auth *AuthError
	var refused *RefusedError
	switch {
	case errors.As(err, &auth):
		return protocol.ProbeAuth, auth.Error() + ". Check " + auth.Credential
	case errors.As(err, &refused):
		return protocol.ProbeError, said(err)
	}
	return protocol.ProbeUnreachable, said(err)
}

// said is an error without the name of its package: who asked knows which cluster it is
// about.
func said(err error) string {
	before, rest, found := strings.Cut(err.Error(), ": ")
	if found && slices.Contains([]string{"kube", "nomad", "local"}, before) {
		return rest
	}
	return err.Error()
}
