/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting: failures, and their descriptions. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "scenarios/scenario.h"
#include "support/process.h"
#include "support/socket.h"

static int connect_status(struct scenario_environment *environment, struct pl_context *from, const char *address,
			  uint64_t timeout, struct pl_error *error)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	int status = pl_connect_start(from, address, timeout, 0, &operation, error);

	if (!status)
		status = await(environment, operation, &receipt, error);
	if (!status)
		pl_peer_close(receipt.peer);
	return status;
}

/* Checks that a good connection can still be made after a failure. */
static void check_still_good(struct scenario_environment *environment)
{
	struct pl_peer *near, *far;

	connect_pair(environment, environment->near, environment->listener, &near, &far);
	pl_peer_close(near);
	pl_peer_close(far);
}

static void dead_port(struct scenario_environment *environment)
{
	struct pl_peer *peer = NULL;
	struct pl_error error;
	char address[32];

	socket_dead_address(address);
	check_status(connect_status(environment, environment->near, address, 0, &error), -ECONNREFUSED, &error);
	check(strstr(error.object, address));
	/* The blocking call gets this answer without progress at the other end. */
	check_status(pl_connect(environment->near, address, 0, &peer, &error), -ECONNREFUSED, &error);
	check(!peer);
	check_still_good(environment);
}

static void silent_server(struct scenario_environment *environment)
{
	struct pl_options options = setting_options(environment->setting);
	struct pl_context *context;
	struct pl_peer *peer = NULL;
	struct pl_error error;
	char address[32];
	int listener = socket_listen(address), fd;
	uint64_t started = clock_now();

	check_status(pl_connect(environment->near, address, 150 * MS, &peer, &error), -ETIMEDOUT, &error);
	check(!strcmp(error.object, address));
	check(clock_now() - started >= 140 * MS && clock_now() - started < 150 * MS + SLACK);
	fd = socket_accept(listener);
	check(socket_wait_closed(fd, AMPLE_MS));
	close(fd);
	/* The context's connect_timeout applies if the call names no time. */
	options.connect_timeout = 100 * MS;
	context = context_open_with(&options);
	started = clock_now();
	check_status(pl_connect(context, address, 0, &peer, &error), -ETIMEDOUT, &error);
	check(clock_now() - started >= 90 * MS && clock_now() - started < 100 * MS + SLACK);
	pl_close(context);
	close(listener);
}

enum answer { ANSWER_GARBAGE, ANSWER_ZEROES, ANSWER_HTTP, ANSWER_ENDLESS, ANSWER_CLOSE, ANSWER_RESET, ANSWER_COUNT };

struct bad_server {
	int listener;
	enum answer answer;
	pthread_t thread;
};

static void *bad_server_run(void *argument)
{
	struct bad_server *server = argument;
	int fd = socket_accept(server->listener);
	char text[512] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	bool noise = server->answer == ANSWER_GARBAGE || server->answer == ANSWER_ENDLESS;
	uint64_t state = 17;

	if (server->answer == ANSWER_ZEROES)
		memset(text, 0, sizeof(text));
	for (size_t i = 0; noise && i < sizeof(text); i++)
		text[i] = (char)random_next(&state);
	if (server->answer == ANSWER_RESET) {
		socket_reset(fd);
		return NULL;
	}
	if (server->answer != ANSWER_CLOSE) {
		socket_send(fd, text, sizeof(text));
		while (server->answer == ANSWER_ENDLESS && socket_send(fd, text, sizeof(text)))
			;
		socket_wait_closed(fd, AMPLE_MS);
	}
	close(fd);
	return NULL;
}

static void bad_servers(struct scenario_environment *environment)
{
	for (enum answer answer = 0; answer < ANSWER_COUNT; answer++) {
		struct bad_server server = { .answer = answer };
		struct pl_error error;
		char address[32];
		int status;

		server.listener = socket_listen(address);
		check_number(pthread_create(&server.thread, NULL, bad_server_run, &server), 0);
		status = connect_status(environment, environment->near, address, AMPLE_TIME, &error);
		/* If a key is set, an answer without TLS counts as a peer without the key: -EACCES. */
		check_one_of(status, -EPROTO, -ECONNRESET, environment->setting->key ? -EACCES : -EPROTO);
		if (answer <= ANSWER_HTTP)
			check(status != -ECONNRESET);
		check_status(status, status, &error);
		pthread_join(server.thread, NULL);
		close(server.listener);
	}
	check_still_good(environment);
}

