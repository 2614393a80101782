package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// somebody is a user without privileges, with a home and the program.
type somebody struct {
	home, binary string
	attr         *syscall.SysProcAttr
	stateName    string // in the home; empty: state
	// old: the kernel has no Landlock, for this user's programs.
	old bool
}

func newSomebody(t *testing.T) somebody {
	t.Helper()
	// Not t.TempDir, into which another user may not come.
	dir, err := os.MkdirTemp("", "everdict-somebody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := somebody{home: filepath.Join(dir, "home"), binary: filepath.Join(dir, "everdict")}
	program, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{os.Chmod(dir, 0o755), os.WriteFile(s.binary, program, 0o755), os.Mkdir(s.home, 0o700)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if os.Getuid() == 0 {
		const uid = 1000
		s.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := os.Chown(s.home, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// runner starts this user's runner. Its token comes on standard input, at every start.
func (s somebody) runner(t *testing.T, url, token string, flags ...string) *house.Process {
	t.Helper()
	return house.NewProcess(t, "runner", func() *exec.Cmd {
		cmd := exec.Command(s.binary, append([]string{"runner", "--pair=-", "--api-url=" + url, "--state-dir=" + s.state()}, flags...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "EVERDICT_ROSTER_DIR=" + filepath.Join(s.home, "roster")}
		if s.old {
			cmd.Path, cmd.Args = os.Args[0], append([]string{os.Args[0]}, cmd.Args...)
			cmd.Env = append(cmd.Env, withoutLandlock+"=1")
		}
		cmd.Dir = s.home
		cmd.Stdin = strings.NewReader(token + "\n")
		cmd.SysProcAttr = s.attr
		return cmd
	})
}

func (s somebody) state() string { return filepath.Join(s.home, cmp.Or(s.stateName, "state")) }

// look counts where a job finds the token: in the runner's files, and in what /proc tells of other processes. It
// prints no token, which might be masked.
const look = `what=rnr_; state=$HOME/state
echo files $(grep -rs $what $state | grep -c .)
echo environ $(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -aE '(^|=)rnr_[0-9A-Za-z_-]{30,}' | grep -c .)
`

// pry tries to get past the cover in every way that a user without privileges may try.
const pry = `
umount $state 2>/dev/null && echo uncovered
echo other roots $(for p in /proc/[0-9]*; do grep -rs $what $p/root$state $p/cwd/state; done 2>/dev/null | grep -c .)
echo nested $(unshare -Urm sh -c "umount $state; grep -rs $what $state" 2>/dev/null | grep -c .)
mv $state $HOME/moved 2>/dev/null
echo moved $(grep -rs $what $HOME/moved $state 2>/dev/null | grep -c .)
echo written $( (: >$state/credential) 2>/dev/null && echo yes || echo no)
echo capabilities $(sed -n 's/^Cap[PE].*:\t//p' /proc/self/status)
unshare -Urmpf --mount-proc true && echo a container of its own
`

// through tries what only root can: to become another user, to open what a process of that user sees, and to be root
// again by a program of its own, which it tries on a file of root's. It counts tokens, and the processes that it tried.
const through = `
d=$(mktemp -d -p /tmp) && chmod 755 $d && cp "$(command -v cat)" $d/cat && chmod 4755 $d/cat
nobody='setpriv --reuid 65534 --regid 65534 --clear-groups'
echo yes >$d/own && chmod 600 $d/own
echo root again $($nobody $d/cat $d/own)
tried=0
for p in /proc/[0-9]*; do
  [ "$(stat -c %u $p 2>/dev/null)" = 65534 ] || continue
  tried=$((tried + 1))
  $nobody sh -c "exec 3<$p/root && $d/cat /proc/self/fd/3$state/credential" 2>/dev/null
done >$d/read
echo through another user $(grep -c $what $d/read) of $tried
rm -r $d
`

// TestF27_P12_AJobCannotGetAtTheToken: a job that tries does not get at the files of a runner, whether that is root or
// has no privilege, in which case it is in a user namespace. It is not parallel to other tests: without
// Landlock these files can be reached through a job of another runner of root's, which does not hide them.
func TestF27_P12_AJobCannotGetAtTheToken(t *testing.T) {
	none := "capabilities 0000000000000000 0000000000000000"
	for name, c := range map[string]struct {
		root  bool
		old   bool // without Landlock
		flags []string
		want  []string
		note  string
	}{
		"somebody": {want: []string{"files 0", "environ 0", none, "end"}, note: "user namespace"},
		"root":     {root: true, want: []string{"files 0", "environ 0", "end"}},
		"root without Landlock": {root: true, old: true, want: []string{"files 0", "environ 0", "through another user 0 of 0", "end"},
			note: "PID namespace"},
		// The test can fail: without the cover the token is there, and the record says so.
		"nothing hidden": {flags: []string{"--hide-files=false"}, want: []string{"files 1", "environ 0"}, note: "home/state is visible to the job"},
	} {
		t.Run(name, func(t *testing.T) {
			h := house.New(t)
			paired := h.Pair("laptop")
			s := newSomebody(t)
			root := c.root && os.Getuid() == 0
			if c.root {
				s.attr = nil
			}
			if c.old && !root {
				t.Skip("for others than root nothing is different without Landlock")
			}
			s.old = c.old
			if root {
				house.NewProcess(t, "a program of nobody's", func() *exec.Cmd {
					cmd := exec.Command("sleep", "1000")
					cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
					return cmd
				})
			}
			// Another program of the user's, through which its files can be reached, too.
			house.NewProcess(t, "another program", func() *exec.Cmd {
				cmd := exec.Command("sleep", "1000")
				cmd.Dir, cmd.SysProcAttr = s.home, s.attr
				return cmd
			})
			s.runner(t, h.URL(), paired.Token, c.flags...)
			h.Online(paired.Runner.ID)
			credential := filepath.Join(s.state(), "credential")
			house.Eventually(t, "the token is kept", func() bool {
				b, err := os.ReadFile(credential)
				return err == nil && strings.Contains(string(b), paired.Token)
			})
			script := look
			if c.flags == nil {
				script += pry
				if root {
					script += through
					c.want = append(c.want, "root again yes")
				}
				script += "echo end\n"
				c.want = append(c.want, "other roots 0", "nested 0", "moved 0", "written no", "a container of its own")
			}
			req := house.Scripted("run sh look.sh")
			req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"look.sh": script}}}
			id := h.Submit(req)
			run := h.Settled(id)
			if run.Status != protocol.StatusSucceeded {
				t.Fatalf("run: got %s %+v", run.Status, run.Failure)
			}
			said := logOf(t, h, id)
			for _, w := range c.want {
				if !strings.Contains(said, w) {
					t.Errorf("the job did not say %q:\n%s", w, said)
				}
			}
			if strings.Contains(said, "uncovered") {
				t.Errorf("the job could take the cover away:\n%s", said)
			}
			notes := strings.Join(run.Result.Execution.Notes, "\n")
			// In a PID namespace there is nobody of that user; where a job cannot be kept from this, the record says so.
			tried := !strings.Contains(said, "through another user 0 of 0")
			shut := strings.Contains(said, "through another user 0 of ") && (tried || strings.Contains(notes, "PID namespace"))
			if root && shut == strings.Contains(notes, "becomes another user") {
				t.Errorf("the record's notes: %s\nand what the job said:\n%s", notes, said)
			}
			if !strings.Contains(notes, c.note) || c.flags == nil && strings.Contains(notes, "visible to the job") {
				t.Errorf("the record's notes: %s", notes)
			}
		})
	}
}

// everyUser are the kinds of users that a runner may be.
func everyUser(t *testing.T, f func(t *testing.T, s somebody)) {
	for name, c := range map[string]struct{ root, old bool }{"somebody": {}, "root": {root: true}, "root without Landlock": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.root && os.Getuid() != 0 {
				t.Skip("this is not root")
			}
			s := newSomebody(t)
			if s.old = c.old; c.root {
				s.attr = nil
			}
			f(t, s)
		})
	}
}

// TestF27_P12_AJobCannotGetAtAnotherRunnersToken: a job is running when a second runner of the same user comes, is paired,
// and keeps its token.
func TestF27_P12_AJobCannotGetAtAnotherRunnersToken(t *testing.T) {
	t.Parallel()
	everyUser(t, func(t *testing.T, s somebody) {
		h := house.New(t)
		first, second := h.Pair("first"), h.Pair("second")
		s.runner(t, h.URL(), first.Token)
		h.Online(first.Runner.ID)
		spy := func(until string) string {
			req := house.Scripted("run sh spy.sh")
			req.Runtime = "self:" + first.Runner.ID
			req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"spy.sh": `
what=rnr_; n=0
until [ -e $HOME/stop ]; do
  cat $HOME/second/* $HOME/roster/* >>got 2>/dev/null; n=$((n + 1)); echo $n >$HOME/` + until + `
done
echo tokens $(grep -ac $what got) listed $(ls $HOME/roster $HOME/second /tmp/everdict-$(id -u) 2>/dev/null | grep -c 'path-\|runner-\|credential')
rm got; echo end`}}}
			return h.Submit(req)
		}
		rounds := func(name string) int {
			b, _ := os.ReadFile(filepath.Join(s.home, name))
			n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			return n
		}
		more := func(name string) {
			t.Helper()
			from := rounds(name)
			house.Eventually(t, "the job looks "+name, func() bool { return rounds(name) > from+5 })
		}
		saw := func(id, when string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(s.home, "stop"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			h.Settled(id)
			if said := logOf(t, h, id); !strings.Contains(said, "tokens 0 listed 0\nend\n") {
				t.Errorf("%s the job of another runner saw:\n%s", when, said)
			}
			if err := os.Remove(filepath.Join(s.home, "stop")); err != nil {
				t.Fatal(err)
			}
		}
		id := spy("while")
		more("while")
		other := s
		other.stateName = "second"
		r := other.runner(t, h.URL(), second.Token)
		h.Online(second.Runner.ID)
		credential := filepath.Join(other.state(), "credential")
		house.Eventually(t, "the token is kept", func() bool {
			b, err := os.ReadFile(credential)
			return err == nil && strings.Contains(string(b), second.Token)
		})
		more("while")
		saw(id, "while it was running")
		// The token is as good when its runner is not there.
		r.Terminate()
		id = spy("after")
		more("after")
		saw(id, "after the second runner's end")
	})
}

