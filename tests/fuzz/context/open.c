/* SPDX-License-Identifier: BSD-2-Clause */
/* The intruder opens its connection and its lanes as an honest peer does, from either end. */
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/socket.h>
#include <unistd.h>

#include "context/intruder.h"
#include "support/attack.h"

#define PATIENCE (5 * PL_NS_PER_S)
#define NEWEST \
	(PL_CAPABILITY_NOTIFY_LANES | PL_CAPABILITY_CONFIRMS_LANES | PL_CAPABILITY_FINISH_LANES | \
	 PL_CAPABILITY_TRAILING_WORDS | PL_CAPABILITY_FRAMES_IN_PLACE | PL_CAPABILITY_QUIET_FRAMES | \
	 PL_CAPABILITY_PUSHED_FRAMES | PL_CAPABILITY_PREPARED_FRAMES | PL_CAPABILITY_STREAM_LIMITS | \
	 PL_CAPABILITY_ASKED_REPORTS)

static const struct pl_stream closed_stream = { .fd = -1 };

/* Reads exactly these bytes while the victim works.  Returns false if the victim closed. */
static bool receive_exactly(struct intruder *intruder, struct pl_stream *stream, void *bytes, size_t length)
{
	uint64_t end = fuzz_cpu_time() + PATIENCE;
	struct iovec vector = { bytes, length };

	while (vector.iov_len) {
		ssize_t got = pl_stream_read(stream, &vector, 1);

		if (got == -EAGAIN) {
			REQUIRE(fuzz_cpu_time() < end);
			world_progress(intruder->world);
			continue;
		}
		if (got < 0)
			return false;
		vector.iov_base = (char *)vector.iov_base + got;
		vector.iov_len -= (size_t)got;
	}
	return true;
}

/* The messages of an opening fit into the buffers of a socket. */
static void send_opening(struct pl_stream *stream, const void *bytes, size_t length)
{
	struct iovec vector = { (void *)bytes, length };

	REQUIRE(pl_stream_write(stream, &vector, 1) == (ssize_t)length);
}

/* Waits for the victim to connect.  Returns -1 if it does not, and need not. */
static int accept_victim(struct intruder *intruder, bool must)
{
	uint64_t end = fuzz_cpu_time() + PATIENCE;

	for (unsigned i = 0; must || i < 3; i++) {
		int fd = accept4(intruder->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			intruder_tune(fd);
			return fd;
		}
		REQUIRE(fuzz_cpu_time() < end);
		world_progress(intruder->world);
	}
	return -1;
}

static bool finish_tls(struct intruder *intruder, int fd, bool server)
{
	struct pl_stream *stream = &intruder->channels[0].stream;
	uint64_t end = fuzz_cpu_time() + PATIENCE;
	int rc;

	REQUIRE(pl_stream_open(stream, fd, intruder->tls, server, NULL) == 0);
	while ((rc = pl_stream_handshake(stream, NULL, NULL)) == -EAGAIN) {
		REQUIRE(fuzz_cpu_time() < end);
		world_progress(intruder->world);
	}
	return rc == 0;
}

static struct pl_control intruder_hello(const struct intruder *intruder)
{
	struct pl_control hello = attack_hello();

	hello.hello.lanes = intruder->lanes;
	hello.hello.capabilities = PL_CAPABILITY_NOTIFY_DATA | PL_CAPABILITY_STREAMS | PL_CAPABILITY_STREAM_TOKENS;
	if (intruder->connection & FUZZ_NEWEST)
		hello.hello.capabilities |= NEWEST;
	hello.hello.flags = intruder->connection & FUZZ_ENCRYPTED ? PL_HELLO_ENCRYPT_DATA : 0;
	if (intruder->connection & FUZZ_FOREIGN_HOST)
		memset(hello.hello.boot_id, 1, sizeof(hello.hello.boot_id));
	if (intruder->connection & FUZZ_VICTIM_CONNECTS)
		hello.hello.fabrics[0].blob_length = sizeof(uint64_t); /* peer index 0 */
	return hello;
}

/* Exchanges the hellos, and derives the secret of the peer. */
static bool exchange_hellos(struct intruder *intruder)
{
	struct pl_control hello = intruder_hello(intruder), theirs;
	bool initiator = !(intruder->connection & FUZZ_VICTIM_CONNECTS);
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX], digests[2][PL_SECRET];
	struct pl_stream *stream = &intruder->channels[0].stream;
	struct bytes bytes = attack_encode(&hello);
	struct pl_reader reader;
	uint32_t length;
	uint16_t type;

	if (initiator)
		send_opening(stream, bytes.data, bytes.length);
	if (!receive_exactly(intruder, stream, header, sizeof(header)))
		return false;
	REQUIRE(pl_control_header_decode(header, &type, &length) == 0 && type == PL_CONTROL_HELLO);
	if (!receive_exactly(intruder, stream, body, length))
		return false;
	REQUIRE(pl_control_decode(type, body, length, &theirs) == 0);
	SHA256(body, length, digests[initiator]);
	SHA256(bytes.data + PL_CONTROL_HEADER, bytes.length - PL_CONTROL_HEADER, digests[!initiator]);
	pl_reader_init(&reader, theirs.hello.fabrics[0].blob, theirs.hello.fabrics[0].blob_length);
	intruder->peer_index = pl_get_u64(&reader);
	intruder->self.initiator = initiator;
	intruder->self.secret = intruder->secret;
	intruder->self.channel.stream = *stream;
	REQUIRE(pl_peer_derive_secret(&intruder->self, digests[0], digests[1]) == 0);
	if (!initiator)
		send_opening(stream, bytes.data, bytes.length);
	return true;
}

