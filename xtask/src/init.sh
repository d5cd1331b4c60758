#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# The guest's init: mounts the file systems that programs expect, loads the driver, runs the jobs in /etc/gpgpu-jobs one
# after the other, then those from the console, and powers off.
/bin/busybox mkdir -p /dev /proc /sys /tmp
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
ip link set lo up 2>/dev/null

. /etc/gpgpu-functions
say_kernel
# Loads the modules that the tests need, in the order of the list.
if [ -f /lib/modules/first ]; then
    while read -r module; do insmod "/lib/modules/$module"; done </lib/modules/first
fi
if [ -f /lib/modules/virtio_gpgpu.ko ]; then
    insmod /lib/modules/virtio_gpgpu.ko
    echo "==> module rc=$?"
fi
run_jobs </etc/gpgpu-jobs
# An interactive host sends further jobs on the console, one per line, and "end" after the last.
if [ -f /etc/gpgpu-console ]; then
    stty -echo </dev/console
    echo "==> console"
    run_jobs </dev/console
fi
# Reports the kernel's errors to the host.
say_complaints
echo "==> finished"
# QEMU's power-off does not work once the machine has been suspended; the host ends it when it would start again.
[ -f /tmp/suspended ] && reboot -f
poweroff -f
