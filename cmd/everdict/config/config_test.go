package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// place is a home and a working directory with files in them.
type place struct {
	home, dir string
	env       map[string]string
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	root := t.TempDir()
	p := &place{home: filepath.Join(root, "home"), dir: filepath.Join(root, "work"), env: map[string]string{}}
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *place) load(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	schema := Schema(p.home, p.getenv)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	file := flags.String("config", "", "")
	Bind(flags, schema, APIURL, Listen, RequireAuth, LeaseTTL, MaxConcurrent, Capabilities)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(Options{Schema: schema, File: *file, Flags: flags, Getenv: p.getenv, Home: p.home, Dir: p.dir})
}

func (p *place) getenv(name string) string { return p.env[name] }

func TestPrecedence(t *testing.T) {
	t.Parallel()
	const file = "api_url: http://file\ncoordinator:\n  listen: 127.0.0.1:1\n  require_auth: true\n  lease_ttl: 2m\nrunner:\n  max_concurrent: 4\n  capabilities: [git, docker]\n"
	type want struct {
		value  any
		source Source
	}
	for _, row := range []struct {
		name string
		file bool
		env  map[string]string
		args []string
		want map[string]want
	}{
		{"defaults", false, nil, nil, map[string]want{
			APIURL: {"http://127.0.0.1:8787", FromDefault}, RequireAuth: {false, FromDefault}, LeaseTTL: {time.Minute, FromDefault},
			MaxConcurrent: {1, FromDefault}, Capabilities: {[]string(nil), FromDefault},
		}},
		{"file over default", true, nil, nil, map[string]want{
			APIURL: {"http://file", FromFile}, RequireAuth: {true, FromFile}, LeaseTTL: {2 * time.Minute, FromFile},
			MaxConcurrent: {4, FromFile}, Capabilities: {[]string{"git", "docker"}, FromFile}, Tenant: {"default", FromDefault},
		}},
		{"variable over file", true, map[string]string{"EVERDICT_API_URL": "http://env", "EVERDICT_REQUIRE_AUTH": "0", "EVERDICT_LEASE_TTL": "90s",
			"EVERDICT_MAX_CONCURRENT": "5", "EVERDICT_CAPABILITIES": "gpu, git", "EVERDICT_LISTEN": ""}, nil, map[string]want{
			APIURL: {"http://env", FromEnv}, RequireAuth: {false, FromEnv}, LeaseTTL: {90 * time.Second, FromEnv},
			MaxConcurrent: {5, FromEnv}, Capabilities: {[]string{"gpu", "git"}, FromEnv}, Listen: {"127.0.0.1:1", FromFile},
		}},
		{"flag over all", true, map[string]string{"EVERDICT_API_URL": "http://env", "EVERDICT_REQUIRE_AUTH": "1"},
			[]string{"--api-url=http://flag", "--require-auth=false", "--lease-ttl=3m", "--max-concurrent=6", "--capabilities=browser", "--capabilities=git"},
			map[string]want{
				APIURL: {"http://flag", FromFlag}, RequireAuth: {false, FromFlag}, LeaseTTL: {3 * time.Minute, FromFlag},
				MaxConcurrent: {6, FromFlag}, Capabilities: {[]string{"browser", "git"}, FromFlag}, Listen: {"127.0.0.1:1", FromFile},
			}},
		{"a flag that repeats the default still decides", true, nil, []string{"--max-concurrent=1"},
			map[string]want{MaxConcurrent: {1, FromFlag}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			if row.file {
				files["work/everdict.yaml"] = file
			}
			p := newPlace(t, files)
			for k, v := range row.env {
				p.env[k] = v
			}
			c, err := p.load(t, row.args...)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range row.want {
				var got any
				switch want.value.(type) {
				case bool:
					got = c.Bool(name)
				case int:
					got = c.Int(name)
				case time.Duration:
					got = c.Duration(name)
				case []string:
					got = c.List(name)
				default:
					got = c.String(name)
				}
				if diff := cmp.Diff(want.value, got); diff != "" || c.Source(name) != want.source {
					t.Errorf("%s is %v from %s, want %v from %s", name, got, c.Source(name), want.value, want.source)
				}
			}
		})
	}
}

