/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gathers: one kernel copies many ranges between this GPU and others, or locked host memory, where a copy of the driver takes 2 to
 * 5 us for each.
 *
 * A kernel waits while the program's kernels fill all multiprocessors, or while streams of the program wait for words. If
 * these wait for the very bytes, it would wait for ever; copy engines are never held up so. Therefore the host withdraws a
 * kernel that has not begun in time. The caller then copies by other means, and the kernel, whenever it runs, touches nothing.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "memory/cuda/cuda.h"
#include "memory/cuda/gather_kernel.h"
#include "memory/cuda/gather_list.h"

/* Launches and ranges under way on a GPU: 2 MiB of locked memory. */
#define LAUNCHES 256u
#define RANGES 65536u
/* Time within which a kernel must begin, and after a withdrawal the time without gathers; nanoseconds. */
#define BEGIN_WITHIN (PL_NS_PER_MS / 5)
#define REST (10 * PL_NS_PER_MS)
/* Time between two questions whether the kernel failed. */
#define ASK_EACH PL_NS_PER_MS

struct launch {
	struct pl_gather base;
	struct cuda_gathers *gathers;
	unsigned number, first; /* of its state, and of its first range */
	unsigned span;          /* ranges that it keeps, with those skipped at the end of the list */
	atomic_bool started;
	uint64_t begun, asked; /* times: since when the kernel may begin; of the last question whether it failed */
	bool given;            /* back by the caller */
	bool holds_list;       /* the kernel reads `base.list` */
};

/* Gathers of a GPU. They outlive the GPU's use until the kernels have left. */
struct cuda_gathers {
	struct pl_list link; /* of those that outlive it */
	const struct cuda_driver *driver;
	CUcontext context;
	CUmodule module;
	CUfunction kernel;
	CUstream stream;
	CUdeviceptr words; /* of the kernel: one launch after the other uses them; then CUDA_KEPT_RANGES ranges */
	CUdeviceptr states_there, ranges_there;
	struct gather_state *states; /* and RANGES ranges: locked */
	struct pl_gather_range *ranges;
	_Atomic uint64_t rest_until;
	_Atomic uint64_t ended; /* time at which a kernel was last seen to have ended: the next one begins soon after */
	pthread_mutex_t lock;  /* protects the members below */
	unsigned oldest, next; /* launches in use, in the order in which they were taken: oldest to next - 1 */
	unsigned used, end;    /* ranges in use, which end before this one */
	struct pl_list lists;  /* struct pl_gather_list, in the order of their ranges */
	struct launch launches[LAUNCHES];
};

/* The last state is that of the launch that loads the kernel. */
#define STATES (LAUNCHES + 1)
/* Bytes before the kept ranges: the kernel's words, in cache lines of their own. */
#define WORDS_BYTES 256u
#define LOCKED_BYTES (STATES * sizeof(struct gather_state) + RANGES * sizeof(struct pl_gather_range))

static struct {
	pthread_mutex_t lock;
	struct pl_list left; /* gathers whose GPU is no longer used, and whose kernels have not left */
} all = { PTHREAD_MUTEX_INITIALIZER, { &all.left, &all.left } };

static struct launch *launch_of(struct pl_gather *gather)
{
	return pl_container_of(gather, struct launch, base);
}

/* -- opening and closing ------------------------------------------------------------------------------ */

static void free_gathers(struct cuda_gathers *gathers)
{
	const struct cuda_driver *driver = gathers->driver;
	int mode;

	/* The context may be gone, with all that it had. */
	if (cuda_enter_context(driver, gathers->context, &mode) == CUDA_SUCCESS) {
		if (gathers->stream)
			driver->cuStreamDestroy(gathers->stream);
		if (gathers->module)
			driver->cuModuleUnload(gathers->module);
		if (gathers->words)
			driver->cuMemFree(gathers->words);
		if (gathers->states_there)
			driver->cuMemHostUnregister(gathers->states);
		cuda_leave_context(driver, mode);
	}
	if (gathers->states)
		munmap(gathers->states, LOCKED_BYTES);
	cuda_lists_free(&gathers->lists);
	pthread_mutex_destroy(&gathers->lock);
	free(gathers);
}

