/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory with IP interfaces (PEERLANE_GPU_MEMORY), on the stand-in for CUDA's driver: between processes of one host, over
 * tcp, and within a process.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "end.h"
#include "gpu_end.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

#define LENGTH GPU_END_LENGTH
/* Messages under way, and their part of a buffer. */
#define WINDOW 8u
#define SLOT (LENGTH / WINDOW)

/* One run: fabric, kind of GPU memory, and which ends have their buffers on a GPU. */
struct gpu_run {
	const char *fabric, *kind;
	bool from_gpu, to_gpu;
};

static void set_variable(const char *name, const char *value)
{
	check_number(setenv(name, value, 1), 0);
}

/* Finds the stand-in's GPU, as a program that uses CUDA does before NCCL. */
static void gpu_begin(const char *fabric, const char *kind)
{
	set_variable("PEERLANE_FABRIC", fabric);
	set_variable("PEERLANE_GPU_MEMORY", "1");
	check(gpu_open(kind));
	gpu_standin_find();
}

static int pointers_of(struct driver *driver)
{
	struct net_v11_properties properties;

	memset(&properties, 0xee, sizeof(properties));
	check_number(driver->v11->getProperties(0, &properties), NET_SUCCESS);
	return properties.pointers;
}

/* -- the promise ---------------------------------------------------------------------------------- */

static void check_host_only(struct driver *driver)
{
	struct line line;
	void *memory, *bytes = gpu_allocate(LENGTH);

	check_number(pointers_of(driver), NET_POINTER_HOST);
	check(!getenv("NCCL_NET_GDR_LEVEL"));
	line_connect(&line, driver, 0, 0);
	check_number(driver->v11->regMr(line.receiver, bytes, LENGTH, NET_POINTER_CUDA, &memory), NET_INVALID_ARGUMENT);
	check(!memory);
	driver_close_send(driver, line.sender);
	driver_close_receive(driver, line.receiver);
	gpu_free(bytes);
}

/* Nothing changes without the setting. */
static void case_off(void *value)
{
	struct driver driver;

	gpu_begin("auto", "alloc");
	if (value)
		set_variable("PEERLANE_GPU_MEMORY", value);
	else
		unsetenv("PEERLANE_GPU_MEMORY");
	driver_open(&driver, 11);
	check_host_only(&driver);
	check(!driver_logged("GPU memory"));
	driver_close(&driver);
}

static void case_wrong_value(void *argument)
{
	struct driver driver;

	(void)argument;
	set_variable("PEERLANE_GPU_MEMORY", "yes");
	check_number(driver_load(&driver, 11), NET_SYSTEM_ERROR);
	check(strstr(driver_warning(), "PEERLANE_GPU_MEMORY=yes is neither 0 nor 1"));
}

static void case_on(void *fabric)
{
	struct driver driver;
	struct line line;
	void *memory;

	gpu_begin(fabric, "alloc");
	driver_open(&driver, 11);
	check_number(pointers_of(&driver), NET_POINTER_HOST | NET_POINTER_CUDA);
	check_text(getenv("NCCL_NET_GDR_LEVEL"), "SYS");
	check(driver_logged("set NCCL_NET_GDR_LEVEL=SYS"));
	check(driver_logged("reaches GPU memory"));
	check(driver_logged("GPU memory from GPU 0 to GPU 0: "));
	line_connect(&line, &driver, 0, 0);
	check_number(driver.v11->regMrDmaBuf(line.receiver, &driver, LENGTH, NET_POINTER_CUDA, 0, 0, &memory),
		     NET_INVALID_ARGUMENT);
	driver_close_send(&driver, line.sender);
	driver_close_receive(&driver, line.receiver);
	driver_close(&driver);
}

/* The program's own choice stays. */
static void case_level_kept(void *argument)
{
	struct driver driver;

	(void)argument;
	gpu_begin("auto", "alloc");
	set_variable("NCCL_NET_GDR_LEVEL", "PXB");
	driver_open(&driver, 11);
	check_text(getenv("NCCL_NET_GDR_LEVEL"), "PXB");
	check(driver_logged("NCCL_NET_GDR_LEVEL=PXB, as you set it"));
	driver_close(&driver);
}

