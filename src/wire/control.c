/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bodies, field by field (a string is a u16 length and its bytes):
 *   HELLO     u16 version_min, u16 version_max, boot_id[16], context_id[16], u64 capabilities, u32 lanes,
 *             u32 eager_max, u32 window, u32 flags, string software, u16 count, count times: string name,
 *             u16 length, blob[length]; then extensions to the end: u16 type, u16 length, bytes
 *   REJECT    u32 code, string id, string message
 *   IMPORT    u64 request, u64 grant, secret[16]
 *   IMPORTED  u64 request, u32 status, u64 length, u32 rights, u16 key length, key
 *   RELEASE   u16 key length, key
 *   LANES     u32 count
 *   BYE       nothing
 *   MESSAGE   u64 tag, payload to the end
 *   STREAM    payload to the end
 *   RAIL      u8 step, u8 index, u16 generation, u8 count, u8 ports[8], u16 renewals, u32 queue pair, u32 psn, u16 lid,
 *             gid[16], u8 mtu, u8 reads, u8 global, u8 traffic class, u8 service level
 */
#include "wire/wire.h"

#define LANES_MAX 16

/* Types of extensions of a HELLO. */
enum { EXTENSION_PROGRAM = 1 };

/* Requirements of a decoded message beyond its form; encoders must meet them too. */

