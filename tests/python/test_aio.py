# SPDX-License-Identifier: BSD-2-Clause
"""asyncio: results, cancellation, and the end of the use of memory."""
import asyncio
import contextlib
import gc
import os
import random
import threading
import weakref

import peerlane as pl
import pytest
from peerlane import aio

@pytest.fixture(params=['asyncio', 'uvloop'], autouse=True)
def loops(request):
    """All cases run with the loop of asyncio, and with that of uvloop."""
    if request.param == 'asyncio':
        yield
        return
    uvloop = pytest.importorskip('uvloop', reason='python3-uvloop is not installed')
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


SETTINGS = [('local', 'thread'), ('tcp', 'thread'), ('tcp', 'manual')]


@contextlib.asynccontextmanager
async def connected(fabric='local', progress='thread'):
    async with aio.Context(fabric=fabric, progress=progress) as near, aio.Context(fabric=fabric, progress=progress) as far:
        listener = far.listen()
        peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
        yield near, far, peer, other, listener


def run(function, **options):
    async def main():
        async with connected(**options) as made:
            await asyncio.wait_for(function(*made), 100)
    asyncio.run(main())


@pytest.mark.parametrize('fabric, progress', SETTINGS)
def test_operations_return_futures(fabric, progress):
    async def body(near, far, peer, other, listener):
        assert type(peer) is aio.Peer and isinstance(listener, aio.Listener) and not hasattr(peer, 'write_start')
        region = far.allocate(64 * 100, access='rwa')
        remote = await peer.import_(region.share())
        data = random.Random(1).randbytes(6400)
        source = near.register(data, 'r')
        futures = [peer.write(remote, source, at * 100, at * 100, 100) for at in range(64)]
        assert all(isinstance(future, asyncio.Future) for future in futures)
        assert [receipt.bytes for receipt in await asyncio.gather(*futures)] == [100] * 64
        assert bytes(memoryview(region)) == data
        target = bytearray(6400)
        await peer.readv(remote, near.register(target), [0, 3200], [3200, 0], 3200)
        assert target == data[3200:] + data[:3200]
        assert (await peer.fetch_add(remote, 0, 1)).value == int.from_bytes(data[:8], 'little')
        waiting = other.receive(far.register(bytearray(10)), tag=4)
        await peer.send(b'12345', tag=4)
        assert (await waiting).tag == 4
    run(body, fabric=fabric, progress=progress)


def test_errors_arrive_at_the_await():
    async def body(near, far, peer, other, listener):
        region = far.allocate(64, access='r')
        token = region.share()
        remote = await peer.import_(token)
        mine = near.register(bytearray(64))
        with pytest.raises(PermissionError):
            peer.write(remote, mine)  # refused before it was posted
        region.revoke(token)
        with pytest.raises(PermissionError) as caught:
            await peer.read(remote, mine)
        assert caught.value.id
        with pytest.raises(ConnectionRefusedError):
            await near.connect('127.0.0.1:1')
        with pytest.raises(pl.TimedOut):
            await peer.receive(mine, timeout=0.02)
    run(body)


def test_notifications_and_peers_are_iterated():
    async def body(near, far, peer, other, listener):
        async def send():
            for number in range(5):
                await peer.notify(number, b'x' * number)
        sender = asyncio.ensure_future(send())
        got = []
        async for value, who, data in far.notifications():
            got.append((value, who is other, len(data)))
            if len(got) == 5:
                break
        assert got == [(number, True, number) for number in range(5)]
        await sender
        assert [item async for item in far.notifications(timeout=0.02)] == []
        connecting = near.connect(listener.address)
        async for third in aio.accept_all(listener):
            assert third.connected
            break
        await connecting
        peer.close()
        while not (lost := far.lost_peers()):
            await asyncio.sleep(0.01)
        assert lost == [other]
    run(body)


async def ends_cancelled(future, end):
    """Let a task await a future; end it by `end`. Return the exception of the task."""
    async def wait():
        return await future
    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    end(task, future)
    end(task, future)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize('end', [lambda task, future: task.cancel(), lambda task, future: future.cancel(),
                                 lambda task, future: (task.cancel(), future.cancel())])
@pytest.mark.parametrize('fabric, progress', SETTINGS)
def test_memory_is_free_after_a_cancellation(fabric, progress, end):
    async def body(near, far, peer, other, listener):
        region = far.register(bytearray(64))
        future = other.receive(region)
        with pytest.raises(pl.Error, match='PY-REGION-BUSY'):
            region.deregister()
        await ends_cancelled(future, end)
        assert future.cancelled() and far._pending == 0
        region.deregister()
    run(body, fabric=fabric, progress=progress)


