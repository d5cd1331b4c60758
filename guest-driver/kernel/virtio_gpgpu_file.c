// SPDX-License-Identifier: GPL-2.0
/* The character device: one client an open file. */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "virtio_gpgpu_priv.h"

static void gpgpu_client_release(struct kref *ref)
{
	struct gpgpu_client *client =
		container_of(ref, struct gpgpu_client, ref);
	struct gpgpu_device *device = client->device;

	spin_lock(&device->list_lock);
	list_del(&client->node);
	spin_unlock(&device->list_lock);
	xa_destroy(&client->regions_by_id);
	xa_destroy(&client->interrupted);
	xa_destroy(&client->paused);
	mmdrop(client->mm);
	kfree(client);
	gpgpu_device_put(device);
}

void gpgpu_client_get(struct gpgpu_client *client)
{
	kref_get(&client->ref);
}

/* May sleep. */
void gpgpu_client_put(struct gpgpu_client *client)
{
	kref_put(&client->ref, gpgpu_client_release);
}

/* The device says that the client's worker is gone. Any context. */
void gpgpu_client_died(struct gpgpu_client *client)
{
	set_bit(GPGPU_CLIENT_DEAD, &client->flags);
	wake_up(&client->wait);
}

/* What the device answered to a control request that is done. */
static int gpgpu_control_answer(struct gpgpu_request *request, u32 *status,
				u32 *value)
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

static struct gpgpu_request *gpgpu_control_new(struct gpgpu_client *client,
					       enum gpgpu_control_kind kind,
					       size_t bytes)
{
	struct gpgpu_wire_control *header;
	struct gpgpu_request *request;

	request = gpgpu_request_new(client, GPGPU_QUEUE_CONTROL, bytes,
				    sizeof(struct gpgpu_wire_control_answer));
	if (IS_ERR(request))
		return request;
	if (request->readable.nents + request->writable.nents >
	    request->queue->size) {
		gpgpu_request_put(request);
		return ERR_PTR(-E2BIG);
	}
	header = request->readable.data;
	header->kind = cpu_to_le32(kind);
	header->client = cpu_to_le32(client->id);
	return request;
}

/*
 * Queues a control request and waits until it is done. -EINTR: the caller was
 * killed, and what the device makes of the request is not known. Any other
 * error: the device never saw it.
 */
static int gpgpu_control(struct gpgpu_request *request)
{
	int err;

	err = gpgpu_request_submit(request);
	if (err)
		return err;
	if (!gpgpu_request_wait(request, false))
		return 0;
	return gpgpu_request_cancel(request) ? -ECANCELED : -EINTR;
}

/*
 * Takes note of an answer to OPEN. Called by the thread that waited for it and
 * by the closing work, whichever comes first.
 */
static int gpgpu_client_opened(struct gpgpu_client *client)
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
		/* Without memory for the entry, the client misses its events. */
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

/* Waits for the device to let go of the client. */
static void gpgpu_client_close_work(struct work_struct *work)
{
	struct gpgpu_client *client =
		container_of(work, struct gpgpu_client, close_work);
	struct gpgpu_device *device = client->device;
	struct gpgpu_request *request;
	struct gpgpu_region *region, *next;
	struct gpgpu_wire_control *header;
	LIST_HEAD(regions);
	int err = 0;

	mutex_lock(&client->lock);
	request = client->open_request;
	if (request)
		kref_get(&request->ref);
	mutex_unlock(&client->lock);
	if (request) {
		gpgpu_queue_drain(request->queue);
		wait_for_completion(&request->done);
		gpgpu_request_put(request);
		gpgpu_client_opened(client);
	}

	request = client->close_request;
	client->close_request = NULL;
	if (gpgpu_client_is_open(client)) {
		header = request->readable.data;
		header->client = cpu_to_le32(client->id);
		err = gpgpu_request_submit(request);
		if (!err) {
			gpgpu_queue_drain(request->queue);
			wait_for_completion(&request->done);
			err = request->error;
		}
		/* Without an answer, only a reset ends what the device may do. */
		if (err)
			wait_event(device->reset_wait,
				   READ_ONCE(device->is_reset));
		xa_lock_irq(&device->clients);
		if (xa_load(&device->clients, client->id) == client)
			__xa_erase(&device->clients, client->id);
		xa_unlock_irq(&device->clients);
	}
	gpgpu_request_put(request);

	mutex_lock(&client->lock);
	list_splice_init(&client->regions, &regions);
	list_for_each_entry_safe(region, next, &regions, node) {
		list_del_init(&region->node);
		gpgpu_region_put(region);
	}
	mutex_unlock(&client->lock);

	gpgpu_queue_drain(&device->queues[GPGPU_QUEUE_COMMAND]);
	wake_up(&client->wait);
	complete_all(&client->closed);
	gpgpu_client_put(client);
}

