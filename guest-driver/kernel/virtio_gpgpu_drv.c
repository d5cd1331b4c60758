// SPDX-License-Identifier: GPL-2.0
/* Devices: probe and remove, the event queue, suspend. */
#include <linux/idr.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "virtio_gpgpu_compat.h"
#include "virtio_gpgpu_priv.h"

/* The number of buffers in the event queue, if its size allows. */
#define GPGPU_NUM_EVENTS	64u

/*
 * The number of descriptors of a chain with a block of data, without those of
 * its pages.
 */
#define GPGPU_OVERHEAD		8u

/* Limits of one request's allocations, whatever the device offers. */
#define GPGPU_MAX_STREAM_BYTES	((u32)SZ_1M)
#define GPGPU_MAX_DATA_BYTES	((u64)SZ_64M)
#define GPGPU_MAX_RUNS		((u32)SZ_1M)

unsigned int gpgpu_poll_us = 50;
module_param_named(poll_us, gpgpu_poll_us, uint, 0644);
MODULE_PARM_DESC(poll_us, "Microseconds to poll for an answer before sleeping (default 50)");

unsigned int gpgpu_blocks = 8;
module_param_named(blocks, gpgpu_blocks, uint, 0644);
MODULE_PARM_DESC(blocks, "Blocks of one transfer that are pinned and in flight at a time, 1 to 16 (default 8)");

static unsigned int gpgpu_copy_bytes = SZ_64K;
module_param_named(copy_bytes, gpgpu_copy_bytes, uint, 0444);
MODULE_PARM_DESC(copy_bytes, "Data up to this size is copied, larger data pinned (default 65536)");

unsigned int gpgpu_close_timeout_ms = 3000;
module_param_named(close_timeout_ms, gpgpu_close_timeout_ms, uint, 0644);
MODULE_PARM_DESC(close_timeout_ms, "Longest wait for the device when a file is closed (default 3000)");

bool gpgpu_memlock = true;
module_param_named(memlock, gpgpu_memlock, bool, 0644);
MODULE_PARM_DESC(memlock, "Registered memory may not exceed RLIMIT_MEMLOCK (default Y)");

struct workqueue_struct *gpgpu_wq;
static DEFINE_IDA(gpgpu_ida);

static void gpgpu_device_release(struct kref *ref)
{
	struct gpgpu_device *device =
		container_of(ref, struct gpgpu_device, ref);

	xa_destroy(&device->clients);
	kfree(device->events);
	kfree(device);
}

void gpgpu_device_put(struct gpgpu_device *device)
{
	kref_put(&device->ref, gpgpu_device_release);
}

static void gpgpu_event_handle(struct gpgpu_device *device,
			       const struct gpgpu_wire_event *event)
{
	struct gpgpu_client *client;
	unsigned long flags;

	if (le32_to_cpu(event->kind) != GPGPU_EVENT_CLIENT_DIED)
		return;
	xa_lock_irqsave(&device->clients, flags);
	client = xa_load(&device->clients, le32_to_cpu(event->client));
	if (client) {
		gpgpu_client_died(client);
		dev_notice_ratelimited(&device->vdev->dev,
				       "the worker of process %d died (signal %u)\n",
				       client->pid, le32_to_cpu(event->detail));
	}
	xa_unlock_irqrestore(&device->clients, flags);
}

static int gpgpu_event_add(struct gpgpu_device *device,
			   struct gpgpu_wire_event *event)
{
	struct scatterlist sg;

	sg_init_one(&sg, event, sizeof(*event));
	return virtqueue_add_inbuf(device->event_vq, &sg, 1, event, GFP_ATOMIC);
}

static void gpgpu_event_callback(struct virtqueue *vq)
{
	struct gpgpu_device *device = vq->vdev->priv;
	struct gpgpu_wire_event *event;
	unsigned long flags;
	bool notify = false;
	u32 used;

	/* As with the other queues, the device is notified without the lock. */
	rcu_read_lock();
	spin_lock_irqsave(&device->event_lock, flags);
	if (device->events_stopped)
		goto unlock;
	do {
		virtqueue_disable_cb(vq);
		while ((event = virtqueue_get_buf(vq, &used))) {
			if (used >= sizeof(*event))
				gpgpu_event_handle(device, event);
			gpgpu_event_add(device, event);
		}
	} while (!virtqueue_enable_cb(vq));
	notify = virtqueue_kick_prepare(vq);
unlock:
	spin_unlock_irqrestore(&device->event_lock, flags);
	if (notify)
		virtqueue_notify(vq);
	rcu_read_unlock();
}

