package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// runFlags is what `everdict run` was given.
type runFlags struct {
	task, harness, command string
	expected               string
	tests, graders, setup  []string
	params                 []string
	files, repo, path      string
	prompt                 bool
	timeout                time.Duration
	answer                 string
	keep                   bool
}

func (a *app) runCommand() *cobra.Command {
	var r runFlags
	cmd := &cobra.Command{
		Use:   "run --task TEXT",
		Short: "Run one evaluation on this machine, without a server",
		Long: `Run one evaluation on this machine, without a server: a coordinator in memory and one runner, the same code as
everywhere else. The agent runs as you, with your logins. What it asks a person you are asked. Ctrl-C ends the run.

Exit codes: 0 passed, 1 did not pass, 2 could not be measured.`,
		Example: `  everdict run --task "Create ok.txt with the text done" --test "grep -q done ok.txt"
  everdict run --task "Fix the failing test" --path . --test "go test ./..." --harness claude-code
  everdict run --task "Add a README" --repo https://example.com/r.git#main --test "test -s README.md" --timeout 10m -o json
  everdict run --task "Say yes" --prompt --command 'echo yes' --expected yes --grader answer-match`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.seclude(cmd.Context(), false) // before standard input is read
			req, spec, err := r.request(cmd)
			if err != nil {
				return err
			}
			if req.Harness.ID == protocol.AdapterScripted {
				a.warnOfParams("--param ", slices.Sorted(maps.Keys(req.Harness.Params)))
			}
			o := RunOptions{Request: req, Keep: r.keep, Stderr: a.err}
			if err := a.checkRunner(); err != nil {
				return err
			}
			if o.Sandbox, err = a.sandbox(); err != nil {
				return err
			}
			if o.Sandbox.Driver == "docker" && o.Sandbox.Image == "" {
				return &usageError{cmd, "--sandbox docker needs an image: --image debian:12"}
			}
			req.Case.Image = o.Sandbox.Image // here it is the image of the one run
			if a.cfg.Source(config.LogLevel) == config.FromDefault {
				// The log of a coordinator that lives for one run is of interest to few.
				a.defaultLevel = slog.LevelError
			}
			if o.Log, err = a.logger(); err != nil {
				return err
			}
			o.Drive = func(ctx context.Context, c *client.Client) (int, error) {
				return a.drive(ctx, c, req, spec, &answers{given: r.answer, input: bufio.NewReader(a.in)})
			}
			if a.hooks.RunLocal == nil {
				return errNoHook(cmd)
			}
			code, err := a.hooks.RunLocal(cmd.Context(), o)
			if c := interrupted(cmd.Context()); c != 0 && (err == nil || errors.Is(err, context.Canceled)) {
				return &ExitError{Code: c, Err: &adviceError{errors.New("the run was ended before it was over"),
					"run it again; with everdict up and submit, runs outlive who watches them"}}
			}
			if err != nil || code == exitPass {
				return err
			}
			return &ExitError{Code: code}
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.task, "task", "", "what the agent has to do")
	f.StringArrayVar(&r.tests, "test", nil, "command that passes when the task is done; may be given several times")
	f.StringArrayVar(&r.graders, "grader", nil, "another grader: its id, or its spec in JSON; may be given several times")
	f.StringVar(&r.expected, "expected", "", "the answer that graders such as answer-match compare with")
	f.StringVar(&r.harness, "harness", "scripted", "agent that works on the task: id[@version]")
	f.StringVar(&r.command, "command", "", "command line of an agent, such as \"my-agent {{task}}\", in place of --harness")
	f.StringArrayVar(&r.params, "param", nil, "parameter of the harness, key=value; may be given several times")
	f.StringVar(&r.files, "files", "", "directory whose text files the agent starts with")
	f.StringVar(&r.repo, "repo", "", "git repository that the agent starts with: URL#ref")
	f.StringVar(&r.path, "path", "", "directory that is copied for the agent to start with")
	f.StringArrayVar(&r.setup, "setup", nil, "command that prepares the repository; may be given several times")
	f.BoolVar(&r.prompt, "prompt", false, "no repository: the task is a question, its answer is graded")
	f.DurationVar(&r.timeout, "timeout", protocol.DefaultTimeoutSec*time.Second, "how long the agent may take")
	f.StringVar(&r.answer, "answer", "", "yes or no to whatever the agent asks a person; without it a terminal is asked, and where there is none it is no")
	f.BoolVar(&r.keep, "keep", false, "leave the agent's directory on the disk")
	config.Bind(f, a.schema, append([]string{config.LogLevel, config.LogFormat}, sandboxKeys...)...)
	f.Lookup("log-level").DefValue = "error"
	cmd.MarkFlagsMutuallyExclusive("files", "repo", "path", "prompt")
	cmd.MarkFlagsMutuallyExclusive("harness", "command")
	return cmd
}

