/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/victim.h"

void victim_open(struct victim *victim, const struct setting *setting)
{
	victim_open_for(victim, setting, VICTIM_CONNECT_TIME);
}

void victim_open_for(struct victim *victim, const struct setting *setting, uint64_t connect_timeout)
{
	struct pl_grant_options first = PL_GRANT_OPTIONS_INIT, second = PL_GRANT_OPTIONS_INIT;
	struct pl_options options = setting_options(setting);
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	*victim = (struct victim){ .setting = setting, .token_length = PL_TOKEN_MAX };
	options.connect_timeout = connect_timeout;
	victim->context = context_open_with(&options);
	victim->listener = listener_open(setting, victim->context, victim->address);
	buffer_open(&victim->buffer, victim->context, 2 * VICTIM_SIZE, PL_ACCESS_ALL);
	first.length = second.offset = VICTIM_SIZE;
	check_ok(pl_region_share(victim->buffer.region, &first, victim->token, &victim->token_length, &error), &error);
	check_ok(pl_region_share(victim->buffer.region, &second, token, &length, &error), &error);
	victim->good = context_open(setting);
	check_ok(pl_connect(victim->good, victim->address, 0, &victim->good_peer, &error), &error);
	check_ok(pl_accept(victim->listener, AMPLE_TIME, &victim->served, &error), &error);
	check_ok(pl_remote_import(victim->good_peer, token, length, 0, &victim->good_remote, &error), &error);
	buffer_open(&victim->good_buffer, victim->good, VICTIM_SIZE, PL_ACCESS_LOCAL);
	victim_check(victim);
	victim->descriptors = open_descriptors();
}

static void wait_success(struct pl_operation *operation)
{
	struct pl_error error;

	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

/* Accepts and closes the peers that attackers left in the backlog. */
static void accept_all(struct victim *victim)
{
	struct pl_peer *peer;

	while (!pl_accept(victim->listener, 0, &peer, NULL))
		pl_peer_close(peer);
}

/*
 * Connects a new client, and accepts it: pl_connect() returns before the victim has it in its backlog, and a later
 * pl_accept() for an attacker must not find it.  Peers that attackers left before it are closed.
 */
static void check_new_client(struct victim *victim)
{
	struct pl_peer_info client = PL_PEER_INFO_INIT, accepted = PL_PEER_INFO_INIT;
	struct pl_peer *peer, *served;
	struct pl_error error;

	check_ok(pl_connect(victim->good, victim->address, 0, &peer, &error), &error);
	check_number(pl_peer_query(peer, &client), 0);
	do {
		check_ok(pl_accept(victim->listener, AMPLE_TIME, &served, &error), &error);
		check_number(pl_peer_query(served, &accepted), 0);
		pl_peer_close(served);
	} while (strcmp(accepted.address, client.local_address));
	pl_peer_close(peer);
	accept_all(victim);
}

void victim_check(struct victim *victim)
{
	uint64_t seed = ++victim->rounds, started = clock_now();
	struct buffer *buffer = &victim->good_buffer;
	struct pl_operation *operation;
	struct pl_error error;

	pattern_fill(buffer->bytes, VICTIM_SIZE, seed, 0);
	check_ok(pl_write(victim->good_peer,
			  &(struct pl_transfer){ victim->good_remote, 0, buffer->region, 0, VICTIM_SIZE }, NULL,
			  &operation, &error),
		 &error);
	wait_success(operation);
	pattern_check(victim->buffer.bytes + VICTIM_SIZE, VICTIM_SIZE, seed, 0);
	memset(buffer->bytes, POISON, VICTIM_SIZE);
	check_ok(pl_read(victim->good_peer,
			 &(struct pl_transfer){ victim->good_remote, 0, buffer->region, 0, VICTIM_SIZE }, NULL,
			 &operation, &error),
		 &error);
	wait_success(operation);
	pattern_check(buffer->bytes, VICTIM_SIZE, seed, 0);
	check_new_client(victim);
	check(clock_now() - started < SLACK);
}

void victim_close(struct victim *victim)
{
	victim_check(victim);
	for (uint64_t end = clock_now() + AMPLE_TIME; open_descriptors() > victim->descriptors && clock_now() < end;) {
		accept_all(victim);
		sleep_ms(10);
	}
	check(open_descriptors() <= victim->descriptors);
	buffer_check_guards(&victim->buffer);
	pl_remote_release(victim->good_remote);
	buffer_close(&victim->good_buffer);
	pl_close(victim->good);
	pl_peer_close(victim->served);
	buffer_close(&victim->buffer);
	pl_close(victim->context);
}

struct attempt {
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
	struct pl_error error;
	bool exact;
};

/* Runs each operation in turn, until one fails. */
static int attempt_operations(struct attempt *attempt)
{
	struct pl_error *error = &attempt->error;
	struct pl_region *region = attempt->buffer.region;
	struct pl_operation *operation;
	int status;

	for (unsigned step = 0; step < 5; step++) {
		if (step == 0)
			status = pl_write(attempt->peer,
					  &(struct pl_transfer){ attempt->remote, 0, region, 0, VICTIM_SIZE }, NULL,
					  &operation, error);
		else if (step == 1)
			status = pl_fetch_add(
				attempt->peer,
				&(struct pl_atomic){ .remote = attempt->remote, .remote_offset = 0, .operand = 0 },
				NULL, &operation, error);
		else if (step == 2)
			status = pl_send_copy(attempt->peer, 1, "message", 7, NULL, &operation, error);
		else if (step == 3)
			status = pl_notify(attempt->peer, 1, NULL, 0, NULL, &operation, error);
		else
			status = pl_read(attempt->peer,
					 &(struct pl_transfer){ attempt->remote, 0, region, 0, VICTIM_SIZE }, NULL,
					 &operation, error);
		if (!status)
			status = pl_wait(operation, UINT64_MAX, NULL, error);
		if (status)
			return status;
		if (step == 0)
			memset(attempt->buffer.bytes, POISON, VICTIM_SIZE);
	}
	if (attempt->exact)
		pattern_check(attempt->buffer.bytes, VICTIM_SIZE, 77, 0);
	return 0;
}

int client_session(const struct victim *victim, const char *address, uint64_t timeout, bool exact)
{
	struct pl_options options = setting_options(victim->setting);
	struct attempt attempt = { .exact = exact };
	struct pl_context *context;
	int status;

	options.operation_timeout = options.connect_timeout = timeout;
	context = context_open_with(&options);
	buffer_open(&attempt.buffer, context, VICTIM_SIZE, PL_ACCESS_LOCAL);
	pattern_fill(attempt.buffer.bytes, VICTIM_SIZE, 77, 0);
	status = pl_connect(context, address, 0, &attempt.peer, &attempt.error);
	if (!status)
		status = pl_remote_import(attempt.peer, victim->token, victim->token_length, 0, &attempt.remote,
					  &attempt.error);
	if (!status)
		status = attempt_operations(&attempt);
	if (status)
		check_status(status, status, &attempt.error);
	pl_remote_release(attempt.remote);
	buffer_close(&attempt.buffer);
	pl_close(context);
	return status;
}
