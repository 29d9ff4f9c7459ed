/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening a peer: from an address to a hello (initiator), and from an accepted socket to a peer (acceptor). */
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/trust.h"

bool pl_address_allowed(const struct pl_context *context, const struct sockaddr *address, bool passive)
{
	return pl_tls_has_key(context->tls) || context->options.insecure == PL_ON ||
	       pl_trust_decides(context, passive) || pl_address_is_loopback(address);
}

int pl_address_resolve(const char *address, bool passive, struct addrinfo **result, struct pl_error *error)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0 };
	struct pl_address_text text;
	int rc;

	if (!address)
		return pl_fail(error, -EINVAL, "ADDRESS-SYNTAX", "address", NULL, "write \"host:port\"",
			       "no address given");
	rc = pl_address_parse(address, NULL, &text, error);
	if (rc < 0)
		return rc;
	rc = getaddrinfo(text.host[0] ? text.host : NULL, text.port, &hints, result);
	if (rc == EAI_MEMORY)
		return pl_fail_memory(error, "getaddrinfo");
	if (rc)
		return pl_fail(error, -EINVAL, "ADDRESS-UNKNOWN", "getaddrinfo", address,
			       "check the host's name, or use its numeric address", "%s", gai_strerror(rc));
	return 0;
}

static void remember_addresses(struct pl_peer *peer, int fd)
{
	socklen_t length = sizeof(peer->local_address);

	getsockname(fd, (struct sockaddr *)&peer->local_address, &length);
	length = sizeof(peer->address);
	getpeername(fd, (struct sockaddr *)&peer->address, &length);
}

/* -- initiator ---------------------------------------------------------------------------------- */

static void dial_next_target(struct pl_peer *peer, int last);

static void advance_opening(struct pl_peer *peer, uint32_t events);

static bool dialing_ready(struct pl_source *source, uint32_t events)
{
	struct pl_peer *peer = pl_container_of(source, struct pl_peer, dialing);

	if (pl_engine_may_compute(peer->home))
		advance_opening(peer, events);
	return true;
}

static void fail_opening(struct pl_peer *peer, int code, const char *call)
{
	struct pl_error error;
	char object[PL_ADDRESS_FORMAT_MAX] = "";

	if (peer->target_next)
		pl_address_format((struct sockaddr *)&peer->targets[peer->target_next - 1], object, sizeof(object));
	pl_fail_errno(&error, code, "CONNECT-FAILED", call, object);
	if (code == -ECONNREFUSED)
		pl_fail(&error, code, "CONNECT-REFUSED", call, object,
			"start the other end, and check the port that it prints", "no process listens at the address");
	pl_peer_open_failed(peer, &error);
}

bool pl_peer_begin_judging(struct pl_peer *peer, void (*run)(struct pl_callback_wait *))
{
	struct pl_context *context = peer->context;
	const unsigned engine = pl_context_engine_index(context, peer->home);

	if (!pl_trust_asks_program(context))
		return true;
	peer->judging.run = run;
	return pl_callback_turn_begin(&context->callback_turns.queues[engine], &peer->judging);
}

void pl_peer_end_judging(struct pl_peer *peer)
{
	if (pl_trust_asks_program(peer->context))
		pl_callback_turn_end(&peer->context->callback_turns);
}

static void resume_opening(struct pl_callback_wait *wait)
{
	struct pl_peer *peer = pl_container_of(wait, struct pl_peer, judging);
	int rc = pl_source_add(peer->home, &peer->dialing, EPOLLIN);

	if (rc < 0)
		fail_opening(peer, rc, "epoll_ctl");
	else
		advance_opening(peer, EPOLLIN);
}

/* Judges the acceptor in the turn of the callbacks. Returns -EINPROGRESS if the peer waits for it. */
static int judge_opening(struct pl_peer *peer, int (*judge)(struct pl_peer *, struct pl_error *),
			 struct pl_error *error)
{
	int rc;

	if (!pl_peer_begin_judging(peer, resume_opening)) {
		/* Bytes and the end of the connection wait too: epoll would report them over and over. */
		pl_source_remove(&peer->dialing);
		return -EINPROGRESS;
	}
	rc = judge(peer, error);
	pl_peer_end_judging(peer);
	return rc;
}

