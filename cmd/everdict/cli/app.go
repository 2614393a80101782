package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/protocol/client"
)

// Exit codes; see the package comment.
const (
	exitPass        = 0
	exitFail        = 1
	exitError       = 2
	exitInterrupted = 130
	exitTerminated  = 143
)

// app is one invocation.
type app struct {
	hooks  Hooks
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string
	now    func() time.Time
	schema []config.Key
	// program is how this program was started, as a shell takes it.
	program string

	configFile string
	output     string
	quiet      bool
	cfg        *config.Config
	// defaultLevel is logged where configuration names no level.
	defaultLevel slog.Level
	// contact is how it stands with the server.
	contact contact
	// hurry is closed at the second signal.
	hurry chan struct{}
}

// Main runs the command that os.Args describe and returns its exit code. It takes SIGINT and SIGTERM: the first cancels, the
// second hurries a draining service, the third ends the process at once.
func Main(h Hooks) int {
	a := newApp(h)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		for n := 1; ; n++ {
			s := <-signals
			switch n {
			case 1:
				cancel(&interruptError{s})
			case 2:
				close(a.hurry)
			default:
				os.Exit(codeOfSignal(s))
			}
		}
	}()
	return a.run(ctx, os.Args[1:])
}

// New makes the whole command tree, for documentation and tests.
func New(h Hooks) *cobra.Command { return newApp(h).root() }

func newApp(h Hooks) *app {
	return &app{
		hooks: h, in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now,
		schema: config.Schema(config.Home(), os.Getenv), program: quoteArg(os.Args[0]), hurry: make(chan struct{}),
	}
}

// interruptError is the cause of a context that a signal cancelled.
type interruptError struct{ signal os.Signal }

func (e *interruptError) Error() string { return "stopped by " + e.signal.String() }

// Is makes an interrupt a cancellation.
func (e *interruptError) Is(target error) bool { return target == context.Canceled }

func codeOfSignal(s os.Signal) int {
	if s == syscall.SIGTERM {
		return exitTerminated
	}
	return exitInterrupted
}

// interrupted is the exit code when a signal ended ctx, else 0.
func interrupted(ctx context.Context) int {
	var i *interruptError
	if errors.As(context.Cause(ctx), &i) {
		return codeOfSignal(i.signal)
	}
	return 0
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(pairArgs(args))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	stop := a.sayNews()
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	if err == nil {
		return exitPass
	}
	var exit *ExitError
	code := exitError
	if errors.As(err, &exit) {
		if code = exit.Code; exit.Err == nil {
			return code
		}
		err = exit.Err
	} else if errors.Is(err, context.Canceled) || errors.Is(err, syscall.EINTR) {
		if c := interrupted(ctx); c != 0 {
			return c
		}
	}
	a.report(cmd, err)
	return code
}

// noConfig marks commands that work without configuration: they must not fail
// because of a file in the directory they happen to run in.
const noConfig = "everdict/no-config"

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "everdict",
		Short: "Run evaluations of AI agents on machines that you own",
		Long: `Everdict runs evaluations of AI agents on machines that you own. A coordinator keeps the queue, runners pull
from it, and every run comes back with its trace, log, diff, cost, scores and verdict.

Exit codes: 0 done or passed, 1 judged and not passed, 2 could not be measured or any other error, 130
interrupted.`,
		Example: `  everdict up                                    # a coordinator and a runner on this machine
  everdict run --task "Create ok.txt with the text done" --test "grep -q done ok.txt"
  everdict submit -f run.json --wait
  everdict runs list`,
		Version:           a.version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	flags := root.PersistentFlags()
	config.Bind(flags, a.schema, config.APIURL, config.Tenant, config.CAFile)
	config.BindKeyFile(flags)
	flags.StringVar(&a.configFile, "config", "", "YAML file with settings [$EVERDICT_CONFIG; ./everdict.yaml; ~/.config/everdict/config.yaml]")
	flags.StringVarP(&a.output, "output", "o", "table", "table, json, or for lists and streams jsonl")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no hints on stderr")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate(thisVersion(a.version()).String() + "\n")

	root.AddGroup(
		&cobra.Group{ID: "start", Title: "Start something:"},
		&cobra.Group{ID: "runs", Title: "Runs:"},
		&cobra.Group{ID: "things", Title: "What runs need:"},
		&cobra.Group{ID: "self", Title: "This program:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("start", a.upCommand(), a.coordinatorCommand(), a.runnerCommand())
	add("runs", a.runCommand(), a.submitCommand(), a.runsCommand(), a.askCommand())
	add("things", a.runnersCommand(), a.runtimesCommand(), a.poolsCommand(), a.harnessesCommand(), a.secretsCommand(), a.keysCommand())
	add("self", a.doctorCommand(), a.configCommand(), a.versionCommand(), a.completionCommand())
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.GroupID, c.Example = "self", "  everdict help runs wait"
			c.Run, c.RunE = nil, helpOn
			c.Annotations = map[string]string{noConfig: ""}
		}
	}
	group(root)
	return root
}

