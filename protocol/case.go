package protocol

import (
	"encoding/json"
	"slices"
	"strings"
)

// Case is one task for an agent, the environment it works in and the graders
// that judge what it did.
type Case struct {
	ID         string       `json:"id"`
	Env        EnvSpec      `json:"env"`
	Task       string       `json:"task"`
	Expected   *string      `json:"expected,omitempty"`
	Milestones []Milestone  `json:"milestones,omitempty"`
	Graders    []GraderSpec `json:"graders"`
	Image      string       `json:"image,omitempty"`
	// TimeoutSec bounds the running time of the harness; frozen and suspended
	// time does not count. Default 1800.
	TimeoutSec int `json:"timeoutSec"`
	// IdleTimeoutSec ends a harness that prints nothing for so long; 0 is off.
	IdleTimeoutSec int        `json:"idleTimeoutSec,omitempty"`
	Tags           []string   `json:"tags"`
	Placement      *Placement `json:"placement,omitempty"`
	Resources      *Resources `json:"resources,omitempty"`
	Network        *Network   `json:"network,omitempty"`
	// Approval "before-start" parks the run until a person approves it.
	Approval string `json:"approval,omitempty"`
}

// ApprovalBeforeStart is the one value of Case.Approval besides none.
const ApprovalBeforeStart = "before-start"

// Milestone is a named step that a judge can look for.
type Milestone struct {
	ID          string `json:"id"`
	Description string `json:"description"`
}

// Environment kinds.
const (
	EnvRepo   = "repo"
	EnvPrompt = "prompt"
)

// EnvSpec is the environment of a case. Kind repo: Source, Setup. Kind prompt:
// Context.
type EnvSpec struct {
	Kind    string      `json:"kind"`
	Source  *RepoSource `json:"source,omitempty"`
	Setup   []string    `json:"setup,omitempty"`
	Context string      `json:"context,omitempty"`
}

// RepoSource says where the files of a repo environment come from; exactly one
// of Files, Git and Path is set.
type RepoSource struct {
	// Files maps a relative slash path to its content. An empty map is an empty
	// repository.
	Files map[string]string `json:"files,omitzero"`
	// Git is a clone URL, Ref a branch, a tag or a full commit id.
	Git string `json:"git,omitempty"`
	Ref string `json:"ref,omitempty"`
	// Path is a directory on the runner's machine; it is copied.
	Path string `json:"path,omitempty"`
}

// GraderSpec names a grader and its configuration.
type GraderSpec struct {
	ID        string          `json:"id"`
	Config    json.RawMessage `json:"config,omitempty"`
	Authority string          `json:"authority,omitempty"`
	Direction string          `json:"direction,omitempty"`
	Metrics   []MetricSpec    `json:"metrics,omitempty"`
}

// MetricSpec lets a grader's own metric join the verdict.
type MetricSpec struct {
	ID        string `json:"id"`
	Authority string `json:"authority,omitempty"`
	Direction string `json:"direction,omitempty"`
}

// Authorities of a metric, in the order in which a verdict asks them.
const (
	AuthorityGroundTruth   = "ground_truth"
	AuthorityObjective     = "objective"
	AuthorityJudge         = "judge"
	AuthorityObservational = "observational"
)

// Placement is a wish about where a case runs.
type Placement struct {
	Target    string `json:"target,omitempty"`
	OS        string `json:"os,omitempty"`
	Isolation string `json:"isolation,omitempty"`
}

// Resources is what a case or harness declares that it needs.
type Resources struct {
	// CPU is in millicores.
	CPU      int `json:"cpu,omitempty"`
	MemoryMB int `json:"memoryMb,omitempty"`
	GPU      int `json:"gpu,omitempty"`
}

// Network modes.
const (
	NetworkPublic    = "public"
	NetworkNone      = "none"
	NetworkAllowlist = "allowlist"
)

// Network is the network that a case allows. A lane that cannot enforce it
// refuses the case.
type Network struct {
	Mode         string   `json:"mode"`
	AllowedHosts []string `json:"allowedHosts,omitempty"`
}

// Normalize fills defaults.
func (c *Case) Normalize() {
	if c.TimeoutSec == 0 {
		c.TimeoutSec = DefaultTimeoutSec
	}
	if c.Graders == nil {
		c.Graders = []GraderSpec{}
	}
	if c.Tags == nil {
		c.Tags = []string{}
	}
}

// Validate reports everything that is wrong with the case as one BAD_REQUEST.
// Grader ids and configurations are checked by the graders themselves.
func (c *Case) Validate() error {
	var k checker
	c.check(&k, "case")
	return k.err()
}

