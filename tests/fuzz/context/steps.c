/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps of the intruder. */
#include <sys/socket.h>
#include <unistd.h>

#include "context/intruder.h"
#include "support/attack.h"

#define FILL 0x22
#define PAYLOAD_MAX (64u << 10) /* most bytes of a payload that are sent */
#define KEY_OF_INTRUDER 0x1234500000001ull
#define RAW_MAX 600u

/* Selectors of keys behind those that the victim gave. */
enum { KEY_CONTROL = 198, KEY_PAYLOAD, KEY_RAW, KEY_HONEST, KEY_FLIPPED, KEY_OWN, KEY_TAG };

static uint64_t choose_key(const struct intruder *intruder, const struct fuzz_step *step)
{
	unsigned count = PL_MIN(intruder->key_count, KEYS);
	uint64_t key = count ? intruder->keys[step->key % count] : 0;

	switch (step->key) {
	case KEY_RAW:
		return step_value(step);
	case KEY_HONEST:
		return pl_remote_key_id(intruder->world->good_remote);
	case KEY_FLIPPED:
		return key ^ 1ull << step_value(step) % 64;
	case KEY_OWN:
		return KEY_OF_INTRUDER;
	case KEY_TAG:
		return step_value(step) % 4;
	default:
		return key;
	}
}

static uint32_t choose_length(const struct fuzz_step *step)
{
	static const uint32_t lengths[] = { 0,	    1,	    8,	   16,	     64,	65,
					    4096,   8191,   8192,  8193,     65536,	1u << 20,
					    16384,  1024,   1025,  160,	     161,	PL_FRAME_BULK_MAX,
					    SHARED, SHARED, SHARED };
	unsigned count = PL_ARRAY_SIZE(lengths);

	if (step->length % (count + 1) == count)
		return (uint32_t)step_value(step);
	return lengths[step->length % (count + 1)];
}

static uint64_t choose_offset(const struct fuzz_step *step)
{
	static const uint64_t offsets[] = { 0,	    1,		    7,		8,
					    SHARED, SHARED - 8,	    SHARED + 1, UINT64_MAX,
					    4096,   UINT64_MAX - 7, 8192,	0 - (uint64_t)SHARED,
					    1,	    1ull << 32 };
	unsigned count = PL_ARRAY_SIZE(offsets);

	if (step->offset % (count + 1) == count)
		return step_value(step);
	return offsets[step->offset % (count + 1)];
}

static uint32_t choose_cookie(struct intruder *intruder, const struct fuzz_step *step)
{
	unsigned count = intruder->request_count;

	switch (step->cookie % 8) {
	case 0:
		return count ? intruder->requests[0].frame.cookie : 0;
	case 1:
		return count ? intruder->requests[count - 1].frame.cookie : 0;
	case 2:
		return (uint32_t)step_value(step);
	case 3:
		return UINT32_MAX;
	default:
		return ++intruder->cookie;
	}
}

static uint32_t choose_ack(const struct channel *channel, const struct fuzz_step *step)
{
	switch (step->channel >> 3 & 7) {
	case 6:
		return channel->counted + 1;
	case 7:
		return (uint32_t)step_value(step);
	default:
		return channel->counted;
	}
}

static unsigned choose_lane(const struct fuzz_step *step)
{
	return 1 + (step->channel & 7) % LANES;
}

/* Returns the bytes of the payload to send: all, half of them, none, or one more. */
static size_t choose_payload(const struct fuzz_step *step, uint32_t length)
{
	length = PL_MIN(length, PAYLOAD_MAX);
	switch (step->channel >> 6) {
	case 1:
		return length / 2;
	case 2:
		return step->flags % 4 ? length : 0;
	case 3:
		return step->flags % 4 ? length : length + 1;
	default:
		return length;
	}
}

static void send_frame_bytes(struct intruder *intruder, unsigned lane, const struct pl_frame *frame,
			     const void *payload, size_t length)
{
	static uint8_t bytes[PL_FRAME_HEADER + PAYLOAD_MAX + 1];

	pl_frame_encode(frame, bytes);
	memset(bytes + PL_FRAME_HEADER, FILL, length);
	if (payload)
		memcpy(bytes + PL_FRAME_HEADER, payload, PL_MIN(length, sizeof(uint64_t)));
	intruder_send(intruder, lane, bytes, PL_FRAME_HEADER + length);
}

