/* SPDX-License-Identifier: BSD-2-Clause */
/* The plugin with both ends in one process, as for ranks of one process: every table, and the life of the plugin. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

#define LENGTH ((size_t)4 << 20)
#define MIDDLE ((size_t)1 << 20)

static const int versions[] = { 8, 9, 10, 11, 12 };

static void line_open(struct line *line, struct driver *driver, size_t length)
{
	line_connect(line, driver, 0, 0);
	line->from = malloc(length);
	line->to = calloc(1, length);
	check(line->from && line->to);
	line->from_memory = driver_register(driver, line->sender, line->from, length);
	line->to_memory = driver_register(driver, line->receiver, line->to, length);
}

static void line_close(struct line *line)
{
	driver_deregister(line->driver, line->sender, line->from_memory);
	driver_deregister(line->driver, line->receiver, line->to_memory);
	free(line->from);
	free(line->to);
	driver_close_send(line->driver, line->sender);
	driver_close_receive(line->driver, line->receiver);
}

/* A message of `size` bytes into a receive of `room` bytes. */
static void line_move(struct line *line, size_t size, size_t room, unsigned number)
{
	void *receive, *send;

	content_fill(line->from, size, number);
	memset(line->to, 0, room);
	receive = driver_must_receive(line->driver, line->receiver, line->to, room, line->to_memory);
	send = driver_must_send(line->driver, line->sender, line->from, size, line->from_memory);
	check_number(driver_finish(line->driver, send), size);
	check_number(driver_finish(line->driver, receive), size);
	check(content_is(line->to, size, number));
	for (size_t at = size; at < room; at++)
		check(line->to[at] == 0);
}

static const size_t sizes[] = {
	0, 1, 8, 127, 992, 993, 4096, 16384, 16385, 65536, 65544, 262144, 262145, MIDDLE, LENGTH
};

static void case_versions(void *argument)
{
	struct driver driver;
	struct line line;

	driver_open(&driver, *(const int *)argument);
	line_open(&line, &driver, LENGTH);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		line_move(&line, sizes[i], sizes[i], i);
		line_move(&line, sizes[i], LENGTH, i + 50);
	}
	line_close(&line);
	driver_close(&driver);
}

static void case_properties(void *argument)
{
	struct net_v8_properties v8;
	struct net_v9_properties v9;
	struct net_v11_properties v11;
	struct net_v12_properties v12;
	struct driver driver;
	int count;

	(void)argument;
	driver_open(&driver, 11);
	count = driver_devices(&driver);
	check(count >= 1);
	for (int i = 0; i < count; i++) {
		/* NCCL's adapters copy as many entries as the count says. */
		memset(&v9, 0xee, sizeof(v9));
		memset(&v11, 0xee, sizeof(v11));
		memset(&v12, 0xee, sizeof(v12));
		check_number(driver.v8->getProperties(i, &v8), NET_SUCCESS);
		check_number(driver.v9->getProperties(i, &v9), NET_SUCCESS);
		check_number(driver.v11->getProperties(i, &v11), NET_SUCCESS);
		check_number(driver.v12->getProperties(i, &v12), NET_SUCCESS);
		check_text(v8.name, v12.name);
		check_text(v9.name, v11.name);
		check_number(v8.speed, v12.speed);
		check(v8.speed > 0);
		check_number(v12.guid, i + 1);
		check_number(v12.pointers, NET_POINTER_HOST);
		check_number(v12.receives_max, 1);
		check_number(v9.virtual_device.count, 1);
		check_number(v9.virtual_device.devices[0], i);
		check_number(v12.virtual_device.count, 1);
		check_number(v12.virtual_device.devices[0], i);
		check(v11.send_bytes_max > 0 && v11.send_bytes_max <= 1ull << 40);
		check_number(v11.multi_request_max, 1);
		check_number(v12.rail, -1);
		check_number(v12.plane, -1);
	}
	check(driver.v11->getProperties(count, &v11) != NET_SUCCESS);
	check(driver.v11->getProperties(-1, &v11) != NET_SUCCESS);
	driver_close(&driver);
}