// jsonLines marks commands that know -o jsonl.
const jsonLines = "everdict/jsonl"

// prepare loads the configuration and checks -o.
func (a *app) prepare(cmd *cobra.Command) error {
	_, lines := cmd.Annotations[jsonLines]
	switch {
	case a.output == "table", a.output == "json", a.output == "jsonl" && lines:
	case a.output == "jsonl":
		return &usageError{cmd, fmt.Sprintf("-o jsonl is for lists and streams: %s gives one document, with -o json", cmd.CommandPath())}
	default:
		return &usageError{cmd, fmt.Sprintf("-o %s is unknown: want table, json or jsonl", a.output)}
	}
	if _, ok := cmd.Annotations[noConfig]; ok {
		return nil
	}
	return a.loadConfig(cmd)
}

// lenientConfig marks the command that shows the configuration, and so must work
// with one that is wrong.
const lenientConfig = "everdict/lenient-config"

func (a *app) loadConfig(cmd *cobra.Command) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	_, lenient := cmd.Annotations[lenientConfig]
	a.cfg, err = config.Load(config.Options{
		Schema: a.schema, File: a.configFile, Flags: cmd.Flags(), Getenv: a.getenv, Home: config.Home(), Dir: dir,
		KeepUnknown: lenient,
	})
	var unknown *config.UnknownKeyError
	if errors.As(err, &unknown) {
		return &adviceError{err, "everdict config show lists the keys there are"}
	}
	return err
}

// warn tells a person of something that may not be what they meant.
func (a *app) warn(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, "%s %s\n", a.palette(a.err).yellow("warning:"), safeText(fmt.Sprintf(format, args...)))
	}
}

// client makes the client that the configuration describes.
func (a *app) client() (*client.Client, error) {
	token, err := a.cfg.Secret(config.APIKey)
	if err != nil {
		return nil, err
	}
	base := a.cfg.String(config.APIURL)
	if token != "" {
		if err := a.mayCarry(base, config.APIKey, "API key"); err != nil {
			return nil, err
		}
	}
	if !strings.Contains(base, "://") {
		return nil, &adviceError{fmt.Errorf("%s: the address %q has no http:// or https://", a.cfg.Origin(config.APIURL), base), "write it as http://" + base}
	}
	a.contact.asks(base)
	return client.New(client.Config{
		BaseURL: base, Token: token, Tenant: a.cfg.String(config.Tenant),
		CAFile: a.cfg.String(config.CAFile), UserAgent: "everdict/" + a.version(),
		Contact: a.contact.told,
	})
}

// mayCarry checks that the secret that key names may be sent to base, and warns where
// others could read it on the way.
func (a *app) mayCarry(base, key, what string) error {
	if loopbackURL(base) {
		return nil
	}
	if a.cfg.FromWorkingDir(config.APIURL) && !a.cfg.FromWorkingDir(key) {
		return &adviceError{
			fmt.Errorf("%s, found in the working directory, sends requests to %s: the %s from elsewhere is not sent to an address from there", a.cfg.File, base, what),
			"if the file is yours, name it: --config " + a.cfg.File + ", or set EVERDICT_API_URL",
		}
	}
	if strings.HasPrefix(base, "http://") {
		a.warn("the %s goes to %s unencrypted: use https://", what, base)
	}
	return nil
}

func loopbackURL(base string) bool {
	u, err := url.Parse(base)
	return err == nil && loopbackHost(u.Hostname())
}

// loopbackHost reports whether only this machine reaches host. A name other than
// localhost may resolve to anything.
func loopbackHost(host string) bool {
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) version() string { return Version(a.hooks.Version) }

// Version is what the build stamped into the program, else what the Go tool
// recorded, else "dev".
func Version(stamped string) string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// logger writes where services log: stderr.
func (a *app) logger() (*slog.Logger, error) {
	level := a.defaultLevel
	name := a.cfg.String(config.LogLevel)
	if a.cfg.Source(config.LogLevel) != config.FromDefault && level.UnmarshalText([]byte(name)) != nil {
		return nil, fmt.Errorf("%s: log_level is %q: want debug, info, warn or error", a.cfg.Origin(config.LogLevel), name)
	}
	o := &slog.HandlerOptions{Level: level}
	switch format := a.cfg.String(config.LogFormat); format {
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.err, o)), nil
	default:
		return nil, fmt.Errorf("%s: log_format is %q: want text or json", a.cfg.Origin(config.LogFormat), format)
	}
}

// json writes one document.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	if a.output != "jsonl" {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

// forPrograms reports whether stdout is to be JSON.
func (a *app) forPrograms() bool { return a.output == "json" || a.output == "jsonl" }

// hint says what can be done next, to a person who did not ask for quiet.
func (a *app) hint(format string, args ...any) {
	if !a.quiet && !a.forPrograms() {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// isTerminal reports whether w is a terminal; TERM=dumb is one without control.
func (a *app) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// palette is colours on w, or none.
func (a *app) palette(w io.Writer) palette {
	return palette{on: a.isTerminal(w) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"}
}