// drive is the part of a local run that is the same as with a server.
func (a *app) drive(ctx context.Context, c *client.Client, req *protocol.RunRequest, spec *protocol.HarnessSpec, by *answers) (int, error) {
	if spec != nil {
		body, err := json.Marshal(spec)
		if err != nil {
			return exitError, err
		}
		if _, err := c.RegisterHarness(ctx, body); err != nil {
			return exitError, err
		}
	}
	run, err := c.Submit(ctx, req)
	if err != nil {
		return exitError, localAdvice(err, req.Harness)
	}
	p := a.startProgress(ctx, c, run.ID, by)
	done, err := c.Watch(ctx, run.ID, p.observe)
	p.stop()
	if err != nil {
		return exitError, err
	}
	code := verdictCode(done)
	// What could be asked next is gone with this coordinator.
	s := summary{local: true}
	if code != exitPass && !a.forPrograms() {
		s.log = logTail(ctx, c, run.ID)
	}
	if err := a.printRunWith(done, s); err != nil {
		return exitError, err
	}
	if len(req.Case.Graders) == 0 && done.Status == protocol.StatusSucceeded {
		a.hint("nothing was there to judge it: give --test COMMAND or --grader ID")
	}
	return code, nil
}

// localAdvice puts what helps here in the place of what would help with a server:
// nothing can be registered with this one.
func localAdvice(err error, harness protocol.HarnessRef) error {
	if !client.IsNotFound(err) {
		return err
	}
	return &adviceError{err, fmt.Sprintf("built in are %s; for a program of your own leave out --harness %s and give --command \"my-agent {{task}}\"",
		strings.Join(protocol.Adapters(), ", "), quoteArg(harness.ID))}
}

// maxLogTail is how much of a failed run's log is read, of which a summary shows
// the last lines.
const maxLogTail = 4 << 10

// logTail is the end of what a run has written, as far as it can be had.
func logTail(ctx context.Context, c *client.Client, id string) string {
	body, err := c.RawLog(ctx, id, protocol.LogQuery{Tail: maxLogTail})
	if err != nil {
		return ""
	}
	defer body.Close()
	b, _ := io.ReadAll(io.LimitReader(body, maxLogTail))
	return string(b)
}

