/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local listeners whose queue is full: the acceptor's look at the initiator, the initiator's descriptor socket, and its first lane
 * wait for room. The test drives both ends.
 */
#include <sys/socket.h>
#include <sys/un.h>
#include <string.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/listener.h"
#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/local.h"

/* More connections than a queue of length 0 takes. */
#define FILLERS 8

/* Listener of a context that accepts nothing. */
struct full_listener {
	struct pl_listener *listener;
	int fillers[FILLERS];
	unsigned count;
};

static struct pl_listener *local_listener_of(struct pl_context *context)
{
	pl_list_for_each(at, &context->listeners) {
		struct pl_listener *listener = pl_list_entry(at, struct pl_listener, link);

		if (listener->lanes_only)
			return listener;
	}
	check(!"the context has a local listener");
	return NULL;
}

static void full_listener_fill(struct full_listener *full, struct pl_context *context)
{
	struct local_state *state = local_state_get(context, NULL);
	int fd;

	check(state);
	full->listener = local_listener_of(context);
	full->count = 0;
	pl_engine_lock(full->listener->engine);
	pl_source_remove(&full->listener->source);
	pl_engine_unlock(full->listener->engine);
	check_number(listen(full->listener->source.fd, 0), 0);
	while ((fd = local_connect_to_listener(state->name)) >= 0) {
		check(full->count < FILLERS);
		full->fillers[full->count++] = fd;
	}
	check_number(fd, -EAGAIN);
}

static void full_listener_empty(struct full_listener *full)
{
	check_number(listen(full->listener->source.fd, 1024), 0);
	check_number(pl_source_add(full->listener->engine, &full->listener->source, EPOLLIN), 0);
	while (full->count)
		close(full->fillers[--full->count]);
}

static struct pl_peer *first_peer(struct pl_context *context)
{
	return pl_list_empty(&context->peers) ? NULL : pl_list_first(&context->peers, struct pl_peer, link);
}

static struct pl_operation *begin_connect(struct scenario_environment *environment, struct pl_operation **accept)
{
	struct pl_operation *connect;
	struct pl_error error;

	check_ok(pl_accept_start(environment->listener, 0, accept, &error), &error);
	check_ok(pl_connect_start(environment->near, environment->address, AMPLE_TIME, 0, &connect, &error), &error);
	return connect;
}

/* Connects from a context whose queue is full, until the acceptor waits for room. */
static struct pl_operation *begin_held(struct scenario_environment *environment, const struct setting *setting,
				       struct full_listener *full, struct pl_operation **accept)
{
	struct pl_operation *connect;

	environment_listen(environment, setting);
	full_listener_fill(full, environment->near);
	connect = begin_connect(environment, accept);
	progress_until(environment, first_peer(environment->far) && first_peer(environment->far)->held_hello);
	return connect;
}

static void finish_connect(struct scenario_environment *environment, struct pl_operation *connect,
			   struct pl_operation *accept, const char *fabric)
{
	struct pl_completion receipt;

	complete(environment, connect, &receipt);
	environment->near_peer = receipt.peer;
	check_text(receipt.fabric, fabric);
	complete(environment, accept, &receipt);
	environment->far_peer = receipt.peer;
	environment_close(environment);
}