def test_ways_to_cancel():
    async def body(near, far, peer, other, listener):
        memory = bytearray(64)
        region = far.register(memory)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(other.receive(region), 0.02)
        assert far._pending == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await other.receive(region)
        assert far._pending == 0
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                async def wait():
                    await other.receive(region)

                async def fail():
                    raise KeyError
                group.create_task(wait())
                group.create_task(fail())
        assert far._pending == 0
        gathered = asyncio.gather(other.receive(region, tag=1), other.receive(region, tag=2))
        await asyncio.sleep(0)
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered
        while far._pending:
            await asyncio.sleep(0.01)
        accepting = listener.accept()
        accepting.cancel('no longer')
        with pytest.raises(asyncio.CancelledError, match='no longer'):
            await accepting
        assert not accepting.cancel()
        region.deregister()
    run(body)


class Counting(aio.Context):
    """Context that counts its passes over operations to cancel some."""

    passes = 0

    def _cancel_asked(self):
        self.passes += 1
        super()._cancel_asked()


def test_one_pass_cancels_all_futures_of_a_round():
    async def main():
        # No send ends before its receive is posted, however long that takes.
        async with Counting(operation_timeout=600) as near, aio.Context() as far:
            listener = far.listen()
            peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
            region, target = near.allocate(1 << 20), far.allocate(1 << 20)
            futures = [peer.send(region, tag=tag) for tag in range(1000)]
            assert [future.cancel() for future in futures[::2]] == [True] * 500 and near.passes == 0
            assert futures[0].cancel() and not any(future.done() for future in futures)
            for end in await asyncio.gather(*futures[::2], return_exceptions=True):
                assert isinstance(end, asyncio.CancelledError)
            assert near.passes == 1 and near._pending == 500
            assert not futures[0].cancel()
            await asyncio.gather(*(other.receive(target, tag=tag) for tag in range(1, 1000, 2)), *futures[1::2])
            # Each later round has a pass of its own.
            for passes in (2, 3):
                future = peer.send(region, tag=0)
                future.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await future
                assert near.passes == passes

    asyncio.run(main())


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_a_cancelled_receive_takes_no_later_message(fabric):
    async def main():
        async with aio.Context(fabric=fabric) as near:
            listener = near.listen()
            accepting = listener.accept()
            with pl.Context(fabric=fabric) as far, far.connect(listener.address) as other:
                peer = await accepting
                cancelled = peer.receive(near.allocate(1 << 20), tag=3)
                assert cancelled.cancel()
                received = peer.receive(near.allocate(1 << 20), tag=3)
                # The loop does not run meanwhile. A message of this length ends when it has been received.
                other.send(far.allocate(1 << 20), tag=3)
                assert (await asyncio.wait_for(received, 60)).bytes == 1 << 20
                with pytest.raises(asyncio.CancelledError):
                    await cancelled

    asyncio.run(main())


def test_a_region_can_end_after_the_cancellation_of_its_operation():
    """Before the loop has run, which drives both ends: `with` ends the region in the same round."""
    async def body(near, far, peer, other, listener):
        target = far.allocate(1 << 20, access='rw')
        remote = await peer.import_(target.share())
        for begin in (lambda region: peer.send(region), lambda region: peer.receive(region),
                      lambda region: peer.read(remote, region)):
            with near.allocate(1 << 20) as region:
                future = begin(region)
                assert future.cancel()
            assert region.closed
            with pytest.raises(asyncio.CancelledError):
                await future
    run(body, fabric='tcp', progress='manual')


def test_a_cancelled_accept_takes_no_later_connection():
    async def main():
        async with aio.Context() as near:
            listener = near.listen()
            cancelled = listener.accept()
            assert cancelled.cancel()
            accepting = listener.accept()
            # The loop does not run meanwhile.
            with pl.Context() as far, far.connect(listener.address):
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                (await asyncio.wait_for(accepting, 60)).close()

    asyncio.run(main())


