/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the kernels that this driver builds for (6.1 and newer). */
#ifndef VIRTIO_GPGPU_COMPAT_H
#define VIRTIO_GPGPU_COMPAT_H

#include <linux/version.h>
#include <linux/virtio_config.h>

typedef void gpgpu_callback_t(struct virtqueue *vq);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)

static inline int gpgpu_find_vqs(struct virtio_device *vdev, unsigned int count,
				 struct virtqueue *vqs[],
				 gpgpu_callback_t *const callbacks[],
				 const char *const names[])
{
	struct virtqueue_info info[8] = {};
	unsigned int i;

	if (WARN_ON(count > ARRAY_SIZE(info)))
		return -EINVAL;
	for (i = 0; i < count; i++) {
		info[i].name = names[i];
		info[i].callback = callbacks[i];
	}
	return virtio_find_vqs(vdev, count, vqs, info, NULL);
}

#else

static inline int gpgpu_find_vqs(struct virtio_device *vdev, unsigned int count,
				 struct virtqueue *vqs[],
				 gpgpu_callback_t *const callbacks[],
				 const char *const names[])
{
	return virtio_find_vqs(vdev, count, vqs, (vq_callback_t **)callbacks,
			       names, NULL);
}

#endif

#endif /* VIRTIO_GPGPU_COMPAT_H */
