#!/usr/bin/env bash
# Brings up a real Kubernetes of one node on loopback: etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, containerd and kubelet. All state is under
# $STATE (default: $TMPDIR/everdict-kube). What is up already stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export STATE=${STATE:-${TMPDIR:-/tmp}/everdict-kube}
R=$STATE B=$STATE/bin P=$STATE/pki
mkdir -p "$R/pids" "$R/log" "$R/conf" "$R/cni-conf"

need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
missing=()
need etcd etcd-server; need containerd containerd; need runc runc; need busybox busybox-static; need curl curl; need openssl openssl
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
if [ "${#missing[@]}" -gt 0 ]; then
	echo "installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null
	apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi
[ -x "$B/kube-all" ] || "$here/build.sh"

render() { sed "s#@STATE@#$R#g" "$here/$1" >"$2"; }
render containerd.toml "$R/conf/containerd.toml"
render kubelet.yaml "$R/conf/kubelet.yaml"
render cni/10-bridge.conflist "$R/cni-conf/10-bridge.conflist"

alive() { [ -f "$R/pids/$1" ] && kill -0 "$(cat "$R/pids/$1")" 2>/dev/null; }
start() { # NAME COMMAND...
	local name=$1
	shift
	alive "$name" && return
	# What the caller has open (a lock, say) is not for what outlives it.
	(
		for fd in /proc/self/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		exec setsid "$@"
	) >"$R/log/$name.log" 2>&1 </dev/null &
	echo $! >"$R/pids/$name"
}
await() { # NAME COMMAND...: until the command succeeds, as long as NAME lives
	local name=$1
	shift
	for _ in $(seq 1 480); do
		"$@" >/dev/null 2>&1 && return
		alive "$name" || { echo "$name died" >&2; tail -15 "$R/log/$name.log" >&2; exit 1; }
		sleep .25
	done
	echo "$name is not ready after 2 minutes" >&2
	tail -15 "$R/log/$name.log" >&2
	exit 1
}
api() { curl -fsS -m 5 --cacert "$P/ca.crt" --cert "$P/admin.crt" --key "$P/admin.key" "https://127.0.0.1:6443$1"; }
node_ready() { api "/api/v1/nodes/127.0.0.1?pretty=true" | grep -A1 '"type": "Ready"' | grep -q '"True"'; }

"$here/pki.sh"
# A test's etcd may lose what it has: it does not wait for the disk.
start etcd etcd --name everdict --data-dir "$R/etcd" --unsafe-no-fsync \
	--listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 \
	--listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster everdict=http://127.0.0.1:12380
start containerd containerd --config "$R/conf/containerd.toml"
await etcd curl -fsS -m 2 http://127.0.0.1:12379/health
start apiserver "$B/kube-all" kube-apiserver --etcd-servers=http://127.0.0.1:12379 \
	--bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=6443 --endpoint-reconciler-type=none \
	--tls-cert-file="$P/apiserver.crt" --tls-private-key-file="$P/apiserver.key" --client-ca-file="$P/ca.crt" \
	--kubelet-client-certificate="$P/kubelet-client.crt" --kubelet-client-key="$P/kubelet-client.key" \
	--kubelet-preferred-address-types=InternalIP,Hostname \
	--service-account-issuer=https://kubernetes.default.svc --service-account-signing-key-file="$P/sa.key" --service-account-key-file="$P/sa.pub" \
	--service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
	--profiling=false --event-ttl=1h
await containerd test -S "$R/containerd.sock"
"$here/images.sh"
await apiserver api /readyz
start kcm "$B/kube-all" kube-controller-manager --kubeconfig="$R/kcm.kubeconfig" --authentication-kubeconfig="$R/kcm.kubeconfig" \
	--authorization-kubeconfig="$R/kcm.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false \
	--service-account-private-key-file="$P/sa.key" --root-ca-file="$P/ca.crt" --use-service-account-credentials=true \
	--cluster-signing-cert-file="$P/ca.crt" --cluster-signing-key-file="$P/ca.key" --node-monitor-grace-period=16s --node-monitor-period=2s
start sched "$B/kube-all" kube-scheduler --kubeconfig="$R/sched.kubeconfig" --authentication-kubeconfig="$R/sched.kubeconfig" \
	--authorization-kubeconfig="$R/sched.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false
# The kubelet changes these; down.sh puts them back.
[ -f "$R/sysctl.saved" ] || sysctl vm.overcommit_memory kernel.panic kernel.panic_on_oops >"$R/sysctl.saved"
start kubelet "$B/kube-all" kubelet --config="$R/conf/kubelet.yaml" --kubeconfig="$R/kubelet.kubeconfig" \
	--hostname-override=127.0.0.1 --root-dir="$R/kubelet" --cert-dir="$R/kubelet-pki"
await kubelet node_ready
await kcm api /api/v1/namespaces/default/serviceaccounts/default
echo "up: KUBECONFIG=$R/admin.kubeconfig"