static bool is_string(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static bool is_name(const char *name)
{
	size_t length = strnlen(name, PL_FABRIC_NAME_MAX);

	if (length == 0 || length == PL_FABRIC_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return true;
}

static int check_hello(const struct pl_hello *hello)
{
	if (hello->version_min > hello->version_max || hello->flags > PL_HELLO_CLEAR_DATA ||
	    !is_string(hello->software, sizeof(hello->software)) ||
	    !is_string(hello->program, sizeof(hello->program)) || hello->fabric_count < 1 ||
	    hello->fabric_count > PL_FABRICS_MAX)
		return -EPROTO;
	for (unsigned i = 0; i < hello->fabric_count; i++) {
		if (!is_name(hello->fabrics[i].name))
			return -EPROTO;
		if (hello->fabrics[i].blob_length > PL_FABRIC_BLOB_MAX)
			return -EMSGSIZE;
	}
	return 0;
}

static int check_imported(const struct pl_imported *imported)
{
	if (imported->key_length > PL_KEY_BLOB_MAX)
		return -EMSGSIZE;
	if (imported->status < 0 || (imported->rights & ~PL_ACCESS_ALL))
		return -EPROTO;
	if (imported->status != PL_WIRE_OK && (imported->length || imported->rights || imported->key_length))
		return -EPROTO;
	return 0;
}

/* True if a part that describes a queue pair is not zero. */
static bool has_queue_pair(const struct pl_rail_message *rail)
{
	static const uint8_t none[sizeof(rail->gid)];

	return rail->renewals || rail->qp_number || rail->psn || rail->lid || memcmp(rail->gid, none, sizeof(none)) ||
	       rail->mtu || rail->reads || rail->global || rail->traffic_class || rail->service_level ||
	       rail->ece_vendor || rail->ece_options;
}

/* Checks the parts of a queue pair, and that a DOWN has none. */
static int check_rail(const struct pl_rail_message *rail)
{
	static const uint8_t none[PL_RAILS_MAX];
	bool connect = rail->step == PL_RAIL_CONNECT;

	if (rail->step < PL_RAIL_CONNECT || rail->step > PL_RAIL_DOWN || rail->index >= PL_RAILS_MAX)
		return -EPROTO;
	if (connect ? rail->count > PL_RAILS_MAX || rail->index >= rail->count
		    : rail->count || memcmp(rail->ports, none, sizeof(none)))
		return -EPROTO;
	if (rail->step == PL_RAIL_DOWN)
		return has_queue_pair(rail) ? -EPROTO : 0;
	if (!rail->qp_number || rail->qp_number >> 24 || rail->psn >> 24 || rail->mtu < 1 || rail->mtu > 5 ||
	    !rail->reads || rail->service_level > 15 || (rail->ece_options && !rail->ece_vendor))
		return -EPROTO;
	return 0;
}

static int check(const struct pl_control *message)
{
	const struct pl_reject *reject = &message->reject;

	switch (message->type) {
	case PL_CONTROL_HELLO:
		return check_hello(&message->hello);
	case PL_CONTROL_REJECT:
		return reject->code > 0 && is_string(reject->id, sizeof(reject->id)) &&
				       is_string(reject->message, sizeof(reject->message))
			       ? 0
			       : -EPROTO;
	case PL_CONTROL_IMPORTED:
		return check_imported(&message->imported);
	case PL_CONTROL_RELEASE:
		return message->release.key_length > PL_KEY_BLOB_MAX ? -EMSGSIZE : 0;
	case PL_CONTROL_LANES:
		return message->lanes >= 1 && message->lanes <= LANES_MAX ? 0 : -EPROTO;
	case PL_CONTROL_MESSAGE:
	case PL_CONTROL_STREAM:
		return message->message.length <= PL_FRAME_SMALL_MAX ? 0 : -EMSGSIZE;
	case PL_CONTROL_RAIL:
		return check_rail(&message->rail);
	case PL_CONTROL_RAILS:
		return (message->rails.acceptor | message->rails.initiator) >> PL_PORTS_MAX ? -EPROTO : 0;
	case PL_CONTROL_IMPORT:
	case PL_CONTROL_BYE:
		return 0;
	default:
		return -ENOMSG;
	}
}

/* -- decoding ----------------------------------------------------------------------------------- */

static void get_printable(struct pl_reader *reader, char *to, size_t size)
{
	pl_get_string(reader, to, size);
	for (; *to; to++)
		if (*to < ' ' || *to > '~')
			*to = '?';
}

/* A length over `size` is stored, so that check() refuses it, but nothing is copied. */
static uint16_t get_blob(struct pl_reader *reader, uint8_t *to, size_t size)
{
	uint16_t length = pl_get_u16(reader);

	if (length <= size)
		pl_get_bytes(reader, to, length);
	return length;
}

/* Reads extensions, and skips those that this release does not know. */
static void get_extensions(struct pl_reader *reader, struct pl_hello *hello)
{
	while (!reader->bad && reader->at != reader->end) {
		uint16_t type = pl_get_u16(reader);
		struct pl_reader string = *reader;
		size_t length = pl_get_u16(reader);

		if (type == EXTENSION_PROGRAM)
			get_printable(&string, hello->program, sizeof(hello->program));
		if (length > (size_t)(reader->end - reader->at) || (type == EXTENSION_PROGRAM && string.bad))
			reader->bad = true;
		else
			reader->at += length;
	}
}

static void get_hello(struct pl_reader *reader, struct pl_hello *hello)
{
	hello->version_min = pl_get_u16(reader);
	hello->version_max = pl_get_u16(reader);
	pl_get_bytes(reader, hello->boot_id, sizeof(hello->boot_id));
	pl_get_bytes(reader, hello->context_id, sizeof(hello->context_id));
	hello->capabilities = pl_get_u64(reader);
	hello->lanes = pl_get_u32(reader);
	hello->eager_max = pl_get_u32(reader);
	hello->window = pl_get_u32(reader);
	hello->flags = pl_get_u32(reader);
	get_printable(reader, hello->software, sizeof(hello->software));
	hello->fabric_count = pl_get_u16(reader);
	for (unsigned i = 0; i < PL_MIN(hello->fabric_count, PL_FABRICS_MAX); i++) {
		struct pl_fabric_advert *offer = &hello->fabrics[i];

		pl_get_string(reader, offer->name, sizeof(offer->name));
		offer->blob_length = get_blob(reader, offer->blob, sizeof(offer->blob));
		if (offer->blob_length > sizeof(offer->blob))
			return; /* check() refuses the message */
	}
	if (hello->fabric_count <= PL_FABRICS_MAX)
		get_extensions(reader, hello);
}

static void get_import(struct pl_reader *reader, struct pl_import *import)
{
	import->request = pl_get_u64(reader);
	import->grant = pl_get_u64(reader);
	pl_get_bytes(reader, import->secret, sizeof(import->secret));
}

static void get_imported(struct pl_reader *reader, struct pl_imported *imported)
{
	imported->request = pl_get_u64(reader);
	imported->status = (int32_t)pl_get_u32(reader);
	imported->length = pl_get_u64(reader);
	imported->rights = pl_get_u32(reader);
	imported->key_length = get_blob(reader, imported->key, sizeof(imported->key));
}

static void get_rail(struct pl_reader *reader, struct pl_rail_message *rail)
{
	uint8_t global;

	rail->step = (enum pl_rail_step)pl_get_u8(reader);
	rail->index = pl_get_u8(reader);
	rail->generation = pl_get_u16(reader);
	rail->count = pl_get_u8(reader);
	pl_get_bytes(reader, rail->ports, sizeof(rail->ports));
	rail->renewals = pl_get_u16(reader);
	rail->qp_number = pl_get_u32(reader);
	rail->psn = pl_get_u32(reader);
	rail->lid = pl_get_u16(reader);
	pl_get_bytes(reader, rail->gid, sizeof(rail->gid));
	rail->mtu = pl_get_u8(reader);
	rail->reads = pl_get_u8(reader);
	global = pl_get_u8(reader);
	rail->global = global;
	reader->bad |= global > 1;
	rail->traffic_class = pl_get_u8(reader);
	rail->service_level = pl_get_u8(reader);
	if (reader->at == reader->end)
		return;
	rail->ece_vendor = pl_get_u32(reader);
	rail->ece_options = pl_get_u32(reader);
	reader->bad |= !rail->ece_vendor;
}

static void get_rails(struct pl_reader *reader, struct pl_rails_message *rails)
{
	rails->acceptor = pl_get_u16(reader);
	rails->initiator = pl_get_u16(reader);
	rails->rails = pl_get_u8(reader);
}

static void get_body(struct pl_reader *reader, struct pl_control *message)
{
	switch (message->type) {
	case PL_CONTROL_HELLO:
		get_hello(reader, &message->hello);
		break;
	case PL_CONTROL_REJECT:
		message->reject.code = (int32_t)pl_get_u32(reader);
		get_printable(reader, message->reject.id, sizeof(message->reject.id));
		get_printable(reader, message->reject.message, sizeof(message->reject.message));
		break;
	case PL_CONTROL_IMPORT:
		get_import(reader, &message->import);
		break;
	case PL_CONTROL_IMPORTED:
		get_imported(reader, &message->imported);
		break;
	case PL_CONTROL_RELEASE:
		message->release.key_length = get_blob(reader, message->release.key, sizeof(message->release.key));
		break;
	case PL_CONTROL_LANES:
		message->lanes = pl_get_u32(reader);
		break;
	case PL_CONTROL_MESSAGE:
	case PL_CONTROL_STREAM:
		if (message->type == PL_CONTROL_MESSAGE)
			message->message.tag = pl_get_u64(reader);
		message->message.payload = reader->at;
		message->message.length = (uint16_t)(reader->end - reader->at);
		reader->at = reader->end;
		break;
	case PL_CONTROL_RAIL:
		get_rail(reader, &message->rail);
		break;
	case PL_CONTROL_RAILS:
		get_rails(reader, &message->rails);
		break;
	case PL_CONTROL_BYE:
		break;
	}
}

int pl_control_header_decode(const uint8_t header[PL_CONTROL_HEADER], uint16_t *type, uint32_t *length)
{
	struct pl_reader reader;
	uint32_t magic;
	uint16_t reserved;

	pl_reader_init(&reader, header, PL_CONTROL_HEADER);
	magic = pl_get_u32(&reader);
	*type = pl_get_u16(&reader);
	reserved = pl_get_u16(&reader);
	*length = pl_get_u32(&reader);
	if (magic != PL_MAGIC_CONTROL || *type == 0 || reserved)
		return -EPROTO;
	return *length > PL_CONTROL_BODY_MAX ? -EMSGSIZE : 0;
}

int pl_control_decode(uint16_t type, const void *body, size_t length, struct pl_control *message)
{
	struct pl_reader reader;
	int rc;

	if (type < PL_CONTROL_HELLO || type > PL_CONTROL_STREAM)
		return -ENOMSG;
	if (length > PL_CONTROL_BODY_MAX)
		return -EMSGSIZE;
	memset(message, 0, sizeof(*message));
	message->type = type;
	pl_reader_init(&reader, body, length);
	get_body(&reader, message);
	if (reader.bad)
		return -EPROTO;
	/* Before the check for trailing bytes: an over-long blob leaves bytes unread, which is not the actual error. */
	rc = check(message);
	if (rc)
		return rc;
	return reader.at != reader.end ? -EPROTO : 0;
}

/* -- encoding ----------------------------------------------------------------------------------- */

static void put_blob(struct pl_writer *writer, const uint8_t *from, uint16_t length)
{
	pl_put_u16(writer, length);
	pl_put_bytes(writer, from, length);
}

static void put_hello(struct pl_writer *writer, const struct pl_hello *hello)
{
	pl_put_u16(writer, hello->version_min);
	pl_put_u16(writer, hello->version_max);
	pl_put_bytes(writer, hello->boot_id, sizeof(hello->boot_id));
	pl_put_bytes(writer, hello->context_id, sizeof(hello->context_id));
	pl_put_u64(writer, hello->capabilities);
	pl_put_u32(writer, hello->lanes);
	pl_put_u32(writer, hello->eager_max);
	pl_put_u32(writer, hello->window);
	pl_put_u32(writer, hello->flags);
	pl_put_string(writer, hello->software);
	pl_put_u16(writer, hello->fabric_count);
	for (unsigned i = 0; i < hello->fabric_count; i++) {
		pl_put_string(writer, hello->fabrics[i].name);
		put_blob(writer, hello->fabrics[i].blob, hello->fabrics[i].blob_length);
	}
	if (hello->program[0]) {
		pl_put_u16(writer, EXTENSION_PROGRAM);
		pl_put_string(writer, hello->program);
	}
}

static void put_imported(struct pl_writer *writer, const struct pl_imported *imported)
{
	pl_put_u64(writer, imported->request);
	pl_put_u32(writer, (uint32_t)imported->status);
	pl_put_u64(writer, imported->length);
	pl_put_u32(writer, imported->rights);
	put_blob(writer, imported->key, imported->key_length);
}

static void put_rail(struct pl_writer *writer, const struct pl_rail_message *rail)
{
	pl_put_u8(writer, (uint8_t)rail->step);
	pl_put_u8(writer, rail->index);
	pl_put_u16(writer, rail->generation);
	pl_put_u8(writer, rail->count);
	pl_put_bytes(writer, rail->ports, sizeof(rail->ports));
	pl_put_u16(writer, rail->renewals);
	pl_put_u32(writer, rail->qp_number);
	pl_put_u32(writer, rail->psn);
	pl_put_u16(writer, rail->lid);
	pl_put_bytes(writer, rail->gid, sizeof(rail->gid));
	pl_put_u8(writer, rail->mtu);
	pl_put_u8(writer, rail->reads);
	pl_put_u8(writer, rail->global);
	pl_put_u8(writer, rail->traffic_class);
	pl_put_u8(writer, rail->service_level);
	if (!rail->ece_vendor)
		return;
	pl_put_u32(writer, rail->ece_vendor);
	pl_put_u32(writer, rail->ece_options);
}

static void put_body(struct pl_writer *writer, const struct pl_control *message)
{
	switch (message->type) {
	case PL_CONTROL_HELLO:
		put_hello(writer, &message->hello);
		break;
	case PL_CONTROL_REJECT:
		pl_put_u32(writer, (uint32_t)message->reject.code);
		pl_put_string(writer, message->reject.id);
		pl_put_string(writer, message->reject.message);
		break;
	case PL_CONTROL_IMPORT:
		pl_put_u64(writer, message->import.request);
		pl_put_u64(writer, message->import.grant);
		pl_put_bytes(writer, message->import.secret, sizeof(message->import.secret));
		break;
	case PL_CONTROL_IMPORTED:
		put_imported(writer, &message->imported);
		break;
	case PL_CONTROL_RELEASE:
		put_blob(writer, message->release.key, message->release.key_length);
		break;
	case PL_CONTROL_LANES:
		pl_put_u32(writer, message->lanes);
		break;
	case PL_CONTROL_MESSAGE:
	case PL_CONTROL_STREAM:
		if (message->type == PL_CONTROL_MESSAGE)
			pl_put_u64(writer, message->message.tag);
		pl_put_bytes(writer, message->message.payload, message->message.length);
		break;
	case PL_CONTROL_RAIL:
		put_rail(writer, &message->rail);
		break;
	case PL_CONTROL_RAILS:
		pl_put_u16(writer, message->rails.acceptor);
		pl_put_u16(writer, message->rails.initiator);
		pl_put_u8(writer, message->rails.rails);
		break;
	case PL_CONTROL_BYE:
		break;
	}
}

int pl_control_encode(const struct pl_control *message, void *buffer, size_t size)
{
	struct pl_writer header, body;

	if (check(message))
		return -EINVAL;
	if (size < PL_CONTROL_HEADER)
		return -ENOBUFS;
	pl_writer_init(&header, buffer, PL_CONTROL_HEADER);
	pl_writer_init(&body, (uint8_t *)buffer + PL_CONTROL_HEADER, size - PL_CONTROL_HEADER);
	put_body(&body, message);
	if (body.full)
		return -ENOBUFS;
	pl_put_u32(&header, PL_MAGIC_CONTROL);
	pl_put_u16(&header, (uint16_t)message->type);
	pl_put_u16(&header, 0);
	pl_put_u32(&header, (uint32_t)(body.at - body.begin));
	return (int)(body.at - (uint8_t *)buffer);
}
