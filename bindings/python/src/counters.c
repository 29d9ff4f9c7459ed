/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of a context as dictionaries. */
#include <peerlane/counters.h>

#include "extension.h"

#define FABRICS 3
static const char *const fabrics[FABRICS] = { "local", "verbs", "tcp" };

/* Sets an item and releases the value. Returns false if that failed, or if there is no value. */
static bool set_item(PyObject *dictionary, const char *key, PyObject *value)
{
	bool set = value && PyDict_SetItemString(dictionary, key, value) == 0;

	Py_XDECREF(value);
	return set;
}

static PyObject *times_of(const struct pl_traffic *traffic)
{
	PyObject *list = PyList_New(PL_TIME_BUCKETS);

	for (unsigned i = 0; list && i < PL_TIME_BUCKETS; i++) {
		PyObject *number = py_number(traffic->times[i]);

		if (!number || PyList_SetItem(list, i, number) < 0) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

static PyObject *traffic_of(const struct pl_traffic *traffic)
{
	PyObject *times = times_of(traffic);

	if (!times)
		return NULL;
	return Py_BuildValue("{sNsNsNsNsdsN}", "done", py_number(traffic->done), "failed", py_number(traffic->failed),
			     "bytes", py_number(traffic->bytes), "staged", py_number(traffic->staged), "seconds",
			     (double)traffic->time * 1e-9, "times", times);
}

/* Traffic of one kind by fabric, without fabrics that had none. */
static PyObject *fabrics_of(struct py_context *context, enum pl_kind kind)
{
	PyObject *dictionary = PyDict_New();

	for (unsigned i = 0; dictionary && i < FABRICS; i++) {
		struct pl_traffic traffic = PL_TRAFFIC_INIT;
		struct pl_error error;

		if (pl_context_traffic(context->handle, kind, fabrics[i], &traffic, &error) < 0) {
			Py_DECREF(dictionary);
			return py_raise(context->state, &error);
		}
		if ((traffic.done || traffic.failed) && !set_item(dictionary, fabrics[i], traffic_of(&traffic))) {
			Py_DECREF(dictionary);
			return NULL;
		}
	}
	return dictionary;
}

PyObject *py_context_traffic(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	static const char *const kinds[] = {
		"write", "read", "send", "receive", "fetch_add", "compare_swap", "notify"
	};
	struct py_context *context = (struct py_context *)self;
	PyObject *dictionary;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	dictionary = PyDict_New();
	for (unsigned i = 0; dictionary && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!set_item(dictionary, kinds[i], fabrics_of(context, (enum pl_kind)(PL_KIND_WRITE + i)))) {
			Py_DECREF(dictionary);
			return NULL;
		}
	}
	return dictionary;
}

PyObject *py_context_error_counts(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct pl_error_count count = PL_ERROR_COUNT_INIT;
	struct py_context *context = (struct py_context *)self;
	PyObject *dictionary;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	dictionary = PyDict_New();
	for (unsigned i = 0; dictionary && pl_context_error_count(context->handle, i, &count, NULL) == 0; i++) {
		if (!set_item(dictionary, count.id[0] ? count.id : "other", py_number(count.count))) {
			Py_DECREF(dictionary);
			return NULL;
		}
	}
	return dictionary;
}

static PyObject *queues_of(const struct pl_queues *queues)
{
	return Py_BuildValue("{sNsNsNsNsN}", "peers", py_number(queues->peers), "running", py_number(queues->running),
			     "fenced", py_number(queues->fenced), "receives", py_number(queues->receives), "unexpected",
			     py_number(queues->unexpected));
}

/* Fills the queues of each fabric. The call takes the locks of the engines. */
static int query_queues(struct py_context *context, struct pl_queues queues[FABRICS], struct pl_error *error)
{
	int rc = 0;

	context->users++;
	Py_BEGIN_ALLOW_THREADS
		for (unsigned i = 0; rc == 0 && i < FABRICS; i++) {
			queues[i] = (struct pl_queues)PL_QUEUES_INIT;
			rc = pl_context_queues(context->handle, fabrics[i], &queues[i], error);
		}
	Py_END_ALLOW_THREADS
	context->users--;
	return rc;
}

PyObject *py_context_queues(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	struct pl_queues queues[FABRICS];
	struct pl_error error;
	PyObject *dictionary;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	if (query_queues(context, queues, &error) < 0)
		return py_raise(context->state, &error);
	dictionary = PyDict_New();
	for (unsigned i = 0; dictionary && i < FABRICS; i++) {
		if (!set_item(dictionary, fabrics[i], queues_of(&queues[i]))) {
			Py_DECREF(dictionary);
			return NULL;
		}
	}
	return dictionary;
}

PyObject *py_context_state(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct py_context *context = (struct py_context *)self;
	struct pl_error error;
	int rc;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	/* The call takes the locks of the engines. */
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_context_query(context->handle, &info, &error);
	Py_END_ALLOW_THREADS
	context->users--;
	if (rc < 0)
		return py_raise(context->state, &error);
	return Py_BuildValue("{sIsNsNsNsNsNsNsN}", "engines", info.engines, "peers", py_number(info.peers), "lost",
			     py_number(info.lost), "regions", py_number(info.regions), "remotes",
			     py_number(info.remotes), "running", py_number(info.running), "errors",
			     py_number(info.errors), "poll_time", py_number(info.poll_time));
}
