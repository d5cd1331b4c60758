// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers: data of any length, moved by chains of one stream.
 *
 * The data is cut into blocks. A block is pinned and passed to the device while
 * those before it are moved; when the oldest one completes, its pages are
 * released and the next block is pinned. So the number of pinned pages does not
 * depend on the length.
 */
#include <linux/minmax.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "virtio_gpgpu_priv.h"

/* The maximum number of blocks of one transfer in flight. */
#define GPGPU_MAX_BLOCKS	16u

/*
 * The first block is short, so that the device has work while the second one is
 * pinned.
 */
#define GPGPU_FIRST_BLOCK	SZ_512K

struct gpgpu_transfer_state {
	struct gpgpu_client *client;	/* its file outlives this */
	struct gpgpu_transfer arg;
	struct gpgpu_pinner pinner;
	u64 sent;			/* bytes that are, or were, in a block */
	bool all_sent;
	bool scattered;			/* a block ended early: too many runs */

	/* A ring of the blocks in flight, oldest first, beginning at `first`. */
	struct gpgpu_request *blocks[GPGPU_MAX_BLOCKS];
	unsigned int first;
	unsigned int count;

	int send_err;			/* no more blocks: one could not be sent */
	bool failed;			/* no more blocks: one has failed */
	int err;			/* the result, with the fields below */
	u32 status;
	u32 answer_bytes;
	u8 stream[GPGPU_TRANSFER_MAX_BYTES];
	u8 answer[GPGPU_TRANSFER_MAX_BYTES];
};

/* Abandons blocks in flight: the queue keeps those that the device still has. */
void gpgpu_transfer_free(struct gpgpu_transfer_state *transfer)
{
	struct gpgpu_request *request;

	for (; transfer->count; transfer->count--) {
		request = transfer->blocks[transfer->first];
		transfer->first = (transfer->first + 1) % GPGPU_MAX_BLOCKS;
		gpgpu_request_give_up(request);
	}
	gpgpu_pinner_free(&transfer->pinner);
	kfree(transfer);
}

/* The same for a transfer that was paused and is not resumed. */
void gpgpu_transfer_abandon(struct gpgpu_transfer_state *transfer)
{
	gpgpu_interrupt_over(transfer->client);
	gpgpu_transfer_free(transfer);
}

static struct gpgpu_transfer_state *
gpgpu_transfer_new(struct gpgpu_client *client, const struct gpgpu_transfer *arg)
{
	const struct gpgpu_info *info = &client->device->info;
	struct gpgpu_transfer_state *transfer;
	int err;

	if (arg->flags & ~GPGPU_TRANSFER_OUT || arg->reserved ||
	    !arg->stream_bytes)
		return ERR_PTR(-EINVAL);
	if (arg->stream_bytes > min_t(u32, info->max_stream_bytes,
				      GPGPU_TRANSFER_MAX_BYTES) ||
	    arg->answer_bytes > min_t(u32, info->max_answer_bytes,
				      GPGPU_TRANSFER_MAX_BYTES) ||
	    (arg->data_bytes && info->max_data_bytes < PAGE_SIZE))
		return ERR_PTR(-E2BIG);

	transfer = kzalloc(sizeof(*transfer), GFP_KERNEL_ACCOUNT);
	if (!transfer)
		return ERR_PTR(-ENOMEM);
	transfer->client = client;
	transfer->arg = *arg;
	err = -EFAULT;
	if (copy_from_user(transfer->stream, u64_to_user_ptr(arg->stream_ptr),
			   arg->stream_bytes))
		goto free;
	/* Two descriptors are needed for the buffers of stream and answer. */
	err = gpgpu_pinner_init(&transfer->pinner, arg->data_ptr,
				arg->data_bytes,
				arg->flags & GPGPU_TRANSFER_OUT,
				info->max_segments - 2);
	if (err)
		goto free;
	return transfer;

free:
	gpgpu_transfer_free(transfer);
	return ERR_PTR(err);
}

