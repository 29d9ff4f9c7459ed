# SPDX-License-Identifier: BSD-2-Clause
"""Peerlane for asyncio: the objects of `peerlane`, whose calls that move data return futures.

When an await has ended, also by cancellation or a timeout, the memory is the caller's again: a cancelled future ends
when the library no longer uses the memory, which takes bounded time.
"""
import asyncio
import contextlib
import os
import weakref

from . import _peerlane
from ._context import Base
from ._errors import BufferRefused, Ended
from ._peerlane import AsyncListener as Listener
from ._peerlane import AsyncPeer as Peer
from ._peerlane import AsyncVector as Vector

__all__ = ['Context', 'Listener', 'Operation', 'Peer', 'Subscriber', 'Vector', 'accept_all', 'subscribe']


async def _close_in_thread(loop, close, ended):
    """Call `close` in a thread, and then `ended` here. A cancelled task waits for both, as the close goes on."""
    cancelled = None
    try:
        work = loop.run_in_executor(None, close)
    except RuntimeError:
        ended()
        raise
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    ended()
    if cancelled:
        work.exception()
        raise cancelled
    work.result()


class Operation(asyncio.Future):
    """Future of an operation. A cancelled one ends when the operation has ended."""

    __slots__ = ('_message',)

    def cancel(self, msg=None):
        """Ask for the end of the operation. Return True if it is running."""
        if self.done():
            return False
        self._message = msg
        found = _peerlane._cancel(self)
        if found is None:
            return False
        context, at_once = found
        # A receive or an accept would take the next message or connection until its end.
        if at_once:
            context._cancel_asked()
        else:
            context._cancel_soon()
        return True

    def _end_cancelled(self):
        super().cancel(msg=getattr(self, '_message', None))


_EVENTS_MAX = 1024  # notifications that a context takes before the program does


