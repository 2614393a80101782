#!/usr/bin/env bash
# Runs every test and ends with one plain line: N passed, N failed, N skipped.
# Arguments go to go test.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
rm -f .cache/test*.jsonl

status=0
bad=$(gofmt -l .) && [ -z "$bad" ] || { echo "not formatted: $bad"; status=1; }
go vet ./... || status=1

# Packages that fill the machine with processes and containers, one at a time and
# after the others: side by side they would measure each other.
heavy=(./agent/sandbox/... ./cmd/everdict ./e2e)
light=$(go list ./... | grep -vxF "$(go list "${heavy[@]}")")

# run NAME ARGS... runs some packages and keeps what every test said.
run() {
	local name=$1
	shift
	go tool gotestsum --format pkgname --hide-summary skipped --jsonfile ".cache/test-$name.jsonl" -- \
		-timeout "${TEST_TIMEOUT:-14m}" "$@" || status=1
}
# shellcheck disable=SC2086
run light "$@" $light
run heavy -p 1 "$@" "${heavy[@]}"

count() { cat .cache/test-*.jsonl | grep -c "\"Action\":\"$1\".*\"Test\":" || true; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
	failed=1 # what failed was no test: the build, vet or the formatting
fi
if [ "$skipped" -ne 0 ]; then
	echo "skipped:"
	sed -n 's/.*"Action":"skip".*"Package":"\([^"]*\)".*"Test":"\([^"]*\)".*/  \1 \2/p' .cache/test-*.jsonl
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
