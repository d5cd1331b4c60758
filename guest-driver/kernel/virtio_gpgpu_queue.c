// SPDX-License-Identifier: GPL-2.0
/*
 * Requests and the two virtqueues that carry them.
 *
 * A request enters its queue's pending list and moves on into the virtqueue
 * when there are descriptors, always under the queue's lock and always oldest
 * first: that is the one order in which the device sees requests.
 *
 * Interrupts are off unless somebody sleeps. Whoever takes the lock also takes
 * back what the device has finished, so that a stream of submissions without
 * waiters runs without any interrupt.
 */
#include <linux/ktime.h>
#include <linux/processor.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "virtio_gpgpu_priv.h"

/* Requests that nobody holds any more; freeing one may sleep, dropping it must not. */
static LLIST_HEAD(gpgpu_dead);

static void gpgpu_request_free(struct gpgpu_request *request)
{
	gpgpu_unpin(&request->pinned_in);
	gpgpu_unpin(&request->pinned_out);
	gpgpu_buffer_free(&request->readable);
	gpgpu_buffer_free(&request->writable);
	if (request->client)
		gpgpu_client_put(request->client);
	kfree(request);
}

/* Frees the requests that were dropped, whoever dropped them. May sleep. */
void gpgpu_reap(void)
{
	struct llist_node *dead = llist_del_all(&gpgpu_dead);
	struct gpgpu_request *request, *next;

	llist_for_each_entry_safe(request, next, dead, dead_node)
		gpgpu_request_free(request);
}

static void gpgpu_reap_work(struct work_struct *work)
{
	gpgpu_reap();
}

static DECLARE_WORK(gpgpu_reaper, gpgpu_reap_work);

static void gpgpu_request_release(struct kref *ref)
{
	struct gpgpu_request *request =
		container_of(ref, struct gpgpu_request, ref);

	llist_add(&request->dead_node, &gpgpu_dead);
}

void gpgpu_request_put(struct gpgpu_request *request)
{
	kref_put(&request->ref, gpgpu_request_release);
	gpgpu_reap();
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

	gpgpu_client_get(client);
	request->client = client;
	return request;
}

/* The device is done with the request, or never saw it. Queue locked. */
static void gpgpu_request_finish(struct gpgpu_request *request, int error,
				 u32 used)
{
	struct gpgpu_wire_command_answer *answer = request->writable.data;
	struct gpgpu_queue *queue = request->queue;

	if (request->sleeper)
		queue->sleepers--;
	request->sleeper = false;
	request->state = GPGPU_REQUEST_DONE;
	request->error = error;
	request->used = used;
	/* Every answer of either queue starts with the status. */
	if (!error && used >= sizeof(*answer) &&
	    le32_to_cpu(answer->status) == GPGPU_STATUS_CLIENT_DEAD)
		gpgpu_client_died(request->client);
	complete_all(&request->done);
	kref_put(&request->ref, gpgpu_request_release);
}

/* Moves pending requests into the virtqueue. Queue locked. */
static bool gpgpu_queue_push(struct gpgpu_queue *queue)
{
	struct gpgpu_request *request;
	bool added = false;
	int err;

	while (!list_empty(&queue->pending)) {
		request = list_first_entry(&queue->pending,
					   struct gpgpu_request, node);
		err = virtqueue_add_sgs(queue->vq, request->sgs,
					request->num_readable,
					request->num_writable, request,
					GFP_ATOMIC);
		if (err == -ENOSPC && queue->in_flight)
			break;
		list_del_init(&request->node);
		if (err) {
			gpgpu_request_finish(request, err, 0);
			continue;
		}
		request->state = GPGPU_REQUEST_QUEUED;
		queue->in_flight++;
		added = true;
		if (request->nowait)
			complete_all(&request->done);
	}
	return added;
}

/*
 * Takes back what the device has finished and gives it what is pending.
 * Queue locked and running. Returns whether the device is to be notified.
 */
static bool gpgpu_queue_service(struct gpgpu_queue *queue)
{
	struct gpgpu_request *request;
	bool added = false;
	u32 used;

	do {
		virtqueue_disable_cb(queue->vq);
		while ((request = virtqueue_get_buf(queue->vq, &used))) {
			queue->in_flight--;
			gpgpu_request_finish(request, 0, used);
		}
		if (!queue->in_flight)
			queue->draining = false;
		added |= gpgpu_queue_push(queue);
	} while ((queue->sleepers || queue->draining) &&
		 !virtqueue_enable_cb(queue->vq));

	return added && virtqueue_kick_prepare(queue->vq);
}

/*
 * Notifying costs an exit, so it happens without the lock. The RCU read-side
 * section around both keeps the virtqueue: gpgpu_queue_stop() waits for it.
 */
static unsigned long gpgpu_queue_lock(struct gpgpu_queue *queue)
	__acquires(&queue->lock) __acquires(RCU)
{
	unsigned long flags;

	rcu_read_lock();
	spin_lock_irqsave(&queue->lock, flags);
	return flags;
}

static void gpgpu_queue_unlock(struct gpgpu_queue *queue, unsigned long flags,
			       bool notify)
	__releases(&queue->lock) __releases(RCU)
{
	struct virtqueue *vq = queue->vq;

	spin_unlock_irqrestore(&queue->lock, flags);
	if (notify)
		virtqueue_notify(vq);
	rcu_read_unlock();
}

