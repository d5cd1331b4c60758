#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Runs the virtio-gpgpu demo, its benchmarks or the tests of its back end on this machine: programs in a VM (QEMU,
# kernel and guest are in this archive), over the back end's socket, or natively. Needs x86-64 and glibc 2.34 or later;
# with an NVIDIA driver the GPU is used.
#
#   ./run.sh demo [--gpu auto|cuda|software] [--vms N] [--no-vm] [--native] [--pitfalls] [--monitor] [--paper] [--results DIR]
#   ./run.sh bench [--gpu auto|cuda|software] [--only ROW] [--quick] [--long] [--no-vm] [--results DIR]
#   ./run.sh bench --many [--gpu auto|cuda|software] [--only SCENARIO] [--quick] [--results DIR]
#   ./run.sh tests [--gpu auto|cuda|software] [--libraries DIR] [--only TEST] [--limit SECONDS] [NAME...]   (logs: $OUT, or ./logs)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=${1:-demo}
[ $# -gt 0 ] && shift
if [ "$command" != demo ] && [ "$command" != bench ] && [ "$command" != tests ]; then
    sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    [ "$command" = --help ] || [ "$command" = help ]
    exit
fi
if [ "$(uname -m)" != x86_64 ]; then
    echo "run.sh: this archive is for x86-64 machines" >&2
    exit 1
fi
if ! "$here/bin/xtask" --version >/dev/null 2>&1; then
    echo "run.sh: this machine's C library is too old: glibc $(cat "$here/glibc") or later is needed" >&2
    exit 1
fi
if [ "$command" = tests ]; then
    exec "$here/bin/xtask" tests --prebuilt "$here" --logs "${OUT:-$PWD/logs}" "$@"
fi
case " $* " in
*" --results "* | *" --results="*) ;;
*) set -- "$@" --results "$PWD/results" ;;
esac
exec "$here/bin/xtask" "$command" --prebuilt "$here" "$@"
