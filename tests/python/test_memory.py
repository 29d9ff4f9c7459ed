# SPDX-License-Identifier: BSD-2-Clause
"""Kinds of memory that register() takes, refuses and keeps."""
import array
import contextlib
import ctypes
import gc
import mmap
import pickle
import resource
import sys
import threading
import weakref

import peerlane as pl
import pytest
from peerlane import _peerlane
from tensors import CudaArray, Producer, Unversioned, Versioned, take


class Memory(bytearray):
    """A bytearray that takes weak references."""


@pytest.mark.parametrize('make', [lambda: bytearray(64), lambda: array.array('d', [0] * 8), lambda: mmap.mmap(-1, 64),
                                  lambda: memoryview(bytearray(64)), lambda: (ctypes.c_char * 64)(),
                                  lambda: memoryview(bytearray(128))[32:96]])
def test_writable_buffers_are_targets(local, make):
    target = make()
    region, remote = local.remote(64)
    memoryview(region)[:] = bytes(range(64))
    with local.near.register(target) as mine:
        assert (mine.length, mine.memory, mine.readonly) == (64, 'host', False)
        local.peer.read(remote, mine)
        assert bytes(memoryview(target).cast('B')) == bytes(range(64))


def test_the_order_of_columns_is_refused(local):
    """A peer reads bytes: elements in the order of columns would be transposed without a word."""
    numpy = pytest.importorskip('numpy', reason='python3-numpy is not installed')
    rows = numpy.arange(6, dtype='f4').reshape(2, 3)
    columns = numpy.asfortranarray(rows)
    for call in (lambda: local.near.register(columns), lambda: local.near.register(rows.T), lambda: local.peer.send(columns),
                 lambda: local.near.register(Producer(shape=(2, 3), strides=(1, 2), bits=32)),
                 lambda: local.near.register(CudaArray(4096, strides=(4, 16))),
                 lambda: local.near.allocate(24).copy_in(columns), lambda: local.near.allocate(24).copy_out(columns)):
        with pytest.raises(pl.BufferRefused, match='order of columns') as caught:
            call()
        assert caught.value.id == 'PY-ORDER' and caught.value.hint
    # What NumPy calls both orders is the order of rows.
    for both in (numpy.zeros((1, 4), order='F'), numpy.zeros((4, 1), order='F'), columns.T):
        assert local.near.register(both).length == both.nbytes


def test_arrays_of_objects_are_refused(local):
    """Their elements are addresses: a peer that writes there would crash the interpreter."""
    numpy = pytest.importorskip('numpy', reason='python3-numpy is not installed')
    objects = numpy.array([None, 'a'], dtype=object)
    members = numpy.zeros(2, [('a', 'f4'), ('b', object)])
    dates = numpy.zeros(2, [('a', 'M8[s]'), ('b', object)])
    region = local.near.allocate(64)
    with local.far.publish('s', slot_bytes=64) as publisher:
        for memory in (objects, members, dates, (ctypes.py_object * 2)(1, 2), memoryview(objects)):
            for call in (local.near.register, local.peer.send, region.copy_in, region.copy_out, publisher.put):
                with pytest.raises(pl.BufferRefused, match='objects') as caught:
                    call(memory)
                assert caught.value.id == 'PY-OBJECTS' and caught.value.hint
    # Names of members are no types, and dates have a buffer without a format only.
    for memory in (numpy.zeros(2, [('O', 'f4')]), numpy.zeros(2, 'M8[s]'), (ctypes.c_long * 2)(), numpy.array(['O'])):
        assert local.near.register(memory).length == memoryview(memory.view('u1') if hasattr(memory, 'view') else memory).nbytes


def test_members_of_ctypes_that_are_objects_are_refused(local):
    """The formats of unions, of packed structures and of base classes do not tell that members are objects."""
    class Simple(ctypes._SimpleCData):
        _type_ = 'O'

    class Either(ctypes.Union):
        _fields_ = [('number', ctypes.c_long), ('object', ctypes.py_object)]

    class Packed(ctypes.Structure):
        _pack_ = 1
        _fields_ = [('number', ctypes.c_char), ('object', Simple)]

    class Derived(Packed):
        _fields_ = [('more', ctypes.c_long)]

    class Holder(ctypes.Structure):
        _fields_ = [('number', ctypes.c_int), ('rows', (Either * 2) * 3)]

    class Named(ctypes.Structure):
        _fields_ = [('name:', ctypes.c_int), ('object', ctypes.py_object)]

    region = local.near.allocate(256)
    for kind in (Simple, Either, Packed, Derived, Holder, Named, Either * 2, Packed * 2, Derived * 2, (Holder * 2) * 2,
                 Named * 2):
        memory = kind()
        for given in (memory, memoryview(memory), memoryview(memory)[:1] if memoryview(memory).ndim else memory,
                      pickle.PickleBuffer(memory)):
            for call in (local.near.register, local.peer.send, region.copy_in, region.copy_out):
                with pytest.raises(pl.BufferRefused, match='objects') as caught:
                    call(given)
                assert caught.value.id == 'PY-OBJECTS' and caught.value.hint


