/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The declarations that the files of this driver share.
 *
 * References: a file holds its client; a request holds its client; a client
 * holds its device. The waiter of a request holds it and, while it is queued,
 * so does its queue: memory that the device can access outlives a killed
 * waiter.
 *
 * Locks, outermost first: gpgpu_device.life (a mutex, held across a reset),
 * gpgpu_client.lock (a mutex, never held across a wait for the device),
 * gpgpu_queue.lock, gpgpu_device.clients' own. Nothing but `life` is held around
 * gpgpu_device.list_lock, and nothing is taken below it.
 */
#ifndef VIRTIO_GPGPU_PRIV_H
#define VIRTIO_GPGPU_PRIV_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/miscdevice.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <linux/virtio_gpgpu.h>

#include "virtio_gpgpu_wire.h"

struct cred;
struct file;
struct mm_struct;

/* A virtqueue that carries requests: control or command. */
struct gpgpu_queue {
	spinlock_t lock;		/* guards all of this but `size` and `rest` */
	struct virtqueue *vq;
	struct list_head pending;	/* requests that wait for descriptors, oldest first */
	struct list_head in_flight;	/* requests that the device holds */
	unsigned int sleepers;		/* requests and clients that want an interrupt */
	unsigned int pollers;		/* threads that watch the virtqueue instead */
	struct work_struct rest;	/* goes on when a pass has reached its limit */
	bool stopped;
	bool indirect;			/* a chain takes one descriptor */
	bool direct;			/* it did not, last time: there was no memory */
	unsigned int size;		/* descriptors: the longest chain */
};

struct gpgpu_device {
	struct kref ref;
	struct virtio_device *vdev;
	struct miscdevice misc;
	char name[32];
	int index;

	struct gpgpu_info info;
	struct gpgpu_queue queues[GPGPU_QUEUE_EVENT];

	spinlock_t event_lock;		/* guards the next three */
	struct virtqueue *event_vq;
	struct gpgpu_wire_event *events;
	bool events_stopped;

	struct xarray clients;		/* open clients by number */
	spinlock_t list_lock;		/* guards `list`, and who is over the limit */
	struct list_head list;		/* all clients */

	struct mutex life;		/* held to start and to reset the device */
	u64 instance;			/* which one was started; 0: it does not say */
	bool is_out;			/* of service: removed, suspended or shut down */
	bool is_reset;			/* the device reaches no chain's memory any more */
	bool is_replaced;		/* nor any region: it is not the one that had clients */
	bool is_lost;			/* it was reset, and could not be restarted */
	struct delayed_work look;	/* gpgpu_device_look() */
	struct notifier_block reboot;	/* gpgpu_reboot() */
};

/* Bits of gpgpu_client.flags. */
enum {
	GPGPU_CLIENT_OPENING,		/* GPGPU_IOC_OPEN is under way or has succeeded */
	GPGPU_CLIENT_OPEN,		/* `id` is valid */
	GPGPU_CLIENT_DEAD,		/* the device said so */
	GPGPU_CLIENT_CLOSING,		/* nothing but CLOSE may be queued any more */
};

struct gpgpu_client {
	struct kref ref;
	struct gpgpu_device *device;
	struct list_head node;		/* in gpgpu_device.list */
	struct mm_struct *mm;		/* of the process that opened the file; mmgrab()bed */
	struct mmu_notifier notifier;	/* the client ends with that address space */
	const struct cred *cred;	/* of the opener of the file */
	pid_t pid;
	unsigned long flags;
	u32 id;
	wait_queue_head_t wait;		/* for poll() */

	/* By queue, guarded by its lock. */
	struct list_head queued[GPGPU_QUEUE_EVENT];	/* its requests there, oldest first */
	bool collected[GPGPU_QUEUE_EVENT];	/* see gpgpu_queue_collect() */

	struct mutex lock;		/* guards the next three */
	struct list_head regions;	/* all registrations, confirmed or not */
	struct xarray regions_by_id;	/* those that the device confirmed */
	struct gpgpu_request *open_request;	/* OPEN, until its answer has been seen */

	struct xarray interrupted;	/* submissions to take up again, by token */
	u32 next_token;
	struct xarray paused;		/* transfers to take up again, by token */
	u32 next_paused;
	atomic_t num_interrupted;	/* of both */
	unsigned int num_over;		/* requests over the limit: see gpgpu_may_be_over() */

