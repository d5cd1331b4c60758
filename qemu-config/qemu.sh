#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Starts a VM with a virtio-gpgpu device under an unpatched QEMU, 10.2 or newer.
#
#   SOCKET=/run/gpgpu/vm.sock DISK=guest.qcow2 ./qemu.sh [QEMU OPTIONS]
#   SOCKET=/run/gpgpu/vm.sock KERNEL=vmlinuz INITRD=initrd.img APPEND='…' ./qemu.sh [QEMU OPTIONS]
#
# Also from the environment: QEMU (the program), MEMORY (2G), CPUS (2).
set -eu

qemu=${QEMU:-qemu-system-x86_64}
socket=${SOCKET:-/run/gpgpu/vm.sock}
memory=${MEMORY:-2G}

fail() {
	echo "qemu.sh: $1" >&2
	exit 1
}

[ -n "${DISK:-}${KERNEL:-}" ] || fail 'set DISK or KERNEL; see the top of this file'
[ -S "$socket" ] || fail "no socket at $socket; start the back end: vhost-device-gpgpu --socket-path $socket"
devices=$("$qemu" -M none -device help) || fail "$qemu does not run"
case $devices in
*vhost-user-test-device-pci*) ;;
*) fail "$qemu has no vhost-user-test-device-pci; QEMU 10.2 or newer has" ;;
esac

# The back end maps the guest's memory, so it is a file that can be shared, of just the size of -m.
set -- \
	-machine q35 \
	-smp "${CPUS:-2}" \
	-m "$memory" \
	-object "memory-backend-memfd,id=mem,size=$memory,share=on" \
	-numa node,memdev=mem \
	-chardev "socket,id=gpgpu,path=$socket" \
	-device vhost-user-test-device-pci,chardev=gpgpu,virtio-id=6,num_vqs=3,vq_size=1024,config_size=64 \
	-display none \
	-serial mon:stdio \
	"$@"

# KVM if the host has it, otherwise QEMU's translator.
if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
	set -- -accel kvm -cpu host "$@"
else
	echo 'qemu.sh: /dev/kvm cannot be used: guest code is emulated, and slow' >&2
	set -- -accel tcg,thread=multi -cpu max "$@"
fi
if [ -n "${DISK:-}" ]; then
	set -- "$@" -drive "file=$DISK,if=virtio,discard=unmap" -nic user,model=virtio-net-pci
fi
if [ -n "${KERNEL:-}" ]; then
	set -- "$@" -kernel "$KERNEL" -append "${APPEND:-console=ttyS0}"
	[ -z "${INITRD:-}" ] || set -- "$@" -initrd "$INITRD"
fi
exec "$qemu" "$@"
