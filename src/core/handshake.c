/* SPDX-License-Identifier: BSD-2-Clause */
/* Hello messages, and control messages of a running peer. */
#include <openssl/sha.h>
#include <stdio.h>

#include "core/fabric.h"
#include "core/lane_auth.h"
#include "core/stream_ops.h"
#include "core/trust.h"

static void fill_hello(struct pl_peer *peer, struct pl_hello *hello)
{
	struct pl_context *context = peer->context;

	memset(hello, 0, sizeof(*hello));
	hello->version_min = hello->version_max = PL_PROTOCOL_VERSION;
	memcpy(hello->boot_id, context->boot_id, sizeof(hello->boot_id));
	memcpy(hello->context_id, context->id, sizeof(hello->context_id));
	hello->lanes = context->options.lanes;
	hello->eager_max = PL_EAGER_MAX;
	hello->window = PL_MESSAGE_WINDOW;
	hello->capabilities = PL_CAPABILITY_ASKS | PL_CAPABILITY_VISIBLE | PL_CAPABILITY_HEADERLESS |
			      PL_CAPABILITY_PACKED | PL_CAPABILITY_NOTIFY_DATA | PL_CAPABILITY_NOTIFY_RAILS |
			      PL_CAPABILITY_BOUND_MESSAGES | PL_CAPABILITY_STREAMS | PL_CAPABILITY_FRAMES_IN_PLACE |
			      PL_CAPABILITY_QUIET_FRAMES | PL_CAPABILITY_MANY_GATES | PL_CAPABILITY_PUSHED_FRAMES |
			      PL_CAPABILITY_CONFIRMS_LANES | PL_CAPABILITY_NOTIFY_LANES | PL_CAPABILITY_OWNER_COPIES |
			      PL_CAPABILITY_STREAM_TOKENS | PL_CAPABILITY_STREAM_LIMITS |
			      PL_CAPABILITY_PREPARED_FRAMES | PL_CAPABILITY_TRAILING_WORDS | PL_CAPABILITY_ECE |
			      PL_CAPABILITY_FINISH_LANES | PL_CAPABILITY_ASKED_REPORTS;
	if (context->options.encrypt_data != PL_DEFAULT)
		hello->flags = context->options.encrypt_data == PL_ON ? PL_HELLO_ENCRYPT_DATA : PL_HELLO_CLEAR_DATA;
	snprintf(hello->software, sizeof(hello->software), "peerlane %s", pl_version());
}

