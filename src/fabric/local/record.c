/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/local/record.h"

#define MAGIC 0x31534c50u /* "PLS1" */

void local_invitation_encode(const struct local_invitation *invitation, uint8_t buffer[LOCAL_INVITATION])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, LOCAL_INVITATION);
	pl_put_u32(&writer, LOCAL_VERSION);
	pl_put_bytes(&writer, invitation->name, sizeof(invitation->name));
	pl_put_u64(&writer, invitation->process_namespace);
	pl_put_u64(&writer, invitation->user_namespace);
}

int local_invitation_decode(const uint8_t *bytes, size_t length, struct local_invitation *invitation)
{
	struct pl_reader reader;
	uint32_t version;

	pl_reader_init(&reader, bytes, length);
	version = pl_get_u32(&reader);
	pl_get_bytes(&reader, invitation->name, sizeof(invitation->name));
	invitation->process_namespace = pl_get_u64(&reader);
	invitation->user_namespace = pl_get_u64(&reader);
	return reader.bad || version != LOCAL_VERSION ? -EPROTO : 0;
}

void local_record_encode(const struct local_record *record, uint8_t buffer[LOCAL_RECORD])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, LOCAL_RECORD);
	pl_put_u32(&writer, MAGIC);
	pl_put_u16(&writer, (uint16_t)record->type);
	pl_put_u16(&writer, record->fds);
	pl_put_u64(&writer, record->key);
	pl_put_u64(&writer, record->size);
	pl_put_u64(&writer, 0);
}

int local_record_decode(const uint8_t buffer[LOCAL_RECORD], struct local_record *record)
{
	struct pl_reader reader;
	uint32_t magic;
	uint16_t type;

	pl_reader_init(&reader, buffer, LOCAL_RECORD);
	magic = pl_get_u32(&reader);
	type = pl_get_u16(&reader);
	record->fds = pl_get_u16(&reader);
	record->key = pl_get_u64(&reader);
	record->size = pl_get_u64(&reader);
	record->type = (enum local_record_type)type;
	if (magic != MAGIC || type == 0 || type >= LOCAL_RECORD_END || pl_get_u64(&reader))
		return -EPROTO;
	if (record->fds > LOCAL_FDS_PER_KEY || (record->fds != 0) != (type == LOCAL_RECORD_FDS))
		return -EPROTO;
	/* File sizes are signed. */
	return record->size == 0 || record->size > INT64_MAX ? -EPROTO : 0;
}

int local_key_encode(const struct local_key *key, uint8_t buffer[PL_KEY_BLOB_MAX])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_KEY_BLOB_MAX);
	pl_put_u64(&writer, key->id);
	pl_put_u8(&writer, key->paths);
	pl_put_u32(&writer, key->gate);
	pl_put_u32(&writer, key->number);
	pl_put_u64(&writer, key->address);
	pl_put_u64(&writer, key->expires);
	pl_put_u32(&writer, key->ipc_handle_length);
	pl_put_bytes(&writer, key->ipc_handle, key->ipc_handle_length);
	return (int)(writer.at - writer.begin);
}

int local_key_decode(const uint8_t *bytes, size_t length, struct local_key *key)
{
	struct pl_reader reader;

	pl_reader_init(&reader, bytes, length);
	key->id = pl_get_u64(&reader);
	key->paths = pl_get_u8(&reader);
	key->gate = pl_get_u32(&reader);
	key->number = pl_get_u32(&reader);
	key->address = pl_get_u64(&reader);
	key->expires = pl_get_u64(&reader);
	key->ipc_handle_length = pl_get_u32(&reader);
	if (reader.bad || key->ipc_handle_length > sizeof(key->ipc_handle) ||
	    length != LOCAL_KEY + key->ipc_handle_length)
		return -EPROTO;
	pl_get_bytes(&reader, key->ipc_handle, key->ipc_handle_length);
	return 0;
}

size_t local_copy_request_encode(const struct local_copy_request *request, uint8_t buffer[PL_FRAME_SMALL_MAX])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_FRAME_SMALL_MAX);
	pl_put_u16(&writer, request->key_length);
	pl_put_u16(&writer, request->count);
	pl_put_bytes(&writer, request->key, request->key_length);
	for (unsigned i = 0; i < request->count; i++) {
		pl_put_u64(&writer, request->ranges[i].key);
		pl_put_u64(&writer, request->ranges[i].key_offset);
		pl_put_u64(&writer, request->ranges[i].offset);
		pl_put_u64(&writer, request->ranges[i].length);
	}
	return (size_t)(writer.at - writer.begin);
}

int local_copy_request_decode(const uint8_t *bytes, size_t length, struct local_copy_request *request)
{
	struct pl_reader reader;

	pl_reader_init(&reader, bytes, length);
	request->key_length = pl_get_u16(&reader);
	request->count = pl_get_u16(&reader);
	if (reader.bad || request->key_length > PL_KEY_BLOB_MAX || request->count == 0 ||
	    request->count > LOCAL_COPY_RANGES ||
	    length != LOCAL_COPY_HEADER + request->key_length + request->count * LOCAL_COPY_RANGE)
		return -EPROTO;
	pl_get_bytes(&reader, request->key, request->key_length);
	for (unsigned i = 0; i < request->count; i++) {
		request->ranges[i].key = pl_get_u64(&reader);
		request->ranges[i].key_offset = pl_get_u64(&reader);
		request->ranges[i].offset = pl_get_u64(&reader);
		request->ranges[i].length = pl_get_u64(&reader);
	}
	return 0;
}
