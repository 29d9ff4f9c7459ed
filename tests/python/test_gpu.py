# SPDX-License-Identifier: BSD-2-Clause
"""Memory of GPUs, with the stand-in for the driver: what register() takes and refuses, what regions give, freed memory."""
import contextlib
import ctypes
import gc
import mmap
import pathlib
import sys
import types

import peerlane as pl
import pytest
from peerlane import _peerlane
from tensors import CudaArray, Producer

STANDIN = pathlib.Path(pl.__file__).parents[3] / 'tests/libcuda.so.1'
if not STANDIN.exists():
    pytest.skip('the stand-in for the GPU driver is not built', allow_module_level=True)
# The library finds a driver that the process has loaded.
CUDA = ctypes.CDLL(str(STANDIN))
HOST, GPU, PINNED = 1, 2, 3    # types of devices of DLPack


def allocate(size, number=0):
    """Return the address of memory of a GPU."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert not CUDA.cuInit(0) and not CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    assert not CUDA.cuCtxSetCurrent(context) and not CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return address.value


def free(address):
    assert not CUDA.cuMemFree_v2(ctypes.c_uint64(address))


@pytest.fixture(params=[0, 1])
def number(request):
    return request.param


@pytest.fixture
def memory(number):
    """4096 bytes of a GPU."""
    address = allocate(4096, number)
    yield address
    free(address)


def test_a_cuda_tensor_is_asked_without_waiting(local, memory, number):
    tensor = Producer(device=GPU, number=number, address=memory)
    region = local.near.register(tensor)
    assert tensor.asked['stream'] == -1 and (region.memory, region.address) == ('cuda', memory)


def test_a_gpu_array_whose_buffer_refuses_is_a_tensor(local, memory, number):
    tensor = Producer(device=GPU, number=number, address=memory)

    class Array(mmap.mmap):    # its buffer refuses once it is closed, as that of a JAX array on a GPU does
        __dlpack_device__ = tensor.__dlpack_device__
        __dlpack__ = tensor.__dlpack__

    array, plain = Array(-1, 64), mmap.mmap(-1, 64)
    array.close()
    plain.close()
    assert local.near.register(array).address == memory
    with pytest.raises(ValueError, match='closed'):
        local.near.register(plain)


def test_a_tensor_of_another_gpu_is_asked_on_that_gpu(local, monkeypatch, memory, number):
    current = []

    class Tensor(Producer):
        def __dlpack__(self, **given):
            if current != [self.device]:
                raise BufferError('the tensor is not on the current GPU')
            return super().__dlpack__(**given)

    @contextlib.contextmanager
    def device(chosen):
        current.append(chosen)
        yield
        current.pop()

    torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(device=device))
    monkeypatch.setitem(sys.modules, 'torch', torch)
    assert local.near.register(Tensor(device=GPU, number=number, address=memory)).length == 8 and not current


def test_cuda_arrays(local, memory):
    assert local.near.register(CudaArray(memory)).length == 64
    assert local.near.register(CudaArray(memory, readonly=True), 'r').readonly
    for changes, id in (({'strides': (4, 16)}, 'PY-ORDER'), ({'strides': (32, 4)}, 'PY-CONTIGUOUS'), ({'mask': 1}, 'PY-ARRAY'), ({'stream': 0}, 'PY-ARRAY')):
        with pytest.raises(pl.BufferRefused, match=id):
            local.near.register(CudaArray(memory, **changes))


@pytest.mark.parametrize('make', [lambda memory, number: CudaArray(memory),
                                  lambda memory, number: Producer(device=GPU, number=number, address=memory),
                                  lambda memory, number: (memory, 64)], ids=['array', 'tensor', 'address'])
def test_regions_name_the_gpu_of_their_memory(local, memory, number, make):
    region = local.near.register(make(memory, number))
    assert region.__dlpack_device__() == (GPU, number)
    assert region.__cuda_array_interface__['data'] == (memory, False)
    assert _peerlane._dlpack(region.__dlpack__()).describe()[:4] == (memory, region.length, GPU, number)
    with pytest.raises(BufferError, match='PY-NO-HOST'):
        memoryview(region)


def test_an_allocated_region_names_its_gpu(local, number):
    with local.near.allocate(64, f'cuda:{number}') as region:
        assert region.__dlpack_device__() == (GPU, number) and local.near.allocate(64).__dlpack_device__() == (HOST, 0)


class HostArray(CudaArray):
    """CUDA array whose address is host memory."""

    def __init__(self):
        self.memory = (ctypes.c_char * 64)()
        super().__init__(ctypes.addressof(self.memory))


@pytest.mark.parametrize('make, fact', [
    (lambda memory, number: Producer(device=GPU, number=number), 'says GPU {0}, but its address is in host memory'),
    (lambda memory, number: HostArray(), 'says memory of a GPU, but its address is in host memory'),
    (lambda memory, number: Producer(device=GPU, number=1 - number, address=memory), 'says GPU {1}, but its address is in GPU {0}'),
    (lambda memory, number: Producer(device=HOST, address=memory), 'says host memory, but its address is in GPU {0}'),
    (lambda memory, number: Producer(device=PINNED, address=memory), 'says host memory, but its address is in GPU {0}')],
    ids=['tensor', 'array', 'other GPU', 'host', 'pinned'])
def test_memory_of_another_device_is_refused(local, memory, number, make, fact):
    thing, before = make(memory, number), local.near.registrations()
    with pytest.raises(pl.BufferRefused, match=fact.format(number, 1 - number)) as caught:
        local.near.register(thing, 'rw')
    assert caught.value.id == 'PY-DEVICE' and caught.value.hint
    del caught    # whose traceback has the tensor
    gc.collect()
    assert getattr(thing, 'deleted', 1) == 1 and local.near.registrations() == before


@pytest.mark.parametrize('kind', ['tensor', 'array', 'address'])
def test_memory_that_was_freed_before_its_registration_is_refused(local, kind):
    """Another thread of the process may map memory of its own there meanwhile: then it is host memory."""
    address = allocate(4096)
    free(address)
    thing = {'tensor': Producer(device=GPU, address=address), 'array': CudaArray(address), 'address': (address, 64)}[kind]
    try:
        region = local.near.register(thing)
    except pl.Error as error:
        assert error.id in ('MEMORY-UNMAPPED', 'PY-DEVICE')
    else:
        assert kind == 'address' and region.memory == 'host'


@pytest.mark.parametrize('freed', ['source', 'target'])
def test_memory_that_was_freed_while_registered_gives_an_error(pair, freed):
    addresses = {'source': allocate(4096), 'target': allocate(4096)}
    near, far = pair.near.register((addresses['source'], 4096), 'rw'), pair.far.register((addresses['target'], 4096), 'rw')
    remote = pair.peer.import_(far.share())
    pair.peer.write(remote, near, visible='gpu-visible', timeout=120)
    free(addresses.pop(freed))
    for call in (lambda: pair.peer.write(remote, near, timeout=120), lambda: pair.peer.read(remote, near, timeout=120),
                 lambda: (near if freed == 'source' else far).copy_in(b'1234'),
                 lambda: (near if freed == 'source' else far).copy_out(bytearray(4))):
        with pytest.raises(pl.Error) as caught:
            call()
        assert caught.value.id and not isinstance(caught.value, TimeoutError), caught.value
    near.deregister()
    far.deregister()
    # The connection, and other memory, are in use as before.
    region, remote = pair.remote(64)
    pair.peer.write(remote, pair.near.register(b'12345678', 'r'))
    assert bytes(memoryview(region)[:8]) == b'12345678'
    for address in addresses.values():
        free(address)
