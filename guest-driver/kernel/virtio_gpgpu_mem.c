// SPDX-License-Identifier: GPL-2.0
/* Memory that the device accesses: kernel buffers, pinned transfers, registrations. */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "virtio_gpgpu_compat.h"
#include "virtio_gpgpu_priv.h"

/* The number of pages to pin at a time: the pointers fill one page. */
#define GPGPU_PIN_BATCH	(PAGE_SIZE / sizeof(struct page *))

/* Allocates zeroed memory, with the scatterlist that describes it. */
int gpgpu_buffer_init(struct gpgpu_buffer *buffer, size_t bytes)
{
	unsigned int count, i;
	struct page **pages;
	int err;

	buffer->bytes = bytes;
	buffer->data = kvzalloc(bytes, GFP_KERNEL_ACCOUNT);
	if (!buffer->data)
		return -ENOMEM;
	if (!is_vmalloc_addr(buffer->data)) {
		sg_init_one(&buffer->one, buffer->data, bytes);
		buffer->sgl = &buffer->one;
		buffer->nents = 1;
		return 0;
	}

	count = DIV_ROUND_UP(bytes, PAGE_SIZE);
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		pages[i] = vmalloc_to_page(buffer->data + i * PAGE_SIZE);
	err = sg_alloc_table_from_pages(&buffer->table, pages, count, 0, bytes,
					GFP_KERNEL);
	kvfree(pages);
	if (err)
		return err;
	buffer->sgl = buffer->table.sgl;
	buffer->nents = buffer->table.orig_nents;
	return 0;
}

void gpgpu_buffer_free(struct gpgpu_buffer *buffer)
{
	if (buffer->table.sgl)
		sg_free_table(&buffer->table);
	kvfree(buffer->data);
}

/*
 * Prepares to pin user memory for the length of an exchange, as direct I/O
 * does. Memory that the device writes to is faulted in for writing first.
 * Otherwise the device would write to the kernel's zero page. Memory that the
 * device reads is not, because it may be read-only, and a copy of a shared page
 * would be wasted.
 */
int gpgpu_pinner_init(struct gpgpu_pinner *pinner, u64 address, u64 bytes,
		      bool written, unsigned int max_nents)
{
	u64 pages = (bytes >> PAGE_SHIFT) + 2;

	if (address != (unsigned long)address ||
	    bytes != (unsigned long)bytes ||
	    !access_ok((void __user *)(unsigned long)address, bytes))
		return -EFAULT;
	pinner->next = address;
	pinner->end = address + bytes;
	pinner->written = written;
	pinner->max_nents = min_t(u64, max_nents, pages);
	pinner->scratch = kvmalloc_array(pinner->max_nents,
					 sizeof(*pinner->scratch), GFP_KERNEL);
	pinner->pages = kmalloc_array(min_t(u64, GPGPU_PIN_BATCH, pages),
				      sizeof(*pinner->pages), GFP_KERNEL);
	if (!pinner->scratch || !pinner->pages) {
		gpgpu_pinner_free(pinner);
		return -ENOMEM;
	}
	sg_init_table(pinner->scratch, pinner->max_nents);
	return 0;
}

/* Unpins pages that are in no piece yet. They are pinned again when they are needed. */
void gpgpu_pinner_let_go(struct gpgpu_pinner *pinner)
{
	if (pinner->count)
		unpin_user_pages(pinner->pages + pinner->first, pinner->count);
	pinner->count = 0;
}

void gpgpu_pinner_free(struct gpgpu_pinner *pinner)
{
	gpgpu_pinner_let_go(pinner);
	kfree(pinner->pages);
	kvfree(pinner->scratch);
	memset(pinner, 0, sizeof(*pinner));
}

/*
 * Whether a page follows another one in physical memory and in the memory map:
 * runs are unpinned by their first page, and without VMEMMAP the map of a
 * section need not follow the map of the previous section.
 */
static bool gpgpu_follows(struct page *page, struct page *before)
{
	return page == before + 1 && page_to_pfn(page) == page_to_pfn(before) + 1;
}

/* The number of successive pages from the first one on. */
static unsigned int gpgpu_run_length(struct page **pages, unsigned int count)
{
	unsigned int i = 1;

	while (i < count && gpgpu_follows(pages[i], pages[i - 1]))
		i++;
	return i;
}

