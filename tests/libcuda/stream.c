/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams.  The thread of a stream executes its jobs later and in order. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcuda/stream.h"

pthread_mutex_t standin_stream_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_stream_changed = PTHREAD_COND_INITIALIZER;
static unsigned delay, shared;
static size_t waited;
static size_t copied;
static unsigned unfinished; /* jobs of all streams */
static bool capturing, kernels_held, loading;

/* Wakes copies that wait for their time. */
static pthread_cond_t delay_changed = PTHREAD_COND_INITIALIZER;

void standin_delay(unsigned microseconds)
{
	pthread_mutex_lock(&standin_stream_lock);
	delay = microseconds;
	pthread_cond_broadcast(&delay_changed);
	pthread_mutex_unlock(&standin_stream_lock);
}

void standin_share(unsigned microseconds)
{
	pthread_mutex_lock(&standin_stream_lock);
	shared = microseconds;
	pthread_mutex_unlock(&standin_stream_lock);
}

void standin_hold(bool held)
{
	pthread_mutex_lock(&standin_stream_lock);
	kernels_held = held;
	pthread_mutex_unlock(&standin_stream_lock);
}

void standin_load(bool loads)
{
	pthread_mutex_lock(&standin_stream_lock);
	loading = loads;
	pthread_cond_broadcast(&standin_stream_changed);
	pthread_mutex_unlock(&standin_stream_lock);
}

void standin_capture(bool captured)
{
	pthread_mutex_lock(&standin_stream_lock);
	capturing = captured;
	pthread_mutex_unlock(&standin_stream_lock);
}

API CUresult cuStreamIsCapturing(const struct stream *stream, int *status)
{
	(void)stream;
	pthread_mutex_lock(&standin_stream_lock);
	*status = capturing;
	pthread_mutex_unlock(&standin_stream_lock);
	return standin_failure("cuStreamIsCapturing");
}

API CUresult cuStreamGetCtx(const struct stream *stream, struct context **context)
{
	*context = standin_is_default(stream) ? standin_current() : stream->context;
	return *context ? standin_failure("cuStreamGetCtx") : INVALID_CONTEXT;
}

size_t standin_waited(void)
{
	size_t count;

	pthread_mutex_lock(&standin_stream_lock);
	count = waited;
	pthread_mutex_unlock(&standin_stream_lock);
	return count;
}

size_t standin_copied(void)
{
	size_t bytes;

	pthread_mutex_lock(&standin_stream_lock);
	bytes = copied;
	pthread_mutex_unlock(&standin_stream_lock);
	return bytes;
}

static bool fill_memory(CUdeviceptr device, uint8_t value, size_t length)
{
	uint8_t block[4096];

	memset(block, value, sizeof(block));
	for (size_t done = 0; done < length; done += sizeof(block))
		if (!standin_transfer(device + done, block,
				      length - done < sizeof(block) ? length - done : sizeof(block), true))
			return false;
	return true;
}

static bool transfer_all(const struct job *job)
{
	bool good = true;

	for (size_t i = 0; i < job->piece_count; i++)
		good &= standin_transfer(job->pieces[i].device, job->pieces[i].host, job->pieces[i].length,
					 job->pieces[i].into);
	return good;
}

/* Waits for a word of host memory. The end of the stream ends the wait too. */
static void wait_for_word(struct stream *stream, const struct job *job)
{
	while (__atomic_load_n(job->word, __ATOMIC_ACQUIRE) < job->least) {
		bool ending;

		usleep(20);
		pthread_mutex_lock(&standin_stream_lock);
		ending = stream->ending;
		pthread_mutex_unlock(&standin_stream_lock);
		if (ending)
			return;
	}
}

/* The caller holds the lock. */
static void kernel_begins(const struct standin_kernel *kernel)
{
	if (kernel->state && !kernels_held)
		atomic_store(&kernel->state[0], 1);
}

/*
 * Tells the result of a gather. The next kernel of the stream begins before, and one that is launched later at once, as the thread may
 * be slow.
 */
