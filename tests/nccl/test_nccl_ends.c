/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of which one end fails, closes or refuses while its process goes on: the other end must learn that. */
#include <peerlane/peerlane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "end_buffer.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

/* -- a sender that fails by itself ----------------------------------------------------------------- */

#define ROOM 64u /* bytes of the receive */

/* Sends more than the receiver has room for, and closes as NCCL does after a failure. */
static void failing_sender(struct end *end)
{
	void *kept;

	driver_open(&end->driver, 11);
	kept = end_send_comm(end);
	end->comm = end_send_comm(end);
	end->data = calloc(1, LENGTH);
	check(end->data);
	end->memory = driver_register(&end->driver, end->comm, end->data, LENGTH);
	check_number(driver_wait_refusal(&end->driver, end->comm, end->data, ROOM + 1, end->memory), NET_INVALID_USAGE);
	driver_deregister(&end->driver, end->comm, end->memory);
	driver_close_send(&end->driver, end->comm);
	/* The connection between the processes stays. */
	end_meet(end);
	driver_close_send(&end->driver, kept);
	free(end->data);
	driver_close(&end->driver);
}

static void case_sender_fails(void *fabric)
{
	void *kept, *request;
	struct end end;

	use_fabric(fabric);
	end_start_child(&end, failing_sender);
	driver_open(&end.driver, 11);
	kept = end_receive_comm(&end);
	end.comm = end_receive_comm(&end);
	end.data = calloc(1, LENGTH);
	check(end.data);
	end.memory = driver_register(&end.driver, end.comm, end.data, LENGTH);
	request = driver_must_receive(&end.driver, end.comm, end.data, ROOM, end.memory);
	check_number(driver_wait_failure(&end.driver, request), NET_REMOTE_ERROR);
	end_meet(&end);
	driver_close_receive(&end.driver, kept);
	end_close(&end, false);
	check_number(process_wait(end.other), 0);
}

/* -- a sender that ends before it was accepted ----------------------------------------------------- */

/* Connects a second time; when that is accepted, the first greeting has left, too. */
static void *greet_both(struct end *end, void *communicator)
{
	uint8_t first[NET_HANDLE_SIZE], second[NET_HANDLE_SIZE];
	void *kept = end->driver.context, *comm = NULL, *accepted;
	struct patience patience;

	end_get(end, first, sizeof(first));
	end_get(end, second, sizeof(second));
	patience_begin(&patience, 30);
	while (!comm) {
		check_number(driver_connect(&end->driver, second, &comm), NET_SUCCESS);
		patience_wait(&patience);
	}
	end->driver.context = communicator;
	check_number(driver_connect(&end->driver, first, &accepted), NET_SUCCESS);
	check(!accepted);
	end->driver.context = kept;
	return comm;
}

/* Ends the communicator of a connection that was not accepted. Another communicator of the process goes on. */
static void leaving_sender(struct end *end)
{
	void *communicator, *send, *receive;

	driver_open(&end->driver, 11);
	check_number(driver_init(&end->driver, &communicator), NET_SUCCESS);
	send = greet_both(end, communicator);
	check_number(driver_finalize(&end->driver, communicator), NET_SUCCESS);
	end_meet(end);
	/* Calls the plugin until the other end has seen the failure. */
	receive = end_receive_comm(end);
	end_meet(end);
	driver_close_receive(&end->driver, receive);
	driver_close_send(&end->driver, send);
	driver_close(&end->driver);
}

/* The receive is refused, or fails later. */
static void check_receive_fails(struct driver *driver, void *comm)
{
	enum net_result rc;
	void *request;

	rc = driver_receive(driver, comm, NULL, 0, NULL, &request);
	if (rc == NET_SUCCESS) {
		check(request);
		rc = driver_wait_failure(driver, request);
	}
	check_number(rc, NET_REMOTE_ERROR);
}

