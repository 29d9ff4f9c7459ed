/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations without a handle, for futures, and events. A record refers to the future and to all objects whose memory
 * the operation uses, until pl_poll() delivers its completion.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

#define PY_BATCH 64

/* Completions of one pl_poll(), of which those before `next` are delivered. */
struct py_batch {
	struct pl_completion completions[PY_BATCH];
	int next, count;
	struct py_batch *outer; /* batch during whose delivery this one was collected, or NULL */
};

/* Returns the chain of a future. The number of records is a power of 2, and futures are aligned. */
static uint32_t *py_record_chain(const struct py_context *context, const PyObject *future)
{
	return &context->chains[((uintptr_t)future >> 4) * 0x9e3779b97f4a7c15u >> 32 & (context->record_count - 1)];
}

/* Lets py_record_find() find a record by its future. */
static void py_record_link(struct py_context *context, uint32_t index)
{
	uint32_t *chain = py_record_chain(context, context->records[index].future);

	context->records[index].next_in_chain = *chain;
	*chain = index;
}

static void py_record_unlink(struct py_context *context, uint32_t index)
{
	uint32_t *link = py_record_chain(context, context->records[index].future);

	while (*link != index)
		link = &context->records[*link].next_in_chain;
	*link = context->records[index].next_in_chain;
}

/* Returns the index of the record of a future, or UINT32_MAX. */
static uint32_t py_record_find(const struct py_context *context, const PyObject *future)
{
	uint32_t index = context->record_count ? *py_record_chain(context, future) : UINT32_MAX;

	while (index != UINT32_MAX && context->records[index].future != future)
		index = context->records[index].next_in_chain;
	return index;
}

/* Doubles the records, all of which are in use. */
static int py_records_grow(struct py_context *context)
{
	uint32_t old = context->record_count, count = old ? old * 2 : 64;
	struct py_record *records = realloc(context->records, count * sizeof(*records));
	uint32_t *chains;

	if (records)
		context->records = records;
	chains = records ? realloc(context->chains, count * sizeof(*chains)) : NULL;
	if (!chains) {
		PyErr_NoMemory();
		return -1;
	}
	memset(records + old, 0, (count - old) * sizeof(*records));
	for (uint32_t i = old; i < count; i++)
		records[i].next_free = i + 1 < count ? i + 1 : UINT32_MAX;
	memset(chains, 0xff, count * sizeof(*chains));
	context->chains = chains;
	context->record_count = count;
	context->record_free = old;
	for (uint32_t i = 0; i < old; i++)
		py_record_link(context, i);
	return 0;
}

/* Gives the future a record. */
static struct py_record *py_record_take(struct py_context *context, PyObject *future, uint64_t *user_data)
{
	struct py_record *record;
	uint32_t index;

	if (context->record_free == UINT32_MAX && py_records_grow(context) < 0)
		return NULL;
	index = context->record_free;
	record = &context->records[index];
	context->record_free = record->next_free;
	context->record_used++;
	record->asked = false;
	Py_INCREF(future);
	record->future = future;
	py_record_link(context, index);
	*user_data = (uint64_t)++record->generation << 32 | index;
	return record;
}

/* Empties a record; the caller gets its references. */
static void py_record_free(struct py_context *context, uint32_t index, struct py_record *content)
{
	struct py_record *record = &context->records[index];

	py_record_unlink(context, index);
	*content = *record;
	record->future = record->context = NULL;
	memset(&record->references, 0, sizeof(record->references));
	record->next_free = context->record_free;
	context->record_free = index;
	context->record_used--;
}

static void py_record_drop(struct py_record *content)
{
	py_references_clear(&content->references);
	Py_CLEAR(content->future);
	Py_CLEAR(content->context);
}

/* Asks asyncio, which takes some 200 ns. Returns 1 if the loop of the context runs, 0 if none does and it can run later, or -1. */
static int py_loop_ask(struct py_context *context)
{
	PyObject *running = PyObject_CallNoArgs(context->running_loop), *closed;
	int rc = -1;

	if (!running)
		return -1;
	if (running == context->loop) {
		rc = 1;
	} else if (running != Py_None) {
		PyErr_Format(PyExc_RuntimeError,
			     "the asyncio context belongs to the loop %R, but %R runs: open a context in each loop",
			     context->loop, running);
	} else {
		closed = PyObject_CallMethod(context->loop, "is_closed", NULL);
		if (closed == Py_False)
			rc = 0;
		else if (closed)
			PyErr_Format(PyExc_RuntimeError, "the loop of the asyncio context is closed: %R",
				     context->loop);
		Py_XDECREF(closed);
	}
	Py_DECREF(running);
	return rc;
}

