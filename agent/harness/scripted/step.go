package scripted

import (
	"time"

	"github.com/everdict/everdict/protocol"
)

// step is one thing that the agent does. Exactly one of the groups is set: say,
// think, or line (with tool, when it is a tool call).
type step struct {
	// say is an assistant message.
	say string
	// think is a model call that the agent pretends to make.
	think *protocol.TraceEvent
	// tool and args describe a tool call; line is the shell text that carries it
	// out, in a shell of its own.
	tool string
	args map[string]any
	line string
	// bare is shell text of the agent itself: it runs in the main process and is
	// no tool call.
	bare string
	// done and failed are what the final message says about a task's step.
	done, failed string
}

// plan is what the agent is going to do.
type plan struct {
	steps []step
	// delay is slept between steps.
	delay time.Duration
	// summary: the final message tells what was done (a task stated in English).
	summary bool
	// unclear are the parts of the task that the agent does not understand.
	unclear []string
}

const ensureDir = `d=${f%/*}; if [ "$d" != "$f" ]; then mkdir -p -- "$d"; fi`

func createStep(path, content string) step {
	return step{
		tool: "create_file", args: map[string]any{"path": path, "content": content},
		line: "f=" + quote(path) + "; " + ensureDir + " && printf %s " + quote(content) + ` > "./$f"`,
		done: "created " + path, failed: "could not create " + path,
	}
}

func appendStep(path, content string) step {
	return step{
		tool: "append_file", args: map[string]any{"path": path, "content": content},
		line: "f=" + quote(path) + "; " + ensureDir + " && printf %s " + quote(content) + ` >> "./$f"`,
		done: "appended to " + path, failed: "could not append to " + path,
	}
}

// replaceStep replaces every occurrence; that there is none is a failure. The
// file keeps its mode: it is written through, not replaced.
func replaceStep(path, old, new string) step {
	return step{
		tool: "replace_text", args: map[string]any{"path": path, "old": old, "new": new},
		line: "f=./" + quote(path) + `; grep -qF -e ` + quote(old) + ` -- "$f" || { echo "no such text in $f" >&2; exit 1; }` +
			`; t=$(mktemp) && sed -e ` + quote("s/"+sedPattern(old)+"/"+sedReplacement(new)+"/g") + ` "$f" > "$t" && cat "$t" > "$f"; c=$?; rm -f "$t"; exit $c`,
		done: "replaced the text in " + path, failed: "could not replace the text in " + path,
	}
}

func deleteStep(path string) step {
	return step{
		tool: "delete_file", args: map[string]any{"path": path},
		// -f would hide that there was nothing to delete.
		line: "rm -r -- ./" + quote(path) + " </dev/null",
		done: "deleted " + path, failed: "could not delete " + path,
	}
}

func mkdirStep(path string) step {
	return step{
		tool: "make_dir", args: map[string]any{"path": path},
		line: "mkdir -p -- ./" + quote(path),
		done: "made the directory " + path, failed: "could not make the directory " + path,
	}
}

func runStep(line string) step {
	return step{tool: "bash", args: map[string]any{"command": line}, line: line, done: "ran " + line, failed: "could not run " + line}
}
