#!/usr/bin/env bash
# Runs every test and ends with one plain line: N passed, N failed, N skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
log=.cache/test.jsonl
rm -f "$log"

status=0
bad=$(gofmt -l .) && [ -z "$bad" ] || { echo "not formatted: $bad"; status=1; }
go vet ./... || status=1
go tool gotestsum --format pkgname --hide-summary skipped --jsonfile "$log" -- \
	-timeout "${TEST_TIMEOUT:-14m}" "$@" ./... || status=1

count() { grep -c "\"Action\":\"$1\".*\"Test\":" "$log" || true; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
	failed=1 # what failed was no test: the build, vet or the formatting
fi
if [ "$skipped" -ne 0 ]; then
	echo "skipped:"
	sed -n 's/.*"Action":"skip".*"Package":"\([^"]*\)".*"Test":"\([^"]*\)".*/  \1 \2/p' "$log"
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
