/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules: the kernel of bench workflow, y = 3x + i, that of docs/examples/proxy.c, and the library's gather.
 * The stand-in recognizes a kernel by its entry, arguments and some instructions, and reads its text no further. The
 * processor computes the result.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda/standin.h"

#define THREADS_MAX 1024u
#define BLOCK 1024u
#define GATHER_THREADS 544u
#define NEEDED_MAX 8

struct known {
	const char *entry;
	const char *needed[NEEDED_MAX]; /* strings of the text, in this order */
	CUresult (*fill)(struct standin_kernel *kernel, uint64_t threads, void **arguments);
};

/* On the heap, so that LeakSanitizer finds modules that are not unloaded. */
struct module {
	const struct known *kernel;
};

/* -- y = 3x + i ----------------------------------------------------------------------------------- */

static bool compute_words(const struct standin_kernel *kernel)
{
	uint32_t block[BLOCK];
	uint32_t piece;

	for (uint32_t done = 0; done < kernel->words; done += piece) {
		piece = kernel->words - done < BLOCK ? kernel->words - done : BLOCK;
		if (!standin_transfer(kernel->from + done * 4ull, block, piece * 4ull, false))
			return false;
		for (uint32_t i = 0; i < piece; i++)
			block[i] = 3 * block[i] + done + i;
		if (!standin_transfer(kernel->to + done * 4ull, block, piece * 4ull, true))
			return false;
	}
	return true;
}

static CUresult fill_words(struct standin_kernel *kernel, uint64_t threads, void **arguments)
{
	memcpy(&kernel->words, arguments[2], sizeof(kernel->words));
	/* Each thread computes one word, so the launch computes at most as many words as threads. */
	if (kernel->words > threads)
		kernel->words = (uint32_t)threads;
	kernel->compute = compute_words;
	return SUCCESS;
}

/* -- sum of a frame whose status tells that it came ------------------------------------------------ */

static bool compute_sum(const struct standin_kernel *kernel)
{
	struct {
		uint64_t sequence;
		uint32_t result, sum;
	} heading = { 0, 0, 0 };
	uint64_t length, piece;
	uint32_t block[BLOCK];

	memcpy(&heading.result, kernel->status + 8, sizeof(heading.result));
	memcpy(&heading.sequence, kernel->status + 16, sizeof(heading.sequence));
	memcpy(&length, kernel->status + 24, sizeof(length));
	length -= length % 4;
	for (uint64_t done = 0; heading.result == 1 && done < length; done += piece) {
		piece = length - done < sizeof(block) ? length - done : sizeof(block);
		if (!standin_transfer(kernel->from + done, block, piece, false))
			return false;
		for (uint64_t i = 0; i < piece / 4; i++)
			heading.sum += block[i];
	}
	return standin_transfer(kernel->to, &heading, sizeof(heading), true);
}

static CUresult fill_sum(struct standin_kernel *kernel, uint64_t threads, void **arguments)
{
	bool pinned;

	memcpy(&kernel->status, arguments[2], sizeof(kernel->status));
	pthread_mutex_lock(&standin_lock);
	pinned = standin_is_pinned(kernel->status, 64);
	pthread_mutex_unlock(&standin_lock);
	/* The threads share the words in steps of 1,024. */
	if (threads != BLOCK || !pinned)
		return INVALID_VALUE;
	kernel->compute = compute_sum;
	return SUCCESS;
}

/* -- ranges of a list ------------------------------------------------------------------------------ */

static atomic_uint launched;

unsigned standin_launched(void)
{
	return atomic_load(&launched);
}

/* Reads words `to`, `from` and length of a range, with the shifts. The list is in locked host memory, or in the GPU's. */
static bool read_range(const struct standin_kernel *kernel, uint32_t number, uint64_t range[3])
{
	const uint64_t *at = kernel->ranges + 4ull * number;

	if (standin_is_pinned(at, 24))
		memcpy(range, at, 24);
	else if (!standin_transfer((CUdeviceptr)(uintptr_t)at, range, 24, false))
		return false;
	range[0] += kernel->shifts[0];
	range[1] += kernel->shifts[1];
	return true;
}

/* Copies nothing if the host withdrew the launch before it began. The stream tells the result (stream.c). */
static bool compute_gather(const struct standin_kernel *kernel)
{
	uint64_t range[3];
	bool good = true;

	atomic_store(&kernel->state[0], 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&kernel->state[1])) {
		atomic_store(&kernel->state[2], 2);
		return true;
	}
	for (uint32_t i = 0; good && i < kernel->words; i++)
		good = read_range(kernel, i, range) && standin_move(range[0], range[1], range[2]);
	return good;
}

/* A kernel reaches memory of other devices if its context does, and registered host memory. */
static bool range_is_reached(const struct context *context, CUdeviceptr address, size_t length)
{
	return standin_reaches(context, address) || standin_is_pinned((void *)(uintptr_t)address, length);
}

