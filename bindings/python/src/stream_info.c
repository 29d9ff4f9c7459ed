/* SPDX-License-Identifier: BSD-2-Clause */
/* Properties of streams as dictionaries. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define LIST_MAX 1024u /* streams of a peer, and subscribers of a publisher with those that have ended */

static PyObject *py_state_text(enum pl_stream_state state)
{
	return PyUnicode_FromString(state == PL_STREAM_LIVE ? "live" : state == PL_STREAM_ENDED ? "ended" : "failed");
}

static PyObject *py_info_dict(struct py_state *state, const struct pl_publisher_info *info)
{
	return Py_BuildValue("{sssssNsNsNsNsNsNsNsNsIsIsNsNsssN}", "name", info->name, "content_type",
			     info->content_type, "layout", py_layout_value(state, &info->layout), "created",
			     PyFloat_FromDouble((double)info->created / 1e9), "slots", py_number(info->slots),
			     "slot_bytes", py_number(info->slot_bytes), "metadata_bytes",
			     py_number(info->metadata_bytes), "claimed", py_number(info->claimed), "published",
			     py_number(info->published), "refused", py_number(info->refused), "subscribers",
			     info->subscribers, "blocking", info->blocking, "allow_block",
			     PyBool_FromLong(info->allow_block), "state", py_state_text(info->state), "memory",
			     info->memory ? info->memory : "host", "needs_token", PyBool_FromLong(info->needs_token));
}

static PyObject *py_accounts_dict(const struct pl_accounts *accounts)
{
	return Py_BuildValue("{sNsNsNsNsNsNsNsNsNsN}", "first", py_number(accounts->first), "next",
			     py_number(accounts->next), "delivered", py_number(accounts->delivered), "lapped",
			     py_number(accounts->lapped), "dropped", py_number(accounts->dropped), "rejected",
			     py_number(accounts->rejected), "aborted", py_number(accounts->aborted), "missed",
			     py_number(accounts->missed), "unwanted", py_number(accounts->unwanted), "pending",
			     py_number(accounts->pending));
}

PyObject *py_stream_info(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	struct py_state *state = stream->base.context->state;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	(void)unused;
	if (py_object_check(&stream->base) < 0)
		return NULL;
	if (stream->publisher) {
		pl_publisher_query(stream->publisher, &info.stream);
		info.stream.refused = stream->refused;
		return py_info_dict(state, &info.stream);
	}
	pl_subscriber_query(stream->subscriber, &info);
	return Py_BuildValue("{sNsNsNsNsNsNsNsNsssz}", "stream", py_info_dict(state, &info.stream), "accounts",
			     py_accounts_dict(&info.accounts), "blocks", PyBool_FromLong(info.blocks), "demoted",
			     PyBool_FromLong(info.demoted), "connected", PyBool_FromLong(info.connected), "paused",
			     PyBool_FromLong(info.paused), "in_place", PyBool_FromLong(info.in_place), "checks",
			     py_number(info.checks), "route", py_route_name(info.route), "reason", info.reason);
}

/* Appends a new reference, which it gives up. Returns 0, or -1 with an exception. */
static int py_append_new(PyObject *list, PyObject *item)
{
	int rc = item ? PyList_Append(list, item) : -1;

	Py_XDECREF(item);
	return rc;
}

static PyObject *py_subscription_dict(const struct pl_subscription_info *info)
{
	return Py_BuildValue("{sNsNsNsNsN}", "blocks", PyBool_FromLong(info->blocks), "demoted",
			     PyBool_FromLong(info->demoted), "ended", PyBool_FromLong(info->ended), "announced",
			     py_number(info->announced), "accounts", py_accounts_dict(&info->accounts));
}

PyObject *py_publisher_subscribers(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	struct pl_subscription_info *infos;
	PyObject *list;
	int got;

	(void)unused;
	if (py_object_check(&stream->base) < 0)
		return NULL;
	infos = calloc(LIST_MAX, sizeof(*infos));
	list = PyList_New(0);
	if (!infos || !list) {
		free(infos);
		Py_XDECREF(list);
		return PyErr_NoMemory();
	}
	infos[0].size = sizeof(*infos);
	got = pl_publisher_subscribers(stream->publisher, infos, LIST_MAX);
	for (int i = 0; list && i < got; i++)
		if (py_append_new(list, py_subscription_dict(&infos[i])) < 0)
			Py_CLEAR(list);
	free(infos);
	return list;
}

/* streams(timeout=30, token=None) */
PyObject *py_peer_streams(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "timeout", "token", NULL };
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	struct pl_publisher_info *infos;
	PyObject *values[2], *list, *owner = NULL;
	const void *token = NULL;
	size_t length = 0;
	struct pl_error error;
	uint64_t timeout;
	int got;

	if (py_parse("streams", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], PY_ANSWER_NS, &timeout) < 0 ||
	    py_open_token(&peer->base, values[1], &token, &length, &owner) < 0)
		return NULL;
	infos = calloc(LIST_MAX, sizeof(*infos));
	if (!infos) {
		Py_XDECREF(owner);
		return PyErr_NoMemory();
	}
	infos[0].size = sizeof(*infos);
	py_hold(&peer->base);
	Py_BEGIN_ALLOW_THREADS
		got = pl_peer_publishers_with_token(peer->handle, token, length, infos, LIST_MAX, timeout, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&peer->base);
	Py_XDECREF(owner);
	list = got < 0 ? py_raise(context->state, &error) : PyList_New(0);
	for (int i = 0; list && i < got && i < (int)LIST_MAX; i++)
		if (py_append_new(list, py_info_dict(context->state, &infos[i])) < 0)
			Py_CLEAR(list);
	free(infos);
	return list;
}