/* The caller holds `life`, which protects the virtqueue. */
static void gpgpu_events_start(struct gpgpu_device *device)
{
	unsigned int i, count;
	unsigned long flags;
	bool notify;

	count = min(GPGPU_NUM_EVENTS,
		    virtqueue_get_vring_size(device->event_vq));
	spin_lock_irqsave(&device->event_lock, flags);
	device->events_stopped = false;
	for (i = 0; i < count; i++)
		if (gpgpu_event_add(device, &device->events[i]))
			break;
	notify = virtqueue_kick_prepare(device->event_vq);
	spin_unlock_irqrestore(&device->event_lock, flags);
	if (notify)
		virtqueue_notify(device->event_vq);
}

/*
 * Reads the configuration field by field: a virtual machine monitor may query
 * its back end again for every single access. Files may be in use at the same
 * time.
 */
static int gpgpu_read_config(struct gpgpu_device *device)
{
	struct virtio_device *vdev = device->vdev;
	struct gpgpu_info info = device->info;

	if (!vdev->config->get || !virtio_has_feature(vdev, VIRTIO_F_VERSION_1))
		return -ENODEV;
	virtio_cread_le(vdev, struct gpgpu_wire_config, magic, &info.magic);
	device->info.magic = info.magic;
	if (info.magic != GPGPU_MAGIC)
		return -ENODEV;
	virtio_cread_le(vdev, struct gpgpu_wire_config, version, &info.version);
	device->info.version = info.version;
	if (info.version != GPGPU_VERSION)
		return -ENODEV;

	virtio_cread_le(vdev, struct gpgpu_wire_config, api_family,
			&info.api_family);
	virtio_cread_le(vdev, struct gpgpu_wire_config, max_clients,
			&info.max_clients);
	virtio_cread_le(vdev, struct gpgpu_wire_config, max_stream_bytes,
			&info.max_stream_bytes);
	virtio_cread_le(vdev, struct gpgpu_wire_config, max_answer_bytes,
			&info.max_answer_bytes);
	virtio_cread_le(vdev, struct gpgpu_wire_config, max_runs,
			&info.max_runs);
	virtio_cread_le(vdev, struct gpgpu_wire_config, max_data_bytes,
			&info.max_data_bytes);
	virtio_cread_le(vdev, struct gpgpu_wire_config, instance,
			&device->instance);
	info.max_stream_bytes = min(info.max_stream_bytes,
				    GPGPU_MAX_STREAM_BYTES);
	info.max_answer_bytes = min(info.max_answer_bytes,
				    GPGPU_MAX_STREAM_BYTES);
	info.max_runs = min(info.max_runs, GPGPU_MAX_RUNS);
	info.max_data_bytes = min(info.max_data_bytes, GPGPU_MAX_DATA_BYTES);
	info.copy_bytes = min_t(u64, gpgpu_copy_bytes, info.max_data_bytes);
	device->info = info;
	return 0;
}

/* Sets up the virtqueues and lets the device start. */
static int gpgpu_start(struct gpgpu_device *device)
{
	static gpgpu_callback_t *const callbacks[] = {
		gpgpu_queue_callback, gpgpu_queue_callback, gpgpu_event_callback,
	};
	static const char *const names[] = { "control", "command", "event" };
	struct virtqueue *vqs[GPGPU_NUM_QUEUES];
	struct gpgpu_info *info = &device->info;
	struct gpgpu_queue *queue;
	unsigned long flags;
	u64 block;
	int i, err;

	err = gpgpu_find_vqs(device->vdev, GPGPU_NUM_QUEUES, vqs, callbacks,
			     names);
	if (err)
		return err;
	info->max_segments = virtqueue_get_vring_size(vqs[GPGPU_QUEUE_COMMAND]);
	if (info->max_segments <= GPGPU_OVERHEAD) {
		dev_err(&device->vdev->dev,
			"a command queue of %u descriptors is too short\n",
			info->max_segments);
		virtio_reset_device(device->vdev);
		device->vdev->config->del_vqs(device->vdev);
		return -EINVAL;
	}
	block = min(info->max_data_bytes,
		    (u64)(info->max_segments - GPGPU_OVERHEAD) << PAGE_SHIFT);
	info->max_block_bytes = block ? rounddown_pow_of_two(block) : 0;

	/* From here on nothing can fail: users of the queues rely on them. */
	device->event_vq = vqs[GPGPU_QUEUE_EVENT];
	WRITE_ONCE(device->is_reset, false);
	WRITE_ONCE(device->is_replaced, false);
	virtio_device_ready(device->vdev);
	for (i = 0; i < GPGPU_QUEUE_EVENT; i++) {
		queue = &device->queues[i];
		spin_lock_irqsave(&queue->lock, flags);
		queue->vq = vqs[i];
		queue->size = virtqueue_get_vring_size(vqs[i]);
		queue->indirect = virtio_has_feature(device->vdev,
						     VIRTIO_RING_F_INDIRECT_DESC);
		queue->stopped = false;
		virtqueue_disable_cb(vqs[i]);
		spin_unlock_irqrestore(&queue->lock, flags);
	}
	gpgpu_events_start(device);
	return 0;
}

