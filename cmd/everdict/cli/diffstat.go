package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// diffStat counts the lines of a unified diff.
type diffStat struct {
	added, removed int
	binary         int
	files          int
}

// statOf reads a diff in git's form. Lines are counted by the hunks' own headers,
// so that a changed line that looks like a header counts as what it is.
func statOf(diff string) diffStat {
	var s diffStat
	var left, right int // lines of the hunk that are still to come
	for line := range strings.SplitSeq(diff, "\n") {
		if left > 0 || right > 0 {
			switch {
			case strings.HasPrefix(line, "+"):
				s.added++
				right--
			case strings.HasPrefix(line, "-"):
				s.removed++
				left--
			case strings.HasPrefix(line, "\\"):
			default:
				left--
				right--
			}
			continue
		}
		switch {
		case strings.HasPrefix(line, "diff --git "):
			s.files++
		case strings.HasPrefix(line, "GIT binary patch"), strings.HasPrefix(line, "Binary files "):
			s.binary++
		case strings.HasPrefix(line, "@@ -"):
			left, right = hunk(line)
		}
	}
	return s
}

// hunk reads "@@ -a,b +c,d @@"; a count that is left out is 1.
func hunk(line string) (left, right int) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return 0, 0
	}
	count := func(s string) int {
		_, n, found := strings.Cut(s, ",")
		if !found {
			return 1
		}
		c, err := strconv.Atoi(n)
		if err != nil || c < 0 {
			return 0
		}
		return c
	}
	return count(fields[1]), count(fields[2])
}

func (s diffStat) String() string {
	text := fmt.Sprintf("+%d -%d", s.added, s.removed)
	if s.binary > 0 {
		text += fmt.Sprintf(", %d binary", s.binary)
	}
	return text
}
