/* SPDX-License-Identifier: BSD-2-Clause */
#include "context/intruder.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/attack.h"
#include "support/socket.h"

/* Buffers of the intruder's sockets are small, so that the victim soon has to wait for it. */
#define SOCKET_BUFFER 8192

static const struct pl_stream closed_stream = { .fd = -1 };

void intruder_prepare(struct intruder *intruder, struct world *world)
{
	memset(intruder, 0, sizeof(*intruder));
	intruder->world = world;
	intruder->context.allocator = pl_system_allocator;
	intruder->self.context = &intruder->context;
	REQUIRE(pl_tls_open(&pl_system_allocator, world->keyed ? fuzz_key : NULL, world->keyed ? sizeof(fuzz_key) : 0,
			    &intruder->tls, NULL) == 0);
	intruder->listener = socket_listen(intruder->address);
	REQUIRE(fcntl(intruder->listener, F_SETFL, O_NONBLOCK) == 0);
	for (unsigned i = 0; i < CHANNELS; i++)
		intruder->channels[i].stream = closed_stream;
}

void intruder_end(struct intruder *intruder)
{
	close(intruder->listener);
	pl_tls_close(intruder->tls);
}

void intruder_tune(int fd)
{
	int size = SOCKET_BUFFER, on = 1;

	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0);
	REQUIRE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
}

