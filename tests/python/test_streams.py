# SPDX-License-Identifier: BSD-2-Clause
"""Streams: frames as arrays without a copy, their ends, asyncio, and wrong uses."""
import array
import asyncio
import contextlib
import ctypes
import errno
import gc
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import peerlane as pl
import pytest
from peerlane import _peerlane, aio

from conftest import connected
from tensors import Producer

BUILD = pathlib.Path(pl.__file__).parents[3]
LAYOUT = pl.Layout((3, 4), 'float32')


def numbers(start):
    return array.array('f', range(start, start + 12))


def values(frame):
    """Elements of a frame, in one list."""
    return [value for row in memoryview(frame).tolist() for value in row]


def listed(start):
    return [float(value) for value in range(start, start + 12)]


def test_frames_are_arrays_of_their_layout(pair):
    with pair.far.publish('numbers', LAYOUT, metadata_bytes=16) as publisher, pair.peer.subscribe('numbers') as subscriber:
        with publisher.loan() as frame, memoryview(frame) as view:
            view[1, 2] = 7
            view.cast('B')[:4] = b'\0\0\x80\x3f'
        publisher.put(numbers(5), b'note', captured=1000.5)
        first, second = next(subscriber), subscriber.take(120)
        assert first.layout == LAYOUT and (first.sequence, first.length, first.metadata) == (0, 48, b'')
        assert (second.sequence, second.metadata, second.captured, second.lost_before) == (1, b'note', 1000.5, 0)
        assert time.time() - 60 < second.published <= second.taken < time.time() + 60
        assert values(first)[:7] == [1, 0, 0, 0, 0, 0, 7] and values(second) == listed(5)
        view = memoryview(second)
        assert (view.shape, view.strides, view.format, view.itemsize, view.nbytes) == ((3, 4), (16, 4), 'f', 4, 48)
        view.release()
        assert subscriber.take(0) is None and subscriber.take(0.01) is None
        assert subscriber.info()['accounts']['delivered'] == 2


def test_frames_are_tensors_of_their_layout(local):
    with local.far.publish('s', LAYOUT) as publisher, local.peer.subscribe('s') as subscriber:
        publisher.put(numbers(5))
        frame = subscriber.take(120)
        for version in (None, (1, 0)):
            tensor = _peerlane._dlpack(frame.__dlpack__(max_version=version))
            address, length, kind, device, readonly, order, shape, strides = tensor.describe()
            assert (length, kind, device, readonly, order, shape, strides) == (48, 1, 0, False, 'rows', [3, 4], [4, 1])
            # The tensor is the frame's memory.
            assert ctypes.string_at(address, length) == numbers(5).tobytes() and address % 4096 == 0
            with pytest.raises(pl.BufferRefused):
                frame.release()
            del tensor
        frame.release()
        with pytest.raises(pl.Closed):
            frame.__dlpack__()


def test_numpy(local):
    numpy = pytest.importorskip('numpy')
    with local.far.publish('s', slot_bytes=64) as publisher, local.peer.subscribe('s') as subscriber:
        for dtype in ('int16', 'uint64', 'float16', 'complex64', 'bool'):
            given = numpy.ones((2, 3), dtype)
            publisher.put(given, layout=pl.Layout.of(given))
            frame = subscriber.take(120)
            got = numpy.asarray(frame)
            assert got.dtype == dtype and (got == given).all()
            # Both arrays are the memory of the frame, not copies of it.
            address = _peerlane._dlpack(frame.__dlpack__(max_version=(1, 0))).describe()[0]
            assert got.ctypes.data == address
            if dtype != 'bool':  # which NumPy takes by DLPack from version 1.25 on
                tensor = numpy.from_dlpack(frame)
                assert (tensor == got).all() and tensor.ctypes.data == address
                del tensor
            del got


