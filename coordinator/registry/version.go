package registry

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/everdict/everdict/coordinator/store"
)

// number is the leading X.Y.Z of a version, if it has one.
func number(version string) (n [3]uint64, ok bool) {
	rest := strings.TrimPrefix(version, "v")
	for i := range n {
		end := 0
		for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
			end++
		}
		part, err := strconv.ParseUint(rest[:end], 10, 64)
		if err != nil {
			return n, false
		}
		n[i], rest = part, rest[end:]
		if i < 2 {
			if rest, ok = strings.CutPrefix(rest, "."); !ok {
				return n, false
			}
		}
	}
	return n, true
}

// sortVersions orders versions lowest first: names before numbers, numbers by
// their leading X.Y.Z, and what is equal by the order of registration, which is
// the order they come in. The last one is the latest.
func sortVersions(versions []store.Definition) {
	slices.SortStableFunc(versions, func(a, b store.Definition) int {
		x, xok := number(a.Version)
		y, yok := number(b.Version)
		switch {
		case xok && yok:
			return slices.Compare(x[:], y[:])
		case xok == yok:
			return 0
		default:
			return cmp.Compare(btoi(xok), btoi(yok))
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