static void case_no_gpu_used(void *argument)
{
	struct driver driver;

	(void)argument;
	set_variable("PEERLANE_GPU_MEMORY", "1");
	driver_open(&driver, 11);
	check_number(pointers_of(&driver), NET_POINTER_HOST);
	check(!getenv("NCCL_NET_GDR_LEVEL"));
	check(driver_logged("the program uses no GPU yet"));
	driver_close(&driver);
}

/* A driver that refuses a call of the proof. The next communicator proves again. */
static void case_proof_fails(void *call)
{
	struct driver driver;

	gpu_begin("auto", "alloc");
	gpu_standin_need();
	gpu_standin.fail(call, 0, 100, 1);
	driver_open(&driver, 11);
	gpu_standin.fail(call, 0, 0, 0);
	check_host_only(&driver);
	check(driver_logged("is not reached: "));
	check(!driver_logged("reaches GPU memory"));
	driver_close(&driver);
	driver_open(&driver, 11);
	check_number(pointers_of(&driver), NET_POINTER_HOST | NET_POINTER_CUDA);
	driver_close(&driver);
}

/* Communicators after the first need no proof: the driver would refuse it. */
static void case_proven_once(void *argument)
{
	struct driver driver;

	(void)argument;
	gpu_begin("auto", "alloc");
	gpu_standin_need();
	driver_open(&driver, 11);
	check_number(pointers_of(&driver), NET_POINTER_HOST | NET_POINTER_CUDA);
	driver_close(&driver);
	gpu_standin.fail("across", 0, 100, 1);
	driver_open(&driver, 11);
	check_number(pointers_of(&driver), NET_POINTER_HOST | NET_POINTER_CUDA);
	gpu_standin.fail("across", 0, 0, 0);
	driver_close(&driver);
}

static size_t stream_size(unsigned number)
{
	return number % 3 == 2 ? 64 + number : SLOT - number * 128 % 4096;
}

/* Moves one message of a stream within this process. */
static void move_one(struct line *line, struct gpu_end *from, struct gpu_end *to, unsigned number)
{
	size_t at = number * SLOT, size = stream_size(number);
	void *receive = driver_must_receive(line->driver, line->receiver, to->bytes + at, SLOT, to->memory);
	void *send = driver_must_send(line->driver, line->sender, from->bytes + at, size, from->memory);

	check_number(driver_finish(line->driver, send), size);
	check_number(driver_finish(line->driver, receive), size);
}

/* -- within a process ----------------------------------------------------------------------------- */

static void case_self(void *argument)
{
	const struct gpu_run *run = argument;
	struct driver driver;

	gpu_begin(run->fabric, run->kind);
	driver_open(&driver, 11);
	gpu_move_all(&driver, run->from_gpu, run->to_gpu, false);
	driver_close(&driver);
}

static void fill(struct gpu_end *buffer, size_t at, size_t size, unsigned number)
{
	content_fill(buffer->copy + at, size, number);
	if (buffer->on_gpu && size)
		gpu_copy_in(buffer->bytes + at, buffer->copy + at, size);
}

static bool has(struct gpu_end *buffer, size_t at, size_t size, unsigned number)
{
	if (buffer->on_gpu && size)
		gpu_copy_out(buffer->bytes + at, buffer->copy + at, size);
	return content_is(buffer->copy + at, size, number);
}