def test_swapped_elements_have_no_layout():
    numpy = pytest.importorskip('numpy')
    for dtype in ('>u2', '>f8', '>c8'):
        with pytest.raises(ValueError, match=r"most significant byte first.*astype\('(uint16|float64|complex64)'\)"):
            pl.Layout.of(numpy.zeros((2, 3), dtype))
    assert pl.Layout.of(numpy.zeros(3, '>u1')) == pl.Layout(3, 'uint8')


@pytest.mark.parametrize('short, name', [('u2', 'uint16'), ('<u2', 'uint16'), ('f4', 'float32'), ('int', 'int64'), (int, 'int64'),
                                         ('c16', 'complex128'), ('?', 'bool')])
def test_short_names_of_types_are_proposed(short, name):
    with pytest.raises(ValueError, match=f'has no layout; write {name!r}'):
        pl.Layout(2, short)


@pytest.mark.parametrize('dtype, shape, name', [
    ('u2', (3, 3), 'uint16 3x3'), ('i2', (4, 6), 'int16 4x6'), ('u2', (6, 4), 'uint16 6x4'), ('f4', (2, 6), 'float32 2x6'),
    ('u2', (5, 6), 'uint16 5x6'), ('>u2', (4, 6), 'big-endian uint16 4x6'), ('u2', (12,), 'uint16 12'), ('u1', (4, 12), 'uint8 4x12'),
    ('c8', (4, 6), 'complex64 4x6'), ('?', (4, 6), 'bool 4x6'), ('S2', (4, 6), '2s 4x6'), ('u2', (), 'uint16')])
def test_put_refuses_arrays_of_another_layout(local, dtype, shape, name):
    numpy = pytest.importorskip('numpy')
    with local.far.publish('s', pl.Layout((4, 6), 'uint16'), slot_bytes=256) as publisher:
        with pytest.raises(pl.Invalid, match=f'the array is {name}, the stream has uint16 4x6') as caught:
            publisher.put(numpy.zeros(shape, dtype))
        assert caught.value.id == 'PY-LAYOUT' and publisher.info()['claimed'] == 0


def test_put_takes_arrays_of_its_layout_rows_and_bytes(local):
    numpy = pytest.importorskip('numpy')
    given = numpy.arange(24, dtype='u2').reshape(4, 6)
    other = numpy.full((2, 6), 1.5, 'f4')
    with local.far.publish('s', pl.Layout.of(given)) as publisher, local.peer.subscribe('s', queue=16) as subscriber:
        for data in (given, given.reshape(24), array.array('H', range(24)), given.view('u1').reshape(-1), given.tobytes(),
                     bytearray(given)):
            publisher.put(data)
            assert (numpy.asarray(subscriber.take(120)) == given).all()
        publisher.put(other, layout=pl.Layout.of(other))
        assert (numpy.asarray(subscriber.take(120)) == other).all()
        with pytest.raises(pl.Invalid, match='the array is uint16 4x6, the stream has float32 2x6'):
            publisher.put(given, layout=pl.Layout.of(other))


def test_other_layouts_and_bytes(local):
    with local.far.publish('any', slot_bytes=64) as publisher, local.peer.subscribe('any', held=8) as subscriber:
        for dtype, format, size in (('int16', 'h', 2), ('uint64', 'Q', 8), ('float16', 'e', 2), ('complex64', 'Zf', 8),
                                    ('bool', '?', 1)):
            publisher.put(bytes(6 * size), layout=pl.Layout((2, 3), dtype))
            frame = subscriber.take(120)
            view = memoryview(frame)
            assert (frame.layout, view.format, view.shape) == (pl.Layout((2, 3), dtype), format, (2, 3))
        publisher.put(b'raw', layout=pl.Layout((3,), 'uint8'))
        publisher.put(b'bytes')
        with publisher.loan() as loan:
            loan.copy_in(b'copied', 8)
            loan.publish(14)
        del frame, view
        raw, plain, copied = (subscriber.take(120) for _ in range(3))
        target = bytearray(6)
        copied.copy_out(target, 8)
        assert (bytes(raw), bytes(plain), plain.layout, target) == (b'raw', b'bytes', None, b'copied')
        # bfloat16 has no format in the buffer protocol.
        publisher.put(b'\x80\x3f' * 2, layout=pl.Layout(2, 'bfloat16'))
        frame = subscriber.take(120)
        assert frame.layout == pl.Layout(2, 'bfloat16') and memoryview(frame).format == 'B' and len(memoryview(frame)) == 4


