// SPDX-License-Identifier: GPL-2.0
/* Clients: their creation, their charges, and their end. */
#include <linux/cred.h>
#include <linux/jiffies.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "virtio_gpgpu_priv.h"

/*
 * The maximum number of interrupted calls of a client; further calls wait,
 * except for a fatal signal.
 */
#define GPGPU_MAX_INTERRUPTED	256

/* Waits until no notifier of the client runs, which may take long. */
static void gpgpu_client_free_work(struct work_struct *work)
{
	struct gpgpu_client *client =
		container_of(work, struct gpgpu_client, free_work);

	mmu_notifier_unregister(&client->notifier, client->mm);
	xa_destroy(&client->regions_by_id);
	xa_destroy(&client->interrupted);
	xa_destroy(&client->paused);
	mmdrop(client->mm);
	put_cred(client->cred);
	gpgpu_device_put(client->device);
	kfree(client);
}

static void gpgpu_client_release(struct kref *ref)
{
	struct gpgpu_client *client =
		container_of(ref, struct gpgpu_client, ref);

	spin_lock(&client->device->list_lock);
	list_del(&client->node);
	spin_unlock(&client->device->list_lock);
	queue_work(gpgpu_wq, &client->free_work);
}

void gpgpu_client_get(struct gpgpu_client *client)
{
	kref_get(&client->ref);
}

/* Process context. */
void gpgpu_client_put(struct gpgpu_client *client)
{
	kref_put(&client->ref, gpgpu_client_release);
}

/* Handles the device's report that the client's worker has died. Any context. */
void gpgpu_client_died(struct gpgpu_client *client)
{
	set_bit(GPGPU_CLIENT_DEAD, &client->flags);
	wake_up(&client->wait);
}

/* The device's answer to a completed control request. */
int gpgpu_control_answer(struct gpgpu_request *request, u32 *status, u32 *value)
{
	struct gpgpu_wire_control_answer *answer = request->writable.data;

	if (request->error)
		return request->error;
	if (request->used < sizeof(*answer))
		return -EIO;
	*status = le32_to_cpu(answer->status);
	if (value)
		*value = le32_to_cpu(answer->value);
	return 0;
}

struct gpgpu_request *gpgpu_control_new(struct gpgpu_client *client,
					enum gpgpu_control_kind kind,
					size_t bytes)
{
	struct gpgpu_wire_control *header;
	struct gpgpu_request *request;

	request = gpgpu_request_new(client, GPGPU_QUEUE_CONTROL, bytes,
				    sizeof(struct gpgpu_wire_control_answer));
	if (IS_ERR(request))
		return request;
	if (request->segments > request->queue->size) {
		gpgpu_request_put(request);
		return ERR_PTR(-E2BIG);
	}
	header = request->readable.data;
	header->kind = cpu_to_le32(kind);
	header->client = cpu_to_le32(client->id);
	return request;
}

/*
 * Handles an answer to OPEN. Called by the thread that waited for it and by the
 * closing work, whichever comes first.
 */
int gpgpu_client_opened(struct gpgpu_client *client)
{
	struct gpgpu_device *device = client->device;
	struct gpgpu_request *request;
	u32 status, id;
	int err = 0;

	mutex_lock(&client->lock);
	request = client->open_request;
	client->open_request = NULL;
	if (request)
		err = gpgpu_control_answer(request, &status, &id);
	if (request && !err && status == GPGPU_STATUS_OK) {
		/* If there is no memory for the entry, the client misses its events. */
		if (!id || xa_insert_irq(&device->clients, id, client,
					 GFP_KERNEL) == -EBUSY) {
			err = -EIO;
		} else {
			client->id = id;
			smp_mb__before_atomic();	/* gpgpu_client_is_open() */
			set_bit(GPGPU_CLIENT_OPEN, &client->flags);
		}
	}
	mutex_unlock(&client->lock);
	if (request)
		gpgpu_request_put(request);
	return err;
}

