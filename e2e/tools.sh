#!/usr/bin/env bash
# Installs what the build, the demo and the tests need and is missing: a C compiler
# (for SQLite), git, curl, python3 and node (script graders). Does nothing when all
# is there.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need go golang
need gcc gcc
need git git
need curl curl
need python3 python3-minimal
need node nodejs
[ "${#missing[@]}" -eq 0 ] && exit 0

if [ "${missing[0]}" = golang ]; then
	echo "everdict needs Go 1.26 or newer: https://go.dev/doc/install" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
	echo "please install: ${missing[*]}" >&2
	exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends "${missing[@]}" libc6-dev >/dev/null