/* A comm takes as many requests as NCCL may have in flight before any of them is tested, and no more. */
static void case_requests_in_flight(void *argument)
{
	const size_t size = 40000;
	void *sends[NET_REQUESTS_MAX], *receives[NET_REQUESTS_MAX], *more;
	struct driver driver;
	struct line line;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, (NET_REQUESTS_MAX + 1) * size);
	content_fill(line.from, NET_REQUESTS_MAX * size, 4);
	for (unsigned i = 0; i < NET_REQUESTS_MAX; i++) {
		check_number(driver_receive(&driver, line.receiver, line.to + i * size, size, line.to_memory,
					    &receives[i]),
			     NET_SUCCESS);
		check(receives[i]);
	}
	check_number(driver_receive(&driver, line.receiver, line.to, size, line.to_memory, &more), NET_SUCCESS);
	check(!more);
	for (unsigned i = 0; i < NET_REQUESTS_MAX; i++)
		sends[i] = driver_must_send(&driver, line.sender, line.from + i * size, size, line.from_memory);
	check_number(driver_send(&driver, line.sender, line.from, size, line.from_memory, &more), NET_SUCCESS);
	check(!more);
	for (unsigned i = 0; i < NET_REQUESTS_MAX; i++) {
		check_number(driver_finish(&driver, sends[i]), size);
		check_number(driver_finish(&driver, receives[i]), size);
	}
	check(content_is(line.to, NET_REQUESTS_MAX * size, 4));
	line_close(&line);
	driver_close(&driver);
}

/* All requests of a comm run, and NCCL tests the oldest only. */
static void case_many_requests(void *argument)
{
	enum { COUNT = 96 };
	const size_t size = 40000;
	void *sends[COUNT], *receives[COUNT];
	unsigned sent = 0, posted = 0, send_done = 0, receive_done = 0;
	struct patience patience;
	struct driver driver;
	struct line line;
	int done, got;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, COUNT * size);
	content_fill(line.from, COUNT * size, 3);
	patience_begin(&patience, 30);
	while (receive_done < COUNT || send_done < COUNT) {
		unsigned before = receive_done + send_done;

		while (posted < COUNT) {
			check_number(driver_receive(&driver, line.receiver, line.to + posted * size, size,
						    line.to_memory, &receives[posted]),
				     NET_SUCCESS);
			if (!receives[posted])
				break;
			posted++;
		}
		check(posted - receive_done <= NET_REQUESTS_MAX);
		while (sent < COUNT) {
			check_number(driver_send(&driver, line.sender, line.from + sent * size, size, line.from_memory,
						 &sends[sent]),
				     NET_SUCCESS);
			if (!sends[sent])
				break;
			sent++;
		}
		if (receive_done < posted) {
			check_number(driver_test(&driver, receives[receive_done], &done, &got), NET_SUCCESS);
			receive_done += done == 1;
		}
		if (send_done < sent) {
			check_number(driver_test(&driver, sends[send_done], &done, NULL), NET_SUCCESS);
			send_done += done == 1;
		}
		if (before == receive_done + send_done)
			patience_wait(&patience);
	}
	check(content_is(line.to, COUNT * size, 3));
	line_close(&line);
	driver_close(&driver);
}

static void case_too_large(void *argument)
{
	struct driver driver;
	struct line line;
	void *receive;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	receive = driver_must_receive(&driver, line.receiver, line.to, 100, line.to_memory);
	check_number(driver_wait_refusal(&driver, line.sender, line.from, 101, line.from_memory), NET_INVALID_USAGE);
	check(strstr(driver_warning(), "larger than its receive"));
	/* The other end learns of the failure when the sender closes. */
	driver_deregister(&driver, line.sender, line.from_memory);
	driver_close_send(&driver, line.sender);
	check_number(driver_wait_failure(&driver, receive), NET_REMOTE_ERROR);
	driver_deregister(&driver, line.receiver, line.to_memory);
	driver_close_receive(&driver, line.receiver);
	free(line.from);
	free(line.to);
	driver_close(&driver);
}

