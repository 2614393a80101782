package ask

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// run is the command with a socket to ask at.
func run(t *testing.T, socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	getenv := func(name string) string {
		if name == protocol.AskSocketEnv {
			return socket
		}
		return ""
	}
	code = Command(t.Context(), args, getenv, &out, &errs)
	return code, out.String(), errs.String()
}

// listen is a runner that can be asked once, by what it does with the connection.
func listen(t *testing.T, serve func(conn net.Conn)) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ask") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	return l.Addr().String()
}

// TestCommand: it answers as the CLI's own ask, and the one of containers, do.
func TestCommand(t *testing.T) {
	t.Parallel()
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
		{"for programs", `{"approved":false,"comment":"a \"<b>\""}` + "\n", []string{"-o", "json"}, 1, "{\n  \"approved\": false,\n  \"comment\": \"a \\\"<b>\\\"\"\n}\n", ""},
		{"in a line", `{"approved":true}` + "\n", []string{"--output=jsonl"}, 0, "{\"approved\":true}\n", ""},
		{"nobody there", `{"error":"the run was cancelled\u001b[2J"}` + "\n", nil, 2, "", "everdict: ask: the run was cancelled?[2J\n  next: "},
		{"nobody there, for programs", `{"error":"the run\nwas cancelled"}` + "\n", []string{"-o=json"}, 2, "", `"message":"ask: the run\nwas cancelled"`},
		{"neither yes nor no", "{}\n", nil, 2, "", "neither yes nor no"},
		{"no JSON", "yes\n", nil, 2, "", "does not decode"},
		{"no end of it", strings.Repeat("x", 2<<20), nil, 2, "", "without an answer"},
		{"closed", "", nil, 2, "", "without an answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			socket := listen(t, func(conn net.Conn) {
				line, _ := bufio.NewReader(conn).ReadString('\n')
				asked <- line
				io.WriteString(conn, row.reply)
			})
			question := "May \"I\"?\n\\ \x01 ünd"
			code, stdout, stderr := run(t, socket, append([]string{"ask", question}, row.args...)...)
			var got protocol.AskQuestion
			if line := <-asked; json.Unmarshal([]byte(line), &got) != nil || got.Question != question {
				t.Errorf("the runner was sent %q", line)
			}
			if code != row.code || stdout != row.stdout || !strings.Contains(stderr, row.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q, %q", code, stdout, stderr, row.code, row.stdout, row.stderr)
			}
		})
	}
}

// TestTurnedAway: a question may be turned away before it is sent whole; what was said is
// what counts.
func TestTurnedAway(t *testing.T) {
	t.Parallel()
	socket := listen(t, func(conn net.Conn) { io.WriteString(conn, `{"error":"you are none of this run's"}`+"\n") })
	// No socket holds as much unread.
	code, _, stderr := run(t, socket, "ask", strings.Repeat("x", 8<<20))
	if want := "none of this run's"; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr %q; want 2, %q", code, stderr, want)
	}
}

// TestCommandIsAllThatItIs: whatever else it is called with does nothing.
func TestCommandIsAllThatItIs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, socket string
		args         []string
		code         int
		stderr       string
	}{
		{"another command", "/s", []string{"runs", "list"}, 2, "can only ask, there is no command everdict runs"},
		{"one of job-runner's", "/s", []string{"install", "/tmp/x"}, 2, "can only ask"},
		{"no question", "/s", []string{"ask"}, 2, "the question is missing"},
		{"an empty question", "/s", []string{"ask", ""}, 2, "argument 1 is empty"},
		{"too many", "/s", []string{"ask", "a", "b"}, 2, "one argument too many: b"},
		{"a flag", "/s", []string{"ask", "a", "--wait"}, 2, "-wait"},
		{"no such output", "/s", []string{"ask", "a", "-o", "xml"}, 2, "not xml"},
		{"output without a value", "/s", []string{"ask", "a", "-o"}, 2, "-o"},
		{"outside of a run", "", []string{"ask", "a"}, 2, "inside a run only"},
		{"nobody listens", "/nowhere/s", []string{"ask", "--", "-a"}, 2, "/nowhere/s"},
		{"help", "", []string{"ask", "--help"}, 0, ""},
		{"nothing", "", nil, 0, ""},
	} {
		code, stdout, stderr := run(t, row.socket, row.args...)
		if code != row.code || !strings.Contains(stderr, row.stderr) || (code == 0) != strings.Contains(stdout, "everdict ask QUESTION") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d, %q", row.name, code, stdout, stderr, row.code, row.stderr)
		}
	}
}
