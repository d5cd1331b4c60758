/* SPDX-License-Identifier: GPL-2.0 */
/* The content of virtqueues and configuration space: see spec/virtio-gpgpu.md. */
#ifndef VIRTIO_GPGPU_WIRE_H
#define VIRTIO_GPGPU_WIRE_H

#include <linux/build_bug.h>
#include <linux/types.h>

/* The largest ID that PCI allows, until the device has an assigned one. */
#define GPGPU_VIRTIO_ID		63
/* For QEMU, which aborts on an ID without a name. */
#define GPGPU_VIRTIO_ID_QEMU	6

#define GPGPU_VERSION		2

enum gpgpu_queue_index {
	GPGPU_QUEUE_CONTROL,
	GPGPU_QUEUE_COMMAND,
	GPGPU_QUEUE_EVENT,
	GPGPU_NUM_QUEUES,
};

struct gpgpu_wire_config {
	__le32 magic;
	__le32 version;
	__le64 api_family;
	__le32 max_clients;
	__le32 max_stream_bytes;
	__le32 max_answer_bytes;
	__le32 max_runs;
	__le64 max_data_bytes;
	__le64 instance;
	__le64 reserved[2];
};

enum gpgpu_control_kind {
	GPGPU_CONTROL_OPEN = 1,
	GPGPU_CONTROL_CLOSE = 2,
	GPGPU_CONTROL_REGISTER = 3,
	GPGPU_CONTROL_UNREGISTER = 4,
};

struct gpgpu_wire_control {
	__le32 kind;
	__le32 client;
};

struct gpgpu_wire_open {
	struct gpgpu_wire_control header;
	__le32 version;
	__le32 pid;
	__le64 api_family;
	u8 name[16];
};

struct gpgpu_wire_run {
	__le64 address;
	__le64 length;
};

struct gpgpu_wire_register {
	struct gpgpu_wire_control header;
	__le64 address;
	__le64 length;
	__le32 num_runs;
	__le32 reserved;
	struct gpgpu_wire_run runs[];
};

struct gpgpu_wire_unregister {
	struct gpgpu_wire_control header;
	__le32 region;
	__le32 reserved;
};

/* The answer to every control request; `value` is a client's or a region's number, or 0. */
struct gpgpu_wire_control_answer {
	__le32 status;
	__le32 value;
};

struct gpgpu_wire_command {
	__le32 client;
	__le32 thread;
	__le32 stream_bytes;
	__le32 answer_bytes;
	__le64 in_bytes;
	__le64 out_bytes;
	__le64 data_offset;
};

struct gpgpu_wire_command_answer {
	__le32 status;
	__le32 answer_bytes;
};

/* The header of a stream's answer. */
struct gpgpu_wire_stream_answer {
	__le32 result;
	__le32 reserved;
};

enum gpgpu_event_kind {
	GPGPU_EVENT_CLIENT_DIED = 1,
};

struct gpgpu_wire_event {
	__le32 kind;
	__le32 client;
	__le32 detail;
	__le32 reserved;
};

static_assert(sizeof(struct gpgpu_wire_config) == 64);
static_assert(sizeof(struct gpgpu_wire_open) == 40);
static_assert(sizeof(struct gpgpu_wire_register) == 32);
static_assert(sizeof(struct gpgpu_wire_command) == 40);
static_assert(sizeof(struct gpgpu_wire_event) == 16);

#endif /* VIRTIO_GPGPU_WIRE_H */
