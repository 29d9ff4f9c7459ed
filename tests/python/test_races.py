# SPDX-License-Identifier: BSD-2-Clause
"""Threads that use, end and give up the same objects at once, with and without a global interpreter lock.

A call gives its result or an error of the package. The number of rounds bounds each test, not a time.
"""
import asyncio
import gc
import os
import subprocess
import sys
import sysconfig
import threading
import weakref

import peerlane as pl
import pytest
from conftest import connected
from peerlane import _peerlane, aio

ROUNDS = 30
ALLOWED = (pl.Error, BufferError)


def at_once(*functions):
    """Run functions in threads that begin together; return their results, and raise the first exception."""
    barrier = threading.Barrier(len(functions))
    results, failures = [None] * len(functions), []

    def run(at, function):
        barrier.wait()
        try:
            results[at] = function()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def many(function, count=20):
    """Return a function that calls `function` until an error of the package ends it."""
    def run():
        for done in range(count):
            try:
                function()
            except ALLOWED:
                return done
        return count
    return run


@pytest.mark.skipif(not sysconfig.get_config_var('Py_GIL_DISABLED') or os.environ.get('PYTHON_GIL') == '1',
                    reason='the interpreter has a global lock')
def test_the_import_leaves_the_global_lock_off():
    assert not sys._is_gil_enabled()


def test_lists_and_counts_of_a_context_stay_exact(local):
    """Short calls, which meet often: views count in the region and its context, and remote regions are in its list."""
    owner, region = local.far.allocate(64, access='r'), local.near.allocate(64)
    remotes = local.peer.import_all(local.far.share_all([owner]))
    count = 200000

    def view():
        for _ in range(count):
            memoryview(region).release()

    def item():
        for _ in range(count):
            assert remotes[0].length == 64

    at_once(*[view] * 4)
    at_once(*[item] * 4)
    region.deregister()  # raises PY-EXPORTED if a view is still counted
    remotes.release()
    local.near.close()   # waits for calls that are still counted


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_a_peer_is_closed_while_threads_post(fabric):
    with connected(fabric) as pair:
        region, source = pair.far.allocate(4096, access='rwa'), pair.near.register(bytearray(64), 'rw')
        token = region.share()
        for _ in range(ROUNDS):
            peer = pair.near.connect(pair.listener.address, timeout=120)
            remote = peer.import_(token)
            at_once(many(lambda: peer.write(remote, source)), many(lambda: peer.fetch_add(remote, 128, 1)),
                    many(lambda: peer.writev(remote, source, [0, 8], [8, 0], 8)), many(peer.info),
                    many(lambda: peer.import_(token).release()), peer.close)
            assert peer.closed and not peer.connected
        assert pair.peer.write(pair.peer.import_(token), source).bytes == 64


def test_all_ends_of_one_operation_agree(local):
    region = local.near.allocate(64)
    for _ in range(ROUNDS):
        operation = local.peer.receive_start(region)

        def end():
            try:
                return operation.wait().bytes
            except pl.Cancelled:
                return 'cancelled'

        ends = at_once(end, end, end, many(operation.done), operation.cancel, lambda: local.other.send(b'message') and None)
        assert ends[0] == ends[1] == ends[2] and ends[0] in (7, 'cancelled')
        assert operation.done()
        if ends[0] == 'cancelled':
            assert local.peer.receive(region).bytes == 7


def test_a_region_is_deregistered_while_threads_use_it(local):
    for _ in range(ROUNDS):
        memory = bytearray(256)
        region = local.near.register(memory, 'rw')

        def share():
            region.revoke(region.share())

        def view():
            with memoryview(region) as seen:
                assert len(seen) == 256

        def deregister():
            while not region.closed:
                try:
                    region.deregister()
                except ALLOWED:
                    pass

        at_once(many(share), many(view), many(lambda: region.copy_in(b'x' * 256)), many(lambda: local.peer.send(region)),
                many(lambda: (region.address, region.length, repr(region))), many(lambda: region.__dlpack__(max_version=(1, 0))),
                deregister)
        gc.collect()
        memory.append(1)  # nothing keeps the memory
        while True:
            try:
                local.other.receive(None, timeout=0)
            except pl.Error:
                break


def test_a_context_is_closed_while_threads_use_it():
    with pl.Context() as far:
        listener, region = far.listen(), far.allocate(4096, access='rwa')
        token = region.share()
        for _ in range(ROUNDS):
            near = pl.Context()
            source = near.register(bytearray(8), 'r')
            peer = near.connect(listener.address, timeout=120)
            remote = peer.import_(token)
            operation = peer.receive_start(near.allocate(8))
            waits = many(lambda: operation.wait(), 1)
            at_once(many(lambda: peer.write(remote, source)), many(lambda: near.register(bytearray(8), 'r')),
                    many(lambda: near.listen().close()), many(lambda: near.connect(listener.address, timeout=120)),
                    many(near.state), many(near._poll), waits,
                    near.close, near.close)
            assert near.closed and operation.done()


def test_the_last_reference_goes_while_notifications_come(local):
    """A notification names its peer, whose last reference another thread gives up meanwhile."""
    listener = local.near.listen()
    for _ in range(ROUNDS):
        sender = local.far.connect(listener.address, timeout=120)
        holder, seen = [listener.accept(timeout=120)], []
        for value in range(8):
            sender.notify(value)

        def collect():
            for _ in range(8):
                local.near._wait_event(0)
                local.near._take_lost()

        def give_up():
            seen.append(weakref.ref(holder.pop()))

        at_once(collect, collect, give_up, sender.close)
        for event in local.near.notifications(timeout=0):
            assert 0 <= event.value < 8 and (event.peer is None or isinstance(event.peer, pl.Peer))
        event = None
        gc.collect()
        assert seen[0]() is None


def test_a_capsule_is_taken_once(local):
    region = local.near.allocate(64)
    for _ in range(ROUNDS):
        capsule = region.__dlpack__(max_version=(1, 0))

        def take():
            try:
                return _peerlane._dlpack(capsule)
            except pl.Error as error:
                assert error.id == 'PY-DLPACK'
                return None

        taken = at_once(take, take, take, take)
        assert sum(each is not None for each in taken) == 1
        del capsule, taken
    region.deregister()


def test_loops_of_threads_cancel_while_others_open_and_close():
    """Cancellation looks through all contexts, which come and go."""
    async def run():
        async with aio.Context() as near, aio.Context() as far:
            listener = far.listen()
            accepted = listener.accept()
            peer = await near.connect(listener.address)
            other = await accepted
            region = near.allocate(64)
            for _ in range(10):
                future = peer.receive(region)
                future.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await future
            received = peer.receive(region)
            await other.send(b'12345678')
            return (await received).bytes

    def churn():
        for _ in range(ROUNDS):
            pl.Context().close()

    assert at_once(*[lambda: asyncio.run(run())] * 3, churn, churn)[:3] == [8, 8, 8]


def test_an_interpreter_ends_while_threads_work():
    program = '''
import threading
import peerlane as pl
far = pl.Context()
listener, region = far.listen(), far.allocate(64, access="rw")
token = region.share()
def work():
    try:
        with pl.Context() as near:
            peer = near.connect(listener.address)
            remote, source = peer.import_(token), near.register(bytes(64), "r")
            started.release()
            while True:
                peer.write(remote, source)
    except pl.Error:
        pass
started = threading.Semaphore(0)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
for _ in range(3):
    started.acquire()
'''
    for _ in range(3):
        done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