static void case_sender_leaves(void *fabric)
{
	void *listener, *other, *kept, *send;
	struct end end;

	use_fabric(fabric);
	end_start_child(&end, leaving_sender);
	driver_open(&end.driver, 11);
	listener = end_begin_listening(&end);
	other = end_begin_listening(&end);
	kept = end_accept(&end, other);
	end_meet(&end);
	end.comm = end_accept(&end, listener);
	check_receive_fails(&end.driver, end.comm);
	send = end_send_comm(&end);
	end_meet(&end);
	driver_close_send(&end.driver, send);
	driver_close_receive(&end.driver, kept);
	driver_close_receive(&end.driver, end.comm);
	driver_close(&end.driver);
	check_number(process_wait(end.other), 0);
}

/* The same with both communicators in one process, whose messages are function calls. */
static void case_sender_leaves_process(void *argument)
{
	void *communicator, *listener, *comm;
	uint8_t handle[NET_HANDLE_SIZE];
	struct driver driver;

	(void)argument;
	driver_open(&driver, 12);
	driver_listen(&driver, handle, &listener);
	communicator = driver.context;
	check_number(driver_init(&driver, &driver.context), NET_SUCCESS);
	check_number(driver_connect(&driver, handle, &comm), NET_SUCCESS);
	check(!comm);
	check_number(driver_finalize(&driver, driver.context), NET_SUCCESS);
	driver.context = communicator;
	check_number(driver_accept(&driver, listener, &comm), NET_SUCCESS);
	check(comm);
	check_receive_fails(&driver, comm);
	driver_close_receive(&driver, comm);
	driver_close_listen(&driver, listener);
	driver_close(&driver);
}

/* -- a receiver without memory --------------------------------------------------------------------- */

#define BLOCK 4096u /* less than a connection of the plugin needs */
#define BLOCKS 8192u

/* Takes all memory that the process has, and lets it have no more. Returns the number of blocks. */
static unsigned exhaust_memory(void *blocks[BLOCKS], const struct rlimit *before)
{
	/* The kernel ignores a limit of 0. */
	const struct rlimit none = { 1, before->rlim_max };
	unsigned count = 0;

	check_number(setrlimit(RLIMIT_DATA, &none), 0);
	while (count < BLOCKS && (blocks[count] = malloc(BLOCK)))
		count++;
	return count;
}

static void restore_memory(void *blocks[BLOCKS], unsigned count, const struct rlimit *before)
{
	check_number(setrlimit(RLIMIT_DATA, before), 0);
	for (unsigned i = 0; i < count; i++)
		free(blocks[i]);
}

/* Both ends learn at once that a connection cannot be accepted. */
static void case_no_memory(void *argument)
{
	static void *blocks[BLOCKS];
	void *listener, *sender, *receiver;
	uint8_t handle[NET_HANDLE_SIZE];
	enum net_result accepted;
	struct rlimit before;
	struct driver driver;
	unsigned count;

	(void)argument;
	if (!memory_is_exact()) {
		fprintf(stderr, "a sanitizer ends the program without memory\n");
		exit(SKIPPED);
	}
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &listener);
	check_number(driver_connect(&driver, handle, &sender), NET_SUCCESS);
	check_number(getrlimit(RLIMIT_DATA, &before), 0);
	count = exhaust_memory(blocks, &before);
	accepted = count < BLOCKS ? driver_accept(&driver, listener, &receiver) : NET_SUCCESS;
	restore_memory(blocks, count, &before);
	if (count == BLOCKS) {
		fprintf(stderr, "RLIMIT_DATA has no effect here\n");
		exit(SKIPPED);
	}
	check_number(accepted, NET_SYSTEM_ERROR);
	check(!receiver);
	check_number(driver_connect(&driver, handle, &sender), NET_REMOTE_ERROR);
	driver_close_listen(&driver, listener);
	driver_close(&driver);
}

/* -- messages before a connection was accepted ----------------------------------------------------- */

/* Place of the address, as text, in the plugin's handle. */
#define HANDLE_ADDRESS 32

#define EARLY_PEERS 10u      /* the first of them is accepted at once */
#define EARLY_MESSAGES 1025u /* of each: one more than its window allows */

