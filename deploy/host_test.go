package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/hashicorp/nomad/api"
	"howett.net/plist"

	"github.com/everdict/everdict/cmd/member"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEveryFileIsTested: what is added here is tested here, and README.md says what it is for.
func TestEveryFileIsTested(t *testing.T) {
	t.Parallel()
	known := []string{
		"README.md",
		"compose/compose.yaml",
		"everdict.Dockerfile", "job-runner.Dockerfile",
		"kubernetes/coordinator/coordinator.yaml", "kubernetes/coordinator/kustomization.yaml", "kubernetes/coordinator/launcher.yaml", "kubernetes/coordinator/network.yaml",
		"kubernetes/launcher.yaml",
		"kubernetes/pool/kustomization.yaml", "kubernetes/pool/network.yaml", "kubernetes/pool/pool.yaml",
		"launchd/dev.everdict.runner.plist",
		"nomad/pool.nomad.json",
		"systemd/everdict-coordinator.service", "systemd/everdict-runner.service",
	}
	var files []string
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(file, ".go") {
			files = append(files, filepath.ToSlash(file))
		}
		return err
	})
	if err != nil || !slices.Equal(files, known) {
		t.Errorf("there are %q (%v), the tests know %q", files, err, known)
	}
	readme := string(read(t, "README.md"))
	for _, file := range known[1:] {
		if !strings.Contains(readme, "]("+file+")") && !strings.Contains(readme, "]("+path.Dir(file)+")") {
			t.Errorf("README.md does not link %s, nor its directory", file)
		}
	}
}

func TestNomadPool(t *testing.T) {
	t.Parallel()
	var file struct{ Job *api.Job }
	d := json.NewDecoder(bytes.NewReader(read(t, "nomad/pool.nomad.json")))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatalf("it is no job of Nomad's API: %v", err)
	}
	job := file.Job
	if *job.Type != api.JobTypeService || len(job.TaskGroups) != 1 || len(job.TaskGroups[0].Tasks) != 1 {
		t.Fatalf("a job of type %s with %d groups, want one service of one task", *job.Type, len(job.TaskGroups))
	}
	task := job.TaskGroups[0].Tasks[0]
	config, err := json.Marshal(task.Config)
	if err != nil {
		t.Fatal(err)
	}
	// The docker driver's own settings; those that are used here.
	var docker struct {
		Image       string   `json:"image"`
		Args        []string `json:"args"`
		CapDrop     []string `json:"cap_drop"`
		SecurityOpt []string `json:"security_opt"`
	}
	d = json.NewDecoder(bytes.NewReader(config))
	d.DisallowUnknownFields()
	if err := d.Decode(&docker); err != nil || task.Driver != "docker" {
		t.Fatalf("driver %s, config %s: %v", task.Driver, config, err)
	}
	// As Nomad puts the directories of a task into its command line.
	dirs := strings.NewReplacer("${NOMAD_SECRETS_DIR}", "/secrets", "${NOMAD_ALLOC_DIR}", "/alloc", "${NOMAD_TASK_DIR}", "/local")
	args := slices.Clone(docker.Args)
	for i := range args {
		args[i] = dirs.Replace(args[i])
	}
	got := ask(t, args)
	template := task.Templates[0]
	if got.Command != "runner" || got.PoolToken != "file:/"+*template.DestPath {
		t.Errorf("%+v, and the token is written to %s", got, *template.DestPath)
	}
	if !strings.Contains(*template.EmbeddedTmpl, `nomadVar "nomad/jobs/`+*job.ID+`"`) || *template.Perms != "0400" {
		t.Errorf("the token is %q with %s, want it from the job's own variables and for its user alone", *template.EmbeddedTmpl, *template.Perms)
	}
	if *task.KillTimeout < got.Drain+10*time.Second {
		t.Errorf("it drains for %v, and is killed after %v", got.Drain, *task.KillTimeout)
	}
	// What clients grant if nobody tells them otherwise, however much a job asks for:
	// https://developer.hashicorp.com/nomad/docs/configuration/client#max_kill_timeout
	if most := 30 * time.Second; *task.KillTimeout > most {
		t.Errorf("it asks for %v after SIGTERM, and clients cut that to %v", *task.KillTimeout, most)
	}
	if !strings.HasPrefix(got.StateDir, "/alloc/data/") || !*job.TaskGroups[0].EphemeralDisk.Sticky {
		t.Errorf("what it keeps is in %s, which does not move with it", got.StateDir)
	}
	if strings.HasPrefix(task.User, "0") || task.User == "" || !slices.Equal(docker.CapDrop, []string{"all"}) {
		t.Errorf("it runs as %q without %v, want a user that is not root and no capabilities", task.User, docker.CapDrop)
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  t.TempDir(),
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: read(t, "compose/compose.yaml")}},
	}, func(o *loader.Options) { o.SetProjectName("everdict", true) })
	if err != nil {
		t.Fatalf("it is no compose file: %v", err)
	}
	options := map[string]told{}
	for name, s := range p.Services {
		got := ask(t, s.Command)
		options[name] = got
		inVolume := func(path string) bool {
			return slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
				return v.Type == types.VolumeTypeVolume && strings.HasPrefix(path, v.Target+"/")
			})
		}
		if !inVolume(got.DataDir) && !inVolume(got.StateDir) {
			t.Errorf("%s keeps %+v, which is on no volume: %+v", name, got, s.Volumes)
		}
		if s.Privileged || s.User == "" || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined: %+v", name, s)
		}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < got.Drain+10*time.Second {
			t.Errorf("%s drains for %v, and is killed after %v", name, got.Drain, s.StopGracePeriod)
		}
	}
	c, r := options["coordinator"], options["runner"]
	if !c.RequireAuth || r.APIURL != "http://coordinator:8787" || c.Listen != "0.0.0.0:8787" {
		t.Errorf("the coordinator is %+v, the runner %+v", c, r)
	}
	for _, port := range p.Services["coordinator"].Ports {
		if port.HostIP != "127.0.0.1" || port.Target != 8787 {
			t.Errorf("published is %+v, want loopback", port)
		}
	}
	secret := p.Services["runner"].Secrets[0]
	if r.PoolToken != "file:/run/secrets/"+secret.Source || p.Secrets[secret.Source].File == "" {
		t.Errorf("the token is %s, the secret %+v", r.PoolToken, secret)
	}
}

