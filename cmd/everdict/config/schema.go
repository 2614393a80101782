package config

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/everdict/everdict/agent/lanes"
)

// Kind is the type of a key's value.
type Kind int

// The kinds. A List is written a,b,c in flags and variables, and as a sequence
// or the same string in YAML.
const (
	String Kind = iota
	Int
	Bool
	Duration
	List
)

func (k Kind) String() string {
	return [...]string{"a string", "a whole number", "true or false", "a duration such as 90s or 5m", "a list such as a,b"}[k]
}

// Key is one setting. Its value comes from the flag, else the variable, else the
// YAML file, else the default.
type Key struct {
	// Name is the path in the YAML file, with dots between levels.
	Name string
	// Flag is the name of the command-line flag, without dashes; empty when a
	// value must not stand in argv.
	Flag string
	// Env is the name of the environment variable.
	Env  string
	Kind Kind
	// Default in the form of a flag.
	Default string
	// Secret values are masked wherever configuration is shown.
	Secret bool
	// Help is one line, lower case, without a full stop.
	Help string
}

// Names of the keys.
const (
	APIURL    = "api_url"
	APIKey    = "api_key"
	Tenant    = "tenant"
	CAFile    = "ca_file"
	LogLevel  = "log_level"
	LogFormat = "log_format"

	DataDir           = "coordinator.data_dir"
	InternalToken     = "coordinator.internal_token"
	SecretsKey        = "coordinator.secrets_key"
	SecretsOldKeys    = "coordinator.secrets_old_keys"
	Listen            = "coordinator.listen"
	RequireAuth       = "coordinator.require_auth"
	InsecureListen    = "coordinator.insecure_listen_without_auth"
	DebugSocket       = "coordinator.debug_socket"
	SessionIdle       = "coordinator.session_idle"
	SessionLife       = "coordinator.session_life"
	TrustedProxies    = "coordinator.trusted_proxies"
	PairingDeviceCode = "coordinator.pairing_device_code"
	LeaseTTL          = "coordinator.lease_ttl"
	Heartbeat         = "coordinator.heartbeat"
	FreezeMargin      = "coordinator.freeze_margin"
	StartAck          = "coordinator.start_ack"
	OnlineWindow      = "coordinator.online_window"
	QueueDeadline     = "coordinator.queue_deadline"
	Aging             = "coordinator.aging"
	MaxAttempts       = "coordinator.max_attempts"
	PoolMaxConcurrent = "coordinator.pool_max_concurrent"

	RunnerURL           = "coordinator.runner_url"
	KubeHostNetwork     = "coordinator.kube_host_network"
	KubeImagePullPolicy = "coordinator.kube_image_pull_policy"
	KubeUser            = "coordinator.kube_user"
	KubeNetworkPolicy   = "coordinator.kube_network_policy"
	NomadHostNetwork    = "coordinator.nomad_host_network"
	NomadUser           = "coordinator.nomad_user"
	LocalUnits          = "coordinator.local_units"
	TrustZones          = "coordinator.trust_zones"
	TrustZoneRuntime    = "coordinator.trust_zone_runtime"
	PendingTimeout      = "coordinator.pending_timeout"

	Pair          = "runner.pair"
	PoolToken     = "runner.pool_token"
	ExitWhenIdle  = "runner.exit_when_idle"
	RunnerScope   = "runner.scope"
	MaxConcurrent = "runner.max_concurrent"
	WorkDir       = "runner.work_dir"
	StateDir      = "runner.state_dir"
	Capabilities  = "runner.capabilities"
	DrainTimeout  = "runner.drain_timeout"
	Sandbox       = "runner.sandbox"
	HideFiles     = "runner.hide_files"
	RosterDir     = "runner.roster_dir"

	Image            = "runner.image"
	DockerRuntime    = "runner.docker_runtime"
	ContainerNetwork = "runner.container_network"
	ReadOnlyRoot     = "runner.read_only_root"
	AllowEmulation   = "runner.allow_emulation"
	Warm             = "runner.warm"
	PassProxy        = "runner.pass_proxy"
	PassCA           = "runner.pass_ca"
)

// PairEnv and PoolTokenEnv are the variables that can hold the pairing token and
// the pool token.
const (
	PairEnv      = "EVERDICT_RUNNER_TOKEN"
	PoolTokenEnv = "EVERDICT_POOL_TOKEN"
)

