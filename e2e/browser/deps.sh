#!/usr/bin/env bash
# Installs what the dashboard's tests and pictures need and is missing: Chromium, npm,
# and the packages of the dashboard's own lock file.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
[ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || missing+=(chromium)
command -v npm >/dev/null 2>&1 || missing+=(npm)
if [ "${#missing[@]}" -ne 0 ]; then
	if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
		echo "please install: ${missing[*]} (CHROMIUM names a browser that is elsewhere)" >&2
		exit 1
	fi
	echo "installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null
	apt-get install -y -q --no-install-recommends "${missing[@]}" fonts-dejavu-core >/dev/null
fi
web=coordinator/dashboard/web
if [ ! -e $web/node_modules/.package-lock.json ] || [ $web/package-lock.json -nt $web/node_modules/.package-lock.json ]; then
	(cd $web && npm ci --no-audit --no-fund)
fi
