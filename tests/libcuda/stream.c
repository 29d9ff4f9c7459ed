/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams and events.  The thread of a stream executes its jobs later and in order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libcuda/standin.h"

struct event {
	uint64_t recorded, reached; /* number of cuEventRecord() calls, and of records executed */
	CUresult result;
	struct timespec time; /* time of the last execution */
	struct context *context;
	struct event *next, **link; /* list of all events */
};

/* Piece of a batch of copies. */
struct piece {
	CUdeviceptr device;
	void *host;
	size_t length;
	bool into;
};

struct job {
	struct job *next;
	struct piece *pieces; /* NULL: a single copy, or no copy */
	size_t piece_count;
	CUdeviceptr device, from;
	void *host;
	size_t length;
	bool into, set, across, launch;
	bool computes; /* true if the compute engine executes the job */
	struct standin_kernel kernel;
	uint8_t value;
	struct event *event;
	uint64_t record;
};

struct stream {
	pthread_t thread;
	pthread_cond_t asked; /* signalled for a new job and for the end */
	struct job *first, **last;
	bool busy, ending;
	CUresult failed; /* failure of copies since the last query */
};

/* Structure as in the driver's interface. */
struct rows {
	size_t from_x, from_y;
	int from_type;
	void *from;
	CUdeviceptr from_device;
	void *from_array;
	size_t from_pitch;
	size_t to_x, to_y;
	int to_type;
	void *to_host;
	CUdeviceptr to;
	void *to_array;
	size_t to_pitch;
	size_t width, height;
};

/* Largest size in bytes that the compute engine copies into device memory, except for copies in rows. */
#define COMPUTED 16384

static struct event *events;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned delay, shared;
static size_t waited;
static size_t copied;

void standin_delay(unsigned microseconds)
{
	pthread_mutex_lock(&lock);
	delay = microseconds;
	pthread_mutex_unlock(&lock);
}

void standin_share(unsigned microseconds)
{
	pthread_mutex_lock(&lock);
	shared = microseconds;
	pthread_mutex_unlock(&lock);
}

size_t standin_waited(void)
{
	size_t count;

	pthread_mutex_lock(&lock);
	count = waited;
	pthread_mutex_unlock(&lock);
	return count;
}

size_t standin_copied(void)
{
	size_t bytes;

	pthread_mutex_lock(&lock);
	bytes = copied;
	pthread_mutex_unlock(&lock);
	return bytes;
}

static bool set(CUdeviceptr device, uint8_t value, size_t length)
{
	uint8_t block[4096];

	memset(block, value, sizeof(block));
	for (size_t done = 0; done < length; done += sizeof(block))
		if (!standin_transfer(device + done, block,
				      length - done < sizeof(block) ? length - done : sizeof(block), true))
			return false;
	return true;
}

/* Computes the kernel block by block.  Returns false at the first word that is not allocated. */
static bool compute(const struct standin_kernel *kernel)
{
	uint32_t block[1024];
	uint32_t piece;

	for (uint32_t done = 0; done < kernel->words; done += piece) {
		piece = kernel->words - done < 1024 ? kernel->words - done : 1024;
		if (!standin_transfer(kernel->from + done * 4ull, block, piece * 4ull, false))
			return false;
		for (uint32_t i = 0; i < piece; i++)
			block[i] = 3 * block[i] + done + i;
		if (!standin_transfer(kernel->to + done * 4ull, block, piece * 4ull, true))
			return false;
	}
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

static CUresult perform(const struct job *job)
{
	bool inside = job->across || job->set || job->launch || (job->pieces ? job->pieces->into : job->into);
	CUresult result = standin_failure("copy");
	bool good;

	if (!result && !inside)
		result = standin_failure("copy-out");
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	if (job->pieces)
		good = transfer_all(job);
	else if (job->launch)
		good = compute(&job->kernel);
	else if (job->across)
		good = standin_across(job->device, job->from, job->length);
	else if (job->set)
		good = set(job->device, job->value, job->length);
	else
		good = standin_transfer(job->device, job->host, job->length, job->into);
	pthread_mutex_unlock(&standin_lock);
	return good ? SUCCESS : ILLEGAL_ADDRESS;
}

static void *job_run(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct job *job = stream->first;
		CUresult result = SUCCESS;

		if (!job && stream->ending)
			break;
		if (!job) {
			pthread_cond_wait(&stream->asked, &lock);
			continue;
		}
		stream->first = job->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->busy = true;
		if (!job->event) {
			unsigned pause = delay + (job->computes ? shared : 0);

			waited += job->computes && shared;
			pthread_mutex_unlock(&lock);
			if (pause)
				usleep(pause);
			result = perform(job);
			pthread_mutex_lock(&lock);
			if (result)
				stream->failed = result;
			else if (!job->set)
				copied += job->length;
		} else {
			clock_gettime(CLOCK_MONOTONIC, &job->event->time);
			job->event->reached = job->record;
			job->event->result = stream->failed;
			stream->failed = SUCCESS; /* so that the failure does not reach the next test */
		}
		stream->busy = false;
		/* Threads wait only for events and for an empty stream. */
		if (job->event || !stream->first)
			pthread_cond_broadcast(&changed);
		free(job->pieces);
		free(job);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags)
{
	struct stream *made;

	(void)flags;
	if (!standin_current())
		return INVALID_CONTEXT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	made->last = &made->first;
	pthread_cond_init(&made->asked, NULL);
	if (pthread_create(&made->thread, NULL, job_run, made)) {
		free(made);
		return OUT_OF_MEMORY;
	}
	*stream = made;
	return SUCCESS;
}

API CUresult cuStreamDestroy_v2(struct stream *stream)
{
	pthread_mutex_lock(&lock);
	stream->ending = true;
	pthread_cond_signal(&stream->asked);
	pthread_mutex_unlock(&lock);
	pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->asked);
	free(stream);
	return SUCCESS;
}

