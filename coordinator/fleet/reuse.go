package fleet

import (
	"crypto/rand"
	"strings"
)

// StandingName is a new name for a unit that has no job yet.
func StandingName() string { return "everdict-standing-" + strings.ToLower(rand.Text()) }