void intruder_reset_at_close(int fd)
{
	struct linger linger = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

int intruder_dial(const struct world *world)
{
	int fd = socket_connect(world->address);

	REQUIRE(fd >= 0);
	intruder_tune(fd);
	REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	return fd;
}

/* -- receiving ------------------------------------------------------------------------------------- */

static void note_request(struct intruder *intruder, unsigned channel, const struct pl_frame *frame, uint64_t import)
{
	if (intruder->request_count == REQUESTS) {
		memmove(intruder->requests, intruder->requests + 1, (REQUESTS - 1) * sizeof(struct request));
		intruder->request_count--;
	}
	intruder->requests[intruder->request_count++] = (struct request){ *frame, channel, import };
}

bool intruder_take_request(struct intruder *intruder, unsigned index, struct request *request)
{
	if (index >= intruder->request_count)
		return false;
	*request = intruder->requests[index];
	intruder->request_count--;
	memmove(&intruder->requests[index], &intruder->requests[index + 1],
		(intruder->request_count - index) * sizeof(*request));
	return true;
}

static void note_key(struct intruder *intruder, const uint8_t *blob, size_t length)
{
	struct pl_reader reader;

	pl_reader_init(&reader, blob, length);
	intruder->keys[intruder->key_count++ % KEYS] = pl_get_u64(&reader);
}

static void take_control(struct intruder *intruder, uint16_t type, const uint8_t *body, uint32_t length)
{
	struct pl_control message;

	REQUIRE(pl_control_decode(type, body, length, &message) == 0);
	if (message.type == PL_CONTROL_IMPORTED && message.imported.status == PL_WIRE_OK)
		note_key(intruder, message.imported.key, message.imported.key_length);
	if (message.type == PL_CONTROL_STREAM)
		intruder_note_stream(intruder, message.message.payload, message.message.length);
	if (message.type == PL_CONTROL_IMPORT)
		note_request(intruder, 0, &(struct pl_frame){ 0 }, message.import.request);
}

/* Takes one message of the control channel.  Returns false if it is not complete. */
static bool take_control_bytes(struct intruder *intruder, struct channel *channel)
{
	uint32_t length;
	uint16_t type;
	size_t used;

	if (channel->have < PL_CONTROL_HEADER)
		return false;
	REQUIRE(pl_control_header_decode(channel->received, &type, &length) == 0);
	used = PL_CONTROL_HEADER + length;
	if (channel->have < used)
		return false;
	take_control(intruder, type, channel->received + PL_CONTROL_HEADER, length);
	channel->have -= used;
	memmove(channel->received, channel->received + used, channel->have);
	return true;
}

/* Takes one frame, of which a payload of a key must have arrived.  Returns false if it is not complete. */
static bool take_frame_bytes(struct intruder *intruder, unsigned number)
{
	struct channel *channel = &intruder->channels[number];
	struct pl_frame frame;
	size_t used = PL_FRAME_HEADER;
	uint32_t payload;

	if (channel->skip) {
		used = PL_MIN(channel->have, (size_t)channel->skip);
		channel->skip -= (uint32_t)used;
	} else {
		if (channel->have < PL_FRAME_HEADER)
			return false;
		REQUIRE(pl_frame_decode(channel->received, &frame) == 0);
		payload = pl_frame_payload(&frame);
		if (frame.type == PL_FRAME_RENDEZVOUS && channel->have < PL_FRAME_HEADER + payload)
			return false;
		if (frame.type == PL_FRAME_RENDEZVOUS)
			note_key(intruder, channel->received + PL_FRAME_HEADER, payload);
		if (frame.type == PL_FRAME_READ || frame.type == PL_FRAME_ATOMIC || frame.type == PL_FRAME_RENDEZVOUS)
			note_request(intruder, number, &frame, 0);
		channel->counted += frame.type == PL_FRAME_WRITE || frame.type == PL_FRAME_EAGER ||
				    frame.type == PL_FRAME_RENDEZVOUS || frame.type == PL_FRAME_NOTIFY;
		channel->skip = payload;
	}
	channel->have -= used;
	memmove(channel->received, channel->received + used, channel->have);
	return used;
}

static void search_secret(struct channel *channel, const uint8_t *bytes, size_t length)
{
	uint8_t joint[2 * sizeof(channel->tail)];
	size_t more = PL_MIN(length, sizeof(channel->tail));

	REQUIRE(!secret_inside(bytes, length));
	memcpy(joint, channel->tail, channel->tail_length);
	memcpy(joint + channel->tail_length, bytes, more);
	REQUIRE(!secret_inside(joint, channel->tail_length + more));
	if (more < sizeof(channel->tail)) {
		channel->tail_length = 0; /* the next bytes are searched without these */
		return;
	}
	memcpy(channel->tail, bytes + length - more, more);
	channel->tail_length = (unsigned)more;
}

/* Returns false if nothing has arrived, or the channel has ended. */
static bool read_channel(struct intruder *intruder, unsigned number)
{
	struct channel *channel = &intruder->channels[number];
	struct iovec vector = { channel->received + channel->have, sizeof(channel->received) - channel->have };
	ssize_t got;

	if (channel->stream.fd < 0)
		return false;
	got = pl_stream_read(&channel->stream, &vector, 1);
	if (got == -EAGAIN)
		return false;
	if (got < 0) {
		pl_stream_close(&channel->stream);
		channel->stream = closed_stream;
		return false;
	}
	search_secret(channel, vector.iov_base, (size_t)got);
	channel->have += (size_t)got;
	while (number ? take_frame_bytes(intruder, number) : take_control_bytes(intruder, channel))
		;
	return true;
}

void intruder_read(struct intruder *intruder)
{
	for (unsigned i = 0; i < CHANNELS; i++)
		while (read_channel(intruder, i))
			;
}

void intruder_settle(struct intruder *intruder)
{
	bool any = true;

	/* The call of a program may have sent something, with no work left. */
	for (unsigned i = 0; i < 100 && any; i++) {
		any = world_progress(intruder->world);
		if (!(intruder->connection & FUZZ_UNREAD))
			intruder_read(intruder);
	}
}

/* -- sending --------------------------------------------------------------------------------------- */

void intruder_send(struct intruder *intruder, unsigned number, const void *bytes, size_t length)
{
	struct channel *channel = &intruder->channels[number];
	struct iovec vector = { (void *)bytes, length };

	if (channel->stream.fd < 0 || channel->jammed || length > intruder->budget)
		return;
	intruder->budget -= length;
	for (unsigned idle = 0; vector.iov_len && idle < 3;) {
		ssize_t sent = pl_stream_write(&channel->stream, &vector, 1);

		if (sent > 0) {
			vector.iov_base = (char *)vector.iov_base + sent;
			vector.iov_len -= (size_t)sent;
			idle = 0;
			continue;
		}
		if (sent != -EAGAIN)
			break;
		idle = world_progress(intruder->world) ? 0 : idle + 1;
		if (!(intruder->connection & FUZZ_UNREAD))
			intruder_read(intruder);
		if (channel->stream.fd < 0)
			return;
	}
	channel->jammed = vector.iov_len;
}

void intruder_send_control(struct intruder *intruder, const struct pl_control *message)
{
	uint8_t bytes[MESSAGE_MAX];
	int length = pl_control_encode(message, bytes, sizeof(bytes));

	if (length > 0)
		intruder_send(intruder, 0, bytes, (size_t)length);
}