/* Computes the digest of a hello's body, as the other end does from the received bytes. */
static int digest_hello(const struct pl_control *hello, uint8_t digest[PL_SECRET])
{
	uint8_t buffer[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
	int length = pl_control_encode(hello, buffer, sizeof(buffer));

	if (length > 0)
		SHA256(buffer + PL_CONTROL_HEADER, (size_t)length - PL_CONTROL_HEADER, digest);
	return PL_MIN(length, 0);
}

int pl_peer_send_hello(struct pl_peer *peer, struct pl_error *error)
{
	struct pl_control hello = { .type = PL_CONTROL_HELLO };
	int rc;

	pl_peer_set_rate(peer);
	fill_hello(peer, &hello.hello);
	hello.hello.capabilities |= peer->refusal;
	rc = pl_fabrics_advertise(peer, &hello.hello, error);
	if (rc < 0)
		return rc;
	rc = digest_hello(&hello, peer->hello_digest);
	if (rc == 0)
		rc = pl_channel_send(&peer->channel, &hello);
	if (rc < 0)
		return pl_fail_errno(error, rc == -EPIPE ? -ECONNRESET : rc, "CONNECT-FAILED", "hello", NULL);
	return 0;
}

/* Returns the wire status that gives the reason to a refused initiator. */
static enum pl_wire_status hello_refusal_of(const struct pl_error *error)
{
	if (!strcmp(error->id, "FABRIC-NONE"))
		return PL_WIRE_NO_FABRIC;
	if (!strcmp(error->id, "SELF-CONNECTION"))
		return PL_WIRE_SELF;
	return !strcmp(error->id, "PROTOCOL-VERSION") ? PL_WIRE_VERSION : PL_WIRE_INTERNAL;
}

/*
 * Data between hosts is encrypted unless both ends decline. A fabric that cannot encrypt was selected only if no end
 * demands encryption.
 */
static bool encrypts_data(const struct pl_peer *peer, const struct pl_hello *hello)
{
	bool declined = peer->context->options.encrypt_data == PL_OFF && (hello->flags & PL_HELLO_CLEAR_DATA);

	return !peer->ops->clear && (peer->encrypt_demanded || !(peer->same_host || declined));
}

static int accept_hello(struct pl_peer *peer, const struct pl_hello *hello, const struct pl_fabric_advert **offer,
			struct pl_error *error)
{
	static const uint8_t unknown[16];
	struct pl_context *context = peer->context;

	if (hello->version_min > PL_PROTOCOL_VERSION || hello->version_max < PL_PROTOCOL_VERSION)
		return pl_fail(error, -EPROTO, "PROTOCOL-VERSION", "hello", NULL, "use releases of Peerlane that match",
			       "the other end (%s) speaks versions %u to %u, this end %u", hello->software,
			       hello->version_min, hello->version_max, PL_PROTOCOL_VERSION);
	/* An attacker that sends a hello back would make this end prove its key to itself. */
	if (peer->admission && !memcmp(hello->context_id, context->id, sizeof(context->id)))
		return pl_wire_fail(error, PL_WIRE_SELF, "hello", NULL);
	peer->encrypt_demanded = context->options.encrypt_data == PL_ON || (hello->flags & PL_HELLO_ENCRYPT_DATA);
	peer->same_host = !memcmp(hello->boot_id, context->boot_id, 16) && memcmp(hello->boot_id, unknown, 16);
	peer->asks = hello->capabilities & PL_CAPABILITY_ASKS;
	peer->flushes = hello->capabilities & PL_CAPABILITY_VISIBLE;
	peer->headerless = hello->capabilities & PL_CAPABILITY_HEADERLESS;
	peer->packs = hello->capabilities & PL_CAPABILITY_PACKED;
	peer->notify_data = hello->capabilities & PL_CAPABILITY_NOTIFY_DATA;
	peer->bound_messages = hello->capabilities & PL_CAPABILITY_BOUND_MESSAGES;
	peer->notify_rails = hello->capabilities & PL_CAPABILITY_NOTIFY_RAILS;
	peer->notify_lanes = hello->capabilities & PL_CAPABILITY_NOTIFY_LANES;
	peer->streams = hello->capabilities & PL_CAPABILITY_STREAMS;
	peer->frames_in_place = hello->capabilities & PL_CAPABILITY_FRAMES_IN_PLACE;
	peer->quiet_frames = hello->capabilities & PL_CAPABILITY_QUIET_FRAMES;
	peer->many_gates = hello->capabilities & PL_CAPABILITY_MANY_GATES;
	peer->pushed_frames = hello->capabilities & PL_CAPABILITY_PUSHED_FRAMES;
	peer->confirms_lanes = hello->capabilities & PL_CAPABILITY_CONFIRMS_LANES;
	peer->owner_copies = hello->capabilities & PL_CAPABILITY_OWNER_COPIES;
	peer->stream_tokens = hello->capabilities & PL_CAPABILITY_STREAM_TOKENS;
	peer->stream_limits = hello->capabilities & PL_CAPABILITY_STREAM_LIMITS;
	peer->prepared_frames = hello->capabilities & PL_CAPABILITY_PREPARED_FRAMES;
	peer->trailing_words = hello->capabilities & PL_CAPABILITY_TRAILING_WORDS;
	peer->ece = hello->capabilities & PL_CAPABILITY_ECE;
	peer->finish_lanes = hello->capabilities & PL_CAPABILITY_FINISH_LANES;
	peer->asked_reports = hello->capabilities & PL_CAPABILITY_ASKED_REPORTS;
	if (hello->capabilities % 256 && hello->capabilities % 256 < PL_REFUSAL_END)
		peer->refusal = (enum pl_refusal)(hello->capabilities % 256);
	if (!peer->initiator)
		pl_peer_set_rate(peer);
	*offer = pl_fabrics_select(peer, hello, error);
	if (!*offer)
		return error->code;
	peer->encrypt = encrypts_data(peer, hello);
	if (hello->eager_max < PL_EAGER_MAX || hello->window == 0 || hello->lanes == 0)
		return pl_fail(error, -EPROTO, "PROTOCOL", "hello", NULL, NULL, "the other end's limits are invalid");
	snprintf(peer->software, sizeof(peer->software), "%s", hello->software);
	snprintf(peer->program, sizeof(peer->program), "%s", hello->program);
	memcpy(peer->context_id, hello->context_id, sizeof(peer->context_id));
	peer->window = hello->window;
	peer->eager_max = PL_EAGER_MAX;
	peer->lanes = PL_MIN(PL_MAX(hello->lanes, context->options.lanes), (unsigned)PL_LANES_MAX);
	/* Several sockets would share the rate, and each would be read seldom. */
	if (peer->refusal == PL_REFUSAL_RATE)
		peer->lanes = 1;
	return 0;
}

static void fail_unexpected_message(struct pl_peer *peer)
{
	struct pl_error error;

	pl_fail(&error, -EPROTO, "PROTOCOL", "control message", NULL, NULL,
		"the other end sent a control message that does not belong here");
	pl_peer_lose(peer, &error);
}

/* Acceptor: derives the secret of both ends, and from then on accepts sockets that prove it. */
static int share_secret(struct pl_peer *peer, const uint8_t theirs[PL_SECRET], const struct pl_control *answer)
{
	uint8_t ours[PL_SECRET];
	int rc = digest_hello(answer, ours);

	if (rc == 0)
		rc = pl_peer_derive_secret(peer, theirs, ours);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&peer->context->lock);
	peer->joinable = true;
	pthread_mutex_unlock(&peer->context->lock);
	return 0;
}

