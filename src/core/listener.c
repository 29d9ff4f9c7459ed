/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include "core/listener.h"
#include "core/socket.h"

/* The kernel's limit, net.core.somaxconn, is lower by default. */
#define LISTEN_BACKLOG 65535
/* Most accepts in one round of the engine, so that other sources get their turn. */
#define ACCEPTS_A_ROUND 64
/* Time until the next accept when the process is out of descriptors, or has too many connections without a name. */
#define PAUSE (100 * PL_NS_PER_MS)
#define SHORT_PAUSE (10 * PL_NS_PER_MS)

static void pause_accepting(struct pl_listener *listener, uint64_t time)
{
	pl_source_watch(&listener->source, 0);
	pl_timer_set(listener->engine, &listener->pause, pl_now() + time);
}

/* Returns true if the listener goes on after a failed accept4(2). */
static bool accept_failed(struct pl_listener *listener, int code)
{
	bool lacks_descriptor = pl_lacks_descriptor(code);

	if (code == -ECONNABORTED || code == -EINTR)
		return true;
	/* Strangers must not keep peers out: one of them leaves its descriptor, soon if its engine is busy. */
	if (lacks_descriptor && pl_greeting_evict(listener, 0, 0)) {
		if (!atomic_load(&listener->evicted))
			return true;
		pause_accepting(listener, SHORT_PAUSE);
	} else if (lacks_descriptor || code == -ENOBUFS || code == -ENOMEM) {
		pause_accepting(listener, PAUSE);
	}
	return false;
}

static bool listener_ready(struct pl_source *source, uint32_t events)
{
	struct pl_listener *listener = pl_container_of(source, struct pl_listener, source);
	const unsigned most = pl_greetings_most();

	(void)events;
	for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
		struct sockaddr_storage other = { 0 };
		socklen_t length = sizeof(other);
		int fd;

		if (!pl_greeting_room(listener, most)) {
			pause_accepting(listener, SHORT_PAUSE);
			break;
		}
		fd = accept4(source->fd, (struct sockaddr *)&other, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			pl_socket_tune(fd, &listener->context->options);
			pl_socket_resume_pacing(fd, (struct sockaddr *)&other, listener->paced);
			pl_greeting_new(listener, fd, most);
			continue;
		}
		if (!accept_failed(listener, -errno))
			break;
	}
	return true;
}

static void resume_accepting(struct pl_timer *timer)
{
	struct pl_listener *listener = pl_container_of(timer, struct pl_listener, pause);

	pl_source_watch(&listener->source, EPOLLIN);
}