/* A receiver may register 4,096 buffers. */
static void case_many_buffers(void *argument)
{
	static void *memory[4096];
	struct driver driver;
	struct line line;
	unsigned count = 0;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	for (; count < 4095; count++)
		memory[count] = driver_register(&driver, line.receiver, line.to + count, 1);
	line_move(&line, MIDDLE, MIDDLE, 1);
	memory[count++] = driver_register(&driver, line.receiver, line.to, 1);
	driver_must_receive(&driver, line.receiver, line.to, MIDDLE, line.to_memory);
	check_number(driver_wait_refusal(&driver, line.sender, line.from, MIDDLE, line.from_memory),
		     NET_INTERNAL_ERROR);
	check(driver_logged("more than 4096 buffers"));
	for (unsigned i = 0; i < count; i++)
		driver_deregister(&driver, line.receiver, memory[i]);
	line_close(&line);
	driver_close(&driver);
}

/* NCCL aborts: it deregisters the memory, frees it, and closes at last. */
static void case_abort(void *argument)
{
	struct driver driver;
	struct line line;

	(void)argument;
	driver_open(&driver, 12);
	for (int round = 0; round < 20; round++) {
		line_open(&line, &driver, LENGTH);
		for (int i = 0; i < 4; i++) {
			driver_must_receive(&driver, line.receiver, line.to + i * MIDDLE, MIDDLE, line.to_memory);
			driver_must_send(&driver, line.sender, line.from + i * MIDDLE, MIDDLE, line.from_memory);
		}
		if (round % 2) {
			driver_deregister(&driver, line.receiver, line.to_memory);
			memset(line.to, 0xcc, LENGTH);
			for (size_t at = 0; at < LENGTH; at += 1000)
				check(line.to[at] == 0xcc);
			driver_deregister(&driver, line.sender, line.from_memory);
			free(line.from);
		} else {
			driver_deregister(&driver, line.sender, line.from_memory);
			free(line.from);
			driver_deregister(&driver, line.receiver, line.to_memory);
		}
		free(line.to);
		driver_close_send(&driver, line.sender);
		driver_close_receive(&driver, line.receiver);
	}
	driver_close(&driver);
}

/* After an error NCCL never closes these. finalize() does. */
static void case_orphans(void *argument)
{
	uint8_t handle[NET_HANDLE_SIZE], other[NET_HANDLE_SIZE];
	unsigned threads = running_threads(), descriptors;
	void *listener, *idle, *comm;
	struct driver driver;

	(void)argument;
	driver_open(&driver, 11);
	driver_close(&driver);
	check_threads(threads);
	descriptors = open_descriptors();
	for (int round = 0; round < 3; round++) {
		driver_open(&driver, 11);
		driver_listen(&driver, handle, &listener);
		driver_listen(&driver, other, &idle);
		check_number(driver_connect(&driver, handle, &comm), NET_SUCCESS);
		check(!comm);
		driver_close(&driver);
		check_threads(threads);
		check_number(open_descriptors(), descriptors);
	}
}

/* Several communicators of a process share the state; each may end first. */
static void case_communicators(void *argument)
{
	unsigned threads = running_threads();
	void *contexts[8];
	struct driver driver;
	struct line line;

	(void)argument;
	driver_open(&driver, 11);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 8; i++)
			check_number(driver_init(&driver, &contexts[i]), NET_SUCCESS);
		line_open(&line, &driver, LENGTH);
		for (int i = 0; i < 8; i++)
			check_number(driver_finalize(&driver, contexts[i]), NET_SUCCESS);
		line_move(&line, MIDDLE, MIDDLE, 1);
		line_close(&line);
	}
	check_number(driver_finalize(&driver, NULL), NET_SUCCESS);
	driver_close(&driver);
	check_threads(threads);
	/* A second communicator after an unload. */
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	line_move(&line, MIDDLE, MIDDLE, 2);
	line_close(&line);
	driver_close(&driver);
	check_threads(threads);
}

struct busy {
	struct line *line;
	_Atomic bool ends;
};