func TestF27_DoctorSaysHowJobsAreKeptApart(t *testing.T) {
	t.Parallel()
	everyUser(t, func(t *testing.T, s somebody) {
		args := []string{s.binary, "doctor", "-o", "json", "--state-dir", s.state()}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "EVERDICT_ROSTER_DIR=" + filepath.Join(s.home, "roster")}
		if s.old {
			cmd = exec.Command(os.Args[0], args...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "EVERDICT_ROSTER_DIR=" + filepath.Join(s.home, "roster"), withoutLandlock + "=1"}
		}
		cmd.Dir, cmd.SysProcAttr = s.home, s.attr
		out, err := cmd.Output()
		var report doctor.Report
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		i := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.ID == "process-sandbox" })
		if i < 0 {
			t.Fatalf("%v: %s", err, out)
		}
		if said := report.Checks[i].Evidence; !strings.Contains(said, "hidden from jobs") || strings.Contains(said, "PID namespace") != s.old || strings.Contains(said, "visible") {
			t.Errorf("doctor says %q", said)
		}
	})
}

func logOf(t *testing.T, h *house.House, id string) string {
	t.Helper()
	body, err := h.Client.RawLog(context.Background(), id, protocol.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestP6_AnUnprivilegedRunnerEndsWhatItLeft: jobs of a runner whose guard was killed with it end at its next start,
// although they are in another user namespace than that.
func TestP6_AnUnprivilegedRunnerEndsWhatItLeft(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	paired := h.Pair("laptop")
	s := newSomebody(t)
	runner := s.runner(t, h.URL(), paired.Token)
	h.Online(paired.Runner.ID)
	id := h.Submit(house.Scripted("run echo $$ >$HOME/pid.new; mv $HOME/pid.new $HOME/pid; exec sleep 1000"))
	h.Running(id)
	var job int
	house.Eventually(t, "the job runs", func() bool {
		b, err := os.ReadFile(filepath.Join(s.home, "pid"))
		if err != nil {
			return false
		}
		job, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	// A runner that lives finds out that its guard does not, and starts another.
	runner.Signal(syscall.SIGSTOP)
	isStopped(t, runner)
	for _, guard := range guardsOf(t, runner.Pid()) {
		if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	runner.Kill()
	if !alive(job) {
		t.Fatal("nothing was left")
	}
	if _, err := h.Client.Cancel(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	runner.Start()
	house.Eventually(t, "what was left is gone", func() bool { return !alive(job) })
	h.Settled(id)
}

// guardsOf lists the guard processes of a runner.
func guardsOf(t *testing.T, runner int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats {
		b, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && bytes.Contains(b, []byte("\x00everdict-guard\x00")) && parentOf(pid) == runner {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		t.Fatal("the runner has no guard")
	}
	return pids
}

func parentOf(pid int) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
