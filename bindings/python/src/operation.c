/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations with a handle: calls that wait, and Operation objects. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "extension.h"

/* End of a wait for a handle. */
enum py_waited {
	PY_ENDED,
	PY_TIMED_OUT, /* the operation runs */
	PY_SIGNALLED, /* the operation runs, and a signal handler raised an exception */
	PY_GONE,      /* the context has been closed, and the handle with it */
};

uint64_t py_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t py_deadline(uint64_t timeout)
{
	uint64_t now = timeout == UINT64_MAX ? 0 : py_clock_ns();

	return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

/*
 * Tests a handle, which the caller keeps from other threads. With manual progress the library may call `authorize`, which
 * waits for the interpreter lock.
 */
static int py_test_handle(struct py_context *context, struct pl_operation *handle, struct pl_completion *completion,
			  struct pl_error *error)
{
	int rc;

	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_test(handle, completion, error);
	Py_END_ALLOW_THREADS
	context->users--;
	return rc;
}

/* Waits in slices, without the interpreter lock. Cancels the operation once when `asked`, unless NULL, becomes true. */
static enum py_waited py_wait_handle(struct py_context *context, struct pl_operation *handle, bool *asked,
				     uint64_t deadline, struct pl_completion *completion, struct pl_error *error)
{
	for (;;) {
		uint64_t now = deadline == UINT64_MAX ? 0 : py_clock_ns();
		uint64_t left = now < deadline ? deadline - now : 0;
		bool raised;
		int rc;

		context->users++;
		Py_BEGIN_ALLOW_THREADS
			rc = pl_try_wait(handle, left < PY_SLICE_NS ? left : PY_SLICE_NS, completion, error);
		Py_END_ALLOW_THREADS
		context->users--;
		if (rc != -EINPROGRESS)
			return PY_ENDED;
		/* A handler may close the context, which waits for `users`. */
		raised = context->status == PY_OPEN && PyErr_CheckSignals() < 0;
		if (context->status != PY_OPEN) {
			py_context_await_end(context);
			return raised ? PY_SIGNALLED : PY_GONE;
		}
		if (raised)
			return PY_SIGNALLED;
		if (asked && *asked) {
			*asked = false;
			pl_cancel(handle);
		}
		if (left <= PY_SLICE_NS)
			return PY_TIMED_OUT;
	}
}

static void *py_raise_gone(struct py_context *context)
{
	if (context->status == PY_FORKED)
		return py_context_check(context), NULL;
	return py_fail(context->state, -ECANCELED, "PY-CLOSED", "context",
		       "the context was closed during the operation", "end operations before the context is closed");
}

/* Cancels an operation, and waits for its end, which comes soon. */
static int py_cancel_handle(struct py_context *context, struct pl_operation *handle, struct pl_completion *completion,
			    struct pl_error *error)
{
	int rc;

	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_cancel(handle);
		rc = pl_wait(handle, UINT64_MAX, completion, error);
	Py_END_ALLOW_THREADS
	context->users--;
	return rc;
}

/* Waits further for an operation that did not end within the first slice. */
static PyObject *py_wait_on(struct py_context *context, struct pl_operation *handle, uint64_t deadline,
			    struct py_references *references)
{
	PyObject *type, *value, *trace, *result;
	struct pl_completion completion;
	struct pl_error error;

	switch (py_wait_handle(context, handle, NULL, deadline, &completion, &error)) {
	case PY_GONE:
		return py_raise_gone(context);
	case PY_SIGNALLED:
		PyErr_Fetch(&type, &value, &trace);
		if (context->status == PY_OPEN) {
			int rc = py_cancel_handle(context, handle, &completion, &error);

			/* A connection that was made all the same is closed. */
			result = rc ? NULL : py_result(context, &completion, references, NULL);
			Py_XDECREF(result);
		}
		PyErr_Restore(type, value, trace);
		return NULL;
	case PY_TIMED_OUT:
		if (py_cancel_handle(context, handle, &completion, &error) == -ECANCELED) {
			error.code = -ETIMEDOUT;
			return py_fail(context->state, -ETIMEDOUT, "PY-TIMEOUT", error.object,
				       "the operation did not end in time", "give it more time: timeout=");
		}
		break;
	case PY_ENDED:
		break;
	}
	return py_result(context, &completion, references, completion.status ? &error : NULL);
}

static void py_orphan_add(struct py_context *context, struct py_orphan orphan)
{
	if (context->orphan_count == context->orphan_capacity) {
		size_t capacity = context->orphan_capacity * 2 + 8;
		struct py_orphan *larger = realloc(context->orphans, capacity * sizeof(*larger));

		/* Without memory the references are never given up, which keeps the memory of the operation. */
		if (!larger)
			return;
		context->orphans = larger;
		context->orphan_capacity = capacity;
	}
	context->orphans[context->orphan_count++] = orphan;
}

/* Gives up operations without an object that have ended: at most 4 in a call. */
static void py_orphans_reap(struct py_context *context)
{
	for (unsigned looked = 0; looked < 4 && context->orphan_count && context->status == PY_OPEN; looked++) {
		/* No other thread finds it meanwhile. The last one takes its place, and is looked at next. */
		struct py_orphan orphan = context->orphans[0];
		struct pl_completion completion;

		context->orphans[0] = context->orphans[--context->orphan_count];
		if (py_test_handle(context, orphan.handle, &completion, NULL) == -EINPROGRESS)
			py_orphan_add(context, orphan);
		else
			py_references_clear(&orphan.references);
	}
}

static PyObject *py_operation_new(struct py_context *context, struct pl_operation *handle,
				  struct py_references *references)
{
	struct py_operation *operation = py_object_new(context->state->operation, context);

	if (!operation) {
		struct pl_completion completion;
		struct pl_error error;

		py_cancel_handle(context, handle, &completion, &error);
		return NULL;
	}
	operation->handle = handle;
	py_references_take(&operation->references, references);
	return (PyObject *)operation;
}

static PyObject *py_submit_handle(struct py_context *context, enum py_mode mode, uint64_t timeout,
				  py_post_function post, void *argument, struct py_references *references)
{
	struct pl_operation *handle;
	struct pl_completion completion;
	struct pl_error error;
	int rc, waited = -EINPROGRESS;

	py_references_use(context, references, 1);
	Py_BEGIN_ALLOW_THREADS
		rc = post(argument, 0, &handle, &error);
		if (!rc && mode == PY_WAIT)
			waited = pl_try_wait(handle, 0, &completion, &error);
	Py_END_ALLOW_THREADS
	py_references_use(context, references, -1);
	if (rc)
		return py_raise(context->state, &error);
	if (waited != -EINPROGRESS)
		return py_result(context, &completion, references, waited ? &error : NULL);
	if (context->status != PY_OPEN) {
		py_context_await_end(context);
		return py_raise_gone(context);
	}
	if (mode == PY_START)
		return py_operation_new(context, handle, references);
	return py_wait_on(context, handle, py_deadline(timeout), references);
}

PyObject *py_submit(struct py_context *context, enum py_mode mode, uint64_t timeout, py_post_function post,
		    void *argument, struct py_references *references)
{
	PyObject *result, *type, *value, *trace;

	if (context->future)
		return py_submit_future(context, post, argument, references, false);
	result = py_submit_handle(context, mode, timeout, post, argument, references);
	if (!context->orphan_count)
		return result;
	/* Not before: other threads may close what the caller has looked up. */
	PyErr_Fetch(&type, &value, &trace);
	py_orphans_reap(context);
	PyErr_Restore(type, value, trace);
	return result;
}

/* Keeps the result of an operation that has ended. Other threads see the end, a handle of NULL, after the result. */
static void py_operation_end(struct py_operation *operation, const struct pl_completion *completion,
			     const struct pl_error *error)
{
	struct py_context *context = operation->base.context;

	if (completion->status == 0) {
		operation->result = py_receipt_new(context->state, completion);
		if (!operation->result)
			PyErr_Clear();
	} else {
		operation->error = malloc(sizeof(*error));
		if (operation->error)
			*operation->error = *error;
	}
	operation->handle = NULL;
	py_references_clear(&operation->references);
}

/* Ends an operation whose context was closed. */
void py_operation_forget(struct py_operation *operation, struct py_references *references)
{
	operation->handle = NULL;
	*references = operation->references;
	operation->references = (struct py_references){ { NULL } };
}

static PyObject *py_operation_outcome(struct py_operation *operation)
{
	if (operation->result) {
		Py_INCREF(operation->result);
		return operation->result;
	}
	if (!operation->error)
		/* Memory for the result was lacking. */
		return operation->base.context->status == PY_OPEN ? PyErr_NoMemory()
								  : py_raise_gone(operation->base.context);
	return py_raise(operation->base.context->state, operation->error);
}

/* wait(timeout=None): a wait that ends without the operation leaves it running. */
static PyObject *py_operation_wait(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "timeout", NULL };
	struct py_operation *operation = (struct py_operation *)self;
	struct py_context *context = operation->base.context;
	struct pl_completion completion;
	struct pl_error error;
	PyObject *values[1];
	uint64_t timeout, deadline;

	if (py_parse("wait", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], UINT64_MAX, &timeout) < 0)
		return NULL;
	deadline = py_deadline(timeout);
	while (operation->handle && operation->waiting) {
		py_sleep_slice();
		if (PyErr_CheckSignals() < 0)
			return NULL;
		if (deadline != UINT64_MAX && py_clock_ns() >= deadline)
			break;
	}
	if (operation->handle && operation->waiting)
		return py_fail(context->state, -ETIMEDOUT, "PY-TIMEOUT", "operation", "the operation is still running",
			       "wait again, or cancel it");
	if (!operation->handle)
		return py_operation_outcome(operation);
	if (context->status != PY_OPEN) {
		py_context_await_end(context);
		return py_raise_gone(context);
	}
	operation->waiting = true;
	switch (py_wait_handle(context, operation->handle, &operation->asked, deadline, &completion, &error)) {
	case PY_ENDED:
		py_operation_end(operation, &completion, &error);
		break;
	case PY_TIMED_OUT:
		py_fail(context->state, -ETIMEDOUT, "PY-TIMEOUT", "operation", "the operation is still running",
			"wait again, or cancel it");
		break;
	case PY_SIGNALLED:
	case PY_GONE:
		break;
	}
	/* A cancellation of the last slice. */
	if (operation->handle && operation->asked && context->status == PY_OPEN)
		pl_cancel(operation->handle);
	operation->asked = operation->waiting = false;
	return PyErr_Occurred() ? NULL : py_operation_outcome(operation);
}

