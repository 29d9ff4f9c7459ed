# SPDX-License-Identifier: BSD-2-Clause
"""Producers of DLPack and of the CUDA array interface, whose fields a test chooses."""
import ctypes

# A producer of DLPack. Structures and names are those of its C header.
class DLTensor(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('device_type', ctypes.c_int32), ('device_id', ctypes.c_int32),
                ('ndim', ctypes.c_int32), ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8),
                ('lanes', ctypes.c_uint16), ('shape', ctypes.POINTER(ctypes.c_int64)),
                ('strides', ctypes.POINTER(ctypes.c_int64)), ('byte_offset', ctypes.c_uint64)]


class Unversioned(ctypes.Structure):
    _fields_ = [('tensor', DLTensor), ('context', ctypes.c_void_p), ('deleter', ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [('major', ctypes.c_uint32), ('minor', ctypes.c_uint32), ('context', ctypes.c_void_p),
                ('deleter', ctypes.c_void_p), ('flags', ctypes.c_uint64), ('tensor', DLTensor)]


DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """Tensor whose fields a test chooses. `deleted` counts calls of the deleter."""

    def __init__(self, shape=(8,), strides=None, bits=8, device=1, versioned=True, major=1, flags=0, byte_offset=0,
                 address=None, number=0):
        self.memory = (ctypes.c_char * 256)()
        self.address, self.number = address or ctypes.addressof(self.memory), number
        self.deleted, self.versioned, self.device, self.asked = 0, versioned, device, None
        self.struct = Versioned(major=major, flags=flags) if versioned else Unversioned()
        dims = ctypes.c_int64 * len(shape)
        self.shape, self.strides = dims(*shape), dims(*strides) if strides else None
        self.struct.tensor = DLTensor(self.address, device, number, len(shape), 1, bits, 1, self.shape,
                                      self.strides, byte_offset)
        self.call = DELETER(self.delete)
        self.struct.deleter = ctypes.cast(self.call, ctypes.c_void_p)

    def delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device, self.number

    def __dlpack__(self, **given):
        if not self.versioned and 'max_version' in given:
            raise TypeError('an old library')
        self.asked = given
        return new_capsule(ctypes.addressof(self.struct), b'dltensor_versioned' if self.versioned else b'dltensor',
                           None)


class CudaArray:
    """Array of the CUDA array interface, at an address."""

    def __init__(self, address, readonly=False, **changes):
        self.__cuda_array_interface__ = {'shape': (4, 4), 'typestr': '<f4', 'version': 3, 'data': (address, readonly),
                                         **changes}


def take(capsule, kind, name):
    """Take a tensor from a capsule as a library does. Returns its structure."""
    get, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found = kind.from_address(get(capsule, name))
    take.used = b'used_' + name
    rename(capsule, take.used)
    return found
