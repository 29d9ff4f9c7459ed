/* SPDX-License-Identifier: BSD-2-Clause */
/* Tokens of streams: made and revoked by publishers, presented by subscribers. */
#include <errno.h>

#include "stream.h"

int py_stream_token(PyObject *value, const void **token, size_t *length, PyObject **owner)
{
	if (!value || value == Py_None)
		return 0;
	*owner = py_get_bytes(value, "token");
	if (!*owner)
		return -1;
	*token = PyBytes_AsString(*owner);
	*length = (size_t)PyBytes_Size(*owner);
	return 0;
}

int py_open_token(struct py_object *object, PyObject *value, const void **token, size_t *length, PyObject **owner)
{
	/* __bytes__ of the token can close the object, so the check comes second. */
	if (py_stream_token(value, token, length, owner) < 0)
		return -1;
	if (py_object_check(object) == 0)
		return 0;
	Py_XDECREF(*owner);
	return -1;
}

/* share(lifetime=None) */
PyObject *py_publisher_share(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "lifetime", NULL };
	struct py_stream *stream = (struct py_stream *)self;
	struct py_state *state = stream->base.context->state;
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	PyObject *values[1], *bytes, *token;
	char content[PL_TOKEN_MAX];
	size_t size = sizeof(content);
	struct pl_error error;
	int rc;

	if (py_parse("share", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_lifetime(values[0], &options.lifetime) < 0 || py_object_check(&stream->base) < 0)
		return NULL;
	py_hold(&stream->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_publisher_share(stream->publisher, &options, content, &size, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&stream->base);
	if (rc)
		return py_raise(state, &error);
	bytes = PyBytes_FromStringAndSize(content, (Py_ssize_t)size);
	token = bytes ? PyObject_CallFunctionObjArgs(state->token, bytes, NULL) : NULL;
	Py_XDECREF(bytes);
	return token;
}

PyObject *py_publisher_revoke(PyObject *self, PyObject *given)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	struct py_state *state = stream->base.context->state;
	PyObject *owner = NULL;
	const void *token = NULL;
	size_t length = 0;
	int rc;

	if (py_open_token(&stream->base, given, &token, &length, &owner) < 0)
		return NULL;
	py_hold(&stream->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_publisher_revoke(stream->publisher, token, length);
	Py_END_ALLOW_THREADS
	py_unhold(&stream->base);
	Py_XDECREF(owner);
	if (rc == -ENOENT)
		return py_fail(state, rc, "PY-NO-GRANT", "token",
			       "the token is not one of this publisher, or was revoked already", "");
	if (rc)
		return py_fail(state, rc, "PY-NO-TOKEN", "token", "the bytes are no token of a stream", "");
	Py_RETURN_NONE;
}

PyObject *py_subscriber_set_token(PyObject *self, PyObject *given)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	struct pl_error error;
	PyObject *owner = NULL;
	const void *token = NULL;
	size_t length = 0;
	int rc;

	if (py_open_token(&stream->base, given, &token, &length, &owner) < 0)
		return NULL;
	rc = pl_subscriber_set_token(stream->subscriber, token, length, &error);
	Py_XDECREF(owner);
	if (rc)
		return py_raise(stream->base.context->state, &error);
	Py_RETURN_NONE;
}
