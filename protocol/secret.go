package protocol

import (
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Scopes of a secret: everybody's in the workspace, or one person's own.
const (
	SecretWorkspace = "workspace"
	SecretUser      = "user"
)

// SecretPlain is the kind of a secret whose value was given as it is.
const SecretPlain = "plain"

// MaxSecretBytes is the longest value of a secret: Linux takes 128 KiB for one
// variable of an environment, its name included, and others take less.
const MaxSecretBytes = 64 << 10

// SecretRequest is the body of PUT /secrets/{name}. Whatever prints it shows the
// length of the value.
type SecretRequest struct {
	Value string `json:"value"`
	// Scope is SecretWorkspace (default) or SecretUser.
	Scope string `json:"scope,omitempty"`
}

// String implements fmt.Stringer.
func (r SecretRequest) String() string {
	return fmt.Sprintf("a value of %d bytes for the %s", len(r.Value), r.Scope)
}

// GoString implements fmt.GoStringer.
func (r SecretRequest) GoString() string { return r.String() }

// LogValue implements slog.LogValuer.
func (r SecretRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }

// Validate fills the default scope and reports everything that is wrong, without
// a word of the value.
func (r *SecretRequest) Validate() error {
	var k checker
	if r.Scope == "" {
		r.Scope = SecretWorkspace
	}
	k.oneOf("scope", r.Scope, SecretWorkspace, SecretUser)
	switch {
	case r.Value == "":
		k.add("value", "is missing or empty; a secret that is not needed any more is deleted")
	case len(r.Value) > MaxSecretBytes:
		k.add("value", "has %d bytes, the limit is %d", len(r.Value), MaxSecretBytes)
	case strings.ContainsRune(r.Value, 0):
		k.add("value", "contains a NUL byte, which no environment can hold")
	case strings.ContainsRune(r.Value, '\uFFFD'):
		// What JSON makes of bytes that are no text: the value would not be what was meant.
		k.add("value", "is not text: give binary values in base64")
	}
	return k.err()
}

// secretName is what the name of a secret looks like.
var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// CheckSecretName is a 400 for what cannot be the name of a secret.
func CheckSecretName(name string) error {
	if len(name) > MaxNameBytes || !secretName.MatchString(name) {
		return BadRequest("the name of a secret has letters, digits, '_' and '-', and begins with a letter or '_'; at most %d of them", MaxNameBytes).
			WithHint("such as DEPLOY_TOKEN")
	}
	return nil
}

// Secret is a secret as it is listed: never its value.
type Secret struct {
	Name      string `json:"name"`
	UpdatedAt Time   `json:"updatedAt"`
	Scope     string `json:"scope"`
	Kind      string `json:"kind"`
}

// SecretUsage is a secret with whatever refers to it.
type SecretUsage struct {
	Secret
	Refs []SecretUse `json:"refs"`
}

// Kinds and fields of a SecretUse.
const (
	SecretUseHarness      = "harness"
	SecretUseRuntime      = "runtime"
	SecretUseEnv          = "env"
	SecretUseClusterToken = "cluster-token"
	SecretUseKubeconfig   = "kubeconfig"
	SecretUseTraceAuth    = "trace-auth"
)

// SecretUse is one thing that refers to a secret. Label names it for people.
type SecretUse struct {
	Kind       string `json:"kind"`
	Field      string `json:"field"`
	Label      string `json:"label"`
	ResourceID string `json:"resourceId,omitempty"`
	Version    string `json:"version,omitempty"`
	// Detail says where in it, such as the variable.
	Detail string `json:"detail,omitempty"`
	// By is who registered it; it is not shown.
	By string `json:"-"`
}

// String is the reference in one word: NAME, or user:NAME for one's own.
func (r SecretRef) String() string {
	if r.Scope == SecretUser {
		return SecretUser + ":" + r.SecretRef
	}
	return r.SecretRef
}

// SecretEnv yields the variables of the harness whose values are secrets, in
// order.
func (h *HarnessSpec) SecretEnv() iter.Seq2[string, SecretRef] {
	return func(yield func(string, SecretRef) bool) {
		for _, variable := range slices.Sorted(maps.Keys(h.Env)) {
			if ref := h.Env[variable].Secret; ref != nil && !yield(variable, *ref) {
				return
			}
		}
	}
}
