package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everdict/everdict/cmd/everdict/spelling"
)

// wanted is what a value of a type of flag is.
var wanted = map[string]string{
	"duration": "duration: want one such as 90s, 5m or 24h",
	"int":      "whole number",
	"int64":    "whole number",
	"bool":     "choice: want true or false",
}

// exclusive is the message about flags that do not go together, as cobra words it for those who wrote the program.
var exclusive = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)

// together says which flags do not go together.
func together(text string) string {
	m := exclusive.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	return "--" + strings.ReplaceAll(m[1], " ", " and --") + " do not go together: choose one"
}

// flagError is what a command line with a flag that does not parse is told.
func flagError(cmd *cobra.Command, err error) error {
	// Of a command that there is not, no flag can be right: that is not what is wrong.
	if typed := cmd.Flags().Args(); len(typed) > 0 && cmd.HasSubCommands() {
		return noCommand(cmd, typed[0])
	}
	what := err.Error()
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if want := wanted[invalid.GetFlag().Value.Type()]; want != "" {
			what = fmt.Sprintf("--%s: %q is no %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		add := func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		}
		cmd.NonInheritedFlags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
		typed := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			typed = short // one dash too few
		}
		if near := spelling.Nearest(typed, names); near != "" {
			what += fmt.Sprintf(": did you mean --%s?", near)
		}
	}
	return &usageError{cmd, what}
}

// group makes a command that only holds others say which ones there are, and
// refuse one that there is not with what was probably meant.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[noConfig] = ""
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return noCommand(cmd, args[0])
	}
	return cmd
}

// noCommand refuses a command that cmd does not have.
func noCommand(cmd *cobra.Command, typed string) error {
	what := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+typed)
	if near := nearest(cmd, typed); near != "" {
		what += fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return &usageError{cmd, what}
}

// helpOn shows the help of the command that args name.
func helpOn(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil {
		return &usageError{cmd.Root(), err.Error()}
	}
	if len(rest) > 0 && about.HasSubCommands() {
		return noCommand(about, rest[0])
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

// nearest is the subcommand that typed probably meant, or "".
func nearest(cmd *cobra.Command, typed string) string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return spelling.Nearest(typed, names)
}

// args checks the number of arguments and says what is missing by name. A last
// name that ends in "..." stands for one or more.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, got []string) error {
		many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
		switch {
		case len(got) < len(names):
			return &usageError{cmd, "the " + strings.TrimSuffix(names[len(got)], "...") + " is missing"}
		case len(got) > len(names) && !many:
			more := got[len(names)]
			if info, err := os.Stat(more); err == nil && info.Mode().IsRegular() && cmd.Flags().Lookup("file") != nil {
				return &usageError{cmd, fmt.Sprintf("%q is one argument too many: did you mean -f %s?", more, quoteArg(more))}
			}
			return &usageError{cmd, fmt.Sprintf("%q is one argument too many", more)}
		}
		if i := slices.Index(got, ""); i >= 0 {
			return &usageError{cmd, fmt.Sprintf("argument %d is empty", i+1)}
		}
		return nil
	}
}