bool gpgpu_client_is_open(struct gpgpu_client *client)
{
	return test_bit_acquire(GPGPU_CLIENT_OPEN, &client->flags);
}

/*
 * Whether the closing is complete: the device has closed the client, or was reset. Any
 * other answer says nothing about the client's regions (GPGPU-DRV-15),
 * NO_CLIENT least of all: the device gave the client its number.
 */
static bool gpgpu_client_is_let_go(struct gpgpu_client *client)
{
	u32 status = 0;
	int err;

	if (READ_ONCE(client->device->is_reset))
		return true;
	err = gpgpu_control_answer(client->close_request, &status, NULL);
	if (!err && status == GPGPU_STATUS_OK)
		return true;
	if (!client->close_refused)
		pr_warn_ratelimited("virtio_gpgpu: the device did not close client %u of process %d (status %u, %d): its memory stays pinned until a reset\n",
				    client->id, client->pid, status, err);
	client->close_refused = true;
	return false;
}

/*
 * Whether the device, which was reset, may still access the client's regions. A
 * transport may report a reset as stopped queues: the device then keeps a
 * client whose CLOSE it never got, and the client may write once the queues run
 * again (GPGPU-DEV-65).
 */
static bool gpgpu_client_is_in_reach(struct gpgpu_client *client)
{
	return !READ_ONCE(client->close_request->given) &&
	       !READ_ONCE(client->device->is_replaced);
}

/*
 * Closes the client as far as possible without waiting. The completions of
 * OPEN, CLOSE and a reset queue this again. Returns whether the client is
 * closed.
 */
static bool gpgpu_client_close(struct gpgpu_client *client)
{
	struct gpgpu_device *device = client->device;
	struct gpgpu_queue *control = &device->queues[GPGPU_QUEUE_CONTROL];
	struct gpgpu_queue *command = &device->queues[GPGPU_QUEUE_COMMAND];
	struct gpgpu_request *request = client->close_request;
	struct gpgpu_wire_control *header;
	struct gpgpu_region *region, *next;
	bool opening, in_reach = false;

	gpgpu_queue_purge(control, client);
	gpgpu_queue_purge(command, client);

	/* Before the check: an OPEN that completes later queues this again. */
	gpgpu_queue_collect(control, client);
	mutex_lock(&client->lock);
	opening = client->open_request &&
		  !completion_done(&client->open_request->done);
	mutex_unlock(&client->lock);
	if (opening)
		return false;
	gpgpu_client_opened(client);

	if (gpgpu_client_is_open(client)) {
		if (!client->close_sent) {
			client->close_sent = true;
			header = request->readable.data;
			header->client = cpu_to_le32(client->id);
			gpgpu_request_submit(request, false);
			gpgpu_queue_collect(control, client);
		}
		if (!completion_done(&request->done) ||
		    !gpgpu_client_is_let_go(client))
			return false;
		in_reach = gpgpu_client_is_in_reach(client);
		xa_lock_irq(&device->clients);
		if (xa_load(&device->clients, client->id) == client)
			__xa_erase(&device->clients, client->id);
		xa_unlock_irq(&device->clients);
	}
	client->close_request = NULL;
	gpgpu_request_put(request);

	mutex_lock(&client->lock);
	if (in_reach && !list_empty(&client->regions))
		pr_err("virtio_gpgpu: client %u of process %d could not be closed before the reset: its memory stays pinned until the guest restarts\n",
		       client->id, client->pid);
	list_for_each_entry_safe(region, next, &client->regions, node) {
		list_del_init(&region->node);
		/* Leaked memory is better than memory that the device overwrites. */
		if (!in_reach)
			gpgpu_region_put(region);
	}
	mutex_unlock(&client->lock);

	gpgpu_queue_collect(command, client);
	return true;
}

static void gpgpu_client_close_work(struct work_struct *work)
{
	struct gpgpu_client *client =
		container_of(work, struct gpgpu_client, close_work);

	if (!completion_done(&client->closed) && gpgpu_client_close(client)) {
		wake_up(&client->wait);
		complete_all(&client->closed);
		gpgpu_client_put(client);
	}
	gpgpu_client_put(client);
}