/* Time until a hello is answered that no fabric can judge yet. */
#define ANSWER_AGAIN (10 * PL_NS_PER_MS)

/* Hello of the initiator that waits. */
struct pl_held_hello {
	struct pl_hello hello;
	uint8_t digest[PL_SECRET];
};

/* Answers the initiator's hello with the data to reach the endpoint. Returns -EAGAIN if a fabric must look again later. */
static int answer_hello(struct pl_peer *peer, const struct pl_hello *hello, const uint8_t digest[PL_SECRET])
{
	struct pl_control answer = { .type = PL_CONTROL_HELLO };
	const struct pl_fabric_advert *offer;
	struct pl_fabric_advert *choice;
	struct pl_error error;
	int rc = accept_hello(peer, hello, &offer, &error);

	if (rc == -EAGAIN)
		return rc;
	if (rc < 0) {
		answer.type = PL_CONTROL_REJECT;
		answer.reject.code = (int32_t)hello_refusal_of(&error);
		snprintf(answer.reject.id, sizeof(answer.reject.id), "%s", error.id);
		snprintf(answer.reject.message, sizeof(answer.reject.message), "%s", error.message);
		pl_channel_send(&peer->channel, &answer);
		pl_peer_open_failed(peer, &error);
		return 0;
	}
	rc = peer->ops->create(peer, &peer->endpoint, &error);
	if (rc < 0) {
		pl_peer_open_failed(peer, &error);
		return 0;
	}
	fill_hello(peer, &answer.hello);
	/* Only here, as releases of version 1 of the protocol do not accept extensions in the first hello. */
	memcpy(answer.hello.program, peer->context->program, sizeof(answer.hello.program));
	answer.hello.capabilities |= peer->refusal;
	answer.hello.fabric_count = 1;
	choice = &answer.hello.fabrics[0];
	snprintf(choice->name, sizeof(choice->name), "%s", peer->ops->name);
	choice->blob_length = (uint16_t)peer->ops->describe(peer->endpoint, choice->blob);
	rc = share_secret(peer, digest, &answer);
	if (rc == 0)
		rc = pl_channel_send(&peer->channel, &answer);
	if (rc < 0) {
		pl_fail_errno(&error, rc, "CONNECT-FAILED", "hello", NULL);
		pl_peer_open_failed(peer, &error);
	}
	return 0;
}

/* pl_fabrics_hold_time() limits these attempts. */
static void answer_hello_again(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, hello_timer);
	struct pl_held_hello *held = peer->held_hello;

	if (peer->dead)
		return;
	if (answer_hello(peer, &held->hello, held->digest) == -EAGAIN)
		pl_timer_set(peer->home, &peer->hello_timer, pl_now() + ANSWER_AGAIN);
}

