/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages that the acceptor sends at once, and that overtake the welcome of lane 0 on their way. */
#include "core/context.h"
#include "core/peer.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/proxy.h"

static const struct setting setting = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct overtaken {
	struct scenario_environment environment;
	struct pl_operation *connecting;
	struct pl_peer *near_peer; /* while it connects */
	struct proxy proxy;
};

/* The acceptor has its peer; the initiator waits for the welcome. */
static void overtaken_open(struct overtaken *overtaken)
{
	struct scenario_environment *environment = &overtaken->environment;
	struct pl_completion accepted;
	struct pl_operation *accepting;
	struct pl_error error;

	*overtaken = (struct overtaken){ .environment.setting = &setting };
	environment->near = context_open(&setting);
	environment->far = context_open(&setting);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	proxy_start(&overtaken->proxy, environment->address, &(struct damage){ .kind = DAMAGE_NONE });
	atomic_store(&overtaken->proxy.holds, true);
	check_ok(pl_accept_start(environment->listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(environment->near, overtaken->proxy.address, 0, 0, &overtaken->connecting, &error),
		 &error);
	overtaken->near_peer = overtaken->connecting->connecting;
	complete(environment, accepting, &accepted);
	environment->far_peer = accepted.peer;
}

/* True once the initiator has postponed a message, or given up. */
static bool has_postponed(struct overtaken *overtaken)
{
	struct pl_engine *home;
	bool postponed;

	/* The peer of a failed connection is freed. */
	if (atomic_load(&overtaken->connecting->state) == PL_DONE)
		return true;
	home = overtaken->near_peer->home;
	pl_engine_lock(home);
	postponed = overtaken->near_peer->channel.postponed || overtaken->near_peer->dead;
	pl_engine_unlock(home);
	return postponed;
}

/* The message arrives, then the welcome. */
static void overtaken_connect(struct overtaken *overtaken)
{
	struct pl_completion connected;

	progress_until(&overtaken->environment, has_postponed(overtaken));
	atomic_store(&overtaken->proxy.holds, false);
	complete(&overtaken->environment, overtaken->connecting, &connected);
	overtaken->environment.near_peer = connected.peer;
}

static void overtaken_close(struct overtaken *overtaken)
{
	environment_close(&overtaken->environment);
	proxy_stop(&overtaken->proxy);
}

static void import(void *unused)
{
	struct overtaken overtaken;
	struct pl_operation *importing;
	struct pl_completion imported;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct buffer buffer;
	struct pl_error error;

	(void)unused;
	overtaken_open(&overtaken);
	buffer_open(&buffer, overtaken.environment.near, 4096, PL_ACCESS_ALL);
	check_ok(pl_region_share(buffer.region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(overtaken.environment.far_peer, token, length, 0, &importing, &error), &error);
	overtaken_connect(&overtaken);
	complete(&overtaken.environment, importing, &imported);
	pl_remote_release(imported.remote);
	buffer_close(&buffer);
	overtaken_close(&overtaken);
}

/* More messages than one visit of the channel reads. */
static void messages(void *unused)
{
	enum { COUNT = 40, LENGTH = 1500 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct overtaken overtaken;
	struct pl_operation *operation;
	struct buffer buffer;
	struct pl_error error;

	(void)unused;
	overtaken_open(&overtaken);
	buffer_open(&buffer, overtaken.environment.near, LENGTH, PL_ACCESS_LOCAL);
	attributes.flags = PL_CONFIDENTIAL;
	for (unsigned i = 0; i < COUNT; i++) {
		uint8_t bytes[LENGTH];

		pattern_fill(bytes, LENGTH, i, 0);
		check_ok(pl_send_copy(overtaken.environment.far_peer, i, bytes, LENGTH, &attributes, NULL, &error),
			 &error);
	}
	overtaken_connect(&overtaken);
	for (unsigned i = 0; i < COUNT; i++) {
		check_ok(pl_receive(overtaken.environment.near_peer, i, UINT64_MAX,
				    &(struct pl_buffer){ buffer.region, 0, LENGTH }, NULL, &operation, &error),
			 &error);
		complete(&overtaken.environment, operation, NULL);
		pattern_check(buffer.bytes, LENGTH, i, 0);
	}
	buffer_close(&buffer);
	overtaken_close(&overtaken);
}

/* The acceptor closes the connection at once: the initiator learns of a close, and of no wrong message. */
static void close_at_once(void *unused)
{
	struct overtaken overtaken;
	struct pl_operation *operation;
	struct buffer buffer;
	struct pl_error error;

	(void)unused;
	overtaken_open(&overtaken);
	pl_peer_close(overtaken.environment.far_peer);
	overtaken.environment.far_peer = NULL;
	overtaken_connect(&overtaken);
	buffer_open(&buffer, overtaken.environment.near, 64, PL_ACCESS_LOCAL);
	check_ok(pl_receive(overtaken.environment.near_peer, 1, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 },
			    NULL, &operation, &error),
		 &error);
	check_status(await(&overtaken.environment, operation, NULL, &error), -ECONNRESET, &error);
	check_text(error.id, "PEER-CLOSED");
	buffer_close(&buffer);
	overtaken_close(&overtaken);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "import", import, NULL, 60 },
		{ "messages", messages, NULL, 60 },
		{ "close at once", close_at_once, NULL, 60 },
	};

	return cases_run("overtaken", cases, sizeof(cases) / sizeof(cases[0]));
}
