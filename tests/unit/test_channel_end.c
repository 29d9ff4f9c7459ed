/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A control channel that ends on its own gives the reason, which decides what the loss of the peer says: the reason itself, or that
 * the connection broke.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/peer.h"
#include "support/cases.h"
#include "support/pair.h"

static const struct setting setting = {
	.name = "channel-end", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static bool refused; /* memory for the beginning of a control message */

static void *allocate(size_t size, void *user)
{
	(void)user;
	return refused && size == 2 * (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX) ? NULL : malloc(size);
}

static void *reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return realloc(pointer, size);
}

static void release(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

static void environment_open_refusing(struct scenario_environment *environment)
{
	const struct pl_allocator allocator = { .allocate = allocate, .reallocate = reallocate, .release = release };
	struct pl_options options = setting_options(&setting);

	*environment = (struct scenario_environment){ .setting = &setting };
	options.allocator = &allocator;
	environment->near = context_open_with(&options);
	environment->far = context_open(&setting);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

/* Sends bytes over the control channel of the far end, as its process would. */
static void send_bytes(struct scenario_environment *environment, const void *bytes, size_t length)
{
	const struct iovec vector = { .iov_base = (void *)bytes, .iov_len = length };

	pl_engine_lock(environment->far_peer->home);
	check_number(pl_stream_write(&environment->far_peer->channel.stream, &vector, 1), length);
	pl_engine_unlock(environment->far_peer->home);
}

/* Awaits the loss of the near peer, and checks its reason. */
static void check_loss(struct scenario_environment *environment, int status, const char *id, const char *text)
{
	struct pl_completion completion;
	struct pl_error error;

	collect(environment, environment->near, &completion, 1);
	check_number(completion.kind, PL_KIND_LOST);
	check_number(pl_completion_error(environment->near, &completion, &error), status);
	check_text(error.id, id);
	check(strstr(error.message, text));
}

static void without_memory(void *unused)
{
	struct scenario_environment environment;

	(void)unused;
	environment_open_refusing(&environment);
	refused = true;
	send_bytes(&environment, "x", 1);
	check_loss(&environment, -ENOMEM, "NO-MEMORY", "out of memory");
	refused = false;
	environment_close(&environment);
}

static void malformed(void *unused)
{
	const uint8_t header[PL_CONTROL_HEADER] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct scenario_environment environment;

	(void)unused;
	environment_open_refusing(&environment);
	send_bytes(&environment, header, sizeof(header));
	check_loss(&environment, -EPROTO, "PROTOCOL", "malformed");
	environment_close(&environment);
}

/* The other end says nothing, as if its process had been killed. */
static void broken(void *unused)
{
	struct scenario_environment environment;

	(void)unused;
	environment_open_refusing(&environment);
	check_number(shutdown(environment.far_peer->channel.stream.fd, SHUT_RDWR), 0);
	check_loss(&environment, -ECONNRESET, "PEER-LOST", "without an orderly end");
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "without-memory", without_memory, NULL, 60 },
	{ "malformed", malformed, NULL, 60 },
	{ "broken", broken, NULL, 60 },
};

int main(void)
{
	return cases_run("channel-end", cases, PL_ARRAY_SIZE(cases));
}
