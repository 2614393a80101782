package fleet

import (
	"cmp"
	"context"
	"fmt"

	"github.com/everdict/everdict/protocol"
)

// Modes of Isolation.
const (
	// IsolationDeclared: a unit is enclosed as its runtime says.
	IsolationDeclared = "runtime-declared"
	// IsolationPerTenant: the units of each workspace have a namespace of their own on
	// their cluster, and a container runtime that encloses more than a plain one.
	IsolationPerTenant = "per-tenant"
)

// DefaultTrustZoneRuntime encloses units under IsolationPerTenant whose runtime names
// none.
const DefaultTrustZoneRuntime = "runsc"

// Isolation is the operator's policy on how the units of workspaces are kept apart, which
// the settings call trust zones. The zero value is IsolationDeclared.
type Isolation struct {
	Mode string
	// Runtime is what encloses units whose runtime names nothing, under
	// IsolationPerTenant.
	Runtime string
}

// Check says what is wrong with a policy.
func (i Isolation) Check() error {
	switch i.Mode {
	case "", IsolationDeclared, IsolationPerTenant:
	default:
		return fmt.Errorf("trust_zones is %q: want %s or %s", protocol.Clip(i.Mode, 40), IsolationDeclared, IsolationPerTenant)
	}
	if i.Mode == IsolationPerTenant && i.Runtime != "" && !protocol.Hardened(i.Runtime) {
		return fmt.Errorf("trust_zone_runtime is %q: want one of %v", protocol.Clip(i.Runtime, 40), protocol.HardenedRuntimes())
	}
	return nil
}

// Apply is a workspace's runtime as its units are launched under the policy. One that
// cannot meet it is a 400 that names it.
func (i Isolation) Apply(workspace string, spec *protocol.RuntimeSpec) (*protocol.RuntimeSpec, error) {
	if i.Mode != IsolationPerTenant || spec.Kind == protocol.RuntimeLocal {
		return spec, nil
	}
	refuse := func(format string, args ...any) error {
		return protocol.BadRequest("runtime %s does not meet this coordinator's trust zones, %s: %s", spec.ID, IsolationPerTenant, fmt.Sprintf(format, args...)).
			WithData("runtime", spec.ID).WithData("trustZones", IsolationPerTenant)
	}
	if spec.TaskDriver() == protocol.NomadRawExec {
		return nil, refuse("driver %s runs its jobs in no container; use driver %s", protocol.NomadRawExec, protocol.NomadDocker)
	}
	applied := *spec
	field, encloses := "runtimeClass", &applied.RuntimeClass
	if spec.Kind == protocol.RuntimeNomad {
		field, encloses = "runtime", &applied.Runtime
	}
	if *encloses == "" {
		*encloses = cmp.Or(i.Runtime, DefaultTrustZoneRuntime)
		if spec.Kind == protocol.RuntimeK8s && *encloses == "runsc" {
			*encloses = "gvisor" // as the class of runsc is called there
		}
	}
	if !protocol.Hardened(*encloses) {
		return nil, refuse("%s %s is none of %v; leave it out, or name one of them", field, *encloses, protocol.HardenedRuntimes())
	}
	own := "everdict-" + workspace
	switch {
	case !protocol.DNSLabel(own):
		return nil, refuse("the workspace would have the namespace %s, which no cluster can have; use a workspace named with small letters, digits and -, or machines that are paired", protocol.Clip(own, 80))
	case spec.Namespace != "" && spec.Namespace != own:
		return nil, refuse("namespace %s is not the workspace's own; leave it out, or name %s", protocol.Clip(spec.Namespace, 80), own)
	}
	applied.Namespace = own
	return &applied, nil
}

// Isolate makes an opener heed a policy.
func Isolate(o Opener, i Isolation) Opener { return isolated{o, i} }

type isolated struct {
	Opener
	isolation Isolation
}

// Open implements Opener.
func (o isolated) Open(ctx context.Context, t Target) (Provider, error) {
	spec, err := o.isolation.Apply(t.Workspace, t.Spec)
	if err != nil {
		return nil, err
	}
	t.Spec = spec
	return o.Opener.Open(ctx, t)
}

// Lacks implements Featured.
func (o isolated) Lacks(f Feature) string { return lacks(o.Opener, "of this cluster", f) }

// NotLaunched is where no runners are launched, why, and what to do about it.
type NotLaunched struct{ Where, Why, Instead string }

// Checker says what units cannot do, before there are any.
type Checker struct {
	Openers   map[string]Opener
	Isolation Isolation
	// NotLaunched says of kinds of runtimes why their runners are not launched; of those that
	// are not in it, they are.
	NotLaunched map[string]NotLaunched
}

// Spec says why the units of a runtime cannot be as its spec says; a 400.
func (c Checker) Spec(workspace string, spec *protocol.RuntimeSpec) error {
	if _, err := c.Isolation.Apply(workspace, spec); err != nil {
		return err
	}
	if not, none := c.NotLaunched[spec.Kind]; none && (spec.Warm > 0 || spec.IdleSeconds > 0 || spec.Payload) {
		return protocol.BadRequest("runtime %s: warm, idleSeconds and payload are about runners that the coordinator launches, and it launches none %s: %s",
			spec.ID, not.Where, not.Why).
			WithHint("%sleave them out: runners that you start yourself are ready as long as they run (everdict pools token create --runtime %s)", not.Instead, spec.ID)
	}
	opener := c.Openers[spec.Kind]
	if opener == nil || spec.IdleSeconds == 0 {
		return nil
	}
	if why := lacks(opener, spec.Kind, FeatureReuse); why != "" {
		return protocol.BadRequest("runtime %s: idleSeconds: its runners take one run each: %s", spec.ID, why).
			WithHint("leave idleSeconds out, or set it to 0; warm keeps runners ready without using them again")
	}
	return nil
}

// Network says why the units of a runtime do not hold the network mode that a case
// declares; a 400.
func (c Checker) Network(spec *protocol.RuntimeSpec, mode string) error {
	opener := c.Openers[spec.Kind]
	if opener == nil || mode == "" || mode == protocol.NetworkPublic {
		return nil
	}
	why := "units know no list of hosts"
	if mode == protocol.NetworkNone {
		if why = lacks(opener, spec.Kind, FeatureNoNetwork); why == "" {
			return nil
		}
	}
	return protocol.BadRequest("runtime %s does not hold network %q, which the case declares: %s", spec.ID, mode, why).
		WithHint("send it to a runner with Docker, or leave the network out").
		WithData("runtime", spec.ID).WithData("network", mode)
}
