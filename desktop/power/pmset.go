package power

import (
	"fmt"
	"strings"
)

// Pmset reads what "pmset -g batt" of macOS prints.
func Pmset(out string) (bool, error) {
	first, _, _ := strings.Cut(out, "\n")
	switch {
	case strings.Contains(first, "'Battery Power'"), strings.Contains(first, "'UPS Power'"):
		return true, nil
	case strings.Contains(first, "'AC Power'"):
		return false, nil
	}
	return false, fmt.Errorf("%w: pmset says %.100q", ErrUnknown, first)
}
