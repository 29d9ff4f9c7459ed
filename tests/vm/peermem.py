# SPDX-License-Identifier: BSD-2-Clause
"""GPU of the second machine for cases of the kernel module, and checks of its memory from the host."""
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / 'build/vm'
MEMORY = FOLDER / 'gpu'
SIZE = 256 << 20
MIB = 1 << 20


def devices(number):
    """Returns QEMU's arguments for a machine: number 2 has a GPU, with a file as memory, and edu, which copies."""
    if number != 2:
        return []
    return ['-object', f'memory-backend-file,id=gpu,mem-path={MEMORY},size={SIZE},share=on',
            '-device', 'ivshmem-plain,memdev=gpu', '-device', 'edu,dma_mask=0xffffffffffffffff']


def clear():
    MEMORY.unlink(missing_ok=True)


def pattern(first, length):
    """Returns the bytes of rig_pattern() in tests/peermem."""
    return bytes((index * 7 + (index >> 8) * 13 + (index >> 16) + 1) & 255 for index in range(first, first + length))


def holds(offset, wanted):
    """Returns '' if the GPU's memory has these bytes, otherwise the first difference."""
    with open(MEMORY, 'rb') as memory:
        memory.seek(offset)
        found = memory.read(len(wanted))
    if found == wanted:
        return ''
    first = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
    return f'the GPU\'s memory is wrong at {offset + first}: {found[first]}, not {wanted[first]}'


def after_library(output):
    """Checks the ranges of GPU memory that the program printed."""
    told = [re.fullmatch(r'the GPU holds (\d+)\+(\d+) at (\d+)', line.strip()) for line in output]
    told = [tuple(map(int, match.groups())) for match in told if match]
    if not told:
        return 'the program printed no range of GPU memory'
    return next(filter(None, (holds(offset, pattern(first, length)) for first, length, offset in told)), '')


def after_third_party(_output):
    """Checks that edu copied 2048 bytes from 8 MiB + 5000 to 10 MiB."""
    return holds(8 * MIB + 5000, pattern(0, 2048)) or holds(10 * MIB, pattern(0, 2048) + bytes(2048))


def after_verbs(_output):
    """Checks that the other machine wrote 1 MiB, and sent 4096 bytes of the pattern, from byte 4096 on, to 3 MiB."""
    return holds(16 * MIB, pattern(0, MIB)) or holds(16 * MIB + MIB, bytes(2 * MIB)) or \
        holds(16 * MIB + 3 * MIB, pattern(4096, 4096) + bytes(4096))
