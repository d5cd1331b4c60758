#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Starts a VM with a virtio-gpgpu device under an unpatched Cloud Hypervisor, v52 or newer.
#
#   SOCKET=/run/gpgpu/vm.sock KERNEL=vmlinux DISK=guest.raw ./cloud-hypervisor.sh [OPTIONS]
#
# Also from the environment: CLOUD_HYPERVISOR (the program), MEMORY (2G), CPUS (2), INITRD, APPEND.
set -eu

hypervisor=${CLOUD_HYPERVISOR:-cloud-hypervisor}
socket=${SOCKET:-/run/gpgpu/vm.sock}

fail() {
	echo "cloud-hypervisor.sh: $1" >&2
	exit 1
}

[ -n "${KERNEL:-}" ] || fail 'set KERNEL to a kernel or to a firmware; see the top of this file'
[ -n "${DISK:-}${INITRD:-}" ] || fail 'set DISK or INITRD; see the top of this file'
[ -S "$socket" ] || fail "no socket at $socket; start the back end: vhost-device-gpgpu --socket-path $socket"

# "cloud-hypervisor v53.0.0", also with a suffix.
version=$("$hypervisor" --version) || fail "$hypervisor does not run"
major=${version##*[!0-9.a-z-]}
major=${major#v}
major=${major%%.*}
case $major in
'' | *[!0-9]*) fail "cannot tell the version from: $version" ;;
esac
if [ "$major" -lt 52 ]; then
	fail "$version has no generic vhost-user device; v52 or newer has"
elif [ "$major" -eq 52 ]; then
	id=virtio_id=63
else
	id=device_type=63
fi

# The back end maps the guest's memory, so it is shared.
set -- \
	--cpus "boot=${CPUS:-2}" \
	--memory "size=${MEMORY:-2G},shared=on" \
	--kernel "$KERNEL" \
	--cmdline "${APPEND:-console=hvc0 root=/dev/vda1 rw}" \
	--console tty \
	--serial off \
	--generic-vhost-user "socket=$socket,$id,queue_sizes=[256,256,256]" \
	"$@"
[ -z "${DISK:-}" ] || set -- "$@" --disk "path=$DISK"
[ -z "${INITRD:-}" ] || set -- "$@" --initramfs "$INITRD"
exec "$hypervisor" "$@"
