# SPDX-License-Identifier: BSD-2-Clause
"""Memory of other libraries: DLPack, and the CUDA array interface."""
import contextlib
import errno
import sys

from . import _peerlane
from ._errors import BufferRefused, make_error

_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST, _CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_HOST = (_CPU, _CUDA_HOST, _ROCM_HOST)
HOST = -1


def refuse(id, message, hint=''):
    """Raise an error about the object that register() got."""
    raise make_error(errno.ENOTSUP, id, 'register', 'buffer', message, hint)


def _refuse_columns(shape):
    refuse('PY-ORDER', f'the elements are in the order of columns: shape {tuple(shape)}',
           'give its contiguous() and keep that, or its t(), which has these columns as rows')


def _refuse_strides(shape, strides):
    refuse('PY-CONTIGUOUS', f'the tensor is not contiguous: shape {tuple(shape)}, strides {tuple(strides)}',
           'give its contiguous(), and keep that')


def _device_of(tensor, device):
    """Return a context in which the tensor's GPU is PyTorch's current one: PyTorch exports tensors of no other."""
    torch = sys.modules.get('torch')
    if device == _CUDA and torch is not None and isinstance(tensor, torch.Tensor):
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()


def _dlpack_capsule(tensor, device):
    """Ask for the tensor's memory itself, without waiting for the GPU if the library can: a registration moves no bytes."""
    attempts = [{'max_version': (1, 0), 'copy': False}, {}]
    if device == _CUDA:
        # JAX takes -1, which means no waiting, for the handle of a stream, and fails with a RuntimeError.
        attempts = [attempts[0] | {'stream': -1}, {'stream': -1}, *attempts]
    with _device_of(tensor, device):
        for attempt in attempts[:-1]:
            try:
                return tensor.__dlpack__(**attempt)
            except (RuntimeError, TypeError):
                pass  # the next attempt asks for less
        return tensor.__dlpack__(**attempts[-1])


def on_gpu(thing):
    """Return whether a tensor says that a GPU has its memory."""
    return hasattr(thing, '__dlpack_device__') and int(thing.__dlpack_device__()[0]) not in _HOST


def from_dlpack(tensor):
    """Return (address, length, keeper, readonly, number of the GPU or HOST) of an object with __dlpack__()."""
    device = int(tensor.__dlpack_device__()[0])
    if device == _CUDA_MANAGED:
        refuse('PY-DLPACK', 'the tensor is in managed memory of a GPU', 'use memory of cudaMalloc()')
    if device != _CUDA and device not in _HOST:
        refuse('PY-DLPACK', f'the tensor is on a device of type {device}', 'host memory and CUDA memory are known')
    try:
        capsule = _dlpack_capsule(tensor, device)
    except (BufferError, RuntimeError, ValueError) as error:
        raise make_error(errno.ENOTSUP, 'PY-DLPACK', 'register', 'buffer', f'the tensor gives no memory: {error}',
                         'try detach() or view(torch.uint8)') from error
    keeper = _peerlane._dlpack(capsule)
    address, length, kind, number, readonly, order, shape, strides = keeper.describe()
    if order == 'columns':
        _refuse_columns(shape)
    if not order:
        _refuse_strides(shape, strides)
    return address, length, keeper, readonly, number if kind == _CUDA else HOST


def _span(shape, strides, size):
    """Return the bytes of an array, negative in the order of columns; None if it has gaps. Sizes of 1 do not matter."""
    total = size
    for length in shape:
        total *= length
    if strides is None or total == 0:
        return total
    for order, result in ((range(len(shape) - 1, -1, -1), total), (range(len(shape)), -total)):
        expected = size
        for at in order:
            if shape[at] == 1:
                continue
            if strides[at] != expected:
                break
            expected *= shape[at]
        else:
            return result
    return None


def from_cuda_array(array):
    """Return (address, length, keeper, readonly, None) of an object with __cuda_array_interface__, which names no GPU."""
    interface = array.__cuda_array_interface__
    if interface.get('mask') is not None:
        refuse('PY-ARRAY', 'the array has a mask', 'register the array without it')
    if interface.get('stream') == 0:
        refuse('PY-ARRAY', 'the array names the stream 0, which its interface does not allow')
    kind = interface['typestr'].rstrip('0123456789')
    size = int(interface['typestr'][len(kind):])
    strides = interface.get('strides')
    length = _span(interface['shape'], strides, size)
    if length is None:
        _refuse_strides(interface['shape'], strides)
    if length < 0:
        _refuse_columns(interface['shape'])
    address, readonly = interface['data']
    return address, length, array, readonly, None


def has_objects(kind):
    """Return whether memory of a type has objects of Python, at any depth. Only types of ctypes can tell."""
    ctypes = sys.modules.get('_ctypes')
    if ctypes is None:
        return False
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return any(has_objects(member[1]) for base in kind.__mro__ for member in vars(base).get('_fields_', ()))
    if issubclass(kind, ctypes.Array):
        return has_objects(kind._type_)
    return getattr(kind, '_type_', None) == 'O'


def describe(thing):
    """Return (address, length, keeper, readonly, device) of a tensor of another library.

    The device is the number of a GPU, HOST, or None for any GPU.
    """
    if hasattr(thing, '__dlpack_device__'):
        return from_dlpack(thing)
    if hasattr(thing, '__cuda_array_interface__'):
        return from_cuda_array(thing)
    raise TypeError(f'{type(thing).__name__} gives no memory: it has neither the buffer protocol nor __dlpack__() nor '
                    '__cuda_array_interface__; (address, length) registers any memory')


def source(thing):
    """Return an object with the buffer protocol for the bytes of a tensor of the host."""
    if not hasattr(thing, '__dlpack_device__') and not hasattr(thing, '__cuda_array_interface__'):
        raise TypeError(f'{type(thing).__name__} gives no bytes: bytes, an array or a tensor of the host is needed')
    try:
        if on_gpu(thing) or not hasattr(thing, '__dlpack_device__'):
            refuse('PY-NO-HOST', 'the tensor is in memory of a GPU',
                   'register it and send the region, or fill a loan: torch.from_dlpack(loan).copy_(tensor)')
        return from_dlpack(thing)[2]
    except BufferRefused as error:
        error.call = ''  # not register(): several calls take tensors
        raise


def check_device(region, said):
    """End a region, and raise PY-DEVICE, if the library found other memory than the object said: `device` of describe()."""
    kind, number = region.__dlpack_device__()
    found = number if kind == _CUDA else HOST
    if found == said or (said is None and found != HOST):
        return
    region.deregister()
    names = {HOST: 'host memory', None: 'memory of a GPU'}
    refuse('PY-DEVICE', f'the object says {names.get(said, f"GPU {said}")}, but its address is in '
           f'{names.get(found, f"GPU {found}")}', 'keep the object alive, and do not move its memory, until it is registered')
