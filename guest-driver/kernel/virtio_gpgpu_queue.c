// SPDX-License-Identifier: GPL-2.0
/*
 * The two virtqueues that carry requests.
 *
 * A request enters its queue's pending list, and moves to the virtqueue when
 * there are descriptors, always under the queue's lock and always oldest first:
 * the device sees requests in this order.
 *
 * Interrupts are off unless a caller sleeps and no caller polls the virtqueue.
 * While they are off, each holder of the lock also takes completed requests
 * back, so a stream of submissions without waiters needs no interrupt. While
 * they are on, the interrupt handler does that: Linux disables an interrupt
 * line whose handlers mostly find nothing to do.
 *
 * The lock is held with interrupts off. To bound that time, its holder handles a
 * limited number of requests and segments. A work item does the rest of a pass over
 * the virtqueue; a thread that ends the requests of a client or of a queue takes
 * the lock again for the next ones.
 */
#include <linux/freezer.h>
#include <linux/ktime.h>
#include <linux/preempt.h>
#include <linux/processor.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "virtio_gpgpu_priv.h"

/* Wakes the request's waiter. Queue locked. */
static void gpgpu_request_complete(struct gpgpu_request *request, int error)
{
	request->state = GPGPU_REQUEST_DONE;
	request->error = error;
	complete_all(&request->done);
	if (request->for_close &&
	    test_bit(GPGPU_CLIENT_CLOSING, &request->client->flags))
		gpgpu_client_go_on_closing(request->client);
}

static unsigned int gpgpu_queue_index(const struct gpgpu_queue *queue,
				      const struct gpgpu_client *client)
{
	return queue - client->device->queues;
}

/* Handles a request that the device has completed, or never got. Queue locked. */
static void gpgpu_request_finish(struct gpgpu_request *request, int error,
				 u32 used)
{
	struct gpgpu_wire_command_answer *answer = request->writable.data;
	struct gpgpu_client *client = request->client;
	struct gpgpu_queue *queue = request->queue;
	unsigned int index = gpgpu_queue_index(queue, client);
	u32 status = GPGPU_STATUS_OK;

	list_del_init(&request->node);
	list_del_init(&request->of_client);
	if (request->sleeper)
		queue->sleepers--;
	request->sleeper = false;
	if (client->collected[index] && list_empty(&client->queued[index])) {
		client->collected[index] = false;
		queue->sleepers--;
	}
	request->used = used;
	/* Every answer of both queues starts with the status. */
	if (!error && used >= sizeof(*answer))
		status = le32_to_cpu(answer->status);
	if (status == GPGPU_STATUS_CLIENT_DEAD)
		gpgpu_client_died(client);
	/* A device that never had the client may have replaced one that had. */
	if (status == GPGPU_STATUS_NO_CLIENT)
		mod_delayed_work(gpgpu_wq, &client->device->look, 0);
	gpgpu_request_complete(request, error);
	gpgpu_request_return(request);
}

/*
 * Whether adding the request would succeed with the free descriptors. If there
 * was no memory for an indirect table, this waits until the chain has room
 * without one: virtqueue_add() would notify the device after each failure.
 */
static bool gpgpu_queue_has_room(const struct gpgpu_queue *queue,
				 const struct gpgpu_request *request)
{
	bool one = queue->indirect && !queue->direct;

	return queue->vq->num_free >= (one ? 1 : request->segments);
}

/*
 * The limits of one pass. On Linux 6.12 (x86-64), a pass that took back 32 requests
 * of 30 waiting threads executed 0.8 million instructions, and an added segment took
 * 100. The last request that a pass adds may exceed the limit.
 */
#define GPGPU_TAKE_REQUESTS 32
#define GPGPU_GIVE_SEGMENTS 1024
#define GPGPU_GIVE_REQUESTS 32

/* The progress of one pass. */
struct gpgpu_pass {
	unsigned int taken;
	unsigned int given;
	unsigned int segments;
	bool added;
};

