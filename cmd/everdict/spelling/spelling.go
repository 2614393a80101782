// Package spelling finds what somebody who mistyped a name probably meant.
package spelling

import "strings"

// Nearest is the one of names that typed probably meant, or "": at most two slips
// away, or begun so. Among equals it is the first.
func Nearest(typed string, names []string) string {
	typed = strings.ToLower(typed)
	best, least := "", 3
	for _, name := range names {
		lower := strings.ToLower(name)
		d := Slips(typed, lower)
		if len(typed) > 2 && strings.HasPrefix(lower, typed) {
			d = min(d, 1)
		}
		if d < least && d < len(typed) {
			best, least = name, d
		}
	}
	return best
}

// Slips counts the letters left out, added, mistaken or swapped between a and b.
func Slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
