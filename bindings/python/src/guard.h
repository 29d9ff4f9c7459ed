/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of a build for a free-threaded interpreter, which has no global interpreter lock.
 *
 * Each function that Python calls guards the context of its object. A guard behaves as the global lock does in other builds: it
 * is given up while the thread calls the library without the interpreter, and while code of Python that the function
 * calls waits. A thread may take a guard that it has already, but CPython 3.13 then gives up the outer guard until the inner
 * one begins. Therefore no function takes a guard between a check and the use of the checked object.
 */
#ifndef PEERLANE_PYTHON_GUARD_H
#define PEERLANE_PYTHON_GUARD_H

#include <Python.h>
#include <stdbool.h>

#ifdef Py_GIL_DISABLED

static inline bool py_guard_begin(PyCriticalSection *section, PyObject *object)
{
	PyCriticalSection_Begin(section, object);
	return true;
}

static inline void py_guard_end(PyCriticalSection *section)
{
	PyCriticalSection_End(section);
}

/* Guards `object` until the end of the block. The object must outlive the block. */
#define PY_GUARD(object) \
	__attribute__((cleanup(py_guard_end))) PyCriticalSection py_section; \
	const bool py_guarded __attribute__((unused)) = py_guard_begin(&py_section, (PyObject *)(object))

/* Lock of the module's lists. No code of Python runs while a thread has it. */
typedef PyMutex py_lock;
#define PY_LOCK(lock) PyMutex_Lock(lock)
#define PY_UNLOCK(lock) PyMutex_Unlock(lock)

#else

#define PY_GUARD(object) _Static_assert(sizeof(object) != 0, "the global lock guards all objects")
typedef char py_lock;
#define PY_LOCK(lock) ((void)(lock))
#define PY_UNLOCK(lock) ((void)(lock))

#endif

/* Guards the context of `self`, an object of a context. */
#define PY_GUARD_CONTEXT_OF(self) PY_GUARD(((struct py_object *)(self))->context)

#endif