static void gpgpu_unpin_runs(struct scatterlist *sgl, unsigned int nents,
			     bool written)
{
	unsigned int i;

	for (i = 0; i < nents; i++)
		unpin_user_page_range_dirty_lock(
			sg_page(&sgl[i]),
			PFN_UP(sgl[i].offset + sgl[i].length), written);
}

/*
 * Pins the next `bytes` bytes, or fewer if one piece can hold no further runs,
 * or before memory that cannot be pinned. Returns -EFAULT if the piece would
 * begin with such memory (a mapping of a device), which may still be copied. A
 * piece that is not the last one ends at the end of a page.
 */
int gpgpu_pin_piece(struct gpgpu_pinner *pinner, size_t bytes,
		    struct gpgpu_pinned *pinned)
{
	unsigned long at = pinner->next, stop = at + bytes;
	struct scatterlist *sgl = pinner->scratch;
	unsigned int gup = pinner->written ? FOLL_WRITE : 0;
	struct page *first, *last = NULL;
	unsigned int nents = 0, run;
	size_t length;
	int got;

	while (at < stop) {
		if (!pinner->count) {
			got = pin_user_pages_fast(
				at & PAGE_MASK,
				min_t(unsigned long, GPGPU_PIN_BATCH,
				      PFN_UP(stop) - PFN_DOWN(at)),
				gup, pinner->pages);
			if (got <= 0) {
				pinner->err = got ?: -EFAULT;
				if (!nents)
					return pinner->err;
				break;
			}
			pinner->first = 0;
			pinner->count = got;
		}
		run = gpgpu_run_length(pinner->pages + pinner->first,
				       pinner->count);
		length = min(run * PAGE_SIZE - offset_in_page(at), stop - at);
		run = PFN_UP(offset_in_page(at) + length);
		first = pinner->pages[pinner->first];
		if (nents && gpgpu_follows(first, last)) {
			sgl[nents - 1].length += length;
		} else {
			if (nents == pinner->max_nents)
				break;
			sg_set_page(&sgl[nents++], first, length,
				    offset_in_page(at));
		}
		last = pinner->pages[pinner->first + run - 1];
		pinner->first += run;
		pinner->count -= run;
		at += length;
	}

	pinned->sgl = kvmalloc_array(nents, sizeof(*sgl), GFP_KERNEL_ACCOUNT);
	if (!pinned->sgl) {
		gpgpu_unpin_runs(sgl, nents, false);
		pinner->next = at;
		return -ENOMEM;
	}
	memcpy(pinned->sgl, sgl, nents * sizeof(*sgl));
	sg_mark_end(&pinned->sgl[nents - 1]);
	pinned->nents = nents;
	pinned->bytes = at - pinner->next;
	pinned->written = pinner->written;
	pinner->next = at;
	return 0;
}

/*
 * Pins memory in one piece: errors as gpgpu_pin_piece(), or -E2BIG for too many
 * runs.
 */
int gpgpu_pin_all(struct gpgpu_pinned *pinned, u64 address, size_t bytes,
		  bool written, unsigned int max_nents)
{
	struct gpgpu_pinner pinner = {};
	int err;

	err = gpgpu_pinner_init(&pinner, address, bytes, written, max_nents);
	if (err)
		return err;
	err = gpgpu_pin_piece(&pinner, bytes, pinned);
	if (!err && pinned->bytes < bytes) {
		err = pinner.count ? -E2BIG : pinner.err;
		gpgpu_unpin(pinned);
	}
	gpgpu_pinner_free(&pinner);
	return err;
}

void gpgpu_unpin(struct gpgpu_pinned *pinned)
{
	if (!pinned->sgl)
		return;
	gpgpu_unpin_runs(pinned->sgl, pinned->nents, pinned->written);
	kvfree(pinned->sgl);
	pinned->sgl = NULL;
}

/* The number of pinned pages. */
unsigned long gpgpu_pinned_pages(const struct gpgpu_pinned *pinned)
{
	unsigned long pages = 0;
	unsigned int i;

	for (i = 0; pinned->sgl && i < pinned->nents; i++)
		pages += PFN_UP(pinned->sgl[i].offset +
				pinned->sgl[i].length);
	return pages;
}