def test_frames_live_as_long_as_their_arrays(local):
    with local.far.publish('s', LAYOUT) as publisher, local.peer.subscribe('s', held=2) as subscriber:
        for start in range(3):
            publisher.put(numbers(start))
        views = [memoryview(subscriber.take(120)) for _ in range(2)]
        with pytest.raises(pl.Error) as caught:
            subscriber.take(120)
        assert caught.value.errno == errno.EMLINK
        for closed in (subscriber, local.near):
            with pytest.raises(pl.BufferRefused):
                closed.close()
        assert views[0].tolist()[2] == [8, 9, 10, 11]
        del views[0]
        gc.collect()
        with subscriber.take(120) as frame:
            kept = memoryview(frame)
        assert not frame.closed and kept[0, 0] == 2  # as a view of it exists
        with pytest.raises(pl.BufferRefused):
            frame.release()
        del kept
        frame.release()
        frame.release()
        assert frame.closed and frame.sequence == 2
        with pytest.raises(pl.Closed):
            memoryview(frame)
        del views[:]
        last = publisher.loan()
        publisher.close()
        with pytest.raises(pl.Closed):
            last.publish()


def test_loans(local):
    with local.far.publish('s', LAYOUT, loans=1) as publisher, local.peer.subscribe('s') as subscriber:
        with pytest.raises(KeyError), publisher.loan():
            raise KeyError
        loan = publisher.loan()
        with pytest.raises(pl.Error):
            publisher.loan()
        view = memoryview(loan)
        with pytest.raises(pl.BufferRefused):
            loan.publish()
        view.release()
        for wrong in (dict(length=49), dict(metadata=b'x')):
            with pytest.raises(pl.Error):
                loan.publish(**wrong)
        loan.copy_in(numbers(1))
        loan.publish(replay=True)
        with pytest.raises(pl.Closed):
            loan.publish()
        frame = subscriber.take(120)
        assert frame.replayed and frame.sequence == 1 and frame.lost_before == 1 and not frame.in_ring and not frame.readonly
        with pytest.raises(pl.Invalid):
            frame.publish()
        with pytest.raises(pl.Error):
            frame.copy_in(b'x')
        publisher.skip(10)
        publisher.put(numbers(2))
        frame = subscriber.take(120)
        assert (frame.sequence, frame.lost_before, frame.absent_before) == (10, 8, 8)
        publisher.skip(13, lost=True)
        publisher.put(numbers(3))
        frame = subscriber.take(120)
        assert (frame.sequence, frame.lost_before, frame.absent_before) == (13, 2, 0)
        accounts = subscriber.info()['accounts']
        assert (accounts['missed'], accounts['aborted']) == (2, 9)


def test_iteration_ends_with_the_stream(pair):
    publisher = pair.far.publish('s', LAYOUT, allow_block=True)
    subscriber = pair.peer.subscribe('s', overflow='block')

    def publish():
        for start in range(50):
            publisher.put(numbers(start), timeout=120)
        publisher.end(10)

    thread = threading.Thread(target=publish)
    thread.start()
    got = [values(frame) for frame in subscriber]
    thread.join()
    assert got == [listed(start) for start in range(50)]
    with pytest.raises(pl.Ended):
        subscriber.take(1)
    assert publisher.info()['state'] == 'ended' and publisher.subscribers()[0]['accounts']['delivered'] == 50
    with pytest.raises(EOFError):
        publisher.put(numbers(0))
    subscriber.close()
    publisher.close()
    assert subscriber.closed and publisher.closed