	/* For the closing work, which never runs twice at a time. */
	struct gpgpu_request *close_request;	/* made early: closing must not fail */
	bool close_sent;
	bool close_refused;
	unsigned long close_by;		/* jiffies: the end of waits for `closed` */
	struct work_struct close_work;
	struct work_struct free_work;
	struct completion closed;
};

/* Kernel memory that is part of a chain. */
struct gpgpu_buffer {
	void *data;
	size_t bytes;
	struct scatterlist one;		/* for contiguous memory */
	struct sg_table table;		/* for the rest */
	struct scatterlist *sgl;
	unsigned int nents;
};

/* Pinned user memory that is part of a chain. */
struct gpgpu_pinned {
	struct scatterlist *sgl;	/* a run of pages each; NULL: nothing is pinned */
	unsigned int nents;
	size_t bytes;
	bool written;			/* the device writes to it */
};

/* A range of user memory that is pinned piece by piece, in order. */
struct gpgpu_pinner {
	unsigned long next;		/* the first byte that no piece holds yet */
	unsigned long end;
	bool written;
	unsigned int max_nents;		/* of one piece */
	struct scatterlist *scratch;	/* as many */
	struct page **pages;		/* pinned, and in no piece yet: */
	unsigned int first;
	unsigned int count;
	int err;			/* the last error of pinning */
};

/* The content of a chain on the command queue. */
struct gpgpu_command {
	u32 thread;
	u32 stream_bytes;
	u32 answer_bytes;
	u64 data_offset;
	u64 in_ptr;
	u64 out_ptr;
	u64 in_bytes;
	u64 out_bytes;
	struct gpgpu_pinned in;		/* other data is copied */
	struct gpgpu_pinned out;
};

enum gpgpu_request_state {
	GPGPU_REQUEST_NEW,
	GPGPU_REQUEST_PENDING,
	GPGPU_REQUEST_QUEUED,
	GPGPU_REQUEST_DONE,
};

struct gpgpu_request {
	struct kref ref;
	struct gpgpu_client *client;
	struct gpgpu_queue *queue;

	/* Guarded by the queue's lock until `done`. */
	struct list_head node;		/* in one of the queue's lists */
	struct list_head of_client;	/* in gpgpu_client.queued */
	enum gpgpu_request_state state;
	bool sleeper;
	bool left;			/* by its thread: see gpgpu_request_leave() */
	int error;			/* of the exchange: 0, or negative */
	u32 used;			/* bytes that the device says it wrote */

	struct completion done;		/* with `nowait`: queued, or failed */
	struct llist_node dead_node;
	bool polled;			/* its thread has watched for it */
	bool nowait;
	bool is_close;
	bool for_close;			/* OPEN or CLOSE: the closing work goes on with it */
	bool given;			/* to the device: it was in the virtqueue */

	struct gpgpu_buffer readable;
	struct gpgpu_buffer writable;
	struct gpgpu_pinned pinned_in;
	struct gpgpu_pinned pinned_out;
	struct scatterlist *sgs[4];
	unsigned int num_readable;
	unsigned int num_writable;
	unsigned int segments;		/* descriptors, without an indirect table */

	/* Where a command's results are stored. */
	void __user *answer_ptr;
	u32 answer_bytes;
	void __user *out_ptr;
	size_t out_copied;		/* bytes behind the answer that go to `out_ptr` */

	atomic_t unpinned;
	unsigned long charged;		/* pages, once it was left */
	bool over;			/* above the limit: see gpgpu_may_be_over() */
};

/*
 * Memory that is pinned for a client's worker. It is on the client's list from
 * before the device gets the request until the device has confirmed that it no
 * longer accesses it.
 */
struct gpgpu_region {
	struct kref ref;
	struct list_head node;		/* in gpgpu_client.regions */
	struct gpgpu_client *client;	/* the charged client, which outlives it */
	unsigned long num_pages;
	u32 num_runs;
	struct gpgpu_wire_run *runs;
};

extern struct workqueue_struct *gpgpu_wq;
extern unsigned int gpgpu_poll_us;
extern unsigned int gpgpu_blocks;
extern unsigned int gpgpu_close_timeout_ms;
extern bool gpgpu_memlock;

/* virtio_gpgpu_drv.c */
void gpgpu_device_put(struct gpgpu_device *device);
int gpgpu_device_look(struct gpgpu_device *device);

/* virtio_gpgpu_request.c */
struct gpgpu_request *gpgpu_request_new(struct gpgpu_client *client,
					enum gpgpu_queue_index index,
					size_t readable, size_t writable);
