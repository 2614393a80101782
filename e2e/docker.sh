#!/usr/bin/env bash
# Makes local Docker ready for the tests: installs Debian's engine where none is
# and the machine allows it, starts it, and builds the test images from Debian's
# packages, so that no image registry is needed. Does nothing when all is there.
#
#   test/busybox:1  one static binary: what nearly every test runs
#   test/debian:1   a minimal Debian with git and python3
#
# EVERDICT_TEST_CACHE is where the Debian root is kept between engines
# (default: ~/.cache/everdict-test).
set -euo pipefail

cache=${EVERDICT_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/everdict-test}
root_user() { [ "$(id -u)" -eq 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }
up() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
image() { docker image inspect "$1" >/dev/null 2>&1; }

fail() {
	echo "docker: $*" >&2
	exit 1
}

install() {
	if ! have apt-get || ! root_user; then
		fail "please install: $*"
	fi
	echo "installing $*" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null
	apt-get install -y -q --no-install-recommends "$@" >/dev/null
}

# The engine, and the client that asks it.
if ! have docker || { ! up && ! have dockerd; }; then
	install docker.io iptables
fi

if ! up; then
	root_user || fail "no engine answers, and only root can start one"
	mkdir -p "$cache"
	log=$cache/dockerd.log
	echo "starting dockerd, its output goes to $log" >&2
	# A pid file of an engine that a restart of the machine took would stop this one.
	pidfile=/var/run/docker.pid
	if [ -f "$pidfile" ] && ! kill -0 "$(cat "$pidfile")" 2>/dev/null; then
		rm -f "$pidfile"
	fi
	# A session of its own, without what the caller has open: the engine stays when make ends.
	(
		for fd in /proc/self/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		exec setsid nohup dockerd
	) >"$log" 2>&1 </dev/null &
	engine=$!
	for _ in $(seq 1 300); do
		up && break
		kill -0 "$engine" 2>/dev/null || { tail -n 20 "$log" >&2; fail "dockerd ended"; }
		sleep 0.1
	done
	up || { tail -n 20 "$log" >&2; fail "dockerd does not answer after 30 s"; }
fi

image test/busybox:1 && image test/debian:1 && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! image test/busybox:1; then
	busybox=
	for b in /bin/busybox /usr/bin/busybox; do
		[ -x "$b" ] && busybox=$b && break
	done
	if [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then # a dynamic one would need its libraries
		install busybox-static
		busybox=/bin/busybox
	fi
	echo "building test/busybox:1" >&2
	mkdir -p "$work"/busybox/{bin,etc,proc,sys,dev,root,tmp}
	chmod 1777 "$work/busybox/tmp"
	cp "$busybox" "$work/busybox/bin/busybox"
	for tool in $("$busybox" --list); do
		[ "$tool" = busybox ] || ln -sf busybox "$work/busybox/bin/$tool"
	done
	mkdir -p "$work/busybox/usr"
	ln -s ../bin "$work/busybox/usr/bin"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$work/busybox/etc/passwd"
	echo 'root:x:0:' >"$work/busybox/etc/group"
	tar -C "$work/busybox" --numeric-owner --owner=0 --group=0 -c . | docker import - test/busybox:1 >/dev/null
fi

if ! image test/debian:1; then
	tarball=$cache/debian-1.tar
	if [ ! -s "$tarball" ]; then
		root_user || fail "test/debian:1 is missing, and only root can build it (debootstrap)"
		have debootstrap || install debootstrap
		echo "building test/debian:1 with debootstrap, which takes a minute or two" >&2
		mkdir -p "$cache"
		debootstrap --variant=minbase --include=git,python3-minimal,ca-certificates \
			bookworm "$work/debian" >"$cache/debootstrap.log" 2>&1 ||
			{ tail -n 20 "$cache/debootstrap.log" >&2; fail "debootstrap failed"; }
		rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work"/debian/var/lib/apt/lists/*
		tar -C "$work/debian" --numeric-owner --one-file-system -cf "$tarball.part" .
		mv "$tarball.part" "$tarball"
	fi
	docker import "$tarball" test/debian:1 >/dev/null
fi