static int bind_target(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, zero = 0, rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* The wildcard address means IPv4 too. */
	if (at->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int bind_address(struct pl_context *context, const char *address, struct pl_error *error)
{
	struct addrinfo *addresses;
	int fd = pl_address_resolve(address, true, &addresses, error);

	if (fd < 0)
		return fd;
	fd = -EADDRNOTAVAIL;
	for (int family = AF_INET6; fd < 0; family = AF_INET) {
		/* The IPv6 wildcard accepts IPv4 too, so it is tried first. */
		for (const struct addrinfo *at = addresses; at && fd < 0; at = at->ai_next) {
			if (at->ai_family != family)
				continue;
			if (!pl_address_allowed(context, at->ai_addr, true)) {
				freeaddrinfo(addresses);
				return pl_fail(
					error, -EPERM, "INSECURE-ADDRESS", "pl_listen", address,
					"set pl_options.key, or pl_options.insecure to allow connections without a key",
					"the address is not loopback and there is no key");
			}
			fd = bind_target(at);
		}
		if (family == AF_INET)
			break;
	}
	freeaddrinfo(addresses);
	if (fd == -EADDRINUSE)
		return pl_fail(error, fd, "LISTEN-IN-USE", "bind", address,
			       "stop the program that listens there, or choose another port", "the address is in use");
	if (fd < 0)
		return pl_fail_errno(error, fd, "LISTEN-FAILED", "bind", address);
	return fd;
}

int pl_listen(struct pl_context *context, const char *address, struct pl_listener **result, struct pl_error *error)
{
	int rc = pl_context_check_process(context, "pl_listen", error), fd;

	*result = NULL;
	if (rc == 0)
		rc = pl_context_use_tls(context, error);
	if (rc < 0)
		return rc;
	fd = bind_address(context, address, error);
	return fd < 0 ? fd : pl_listener_open(context, fd, PL_LISTENER_OPENED, result, error);
}

/* Checks that a descriptor is a listening socket of TCP at an address that the context may use. */
static int check_listening_socket(const struct pl_context *context, int fd, struct pl_error *error)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address), size = sizeof(int);
	int listening = 0, type = 0, flags;

	if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		return pl_fail_errno(error, -errno, "LISTEN-FAILED", "getsockname", NULL);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return pl_fail_errno(error, -errno, "LISTEN-FAILED", "getsockopt", NULL);
	if (!listening || type != SOCK_STREAM || (address.ss_family != AF_INET && address.ss_family != AF_INET6))
		return pl_fail(error, -EINVAL, "LISTEN-FAILED", "pl_listen_socket", NULL,
			       "pass a TCP socket after listen(2)", "the descriptor is no listening socket of TCP");
	if (!pl_address_allowed(context, (struct sockaddr *)&address, true))
		return pl_fail(error, -EPERM, "INSECURE-ADDRESS", "pl_listen_socket", NULL,
			       "set pl_options.key, or pl_options.insecure to allow connections without a key",
			       "the address is not loopback and there is no key");
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return pl_fail_errno(error, -errno, "LISTEN-FAILED", "fcntl", NULL);
	return 0;
}

int pl_listen_socket(struct pl_context *context, int fd, struct pl_listener **result, struct pl_error *error)
{
	int rc = pl_context_check_process(context, "pl_listen_socket", error);

	*result = NULL;
	if (rc == 0)
		rc = pl_context_use_tls(context, error);
	if (rc == 0)
		rc = check_listening_socket(context, fd, error);
	if (rc == 0)
		return pl_listener_open(context, fd, PL_LISTENER_GIVEN, result, error);
	close(fd);
	return rc;
}

int pl_listener_open(struct pl_context *context, int fd, enum pl_listener_kind kind, struct pl_listener **result,
		     struct pl_error *error)
{
	struct pl_listener *listener;
	socklen_t length = sizeof(listener->address);
	int rc;

	listener = pl_zalloc(&context->allocator, sizeof(*listener));
	if (!listener) {
		close(fd);
		return pl_fail_memory(error, "pl_listen");
	}
	listener->context = context;
	listener->lanes_only = kind == PL_LISTENER_LANES;
	listener->engine = context->engines[0];
	listener->source.fd = fd;
	listener->source.ready = listener_ready;
	pl_list_init(&listener->link);
	pl_list_init(&listener->greetings);
	pl_list_init(&listener->backlog);
	pl_list_init(&listener->accepts);
	pl_timer_init(&listener->pause, resume_accepting);
	pl_timer_init(&listener->expiry, pl_greetings_expire);
	pthread_mutex_init(&listener->lock, NULL);
	atomic_init(&listener->references, 1);
	getsockname(fd, (struct sockaddr *)&listener->address, &length);
	/* The algorithm belongs to the socket: a given one may outlive this process, and serve others. */
	if (kind == PL_LISTENER_OPENED)
		pl_socket_stop_pacing(fd, listener->paced);
	/* The listener is complete: its engine may accept at once. */
	rc = pl_source_add(listener->engine, &listener->source, EPOLLIN);
	if (rc < 0) {
		close(fd);
		pl_listener_put(listener);
		return pl_fail_errno(error, rc, "SYSTEM", "epoll_ctl", NULL);
	}
	pthread_mutex_lock(&context->lock);
	listener->number = ++context->listener_numbers;
	pl_list_append(&context->listeners, &listener->link);
	pthread_mutex_unlock(&context->lock);
	*result = listener;
	return 0;
}

