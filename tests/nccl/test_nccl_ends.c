/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of which one end fails or closes while its process goes on: the other end must learn that. */
#include <stdlib.h>

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
	};

	return cases_run("nccl_ends", cases, sizeof(cases) / sizeof(cases[0]));
}
