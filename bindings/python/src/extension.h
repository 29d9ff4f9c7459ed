/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of the extension module `_peerlane`.
 *
 * The global interpreter lock guards all fields; in a build for a free-threaded interpreter guards of contexts do (guard.h).
 * Calls of the library that may sleep run without the lock. Each object counts the calls that use its handle meanwhile
 * (`users`), and a close waits until there are none.
 *
 * Without the global lock, the last reference to an object may go while another thread finds the object in a list. The
 * object stays allocated until its end has taken the guard, but the thread must not count a reference: it asks a weak one.
 */
#ifndef PEERLANE_PYTHON_EXTENSION_H
#define PEERLANE_PYTHON_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#include "guard.h"

/* Longest time without a look for signals and for a close by another thread. */
#define PY_SLICE_NS (50 * 1000000ull)

/* State of the module. Only the main interpreter can import the module. */
struct py_state {
	PyTypeObject *context, *region, *remote, *remote_set, *listener, *async_listener, *peer, *async_peer,
		*operation, *receipt, *tensor, *publisher, *subscriber, *frame, *prepared, *async_prepared;
	PyObject *make_error;    /* peerlane._errors.make_error */
	PyObject *token, *blob;  /* classes of peerlane._tokens */
	PyObject *layout;        /* class of peerlane._streams */
	PyObject *notification;  /* class of peerlane._context */
	PyObject *future_result; /* names of methods of futures */
	PyObject *future_fail;
	PyObject *future_cancel;
	PyObject *no_arguments; /* empty tuple */
	PyObject *loop_key;     /* of the object for a run of a loop, in the dictionary of a thread */
	py_lock lock;           /* guards the fields below */
	struct py_context *contexts;
	unsigned going; /* contexts without references that are being closed */
};

/* Object of a context, in the context's list from its creation until its end. */
struct py_object {
	PyObject_HEAD struct py_context *context; /* strong reference */
	struct py_object *next, **link;
	unsigned users; /* calls without the interpreter lock that use the handle */
	bool closed;
	bool closes_late;            /* its block has ended with an exception beside views: no call begins */
	void (*end)(PyObject *self); /* while the object waits for its end: late.c */
};

enum py_status {
	PY_UNOPENED, /* __init__() was not called, or failed */
	PY_OPEN,
	PY_CLOSING, /* a thread is closing; no call begins */
	PY_CLOSED,
	PY_FORKED, /* copy in a child process; the library must not be called */
};

/* Objects of the context that an operation in flight refers to: the peer or listener, the region, the remote region. */
#define PY_REFERENCES 3
struct py_references {
	PyObject *objects[PY_REFERENCES];
};

/* Operation posted for a future. */
struct py_record {
	PyObject *future;  /* NULL: free */
	PyObject *context; /* stays open while the future is pending */
	struct py_references references;
	uint32_t generation;
	uint32_t next_free; /* index, or UINT32_MAX */
	uint32_t next_in_chain; /* the same; of a record in use */
	bool asked;         /* cancel() was called */
	bool takes;         /* a receive or an accept: while it is posted, it takes what others send later */
};

/* Operation in flight that no Operation object refers to any more. */
struct py_orphan {
	struct pl_operation *handle;
	struct py_references references;
};