/* Sends do not wait for copies of the GPU, several of which are under way. */
static void case_under_way(void *argument)
{
	const struct gpu_run *run = argument;
	void *receives[WINDOW], *sends[WINDOW];
	struct gpu_end from, to;
	struct driver driver;
	struct line line;
	int done, size;

	gpu_begin(run->fabric, run->kind);
	gpu_standin_need();
	driver_open(&driver, 11);
	line_connect(&line, &driver, 0, 0);
	gpu_end_open(&from, &driver, line.sender, run->from_gpu, false);
	gpu_end_open(&to, &driver, line.receiver, run->to_gpu, false);
	for (unsigned i = 0; i < WINDOW; i++)
		fill(&from, i * SLOT, SLOT, i);
	gpu_standin.delay(60000000);
	for (unsigned i = 0; i < WINDOW; i++) {
		receives[i] = driver_must_receive(&driver, line.receiver, to.bytes + i * SLOT, SLOT, to.memory);
		sends[i] = driver_must_send(&driver, line.sender, from.bytes + i * SLOT, SLOT, from.memory);
	}
	for (unsigned i = 0; i < WINDOW; i++) {
		check_number(driver_test(&driver, sends[i], &done, &size), NET_SUCCESS);
		check(!done);
		check_number(driver_test(&driver, receives[i], &done, &size), NET_SUCCESS);
		check(!done);
	}
	gpu_standin.delay(0);
	for (unsigned i = 0; i < WINDOW; i++) {
		check_number(driver_finish(&driver, sends[i]), SLOT);
		check_number(driver_finish(&driver, receives[i]), SLOT);
		check(has(&to, i * SLOT, SLOT, i));
	}
	gpu_end_close(&from, &driver, line.sender);
	gpu_end_close(&to, &driver, line.receiver);
	driver_close_send(&driver, line.sender);
	driver_close_receive(&driver, line.receiver);
	driver_close(&driver);
}

/*
 * A thread of the program loads a kernel, and the driver waits for NCCL's kernels, which wait for messages. Meanwhile the driver lets
 * no other thread into the context.
 */
static void case_module_loads(void *argument)
{
	const struct gpu_run *run = argument;
	struct gpu_end from, to;
	struct driver driver;
	struct line line;

	gpu_begin(run->fabric, run->kind);
	gpu_standin_need();
	driver_open(&driver, 11);
	line_connect(&line, &driver, 0, 0);
	gpu_end_open(&from, &driver, line.sender, run->from_gpu, false);
	gpu_end_open(&to, &driver, line.receiver, run->to_gpu, false);
	for (unsigned i = 0; i < WINDOW; i++)
		fill(&from, i * SLOT, stream_size(i), i);
	/* Connections, and the memory of both ends, are used before kernels run. */
	move_one(&line, &from, &to, 0);
	gpu_standin.load(true);
	for (unsigned i = 1; i < WINDOW; i++)
		move_one(&line, &from, &to, i);
	gpu_standin.load(false);
	for (unsigned i = 0; i < WINDOW; i++)
		check(has(&to, i * SLOT, stream_size(i), i));
	gpu_end_close(&from, &driver, line.sender);
	gpu_end_close(&to, &driver, line.receiver);
	driver_close_send(&driver, line.sender);
	driver_close_receive(&driver, line.receiver);
	driver_close(&driver);
}

/* NCCL's kernels can hold up copies by the GPU's compute engine, as which the driver does small ones of host bytes. */
static void case_copy_engine(void *fabric)
{
	struct driver driver;

	gpu_begin(fabric, "alloc");
	gpu_standin_need();
	driver_open(&driver, 11);
	gpu_standin.share(1);
	gpu_move_all(&driver, false, true, false);
	/* The message of one byte, which has no rows. */
	check(gpu_standin.waited() <= 1);
	driver_close(&driver);
}

/* -- between processes ---------------------------------------------------------------------------- */

static const size_t sizes[] = { 0, 1, 8, 128, 992, 993, 4096, 65536, 65544, 131072, LENGTH - 1, LENGTH };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define STREAM 400u

/* The run of this process and its child. */
static struct gpu_run now;

static void open_end(struct end *end, struct gpu_end *buffer, bool sends)
{
	gpu_begin(now.fabric, now.kind);
	driver_open(&end->driver, 11);
	end->comm = sends ? end_send_comm(end) : end_receive_comm(end);
	gpu_end_open(buffer, &end->driver, end->comm, sends ? now.from_gpu : now.to_gpu, false);
}

static void close_end(struct end *end, struct gpu_end *buffer, bool sends)
{
	gpu_end_close(buffer, &end->driver, end->comm);
	if (sends)
		driver_close_send(&end->driver, end->comm);
	else
		driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
}

