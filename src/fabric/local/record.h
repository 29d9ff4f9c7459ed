/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the local fabric, as bytes. Decoders accept any input, and return -EPROTO. */
#ifndef PL_LOCAL_RECORD_H
#define PL_LOCAL_RECORD_H

#include "memory/ops.h"

#include "wire/wire.h"

#define LOCAL_NAME 16
#define LOCAL_VERSION 5
#define LOCAL_INVITATION 36 /* u32 version, name[16], u64 process namespace, u64 user namespace */
#define LOCAL_RECORD 32     /* u32 magic, u16 type, u16 fds, u64 key, u64 size, u64 zero */
/* u64 id, u8 paths, u32 gate, u32 number, u64 address, u64 expires, u32 bytes of the IPC handle that follows */
#define LOCAL_KEY 37

/* Name of the listener, and identity of the host: inode numbers of namespaces. */
struct local_invitation {
	uint8_t name[LOCAL_NAME];
	uint64_t process_namespace, user_namespace;
};

void local_invitation_encode(const struct local_invitation *invitation, uint8_t buffer[LOCAL_INVITATION]);
int local_invitation_decode(const uint8_t *bytes, size_t length, struct local_invitation *invitation);

enum local_record_type {
	LOCAL_RECORD_GATES = 1, /* first record, sent once: descriptor of the sender's gates */
	LOCAL_RECORD_MEMORY,    /* descriptor of a key's region */
	LOCAL_RECORD_REVOKED,   /* key whose gate is shut: its mapping or device memory can be closed */
	LOCAL_RECORD_FDS,       /* descriptors of a key's device memory: consecutive ranges of equal size */
	LOCAL_RECORD_END,
};

/* Most descriptors of a key, and of a PARTS record. Any other record carries one descriptor. */
#define LOCAL_FDS_PER_KEY 512
#define LOCAL_FDS_PER_RECORD 64

struct local_record {
	enum local_record_type type;
	uint16_t fds; /* of the key, over all its records; 0 in records of other types */
	uint64_t key;
	uint64_t size; /* of each range */
};

void local_record_encode(const struct local_record *record, uint8_t buffer[LOCAL_RECORD]);
int local_record_decode(const uint8_t buffer[LOCAL_RECORD], struct local_record *record);

/* Bits of local_key.paths; unknown ones are ignored. */
#define LOCAL_PATH_STAGED 1u  /* sockets do not reach the memory; the tcp fabric's keys use the same bit */
#define LOCAL_PATH_MAPPED 2u  /* a record with the memory's descriptor was sent before the key */
#define LOCAL_PATH_PROCESS 4u /* the address is valid for process_vm_readv(2) */
#define LOCAL_PATH_DEVICE 8u  /* the IPC handle is of device memory */

struct local_key {
	uint64_t id; /* keys of all fabrics begin with it */
	uint8_t paths;
	uint32_t gate, number; /* number 0: none, only the sockets may be used */
	uint64_t address;      /* of the first byte, at its owner */
	uint64_t expires;      /* CLOCK_REALTIME; 0: never */
	uint32_t ipc_handle_length;
	uint8_t ipc_handle[PL_IPC_HANDLE_MAX];
};

/* Most ranges of one COPY. */
#define LOCAL_COPY_RANGES 240u
/* u16 bytes of the key, u16 ranges, the key, the ranges: each four u64 */
#define LOCAL_COPY_HEADER 4u
#define LOCAL_COPY_RANGE 32u
_Static_assert(LOCAL_COPY_HEADER + PL_KEY_BLOB_MAX + LOCAL_COPY_RANGES * LOCAL_COPY_RANGE <= PL_FRAME_SMALL_MAX,
	       "fits into a frame");

/* Bytes that the owner of device memory is asked to copy. */
struct local_copy_range {
	uint64_t key, key_offset; /* of the receiver's device memory */
	uint64_t offset;          /* in the sender's region */
	uint64_t length;
};

/* Payload of a COPY. */
struct local_copy_request {
	uint16_t key_length; /* 0: an earlier COPY had the key of the sender's region */
	uint8_t key[PL_KEY_BLOB_MAX];
	uint16_t count; /* at least 1 */
	struct local_copy_range ranges[LOCAL_COPY_RANGES];
};

/* Returns the bytes written. */
size_t local_copy_request_encode(const struct local_copy_request *request, uint8_t buffer[PL_FRAME_SMALL_MAX]);
int local_copy_request_decode(const uint8_t *bytes, size_t length, struct local_copy_request *request);

int local_key_encode(const struct local_key *key, uint8_t buffer[PL_KEY_BLOB_MAX]);
int local_key_decode(const uint8_t *bytes, size_t length, struct local_key *key);

#endif