def test_members_of_ctypes_without_objects_are_sources(local):
    """A pointer to objects is an address, as other pointers."""
    class Numbers(ctypes.Union):
        _pack_ = 1
        _fields_ = [('O', ctypes.c_long), ('bytes', ctypes.c_ubyte * 8), ('pointer', ctypes.POINTER(ctypes.c_long))]

    class Row(ctypes.Structure):
        _fields_ = [('number', Numbers), ('next', ctypes.c_void_p), ('bit', ctypes.c_uint, 1)]

    region = local.near.allocate(256)
    for kind in (Numbers, Row, Row * 3, ctypes.c_ubyte * 8, ctypes.c_long, ctypes.c_char * 4):
        for given in (kind(), memoryview(kind())):
            region.copy_in(given)
            assert local.near.register(given).length == ctypes.sizeof(kind)


def test_tensors_of_the_host_are_sources(local):
    tensor = Producer(shape=(2, 3), bits=16, byte_offset=4)
    tensor.memory[4:16] = b'abcdefghijkl'
    region = local.far.allocate(12)
    operation = local.other.receive_start(region)
    local.peer.send(tensor)
    operation.wait(120)
    assert bytes(memoryview(region)) == b'abcdefghijkl' and tensor.deleted == 1
    target = local.near.allocate(12)
    target.copy_in(tensor)
    assert bytes(memoryview(target)) == b'abcdefghijkl' and tensor.deleted == 2
    for wrong, id in ((Producer(shape=(2, 2), strides=(4, 1)), 'PY-CONTIGUOUS'), (Producer(device=2), 'PY-NO-HOST'),
                      (memoryview(bytearray(64))[::2], 'PY-CONTIGUOUS'), (CudaArray(4096), 'PY-NO-HOST')):
        with pytest.raises(pl.BufferRefused) as caught:
            local.peer.send(wrong)
        assert caught.value.id == id and caught.value.hint and 'register:' not in str(caught.value)
    with pytest.raises(TypeError, match='an array or a tensor'):
        local.peer.send(5)


@contextlib.contextmanager
def unraisable():
    """Give the list of the exceptions that nobody can catch meanwhile."""
    seen, before = [], sys.unraisablehook
    sys.unraisablehook = lambda about: seen.append(about.exc_value)
    try:
        yield seen
    finally:
        sys.unraisablehook = before


def test_the_exception_in_a_block_is_not_hidden():
    """Views in its traceback let nothing close; they are no reason to lose the cause. The last of them closes."""
    with pytest.raises(KeyError):
        with pl.Context() as context, context.allocate(8) as region:
            other, view = memoryview(context.allocate(8)), memoryview(region)
            listener = context.listen()
            address = listener.address
            raise KeyError('the cause')
    with pytest.raises(pl.Closed):
        memoryview(region)
    assert not region.closed and not context.closed
    view.release()
    assert region.closed and not context.closed
    other.release()
    assert context.closed
    with pl.Context() as context, pytest.raises(pl.Refused):
        context.connect(address, timeout=120)
    region.deregister()


def test_no_peer_has_a_region_after_an_exception(local):
    """Views keep the memory, and no token of it is valid any more."""
    with pytest.raises(KeyError):
        with local.far.allocate(8, access='rw') as region:
            token, view = region.share(), memoryview(region)
            remote = local.peer.import_(token)
            raise KeyError('the cause')
    with pytest.raises(pl.Denied):
        local.peer.write(remote, local.near.register(b'8 bytes.', 'r'))
    with pytest.raises(pl.Denied):
        local.peer.import_(token)
    assert bytes(view) == bytes(8) and not region.closed
    view.release()
    assert region.closed


def test_a_tensor_closes_after_an_exception(local):
    """As a memoryview does."""
    with pytest.raises(KeyError):
        with local.far.allocate(8) as region:
            capsule = region.__dlpack__()
            raise KeyError('the cause')
    assert not region.closed
    del capsule
    assert region.closed


def test_views_that_close_keep_the_exception_under_way():
    """The last view goes while another exception ends the function that has it."""
    def fail():
        with pl.Context() as context, context.allocate(8) as region:
            made.extend([context, region])
            view = memoryview(region)
            raise KeyError('the cause')
        del view

    made = []
    with pytest.raises(KeyError, match='the cause') as caught:
        fail()
    del caught
    gc.collect()
    assert all(one.closed for one in made)


