#!/bin/busybox sh
# The guest's init: mounts what programs expect, loads the driver, runs the jobs of /etc/gpgpu-jobs one after the other and
# powers off. Every line for the host starts with "==>"; what lies between a job's two lines is that job's output.
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
if [ -f /lib/modules/virtio_gpgpu.ko ]; then
    insmod /lib/modules/virtio_gpgpu.ko
    echo "==> module rc=$?"
fi
tab=$(printf '\t')
while IFS=$tab read -r id limit command; do
    echo "==> begin $id"
    start=$(now)
    timeout -s KILL "$limit" sh -c "$command" </dev/null 2>&1
    rc=$?
    echo
    echo "==> end $id rc=$rc ms=$(($(now) - start))"
done </etc/gpgpu-jobs
# Anything that the kernel complained about is the host's business; that the module is not signed is no complaint.
dmesg | grep -v 'module verification failed' |
    grep -E 'WARNING:|BUG:|Oops|Call Trace|general protection|virtio_gpgpu.*(fail|error)' | sed 's/^/==> kernel /'
echo "==> finished"
poweroff -f