// request makes the run, and the harness to register for it.
func (r *runFlags) request(cmd *cobra.Command) (*protocol.RunRequest, *protocol.HarnessSpec, error) {
	if strings.TrimSpace(r.task) == "" {
		return nil, nil, &usageError{cmd, "say what the agent has to do: --task \"...\""}
	}
	req := &protocol.RunRequest{
		Harness: harnessRef(r.harness), Trigger: "cli",
		Case: protocol.Case{ID: "local", Task: r.task, TimeoutSec: int((r.timeout + time.Second - 1) / time.Second)},
	}
	if r.timeout <= 0 {
		return nil, nil, &usageError{cmd, "--timeout: want more than 0"}
	}
	if r.answer != "" && r.answer != "yes" && r.answer != "no" {
		return nil, nil, &usageError{cmd, fmt.Sprintf("--answer is yes or no, not %q", r.answer)}
	}
	for _, p := range r.params {
		key, value, found := strings.Cut(p, "=")
		if !found || key == "" {
			return nil, nil, &usageError{cmd, fmt.Sprintf("--param is key=value, not %q", p)}
		}
		if req.Harness.Params == nil {
			req.Harness.Params = map[string]string{}
		}
		req.Harness.Params[key] = value
	}
	var spec *protocol.HarnessSpec
	if r.command != "" {
		spec = &protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "command-line", Version: "0.0.0", Command: r.command}
		req.Harness.ID, req.Harness.Version = spec.ID, spec.Version
	}
	env, err := r.environment(cmd)
	if err != nil {
		return nil, nil, err
	}
	req.Case.Env = env
	if cmd.Flags().Changed("expected") {
		req.Case.Expected = &r.expected
	}
	for _, t := range r.tests {
		config, err := json.Marshal(map[string]string{"cmd": t})
		if err != nil {
			return nil, nil, err
		}
		req.Case.Graders = append(req.Case.Graders, protocol.GraderSpec{ID: "tests-pass", Config: config})
	}
	for _, g := range r.graders {
		spec, err := graderSpec(g)
		if err != nil {
			return nil, nil, &usageError{cmd, err.Error()}
		}
		req.Case.Graders = append(req.Case.Graders, spec)
	}
	return req, spec, req.Validate()
}

func graderSpec(s string) (protocol.GraderSpec, error) {
	if !strings.HasPrefix(strings.TrimSpace(s), "{") {
		return protocol.GraderSpec{ID: s}, nil
	}
	var spec protocol.GraderSpec
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return spec, fmt.Errorf("--grader is not a grader in JSON, such as {\"id\":\"answer-match\",\"config\":{...}}: %w", err)
	}
	return spec, nil
}

func (r *runFlags) environment(cmd *cobra.Command) (protocol.EnvSpec, error) {
	env := protocol.EnvSpec{Kind: protocol.EnvRepo, Setup: r.setup, Source: &protocol.RepoSource{Files: map[string]string{}}}
	switch {
	case r.prompt:
		if len(r.setup) > 0 {
			return env, &usageError{cmd, "--setup prepares a repository, which --prompt has none of"}
		}
		return protocol.EnvSpec{Kind: protocol.EnvPrompt}, nil
	case r.files != "":
		files, err := readFiles(r.files)
		if err != nil {
			return env, err
		}
		env.Source.Files = files
	case r.repo != "":
		url, ref, _ := strings.Cut(r.repo, "#")
		env.Source = &protocol.RepoSource{Git: url, Ref: ref}
	case r.path != "":
		path, err := filepath.Abs(r.path)
		if err != nil {
			return env, err
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return env, &adviceError{fmt.Errorf("%s is not a directory", r.path), "give a directory to copy, or --repo for a git URL"}
		}
		env.Source = &protocol.RepoSource{Path: path}
	}
	return env, nil
}

// maxFiles bounds the text that --files takes, below what one request may hold
// once it is JSON.
const maxFiles = protocol.MaxBodyBytes / 2

// readFiles reads a directory of text files. What a run's files cannot hold is
// refused by name: a copy with --path holds everything.
func readFiles(root string) (map[string]string, error) {
	files := map[string]string{}
	size := 0
	if target, err := filepath.EvalSymlinks(root); err == nil {
		root = target // as --path takes a link to a directory
	}
	refuse := func(path, why string) error {
		return &adviceError{fmt.Errorf("%s %s", path, why), "use --path, which copies a directory as it is"}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git" && path != root:
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return refuse(path, "is no regular file")
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += int(min(info.Size(), maxFiles+1)); size > maxFiles {
			return refuse(root, fmt.Sprintf("holds more than %d MiB", maxFiles>>20))
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
			return refuse(path, "is no text file")
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if err := protocol.CheckFilePath(name); err != nil {
			return refuse(path, "cannot be carried: "+err.Error())
		}
		files[name] = string(b)
		return nil
	})
	return files, err
}