/* Queues the closing work after an event for which it may wait. Any context. */
void gpgpu_client_go_on_closing(struct gpgpu_client *client)
{
	gpgpu_client_get(client);
	if (!queue_work(gpgpu_wq, &client->close_work))
		/* Never the last reference: the caller has one. */
		gpgpu_client_put(client);
}

/* Ends the client; `closed` completes once the device has released it. Does not sleep. */
void gpgpu_client_start_close(struct gpgpu_client *client)
{
	if (test_bit(GPGPU_CLIENT_CLOSING, &client->flags))
		return;
	client->close_by = jiffies +
			   msecs_to_jiffies(READ_ONCE(gpgpu_close_timeout_ms));
	if (test_and_set_bit(GPGPU_CLIENT_CLOSING, &client->flags))
		return;
	wake_up(&client->wait);
	gpgpu_client_get(client);	/* until it is closed */
	gpgpu_client_go_on_closing(client);
}

/*
 * A program that waits for the end of a process expects its GPU memory to be
 * free then, but a slow device must not delay that end without limit. The time
 * limit starts when closing starts, so a process with several files waits once.
 */
void gpgpu_client_wait_closed(struct gpgpu_client *client)
{
	long left = READ_ONCE(client->close_by) - jiffies;

	if (left > 0)
		wait_for_completion_timeout(&client->closed, left);
}

/*
 * Handles the end of the address space: its process has exited or executed
 * another program. The client cannot be used any more, even if another process
 * holds the file.
 */
static void gpgpu_client_mm_release(struct mmu_notifier *notifier,
				    struct mm_struct *mm)
{
	gpgpu_client_start_close(container_of(notifier, struct gpgpu_client,
					      notifier));
}

static const struct mmu_notifier_ops gpgpu_client_mm_ops = {
	.release = gpgpu_client_mm_release,
};

/* A client of the current process, with a reference. */
struct gpgpu_client *gpgpu_client_new(struct gpgpu_device *device)
{
	struct gpgpu_request *request;
	struct gpgpu_client *client;
	int i, err;

	if (!current->mm)
		return ERR_PTR(-EPERM);
	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client)
		return ERR_PTR(-ENOMEM);
	kref_init(&client->ref);
	init_waitqueue_head(&client->wait);
	mutex_init(&client->lock);
	INIT_LIST_HEAD(&client->node);
	INIT_LIST_HEAD(&client->regions);
	for (i = 0; i < GPGPU_QUEUE_EVENT; i++)
		INIT_LIST_HEAD(&client->queued[i]);
	xa_init(&client->regions_by_id);
	xa_init_flags(&client->interrupted, XA_FLAGS_ALLOC1);
	xa_init_flags(&client->paused, XA_FLAGS_ALLOC1);
	INIT_WORK(&client->close_work, gpgpu_client_close_work);
	INIT_WORK(&client->free_work, gpgpu_client_free_work);
	init_completion(&client->closed);
	client->pid = task_tgid_nr(current);
	client->mm = current->mm;
	client->notifier.ops = &gpgpu_client_mm_ops;
	err = mmu_notifier_register(&client->notifier, client->mm);
	if (err) {
		kfree(client);
		return ERR_PTR(err);
	}
	mmgrab(client->mm);
	client->cred = get_current_cred();
	kref_get(&device->ref);
	client->device = device;

	request = gpgpu_control_new(client, GPGPU_CONTROL_CLOSE,
				    sizeof(struct gpgpu_wire_control));
	if (IS_ERR(request)) {
		/* There is no client to close on the device. */
		set_bit(GPGPU_CLIENT_CLOSING, &client->flags);
		gpgpu_client_put(client);
		return ERR_CAST(request);
	}
	request->is_close = true;
	request->for_close = true;
	client->close_request = request;
	spin_lock(&device->list_lock);
	list_add_tail(&client->node, &device->list);
	spin_unlock(&device->list_lock);
	return client;
}

