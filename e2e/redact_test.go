package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// hostKey is a key that was never in use, with characters that URLs and JSON escape.
const hostKey = `sk-ant-api03-Zx81mQ_0vLw7RkT2yHc9Gd+4Ns6Pb5Jf3Xa"AbCdEfGh1234567890ijklmnopQRSTuvwxYZ&0aA1bB2cC3d`

// leak prints the key in every way that a shell has, and writes it everywhere.
const leak = `
k=$ANTHROPIC_API_KEY
echo "plain $k"
echo "to stderr $k" >&2
printf %s "$(printf %s "$k" | cut -c1-30)"; sleep 0.3; printf '%s\n' "$(printf %s "$k" | cut -c31-)"
printf %s "$k" | base64
printf 'export KEY=%s\n' "$k" | base64
printf %s "$k" | od -An -v -tx1 | tr -d ' \n'; echo
env
cat > body.json <<END
{"authorization": "Bearer $(printf %s "$k" | sed 's/"/\\"/g')"}
END
cat body.json
echo "KEY=$k" > .env
{ printf '\000\001'; printf %s "$k"; } > core.bin
echo x > "named-$k"
mkdir -p secrets && ln -s "/run/$k" secrets/link
sed -i "s|SLOT|$(printf %s "$k" | sed 's/&/\\&/g')|" config.txt
git add -A && git -c user.name=a -c user.email=a@example.com commit -q -m "with $k"
true
`