bool gpgpu_request_has_pages(const struct gpgpu_request *request);
unsigned long gpgpu_request_pages(const struct gpgpu_request *request);
void gpgpu_request_unpin(struct gpgpu_request *request);
void gpgpu_request_return(struct gpgpu_request *request);
void gpgpu_request_put(struct gpgpu_request *request);
void gpgpu_reap(void);
void gpgpu_reap_later(void);

/* virtio_gpgpu_queue.c */
int gpgpu_request_submit(struct gpgpu_request *request, bool poll);
int gpgpu_request_wait(struct gpgpu_request *request, bool interruptible);
bool gpgpu_request_cancel(struct gpgpu_request *request);
void gpgpu_request_leave(struct gpgpu_request *request, unsigned long pages);
void gpgpu_request_give_up(struct gpgpu_request *request);
void gpgpu_queue_init(struct gpgpu_queue *queue);
void gpgpu_queue_callback(struct virtqueue *vq);
void gpgpu_queue_purge(struct gpgpu_queue *queue, struct gpgpu_client *client);
void gpgpu_queue_collect(struct gpgpu_queue *queue, struct gpgpu_client *client);
void gpgpu_queue_stop(struct gpgpu_queue *queue);
void gpgpu_queue_drop(struct gpgpu_queue *queue);

/* virtio_gpgpu_client.c */
struct gpgpu_client *gpgpu_client_new(struct gpgpu_device *device);
bool gpgpu_client_is_open(struct gpgpu_client *client);
int gpgpu_client_opened(struct gpgpu_client *client);
void gpgpu_client_get(struct gpgpu_client *client);
void gpgpu_client_put(struct gpgpu_client *client);
void gpgpu_client_died(struct gpgpu_client *client);
void gpgpu_client_start_close(struct gpgpu_client *client);
void gpgpu_client_go_on_closing(struct gpgpu_client *client);
void gpgpu_client_wait_closed(struct gpgpu_client *client);
int gpgpu_control_answer(struct gpgpu_request *request, u32 *status, u32 *value);
struct gpgpu_request *gpgpu_control_new(struct gpgpu_client *client,
					enum gpgpu_control_kind kind,
					size_t bytes);
bool gpgpu_charge(struct gpgpu_client *client, unsigned long pages, bool force);
void gpgpu_uncharge(struct gpgpu_client *client, unsigned long pages);
void gpgpu_request_not_over(struct gpgpu_request *request);
bool gpgpu_interrupt(struct gpgpu_client *client,
		     struct gpgpu_request *const *requests, unsigned int count);
void gpgpu_interrupt_over(struct gpgpu_client *client);

/* virtio_gpgpu_file.c */
extern const struct file_operations gpgpu_fops;

/* virtio_gpgpu_command.c */
long gpgpu_ioctl_submit(struct gpgpu_client *client, void __user *argp);
struct gpgpu_request *gpgpu_command_new(struct gpgpu_client *client,
					struct gpgpu_command *command,
					void **stream);
int gpgpu_command_answer(struct gpgpu_request *request, u32 *status, u32 *bytes);

/* virtio_gpgpu_transfer.c */
struct gpgpu_transfer_state;
long gpgpu_ioctl_transfer(struct gpgpu_client *client, void __user *argp);
void gpgpu_transfer_free(struct gpgpu_transfer_state *transfer);
void gpgpu_transfer_abandon(struct gpgpu_transfer_state *transfer);

/* virtio_gpgpu_mem.c */
int gpgpu_buffer_init(struct gpgpu_buffer *buffer, size_t bytes);
void gpgpu_buffer_free(struct gpgpu_buffer *buffer);
int gpgpu_pinner_init(struct gpgpu_pinner *pinner, u64 address, u64 bytes,
		      bool written, unsigned int max_nents);
int gpgpu_pin_piece(struct gpgpu_pinner *pinner, size_t bytes,
		    struct gpgpu_pinned *pinned);
void gpgpu_pinner_let_go(struct gpgpu_pinner *pinner);
void gpgpu_pinner_free(struct gpgpu_pinner *pinner);
int gpgpu_pin_all(struct gpgpu_pinned *pinned, u64 address, size_t bytes,
		  bool written, unsigned int max_nents);
void gpgpu_unpin(struct gpgpu_pinned *pinned);
unsigned long gpgpu_pinned_pages(const struct gpgpu_pinned *pinned);
struct gpgpu_region *gpgpu_region_pin(struct gpgpu_client *client, u64 address,
				      u64 length, bool read_only, u32 max_runs);
void gpgpu_region_put(struct gpgpu_region *region);

#endif /* VIRTIO_GPGPU_PRIV_H */
