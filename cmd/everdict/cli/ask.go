package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/ask"
)

func (a *app) askCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ask QUESTION",
		Short: "Ask a person, from inside a run, and wait for the answer",
		Long: `Ask a person, from inside a run, and wait for the answer. The run is suspended meanwhile, and its clock stands
still; somebody answers with everdict runs approve or everdict runs reject. A comment to the answer goes to
stdout.

Exit codes: 0 approved, 1 rejected, 2 nobody could be asked.`,
		Example: `  everdict ask "May I run the migration?" && ./migrate.sh
  everdict ask -o json "Which of the two plans?"`,
		Args:        args("question"),
		Annotations: map[string]string{noConfig: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := ask.Put(cmd.Context(), a.getenv, args[0])
			if code := interrupted(cmd.Context()); err != nil && code != 0 {
				return &ExitError{Code: code}
			}
			var nobody *ask.Error
			if errors.As(err, &nobody) {
				return &adviceError{nobody.Err, nobody.Next}
			}
			if a.forPrograms() {
				err = a.json(answer)
			} else if answer.Comment != "" {
				_, err = fmt.Fprintln(a.out, answer.Comment)
			}
			if err == nil && !answer.Approved {
				return &ExitError{Code: exitFail}
			}
			return err
		},
	}
}
