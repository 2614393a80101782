package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// HarnessRef names a harness. Params, where given, are laid over the spec's own.
type HarnessRef struct {
	ID      string            `json:"id"`
	Version string            `json:"version"`
	Params  map[string]string `json:"params,omitempty"`
}

// String returns id@version.
func (r HarnessRef) String() string { return r.ID + "@" + r.Version }

// Latest is the version that means the highest registered one.
const Latest = "latest"

// Harness kinds.
const (
	HarnessProcess = "process"
	HarnessCommand = "command"
)

// Adapters that every runner has, for specs of kind process. A harness of such an
// id needs no registration.
const (
	AdapterScripted   = "scripted"
	AdapterClaudeCode = "claude-code"
	AdapterCodex      = "codex"
)

// Adapters lists them, for messages and checks.
func Adapters() []string { return []string{AdapterScripted, AdapterClaudeCode, AdapterCodex} }

// ScriptedParams are the parameters of the scripted agent, which carries out what it
// understands and does not look for others.
func ScriptedParams() []string { return []string{"script", "delay"} }

// AdapterName is the adapter of a spec of kind process.
func (h *HarnessSpec) AdapterName() string {
	if h.Adapter != "" {
		return h.Adapter
	}
	return h.ID
}

// HarnessSpec is a resolved harness: everything a runner needs to run it. Kind
// process names an adapter built into the runner (Adapter, or the id itself).
// Kind command is a command line with {{task}}, {{model}}, {{run_id}} and
// {{param}} placeholders.
type HarnessSpec struct {
	Kind        string              `json:"kind"`
	ID          string              `json:"id"`
	Version     string              `json:"version"`
	Description string              `json:"description,omitempty"`
	Adapter     string              `json:"adapter,omitempty"`
	Image       string              `json:"image,omitempty"`
	Resources   *Resources          `json:"resources,omitempty"`
	WorkDir     string              `json:"workDir,omitempty"`
	Setup       []string            `json:"setup,omitempty"`
	Command     string              `json:"command,omitempty"`
	Env         map[string]EnvValue `json:"env,omitempty"`
	Model       *ModelBinding       `json:"model,omitempty"`
	Params      map[string]string   `json:"params,omitempty"`
	Trace       *CommandTrace       `json:"trace,omitempty"`
	// Category is set on templates.
	Category string `json:"category,omitempty"`
}

// MarshalJSON writes a command harness with its defaults, as existing clients read
// it: setup, env and params that are empty, and a trace of kind none.
func (h HarnessSpec) MarshalJSON() ([]byte, error) {
	type plain HarnessSpec
	if h.Kind != HarnessCommand {
		return json.Marshal(plain(h))
	}
	full := struct {
		plain
		Setup  []string            `json:"setup"`
		Env    map[string]EnvValue `json:"env"`
		Params map[string]string   `json:"params"`
		Trace  CommandTrace        `json:"trace"`
	}{plain(h), h.Setup, h.Env, h.Params, CommandTrace{Kind: TraceNone}}
	if h.Setup == nil {
		full.Setup = []string{}
	}
	if h.Env == nil {
		full.Env = map[string]EnvValue{}
	}
	if h.Params == nil {
		full.Params = map[string]string{}
	}
	if h.Trace != nil {
		full.Trace = *h.Trace
	}
	if full.Trace.Kind == TraceFile && full.Trace.Path == "" {
		full.Trace.Path = DefaultTracePath
	}
	return json.Marshal(full)
}

// HarnessTemplate is a harness spec with a category, whose slots (image, model)
// instances pin.
type HarnessTemplate = HarnessSpec

// HarnessInstance is a template with pins and overrides. Resolved, it is a
// HarnessSpec.
type HarnessInstance struct {
	Template    HarnessRef         `json:"template"`
	ID          string             `json:"id"`
	Version     string             `json:"version"`
	Description string             `json:"description,omitempty"`
	Pins        map[string]string  `json:"pins,omitempty"`
	Overrides   *InstanceOverrides `json:"overrides,omitempty"`
}

// InstanceOverrides is laid over a template: maps are merged, UnsetEnv removes.
type InstanceOverrides struct {
	Env       map[string]EnvValue `json:"env,omitempty"`
	UnsetEnv  []string            `json:"unsetEnv,omitempty"`
	Params    map[string]string   `json:"params,omitempty"`
	Resources *Resources          `json:"resources,omitempty"`
}

// CommandTrace says where a command harness leaves its trace. Kind none: stdout
// is the answer. Kind file: Path, relative to the working directory, holds trace
// events as a JSON array or JSON lines. Kind claude-code or codex: stdout is
// that program's JSON stream.
type CommandTrace struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
}