static void differing_keys(struct scenario_environment *environment)
{
	static const char other_key[32] = "another key, of the same length";
	struct pl_options plain = setting_options(environment->setting), right, wrong;
	struct pl_options *pairs[][2] = {
		{ &right, &wrong },
		{ &wrong, &right },
		{ &plain, &right },
		{ &right, &plain },
	};

	plain.key = NULL;
	plain.key_length = 0;
	plain.encrypt_data = false;
	right = wrong = plain;
	right.key = test_key;
	wrong.key = other_key;
	right.key_length = wrong.key_length = 32;
	for (unsigned i = 0; i < 4; i++) {
		struct pl_context *server = context_open_with(pairs[i][1]);
		struct pl_context *client = context_open_with(pairs[i][0]);
		struct pl_listener *listener;
		struct pl_peer *good, *served;
		struct pl_context *same;
		struct pl_error error;
		char address[96];

		drive(environment, server);
		drive(environment, client);
		listener = listener_open(environment->setting, server, address);
		check_status(connect_status(environment, client, address, 0, &error), -EACCES, &error);
		check_status(pl_accept(listener, 0, &served, &error), -ETIMEDOUT, &error);
		same = context_open_with(pairs[i][1]);
		drive(environment, same);
		connect_pair(environment, same, listener, &good, &served);
		drive_no_more(environment, server);
		drive_no_more(environment, client);
		drive_no_more(environment, same);
		pl_close(client);
		pl_close(same);
		pl_close(server);
	}
}

static void addresses_without_key(struct scenario_environment *environment)
{
	static const char *const all[] = { "0.0.0.0:0", ":0", "[::]:0" };
	struct pl_options options = setting_options(environment->setting);
	struct pl_context *context;
	struct pl_listener *listener = NULL;
	struct pl_peer *peer = NULL;
	struct pl_error error;

	options.key = NULL;
	options.key_length = 0;
	options.encrypt_data = options.insecure = false;
	context = context_open_with(&options);
	for (unsigned i = 0; i < 3; i++)
		check_status(pl_listen(context, all[i], &listener, &error), -EPERM, &error);
	check_status(pl_connect(context, "192.0.2.1:9", 50 * MS, &peer, &error), -EPERM, &error);
	check(error.hint[0]);
	pl_close(context);
	options.insecure = true;
	context = context_open_with(&options);
	check_ok(pl_listen(context, all[0], &listener, &error), &error);
	pl_close(context);
	options.insecure = false;
	options.key = test_key;
	options.key_length = sizeof(test_key);
	context = context_open_with(&options);
	check_ok(pl_listen(context, all[1], &listener, &error), &error);
	pl_close(context);
}

static void bad_addresses(struct scenario_environment *environment)
{
	static const char *const bad[] = {
		"",
		":",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:65536",
		"127.0.0.1:-1",
		"127.0.0.1:12x",
		"127.0.0.1:x",
		"[::1",
		"[::1]",
		"[::1]7",
		"[127.0.0.1:5",
		"::1:5x",
	};
	struct pl_listener *listener = NULL;
	struct pl_peer *peer = NULL;
	struct pl_error error;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		check_status(pl_listen(environment->near, bad[i], &listener, &error), -EINVAL, &error);
		check_status(pl_connect(environment->near, bad[i], 100 * MS, &peer, &error), -EINVAL, &error);
	}
	check_status(pl_listen(environment->near, environment->address, &listener, &error), -EADDRINUSE, &error);
	check(!listener && !peer);
}

static void listener_addresses(struct scenario_environment *environment)
{
	char whole[96], piece[8];
	int length = pl_listener_address(environment->listener, whole, sizeof(whole));

	check_number(length, strlen(whole));
	check_number(strncmp(whole, environment->setting->host, strlen(environment->setting->host)), 0);
	check(atoi(strrchr(whole, ':') + 1) > 0);
	check_number(pl_listener_address(environment->listener, piece, sizeof(piece)), length);
	check_number(strlen(piece), 7);
	check(!strncmp(piece, whole, 7));
	check_number(pl_listener_address(environment->listener, NULL, 0), length);
}

