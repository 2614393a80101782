package docker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// TestAskProgram: the everdict of a container answers as the CLI's own does (cli.TestAsk). The program needs no
// container.
func TestAskProgram(t *testing.T) {
	t.Parallel()
	run := hostAsk(t)
	for _, row := range []struct {
		name, reply string
		args        []string
		code        int
		stdout      string
		stderr      string
	}{
		{"approved", `{"approved":true,"comment":"go ahead"}` + "\n", nil, 0, "go ahead\n", ""},
		{"approved without a comment", `{"approved":true}` + "\n", nil, 0, "", ""},
		{"rejected", `{"approved":false,"comment":"not today"}` + "\n", nil, 1, "not today\n", ""},
		{"every escape", `{"approved" : true , "other":null, "comment":"\"\\\/\n\t\u003cé\u00e9\u2028\ud83d\ude00\ud800" }` + "\n", nil, 0, "\"\\/\n\t<éé\u2028😀\ufffd\n", ""},
		{"for programs", `{"approved":false,"comment":"a \"b\""}` + "\n", []string{"-o", "json"}, 1, "{\n  \"approved\": false,\n  \"comment\": \"a \\\"b\\\"\"\n}\n", ""},
		{"in a line", `{"approved":true}` + "\n", []string{"--output=jsonl"}, 0, "{\"approved\":true}\n", ""},
		{"long", `{"approved":true,"comment":"` + strings.Repeat("x", 100_000) + `"}` + "\n", nil, 0, strings.Repeat("x", 100_000) + "\n", ""},
		{"nobody there", `{"error":"the run was cancelled\u001b[2J"}` + "\n", nil, 2, "", "everdict: ask: the run was cancelled?[2J\n  next: "},
		{"nobody there, for programs", `{"error":"the run\nwas cancelled"}` + "\n", []string{"-ojson"}, 2, "", `"message":"ask: the run\nwas cancelled"`},
		{"neither yes nor no", "{}\n", nil, 2, "", "neither yes nor no"},
		{"no JSON", "yes\n", nil, 2, "", "does not decode"},
		{"cut short", `{"approved":true,"comment":"\u12` + "\n", nil, 2, "", "does not decode"},
		{"no end of it", strings.Repeat("x", 2<<20), nil, 2, "", "does not decode"},
		{"closed", "", nil, 2, "", "without an answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			// Not t.TempDir: a socket's path is short.
			dir, err := os.MkdirTemp("", "ask")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			asked := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				asked <- line
				io.WriteString(conn, row.reply)
			}()
			question := "May \"I\"?\n\\ \x01 ünd"
			code, stdout, stderr := run(filepath.Join(dir, "s"), append([]string{"ask", question}, row.args...)...)
			var got protocol.AskQuestion
			if line := <-asked; json.Unmarshal([]byte(line), &got) != nil || got.Question != question {
				t.Errorf("the runner was sent %q", line)
			}
			if code != row.code || stdout != row.stdout || !strings.Contains(stderr, row.stderr) {
				t.Errorf("exit code %d, stdout %.200q, stderr %.200q; want %d, %.200q, %q", code, stdout, stderr, row.code, row.stdout, row.stderr)
			}
		})
	}
}

func TestAskProgramIsAllThatItIs(t *testing.T) {
	t.Parallel()
	run := hostAsk(t)
	for _, row := range []struct {
		name, socket string
		args         []string
		code         int
		stderr       string
	}{
		{"another command", "/s", []string{"runs", "list"}, 2, "can only ask, there is no command everdict runs"},
		{"another command, whatever its flags", "/s", []string{"submit", "-f", "x"}, 2, "can only ask"},
		{"no question", "/s", []string{"ask"}, 2, "the question is missing"},
		{"an empty question", "/s", []string{"ask", ""}, 2, "argument 1 is empty"},
		{"too many", "/s", []string{"ask", "a", "b"}, 2, "one argument too many: b"},
		{"a flag", "/s", []string{"ask", "a", "--wait"}, 2, "unknown flag: --wait"},
		{"no such output", "/s", []string{"ask", "a", "-o", "xml"}, 2, "not xml"},
		{"output without a value", "/s", []string{"ask", "a", "-o"}, 2, "-o is table"},
		{"outside of a run", "", []string{"ask", "a"}, 2, "inside a run only"},
		{"nobody listens", "/nowhere/s", []string{"ask", "a"}, 2, "nobody listens at /nowhere/s"},
		{"no path at all", "/" + strings.Repeat("x", 200), []string{"ask", "--", "-a"}, 2, "nobody listens"},
		{"too long", "/s", []string{"ask", strings.Repeat("x", protocol.MaxAskLine)}, 2, "longer than 16 KiB"},
		{"help", "", []string{"ask", "--help"}, 0, ""},
		{"nothing", "", nil, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(row.socket, row.args...)
			if code != row.code || !strings.Contains(stderr, row.stderr) || (code == 0) != strings.Contains(stdout, "everdict ask QUESTION") {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q", code, stdout, stderr, row.code, row.stderr)
			}
		})
	}
}

// hostAsk runs the program on this machine.
func hostAsk(t *testing.T) func(socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	program, err := lay(t.TempDir(), "ask", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return func(socket string, args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"A=b", protocol.AskSocketEnv + "=" + socket}
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			return -1, "", err.Error()
		}
		return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
	}
}
