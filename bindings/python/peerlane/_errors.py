# SPDX-License-Identifier: BSD-2-Clause
"""Exceptions. Each is an Error, which is an OSError, and the built-in exception for its errno."""
import errno


class Error(OSError):
    """Error with a stable id, the failed call, its object and a hint.

    The ids of the library are in peerlane-errors(7); those of this package begin with PY- (docs/python.md).
    """

    id = ''
    call = ''
    object = ''
    hint = ''

    def __reduce__(self):
        return make_error, (self.errno, self.id, self.call, self.object, self.strerror, self.hint)

    def __str__(self):
        place = ': '.join(part for part in (self.object, self.call) if part)
        return f'{place}: {self.strerror}' + (f' [{self.id}]' if self.id else '') if place else super().__str__()


class TimedOut(Error, TimeoutError):
    """An operation or a wait did not end in time."""


class Cancelled(Error):
    """An operation was cancelled."""


class Invalid(Error, ValueError):
    """An argument is out of its range or of the wrong form."""


class Denied(Error, PermissionError):
    """A right, a key or an identity is missing."""


class Unreachable(Error, ConnectionError):
    """A peer cannot be reached, or is not connected any longer."""


class Reset(Error, ConnectionResetError):
    """The connection to a peer was lost."""


class Refused(Error, ConnectionRefusedError):
    """Nothing listens at an address."""


class Closed(Error, ValueError):
    """An object was used after its end."""


class Forked(Error, RuntimeError):
    """A context of the parent process was used in its child."""


class Ended(Error, EOFError):
    """A stream has ended, and all its frames were taken."""


class BufferRefused(Error, BufferError):
    """The memory of an object cannot be used in this way."""


class Missing(Error, FileNotFoundError):
    """A file does not exist."""


class NoMemory(Error, MemoryError):
    """There is no memory."""


_BY_ID = {
    'PY-CLOSED': Closed,
    'PY-FORKED': Forked,
    'FORKED': Forked,
    'PY-CONTIGUOUS': BufferRefused,
    'PY-OBJECTS': BufferRefused,
    'PY-ORDER': BufferRefused,
    'PY-READONLY': BufferRefused,
    'PY-EMPTY': BufferRefused,
    'PY-EXPORTED': BufferRefused,
    'PY-NO-HOST': BufferRefused,
    'PY-DLPACK': BufferRefused,
    'PY-ARRAY': BufferRefused,
    'PY-DEVICE': BufferRefused,
    'KEY-FILE-MISSING': Missing,
}
_BY_ERRNO = {
    errno.ETIMEDOUT: TimedOut,
    errno.ECANCELED: Cancelled,
    errno.EINVAL: Invalid,
    errno.ERANGE: Invalid,
    errno.EACCES: Denied,
    errno.EPERM: Denied,
    errno.ENOTCONN: Unreachable,
    errno.EHOSTUNREACH: Unreachable,
    errno.ENETUNREACH: Unreachable,
    errno.ESHUTDOWN: Unreachable,
    errno.EPIPE: Unreachable,
    errno.ECONNRESET: Reset,
    errno.ECONNREFUSED: Refused,
    errno.ENOMEM: NoMemory,
    errno.ENODATA: Ended,
}


def make_error(code, id, call, object, message, hint):
    """Return the exception for an error of the library or of this package."""
    kind = _BY_ID.get(id)
    if kind is Closed and code == errno.ECANCELED:
        kind = Cancelled
    # With other ids ENOENT is of an object that is no file, such as a token or a stream.
    if id == 'SYSTEM' and code == errno.ENOENT:
        kind = Missing
    error = (kind or _BY_ERRNO.get(code, Error))(code, message)
    error.id, error.call, error.object, error.hint = id, call, object, hint
    if hint:
        error.add_note(f'hint: {hint}')
    return error
