# SPDX-License-Identifier: BSD-2-Clause
"""Layouts of frames."""
import math
import operator
import re
import typing

# Kinds of elements, with the numbers of DLPack.
_CODES = {'int': 0, 'uint': 1, 'float': 2, 'bfloat': 4, 'complex': 5, 'bool': 6}
_DTYPE = re.compile(r'(int|uint|float|bfloat|complex|bool)(8|16|32|64|128|)')
# Short names of NumPy and types of Python, which mean one of these.
_SHORT = re.compile(r'[<=|]?([iufcb])(\d+)')
_KINDS = {'i': 'int', 'u': 'uint', 'f': 'float', 'c': 'complex'}
_OTHERS = {'int': 'int64', 'uint': 'uint64', 'float': 'float64', 'complex': 'complex128', '?': 'bool', 'b1': 'bool', '|b1': 'bool',
           'half': 'float16', 'double': 'float64'}


def _proposal(name):
    """Return what to do about a name that is no dtype of a layout."""
    short = _SHORT.fullmatch(name)
    long = f'{_KINDS.get(short[1])}{8 * int(short[2])}' if short else None
    found = _OTHERS.get(name) or (long if long and _DTYPE.fullmatch(long) else None)
    return f'write {found!r}' if found else 'use a view of another type, such as uint8'


def _shape_of(shape):
    """Return a shape as a tuple. One number is a shape of one dimension."""
    sizes = (shape,) if hasattr(shape, '__index__') else shape
    try:
        sizes = tuple(operator.index(size) for size in sizes)
    except TypeError as error:
        raise TypeError(f'the shape of a layout has whole numbers, such as (480, 640), not {shape!r}') from error
    if min(sizes, default=0) < 0:
        raise ValueError(f'the shape of a layout has no negative numbers: {sizes}')
    return sizes


@typing.final
class Layout:
    """Type and shape of the elements of a frame, in C order without gaps.

    dtype is a name such as "uint8", "bfloat16", "float32" or "bool", or a dtype of NumPy or PyTorch.
    """

    __slots__ = ('_bits', '_code', '_dtype', '_lanes', '_shape')

    def __init__(self, shape, dtype):
        name = dtype if isinstance(dtype, str) else getattr(dtype, 'name', None) or getattr(dtype, '__name__', str(dtype))
        name = name.removeprefix('torch.')
        match = _DTYPE.fullmatch(name)
        if not match or (not match[2]) != (match[1] == 'bool'):
            raise ValueError(f'dtype {name!r} has no layout; {_proposal(name)}')
        if not getattr(dtype, 'isnative', True):
            raise ValueError(f'dtype {dtype} has the most significant byte first, and frames have it last: '
                             f'convert the array with astype({name!r})')
        self._code, self._bits, self._lanes = _CODES[match[1]], int(match[2] or 8), 1
        self._dtype, self._shape = name, _shape_of(shape)

    @classmethod
    def _of(cls, code, bits, lanes, shape):
        made = cls.__new__(cls)
        names = {value: name for name, value in _CODES.items()}
        made._code, made._bits, made._lanes = code, bits, lanes
        made._dtype = names[code] + ('' if code == _CODES['bool'] else str(bits)) + (f'x{lanes}' if lanes > 1 else '')
        made._shape = tuple(shape)
        return made

    @classmethod
    def of(cls, array):
        """Return the layout of an array or a tensor: its shape and its dtype."""
        return cls(array.shape, array.dtype)

    @property
    def dtype(self):
        """Name of the type of the elements."""
        return self._dtype

    @property
    def shape(self):
        """Elements of each dimension, the slowest first."""
        return self._shape

    @property
    def nbytes(self):
        """Bytes of a frame."""
        return (math.prod(self.shape) * self._bits * self._lanes + 7) // 8

    @property
    def _parts(self):
        return (self._code, self._bits, self._lanes, *self.shape)

    def __eq__(self, other):
        return self._parts == other._parts if isinstance(other, Layout) else NotImplemented

    def __hash__(self):
        return hash(self._parts)

    def __repr__(self):
        return f'Layout({self.shape!r}, {self.dtype!r})'
