/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous copies and fills: checks of their arguments, and their jobs. */
#include <stdatomic.h>
#include <stdlib.h>

#include "libcuda/stream.h"

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

static atomic_uint copies, through_host;

unsigned standin_copies(void)
{
	return atomic_load(&copies);
}

unsigned standin_through_host(void)
{
	return atomic_load(&through_host);
}

/* Starts a copy.  With host memory that is not registered, the driver completes the copy before it returns. */
static CUresult begin_host_copy(CUdeviceptr device, void *host, size_t length, bool into, struct stream *stream)
{
	const struct context *context = standin_current();
	CUresult result;
	bool known, registered;

	if (!context)
		return INVALID_CONTEXT;
	result = standin_failure(into ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync");
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(context, device) && standin_reaches(context, device + length - 1);
	registered = standin_is_pinned(host, length);
	pthread_mutex_unlock(&standin_lock);
	if (!known || !length)
		return INVALID_VALUE;
	atomic_fetch_add(&copies, 1);
	result = standin_enqueue(stream, (struct job){ .device = device,
						       .host = host,
						       .length = length,
						       .into = into,
						       .computes = into && length <= COMPUTED });
	return result || registered ? result : cuStreamSynchronize(stream);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t length, struct stream *stream)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	return begin_host_copy(to, (void *)from, length, true, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t length, struct stream *stream)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	return begin_host_copy(from, to, length, false, stream);
}

/* Returns true for a copy between registered host memory and device memory. */
static bool is_piece(const struct context *context, CUdeviceptr to, CUdeviceptr from, size_t length,
		     struct piece *piece)
{
	bool into = standin_is_pinned((void *)(uintptr_t)from, length);
	CUdeviceptr device = into ? to : from;
	void *host = (void *)(uintptr_t)(into ? from : to);

	*piece = (struct piece){ .device = device, .host = host, .length = length, .into = into };
	return length && standin_is_pinned(host, length) && standin_reaches(context, device) &&
	       standin_reaches(context, device + length - 1);
}

/* Copies a batch in stream order.  One set of attributes applies to all copies. */
API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *lengths, size_t count,
				   const int *attributes, const size_t *first, size_t attribute_count,
				   struct stream *stream)
{
	const struct context *context = standin_current();
	CUresult result = standin_failure("cuMemcpyBatchAsync");
	struct piece *pieces;
	size_t total = 0;
	bool good = true;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!context || result)
		return context ? result : INVALID_CONTEXT;
	if (!count || attribute_count != 1 || *first || *attributes != 1)
		return INVALID_VALUE;
	pieces = calloc(count, sizeof(*pieces));
	if (!pieces)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	for (size_t i = 0; i < count; i++) {
		good = good && is_piece(context, to[i], from[i], lengths[i], &pieces[i]);
		total += lengths[i];
	}
	pthread_mutex_unlock(&standin_lock);
	result = good ? standin_enqueue(stream, (struct job){ .pieces = pieces,
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
	const struct context *context = standin_current();
	CUresult result = standin_failure("cuMemcpy2DAsync");
	size_t last = (rows->height - 1) * rows->to_pitch + rows->width - 1;
	struct piece *pieces;
	bool known, registered;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!context || result)
		return context ? result : INVALID_CONTEXT;
	if (!rows->width || rows->height < 2 || rows->from_pitch < rows->width || rows->to_pitch < rows->width ||
	    rows->from_type != 1 || rows->to_type != 2 || rows->from_x || rows->from_y || rows->to_x || rows->to_y)
		return INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(context, rows->to) && standin_reaches(context, rows->to + last);
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
	result = standin_enqueue(
		stream,
		(struct job){ .pieces = pieces, .piece_count = rows->height, .length = rows->width * rows->height });
	if (result)
		free(pieces);
	return result || registered ? result : cuStreamSynchronize(stream);
}

static CUresult begin_device_copy(CUdeviceptr to, const struct context *to_context, CUdeviceptr from,
				  const struct context *from_context, size_t length, struct stream *stream)
{
	CUresult result = standin_failure("across");
	bool known;

	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	known = standin_reaches(to_context, to) && standin_reaches(to_context, to + length - 1) &&
		standin_reaches(from_context, from) && standin_reaches(from_context, from + length - 1);
	if (!standin_has_access(standin_current(), to) || !standin_has_access(standin_current(), from))
		atomic_fetch_add(&through_host, 1);
	pthread_mutex_unlock(&standin_lock);
	if (!known || !length)
		return INVALID_VALUE;
	return standin_enqueue(stream, (struct job){ .device = to, .from = from, .length = length, .across = true });
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t length, struct stream *stream)
{
	const struct context *context = standin_current();

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	return context ? begin_device_copy(to, context, from, context, length, stream) : INVALID_CONTEXT;
}

/* Finds the kinds of both sides by their addresses; host memory has to be locked. */
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t length, struct stream *stream)
{
	bool into, out;

	pthread_mutex_lock(&standin_lock);
	into = standin_is_pinned((void *)(uintptr_t)from, length);
	out = standin_is_pinned((void *)(uintptr_t)to, length);
	pthread_mutex_unlock(&standin_lock);
	return into  ? cuMemcpyHtoDAsync_v2(to, (void *)(uintptr_t)from, length, stream)
	       : out ? cuMemcpyDtoHAsync_v2((void *)(uintptr_t)to, from, length, stream)
		     : cuMemcpyDtoDAsync_v2(to, from, length, stream);
}

/* Checks that the given contexts exist.  Like the driver, the stand-in finds the memory by its address. */
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, struct context *to_context, CUdeviceptr from,
			       struct context *from_context, size_t length, struct stream *stream)
{
	bool good;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	good = to_context && to_context->references && from_context && from_context->references;
	pthread_mutex_unlock(&standin_lock);
	return good && standin_current() ? begin_device_copy(to, to_context, from, from_context, length, stream)
					 : INVALID_CONTEXT;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t length, struct stream *stream)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	return standin_enqueue(stream, (struct job){ .device = to, .length = length, .set = true, .value = value });
}