/*
 * Charges pages that stay pinned while no thread is in a call for them: to
 * RLIMIT_MEMLOCK of the process, as RDMA does, and of its user, as io_uring
 * does. Otherwise a process could have its children pin for it. `force`: even
 * above the limit.
 */
bool gpgpu_charge(struct gpgpu_client *client, unsigned long pages, bool force)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long of_user, of_process;

	of_user = atomic_long_add_return(pages, &client->cred->user->locked_vm);
	of_process = atomic64_add_return(pages, &client->mm->pinned_vm);
	if (force || (of_user <= limit && of_process <= limit) ||
	    !READ_ONCE(gpgpu_memlock) || capable(CAP_IPC_LOCK))
		return true;
	gpgpu_uncharge(client, pages);
	return false;
}

void gpgpu_uncharge(struct gpgpu_client *client, unsigned long pages)
{
	atomic_long_sub(pages, &client->cred->user->locked_vm);
	atomic64_sub(pages, &client->mm->pinned_vm);
}

/*
 * Makes a call the one of its process that is above the limit, if no other call
 * is. It is until all pages that are charged above the limit are unpinned, even
 * if a thread resumes it: otherwise, the next call could take its place while
 * the device has these pages.
 */
static bool gpgpu_may_be_over(struct gpgpu_client *client,
			      struct gpgpu_request *const *requests,
			      unsigned int count)
{
	struct gpgpu_device *device = client->device;
	struct gpgpu_client *other;
	bool may = true;
	unsigned int i;

	spin_lock(&device->list_lock);
	list_for_each_entry(other, &device->list, node)
		if (other->mm == client->mm && other->num_over)
			may = false;
	/* It may be this call, which was resumed, and has new pages. */
	for (i = 0; i < count; i++)
		may |= requests[i]->over;
	for (i = 0; may && i < count; i++) {
		if (requests[i]->left || !gpgpu_request_has_pages(requests[i]))
			continue;
		requests[i]->over = true;
		client->num_over++;
	}
	spin_unlock(&device->list_lock);
	return may;
}

/* The pages of a request that was above the limit are no longer pinned. */
void gpgpu_request_not_over(struct gpgpu_request *request)
{
	struct gpgpu_device *device = request->client->device;

	spin_lock(&device->list_lock);
	request->over = false;
	request->client->num_over--;
	spin_unlock(&device->list_lock);
}

/*
 * Leaves the requests of a call because of a signal, if one more call may be
 * interrupted; if so, it counts until gpgpu_interrupt_over(). Their pages are
 * charged, unless they are already, and no longer belong to this thread. A call
 * with a thread in it pins without a charge. Threads do not limit the number of
 * interrupted calls, so all but one of a process need room below the limit.
 */
bool gpgpu_interrupt(struct gpgpu_client *client,
		     struct gpgpu_request *const *requests, unsigned int count)
{
	unsigned long pages = 0;
	unsigned int i;

	if (atomic_inc_return(&client->num_interrupted) > GPGPU_MAX_INTERRUPTED)
		goto no;
	for (i = 0; i < count; i++)
		if (!requests[i]->left)
			pages += gpgpu_request_pages(requests[i]);
	if (pages && !gpgpu_charge(client, pages, false)) {
		if (!gpgpu_may_be_over(client, requests, count))
			goto no;
		gpgpu_charge(client, pages, true);
	}
	for (i = 0; i < count; i++)
		if (!requests[i]->left)
			gpgpu_request_leave(requests[i],
					    gpgpu_request_pages(requests[i]));
	return true;

no:
	atomic_dec(&client->num_interrupted);
	return false;
}

/* Handles an interrupted call that was resumed or given up. */
void gpgpu_interrupt_over(struct gpgpu_client *client)
{
	atomic_dec(&client->num_interrupted);
}
