package main

import (
	"github.com/spf13/cobra"

	"github.com/everdict/everdict/desktop/install"
)

func installCommand() *cobra.Command {
	var cfg install.Config
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put the app into the menu of this user and have it open everdict:// links",
		Long: `Put the app into the menu of this user and have it open everdict:// links. Doing it again brings that up to date.
What is somebody else's is left as it is, and reported.`,
		Example: `  everdict-desktop install --at-login
  everdict-desktop install --service     # a machine that nobody sits at`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := install.Install(cmd.Context(), cfg)
			report.Print(cmd.OutOrStdout())
			return err
		},
	}
	cmd.Flags().BoolVar(&cfg.AtLogin, "at-login", false, "start it at login as well")
	cmd.Flags().BoolVar(&cfg.Service, "service", false, "write a systemd unit of this user as well (Linux)")
	cmd.Flags().BoolVar(&cfg.TakeOver, "take-over", false, "open everdict:// links even if another program does")
	return cmd
}

func uninstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Take away what install put in place",
		Long: `Take away what install put in place. What was changed since stays, and is reported. Pairings and settings stay
as well: they go with "Disconnect" in the app.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := install.Uninstall(cmd.Context(), install.Config{})
			report.Print(cmd.OutOrStdout())
			return err
		},
	}
}