void gpgpu_queue_callback(struct virtqueue *vq)
{
	struct gpgpu_device *device = vq->vdev->priv;
	struct gpgpu_queue *queue = &device->queues[vq->index];
	bool notify = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (!queue->stopped)
		notify = gpgpu_queue_service(queue);
	gpgpu_queue_unlock(queue, flags, notify);
	if (!llist_empty(&gpgpu_dead))
		queue_work(gpgpu_wq, &gpgpu_reaper);
}

/* Queues a request behind all that were queued before it. On failure it is done at once. */
int gpgpu_request_submit(struct gpgpu_request *request)
{
	struct gpgpu_queue *queue = request->queue;
	bool notify = false;
	unsigned long flags;
	int err = 0;

	flags = gpgpu_queue_lock(queue);
	/*
	 * Under the lock, so that no chain of a client follows its CLOSE:
	 * the device may have given the client's number away by then.
	 */
	if (queue->stopped ||
	    (test_bit(GPGPU_CLIENT_CLOSING, &request->client->flags) &&
	     !request->is_close)) {
		err = -ENODEV;
		request->state = GPGPU_REQUEST_DONE;
		request->error = err;
		complete_all(&request->done);
	} else {
		kref_get(&request->ref);
		request->state = GPGPU_REQUEST_PENDING;
		list_add_tail(&request->node, &queue->pending);
		notify = gpgpu_queue_service(queue);
	}
	gpgpu_queue_unlock(queue, flags, notify);
	gpgpu_reap();
	return err;
}

/*
 * Watches the virtqueue for a while: where interrupts are slow, answers that
 * come quickly come much quicker this way.
 */
static void gpgpu_request_poll(struct gpgpu_request *request)
{
	struct gpgpu_queue *queue = request->queue;
	u64 end = ktime_get_ns() + (u64)READ_ONCE(gpgpu_poll_us) * NSEC_PER_USEC;
	bool notify;
	unsigned long flags;

	while (!completion_done(&request->done) && ktime_get_ns() < end &&
	       !need_resched() && !signal_pending(current)) {
		rcu_read_lock();
		if (!spin_trylock_irqsave(&queue->lock, flags)) {
			rcu_read_unlock();
			cpu_relax();
			continue;
		}
		notify = !queue->stopped && gpgpu_queue_service(queue);
		gpgpu_queue_unlock(queue, flags, notify);
		cpu_relax();
	}
}

/*
 * Waits until the request is done (with `nowait`: until it is queued). Returns
 * -ERESTARTSYS if a signal came first: a fatal one, or any if `interruptible`.
 */
int gpgpu_request_wait(struct gpgpu_request *request, bool interruptible)
{
	struct gpgpu_queue *queue = request->queue;
	bool notify = false;
	unsigned long flags;

	gpgpu_request_poll(request);
	if (!completion_done(&request->done)) {
		flags = gpgpu_queue_lock(queue);
		if (!queue->stopped && !request->sleeper &&
		    request->state != GPGPU_REQUEST_DONE) {
			request->sleeper = true;
			queue->sleepers++;
			notify = gpgpu_queue_service(queue);
		}
		gpgpu_queue_unlock(queue, flags, notify);
	}
	gpgpu_reap();
	if (interruptible)
		return wait_for_completion_interruptible(&request->done);
	return wait_for_completion_killable(&request->done);
}

/* Takes a request back that the device has not been given. False: too late. */
bool gpgpu_request_cancel(struct gpgpu_request *request)
{
	struct gpgpu_queue *queue = request->queue;
	bool cancelled = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (request->state == GPGPU_REQUEST_PENDING) {
		list_del_init(&request->node);
		gpgpu_request_finish(request, -ECANCELED, 0);
		cancelled = true;
	}
	gpgpu_queue_unlock(queue, flags, false);
	return cancelled;
}

/*
 * Fails what a client that is closing has not got into the virtqueue. From
 * here on nothing of it enters but its CLOSE: whoever saw the client before
 * GPGPU_CLIENT_CLOSING was set has left the lock.
 */
void gpgpu_queue_purge(struct gpgpu_queue *queue, struct gpgpu_client *client)
{
	struct gpgpu_request *request, *next;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	list_for_each_entry_safe(request, next, &queue->pending, node) {
		if (request->client != client || request->is_close)
			continue;
		list_del_init(&request->node);
		gpgpu_request_finish(request, -ENODEV, 0);
	}
	spin_unlock_irqrestore(&queue->lock, flags);
	gpgpu_reap();
}

/* Takes back whatever is still in flight as soon as the device returns it. */
void gpgpu_queue_drain(struct gpgpu_queue *queue)
{
	bool notify = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (!queue->stopped && queue->in_flight) {
		queue->draining = true;
		notify = gpgpu_queue_service(queue);
	}
	gpgpu_queue_unlock(queue, flags, notify);
	gpgpu_reap();
}

/* Nothing touches the virtqueue after this but gpgpu_queue_drop(). */
void gpgpu_queue_stop(struct gpgpu_queue *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	queue->stopped = true;
	spin_unlock_irqrestore(&queue->lock, flags);
	synchronize_rcu();
}

/* Fails all requests. The queue is stopped and the device reset. */
void gpgpu_queue_drop(struct gpgpu_queue *queue)
{
	struct gpgpu_request *request, *next;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	while ((request = virtqueue_detach_unused_buf(queue->vq))) {
		queue->in_flight--;
		gpgpu_request_finish(request, -ENODEV, 0);
	}
	list_for_each_entry_safe(request, next, &queue->pending, node) {
		list_del_init(&request->node);
		gpgpu_request_finish(request, -ENODEV, 0);
	}
	queue->draining = false;
	spin_unlock_irqrestore(&queue->lock, flags);
	gpgpu_reap();
}
