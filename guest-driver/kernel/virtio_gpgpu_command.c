// SPDX-License-Identifier: GPL-2.0
/* Chains on the command queue, and submissions of one chain each. */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "virtio_gpgpu_priv.h"

/*
 * Builds a chain, and takes over the pinned pages, also on failure. The caller
 * fills in the stream.
 */
struct gpgpu_request *gpgpu_command_new(struct gpgpu_client *client,
					struct gpgpu_command *command,
					void **stream)
{
	size_t copy_in = command->in.sgl ? 0 : command->in_bytes;
	size_t copy_out = command->out.sgl ? 0 : command->out_bytes;
	struct gpgpu_wire_command *header;
	struct gpgpu_request *request;
	int err;

	request = gpgpu_request_new(
		client, GPGPU_QUEUE_COMMAND,
		sizeof(*header) + command->stream_bytes + copy_in,
		sizeof(struct gpgpu_wire_command_answer) +
			command->answer_bytes + copy_out);
	if (IS_ERR(request)) {
		gpgpu_unpin(&command->in);
		gpgpu_unpin(&command->out);
		return request;
	}
	request->pinned_in = command->in;
	request->pinned_out = command->out;
	request->answer_bytes = command->answer_bytes;
	request->out_ptr = u64_to_user_ptr(command->out_ptr);
	request->out_copied = copy_out;

	request->segments += command->in.nents + command->out.nents;
	err = -E2BIG;
	if (request->segments > request->queue->size)
		goto put;
	request->num_readable = 0;
	request->sgs[request->num_readable++] = request->readable.sgl;
	if (command->in.sgl)
		request->sgs[request->num_readable++] = command->in.sgl;
	request->num_writable = 1;
	request->sgs[request->num_readable] = request->writable.sgl;
	if (command->out.sgl)
		request->sgs[request->num_readable + request->num_writable++] =
			command->out.sgl;

	header = request->readable.data;
	header->client = cpu_to_le32(client->id);
	header->thread = cpu_to_le32(command->thread);
	header->stream_bytes = cpu_to_le32(command->stream_bytes);
	header->answer_bytes = cpu_to_le32(command->answer_bytes);
	header->in_bytes = cpu_to_le64(command->in_bytes);
	header->out_bytes = cpu_to_le64(command->out_bytes);
	header->data_offset = cpu_to_le64(command->data_offset);
	*stream = header + 1;
	err = -EFAULT;
	if (copy_from_user(*stream + command->stream_bytes,
			   u64_to_user_ptr(command->in_ptr), copy_in))
		goto put;
	return request;

put:
	gpgpu_request_put(request);
	return ERR_PTR(err);
}

/*
 * Reads the answer of a completed chain, and copies its data to the caller. The
 * answer's bytes follow the header of the request's writable part.
 */
int gpgpu_command_answer(struct gpgpu_request *request, u32 *status, u32 *bytes)
{
	struct gpgpu_wire_command_answer *header = request->writable.data;
	size_t out_start = sizeof(*header) + request->answer_bytes;
	size_t out = 0;

	if (request->error)
		return request->error;
	if (request->used < sizeof(*header))
		return -EIO;
	*status = le32_to_cpu(header->status);
	*bytes = le32_to_cpu(header->answer_bytes);
	if (*bytes > request->answer_bytes ||
	    *bytes > request->used - sizeof(*header))
		return -EIO;
	/* A failed call wrote no data: the caller's memory stays unchanged. */
	if (*status == GPGPU_STATUS_OK && request->used > out_start)
		out = min(request->used - out_start, request->out_copied);
	if (copy_to_user(request->out_ptr, (void *)header + out_start, out))
		return -EFAULT;
	return 0;
}

