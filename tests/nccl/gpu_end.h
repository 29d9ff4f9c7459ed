/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers of the host or of the stand-in's GPU at the ends of the plugin's connections. */
#ifndef NCCL_GPU_END_H
#define NCCL_GPU_END_H

#include "driver.h"

/* Bytes of a buffer. */
#define GPU_END_LENGTH ((size_t)1 << 20)

/* Memory at one end of a line: of the host or the GPU, with a copy in the host's. */
struct gpu_end {
	bool on_gpu;
	uint8_t *bytes, *copy;
	void *memory;
};

/* dmabuf: registers by the program's dma-buf, not by the address. */
void gpu_end_open(struct gpu_end *end, struct driver *driver, void *comm, bool on_gpu, bool dmabuf);
void gpu_end_close(struct gpu_end *end, struct driver *driver, void *comm);
/* Moves messages of many sizes within this process, and compares them. */
void gpu_move_all(struct driver *driver, bool from_gpu, bool to_gpu, bool dmabuf);

#endif