struct py_context {
	PyObject_HEAD struct py_state *state;
	struct pl_context *handle;
	enum py_status status;
	unsigned users;
	unsigned long poller; /* thread that collects and delivers completions; 0: none */
	struct py_batch *batch; /* completions that it has not delivered yet, or NULL */
	size_t exports;         /* buffers and tensors that regions and frames have given out */
	bool closes_late;       /* its block has ended with an exception beside them: the last one closes the context */
	struct py_object *objects;
	struct py_context *next, **link; /* in state->contexts; state->lock guards them */
	PyObject *weak;                  /* reference to this object, of free-threaded builds */
	PyObject *kept;                  /* list: memory of regions that could not be deregistered */
	PyObject *sink;                  /* receives Notification objects */
	PyObject *future;                /* class of futures; NULL: calls wait */
	PyObject *future_options;        /* keyword arguments of the class */
	PyObject *authorize;             /* function that decides about other ends, or NULL */
	PyObject *refused;               /* function that learns of refused ends, or NULL */
	PyObject *running_loop;          /* function of asyncio, if there are futures */
	PyObject *loop;                  /* of the futures; `future_options` keeps it */
	PyObject *run;                   /* object of asyncio for the run of the loop that was checked last, or NULL */
	unsigned long thread;            /* the loop's, if there are futures */
	struct py_record *records;
	uint32_t record_count, record_free, record_used;
	uint32_t *chains; /* by the hash of the future: index of a record in use, or UINT32_MAX; record_count of them */
	uint64_t *asked;  /* user_data of records whose operations are to be cancelled in one pass */
	size_t asked_count, asked_capacity;
	struct py_orphan *orphans;
	size_t orphan_count, orphan_capacity;
};

struct py_region {
	struct py_object base;
	struct pl_region *handle;
	PyObject *keeper; /* keeps the memory; NULL: the library's memory */
	bool readonly;
	Py_ssize_t exports;
	int device; /* number of the GPU, or -1 */
};

struct py_remote {
	struct py_object base;
	struct pl_remote *handle;
	PyObject *owner; /* the peer, or the set that owns the handle */
	bool in_set;
};

struct py_remote_set {
	struct py_object base;
	struct pl_remote_set *handle;
	PyObject *peer;
};

struct py_listener {
	struct py_object base;
	struct pl_listener *handle;
};

struct py_peer {
	struct py_object base;
	struct pl_peer *handle;
	PyObject *references; /* list of weak references to this object */
	PyObject *weak;       /* one of them, of free-threaded builds */
	bool lost; /* the connection was lost, and _take_lost() has not returned the peer */
	unsigned connection; /* number of reconnections */
};

/* Prepared vector. */
struct py_prepared {
	struct py_object base;
	struct pl_vector *handle;
	struct py_references references; /* peer, region, remote region */
	unsigned connection;             /* that of the peer */
};

struct py_operation {
	struct py_object base;
	struct pl_operation *handle; /* NULL: ended */
	struct py_references references;
	bool waiting;     /* a thread uses the handle: it alone collects the completion */
	bool asked;       /* cancel() was called meanwhile */
	PyObject *result; /* receipt, or NULL */
	struct pl_error
		*error; /* or NULL; each wait makes an exception of its own, whose frames may refer to this object */
};

/* Arguments: args.c. Functions that return int return 0, or -1 with an exception. */
#define PY_ARGUMENTS PyObject *const *arguments, Py_ssize_t count, PyObject *keywords
int py_parse(const char *function, const char *const *names, int required, PY_ARGUMENTS, PyObject **values);
int py_get_u64(PyObject *value, const char *name, uint64_t *number);
int py_get_ns(PyObject *value, const char *name, uint64_t none, uint64_t *ns);
/* Reads the argument `lifetime` of a token: seconds above 0.  None: 0, which is "never ends" in pl_grant_options. */
int py_get_lifetime(PyObject *value, uint64_t *ns);
int py_get_rights(struct py_state *state, PyObject *value, bool of_region, unsigned *rights);
PyObject *py_rights_text(unsigned rights);
const char *py_get_text(PyObject *value, const char *name, PyObject **owner);
/* Returns the bytes of a bytes-like object, or of an object with __bytes__(). */
PyObject *py_get_bytes(PyObject *value, const char *name);
/* Returns the bytes of a token or a blob, also of that of an Invitation. */
PyObject *py_get_token(PyObject *value, const char *name);
/* The method table stores functions of several types as PyCFunction. */
#define PY_METHOD(function) ((PyCFunction)(void (*)(void))(function))
#define PY_FAST (METH_FASTCALL | METH_KEYWORDS)

