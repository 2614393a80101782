#!/usr/bin/env bash
# Makes the images of the tests, without an engine and without a registry, and loads
# them into the cluster's containerd:
#   test/pause:1, everdict-test/unit:1  what the conformance suite's units run
#   everdict-test/runner:1              job-runner in a busybox
#   everdict-test/impatient:1           the same, which gives its result up after 2 s
#   everdict-test/own:1                 runner:1 with a user that is neither root nor in its group
#   everdict-test/case:1                a busybox, as the image of a case
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=${STATE:-${TMPDIR:-/tmp}/everdict-kube}
made=$state/images
mkdir -p "$made"
busybox=$(command -v busybox)

cd "$here"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$made/unit" ./unit
go build -o "$made/image" ./image
(cd ../.. && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$made/job-runner" ./cmd/job-runner)
image() { # NAME ENTRY ARGS...
	local name=$1 entry=$2
	shift 2
	"$made/image" -o "$made/$(basename "${name%%:*}").tar" -name "docker.io/$name" -entry "$entry" "$@"
}
image test/pause:1 /unit "$made/unit:/unit"
image everdict-test/unit:1 /unit "$made/unit:/unit"
image everdict-test/runner:1 /usr/local/bin/job-runner -busybox "$busybox" "$made/job-runner:/usr/local/bin/job-runner"
image everdict-test/impatient:1 /usr/local/bin/job-runner -env EVERDICT_DELIVER_TIMEOUT=2s -busybox "$busybox" "$made/job-runner:/usr/local/bin/job-runner"
printf 'root:x:0:0::/root:/bin/sh\nown:x:1000:1000::/:/bin/sh\n' >"$made/passwd" # from where a container has its group
image everdict-test/own:1 /usr/local/bin/job-runner -user own -busybox "$busybox" "$made/job-runner:/usr/local/bin/job-runner" "$made/passwd:/etc/passwd"
printf '#!/bin/sh\necho in its own image\n' >"$made/of-the-case"
image everdict-test/case:1 "" -busybox "$busybox" "$made/of-the-case:/usr/local/bin/of-the-case"
for tar in "$made"/*.tar; do
	ctr -a "$state/containerd.sock" -n k8s.io images import "$tar" >/dev/null
done
