/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface of /dev/virtio-gpgpu.
 *
 * One open file is one client of the device: one CUDA process. It belongs to
 * the address space that opened it. Every ioctl() from another one, such as a
 * child after fork() or a program after execve(), fails with EPERM. The client
 * ends with that address space, when the process that opened the file exits or
 * executes another program, even if another process still holds the file. Open
 * it with O_CLOEXEC, and use MADV_DONTFORK on memory that you register.
 *
 * Every ioctl() returns 0 when the device answered. The answer is then in the
 * `status` field: one of GPGPU_STATUS_*. A failure of the exchange itself is an
 * errno:
 *
 *   EPERM     the caller is not the process that opened the file
 *   ENODEV    the device was removed or reset; open the file again
 *   ENOTCONN  GPGPU_IOC_OPEN has not succeeded yet
 *   EINVAL    an unknown flag, a field that must be zero, a size out of range
 *   E2BIG     more bytes, or more scattered ones, than one exchange can carry
 *   EFAULT    the caller's memory cannot be read, or written, as asked
 *   EIO       the device broke the rules of the specification
 *
 * All fields are in the byte order of the CPU, all addresses are those of the
 * calling process, all sizes are bytes. Layouts are the same for 32-bit and
 * 64-bit programs. poll() reports POLLERR | POLLHUP once the client's worker
 * is dead or the device is gone, and nothing else.
 */
#ifndef _UAPI_LINUX_VIRTIO_GPGPU_H
#define _UAPI_LINUX_VIRTIO_GPGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* struct gpgpu_info::magic: "VGPG" in memory order, little-endian. */
#define GPGPU_MAGIC			0x47504756u

/* The device's answer. */
#define GPGPU_STATUS_OK			0	/* executed */
#define GPGPU_STATUS_MALFORMED		1	/* a chain or stream of the wrong form */
#define GPGPU_STATUS_NO_CLIENT		2	/* no client has this number */
#define GPGPU_STATUS_CLIENT_DEAD	3	/* the client's worker is gone */
#define GPGPU_STATUS_LIMIT		4	/* more than struct gpgpu_info allows */
#define GPGPU_STATUS_NO_RESOURCES	5	/* the host is out of something */
#define GPGPU_STATUS_VERSION_MISMATCH	6	/* another version or family */
#define GPGPU_STATUS_BAD_ADDRESS	7	/* outside guest memory or registration */
#define GPGPU_STATUS_UNKNOWN_REQUEST	8	/* the device knows no such request */
#define GPGPU_STATUS_NO_GPU		9	/* the host has no usable GPU */

/**
 * struct gpgpu_info - limits of the device and of this driver
 * @magic: GPGPU_MAGIC
 * @version: version of the device's layouts
 * @api_family: the family of API tables that the device speaks
 * @max_clients: clients at a time, over all processes
 * @max_stream_bytes: largest gpgpu_submit.stream_bytes
 * @max_answer_bytes: largest gpgpu_submit.answer_bytes
 * @max_runs: most physically contiguous runs in one registration
 * @max_data_bytes: largest gpgpu_submit.in_bytes and .out_bytes
 * @max_block_bytes: a power of two: so much data, in one direction, fits into
 *	one GPGPU_IOC_SUBMIT however scattered its pages are; at most
 *	@max_data_bytes. More may fit, and fails with E2BIG if it does not.
 *	GPGPU_IOC_TRANSFER has no such limit.
 * @max_segments: scattered pieces that one GPGPU_IOC_SUBMIT can carry
 * @copy_bytes: data up to this size is copied rather than pinned, and may be
 *	sent with GPGPU_SUBMIT_NOWAIT
 */
struct gpgpu_info {
	__u32 magic;
	__u32 version;
	__u64 api_family;
	__u32 max_clients;
	__u32 max_stream_bytes;
	__u32 max_answer_bytes;
	__u32 max_runs;
	__u64 max_data_bytes;
	__u64 max_block_bytes;
	__u32 max_segments;
	__u32 copy_bytes;
};