static void receive_all(struct end *end)
{
	void *requests[WINDOW];
	struct gpu_end buffer;

	open_end(end, &buffer, false);
	for (unsigned i = 0; i < SIZES; i++) {
		void *request = driver_must_receive(&end->driver, end->comm, buffer.bytes, LENGTH, buffer.memory);

		check_number(driver_finish(&end->driver, request), sizes[i]);
		check(has(&buffer, 0, sizes[i], i));
	}
	for (unsigned i = 0; i < STREAM + WINDOW; i++) {
		size_t at = i % WINDOW * SLOT;

		if (i >= WINDOW) {
			size_t size = stream_size(i - WINDOW);

			check_number(driver_finish(&end->driver, requests[i % WINDOW]), size);
			check(has(&buffer, at, size, i - WINDOW));
		}
		if (i < STREAM)
			requests[i % WINDOW] =
				driver_must_receive(&end->driver, end->comm, buffer.bytes + at, SLOT, buffer.memory);
	}
	close_end(end, &buffer, false);
}

static void send_all(struct end *end)
{
	void *requests[WINDOW];
	struct gpu_end buffer;

	open_end(end, &buffer, true);
	for (unsigned i = 0; i < SIZES; i++) {
		fill(&buffer, 0, sizes[i], i);
		driver_finish(&end->driver,
			      driver_must_send(&end->driver, end->comm, buffer.bytes, sizes[i], buffer.memory));
	}
	for (unsigned i = 0; i < STREAM + WINDOW; i++) {
		size_t at = i % WINDOW * SLOT;

		if (i >= WINDOW)
			driver_finish(&end->driver, requests[i % WINDOW]);
		if (i >= STREAM)
			continue;
		fill(&buffer, at, stream_size(i), i);
		requests[i % WINDOW] =
			driver_must_send(&end->driver, end->comm, buffer.bytes + at, stream_size(i), buffer.memory);
	}
	close_end(end, &buffer, true);
}

/* Messages of many sizes, then a stream of them, several of which are under way. */
static void case_processes(void *argument)
{
	struct end end;

	now = *(const struct gpu_run *)argument;
#ifdef __SANITIZE_THREAD__
	if (!now.to_gpu && strcmp(now.fabric, "tcp")) {
		fprintf(stderr, "ThreadSanitizer does not see the order of messages in memory of both processes\n");
		exit(SKIPPED);
	}
#endif
	end_start_child(&end, receive_all);
	send_all(&end);
	check_number(process_wait(end.other), 0);
}

static const struct gpu_run runs[] = {
	{ "auto", "alloc", true, true },  { "auto", "alloc", false, true },  { "auto", "alloc", true, false },
	{ "auto", "mapped", true, true }, { "auto", "mapped", false, true }, { "auto", "private", true, true },
	{ "tcp", "alloc", true, true },   { "tcp", "mapped", false, true },  { "tcp", "mapped", true, false },
	{ "tcp", "mapped", true, true },
};

/* -- faults --------------------------------------------------------------------------------------- */

static void wait_to_be_killed(struct end *end)
{
	struct gpu_end buffer;

	open_end(end, &buffer, false);
	for (unsigned i = 0; i < WINDOW; i++)
		driver_must_receive(&end->driver, end->comm, buffer.bytes + i * SLOT, SLOT, buffer.memory);
	end_meet(end);
	pause();
}

/* The receiver dies with copies into its memory under way. */
static void case_killed(void *fabric)
{
	struct patience patience;
	struct gpu_end buffer;
	enum net_result rc;
	struct end end;
	void *request;

	now = (struct gpu_run){ fabric, "alloc", true, true };
	end_start_child(&end, wait_to_be_killed);
	open_end(&end, &buffer, true);
	gpu_standin_need();
	end_meet(&end);
	gpu_standin.delay(20000);
	for (unsigned i = 0; i < WINDOW / 2; i++)
		driver_must_send(&end.driver, end.comm, buffer.bytes + i * SLOT, SLOT, buffer.memory);
	process_kill(end.other, SIGKILL);
	patience_begin(&patience, 60);
	do {
		rc = driver_send(&end.driver, end.comm, buffer.bytes, SLOT, buffer.memory, &request);
		patience_wait(&patience);
	} while (rc == NET_SUCCESS);
	check_number(rc, NET_REMOTE_ERROR);
	close_end(&end, &buffer, true);
}

