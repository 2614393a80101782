#!/usr/bin/env bash
# Runs the benchmarks that docs/benchmarks.md reports, one package after another.
# BENCHTIME (default 2s) and BENCH (a pattern) narrow them.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${BENCH:-.} time=${BENCHTIME:-2s}
for package in ./lease ./protocol/link ./agent/sandbox/process ./agent/environment ./agent/evidence/... ./agent/outbox \
	./coordinator/evidence ./coordinator/api ./e2e; do
	go test -run '^$' -bench "$bench" -benchtime "$time" -timeout 60m "$package" | grep -E '^(Benchmark|pkg:|cpu:|ok|FAIL|---)'
done