static void take_hello(struct pl_peer *peer, const struct pl_hello *hello)
{
	struct pl_held_hello *held;
	uint8_t digest[PL_SECRET];
	struct pl_error error;

	SHA256(peer->channel.body, peer->channel.body_length, digest);
	if (answer_hello(peer, hello, digest) != -EAGAIN)
		return;
	held = pl_alloc(&peer->context->allocator, sizeof(*held));
	if (!held) {
		pl_fail_memory(&error, "hello");
		pl_peer_open_failed(peer, &error);
		return;
	}
	held->hello = *hello;
	memcpy(held->digest, digest, sizeof(digest));
	peer->held_hello = held;
	peer->hello_until = pl_deadline(pl_now(), pl_fabrics_hold_time(peer, hello));
	pl_timer_init(&peer->hello_timer, answer_hello_again);
	pl_timer_set(peer->home, &peer->hello_timer, pl_now() + ANSWER_AGAIN);
}

/* Connects the endpoint after the acceptor's hello. */
static void connect_after_hello(struct pl_peer *peer, const struct pl_hello *hello)
{
	const struct pl_fabric_advert *offer;
	struct pl_error error;
	uint8_t theirs[PL_SECRET];
	int rc = accept_hello(peer, hello, &offer, &error);

	SHA256(peer->channel.body, peer->channel.body_length, theirs);
	if (rc == 0 && pl_peer_derive_secret(peer, peer->hello_digest, theirs) < 0)
		rc = pl_fail_errno(&error, -EPROTO, "TLS-FAILED", "hello", NULL);
	if (rc == 0)
		rc = peer->ops->create(peer, &peer->endpoint, &error);
	if (rc == 0)
		pl_peer_limit_attempt(peer);
	if (rc == 0)
		rc = peer->ops->connect(peer->endpoint, offer->blob, offer->blob_length, &error);
	if (rc < 0)
		pl_peer_open_failed(peer, &error);
}

static void handle_reject(struct pl_peer *peer, const struct pl_reject *reject)
{
	char address[80];
	struct pl_error error;

	pl_address_format((struct sockaddr *)&peer->address, address, sizeof(address));
	if (reject->code == PL_WIRE_REFUSED && !pl_trust_shows_identity(peer->context))
		pl_fail(&error, -EACCES, "IDENTITY-NEEDED", "connect", address,
			"make an identity (peerlane key generate FILE), have it admitted, and set pl_options.identity",
			"the other end refuses this end, which shows no identity");
	else
		pl_wire_fail(&error, (uint32_t)reject->code, "connect", address);
	/* The other end knows why its fabrics do not fit; the decoder made the text printable. */
	if (reject->code == PL_WIRE_NO_FABRIC && reject->message[0])
		snprintf(error.message, sizeof(error.message), "%s", reject->message);
	/* The other end insists on the fabric that failed. */
	pl_peer_open_failed(peer, reject->code == PL_WIRE_NO_FABRIC && peer->failed ? &peer->loss : &error);
}

static void release_key(struct pl_peer *peer, const struct pl_release *release)
{
	struct pl_reader reader;
	uint64_t id;

	/* A key blob begins with the key's id on every fabric. */
	pl_reader_init(&reader, release->key, release->key_length);
	id = pl_get_u64(&reader);
	if (!reader.bad)
		pl_key_destroy(peer, id);
}

/* A message came by the control channel, as data sockets are in the clear. */
static void take_message(struct pl_peer *peer, const struct pl_control_message *message)
{
	const struct pl_frame frame = { .type = PL_FRAME_EAGER, .key = message->tag, .length = message->length };
	struct pl_error error;
	int rc = pl_message_arrived(peer, &frame, message->payload);

	if (rc == -EPROTO) {
		fail_unexpected_message(peer);
	} else if (rc < 0) {
		pl_fail_memory(&error, "control message");
		pl_peer_lose(peer, &error);
	}
}

static void take_rail_message(struct pl_peer *peer, const struct pl_rail_message *message)
{
	if (!peer->ops->rail || peer->ops->rail(peer->endpoint, message) < 0)
		fail_unexpected_message(peer);
}

static void take_rails_message(struct pl_peer *peer, const struct pl_rails_message *message)
{
	if (!peer->ops->rails || peer->ops->rails(peer->endpoint, message) < 0)
		fail_unexpected_message(peer);
}