def test_an_end_that_an_operation_refuses_is_told(local):
    """The region stays open, and the program learns why."""
    with pytest.raises(KeyError):
        with local.near.allocate(8) as region:
            view = memoryview(region)
            operation = local.peer.receive_start(region, tag=7)
            raise KeyError('the cause')
    with unraisable() as seen:
        view.release()
    assert [error.id for error in seen] == ['PY-REGION-BUSY'] and not region.closed
    local.other.send(b'1', tag=7)
    operation.wait(120)
    region.deregister()
    assert region.closed


def test_a_block_without_an_exception_refuses_views():
    with pytest.raises(pl.BufferRefused, match='PY-EXPORTED'):
        with pl.Context() as context:
            view = memoryview(context.allocate(8))
    view.release()
    context.close()


def test_readonly_memory_is_a_source_only(local):
    _, remote = local.remote(8)
    source = local.near.register(b'12345678', 'r')
    assert source.readonly
    local.peer.write(remote, source)
    for call in (lambda: local.peer.read(remote, source), lambda: local.peer.receive(source),
                 lambda: source.copy_in(b'1'), lambda: local.near.register(b'12345678', 'rw'),
                 lambda: local.peer.readv(remote, source, [0], [0], [8])):
        with pytest.raises(BufferError) as caught:
            call()
        assert caught.value.id == 'PY-READONLY' and isinstance(caught.value, pl.Error)
    view = memoryview(source)
    assert view.readonly
    view.release()


def test_memory_with_gaps_is_refused_with_its_steps(local):
    for gaps in (memoryview(bytearray(64))[::2], memoryview(bytearray(64))[::-1]):
        with pytest.raises(BufferError) as caught:
            local.near.register(gaps)
        assert caught.value.id == 'PY-CONTIGUOUS' and ('in steps of' in str(caught.value))
    with pytest.raises(pl.BufferRefused, match='PY-EMPTY'):
        local.near.register(bytearray())


@pytest.mark.parametrize('thing', [None, 5, 'text', [1, 2], object()])
def test_other_objects_are_refused(local, thing):
    with pytest.raises(TypeError, match='__dlpack__'):
        local.near.register(thing)


def test_memory_is_kept_and_not_resized_while_registered(local):
    data = bytearray(64)
    region = local.near.register(data)
    with pytest.raises(BufferError):
        data.extend(b'x')
    region.deregister()
    data.extend(b'x')
    data = Memory(64)
    gone = weakref.ref(data)
    region = local.near.register(data)
    del data
    gc.collect()
    assert gone() is not None
    del region
    assert gone() is None


def test_an_operation_keeps_region_and_memory(local):
    data = Memory(64)
    gone = weakref.ref(data)
    region = local.far.register(data)
    del data
    operation = local.other.receive_start(region)
    with pytest.raises(pl.Error) as caught:
        region.deregister()
    assert caught.value.id == 'PY-REGION-BUSY'
    del region
    gc.collect()
    assert gone() is not None
    local.peer.send(b'12345')
    operation.wait(120)
    assert gone() is None


def test_a_forgotten_operation_keeps_its_memory_until_its_end(local):
    data = Memory(64)
    gone = weakref.ref(data)
    local.other.receive_start(local.far.register(data))
    del data
    gc.collect()
    assert gone() is not None
    local.peer.send(b'12345')
    last = local.far.register(bytearray(8))
    for _ in range(12000):
        try:
            local.other.receive(last, tag=1, timeout=0.01)
        except pl.TimedOut:
            pass
        if gone() is None:
            break
    assert gone() is None


def test_address_and_length_with_an_owner(local):
    class Owner(bytearray):
        pass
    owner = Owner(b'abcdefgh')
    address = ctypes.addressof((ctypes.c_char * 8).from_buffer(owner))
    gone = weakref.ref(owner)
    region = local.near.register((address, 8), keep=owner)
    del owner
    gc.collect()
    target = bytearray(8)
    region.copy_out(target)
    assert target == b'abcdefgh' and region.address == address and gone() is not None
    region.deregister()
    assert gone() is None
    with pytest.raises(ValueError):
        local.near.register((-1, 8))
    with pytest.raises(pl.Error):
        local.near.register((0, 8))


def test_views_of_a_region_hold_it(local):
    region = local.near.allocate(64)
    view = memoryview(region)
    view[:3] = b'abc'
    for close in (region.deregister, local.near.close):
        with pytest.raises(pl.BufferRefused, match='PY-EXPORTED'):
            close()
    view.release()
    region.deregister()
    with pytest.raises(pl.Closed):
        memoryview(region)
    region.deregister()


