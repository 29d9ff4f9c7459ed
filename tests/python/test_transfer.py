# SPDX-License-Identifier: BSD-2-Clause
"""Transfers, messages, atomic operations and notifications."""
import array
import random
import signal
import threading
import time

import peerlane as pl
import pytest


@pytest.mark.parametrize('size', [1, 8, 4096, 65537, 1 << 20])
def test_write_and_read_move_the_bytes(pair, size):
    region, remote = pair.remote(size)
    assert (remote.length, remote.rights) == (size, 'rwa')
    source = bytearray(random.Random(size).randbytes(size))
    target = bytearray(size)
    receipt = pair.peer.write(remote, pair.near.register(source))
    assert receipt.bytes == size and receipt.bytes_direct + receipt.bytes_staged == size
    assert receipt.fabric and receipt.reason and receipt.visible != 'default' and receipt.seconds >= 0
    assert bytes(memoryview(region)) == source
    assert pair.peer.read(remote, pair.near.register(target)).bytes == size
    assert target == source
    assert repr(receipt) == f'<peerlane.Receipt {size} bytes, {receipt.fabric}, {receipt.route}>'


def test_offsets_choose_ranges(local):
    region, remote = local.remote(100)
    source = local.near.register(bytes(range(100)), 'r')
    local.peer.write(remote, source, 10, 20, 30)
    assert bytes(memoryview(region)) == bytes(10) + bytes(range(20, 50)) + bytes(60)
    local.peer.write(remote, source, remote_offset=0, offset=98)
    assert bytes(memoryview(region)[:3]) == b'bc\0'


@pytest.mark.parametrize('numbers', [list, lambda items: array.array('Q', items), tuple])
def test_vectors_move_each_range(pair, numbers):
    region, remote = pair.remote(1024)
    source = pair.near.register(bytes(range(256)) * 4, 'r')
    places = random.Random(1).sample(range(64), 32)
    receipt = pair.peer.writev(remote, source, numbers([at * 16 for at in places]),
                               numbers([at * 8 for at in range(32)]), 8)
    expected = bytearray(1024)
    for at, place in enumerate(places):
        expected[place * 16:place * 16 + 8] = bytes(range(at * 8, at * 8 + 8))
    assert receipt.bytes == 256 and bytes(memoryview(region)) == expected
    target = bytearray(1024)
    pair.peer.readv(remote, pair.near.register(target), numbers([0, 512]), numbers([512, 0]), numbers([512, 512]))
    assert target == expected[512:] + expected[:512]


def test_vectors_of_other_shapes_are_refused(local):
    _, remote = local.remote(1024)
    source = local.near.register(bytearray(64))
    with pytest.raises(ValueError, match='offsets must have 2 elements'):
        local.peer.writev(remote, source, [0, 8], [0], 8)
    with pytest.raises(TypeError, match='integers with 64 bits'):
        local.peer.writev(remote, source, array.array('I', [0, 8]), [0, 8], 8)
    with pytest.raises(pl.Invalid) as caught:
        local.peer.writev(remote, source, [0, 2000], [0, 8], 8)
    assert caught.value.errno and caught.value.object == 'element 1'


def test_atomics_return_the_old_value(pair):
    region, remote = pair.remote(64)
    assert pair.peer.fetch_add(remote, 8, 5).value == 0
    assert pair.peer.fetch_add(remote, 8, -2).value == 5
    assert pair.peer.compare_swap(remote, 8, compare=3, swap=2**64 - 1).value == 3
    assert pair.peer.compare_swap(remote, 8, 0, 1).value == 2**64 - 1
    assert bytes(memoryview(region)[8:16]) == b'\xff' * 8


def test_messages_meet_receives_by_tag(pair):
    target = bytearray(65536)
    region = pair.far.register(target)
    first = pair.other.receive_start(region, tag=2, offset=100, length=10)
    second = pair.other.receive_start(region, tag=0x10, mask=0xf0)
    pair.peer.send(b'small', tag=0x1f)
    pair.peer.send(memoryview(b'other'), tag=2)
    assert (second.wait(120).bytes, second.wait().tag) == (5, 0x1f)
    assert first.wait(120).bytes == 5 and target[100:105] == b'other' and target[:5] == b'small'
    large = pair.near.register(random.Random(2).randbytes(65536), 'r')
    third = pair.other.receive_start(region)
    pair.peer.send(large)
    assert third.wait(120).bytes == 65536 and target == bytes(memoryview(large))


def test_a_message_without_region_has_a_limit(local):
    with pytest.raises(pl.Error) as caught:
        local.peer.send(bytes(8193))
    assert caught.value.id == 'PY-MESSAGE-SIZE' and 'register' in caught.value.hint
    operation = local.other.receive_start(None)
    local.peer.send(b'')
    assert operation.wait(120).bytes == 0


def test_notifications_arrive_in_order(pair):
    for number in range(20):
        pair.peer.notify(number, bytes(number))
    got = []
    for value, peer, data in pair.far.notifications(timeout=120):
        got.append((value, peer is pair.other, len(data)))
        if len(got) == 20:
            break
    assert got == [(number, True, number) for number in range(20)]
    assert list(pair.far.notifications(timeout=0)) == []


