// Package pidns starts the process that a PID namespace needs as its number 1, on Linux. What the process sandbox starts
// in such a namespace sees and reaches no process outside of it, whatever user it becomes: for a root runner that is what
// keeps jobs apart where the kernel's Landlock cannot.
//
// Number 1 is this program, which stays a few lines of C: it mounts the namespace's /proc, collects orphans
// when it is told to, and ends when whoever started it does. With it the kernel ends everything in the namespace.
package pidns

import (
	"errors"
	"fmt"
)

// Mark is the variable that makes a fresh image of the program number 1 of its PID namespace. Nothing else is affected
// by it.
const Mark = "EVERDICT_PID_NAMESPACE"

// errUnsupported is returned by Start where the system or this build has no PID namespaces.
var errUnsupported = fmt.Errorf("PID namespaces: %w", errors.ErrUnsupported)