/* Ends the client; `closed` tells when the device has let go of it. */
void gpgpu_client_start_close(struct gpgpu_client *client)
{
	struct gpgpu_device *device = client->device;

	if (test_and_set_bit(GPGPU_CLIENT_CLOSING, &client->flags))
		return;
	gpgpu_queue_purge(&device->queues[GPGPU_QUEUE_CONTROL], client);
	gpgpu_queue_purge(&device->queues[GPGPU_QUEUE_COMMAND], client);
	wake_up(&client->wait);
	gpgpu_client_get(client);
	queue_work(gpgpu_wq, &client->close_work);
}

static int gpgpu_file_open(struct inode *inode, struct file *file)
{
	struct gpgpu_device *device =
		container_of(file->private_data, struct gpgpu_device, misc);
	struct gpgpu_request *request;
	struct gpgpu_client *client;

	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client)
		return -ENOMEM;
	kref_init(&client->ref);
	init_waitqueue_head(&client->wait);
	mutex_init(&client->lock);
	INIT_LIST_HEAD(&client->regions);
	xa_init(&client->regions_by_id);
	xa_init_flags(&client->interrupted, XA_FLAGS_ALLOC1);
	xa_init_flags(&client->paused, XA_FLAGS_ALLOC1);
	INIT_WORK(&client->close_work, gpgpu_client_close_work);
	init_completion(&client->closed);
	client->files = current->files;
	client->pid = task_tgid_nr(current);
	client->mm = current->mm;
	mmgrab(client->mm);
	kref_get(&device->ref);
	client->device = device;
	spin_lock(&device->list_lock);
	list_add_tail(&client->node, &device->list);
	spin_unlock(&device->list_lock);

	request = gpgpu_control_new(client, GPGPU_CONTROL_CLOSE,
				    sizeof(struct gpgpu_wire_control));
	if (IS_ERR(request)) {
		gpgpu_client_put(client);
		return PTR_ERR(request);
	}
	request->is_close = true;
	client->close_request = request;

	file->private_data = client;
	return nonseekable_open(inode, file);
}

/*
 * The process that opened the file exits: its client ends, even if a child
 * still holds the file.
 */
static int gpgpu_file_flush(struct file *file, fl_owner_t id)
{
	struct gpgpu_client *client = file->private_data;

	if (id == client->files && (current->flags & PF_EXITING))
		gpgpu_client_start_close(client);
	return 0;
}

static int gpgpu_file_release(struct inode *inode, struct file *file)
{
	struct gpgpu_client *client = file->private_data;
	struct gpgpu_transfer_state *transfer;
	struct gpgpu_request *request;
	unsigned long token;

	gpgpu_client_start_close(client);
	/*
	 * Whoever waits for this process to end expects its GPU memory to be
	 * free then; but a slow device must not hold it up for ever.
	 */
	wait_for_completion_timeout(&client->closed,
				    msecs_to_jiffies(READ_ONCE(gpgpu_close_timeout_ms)));
	xa_for_each(&client->interrupted, token, request) {
		xa_erase(&client->interrupted, token);
		gpgpu_interrupt_over(client, request->left_pages);
		gpgpu_request_put(request);
	}
	xa_for_each(&client->paused, token, transfer) {
		xa_erase(&client->paused, token);
		gpgpu_transfer_abandon(transfer);
	}
	gpgpu_client_put(client);
	return 0;
}