/* Buffers: buffer.c. */
/* Raises the reason why an object gives no memory in the order of rows: PY-ORDER, PY-CONTIGUOUS with `hint`, or its own. */
void *py_buffer_refuse(struct py_state *state, PyObject *object, const char *hint);
/* Raises PY-OBJECTS if the elements of a buffer are objects: a peer would read or replace their addresses. Returns 0, or -1. */
int py_buffer_check_elements(struct py_state *state, PyObject *object);
/* Gets a view, in the order of rows, of a bytes-like object, an array, or a tensor of the host. Returns 0, or -1. */
int py_buffer_open(struct py_state *state, PyObject *object, Py_buffer *view, int flags);

/* Errors: error.c. */
PyObject *py_new_error(struct py_state *state, const struct pl_error *error);
void *py_raise(struct py_state *state, const struct pl_error *error);
void *py_raise_code(struct py_state *state, int code, const char *call, const char *object);
void *py_fail(struct py_state *state, int code, const char *id, const char *object, const char *message,
	      const char *hint);

/* Objects and their ends: object.c. */
void py_sleep_slice(void);
int py_context_check(struct py_context *context);
void *py_object_new(PyTypeObject *type, struct py_context *context);
int py_object_check(struct py_object *object);
bool py_object_quiet(struct py_object *object);
PyObject *py_object_reduce(PyObject *self, PyObject *unused);
/* __enter__ of objects: returns an open object itself. */
PyObject *py_object_enter(PyObject *self, PyObject *unused);
/* True if the arguments of __exit__() have an exception. */
bool py_exit_failed(PyObject *arguments);
/*
 * Counts views of the memory of a region or a stream: `change` is 1 or -1. The last one of an object that closes late ends the
 * object by its method `close`; the last one of its context ends the context.
 */
void py_exports_count(struct py_object *object, Py_ssize_t *exports, int change, const char *close);
/* Calls the method `close` of an object that closes late, and keeps the exception. */
void py_close_late(PyObject *self, const char *close);
/* Field `closed` of objects: true if the object or its context is closed. */
PyObject *py_object_closed(PyObject *self, void *unused);
void py_object_unlink(struct py_object *object);
/* Ends an object without references: calls `end`, which gives the handle back and keeps the exception, and frees the object. */
void py_object_dealloc(PyObject *self, void (*end)(PyObject *self));
/*
 * Visits what an object refers to: tp_traverse of all types of objects. None has tp_clear: they refer to objects and contexts
 * only, and each cycle has a context, or an object of the program, that breaks it.
 */
int py_object_traverse(PyObject *self, visitproc visit, void *arg);
int py_references_traverse(const struct py_references *references, visitproc visit, void *arg);
int py_weak_set(PyObject **weak, PyObject *object);
PyObject *py_weak_get(PyObject *weak, void *object);
PyObject *py_contexts(struct py_state *state);
void py_context_await_end(struct py_context *context);
void py_references_set(struct py_references *references, void *first, void *second, void *third);
void py_references_use(struct py_context *context, const struct py_references *references, int change);
void py_references_take(struct py_references *references, struct py_references *from);
void py_references_clear(struct py_references *references);
int py_references_check(const struct py_references *references);

/* Marks `object` as used by a call without the interpreter lock. */
static inline void py_hold(struct py_object *object)
{
	object->users++;
	object->context->users++;
}

static inline void py_unhold(struct py_object *object)
{
	object->users--;
	object->context->users--;
}

/* Operations: operation.c, record.c. */
/* Returns CLOCK_MONOTONIC in nanoseconds. */
uint64_t py_clock_ns(void);
/* Returns the end of a time from now on; UINT64_MAX: none. */
uint64_t py_deadline(uint64_t timeout);
typedef int (*py_post_function)(void *argument, uint64_t user_data, struct pl_operation **operation,
				struct pl_error *error);
enum py_mode {
	PY_WAIT,  /* waits, and returns the result; with futures: returns one */
	PY_START, /* returns an Operation */
};
/*
 * Posts an operation and returns its result, its Operation or its future. A result is made by py_result(). `timeout` is
 * that of the wait for operations without one of their own: the operation is cancelled then. Steals no references.
 */
