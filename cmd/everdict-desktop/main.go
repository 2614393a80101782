// Command everdict-desktop is the desktop app: this computer as a runner, with a tray
// icon and a window. Each command is a file of its own.
//
//	everdict-desktop            the app; started again, it shows its window
//	everdict-desktop status     and pause, resume, stop, pair, ...: what the running app does, in a terminal
//	everdict-desktop install    puts it into the menu and makes it open everdict:// links
//	everdict-desktop uninstall  takes that away again
//	everdict-desktop window     shows its page; the app starts this by itself
//	everdict-desktop version
//
// It is built without cgo on every system. What it calls of GTK, WebKit and AppKit is
// opened when it is needed, and may be missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		var p *protocol.Problem
		if !errors.As(err, &p) {
			p = &protocol.Problem{Message: err.Error()}
		}
		fmt.Fprintln(os.Stderr, "everdict-desktop:", oneLine(p.Message))
		if p.Hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", oneLine(p.Hint))
		}
		os.Exit(2)
	}
}

// root is the whole command tree. Without a command it is the app itself.
func root() *cobra.Command {
	cmd := residentCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return protocol.BadRequest("%v", err).WithHint("see %s --help", cmd.CommandPath())
	})
	cmd.AddCommand(installCommand(), uninstallCommand(), windowCommand(), versionCommand())
	cmd.AddCommand(steerCommands()...)
	return cmd
}