static bool encrypts(const struct intruder *intruder)
{
	return intruder->connection & (FUZZ_ENCRYPTED | FUZZ_FOREIGN_HOST);
}

static bool lane_as_initiator(struct intruder *intruder, struct pl_stream *stream, unsigned number)
{
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME];
	struct pl_lane_auth auth;
	uint32_t status;

	REQUIRE(pl_stream_open(stream, intruder_dial(intruder->world), NULL, false, NULL) == 0);
	REQUIRE(pl_lane_auth_hello(&auth, intruder->peer_index, (uint16_t)number) == 0);
	send_opening(stream, auth.hello, sizeof(auth.hello));
	if (!receive_exactly(intruder, stream, auth.challenge, sizeof(auth.challenge)) ||
	    pl_lane_auth_prove(&auth, &intruder->self, proof) < 0)
		return false;
	send_opening(stream, proof, sizeof(proof));
	if (encrypts(intruder))
		REQUIRE(pl_lane_auth_seal(&auth, &intruder->self, stream) == 0);
	if (!receive_exactly(intruder, stream, welcome, sizeof(welcome)))
		return false;
	REQUIRE(pl_lane_welcome_decode(welcome, &status) == 0 && status == PL_WIRE_OK);
	return true;
}

static bool lane_as_acceptor(struct intruder *intruder, struct pl_stream *stream)
{
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME];
	struct pl_lane_auth auth;
	int fd = accept_victim(intruder, intruder->lanes_opened == 1);

	if (fd < 0)
		return false;
	REQUIRE(pl_stream_open(stream, fd, NULL, true, NULL) == 0);
	if (!receive_exactly(intruder, stream, auth.hello, sizeof(auth.hello)))
		return false;
	REQUIRE(pl_lane_auth_challenge(&auth, &intruder->self) == 0);
	send_opening(stream, auth.challenge, sizeof(auth.challenge));
	if (!receive_exactly(intruder, stream, proof, sizeof(proof)))
		return false;
	REQUIRE(pl_lane_auth_check(&auth, &intruder->self, proof));
	if (encrypts(intruder))
		REQUIRE(pl_lane_auth_seal(&auth, &intruder->self, stream) == 0);
	pl_lane_welcome_encode(PL_WIRE_OK, welcome);
	send_opening(stream, welcome, sizeof(welcome));
	world_progress(intruder->world);
	return true;
}

static void reset_channel(struct channel *channel)
{
	if (channel->stream.fd >= 0) {
		intruder_reset_at_close(channel->stream.fd);
		pl_stream_close(&channel->stream);
	}
	memset(channel, 0, sizeof(*channel));
	channel->stream = closed_stream;
}

bool intruder_open_lane(struct intruder *intruder, unsigned lane, unsigned number)
{
	struct channel *channel = &intruder->channels[1 + lane];
	bool opened;

	if (++intruder->lanes_opened > OPENINGS)
		return false;
	reset_channel(channel);
	if (intruder->connection & FUZZ_VICTIM_CONNECTS)
		opened = lane_as_acceptor(intruder, &channel->stream);
	else
		opened = lane_as_initiator(intruder, &channel->stream, number);
	if (!opened && channel->stream.fd >= 0)
		reset_channel(channel);
	return opened;
}

/* Lanes of the victim that nobody accepted. */
static void reset_unaccepted(const struct intruder *intruder)
{
	for (int fd; (fd = accept4(intruder->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
		intruder_reset_at_close(fd);
		close(fd);
	}
}

bool intruder_connect(struct intruder *intruder, unsigned connection, unsigned lanes)
{
	bool victim_connects = connection & FUZZ_VICTIM_CONNECTS;
	struct world *world = intruder->world;
	int fd;

	intruder->connection = connection;
	intruder->lanes = lanes;
	intruder->budget = BUDGET;
	intruder->request_count = intruder->key_count = intruder->stranger_count = 0;
	intruder->cookie = intruder->announced = 0;
	memset(intruder->stream_tokens, 0, sizeof(intruder->stream_tokens));
	intruder->lanes_opened = 0;
	if (victim_connects) {
		/* The victim may have opened lanes of the last input again before it noticed that the control channel was lost. */
		reset_unaccepted(intruder);
		REQUIRE(pl_connect_start(world->victim, intruder->address, 0, FUZZ_USERS, NULL, NULL) == 0);
		world->outstanding++;
		fd = accept_victim(intruder, true);
	} else {
		fd = intruder_dial(world);
	}
	if (!finish_tls(intruder, fd, victim_connects) || !exchange_hellos(intruder))
		return false;
	if (!intruder_open_lane(intruder, 0, 0))
		return false;
	world_progress(world);
	return true;
}

void intruder_disconnect(struct intruder *intruder)
{
	for (unsigned i = 0; i < CHANNELS; i++)
		reset_channel(&intruder->channels[i]);
	while (intruder->stranger_count) {
		intruder_reset_at_close(intruder->strangers[--intruder->stranger_count]);
		close(intruder->strangers[intruder->stranger_count]);
	}
	reset_unaccepted(intruder);
}