static struct gpgpu_request *gpgpu_submit_new(struct gpgpu_client *client,
					      const struct gpgpu_submit *arg)
{
	const struct gpgpu_info *info = &client->device->info;
	unsigned int max_nents = client->device->queues[GPGPU_QUEUE_COMMAND].size;
	struct gpgpu_command command = {
		.thread = arg->thread,
		.stream_bytes = arg->stream_bytes,
		.answer_bytes = arg->answer_bytes,
		.in_ptr = arg->in_ptr,
		.out_ptr = arg->out_ptr,
		.in_bytes = arg->in_bytes,
		.out_bytes = arg->out_bytes,
	};
	bool nowait = arg->flags & GPGPU_SUBMIT_NOWAIT;
	struct gpgpu_request *request;
	void *stream;
	int err;

	if (arg->flags & ~GPGPU_SUBMIT_NOWAIT || arg->reserved ||
	    !arg->stream_bytes ||
	    (nowait && (arg->answer_bytes || arg->out_bytes)))
		return ERR_PTR(-EINVAL);
	if (arg->stream_bytes > info->max_stream_bytes ||
	    arg->answer_bytes > info->max_answer_bytes ||
	    arg->in_bytes > info->max_data_bytes ||
	    arg->out_bytes > info->max_data_bytes ||
	    (nowait && arg->in_bytes > info->copy_bytes))
		return ERR_PTR(-E2BIG);

	/* Memory without pages to pin (a mapping of a device's memory) is copied. */
	if (arg->in_bytes > info->copy_bytes) {
		err = gpgpu_pin_all(&command.in, arg->in_ptr, arg->in_bytes,
				    false, max_nents);
		if (err && err != -EFAULT)
			return ERR_PTR(err);
	}
	if (arg->out_bytes > info->copy_bytes) {
		err = gpgpu_pin_all(&command.out, arg->out_ptr, arg->out_bytes,
				    true, max_nents);
		if (err && err != -EFAULT) {
			gpgpu_unpin(&command.in);
			return ERR_PTR(err);
		}
	}

	request = gpgpu_command_new(client, &command, &stream);
	if (IS_ERR(request))
		return request;
	request->nowait = nowait;
	request->answer_ptr = u64_to_user_ptr(arg->answer_ptr);
	if (copy_from_user(stream, u64_to_user_ptr(arg->stream_ptr),
			   arg->stream_bytes)) {
		gpgpu_request_put(request);
		return ERR_PTR(-EFAULT);
	}
	return request;
}

/*
 * Leaves a submission that the device has, because of a signal, so that the
 * caller can resume it. Returns 0 if the caller has to wait for it instead.
 */
static int gpgpu_submit_interrupt(struct gpgpu_client *client,
				  struct gpgpu_request *request,
				  struct gpgpu_submit __user *user)
{
	u32 token;

	if (!gpgpu_interrupt(client, &request, 1))
		return 0;
	if (xa_alloc_cyclic(&client->interrupted, &token, request, xa_limit_32b,
			    &client->next_token, GFP_KERNEL_ACCOUNT) < 0)
		goto over;
	if (!put_user(token, &user->token))
		return -ERESTARTSYS;
	/* Another thread may have guessed the token and resumed the call. */
	if (!xa_erase(&client->interrupted, token))
		return -EFAULT;
over:
	gpgpu_interrupt_over(client);
	return 0;
}

static int gpgpu_submit_answer(struct gpgpu_request *request,
			       struct gpgpu_submit __user *user)
{
	struct gpgpu_wire_command_answer *header = request->writable.data;
	u32 status, bytes;
	int err;

	err = gpgpu_command_answer(request, &status, &bytes);
	if (err)
		return err;
	if (copy_to_user(request->answer_ptr, header + 1, bytes) ||
	    put_user(status, &user->status) ||
	    put_user(bytes, &user->answer_bytes) || put_user(0, &user->token))
		return -EFAULT;
	return 0;
}

long gpgpu_ioctl_submit(struct gpgpu_client *client, void __user *argp)
{
	struct gpgpu_submit __user *user = argp;
	struct gpgpu_request *request;
	struct gpgpu_submit arg;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (!gpgpu_client_is_open(client))
		return -ENOTCONN;

	if (arg.token) {
		request = arg.token > U32_MAX ? NULL :
			  xa_erase(&client->interrupted, arg.token);
		if (!request)
			return -ENOENT;
		gpgpu_interrupt_over(client);
	} else {
		request = gpgpu_submit_new(client, &arg);
		if (IS_ERR(request))
			return PTR_ERR(request);
		err = gpgpu_request_submit(request, !request->nowait);
		if (err)
			goto put;
	}

	err = gpgpu_request_wait(request, true);
	if (err && gpgpu_request_cancel(request))
		goto put;
	if (request->nowait) {
		/* It is queued in spite of a signal, unless it failed immediately. */
		err = READ_ONCE(request->error);
		if (!err && (put_user(GPGPU_STATUS_OK, &user->status) ||
			     put_user(0, &user->answer_bytes)))
			err = -EFAULT;
		goto put;
	}
	if (err && !fatal_signal_pending(current)) {
		err = gpgpu_submit_interrupt(client, request, user);
		if (err)
			return err;	/* no longer ours */
		err = gpgpu_request_wait(request, false);
	}
	if (err) {
		gpgpu_request_give_up(request);
		return err;
	}
	err = gpgpu_submit_answer(request, user);
put:
	gpgpu_request_put(request);
	return err;
}
