package main

import (
	"github.com/spf13/cobra"

	"github.com/everdict/everdict/desktop/window"
)

// windowCommand is started by the app, which gives it the address of the page on stdin:
// the address has a token in it that is good once, and arguments are read by everybody.
func windowCommand() *cobra.Command {
	var opt window.Options
	cmd := &cobra.Command{
		Use:    "window",
		Short:  "Show the page of the app that started this",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return window.Main(cmd.Context(), opt, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	opt.Register(cmd.Flags())
	return cmd
}