/* Moves pending requests to the virtqueue. Queue locked and running. */
static void gpgpu_queue_push(struct gpgpu_queue *queue, struct gpgpu_pass *pass)
{
	struct gpgpu_request *request;
	int err;

	while (!list_empty(&queue->pending)) {
		request = list_first_entry(&queue->pending,
					   struct gpgpu_request, node);
		/* Adding to a full virtqueue notifies the device, under the lock. */
		if (!list_empty(&queue->in_flight) &&
		    !gpgpu_queue_has_room(queue, request))
			break;
		if (pass->segments >= GPGPU_GIVE_SEGMENTS ||
		    pass->given == GPGPU_GIVE_REQUESTS) {
			queue_work(gpgpu_wq, &queue->rest);
			break;
		}
		pass->given++;
		pass->segments += request->segments;
		err = virtqueue_add_sgs(queue->vq, request->sgs,
					request->num_readable,
					request->num_writable, request,
					GFP_ATOMIC);
		if (err == -ENOSPC && !list_empty(&queue->in_flight)) {
			queue->direct = true;
			break;
		}
		queue->direct = false;
		if (err) {
			gpgpu_request_finish(request, err, 0);
			continue;
		}
		request->state = GPGPU_REQUEST_QUEUED;
		request->given = true;
		list_move_tail(&request->node, &queue->in_flight);
		pass->added = true;
		if (request->nowait)
			complete_all(&request->done);
	}
}

static bool gpgpu_queue_wants_interrupts(const struct gpgpu_queue *queue)
{
	return queue->sleepers && !queue->pollers;
}

/*
 * Takes completed requests back, and makes pending ones available to the
 * device. Queue locked and running. Returns whether the device has to be
 * notified.
 */
static bool gpgpu_queue_service(struct gpgpu_queue *queue)
{
	struct gpgpu_pass pass = {};
	struct gpgpu_request *request;
	u32 used;

	do {
		virtqueue_disable_cb(queue->vq);
		while (pass.taken < GPGPU_TAKE_REQUESTS &&
		       (request = virtqueue_get_buf(queue->vq, &used))) {
			gpgpu_request_finish(request, 0, used);
			pass.taken++;
		}
		gpgpu_queue_push(queue, &pass);
		if (pass.taken == GPGPU_TAKE_REQUESTS) {
			queue_work(gpgpu_wq, &queue->rest);
			break;
		}
	} while (gpgpu_queue_wants_interrupts(queue) &&
		 !virtqueue_enable_cb(queue->vq));

	return pass.added && virtqueue_kick_prepare(queue->vq);
}

/*
 * A notification costs a VM exit, so it happens without the lock. The RCU
 * read-side section around both protects the virtqueue: gpgpu_queue_stop()
 * waits for it.
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

/* One pass over the queue, if it runs. Any context. */
static void gpgpu_queue_pass(struct gpgpu_queue *queue)
{
	bool notify = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (!queue->stopped)
		notify = gpgpu_queue_service(queue);
	gpgpu_queue_unlock(queue, flags, notify);
}

void gpgpu_queue_callback(struct virtqueue *vq)
{
	struct gpgpu_device *device = vq->vdev->priv;

	gpgpu_queue_pass(&device->queues[vq->index]);
	gpgpu_reap_later();
}

static void gpgpu_queue_rest(struct work_struct *work)
{
	gpgpu_queue_pass(container_of(work, struct gpgpu_queue, rest));
	gpgpu_reap();
}

void gpgpu_queue_init(struct gpgpu_queue *queue)
{
	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->pending);
	INIT_LIST_HEAD(&queue->in_flight);
	INIT_WORK(&queue->rest, gpgpu_queue_rest);
	queue->stopped = true;
}

/*
 * Polls the virtqueue for a while: if interrupts are slow, quick answers arrive
 * much sooner this way. Interrupts are off during that time, also for other
 * sleepers, so this must not be preempted. `polling`: the caller is already one
 * of the queue's pollers.
 */
static void gpgpu_request_poll(struct gpgpu_request *request, bool polling)
{
	struct gpgpu_queue *queue = request->queue;
	u64 end = ktime_get_ns() + (u64)READ_ONCE(gpgpu_poll_us) * NSEC_PER_USEC;
	unsigned long flags;
	bool notify;

	request->polled = true;
	while (!completion_done(&request->done) && ktime_get_ns() < end &&
	       !need_resched() && !signal_pending(current)) {
		rcu_read_lock();
		if (!spin_trylock_irqsave(&queue->lock, flags)) {
			rcu_read_unlock();
			cpu_relax();
			continue;
		}
		queue->pollers += !polling;
		polling = true;
		notify = !queue->stopped && gpgpu_queue_service(queue);
		gpgpu_queue_unlock(queue, flags, notify);
		cpu_relax();
	}
	if (polling) {
		flags = gpgpu_queue_lock(queue);
		queue->pollers--;
		notify = !queue->stopped && gpgpu_queue_wants_interrupts(queue) &&
			 gpgpu_queue_service(queue);
		gpgpu_queue_unlock(queue, flags, notify);
	}
}