def test_copies(local):
    region = local.near.allocate(16, access='rws')
    assert region.share().rights == 'rw'
    region.copy_in(b'abc', 4)
    target = bytearray(3)
    region.copy_out(target, offset=4)
    assert target == b'abc'
    for call in (lambda: region.copy_in(bytes(17)), lambda: region.copy_out(bytearray(1), 16)):
        with pytest.raises(pl.Invalid):
            call()
    with pytest.raises(BufferError):
        region.copy_out(b'const')


@pytest.mark.parametrize('versioned', [True, False])
def test_tensors_register_their_own_memory(local, versioned):
    tensor = Producer(shape=(2, 3), bits=32, versioned=versioned, byte_offset=16)
    region = local.near.register(tensor, 'rw')
    assert (region.length, region.address) == (24, ctypes.addressof(tensor.memory) + 16)
    assert 'stream' not in tensor.asked and tensor.deleted == 0
    region.deregister()
    assert tensor.deleted == 1


@pytest.mark.parametrize('shape, strides, bits, length', [
    ((4, 4), (4, 1), 8, 16), ((1, 4), (99, 1), 16, 8), ((), None, 64, 8), ((3,), None, 4, 2)])
def test_sizes_of_tensors(local, shape, strides, bits, length):
    assert local.near.register(Producer(shape=shape, strides=strides, bits=bits)).length == length


@pytest.mark.parametrize('options, id', [
    ({'shape': (4, 4), 'strides': (8, 1)}, 'PY-CONTIGUOUS'), ({'major': 2}, 'PY-DLPACK'), ({'flags': 2}, 'PY-DLPACK'),
    ({'device': 13}, 'PY-DLPACK'), ({'device': 10}, 'PY-DLPACK')])
def test_tensors_that_are_refused_are_given_back(local, options, id):
    tensor = Producer(**options)
    with pytest.raises(BufferError) as caught:
        local.near.register(tensor)
    assert caught.value.id == id
    del caught
    gc.collect()
    assert tensor.deleted == (0 if 'device' in options else 1)


def test_readonly_and_padded_tensors(local):
    assert local.near.register(Producer(flags=1), 'r').readonly
    with pytest.raises(BufferError, match='PY-READONLY'):
        local.near.register(Producer(flags=1), 'w')
    assert local.near.register(Producer(shape=(3,), bits=4, flags=4)).length == 3


@pytest.mark.parametrize('version, kind, name', [((1, 0), Versioned, b'dltensor_versioned'),
                                                 (None, Unversioned, b'dltensor')])
def test_regions_are_tensors_of_bytes(local, version, kind, name):
    region = local.near.allocate(64)
    assert region.__dlpack_device__() == (1, 0)
    found = take(region.__dlpack__(max_version=version), kind, name)
    assert (found.tensor.data, found.tensor.ndim, found.tensor.shape[0], found.tensor.bits) == (region.address, 1, 64, 8)
    with pytest.raises(pl.BufferRefused, match='PY-EXPORTED'):
        region.deregister()
    # A thread that Python does not know may call the deleter.
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found.deleter)
    thread = threading.Thread(target=deleter, args=(ctypes.addressof(found),))
    thread.start()
    thread.join()
    region.deregister()
    unused = local.near.allocate(8)
    del_me = unused.__dlpack__()
    del del_me
    unused.deregister()


@pytest.mark.parametrize('name', ['max_version', 'copy'])
def test_memory_that_an_argument_frees_is_not_given(local, name):
    region = local.near.allocate(64)

    class Freeing:
        def __getitem__(self, at):
            region.deregister()
            return 1

        def __bool__(self):
            region.deregister()
            return False

    with pytest.raises(pl.Closed):
        region.__dlpack__(**{'max_version': (1, 0), name: Freeing()})


def test_more_memory_than_the_host_has_is_refused(local):
    # A library without this check fails at the limit of file sizes, before it takes memory.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, hard))
    try:
        with pytest.raises(pl.NoMemory, match='4398046511104 MiB of memory are wanted, [0-9]+ MiB are available') as caught:
            local.near.allocate(1 << 62)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.id == 'NO-MEMORY' and caught.value.hint == 'ask for less, or free memory'


def test_dlpack_gives_memory_of_the_asked_device_only(local):
    region = local.near.allocate(64)
    for options in ({'dl_device': (1, 0)}, {'dl_device': None}, {'dl_device': region.__dlpack_device__()}):
        assert _peerlane._dlpack(region.__dlpack__(**options)).describe()[1] == 64
    for device in ((2, 0), (1, 1), (2, 1)):
        with pytest.raises(BufferError, match='dl_device'):
            region.__dlpack__(dl_device=device)
    with pytest.raises(BufferError, match='not a copy'):
        region.__dlpack__(copy=True)
    with pytest.raises(TypeError):
        region.__dlpack__(dl_device=1)
