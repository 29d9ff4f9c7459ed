/* SPDX-License-Identifier: BSD-2-Clause */
/* Properties as dictionaries, and grants of many regions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

static PyObject *py_text(const char *text)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *py_truth(bool value)
{
	return PyBool_FromLong(value);
}

PyObject *py_context_staging(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	struct pl_staging_info info = PL_STAGING_INFO_INIT;
	struct pl_error error;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	if (pl_staging_query(context->handle, &info, &error))
		return py_raise(context->state, &error);
	return Py_BuildValue("{sNsNsNsN}", "limit", py_number(info.limit), "locked", py_number(info.locked), "in_use",
			     py_number(info.in_use), "in_use_max", py_number(info.in_use_max));
}

PyObject *py_context_registrations(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	struct pl_registrations_info info = PL_REGISTRATIONS_INFO_INIT;
	struct pl_error error;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	if (pl_registrations_query(context->handle, &info, &error))
		return py_raise(context->state, &error);
	return Py_BuildValue("{sNsNsNsNsNsNsN}", "found", py_number(info.found), "made", py_number(info.made),
			     "evicted", py_number(info.evicted), "outdated", py_number(info.outdated), "registrations",
			     py_number(info.registrations), "bytes", py_number(info.bytes), "bytes_kept",
			     py_number(info.bytes_kept));
}

PyObject *py_peer_info(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	(void)unused;
	if (py_object_check(&peer->base) < 0)
		return NULL;
	pl_peer_query(peer->handle, &info);
	return Py_BuildValue("{sNsNsNsNsNsNsNsNsNsNsNsNsNsi}", "address", py_text(info.address), "local_address",
			     py_text(info.local_address), "fabric", py_text(info.fabric), "software",
			     py_text(info.software), "program", py_text(info.program), "lanes", py_number(info.lanes),
			     "authenticated", py_truth(info.authenticated), "encrypted", py_truth(info.encrypted),
			     "same_host", py_truth(info.same_host), "connected", py_truth(info.connected), "rate",
			     py_number(info.rate), "rate_waits", py_number(info.rate_waits), "lanes_missing",
			     py_number(info.lanes_missing), "lanes_status", info.lanes_status);
}

PyObject *py_identity_dict(const struct pl_identity *identity, const struct pl_rights *rights)
{
	PyObject *about = Py_BuildValue("{sNsNsNsNsN}", "fingerprint", py_text(identity->fingerprint), "name",
					py_text(identity->name), "key_id", py_text(identity->key_id), "address",
					py_text(identity->address), "connected_to_us",
					py_truth(identity->connected_to_us)),
		 *more;

	if (!about || !rights)
		return about;
	more = Py_BuildValue("{sNsNsNsNsNsNsNsN}", "access", py_rights_text(rights->access), "clients",
			     py_number(rights->clients), "quota", py_number(rights->quota), "until",
			     PyFloat_FromDouble((double)rights->until / 1e9), "names", py_text(rights->names), "rate",
			     py_number(rights->rate), "imports", py_number(rights->imports), "requests",
			     py_number(rights->requests));
	if (!more || PyDict_Update(about, more) < 0)
		Py_CLEAR(about);
	Py_XDECREF(more);
	return about;
}

PyObject *py_peer_identity(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct pl_identity identity = PL_IDENTITY_INIT;
	struct pl_rights rights = PL_RIGHTS_INIT;

	(void)unused;
	if (py_object_check(&peer->base) < 0)
		return NULL;
	/* Queries wait for the engine, which may be asking a function of the program. */
	py_hold(&peer->base);
	Py_BEGIN_ALLOW_THREADS
		pl_peer_identity(peer->handle, &identity);
		pl_peer_rights(peer->handle, &rights);
	Py_END_ALLOW_THREADS
	py_unhold(&peer->base);
	return py_identity_dict(&identity, &rights);
}

static PyObject *py_event_dict(const struct pl_event_record *record)
{
	return Py_BuildValue("{sNsNsNsNsisisNsN}", "event", py_text(pl_event_name(record->event)), "text",
			     py_text(record->text), "sequence", py_number(record->sequence), "count",
			     py_number(record->count), "lane", (int)record->lane, "status", (int)record->status,
			     "first_time", PyFloat_FromDouble((double)record->first_time / 1e9), "time",
			     PyFloat_FromDouble((double)record->time / 1e9));
}