/*
 * Queues a request behind all earlier ones. On failure it completes
 * immediately. `poll`: the caller has nothing to do but to wait for it.
 */
int gpgpu_request_submit(struct gpgpu_request *request, bool poll)
{
	struct gpgpu_client *client = request->client;
	struct gpgpu_queue *queue = request->queue;
	struct gpgpu_pass pass = {};
	bool notify = false;
	unsigned long flags;
	int err = 0;

	/* On PREEMPT_RT, the lock may sleep. */
	poll &= READ_ONCE(gpgpu_poll_us) && !IS_ENABLED(CONFIG_PREEMPT_RT);
	if (poll)
		preempt_disable();
	flags = gpgpu_queue_lock(queue);
	/*
	 * Under the lock, so that no chain of a client follows its CLOSE, after
	 * which the device may assign the client's number to another one.
	 */
	if (queue->stopped ||
	    (test_bit(GPGPU_CLIENT_CLOSING, &client->flags) &&
	     !request->is_close)) {
		err = -ENODEV;
		gpgpu_request_complete(request, err);
	} else {
		kref_get(&request->ref);
		request->state = GPGPU_REQUEST_PENDING;
		list_add_tail(&request->node, &queue->pending);
		list_add_tail(&request->of_client,
			      &client->queued[gpgpu_queue_index(queue, client)]);
		/* Before the device can raise an interrupt for it. */
		queue->pollers += poll;
		if (gpgpu_queue_wants_interrupts(queue)) {
			gpgpu_queue_push(queue, &pass);
			notify = pass.added && virtqueue_kick_prepare(queue->vq);
		} else {
			notify = gpgpu_queue_service(queue);
		}
	}
	gpgpu_queue_unlock(queue, flags, notify);
	if (poll) {
		if (!err)
			gpgpu_request_poll(request, true);
		preempt_enable();
	}
	gpgpu_reap();
	return err;
}

/*
 * Makes the device raise an interrupt when it has completed the request, and
 * checks the device until then (GPGPU-DRV-35). Queue locked.
 */
static void gpgpu_request_want_interrupt(struct gpgpu_request *request)
{
	if (request->sleeper || request->state == GPGPU_REQUEST_DONE)
		return;
	request->sleeper = true;
	request->queue->sleepers++;
	queue_delayed_work(gpgpu_wq, &request->client->device->look, HZ);
}

/*
 * Waits until the request is completed (with `nowait`: until it is queued).
 * Returns -ERESTARTSYS if a signal came first: a fatal one, or any if
 * `interruptible`.
 */
int gpgpu_request_wait(struct gpgpu_request *request, bool interruptible)
{
	struct gpgpu_queue *queue = request->queue;
	bool notify = false;
	unsigned long flags;

	if (!request->polled && !IS_ENABLED(CONFIG_PREEMPT_RT)) {
		preempt_disable();
		gpgpu_request_poll(request, false);
		preempt_enable();
	}
	if (!completion_done(&request->done)) {
		flags = gpgpu_queue_lock(queue);
		if (!queue->stopped) {
			gpgpu_request_want_interrupt(request);
			notify = gpgpu_queue_service(queue);
		}
		gpgpu_queue_unlock(queue, flags, notify);
	}
	gpgpu_reap();
	if (interruptible)
		return wait_for_completion_interruptible(&request->done);
	/* A device that stalls must not prevent the system from being suspended. */
	return wait_for_completion_state(&request->done,
					 TASK_KILLABLE | TASK_FREEZABLE);
}

/* Takes a request back that was not made available to the device. False: too late. */
bool gpgpu_request_cancel(struct gpgpu_request *request)
{
	struct gpgpu_queue *queue = request->queue;
	bool cancelled = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (request->state == GPGPU_REQUEST_PENDING) {
		gpgpu_request_finish(request, -ECANCELED, 0);
		cancelled = true;
	}
	gpgpu_queue_unlock(queue, flags, false);
	return cancelled;
}

/*
 * Records that no thread is in a call for the request any more: its pages,
 * which are charged already, are released as soon as the device has completed
 * it, even if a thread resumes the call. Called once, by the thread that leaves
 * it.
 */
void gpgpu_request_leave(struct gpgpu_request *request, unsigned long pages)
{
	struct gpgpu_queue *queue = request->queue;
	bool notify = false, done;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	request->left = true;
	request->charged = pages;
	done = request->state == GPGPU_REQUEST_DONE;
	if (!done && !queue->stopped) {
		gpgpu_request_want_interrupt(request);
		notify = gpgpu_queue_service(queue);
	}
	gpgpu_queue_unlock(queue, flags, notify);
	if (done)
		gpgpu_request_unpin(request);
	gpgpu_reap();
}