func (c *Case) check(k *checker, path string) {
	k.name(path+".id", c.ID)
	c.Env.check(k, path+".env")
	if strings.TrimSpace(c.Task) == "" {
		k.add(path+".task", "is empty: say in a sentence what the agent has to do")
	}
	k.text(path+".task", c.Task)
	if c.TimeoutSec < 1 || c.TimeoutSec > MaxTimeoutSec {
		k.add(path+".timeoutSec", "want 1 to %d seconds, got %d", MaxTimeoutSec, c.TimeoutSec)
	}
	if c.IdleTimeoutSec < 0 || c.IdleTimeoutSec > MaxTimeoutSec {
		k.add(path+".idleTimeoutSec", "want 0 (off) to %d seconds, got %d", MaxTimeoutSec, c.IdleTimeoutSec)
	}
	if len(c.Graders) > MaxGraders {
		k.add(path+".graders", "has %d entries, the limit is %d", len(c.Graders), MaxGraders)
	}
	for i, g := range c.Graders {
		g.check(k, indexed(path+".graders", i))
	}
	if len(c.Tags) > MaxTags {
		k.add(path+".tags", "has %d entries, the limit is %d", len(c.Tags), MaxTags)
	}
	for i, t := range c.Tags {
		k.name(indexed(path+".tags", i), t)
	}
	if p := c.Placement; p != nil && p.OS != "" {
		k.oneOf(path+".placement.os", p.OS, "linux", "windows", "macos")
	}
	if r := c.Resources; r != nil {
		r.check(k, path+".resources")
	}
	if n := c.Network; n != nil {
		k.oneOf(path+".network.mode", n.Mode, NetworkPublic, NetworkNone, NetworkAllowlist)
		if len(n.AllowedHosts) > 0 && n.Mode != NetworkAllowlist {
			k.add(path+".network.allowedHosts", "goes with mode %q only", NetworkAllowlist)
		}
	}
	if c.Approval != "" {
		k.oneOf(path+".approval", c.Approval, ApprovalBeforeStart)
	}
}

func (e *EnvSpec) check(k *checker, path string) {
	k.text(path+".setup", e.Setup...)
	k.text(path+".context", e.Context)
	switch e.Kind {
	case EnvRepo:
		if e.Source == nil {
			k.add(path+".source", `is missing: give {"files":{...}}, {"git":...,"ref":...} or {"path":...}`)
			return
		}
		e.Source.check(k, path+".source")
	case EnvPrompt:
		if e.Source != nil || len(e.Setup) > 0 {
			k.add(path, "a prompt environment has no source and no setup")
		}
	case "":
		k.add(path+".kind", "is missing: want %q or %q", EnvRepo, EnvPrompt)
	default:
		k.add(path+".kind", "unknown environment %q: want %q or %q", Clip(e.Kind, 40), EnvRepo, EnvPrompt)
	}
}

func (s *RepoSource) check(k *checker, path string) {
	set := 0
	if s.Files != nil {
		set++
	}
	if s.Git != "" {
		set++
	}
	if s.Path != "" {
		set++
	}
	if set != 1 {
		k.add(path, "want exactly one of files, git and path, got %d", set)
		return
	}
	if s.Git == "" && s.Ref != "" {
		k.add(path+".ref", "goes with git only")
	}
	if s.Git != "" && !cloneURL(s.Git) {
		k.add(path+".git", "is not a clone URL: want https://, ssh://, git:// or file://, user@host:path, or a path")
	}
	if strings.HasPrefix(s.Ref, "-") || strings.ContainsAny(s.Ref, "\x00\n ") {
		k.add(path+".ref", "is not a branch, tag or commit")
	}
	k.text(path+".path", s.Path)
	for _, p := range slices.Sorted(mapKeys(s.Files)) {
		if err := CheckFilePath(p); err != nil {
			k.add(path+".files", "%s", err)
		} else if above, ok := fileAbove(s.Files, p); ok {
			k.add(path+".files", "%q lies below %q, which is a file", Clip(p, 80), Clip(above, 80))
		}
	}
}

// cloneURL reports whether s is a place to clone from: no option, no transport
// helper ("ext::sh -c ..."), no host that ssh would take for an option.
func cloneURL(s string) bool {
	if strings.HasPrefix(s, "-") || strings.ContainsAny(s, "\x00\n") {
		return false
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		host, _, _ := strings.Cut(s, "/")
		_, after, remote := strings.Cut(host, "@")
		return !strings.Contains(host, "::") && !(remote && strings.HasPrefix(after, "-"))
	}
	if !slices.Contains([]string{"http", "https", "ssh", "git", "file"}, strings.ToLower(scheme)) {
		return false
	}
	authority, _, _ := strings.Cut(rest, "/")
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	return !strings.HasPrefix(authority, "-") && !strings.HasPrefix(host, "-")
}

func (g *GraderSpec) check(k *checker, path string) {
	k.name(path+".id", g.ID)
	if g.Authority != "" {
		k.authority(path+".authority", g.Authority)
	}
	if g.Direction != "" {
		k.direction(path+".direction", g.Direction)
	}
	for i, m := range g.Metrics {
		at := indexed(path+".metrics", i)
		k.name(at+".id", m.ID)
		if m.Authority != "" {
			k.authority(at+".authority", m.Authority)
		}
		if m.Direction != "" {
			k.direction(at+".direction", m.Direction)
		}
	}
}

func (r *Resources) check(k *checker, path string) {
	if r.CPU < 0 {
		k.add(path+".cpu", "want millicores above 0, got %d", r.CPU)
	}
	if r.MemoryMB < 0 {
		k.add(path+".memoryMb", "want megabytes above 0, got %d", r.MemoryMB)
	}
	if r.GPU < 0 {
		k.add(path+".gpu", "want a count above 0, got %d", r.GPU)
	}
}

func (k *checker) authority(path, s string) {
	k.oneOf(path, s, AuthorityGroundTruth, AuthorityObjective, AuthorityJudge, AuthorityObservational)
}

func (k *checker) direction(path, s string) {
	k.oneOf(path, s, "higher_is_better", "lower_is_better", "neutral")
}

func (k *checker) oneOf(path, s string, allowed ...string) {
	if !slices.Contains(allowed, s) {
		k.add(path, "want one of %s, got %q", strings.Join(allowed, ", "), Clip(s, 40))
	}
}