static bool gather_reaches(const struct standin_kernel *kernel)
{
	const struct context *context = standin_current();
	bool reaches = standin_is_pinned(kernel->state, 16);
	uint64_t range[3];

	for (uint32_t i = 0; reaches && i < kernel->words; i++)
		reaches = read_range(kernel, i, range) && range_is_reached(context, range[0], range[2]) &&
			  range_is_reached(context, range[1], range[2]);
	return reaches;
}

static CUresult fill_gather(struct standin_kernel *kernel, uint64_t threads, void **arguments)
{
	uint32_t group;
	bool reaches;

	memcpy(&kernel->ranges, arguments[0], sizeof(kernel->ranges));
	memcpy(&kernel->state, arguments[1], sizeof(kernel->state));
	memcpy(&kernel->words, arguments[3], sizeof(kernel->words));
	memcpy(&kernel->shifts[0], arguments[5], sizeof(kernel->shifts[0]));
	memcpy(&kernel->shifts[1], arguments[6], sizeof(kernel->shifts[1]));
	memcpy(&group, arguments[7], sizeof(group));
	pthread_mutex_lock(&standin_lock);
	reaches = gather_reaches(kernel);
	pthread_mutex_unlock(&standin_lock);
	/* The threads that copy, 512 of each block, are in equal groups of whole warps. */
	if (threads % GATHER_THREADS || group % 32 || !group || 512 % group || !reaches)
		return INVALID_VALUE;
	if (kernel->words)
		atomic_fetch_add(&launched, 1);
	kernel->compute = compute_gather;
	return SUCCESS;
}

/* -- calls ---------------------------------------------------------------------------------------- */

#define HEAD ".version 5.0\n", ".target sm_50\n", ".address_size 64\n"

static const struct known kernels[] = {
	{ "peerlane_workflow",
	  { HEAD,
	    ".visible .entry peerlane_workflow(\n\t.param .u64 to,\n\t.param .u64 from,\n\t.param .u32 count\n)\n{\n",
	    "mad.lo.u32 %r7, %r6, 3, %r5;\n", "st.global.u32 [%d7], %r7;\n", "ret;\n}\n" },
	  fill_words },
	{ "sum",
	  { HEAD, ".visible .entry sum(.param .u64 to, .param .u64 from, .param .u64 status)\n{\n",
	    "ld.volatile.u32 %r2, [%d3+8];", "add.u32 %r3, %r3, %r4;", "ret;\n}\n" },
	  fill_sum },
	{ "peerlane_gather",
	  { ".version 7.0\n.target sm_70\n.address_size 64\n",
	    ".visible .entry peerlane_gather(\n\t.param .u64 ranges,\n\t.param .u64 host,\n\t.param .u64 words,\n"
	    "\t.param .u32 count,\n\t.param .u32 batch,\n\t.param .u64 to_shift,\n\t.param .u64 from_shift,\n"
	    "\t.param .u32 group\n)\n{\n",
	    "st.relaxed.sys.global.u32 [%d2], 1;\n\tfence.sc.sys;\n\tld.relaxed.sys.global.u32 %r7, [%d2+4];\n",
	    "barrier.sync 0;\n", "fence.acq_rel.sys;\n\tst.relaxed.sys.global.u32 [%d2+8], 1;\n", "ret;\n}\n" },
	  fill_gather },
};

/* True if the text contains all strings. */
static bool is_text_of(const struct known *kernel, const char *at)
{
	for (size_t i = 0; i < NEEDED_MAX && kernel->needed[i]; i++) {
		at = strstr(at, kernel->needed[i]);
		if (!at)
			return false;
		at += strlen(kernel->needed[i]);
	}
	return true;
}

API CUresult cuModuleLoadData(struct module **result, const void *image)
{
	CUresult failure = standin_failure("cuModuleLoadData");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (failure)
		return failure;
	if (!standin_current())
		return INVALID_CONTEXT;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (is_text_of(&kernels[i], image)) {
			*result = calloc(1, sizeof(**result));
			if (!*result)
				return OUT_OF_MEMORY;
			(*result)->kernel = &kernels[i];
			return SUCCESS;
		}
	return INVALID_PTX;
}

API CUresult cuModuleUnload(struct module *module)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	free(module);
	return SUCCESS;
}

API CUresult cuModuleGetFunction(struct module **function, struct module *module, const char *name)
{
	if (strcmp(name, module->kernel->entry))
		return NOT_FOUND;
	*function = module;
	return SUCCESS;
}

API CUresult cuLaunchKernel(struct module *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
			    struct stream *stream, void **arguments, void **extra)
{
	CUresult failure = standin_failure("cuLaunchKernel");
	struct standin_kernel kernel = { 0 };

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (failure)
		return failure;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (!arguments || extra || shared || !grid_x || grid_y != 1 || grid_z != 1 || !block_x ||
	    block_x > THREADS_MAX || block_y != 1 || block_z != 1)
		return INVALID_VALUE;
	memcpy(&kernel.to, arguments[0], sizeof(kernel.to));
	memcpy(&kernel.from, arguments[1], sizeof(kernel.from));
	failure = function->kernel->fill(&kernel, (uint64_t)grid_x * block_x, arguments);
	return failure ? failure : standin_launch(stream, &kernel);
}