def test_frames_in_the_ring(local):
    with local.far.publish('s', LAYOUT, allow_block=True) as publisher, \
            local.peer.subscribe('s', in_place=True) as subscriber:
        publisher.put(numbers(3))
        frame = subscriber.take(120)
        assert frame.in_ring and frame.readonly and memoryview(frame).readonly and values(frame) == listed(3)
        with pytest.raises(pl.BufferRefused):
            frame.__dlpack__()  # that version of DLPack has no read-only tensors
        assert subscriber.info()['in_place'] and not frame.overwritten


def test_route_and_checks_of_frames(pair, request):
    with pair.far.publish('s', LAYOUT) as publisher, pair.peer.subscribe('s') as subscriber:
        info = subscriber.info()
        assert (info['route'], info['reason'], info['checks']) == ('none', None, 0)
        publisher.put(numbers(3))
        subscriber.take(120).release()
        info = subscriber.info()
        assert info['route'] in ('direct', 'staged') and info['reason']
        # Over tcp the cursors come with the payload.
        assert bool(info['checks']) == ('tcp' not in request.node.name)


def test_frames_that_are_pushed(local):
    with local.far.publish('s', LAYOUT) as publisher, local.peer.subscribe('s', push=True) as subscriber:
        publisher.put(numbers(3))
        frame = subscriber.take(120)
        assert not frame.in_ring and values(frame) == listed(3)
        info = subscriber.info()
        assert (info['accounts']['delivered'], info['checks'], info['route']) == (1, 0, 'none')


def test_streams_of_a_peer_and_starts(local):
    with local.far.publish('one', LAYOUT, slots=8, content_type='x/y'), local.far.publish('two', slot_bytes=8) as two:
        for number in range(4):
            two.put(bytes([number]) * 8)
        one, other = sorted(local.peer.streams(), key=lambda stream: stream['name'])
        assert (one['name'], one['layout'], one['content_type'], one['slots']) == ('one', LAYOUT, 'x/y', 8)
        assert (other['name'], other['layout'], other['published'], other['state']) == ('two', None, 4, 'live')
        for start, position, first in (('latest', 0, 3), ('history', 2, 2), ('sequence', 1, 1)):
            with local.peer.subscribe('two', start, position) as subscriber:
                assert subscriber.take(120).sequence == first
        with local.peer.subscribe('two', 'latest') as subscriber:
            subscriber.pause(True)
            subscriber.pause(False)
            subscriber.attach(local.peer)
            with pytest.raises(TypeError):
                subscriber.attach(local.other)


@pytest.mark.parametrize('call, kind', [
    (lambda pair: pair.far.publish('bad name', slot_bytes=8), pl.Invalid),
    (lambda pair: pair.far.publish('s'), pl.Invalid),
    (lambda pair: pair.far.publish('s', slot_bytes=8, memory='cuda:99'), pl.Error),
    (lambda pair: pair.far.publish('s', slot_bytes=8, slots=2**32), ValueError),
    (lambda pair: pair.far.publish('s', (3, 4)), pl.Invalid),
    (lambda pair: pair.peer.subscribe('nothing'), pl.Error),
    (lambda pair: pair.peer.subscribe('s', 'newest'), ValueError),
    (lambda pair: pair.peer.subscribe('s', overflow=3), ValueError),
    (lambda pair: pl.Layout((1,) * 9, 'uint8') and pair.far.publish('s', pl.Layout((1,) * 9, 'uint8')), ValueError),
    (lambda pair: pl.Layout(3, 'object'), ValueError),
    (lambda pair: pl.Layout((480 / 2, 640), 'uint8'), TypeError),
    (lambda pair: pl.Layout((2.5,), 'uint8'), TypeError),
    (lambda pair: pl.Layout('23', 'uint8'), TypeError),
    (lambda pair: pl.Layout(None, 'uint8'), TypeError),
    (lambda pair: pl.Layout((-2, 3), 'uint8'), ValueError),
])
def test_wrong_arguments(local, call, kind):
    with pytest.raises(kind):
        call(local)


