# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors, threads, mappings and memory after a hundred thousand operations, and after many contexts."""
import asyncio
import contextlib
import ctypes
import gc
import os
import pathlib
import sys
import time

import peerlane as pl
import pytest
from conftest import connected
from peerlane import aio

OPERATIONS = 100_000


class Allocated(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in ('arena', 'ordblks', 'smblks', 'hblks', 'hblkhd', 'usmblks', 'fsmblks',
                                                     'uordblks', 'fordblks', 'keepcost')]


def counts():
    """Return descriptors, threads and mappings of this process, Python's blocks of memory, and bytes of malloc(3)."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Allocated
    allocated = mallinfo()
    mappings = pathlib.Path('/proc/self/maps').read_text()
    return {'descriptors': len(os.listdir('/proc/self/fd')), 'threads': len(os.listdir('/proc/self/task')),
            'shared memory': mappings.count('memfd:'), 'blocks': sys.getallocatedblocks(),
            'bytes': allocated.uordblks + allocated.hblkhd}


def compare(before, after):
    """Check that nothing has grown. The bounds are for caches: a new arena of Python has a table of half a MiB, once."""
    # The kernel lists a thread for an instant after pthread_join(3).
    deadline = time.monotonic() + 60
    while after['threads'] > before['threads'] and time.monotonic() < deadline:
        time.sleep(0.01)
        after['threads'] = len(os.listdir('/proc/self/task'))
    for name, allowed in {'descriptors': 0, 'threads': 0, 'shared memory': 0, 'blocks': 1000, 'bytes': 1 << 20}.items():
        assert after[name] - before[name] <= allowed, (name, before, after)


def check(use, times):
    """Call `use` often: all counts stay."""
    use(times // 10)
    before = counts()
    use(times)
    compare(before, counts())


class Kinds:
    """All kinds of operations between two contexts, in turn: those that succeed, fail and are cancelled."""

    def __init__(self, pair):
        self.pair = pair
        self.region, self.remote = pair.remote(4096)
        self.mine, self.inbox = pair.near.register(bytearray(4096)), pair.far.register(bytearray(4096))
        self.vector = pair.peer.prepare_writev(self.remote, self.mine, [0, 8], [8, 0], 8)

    def refused(self):
        with contextlib.suppress(pl.Error):
            self.pair.peer.write(self.remote, self.mine, 5000)

    def revoked(self):
        """A region, a token and an import that end before the read."""
        with self.pair.far.register(bytearray(64), 'r') as region:
            remote = self.pair.peer.import_(region.share())
        with contextlib.suppress(pl.Error):
            self.pair.peer.read(remote, self.mine, length=64)
        remote.release()

    def cancelled(self):
        operation = self.pair.other.receive_start(self.inbox, tag=9)
        operation.cancel()
        with contextlib.suppress(pl.Error):
            operation.wait()

    def prepared(self):
        """A vector that is released, and one that is forgotten while it is in use."""
        with self.pair.peer.prepare_readv(self.remote, self.mine, [0, 64], [0, 128], 16) as vector:
            vector.post()
        self.pair.peer.prepare_readv(self.remote, self.mine, [0, 64], [0, 128], 16).post_start().wait()

    def message(self):
        operation = self.pair.other.receive_start(self.inbox)
        self.pair.peer.send(b'12345678')
        operation.wait()

    def notification(self):
        self.pair.peer.notify(1, b'12345678')
        next(self.pair.far.notifications(120))

    def queries(self):
        pair = self.pair
        pair.peer.info(), pair.peer.identity(), pair.peer.events()
        pair.far.staging(), pair.far.registrations()
        pair.near.traffic(), pair.near.error_counts(), pair.near.state(), pair.near.queues()

    def use(self, count):
        peer, remote, mine = self.pair.peer, self.remote, self.mine
        often = [lambda: peer.write(remote, mine, visible='placed', notify=None),
                 lambda: peer.read(remote, mine, 0, 0, 8),
                 lambda: peer.write_start(remote, mine).wait(),
                 lambda: peer.writev(remote, mine, [0, 8], [0, 8], 8),
                 lambda: peer.fetch_add(remote, 0, 1),
                 self.vector.post,
                 self.refused]
        seldom = [self.revoked, self.cancelled, self.prepared, self.message, self.notification, self.queries]
        for at in range(count // 100):
            for call in often * 12 + seldom * 2:
                call()


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_operations_leak_nothing(fabric):
    with connected(fabric) as pair:
        check(Kinds(pair).use, OPERATIONS)


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_operations_of_asyncio_leak_nothing(fabric):
    async def main():
        # Its notes about each future take most of the time.
        asyncio.get_running_loop().set_debug(False)
        async with aio.Context(fabric=fabric) as near, aio.Context(fabric=fabric) as far:
            listener = far.listen()
            peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
            region, mine, inbox = far.allocate(4096, access='rwa'), near.allocate(4096), far.allocate(4096)
            remote = await peer.import_(region.share())

            async def use(count):
                for _ in range(count // 100):
                    futures = [peer.write(remote, mine, 0, 0, 8) for _ in range(90)]
                    futures += [other.receive(inbox, tag=1) for _ in range(10)]
                    for at in range(0, 100, 10):
                        futures[at].cancel()
                    for future in futures[90:]:
                        future.cancel()
                    await asyncio.wait(futures)

            await use(OPERATIONS // 10)
            before = counts()
            await use(OPERATIONS)
            compare(before, counts())
    asyncio.run(main())


def test_contexts_leak_nothing():
    def use(count):
        for _ in range(count):
            with connected('local') as pair:
                region, remote = pair.remote(4096)
                pair.peer.write(remote, pair.near.register(bytearray(4096)))
                pair.peer.receive_start(pair.near.register(bytearray(8)))
                list(pair.far.notifications(0))
                with pytest.raises(pl.Error):
                    pair.peer.write(remote, region)

    check(use, 500)


def test_notifications_of_a_closed_context_leak_nothing():
    """A receiver closes the context while more notifications with data are collected."""
    def use(count):
        for _ in range(count):
            with connected('local') as pair:
                received = []

                def receive(event):
                    received.append(event)
                    pair.far.close()

                pair.far._bind(receive)
                # A notification that the other end has acknowledged waits for a poll there.
                for value in range(50):
                    pair.peer.notify(value, bytes(1000))
                while not pair.far.closed:
                    pair.far._poll()
                assert len(received) == 1

    check(use, 100)
