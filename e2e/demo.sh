#!/usr/bin/env bash
# The main job from end to end: a coordinator and a runner, a run submitted with
# curl, watched live, and its evidence. Everything is stopped and removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/bin/everdict
dir=$(mktemp -d)
coordinator='' runner=''
finish() {
	local code=$?
	trap - EXIT
	for pid in $runner $coordinator; do kill -TERM "$pid" 2>/dev/null || true; done
	for pid in $runner $coordinator; do wait "$pid" 2>/dev/null || true; done
	if [ "$code" -ne 0 ]; then
		for log in "$dir"/*.log; do echo "--- ${log##*/}" >&2; tail -n 20 "$log" >&2; done
	fi
	rm -rf "$dir"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say '1. A coordinator on a free port of this machine'
"$bin" coordinator --data-dir "$dir/data" --listen 127.0.0.1:0 >"$dir/coordinator.log" 2>&1 &
coordinator=$!
url=
for _ in $(seq 300); do
	url=$(sed -n 's/^\(http:[^ ]*\) is ready.*/\1/p' "$dir/coordinator.log")
	[ -n "$url" ] && break
	kill -0 "$coordinator" 2>/dev/null || exit 1
	sleep 0.1
done
export EVERDICT_API_URL=$url
echo "$url"

say '2. A runner, paired with it'
curl -fsS -XPOST "$url/runners" -H 'content-type: application/json' \
	-d '{"label":"demo","capabilities":["git"]}' >"$dir/paired.json"
token=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["token"])' "$dir/paired.json")
printf '%s\n' "$token" | "$bin" runner --pair - --api-url "$url" --state-dir "$dir/runner" --work-dir "$dir/work" >"$dir/runner.log" 2>&1 &
runner=$!

say '3. A run, submitted with curl'
cat >"$dir/run.json" <<'JSON'
{ "harness": { "id": "scripted", "version": "latest" },
  "case": { "id": "c1", "env": { "kind": "repo", "source": { "files": {} } },
    "task": "Create ok.txt containing the text done",
    "graders": [{ "id": "tests-pass", "config": { "cmd": "grep -q done ok.txt" } }],
    "timeoutSec": 120, "tags": [] } }
JSON
cat "$dir/run.json"
run=$(curl -fsS -XPOST "$url/runs" -H 'x-everdict-tenant: default' -H 'content-type: application/json' -d @"$dir/run.json" |
	python3 -c 'import json,sys; print(json.load(sys.stdin)["runId"])')
echo "-> $run"

say '4. Its trace while it runs'
"$bin" runs trace -f "$run"

say '5. What it changed'
"$bin" runs diff "$run"

say '6. The verdict'
"$bin" runs get "$run" | sed '/^  next /,$d'

echo
echo 'All of it is stopped and removed now. To go on by yourself: bin/everdict up'