PyObject *py_peer_events(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record *records;
	PyObject *list;
	int got;

	(void)unused;
	if (py_object_check(&peer->base) < 0)
		return NULL;
	records = calloc(PL_EVENTS_MAX, sizeof(*records));
	if (!records)
		return PyErr_NoMemory();
	got = pl_peer_events(peer->handle, &query, records, PL_EVENTS_MAX);
	list = PyList_New(0);
	for (int i = 0; list && i < got; i++) {
		PyObject *event = py_event_dict(&records[i]);

		if (!event || PyList_Append(list, event) < 0)
			Py_CLEAR(list);
		Py_XDECREF(event);
	}
	free(records);
	return list;
}

PyObject *py_gpu(PyObject *module, PyObject *number)
{
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	struct pl_error error;
	uint64_t index = 0;
	int rc;

	if (py_get_u64(number, "number", &index) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_gpu_query(index > 65535 ? 65535 : (unsigned)index, &info, &error);
	Py_END_ALLOW_THREADS
	if (rc)
		return py_raise(PyModule_GetState(module), &error);
	return Py_BuildValue("{sNsNsisisNsN}", "name", py_text(info.name), "pci", py_text(info.pci), "driver",
			     info.driver, "writes_ordering", info.writes_ordering, "rdma", py_truth(info.rdma),
			     "dmabuf", py_truth(info.dmabuf));
}

/* Collects the handles of a list of regions, and marks the regions as used. Returns their number, or -1. */
static Py_ssize_t py_regions_use(struct py_context *context, PyObject *list, struct pl_region ***handles)
{
	Py_ssize_t count = PyList_Size(list), ready = 0;
	struct py_region *region;

	*handles = calloc(count ? (size_t)count : 1, sizeof(struct pl_region *));
	if (!*handles) {
		PyErr_NoMemory();
		return -1;
	}
	while (ready < count && py_use_region(context, PyList_GetItem(list, ready), false, &region) == 0)
		(*handles)[ready++] = region->handle;
	if (ready < count) {
		free(*handles);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++)
		((struct py_object *)PyList_GetItem(list, i))->users++;
	return count;
}

static PyObject *py_share_list(struct py_context *context, PyObject *list, const struct pl_grant_options *options)
{
	struct pl_region **handles;
	Py_ssize_t count = py_regions_use(context, list, &handles);
	PyObject *bytes = NULL, *blob;
	struct pl_error error;
	char *content;
	size_t size;
	int rc;

	if (count < 0)
		return NULL;
	size = PL_REGIONS_BLOB_SIZE((size_t)count);
	content = malloc(size);
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = content ? pl_regions_share(handles, (size_t)count, options, content, &size, &error) : 0;
	Py_END_ALLOW_THREADS
	context->users--;
	for (Py_ssize_t i = 0; i < count; i++)
		((struct py_object *)PyList_GetItem(list, i))->users--;
	if (!content)
		PyErr_NoMemory();
	else if (rc)
		py_raise(context->state, &error);
	else
		bytes = PyBytes_FromStringAndSize(content, (Py_ssize_t)size);
	free(content);
	free(handles);
	blob = bytes ? PyObject_CallFunctionObjArgs(context->state->blob, bytes, NULL) : NULL;
	Py_XDECREF(bytes);
	return blob;
}

PyObject *py_context_share_all(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "regions", "rights", "lifetime", NULL };
	struct py_context *context = (struct py_context *)self;
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	PyObject *values[3], *list, *blob;

	if (py_parse("share_all", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_rights(context->state, values[1], false, &options.rights) < 0 ||
	    py_get_lifetime(values[2], &options.lifetime) < 0)
		return NULL;
	list = PySequence_List(values[0]);
	if (!list)
		return NULL;
	blob = py_context_check(context) < 0 ? NULL : py_share_list(context, list, &options);
	Py_DECREF(list);
	return blob;
}

PyObject *py_context_revoke_all(PyObject *self, PyObject *blob)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	PyObject *bytes = py_get_bytes(blob, "blob");
	const char *content;
	size_t size;
	int rc = 0;

	if (!bytes || py_context_check(context) < 0) {
		Py_XDECREF(bytes);
		return NULL;
	}
	content = PyBytes_AsString(bytes);
	size = (size_t)PyBytes_Size(bytes);
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_regions_revoke(context->handle, content, size);
	Py_END_ALLOW_THREADS
	context->users--;
	Py_DECREF(bytes);
	if (rc)
		return py_fail(context->state, rc, rc == -ENOENT ? "PY-NO-GRANT" : "PY-NO-TOKEN", "blob",
			       rc == -ENOENT ? "no token of it belongs to the context and was not revoked"
					     : "the bytes are no blob",
			       "");
	Py_RETURN_NONE;
}