static void gpgpu_region_release(struct kref *ref)
{
	struct gpgpu_region *region =
		container_of(ref, struct gpgpu_region, ref);
	unsigned int i;

	for (i = 0; i < region->num_runs; i++) {
		struct gpgpu_wire_run *run = &region->runs[i];

		unpin_user_page_range_dirty_lock(
			pfn_to_page(PHYS_PFN(le64_to_cpu(run->address))),
			le64_to_cpu(run->length) >> PAGE_SHIFT, true);
		cond_resched();
	}
	if (region->client)
		gpgpu_uncharge(region->client, region->num_pages);
	kvfree(region->runs);
	kfree(region);
}

/* Dropping the last reference unpins. May sleep. */
void gpgpu_region_put(struct gpgpu_region *region)
{
	kref_put(&region->ref, gpgpu_region_release);
}

/* Appends pages to the runs; returns the number of pages that found room. */
static int gpgpu_region_append(struct gpgpu_region *region, struct page **pages,
			       int count, u32 max_runs, struct page **last)
{
	int i;

	for (i = 0; i < count; i++) {
		u64 address = page_to_phys(pages[i]);

		if (region->num_runs && gpgpu_follows(pages[i], *last)) {
			le64_add_cpu(&region->runs[region->num_runs - 1].length,
				     PAGE_SIZE);
		} else {
			if (region->num_runs == max_runs)
				break;
			region->runs[region->num_runs].address =
				cpu_to_le64(address);
			region->runs[region->num_runs].length =
				cpu_to_le64(PAGE_SIZE);
			region->num_runs++;
		}
		*last = pages[i];
	}
	return i;
}

/*
 * Pins user memory until the last gpgpu_region_put(). The worker may write to
 * all of it, so the process must be allowed to write to it; read-only memory is
 * replaced by a private copy of the process (FOLL_FORCE), which fails for a
 * shared mapping. A mapping of a file that is written back to storage is
 * refused too: the file system could not tell when the device writes. Returns
 * -E2BIG for more runs than `max_runs`.
 */
struct gpgpu_region *gpgpu_region_pin(struct gpgpu_client *client, u64 address,
				      u64 length, bool read_only, u32 max_runs)
{
	unsigned int gup = FOLL_WRITE | FOLL_LONGTERM |
			   (read_only ? FOLL_FORCE : 0);
	struct gpgpu_region *region;
	struct page **pages = NULL, *last = NULL;
	unsigned long left, batch;
	u64 end;
	int got, kept, err;

	if (!length || !IS_ALIGNED(address | length, PAGE_SIZE) ||
	    check_add_overflow(address, length, &end))
		return ERR_PTR(-EINVAL);
	if (address != (unsigned long)address ||
	    length != (unsigned long)length ||
	    !access_ok((void __user *)(unsigned long)address, length))
		return ERR_PTR(-EFAULT);

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return ERR_PTR(-ENOMEM);
	kref_init(&region->ref);
	INIT_LIST_HEAD(&region->node);
	region->num_pages = length >> PAGE_SHIFT;
	err = -ENOMEM;
	if (!gpgpu_charge(client, region->num_pages, false))
		goto unpin;
	region->client = client;
	region->runs = kvmalloc_array(min_t(u64, region->num_pages, max_runs),
				      sizeof(*region->runs), GFP_KERNEL_ACCOUNT);
	pages = kmalloc_array(GPGPU_PIN_BATCH, sizeof(*pages), GFP_KERNEL);
	if (!region->runs || !pages)
		goto unpin;

	for (left = region->num_pages; left; left -= got) {
		if (fatal_signal_pending(current)) {
			err = -EINTR;
			goto unpin;
		}
		batch = min_t(unsigned long, left, GPGPU_PIN_BATCH);
		got = pin_user_pages_fast((unsigned long)end - left * PAGE_SIZE,
					  batch, gup, pages);
		if (got <= 0) {
			err = got ?: -EFAULT;
			goto unpin;
		}
		if (gpgpu_any_written_back(pages, got)) {
			unpin_user_pages(pages, got);
			err = -EFAULT;
			goto unpin;
		}
		kept = gpgpu_region_append(region, pages, got, max_runs,
					   &last);
		if (kept < got) {
			unpin_user_pages(pages + kept, got - kept);
			err = -E2BIG;
			goto unpin;
		}
		cond_resched();
	}
	kfree(pages);
	return region;

unpin:
	kfree(pages);
	gpgpu_region_put(region);
	return ERR_PTR(err);
}
