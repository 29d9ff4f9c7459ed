/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bodies: u8 type, 3 zeros, u32 number, then
 *   LIST        u32 from; with a token: token
 *   LISTED      u32 total, u32 count, count entries; if the token of LIST is refused: u32 status
 *   SUBSCRIBE   u8 start, u8 overflow, u64 from, instance[16], u32 every, u64 base, string name; with a token: token
 *   SUBSCRIBED  u32 status; if that is 0: entry, u64 first, u64 skipped, control[68], payload[68]
 *   UNSUBSCRIBE, TAKEN  u32 answered, u64 taken, accounts: 10 u64
 *   ANNOUNCE    u64 claimed, u64 published, u8 state, u8 demoted, u64 skipped, u32 count, descriptors to the end
 *   CLOSED      nothing; if a token has ended: u8 reason
 *   SLOTS       u32 count, u64 stride, u8 memory (1: of a GPU), token[68]
 *   CREDIT      accounts, u8 paused, u32 count, count u32
 *   PUSHED      u64 next, u64 published, u8 state, u8 demoted, 4 u64 fates, u32 slot, descriptor and metadata to the end
 *
 * Entry: string name, string content type, instance[16], u64 created, u32 slots, u32 metadata bytes, u64 slot bytes,
 * layout (u8 code, u8 bits, u16 lanes, u32 dimensions, 8 u64), u64 claimed, u64 published, u32 subscribers,
 * u32 blocking, u8 bits (1: allow_block, 2: needs_token), u8 state, u8 memory (1: of a GPU). Token: u64 id, secret[16].
 */
#include "wire/stream_message.h"

/* Overflow of a subscriber that blocks and uses frames in place. */
#define OVERFLOW_IN_PLACE 3u
/* Added to the overflow of a subscriber whose frames are pushed. */
#define OVERFLOW_PUSH 4u
/* Added to the overflow of a subscriber that prepares. */
#define OVERFLOW_PREPARE 8u

#define DESCRIPTOR_BYTES 128
#define DESCRIPTOR_METADATA 40 /* offset of the metadata's length */

size_t pl_stream_frame_bytes(const uint8_t *at, size_t left)
{
	size_t bytes;

	if (left < DESCRIPTOR_BYTES)
		return 0;
	bytes = DESCRIPTOR_BYTES + (size_t)(at[DESCRIPTOR_METADATA] | at[DESCRIPTOR_METADATA + 1] << 8);
	return bytes <= left ? bytes : 0;
}

/* -- requirements beyond the form --------------------------------------------------------------------- */

static bool stream_state_valid(enum pl_stream_state state)
{
	return state >= PL_STREAM_LIVE && state <= PL_STREAM_FAILED;
}

