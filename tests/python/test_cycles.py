# SPDX-License-Identifier: BSD-2-Clause
"""Contexts that only refer to themselves: the collector of Python ends them, with their threads, descriptors and ports."""
import asyncio
import ctypes
import gc
import os
import pathlib
import weakref

import peerlane as pl
import pytest
from peerlane import aio

pytestmark = pytest.mark.filterwarnings('ignore:unclosed context')


class Mine(pl.Context):
    """Context with a function of its own, which C alone refers to."""

    def __init__(self, **options):
        super().__init__(authorize=self.decide, **options)

    def decide(self, about):
        return True


class Program:
    """Program with a context that calls it."""

    def __init__(self):
        self.context = pl.Context(authorize=self.decide, refused=self.learn)
        self.listener = self.context.listen()

    def decide(self, about):
        return True

    def learn(self, about, error):
        pass


class Memory:
    """Memory whose owner has its region."""

    def __init__(self):
        self.content = ctypes.create_string_buffer(64)


def with_listener():
    made = pl.Context()
    made.kept = made.listen()
    return made


def with_list():
    made = pl.Context()
    kept = [made, made.register(bytearray(64)), made.listen(), made.publish('s', slot_bytes=8)]
    kept.append(kept)
    return made


def with_memory():
    made = pl.Context()
    memory = Memory()
    memory.region = made.register((ctypes.addressof(memory.content), 64), keep=memory)
    return made


def connected(near, far):
    listener = far.listen()
    far.peer = near.connect(listener.address)
    far.other = listener.accept()
    return far


def with_notification():
    far = pl.Context(fabric='tcp')
    with pl.Context(fabric='tcp') as near:
        connected(near, far).peer.notify(1)
        while not far._events:
            far._wait_event(1)
    return far


def with_operation():
    made = connected(pl.Context(), pl.Context())
    made.operation = made.other.receive_start(made.allocate(64))
    return made


def with_orphan():
    made = connected(pl.Context(), pl.Context())
    made.other.receive_start(made.allocate(64))
    return made


def with_vector():
    near = pl.Context()
    far = connected(near, pl.Context())
    far.kept = far.allocate(64, access='rw')
    remote = far.peer.import_(far.kept.share())
    near.far, near.vector = far, far.peer.prepare_writev(remote, near.register(bytearray(64)), [0], [0], 8)
    return near


def with_frame():
    made = connected(pl.Context(), pl.Context())
    made.publisher = made.publish('s', slot_bytes=8)
    made.subscriber = made.peer.subscribe('s')
    made.publisher.put(b'12345678')
    made.frame, made.loan = made.subscriber.take(120), made.publisher.loan()
    return made


def ended(make):
    """Make something, drop it, and return whether it is gone after a collection."""
    made = weakref.ref(make())
    gc.collect()
    return made() is None


def is_exiting(thread):
    """Tell whether a thread has ended, which the kernel lists for a moment after pthread_join()."""
    try:
        flags = pathlib.Path('/proc/self/task', thread, 'stat').read_text().rpartition(')')[2].split()[6]
    except OSError:
        return True
    return bool(int(flags) & 4)  # PF_EXITING


def resources():
    """Return the numbers of descriptors and of threads."""
    return len(os.listdir('/proc/self/fd')), sum(not is_exiting(thread) for thread in os.listdir('/proc/self/task'))


@pytest.mark.parametrize('make', [Mine, Program, with_listener, with_list, with_memory, with_notification, with_operation, with_orphan,
                                  with_vector, with_frame])
def test_the_collector_ends_contexts(make):
    gc.collect()
    before = resources()
    for _ in range(3):
        assert ended(make)
    assert resources() == before


def test_a_view_in_the_cycle_ends_first():
    def make():
        made = Mine()
        made.view = memoryview(made.allocate(64))
        return made

    gc.collect()
    before, made = resources(), weakref.ref(make())
    gc.collect()
    gc.collect()
    assert made() is None and resources() == before


def test_a_context_of_asyncio_without_references_ends():
    async def main():
        gc.collect()
        before = resources()
        for _ in range(3):
            assert ended(aio.Context)
            await asyncio.sleep(0)
            # The loop has forgotten the descriptors, whose numbers the next contexts get.
            async with aio.Context() as server, aio.Context() as client:
                listener = server.listen()
                peer, _ = await asyncio.gather(client.connect(listener.address), listener.accept())
                await peer.notify(1)
        gc.collect()
        await asyncio.sleep(0)
        assert resources()[0] == before[0]

    asyncio.run(main())


def test_a_context_that_outlives_its_loop_gives_its_descriptor_back():
    async def main():
        return aio.Context()

    before, made = resources(), asyncio.run(main())
    del made
    gc.collect()
    assert resources() == before


def test_a_pending_future_keeps_its_context():
    async def main():
        async with aio.Context() as server:
            listener = server.listen()
            accepted, future = listener.accept(), aio.Context().connect(listener.address)
            gc.collect()
            assert (await future).connected and (await accepted).connected

    asyncio.run(main())