static void abort_receiver(struct end *end)
{
	uint8_t *seen = malloc(LENGTH);
	struct gpu_end buffer;
	uint64_t begin;
	bool awaited;

	check(seen);
	open_end(end, &buffer, false);
	for (unsigned i = 0; i < WINDOW; i++)
		driver_must_receive(&end->driver, end->comm, buffer.bytes + i * SLOT, SLOT, buffer.memory);
	end_meet(end);
	begin = clock_now();
	driver_deregister(&end->driver, end->comm, buffer.memory);
	/* On a machine this slow the wait for the copies under way may have reached its limit. */
	awaited = clock_now() - begin < SECOND;
	buffer.memory = NULL;
	/* Nothing writes into the memory any more. */
	memset(buffer.copy, 0xcc, LENGTH);
	gpu_copy_in(buffer.bytes, buffer.copy, LENGTH);
	end_meet(end);
	gpu_copy_out(buffer.bytes, seen, LENGTH);
	check(!awaited || !memcmp(seen, buffer.copy, LENGTH));
	free(seen);
	close_end(end, &buffer, false);
}

/* NCCL aborts with copies under way: it deregisters at both ends, frees the memory, and closes. */
static void case_abort(void *fabric)
{
	struct gpu_end buffer;
	struct end end;

	now = (struct gpu_run){ fabric, "alloc", true, true };
	end_start_child(&end, abort_receiver);
	open_end(&end, &buffer, true);
	gpu_standin_need();
	gpu_standin.delay(5000);
	for (unsigned i = 0; i < WINDOW; i++)
		driver_must_send(&end.driver, end.comm, buffer.bytes + i * SLOT, SLOT, buffer.memory);
	end_meet(&end);
	driver_deregister(&end.driver, end.comm, buffer.memory);
	buffer.memory = NULL;
	end_meet(&end);
	close_end(&end, &buffer, true);
	check_number(process_wait(end.other), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "off", case_off, NULL, 20 },
		{ "off_by_value", case_off, "0", 20 },
		{ "wrong_value", case_wrong_value, NULL, 20 },
		{ "on", case_on, "auto", 20 },
		{ "on_tcp", case_on, "tcp", 20 },
		{ "level_kept", case_level_kept, NULL, 20 },
		{ "no_gpu_used", case_no_gpu_used, NULL, 20 },
		{ "proof_of_copies_fails", case_proof_fails, "across", 20 },
		{ "proven_once", case_proven_once, NULL, 20 },
		{ "self", case_self, (void *)&runs[0], 30 },
		{ "self_from_host", case_self, (void *)&runs[1], 30 },
		{ "self_to_host", case_self, (void *)&runs[2], 30 },
		{ "self_mapped", case_self, (void *)&runs[3], 30 },
		{ "self_tcp", case_self, (void *)&runs[6], 30 },
		{ "under_way", case_under_way, (void *)&runs[0], 30 },
		{ "under_way_from_host", case_under_way, (void *)&runs[1], 30 },
		{ "module_loads", case_module_loads, (void *)&runs[3], 30 },
		{ "module_loads_from_host", case_module_loads, (void *)&runs[4], 30 },
		{ "module_loads_tcp", case_module_loads, (void *)&runs[9], 30 },
		{ "copy_engine", case_copy_engine, "auto", 30 },
		{ "copy_engine_tcp", case_copy_engine, "tcp", 30 },
		{ "processes", case_processes, (void *)&runs[0], 60 },
		{ "processes_from_host", case_processes, (void *)&runs[1], 60 },
		{ "processes_to_host", case_processes, (void *)&runs[2], 60 },
		{ "processes_mapped", case_processes, (void *)&runs[3], 60 },
		{ "processes_from_host_mapped", case_processes, (void *)&runs[4], 60 },
		{ "processes_private", case_processes, (void *)&runs[5], 60 },
		{ "processes_tcp", case_processes, (void *)&runs[6], 60 },
		{ "processes_tcp_from_host", case_processes, (void *)&runs[7], 60 },
		{ "processes_tcp_to_host", case_processes, (void *)&runs[8], 60 },
		{ "killed", case_killed, "auto", 60 },
		{ "killed_tcp", case_killed, "tcp", 60 },
		{ "abort", case_abort, "auto", 60 },
		{ "abort_tcp", case_abort, "tcp", 60 },
	};

	return cases_run("nccl_gpu", cases, sizeof(cases) / sizeof(cases[0]));
}
