package main

import (
	"errors"
	"io"
	"os"

	"github.com/everdict/everdict/protocol"
)

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