static CUresult stream_add_job(struct stream *stream, struct job job)
{
	struct job *added = malloc(sizeof(*added));

	if (!added)
		return OUT_OF_MEMORY;
	*added = job;
	pthread_mutex_lock(&lock);
	if (job.event)
		added->record = ++job.event->recorded;
	*stream->last = added;
	stream->last = &added->next;
	pthread_cond_signal(&stream->asked);
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

API CUresult cuStreamSynchronize(struct stream *stream)
{
	CUresult result;

	if (!standin_current())
		return INVALID_CONTEXT;
	/* The default stream of the context executes no jobs later. */
	if (!stream)
		return SUCCESS;
	pthread_mutex_lock(&lock);
	while (stream->first || stream->busy)
		pthread_cond_wait(&changed, &lock);
	result = stream->failed;
	stream->failed = SUCCESS;
	pthread_mutex_unlock(&lock);
	return result;
}

/* Starts a copy.  With host memory that is not registered, the driver completes the copy before it returns. */
static CUresult begin_host_copy(CUdeviceptr device, void *host, size_t length, bool into, struct stream *stream)
{
	const struct context *here = standin_current();
	CUresult result;
	bool known, registered;

	if (!here)
		return INVALID_CONTEXT;
	result = standin_failure(into ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync");
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(here, device) && standin_reaches(here, device + length - 1);
	registered = standin_is_pinned(host, length);
	pthread_mutex_unlock(&standin_lock);
	if (!known || !length)
		return INVALID_VALUE;
	result = stream_add_job(stream, (struct job){ .device = device,
						      .host = host,
						      .length = length,
						      .into = into,
						      .computes = into && length <= COMPUTED });
	return result || registered ? result : cuStreamSynchronize(stream);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t length, struct stream *stream)
{
	return begin_host_copy(to, (void *)from, length, true, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t length, struct stream *stream)
{
	return begin_host_copy(from, to, length, false, stream);
}

/* Returns true for a copy between registered host memory and device memory. */
static bool is_piece(const struct context *here, CUdeviceptr to, CUdeviceptr from, size_t length, struct piece *piece)
{
	bool into = standin_is_pinned((void *)(uintptr_t)from, length);
	CUdeviceptr device = into ? to : from;
	void *host = (void *)(uintptr_t)(into ? from : to);

	*piece = (struct piece){ .device = device, .host = host, .length = length, .into = into };
	return length && standin_is_pinned(host, length) && standin_reaches(here, device) &&
	       standin_reaches(here, device + length - 1);
}

/* Copies a batch in stream order.  One set of attributes applies to all copies. */
API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *lengths, size_t count,
				   const int *attributes, const size_t *first, size_t attribute_count,
				   struct stream *stream)
{
	const struct context *here = standin_current();
	CUresult result = standin_failure("cuMemcpyBatchAsync");
	struct piece *pieces;
	size_t total = 0;
	bool good = true;

	if (!here || result)
		return here ? result : INVALID_CONTEXT;
	if (!count || attribute_count != 1 || *first || *attributes != 1)
		return INVALID_VALUE;
	pieces = calloc(count, sizeof(*pieces));
	if (!pieces)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	for (size_t i = 0; i < count; i++) {
		good = good && is_piece(here, to[i], from[i], lengths[i], &pieces[i]);
		total += lengths[i];
	}
	pthread_mutex_unlock(&standin_lock);
	result = good ? stream_add_job(stream, (struct job){ .pieces = pieces,
							     .piece_count = count,
							     .length = total,
							     .computes = pieces[0].into && lengths[0] <= COMPUTED })
		      : INVALID_VALUE;
	if (result)
		free(pieces);
	return result;
}

/* Copies rows from host to device memory.  Supports only copies from and to offset 0. */
API CUresult cuMemcpy2DAsync_v2(const struct rows *rows, struct stream *stream)
{
	const struct context *here = standin_current();
	CUresult result = standin_failure("cuMemcpy2DAsync");
	size_t last = (rows->height - 1) * rows->to_pitch + rows->width - 1;
	struct piece *pieces;
	bool known, registered;

	if (!here || result)
		return here ? result : INVALID_CONTEXT;
	if (!rows->width || rows->height < 2 || rows->from_pitch < rows->width || rows->to_pitch < rows->width ||
	    rows->from_type != 1 || rows->to_type != 2 || rows->from_x || rows->from_y || rows->to_x || rows->to_y)
		return INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(here, rows->to) && standin_reaches(here, rows->to + last);
	registered = standin_is_pinned(rows->from, (rows->height - 1) * rows->from_pitch + rows->width);
	pthread_mutex_unlock(&standin_lock);
	pieces = known ? calloc(rows->height, sizeof(*pieces)) : NULL;
	if (!pieces)
		return known ? OUT_OF_MEMORY : INVALID_VALUE;
	for (size_t i = 0; i < rows->height; i++)
		pieces[i] = (struct piece){ .device = rows->to + i * rows->to_pitch,
					    .host = (uint8_t *)rows->from + i * rows->from_pitch,
					    .length = rows->width,
					    .into = true };
	result = stream_add_job(
		stream,
		(struct job){ .pieces = pieces, .piece_count = rows->height, .length = rows->width * rows->height });
	if (result)
		free(pieces);
	return result || registered ? result : cuStreamSynchronize(stream);
}

static CUresult begin_device_copy(CUdeviceptr to, const struct context *there, CUdeviceptr from,
				  const struct context *here, size_t length, struct stream *stream)
{
	CUresult result = standin_failure("across");
	bool known;

	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(there, to) && standin_reaches(there, to + length - 1) && standin_reaches(here, from) &&
		standin_reaches(here, from + length - 1);
	pthread_mutex_unlock(&standin_lock);
	if (!known || !length)
		return INVALID_VALUE;
	return stream_add_job(stream, (struct job){ .device = to, .from = from, .length = length, .across = true });
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t length, struct stream *stream)
{
	const struct context *here = standin_current();

	return here ? begin_device_copy(to, here, from, here, length, stream) : INVALID_CONTEXT;
}

/* Checks that the given contexts exist.  Like the driver, the stand-in finds the memory by its address. */
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, struct context *there, CUdeviceptr from, struct context *here,
			       size_t length, struct stream *stream)
{
	bool good;

	pthread_mutex_lock(&standin_lock);
	good = there && there->references && here && here->references;
	pthread_mutex_unlock(&standin_lock);
	return good && standin_current() ? begin_device_copy(to, there, from, here, length, stream) : INVALID_CONTEXT;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t length, struct stream *stream)
{
	if (!standin_current())
		return INVALID_CONTEXT;
	return stream_add_job(stream, (struct job){ .device = to, .length = length, .set = true, .value = value });
}

CUresult standin_launch(struct stream *stream, const struct standin_kernel *kernel)
{
	return stream_add_job(stream, (struct job){ .launch = true, .kernel = *kernel });
}

API CUresult cuEventCreate(struct event **result, unsigned flags)
{
	struct event *event;

	(void)flags;
	if (!standin_current())
		return INVALID_CONTEXT;
	event = *result = calloc(1, sizeof(*event));
	if (!event)
		return OUT_OF_MEMORY;
	event->context = standin_current();
	pthread_mutex_lock(&lock);
	event->next = events;
	event->link = &events;
	if (events)
		events->link = &event->next;
	events = event;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

/* Removes an event.  The caller holds the lock. */
static void event_remove(struct event *event)
{
	*event->link = event->next;
	if (event->next)
		event->next->link = event->link;
	free(event);
}

API CUresult cuEventDestroy_v2(struct event *event)
{
	pthread_mutex_lock(&lock);
	event_remove(event);
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

void standin_forget_events(struct context *context)
{
	struct event *next;

	pthread_mutex_lock(&lock);
	for (struct event *event = events; event; event = next) {
		while (event->context == context && event->reached != event->recorded)
			pthread_cond_wait(&changed, &lock);
		next = event->next;
		if (event->context == context)
			event_remove(event);
	}
	pthread_mutex_unlock(&lock);
}

API CUresult cuEventRecord(struct event *event, struct stream *stream)
{
	if (!standin_current())
		return INVALID_CONTEXT;
	return stream_add_job(stream, (struct job){ .event = event });
}

API CUresult cuEventQuery(struct event *event)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	result = event->reached == event->recorded ? event->result : NOT_READY;
	pthread_mutex_unlock(&lock);
	return result;
}

API CUresult cuEventSynchronize(struct event *event)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	while (event->reached != event->recorded)
		pthread_cond_wait(&changed, &lock);
	result = event->result;
	pthread_mutex_unlock(&lock);
	return result;
}

API CUresult cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end)
{
	CUresult result = SUCCESS;

	pthread_mutex_lock(&lock);
	if (begin->reached != begin->recorded || end->reached != end->recorded)
		result = NOT_READY;
	*milliseconds = (float)((double)(end->time.tv_sec - begin->time.tv_sec) * 1e3 +
				(double)(end->time.tv_nsec - begin->time.tv_nsec) / 1e6);
	pthread_mutex_unlock(&lock);
	return result;
}
