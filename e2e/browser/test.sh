#!/usr/bin/env bash
# Runs the tests of the dashboard and of the desktop app's window: those of the data layer, and those in a real browser
# against bin/everdict and bin/everdict-desktop. Leaves their count in .cache/count-browser: passed, failed,
# skipped. Arguments go to node --test.
set -uo pipefail
cd "$(dirname "$0")/../.."
mkdir -p .cache
rm -f .cache/count-browser .cache/browser.tap .cache/unit.json
web=coordinator/dashboard/web
status=0

./e2e/browser/deps.sh || status=1
./e2e/desktop/deps.sh || status=1
(cd $web && npx tsc && npx vitest run --reporter=default --reporter=json --outputFile.json=../../../.cache/unit.json) || status=1
node --test --test-reporter=spec --test-reporter-destination=stdout \
	--test-reporter=tap --test-reporter-destination=.cache/browser.tap "$@" e2e/browser/*.test.mjs || status=1

unit() { node -p "JSON.parse(require('fs').readFileSync('.cache/unit.json')).$1" 2>/dev/null || echo 0; }
tap() { sed -n "s/^# $1 \([0-9]*\)$/\1/p" .cache/browser.tap | tail -n 1; }
passed=$(($(unit numPassedTests) + $(tap pass || echo 0)))
failed=$(($(unit numFailedTests) + $(tap fail || echo 0) + $(tap cancelled || echo 0)))
skipped=$(($(unit numPendingTests) + $(tap skipped || echo 0) + $(tap todo || echo 0)))
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
	failed=1 # what failed was no test: the types, or what runs them
fi
echo "$passed $failed $skipped" >.cache/count-browser
echo "browser: $passed passed, $failed failed, $skipped skipped"
exit "$status"
