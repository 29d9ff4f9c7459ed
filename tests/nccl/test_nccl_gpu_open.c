/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening of the receiver's GPU memory (PEERLANE_GPU_MEMORY) with a driver that does not return: other calls of the process
 * go on, and messages wait.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "driver.h"
#include "end.h"
#include "gpu_end.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

#define LENGTH GPU_END_LENGTH

/* Sender, and the thread that opens the receiver's memory. */
struct opener {
	struct end *end;
	struct gpu_end *buffer;
	void *listener; /* nobody connects to it */
	bool registers;
	atomic_bool done;
};

/* Sender, and a thread that ends what the driver has nothing to do with, or the memory that it opens. */
struct closer {
	struct end *end;
	struct gpu_end *buffer;
	struct line line; /* within this process */
	void *context;
	atomic_bool done;
};

static void gpu_begin(struct end *end)
{
	check_number(setenv("PEERLANE_GPU_MEMORY", "1", 1), 0);
	check(gpu_open("alloc"));
	gpu_standin_find();
	gpu_standin_need();
	driver_open(&end->driver, 11);
}

/* Receives one message, and closes all once the sender has gone on. */
static void receive_and_close(struct end *end, struct gpu_end *buffer)
{
	void *request = driver_must_receive(&end->driver, end->comm, buffer->bytes, LENGTH, buffer->memory);

	check_number(driver_finish(&end->driver, request), LENGTH);
	end_meet(end);
	gpu_end_close(buffer, &end->driver, end->comm);
	driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
}

/* Registers the memory when the sender is ready, and receives one message. */
static void receive_one(struct end *end)
{
	struct gpu_end buffer;

	gpu_begin(end);
	end->comm = end_receive_comm(end);
	end_meet(end);
	gpu_end_open(&buffer, &end->driver, end->comm, true, false);
	receive_and_close(end, &buffer);
}

static void take_completions(const struct opener *opener)
{
	void *comm;

	check_number(driver_accept(&opener->end->driver, opener->listener, &comm), NET_SUCCESS);
	check(!comm);
}

/* A thread of NCCL: its call opens the memory, when that of this end is new, or when the import has ended. */
static void *open_memory(void *argument)
{
	struct opener *opener = argument;

	if (opener->registers)
		gpu_end_open(opener->buffer, &opener->end->driver, opener->end->comm, true, false);
	while (!atomic_load(&opener->done))
		take_completions(opener);
	return NULL;
}

static void wait_for_import(const struct opener *opener)
{
	struct patience patience;

	patience_begin(&patience, 20);
	while (!driver_logged(": path ")) {
		take_completions(opener);
		patience_wait(&patience);
	}
}

/* Sends the message that the receiver waits for. */
static void send_one(struct end *end, const struct gpu_end *buffer)
{
	void *request = driver_must_send(&end->driver, end->comm, buffer->bytes, LENGTH, buffer->memory);

	check_number(driver_finish(&end->driver, request), LENGTH);
	end_meet(end);
}

static void send_end(struct end *end, struct gpu_end *buffer)
{
	gpu_end_close(buffer, &end->driver, end->comm);
	driver_close_send(&end->driver, end->comm);
	driver_close(&end->driver);
	check_number(process_wait(end->other), 0);
}

static void case_stuck(void *registers)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	struct gpu_end buffer;
	struct opener opener = { .buffer = &buffer, .registers = registers };
	struct end end;
	pthread_t thread;
	void *request;

	end_start_child(&end, receive_one);
	gpu_begin(&end);
	end.comm = end_send_comm(&end);
	opener.end = &end;
	driver_listen(&end.driver, handle, &opener.listener);
	if (!registers)
		gpu_end_open(&buffer, &end.driver, end.comm, true, false);
	gpu_standin.stall("cuIpcOpenMemHandle");
	end_meet(&end);
	if (registers)
		wait_for_import(&opener);
	check_number(pthread_create(&thread, NULL, open_memory, &opener), 0);
	patience_begin(&patience, 20);
	while (gpu_standin.stalled() == 0)
		patience_wait(&patience);
	/* Each call would wait for the driver, if the thread in it had the lock. */
	for (int i = 0; i < 20; i++) {
		take_completions(&opener);
		check(driver_devices(&end.driver) > 0);
		if (registers)
			continue;
		check_number(driver_send(&end.driver, end.comm, buffer.bytes, LENGTH, buffer.memory, &request),
			     NET_SUCCESS);
		check(!request);
	}
	check_number(gpu_standin.stalled(), 1);
	gpu_standin.stall(NULL);
	atomic_store(&opener.done, true);
	pthread_join(thread, NULL);
	send_one(&end, &buffer);
	driver_close_listen(&end.driver, opener.listener);
	send_end(&end, &buffer);
}

/* -- calls that end something ----------------------------------------------------------------------- */

/* Deregistrations take the end of the import, and the other calls come later. None needs the receiver's memory. */
static void *close_others(void *argument)
{
	static uint8_t bytes[4096];
	struct closer *closer = argument;
	struct driver *driver = &closer->end->driver;
	struct patience patience;

	patience_begin(&patience, 20);
	while (!driver_logged(": path ")) {
		driver_deregister(driver, closer->line.sender,
				  driver_register(driver, closer->line.sender, bytes, sizeof(bytes)));
		patience_wait(&patience);
	}
	driver_close_send(driver, closer->line.sender);
	driver_close_receive(driver, closer->line.receiver);
	check_number(driver_finalize(driver, closer->context), NET_SUCCESS);
	atomic_store(&closer->done, true);
	return NULL;
}

