package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

// onlyLink takes at most one argument, which is a link, right or wrong; the app says in words what is wrong with one.
// Anything else is most likely a command with a slip in it, and must not start the app.
func onlyLink(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > 1 || !strings.HasPrefix(strings.ToLower(args[0]), protocol.DeepLinkScheme+":"):
		hint := "everdict-desktop --help lists the commands"
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean everdict-desktop " + near[0] + "?"
		}
		return protocol.BadRequest("%q is neither a command nor a link of Everdict", protocol.Clip(args[0], 80)).WithHint("%s", hint)
	}
	return nil
}

// takeLink is the link that the app was started with. A link can have a code in it, and everybody on the machine can read
// the arguments of a process: the app starts itself anew, in its place, with the link on a file descriptor.
func takeLink(args []string, fd int) (string, error) {
	if fd > 0 {
		f := os.NewFile(uintptr(fd), "link")
		if f == nil {
			return "", errors.New("--link-fd is no file descriptor")
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, protocol.MaxDeepLink+1))
		return string(b), err
	}
	if len(args) == 0 {
		return "", nil
	}
	link := args[0]
	if len(link) > protocol.MaxDeepLink { // it is refused in words
		link = link[:protocol.MaxDeepLink+1]
	}
	return link, withoutArgument(args[0], link)
}