func TestLaunchd(t *testing.T) {
	t.Parallel()
	// The keys of launchd.plist(5) that are used here; the decoder drops others.
	type agent struct {
		Label                string
		ProgramArguments     []string
		EnvironmentVariables map[string]string
		RunAtLoad            bool
		KeepAlive            struct{ SuccessfulExit *bool }
		ThrottleInterval     int
		ExitTimeOut          int
		ProcessType          string
	}
	doc := read(t, "launchd/dev.everdict.runner.plist")
	var keys map[string]any
	var a agent
	_, err := plist.Unmarshal(doc, &keys)
	if _, again := plist.Unmarshal(doc, &a); errors.Join(err, again) != nil {
		t.Fatalf("it is no property list: %v", errors.Join(err, again))
	}
	if n := 8; len(keys) != n {
		t.Errorf("it has %d keys, this test knows %d", len(keys), n)
	}
	var env []string
	for k, v := range a.EnvironmentVariables {
		if strings.HasPrefix(k, "EVERDICT_") {
			env = append(env, k+"="+v)
		}
	}
	got := ask(t, a.ProgramArguments[1:], env...)
	if got.Command != "runner" || got.APIURL != a.EnvironmentVariables["EVERDICT_API_URL"] {
		t.Errorf("it starts %+v", got)
	}
	if a.Label != "dev.everdict.runner" || !a.RunAtLoad || a.KeepAlive.SuccessfulExit == nil || *a.KeepAlive.SuccessfulExit {
		t.Errorf("%+v: want it started at login, and again unless it ended with code 0", a)
	}
	if time.Duration(a.ExitTimeOut)*time.Second < got.Drain+10*time.Second {
		t.Errorf("it drains for %v, and is killed after %d s", got.Drain, a.ExitTimeOut)
	}
}