@pytest.mark.parametrize('bits, shape, nbytes', [(12, (4, 4), 24), (12, (3, ), 5), (4, (1, ), 1), (1, (9, 9), 11)])
def test_frames_whose_elements_are_no_whole_bytes(local, bits, shape, nbytes):
    # As of `publish --dtype u12`.
    layout = pl.Layout._of(1, bits, 1, shape)
    assert layout.nbytes == nbytes
    content = bytes(range(1, nbytes + 1))
    with local.far.publish('s', layout) as publisher, local.peer.subscribe('s') as subscriber:
        with publisher.loan() as frame:
            frame.copy_in(content)
        frame = subscriber.take(120)
        assert (frame.length, frame.layout, frame.layout.nbytes) == (nbytes, layout, nbytes)
        view = memoryview(frame)
        assert (view.format, bytes(view)) == ('B', content)
        view.release()
        frame.release()


@contextlib.contextmanager
def full(local):
    """A publisher whose only subscriber takes no frame, and holds slots back for ever."""
    with local.far.publish('s', slot_bytes=8, slots=2, allow_block=True, patience=math.inf) as publisher, \
            local.peer.subscribe('s', overflow='block', queue=1):
        with pytest.raises(pl.Error, match='hold all slots back'):
            while True:
                publisher.put(b'x' * 8, timeout=0.2)
        yield publisher


def wait_for_subscribers(publisher, call):
    """Calls again if a slow subscriber has held no slot back yet."""
    while True:
        if call == 'loan':
            publisher.loan(timeout=100)
        elif call == 'put':
            publisher.put(b'', timeout=100)
        elif call == 'skip':
            publisher.skip(publisher.info()['claimed'] + 1, timeout=100)
        else:
            publisher.end(timeout=100)


WAITS = ['loan', 'put', 'skip', 'end']


@pytest.mark.parametrize('call', WAITS)
def test_an_interrupt_ends_a_wait_for_subscribers(local, call):
    with full(local) as publisher:
        refused = publisher.info()['refused']
        assert refused == 1
        interrupt = threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            interrupt.start()
            wait_for_subscribers(publisher, call)
        assert publisher.info()['refused'] == refused
        with pytest.raises(TimeoutError):
            publisher.end(timeout=0.2)


@pytest.mark.parametrize('closing', ['publisher', 'context'])
@pytest.mark.parametrize('call', WAITS)
def test_a_close_ends_a_wait_for_subscribers(local, call, closing):
    with full(local) as publisher:
        threading.Timer(0.1, publisher.close if closing == 'publisher' else local.far.close).start()
        with pytest.raises(pl.Closed):
            wait_for_subscribers(publisher, call)


def test_a_close_ends_a_wait(local):
    publisher = local.far.publish('s', LAYOUT)
    subscriber = local.peer.subscribe('s')
    threading.Timer(0.1, local.near.close).start()
    with pytest.raises(pl.Error):
        subscriber.take()
    publisher.close()


def test_asyncio():
    async def run():
        async with aio.Context(fabric='local') as near:
            with pl.Context(fabric='local') as far, far.listen() as listener, far.publish('s', LAYOUT) as publisher:
                accepted = asyncio.get_running_loop().run_in_executor(None, listener.accept, 120)
                peer = await near.connect(listener.address)
                other = await accepted
                async with await aio.subscribe(peer, 's', held=4) as subscriber:
                    assert await subscriber.take(0.01) is None
                    waiting = asyncio.create_task(subscriber.take())
                    await asyncio.sleep(0.01)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    for start in range(3):
                        publisher.put(numbers(start))
                    publisher.end()
                    got = [values(frame) async for frame in subscriber]
                    with pytest.raises(pl.Ended):
                        await subscriber.take()
                    assert subscriber.info()['accounts']['delivered'] == 3
                assert subscriber.closed and other.connected
                return got
    assert asyncio.run(run()) == [listed(start) for start in range(3)]


