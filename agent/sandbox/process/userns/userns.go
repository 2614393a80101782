// Package userns moves this program, when it starts without privileges on Linux, into a user namespace of its own, in
// which it has one privilege: to mount. With it the process sandbox can hide the runner's files from jobs, and jobs
// cannot undo it: a program that they start has no privilege in that namespace, and none outside of it.
//
// What is lost in such a namespace: programs that change the user (sudo, su, snap) do not work in it, and files of
// other users seem to belong to nobody.
package userns

import (
	"errors"
	"fmt"
)

// Mark is the variable that asks a fresh image of the program to enter. No child of the program inherits it.
const Mark = "EVERDICT_ENTER_USER_NAMESPACE"

// errUnsupported is returned by Enter where the system or this build has no user namespaces.
var errUnsupported = fmt.Errorf("user namespaces: %w", errors.ErrUnsupported)