static void gather_ends(struct stream *stream, struct job *job, bool good)
{
	uint32_t unknown = 0;

	pthread_mutex_lock(&standin_stream_lock);
	if (stream->first && stream->first->launch)
		kernel_begins(&stream->first->kernel);
	stream->kernels -= job->kernel.words > 0;
	job->told = true;
	pthread_mutex_unlock(&standin_stream_lock);
	if (good && job->kernel.words)
		atomic_compare_exchange_strong(&job->kernel.state[2], &unknown, 1);
	atomic_store(&job->kernel.state[3], 1);
}

/* Waits until kernels may run. The end of the stream ends the wait too. */
static void wait_for_multiprocessors(const struct stream *stream)
{
	bool wait = true;

	while (wait) {
		pthread_mutex_lock(&standin_stream_lock);
		wait = kernels_held && !stream->ending;
		pthread_mutex_unlock(&standin_stream_lock);
		if (wait)
			usleep(20);
	}
}

static CUresult job_perform(struct stream *stream, struct job *job)
{
	bool inside = job->across || job->set || job->launch || (job->pieces ? job->pieces->into : job->into);
	CUresult result = SUCCESS;
	bool good;

	if (job->call) {
		job->call(job->argument);
		return SUCCESS;
	}
	if (!job->kernel.ranges)
		result = standin_failure("copy");
	else if (job->kernel.words)
		result = standin_failure("gather");
	if (!result && !inside)
		result = standin_failure("copy-out");
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	if (job->pieces)
		good = transfer_all(job);
	else if (job->launch)
		good = job->kernel.compute(&job->kernel);
	else if (job->across)
		good = standin_across(job->device, job->from, job->length);
	else if (job->set)
		good = fill_memory(job->device, job->value, job->length);
	else
		good = standin_transfer(job->device, job->host, job->length, job->into);
	pthread_mutex_unlock(&standin_lock);
	if (job->kernel.state)
		gather_ends(stream, job, good);
	return good ? SUCCESS : ILLEGAL_ADDRESS;
}

/* Waits for the time of a copy, from now on. The caller holds the lock, which is free meanwhile. */
static void wait_for_delay(unsigned more)
{
	struct timespec begin, until;
	unsigned waited_for = 0;

	clock_gettime(CLOCK_REALTIME, &begin);
	while (delay + more > waited_for) {
		uint64_t end = (uint64_t)begin.tv_nsec + (delay + more) * 1000ull;

		waited_for = delay + more;
		until = (struct timespec){ begin.tv_sec + (time_t)(end / 1000000000), (long)(end % 1000000000) };
		while (delay + more == waited_for &&
		       pthread_cond_timedwait(&delay_changed, &standin_stream_lock, &until) == 0)
			;
	}
}

/* Removes the failed copies of a thread, or of all, and returns the failure of the last one. The caller holds the lock. */
static CUresult take_failures(struct stream *stream, const pthread_t *by)
{
	struct job **at = &stream->failed;
	CUresult result = SUCCESS;

	while (*at) {
		struct job *job = *at;

		if (by && !pthread_equal(job->by, *by)) {
			at = &job->next;
			continue;
		}
		result = result ? result : job->result;
		*at = job->next;
		free(job);
	}
	return result;
}

static void *stream_thread(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&standin_stream_lock);
	for (;;) {
		struct job *job = stream->first;
		CUresult result = SUCCESS;

		if (!job && stream->ending)
			break;
		if (!job) {
			pthread_cond_wait(&stream->asked, &standin_stream_lock);
			continue;
		}
		stream->first = job->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->busy = true;
		if (!job->event) {
			waited += job->computes && shared;
			if (job->launch)
				kernel_begins(&job->kernel);
			wait_for_delay(job->computes ? shared : 0);
			pthread_mutex_unlock(&standin_stream_lock);
			if (job->launch)
				wait_for_multiprocessors(stream);
			if (job->word)
				wait_for_word(stream, job);
			else
				result = job_perform(stream, job);
			pthread_mutex_lock(&standin_stream_lock);
			if (!result && !job->set)
				copied += job->length;
		} else {
			clock_gettime(CLOCK_MONOTONIC, &job->event->time);
			job->event->reached = job->record;
			job->event->result = take_failures(stream, NULL);
			standin_reached(job->event);
		}
		stream->busy = false;
		stream->kernels -= job->launch && job->kernel.words > 0 && !job->told;
		unfinished--;
		/* Threads wait only for events and for empty streams. */
		if (job->event || !stream->first)
			pthread_cond_broadcast(&standin_stream_changed);
		free(job->pieces);
		job->result = result;
		job->next = stream->failed;
		if (result)
			stream->failed = job;
		else
			free(job);
	}
	pthread_mutex_unlock(&standin_stream_lock);
	return NULL;
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags)
{
	struct stream *made;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	(void)flags;
	if (!standin_current())
		return INVALID_CONTEXT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	made->last = &made->first;
	made->context = standin_current();
	pthread_cond_init(&made->asked, NULL);
	if (pthread_create(&made->thread, NULL, stream_thread, made)) {
		free(made);
		return OUT_OF_MEMORY;
	}
	*stream = made;
	return SUCCESS;
}

