#!/usr/bin/env bash
# Measures what docs/benchmarks.md reports of Kubernetes: sets a cluster up, measures,
# tears it down. BENCH (a pattern) narrows it; KEEP=1 leaves the cluster up.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export STATE=${STATE:-${TMPDIR:-/tmp}/everdict-kube}
[ -n "${KEEP:-}" ] || trap '"$here/down.sh" --wipe >/dev/null' EXIT
"$here/up.sh" || exit 1
cd "$here/../.."
EVERDICT_KUBECONFIG=$STATE/admin.kubeconfig EVERDICT_KUBE_STATE=$STATE \
	go test -tags kube -run '^$' -bench "${BENCH:-.}" -benchtime 1x -timeout 40m ./e2e/kube