static PyObject *py_operation_done(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_operation *operation = (struct py_operation *)self;
	struct py_context *context = operation->base.context;
	struct pl_completion completion;
	struct pl_error error;
	int rc;

	(void)unused;
	if (!operation->handle)
		Py_RETURN_TRUE;
	if (operation->waiting || context->status != PY_OPEN)
		Py_RETURN_FALSE;
	/* No other thread uses the handle up or cancels meanwhile. */
	operation->waiting = true;
	rc = py_test_handle(context, operation->handle, &completion, &error);
	if (rc != -EINPROGRESS)
		py_operation_end(operation, &completion, &error);
	else if (operation->asked && context->status == PY_OPEN)
		pl_cancel(operation->handle);
	operation->asked = operation->waiting = false;
	return PyBool_FromLong(rc != -EINPROGRESS);
}

static PyObject *py_operation_cancel(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_operation *operation = (struct py_operation *)self;
	struct py_context *context = operation->base.context;

	(void)unused;
	/* A waiting thread uses the handle up, so that thread cancels. */
	if (operation->waiting)
		operation->asked = true;
	else if (operation->handle && context->status == PY_OPEN)
		pl_cancel(operation->handle);
	Py_RETURN_NONE;
}

static void py_operation_finish(PyObject *self)
{
	struct py_operation *operation = (struct py_operation *)self;

	if (operation->handle && operation->base.context->status != PY_CLOSED &&
	    operation->base.context->status != PY_FORKED)
		py_orphan_add(operation->base.context, (struct py_orphan){ operation->handle, operation->references });
	else
		py_references_clear(&operation->references);
	Py_CLEAR(operation->result);
	free(operation->error);
}

