# SPDX-License-Identifier: BSD-2-Clause
"""Peerlane for asyncio: the objects of `peerlane`, whose calls that move data return futures.

When an await has ended, also by cancellation or a timeout, the memory is the caller's again: a cancelled future ends
when the library no longer uses the memory, which takes bounded time.
"""
import asyncio

from . import _peerlane
from ._context import Base
from ._peerlane import AsyncListener as Listener
from ._peerlane import AsyncPeer as Peer

__all__ = ['Context', 'Listener', 'Operation', 'Peer', 'accept_all']


class Operation(asyncio.Future):
    """Future of an operation. A cancelled one ends when the operation has ended."""

    __slots__ = ('_message',)

    def cancel(self, msg=None):
        """Ask for the end of the operation. Return True if it is running."""
        if self.done():
            return False
        self._message = msg
        return _peerlane._cancel(self)

    def _end_cancelled(self):
        super().cancel(msg=getattr(self, '_message', None))


class Context(Base):
    """Owner of regions and peers, for one event loop. Make it in a coroutine; use it with `async with`.

    Options as for peerlane.Context. Calls that only register or share memory return their results at once;
    registering large memory takes milliseconds.
    """

    def __init__(self, **options):
        self._loop = asyncio.get_running_loop()
        super().__init__(**options)

    def _bind_events(self):
        self._waiters = set()
        self._descriptor = self.fileno()
        self._bind(self._take_event, Operation, {'loop': self._loop})
        self._loop.add_reader(self._descriptor, self._on_ready)

    def _on_ready(self):
        # Other callbacks of the loop run between two batches.
        if not self.closed and self._poll():
            self._loop.call_soon(self._on_ready)

    def _take_event(self, event):
        self._events.append(event)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def notifications(self, timeout=None):
        """Yield notifications of all peers as they arrive, until none has arrived for `timeout` seconds."""
        while True:
            try:
                async with asyncio.timeout(timeout):
                    event = await self._next_notification()
            except TimeoutError:
                return
            yield event

    async def _next_notification(self):
        while True:
            if self._events:
                return self._events.popleft()
            waiter = self._loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def close(self):
        """Close the context and all its objects, which may block for a moment. Futures end as cancelled."""
        if self.closed:
            return
        self._detach()
        super().close()

    def _detach(self):
        # A closed loop runs no callbacks.
        if not self._loop.is_closed():
            self._poll()
            self._loop.remove_reader(self._descriptor)

    async def aclose(self):
        """Cancel running operations, wait for their ends, and close the context without blocking the loop."""
        if self.closed:
            return
        while self._pending:
            self._cancel_all()
            waiter = self._loop.create_future()
            self._loop.call_later(0.001, waiter.set_result, None)
            await waiter
        self._detach()
        await self._loop.run_in_executor(None, super().close)

    def __enter__(self):
        raise TypeError('use `async with` with a context of peerlane.aio')

    async def __aenter__(self):
        return self

    async def __aexit__(self, *unused):
        await self.aclose()


async def accept_all(listener):
    """Yield each peer that connects to a listener."""
    while True:
        yield await listener.accept()
