# SPDX-License-Identifier: BSD-2-Clause
"""What the cases of the kernel module need: a GPU for the second of two machines, and a look at its memory from outside.
"""
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / 'build/vm'
MEMORY = FOLDER / 'gpu'
SIZE = 256 << 20
MIB = 1 << 20


def devices(number):
    """Of the machine of that number: QEMU's arguments for a GPU, whose memory is a file, and a device that copies."""
    if number != 2:
        return []
    return ['-object', f'memory-backend-file,id=gpu,mem-path={MEMORY},size={SIZE},share=on',
            '-device', 'ivshmem-plain,memdev=gpu', '-device', 'edu,dma_mask=0xffffffffffffffff']


def clear():
    MEMORY.unlink(missing_ok=True)


def pattern(first, length):
    """The bytes that rig_pattern() of tests/peermem names."""
    return bytes((index * 7 + (index >> 8) * 13 + (index >> 16) + 1) & 255 for index in range(first, first + length))


def holds(offset, wanted):
    """Whether these bytes are in the GPU's memory; why not, or an empty text."""
    with open(MEMORY, 'rb') as memory:
        memory.seek(offset)
        found = memory.read(len(wanted))
    if found == wanted:
        return ''
    first = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
    return f'the GPU\'s memory is wrong at {offset + first}: {found[first]}, not {wanted[first]}'


def after_library(output):
    """What the program said that the GPU holds."""
    told = [re.fullmatch(r'the GPU holds (\d+)\+(\d+) at (\d+)', line.strip()) for line in output]
    told = [tuple(map(int, match.groups())) for match in told if match]
    if not told:
        return 'nothing was said to be in the GPU\'s memory'
    return next(filter(None, (holds(offset, pattern(first, length)) for first, length, offset in told)), '')


def after_third_party(_output):
    """edu copied 2048 bytes from 8 MiB + 5000 to 10 MiB."""
    return holds(8 * MIB + 5000, pattern(0, 2048)) or holds(10 * MIB, pattern(0, 2048) + bytes(2048))


def after_verbs(_output):
    """The other machine has written a MiB, and sent what begins 4096 bytes later to 3 MiB."""
    return holds(16 * MIB, pattern(0, MIB)) or holds(16 * MIB + MIB, bytes(2 * MIB)) or \
        holds(16 * MIB + 3 * MIB, pattern(4096, 4096) + bytes(4096))