/* The request's thread, which holds a reference, was killed and drops it. */
void gpgpu_request_give_up(struct gpgpu_request *request)
{
	unsigned long pages;

	if (!gpgpu_request_cancel(request) && !request->left) {
		pages = gpgpu_request_pages(request);
		gpgpu_charge(request->client, pages, true);
		gpgpu_request_leave(request, pages);
	}
	gpgpu_request_put(request);
}

/* Fails requests that the device does not have, the newest first. Queue locked. */
static bool gpgpu_queue_purge_some(struct gpgpu_client *client,
				   const struct list_head *queued)
{
	struct gpgpu_request *request;
	unsigned int failed;

	for (failed = 0; failed < GPGPU_TAKE_REQUESTS; failed++) {
		if (list_empty(queued))
			return false;
		request = list_last_entry(queued, struct gpgpu_request,
					  of_client);
		/* Earlier requests are in the virtqueue before it. */
		if (request->state != GPGPU_REQUEST_PENDING || request->is_close)
			return false;
		gpgpu_request_finish(request, -ENODEV, 0);
	}
	return true;
}

/*
 * Fails the requests of a closing client that are not in the virtqueue. From
 * here on only its CLOSE is queued: threads that saw the client before
 * GPGPU_CLIENT_CLOSING was set have released the lock. May sleep.
 */
void gpgpu_queue_purge(struct gpgpu_queue *queue, struct gpgpu_client *client)
{
	const struct list_head *queued =
		&client->queued[gpgpu_queue_index(queue, client)];
	unsigned long flags;
	bool more;

	do {
		spin_lock_irqsave(&queue->lock, flags);
		more = gpgpu_queue_purge_some(client, queued);
		spin_unlock_irqrestore(&queue->lock, flags);
		gpgpu_reap();
		cond_resched();
	} while (more);
}

/*
 * Takes the requests of a client back as soon as the device returns them: the
 * client needs an interrupt as long as any of its requests is queued.
 */
void gpgpu_queue_collect(struct gpgpu_queue *queue, struct gpgpu_client *client)
{
	unsigned int index = gpgpu_queue_index(queue, client);
	bool notify = false;
	unsigned long flags;

	flags = gpgpu_queue_lock(queue);
	if (!queue->stopped) {
		if (!list_empty(&client->queued[index]) &&
		    !client->collected[index]) {
			client->collected[index] = true;
			queue->sleepers++;
			queue_delayed_work(gpgpu_wq, &client->device->look, HZ);
		}
		notify = gpgpu_queue_service(queue);
	}
	gpgpu_queue_unlock(queue, flags, notify);
	gpgpu_reap();
}

/* Afterwards only gpgpu_queue_drop() accesses the virtqueue. */
void gpgpu_queue_stop(struct gpgpu_queue *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	queue->stopped = true;
	spin_unlock_irqrestore(&queue->lock, flags);
	synchronize_rcu();
	cancel_work_sync(&queue->rest);
}

/* Fails requests of a list, the oldest first. Returns whether there are more. */
static bool gpgpu_queue_drop_some(struct gpgpu_queue *queue,
				  const struct list_head *list)
{
	struct gpgpu_request *request;
	unsigned int dropped;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	for (dropped = 0; dropped < GPGPU_TAKE_REQUESTS && !list_empty(list);
	     dropped++) {
		request = list_first_entry(list, struct gpgpu_request, node);
		gpgpu_request_finish(request, -ENODEV, 0);
	}
	spin_unlock_irqrestore(&queue->lock, flags);
	gpgpu_reap();
	cond_resched();
	return dropped == GPGPU_TAKE_REQUESTS;
}

/* Fails all requests. The queue must be stopped and the device reset. May sleep. */
void gpgpu_queue_drop(struct gpgpu_queue *queue)
{
	unsigned long flags;

	/* No other thread accesses the virtqueue of a stopped queue. */
	while (virtqueue_detach_unused_buf(queue->vq))
		cond_resched();
	while (gpgpu_queue_drop_some(queue, &queue->in_flight) ||
	       gpgpu_queue_drop_some(queue, &queue->pending))
		;
	spin_lock_irqsave(&queue->lock, flags);
	queue->vq = NULL;
	queue->direct = false;
	spin_unlock_irqrestore(&queue->lock, flags);
}