static bool stream_text_ends(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static int check_entry(const struct pl_stream_entry *entry)
{
	bool right = stream_text_ends(entry->name, sizeof(entry->name)) && entry->name[0] &&
		     stream_text_ends(entry->content_type, sizeof(entry->content_type)) &&
		     entry->claimed >= entry->published && stream_state_valid(entry->state);

	return right ? 0 : -EPROTO;
}

static int check_announced(const struct pl_stream_message *message)
{
	size_t left = message->announce.frames_length;
	const uint8_t *at = message->announce.frames;

	if (message->announce.claimed < message->announce.published || !stream_state_valid(message->announce.state) ||
	    message->announce.count > message->announce.published || left > PL_STREAM_ANNOUNCE_MAX)
		return -EPROTO;
	for (uint32_t i = 0; i < message->announce.count; i++) {
		size_t bytes = pl_stream_frame_bytes(at, left);

		if (bytes == 0)
			return -EPROTO;
		at += bytes;
		left -= bytes;
	}
	return left ? -EPROTO : 0;
}

static int check_subscribe(const struct pl_stream_message *message)
{
	bool right = message->subscribe.start <= PL_START_SEQUENCE &&
		     message->subscribe.overflow <= PL_OVERFLOW_BLOCK && message->subscribe.every &&
		     (!message->subscribe.in_place ||
		      (message->subscribe.overflow == PL_OVERFLOW_BLOCK && !message->subscribe.push)) &&
		     stream_text_ends(message->subscribe.name, PL_STREAM_NAME_SIZE);

	return right ? 0 : -EPROTO;
}

static int check_pushed(const struct pl_stream_message *message)
{
	size_t left = message->pushed.frame ? message->pushed.frame_length : 0;

	if (!stream_state_valid(message->pushed.state) || left > PL_STREAM_ANNOUNCE_MAX)
		return -EPROTO;
	if (!message->pushed.frame)
		return message->pushed.slot ? -EPROTO : 0;
	return message->pushed.next && message->pushed.next <= message->pushed.published &&
			       pl_stream_frame_bytes(message->pushed.frame, left) == left
		       ? 0
		       : -EPROTO;
}

static int check_stream_message(const struct pl_stream_message *message)
{
	int rc = 0;

	switch (message->type) {
	case PL_STREAM_LIST:
		return 0;
	case PL_STREAM_CLOSED:
		return message->closed < PL_CLOSED_END ? 0 : -EPROTO;
	case PL_STREAM_LISTED:
		if (message->listed.count > PL_STREAM_LISTED_MAX || message->listed.status >= PL_SUBSCRIBE_END ||
		    (message->listed.status && message->listed.count))
			return -EPROTO;
		for (uint32_t i = 0; rc == 0 && i < message->listed.count; i++)
			rc = check_entry(&message->listed.entries[i]);
		return rc;
	case PL_STREAM_SUBSCRIBE:
		return check_subscribe(message);
	case PL_STREAM_SUBSCRIBED:
		if (message->subscribed.status >= PL_SUBSCRIBE_END)
			return -EPROTO;
		return message->subscribed.status ? 0 : check_entry(&message->subscribed.entry);
	case PL_STREAM_UNSUBSCRIBE:
	case PL_STREAM_TAKEN:
		return pl_accounts_exact(&message->taken.accounts) ? 0 : -EPROTO;
	case PL_STREAM_ANNOUNCE:
		return check_announced(message);
	case PL_STREAM_SLOTS:
		return message->slots.count && message->slots.count <= PL_STREAM_PUSH_SLOTS_MAX ? 0 : -EPROTO;
	case PL_STREAM_CREDIT:
		return message->credit.count <= PL_STREAM_CREDIT_MAX && pl_accounts_exact(&message->credit.accounts)
			       ? 0
			       : -EPROTO;
	case PL_STREAM_PUSHED:
		return check_pushed(message);
	}
	return -EPROTO;
}

/* -- decoding ------------------------------------------------------------------------------------------- */

static void get_subscribed(struct pl_reader *reader, struct pl_stream_message *message)
{
	message->subscribed.status = (enum pl_subscribe_status)pl_get_u32(reader);
	if (message->subscribed.status)
		return;
	pl_get_entry(reader, &message->subscribed.entry);
	message->subscribed.first = pl_get_u64(reader);
	message->subscribed.skipped = pl_get_u64(reader);
	pl_get_bytes(reader, message->subscribed.control, PL_TOKEN_SIZE);
	pl_get_bytes(reader, message->subscribed.payload, PL_TOKEN_SIZE);
}

/* Bits of a byte of ANNOUNCE. */
enum {
	ANNOUNCE_DEMOTED = 1,
	ANNOUNCE_WAITS = 2,
};

static void get_announce(struct pl_reader *reader, struct pl_stream_message *message)
{
	uint8_t bits;

	message->announce.claimed = pl_get_u64(reader);
	message->announce.published = pl_get_u64(reader);
	message->announce.state = (enum pl_stream_state)pl_get_u8(reader);
	bits = pl_get_u8(reader);
	reader->bad |= bits > (ANNOUNCE_DEMOTED | ANNOUNCE_WAITS);
	message->announce.demoted = bits & ANNOUNCE_DEMOTED;
	message->announce.waits = bits & ANNOUNCE_WAITS;
	message->announce.skipped = pl_get_u64(reader);
	message->announce.count = pl_get_u32(reader);
	message->announce.frames = reader->at;
	message->announce.frames_length = (size_t)(reader->end - reader->at);
	reader->at = reader->end;
}

static void get_credit(struct pl_reader *reader, struct pl_stream_message *message)
{
	pl_get_accounts(reader, &message->credit.accounts);
	message->credit.paused = pl_get_bool(reader);
	message->credit.count = pl_get_u32(reader);
	for (uint32_t i = 0; i < PL_MIN(message->credit.count, PL_STREAM_CREDIT_MAX); i++)
		message->credit.slots[i] = pl_get_u32(reader);
}

static void get_pushed(struct pl_reader *reader, struct pl_stream_message *message)
{
	struct pl_push_fates *fates = &message->pushed.fates;

	message->pushed.next = pl_get_u64(reader);
	message->pushed.published = pl_get_u64(reader);
	message->pushed.state = (enum pl_stream_state)pl_get_u8(reader);
	message->pushed.demoted = pl_get_bool(reader);
	fates->lapped = pl_get_u64(reader);
	fates->aborted = pl_get_u64(reader);
	fates->unwanted = pl_get_u64(reader);
	fates->rejected = pl_get_u64(reader);
	message->pushed.slot = pl_get_u32(reader);
	message->pushed.frame_length = (size_t)(reader->end - reader->at);
	message->pushed.frame = message->pushed.frame_length ? reader->at : NULL;
	reader->at = reader->end;
}

static void get_subscribe(struct pl_reader *reader, struct pl_stream_message *message)
{
	unsigned overflow;

	message->subscribe.start = (enum pl_start)pl_get_u8(reader);
	overflow = pl_get_u8(reader);
	message->subscribe.prepare = overflow >= OVERFLOW_PREPARE;
	overflow -= message->subscribe.prepare ? OVERFLOW_PREPARE : 0;
	message->subscribe.push = overflow >= OVERFLOW_PUSH;
	overflow -= message->subscribe.push ? OVERFLOW_PUSH : 0;
	message->subscribe.in_place = overflow == OVERFLOW_IN_PLACE;
	message->subscribe.overflow = message->subscribe.in_place ? PL_OVERFLOW_BLOCK : (enum pl_overflow)overflow;
	message->subscribe.from = pl_get_u64(reader);
	pl_get_bytes(reader, message->subscribe.instance, sizeof(message->subscribe.instance));
	message->subscribe.every = pl_get_u32(reader);
	message->subscribe.base = pl_get_u64(reader);
	pl_get_string(reader, message->subscribe.name, sizeof(message->subscribe.name));
	pl_get_stream_token(reader, &message->token);
}

static void get_listed(struct pl_reader *reader, struct pl_stream_message *message)
{
	message->listed.total = pl_get_u32(reader);
	message->listed.count = pl_get_u32(reader);
	for (uint32_t i = 0; i < PL_MIN(message->listed.count, PL_STREAM_LISTED_MAX); i++)
		pl_get_entry(reader, &message->listed.entries[i]);
	if (reader->at == reader->end)
		return;
	message->listed.status = (enum pl_subscribe_status)pl_get_u32(reader);
	reader->bad |= !message->listed.status;
}

static void get_closed(struct pl_reader *reader, struct pl_stream_message *message)
{
	if (reader->at == reader->end)
		return;
	message->closed = (enum pl_closed_reason)pl_get_u8(reader);
	reader->bad |= !message->closed;
}

static void get_stream_message(struct pl_reader *reader, struct pl_stream_message *message)
{
	switch (message->type) {
	case PL_STREAM_LIST:
		message->from = pl_get_u32(reader);
		pl_get_stream_token(reader, &message->token);
		break;
	case PL_STREAM_LISTED:
		get_listed(reader, message);
		break;
	case PL_STREAM_SUBSCRIBE:
		get_subscribe(reader, message);
		break;
	case PL_STREAM_SUBSCRIBED:
		get_subscribed(reader, message);
		break;
	case PL_STREAM_UNSUBSCRIBE:
	case PL_STREAM_TAKEN:
		message->taken.answered = pl_get_u32(reader);
		message->taken.taken = pl_get_u64(reader);
		pl_get_accounts(reader, &message->taken.accounts);
		break;
	case PL_STREAM_ANNOUNCE:
		get_announce(reader, message);
		break;
	case PL_STREAM_SLOTS:
		message->slots.count = pl_get_u32(reader);
		message->slots.stride = pl_get_u64(reader);
		message->slots.gpu = pl_get_bool(reader);
		pl_get_bytes(reader, message->slots.token, PL_TOKEN_SIZE);
		break;
	case PL_STREAM_CREDIT:
		get_credit(reader, message);
		break;
	case PL_STREAM_PUSHED:
		get_pushed(reader, message);
		break;
	case PL_STREAM_CLOSED:
		get_closed(reader, message);
		break;
	}
}

int pl_stream_message_decode(const void *body, size_t length, struct pl_stream_message *message)
{
	struct pl_reader reader;
	uint8_t zeros[3];

	memset(message, 0, sizeof(*message));
	pl_reader_init(&reader, body, length);
	message->type = (enum pl_stream_message_type)pl_get_u8(&reader);
	pl_get_bytes(&reader, zeros, sizeof(zeros));
	message->number = pl_get_u32(&reader);
	get_stream_message(&reader, message);
	if (reader.bad || reader.at != reader.end || zeros[0] || zeros[1] || zeros[2])
		return -EPROTO;
	return check_stream_message(message);
}

/* -- encoding ------------------------------------------------------------------------------------------- */

static void put_subscribed(struct pl_writer *writer, const struct pl_stream_message *message)
{
	pl_put_u32(writer, message->subscribed.status);
	if (message->subscribed.status)
		return;
	pl_put_entry(writer, &message->subscribed.entry);
	pl_put_u64(writer, message->subscribed.first);
	pl_put_u64(writer, message->subscribed.skipped);
	pl_put_bytes(writer, message->subscribed.control, PL_TOKEN_SIZE);
	pl_put_bytes(writer, message->subscribed.payload, PL_TOKEN_SIZE);
}

static void put_announce(struct pl_writer *writer, const struct pl_stream_message *message)
{
	pl_put_u64(writer, message->announce.claimed);
	pl_put_u64(writer, message->announce.published);
	pl_put_u8(writer, (uint8_t)message->announce.state);
	pl_put_u8(writer, (uint8_t)((message->announce.demoted ? ANNOUNCE_DEMOTED : 0) |
				    (message->announce.waits ? ANNOUNCE_WAITS : 0)));
	pl_put_u64(writer, message->announce.skipped);
	pl_put_u32(writer, message->announce.count);
	pl_put_bytes(writer, message->announce.frames, message->announce.frames_length);
}

static void put_credit(struct pl_writer *writer, const struct pl_stream_message *message)
{
	pl_put_accounts(writer, &message->credit.accounts);
	pl_put_u8(writer, message->credit.paused);
	pl_put_u32(writer, message->credit.count);
	for (uint32_t i = 0; i < message->credit.count; i++)
		pl_put_u32(writer, message->credit.slots[i]);
}

static void put_pushed(struct pl_writer *writer, const struct pl_stream_message *message)
{
	const struct pl_push_fates *fates = &message->pushed.fates;

	pl_put_u64(writer, message->pushed.next);
	pl_put_u64(writer, message->pushed.published);
	pl_put_u8(writer, (uint8_t)message->pushed.state);
	pl_put_u8(writer, message->pushed.demoted);
	pl_put_u64(writer, fates->lapped);
	pl_put_u64(writer, fates->aborted);
	pl_put_u64(writer, fates->unwanted);
	pl_put_u64(writer, fates->rejected);
	pl_put_u32(writer, message->pushed.slot);
	if (message->pushed.frame)
		pl_put_bytes(writer, message->pushed.frame, message->pushed.frame_length);
}

static uint8_t overflow_byte(const struct pl_stream_message *message)
{
	unsigned overflow = message->subscribe.in_place ? OVERFLOW_IN_PLACE : (unsigned)message->subscribe.overflow;

	return (uint8_t)(overflow + (message->subscribe.push ? OVERFLOW_PUSH : 0) +
			 (message->subscribe.prepare ? OVERFLOW_PREPARE : 0));
}

static void put_subscribe(struct pl_writer *writer, const struct pl_stream_message *message)
{
	pl_put_u8(writer, (uint8_t)message->subscribe.start);
	pl_put_u8(writer, overflow_byte(message));
	pl_put_u64(writer, message->subscribe.from);
	pl_put_bytes(writer, message->subscribe.instance, sizeof(message->subscribe.instance));
	pl_put_u32(writer, message->subscribe.every);
	pl_put_u64(writer, message->subscribe.base);
	pl_put_string(writer, message->subscribe.name);
	pl_put_stream_token(writer, &message->token);
}

static void put_listed(struct pl_writer *writer, const struct pl_stream_message *message)
{
	pl_put_u32(writer, message->listed.total);
	pl_put_u32(writer, message->listed.count);
	for (uint32_t i = 0; i < message->listed.count; i++)
		pl_put_entry(writer, &message->listed.entries[i]);
	if (message->listed.status)
		pl_put_u32(writer, message->listed.status);
}

static void put_stream_message(struct pl_writer *writer, const struct pl_stream_message *message)
{
	switch (message->type) {
	case PL_STREAM_LIST:
		pl_put_u32(writer, message->from);
		pl_put_stream_token(writer, &message->token);
		break;
	case PL_STREAM_LISTED:
		put_listed(writer, message);
		break;
	case PL_STREAM_SUBSCRIBE:
		put_subscribe(writer, message);
		break;
	case PL_STREAM_SUBSCRIBED:
		put_subscribed(writer, message);
		break;
	case PL_STREAM_UNSUBSCRIBE:
	case PL_STREAM_TAKEN:
		pl_put_u32(writer, message->taken.answered);
		pl_put_u64(writer, message->taken.taken);
		pl_put_accounts(writer, &message->taken.accounts);
		break;
	case PL_STREAM_ANNOUNCE:
		put_announce(writer, message);
		break;
	case PL_STREAM_SLOTS:
		pl_put_u32(writer, message->slots.count);
		pl_put_u64(writer, message->slots.stride);
		pl_put_u8(writer, message->slots.gpu);
		pl_put_bytes(writer, message->slots.token, PL_TOKEN_SIZE);
		break;
	case PL_STREAM_CREDIT:
		put_credit(writer, message);
		break;
	case PL_STREAM_PUSHED:
		put_pushed(writer, message);
		break;
	case PL_STREAM_CLOSED:
		if (message->closed)
			pl_put_u8(writer, (uint8_t)message->closed);
		break;
	}
}

int pl_stream_message_encode(const struct pl_stream_message *message, void *buffer, size_t size)
{
	static const uint8_t zeros[3];
	struct pl_writer writer;

	if (check_stream_message(message) < 0)
		return -EINVAL;
	pl_writer_init(&writer, buffer, size);
	pl_put_u8(&writer, (uint8_t)message->type);
	pl_put_bytes(&writer, zeros, sizeof(zeros));
	pl_put_u32(&writer, message->number);
	put_stream_message(&writer, message);
	return writer.full ? -ENOBUFS : (int)(writer.at - writer.begin);
}
