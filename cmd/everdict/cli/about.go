package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "config",
		Short:   "Show the settings in effect and where each comes from",
		Example: `  everdict config show`,
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "show",
		Short: "Show every setting, its value and its source; secrets are masked",
		Long: `Show every setting, its value and its source; secrets are masked. A setting comes from the flag, else from the
variable EVERDICT_..., else from the YAML file (--config, EVERDICT_CONFIG, ./everdict.yaml,
~/.config/everdict/config.yaml), else from the default.`,
		Example: `  everdict config show
  everdict config show -o json | jq '.[] | select(.source != "default")'
  EVERDICT_API_URL=https://everdict.example everdict config show`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: "", lenientConfig: ""},
		RunE: func(*cobra.Command, []string) error {
			for _, unknown := range a.cfg.Unknown() {
				a.warn("%s", unknown)
			}
			settings := a.cfg.Settings()
			if a.forPrograms() {
				_, err := printList(a, each(settings))
				return err
			}
			p := a.palette(a.out)
			var rows [][]string
			for _, s := range settings {
				origin := s.Origin
				if s.Source == "default" {
					origin = p.dim(origin)
				}
				rows = append(rows, []string{s.Key, cell(s.Value), origin})
			}
			writeTable(a.out, []string{"KEY", "VALUE", "FROM"}, rows)
			return nil
		},
	})
	return cmd
}

// about is the answer of everdict version.
type about struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func thisVersion(v string) about { return about{v, runtime.Version(), runtime.GOOS, runtime.GOARCH} }

// String is the version as a person reads it.
func (v about) String() string {
	return fmt.Sprintf("everdict %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Show the version of this program",
		Example:     "  everdict version\n  everdict version -o json",
		Args:        args(),
		Annotations: map[string]string{noConfig: ""},
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion(a.version())
			if a.forPrograms() {
				return a.json(v)
			}
			_, err := fmt.Fprintln(a.out, v)
			return err
		},
	}
}

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what makes a shell complete commands, flags and ids",
		Example: `  source <(everdict completion bash)
  everdict completion zsh > "${fpath[1]}/_everdict"
  everdict completion fish > ~/.config/fish/completions/everdict.fish
  everdict completion powershell | Out-String | Invoke-Expression`,
		Args:                  args("shell (bash, zsh, fish or powershell)"),
		ValidArgs:             shells,
		Annotations:           map[string]string{noConfig: ""},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return &usageError{cmd, fmt.Sprintf("there is no completion for %q: want bash, zsh, fish or powershell", args[0])}
		},
	}
}
