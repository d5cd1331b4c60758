#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# The guest's init: mounts what programs expect, loads the driver, runs the jobs of /etc/gpgpu-jobs one after the other,
# then those that come over the console, and powers off. Every line for the host starts with "==>"; what lies between a job's two lines is that job's output.
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

# Milliseconds since the kernel started.
now() {
    read -r up rest </proc/uptime
    echo "$((${up%.*} * 1000 + 1${up#*.} * 10 - 1000))"
}

echo "==> guest kernel=$(uname -r) boot_ms=$(now)"
# What the kernel has as modules and the tests need, in the order of the list.
if [ -f /lib/modules/first ]; then
    while read -r module; do insmod "/lib/modules/$module"; done </lib/modules/first
fi
if [ -f /lib/modules/virtio_gpgpu.ko ]; then
    insmod /lib/modules/virtio_gpgpu.ko
    echo "==> module rc=$?"
fi
tab=$(printf '\t')
run_job() {
    echo "==> begin $1"
    start=$(now)
    timeout -s KILL "$2" sh -c "$3" </dev/null 2>&1
    rc=$?
    echo
    echo "==> end $1 rc=$rc ms=$(($(now) - start))"
}
while IFS=$tab read -r id limit command; do
    run_job "$id" "$limit" "$command"
done </etc/gpgpu-jobs
# A host that wants to choose as it goes gives further jobs on the console, one a line, and "end" after the last.
if [ -f /etc/gpgpu-console ]; then
    stty -echo </dev/console
    echo "==> console"
    while IFS=$tab read -r id limit command; do
        [ "$id" = end ] && break
        run_job "$id" "$limit" "$command"
    done </dev/console
fi
# Anything that the kernel complained about is the host's business; that the module is not signed is no complaint.
dmesg | grep -v 'module verification failed' |
    grep -E 'WARNING:|BUG:|Oops|Call Trace|general protection|virtio_gpgpu.*(fail|error)' | sed 's/^/==> kernel /'
echo "==> finished"
# QEMU's power-off does not work once the machine has slept; its host ends it when it would start again.
[ -f /tmp/suspended ] && reboot -f
poweroff -f
