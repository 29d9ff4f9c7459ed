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

static void gpu_begin(struct end *end)
{
	check_number(setenv("PEERLANE_GPU_MEMORY", "1", 1), 0);
	check(gpu_open("alloc"));
	gpu_standin_find();
	gpu_standin_need();
	driver_open(&end->driver, 11);
}

/* Registers the memory when the sender is ready, and receives one message. */
static void receive_one(struct end *end)
{
	struct gpu_end buffer;
	void *request;

	gpu_begin(end);
	end->comm = end_receive_comm(end);
	end_meet(end);
	gpu_end_open(&buffer, &end->driver, end->comm, true, false);
	request = driver_must_receive(&end->driver, end->comm, buffer.bytes, LENGTH, buffer.memory);
	check_number(driver_finish(&end->driver, request), LENGTH);
	end_meet(end);
	gpu_end_close(&buffer, &end->driver, end->comm);
	driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
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
	request = driver_must_send(&end.driver, end.comm, buffer.bytes, LENGTH, buffer.memory);
	check_number(driver_finish(&end.driver, request), LENGTH);
	end_meet(&end);
	driver_close_listen(&end.driver, opener.listener);
	gpu_end_close(&buffer, &end.driver, end.comm);
	driver_close_send(&end.driver, end.comm);
	driver_close(&end.driver);
	check_number(process_wait(end.other), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "import", case_stuck, NULL, 60 },
		{ "registration", case_stuck, (void *)1, 60 },
	};

	return cases_run("nccl_gpu_open", cases, sizeof(cases) / sizeof(cases[0]));
}
