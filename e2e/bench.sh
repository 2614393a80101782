#!/usr/bin/env bash
# Runs the benchmarks that docs/benchmarks.md reports and gives no command of their own, one package after another.
# BENCHTIME (default 2s) and BENCH (a pattern) narrow them.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${BENCH:-.} time=${BENCHTIME:-2s}
packages=(./lease ./protocol/link ./agent/sandbox/process ./agent/environment ./agent/evidence/... ./agent/outbox
	./coordinator/evidence ./coordinator/store ./coordinator/api ./e2e)
if docker image inspect test/busybox:1 test/debian:1 >/dev/null 2>&1; then
	packages+=(./agent/sandbox/docker)
else
	echo "agent/sandbox/docker is left out: make deps sets Docker up for it" >&2
fi
for package in "${packages[@]}"; do
	go test -run '^$' -bench "$bench" -benchtime "$time" -timeout 60m "$package" | grep -E '^(Benchmark|pkg:|cpu:|ok|FAIL|---)'
done
