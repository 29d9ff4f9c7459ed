/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams of the stand-in, their jobs, and events. */
#ifndef LIBCUDA_STREAM_H
#define LIBCUDA_STREAM_H

#include <time.h>

#include "libcuda/standin.h"

struct event {
	uint64_t recorded, reached; /* number of cuEventRecord() calls, and of records executed */
	CUresult result;
	bool destroyed;       /* removed when it is reached */
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
	bool told;     /* gather: its result, and that it has ended */
	struct standin_kernel kernel;
	uint8_t value;
	void (*call)(void *argument);
	void *argument;
	pthread_t by; /* thread that appended the job */
	CUresult result;
	struct event *event;
	uint64_t record;
	const uint64_t *word; /* the stream waits until this word of locked host memory is at least `least` */
	uint64_t least;
};

struct stream {
	pthread_t thread;
	pthread_cond_t asked; /* signalled for a new job and for the end */
	struct job *first, **last;
	bool busy, ending;
	unsigned kernels; /* launches that have not ended, without the empty one that loads a kernel */
	/* copies whose thread has not synchronized since, and that no event has told of; the last one first */
	struct job *failed;
	struct context *context;
};

/* True for the default streams: they have no thread, and execute no jobs later. */
static inline bool standin_is_default(const struct stream *stream)
{
	return (uintptr_t)stream <= 2;
}

/* Lock of all streams and events.  The condition is signalled for a reached event and for an empty stream. */
extern pthread_mutex_t standin_stream_lock;
extern pthread_cond_t standin_stream_changed;

/* An event is reached: removes it if the program has destroyed it.  The caller holds the lock.  (event.c) */
void standin_reached(struct event *event);
/* Appends a job to a stream. */
CUresult standin_enqueue(struct stream *stream, struct job job);
/*
 * Waits until a stream is empty, as the driver's function.  Returns the failure of the calling thread's copies only, as
 * threads share streams.  The driver would tell all threads of a context, for ever, and no test could go on.
 */
API CUresult cuStreamSynchronize(struct stream *stream);

#endif
