package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everdict/everdict/cmd/everdict/spelling"
)

// flagError is what a command line with a flag that does not parse is told.
func flagError(cmd *cobra.Command, err error) error {
	what := err.Error()
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
		what := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
		if near := nearest(cmd, args[0]); near != "" {
			what += fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near)
		}
		return &usageError{cmd, what}
	}
	return cmd
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
			return &usageError{cmd, fmt.Sprintf("%q is one argument too many", got[len(names)])}
		}
		if i := slices.Index(got, ""); i >= 0 {
			return &usageError{cmd, fmt.Sprintf("argument %d is empty", i+1)}
		}
		return nil
	}
}
