#!/usr/bin/env bash
# Runs the tests and ends with one plain line: N passed, N failed, N skipped.
# Arguments go to go test. SUITES says which there are to run, in this order:
#
#   browser  the dashboard and the desktop app in a real browser (make test-browser)
#   go       every Go test that needs no cluster
#   k8s      the tests that need a real Kubernetes (make test-k8s)
#
# Default: browser go. A suite leaves what its tests said in .cache/test-SUITE*.jsonl, or
# their count in .cache/count-SUITE.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
rm -f .cache/test*.jsonl .cache/count-*

status=0 broken=()

# run NAME ARGS... runs some packages and keeps what every test said.
run() {
	local name=$1
	shift
	go tool gotestsum --format pkgname --hide-summary skipped --jsonfile ".cache/test-$name.jsonl" -- \
		-timeout "${TEST_TIMEOUT:-40m}" "$@" || status=1
}

suite_browser() {
	make --no-print-directory test-browser || status=1
}

suite_go() {
	local bad light
	bad=$(git ls-files -z "*.go" | xargs -0 gofmt -l) && [ -z "$bad" ] || { echo "not formatted: $bad"; status=1; }
	go vet ./... || status=1
	# Packages that fill the machine with processes and containers, one at a time and
	# after the others: side by side they would measure each other.
	local heavy=(./agent/sandbox/... ./cmd/everdict ./desktop/packaging ./desktop/window ./e2e ./e2e/nomad)
	light=$(go list ./... | grep -vxF "$(go list "${heavy[@]}")")
	# shellcheck disable=SC2086
	run go-light "$@" $light
	run go-heavy -p 1 "$@" "${heavy[@]}"
}

suite_k8s() {
	GOTEST="go tool gotestsum --format pkgname --hide-summary skipped --jsonfile .cache/test-k8s.jsonl --" \
		./e2e/k8s/test.sh "$@" || status=1
}

for suite in ${SUITES:-browser go}; do # all of them, before the first one takes its minutes
	declare -F "suite_$suite" >/dev/null || { echo "there is no suite $suite: SUITES takes browser, go and k8s" >&2; exit 2; }
done
for suite in ${SUITES:-browser go}; do
	before=$status status=0
	"suite_$suite" "$@"
	if [ "$status" -ne 0 ] && [ ! -s ".cache/count-$suite" ] && ! grep -qs '"Action":"fail".*"Test":' .cache/test-"$suite"*.jsonl; then
		broken+=("$suite") # what failed was no test: the build, vet, the cluster
	fi
	status=$((before | status))
done

count() { cat .cache/test-*.jsonl 2>/dev/null | grep -c "\"Action\":\"$1\".*\"Test\":" || true; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)
for file in .cache/count-*; do
	[ -s "$file" ] || continue
	read -r p f s <"$file"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
for suite in "${broken[@]}"; do
	echo "$suite failed outside of its tests"
	failed=$((failed + 1))
done
# What failed in the browser is far above by now: once more, the error and its place.
[ ! -s .cache/browser.tap ] || [ ! -s .cache/count-browser ] || awk '
	/^ *not ok / { name = $0; sub(/^ *not ok [0-9]+ - /, "", name); lines = 0; told = 0; suite = 0 }
	name && /^ *type: .suite/ { suite = 1 }
	name && !suite && /^ *error: / { print "failed in the browser: " name; told = 1 }
	name && told && ++lines <= 24 { print }
	/^ *\.\.\.$/ { name = "" }' .cache/browser.tap
if [ "$skipped" -ne 0 ]; then
	echo "skipped:"
	sed -n 's/.*"Action":"skip".*"Package":"\([^"]*\)".*"Test":"\([^"]*\)".*/  \1 \2/p' .cache/test-*.jsonl
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