/* NCCL's service thread registers user buffers beside the progress thread's messages, on the same comm. */
static void *run_service(void *argument)
{
	struct busy *busy = argument;
	struct driver *driver = busy->line->driver;
	static uint8_t buffers[2][4096];

	while (!busy->ends) {
		void *first = driver_register(driver, busy->line->sender, buffers[0], sizeof(buffers[0]));
		void *second = driver_register(driver, busy->line->receiver, buffers[1], sizeof(buffers[1]));

		driver_deregister(driver, busy->line->receiver, second);
		driver_deregister(driver, busy->line->sender, first);
	}
	return NULL;
}

static void case_service_thread(void *argument)
{
	struct driver driver;
	struct line line;
	struct busy busy = { .line = &line };
	pthread_t thread;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	check_number(pthread_create(&thread, NULL, run_service, &busy), 0);
	for (unsigned i = 0; i < 60; i++)
		line_move(&line, i * 3001, MIDDLE, i);
	busy.ends = true;
	pthread_join(thread, NULL);
	line_close(&line);
	driver_close(&driver);
}

static void case_many_comms(void *argument)
{
	enum { COUNT = 300 };
	static struct line lines[COUNT];
	struct driver driver;

	(void)argument;
	driver_open(&driver, 11);
	for (unsigned i = 0; i < COUNT; i++)
		line_open(&lines[i], &driver, 20000);
	for (unsigned i = 0; i < COUNT; i++)
		line_move(&lines[i], i * 60, 20000, i);
	for (unsigned i = 0; i < COUNT; i++)
		line_close(&lines[i]);
	driver_close(&driver);
}

/* In a child of fork(2) calls with the parent's objects fail, and read nothing from the sockets that both have. */
static void expect_refusals(struct driver *driver, struct line *line, void *handle, void *listener, void *receive)
{
	uint8_t other[NET_HANDLE_SIZE];
	struct net_v11_properties properties;
	void *request, *made = other;
	int done, size;

	check_number(driver_test(driver, receive, &done, &size), NET_INVALID_USAGE);
	check(!done);
	check_number(driver_send(driver, line->sender, line->from, LENGTH, line->from_memory, &request),
		     NET_INVALID_USAGE);
	check_number(driver_receive(driver, line->receiver, line->to, LENGTH, line->to_memory, &request),
		     NET_INVALID_USAGE);
	check(!request);
	check_number(driver->v11->regMr(line->sender, line->from, LENGTH, NET_POINTER_HOST, &request),
		     NET_INVALID_USAGE);
	check(!request);
	check_number(driver->v11->listen(driver->context, 0, other, &made), NET_INVALID_USAGE);
	check(!made);
	check_number(driver_accept(driver, listener, &made), NET_INVALID_USAGE);
	check(!made);
	check_number(driver_connect(driver, handle, &made), NET_INVALID_USAGE);
	check(!made);
	check_number(driver->v11->devices(&size), NET_INVALID_USAGE);
	check_number(driver->v11->getProperties(0, &properties), NET_INVALID_USAGE);
}

/* A child of fork(2) leaves the parent's connections alone, and can begin anew. */
static void case_fork(void *argument)
{
	struct driver driver, second;
	struct line line, other;
	uint8_t handle[NET_HANDLE_SIZE];
	void *listener, *receive, *send;
	pid_t child;

	(void)argument;
#ifdef __SANITIZE_THREAD__
	fprintf(stderr, "ThreadSanitizer allows no new threads in a child of a process with threads\n");
	exit(SKIPPED);
#endif
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	line_move(&line, MIDDLE, MIDDLE, 1);
	driver_listen(&driver, handle, &listener);
	receive = driver_must_receive(&driver, line.receiver, line.to, LENGTH, line.to_memory);
	child = process_fork();
	if (child == 0) {
		expect_refusals(&driver, &line, handle, listener, receive);
		line_close(&line);
		driver_close(&driver);
		driver_open(&second, 11);
		line_open(&other, &second, LENGTH);
		line_move(&other, MIDDLE, MIDDLE, 2);
		line_close(&other);
		driver_close(&second);
		_exit(0);
	}
	check_number(process_wait(child), 0);
	send = driver_must_send(&driver, line.sender, line.from, LENGTH, line.from_memory);
	check_number(driver_finish(&driver, send), LENGTH);
	check_number(driver_finish(&driver, receive), LENGTH);
	line_move(&line, MIDDLE, MIDDLE, 3);
	driver_close_listen(&driver, listener);
	line_close(&line);
	driver_close(&driver);
}

