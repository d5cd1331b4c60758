# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Sets the variables of gpgpu-run for all processes of a login shell:
#   ln -s /usr/share/virtio-gpgpu/profile.sh /etc/profile.d/virtio-gpgpu.sh
# Each of these programs then loads two more small libraries.
if [ -e /usr/lib/virtio-gpgpu/libgpgpu_preload.so ] && [ -z "${GPGPU_LIBDIR-}" ]; then
    export GPGPU_LIBDIR=/usr/lib/virtio-gpgpu
    export LD_LIBRARY_PATH="/usr/lib/virtio-gpgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}/usr/lib/virtio-gpgpu/libgpgpu_preload.so"
    export LD_AUDIT="${LD_AUDIT:+$LD_AUDIT:}/usr/lib/virtio-gpgpu/libgpgpu_audit.so"
fi