int pl_listener_address(const struct pl_listener *listener, char *buffer, size_t size)
{
	char text[PL_ADDRESS_FORMAT_MAX] = "";

	pl_address_format((const struct sockaddr *)&listener->address, text, sizeof(text));
	return snprintf(buffer, size, "%s", text);
}

void pl_listener_put(struct pl_listener *listener)
{
	if (atomic_fetch_sub(&listener->references, 1) != 1)
		return;
	pthread_mutex_destroy(&listener->lock);
	pl_free(&listener->context->allocator, listener);
}

bool pl_listener_deliver(struct pl_listener *listener, struct pl_peer *peer)
{
	struct pl_operation *operation = NULL;
	bool closed;

	pthread_mutex_lock(&listener->lock);
	closed = listener->closed;
	if (!closed && !pl_list_empty(&listener->accepts)) {
		operation = pl_list_first(&listener->accepts, struct pl_operation, queue_link);
		pl_list_remove(&operation->queue_link);
		atomic_fetch_add(&peer->pins, 1);
	} else if (!closed) {
		pl_list_append(&listener->backlog, &peer->backlog_link);
	}
	pthread_mutex_unlock(&listener->lock);
	if (operation) {
		operation->completion.peer = peer;
		pl_operation_pending_done(operation);
	}
	return !closed;
}

bool pl_listener_withdraw(struct pl_listener *listener, struct pl_list *link)
{
	bool was_there;

	pthread_mutex_lock(&listener->lock);
	was_there = !pl_list_empty(link);
	pl_list_remove(link);
	pthread_mutex_unlock(&listener->lock);
	return was_there;
}

static void fail_accept_closed(struct pl_operation *operation)
{
	struct pl_error error;

	pl_fail(&error, -ECANCELED, "LISTENER-CLOSED", "pl_accept", NULL, NULL, "the listener was closed");
	pl_operation_fail(operation, -ECANCELED, &error);
}

static void run_accept(struct pl_task *task)
{
	struct pl_operation *operation = pl_operation_of_task(task);
	struct pl_listener *listener = operation->listener;
	struct pl_peer *peer = NULL;
	bool closed;

	pl_operation_begin(operation);
	pthread_mutex_lock(&listener->lock);
	closed = listener->closed;
	if (!closed && !pl_list_empty(&listener->backlog)) {
		peer = pl_list_first(&listener->backlog, struct pl_peer, backlog_link);
		pl_list_remove(&peer->backlog_link);
		atomic_fetch_add(&peer->pins, 1);
	} else if (!closed) {
		pl_list_append(&listener->accepts, &operation->queue_link);
	}
	pthread_mutex_unlock(&listener->lock);
	/* Once in the list, the operation must not be touched: another thread may finish it. */
	if (!peer && !closed)
		return;
	operation->completion.peer = peer;
	if (closed)
		fail_accept_closed(operation);
	pl_operation_pending_done(operation);
}

/*
 * Delivers an accept, then the events of its peer. The peer was pinned when the accept got it: the peer's engine leaves the rest to
 * this one, before which a close of the context may begin, and the program may close the peer at once.
 */
static void deliver_accept(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->completion.peer;

	pl_listener_put(operation->listener);
	pl_operation_deliver(operation);
	if (!peer)
		return;
	pl_completion_release_events(peer);
	pl_peer_unpin(peer);
}

static int accept_post(struct pl_listener *listener, uint64_t timeout, uint64_t user_data, struct pl_operation **handle,
		       struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	int rc = pl_context_check_process(listener->context, "pl_accept", error);

	if (rc < 0)
		return rc;
	attributes.timeout = timeout;
	attributes.user_data = user_data;
	operation = pl_operation_new(listener->context, NULL, PL_KIND_ACCEPT, &attributes, error);
	if (!operation)
		return -ENOMEM;
	atomic_fetch_add(&listener->references, 1);
	operation->listener = listener;
	operation->home = listener->engine;
	operation->deliver = deliver_accept;
	pl_operation_submit(operation, run_accept, handle);
	return 0;
}

