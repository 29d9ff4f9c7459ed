# SPDX-License-Identifier: BSD-2-Clause
"""Prepared vectors: their bytes, errors, ends and threads."""
import array
import asyncio
import concurrent.futures
import gc
import pickle
import weakref

import peerlane as pl
import pytest
from peerlane import aio

PIECE, COUNT = 24, 50
HALF = 64 * COUNT


class Memory(bytearray):
    """A bytearray that takes weak references."""


def ranges(kind=list):
    """Return offsets at both ends, none of which follows the one before it."""
    return kind([at * 7 % COUNT * 64 for at in range(COUNT)]), kind([at * 64 + 8 for at in range(COUNT)])


def moved(source, remote_shift=0, shift=0):
    """Return the memory of the target after a write."""
    expected = bytearray(2 * HALF)
    for there, here in zip(*ranges()):
        expected[there + remote_shift:there + remote_shift + PIECE] = source[here + shift:here + shift + PIECE]
    return expected


def source_of(seed):
    return bytes((at * 31 + at // 251 + seed) % 256 for at in range(2 * HALF))


@pytest.mark.parametrize('kind', [list, tuple, lambda items: array.array('Q', items)], ids=['list', 'tuple', 'array'])
def test_a_vector_writes_and_reads_again_and_again(pair, kind):
    region, remote = pair.remote(2 * HALF)
    memory = bytearray(2 * HALF)
    mine = pair.near.register(memory)
    with pair.peer.prepare_writev(remote, mine, *ranges(kind), PIECE) as vector:
        for seed, remote_shift, shift in ((1, 0, 0), (2, 0, 0), (3, HALF, 0), (4, 0, HALF), (5, HALF, HALF)):
            memory[:] = source_of(seed)
            region.copy_in(bytes(2 * HALF))
            receipt = vector.post(remote_shift, shift, visible='placed')
            assert receipt.bytes == PIECE * COUNT
            assert bytes(memoryview(region)) == moved(memory, remote_shift, shift)
    content = source_of(9)
    region.copy_in(content)
    memory[:] = bytes(2 * HALF)
    with pair.peer.prepare_readv(remote, mine, *ranges(kind), PIECE) as vector:
        operation = vector.post_start(shift=HALF)
        assert operation.wait(120).bytes == PIECE * COUNT
    for there, here in zip(*ranges()):
        assert memory[here + HALF:here + HALF + PIECE] == content[there:there + PIECE]


def test_the_further_arguments_are_those_of_a_write(pair):
    region, remote = pair.remote(64)
    with pair.peer.prepare_writev(remote, pair.near.register(b'12345678', 'r'), [0, 16], [0, 4], 4) as vector:
        vector.post(notify=(5, b'vector'), fence=True, timeout=120)
        event = next(pair.far.notifications(120))
        assert (event.value, event.data) == (5, b'vector')
        assert bytes(memoryview(region)[:20]) == b'1234' + bytes(12) + b'5678'
        with pytest.raises(pl.Invalid, match='PY-VISIBLE'):
            vector.post(visible='soon')
        with pytest.raises(TypeError):
            vector.post(wrong=1)


def test_wrong_ranges_are_refused_once_and_shifts_at_each_post(local):
    region, remote = local.remote(128)
    mine = local.near.register(bytearray(64))
    for wrong, kind in (((remote, mine, [0, 2000], [0, 8], 8), pl.Invalid), ((remote, mine, [0], [60], 8), pl.Invalid),
                        ((remote, mine, [], [], 8), pl.Invalid), ((remote, mine, [0, 8], [0], 8), ValueError),
                        ((remote, mine, [0], [-1], 8), ValueError), ((remote, mine, 5, [0], 8), TypeError),
                        ((mine, mine, [0], [0], 8), TypeError), ((remote, remote, [0], [0], 8), TypeError)):
        with pytest.raises(kind):
            local.peer.prepare_writev(*wrong)
    with pytest.raises(pl.BufferRefused, match='PY-READONLY'):
        local.peer.prepare_readv(remote, local.near.register(b'1234', 'r'), [0], [0], 4)
    with pytest.raises(pl.Error, match='PY-FOREIGN'):
        local.peer.prepare_writev(remote, region, [0], [0], 4)
    vector = local.peer.prepare_writev(remote, mine, [0, 100], [0, 32], 8)
    for shifts in ((21, 0), (0, 25), (2**64 - 1, 0), (0, 2**64 - 1)):
        with pytest.raises(pl.Invalid):
            vector.post(*shifts)
    for shifts in ((-1, 0), (0, 2**64)):
        with pytest.raises((ValueError, OverflowError)):
            vector.post(*shifts)
    vector.post(20, 24)


def test_a_revoked_token_refuses_each_post(pair):
    region = pair.far.allocate(64, access='w')
    token = region.share()
    remote = pair.peer.import_(token)
    vector = pair.peer.prepare_writev(remote, pair.near.register(b'12345678', 'r'), [0], [0], 8)
    vector.post()
    region.revoke(token)
    for _ in range(2):
        with pytest.raises(pl.Denied):
            vector.post(timeout=120)


def test_a_vector_keeps_its_region_until_it_is_released(local):
    memory = Memory(64)
    gone = weakref.ref(memory)
    _, remote = local.remote(64)
    region = local.near.register(memory)
    vector = local.peer.prepare_writev(remote, region, [0], [0], 8)
    with pytest.raises(pl.Error, match='PY-REGION-BUSY'):
        region.deregister()
    del region, memory
    remote.release()
    gc.collect()
    assert gone() is not None
    vector.post()
    vector.release()
    vector.release()
    assert vector.closed
    for call in (vector.post, vector.post_start, vector.__enter__):
        with pytest.raises(pl.Closed):
            call()
    del vector, call
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize('end', ['region', 'peer', 'context', 'garbage'])
def test_vectors_end_in_any_order(pair, end):
    region, remote = pair.remote(64)
    mine = pair.near.register(bytearray(64))
    vector = pair.peer.prepare_writev(remote, mine, [0], [0], 8)
    if end == 'region':
        vector.release()
        mine.deregister()
    elif end == 'peer':
        pair.peer.close()
    elif end == 'context':
        pair.near.close()
    else:
        del vector
        gc.collect()
        mine.deregister()
        return
    with pytest.raises(pl.Closed):
        vector.post()
    assert vector.closed == (end != 'peer')
    vector.release()
    if end == 'peer':
        mine.deregister()


def test_a_vector_ends_with_its_connection(pair):
    region, remote = pair.remote(64)
    mine = pair.near.register(b'12345678', 'r')
    vector = pair.peer.prepare_writev(remote, mine, [0], [0], 8)
    vector.post()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        again = pool.submit(pair.listener.accept, 120)
        pair.peer.reconnect(timeout=120)
        other = again.result()
    with pytest.raises(pl.Closed, match='prepared for a connection that is gone'):
        vector.post()
    with pair.peer.prepare_writev(remote, mine, [8], [0], 8) as fresh:
        fresh.post()
    assert bytes(memoryview(region)[:16]) == b'12345678' * 2 and other.connected


def test_vectors_do_not_pickle(local):
    _, remote = local.remote(64)
    with pytest.raises(TypeError, match='Invitation'):
        pickle.dumps(local.peer.prepare_writev(remote, local.near.register(bytearray(8)), [0], [0], 8))


def test_threads_post_one_vector_and_one_releases_it(pair):
    region, remote = pair.remote(8 * 64)
    mine = pair.near.register(bytes(range(8)) * 8, 'r')
    vector = pair.peer.prepare_writev(remote, mine, [0], [0], 8)

    def post(index, until_released):
        count = 0
        try:
            while until_released or count < 50:
                assert vector.post(remote_shift=index * 64, shift=index * 8 % 56, timeout=120).bytes == 8
                count += 1
        except pl.Closed as error:
            assert until_released and error.id == 'PY-CLOSED'
        return count

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(post, range(8), [False] * 8)) == [50] * 8
        assert all(bytes(memoryview(region)[at * 64:at * 64 + 8]) == bytes(range(8)) for at in range(8))
        posting = [pool.submit(post, index, True) for index in range(4)]
        vector.post()
        vector.release()
        for each in posting:
            each.result(120)
    mine.deregister()


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_vectors_of_asyncio(fabric):
    async def main():
        async with aio.Context(fabric=fabric) as near, aio.Context(fabric=fabric) as far:
            listener = far.listen()
            peer, other = await asyncio.gather(near.connect(listener.address), listener.accept())
            region, memory = far.allocate(2 * HALF, access='rw'), bytearray(source_of(3))
            remote, mine = await peer.import_(region.share()), near.register(memory)
            with peer.prepare_writev(remote, mine, *ranges(), PIECE) as vector:
                assert isinstance(vector, aio.Vector) and not hasattr(vector, 'post_start')
                receipts = await asyncio.gather(*[vector.post(shift=HALF) for _ in range(20)])
                assert {receipt.bytes for receipt in receipts} == {PIECE * COUNT}
                running = vector.post(shift=HALF)
                vector.release()
                await running
                with pytest.raises(pl.Closed):
                    vector.post()
            assert bytes(memoryview(region)) == moved(memory, 0, HALF) and other.connected
            mine.deregister()
    asyncio.run(main())