/* Connects as the plugin does, and sends messages that the plugin knows and ignores. */
static void send_early(struct pl_context *context, const char *address)
{
	const uint32_t closed[8] = { 0 };
	struct pl_peer *peer;

	check_ok(pl_connect(context, address, 0, &peer, NULL), NULL);
	for (unsigned i = 0; i < EARLY_MESSAGES; i++)
		check_ok(pl_notify(peer, 1ull << 32 | 9, closed, sizeof(closed), NULL, NULL, NULL), NULL);
}

/* Waits until all messages are sent: the last of each connection waits until the plugin has taken others. */
static void wait_for_messages(struct pl_context *context)
{
	struct pl_completion taken[16];
	struct patience patience;
	unsigned sent = 0;

	patience_begin(&patience, 60);
	while (sent < EARLY_PEERS * EARLY_MESSAGES) {
		int count = pl_poll(context, taken, 16);

		for (int i = 0; i < count; i++) {
			check(taken[i].kind != PL_KIND_LOST);
			sent += taken[i].kind == PL_KIND_NOTIFY;
			check_number(taken[i].status, 0);
			pl_notification_free(context, &taken[i]);
		}
		if (!count)
			patience_wait(&patience);
	}
}

static void early_sender(struct end *end)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	char address[64];

	options.insecure = PL_ON;
	options.fabric = "tcp";
	options.lanes = 1;
	end_get(end, address, sizeof(address));
	check_ok(pl_open(&context, &options, NULL), NULL);
	for (unsigned i = 0; i < EARLY_PEERS; i++)
		send_early(context, address);
	end_meet(end);
	wait_for_messages(context);
	pl_close(context);
}

/* True if a socket of this port still has bytes to send or to read. */
static bool has_bytes_under_way(unsigned port)
{
	unsigned local, remote, sending, reading;
	FILE *file = fopen("/proc/net/tcp", "re");
	bool found = false;
	char line[256];

	check(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, " %*u: %*8x:%4x %*8x:%4x %*2x %8x:%8x", &local, &remote, &sending, &reading) == 4 &&
		    (local == port || remote == port))
			found = found || sending || reading;
	fclose(file);
	return found;
}

/*
 * Processes connect and send while NCCL does not call the plugin. A lost greeting would let its sender wait for
 * PEERLANE_ACCEPT_TIMEOUT, so all messages wait for the accept, and none is dropped.
 */
static void case_early_messages(void *argument)
{
	uint8_t handle[NET_HANDLE_SIZE];
	const char *address = (const char *)handle + HANDLE_ADDRESS;
	struct patience patience;
	void *listener, *comm;
	struct end end;
	int status;

	(void)argument;
	use_fabric("tcp");
	end_start_child(&end, early_sender);
	driver_open(&end.driver, 11);
	driver_listen(&end.driver, handle, &listener);
	end_put(&end, address, 64);
	end_meet(&end);
	patience_begin(&patience, 60);
	while (has_bytes_under_way((unsigned)atoi(strrchr(address, ':') + 1)))
		patience_wait(&patience);
	while (waitpid(end.other, &status, WNOHANG) == 0) {
		check_number(driver_accept(&end.driver, listener, &comm), NET_SUCCESS);
		check(!comm);
		patience_wait(&patience);
	}
	check_number(status, 0);
	driver_close_listen(&end.driver, listener);
	driver_close(&end.driver);
}

#define FABRIC_CASES(fabric) \
	{ "sender_fails_" fabric, case_sender_fails, fabric, 60 }, \
	{ \
		"sender_leaves_" fabric, case_sender_leaves, fabric, 60 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		FABRIC_CASES("tcp"),
		FABRIC_CASES("local"),
		FABRIC_CASES("denied"),
		FABRIC_CASES("verbs"),
		{ "sender_leaves_process", case_sender_leaves_process, NULL, 30 },
		{ "no_memory", case_no_memory, NULL, 30 },
		{ "early_messages", case_early_messages, NULL, 90 },
	};

	return cases_run("nccl_ends", cases, sizeof(cases) / sizeof(cases[0]));
}