def test_a_cancellation_that_the_loop_refused_can_be_asked_again():
    async def body(near, far, peer, other, listener):
        class Loop:
            called = []

            def is_closed(self):
                return False

            def call_soon(self, callback):
                self.called.append(callback)
                if len(self.called) == 1:
                    raise RuntimeError('not now')

        future, loop = peer.send(near.allocate(1 << 20)), near._loop
        near._loop = Loop()
        with pytest.raises(RuntimeError, match='not now'):
            future.cancel()
        assert future.cancel() and future.cancel()
        assert Loop.called == [near._begin_cancels] * 2
        near._loop = loop
        near._begin_cancels()
        with pytest.raises(asyncio.CancelledError):
            await future
    run(body)


def test_an_operation_that_had_succeeded_counts_as_cancelled():
    async def body(near, far, peer, other, listener):
        region = far.allocate(64, access='rwa')
        remote = await peer.import_(region.share())
        mine = near.register(bytearray(64))
        future = peer.write(remote, mine)  # of the local fabric: has ended, and was not delivered
        assert future.cancel() and not future.done()
        with pytest.raises(asyncio.CancelledError):
            await future
        connecting, accepting = near.connect(listener.address), listener.accept()
        await asyncio.sleep(0)
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connecting
        accepting.cancel()
        await asyncio.wait([accepting])
    run(body)


def test_close_waits_for_the_ends_of_operations():
    class Memory(bytearray):
        pass
    memory = Memory(64)
    gone = weakref.ref(memory)
    seen = []

    async def body():
        nonlocal memory
        async with connected() as (near, far, peer, other, listener):
            future = other.receive(far.register(memory))
            future.add_done_callback(lambda future: seen.append(future.cancelled()))
            memory = None
        await asyncio.sleep(0)
    asyncio.run(body())
    gc.collect()
    assert seen == [True] and gone() is None


def test_a_loop_that_ends_leaves_no_crash():
    """A context that was not closed outlives its loop, and can be closed."""
    kept = []

    async def body():
        far = aio.Context()
        near = aio.Context()
        listener = far.listen()
        peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
        kept.extend((near, far, other.receive(far.register(bytearray(8))), peer))
        kept[2].add_done_callback(print)
    asyncio.run(body())
    kept[1].close()
    kept[0].close()
    assert kept[2].cancelled()
    with pytest.raises(pl.Closed):
        kept[1].allocate(8)


def test_another_loop_is_refused():
    """Nothing waits for ever in a loop that cannot deliver; the context can be closed there."""
    kept = []

    async def first():
        near, far = aio.Context(fabric='local'), aio.Context(fabric='local')
        listener = far.listen()
        peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
        region, remote = far.allocate(64), near.allocate(64)
        kept.extend([near, far, peer, other, region, remote, listener])
        far_waiting = other.receive(region)
        far_waiting.add_done_callback(lambda future: None)

    async def second():
        near, far, peer, other, region, _, listener = kept
        calls = [lambda: peer.notify(1), lambda: other.receive(region), listener.accept, lambda: anext(near.notifications())]
        for call in calls:
            with pytest.raises(RuntimeError, match='belongs to the loop'):
                await call()
        if not near._loop.is_closed():
            with pytest.raises(RuntimeError, match='belongs to the loop'):
                await near.aclose()
            return
        for context in near, far:
            await context.aclose()
            assert context.closed

    old = asyncio.new_event_loop()
    old.run_until_complete(first())
    asyncio.run(second())
    # Without a running loop, calls are for the loop that can run again.
    old.run_until_complete(kept[2].notify(1))
    old.close()
    with pytest.raises(RuntimeError, match='is closed'):
        kept[2].notify(1)
    asyncio.run(second())


def test_other_threads_and_calls_without_a_loop_are_refused():
    with pytest.raises(RuntimeError):
        aio.Context()
    gc.collect()

    async def body(near, far, peer, other, listener):
        seen = []

        def post():
            try:
                peer.notify(1)
            except RuntimeError as error:
                seen.append(str(error))
        thread = threading.Thread(target=post)
        thread.start()
        thread.join()
        assert 'thread of its loop' in seen[0]
        with pytest.raises(TypeError, match='async with'):
            near.__enter__()
    run(body)


def test_the_loop_runs_during_waits():
    async def body(near, far, peer, other, listener):
        waiting = other.receive(far.register(bytearray(8)))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not waiting.done()
        await peer.send(b'x')
        await waiting
    run(body)