/*
 * Returns 0 if futures of the context can be awaited. Otherwise nothing would deliver their ends. The same object in the
 * dictionary of the thread means the same run of the same loop; versions of asyncio without such an object are asked each time.
 */
int py_loop_check(struct py_context *context)
{
	PyObject *dictionary, *run;
	int rc;

	if (!context->loop || !context->running_loop) {
		PyErr_SetString(PyExc_RuntimeError, "the context has no loop: open it with peerlane.aio");
		return -1;
	}
	if (context->thread != PyThread_get_thread_ident()) {
		PyErr_SetString(PyExc_RuntimeError,
				"an asyncio context belongs to the thread of its loop: call it there, "
				"for example with loop.call_soon_threadsafe()");
		return -1;
	}
	dictionary = PyThreadState_GetDict();
	run = dictionary ? PyDict_GetItemWithError(dictionary, context->state->loop_key) : NULL;
	if (run && run == context->run)
		return 0;
	if (PyErr_Occurred())
		return -1;
	Py_XINCREF(run);
	rc = py_loop_ask(context);
	Py_XDECREF(context->run);
	context->run = rc > 0 ? run : NULL;
	if (rc <= 0)
		Py_XDECREF(run);
	return rc < 0 ? -1 : 0;
}

PyObject *py_context_check_loop(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	(void)unused;
	if (py_loop_check((struct py_context *)self) < 0)
		return NULL;
	Py_RETURN_NONE;
}

PyObject *py_submit_future(struct py_context *context, py_post_function post, void *argument,
			   struct py_references *references, bool takes)
{
	struct py_record *record, content;
	struct pl_error error;
	PyObject *future;
	uint64_t user_data;
	int rc;

	if (py_loop_check(context) < 0)
		return NULL;
	future = PyObject_Call(context->future, context->state->no_arguments, context->future_options);
	if (!future)
		return NULL;
	/* The call may have run code that closed objects. */
	record = py_references_check(references) < 0 || py_context_check(context) < 0
			 ? NULL
			 : py_record_take(context, future, &user_data);
	if (!record) {
		Py_DECREF(future);
		return NULL;
	}
	Py_INCREF((PyObject *)context);
	record->context = (PyObject *)context;
	record->takes = takes;
	py_references_take(&record->references, references);
	py_references_use(context, references, 1);
	Py_BEGIN_ALLOW_THREADS
		rc = post(argument, user_data, NULL, &error);
	Py_END_ALLOW_THREADS
	py_references_use(context, references, -1);
	if (rc) {
		py_record_free(context, (uint32_t)user_data, &content);
		py_record_drop(&content);
		Py_DECREF(future);
		return py_raise(context->state, &error);
	}
	return future;
}

/* Ends a future by its method. A future that was ended in another way, or whose loop is closed, reports the exception. */
static void py_future_call(PyObject *future, PyObject *method, PyObject *value)
{
	PyObject *done = PyObject_CallMethodObjArgs(future, method, value, NULL);

	if (!done)
		PyErr_WriteUnraisable(future);
	Py_XDECREF(done);
}

static void py_record_finish(struct py_context *context, const struct pl_completion *completion)
{
	struct py_record content;
	struct pl_error error;
	uint32_t index = (uint32_t)completion->user_data;
	PyObject *result, *type, *value, *trace;

	if (index >= context->record_count || !context->records[index].future ||
	    context->records[index].generation != completion->user_data >> 32)
		return;
	py_record_free(context, index, &content);
	if (completion->status)
		pl_completion_error(context->handle, completion, &error);
	result = py_result(context, completion, &content.references, completion->status ? &error : NULL);
	if (result) {
		/* A cancelled operation that had succeeded counts as cancelled; a connection of it is closed. */
		if (content.asked)
			py_future_call(content.future, context->state->future_cancel, NULL);
		else
			py_future_call(content.future, context->state->future_result, result);
		Py_DECREF(result);
	} else {
		PyErr_Fetch(&type, &value, &trace);
		PyErr_NormalizeException(&type, &value, &trace);
		if (content.asked)
			py_future_call(content.future, context->state->future_cancel, NULL);
		else
			py_future_call(content.future, context->state->future_fail, value);
		Py_XDECREF(type);
		Py_XDECREF(value);
		Py_XDECREF(trace);
	}
	py_record_drop(&content);
}