static void step_frame(struct intruder *intruder, const struct fuzz_step *step)
{
	unsigned lane = choose_lane(step);
	struct pl_frame frame = { .type = step->kind % (PL_FRAME_TYPE_END + 1),
				  .flags = step->flags,
				  .ack = choose_ack(&intruder->channels[lane], step),
				  .length = choose_length(step),
				  .cookie = choose_cookie(intruder, step),
				  .key = choose_key(intruder, step),
				  .offset = choose_offset(step) };
	uint64_t key = htole64(KEY_OF_INTRUDER);
	size_t payload = 0;

	if (frame.type == PL_FRAME_ATOMIC && step->length % 8) {
		frame.length = PL_FRAME_ATOMIC_PAYLOAD;
		frame.flags = step->flags % 4;
	}
	if (frame.type == PL_FRAME_RENDEZVOUS && step->length % 8)
		frame.length = sizeof(key);
	if (pl_frame_payload(&frame))
		payload = choose_payload(step, frame.length);
	send_frame_bytes(intruder, lane, &frame, frame.type == PL_FRAME_RENDEZVOUS ? &key : NULL, payload);
}

/* -- control messages ------------------------------------------------------------------------------- */

static const struct token *choose_token(const struct intruder *intruder, const struct fuzz_step *step)
{
	switch (step->key) {
	case KEY_HONEST:
		return &intruder->world->good_token;
	case KEY_CONTROL:
	case KEY_PAYLOAD:
		return &intruder->stream_tokens[step->key - KEY_CONTROL];
	default:
		return &intruder->world->tokens[step->key % TOKENS];
	}
}

static void fill_import(const struct intruder *intruder, const struct fuzz_step *step, struct pl_import *import)
{
	const struct token *token = choose_token(intruder, step);
	struct pl_token decoded;

	import->request = step_value(step);
	if (pl_token_decode(token->bytes, token->length, &decoded) < 0)
		return;
	import->grant = decoded.grant;
	memcpy(import->secret, decoded.secret, sizeof(import->secret));
	/* The token of the honest peer is not known to others; its number may be. */
	if (token == &intruder->world->good_token || step->cookie == 1)
		import->secret[step->offset % 16] ^= (uint8_t)(1u << step->length % 8);
	if (step->cookie == 2)
		import->grant ^= 1ull << step->length % 64;
}

static void fill_imported(struct intruder *intruder, const struct fuzz_step *step, struct pl_imported *imported)
{
	struct pl_writer writer;

	imported->request = step_value(step);
	for (unsigned i = 0; i < intruder->request_count && step->cookie % 8; i++)
		if (intruder->requests[i].import)
			imported->request = intruder->requests[i].import;
	imported->status = step->flags % 4 ? 0 : step->offset;
	if (imported->status)
		return;
	imported->length = step->offset % 4 ? SHARED : UINT64_MAX;
	imported->rights = step->length % 8 ? PL_ACCESS_ALL : step->length % 64;
	imported->key_length = step->key % 16 ? sizeof(uint64_t) : step->key;
	pl_writer_init(&writer, imported->key, sizeof(imported->key));
	pl_put_u64(&writer, KEY_OF_INTRUDER);
}

static void fill_release(const struct intruder *intruder, const struct fuzz_step *step, struct pl_release *release)
{
	struct pl_writer writer;

	release->key_length = step->length % 8 ? sizeof(uint64_t) : step->length;
	release->key_length = PL_MIN(release->key_length, (uint16_t)PL_KEY_BLOB_MAX);
	pl_writer_init(&writer, release->key, sizeof(release->key));
	pl_put_u64(&writer, choose_key(intruder, step));
}

static void fill_rail(const struct fuzz_step *step, struct pl_rail_message *rail)
{
	*rail = (struct pl_rail_message){ .step = PL_RAIL_CONNECT + step->flags % 3, .index = step->key % PL_RAILS_MAX };
	if (rail->step == PL_RAIL_CONNECT)
		rail->count = PL_RAILS_MAX;
	if (rail->step != PL_RAIL_DOWN)
		rail->qp_number = rail->mtu = rail->reads = 1;
}