API CUresult cuStreamDestroy_v2(struct stream *stream)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_stream_lock);
	stream->ending = true;
	pthread_cond_signal(&stream->asked);
	pthread_mutex_unlock(&standin_stream_lock);
	pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->asked);
	take_failures(stream, NULL);
	free(stream);
	return SUCCESS;
}

CUresult standin_enqueue(struct stream *stream, struct job job)
{
	struct job *added = malloc(sizeof(*added));

	if (!added)
		return OUT_OF_MEMORY;
	*added = job;
	added->by = pthread_self();
	pthread_mutex_lock(&standin_stream_lock);
	while (loading && !standin_is_default(stream) && stream->context->primary)
		pthread_cond_wait(&standin_stream_changed, &standin_stream_lock);
	if (job.event)
		added->record = ++job.event->recorded;
	*stream->last = added;
	stream->last = &added->next;
	unfinished++;
	pthread_cond_signal(&stream->asked);
	pthread_mutex_unlock(&standin_stream_lock);
	return SUCCESS;
}

void standin_finish_streams(void)
{
	pthread_mutex_lock(&standin_stream_lock);
	while (unfinished)
		pthread_cond_wait(&standin_stream_changed, &standin_stream_lock);
	pthread_mutex_unlock(&standin_stream_lock);
}

API CUresult cuStreamSynchronize(struct stream *stream)
{
	const pthread_t self = pthread_self();
	CUresult result;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	/* The default stream of the context executes no jobs later. */
	if (standin_is_default(stream))
		return SUCCESS;
	pthread_mutex_lock(&standin_stream_lock);
	while (stream->first || stream->busy)
		pthread_cond_wait(&standin_stream_changed, &standin_stream_lock);
	result = take_failures(stream, &self);
	pthread_mutex_unlock(&standin_stream_lock);
	return result;
}

API CUresult cuStreamQuery(struct stream *stream)
{
	CUresult result = standin_failure("cuStreamQuery");

	if (result)
		return result;
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_stream_lock);
	result = stream->failed ? stream->failed->result : SUCCESS;
	result = stream->first || stream->busy ? NOT_READY : result;
	pthread_mutex_unlock(&standin_stream_lock);
	return result;
}

CUresult standin_launch(struct stream *stream, const struct standin_kernel *kernel)
{
	pthread_mutex_lock(&standin_stream_lock);
	/* A GPU begins within microseconds, but the thread of a stream may not. */
	if (!stream->kernels)
		kernel_begins(kernel);
	stream->kernels += kernel->words > 0;
	pthread_mutex_unlock(&standin_stream_lock);
	return standin_enqueue(stream, (struct job){ .launch = true, .kernel = *kernel });
}

API CUresult cuStreamWaitValue64_v2(struct stream *stream, CUdeviceptr word, uint64_t least, unsigned flags)
{
	CUresult result = standin_failure("cuStreamWaitValue64");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (standin_is_default(stream) || flags || word % sizeof(uint64_t))
		return INVALID_VALUE;
	return standin_enqueue(stream, (struct job){ .word = (const uint64_t *)(uintptr_t)word, .least = least });
}

API CUresult cuLaunchHostFunc(struct stream *stream, void (*call)(void *argument), void *argument)
{
	if (!standin_current())
		return INVALID_CONTEXT;
	return standin_enqueue(stream, (struct job){ .call = call, .argument = argument });
}