/* Judges the acceptor, exchanges proofs, and judges it again after a reload. Results of judge_opening() and pl_peer_prove(). */
static int prove_opening(struct pl_peer *peer, struct pl_error *error)
{
	int rc = 0;

	if (peer->proving == PL_PROOF_NONE)
		rc = judge_opening(peer, pl_peer_judge, error);
	if (rc == 0)
		rc = pl_peer_prove(peer, error);
	/* The reload left out the peer, which has no channel yet. */
	if (rc == 0 && pl_peer_judgement_outdated(peer))
		rc = judge_opening(peer, pl_peer_judge_again, error);
	return rc;
}

/* The socket is connected: TLS handshake, then the hello. */
static void advance_opening(struct pl_peer *peer, uint32_t events)
{
	char object[PL_ADDRESS_FORMAT_MAX];
	struct pl_error error;
	bool refused;
	int rc;

	if (peer->incoming.fd < 0) {
		int failure = 0;
		socklen_t length = sizeof(failure);

		if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		getsockopt(peer->dialing.fd, SOL_SOCKET, SO_ERROR, &failure, &length);
		if (failure) {
			dial_next_target(peer, -failure);
			return;
		}
		remember_addresses(peer, peer->dialing.fd);
		rc = pl_stream_open(&peer->incoming, peer->dialing.fd, peer->context->tls, false, &error);
		if (rc < 0) {
			pl_peer_open_failed(peer, &error);
			return;
		}
	}
	pl_address_format((struct sockaddr *)&peer->address, object, sizeof(object));
	rc = pl_stream_handshake(&peer->incoming, object, &error);
	if (rc == -EAGAIN) {
		pl_source_watch(&peer->dialing, peer->incoming.want);
		return;
	}
	if (rc == 0)
		rc = prove_opening(peer, &error);
	if (rc == -EINPROGRESS)
		return;
	if (rc == -EAGAIN) {
		pl_source_watch(&peer->dialing, peer->incoming.want);
		return;
	}
	pl_source_remove(&peer->dialing);
	peer->dialing.fd = -1; /* the stream owns the descriptor now */
	if (rc < 0) {
		pl_peer_open_failed(peer, &error);
		return;
	}
	peer->channel.message = pl_peer_control;
	peer->channel.closed = pl_peer_channel_closed;
	peer->channel.drained = pl_peer_channel_drained;
	refused = peer->proving == PL_PROOF_REFUSED;
	rc = pl_channel_open(&peer->channel, peer->home, &peer->incoming, refused ? peer->incoming_prefix : NULL,
			     refused ? sizeof(peer->incoming_prefix) : 0);
	if (rc < 0)
		fail_opening(peer, rc, "hello");
	else if (!refused && pl_peer_send_hello(peer, &error) < 0)
		pl_peer_open_failed(peer, &error);
}

/* Tries the next address of a name. `last` is the error of the address before. */
static void dial_next_target(struct pl_peer *peer, int last)
{
	pl_source_remove(&peer->dialing);
	if (peer->dialing.fd >= 0)
		close(peer->dialing.fd);
	peer->dialing.fd = -1;
	while (peer->target_next < peer->target_count) {
		const struct sockaddr *target = (struct sockaddr *)&peer->targets[peer->target_next++];
		int fd = pl_socket_connect(target, &peer->context->options);

		if (fd < 0) {
			last = fd;
			continue;
		}
		peer->dialing.fd = fd;
		peer->dialing.ready = dialing_ready;
		last = pl_source_add(peer->home, &peer->dialing, EPOLLOUT);
		if (last == 0)
			return;
		close(fd);
		peer->dialing.fd = -1;
	}
	fail_opening(peer, last, "connect");
}

static void connect_run(struct pl_task *task)
{
	struct pl_operation *operation = pl_operation_of_task(task);

	pl_operation_begin(operation);
	operation->connecting->opening_begun = true;
	pl_dial_in_turn(operation->connecting);
}

void pl_peer_dial(struct pl_peer *peer)
{
	dial_next_target(peer, -EINVAL);
}

/* -- another fabric ------------------------------------------------------------------------------- */

/* Shares of the connect timeout: for a fabric that can be replaced by another one, and for the remaining attempts. */
#define ATTEMPTS 3
#define REMAINDER 16

bool pl_peer_is_replaceable(const struct pl_peer *peer)
{
	return peer->opening && !atomic_load(&peer->opening->canceled) && peer->ops->uncertain &&
	       peer->context->fabric_count > 1;
}

static void expire_attempt(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, timer);
	char address[PL_ADDRESS_FORMAT_MAX];
	struct pl_error error;

	pl_peer_format_address(peer, address, sizeof(address));
	pl_fail(&error, -ETIMEDOUT, "CONNECT-TIMEOUT", "connect", address,
		"see whether a firewall lets the fabric's packets through, or choose another one",
		"the %s fabric did not connect in time", peer->ops->name);
	pl_peer_lose(peer, &error);
}

