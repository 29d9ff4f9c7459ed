/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server of `peerlane serve` does in the long run: old partial files, rights that end, and accounts of many identities. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/transfer/quota.h"

/* Identities that an authority certifies one after the other, and most accounts of them. */
#define IDENTITIES 20000
#define ACCOUNTS 1024
#define TIMEOUT (20 * CLI_NS_PER_S)

static void ignore_event(void *user, const struct server_event_report *report)
{
	(void)user;
	(void)report;
}

static void test_old_partial_files_need_no_client(void **state)
{
	struct server server = { .upload = -1, .keep_parts = CLI_NS_PER_S };
	uint64_t now = cli_now();

	(void)state;
	assert_true(server_next_time(&server) == UINT64_MAX);
	server.upload = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(server.upload >= 0);
	server.expire_next = now + TIMEOUT;
	assert_true(server_next_time(&server) == now + TIMEOUT);
	server.keep_parts = 0;
	assert_true(server_next_time(&server) == UINT64_MAX);
	close(server.upload);
}

static void test_accounts_are_bounded(void **state)
{
	struct client client = { .rights = { .quota = 1 << 30 } };
	struct server server = { .upload = -1 };
	struct quota_owner first;
	struct pl_error error;

	(void)state;
	client.server = &server;
	strcpy(client.identity.fingerprint, "SHA256:first");
	first = quota_owner_of(&client);
	/* A file of this identity is being written all the time. */
	assert_int_equal(quota_reserve_small(&client, "file", 4096, &error), 0);
	for (int i = 0; i < IDENTITIES; i++) {
		snprintf(client.identity.fingerprint, sizeof(client.identity.fingerprint), "SHA256:%d", i);
		assert_int_equal(quota_reserve(&client, "file", 4096, 0, &error), 0);
	}
	assert_int_equal(server.account_count, ACCOUNTS);
	client.rights.quota = 8192;
	strcpy(client.identity.fingerprint, first.fingerprint);
	assert_int_equal(quota_reserve(&client, "file", 8192, 0, &error), -EDQUOT);
	quota_end_small(&server, &first, 4096, false);
	assert_int_equal(quota_reserve(&client, "file", 8192, 0, &error), 0);
	assert_int_equal(server.account_count, ACCOUNTS);
	quota_close(&server);
	assert_int_equal(server.account_count, 0);
}

/* Server with a client that is connected and sends nothing. */
struct rig {
	struct server server;
	struct pl_context *context; /* of the client */
	struct pl_peer *peer;
	struct client *client;
};

static void rig_open(struct rig *rig)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_operation *accept;
	struct pl_completion completion;
	char address[80];

	memset(rig, 0, sizeof(*rig));
	options.fabric = "tcp";
	options.insecure = PL_ON;
	assert_int_equal(pl_open(&rig->context, &options, NULL), 0);
	assert_int_equal(pl_open(&rig->server.context, &options, NULL), 0);
	assert_int_equal(pl_listen(rig->server.context, "127.0.0.1:0", &rig->server.listener, NULL), 0);
	pl_listener_address(rig->server.listener, address, sizeof(address));
	assert_int_equal(pl_accept_start(rig->server.listener, 0, &accept, NULL), 0);
	assert_int_equal(pl_connect(rig->context, address, TIMEOUT, &rig->peer, NULL), 0);
	assert_int_equal(pl_wait(accept, TIMEOUT, &completion, NULL), 0);
	rig->client = calloc(1, sizeof(*rig->client));
	rig->client->server = &rig->server;
	rig->client->peer = completion.peer;
	rig->client->active = cli_now();
	rig->server.clients = rig->client;
	rig->server.client_count = rig->server.clients_max = 1;
	rig->server.upload = rig->server.committer.event_fd = -1;
	rig->server.limit_check = rig->server.pace_check = UINT64_MAX;
	rig->server.report_event = ignore_event;
}

static void rig_close(struct rig *rig)
{
	server_stop(&rig->server);
	pl_peer_close(rig->peer);
	pl_close(rig->context);
	pl_close(rig->server.context);
}

static void test_rights_end_without_a_limit_of_idleness(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.client->rights.until = UINT64_MAX;
	server_run(&rig.server);
	assert_int_equal(rig.server.client_count, 1);
	/* The wall clock may reach the time, or be set, at any moment: the server looks again without any event. */
	assert_true(server_next_time(&rig.server) < UINT64_MAX);
	rig.client->rights.until = 1;
	rig.server.idle_check = 0;
	server_run(&rig.server);
	assert_int_equal(rig.server.client_count, 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_partial_files_need_no_client),
		cmocka_unit_test(test_accounts_are_bounded),
		cmocka_unit_test(test_rights_end_without_a_limit_of_idleness),
	};

	return cmocka_run_group_tests_name("server for days", tests, NULL, NULL);
}
