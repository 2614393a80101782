package protocol

import (
	"cmp"
	"encoding/json"
	"iter"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Runtime kinds.
const (
	// RuntimeLocal has no cluster: its runners are processes of the coordinator's own
	// machine, where that launches them, and whoever joins the pool with a token.
	RuntimeLocal = "local"
	RuntimeNomad = "nomad"
	RuntimeK8s   = "k8s"
)

// Task drivers of runtimes of kind nomad.
const (
	NomadDocker  = "docker"
	NomadRawExec = "raw_exec"
)

// DefaultPoolConcurrent is how many runs the pool of a runtime takes at a time if
// its spec does not say.
const DefaultPoolConcurrent = 20

// RuntimeSpec is a registered place to run: a pool of runners with limits, and for
// the kinds nomad and k8s the cluster that has them. Fields that name a secret
// hold its name, never its value.
type RuntimeSpec struct {
	Kind         string   `json:"kind"`
	ID           string   `json:"id"`
	Version      string   `json:"version"`
	Description  string   `json:"description,omitempty"`
	Tags         []string `json:"tags"`
	Capabilities []string `json:"capabilities"`

	// MaxConcurrent runs, MemoryBudgetMB of declared memory and CPUBudget of declared
	// CPU, in thousandths of a core, at a time in the whole pool. Absent, the first is
	// DefaultPoolConcurrent and the others are no limit.
	MaxConcurrent  *int `json:"maxConcurrent,omitempty"`
	MemoryBudgetMB *int `json:"memoryBudgetMb,omitempty"`
	CPUBudget      *int `json:"cpuBudget,omitempty"`
	// Warm runners are kept ready, for runs that declare exactly WarmSize; absent, those
	// that declare nothing. IdleSeconds is how long a runner waits for its next run; 0: it
	// takes one run.
	Warm        int        `json:"warm,omitempty"`
	WarmSize    *Resources `json:"warmSize,omitempty"`
	IdleSeconds int        `json:"idleSeconds,omitempty"`
	// Payload gives a launched runner its run as a file: it begins without reaching the
	// coordinator, and where it never does, its result is read from its output.
	Payload     bool         `json:"payload,omitempty"`
	TraceSource *TraceSource `json:"traceSource,omitempty"`

	// Of nomad and k8s.
	Image                 string `json:"image,omitempty"`
	Namespace             string `json:"namespace,omitempty"`
	GPU                   *int   `json:"gpu,omitempty"`
	AuthSecret            string `json:"authSecret,omitempty"`
	BrowserImage          string `json:"browserImage,omitempty"`
	HostGatewayAddr       string `json:"hostGatewayAddr,omitempty"`
	ProvisionDependencies *bool  `json:"provisionDependencies,omitempty"`

	// Of nomad. Driver runs the runner: docker (the default) a container of Image,
	// raw_exec the program Command that each client has, as a process of the client's
	// user and without any enclosure.
	Addr          string       `json:"addr,omitempty"`
	Driver        string       `json:"driver,omitempty"`
	Command       string       `json:"command,omitempty"`
	Runtime       string       `json:"runtime,omitempty"`
	Datacenters   []string     `json:"datacenters,omitempty"`
	Constraints   []Constraint `json:"constraints,omitempty"`
	CPUMHzPerCore *int         `json:"cpuMhzPerCore,omitempty"`

	// Of k8s.
	Context          string            `json:"context,omitempty"`
	RuntimeClass     string            `json:"runtimeClass,omitempty"`
	Server           string            `json:"server,omitempty"`
	KubeconfigSecret string            `json:"kubeconfigSecret,omitempty"`
	NodeSelector     map[string]string `json:"nodeSelector,omitempty"`
	Tolerations      []Toleration      `json:"tolerations,omitempty"`
}

// Constraint narrows the clients of a Nomad cluster. Operator is "=" by default.
type Constraint struct {
	Attribute string `json:"attribute"`
	Operator  string `json:"operator,omitempty"`
	Value     string `json:"value,omitempty"`
}

// Toleration lets Pods onto tainted nodes.
type Toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// TraceSource is where the traces of services of a runtime are read.
type TraceSource struct {
	Kind            string          `json:"kind"`
	Endpoint        string          `json:"endpoint"`
	AuthSecret      string          `json:"authSecret,omitempty"`
	Correlate       string          `json:"correlate,omitempty"`
	CorrelateTag    string          `json:"correlateTag,omitempty"`
	Service         string          `json:"service,omitempty"`
	Project         string          `json:"project,omitempty"`
	Mapping         json.RawMessage `json:"mapping,omitempty"`
	ArtifactBaseURL string          `json:"artifactBaseUrl,omitempty"`
}

// FunctionalCapabilities are those that placement asks for.
func FunctionalCapabilities() []string { return slices.Clone(capabilities[:8]) }

// hardened are container runtimes that enclose more than a plain one.
var hardened = []string{"runsc", "gvisor", "kata", "kata-runtime", "firecracker", "fc"}

// HardenedRuntimes are the container runtimes that enclose more than a plain one.
func HardenedRuntimes() []string { return slices.Clone(hardened) }

// Hardened says whether a container runtime is one of HardenedRuntimes.
func Hardened(name string) bool { return slices.Contains(hardened, name) }

// SecretBinding is a secret of the workspace, what a runtime needs it for, and the
// address that is given it.
type SecretBinding struct {
	// Field is one of those of a SecretUse.
	Field string
	Name  string
	// Address is empty where the spec has none: a kubeconfig has its own inside.
	Address string
}

// ForCluster says whether the secret serves calls of the cluster's API, and so goes
// into no job.
func (b SecretBinding) ForCluster() bool {
	return b.Field == SecretUseClusterToken || b.Field == SecretUseKubeconfig
}

// SecretBindings yields what the spec needs secrets of the workspace for.
func (s *RuntimeSpec) SecretBindings() iter.Seq[SecretBinding] {
	return func(yield func(SecretBinding) bool) {
		if s.AuthSecret != "" && !yield(SecretBinding{SecretUseClusterToken, s.AuthSecret, cmp.Or(s.Addr, s.Server)}) {
			return
		}
		if s.KubeconfigSecret != "" && !yield(SecretBinding{Field: SecretUseKubeconfig, Name: s.KubeconfigSecret}) {
			return
		}
		if t := s.TraceSource; t != nil && t.AuthSecret != "" {
			yield(SecretBinding{SecretUseTraceAuth, t.AuthSecret, t.Endpoint})
		}
	}
}

// Limits are what the pool takes at a time.
func (s *RuntimeSpec) Limits() PoolLimits {
	l := PoolLimits{MaxConcurrent: DefaultPoolConcurrent}
	if s.MaxConcurrent != nil {
		l.MaxConcurrent = *s.MaxConcurrent
	}
	if s.MemoryBudgetMB != nil {
		l.MemoryBudgetMB = *s.MemoryBudgetMB
	}
	if s.CPUBudget != nil {
		l.CPUBudget = *s.CPUBudget
	}
	return l
}

// Validate fills defaults, adds the capabilities that follow from other fields,
// and reports everything that is wrong as one BAD_REQUEST.
func (s *RuntimeSpec) Validate() error {
	var k checker
	k.name("id", s.ID)
	switch {
	case s.ID == TargetAuto, s.ID == TargetSelf, strings.HasPrefix(s.ID, TargetSelfPrefix), strings.Contains(s.ID, ","):
		k.add("id", "%q would mean something else as the runtime of a run", Clip(s.ID, 40))
	case s.ID == RuntimeLocal && s.Kind != RuntimeLocal:
		k.add("id", "%q is for a runtime of kind %q", s.ID, RuntimeLocal)
	}
	k.name("version", s.Version)
	if s.Version == Latest {
		k.add("version", "%q is what readers ask for: give a version of its own", Latest)
	}
	if len(s.Description) > 1000 {
		k.add("description", "is longer than 1000 bytes")
	}
	if len(s.Tags) > MaxTags {
		k.add("tags", "has %d entries, the limit is %d", len(s.Tags), MaxTags)
	}
	for i, tag := range s.Tags {
		k.name(indexed("tags", i), tag)
	}
	for i, c := range s.Capabilities {
		if !KnownCapability(c) {
			k.add(indexed("capabilities", i), "unknown capability %q", Clip(c, 40))
		}
	}
	k.positive("maxConcurrent", s.MaxConcurrent)
	k.positive("memoryBudgetMb", s.MemoryBudgetMB)
	k.positive("cpuBudget", s.CPUBudget)
	s.checkReady(&k)
	s.checkKind(&k)
	if err := k.err(); err != nil {
		return err
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	s.Capabilities = s.derived()
	s.Constraints = slices.Clone(s.Constraints)
	for i := range s.Constraints {
		if s.Constraints[i].Operator == "" {
			s.Constraints[i].Operator = "="
		}
	}
	return nil
}

// MaxIdleSeconds is how long a runner can wait for its next run.
const MaxIdleSeconds = 3600

// checkReady checks what is said about runners that are kept ready or used again.
func (s *RuntimeSpec) checkReady(k *checker) {
	limits := s.Limits()
	switch {
	case s.Warm < 0:
		k.add("warm", "want 0 or more, got %d", s.Warm)
	case s.Warm > limits.MaxConcurrent && limits.MaxConcurrent > 0:
		k.add("warm", "%d are more than the %d that the pool may have at a time (maxConcurrent)", s.Warm, limits.MaxConcurrent)
	}
	if s.IdleSeconds < 0 || s.IdleSeconds > MaxIdleSeconds {
		k.add("idleSeconds", "want 0 to %d, got %d", MaxIdleSeconds, s.IdleSeconds)
	}
	if s.Payload && s.Warm > 0 {
		k.add("warm", "does not go with payload: a runner that is given its run as a file begins at once")
	}
	if s.Payload && s.IdleSeconds > 0 {
		k.add("idleSeconds", "does not go with payload: a payload is one run")
	}
	r := s.WarmSize
	if r == nil {
		return
	}
	if s.Warm == 0 {
		k.add("warmSize", "goes with warm, which is not there")
	}
	if r.CPU < 0 || r.MemoryMB < 0 || r.GPU < 0 {
		k.add("warmSize", "want whole numbers that are not below 0")
	}
	if most := limits.MemoryBudgetMB; most > 0 && s.Warm > 0 && r.MemoryMB > most/s.Warm {
		k.add("warmSize.memoryMb", "%d runners of %d MiB are more than memoryBudgetMb, %d", s.Warm, r.MemoryMB, most)
	}
	if most := limits.CPUBudget; most > 0 && s.Warm > 0 && r.CPU > most/s.Warm {
		k.add("warmSize.cpu", "%d runners of %d thousandths of a core are more than cpuBudget, %d", s.Warm, r.CPU, most)
	}
}

func (s *RuntimeSpec) checkKind(k *checker) {
	switch s.Kind {
	case RuntimeLocal, RuntimeNomad, RuntimeK8s:
	case "":
		k.add("kind", "is missing: want local, nomad or k8s")
		return
	case "docker":
		k.add("kind", "there is no kind docker any more: a machine with Docker is a runner; pair it (everdict runners pair) and send runs to self:<runner id>")
		return
	case "topology":
		k.add("kind", "there is no kind topology any more: register the cluster as nomad or k8s, with traceSource")
		return
	default:
		k.add("kind", "unknown kind %q: want local, nomad or k8s", Clip(s.Kind, 40))
		return
	}
	s.checkForeign(k)
	if s.Kind == RuntimeLocal {
		return
	}
	s.checkRunner(k)
	k.positive("gpu", s.GPU)
	k.secret("authSecret", s.AuthSecret)
	k.secret("kubeconfigSecret", s.KubeconfigSecret)
	if s.Kind == RuntimeK8s {
		s.checkAccess(k)
		if s.Namespace != "" && !DNSLabel(s.Namespace) {
			k.add("namespace", "want the name of a namespace: small letters, digits and -, a letter or digit first and last, at most 63")
		}
	}
	if s.Kind == RuntimeNomad {
		k.address("addr", s.Addr, true)
		k.positive("cpuMhzPerCore", s.CPUMHzPerCore)
		for i, c := range s.Constraints {
			if c.Attribute == "" {
				k.add(indexed("constraints", i)+".attribute", "is missing")
			}
		}
	}
	k.address("server", s.Server, false)
	for i, t := range s.Tolerations {
		at := indexed("tolerations", i)
		if t.Key == "" {
			k.add(at+".key", "is missing")
		}
		if t.Operator != "" {
			k.oneOf(at+".operator", t.Operator, "Exists", "Equal")
		}
		if t.Effect != "" {
			k.oneOf(at+".effect", t.Effect, "NoSchedule", "PreferNoSchedule", "NoExecute")
		}
	}
	if t := s.TraceSource; t != nil {
		k.oneOf("traceSource.kind", t.Kind, "otel", "mlflow", "langfuse", "langsmith", "phoenix")
		k.address("traceSource.endpoint", t.Endpoint, true)
		k.secret("traceSource.authSecret", t.AuthSecret)
		if t.Correlate != "" {
			k.oneOf("traceSource.correlate", t.Correlate, "id", "tag")
		}
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// DNSLabel says whether a name can be that of a namespace of Kubernetes.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
func DNSLabel(name string) bool { return dnsLabel.MatchString(name) }

// checkAccess refuses halves of ways into a Kubernetes cluster, which another way would
// silently take the place of. A whole way beside one that comes before it is none.
func (s *RuntimeSpec) checkAccess(k *checker) {
	switch {
	case s.AuthSecret != "" && s.Server == "" && s.KubeconfigSecret != "":
		k.add("authSecret", "is not used beside kubeconfigSecret, which has its own credential: leave it out, or name server and authSecret in place of kubeconfigSecret")
	case s.AuthSecret != "" && s.Server == "":
		k.add("authSecret", "is a token for server, which is not there: name server, the address of the cluster's API, or put both into a kubeconfig and name its secret in kubeconfigSecret")
	case s.AuthSecret == "" && s.Server != "" && s.KubeconfigSecret != "":
		k.add("server", "is not used beside kubeconfigSecret, which has its own: leave it out, or name server and authSecret in place of kubeconfigSecret")
	case s.AuthSecret == "" && s.Server != "" && s.Context != "":
		k.add("server", "would be asked without a credential, and context not be used: name authSecret with server, or leave out server or context")
	}
}

// checkRunner checks what the cluster starts: a container of an image, or a program
// that its machines have.
func (s *RuntimeSpec) checkRunner(k *checker) {
	if s.Kind == RuntimeNomad && s.Driver != "" {
		k.oneOf("driver", s.Driver, NomadDocker, NomadRawExec)
	}
	if s.TaskDriver() == NomadRawExec {
		if !path.IsAbs(s.Command) {
			k.add("command", "want the absolute path of job-runner on every client, such as /usr/local/bin/job-runner: driver raw_exec runs it")
		}
		if s.Image != "" {
			k.add("image", "goes with driver docker: raw_exec runs no image")
		}
		if s.Runtime != "" {
			k.add("runtime", "goes with driver docker: raw_exec encloses nothing")
		}
		return
	}
	if s.Command != "" && s.Kind == RuntimeNomad {
		k.add("command", "goes with driver raw_exec: a container runs what its image says")
	}
	if s.Image == "" {
		k.add("image", "is missing: the image of the runner that the cluster starts")
	} else if strings.ContainsAny(s.Image, " \t\r\n") {
		k.add("image", "contains white space")
	}
}

// TaskDriver is the Nomad driver that runs the runner; empty for other kinds.
func (s *RuntimeSpec) TaskDriver() string {
	if s.Kind != RuntimeNomad {
		return ""
	}
	return cmp.Or(s.Driver, NomadDocker)
}

// checkForeign refuses fields of another kind: a constraint that nobody heeds is
// worse than one that is refused.
func (s *RuntimeSpec) checkForeign(k *checker) {
	only := func(given bool, path string, kinds ...string) {
		if given && !slices.Contains(kinds, s.Kind) {
			k.add(path, "goes with kind %s, and this is %s", strings.Join(kinds, " or "), s.Kind)
		}
	}
	const nomad, k8s = RuntimeNomad, RuntimeK8s
	only(s.Image != "", "image", nomad, k8s)
	only(s.Namespace != "", "namespace", nomad, k8s)
	only(s.GPU != nil, "gpu", nomad, k8s)
	only(s.AuthSecret != "", "authSecret", nomad, k8s)
	only(s.TraceSource != nil, "traceSource", nomad, k8s)
	only(s.BrowserImage != "", "browserImage", nomad, k8s)
	only(s.HostGatewayAddr != "", "hostGatewayAddr", nomad, k8s)
	only(s.ProvisionDependencies != nil, "provisionDependencies", nomad, k8s)
	only(s.Addr != "", "addr", nomad)
	only(s.Driver != "", "driver", nomad)
	only(s.Command != "", "command", nomad)
	only(s.Runtime != "", "runtime", nomad)
	only(len(s.Datacenters) > 0, "datacenters", nomad)
	only(len(s.Constraints) > 0, "constraints", nomad)
	only(s.CPUMHzPerCore != nil, "cpuMhzPerCore", nomad)
	only(s.Context != "", "context", k8s)
	only(s.RuntimeClass != "", "runtimeClass", k8s)
	only(s.Server != "", "server", k8s)
	only(s.KubeconfigSecret != "", "kubeconfigSecret", k8s)
	only(len(s.NodeSelector) > 0, "nodeSelector", k8s)
	only(len(s.Tolerations) > 0, "tolerations", k8s)
}

// derived are the declared capabilities with those that follow from other fields.
func (s *RuntimeSpec) derived() []string {
	all := slices.Clone(s.Capabilities)
	if s.Kind != RuntimeLocal && s.TaskDriver() != NomadRawExec {
		all = append(all, CapDocker)
	}
	if Hardened(s.Runtime) || Hardened(s.RuntimeClass) {
		all = append(all, CapSandbox)
	}
	if s.TraceSource != nil {
		all = append(all, CapTopology)
	}
	if s.GPU != nil {
		all = append(all, CapGPU)
	}
	slices.Sort(all)
	if all = slices.Compact(all); all == nil {
		all = []string{}
	}
	return all
}

func (k *checker) positive(path string, n *int) {
	if n != nil && *n < 1 {
		k.add(path, "want a whole number above 0, got %d", *n)
	}
}

// secret checks the name of a secret. What is none may be the secret itself, and
// so is not repeated.
func (k *checker) secret(path, name string) {
	if name != "" && CheckSecretName(name) != nil {
		k.add(path, "want the name of a secret, not its value")
	}
}

// address checks the URL of a service. What is none is not repeated: it may carry
// a password.
func (k *checker) address(path, s string, required bool) {
	if s == "" {
		if required {
			k.add(path, "is missing: want an address such as https://cluster.internal:4646")
		}
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		k.add(path, "want a URL with http:// or https:// and a host")
	case u.User != nil:
		k.add(path, "carries a user name or password: put it into a secret and name that")
	}
}

// RuntimeRef names a version of a registered runtime; no version is the latest.
type RuntimeRef struct {
	ID      string `json:"id"`
	Version string `json:"version,omitempty"`
}

// RuntimeQuery is what validate and probe take: a whole spec, or the name of a
// registered one. It is a name if it has no key but id and version.
type RuntimeQuery struct {
	Ref  *RuntimeRef
	Spec *RuntimeSpec
	// Fault is why it could not be read, for validate to say; nil: it was. It is not in its
	// JSON.
	Fault error
}

// UnmarshalJSON reads either form.
func (q *RuntimeQuery) UnmarshalJSON(b []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return err
	}
	*q = RuntimeQuery{}
	_, named := keys["id"]
	for key := range keys {
		named = named && (key == "id" || key == "version")
	}
	if named {
		return json.Unmarshal(b, &q.Ref)
	}
	return json.Unmarshal(b, &q.Spec)
}

// MarshalJSON writes the form that is set.
func (q RuntimeQuery) MarshalJSON() ([]byte, error) {
	if q.Ref != nil {
		return json.Marshal(q.Ref)
	}
	return json.Marshal(q.Spec)
}

// RuntimeEntry is a runtime in a list. Capabilities are those of the latest
// version.
type RuntimeEntry struct {
	ID            string              `json:"id"`
	Versions      []string            `json:"versions"`
	Owner         string              `json:"owner"`
	VersionTags   map[string][]string `json:"versionTags,omitempty"`
	Capabilities  []string            `json:"capabilities,omitempty"`
	Kind          string              `json:"kind"`
	LatestVersion string              `json:"latestVersion"`
	CreatedBy     string              `json:"createdBy,omitempty"`
	UpdatedAt     Time                `json:"updatedAt"`
}

// RuntimeValidation is the answer of POST /runtimes/validate. MissingSecrets is
// nil if the spec names no secret, and empty if all that it names are there. Warnings
// name what registering would ignore.
type RuntimeValidation struct {
	Validation
	MissingSecrets *[]string `json:"missingSecrets,omitempty"`
	Warnings       []string  `json:"warnings,omitempty"`
}

// Reasons of a Probe that did not reach its cluster.
const (
	ProbeAuth        = "auth"
	ProbeUnreachable = "unreachable"
	ProbeError       = "error"
)

// Probe says whether a runtime's cluster answers. Reason is empty if it does, or if
// it could not be asked at all.
type Probe struct {
	Kind      string `json:"kind"`
	Reachable bool   `json:"reachable"`
	Detail    string `json:"detail"`
	Reason    string `json:"reason,omitempty"`
}
