/* SPDX-License-Identifier: BSD-2-Clause */
/* Gates of the acceptor that come to a cancelled connection, or that the initiator cannot use without memory. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/listener.h"
#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting setting = {
	.name = "gates", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Begins a connection up to the point where the acceptor sends its gates. Returns the socket for them. */
static int await_gates(struct scenario_environment *environment, struct pl_operation *connecting)
{
	struct pl_peer *peer = connecting->connecting;
	struct pl_listener *listener = NULL;
	int fd;

	while (!peer->endpoint || local_endpoint_of(peer->endpoint)->fd_socket.fd < 0) {
		pl_poll(environment->near, NULL, 0);
		if (!peer->endpoint)
			pl_poll(environment->far, NULL, 0);
	}
	check(!local_endpoint_of(peer->endpoint)->gates_received);
	pl_list_for_each(at, &environment->far->listeners) {
		if (pl_list_entry(at, struct pl_listener, link)->lanes_only)
			listener = pl_list_entry(at, struct pl_listener, link);
	}
	check(listener);
	fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC);
	check(fd >= 0);
	return fd;
}

static void send_gates(struct scenario_environment *environment, int fd)
{
	struct local_record record;
	struct pl_error error;
	struct local_gates *gates = local_gates_new(&environment->far->allocator, LOCAL_GATES_LEAST, &error);

	check(gates);
	record = (struct local_record){ .type = LOCAL_RECORD_GATES, .size = gates->count * sizeof(struct local_gate) };
	check_number(local_record_send(fd, &record, &gates->fd, 1), 0);
	local_gates_put(gates);
}

/* The gates come in the same batch of events as the timer that ends a cancelled peer. */
static void cancelled(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *connecting, *accepting;
	struct pl_peer *peer;
	struct pl_error error;
	int fd;

	(void)unused;
	environment_listen(&environment, &setting);
	check_ok(pl_accept_start(environment.listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &connecting, &error), &error);
	peer = connecting->connecting;
	fd = await_gates(&environment, connecting);
	/* As pl_cancel_posted() does: the end of the peer has to wait for a timer. */
	atomic_fetch_add(&peer->pins, 1);
	pl_cancel(connecting);
	pl_poll(environment.near, NULL, 0);
	atomic_fetch_sub(&peer->pins, 1);
	usleep(30000);
	send_gates(&environment, fd);
	for (int i = 0; i < 100; i++) {
		pl_poll(environment.near, NULL, 0);
		usleep(100);
	}
	close(fd);
	check_status(await(&environment, connecting, NULL, &error), -ECANCELED, &error);
	pl_cancel(accepting);
	check_status(await(&environment, accepting, NULL, &error), -ECANCELED, &error);
	pl_listener_close(environment.listener);
	pl_close(environment.near);
	pl_close(environment.far);
}

static void *allocate_no_lane(size_t size, void *user)
{
	(void)user;
	return size == sizeof(struct tcp_lane) ? NULL : malloc(size);
}

/* The initiator has no memory for the lane that it begins then. */
static void no_memory(void *unused)
{
	const struct pl_allocator allocator = { allocate_no_lane, pl_system_allocator.reallocate,
						pl_system_allocator.release, NULL };
	struct scenario_environment environment = { .setting = &setting };
	struct pl_options options = setting_options(&setting);
	struct pl_operation *connecting;
	struct pl_error error;

	(void)unused;
	environment.far = context_open(&setting);
	options.allocator = &allocator;
	environment.near = context_open_with(&options);
	drive(&environment, environment.near);
	drive(&environment, environment.far);
	environment.listener = listener_open(&setting, environment.far, environment.address);
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &connecting, &error), &error);
	check_status(await(&environment, connecting, NULL, &error), -ENOMEM, &error);
	check_text(error.id, "NO-MEMORY");
	environment_close(&environment);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "cancelled", cancelled, NULL, 60 },
		{ "no memory", no_memory, NULL, 60 },
	};

	return cases_run("local_gates_late", cases, sizeof(cases) / sizeof(cases[0]));
}
