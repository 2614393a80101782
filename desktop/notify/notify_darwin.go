package notify

import (
	"context"
	"fmt"
	"os/exec"
)

// notify gives the texts as arguments of the script, not in its source. It is shown under
// the name of the Script Editor: a notification of our own needs a signed bundle.
func notify(ctx context.Context, title, body string) error {
	out, err := exec.CommandContext(ctx, "/usr/bin/osascript",
		"-e", "on run argv",
		"-e", "display notification (item 2 of argv) with title (item 1 of argv)",
		"-e", "end run", "--", title, body).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: osascript: %w: %.200s", ErrUnavailable, err, out)
	}
	return nil
}