/* The handle of another plugin, or of NCCL's sockets. */
static void case_foreign_handle(void *argument)
{
	uint8_t handle[NET_HANDLE_SIZE] = { 2, 0, 17, 200 };
	struct driver driver;
	void *comm;

	(void)argument;
	driver_open(&driver, 11);
	check_number(driver_connect(&driver, handle, &comm), NET_INVALID_USAGE);
	check(strstr(driver_warning(), "does not use this release"));
	driver_close(&driver);
}

static void case_closed_end(void *argument)
{
	struct driver driver;
	struct line line;
	void *request;

	(void)argument;
	driver_open(&driver, 11);
	line_open(&line, &driver, LENGTH);
	request = driver_must_receive(&driver, line.receiver, line.to, 100, line.to_memory);
	driver_deregister(&driver, line.sender, line.from_memory);
	driver_close_send(&driver, line.sender);
	check_number(driver_wait_failure(&driver, request), NET_REMOTE_ERROR);
	driver_deregister(&driver, line.receiver, line.to_memory);
	driver_close_receive(&driver, line.receiver);
	free(line.from);
	free(line.to);
	line_open(&line, &driver, LENGTH);
	driver_deregister(&driver, line.receiver, line.to_memory);
	driver_close_receive(&driver, line.receiver);
	check_number(driver_wait_refusal(&driver, line.sender, line.from, 100, line.from_memory), NET_REMOTE_ERROR);
	driver_deregister(&driver, line.sender, line.from_memory);
	driver_close_send(&driver, line.sender);
	free(line.from);
	free(line.to);
	driver_close(&driver);
}

/* The plugin sets variables that NCCL reads later, but never against the user. */
static void case_nccl_variables(void *argument)
{
	struct driver driver;

	(void)argument;
	check_number(unsetenv("NCCL_P2P_NET_CHUNKSIZE"), 0);
	driver_open(&driver, 11);
	check_text(getenv("NCCL_P2P_NET_CHUNKSIZE"), "524288");
	driver_close(&driver);
	check_number(setenv("NCCL_P2P_NET_CHUNKSIZE", "65536", 1), 0);
	driver_open(&driver, 11);
	check_text(getenv("NCCL_P2P_NET_CHUNKSIZE"), "65536");
	driver_close(&driver);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "version_8", case_versions, &versions[0], 30 },
		{ "version_9", case_versions, &versions[1], 30 },
		{ "version_10", case_versions, &versions[2], 30 },
		{ "version_11", case_versions, &versions[3], 30 },
		{ "version_12", case_versions, &versions[4], 30 },
		{ "properties", case_properties, NULL, 20 },
		{ "requests_in_flight", case_requests_in_flight, NULL, 30 },
		{ "many_requests", case_many_requests, NULL, 30 },
		{ "too_large", case_too_large, NULL, 20 },
		{ "many_buffers", case_many_buffers, NULL, 60 },
		{ "abort", case_abort, NULL, 30 },
		{ "orphans", case_orphans, NULL, 30 },
		{ "communicators", case_communicators, NULL, 30 },
		{ "service_thread", case_service_thread, NULL, 30 },
		{ "many_comms", case_many_comms, NULL, 30 },
		{ "fork", case_fork, NULL, 30 },
		{ "foreign_handle", case_foreign_handle, NULL, 20 },
		{ "closed_end", case_closed_end, NULL, 20 },
		{ "nccl_variables", case_nccl_variables, NULL, 20 },
	};

	return cases_run("nccl_process", cases, sizeof(cases) / sizeof(cases[0]));
}