static void peer_information(struct scenario_environment *environment)
{
	const struct setting *setting = environment->setting;
	struct pl_peer *peers[2] = { environment->near_peer, environment->far_peer };
	struct pl_peer_info info[2];
	/* Verbs has one stream for each card, at most 2 by default. */
	unsigned most = strcmp(setting->fabric, "verbs") ? setting->lanes : 2;
	char software[32];

	snprintf(software, sizeof(software), "peerlane %s", pl_version());
	settle(environment, 50);
	for (unsigned i = 0; i < 2; i++) {
		info[i] = (struct pl_peer_info)PL_PEER_INFO_INIT;
		check_number(pl_peer_query(peers[i], &info[i]), 0);
		check_text(info[i].fabric, setting->fabric);
		check_text(info[i].software, software);
		check_number(info[i].authenticated, setting->key);
		check_number(info[i].encrypted, setting->encrypted);
		check(info[i].connected && info[i].same_host);
		check(info[i].lanes >= 1 && info[i].lanes <= most);
		check_number(pl_peer_user_data(peers[i]), 0);
		pl_peer_set_user_data(peers[i], 0x1234567890abcdefull + i);
		check_number(pl_peer_user_data(peers[i]), 0x1234567890abcdefull + i);
	}
	check_text(info[0].address, environment->address);
	check_text(info[0].address, info[1].local_address);
	check_text(info[0].local_address, info[1].address);
	info[0].size = 0;
	check_number(pl_peer_query(peers[0], &info[0]), -EINVAL);
}

/* Cancels a connection attempt before an answer, while it is accepted, and after it is established. */
static void cancel_connect(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	char address[32];
	int listener = socket_listen(address), status;
	uint64_t started = clock_now();

	for (unsigned i = 0; i < 5; i++) {
		check_ok(pl_connect_start(environment->near, address, 0, 0, &operation, &error), &error);
		settle(environment, i * 2);
		pl_cancel(operation);
		fail_with(environment, operation, -ECANCELED);
	}
	check(clock_now() - started < SLACK);
	close(listener);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t until = clock_now() + i * MS / 4;

		check_ok(pl_connect_start(environment->near, environment->address, 0, 0, &operation, &error), &error);
		progress_until(environment, clock_now() >= until);
		pl_cancel(operation);
		status = await(environment, operation, &receipt, &error);
		check_one_of(status, 0, -ECANCELED);
		if (!status)
			pl_peer_close(receipt.peer);
	}
}

/* Uses the blocking calls, as most programs do. */
static void *serve_blocking(void *argument)
{
	const struct scenario_environment *environment = argument;
	struct pl_peer *peer = NULL;
	struct pl_error error;

	check_ok(pl_accept(environment->listener, AMPLE_TIME, &peer, &error), &error);
	check(peer);
	return peer;
}

static void blocking_calls(struct scenario_environment *environment)
{
	struct pl_peer *near = NULL;
	struct pl_remote *remote = NULL;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct buffer far;
	struct pump pump;
	pthread_t thread;
	void *served;

	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	check_number(pthread_create(&thread, NULL, serve_blocking, environment), 0);
	check_ok(pl_connect(environment->near, environment->address, 0, &near, &error), &error);
	pthread_join(thread, &served);
	pump_start(environment, &pump, environment->far);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import(near, token, length, 0, &remote, &error), &error);
	check_number(pl_remote_length(remote), 64);
	pump_stop(&pump);
	pl_remote_release(remote);
	pl_peer_close(near);
	pl_peer_close(served);
	buffer_close(&far);
}

/* Lets the acceptor act at once.  Its messages may overtake the one that tells the connector of the acceptance. */
static void hasty_acceptor(struct scenario_environment *environment)
{
	struct pl_operation *connecting, *accepting, *importing;
	struct pl_completion near, far, imported;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;
	struct buffer buffer;

	buffer_open(&buffer, environment->near, 64, PL_ACCESS_ALL);
	check_ok(pl_region_share(buffer.region, NULL, token, &length, &error), &error);
	for (unsigned n = 0; n < 20; n++) {
		bool leaves = n % 2;

		check_ok(pl_accept_start(environment->listener, 0, &accepting, &error), &error);
		check_ok(pl_connect_start(environment->near, environment->address, 0, 0, &connecting, &error), &error);
		complete(environment, accepting, &far);
		if (leaves)
			pl_peer_close(far.peer);
		else
			check_ok(pl_remote_import_start(far.peer, token, length, 0, &importing, &error), &error);
		/* The connector either connects or learns that the acceptor closed the connection. */
		if (!await(environment, connecting, &near, &error))
			check(near.peer);
		else
			check(leaves && error.code != -EPROTO);
		if (!leaves) {
			complete(environment, importing, &imported);
			pl_remote_release(imported.remote);
			pl_peer_close(far.peer);
		}
		pl_peer_close(near.peer);
	}
	buffer_close(&buffer);
}