func TestWhichFileIsRead(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"work/everdict.yaml":                 "tenant: dir\n",
		"home/.config/everdict/config.yaml":  "tenant: home\n",
		"xdg/everdict/config.yaml":           "tenant: xdg\n",
		"elsewhere/named-by-variable.yaml":   "tenant: variable\n",
		"elsewhere/named-by-flag.yaml":       "tenant: flag\n",
		"home/.config/everdict/ignored.yaml": "tenant: no\n",
	}
	without := func(names ...string) map[string]string {
		m := map[string]string{}
		for k, v := range all {
			m[k] = v
		}
		for _, n := range names {
			delete(m, n)
		}
		return m
	}
	for _, row := range []struct {
		name               string
		files              map[string]string
		variable, flag, xd bool
		want               string
	}{
		{"--config first", all, true, true, true, "flag"},
		{"then the variable", all, true, false, true, "variable"},
		{"then the directory", all, false, false, true, "dir"},
		{"then XDG_CONFIG_HOME", without("work/everdict.yaml"), false, false, true, "xdg"},
		{"or the home directory", without("work/everdict.yaml"), false, false, false, "home"},
		{"or none", nil, false, false, false, "default"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, row.files)
			root := filepath.Dir(p.home)
			var args []string
			if row.flag {
				args = []string{"--config", filepath.Join(root, "elsewhere", "named-by-flag.yaml")}
			}
			if row.variable {
				p.env[FileEnv] = filepath.Join(root, "elsewhere", "named-by-variable.yaml")
			}
			if row.xd {
				p.env["XDG_CONFIG_HOME"] = filepath.Join(root, "xdg")
			}
			c, err := p.load(t, args...)
			if err != nil || c.String(Tenant) != row.want {
				t.Errorf("tenant %v, %v, want %s", c, err, row.want)
			}
		})
	}
}

func TestBadConfigurationNamesThePlace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, file string
		env        map[string]string
		args       []string
		want       []string
	}{
		{"a number that is none", "", map[string]string{"EVERDICT_MAX_CONCURRENT": "many"}, nil, []string{"$EVERDICT_MAX_CONCURRENT", `"many"`, "a whole number"}},
		{"a duration that is none", "coordinator: {lease_ttl: 60}", nil, nil, []string{"everdict.yaml", "lease_ttl", "a duration"}},
		{"a bool that is none", "", map[string]string{"EVERDICT_REQUIRE_AUTH": "perhaps"}, nil, []string{"$EVERDICT_REQUIRE_AUTH", "true or false"}},
		{"an unknown key", "quux: x", nil, nil, []string{"everdict.yaml", `unknown key "quux"`}},
		{"a misspelt key", "tennant: x", nil, nil, []string{`unknown key "tennant": did you mean "tenant"?`}},
		{"a misspelt key below another", "coordinator: {lease_tl: 60s}", nil, nil, []string{`unknown key "coordinator.lease_tl": did you mean "coordinator.lease_ttl"?`}},
		{"a misspelt key at the wrong level", "lease_tl: 60s", nil, nil, []string{`unknown key "lease_tl": did you mean "coordinator.lease_ttl"?`}},
		{"two unknown keys", "quux: x\nlease_tl: 60s", nil, nil, []string{`"quux"`, `"lease_tl"`}},
		{"a key with other separators", "api-url: x", nil, nil, []string{`did you mean "api_url"`}},
		{"a key at the wrong level", "listen: x", nil, nil, []string{`did you mean "coordinator.listen"`}},
		{"no YAML", "a: [", nil, nil, []string{"everdict.yaml is not YAML"}},
		{"a file that is not there", "", nil, []string{"--config", "nowhere.yaml"}, []string{"nowhere.yaml"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, map[string]string{"work/everdict.yaml": row.file})
			p.env = row.env
			_, err := p.load(t, row.args...)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestP12_SecretsAreMasked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ value, shown string }{
		{"ak_abcdefgh", "ak_********"},
		{"rnr_abcdefgh", "rnr_********"},
		{"plt_abcdefgh", "plt_********"},
		{"whatever", "********"},
		{"file:/etc/key", "file:/etc/key"},
	} {
		p := newPlace(t, nil)
		p.env["EVERDICT_API_KEY"] = row.value
		p.env["EVERDICT_RUNNER_TOKEN"] = row.value
		p.env["EVERDICT_INTERNAL_TOKEN"] = row.value
		p.env["EVERDICT_SECRETS_KEY"] = row.value
		p.env["EVERDICT_SECRETS_OLD_KEYS"] = row.value
		p.env["EVERDICT_POOL_TOKEN"] = row.value
		c, err := p.load(t)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Settings() {
			if s.Secret && s.Value != row.shown {
				t.Errorf("%s %q is shown as %q, want %q", s.Key, row.value, s.Value, row.shown)
			}
		}
	}
	for _, k := range Schema("/home", func(string) string { return "" }) {
		if (k.Name == APIKey || k.Name == InternalToken || k.Name == SecretsKey || k.Name == SecretsOldKeys) && k.Flag != "" {
			t.Errorf("%s has a flag: it would stand in argv", k.Name)
		}
	}
}