/* Ends futures whose operations pl_close() cancelled. */
void py_records_end(struct py_context *context)
{
	for (uint32_t i = 0; i < context->record_count; i++) {
		struct py_record content;
		PyObject *done;

		if (!context->records[i].future)
			continue;
		py_record_free(context, i, &content);
		done = PyObject_CallMethodObjArgs(content.future, context->state->future_cancel, NULL);
		/* A closed loop runs no callbacks. */
		if (!done)
			PyErr_Clear();
		Py_XDECREF(done);
		py_record_drop(&content);
	}
}

/* Gives a notification to the receiver. */
static void py_notification_deliver(struct py_context *context, struct pl_completion *completion)
{
	struct py_peer *found = py_find_peer(context, completion->peer);
	PyObject *peer = found ? py_weak_get(found->weak, found) : NULL, *event, *value, *data, *done;

	if (!peer) {
		peer = Py_None;
		Py_INCREF(peer);
	}
	value = PyLong_FromUnsignedLongLong(completion->value);
	data = PyBytes_FromStringAndSize(completion->data, completion->data ? completion->data_length : 0);
	pl_notification_free(context->handle, completion);
	event = value && data ? PyObject_CallFunctionObjArgs(context->state->notification, value, peer, data, NULL)
			      : NULL;
	done = event && context->sink ? PyObject_CallFunctionObjArgs(context->sink, event, NULL) : NULL;
	if (PyErr_Occurred())
		PyErr_WriteUnraisable((PyObject *)context);
	Py_XDECREF(done);
	Py_XDECREF(event);
	Py_XDECREF(data);
	Py_XDECREF(value);
	Py_DECREF(peer);
}

/* Remembers a lost peer in its object, so that no reference keeps peers that the program has given up. */
static void py_peer_mark_lost(struct py_context *context, const struct pl_completion *completion)
{
	struct py_peer *peer = py_find_peer(context, completion->peer);

	if (peer)
		peer->lost = true;
}

/* _take_lost(): returns the peers that were lost since the last call. */
PyObject *py_context_take_lost(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	PyObject *list = PyList_New(0);

	(void)unused;
	for (struct py_object *object = context->objects; list && object; object = object->next) {
		struct py_peer *peer = py_as_peer(object);
		PyObject *held;

		if (!peer || object->closed || !peer->lost)
			continue;
		peer->lost = false;
		held = py_weak_get(peer->weak, peer);
		if (held && PyList_Append(list, held) < 0)
			Py_CLEAR(list);
		Py_XDECREF(held);
		/* The last reference may have freed the object. */
		if (!list)
			break;
	}
	return list;
}

/* Frees the data of completions that nobody takes. */
static void py_batch_drop(const struct py_context *context, struct py_batch *batch)
{
	for (; batch->next < batch->count; batch->next++)
		pl_notification_free(context->handle, &batch->completions[batch->next]);
}

void py_batches_drop(struct py_context *context)
{
	for (struct py_batch *batch = context->batch; batch; batch = batch->outer)
		py_batch_drop(context, batch);
}

/*
 * Collects and delivers up to 64 completions. Returns their number; 0 while another thread does so, as the notifications of
 * two threads would not keep their order. A signal handler may call this again in the middle of a delivery.
 */
static int py_poll_batch(struct py_context *context)
{
	const unsigned long outer = context->poller;
	struct py_batch batch;

	if (outer && outer != PyThread_get_thread_ident())
		return 0;
	context->poller = PyThread_get_thread_ident();
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		batch.count = pl_poll(context->handle, batch.completions, PY_BATCH);
	Py_END_ALLOW_THREADS
	batch.next = 0;
	batch.outer = context->batch;
	context->batch = &batch;
	context->users--;
	/* A signal handler may close the context between two completions. */
	while (batch.next < batch.count && context->status == PY_OPEN) {
		struct pl_completion *completion = &batch.completions[batch.next++];

		if (completion->kind == PL_KIND_NOTIFIED)
			py_notification_deliver(context, completion);
		else if (completion->kind == PL_KIND_LOST)
			py_peer_mark_lost(context, completion);
		else
			py_record_finish(context, completion);
	}
	/* A close that has begun drops the rest before it frees the context. */
	if (context->status != PY_FORKED)
		py_batch_drop(context, &batch);
	context->batch = batch.outer;
	context->poller = outer;
	return batch.count;
}

/* _poll(): True if there may be more. */
PyObject *py_context_poll(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	return PyBool_FromLong(py_poll_batch(context) == PY_BATCH);
}