@pytest.mark.parametrize('closes', ['subscriber', 'context'])
def test_a_close_ends_the_waits_of_tasks(closes):
    async def run():
        async with aio.Context(fabric='local') as near:
            with pl.Context(fabric='local') as far, far.listen() as listener, far.publish('s', LAYOUT) as publisher:
                accepted = asyncio.get_running_loop().run_in_executor(None, listener.accept, 120)
                peer = await near.connect(listener.address)
                other = await accepted
                subscriber = await aio.subscribe(peer, 's', held=4)
                publisher.put(numbers(1))
                frame = await subscriber.take(120)
                view = memoryview(frame)
                waiting = [asyncio.create_task(subscriber.take()) for _ in range(2)]
                await asyncio.sleep(0)
                closing = subscriber if closes == 'subscriber' else near
                # A close that is refused wakes no task, and frames arrive after it.
                with pytest.raises(pl.BufferRefused):
                    await closing.aclose()
                publisher.put(numbers(2))
                done, left = await asyncio.wait(waiting, timeout=120, return_when=asyncio.FIRST_COMPLETED)
                assert [values(task.result()) for task in done] == [listed(2)] and len(left) == 1
                view.release()
                last = left.pop()
                waiting = [last, asyncio.create_task(subscriber.take())]
                await asyncio.sleep(0)
                del frame, done
                await closing.aclose()
                for task in waiting:
                    with pytest.raises(pl.Closed):
                        await asyncio.wait_for(task, 120)
                assert subscriber.closed and near.closed == (closing is near) and not other.closed
    asyncio.run(run())


GPU_PROGRAM = """
import peerlane as pl
from peerlane import _peerlane
layout = pl.Layout(4, 'uint16')
with pl.Context(fabric='local') as far, pl.Context(fabric='local') as near, far.listen() as listener:
    peer = near.connect(listener.address)
    with far.publish('s', layout, memory='cuda:1') as publisher, peer.subscribe('s', memory='cuda:0') as subscriber:
        publisher.put(b'12345678')
        frame, target = subscriber.take(120), bytearray(8)
        frame.copy_out(target)
        assert (target, publisher.info()['memory'], frame.__dlpack_device__()) == (b'12345678', 'cuda', (2, 0))
        with publisher.loan() as loan:
            assert loan.__dlpack_device__() == (2, 1)
        tensor = _peerlane._dlpack(frame.__dlpack__(max_version=(1, 0)))
        assert tensor.describe()[1:4] == (8, 2, 0)
        del tensor
        try:
            memoryview(frame)
        except pl.BufferRefused as refused:
            assert refused.id == 'PY-NO-HOST'
            print('refused')
        del frame
"""


STREAM_PROGRAM = """
import ctypes, threading
import peerlane as pl
cuda = ctypes.CDLL('libcuda.so.1')
gate, stream, primary = threading.Event(), ctypes.c_void_p(), ctypes.c_void_p()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda unused: gate.wait(120) and None)
class Stream:
    cuda_stream = property(lambda self: stream.value)
with pl.Context(fabric='local') as far, pl.Context(fabric='local') as near, far.listen() as listener:
    peer = near.connect(listener.address)
    with far.publish('s', slot_bytes=8, memory='cuda') as publisher, peer.subscribe('s', memory='cuda') as subscriber:
        assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0)
        assert not cuda.cuCtxSetCurrent(primary) and not cuda.cuStreamCreate(ctypes.byref(stream), 1)
        assert not cuda.cuLaunchHostFunc(stream, wait, None)
        loan = publisher.loan()
        loan.copy_in(b'12345678')
        loan.publish(stream=Stream())
        assert loan.closed and subscriber.take(0.1) is None     # as the stream has work to do
        gate.set()
        frame = subscriber.take(30)
        frame.release(Stream())
        assert frame.closed
        publisher.put(b'abcdefgh')
        for wrong in (dict(stream=None, length=9), dict(stream='x')):
            try:
                publisher.loan().publish(**wrong)
            except (pl.Error, TypeError) as refused:
                continue
            raise AssertionError(wrong)
        assert not cuda.cuStreamSynchronize(stream)
print('refused')
"""