int pl_accept_start(struct pl_listener *listener, uint64_t user_data, struct pl_operation **handle,
		    struct pl_error *error)
{
	return accept_post(listener, UINT64_MAX, user_data, handle, error);
}

/* Returns the context's first listener after this number, with a reference; NULL: none. Others may close meanwhile. */
static struct pl_listener *listener_after(struct pl_context *context, uint64_t number)
{
	struct pl_listener *found = NULL;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->listeners) {
		struct pl_listener *listener = pl_list_entry(at, struct pl_listener, link);

		if (listener->number <= number)
			continue;
		found = listener;
		atomic_fetch_add(&found->references, 1);
		break;
	}
	pthread_mutex_unlock(&context->lock);
	return found;
}

static struct pl_operation *find_accept(struct pl_listener *listener, const struct pl_cancel_set *set)
{
	struct pl_operation *found = NULL;

	pthread_mutex_lock(&listener->lock);
	pl_list_for_each(at, &listener->accepts) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, queue_link);

		if (!operation->has_handle && pl_cancel_set_has(set, operation->attributes.user_data)) {
			found = operation;
			break;
		}
	}
	pthread_mutex_unlock(&listener->lock);
	return found;
}

int pl_listeners_cancel(struct pl_context *context, const struct pl_cancel_set *set)
{
	struct pl_listener *listener;
	uint64_t last = 0;
	int count = 0;

	while ((listener = listener_after(context, last))) {
		struct pl_operation *operation;

		last = listener->number;
		/* Unlocking runs queued tasks, so accepts that were posted before are in the list afterwards. */
		pl_engine_lock(listener->engine);
		pl_engine_unlock(listener->engine);
		pl_engine_lock(listener->engine);
		while ((operation = find_accept(listener, set))) {
			pl_operation_stop(operation, -ECANCELED, NULL);
			count++;
		}
		pl_engine_unlock(listener->engine);
		pl_listener_put(listener);
	}
	return count;
}

int pl_accept(struct pl_listener *listener, uint64_t timeout, struct pl_peer **peer, struct pl_error *error)
{
	struct pl_operation *operation;
	struct pl_completion completion;
	int rc = accept_post(listener, UINT64_MAX, 0, &operation, error);

	*peer = NULL;
	if (rc < 0)
		return rc;
	rc = pl_wait(operation, timeout, &completion, error);
	*peer = completion.peer;
	return rc;
}

void pl_listener_close(struct pl_listener *listener)
{
	struct pl_context *context;
	struct pl_list peers, accepts;
	uint64_t until;

	if (!listener || pl_context_forked(listener->context))
		return;
	context = listener->context;
	pl_list_init(&peers);
	pl_list_init(&accepts);
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&listener->link);
	pthread_mutex_unlock(&context->lock);
	pthread_mutex_lock(&listener->lock);
	listener->closed = true;
	pl_list_splice(&peers, &listener->backlog);
	pl_list_splice(&accepts, &listener->accepts);
	pthread_mutex_unlock(&listener->lock);
	pl_engine_lock(listener->engine);
	pl_timer_clear(listener->engine, &listener->pause);
	pl_timer_clear(listener->engine, &listener->expiry);
	pl_source_remove(&listener->source);
	close(listener->source.fd);
	while (!pl_list_empty(&accepts)) {
		struct pl_operation *operation = pl_list_first(&accepts, struct pl_operation, queue_link);

		pl_list_remove(&operation->queue_link);
		fail_accept_closed(operation);
		pl_operation_pending_done(operation);
	}
	pl_engine_unlock(listener->engine);
	pl_greetings_clear(listener);
	until = pl_close_end();
	while (!pl_list_empty(&peers)) {
		struct pl_peer *peer = pl_list_first(&peers, struct pl_peer, backlog_link);

		pl_list_remove(&peer->backlog_link);
		pl_peer_destroy(peer, until, -ECANCELED, NULL);
	}
	pl_listener_put(listener);
}