/* _hold(bool): leaves notifications in the library, so that their senders wait, or takes them again. */
PyObject *py_context_hold(PyObject *self, PyObject *hold)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	if (py_context_check(context) < 0)
		return NULL;
	pl_notifications_hold(context->handle, hold == Py_True);
	Py_RETURN_NONE;
}

/* _wait_event(seconds): polls once, waits at most 50 ms for work, and polls again. */
PyObject *py_context_wait_event(PyObject *self, PyObject *timeout)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	uint64_t ns;
	int rc = 0;

	if (py_get_ns(timeout, "timeout", UINT64_MAX, &ns) < 0 || py_context_check(context) < 0)
		return NULL;
	if (py_poll_batch(context) == 0 && ns && context->status == PY_OPEN) {
		struct pollfd waiter = { .fd = pl_fd(context->handle), .events = POLLIN };
		int ms = (int)((ns < PY_SLICE_NS ? ns : PY_SLICE_NS) + 999999) / 1000000;

		if (waiter.fd < 0)
			return py_raise_code(context->state, waiter.fd, "fileno", "context");
		context->users++;
		Py_BEGIN_ALLOW_THREADS
			rc = poll(&waiter, 1, ms);
		Py_END_ALLOW_THREADS
		context->users--;
		if (rc > 0 && context->status == PY_OPEN)
			py_poll_batch(context);
	}
	if (PyErr_CheckSignals() < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Notes a record for py_context_cancel_asked(). */
static int py_record_ask(struct py_context *context, uint32_t index)
{
	if (context->asked_count == context->asked_capacity) {
		size_t capacity = context->asked_capacity ? context->asked_capacity * 2 : 64;
		uint64_t *larger = realloc(context->asked, capacity * sizeof(*larger));

		if (!larger) {
			PyErr_NoMemory();
			return -1;
		}
		context->asked = larger;
		context->asked_capacity = capacity;
	}
	context->asked[context->asked_count++] = (uint64_t)context->records[index].generation << 32 | index;
	context->records[index].asked = true;
	return 0;
}

/*
 * _cancel(future): asks for the end of its operation. Returns the context, whose _cancel_asked() cancels it, and True if that
 * must be called at once; None: no operation runs. Futures do not refer to contexts, which makes them small.
 */
PyObject *py_cancel_future(PyObject *module, PyObject *future)
{
	PyObject *list = py_contexts(PyModule_GetState(module)), *found = NULL;
	bool failed = false;

	if (!list)
		return NULL;
	for (Py_ssize_t i = 0; !found && !failed && i < PyList_Size(list); i++) {
		struct py_context *context = (struct py_context *)PyList_GetItem(list, i);
		PY_GUARD(context);
		uint32_t index = context->status == PY_OPEN ? py_record_find(context, future) : UINT32_MAX;

		if (index == UINT32_MAX)
			continue;
		failed = !context->records[index].asked && py_record_ask(context, index) < 0;
		if (!failed)
			found = Py_BuildValue("OO", context, context->records[index].takes ? Py_True : Py_False);
		failed = !found;
	}
	Py_DECREF(list);
	if (found || failed)
		return found;
	Py_RETURN_NONE;
}

static int py_compare_numbers(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

void py_context_cancel_noted(struct py_context *context)
{
	uint64_t *asked = context->asked;
	size_t count = context->asked_count;

	context->asked = NULL;
	context->asked_count = context->asked_capacity = 0;
	if (count && context->status == PY_OPEN) {
		qsort(asked, count, sizeof(*asked), py_compare_numbers);
		/* Waits for engines. */
		context->users++;
		Py_BEGIN_ALLOW_THREADS
			pl_cancel_several_posted(context->handle, asked, count);
		Py_END_ALLOW_THREADS
		context->users--;
	}
	free(asked);
}

/* _cancel_asked(): cancels the operations for which _cancel() asked. */
PyObject *py_context_cancel_asked(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	(void)unused;
	py_context_cancel_noted((struct py_context *)self);
	Py_RETURN_NONE;
}

/* _cancel_all(): cancels all operations, unless all were cancelled before. */
PyObject *py_context_cancel_all(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	bool asks = false;

	(void)unused;
	for (uint32_t i = 0; i < context->record_count; i++) {
		struct py_record *record = &context->records[i];

		asks = asks || (record->future && !record->asked);
		record->asked = true;
	}
	if (asks && context->status == PY_OPEN) {
		context->users++;
		Py_BEGIN_ALLOW_THREADS
			pl_cancel_all_posted(context->handle);
		Py_END_ALLOW_THREADS
		context->users--;
	}
	Py_RETURN_NONE;
}