static __poll_t gpgpu_file_poll(struct file *file, poll_table *wait)
{
	struct gpgpu_client *client = file->private_data;

	poll_wait(file, &client->wait, wait);
	if (READ_ONCE(client->flags) &
	    (BIT(GPGPU_CLIENT_DEAD) | BIT(GPGPU_CLIENT_CLOSING)))
		return EPOLLERR | EPOLLHUP;
	return 0;
}

static long gpgpu_ioctl_info(struct gpgpu_client *client, void __user *user)
{
	if (copy_to_user(user, &client->device->info,
			 sizeof(client->device->info)))
		return -EFAULT;
	return 0;
}

static long gpgpu_ioctl_open(struct gpgpu_client *client, void __user *user)
{
	struct gpgpu_wire_open *message;
	struct gpgpu_request *request;
	struct gpgpu_open arg;
	u32 status, id;
	int err, noted;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.reserved)
		return -EINVAL;
	if (test_and_set_bit(GPGPU_CLIENT_OPENING, &client->flags))
		return -EISCONN;

	request = gpgpu_control_new(client, GPGPU_CONTROL_OPEN,
				    sizeof(*message));
	if (IS_ERR(request)) {
		clear_bit(GPGPU_CLIENT_OPENING, &client->flags);
		return PTR_ERR(request);
	}
	message = request->readable.data;
	message->version = cpu_to_le32(arg.version);
	message->pid = cpu_to_le32(client->pid);
	message->api_family = cpu_to_le64(arg.api_family);
	strscpy(message->name, current->group_leader->comm,
		sizeof(message->name));

	mutex_lock(&client->lock);
	kref_get(&request->ref);
	client->open_request = request;
	mutex_unlock(&client->lock);

	err = gpgpu_control(request);
	/* The closing work takes note of the answer instead. */
	if (err == -EINTR)
		goto put;
	noted = gpgpu_client_opened(client);
	if (!err)
		err = noted;
	if (!err)
		err = gpgpu_control_answer(request, &status, &id);
	if (err || status != GPGPU_STATUS_OK) {
		clear_bit(GPGPU_CLIENT_OPENING, &client->flags);
		id = 0;
	}
	if (!err) {
		arg.status = status;
		arg.client = id;
		if (copy_to_user(user, &arg, sizeof(arg)))
			err = -EFAULT;
	}
put:
	gpgpu_request_put(request);
	return err;
}

static long gpgpu_ioctl_register(struct gpgpu_client *client,
				 void __user *user)
{
	u32 max_runs = client->device->info.max_runs;
	struct gpgpu_wire_register *message;
	struct gpgpu_request *request;
	struct gpgpu_region *region;
	struct gpgpu_register arg;
	u32 status, id = 0;
	bool keep;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.flags & ~GPGPU_REGISTER_READ_ONLY || arg.reserved)
		return -EINVAL;
	if (!gpgpu_client_is_open(client))
		return -ENOTCONN;

	region = gpgpu_region_pin(client->mm, arg.address, arg.length,
				  arg.flags & GPGPU_REGISTER_READ_ONLY,
				  max_runs);
	if (region == ERR_PTR(-E2BIG)) {
		status = GPGPU_STATUS_LIMIT;
		goto answer;
	}
	if (IS_ERR(region))
		return PTR_ERR(region);

	request = gpgpu_control_new(client, GPGPU_CONTROL_REGISTER,
				    struct_size(message, runs,
						region->num_runs));
	if (IS_ERR(request)) {
		gpgpu_region_put(region);
		if (request != ERR_PTR(-E2BIG))
			return PTR_ERR(request);
		status = GPGPU_STATUS_LIMIT;
		goto answer;
	}
	message = request->readable.data;
	message->address = cpu_to_le64(arg.address);
	message->length = cpu_to_le64(arg.length);
	message->num_runs = cpu_to_le32(region->num_runs);
	memcpy(message->runs, region->runs,
	       region->num_runs * sizeof(*region->runs));

	/* In the list before the device hears of it: closing finds it there. */
	mutex_lock(&client->lock);
	kref_get(&region->ref);
	list_add_tail(&region->node, &client->regions);
	mutex_unlock(&client->lock);

	/* Pinned until the client ends, unless the device surely does not reach it. */
	err = gpgpu_control(request);
	if (err) {
		keep = err == -EINTR;
	} else {
		err = gpgpu_control_answer(request, &status, &id);
		keep = err || status == GPGPU_STATUS_OK;
	}
	gpgpu_request_put(request);

	mutex_lock(&client->lock);
	if (!err && status == GPGPU_STATUS_OK && !list_empty(&region->node) &&
	    (!id || xa_insert(&client->regions_by_id, id, region, GFP_KERNEL)))
		err = -EIO;
	if (!keep && !list_empty(&region->node)) {
		list_del_init(&region->node);
		gpgpu_region_put(region);
	}
	mutex_unlock(&client->lock);
	gpgpu_region_put(region);
	if (err)
		return err;