// needles are what may be nowhere: pieces of the key, so that a half is found as
// well, and of its encodings at each alignment.
func needles(key string) []string {
	var out []string
	for at := 13; at+14 <= len(key); at += 17 {
		piece := key[at : at+14]
		out = append(out, piece, url.QueryEscape(piece), url.PathEscape(piece), hex.EncodeToString([]byte(piece)))
		quoted, _ := json.Marshal(piece)
		out = append(out, string(quoted[1:len(quoted)-1]))
		for before := range 3 {
			code := base64.StdEncoding.EncodeToString([]byte("ABC"[:before] + piece))
			out = append(out, code[(before*8+5)/6:(before+len(piece))*8/6])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func search(t *testing.T, where string, content []byte) {
	t.Helper()
	searchFor(t, hostKey, where, content)
}

func searchFor(t *testing.T, key, where string, content []byte) {
	t.Helper()
	for _, n := range needles(key) {
		if i := bytes.Index(content, []byte(n)); i >= 0 {
			t.Errorf("%s holds %q of the key: ...%q...", where, n, content[max(0, i-80):min(len(content), i+len(n)+80)])
			return
		}
	}
}

// searchDir looks into every file below dir. One that is removed meanwhile is gone, and one that is
// being written is looked into as far as it is there.
func searchDir(t *testing.T, what, dir string) (files int) {
	t.Helper()
	return searchDirFor(t, hostKey, what, dir)
}

func searchDirFor(t *testing.T, key, what, dir string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil {
			return err
		}
		searchFor(t, key, what+": the name "+path, []byte(path))
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		searchFor(t, key, what+": "+path, content)
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			if content, err = io.ReadAll(z); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			searchFor(t, key, what+": "+path+" (unpacked)", content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// fetch is the body of an answer, whatever its status.
func fetch(t *testing.T, h *house.House, path string) []byte {
	t.Helper()
	res, err := http.Get(h.URL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return body
}

// TestF26_P12_NothingOfAHostKeyLeavesTheRunner: a job that has the key of its host
// prints it in every way, writes it into files and names, commits it, asks a person
// about it, and fails over it. Nothing of it is in an answer of the API, in the coordinator's
// data or in what the runner keeps.
func TestF26_P12_NothingOfAHostKeyLeavesTheRunner(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	r := h.Runner("laptop", func(c *agent.Config) {
		c.Executable = binary(t)
		c.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=" + hostKey, "OPENAI_API_KEY=test"}
	})
	ctx := context.Background()

	repo := func(script string, graders ...protocol.GraderSpec) *protocol.RunRequest {
		req := house.Scripted(script)
		req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Setup: []string{`echo "setup $ANTHROPIC_API_KEY"`},
			Source: &protocol.RepoSource{Files: map[string]string{"leak.sh": leak, "config.txt": "a\nkey SLOT\nb\n", "README": "hello\n"}}}
		req.Case.Graders = graders
		return req
	}
	done := h.Submit(repo(strings.Join([]string{
		`run sh leak.sh`,
		`run everdict ask "may I use $ANTHROPIC_API_KEY?"`,
		`run printf %s "$ANTHROPIC_API_KEY"`,
	}, "\n"), protocol.GraderSpec{ID: "tests-pass", Config: []byte(`{"cmd":"cat .env core.bin; false"}`)}))
	asked := h.Until(done, "the run asks", func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended || r.Status.Terminal() })
	if asked.Suspended == nil || !strings.Contains(asked.Suspended.Question, "may I use [redacted:ANTHROPIC_API_KEY]?") {
		t.Fatalf("the run asks: got %s %+v %+v", asked.Status, asked.Suspended, asked.Failure)
	}
	if _, err := h.Client.Approve(ctx, done, protocol.Decision{}); err != nil {
		t.Fatal(err)
	}
	crashed := h.Submit(repo("run echo \"dying of $ANTHROPIC_API_KEY\" >&2\ncrash"))
	refused := repo("say hello")
	refused.Case.Env.Setup = []string{`echo "no good: $ANTHROPIC_API_KEY"; exit 3`}
	notSetUp := h.Submit(refused)

	for id, want := range map[string]protocol.Status{done: protocol.StatusSucceeded, crashed: protocol.StatusFailed, notSetUp: protocol.StatusFailed} {
		run := h.Settled(id)
		if run.Status != want {
			t.Fatalf("%s: got %s %+v, want %s", id, run.Status, run.Failure, want)
		}
		if f := run.Failure; f != nil && !strings.Contains(f.LogTail, "[redacted:ANTHROPIC_API_KEY]") {
			t.Errorf("%s: its failure shows nothing of what was masked: %+v", id, f)
		}
		for _, path := range []string{"", "/logs", "/logs?stream=stdout", "/logs?stream=stderr", "/logs?raw=1", "/logs/stream", "/trace", "/trajectory",
			"/trajectory/live", "/live/stream", "/diff", "/events", "/attempts", "/placement"} {
			search(t, "GET /runs/{id}"+path, fetch(t, h, "/runs/"+id+path))
		}
		raw, err := h.Client.RawLog(ctx, id, protocol.LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		log, err := io.ReadAll(raw)
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Close()
		search(t, "the raw log of "+id, log)
		if !bytes.Contains(log, []byte("[redacted:ANTHROPIC_API_KEY]")) {
			t.Errorf("the log of %s has no marker: %q", id, log)
		}
	}
	search(t, "GET /runs", fetch(t, h, "/runs"))
	checkMasked(t, h, done)

	if err := r.Drain(); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	if n := searchDir(t, "the coordinator's data", h.Config.DataDir); n < 3 {
		t.Errorf("looked into %d files of the coordinator", n)
	}
	searchDir(t, "the runner's state", r.Config.StateDir)
	searchDir(t, "the runner's workspaces", r.Config.WorkDir)
}

// checkMasked looks at what must still be there when the key is not.
func checkMasked(t *testing.T, h *house.House, id string) {
	t.Helper()
	run := h.Settled(id)
	res := run.Result
	if res == nil || res.Evidence == nil || res.Evidence.Redactions < 15 || !res.Snapshot.Redacted {
		t.Fatalf("the result does not say that it was redacted: %+v", res)
	}
	if !slices.ContainsFunc(res.Execution.Notes, func(n string) bool { return strings.Contains(n, "OPENAI_API_KEY") }) {
		t.Errorf("the record does not say that a value cannot be masked: %q", res.Execution.Notes)
	}
	omitted := map[string]string{}
	for _, o := range res.Snapshot.Omitted {
		omitted[o.Path] = o.Reason
	}
	if omitted["core.bin"] != "secret" || omitted["named-[redacted:ANTHROPIC_API_KEY]"] != "secret" {
		t.Errorf("omitted: got %v, want core.bin and named-... for their secrets", omitted)
	}
	if len(res.Scores) == 0 || !strings.Contains(res.Scores[0].Detail, "KEY=[redacted:ANTHROPIC_API_KEY]") {
		t.Errorf("scores: got %+v", res.Scores)
	}
	rc, err := h.Client.Diff(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	_ = rc.Close()
	// The diff applies to what the run began with.
	dir := t.TempDir()
	for name, content := range map[string]string{"leak.sh": leak, "config.txt": "a\nkey SLOT\nb\n", "README": "hello\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(patch)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("apply the diff: %v: %s\n%s", err, out, patch)
	}
	for name, want := range map[string]string{
		"config.txt": "a\nkey [redacted:ANTHROPIC_API_KEY]\nb\n", ".env": "KEY=[redacted:ANTHROPIC_API_KEY]\n",
		"body.json": `{"authorization": "Bearer [redacted:ANTHROPIC_API_KEY]"}` + "\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if to, err := os.Readlink(filepath.Join(dir, "secrets/link")); err != nil || to != "/run/[redacted:ANTHROPIC_API_KEY]" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	var said []string
	for ev, err := range h.Client.Trace(context.Background(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == protocol.EventToolResult && ev.Output != nil {
			said = append(said, *ev.Output)
		}
	}
	if !strings.Contains(fmt.Sprint(said), "plain [redacted:ANTHROPIC_API_KEY]") {
		t.Errorf("the trace holds the outputs %q", said)
	}
}

// TestF27_P12_ARunnersTokenThatIsFoundIsMasked: a token that somebody left where
// the job can read it goes no further than the job.
func TestF27_P12_ARunnersTokenThatIsFoundIsMasked(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	paired := h.Pair("laptop")
	h.RunnerFor(paired)
	left := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(left, []byte(paired.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := h.Submit(house.Scripted("run cat " + left + "; base64 " + left))
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Fatalf("run: got %s %+v", run.Status, run.Failure)
	}
	for _, path := range []string{"", "/logs", "/trace", "/events", "/attempts"} {
		body := fetch(t, h, "/runs/"+id+path)
		if bytes.Contains(body, []byte(paired.Token)) || bytes.Contains(body, []byte(base64.StdEncoding.EncodeToString([]byte(paired.Token))[:40])) {
			t.Errorf("GET /runs/{id}%s holds the runner's token: %s", path, body)
		}
		if (path == "/logs" || path == "/trace") && bytes.Count(body, []byte("[redacted:RUNNER_CREDENTIAL]")) < 2 {
			t.Errorf("GET /runs/{id}%s does not show where the token was: %s", path, body)
		}
	}
}