/* Counts the log's records of lanes that ended for lack of a descriptor. */
static unsigned count_lanes_lost(struct pl_peer *peer)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[PL_EVENTS_MAX];
	int count = pl_peer_events(peer, &query, records, PL_EVENTS_MAX);
	unsigned lost = 0;

	for (int i = 0; i < count; i++)
		if (records[i].event == PL_EVENT_LANE_LOST && records[i].status == -EMFILE) {
			check(strstr(records[i].text, "ulimit -n"));
			lost++;
		}
	return lost;
}

/*
 * Checks that a peer for whose further lanes there are no descriptors goes on with the lanes that it has, says why, and opens
 * the others when there are descriptors.
 */
static void lanes_without_descriptors(struct scenario_environment *environment)
{
	enum { SIZE = 8 << 20 };
	struct buffer near, far;
	struct rlimit limit, none;
	struct pl_remote *remote;
	struct pl_error error;
	unsigned lanes, missing;

	if (strcmp(environment->setting->fabric, "tcp"))
		return; /* operations of other fabrics need descriptors */
	buffer_open(&near, environment->near, SIZE, PL_ACCESS_ALL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	check_number(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = open_descriptors();
	check_number(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned round = 0; round < 3; round++) {
		struct pl_operation *operation;

		pattern_fill(near.bytes, SIZE, round, 0);
		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, SIZE }, NULL,
				  &operation, &error),
			 &error);
		complete(environment, operation, NULL);
		pattern_check(far.bytes, SIZE, round, 0);
		/* Longer than it takes a peer that lost a lane to be lost. */
		settle(environment, 700);
		check(peer_information_of(environment->near_peer).connected);
	}
	/* One descriptor may be free: a lane that is still opening. Threads of a busy machine may learn the lack late. */
	progress_until(environment,
		       peer_information_of(environment->near_peer).lanes_missing + 1 >= environment->setting->lanes);
	progress_until(environment, count_lanes_lost(environment->near_peer) ==
					    peer_information_of(environment->near_peer).lanes_missing);
	lanes = peer_information_of(environment->near_peer).lanes;
	missing = peer_information_of(environment->near_peer).lanes_missing;
	check(missing || environment->setting->lanes == 1);
	check_number(peer_information_of(environment->near_peer).lanes_status, missing ? -EMFILE : 0);
	check_number(count_lanes_lost(environment->near_peer), missing);
	check_number(peer_information_of(environment->far_peer).lanes_missing, 0);
	check_number(setrlimit(RLIMIT_NOFILE, &limit), 0);
	progress_until(environment, peer_information_of(environment->near_peer).lanes_missing == 0 &&
					    peer_information_of(environment->far_peer).lanes ==
						    peer_information_of(environment->near_peer).lanes);
	check(!missing || peer_information_of(environment->near_peer).lanes > lanes);
	check_number(peer_information_of(environment->near_peer).lanes_status, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

const struct scenario connect_scenarios[] = {
	{ "dead-port", dead_port, SCENARIO_CONTROL },
	{ "silent-server", silent_server, SCENARIO_CONTROL },
	{ "bad-servers", bad_servers, SCENARIO_CONTROL },
	{ "keys", differing_keys, SCENARIO_CONTROL },
	{ "addresses-without-key", addresses_without_key, SCENARIO_CONTROL },
	{ "bad-addresses", bad_addresses, SCENARIO_CONTROL },
	{ "listener-addresses", listener_addresses, 0 },
	{ "peer-information", peer_information, 0 },
	{ "cancel-connect", cancel_connect, SCENARIO_SETTING | SCENARIO_CONTROL },
	{ "blocking-calls", blocking_calls, SCENARIO_SETTING },
	{ "lanes-without-descriptors", lanes_without_descriptors, SCENARIO_SETTING },
	{ "hasty-acceptor", hasty_acceptor, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
