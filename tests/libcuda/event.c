/* SPDX-License-Identifier: BSD-2-Clause */
/* Events, which a stream reaches in its turn. */
#include <stdlib.h>

#include "libcuda/stream.h"

static struct event *events;
static unsigned asked; /* calls of cuEventQuery() */

API CUresult cuEventCreate(struct event **result, unsigned flags)
{
	struct event *event;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	(void)flags;
	if (!standin_current())
		return INVALID_CONTEXT;
	event = *result = calloc(1, sizeof(*event));
	if (!event)
		return OUT_OF_MEMORY;
	event->context = standin_current();
	pthread_mutex_lock(&standin_stream_lock);
	event->next = events;
	event->link = &events;
	if (events)
		events->link = &event->next;
	events = event;
	pthread_mutex_unlock(&standin_stream_lock);
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
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_stream_lock);
	if (event->reached == event->recorded)
		event_remove(event);
	else
		event->destroyed = true;
	pthread_mutex_unlock(&standin_stream_lock);
	return SUCCESS;
}

void standin_reached(struct event *event)
{
	if (event->destroyed && event->reached == event->recorded)
		event_remove(event);
}

/* Returns an event of a context, or NULL.  The caller holds the lock. */
static struct event *event_of(const struct context *context)
{
	struct event *event = events;

	while (event && event->context != context)
		event = event->next;
	return event;
}

void standin_forget_events(struct context *context)
{
	struct event *event;

	pthread_mutex_lock(&standin_stream_lock);
	/* A stream that reaches an event may remove it. */
	while ((event = event_of(context))) {
		if (event->reached == event->recorded)
			event_remove(event);
		else
			pthread_cond_wait(&standin_stream_changed, &standin_stream_lock);
	}
	pthread_mutex_unlock(&standin_stream_lock);
}

API CUresult cuEventRecord(struct event *event, struct stream *stream)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (standin_is_default(stream))
		return SUCCESS;
	return standin_enqueue(stream, (struct job){ .event = event });
}

unsigned standin_asked(void)
{
	unsigned count;

	pthread_mutex_lock(&standin_stream_lock);
	count = asked;
	pthread_mutex_unlock(&standin_stream_lock);
	return count;
}

API CUresult cuEventQuery(struct event *event)
{
	CUresult result;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_stream_lock);
	asked++;
	result = event->reached == event->recorded ? event->result : NOT_READY;
	pthread_mutex_unlock(&standin_stream_lock);
	return result;
}

API CUresult cuEventSynchronize(struct event *event)
{
	CUresult result;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_stream_lock);
	while (event->reached != event->recorded)
		pthread_cond_wait(&standin_stream_changed, &standin_stream_lock);
	result = event->result;
	pthread_mutex_unlock(&standin_stream_lock);
	return result;
}

API CUresult cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end)
{
	CUresult result = SUCCESS;

	pthread_mutex_lock(&standin_stream_lock);
	if (begin->reached != begin->recorded || end->reached != end->recorded)
		result = NOT_READY;
	*milliseconds = (float)((double)(end->time.tv_sec - begin->time.tv_sec) * 1e3 +
				(double)(end->time.tv_nsec - begin->time.tv_nsec) / 1e6);
	pthread_mutex_unlock(&standin_stream_lock);
	return result;
}