static bool gpgpu_client_is_closing(struct gpgpu_client *client)
{
	return test_bit(GPGPU_CLIENT_CLOSING, &client->flags);
}

/* Whether a client is closed, or must not be ended. */
static bool gpgpu_client_is_let_be(struct gpgpu_client *client)
{
	return completion_done(&client->closed) ||
	       !gpgpu_client_is_closing(client);
}

/* Whether a client is ending, or was never known to a device. */
static bool gpgpu_client_is_of_no_device(struct gpgpu_client *client)
{
	return gpgpu_client_is_closing(client) ||
	       !test_bit(GPGPU_CLIENT_OPENING, &client->flags);
}

/* A client for which `is_past` does not hold yet, with a reference; or NULL. */
static struct gpgpu_client *
gpgpu_find_client(struct gpgpu_device *device,
		  bool (*is_past)(struct gpgpu_client *client))
{
	struct gpgpu_client *client, *found = NULL;

	spin_lock(&device->list_lock);
	list_for_each_entry(client, &device->list, node) {
		if (!is_past(client) && kref_get_unless_zero(&client->ref)) {
			found = client;
			break;
		}
	}
	spin_unlock(&device->list_lock);
	return found;
}

/* Resets the device. Afterwards it accesses neither virtqueues nor guest memory. */
static void gpgpu_reset(struct gpgpu_device *device)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&device->event_lock, flags);
	device->events_stopped = true;
	spin_unlock_irqrestore(&device->event_lock, flags);
	/* These wait for threads that still notify the device of any queue. */
	for (i = 0; i < GPGPU_QUEUE_EVENT; i++)
		gpgpu_queue_stop(&device->queues[i]);

	/* When this returns, nothing of the device writes to memory (GPGPU-DEV-8). */
	virtio_reset_device(device->vdev);
	for (i = 0; i < GPGPU_QUEUE_EVENT; i++)
		gpgpu_queue_drop(&device->queues[i]);
	device->vdev->config->del_vqs(device->vdev);
	WRITE_ONCE(device->is_reset, true);
}

/* Starts the end of the clients for which `is_past` does not hold. */
static void gpgpu_start_closing(struct gpgpu_device *device,
				bool (*is_past)(struct gpgpu_client *client))
{
	struct gpgpu_client *client;

	while ((client = gpgpu_find_client(device, is_past))) {
		gpgpu_client_start_close(client);
		gpgpu_client_put(client);
	}
}

/* Waits for the clients that are ending. The device must be reset. */
static void gpgpu_finish_closing(struct gpgpu_device *device)
{
	struct gpgpu_client *client;

	while ((client = gpgpu_find_client(device, gpgpu_client_is_let_be))) {
		gpgpu_client_go_on_closing(client);
		wait_for_completion(&client->closed);
		gpgpu_client_put(client);
	}
}

/* Ends all clients and takes the device out of service. */
static void gpgpu_stop(struct gpgpu_device *device)
{
	unsigned long timeout = jiffies +
				msecs_to_jiffies(READ_ONCE(gpgpu_close_timeout_ms));
	struct gpgpu_client *client;
	long left;

	mutex_lock(&device->life);
	WRITE_ONCE(device->is_out, true);
	gpgpu_start_closing(device, gpgpu_client_is_closing);
	if (device->is_reset) {
		/* No start has succeeded since: there are no queues, only a status. */
		virtio_reset_device(device->vdev);
	} else {
		/* A device that still exists releases its clients in its own order. */
		while ((left = timeout - jiffies) > 0 &&
		       (client = gpgpu_find_client(device,
						   gpgpu_client_is_let_be))) {
			wait_for_completion_timeout(&client->closed, left);
			gpgpu_client_put(client);
		}
		gpgpu_reset(device);
	}
	gpgpu_finish_closing(device);
	mutex_unlock(&device->life);
}

/* Whether another device has replaced the one that was started. */
static bool gpgpu_is_replaced(struct gpgpu_device *device)
{
	struct virtio_device *vdev = device->vdev;
	u64 instance;
	u32 magic;

	if (!device->instance)
		return false;
	/* Without its back end, a virtual machine monitor may return anything. */
	virtio_cread_le(vdev, struct gpgpu_wire_config, magic, &magic);
	virtio_cread_le(vdev, struct gpgpu_wire_config, instance, &instance);
	return magic == GPGPU_MAGIC && instance &&
	       instance != device->instance;
}