@pytest.mark.skipif(not (BUILD / 'tests/libcuda.so.1').exists(), reason='the stand-in for the GPU driver is not built')
@pytest.mark.parametrize('program', [GPU_PROGRAM, STREAM_PROGRAM], ids=['memory', 'cuda-stream'])
def test_frames_of_gpus(program):
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=300,
                          env={**os.environ, 'LD_LIBRARY_PATH': str(BUILD / 'tests')})
    assert (done.returncode, done.stdout) == (0, 'refused\n'), done.stderr


# A thread stops in the middle of a copy, at a page that no access is allowed to.
BUSY_PROGRAM = """
import contextlib, ctypes, errno, mmap, signal, threading
import peerlane as pl
libc, memory = ctypes.CDLL(None), mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def allow(access):
    assert libc.mprotect(ctypes.c_void_p(address), 4096, access) == 0
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def stop(number):
    inside.set()
    gate.wait(120)
    allow(mmap.PROT_READ | mmap.PROT_WRITE)
libc.signal(signal.SIGSEGV, stop)
@contextlib.contextmanager
def copying(copy):
    global inside, gate
    inside, gate = threading.Event(), threading.Event()
    allow(0)
    thread = threading.Thread(target=copy, args=(memory,))
    thread.start()
    try:
        assert inside.wait(120)
        yield
    finally:
        gate.set()
        thread.join()
def expect_busy(call):
    try:
        call()
    except pl.Error as busy:
        assert (busy.id, busy.errno) == ('PY-FRAME-BUSY', errno.EBUSY) and busy.hint, busy
    else:
        raise AssertionError('the library took the memory during the copy')
with pl.Context(fabric='local') as far, pl.Context(fabric='local') as near, far.listen() as listener:
    peer = near.connect(listener.address)
    with far.publish('s', slot_bytes=4096) as publisher, peer.subscribe('s') as subscriber:
        memory[:4] = b'data'
        loan = publisher.loan()
        with copying(loan.copy_in):
            expect_busy(loan.publish)
        loan.publish()
        frame = subscriber.take(120)
        assert bytes(frame)[:4] == b'data'
        with copying(frame.copy_out):
            expect_busy(lambda: frame.release(0))
        frame.release()
        assert loan.closed and frame.closed
print('refused')
"""