/**
 * struct gpgpu_open - makes the file a client of the device
 * @api_family: in: the family of API tables that the caller speaks
 * @version: in: the version of the layouts that the caller speaks
 * @status: out: GPGPU_STATUS_*; anything but OK leaves the file as it was,
 *	and the call may be repeated
 * @client: out: the client's number, for messages only
 * @reserved: zero
 *
 * EISCONN: the file is a client already, or another thread is making it one.
 * Only a fatal signal ends the wait.
 */
struct gpgpu_open {
	__u64 api_family;
	__u32 version;
	__u32 status;
	__u32 client;
	__u32 reserved;
};

/*
 * Return as soon as the commands are queued. Allowed if nothing comes back
 * (answer_bytes and out_bytes are 0) and in_bytes is at most
 * gpgpu_info.copy_bytes: the data is copied before the call returns. Blocks
 * while the queue is full. Later answers report later errors.
 */
#define GPGPU_SUBMIT_NOWAIT	(1u << 0)

/**
 * struct gpgpu_submit - sends commands, with data, and waits for the answer
 * @stream_ptr: the commands
 * @answer_ptr: where the answer goes
 * @in_ptr: data for the device; only ever read, so it may be read-only
 * @out_ptr: where data from the device goes
 * @in_bytes: size of that data
 * @out_bytes: size of that data
 * @stream_bytes: size of the commands: 1 to gpgpu_info.max_stream_bytes
 * @answer_bytes: in: room for the answer; out: how much of it was written
 * @thread: any number that tells the client's threads apart
 * @flags: GPGPU_SUBMIT_*
 * @status: out: GPGPU_STATUS_*
 * @reserved: zero
 * @token: 0 for a new submission; see below
 *
 * Submissions of all threads are queued in one order, and one call is queued
 * after another that returned, or that was made with GPGPU_SUBMIT_NOWAIT and
 * returned, before it. @in_ptr and @out_ptr name memory that stays in place
 * while the device works: data larger than gpgpu_info.copy_bytes is pinned and
 * reached by the device directly. The answer, the data at @out_ptr and @status
 * are valid when the call has returned 0; data at @out_ptr only with
 * GPGPU_STATUS_OK.
 *
 * A signal that interrupts the wait stores a number in @token. The call is
 * then restarted by the kernel (SA_RESTART), or fails with EINTR and has to be
 * repeated with the same structure: either way it continues to wait for the
 * same commands, and nothing runs twice. A submission that was interrupted with
 * @token still 0 has not been queued. An interrupted submission keeps its memory
 * pinned until the device is done with it; that counts against RLIMIT_MEMLOCK.
 * If there is no room below the limit, the signal does not interrupt, unless the
 * process has no other call like that. If @token cannot be written, the signal
 * does not interrupt either.
 * ENOENT: @token is not that of an interrupted submission.
 */
struct gpgpu_submit {
	__u64 stream_ptr;
	__u64 answer_ptr;
	__u64 in_ptr;
	__u64 out_ptr;
	__u64 in_bytes;
	__u64 out_bytes;
	__u32 stream_bytes;
	__u32 answer_bytes;
	__u32 thread;
	__u32 flags;
	__u32 status;
	__u32 reserved;
	__u64 token;
};

/* Data comes from the device; without this, it goes there. */
#define GPGPU_TRANSFER_OUT	(1u << 0)

/* Largest gpgpu_transfer.stream_bytes and .answer_bytes. */
#define GPGPU_TRANSFER_MAX_BYTES	2048

