#!/usr/bin/env bash
# Stops what up.sh started, by pid; --wipe also removes its state, mounts, cgroups and
# bridge. What was built stays.
set -uo pipefail
R=${STATE:-${TMPDIR:-/tmp}/everdict-kube}
alive() { [ -f "$R/pids/$1" ] && kill -0 "$(cat "$R/pids/$1")" 2>/dev/null; }
stop() { # all named get TERM at once, then up to 10 s, then KILL
	for n in "$@"; do alive "$n" && kill -TERM "$(cat "$R/pids/$n")" 2>/dev/null; done
	for n in "$@"; do
		for _ in $(seq 1 100); do alive "$n" || break; sleep .1; done
		alive "$n" && kill -KILL "$(cat "$R/pids/$n")" 2>/dev/null
		rm -f "$R/pids/$n"
	done
}
c() { ctr -a "$R/containerd.sock" -n k8s.io "$@" 2>/dev/null; }
stop kubelet
if alive containerd; then # what the kubelet left running, by containerd's own list
	for t in $(c tasks ls -q); do c tasks kill -s KILL -a "$t"; done >/dev/null
	for _ in $(seq 1 50); do c tasks ls | grep -q RUNNING || break; sleep .1; done
	for t in $(c tasks ls -q); do c tasks rm -f "$t"; done >/dev/null
	for t in $(c containers ls -q); do c containers rm "$t"; done >/dev/null
fi
stop sched kcm apiserver
stop etcd containerd
[ -f "$R/sysctl.saved" ] && sysctl -q -p "$R/sysctl.saved" >/dev/null 2>&1
if [ "${1:-}" = --wipe ]; then
	grep -oE "$R/[^ ]*" /proc/mounts | sort -ur | while read -r m; do umount -l "$m" 2>/dev/null; done
	for n in $(ls /run/netns 2>/dev/null | grep '^cni-'); do ip netns del "$n" 2>/dev/null; done
	find "$R" -mindepth 1 -maxdepth 1 ! -name bin -exec rm -rf {} + 2>/dev/null
	ip link del everdict-cni0 2>/dev/null
	for d in /sys/fs/cgroup/*/kubepods /sys/fs/cgroup/kubepods; do [ -d "$d" ] && find "$d" -depth -type d -exec rmdir {} \; 2>/dev/null; done
fi
echo down