// TestP12_ListsOfSecrets: each element is read, and masked, by itself.
func TestP12_ListsOfSecrets(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"key": "old-1\n"})
	file := "file:" + filepath.Join(filepath.Dir(p.home), "key")
	p.env["EVERDICT_SECRETS_OLD_KEYS"] = file + ", old-2"
	c, err := p.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Secrets(SecretsOldKeys); err != nil || !slices.Equal(got, []string{"old-1", "old-2"}) {
		t.Errorf("read %q, %v", got, err)
	}
	for _, s := range c.Settings() {
		if s.Key == SecretsOldKeys && s.Value != file+",********" {
			t.Errorf("shown as %q", s.Value)
		}
	}
	p.env["EVERDICT_SECRETS_OLD_KEYS"] = "file:nowhere"
	if c, err = p.load(t); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Secrets(SecretsOldKeys); err == nil || !strings.Contains(err.Error(), "$EVERDICT_SECRETS_OLD_KEYS") {
		t.Errorf("a missing file gave %v", err)
	}
}

func TestSecretFromAFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"key": "ak_1\n"})
	p.env["EVERDICT_API_KEY"] = "file:" + filepath.Join(filepath.Dir(p.home), "key")
	c, err := p.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Secret(APIKey); v != "ak_1" || err != nil {
		t.Errorf("read %q, %v", v, err)
	}
	p.env["EVERDICT_API_KEY"] = "file:nowhere"
	if c, err = p.load(t); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Secret(APIKey); err == nil || !strings.Contains(err.Error(), "$EVERDICT_API_KEY") {
		t.Errorf("a missing file gave %v", err)
	}
}

func TestSchemaIsConsistent(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, k := range Schema("/home/u", func(string) string { return "" }) {
		for _, name := range []string{"key " + k.Name, "flag " + k.Flag, "env " + k.Env} {
			if other, taken := seen[name]; taken && name != "flag " {
				t.Errorf("%s belongs to %s and to %s", name, other, k.Name)
			}
			seen[name] = k.Name
		}
		if !strings.HasPrefix(k.Env, "EVERDICT_") || k.Help == "" || strings.HasSuffix(k.Help, ".") {
			t.Errorf("key %+v: want a variable EVERDICT_* and help without a full stop", k)
		}
	}
}

// TestThePageListsEverySetting holds docs/configuration.md against the schema.
func TestThePageListsEverySetting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Schema("/home/u", func(string) string { return "" }) {
		row := regexp.MustCompile(`(?m)^\| ` + "`" + regexp.QuoteMeta(k.Name) + "`" + ` \|.*$`).FindString(string(page))
		if row == "" {
			t.Errorf("the page has no row for %s", k.Name)
			continue
		}
		for _, want := range []string{k.Env, k.Flag, strings.Replace(k.Default, "/home/u", "~", 1)} {
			if !strings.Contains(row, want) {
				t.Errorf("the page's row for %s lacks %q: %s", k.Name, want, row)
			}
		}
	}
}

// What is wrong with a file must be possible to look at.
func TestUnknownKeysAreKeptOnRequest(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"work/everdict.yaml": "tenant: acme\nlease_tl: 60s\n"})
	c, err := Load(Options{Schema: Schema(p.home, p.getenv), Getenv: p.getenv, Home: p.home, Dir: p.dir, KeepUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.String(Tenant); got != "acme" {
		t.Errorf("tenant is %q, want what the file says beside its mistake", got)
	}
	if u := c.Unknown(); len(u) != 1 || u[0].Key != "lease_tl" || u[0].Near != LeaseTTL {
		t.Errorf("unknown keys %v, want lease_tl with %s near it", u, LeaseTTL)
	}
}

func TestTheKeyFileFlag(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"key": "ak_file\n"})
	p.env["EVERDICT_API_KEY"] = "ak_variable"
	path := filepath.Join(filepath.Dir(p.home), "key")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	BindKeyFile(flags)
	if err := flags.Parse([]string{"--api-key-file", path}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Schema: Schema(p.home, p.getenv), Flags: flags, Getenv: p.getenv, Home: p.home, Dir: p.dir})
	if err != nil {
		t.Fatal(err)
	}
	if key, err := c.Secret(APIKey); key != "ak_file" || err != nil || c.Origin(APIKey) != "--api-key-file" {
		t.Errorf("key %q from %s, %v; want the file's, from --api-key-file", key, c.Origin(APIKey), err)
	}
}