def test_notifications_keep_their_order_between_threads():
    """The main thread and the thread of the fixture collect notifications of one context."""
    from conftest import connected

    with connected('tcp', 'manual') as pair:
        for _ in range(200):
            for number in range(20):
                pair.peer.notify(number)
            notifications = pair.far.notifications(timeout=120)
            assert [next(notifications)[0] for _ in range(20)] == list(range(20))


def test_a_write_can_notify(local):
    region, remote = local.remote()
    local.peer.write(remote, local.near.register(bytearray(b'x' * 4096)), notify=(9, b'done'))
    value, peer, data = next(local.far.notifications(timeout=120))
    assert (value, data, bytes(memoryview(region)[:1])) == (9, b'done', b'x')


def test_a_read_can_notify(pair):
    """The owner of the memory learns that its bytes were read."""
    region, remote = pair.remote(8)
    region.copy_in(b'12345678')
    target = bytearray(8)
    pair.peer.read(remote, pair.near.register(target), notify=(7, b'was read'), timeout=120)
    value, peer, data = next(pair.far.notifications(timeout=120))
    assert (value, peer is pair.other, data, target) == (7, True, b'was read', b'12345678')


def test_a_wait_may_end_before_its_operation(pair):
    target = bytearray(8)
    operation = pair.other.receive_start(pair.far.register(target))
    with pytest.raises(TimeoutError):
        operation.wait(0.01)
    assert not operation.done()
    pair.peer.send(b'12345678')
    assert operation.wait(120).bytes == 8 and operation.done() and operation.wait().bytes == 8
    assert target == b'12345678'


def test_cancel_ends_an_operation_of_another_thread(pair):
    operation = pair.other.receive_start(pair.far.register(bytearray(8)))
    threading.Timer(0.05, operation.cancel).start()
    with pytest.raises(pl.Cancelled):
        operation.wait(120)
    operation = pair.other.receive_start(pair.far.register(bytearray(8)))
    operation.cancel()
    operation.cancel()
    with pytest.raises(pl.Cancelled):
        operation.wait(120)


def test_a_timeout_ends_an_operation(pair):
    with pytest.raises(pl.TimedOut):
        pair.other.receive(pair.far.register(bytearray(8)), timeout=0.02)
    with pytest.raises(TimeoutError):
        pair.listener.accept(timeout=0.02)


def test_many_regions_travel_as_one_blob(local):
    regions = [local.far.allocate(64 * (at + 1), access='rw') for at in range(5)]
    blob = local.far.share_all(regions)
    with local.peer.import_all(blob, timeout=120) as found:
        assert [remote.length for remote in found] == [64, 128, 192, 256, 320] and len(found) == 5
        remote, offset = found.find(regions[2].address + 8, 16)
        local.peer.write(remote, local.near.register(bytearray(b'z' * 16)), offset)
        assert bytes(memoryview(regions[2])[8:24]) == b'z' * 16
        with pytest.raises(pl.Error, match='PY-NO-REGION'):
            found.find(1, 1)
        with pytest.raises(IndexError):
            found[5]
    with pytest.raises(pl.Closed):
        remote.length
    local.far.revoke_all(blob)
    with pytest.raises(pl.Denied):
        local.peer.import_all(blob)
    with pytest.raises(pl.Error, match='PY-NO-TOKEN'):
        local.far.revoke_all(b'no blob')


@pytest.mark.parametrize('seed', range(4))
def test_random_operations_agree_with_a_model(seed):
    """Writes, reads and vectors at random places, each checked against a bytearray."""
    from conftest import SETTINGS, connected
    choose = random.Random(seed)
    with connected(*SETTINGS[seed]) as pair:
        size = 3000
        region, remote = pair.remote(size)
        near = bytearray(choose.randbytes(size))
        mine = pair.near.register(near)
        model = bytearray(size)
        for _ in range(150):
            length = choose.choice((0, 1, 7, choose.randrange(size)))
            far_at, near_at = choose.randrange(size - length + 1), choose.randrange(size - length + 1)
            action = choose.randrange(4)
            if action == 0:
                pair.peer.write(remote, mine, far_at, near_at, length)
                model[far_at:far_at + length] = near[near_at:near_at + length]
            elif action == 1:
                pair.peer.read(remote, mine, far_at, near_at, length)
                assert near[near_at:near_at + length] == model[far_at:far_at + length]
            elif action == 2:
                count, piece = choose.randrange(1, 9), choose.randrange(1, 40)
                places = [at * 40 for at in choose.sample(range(size // 40), count)]
                sources = [choose.randrange(size - piece) for _ in range(count)]
                pair.peer.writev(remote, mine, places, sources, piece)
                for place, source in zip(places, sources):
                    model[place:place + piece] = near[source:source + piece]
            elif far_at + length < size:
                with pytest.raises(pl.Invalid):
                    pair.peer.write(remote, mine, size, 0, 1 + length)
            assert bytes(memoryview(region)) == model


def test_a_cancellation_in_a_signal_handler_that_raises(local):
    def handle(number, frame):
        operation.cancel()
        raise InterruptedError

    region = local.far.allocate(8)
    operation = local.other.receive_start(region)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            operation.wait(timeout=120)
    finally:
        signal.signal(signal.SIGALRM, before)
    # The operation ends without a further call, and its memory is free.
    end = time.monotonic() + 120
    while not region.closed:
        try:
            region.deregister()
        except pl.Error:
            assert time.monotonic() < end
            time.sleep(0.01)