answer:
	arg.status = status;
	arg.region = status == GPGPU_STATUS_OK ? id : 0;
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static long gpgpu_ioctl_unregister(struct gpgpu_client *client,
				   void __user *user)
{
	struct gpgpu_wire_unregister *message;
	struct gpgpu_request *request;
	struct gpgpu_region *region;
	struct gpgpu_unregister arg;
	u32 status;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (!gpgpu_client_is_open(client))
		return -ENOTCONN;
	request = gpgpu_control_new(client, GPGPU_CONTROL_UNREGISTER,
				    sizeof(*message));
	if (IS_ERR(request))
		return PTR_ERR(request);
	message = request->readable.data;
	message->region = cpu_to_le32(arg.region);

	mutex_lock(&client->lock);
	region = xa_erase(&client->regions_by_id, arg.region);
	/* Once the closing work has emptied the list, the entries mean nothing. */
	if (region && test_bit(GPGPU_CLIENT_CLOSING, &client->flags))
		region = NULL;
	if (region)
		kref_get(&region->ref);
	mutex_unlock(&client->lock);
	if (!region) {
		gpgpu_request_put(request);
		return -ENOENT;
	}

	err = gpgpu_control(request);
	if (!err)
		err = gpgpu_control_answer(request, &status, NULL);
	gpgpu_request_put(request);
	if (!err && status == GPGPU_STATUS_OK) {
		mutex_lock(&client->lock);
		if (!list_empty(&region->node)) {
			list_del_init(&region->node);
			gpgpu_region_put(region);
		}
		mutex_unlock(&client->lock);
	}
	gpgpu_region_put(region);
	if (err)
		return err;
	arg.status = status;
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static long gpgpu_file_ioctl(struct file *file, unsigned int cmd,
			     unsigned long arg)
{
	struct gpgpu_client *client = file->private_data;
	void __user *user = (void __user *)arg;

	if (current->mm != client->mm)
		return -EPERM;
	if (test_bit(GPGPU_CLIENT_CLOSING, &client->flags))
		return -ENODEV;
	switch (cmd) {
	case GPGPU_IOC_INFO:
		return gpgpu_ioctl_info(client, user);
	case GPGPU_IOC_OPEN:
		return gpgpu_ioctl_open(client, user);
	case GPGPU_IOC_SUBMIT:
		return gpgpu_ioctl_submit(client, user);
	case GPGPU_IOC_REGISTER:
		return gpgpu_ioctl_register(client, user);
	case GPGPU_IOC_UNREGISTER:
		return gpgpu_ioctl_unregister(client, user);
	case GPGPU_IOC_TRANSFER:
		return gpgpu_ioctl_transfer(client, user);
	}
	return -ENOTTY;
}

const struct file_operations gpgpu_fops = {
	.owner = THIS_MODULE,
	.open = gpgpu_file_open,
	.flush = gpgpu_file_flush,
	.release = gpgpu_file_release,
	.poll = gpgpu_file_poll,
	.unlocked_ioctl = gpgpu_file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
