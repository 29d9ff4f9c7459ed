/* SPDX-License-Identifier: BSD-2-Clause */
/* 200 clients of one serving context at the same time, in several processes. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/environment.h"

#define PROCESSES 8
#define THREADS 25
#define CLIENTS (PROCESSES * THREADS)
#define SLOT 20000
#define ADDITIONS 10
/* More than the server has for all clients. Many systems allow 1,024 at first, and programs may raise that. */
#define DESCRIPTORS 2048

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, false, false };
static const struct setting keyed = { "keyed", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, true, false, false, false };

/* Message from the server to a client: the client's index, and the token of the region with all slots. */
struct client_start {
	uint64_t number;
	size_t token_length;
	uint8_t token[PL_TOKEN_MAX];
};

struct client {
	const struct setting *setting;
	const char *address;
	pthread_t thread;
};

static void finish(struct pl_operation *operation)
{
	struct pl_error error;

	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static void client_work(struct pl_peer *peer, struct buffer *buffer, const struct client_start *start)
{
	uint64_t offset = 8 + start->number * SLOT;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;

	check_ok(pl_remote_import(peer, start->token, start->token_length, 0, &remote, &error), &error);
	pattern_fill(buffer->bytes, SLOT, start->number, 0);
	check_ok(pl_write(peer, &(struct pl_transfer){ remote, offset, buffer->region, 0, SLOT }, NULL, &operation,
			  &error),
		 &error);
	finish(operation);
	memset(buffer->bytes, 0, SLOT);
	check_ok(pl_read(peer, &(struct pl_transfer){ remote, offset, buffer->region, 0, SLOT }, NULL, &operation,
			 &error),
		 &error);
	finish(operation);
	pattern_check(buffer->bytes, SLOT, start->number, 0);
	for (unsigned i = 0; i < ADDITIONS; i++) {
		check_ok(pl_fetch_add(peer,
				      &(struct pl_atomic){
					      .remote = remote, .remote_offset = 0, .operand = start->number + 1 },
				      NULL, &operation, &error),
			 &error);
		finish(operation);
	}
	check_ok(pl_notify(peer, start->number, NULL, 0, NULL, &operation, &error), &error);
	finish(operation);
	pl_remote_release(remote);
}

static void *client_run(void *argument)
{
	const struct client *client = argument;
	struct pl_options options = setting_options(client->setting);
	struct pl_context *context;
	struct pl_operation *operation;
	struct pl_peer *peer;
	struct pl_completion receipt;
	struct pl_error error;
	struct client_start start;
	struct buffer buffer;

	options.workers = 1;
	options.connect_timeout = AMPLE_TIME;
	context = context_open_with(&options);
	buffer_open(&buffer, context, SLOT, PL_ACCESS_LOCAL);
	check_ok(pl_connect(context, client->address, 0, &peer, &error), &error);
	check_ok(pl_receive(peer, 0, 0, &(struct pl_buffer){ buffer.region, 0, sizeof(start) }, NULL, &operation,
			    &error),
		 &error);
	check_ok(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	check_number(receipt.bytes, sizeof(start));
	memcpy(&start, buffer.bytes, sizeof(start));
	client_work(peer, &buffer, &start);
	/* Stays connected until the server has seen all clients. */
	check_ok(pl_receive(peer, 1, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 1 }, NULL, &operation, &error),
		 &error);
	finish(operation);
	pl_peer_close(peer);
	buffer_close(&buffer);
	pl_close(context);
	return NULL;
}

static void clients_process(const struct setting *setting, int addresses)
{
	struct client clients[THREADS];
	char address[96];

	check_number(read(addresses, address, sizeof(address)), sizeof(address));
	for (unsigned i = 0; i < THREADS; i++) {
		clients[i] = (struct client){ setting, address, 0 };
		check_number(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(clients[i].thread, NULL);
	exit(0);
}

/* Collects one notification from every client. */
static void hear_all(struct scenario_environment *environment, struct pl_context *context)
{
	bool heard[CLIENTS] = { false };

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct pl_completion completion;

		do
			collect(environment, context, &completion, 1);
		while (completion.kind == PL_KIND_SEND);
		check_number(completion.kind, PL_KIND_NOTIFIED);
		check(completion.value < CLIENTS && !heard[completion.value]);
		check_number(completion.value, pl_peer_user_data(completion.peer));
		heard[completion.value] = true;
	}
}

static void serve_all(const struct setting *setting, int addresses)
{
	struct pl_context *context = context_open(setting);
	struct scenario_environment environment = { .setting = setting };
	struct pl_peer *peers[CLIENTS];
	struct pl_listener *listener;
	struct client_start start = { .token_length = PL_TOKEN_MAX };
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer all;
	uint64_t counter;
	char address[96] = "";

	buffer_open(&all, context, 8 + CLIENTS * SLOT, PL_ACCESS_ALL);
	memset(all.bytes, 0, 8);
	check_ok(pl_region_share(all.region, NULL, start.token, &start.token_length, &error), &error);
	listener = listener_open(setting, context, address);
	for (unsigned i = 0; i < PROCESSES; i++)
		check_number(write(addresses, address, sizeof(address)), sizeof(address));
	for (start.number = 0; start.number < CLIENTS; start.number++) {
		check_ok(pl_accept(listener, AMPLE_TIME, &peers[start.number], &error), &error);
		pl_peer_set_user_data(peers[start.number], start.number);
		check_ok(pl_send_copy(peers[start.number], 0, &start, sizeof(start), NULL, NULL, &error), &error);
	}
	hear_all(&environment, context);
	for (unsigned i = 0; i < CLIENTS; i++) {
		pattern_check(all.bytes + 8 + i * (size_t)SLOT, SLOT, i, 0);
		check_ok(pl_send_copy(peers[i], 1, "", 1, NULL, &operation, &error), &error);
		finish(operation);
	}
	memcpy(&counter, all.bytes, 8);
	check_number(counter, (uint64_t)ADDITIONS * CLIENTS * (CLIENTS + 1) / 2);
	settle(&environment, 50);
	for (unsigned i = 0; i < CLIENTS; i += 2)
		pl_peer_close(peers[i]);
	buffer_close(&all);
	pl_close(context);
}

static void clients(void *argument)
{
	unsigned descriptors = open_descriptors(), threads = running_threads();
	pid_t children[PROCESSES];
	int addresses[2];

	check(!pipe(addresses));
	for (unsigned i = 0; i < PROCESSES; i++) {
		children[i] = process_fork();
		if (!children[i])
			clients_process(argument, addresses[0]);
	}
	serve_all(argument, addresses[1]);
	for (unsigned i = 0; i < PROCESSES; i++)
		check_number(process_wait(children[i]), 0);
	check_number(open_descriptors(), descriptors + 2);
	check_threads(threads);
}

/* Exits with 77 if the machine has too few descriptors for the clients. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	check_number(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < DESCRIPTORS) {
		printf("the hard limit of descriptors is below %d\n", DESCRIPTORS);
		exit(SKIPPED);
	}
	if (limit.rlim_cur < DESCRIPTORS)
		limit.rlim_cur = DESCRIPTORS;
	check_number(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "200 clients", clients, &plain, 30 },
		{ "200 clients, keyed", clients, &keyed, 40 },
	};

	allow_descriptors();
	return cases_run("clients", cases, sizeof(cases) / sizeof(cases[0]));
}