static CUresult lock_list(struct cuda_gathers *gathers)
{
	void *memory = mmap(NULL, LOCKED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUresult result;

	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	gathers->states = memory;
	gathers->ranges = (struct pl_gather_range *)(gathers->states + STATES);
	result = gathers->driver->cuMemHostRegister(memory, LOCKED_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
	if (result != CUDA_SUCCESS)
		return result;
	result = gathers->driver->cuMemHostGetDevicePointer(&gathers->states_there, memory, 0);
	if (result != CUDA_SUCCESS)
		gathers->driver->cuMemHostUnregister(memory);
	gathers->ranges_there = gathers->states_there + STATES * sizeof(struct gather_state);
	return result;
}

/* How the blocks of a launch share the ranges. */
struct sharing {
	uint32_t batch; /* ranges that a block takes at a time */
	uint32_t group; /* threads that copy a range */
};

/*
 * A batch keeps all threads of a block busy, and of a long list it is a quarter of the block's part. Groups are as small as keeps all
 * their threads busy, so that a block copies several short ranges at a time.
 */
static struct sharing share_ranges(const struct pl_gather *gather, unsigned blocks)
{
	uint64_t mean = PL_MAX(gather->bytes / PL_MAX(gather->count, 1u), (uint64_t)1),
		 busy = CUDA_GATHER_COPIERS * CUDA_GATHER_UNDER_WAY / mean,
		 part = (gather->count + blocks - 1) / blocks;
	struct sharing sharing = { .group = CUDA_GATHER_COPIERS };
	uint64_t batch = PL_MAX(PL_MIN(busy, part), (uint64_t)gather->count / (blocks * 4));
	uint32_t groups;

	batch = PL_MAX(PL_MIN(batch, (uint64_t)CUDA_GATHER_BATCH), (uint64_t)1);
	while (sharing.group > CUDA_GATHER_GROUP_MIN && (uint64_t)sharing.group * CUDA_GATHER_UNDER_WAY > mean &&
	       CUDA_GATHER_COPIERS / sharing.group * 2 <= batch)
		sharing.group /= 2;
	/* Each group gets as many ranges. */
	groups = CUDA_GATHER_COPIERS / sharing.group;
	sharing.batch = (uint32_t)batch / groups * groups;
	return sharing;
}

static CUresult launch_kernel(struct cuda_gathers *gathers, const struct pl_gather *gather, CUdeviceptr ranges,
			      CUdeviceptr state, unsigned blocks)
{
	struct sharing sharing = share_ranges(gather, blocks);
	uint64_t to_shift = gather->to_shift, from_shift = gather->from_shift;
	uint32_t count = gather->count;
	void *arguments[] = { &ranges,        &state,    &gathers->words, &count,
			      &sharing.batch, &to_shift, &from_shift,     &sharing.group };

	return gathers->driver->cuLaunchKernel(gathers->kernel, blocks, 1, 1, CUDA_GATHER_THREADS, 1, 1, 0,
					       gathers->stream, arguments, NULL);
}

/* The first launch loads the kernel, and would wait for others of the program if it came later: it copies nothing. */
static CUresult load_kernel(struct cuda_gathers *gathers, const struct cuda_gpu *gpu)
{
	const struct cuda_driver *driver = gathers->driver;
	const struct pl_gather nothing = { .count = 0 };
	CUresult result = driver->cuStreamCreate(&gathers->stream, CU_STREAM_NON_BLOCKING);

	if (result == CUDA_SUCCESS)
		result = driver->cuModuleLoadData(&gathers->module, cuda_gather_kernel);
	if (result == CUDA_SUCCESS)
		result = driver->cuModuleGetFunction(&gathers->kernel, gathers->module, CUDA_GATHER_ENTRY);
	if (result == CUDA_SUCCESS)
		result = cuda_allocate_zeroed(gpu, WORDS_BYTES + CUDA_KEPT_RANGES * sizeof(struct pl_gather_range),
					      &gathers->words);
	if (result == CUDA_SUCCESS)
		result = lock_list(gathers);
	if (result == CUDA_SUCCESS)
		result = launch_kernel(gathers, &nothing, gathers->ranges_there,
				       gathers->states_there + LAUNCHES * sizeof(struct gather_state), 1);
	return result;
}

static struct cuda_gathers *open_gathers(const struct cuda_gpu *gpu)
{
	struct cuda_gathers *gathers;
	CUresult result;
	int mode;

	if (!gpu->driver->cuMemHostGetDevicePointer || !gpu->driver->cuStreamQuery)
		return NULL;
	gathers = calloc(1, sizeof(*gathers));
	if (!gathers)
		return NULL;
	gathers->driver = gpu->driver;
	gathers->context = gpu->context;
	pthread_mutex_init(&gathers->lock, NULL);
	pl_list_init(&gathers->lists);
	for (unsigned i = 0; i < LAUNCHES; i++)
		gathers->launches[i] = (struct launch){ .base.ops = &pl_cuda_memory, .gathers = gathers, .number = i };
	result = cuda_enter(gpu, &mode);
	if (result == CUDA_SUCCESS) {
		result = load_kernel(gathers, gpu);
		cuda_leave(gpu, mode);
	}
	if (result == CUDA_SUCCESS)
		return gathers;
	free_gathers(gathers);
	return NULL;
}

void cuda_gather_prepare(const struct pl_memory *memory)
{
	struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;

	pthread_mutex_lock(&all.lock);
	if (!gpu->gathers_tried)
		atomic_store_explicit(&gpu->gathers, open_gathers(gpu), memory_order_release);
	gpu->gathers_tried = true;
	pthread_mutex_unlock(&all.lock);
}

/* True if no kernel reads the list any more. */
static bool kernels_left(const struct cuda_gathers *gathers)
{
	for (unsigned i = gathers->oldest; i != gathers->next; i++) {
		const struct launch *launch = &gathers->launches[i % LAUNCHES];

		if (atomic_load(&launch->started) && !atomic_load(&gathers->states[launch->number].left))
			return false;
	}
	return atomic_load(&gathers->states[LAUNCHES].left);
}

void cuda_gather_close(struct cuda_gathers *gathers)
{
	pthread_mutex_lock(&all.lock);
	pl_list_for_each_safe(at, next, &all.left) {
		struct cuda_gathers *other = pl_list_entry(at, struct cuda_gathers, link);

		if (!kernels_left(other))
			continue;
		pl_list_remove(at);
		free_gathers(other);
	}
	if (gathers && kernels_left(gathers))
		free_gathers(gathers);
	else if (gathers)
		pl_list_append(&all.left, &gathers->link);
	pthread_mutex_unlock(&all.lock);
}

/* -- the list of ranges ------------------------------------------------------------------------------- */

/* Frees the launches that were taken first, as far as they are given back and no kernel reads their ranges. */
static void free_oldest(struct cuda_gathers *gathers)
{
	while (gathers->oldest != gathers->next) {
		struct launch *launch = &gathers->launches[gathers->oldest % LAUNCHES];

		if (!launch->given ||
		    (atomic_load(&launch->started) &&
		     !atomic_load_explicit(&gathers->states[launch->number].left, memory_order_acquire)))
			break;
		if (launch->holds_list)
			cuda_list_put(launch->base.list);
		launch->holds_list = false;
		gathers->used -= launch->span;
		gathers->oldest++;
	}
}

/* Finds room for a launch with `count` ranges in a row. NULL: there is none. */
static struct launch *find_room(struct cuda_gathers *gathers, unsigned count)
{
	struct launch *launch = &gathers->launches[gathers->next % LAUNCHES];
	unsigned first, skipped;

	free_oldest(gathers);
	/* Ranges that were used last are in the cache. */
	if (gathers->oldest == gathers->next)
		gathers->end = 0;
	first = gathers->end % RANGES;
	skipped = first + count > RANGES ? RANGES - first : 0;
	if (gathers->next - gathers->oldest == LAUNCHES || gathers->used + skipped + count > RANGES)
		return NULL;
	launch->first = skipped ? 0 : first;
	launch->span = skipped + count;
	atomic_store(&launch->started, false);
	launch->given = false;
	gathers->next++;
	gathers->used += launch->span;
	gathers->end += launch->span;
	return launch;
}

struct pl_gather *cuda_gather_take(const struct pl_memory *memory, unsigned count)
{
	struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	struct cuda_gathers *gathers = atomic_load_explicit(&gpu->gathers, memory_order_acquire);
	struct launch *launch;

	if (!gathers || count > RANGES || atomic_load_explicit(&gpu->streams_wait, memory_order_relaxed))
		return NULL;
	if (pl_now() < atomic_load_explicit(&gathers->rest_until, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&gathers->lock);
	launch = find_room(gathers, count);
	pthread_mutex_unlock(&gathers->lock);
	if (!launch)
		return NULL;
	launch->base.ranges = gathers->ranges + launch->first;
	launch->base.count = 0;
	launch->base.room = count;
	launch->base.list = NULL;
	launch->base.bytes = launch->base.to_shift = launch->base.from_shift = 0;
	return &launch->base;
}

void cuda_gather_give(struct pl_gather *base)
{
	struct launch *launch = launch_of(base);

	pthread_mutex_lock(&launch->gathers->lock);
	launch->given = true;
	pthread_mutex_unlock(&launch->gathers->lock);
}

/* -- kept lists --------------------------------------------------------------------------------------- */

static CUdeviceptr kept_ranges_there(const struct cuda_gathers *gathers, const struct pl_gather_list *list)
{
	return gathers->words + WORDS_BYTES + list->first * sizeof(struct pl_gather_range);
}

struct pl_gather_list *cuda_gather_keep(const struct pl_memory *memory, const struct pl_gather_range *ranges,
					unsigned count)
{
	struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	struct cuda_gathers *gathers = atomic_load_explicit(&gpu->gathers, memory_order_acquire);
	struct pl_gather_list *list;

	if (!gathers)
		return NULL;
	pthread_mutex_lock(&gathers->lock);
	free_oldest(gathers);
	list = cuda_list_place(&gathers->lists, count);
	pthread_mutex_unlock(&gathers->lock);
	if (!list)
		return NULL;
	list->gathers = gathers;
	list->gpu = gpu;
	/* The memory of the caller, which may be of another process, can go before the list. */
	cuda_gpu_hold(gpu);
	if (cuda_copy_to_address(gpu, kept_ranges_there(gathers, list), ranges, count * sizeof(*ranges)) == 0)
		return list;
	cuda_gather_forget(list);
	return NULL;
}

void cuda_gather_forget(struct pl_gather_list *list)
{
	struct cuda_gathers *gathers = list->gathers;
	struct cuda_gpu *gpu = list->gpu;

	pthread_mutex_lock(&gathers->lock);
	cuda_list_put(list);
	pthread_mutex_unlock(&gathers->lock);
	cuda_gpu_put(gpu);
}

/* The launch uses its kept list until the kernel has left. Returns the address of its ranges for the kernel. */
static CUdeviceptr ranges_of_launch(struct launch *launch)
{
	struct cuda_gathers *gathers = launch->gathers;
	struct pl_gather_list *list = launch->base.list;

	if (!list)
		return gathers->ranges_there + launch->first * sizeof(*launch->base.ranges);
	pthread_mutex_lock(&gathers->lock);
	list->users++;
	launch->holds_list = true;
	pthread_mutex_unlock(&gathers->lock);
	launch->base.count = list->count;
	return kept_ranges_there(gathers, list);
}

/* -- launches ----------------------------------------------------------------------------------------- */

int cuda_gather_start(struct pl_gather *base, unsigned blocks)
{
	struct launch *launch = launch_of(base);
	struct cuda_gathers *gathers = launch->gathers;
	const struct cuda_driver *driver = gathers->driver;
	struct gather_state *state = &gathers->states[launch->number];
	CUdeviceptr ranges = ranges_of_launch(launch);
	CUresult result;
	int mode;

	atomic_store_explicit(&state->started, 0, memory_order_relaxed);
	atomic_store_explicit(&state->withdrawn, 0, memory_order_relaxed);
	atomic_store_explicit(&state->result, GATHER_UNKNOWN, memory_order_relaxed);
	atomic_store_explicit(&state->left, 0, memory_order_release);
	result = cuda_enter_context(driver, gathers->context, &mode);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = launch_kernel(gathers, base, ranges, gathers->states_there + launch->number * sizeof(*state),
			       PL_MIN(blocks, base->count));
	cuda_leave_context(driver, mode);
	launch->begun = launch->asked = pl_now();
	atomic_store(&launch->started, result == CUDA_SUCCESS);
	return result == CUDA_SUCCESS ? 0 : -EFAULT;
}

/*
 * True if another kernel copies: those after it in the stream cannot begin. A kernel that has copied all may have blocks that
 * have no room yet, for any time.
 */
static bool another_copies(struct cuda_gathers *gathers, const struct launch *than)
{
	bool copies = false;

	pthread_mutex_lock(&gathers->lock);
	for (unsigned i = gathers->oldest; !copies && i != gathers->next; i++) {
		const struct launch *launch = &gathers->launches[i % LAUNCHES];
		const struct gather_state *state = &gathers->states[launch->number];

		copies = launch != than && atomic_load(&launch->started) && atomic_load(&state->started) &&
			 atomic_load(&state->result) == GATHER_UNKNOWN;
	}
	pthread_mutex_unlock(&gathers->lock);
	return copies;
}

/* Withdraws a kernel that has not started. Returns false if it has. */
static bool withdraw(struct cuda_gathers *gathers, struct gather_state *state, uint64_t now)
{
	atomic_store(&state->withdrawn, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&state->started))
		return false;
	atomic_store_explicit(&gathers->rest_until, now + REST, memory_order_relaxed);
	return true;
}

/* True if the kernel, or one before it, failed: then it never tells a result. */
static bool kernel_failed(struct launch *launch, uint64_t now)
{
	const struct cuda_driver *driver = launch->gathers->driver;
	CUresult result;
	int mode;

	if (now - launch->asked < ASK_EACH)
		return false;
	launch->asked = now;
	result = cuda_enter_context(driver, launch->gathers->context, &mode);
	if (result != CUDA_SUCCESS)
		return true;
	result = driver->cuStreamQuery(launch->gathers->stream);
	cuda_leave_context(driver, mode);
	return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

int cuda_gather_done(struct pl_gather *base)
{
	struct launch *launch = launch_of(base);
	struct gather_state *state = &launch->gathers->states[launch->number];
	uint32_t result = atomic_load_explicit(&state->result, memory_order_acquire);
	uint64_t now;

	now = pl_now();
	if (result != GATHER_UNKNOWN) {
		atomic_store_explicit(&launch->gathers->ended, now, memory_order_relaxed);
		return result == GATHER_COPIED ? 1 : -ECANCELED;
	}
	if (now <
	    PL_MAX(launch->begun, atomic_load_explicit(&launch->gathers->ended, memory_order_relaxed)) + BEGIN_WITHIN)
		return 0;
	if (!atomic_load(&state->started)) {
		if (another_copies(launch->gathers, launch))
			launch->begun = now;
		else if (withdraw(launch->gathers, state, now))
			return -ECANCELED;
	}
	return kernel_failed(launch, now) ? -EFAULT : 0;
}
