// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: their creation and release.
 *
 * The queue drops requests with interrupts off, and freeing a request's
 * resources may take long. So requests without a reference are put on lists,
 * which are emptied in contexts that may sleep.
 */
#include <linux/llist.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "virtio_gpgpu_priv.h"

/*
 * Requests without a reference; freeing one may sleep, dropping it must not.
 * Releasing pages can take long (they may be under writeback), so only the work
 * item frees requests with pinned pages.
 */
static LLIST_HEAD(gpgpu_dead);
static LLIST_HEAD(gpgpu_dead_pinned);

/* Requests that were left and have completed, each with a reference. */
static LLIST_HEAD(gpgpu_left);

bool gpgpu_request_has_pages(const struct gpgpu_request *request)
{
	return (request->pinned_in.sgl || request->pinned_out.sgl) &&
	       !atomic_read(&request->unpinned);
}

/* Releases the user's pages, once. May sleep. */
void gpgpu_request_unpin(struct gpgpu_request *request)
{
	if (atomic_xchg(&request->unpinned, 1))
		return;
	gpgpu_unpin(&request->pinned_in);
	gpgpu_unpin(&request->pinned_out);
	if (request->over)
		gpgpu_request_not_over(request);
	if (request->charged)
		gpgpu_uncharge(request->client, request->charged);
}

static void gpgpu_request_free(struct gpgpu_request *request)
{
	gpgpu_request_unpin(request);
	gpgpu_buffer_free(&request->readable);
	gpgpu_buffer_free(&request->writable);
	if (request->client)
		gpgpu_client_put(request->client);
	kfree(request);
}

static void gpgpu_request_release_now(struct kref *ref)
{
	gpgpu_request_free(container_of(ref, struct gpgpu_request, ref));
}

static void gpgpu_reap_list(struct llist_head *list)
{
	struct gpgpu_request *request, *next;

	llist_for_each_entry_safe(request, next, llist_del_all(list), dead_node)
		gpgpu_request_free(request);
}

static void gpgpu_reap_work(struct work_struct *work)
{
	struct gpgpu_request *request, *next;

	llist_for_each_entry_safe(request, next, llist_del_all(&gpgpu_left),
				  dead_node) {
		gpgpu_request_unpin(request);
		kref_put(&request->ref, gpgpu_request_release_now);
	}
	gpgpu_reap_list(&gpgpu_dead_pinned);
	gpgpu_reap_list(&gpgpu_dead);
}

static DECLARE_WORK(gpgpu_reaper, gpgpu_reap_work);

/* Frees all dropped requests. May sleep. */
void gpgpu_reap(void)
{
	gpgpu_reap_list(&gpgpu_dead);
	if (!llist_empty(&gpgpu_left) || !llist_empty(&gpgpu_dead_pinned))
		queue_work(gpgpu_wq, &gpgpu_reaper);
}

/* Queues gpgpu_reap(). Any context. */
void gpgpu_reap_later(void)
{
	if (!llist_empty(&gpgpu_dead) || !llist_empty(&gpgpu_left) ||
	    !llist_empty(&gpgpu_dead_pinned))
		queue_work(gpgpu_wq, &gpgpu_reaper);
}

/* Any context. */
static void gpgpu_request_release(struct kref *ref)
{
	struct gpgpu_request *request =
		container_of(ref, struct gpgpu_request, ref);

	llist_add(&request->dead_node, gpgpu_request_has_pages(request) ?
				       &gpgpu_dead_pinned : &gpgpu_dead);
}

/*
 * Drops the queue's reference: the device has completed the request, or never
 * got it. Any context.
 */
void gpgpu_request_return(struct gpgpu_request *request)
{
	if (request->left && gpgpu_request_has_pages(request))
		llist_add(&request->dead_node, &gpgpu_left);
	else
		kref_put(&request->ref, gpgpu_request_release);
}

/* May sleep. */
void gpgpu_request_put(struct gpgpu_request *request)
{
	kref_put(&request->ref, gpgpu_request_release_now);
	gpgpu_reap();
}

/* The number of pages pinned for a request that was not left. */
unsigned long gpgpu_request_pages(const struct gpgpu_request *request)
{
	return gpgpu_pinned_pages(&request->pinned_in) +
	       gpgpu_pinned_pages(&request->pinned_out);
}

/* A request with room for `readable` bytes to the device and `writable` bytes from it. */
struct gpgpu_request *gpgpu_request_new(struct gpgpu_client *client,
					enum gpgpu_queue_index index,
					size_t readable, size_t writable)
{
	struct gpgpu_request *request;
	int err;

	request = kzalloc(sizeof(*request), GFP_KERNEL_ACCOUNT);
	if (!request)
		return ERR_PTR(-ENOMEM);
	kref_init(&request->ref);
	INIT_LIST_HEAD(&request->node);
	INIT_LIST_HEAD(&request->of_client);
	init_completion(&request->done);
	request->queue = &client->device->queues[index];

	err = gpgpu_buffer_init(&request->readable, readable);
	if (!err)
		err = gpgpu_buffer_init(&request->writable, writable);
	if (err) {
		gpgpu_request_free(request);
		return ERR_PTR(err);
	}
	request->sgs[0] = request->readable.sgl;
	request->sgs[1] = request->writable.sgl;
	request->num_readable = 1;
	request->num_writable = 1;
	request->segments = request->readable.nents + request->writable.nents;

	gpgpu_client_get(client);
	request->client = client;
	return request;
}