def test_a_frame_does_not_end_during_a_copy():
    done = subprocess.run([sys.executable, '-c', BUSY_PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, 'refused\n'), done.stderr


def test_connected_contexts_of_one_thread():
    with connected('tcp', 'manual') as pair, pair.far.publish('s', LAYOUT) as publisher:
        with pair.peer.subscribe('s', timeout=120) as subscriber:
            publisher.put(numbers(7))
            assert values(subscriber.take(120)) == listed(7)


def test_tensors_are_published(local):
    """put() takes a tensor of the host, compares it with the layout, and copies it."""
    layout = pl.Layout((2, 3), 'uint16')
    tensor = Producer(shape=(2, 3), bits=16)
    tensor.memory[:12] = bytes(range(12))
    with local.far.publish('tensors', layout) as publisher, local.peer.subscribe('tensors') as subscriber:
        publisher.put(tensor)
        with subscriber.take(120) as frame:
            assert bytes(frame) == bytes(range(12))
        for wrong, id in ((Producer(shape=(3, 2), bits=16), 'PY-LAYOUT'), (Producer(shape=(2, 3), bits=32), 'PY-LAYOUT'),
                          (Producer(shape=(2, 3), strides=(1, 2), bits=16), 'PY-ORDER'),
                          (Producer(shape=(2, 3), strides=(6, 2), bits=16), 'PY-CONTIGUOUS'),
                          (Producer(shape=(2, 3), bits=16, device=2), 'PY-NO-HOST')):
            with pytest.raises(pl.Error) as caught:
                publisher.put(wrong)
            assert caught.value.id == id and caught.value.hint
    with pytest.raises(pl.Invalid, match='PY-LAYOUT') as caught:
        local.far.publish('array', array.array('f', [0]))
    assert 'Layout.of' in caught.value.hint


def test_arrays_with_gaps_or_columns_are_not_published(local):
    numpy = pytest.importorskip('numpy', reason='python3-numpy is not installed')
    rows = numpy.arange(12, dtype='f4').reshape(3, 4)
    with local.far.publish('arrays', pl.Layout((4, 3), 'float32')) as publisher:
        for wrong, id in ((rows.T, 'PY-ORDER'), (numpy.zeros((8, 3), 'f4')[::2], 'PY-CONTIGUOUS')):
            with pytest.raises(pl.BufferRefused) as caught:
                publisher.put(wrong)
            assert caught.value.id == id and caught.value.hint


def test_wrong_words_name_the_choices(local):
    for option, wanted in (('overflow', '"drop-oldest", "drop-newest", "block"'),
                           ('start', '"live", "latest", "history", "sequence"')):
        with pytest.raises(ValueError, match=f"{option} must be one of {wanted}, not 'bloc'"):
            local.peer.subscribe('camera', **{option: 'bloc'})


def test_an_exception_beside_arrays_of_frames_is_not_hidden(local):
    """The cause is the last line of the traceback, although arrays let nothing close."""
    views = []
    with pytest.raises(pl.Error) as caught:
        with local.far.publish('kept', slot_bytes=8) as publisher, local.peer.subscribe('kept') as subscriber:
            for _ in range(3):
                publisher.put(b'12345678')
            for frame in subscriber:
                views.append(memoryview(frame))
    assert caught.value.id == 'FRAME-LIMIT' and not subscriber.closed
    with pytest.raises(pl.Closed):
        subscriber.take(0)
    for view in views:
        assert not subscriber.closed
        view.release()
    assert subscriber.closed


def test_an_exception_in_asyncio_beside_arrays_of_frames_ends_waits():
    """Another task waits for frames; it learns at once that none will come. The last array closes the subscriber."""
    async def wait(subscriber):
        with pytest.raises(pl.Closed):
            await subscriber.take()

    async def main():
        async with aio.Context(fabric='tcp') as near, aio.Context(fabric='tcp') as far:
            with far.listen() as listener, far.publish('kept', slot_bytes=8) as publisher:
                peer = await near.connect(listener.address)
                with pytest.raises(KeyError):
                    async with await aio.subscribe(peer, 'kept') as subscriber:
                        publisher.put(b'12345678')
                        view = memoryview(await subscriber.take(120))
                        task = asyncio.create_task(wait(subscriber))
                        while not subscriber._waiter:
                            await asyncio.sleep(0)
                        raise KeyError('the cause')
                await asyncio.wait_for(task, 120)
                assert not subscriber.closed
                view.release()
                assert subscriber.closed

    asyncio.run(main())


def test_an_exception_in_asyncio_beside_views_closes_with_the_last_view():
    """In the thread of the loop, although another thread has the view."""
    async def main():
        with pytest.raises(KeyError):
            async with aio.Context() as context:
                view = memoryview(context.allocate(8))
                raise KeyError('the cause')
        await asyncio.get_running_loop().run_in_executor(None, view.release)
        while not context.closed:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_an_exception_in_asyncio_beside_views_is_not_hidden():
    kept = []

    async def main():
        async with aio.Context() as context:
            kept.extend([context, memoryview(context.allocate(8))])
            raise KeyError('the cause')

    with pytest.raises(KeyError):
        asyncio.run(main())
    assert not kept[0].closed
    kept.pop().release()
    assert kept[0].closed