class _Watch:
    """Callbacks of the loop and of the library for a context. They do not keep it: an unreachable context ends.

    The descriptor is a copy, as that of the context may end in any thread, and the loop must forget it before.
    """

    def __init__(self, context, loop):
        self._descriptor = os.dup(context.fileno())
        self._context, self._loop = weakref.ref(context, self._on_end), loop

    def begin(self):
        """Let the loop watch the descriptor."""
        self._loop.add_reader(self._descriptor, self._on_ready)

    def pause(self):
        """Let the loop forget the descriptor."""
        self._loop.remove_reader(self._descriptor)

    def end(self):
        """Give the descriptor back, which the loop has forgotten."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def take_event(self, event):
        """Give an event to the context."""
        if (context := self._context()) is not None:
            context._take_event(event)

    def _on_ready(self):
        if (context := self._context()) is not None:
            context._on_ready()

    def _on_end(self, unused):
        if self._descriptor is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._forget)
        except RuntimeError:  # the loop is closed
            self.end()

    def _forget(self):
        if self._descriptor is not None:
            self.pause()
            self.end()


async def _close_after(thing, kind):
    """Close at the end of a block. The exception that ended the block counts, and its traceback may hold arrays: the last closes it."""
    try:
        await thing.aclose()
    except BufferRefused as error:
        if kind is None or error.id != 'PY-EXPORTED':
            raise
        thing._close_late()


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
        self._holds = self._cancels = False
        self._subscribers = weakref.WeakSet()
        self._watch = _Watch(self, self._loop)
        try:
            self._bind(self._watch.take_event, Operation, {'loop': self._loop})
            self._watch.begin()
        except BaseException:
            self._watch.end()
            raise

    def _on_ready(self):
        # Other callbacks of the loop run between two batches.
        if not self.closed and self._poll():
            self._loop.call_soon(self._on_ready)

    def _take_event(self, event):
        self._events.append(event)
        if len(self._events) >= _EVENTS_MAX and not self._holds:
            self._set_hold(True)
        self._wake()

    def _cancel_soon(self):
        """Cancel operations when the callbacks that are ready have run: one pass ends all futures that they cancel."""
        if self._loop.is_closed():
            self._cancel_asked()
        elif not self._cancels:
            self._loop.call_soon(self._begin_cancels)
            self._cancels = True

    def _begin_cancels(self):
        self._cancels = False
        self._cancel_asked()

    def _set_hold(self, hold):
        self._holds = hold
        if not self.closed:
            self._hold(hold)

    def _wake(self):
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def notifications(self, timeout=None):
        """Yield notifications of all peers as they arrive, until none has arrived for `timeout` seconds.

        A close of the context ends the wait with peerlane.Closed.
        """
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
                event = self._events.popleft()
                if self._holds and len(self._events) <= _EVENTS_MAX // 2:
                    self._set_hold(False)
                return event
            self.fileno()  # raises the error of a closed context
            self._check_loop()
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
        try:
            super().close()
        finally:
            self._end_close()

    def _end_late(self):
        # The last view may go in any thread, and the loop's callbacks must end in its own.
        try:
            self._loop.call_soon_threadsafe(self._end_now)
        except RuntimeError:  # the loop is closed
            self.close()

    def _end_now(self):
        # The program may have made another view meanwhile, which then closes the context.
        with contextlib.suppress(BufferRefused):
            self.close()

    def _detach(self):
        # A closed loop runs no callbacks.
        if not self._loop.is_closed():
            self._poll()
            self._watch.pause()
            for subscriber in list(self._subscribers):
                subscriber._begin_close()

    def _end_close(self):
        """Let waiting tasks see the end; continue if the close was refused."""
        if self.closed:
            self._watch.end()
        if not self._loop.is_closed():
            for subscriber in list(self._subscribers):
                subscriber._end_close()
            if self.closed:
                self._wake()
            else:
                self._watch.begin()

    async def aclose(self):
        """Cancel running operations, wait for their ends, and close the context without blocking the loop.

        A task that is cancelled during the close ends after it. If the loop of the context has been closed, nothing can deliver
        the ends of operations: then the close blocks.
        """
        if self.closed:
            return
        if self._loop.is_closed():
            self.close()
            return
        self._check_loop()
        cancelled = None
        while self._pending:
            self._cancel_all()
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError as error:
                cancelled = error
        # Another task may have closed the context meanwhile.
        if not self.closed:
            self._detach()
            await _close_in_thread(self._loop, super().close, self._end_close)
        if cancelled:
            raise cancelled

    def __enter__(self):
        raise TypeError('use `async with` with a context of peerlane.aio')

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        await _close_after(self, kind)


class Subscriber:
    """Reader of a stream, from subscribe(). `async for` yields its frames until the stream ends."""

    def __init__(self, subscriber):
        self._subscriber = subscriber
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._waiter = self._descriptor = None
        self._closing = False
        # A context of calls that wait has no such set, and no loop.
        getattr(subscriber._context, '_subscribers', set()).add(self)

    async def take(self, timeout=None):
        """Return the next frame, or None if none has come in time. Raises peerlane.Ended after the last one.

        One task at a time waits; a cancelled one takes no frame. A close of the subscriber ends all waits with
        peerlane.Closed.
        """
        try:
            async with asyncio.timeout(timeout), self._turn:
                while (frame := self._subscriber.take(0)) is None:
                    await self._wait_ready()
                return frame
        except TimeoutError:
            return None

    async def _wait_ready(self):
        self._waiter = self._loop.create_future()
        try:
            self._watch()
            await self._waiter
        finally:
            self._unwatch()
            self._waiter = None

    def _wake(self):
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self):
        # A close gives the descriptor back, and then wakes the task.
        if self._waiter and not self._closing:
            self._descriptor = self._subscriber.fileno()
            self._loop.add_reader(self._descriptor, self._wake)

    def _unwatch(self):
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = None

    def _begin_close(self):
        self._closing = True
        self._unwatch()

    def _end_close(self):
        self._closing = False
        if self.closed:
            self._wake()
        else:
            self._watch()

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.take()
        except Ended:
            raise StopAsyncIteration from None

    @property
    def closed(self):
        """True if this end has closed the stream."""
        return self._subscriber.closed

    def info(self):
        """Return a dictionary about the stream."""
        return self._subscriber.info()

    def set_token(self, token, /):
        """Set the token that the next attach() presents; None: no token."""
        self._subscriber.set_token(token)

    def pause(self, paused, /):
        """Pause the subscriber, or let it go on: a paused one fetches no frames."""
        self._subscriber.pause(paused)

    async def attach(self, peer, timeout=30):
        """Continue over another connection, after the loss of the first."""
        await self._loop.run_in_executor(None, lambda: self._subscriber.attach(peer, timeout))

    def _close_late(self):
        # A task that waits learns at once that no frame will come.
        self._begin_close()
        self._subscriber._close_late()
        self._wake()

    async def aclose(self):
        """End the subscription without blocking the loop. Frames of it must not be in use."""
        self._begin_close()
        await _close_in_thread(self._loop, self._subscriber.close, self._end_close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        await _close_after(self, kind)


async def subscribe(peer, name, **options):
    """Subscribe to a stream of a peer; return its Subscriber. Options as for peerlane.Peer.subscribe()."""
    loop = asyncio.get_running_loop()
    return Subscriber(await loop.run_in_executor(None, lambda: peer.subscribe(name, **options)))


async def accept_all(listener):
    """Yield each peer that connects to a listener."""
    while True:
        yield await listener.accept()
