#!/usr/bin/env bash
# Installs what the desktop app's tests need and is missing: an X server that draws into
# memory with a window manager and hands, a D-Bus daemon, WebKitGTK, and the checkers of
# .desktop files and of systemd's units. Does nothing when all is there.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need Xvfb xvfb
need openbox openbox
need xdotool xdotool
need wmctrl wmctrl
need xprop x11-utils
need xdg-open xdg-utils
need dbus-daemon dbus-daemon
need desktop-file-validate desktop-file-utils
need systemd-analyze systemd
need dpkg-deb dpkg
need chromium chromium
ldconfig -p | grep -qF libwebkit2gtk-4.1.so.0 || missing+=(libwebkit2gtk-4.1-0)
[ "${#missing[@]}" -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
	echo "please install: ${missing[*]}" >&2
	exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