/* As the core does before a probe and after a suspend, for a device that was reset. */
static int gpgpu_negotiate(struct virtio_device *vdev)
{
	int err;

	virtio_add_status(vdev, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	virtio_add_status(vdev, VIRTIO_CONFIG_S_DRIVER);
	err = vdev->config->finalize_features(vdev);
	if (err)
		return err;
	virtio_add_status(vdev, VIRTIO_CONFIG_S_FEATURES_OK);
	if (!(vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_FEATURES_OK))
		return -ENODEV;
	return 0;
}

/*
 * Checks the device. A device that has replaced another one does not know the
 * other's clients and chains: a reset ends these, and sets the device up for
 * new ones (GPGPU-DRV-36). If that fails, the next check tries again, because a
 * back end may not be ready yet. May sleep; returns -EINTR if the task was
 * killed in the meantime.
 */
int gpgpu_device_look(struct gpgpu_device *device)
{
	struct device *dev = &device->vdev->dev;
	int err;

	/* The lock's holder may wait for a device that resets slowly. */
	err = mutex_lock_killable(&device->life);
	if (err)
		return err;
	if (device->is_out)
		goto unlock;
	if (device->is_lost) {
		virtio_reset_device(device->vdev);
	} else {
		if (device->is_reset || !gpgpu_is_replaced(device))
			goto unlock;
		dev_notice(dev, "device replaced: its clients end\n");
		WRITE_ONCE(device->is_replaced, true);
		gpgpu_reset(device);
		gpgpu_start_closing(device, gpgpu_client_is_of_no_device);
		gpgpu_finish_closing(device);
	}
	err = gpgpu_negotiate(device->vdev);
	err = err ?: gpgpu_read_config(device);
	err = err ?: gpgpu_start(device);
	if (err && !device->is_lost)
		dev_err(dev, "cannot restart the device: %d; retrying\n", err);
	else if (!err && device->is_lost)
		dev_notice(dev, "device restarted\n");
	WRITE_ONCE(device->is_lost, err);
unlock:
	mutex_unlock(&device->life);
	return 0;
}

static bool gpgpu_queue_is_busy(struct gpgpu_queue *queue)
{
	unsigned long flags;
	bool busy;

	spin_lock_irqsave(&queue->lock, flags);
	busy = !queue->stopped && queue->sleepers;
	spin_unlock_irqrestore(&queue->lock, flags);
	return busy;
}

/* Checks the device again while a request waits for it, or while it is not started. */
static void gpgpu_look_work(struct work_struct *work)
{
	struct gpgpu_device *device =
		container_of(work, struct gpgpu_device, look.work);

	gpgpu_device_look(device);
	if ((READ_ONCE(device->is_lost) && !READ_ONCE(device->is_out)) ||
	    gpgpu_queue_is_busy(&device->queues[GPGPU_QUEUE_CONTROL]) ||
	    gpgpu_queue_is_busy(&device->queues[GPGPU_QUEUE_COMMAND]))
		queue_delayed_work(gpgpu_wq, &device->look, HZ);
}

static void gpgpu_config_changed(struct virtio_device *vdev)
{
	struct gpgpu_device *device = vdev->priv;

	mod_delayed_work(gpgpu_wq, &device->look, 0);
}

static int gpgpu_validate(struct virtio_device *vdev)
{
	/* Registrations name guest-physical addresses. */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

/*
 * The device must not write to the memory of a kernel that is started next, and
 * clients must be closed in order. It depends on the kernel and its backports
 * which method of the bus is called at shutdown, or whether the device is reset
 * instead; each of the methods calls this first.
 */
static int gpgpu_reboot(struct notifier_block *notifier, unsigned long event,
			void *data)
{
	gpgpu_stop(container_of(notifier, struct gpgpu_device, reboot));
	return NOTIFY_DONE;
}

static int gpgpu_probe(struct virtio_device *vdev)
{
	struct gpgpu_device *device;
	int i, err;

	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	kref_init(&device->ref);
	device->vdev = vdev;
	for (i = 0; i < GPGPU_QUEUE_EVENT; i++)
		gpgpu_queue_init(&device->queues[i]);
	spin_lock_init(&device->event_lock);
	device->events_stopped = true;
	xa_init_flags(&device->clients, XA_FLAGS_LOCK_IRQ);
	spin_lock_init(&device->list_lock);
	INIT_LIST_HEAD(&device->list);
	mutex_init(&device->life);
	INIT_DELAYED_WORK(&device->look, gpgpu_look_work);
	device->is_reset = true;
	vdev->priv = device;

	err = gpgpu_read_config(device);
	if (err) {
		dev_info(&vdev->dev,
			 "not a virtio-gpgpu device of version %u (magic %#x, version %u): left alone\n",
			 GPGPU_VERSION, device->info.magic,
			 device->info.version);
		goto put;
	}
	err = -ENOMEM;
	device->events = kcalloc(GPGPU_NUM_EVENTS, sizeof(*device->events),
				 GFP_KERNEL);
	if (!device->events)
		goto put;
	err = ida_alloc(&gpgpu_ida, GFP_KERNEL);
	if (err < 0)
		goto put;
	device->index = err;

	/* No other code knows the device yet. */
	err = gpgpu_start(device);
	if (err)
		goto free_index;

	/* From the second device on, the name has a number. */
	if (device->index)
		snprintf(device->name, sizeof(device->name), "virtio-gpgpu%d",
			 device->index);
	else
		strscpy(device->name, "virtio-gpgpu", sizeof(device->name));
	device->misc.minor = MISC_DYNAMIC_MINOR;
	device->misc.name = device->name;
	device->misc.fops = &gpgpu_fops;
	device->misc.parent = &vdev->dev;
	device->misc.mode = 0666;
	device->reboot.notifier_call = gpgpu_reboot;
	err = register_reboot_notifier(&device->reboot);
	if (err)
		goto stop;
	err = misc_register(&device->misc);
	if (err)
		goto unregister;
	dev_info(&vdev->dev, "/dev/%s: blocks of %llu bytes\n", device->name,
		 device->info.max_block_bytes);
	return 0;

unregister:
	unregister_reboot_notifier(&device->reboot);
stop:
	gpgpu_stop(device);
	cancel_delayed_work_sync(&device->look);
free_index:
	ida_free(&gpgpu_ida, device->index);
put:
	vdev->priv = NULL;
	gpgpu_device_put(device);
	return err;
}

static void gpgpu_remove(struct virtio_device *vdev)
{
	struct gpgpu_device *device = vdev->priv;

	misc_deregister(&device->misc);
	unregister_reboot_notifier(&device->reboot);
	gpgpu_stop(device);
	/* With the queues stopped, nothing queues it again. */
	cancel_delayed_work_sync(&device->look);
	ida_free(&gpgpu_ida, device->index);
	vdev->priv = NULL;
	gpgpu_device_put(device);
}

#ifdef CONFIG_PM_SLEEP
/*
 * A client's state on the host cannot be saved: clients end, and new ones can
 * be opened after the resume.
 */
static int gpgpu_freeze(struct virtio_device *vdev)
{
	gpgpu_stop(vdev->priv);
	return 0;
}

static int gpgpu_restore(struct virtio_device *vdev)
{
	struct gpgpu_device *device = vdev->priv;
	int err;

	mutex_lock(&device->life);
	err = gpgpu_read_config(device);
	err = err ?: gpgpu_start(device);
	device->is_out = err;
	/* The device may have been lost before the suspend, and works again. */
	if (!err)
		WRITE_ONCE(device->is_lost, false);
	mutex_unlock(&device->life);
	return err;
}
#endif

static const struct virtio_device_id gpgpu_ids[] = {
	{ GPGPU_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ GPGPU_VIRTIO_ID_QEMU, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, gpgpu_ids);

static struct virtio_driver gpgpu_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = gpgpu_ids,
	.validate = gpgpu_validate,
	.probe = gpgpu_probe,
	.remove = gpgpu_remove,
	.config_changed = gpgpu_config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze = gpgpu_freeze,
	.restore = gpgpu_restore,
#endif
};

static int __init gpgpu_init(void)
{
	int err;

	gpgpu_wq = alloc_workqueue("virtio_gpgpu", WQ_UNBOUND, 0);
	if (!gpgpu_wq)
		return -ENOMEM;
	err = register_virtio_driver(&gpgpu_driver);
	if (err)
		destroy_workqueue(gpgpu_wq);
	return err;
}
module_init(gpgpu_init);

static void __exit gpgpu_exit(void)
{
	unregister_virtio_driver(&gpgpu_driver);
	gpgpu_reap();
	/* Drains it, including the works that its works queue. */
	destroy_workqueue(gpgpu_wq);
}
module_exit(gpgpu_exit);

MODULE_DESCRIPTION("CUDA for virtual machines: driver of the virtio-gpgpu device");
MODULE_AUTHOR("The virtio-gpgpu developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