static int py_operation_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct py_operation *operation = (struct py_operation *)self;
	int rc = py_references_traverse(&operation->references, visit, arg);

	if (rc)
		return rc;
	Py_VISIT(operation->result);
	return py_object_traverse(self, visit, arg);
}

static void py_operation_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_operation_finish);
}

static PyMethodDef py_operation_methods[] = {
	{ "wait", PY_METHOD(py_operation_wait), PY_FAST,
	  "wait($self, timeout=None)\n--\n\n"
	  "Wait for the end and return the receipt. Raises TimeoutError, and leaves the operation running, after "
	  "`timeout` seconds." },
	{ "done", py_operation_done, METH_NOARGS, "done($self)\n--\n\nReturn True if the operation has ended." },
	{ "__reduce__", py_object_reduce, METH_NOARGS, NULL },
	{ "cancel", py_operation_cancel, METH_NOARGS,
	  "cancel($self)\n--\n\nAsk for an early end. wait() tells when the memory is no longer used." },
	{ NULL, NULL, 0, NULL },
};

PyType_Spec py_operation_spec = {
	.name = "peerlane.Operation",
	.basicsize = sizeof(struct py_operation),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_operation_dealloc },
				  { Py_tp_traverse, py_operation_traverse },
				  { Py_tp_methods, py_operation_methods },
				  { Py_tp_doc, "Running operation, from a method whose name ends in _start." },
				  { 0, NULL } },
};