// Schema is every key there is, in the order in which it is shown. home is the
// user's home directory, below which the defaults of directories lie; getenv
// gives XDG_DATA_HOME and XDG_STATE_HOME.
func Schema(home string, getenv func(string) string) []Key {
	data := userDir(home, getenv("XDG_DATA_HOME"), ".local/share")
	state := userDir(home, getenv("XDG_STATE_HOME"), ".local/state")
	return []Key{
		{APIURL, "api-url", "EVERDICT_API_URL", String, "http://127.0.0.1:8787", false, "address of the coordinator"},
		{APIKey, "", "EVERDICT_API_KEY", String, "", true, "API key (ak_...), or file:PATH of one; never a flag"},
		{Tenant, "tenant", "EVERDICT_TENANT", String, "default", false, "workspace, where the coordinator runs without login"},
		{CAFile, "ca-file", "EVERDICT_CA_FILE", String, "", false, "PEM file of certificates to trust beside the system's"},
		{LogLevel, "log-level", "EVERDICT_LOG_LEVEL", String, "info", false, "debug, info, warn or error"},
		{LogFormat, "log-format", "EVERDICT_LOG_FORMAT", String, "text", false, "text or json"},

		{DataDir, "data-dir", "EVERDICT_DATA_DIR", String, filepath.Join(data, "everdict"), false, "directory of the database and the evidence"},
		{InternalToken, "", "EVERDICT_INTERNAL_TOKEN", String, "", true, "the operator's token, or file:PATH of it: whoever has it makes admins of any workspace; empty: nobody does; never a flag"},
		{SecretsKey, "", "EVERDICT_SECRETS_KEY", String, "", true, "32 bytes in base64 that seal the secrets, or file:PATH of them; empty: the file secrets.key in the data directory; never a flag"},
		{SecretsOldKeys, "", "EVERDICT_SECRETS_OLD_KEYS", List, "", true, "keys that sealed secrets before, as secrets_key: at the start those are sealed anew"},
		{Listen, "listen", "EVERDICT_LISTEN", String, "127.0.0.1:8787", false, "address to listen on"},
		{RequireAuth, "require-auth", "EVERDICT_REQUIRE_AUTH", Bool, "false", false, "refuse requests without an API key"},
		{InsecureListen, "insecure-listen-without-auth", "EVERDICT_INSECURE_LISTEN_WITHOUT_AUTH", Bool, "false", false, "listen beyond loopback although everybody who reaches the address can run commands here"},
		{DebugSocket, "debug-socket", "EVERDICT_DEBUG_SOCKET", String, "", false, "path of a Unix socket, for this user alone, that serves profiles of the coordinator; empty: none"},
		{SessionIdle, "session-idle", "EVERDICT_SESSION_IDLE", Duration, "12h", false, "how long a browser that does nothing stays signed in"},
		{SessionLife, "session-life", "EVERDICT_SESSION_LIFE", Duration, "168h", false, "how long a browser stays signed in whatever it does"},
		{TrustedProxies, "trusted-proxies", "EVERDICT_TRUSTED_PROXIES", List, "127.0.0.0/8,::1/128", false, "addresses of reverse proxies whose X-Forwarded headers are believed"},
		{PairingDeviceCode, "pairing-device-code", "EVERDICT_PAIRING_DEVICE_CODE", Bool, "true", false, "machines without a browser may be paired by a code that somebody types in"},
		{LeaseTTL, "lease-ttl", "EVERDICT_LEASE_TTL", Duration, "60s", false, "how long a runner holds a run without a heartbeat"},
		{Heartbeat, "heartbeat", "EVERDICT_HEARTBEAT", Duration, "10s", false, "how often a runner reports"},
		{FreezeMargin, "freeze-margin", "EVERDICT_FREEZE_MARGIN", Duration, "10s", false, "how long before the end of its lease a runner that cannot renew freezes the run"},
		{StartAck, "start-ack", "EVERDICT_START_ACK", Duration, "30s", false, "how long a runner may take to say that it started a run"},
		{OnlineWindow, "online-window", "EVERDICT_ONLINE_WINDOW", Duration, "30s", false, "how long after its last word a runner counts as online"},
		{QueueDeadline, "queue-deadline", "EVERDICT_QUEUE_DEADLINE", Duration, "24h", false, "how long a run may wait before it fails as unschedulable"},
		{Aging, "aging", "EVERDICT_AGING", Duration, "60s", false, "wait after which a batch run counts as interactive"},
		{MaxAttempts, "max-attempts", "EVERDICT_MAX_ATTEMPTS", Int, "3", false, "attempts of a run whose runner is lost"},
		{PoolMaxConcurrent, "pool-max-concurrent", "EVERDICT_POOL_MAX_CONCURRENT", Int, "20", false, "runs at a time in the pool of the coordinator's own runners; a paired machine is bounded by its slots"},
		{RunnerURL, "runner-url", "EVERDICT_RUNNER_URL", String, "", false, "address at which runners on clusters find this coordinator; empty: none are launched"},
		{KubeHostNetwork, "kube-host-network", "EVERDICT_KUBE_HOST_NETWORK", Bool, "false", false, "launched Pods are in their node's network"},
		{KubeImagePullPolicy, "kube-image-pull-policy", "EVERDICT_KUBE_IMAGE_PULL_POLICY", String, "", false, "Always, IfNotPresent or Never, for launched Pods; empty: the cluster's own choice"},
		{KubeUser, "kube-user", "EVERDICT_KUBE_USER", Int, "20250", false, "user id that launched Pods run as; -1: the image's own"},
		{KubeNetworkPolicy, "kube-network-policy", "EVERDICT_KUBE_NETWORK_POLICY", List, "", false, "the clusters enforce network policies, and see this coordinator at these ranges of addresses, such as 10.0.0.7/32; empty: network none is refused"},
		{NomadHostNetwork, "nomad-host-network", "EVERDICT_NOMAD_HOST_NETWORK", Bool, "false", false, "containers launched on Nomad are in their client's network"},
		{NomadUser, "nomad-user", "EVERDICT_NOMAD_USER", Int, "20250", false, "user id that containers launched on Nomad run as; -1: the image's own"},
		{LocalUnits, "local-units", "EVERDICT_LOCAL_UNITS", String, "auto", false, "launch the runners of runtimes of kind local on this machine, as the user of the coordinator: on, off, or auto (everdict up that listens on this machine alone)"},
		{TrustZones, "trust-zones", "EVERDICT_TRUST_ZONES", String, "runtime-declared", false, "how launched runners of workspaces are kept apart: runtime-declared, or per-tenant (a namespace and a hardened container runtime for each)"},
		{TrustZoneRuntime, "trust-zone-runtime", "EVERDICT_TRUST_ZONE_RUNTIME", String, "runsc", false, "container runtime under per-tenant for runtimes that name none"},
		{PendingTimeout, "pending-timeout", "EVERDICT_PENDING_TIMEOUT", Duration, "10m", false, "how long a launched runner may wait for what its cluster lacks (a place, a quota, a registry) before the attempt is over"},

		{Pair, "pair", PairEnv, String, "", true, "alone: pair this machine by a code that you type in on the coordinator's page; or a pairing token: - (stdin), file:PATH, fd:N, or the token itself (with a warning); empty: as it was paired before"},
		{PoolToken, "pool-token", PoolTokenEnv, String, "", true, "in place of a pairing: join a runtime's pool with this token: - (stdin), file:PATH, fd:N, env, or the token itself (with a warning)"},
		{MaxConcurrent, "max-concurrent", "EVERDICT_MAX_CONCURRENT", Int, "1", false, "runs at a time on this machine"},
		{WorkDir, "work-dir", "EVERDICT_WORK_DIR", String, "", false, "where runs get their directories; empty: below the cache directory"},
		{StateDir, "state-dir", "EVERDICT_STATE_DIR", String, filepath.Join(state, "everdict"), false, "where the pairing and finished results are kept"},
		{Capabilities, "capabilities", "EVERDICT_CAPABILITIES", List, "", false, "what this machine offers, such as git,docker; empty: what is found on it"},
		{RunnerScope, "scope", "EVERDICT_RUNNER_SCOPE", String, "", false, "whose runs a paired machine takes: owner (those that its owner submits) or workspace (everybody's in it); left out: owner for one that was paired by --pair alone"},
		{ExitWhenIdle, "exit-when-idle", "EVERDICT_EXIT_WHEN_IDLE", Duration, "0s", false, "end after so long without a run; 0s: never"},
		{DrainTimeout, "drain-timeout", "EVERDICT_DRAIN_TIMEOUT", Duration, "60s", false, "how long a stopping runner lets its runs finish before it gives them back"},
		{Sandbox, "sandbox", "EVERDICT_SANDBOX", String, "process", false, "what encloses runs that name no image: process or docker (runs that name one always get docker)"},
		{HideFiles, "hide-files", "EVERDICT_HIDE_FILES", Bool, "true", false, "hide the runner's own files from jobs; they may then not mount, and not use sudo where the runner is not root (Linux)"},
		{RosterDir, "roster-dir", "EVERDICT_ROSTER_DIR", String, "", false, "directory in which the runners of this user list what no job of theirs may see; empty: one below the user's state directory, for root " + lanes.RootRoster + " (Linux)"},
		{Image, "image", "EVERDICT_IMAGE", String, "", false, "image for runs that name none, with --sandbox docker"},
		{DockerRuntime, "docker-runtime", "EVERDICT_DOCKER_RUNTIME", String, "", false, "runtime of the container engine, such as runsc; empty: its default"},
		{ContainerNetwork, "container-network", "EVERDICT_CONTAINER_NETWORK", String, "public", false, "network of containers whose run does not choose: public or none"},
		{ReadOnlyRoot, "read-only-root", "EVERDICT_READ_ONLY_ROOT", Bool, "false", false, "make everything in a container but the workspace and /tmp read-only"},
		{AllowEmulation, "allow-emulation", "EVERDICT_ALLOW_EMULATION", Bool, "false", false, "run images that were built for another kind of machine"},
		{Warm, "warm", "EVERDICT_WARM", Int, "0", false, "containers to keep ready for each kind of sandbox that was used last"},
		{PassProxy, "pass-proxy", "EVERDICT_PASS_PROXY", Bool, "true", false, "give runs this machine's proxy variables, a login in them included"},
		{PassCA, "pass-ca", "EVERDICT_PASS_CA", Bool, "false", false, "give runs the certificates of --ca-file, beside those that the system trusts"},
	}
}

