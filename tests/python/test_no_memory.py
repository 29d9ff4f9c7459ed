# SPDX-License-Identifier: BSD-2-Clause
"""Each allocation of Python fails once in each call: the call raises MemoryError, or does without, and all goes on."""
import asyncio
import sys

import peerlane as pl
import pytest
from conftest import connected
from peerlane import aio

_testcapi = pytest.importorskip('_testcapi', reason='this Python has no module for its own tests')
QUIET = 30      # successes in a row after which a call has no further allocation
LIMIT = 500


def fail_each_allocation(call, expected):
    """Call with each allocation failing in turn. Other errors than MemoryError, and `expected`, are raised."""
    successes, failed = 0, 1
    while successes < QUIET:
        assert failed < LIMIT
        caught = None
        _testcapi.set_nomemory(failed, failed + 1)
        try:
            call()
        except BaseException as error:
            caught = error
        _testcapi.remove_mem_hooks()
        if caught is not None and not isinstance(caught, (MemoryError, expected)):
            raise caught
        successes = successes + 1 if not isinstance(caught, MemoryError) else 0
        failed += 1


class Refused(Exception):
    pass


def subscribe(pair):
    with pair.peer.subscribe('stream') as subscriber:
        subscriber.take(0)


def move_frame(publisher, subscriber):
    publisher.put(b'12345678')
    frame = subscriber.take(120)
    bytes(frame)
    frame.release()


def calls(pair):
    """Return functions by name, each with the error of the package that it may raise."""
    region, remote = pair.remote(4096)
    near, far, peer, mine, data = pair.near, pair.far, pair.peer, pair.near.register(bytearray(4096)), bytearray(64)
    return {
        'write': (lambda: peer.write(remote, mine), Refused),
        'start': (lambda: peer.write_start(remote, mine).wait(), Refused),
        'outside': (lambda: peer.write(remote, mine, 5000), pl.Invalid),
        'writev': (lambda: peer.writev(remote, mine, [0, 8], [0, 8], 8), Refused),
        'prepare': (lambda: peer.prepare_writev(remote, mine, [0, 8], [0, 8], 8).post(), Refused),
        'register': (lambda: near.register(data).deregister(), Refused),
        'address': (lambda: near.register((mine.address, 64)).deregister(), Refused),
        'allocate': (lambda: near.allocate(64).deregister(), Refused),
        'share': (lambda: region.revoke(region.share()), Refused),
        'share_all': (lambda: far.revoke_all(far.share_all([region])), Refused),
        'import': (lambda: peer.import_(region.share()).release(), Refused),
        'import_all': (lambda: peer.import_all(far.share_all([region])).release(), Refused),
        'cancelled': (lambda: (operation := pair.other.receive_start(region, tag=1)).cancel() or operation.wait(), pl.Cancelled),
        'notify': (lambda: (peer.notify(1, b'x'), list(far.notifications(0))), Refused),
        'connect': (lambda: near.connect(pair.listener.address).close(), Refused),
        'context': (lambda: pl.Context(fabric='local').close(), Refused),
        'queries': (lambda: (peer.info(), peer.identity(), peer.events()), Refused),
        'counters': (lambda: (near.traffic(), near.state(), near.queues(), near.error_counts()), Refused),
        'memoryview': (lambda: memoryview(region).release(), Refused),
        'tensor': (lambda: region.__dlpack__(), Refused),
        'publish': (lambda: far.publish('other', slot_bytes=64).close(), Refused),
        'subscribe': (lambda: subscribe(pair), Refused),
    }


NAMES = ['write', 'start', 'outside', 'writev', 'prepare', 'register', 'address', 'allocate', 'share', 'share_all', 'import', 'import_all',
         'cancelled', 'notify', 'connect', 'context', 'queries', 'counters', 'memoryview', 'tensor', 'publish', 'subscribe']


@pytest.mark.filterwarnings('ignore:unclosed context')
@pytest.mark.parametrize('name', NAMES)
def test_calls(name, monkeypatch):
    # Objects that end without memory for a warning.
    monkeypatch.setattr(sys, 'unraisablehook', lambda unraisable: None)
    with connected('local') as pair, pair.far.publish('stream', slot_bytes=64):
        found = calls(pair)
        assert list(found) == NAMES
        fail_each_allocation(*found[name])
        for call, expected in found.values():
            try:
                call()
            except expected:
                pass


def test_frames(monkeypatch):
    monkeypatch.setattr(sys, 'unraisablehook', lambda unraisable: None)
    with connected('local') as pair, pair.far.publish('stream', slot_bytes=64) as publisher, \
            pair.peer.subscribe('stream') as subscriber:
        fail_each_allocation(lambda: move_frame(publisher, subscriber), Refused)
        move_frame(publisher, subscriber)
        fail_each_allocation(subscriber.info, Refused)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_futures():
    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        loop.set_debug(False)
        async with aio.Context(fabric='local') as near, aio.Context(fabric='local') as far:
            listener = far.listen()
            peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
            region, mine = far.allocate(64, access='rwa'), near.allocate(64)
            remote = await peer.import_(region.share())

            def use():
                peer.write(remote, mine)
                other.receive(region, tag=3).cancel()
                near._poll(), far._poll()

            fail_each_allocation(use, Refused)
            await peer.write(remote, mine)
            # A cancellation without memory leaves its receive: a message ends that one before its time does.
            while near._pending or far._pending:
                await peer.send(b'12345678', tag=3)
                await asyncio.sleep(0.001)
    asyncio.run(main())
