#!/usr/bin/env bash
# Runs the tests that need a real Kubernetes: sets one up, runs them, tears it down.
# KEEP=1 leaves the cluster up. Arguments go to go test, or to what GOTEST names.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export STATE=${STATE:-${TMPDIR:-/tmp}/everdict-kube}
[ -n "${KEEP:-}" ] || trap '"$here/down.sh" --wipe >/dev/null' EXIT
"$here/up.sh" || exit 1
cd "$here/../.."
EVERDICT_KUBECONFIG=$STATE/admin.kubeconfig EVERDICT_KUBE_STATE=$STATE \
	${GOTEST:-go test} -tags kube -count=1 -timeout "${TEST_TIMEOUT:-40m}" "$@" ./e2e/kube
