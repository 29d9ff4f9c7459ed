/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu_end.h"

#include <stdlib.h>
#include <unistd.h>

#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

#define LENGTH GPU_END_LENGTH

static void *register_gpu(struct driver *driver, void *comm, void *data, bool dmabuf)
{
	CUresult (*export)(int *fd, CUdeviceptr begin, size_t length, int type, unsigned long long flags);
	void *memory;
	int fd = -1;

	if (dmabuf) {
		gpu_driver_find(&export, "cuMemGetHandleForAddressRange");
		check_number(export(&fd, (CUdeviceptr)(uintptr_t)data, LENGTH, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			     0);
	}
	memory = driver_register_gpu(driver, comm, data, LENGTH, 0, fd);
	/* NCCL closes it at once. */
	if (fd >= 0)
		close(fd);
	return memory;
}

void gpu_end_open(struct gpu_end *end, struct driver *driver, void *comm, bool on_gpu, bool dmabuf)
{
	end->on_gpu = on_gpu;
	end->copy = calloc(1, LENGTH);
	check(end->copy);
	/* NCCL's host memory is locked. */
	if (!on_gpu)
		gpu_pin(end->copy, LENGTH);
	end->bytes = on_gpu ? gpu_allocate(LENGTH) : end->copy;
	end->memory = on_gpu ? register_gpu(driver, comm, end->bytes, dmabuf)
			     : driver_register(driver, comm, end->bytes, LENGTH);
}

void gpu_end_close(struct gpu_end *end, struct driver *driver, void *comm)
{
	driver_deregister(driver, comm, end->memory);
	if (end->on_gpu)
		gpu_free(end->bytes);
	else
		gpu_unpin(end->copy);
	free(end->copy);
}

/* The receive is flushed as NCCL does it, and the bytes are then there for the GPU. */
static void gpu_move(struct line *line, struct gpu_end *from, struct gpu_end *to, size_t size, unsigned number)
{
	struct driver *driver = line->driver;
	void *receive, *send, *flush = (void *)0x5a5a, *data = to->bytes;
	int small = (int)size;

	content_fill(from->copy, size, number);
	if (from->on_gpu && size)
		gpu_copy_in(from->bytes, from->copy, size);
	receive = driver_must_receive(driver, line->receiver, to->bytes, LENGTH, to->memory);
	send = driver_must_send(driver, line->sender, from->bytes, size, from->memory);
	check_number(driver_finish(driver, receive), size);
	check_number(driver->v11->iflush(line->receiver, 1, &data, &small, &to->memory, &flush), NET_SUCCESS);
	check(!flush);
	if (to->on_gpu && size)
		gpu_copy_out(to->bytes, to->copy, size);
	check(content_is(to->copy, size, number));
	check_number(driver_finish(driver, send), size);
}

void gpu_move_all(struct driver *driver, bool from_gpu, bool to_gpu, bool dmabuf)
{
	static const size_t sizes[] = { 0, 1, 8, 992, 993, 65536, 65544, LENGTH - 1, LENGTH };
	struct gpu_end from, to;
	struct line line;

	line_connect(&line, driver, 0, 0);
	gpu_end_open(&from, driver, line.sender, from_gpu, dmabuf);
	gpu_end_open(&to, driver, line.receiver, to_gpu, dmabuf);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		gpu_move(&line, &from, &to, sizes[i], i + 1);
	gpu_end_close(&from, driver, line.sender);
	gpu_end_close(&to, driver, line.receiver);
	driver_close_send(driver, line.sender);
	driver_close_receive(driver, line.receiver);
}