static void case_ended_before(void *unused)
{
	struct closer closer = { .end = NULL };
	struct patience patience;
	struct gpu_end buffer;
	struct end end;
	pthread_t thread;

	(void)unused;
	end_start_child(&end, receive_one);
	gpu_begin(&end);
	end.comm = end_send_comm(&end);
	closer.end = &end;
	line_connect(&closer.line, &end.driver, 0, 0);
	check_number(driver_init(&end.driver, &closer.context), NET_SUCCESS);
	gpu_end_open(&buffer, &end.driver, end.comm, true, false);
	gpu_standin.stall("cuIpcOpenMemHandle");
	end_meet(&end);
	check_number(pthread_create(&thread, NULL, close_others, &closer), 0);
	patience_begin(&patience, 30);
	while (!atomic_load(&closer.done)) {
		check_number(gpu_standin.stalled(), 0);
		patience_wait(&patience);
	}
	pthread_join(thread, NULL);
	check_number(gpu_standin.stalled(), 0);
	gpu_standin.stall(NULL);
	send_one(&end, &buffer);
	send_end(&end, &buffer);
}

/* Opens memory of the sender, which may have some of the host, and starts a thread that is stuck in the driver. */
static void begin_stuck(struct opener *opener, struct end *end, struct gpu_end *buffer, struct gpu_end *host,
			pthread_t *thread)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;

	*opener = (struct opener){ .end = end, .buffer = buffer };
	gpu_begin(end);
	end->comm = end_send_comm(end);
	driver_listen(&end->driver, handle, &opener->listener);
	gpu_end_open(buffer, &end->driver, end->comm, true, false);
	if (host)
		gpu_end_open(host, &end->driver, end->comm, false, false);
	gpu_standin.stall("cuIpcOpenMemHandle");
	end_meet(end);
	check_number(pthread_create(thread, NULL, open_memory, opener), 0);
	patience_begin(&patience, 20);
	while (gpu_standin.stalled() == 0)
		patience_wait(&patience);
}

static void end_stuck(struct opener *opener, pthread_t thread)
{
	gpu_standin.stall(NULL);
	atomic_store(&opener->done, true);
	pthread_join(thread, NULL);
	driver_close_listen(&opener->end->driver, opener->listener);
}

static void *close_memory(void *argument)
{
	struct closer *closer = argument;

	gpu_end_close(closer->buffer, &closer->end->driver, closer->end->comm);
	atomic_store(&closer->done, true);
	return NULL;
}

/* The end of memory waits for the thread that opens memory for it, and other calls go on. */
static void case_deregister(void *unused)
{
	struct gpu_end buffer;
	struct end end;
	struct closer closer = { .end = &end, .buffer = &buffer };
	struct opener opener;
	pthread_t thread, other;

	(void)unused;
	end_start_child(&end, receive_one);
	begin_stuck(&opener, &end, &buffer, NULL, &thread);
	check_number(pthread_create(&other, NULL, close_memory, &closer), 0);
	for (int i = 0; i < 100; i++) {
		take_completions(&opener);
		check(!atomic_load(&closer.done));
	}
	check_number(gpu_standin.stalled(), 1);
	end_stuck(&opener, thread);
	pthread_join(other, NULL);
	gpu_end_open(&buffer, &end.driver, end.comm, true, false);
	send_one(&end, &buffer);
	send_end(&end, &buffer);
}

/* Ends memory that the sender's driver is stuck with, and receives into other memory. */
static void receive_after_drop(struct end *end)
{
	struct gpu_end dropped, buffer;

	gpu_begin(end);
	end->comm = end_receive_comm(end);
	end_meet(end);
	gpu_end_open(&buffer, &end->driver, end->comm, false, false);
	gpu_end_open(&dropped, &end->driver, end->comm, true, false);
	end_meet(end);
	gpu_end_close(&dropped, &end->driver, end->comm);
	end_meet(end);
	receive_and_close(end, &buffer);
}

/* The receiver's end of the memory waits for no driver, and the sender's calls go on. */
static void case_dropped(void *unused)
{
	struct gpu_end buffer, host;
	struct opener opener;
	struct end end;
	pthread_t thread;

	(void)unused;
	end_start_child(&end, receive_after_drop);
	begin_stuck(&opener, &end, &buffer, &host, &thread);
	end_meet(&end);
	end_meet(&end);
	for (int i = 0; i < 20; i++)
		take_completions(&opener);
	check_number(gpu_standin.stalled(), 1);
	end_stuck(&opener, thread);
	send_one(&end, &host);
	gpu_end_close(&host, &end.driver, end.comm);
	send_end(&end, &buffer);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "import", case_stuck, NULL, 60 },
		{ "registration", case_stuck, (void *)1, 60 },
		{ "ended before", case_ended_before, NULL, 60 },
		{ "deregister while stalled", case_deregister, NULL, 60 },
		{ "dropped while stalled", case_dropped, NULL, 60 },
	};

	return cases_run("nccl_gpu_open", cases, sizeof(cases) / sizeof(cases[0]));
}
