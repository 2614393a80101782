package api

import (
	"reflect"

	"github.com/swaggest/jsonschema-go"

	"github.com/everdict/everdict/protocol"
)

// wording is what the OpenAPI document says of a field that a request can have.
type wording struct {
	text string
	// enum is what the field, or for a list each of its elements, may be.
	enum []string
}

// wordings are by the type of a document and the name of its field. A test holds
// them complete for whatever a body can hold.
var wordings = map[reflect.Type]map[string]wording{
	reflect.TypeFor[protocol.RunRequest](): {
		"harness":    {text: "the agent that works on the case"},
		"case":       {text: "the task, where it is done and how it is judged"},
		"runtime":    {text: "where to run: self, self:ws, self:<runner id>, the id of a runtime, several of them with commas (the one with the fewest runs gets it), or auto (default), which is any pool of the workspace that can run it"},
		"trigger":    {text: "a label of one's own to filter runs by"},
		"priority":   {"the scheduling class; default interactive", []string{protocol.ClassInteractive, protocol.ClassBatch}},
		"origin":     {text: "what caused the run"},
		"webhookUrl": {text: "not supported: a request with one is refused"},
		"meterUsage": {text: "not supported: true gets a warning, and usage is what the harness's own trace says"},
		"judge":      {text: "not supported: gets a warning, because no grader asks a model"},
		"teamId":     {text: "not supported: gets a warning, because there are no teams"},
	},
	reflect.TypeFor[protocol.PayloadRequest](): {
		"expiresInSec": {text: "how long the payload may be out, in seconds; default 86400 (a day), at most 604800. A run whose result is not there by then has failed"},
	},
	reflect.TypeFor[protocol.PayloadDelivery](): {
		"result": {text: "the result: the JSON after __EVERDICT_RESULT__ in what job-runner printed"},
	},
	reflect.TypeFor[protocol.HarnessRef](): {
		"id":      {text: "a registered harness, or one that is built in: scripted, claude-code, codex"},
		"version": {text: "a version, or latest (default)"},
		"params":  {text: "parameters, laid over those of the harness"},
	},
	reflect.TypeFor[protocol.Origin](): {
		"cause":         {"what kind of thing it was", []string{"member", "schedule", "event", "run", "ci", "api"}},
		"actor":         {text: "who did it: set by the coordinator from the credential"},
		"executor":      {text: "what did it for them"},
		"scheduleId":    {text: "the schedule that was due"},
		"eventId":       {text: "the event that came"},
		"eventKind":     {text: "the kind of that event"},
		"causedByRunId": {text: "the run that submitted this one"},
	},
	reflect.TypeFor[protocol.Case](): {
		"id":             {text: "a name for the case: 1 to 200 printable characters without / or \\"},
		"env":            {text: "what the agent starts with"},
		"task":           {text: "what the agent has to do"},
		"expected":       {text: "the answer that graders such as answer-match compare with"},
		"milestones":     {text: "named steps that a judge can look for"},
		"graders":        {text: "what judges the outcome; none: no verdict"},
		"image":          {text: "the container image to run in; empty: the runner's default sandbox"},
		"timeoutSec":     {text: "how long the agent may run; default 1800"},
		"idleTimeoutSec": {text: "how long it may be silent; 0 (default): as long as it runs"},
		"tags":           {text: "labels of one's own"},
		"placement":      {text: "a wish about the machine"},
		"resources":      {text: "what the case needs"},
		"network":        {text: `the network that the agent may use, such as {"mode": "none"}; a runner that cannot enforce it refuses the case`},
		"approval":       {"before-start parks the run until a person approves it", []string{protocol.ApprovalBeforeStart}},
	},
	reflect.TypeFor[protocol.Milestone](): {
		"id":          {text: "its name"},
		"description": {text: "how it shows"},
	},
	reflect.TypeFor[protocol.EnvSpec](): {
		"kind":    {"repo: a repository to work in; prompt: a question to answer", []string{protocol.EnvRepo, protocol.EnvPrompt}},
		"source":  {text: "of a repo: where its files come from"},
		"setup":   {text: "of a repo: command lines that prepare it"},
		"context": {text: "of a prompt: what the agent is told before its task"},
	},
	reflect.TypeFor[protocol.RepoSource](): {
		"files": {text: "content by relative path; {} is an empty repository. Exactly one of files, git and path is given"},
		"git":   {text: "a URL to clone"},
		"ref":   {text: "with git: a branch, a tag or a full commit id"},
		"path":  {text: "a directory on the runner's machine, which is copied"},
	},
	reflect.TypeFor[protocol.GraderSpec](): {
		"id":        {text: "a grader: tests-pass, command, script-score, script, reward-file, answer-match, text-metric, steps, cost or latency"},
		"config":    {text: "an object that this grader knows; keys that it does not know are refused"},
		"authority": {"how much its scores count in the verdict", authorities},
		"direction": {"what is better", directions},
		"metrics":   {text: "the same for single metrics of it"},
	},
	reflect.TypeFor[protocol.MetricSpec](): {
		"id":        {text: "the metric"},
		"authority": {"how much it counts in the verdict", authorities},
		"direction": {"what is better", directions},
	},
	reflect.TypeFor[protocol.Placement](): {
		"target":    {text: "as runtime of the run, which comes first"},
		"os":        {"the system that the machine has to have", []string{"linux", "windows", "macos"}},
		"isolation": {text: "kept in the record"},
	},
	reflect.TypeFor[protocol.Resources](): {
		"cpu":      {text: "in thousandths of a core"},
		"memoryMb": {text: "in MiB"},
		"gpu":      {text: "how many GPUs"},
	},
	reflect.TypeFor[protocol.Network](): {
		"mode":         {"public: any; none: none; allowlist: allowedHosts only", []string{protocol.NetworkPublic, protocol.NetworkNone, protocol.NetworkAllowlist}},
		"allowedHosts": {text: "with the mode allowlist: host names"},
	},
	reflect.TypeFor[protocol.HarnessSpec](): {
		"kind":        {"command: a command line; process: an adapter built into every runner", []string{protocol.HarnessCommand, protocol.HarnessProcess}},
		"id":          {text: "its name"},
		"version":     {text: "a version never changes once it is registered; not latest"},
		"description": {text: "for people"},
		"adapter":     {"of kind process: which one; default the id", protocol.Adapters()},
		"image":       {text: "the container image that it runs in"},
		"resources":   {text: "what it needs"},
		"workDir":     {text: "where it starts, relative to the workspace"},
		"setup":       {text: "command lines that run before it"},
		"command":     {text: `of kind command: the command line, with {{task}}, {{model}}, {{run_id}} and the params by name, such as "my-agent {{task}}"`},
		"env":         {text: "variables: text, or a reference to a secret"},
		"model":       {text: "what {{model}} becomes"},
		"params":      {text: "defaults of the placeholders"},
		"trace":       {text: "where a command leaves its trace"},
		"category":    {text: "of a template: what kind of agent it is"},
	},
	reflect.TypeFor[protocol.CommandTrace](): {
		"kind": {"none: stdout is the answer; file: path holds trace events; else stdout is that program's stream",
			[]string{protocol.TraceNone, protocol.TraceFile, protocol.TraceClaudeCode, protocol.TraceCodex}},
		"path": {text: "of kind file: relative to the working directory; default " + protocol.DefaultTracePath},
	},
	reflect.TypeFor[protocol.SecretRef](): {
		"secretRef": {text: "the secret's name"},
		"scope":     {"whose it is; default: the workspace's, else the submitter's own", []string{protocol.SecretWorkspace, protocol.SecretUser}},
	},
	reflect.TypeFor[modelReference](): {
		"ref":     {text: "a registered model"},
		"version": {text: "its version"},
	},
	reflect.TypeFor[protocol.HarnessInstance](): {
		"template":    {text: "the template; its version latest is resolved when the instance is registered"},
		"id":          {text: "its name"},
		"version":     {text: "a version never changes once it is registered; not latest"},
		"description": {text: "for people"},
		"pins":        {text: "values for the template's slots: image, model"},
		"overrides":   {text: "what is laid over the template"},
	},
	reflect.TypeFor[protocol.InstanceOverrides](): {
		"env":       {text: "laid over the template's"},
		"unsetEnv":  {text: "variables of the template to leave out"},
		"params":    {text: "laid over the template's"},
		"resources": {text: "in place of the template's"},
	},
	reflect.TypeFor[protocol.PinsRequest](): {
		"pins":      {text: "values for the slots: image, model"},
		"version":   {text: "the version to make"},
		"base":      {text: "the version to start from; default latest"},
		"allowTags": {text: "take an image without a digest, which may change under its name"},
	},
	reflect.TypeFor[protocol.Tags](): {
		"tags": {text: "all of them: what is not here is removed"},
	},
	reflect.TypeFor[protocol.RuntimeSpec](): {
		"kind":                  {"local: no cluster, and runners that the coordinator launches on its own machine where it may; nomad and k8s: a cluster", []string{protocol.RuntimeLocal, protocol.RuntimeNomad, protocol.RuntimeK8s}},
		"id":                    {text: "its name, which a run gives as its runtime"},
		"version":               {text: "a version never changes once it is registered; not latest"},
		"description":           {text: "for people"},
		"tags":                  {text: "labels of one's own"},
		"capabilities":          {"what its runners offer; what follows from other fields (docker, sandbox, topology, gpu) is added", protocol.Capabilities()},
		"maxConcurrent":         {text: "runs at a time in the whole pool; default 20"},
		"memoryBudgetMb":        {text: "MiB of declared memory at a time in the whole pool; none: no limit"},
		"cpuBudget":             {text: "thousandths of a core of declared CPU at a time in the whole pool; none: no limit"},
		"warm":                  {text: "runners to keep ready; refused where the coordinator launches none"},
		"warmSize":              {text: "what runs must declare, exactly, to go to a runner that is kept ready; absent: nothing"},
		"idleSeconds":           {text: "how long a runner waits for its next run; 0 (default): it takes one run; refused where the coordinator launches none"},
		"payload":               {text: "a launched runner is given its run as a file, begins without reaching the coordinator, and its result is read from its output if it never does; refused where the coordinator launches none"},
		"traceSource":           {text: "of nomad and k8s: where the traces of services beside a run would be read; kept with the spec and offered as the capability topology, not used: no services are started"},
		"image":                 {text: "of nomad and k8s: the image of the runner that the cluster starts"},
		"namespace":             {text: "of nomad and k8s: the namespace there"},
		"gpu":                   {text: "of nomad and k8s: GPUs of a runner"},
		"authSecret":            {text: "of nomad and k8s: the name of the secret with the token for the cluster's API"},
		"browserImage":          {text: "of nomad and k8s: the image of browsers for services; kept with the spec, not used: no services are started"},
		"hostGatewayAddr":       {text: "of nomad and k8s: the address of the host as services would see it; kept with the spec, not used: no services are started"},
		"provisionDependencies": {text: "of nomad and k8s: start what services depend on; kept with the spec, not used: no services are started"},
		"addr":                  {text: "of nomad: the address of its API"},
		"driver":                {"of nomad: how the runner is run, in a container (default) or as a process of the client", []string{protocol.NomadDocker, protocol.NomadRawExec}},
		"command":               {text: "of nomad with raw_exec, in place of image: the path of job-runner on the clients"},
		"runtime":               {text: "of nomad: the container runtime, such as runsc"},
		"datacenters":           {text: "of nomad: where to run; default: all"},
		"constraints":           {text: "of nomad: which clients may run it"},
		"cpuMhzPerCore":         {text: "of nomad: what a core is in MHz; without it, declared parts of cores are rounded up to whole ones"},
		"context":               {text: "of k8s: the context of the kubeconfig"},
		"runtimeClass":          {text: "of k8s: the runtime class of the Pods, such as gvisor"},
		"server":                {text: "of k8s: the address of its API"},
		"kubeconfigSecret":      {text: "of k8s: the name of the secret with a kubeconfig; it comes before server and context"},
		"nodeSelector":          {text: "of k8s: labels that a node must have"},
		"tolerations":           {text: "of k8s: taints that are no hindrance"},
	},
	reflect.TypeFor[protocol.Constraint](): {
		"attribute": {text: "such as ${attr.kernel.name}"},
		"operator":  {text: "default ="},
		"value":     {text: "what the attribute is compared with"},
	},
	reflect.TypeFor[protocol.Toleration](): {
		"key":      {text: "the taint's key"},
		"operator": {"default Equal", []string{"Exists", "Equal"}},
		"value":    {text: "with Equal: the taint's value"},
		"effect":   {"none: every effect", []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}},
	},
	reflect.TypeFor[protocol.TraceSource](): {
		"kind":            {"what keeps them", []string{"otel", "mlflow", "langfuse", "langsmith", "phoenix"}},
		"endpoint":        {text: "its address"},
		"authSecret":      {text: "the name of the secret with its token"},
		"correlate":       {"how a run's trace is found; default id", []string{"id", "tag"}},
		"correlateTag":    {text: "with correlate tag: which"},
		"service":         {text: "the service's name there"},
		"project":         {text: "the project there"},
		"mapping":         {text: "which attributes mean what"},
		"artifactBaseUrl": {text: "where artifacts that a trace names lie"},
	},
	reflect.TypeFor[protocol.RuntimeRef](): {
		"id":      {text: "a registered runtime"},
		"version": {text: "a version, or latest (default)"},
	},
	reflect.TypeFor[protocol.PoolTokenRequest](): {
		"runtime":      {text: "the registered runtime whose pool machines join with the token"},
		"label":        {text: "what the token is for"},
		"expiresInSec": {text: "how long it is good, up to 366 days; default 30 days"},
	},
	reflect.TypeFor[protocol.JoinRequest](): {
		"label": {text: "a name to show for the machine"},
		"os":    {text: "its operating system"},
	},
	reflect.TypeFor[protocol.PairRequest](): {
		"label":        {text: "a name to show for the machine"},
		"os":           {text: "its operating system"},
		"capabilities": {text: "what it offers, such as git and docker; it reports the same itself when it connects"},
	},
	reflect.TypeFor[protocol.PairingRequest](): {
		"label":        {text: "a name to show for the machine"},
		"os":           {text: "its operating system"},
		"arch":         {text: "its processor"},
		"hostname":     {text: "its name in its network"},
		"version":      {text: "the version of the program that asks"},
		"capabilities": {text: "what it offers, such as git and docker"},
		"publicKey":    {text: "the public half of its device key: 32 bytes of Ed25519 in base64url without padding"},
		"challenge":    {text: "the SHA-256 of its verifier in base64url without padding"},
		"callback":     {text: "where the browser brings the grant; none: the machine asks until it is approved"},
		"code":         {text: "a pair code (prc_...), from a link of the dashboard"},
		"number":       {text: "with code: the two digits that the dashboard shows. A wrong number spoils the code"},
	},
	reflect.TypeFor[protocol.PairingCallback](): {
		"port":  {text: "the port on 127.0.0.1 of the machine"},
		"state": {text: "comes back with the grant: 16 to 128 characters of base64url"},
	},
	reflect.TypeFor[protocol.PairingLookup](): {
		"userCode": {text: "the eight letters that the machine shows; case, spaces and hyphens do not matter"},
	},
	reflect.TypeFor[protocol.PairingRedeem](): {
		"verifier": {text: "what the challenge was made of"},
		"grant":    {text: "the grant (pgc_...) that came to the callback; none without a callback"},
		"proof":    {text: "a signature with the device key: Ed25519 in base64url over the line everdict pairing v1, the line of the request's id, and the grant"},
	},
	reflect.TypeFor[protocol.SessionRequest](): {
		"apiKey": {text: "the API key (ak_...) that the session acts for"},
	},
	reflect.TypeFor[protocol.TenantKeyRequest](): {
		"workspace": {text: "it exists by having a key"},
	},
	reflect.TypeFor[protocol.KeyRequest](): {
		"label":   {text: "what the key is for"},
		"subject": {text: "who it acts as; without it whoever asks. Another's is made by an admin"},
		"role":    {"none above that of the key that asks; without it the same, and for another member", []string{protocol.RoleViewer, protocol.RoleMember, protocol.RoleAdmin}},
		"scopes":  {"none above those of the key that asks, and without them the same as its own", []string{protocol.ScopeRead, protocol.ScopeWrite, protocol.ScopeAdmin}},
	},
	reflect.TypeFor[protocol.SecretRequest](): {
		"value": {text: "the value: text of at most 64 KiB. It is kept sealed and never shown again"},
		"scope": {"whose it is; default workspace", []string{protocol.SecretWorkspace, protocol.SecretUser}},
	},
	reflect.TypeFor[protocol.Decision](): {
		"comment": {text: "what the run, and whoever reads its record, is told"},
	},
}

var (
	authorities = []string{protocol.AuthorityGroundTruth, protocol.AuthorityObjective, protocol.AuthorityJudge, protocol.AuthorityObservational}
	directions  = []string{"higher_is_better", "lower_is_better", "neutral"}
)

// describeWording puts the wordings into the schema of a field.
func describeWording(p jsonschema.InterceptPropParams) {
	parent := p.ParentSchema.ReflectType
	if parent == nil {
		return
	}
	w, known := wordings[indirect(parent)][p.Name]
	if !known {
		return
	}
	p.PropertySchema.WithDescription(w.text)
	if len(w.enum) == 0 {
		return
	}
	values := make([]any, len(w.enum))
	for i, v := range w.enum {
		values[i] = v
	}
	if items := p.PropertySchema.Items; items != nil && items.SchemaOrBool != nil && items.SchemaOrBool.TypeObject != nil {
		items.SchemaOrBool.TypeObject.WithEnum(values...)
		return
	}
	p.PropertySchema.WithEnum(values...)
}