void pl_peer_limit_attempt(struct pl_peer *peer)
{
	uint64_t now = pl_now(), left;

	if (!peer->opening || !peer->ops->uncertain)
		return;
	left = peer->opening->deadline > now ? peer->opening->deadline - now : 0;
	if (pl_peer_is_replaceable(peer))
		left = PL_MIN(left, peer->context->options.connect_timeout) / ATTEMPTS;
	else
		left -= left / REMAINDER; /* leaves time to report the failed fabric by name */
	peer->timer.expire = expire_attempt;
	pl_timer_set(peer->home, &peer->timer, pl_deadline(now, left));
}

bool pl_peer_replace(struct pl_peer *peer, const struct pl_error *error)
{
	struct pl_peer *next;

	if (!pl_peer_is_replaceable(peer) || error->code == -EPROTO)
		return false;
	if (peer->endpoint && peer->ops->replaced)
		peer->ops->replaced(peer->endpoint);
	/* The lock of the operation's home engine is held. */
	next = pl_peer_new(peer->context, peer->home, true, NULL);
	if (!next)
		return false;
	next->failed = peer->ops;
	next->loss = *error;
	next->refusal = PL_REFUSAL_CARDS;
	next->server_name = peer->server_name;
	peer->server_name = NULL;
	pl_event_log_continue(&next->events, &peer->events);
	pl_peer_note_error(next, PL_EVENT_FABRIC_FAILED, 0, error);
	next->targets = peer->targets;
	next->target_count = peer->target_count;
	/* Starts with the address that answered before. */
	next->target_next = peer->target_next - 1;
	peer->targets = NULL;
	peer->target_count = peer->target_next = 0;
	next->opening = peer->opening;
	next->opening_begun = true;
	next->opening->connecting = next;
	peer->opening = NULL;
	dial_next_target(next, -EINVAL);
	return true;
}

/* -- public functions ----------------------------------------------------------------------------- */

static int store_targets(struct pl_peer *peer, const char *address, const struct addrinfo *addresses,
			 struct pl_error *error)
{
	unsigned count = 0;

	for (const struct addrinfo *at = addresses; at; at = at->ai_next)
		count++;
	peer->targets = pl_zalloc(&peer->context->allocator, count * sizeof(*peer->targets));
	if (!peer->targets)
		return pl_fail_memory(error, "pl_connect");
	for (const struct addrinfo *at = addresses; at; at = at->ai_next)
		if (pl_address_allowed(peer->context, at->ai_addr, false))
			memcpy(&peer->targets[peer->target_count++], at->ai_addr, at->ai_addrlen);
	if (peer->target_count == 0)
		return pl_fail(
			error, -EPERM, "INSECURE-ADDRESS", "pl_connect", address,
			"set pl_options.key at both ends, or pl_options.insecure to allow connections without a key",
			"the address is not loopback and there is no key");
	return 0;
}

/* Keeps the name under which known hosts have the server. */
static int store_server_name(struct pl_peer *peer, const char *address, const char *server, struct pl_error *error)
{
	char name[PL_HOST_MAX];
	int rc;

	if (!peer->context->trust && !pl_tls_has_key(peer->context->tls))
		return 0;
	rc = server ? snprintf(name, sizeof(name), "%s", server) : pl_trust_server_name(address, name, error);
	if (rc < 0)
		return rc;
	peer->server_name = pl_alloc(&peer->context->allocator, strlen(name) + 1);
	if (!peer->server_name)
		return pl_fail_memory(error, "pl_connect");
	strcpy(peer->server_name, name);
	return 0;
}

