# SPDX-License-Identifier: BSD-2-Clause
"""Contexts of calls that wait."""
import collections
import time
import warnings

from . import _memory, _peerlane


class Base(_peerlane.Context):
    """What both kinds of contexts share."""

    def __init__(self, *, key_file=None, **options):
        if key_file is not None:
            if options.get('key') is not None:
                raise TypeError('key and key_file exclude each other')
            options['key'] = _peerlane._read_key(key_file)
        super().__init__(**options)
        self._events = collections.deque()
        try:
            self._bind_events()
        except BaseException:
            super().close()
            raise

    def __del__(self):
        if not self.closed and not self._closes_late:
            warnings.warn(f'unclosed context {self!r}', ResourceWarning, source=self)

    def _end_late(self):
        """Close: the last view of a context is gone whose block has ended with an exception."""
        self.close()

    def __repr__(self):
        module = type(self).__module__.removesuffix('._context')
        return f'<{module}.{type(self).__qualname__}, {"closed" if self.closed else "open"}>'

    def __reduce__(self):
        raise TypeError('a context cannot be pickled: send an Invitation with the address and a token')

    def register(self, memory, access='', *, keep=None):
        """Register memory, and return its region.

        memory is an object with the buffer protocol (bytearray, mmap, NumPy), a tensor with __dlpack__() or
        __cuda_array_interface__ (PyTorch, CuPy, JAX), or (address, length), whose owner `keep` is kept. It is kept,
        and not resized, until the region ends. access has the rights that tokens may give to peers: "r", "w", "a"; and "s" for strictly ordered writes of cards.

        Raises PY-CONTIGUOUS and PY-READONLY for memory with gaps, and for read-only memory with access other than "r";
        PY-DEVICE if the memory is not of the device that a tensor names.
        """
        if isinstance(memory, tuple):
            address, length = memory
            return self._register_address(address, length, access, keep)
        try:
            memoryview(memory).release()
            buffer = True
        except TypeError:
            buffer = False
        except (BufferError, ValueError):
            # Arrays of JAX have a buffer, which refuses if a GPU has the memory. Others are refused below, with the reason.
            buffer = not _memory.on_gpu(memory)
        if buffer:
            return self._register_buffer(memory, access)
        address, length, keeper, readonly, device = _memory.describe(memory)
        region = self._register_address(address, length, access, keeper, readonly)
        _memory.check_device(region, device)
        return region

    def lost_peers(self):
        """Return the peers whose connection was lost since the last call."""
        self._poll()
        return self._take_lost()


class Context(Base):
    """Owner of regions and peers, for calls that wait. Threads may share it. All times are in seconds.

    Options have the names of struct pl_options (pl_open(3)): fabric, key, progress ("thread" or "manual"), workers,
    lanes, insecure, encrypt_data, operation_timeout, and others; key_file reads the key from a file.
    """

    def _bind_events(self):
        self._bind(self._events.append)

    def notifications(self, timeout=None):
        """Yield notifications of all peers as they arrive, until none has arrived for `timeout` seconds."""
        while True:
            deadline = None if timeout is None else time.monotonic() + timeout
            while (event := self._take_notification()) is None:
                left = float('inf') if deadline is None else deadline - time.monotonic()
                self._wait_event(max(left, 0))
                if left <= 0 and (event := self._take_notification()) is None:
                    return
                if event is not None:
                    break
            yield event

    def _take_notification(self):
        try:
            return self._events.popleft()
        except IndexError:
            return None