/**
 * struct gpgpu_transfer - moves data of any length by one stream of commands
 * @stream_ptr: the commands
 * @answer_ptr: where the answer goes
 * @data_ptr: the data; memory that is only read may be read-only
 * @data_bytes: its size, whatever that is
 * @stream_bytes: size of the commands: 1 to GPGPU_TRANSFER_MAX_BYTES
 * @answer_bytes: in: room for the answer, at most GPGPU_TRANSFER_MAX_BYTES;
 *	out: how much of it was written
 * @thread: any number that tells the client's threads apart
 * @flags: GPGPU_TRANSFER_*
 * @status: out: GPGPU_STATUS_*
 * @reserved: zero
 * @token: 0 for a new transfer; as gpgpu_submit.token
 *
 * The data is cut into blocks, and the stream is sent with each of them: the
 * device adds the block's offset to the address that the stream names. Blocks
 * are pinned while earlier ones move, and several are under way at a time.
 *
 * The first block that fails, by @status or by the result at the start of its
 * answer, ends the transfer once those under way have ended; the answer is
 * that block's, else the last one's. Blocks of the data may then have been
 * moved or not. A fatal signal ends the call without waiting.
 */
struct gpgpu_transfer {
	__u64 stream_ptr;
	__u64 answer_ptr;
	__u64 data_ptr;
	__u64 data_bytes;
	__u32 stream_bytes;
	__u32 answer_bytes;
	__u32 thread;
	__u32 flags;
	__u32 status;
	__u32 reserved;
	__u64 token;
};

/*
 * The caller may only read the memory. The device is given pages that belong
 * to the caller alone (a private mapping is copied first); a shared mapping
 * that the caller may not write to cannot be registered (EFAULT).
 */
#define GPGPU_REGISTER_READ_ONLY	(1u << 0)

/**
 * struct gpgpu_register - pins memory and lets the client's worker reach it
 * @address: a multiple of the page size
 * @length: a multiple of the page size, not 0
 * @flags: GPGPU_REGISTER_*
 * @region: out: the registration's number, not 0
 * @status: out: GPGPU_STATUS_*; GPGPU_STATUS_LIMIT also if the memory is too
 *	fragmented. Anything but OK leaves nothing pinned.
 * @reserved: zero
 *
 * The memory stays pinned, and counts against RLIMIT_MEMLOCK of the process and
 * of its user (ENOMEM when over it, without CAP_IPC_LOCK), until
 * GPGPU_IOC_UNREGISTER or the end of the client. EFAULT: the caller may not
 * write to it, or it is a shared mapping of a file on storage. Unmapping it does
 * not unpin it. Only a fatal signal ends the wait.
 */
struct gpgpu_register {
	__u64 address;
	__u64 length;
	__u32 flags;
	__u32 region;
	__u32 status;
	__u32 reserved;
};

/**
 * struct gpgpu_unregister - ends a registration
 * @region: the registration's number
 * @status: out: GPGPU_STATUS_*; with anything but OK the memory stays pinned
 *	until the client ends
 *
 * ENOENT: the client has no such registration. Only a fatal signal ends the
 * wait.
 */
struct gpgpu_unregister {
	__u32 region;
	__u32 status;
};

#define GPGPU_IOC_BASE		0xE7

#define GPGPU_IOC_INFO		_IOR(GPGPU_IOC_BASE, 0x00, struct gpgpu_info)
#define GPGPU_IOC_OPEN		_IOWR(GPGPU_IOC_BASE, 0x01, struct gpgpu_open)
#define GPGPU_IOC_SUBMIT	_IOWR(GPGPU_IOC_BASE, 0x02, struct gpgpu_submit)
#define GPGPU_IOC_REGISTER	_IOWR(GPGPU_IOC_BASE, 0x03, struct gpgpu_register)
#define GPGPU_IOC_UNREGISTER	_IOWR(GPGPU_IOC_BASE, 0x04, struct gpgpu_unregister)
#define GPGPU_IOC_TRANSFER	_IOWR(GPGPU_IOC_BASE, 0x05, struct gpgpu_transfer)

#endif /* _UAPI_LINUX_VIRTIO_GPGPU_H */