// Kinds of CommandTrace.
const (
	TraceNone       = "none"
	TraceFile       = "file"
	TraceClaudeCode = "claude-code"
	TraceCodex      = "codex"
	// DefaultTracePath is where a file trace is looked for.
	DefaultTracePath = "everdict-trace.json"
)

// EnvValue is the value of an environment variable: a string, or a reference to
// a secret by name.
type EnvValue struct {
	Value  string
	Secret *SecretRef
}

// SecretRef names a secret. Scope SecretWorkspace is the workspace's, SecretUser
// that of whoever submits the run; without a scope it is the workspace's, and
// the submitter's own where the workspace has none of that name.
type SecretRef struct {
	SecretRef string `json:"secretRef"`
	Scope     string `json:"scope,omitempty"`
}

// MarshalJSON writes a string or a reference.
func (v EnvValue) MarshalJSON() ([]byte, error) {
	if v.Secret != nil {
		return json.Marshal(v.Secret)
	}
	return json.Marshal(v.Value)
}

// UnmarshalJSON reads a string or a reference; a reference with unknown keys is
// refused, since a misspelt scope would name another secret.
func (v *EnvValue) UnmarshalJSON(b []byte) error {
	*v = EnvValue{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &v.Value)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	v.Secret = new(SecretRef)
	if err := d.Decode(v.Secret); err != nil || v.Secret.SecretRef == "" {
		return fmt.Errorf(`an environment value is a string or {"secretRef": name, "scope": "workspace"|"user"}`)
	}
	return nil
}

// ModelBinding names a model: a plain string, or a reference to a registered
// model.
type ModelBinding struct {
	Name    string
	Ref     string
	Version string
}

type modelRef struct {
	Ref     string `json:"ref"`
	Version string `json:"version,omitempty"`
}

// MarshalJSON writes a string or a reference.
func (m ModelBinding) MarshalJSON() ([]byte, error) {
	if m.Ref != "" {
		return json.Marshal(modelRef{m.Ref, m.Version})
	}
	return json.Marshal(m.Name)
}

// UnmarshalJSON reads a string or a reference.
func (m *ModelBinding) UnmarshalJSON(b []byte) error {
	*m = ModelBinding{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &m.Name)
	}
	var r modelRef
	if err := json.Unmarshal(b, &r); err != nil || r.Ref == "" {
		return fmt.Errorf(`a model is a string or {"ref": id, "version": version}`)
	}
	m.Ref, m.Version = r.Ref, r.Version
	return nil
}

// String is what {{model}} becomes.
func (m *ModelBinding) String() string {
	switch {
	case m == nil:
		return ""
	case m.Ref != "":
		return m.Ref
	default:
		return m.Name
	}
}

// Validate reports everything that is wrong with a resolved spec as one
// BAD_REQUEST.
func (h *HarnessSpec) Validate() error {
	var k checker
	h.check(&k, "harness")
	return k.err()
}

func (h *HarnessSpec) check(k *checker, path string) {
	k.name(path+".id", h.ID)
	k.name(path+".version", h.Version)
	if h.Version == Latest {
		k.add(path+".version", "%q is what readers ask for: give a version of its own", Latest)
	}
	switch h.Kind {
	case HarnessProcess:
		if h.Command != "" {
			k.add(path+".command", "goes with kind %q", HarnessCommand)
		}
	case HarnessCommand:
		if h.Command == "" {
			k.add(path+".command", `is missing: give the command line, such as "my-agent {{task}}"`)
		}
	case "service":
		k.add(path+".kind", "service harnesses are not supported: want %q or %q", HarnessCommand, HarnessProcess)
	default:
		k.add(path+".kind", "unknown kind %q: want %q or %q", Clip(h.Kind, 40), HarnessCommand, HarnessProcess)
	}
	k.text(path+".command", h.Command)
	k.text(path+".setup", h.Setup...)
	k.texts(path+".params", h.Params)
	for name, v := range h.Env {
		k.text(path+".env."+Clip(name, 40), v.Value)
		if !validEnvName(name) {
			k.add(path+".env", "%q is not a variable name", Clip(name, 40))
		}
		if v.Secret != nil && v.Secret.Scope != "" {
			k.oneOf(path+".env."+name+".scope", v.Secret.Scope, SecretWorkspace, SecretUser)
		}
	}
	if h.Resources != nil {
		h.Resources.check(k, path+".resources")
	}
	if h.WorkDir != "" {
		if err := CheckFilePath(h.WorkDir); err != nil {
			k.add(path+".workDir", "%s", err)
		}
	}
	if t := h.Trace; t != nil {
		k.oneOf(path+".trace.kind", t.Kind, TraceNone, TraceFile, TraceClaudeCode, TraceCodex)
		if t.Path != "" {
			if err := CheckFilePath(t.Path); err != nil {
				k.add(path+".trace.path", "%s", err)
			}
		}
	}
}

func validEnvName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
