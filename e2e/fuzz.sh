#!/usr/bin/env bash
# Runs every fuzz target of the project for FUZZTIME (default 30s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-30s}
grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r package; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$package"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
		echo "== $package $target"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x
	done
done