/* The length of the next block. All except the last end at the end of a page. */
static size_t gpgpu_transfer_block(const struct gpgpu_transfer_state *transfer)
{
	const struct gpgpu_pinner *pinner = &transfer->pinner;
	u64 most = transfer->client->device->info.max_data_bytes;
	unsigned long left = pinner->end - pinner->next, stop;

	most = min(most, max_t(u64, transfer->arg.data_bytes / 4, SZ_1M));
	if (!transfer->sent && transfer->arg.data_bytes > SZ_1M)
		most = min_t(u64, most, GPGPU_FIRST_BLOCK);
	if (left <= most)
		return left;
	stop = round_down(pinner->next + most, PAGE_SIZE);
	/*
	 * Huge pages are not cut if that makes the block only a little shorter.
	 * If a block has no room for all its runs, there are no huge pages.
	 */
	if (most >= SZ_4M && !transfer->scattered)
		stop = round_down(stop, SZ_2M);
	return stop - pinner->next;
}

/* Passes the next block to the device. */
static int gpgpu_transfer_send(struct gpgpu_transfer_state *transfer)
{
	struct gpgpu_client *client = transfer->client;
	struct gpgpu_pinner *pinner = &transfer->pinner;
	const struct gpgpu_transfer *arg = &transfer->arg;
	size_t copy_bytes = client->device->info.copy_bytes;
	size_t bytes = gpgpu_transfer_block(transfer);
	struct gpgpu_pinned pinned = {};
	struct gpgpu_command command = {
		.thread = arg->thread,
		.stream_bytes = arg->stream_bytes,
		.answer_bytes = arg->answer_bytes,
		.data_offset = transfer->sent,
	};
	struct gpgpu_request *request;
	unsigned long address = pinner->next;
	void *stream;
	int err;

	if (bytes > copy_bytes || pinner->count) {
		err = gpgpu_pin_piece(pinner, bytes, &pinned);
		if (err && err != -EFAULT)
			return err;
	}
	if (pinned.sgl) {
		transfer->scattered |= pinned.bytes < bytes && pinner->count;
		bytes = pinned.bytes;
	} else {
		/* The block is short, or has no pages to pin, so it is copied. */
		copy_bytes = max_t(size_t, round_down(copy_bytes, PAGE_SIZE),
				   PAGE_SIZE);
		if (bytes > copy_bytes)
			bytes = copy_bytes - offset_in_page(address);
		pinner->next += bytes;
	}
	if (arg->flags & GPGPU_TRANSFER_OUT) {
		command.out_ptr = address;
		command.out_bytes = bytes;
		command.out = pinned;
	} else {
		command.in_ptr = address;
		command.in_bytes = bytes;
		command.in = pinned;
	}
	request = gpgpu_command_new(client, &command, &stream);
	if (IS_ERR(request))
		return PTR_ERR(request);
	memcpy(stream, transfer->stream, arg->stream_bytes);
	err = gpgpu_request_submit(request, false);
	if (err) {
		gpgpu_request_put(request);
		return err;
	}
	transfer->blocks[(transfer->first + transfer->count++) %
			 GPGPU_MAX_BLOCKS] = request;
	transfer->sent += bytes;
	transfer->all_sent = pinner->next == pinner->end;
	return 0;
}

/* Records the result of the oldest block, unless an earlier one has failed. */
static void gpgpu_transfer_note(struct gpgpu_transfer_state *transfer,
				struct gpgpu_request *request)
{
	struct gpgpu_wire_command_answer *header = request->writable.data;
	struct gpgpu_wire_stream_answer *answer = (void *)(header + 1);
	u32 status, bytes;

	if (transfer->failed)
		return;
	transfer->err = gpgpu_command_answer(request, &status, &bytes);
	if (transfer->err) {
		transfer->failed = true;
		return;
	}
	transfer->status = status;
	transfer->answer_bytes = bytes;
	memcpy(transfer->answer, answer, bytes);
	transfer->failed = status != GPGPU_STATUS_OK ||
			   (bytes >= sizeof(*answer) &&
			    le32_to_cpu(answer->result));
}