static int start_connecting(struct pl_context *context, const char *address, const char *server, uint64_t timeout,
			    uint64_t user_data, struct pl_operation **handle, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation = NULL;
	struct addrinfo *addresses;
	struct pl_peer *peer;
	int rc = pl_context_check_process(context, "pl_connect", error);

	if (rc == 0)
		rc = pl_address_resolve(address, false, &addresses, error);
	if (rc < 0)
		return rc;
	rc = pl_context_use_tls(context, error);
	if (rc < 0) {
		freeaddrinfo(addresses);
		return rc;
	}
	attributes.timeout = timeout ? timeout : context->options.connect_timeout;
	attributes.user_data = user_data;
	peer = pl_peer_new(context, pl_context_pick_engine(context), true, error);
	rc = peer ? store_targets(peer, address, addresses, error) : -ENOMEM;
	freeaddrinfo(addresses);
	if (rc == 0)
		rc = store_server_name(peer, address, server, error);
	if (rc == 0) {
		operation = pl_operation_new(context, NULL, PL_KIND_CONNECT, &attributes, error);
		rc = operation ? 0 : -ENOMEM;
	}
	if (rc < 0) {
		if (peer)
			pl_peer_destroy(peer, pl_close_end(), rc, NULL);
		return rc;
	}
	operation->home = peer->home;
	operation->connecting = peer;
	operation->completion.fabric = peer->ops->name;
	peer->opening = operation;
	pl_operation_submit(operation, connect_run, handle);
	return 0;
}

int pl_connect_start(struct pl_context *context, const char *address, uint64_t timeout, uint64_t user_data,
		     struct pl_operation **handle, struct pl_error *error)
{
	return start_connecting(context, address, NULL, timeout, user_data, handle, error);
}

int pl_connect_named(struct pl_context *context, const char *address, const char *server, uint64_t timeout,
		     struct pl_peer **peer, struct pl_error *error)
{
	struct pl_operation *operation;
	struct pl_completion completion;
	int rc = start_connecting(context, address, server, timeout, 0, &operation, error);

	*peer = NULL;
	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, &completion, error);
	if (rc == 0)
		*peer = completion.peer;
	return rc;
}

int pl_connect(struct pl_context *context, const char *address, uint64_t timeout, struct pl_peer **peer,
	       struct pl_error *error)
{
	return pl_connect_named(context, address, NULL, timeout, peer, error);
}

/* -- acceptor ----------------------------------------------------------------------------------- */

static void expire_handshake(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, timer);
	struct pl_error error;

	pl_fail(&error, -ETIMEDOUT, "CONNECT-TIMEOUT", "accept", NULL, NULL, "the handshake was not finished in time");
	pl_peer_lose(peer, &error);
}

static void resume_accepted(struct pl_callback_wait *wait);

/* Judges the other end again after a reload, then opens the channel. */
static void open_accepted(struct pl_peer *peer)
{
	struct pl_error error;
	int rc = 0;

	if (pl_peer_judgement_outdated(peer)) {
		if (!pl_peer_begin_judging(peer, resume_accepted))
			return;
		rc = pl_peer_judge_again(peer, &error);
		pl_peer_end_judging(peer);
	}
	if (rc < 0) {
		pl_peer_open_failed(peer, &error);
		return;
	}
	rc = pl_channel_open(&peer->channel, peer->home, &peer->incoming, peer->incoming_prefix,
			     sizeof(peer->incoming_prefix));
	if (rc < 0) {
		pl_fail_errno(&error, rc, "SYSTEM", "accept", NULL);
		pl_peer_open_failed(peer, &error);
	}
}

static void resume_accepted(struct pl_callback_wait *wait)
{
	open_accepted(pl_container_of(wait, struct pl_peer, judging));
}

static void run_accepted_stream(struct pl_task *task)
{
	struct pl_peer *peer = pl_container_of(task, struct pl_peer, task);

	peer->timer.expire = expire_handshake;
	pl_timer_set(peer->home, &peer->timer, pl_deadline(pl_now(), peer->context->options.connect_timeout));
	peer->channel.message = pl_peer_control;
	peer->channel.closed = pl_peer_channel_closed;
	peer->channel.drained = pl_peer_channel_drained;
	open_accepted(peer);
}

void pl_peer_accept_stream(struct pl_listener *listener, struct pl_stream *stream, const uint8_t magic[4],
			   struct pl_admission *admission)
{
	struct pl_context *context = listener->context;
	struct pl_peer *peer = pl_peer_new(context, pl_context_pick_engine(context), false, NULL);

	if (!peer) {
		atomic_fetch_sub(&context->accepted, 1);
		pl_stream_close(stream);
		pl_free(&context->allocator, admission);
		return;
	}
	peer->admission = admission;
	remember_addresses(peer, stream->fd);
	atomic_fetch_add(&listener->references, 1);
	peer->listener = listener;
	peer->incoming = *stream;
	stream->fd = -1;
	stream->ssl = NULL;
	memcpy(peer->incoming_prefix, magic, sizeof(peer->incoming_prefix));
	pl_task_init(&peer->task, run_accepted_stream);
	pl_engine_post(peer->home, &peer->task);
}