// settings of a unit, by section and name; a list for each, in order.
type settings map[string][]string

func (s settings) last(name string) string {
	if v := s[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// unit reads a unit file.
func unit(t *testing.T, name string) settings {
	t.Helper()
	s, section := settings{}, ""
	for i, line := range strings.Split(string(read(t, name)), "\n") {
		switch key, value, isSetting := strings.Cut(line, "="); {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
		case isSetting && section != "":
			s[section+"."+key] = append(s[section+"."+key], value)
		default:
			t.Fatalf("%s:%d: %q is neither a section nor a setting", name, i+1, line)
		}
	}
	return s
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		command string
		confine []string
	}{
		"everdict-coordinator.service": {"coordinator", []string{"NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces", "DynamicUser"}},
		"everdict-runner.service":      {"runner", []string{"NoNewPrivileges", "ProtectHome", "PrivateTmp", "Delegate"}},
	} {
		u := unit(t, "systemd/"+name)
		// As systemd puts them in: %d is where credentials are.
		line := strings.Fields(strings.ReplaceAll(u.last("Service.ExecStart"), "%d", "/run/credentials/"+name))
		if len(line) == 0 || line[0] != "/usr/local/bin/everdict" {
			t.Fatalf("%s starts %q", name, line)
		}
		got := ask(t, line[1:], u["Service.Environment"]...)
		if got.Command != want.command {
			t.Errorf("%s starts %+v", name, got)
		}
		for _, setting := range want.confine {
			if u.last("Service."+setting) != "yes" {
				t.Errorf("%s: %s is %q, want yes", name, setting, u.last("Service."+setting))
			}
		}
		if u.last("Service.CapabilityBoundingSet") != "" || u.last("Service.ProtectSystem") != "strict" || u.last("Service.Type") != "exec" {
			t.Errorf("%s is not confined", name)
		}
		stop, err := time.ParseDuration(u.last("Service.TimeoutStopSec"))
		if err != nil || stop < got.Drain+10*time.Second {
			t.Errorf("%s drains for %v, and is killed after %v (%v)", name, got.Drain, stop, err)
		}
		kept := "/var/lib/" + u.last("Service.StateDirectory") + "/"
		if !strings.HasPrefix(got.DataDir, kept) && !strings.HasPrefix(got.StateDir, kept) {
			t.Errorf("%s keeps %+v outside of its state directory %s", name, got, kept)
		}
		if want.command != "runner" {
			continue
		}
		token, from, _ := strings.Cut(u.last("Service.LoadCredential"), ":")
		if got.PoolToken != "file:/run/credentials/"+name+"/"+token || from == "" {
			t.Errorf("its token is %s, the credential %s", got.PoolToken, u.last("Service.LoadCredential"))
		}
		if got.WorkDir != "/var/cache/"+u.last("Service.CacheDirectory") {
			t.Errorf("it works in %s", got.WorkDir)
		}
		for _, code := range []int{member.ExitRevoked, member.ExitTakeOver, member.ExitUpdate} {
			if !slices.Contains(strings.Fields(u.last("Service.RestartPreventExitStatus")), string(rune('0'+code))) {
				t.Errorf("code %d, which no restart helps, starts it again", code)
			}
		}
	}
}

// TestSystemdVerify asks systemd itself, where it is installed; TestSystemd reads the
// files everywhere.
func TestSystemdVerify(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("systemd is not installed here: %v", err)
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"everdict-coordinator.service", "everdict-runner.service"} {
		// The program that a unit starts has to be there, which is not what is asked.
		doc := bytes.ReplaceAll(read(t, "systemd/"+name), []byte("/usr/local/bin/everdict "), []byte("/bin/true "))
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, doc, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, "verify", "--man=no", file).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, name) {
				t.Errorf("systemd says: %s", strings.TrimSpace(line))
			}
		}
		if err != nil {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
	}
}