PyObject *py_submit(struct py_context *context, enum py_mode mode, uint64_t timeout, py_post_function post,
		    void *argument, struct py_references *references);
PyObject *py_submit_future(struct py_context *context, py_post_function post, void *argument,
			   struct py_references *references, bool takes);
/* Makes the result of a completion, or raises its error. */
PyObject *py_result(struct py_context *context, const struct pl_completion *completion,
		    struct py_references *references, const struct pl_error *error);
void py_records_end(struct py_context *context);
/* Frees the data of notifications that were collected and not delivered, before a close. */
void py_batches_drop(struct py_context *context);
int py_loop_check(struct py_context *context);
PyObject *py_context_check_loop(PyObject *self, PyObject *unused);
PyObject *py_context_take_lost(PyObject *self, PyObject *unused);
PyObject *py_context_poll(PyObject *self, PyObject *unused);
PyObject *py_context_hold(PyObject *self, PyObject *hold);
PyObject *py_context_wait_event(PyObject *self, PyObject *timeout);
PyObject *py_cancel_future(PyObject *module, PyObject *future);
PyObject *py_context_cancel_asked(PyObject *self, PyObject *unused);
/* Cancels the operations for which cancel() asked, in one pass over all that run. */
void py_context_cancel_noted(struct py_context *context);
PyObject *py_context_cancel_all(PyObject *self, PyObject *unused);
PyObject *py_receipt_new(struct py_state *state, const struct pl_completion *completion);

/* Constructors. Each takes over the handle, and gives it back to the library if it fails. */
PyObject *py_peer_new(struct py_context *context, struct pl_peer *handle);
PyObject *py_remote_new(struct py_context *context, struct pl_remote *handle, PyObject *owner, bool in_set);
PyObject *py_listener_new(struct py_context *context, struct pl_listener *handle);
PyObject *py_remote_set_new(struct py_context *context, struct pl_remote_set *handle, PyObject *peer);
PyObject *py_region_new(struct py_context *context, struct pl_region *handle, PyObject *keeper, bool readonly);
PyObject *py_prepared_new(struct py_context *context, struct pl_vector *handle, struct py_references *references);
struct py_peer *py_as_peer(struct py_object *object);
struct py_peer *py_find_peer(struct py_context *context, const struct pl_peer *handle);

/* Ends of objects when the context has been closed. The caller gives up the references. */
/* Counts views of the memory: `change` is 1 or -1. The last one ends a region whose block an exception has ended. */
void py_region_count(PyObject *self, int change);
void py_region_forget(struct py_region *region, struct py_references *references);
void py_operation_forget(struct py_operation *operation, struct py_references *references);

/* Options of a context: options.c, authorize.c. */
int py_options_parse(struct py_context *context, PyObject *given, struct pl_options *options, PyObject *owners);
int py_function_option(struct py_context *context, const char *name, PyObject *function, struct pl_options *options);
/*
 * Ends during a callback of the library (late.c). Between enter and leave, py_late_add() takes over an object without
 * references, whose end waits for an engine; else it returns false. The object is in no other list.
 */
void py_late_enter(void);
void py_late_leave(void);
bool py_late_add(struct py_object *object, void (*end)(PyObject *self));
/* The same for an object with references, which its method closes later. */
bool py_late_close(PyObject *object, const char *method);
/* Leaves the objects of the parent process alone. */
void py_late_forked(void);
/* Lets the child of a fork collect, whatever callbacks its parent had. */
void py_callbacks_forked(void);
/* Threads that Python does not know (gate.c). Takes the interpreter's lock; false without it once the interpreter ends. */
bool py_thread_enter(PyGILState_STATE *before);
void py_thread_leave(PyGILState_STATE before);
/*
 * Lets no such thread enter any more, and waits for those that did: contexts with memoryviews stay open beyond the end of
 * the interpreter, and refuse other ends then.
 */
void py_threads_end(void);
void py_threads_forked(void);
/* Returns the proofs of another end as a dictionary, with its rights unless they are NULL. */
PyObject *py_identity_dict(const struct pl_identity *identity, const struct pl_rights *rights);

