#!/usr/bin/env bash
# Runs the virtio-gpgpu demo or its benchmarks on this machine: programs in a VM (QEMU, kernel and guest are in this
# archive), over the back end's socket, or natively. Needs x86-64 and glibc 2.34 or later; with an NVIDIA driver the
# GPU is used.
#
#   ./run.sh demo [--gpu auto|cuda|software] [--vms N] [--no-vm] [--native] [--pitfalls] [--paper] [--results DIR]
#   ./run.sh bench [--gpu auto|cuda|software] [--only ROW] [--quick] [--long] [--no-vm] [--results DIR]
#   ./run.sh bench --many [--gpu auto|cuda|software] [--only SCENARIO] [--quick] [--results DIR]
#   ./run.sh isolation [TEST...]      (VIRTIO_GPGPU_TEST_GPU=software: without a GPU)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=${1:-demo}
[ $# -gt 0 ] && shift
if [ "$command" != demo ] && [ "$command" != bench ] && [ "$command" != isolation ]; then
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
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
if [ "$command" = isolation ]; then
    if [ -z "${VIRTIO_GPGPU_TEST_GPU:-}" ] && nvidia-smi >/dev/null 2>&1; then
        VIRTIO_GPGPU_TEST_GPU=cuda
    fi
    export VIRTIO_GPGPU_TEST_GPU=${VIRTIO_GPGPU_TEST_GPU:-software} VIRTIO_GPGPU_STAGE=$here
    export VIRTIO_GPGPU_TEST_OUT=${VIRTIO_GPGPU_TEST_OUT:-$PWD/results}
    mkdir -p "$VIRTIO_GPGPU_TEST_OUT"
    # One at a time: what each measures is the GPU's memory, and the time that another VM waits.
    exec "$here/bin/isolation-tests" --test-threads=1 --nocapture "$@"
fi
case " $* " in
*" --results "* | *" --results="*) ;;
*) set -- "$@" --results "$PWD/results" ;;
esac
exec "$here/bin/xtask" "$command" --prebuilt "$here" "$@"