/* Setting with all fabrics: an acceptor that sees no local process takes tcp. */
static const struct setting any_fabric = {
	.name = "any", .fabric = "auto", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Checks that the acceptor looks at the initiator again. */
static void initiator_full(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	struct full_listener full;

	connect = begin_held(&environment, argument, &full, &accept);
	first_peer(environment.far)->hello_until = UINT64_MAX;
	full_listener_empty(&full);
	finish_connect(&environment, connect, accept, "local");
}

/* Checks that the acceptor takes another fabric when its queue stays full for too long. */
static void initiator_stays_full(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	struct full_listener full;

	connect = begin_held(&environment, argument, &full, &accept);
	first_peer(environment.far)->hello_until = 1;
	progress_until(&environment, first_peer(environment.far)->endpoint);
	full_listener_empty(&full);
	finish_connect(&environment, connect, accept, "tcp");
}

/* The acceptor waits for a moment only, as the initiator may have less time than it. */
static void initiator_short_of_time(void *argument)
{
	const struct setting *setting = argument;
	bool has_other = strcmp(setting->fabric, "local") != 0;
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	uint64_t began = clock_now(), until;
	struct full_listener full;

	connect = begin_held(&environment, setting, &full, &accept);
	until = first_peer(environment.far)->hello_until;
	check(has_other ? until < clock_now() + SECOND / 2 : until > began + SECOND);
	first_peer(environment.far)->hello_until = UINT64_MAX;
	full_listener_empty(&full);
	finish_connect(&environment, connect, accept, "local");
}

/* Checks that the acceptor does not wait for a process of another namespace, which its uid does not admit. */
static void initiator_elsewhere(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	struct full_listener full;

	environment_listen(&environment, argument);
	full_listener_fill(&full, environment.near);
	local_state_get(environment.near, NULL)->process_namespace++;
	connect = begin_connect(&environment, &accept);
	progress_until(&environment, first_peer(environment.far) && first_peer(environment.far)->endpoint);
	check(!first_peer(environment.far)->held_hello);
	full_listener_empty(&full);
	finish_connect(&environment, connect, accept, "tcp");
}

/* Checks that an acceptor whose peer waits for an answer can be closed. */
static void initiator_full_closed(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	struct full_listener full;

	connect = begin_held(&environment, argument, &full, &accept);
	drive_no_more(&environment, environment.far);
	pl_close(environment.far);
	environment.far = NULL;
	environment.listener = NULL;
	check(await(&environment, connect, NULL, NULL) < 0);
	full_listener_empty(&full);
	environment_close(&environment);
}

static unsigned refused_dials;

static int dial_when_free(struct tcp_endpoint *lanes)
{
	if (refused_dials && refused_dials--)
		return -EAGAIN;
	return local_connect_to_listener(local_endpoint_of(lanes->base.peer->endpoint)->peer_invitation.name);
}

/* Checks that the initiator connects its descriptor socket again, and its first lane. */
static void acceptor_full(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect, *accept;
	struct local_endpoint *endpoint;
	struct full_listener full;
	struct pl_peer *peer;

	environment_listen(&environment, argument);
	full_listener_fill(&full, environment.far);
	connect = begin_connect(&environment, &accept);
	progress_until(&environment, (peer = first_peer(environment.near)) && peer->endpoint);
	check_text(peer->ops->name, "local");
	endpoint = local_endpoint_of(peer->endpoint);
	check_number(endpoint->fd_socket.fd, -1);
	tcp_endpoint_of(endpoint->lanes)->dial = dial_when_free;
	refused_dials = 2;
	full_listener_empty(&full);
	finish_connect(&environment, connect, accept, "local");
	check_number(refused_dials, 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "initiator full", initiator_full, (void *)&any_fabric, 60 },
		{ "initiator full, local", initiator_full, (void *)&local_manual, 60 },
		{ "initiator stays full", initiator_stays_full, (void *)&any_fabric, 60 },
		{ "initiator short of time", initiator_short_of_time, (void *)&any_fabric, 60 },
		{ "initiator short of time, local", initiator_short_of_time, (void *)&local_manual, 60 },
		{ "initiator elsewhere", initiator_elsewhere, (void *)&any_fabric, 60 },
		{ "initiator full, closed", initiator_full_closed, (void *)&any_fabric, 60 },
		{ "acceptor full", acceptor_full, (void *)&any_fabric, 60 },
		{ "acceptor full, local", acceptor_full, (void *)&local_manual, 60 },
	};

	return cases_run("local-backlog", cases, PL_ARRAY_SIZE(cases));
}