func userDir(home, xdg, fallback string) string {
	if filepath.IsAbs(xdg) {
		return xdg
	}
	return filepath.Join(home, filepath.FromSlash(fallback))
}

// Bind defines the flags of the named keys on a command. A flag's help names the
// variable that does the same.
func Bind(flags *pflag.FlagSet, schema []Key, names ...string) {
	for _, name := range names {
		k := find(schema, name)
		if k == nil || k.Flag == "" {
			panic("config: no flag for the key " + name)
		}
		help := k.Help + " [$" + k.Env + "]"
		switch k.Kind {
		case Int:
			n, err := parseInt(k.Default)
			must(k, err)
			flags.Int(k.Flag, n, help)
		case Bool:
			b, err := parseBool(k.Default)
			must(k, err)
			flags.Bool(k.Flag, b, help)
		case Duration:
			d, err := time.ParseDuration(k.Default)
			must(k, err)
			flags.Duration(k.Flag, d, help)
		case List:
			flags.StringSlice(k.Flag, splitList(k.Default), help)
		default:
			flags.String(k.Flag, k.Default, help)
		}
	}
}

// keyFile is the flag that names the file of the API key: the key itself is never
// a flag.
const keyFile = "api-key-file"

// BindKeyFile defines --api-key-file, which stands for APIKey with a file:PATH.
func BindKeyFile(flags *pflag.FlagSet) {
	flags.String(keyFile, "", "file with the API key [$EVERDICT_API_KEY, as the key or as file:PATH]")
}

// keyFileFlag is --api-key-file, if it was given.
func (o Options) keyFileFlag() *pflag.Flag {
	if o.Flags == nil {
		return nil
	}
	if f := o.Flags.Lookup(keyFile); f != nil && f.Changed {
		return f
	}
	return nil
}

// flagOf is the flag that gives a key, as it is typed.
func flagOf(k Key) string {
	if k.Name == APIKey {
		return "--" + keyFile
	}
	return "--" + k.Flag
}

func must(k *Key, err error) {
	if err != nil {
		panic("config: default of " + k.Name + ": " + err.Error())
	}
}

func find(schema []Key, name string) *Key {
	for i := range schema {
		if schema[i].Name == name {
			return &schema[i]
		}
	}
	return nil
}

// Home is the user's home directory, or the temporary directory for a user
// without one, such as a service account.
func Home() string {
	if home, err := os.UserHomeDir(); err == nil {
		return home
	}
	return filepath.Join(os.TempDir(), "everdict-"+runtime.GOOS)
}