/*
 * Sends blocks and waits for them, until all have ended. Returns -ERESTARTSYS
 * if a signal came first: a fatal one, or any if `interruptible`.
 */
static int gpgpu_transfer_run(struct gpgpu_transfer_state *transfer,
			      bool interruptible)
{
	unsigned int most = clamp(READ_ONCE(gpgpu_blocks), 1u, GPGPU_MAX_BLOCKS);
	struct gpgpu_request *request, *ended = NULL;
	int err;

	for (;;) {
		while (!transfer->send_err && !transfer->failed &&
		       !transfer->all_sent && transfer->count < most) {
			transfer->send_err = gpgpu_transfer_send(transfer);
			cond_resched();
		}
		/* Its pages are released while the device has the next block. */
		if (ended)
			gpgpu_request_put(ended);
		ended = NULL;
		if (!transfer->count)
			break;

		request = transfer->blocks[transfer->first];
		err = gpgpu_request_wait(request, interruptible);
		if (err)
			return err;
		gpgpu_transfer_note(transfer, request);
		transfer->first = (transfer->first + 1) % GPGPU_MAX_BLOCKS;
		transfer->count--;
		ended = request;
	}
	/* A failed block precedes the one that could not be sent. */
	if (!transfer->failed)
		transfer->err = transfer->send_err;
	return 0;
}

/* As gpgpu_submit_interrupt(). Pages that are in no block yet are unpinned. */
static int gpgpu_transfer_pause(struct gpgpu_transfer_state *transfer,
				struct gpgpu_transfer __user *user)
{
	struct gpgpu_request *blocks[GPGPU_MAX_BLOCKS];
	struct gpgpu_client *client = transfer->client;
	unsigned int i;
	u32 token;

	gpgpu_pinner_let_go(&transfer->pinner);
	for (i = 0; i < transfer->count; i++)
		blocks[i] = transfer->blocks[(transfer->first + i) %
					     GPGPU_MAX_BLOCKS];
	if (!gpgpu_interrupt(client, blocks, transfer->count))
		return 0;
	if (xa_alloc_cyclic(&client->paused, &token, transfer, xa_limit_32b,
			    &client->next_paused, GFP_KERNEL_ACCOUNT) < 0)
		goto over;
	if (!put_user(token, &user->token))
		return -ERESTARTSYS;
	if (!xa_erase(&client->paused, token))
		return -EFAULT;
over:
	gpgpu_interrupt_over(client);
	return 0;
}

long gpgpu_ioctl_transfer(struct gpgpu_client *client, void __user *argp)
{
	struct gpgpu_transfer __user *user = argp;
	struct gpgpu_transfer_state *transfer;
	struct gpgpu_transfer arg;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (!gpgpu_client_is_open(client))
		return -ENOTCONN;

	if (arg.token) {
		transfer = arg.token > U32_MAX ? NULL :
			   xa_erase(&client->paused, arg.token);
		if (!transfer)
			return -ENOENT;
		gpgpu_interrupt_over(client);
	} else {
		transfer = gpgpu_transfer_new(client, &arg);
		if (IS_ERR(transfer))
			return PTR_ERR(transfer);
	}

	err = gpgpu_transfer_run(transfer, true);
	if (err && !fatal_signal_pending(current)) {
		err = gpgpu_transfer_pause(transfer, user);
		if (err)
			return err;	/* no longer ours */
		err = gpgpu_transfer_run(transfer, false);
	}
	if (!err)
		err = transfer->err;
	if (!err &&
	    (copy_to_user(u64_to_user_ptr(transfer->arg.answer_ptr),
			  transfer->answer, transfer->answer_bytes) ||
	     put_user(transfer->status, &user->status) ||
	     put_user(transfer->answer_bytes, &user->answer_bytes) ||
	     put_user(0, &user->token)))
		err = -EFAULT;
	gpgpu_transfer_free(transfer);
	return err;
}