static void step_control(struct intruder *intruder, const struct fuzz_step *step)
{
	static const uint8_t text[PL_SEND_COPY_MAX] = { FILL };
	struct pl_control message = { .type = step->kind % 11 };
	uint8_t bytes[MESSAGE_MAX];
	size_t cut;
	int length;

	if (message.type == PL_CONTROL_HELLO)
		message = attack_hello();
	else if (message.type == PL_CONTROL_REJECT)
		message.reject.code = step->flags;
	else if (message.type == PL_CONTROL_IMPORT)
		fill_import(intruder, step, &message.import);
	else if (message.type == PL_CONTROL_IMPORTED)
		fill_imported(intruder, step, &message.imported);
	else if (message.type == PL_CONTROL_RELEASE)
		fill_release(intruder, step, &message.release);
	else if (message.type == PL_CONTROL_LANES)
		message.lanes = step->length;
	else if (message.type == PL_CONTROL_MESSAGE)
		message.message = (struct pl_control_message){
			step_value(step) % 4, (uint16_t)PL_MIN(choose_length(step), (uint32_t)PL_SEND_COPY_MAX), text
		};
	else if (message.type == PL_CONTROL_RAIL)
		fill_rail(step, &message.rail);
	else if (message.type == PL_CONTROL_RAILS)
		message.rails = (struct pl_rails_message){ step->key % 16, step->length % 16, step->flags };
	length = pl_control_encode(&message, bytes, sizeof(bytes));
	if (length <= 0)
		return;
	if (step->channel >> 6 == 1)
		bytes[step->offset % (unsigned)length] ^= step->value[0];
	/* In one piece, or in two that arrive apart. */
	cut = step->channel >> 6 == 2 ? step->offset % (unsigned)length : 0;
	if (cut) {
		intruder_send(intruder, 0, bytes, cut);
		world_progress(intruder->world);
	}
	intruder_send(intruder, 0, bytes + cut, (size_t)length - cut);
}

/* -- answers ---------------------------------------------------------------------------------------- */

static void answer_read(struct intruder *intruder, const struct request *request, const struct fuzz_step *step)
{
	struct pl_frame frame = { .type = PL_FRAME_DATA,
				  .flags = !(step->flags & 1),
				  .ack = intruder->channels[request->channel].counted,
				  .length = request->frame.length,
				  .cookie = request->frame.cookie };

	if (step->flags & 2)
		frame.length = step->flags & 4 ? frame.length + 1 : frame.length / 2;
	send_frame_bytes(intruder, request->channel, &frame, NULL, choose_payload(step, frame.length));
	/* Only a part, with the end in another frame. */
	if (!(step->flags & 1))
		return;
	frame = (struct pl_frame){ .type = PL_FRAME_VALUE, .ack = frame.ack, .cookie = frame.cookie };
	send_frame_bytes(intruder, request->channel, &frame, NULL, 0);
}

static void answer_frame(struct intruder *intruder, const struct request *request, const struct fuzz_step *step)
{
	struct pl_frame frame = { .type = PL_FRAME_VALUE,
				  .flags = request->frame.type,
				  .ack = intruder->channels[request->channel].counted,
				  .cookie = request->frame.cookie };

	if (request->frame.type == PL_FRAME_RENDEZVOUS) {
		frame.type = PL_FRAME_FINISH;
		frame.offset = step->flags % 4 ? 0 : step->offset;
	} else if (step->flags % 8 == 7) {
		frame.type = PL_FRAME_FAIL;
		frame.offset = step->offset;
	}
	send_frame_bytes(intruder, request->channel, &frame, NULL, 0);
}

static void step_answer(struct intruder *intruder, const struct fuzz_step *step)
{
	struct pl_control imported = { .type = PL_CONTROL_IMPORTED };
	struct request request;

	if (!intruder_take_request(intruder, step->key % REQUESTS, &request) &&
	    !intruder_take_request(intruder, 0, &request))
		return;
	if (request.channel == 0) {
		fill_imported(intruder, step, &imported.imported);
		imported.imported.request = request.import;
		intruder_send_control(intruder, &imported);
	} else if (request.frame.type == PL_FRAME_READ && step->flags % 8 != 7) {
		answer_read(intruder, &request, step);
	} else {
		answer_frame(intruder, &request, step);
	}
}