static void take_stream_message(struct pl_peer *peer, const struct pl_control_message *message)
{
	if (pl_stream_ops.message(peer, message->payload, message->length) < 0)
		fail_unexpected_message(peer);
}

static void control_running(struct pl_peer *peer, const struct pl_control *message)
{
	switch (message->type) {
	case PL_CONTROL_RAIL:
		take_rail_message(peer, &message->rail);
		break;
	case PL_CONTROL_RAILS:
		take_rails_message(peer, &message->rails);
		break;
	case PL_CONTROL_IMPORT:
		pl_import_serve(peer, &message->import);
		break;
	case PL_CONTROL_IMPORTED:
		pl_imported_arrived(peer, &message->imported);
		break;
	case PL_CONTROL_RELEASE:
		release_key(peer, &message->release);
		break;
	case PL_CONTROL_LANES:
		if (!peer->initiator)
			fail_unexpected_message(peer);
		else
			peer->ops->widen(peer->endpoint, message->lanes);
		break;
	case PL_CONTROL_MESSAGE:
		take_message(peer, &message->message);
		break;
	case PL_CONTROL_STREAM:
		take_stream_message(peer, &message->message);
		break;
	case PL_CONTROL_BYE:
		peer->leaving = true;
		break;
	default:
		fail_unexpected_message(peer);
	}
}

static void control_opening(struct pl_peer *peer, const struct pl_control *message)
{
	if (message->type == PL_CONTROL_HELLO && !peer->endpoint && !peer->held_hello) {
		if (peer->initiator)
			connect_after_hello(peer, &message->hello);
		else
			take_hello(peer, &message->hello);
	} else if (message->type == PL_CONTROL_REJECT && peer->initiator) {
		handle_reject(peer, &message->reject);
	} else if (message->type == PL_CONTROL_RAIL && peer->endpoint) {
		take_rail_message(peer, &message->rail);
	} else if (peer->endpoint && peer->ops->up && peer->ops->up(peer->endpoint)) {
		pl_peer_up(peer);
		/* Without its listener, the peer is dead. */
		if (atomic_load(&peer->state) == PL_PEER_UP)
			control_running(peer, message);
	} else if (peer->initiator && peer->endpoint && !peer->ops->up) {
		/* The acceptor is up. Lane 0 will tell so, on a connection of its own that this one may overtake. */
		pl_channel_postpone(&peer->channel);
	} else {
		fail_unexpected_message(peer);
	}
}

void pl_peer_control(struct pl_channel *channel, const struct pl_control *message)
{
	struct pl_peer *peer = pl_container_of(channel, struct pl_peer, channel);

	if (atomic_load(&peer->state) == PL_PEER_OPENING)
		control_opening(peer, message);
	else if (atomic_load(&peer->state) == PL_PEER_UP)
		control_running(peer, message);
}

void pl_peer_channel_drained(struct pl_channel *channel)
{
	struct pl_peer *peer = pl_container_of(channel, struct pl_peer, channel);

	if (atomic_load(&peer->state) != PL_PEER_UP)
		return;
	pl_answers_resume(peer);
	pl_imports_resume(peer);
	pl_message_resume(peer);
}

void pl_peer_up(struct pl_peer *peer)
{
	struct pl_operation *opening = peer->opening;
	struct pl_error error;
	int rc;

	if (peer->dead || atomic_load(&peer->state) != PL_PEER_OPENING)
		return;
	rc = pl_channel_resume(&peer->channel);
	if (rc < 0) {
		pl_fail_errno(&error, rc, "SYSTEM", "epoll_ctl", NULL);
		pl_peer_open_failed(peer, &error);
		return;
	}
	pl_peer_note_connected(peer);
	atomic_store(&peer->state, PL_PEER_UP);
	pl_timer_clear(peer->home, &peer->timer);
	peer->loss = (struct pl_error){ 0 };
	peer->opening = NULL;
	pl_dial_turn_over(peer);
	if (opening) {
		opening->connecting = NULL;
		opening->completion.peer = peer;
		opening->completion.fabric = peer->ops->name;
		pl_operation_pending_done(opening);
	} else if (peer->listener && !pl_listener_deliver(peer->listener, peer)) {
		atomic_store(&peer->state, PL_PEER_OPENING);
		pl_peer_open_failed(peer, NULL);
	}
}