/* Returns the name of an `enum pl_route`. */
const char *py_route_name(unsigned route);

static inline PyObject *py_number(uint64_t value)
{
	return PyLong_FromUnsignedLongLong(value);
}

/* Methods of a context, by file. */
PyObject *py_context_register_buffer(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_register_address(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_allocate(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_share_all(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_revoke_all(PyObject *self, PyObject *blob);
PyObject *py_context_listen(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_connect(PyObject *self, PY_ARGUMENTS);
PyObject *py_context_staging(PyObject *self, PyObject *unused);
PyObject *py_context_registrations(PyObject *self, PyObject *unused);
PyObject *py_context_traffic(PyObject *self, PyObject *unused);
PyObject *py_context_queues(PyObject *self, PyObject *unused);
PyObject *py_context_error_counts(PyObject *self, PyObject *unused);
PyObject *py_context_state(PyObject *self, PyObject *unused);
PyObject *py_peer_info(PyObject *self, PyObject *unused);
PyObject *py_peer_identity(PyObject *self, PyObject *unused);
PyObject *py_peer_events(PyObject *self, PyObject *unused);
PyObject *py_gpu(PyObject *module, PyObject *number);

/* Methods of a peer that post operations: transfer.c, message.c, vector.c. */
/* Attributes of an operation, in the order of PY_ATTRIBUTE_NAMES. */
#define PY_ATTRIBUTE_NAMES "visible", "direct", "fence", "notify", "timeout", "stream", "more"
#define PY_ATTRIBUTE_COUNT 7
struct py_attributes {
	struct pl_attributes library;
	PyObject *notify_data; /* bytes, or NULL */
};
int py_get_stream(PyObject *value, void **stream);
int py_get_attributes(struct py_state *state, PyObject *const *values, struct py_attributes *attributes);
int py_use_region(struct py_context *context, PyObject *value, bool written, struct py_region **region);
int py_use_remote(struct py_context *context, PyObject *value, struct py_remote **remote);
int py_get_range(PyObject *offset, PyObject *length, struct py_region *region, uint64_t *start, uint64_t *bytes);
PyObject *py_peer_writev(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_readv(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_writev_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_readv_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_prepare_writev(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_prepare_readv(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_send(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_send_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_receive(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_receive_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_notify(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_write(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_read(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_write_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_read_start(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_fetch_add(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_compare_swap(PyObject *self, PY_ARGUMENTS);

/* Tensors of other libraries: dlpack.c. */
PyObject *py_dlpack_take(PyObject *module, PyObject *capsule);
PyObject *py_region_dlpack(PyObject *self, PY_ARGUMENTS);
/* Adds `change` to the number of views of an object's memory. The caller guards the object's context. */
typedef void (*py_export_count)(PyObject *owner, int change);
#define PY_EXPORT_DIMENSIONS 9
/* Memory that an object gives to another library: elements in C order. */
struct py_export_source {
	PyObject *owner;
	const char *name; /* of the object in errors */
	py_export_count count;
	int (*check)(PyObject *owner); /* 0 while the object has its memory; else -1 with an exception */
	void *data;
	int device; /* number of the GPU, or -1 */
	bool readonly;
	uint8_t code, bits; /* of an element, as of DLPack */
	int dimensions;
	int64_t shape[PY_EXPORT_DIMENSIONS];
};
PyObject *py_export_give(const struct py_export_source *source, PY_ARGUMENTS);

/* Streams: stream.c. */
PyObject *py_context_publish(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_subscribe(PyObject *self, PY_ARGUMENTS);
PyObject *py_peer_streams(PyObject *self, PY_ARGUMENTS);

extern PyType_Spec py_context_spec, py_region_spec, py_remote_spec, py_remote_set_spec, py_listener_spec,
	py_async_listener_spec, py_peer_spec, py_async_peer_spec, py_operation_spec, py_receipt_spec, py_tensor_spec,
	py_publisher_spec, py_subscriber_spec, py_frame_spec, py_prepared_spec, py_async_prepared_spec;

#endif
