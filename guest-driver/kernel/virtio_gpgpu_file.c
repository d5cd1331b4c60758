// SPDX-License-Identifier: GPL-2.0
/* The character device: one client for each open file, and its ioctls. */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "virtio_gpgpu_priv.h"

/*
 * Queues a control request and waits for its completion. -EINTR: the caller was
 * killed, and the result of the request is unknown. Any other error: the device
 * never saw it.
 */
static int gpgpu_control(struct gpgpu_request *request)
{
	int err;

	err = gpgpu_request_submit(request, true);
	if (err)
		return err;
	if (!gpgpu_request_wait(request, false))
		return 0;
	return gpgpu_request_cancel(request) ? -ECANCELED : -EINTR;
}

static int gpgpu_file_open(struct inode *inode, struct file *file)
{
	struct gpgpu_device *device =
		container_of(file->private_data, struct gpgpu_device, misc);
	struct gpgpu_client *client;

	client = gpgpu_client_new(device);
	if (IS_ERR(client))
		return PTR_ERR(client);
	file->private_data = client;
	return nonseekable_open(inode, file);
}

static int gpgpu_file_release(struct inode *inode, struct file *file)
{
	struct gpgpu_client *client = file->private_data;
	struct gpgpu_transfer_state *transfer;
	struct gpgpu_request *request;
	unsigned long token;

	gpgpu_client_start_close(client);
	gpgpu_client_wait_closed(client);
	xa_for_each(&client->interrupted, token, request) {
		xa_erase(&client->interrupted, token);
		gpgpu_interrupt_over(client);
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
	/* The client must belong to the present device, not to a previous one. */
	err = gpgpu_device_look(client->device);
	if (err)
		return err;
	if (test_and_set_bit(GPGPU_CLIENT_OPENING, &client->flags))
		return -EISCONN;

	request = gpgpu_control_new(client, GPGPU_CONTROL_OPEN,
				    sizeof(*message));
	if (IS_ERR(request)) {
		clear_bit(GPGPU_CLIENT_OPENING, &client->flags);
		return PTR_ERR(request);
	}
	request->for_close = true;
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
	/* The closing work handles the answer instead. */
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

	region = gpgpu_region_pin(client, arg.address, arg.length,
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

	/*
	 * Added to the list before the device gets the request, so that closing
	 * finds it.
	 */
	mutex_lock(&client->lock);
	kref_get(&region->ref);
	list_add_tail(&region->node, &client->regions);
	mutex_unlock(&client->lock);

	/*
	 * Pinned until the client ends, unless the device certainly does not
	 * access it.
	 */
	err = gpgpu_control(request);
	if (err) {
		keep = err == -EINTR;
	} else {
		err = gpgpu_control_answer(request, &status, &id);
		keep = err || status == GPGPU_STATUS_OK;
	}
	gpgpu_request_put(request);

	mutex_lock(&client->lock);
	/*
	 * The device has registered it: an error for lack of memory would be
	 * too late.
	 */
	if (!err && status == GPGPU_STATUS_OK && !list_empty(&region->node) &&
	    (!id || xa_insert(&client->regions_by_id, id, region,
			      GFP_KERNEL | __GFP_NOFAIL)))
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
	/* Once the closing work has emptied the list, its entries are invalid. */
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
	.release = gpgpu_file_release,
	.poll = gpgpu_file_poll,
	.unlocked_ioctl = gpgpu_file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
