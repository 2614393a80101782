#!/bin/sh
# Builds init.c and ask.c, with system.h, for the machines that engines run on. The results are
# committed, a few KiB each, so that the runner needs no compiler; `go generate`
# calls this.
# On Debian: apt-get install gcc gcc-aarch64-linux-gnu linux-libc-dev-arm64-cross
set -eu
cd "$(dirname "$0")"
flags="-std=gnu11 -Os -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-stack-protector
	-fno-pic -fno-asynchronous-unwind-tables -nostdlib -static
	-Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro -Wl,-z,noseparate-code -s"
build() { # machine, compiler, flags of its own
	for program in init ask; do
		# shellcheck disable=SC2086
		"$2" $flags $3 -no-pie -o "${program}_linux_$1" "$program.c"
	done
}
build amd64 "${CC_AMD64:-gcc}" "-fcf-protection=none"
build arm64 "${CC_ARM64:-aarch64-linux-gnu-gcc}" "-mno-outline-atomics"
for source in init.c ask.c; do
	cat system.h "$source" | sha256sum | cut -d' ' -f1 >"$source.sha256"
done
