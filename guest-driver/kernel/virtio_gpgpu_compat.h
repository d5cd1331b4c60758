/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between the kernels that this driver builds for (6.1 and newer). */
#ifndef VIRTIO_GPGPU_COMPAT_H
#define VIRTIO_GPGPU_COMPAT_H

#include <linux/backing-dev.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/version.h>
#include <linux/virtio.h>
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

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)

/* A long-term pin refuses such pages. */
static inline bool gpgpu_any_written_back(struct page **pages, int count)
{
	return false;
}

#else

/* Whether a page belongs to a file that is written back to storage. */
static inline bool gpgpu_is_written_back(struct page *page)
{
	struct folio *folio = page_folio(page);
	struct address_space *mapping;
	bool is = false;

	if (folio_test_anon(folio))
		return false;
	/* The mapping cannot change while the lock is held. */
	folio_lock(folio);
	mapping = folio_test_swapcache(folio) ? NULL : folio_mapping(folio);
	if (mapping)
		is = mapping_can_writeback(mapping);
	folio_unlock(folio);
	return is;
}

static inline bool gpgpu_any_written_back(struct page **pages, int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (gpgpu_is_written_back(pages[i]))
			return true;
	return false;
}

#endif

#endif /* VIRTIO_GPGPU_COMPAT_H */