@pytest.mark.parametrize('close', [aio.Context.aclose, aio.Context.close], ids=['aclose', 'close'])
def test_a_close_ends_the_wait_for_notifications(close):
    async def main():
        context = aio.Context(fabric='local')
        waiting = asyncio.create_task(anext(context.notifications()))
        await asyncio.sleep(0)
        view = memoryview(context.allocate(8))
        # A close that is refused ends no wait.
        for ended in False, True:
            try:
                done = close(context)
                if done is not None:
                    await done
            except pl.BufferRefused:
                view.release()
            await asyncio.wait([waiting], timeout=120 if ended else 0)
            assert waiting.done() == ended
        for call in (lambda: waiting, lambda: anext(context.notifications())):
            with pytest.raises(pl.Closed):
                await asyncio.wait_for(call(), 120)
    asyncio.run(main())


def test_a_close_that_is_cancelled_while_operations_end():
    async def main():
        context = aio.Context(fabric='local')
        listener = context.listen()
        accepting = asyncio.ensure_future(listener.accept())
        await asyncio.sleep(0)
        closing = asyncio.create_task(context.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert context.closed
        await asyncio.wait([accepting])

    asyncio.run(main())


def test_a_cancelled_close_leaves_no_descriptor_in_the_loop(monkeypatch):
    entered, gate, original = threading.Event(), threading.Event(), aio.Base.close

    def close(self):
        entered.set()
        assert gate.wait(120)
        original(self)

    async def main():
        loop, context = asyncio.get_running_loop(), aio.Context(fabric='local')
        descriptor = context.fileno()
        closing = asyncio.create_task(context.aclose())
        await asyncio.to_thread(entered.wait, 30)
        for _ in range(2):
            closing.cancel()
            for _ in range(4):
                await asyncio.sleep(0)
            watched = loop.remove_reader(descriptor)
            assert not watched and not closing.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert context.closed and not loop.remove_reader(descriptor)

    monkeypatch.setattr(aio.Base, 'close', close)
    try:
        asyncio.run(main())
    finally:
        gate.set()


def test_no_descriptors_leak():
    async def body(near, far, peer, other, listener):
        other.receive(far.register(bytearray(8)))

    run(body)
    gc.collect()
    before = len(os.listdir('/proc/self/fd'))
    for _ in range(10):
        run(body)
    gc.collect()
    assert len(os.listdir('/proc/self/fd')) == before


@pytest.mark.parametrize('seed', range(3))
def test_random_cancellations_agree_with_a_model(seed):
    """Writes at random places, of which some are cancelled: each place has its old or its new bytes."""
    choose = random.Random(seed)

    async def body(near, far, peer, other, listener):
        region = far.allocate(64 * 64, access='rw')
        remote = await peer.import_(region.share())
        mine = near.register(bytearray(64 * 64))
        with memoryview(mine) as view, memoryview(region) as result:
            # Bytes of a cancelled write may arrive until another write of the same place has succeeded.
            possible = {at: [bytes(64)] for at in range(64)}
            for _ in range(20):
                for at in range(64):
                    view[at * 64:at * 64 + 64] = choose.randbytes(1) * 64
                futures = {at: peer.write(remote, mine, at * 64, at * 64, 64) for at in range(64)}
                cancelled = choose.sample(range(64), 10)
                for at in cancelled:
                    futures[at].cancel()
                await asyncio.wait(futures.values())
                for at in range(64):
                    place = slice(at * 64, at * 64 + 64)
                    assert futures[at].cancelled() == (at in cancelled)
                    possible[at] = [bytes(view[place])] + (possible[at] if at in cancelled else [])
                    assert result[place] in possible[at]
    run(body, fabric=('local', 'tcp', 'tcp')[seed], progress=('thread', 'thread', 'manual')[seed])


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_notifications_that_nobody_takes_hold_their_senders(fabric):
    async def main():
        # The notifications wait until the test takes them.
        async with aio.Context(fabric=fabric) as server, aio.Context(fabric=fabric, operation_timeout=600) as client:
            listener = server.listen()
            peer, other = await asyncio.gather(client.connect(listener.address), listener.accept())
            target = client.allocate(8, access='w')
            remote = await other.import_(target.share())
            sent = [peer.notify(number) for number in range(3000)]
            await asyncio.gather(*sent[:1900])
            # Completions come in spite of that, behind the notifications that came before.
            await other.write(remote, server.register(bytearray(8), 'r'))
            assert len(server._events) < 1100 and not sent[-1].done()
            taken = []
            async for value, _, _ in server.notifications():
                taken.append(value)
                if value == 2999:
                    break
            assert taken == list(range(3000))
            await asyncio.gather(*sent)

    asyncio.run(main())