/* -- sockets ---------------------------------------------------------------------------------------- */

static void step_raw(struct intruder *intruder, const struct fuzz_step *step)
{
	unsigned number = step->channel % CHANNELS, length = 1 + step->length * 2u;
	uint8_t bytes[RAW_MAX];

	for (unsigned i = 0; i < length; i++)
		bytes[i] = step->value[i % sizeof(step->value)];
	if (step->flags % 4)
		intruder_send(intruder, number, bytes, length);
	else if (intruder->channels[number].stream.fd >= 0)
		(void)!send(intruder->channels[number].stream.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void step_close(struct intruder *intruder, const struct fuzz_step *step)
{
	struct channel *channel = &intruder->channels[step->channel % CHANNELS];

	if (channel->stream.fd < 0)
		return;
	switch (step->kind % 5) {
	case 0:
		shutdown(channel->stream.fd, SHUT_WR);
		channel->jammed = true;
		return;
	case 1:
		shutdown(channel->stream.fd, SHUT_RD);
		return;
	case 2:
		pl_stream_end(&channel->stream);
		channel->jammed = true;
		return;
	case 3:
		intruder_reset_at_close(channel->stream.fd);
		break;
	default:
		break;
	}
	pl_stream_close(&channel->stream);
	channel->stream.fd = -1;
}

/* A socket that claims to be a lane of the honest peer, or of nobody, or sends any bytes. */
static void step_stranger(struct intruder *intruder, const struct fuzz_step *step)
{
	uint8_t bytes[PL_LANE_HELLO + PL_TAG + 1] = { 0 };
	struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION, .lane = step->offset };
	size_t length = 1 + step->length % sizeof(bytes);
	int fd;

	if (intruder->stranger_count == STRANGERS)
		return;
	fd = intruder_dial(intruder->world);
	intruder->strangers[intruder->stranger_count++] = fd;
	hello.peer_index = step->key % 2 ? intruder->world->served->peer_index : step_value(step);
	pl_lane_hello_encode(&hello, bytes);
	if (step->kind % 4 == 1)
		memset(bytes, 0x16, sizeof(bytes));
	if (step->kind % 4 == 2)
		memcpy(bytes, step->value, sizeof(step->value));
	(void)!send(fd, bytes, step->kind % 4 ? length : sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void step_advance(struct intruder *intruder, const struct fuzz_step *step)
{
	static const uint64_t times[] = { 1, 12, 210, 510, 1100, 5000, 11000, 31000 };

	fuzz_advance(intruder->world, times[step->kind % PL_ARRAY_SIZE(times)] * PL_NS_PER_MS);
}

static void step_lane(struct intruder *intruder, const struct fuzz_step *step)
{
	unsigned lane = step->channel % LANES;

	if (intruder->connection & FUZZ_VICTIM_CONNECTS) {
		struct pl_control message = { .type = PL_CONTROL_LANES, .lanes = 1 + lane };

		intruder_send_control(intruder, &message);
		world_progress(intruder->world);
	}
	intruder_open_lane(intruder, lane, step->flags % 4 ? lane : step->offset);
}

void intruder_step(struct intruder *intruder, const struct fuzz_step *step)
{
	switch (step->op % STEP_OPS) {
	case STEP_FRAME:
		step_frame(intruder, step);
		break;
	case STEP_CONTROL:
		step_control(intruder, step);
		break;
	case STEP_RAW:
		step_raw(intruder, step);
		break;
	case STEP_ANSWER:
		step_answer(intruder, step);
		break;
	case STEP_PROGRAM:
		program_step(intruder->world, step);
		break;
	case STEP_CLOSE:
		step_close(intruder, step);
		break;
	case STEP_LANE:
		step_lane(intruder, step);
		break;
	case STEP_READ:
		intruder_read(intruder);
		break;
	case STEP_ADVANCE:
		step_advance(intruder, step);
		break;
	case STEP_STREAM:
		step_stream(intruder, step);
		break;
	case STEP_STRANGER:
		step_stranger(intruder, step);
		break;
	default:
		break;
	}
}
