// Command everdict-desktop is the desktop app: this computer as a runner, with a tray
// icon and a window. Each command is a file of its own.
//
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
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "everdict-desktop:", err)
		os.Exit(2)
	}
}

// root is the whole command tree.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "everdict-desktop",
		Short:         "This computer as a runner of Everdict, with a tray icon and a window",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(installCommand(), uninstallCommand(), windowCommand(), versionCommand())
	return cmd
}
