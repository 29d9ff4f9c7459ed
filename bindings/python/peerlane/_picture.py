# SPDX-License-Identifier: BSD-2-Clause
"""Pictures of frames, for notebooks."""
import math
import struct
import time
import zlib

from ._errors import Ended

_FORMATS = {'int8': 'b', 'uint8': 'B', 'int16': 'h', 'uint16': 'H', 'int32': 'i', 'uint32': 'I', 'int64': 'q',
            'uint64': 'Q', 'float32': 'f', 'float64': 'd', 'bool': '?'}
_COLOURS = {1: 0, 3: 2, 4: 6}  # channels: type of PNG
_PIXELS = 512  # longest side of a picture: larger frames are thinned out


def _png(rows, width, channels):
    def chunk(kind, content):
        return struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))

    head = struct.pack('>IIBBBBB', width, len(rows), 8, _COLOURS[channels], 0, 0, 0)
    body = zlib.compress(b''.join(b'\0' + row for row in rows))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', body) + chunk(b'IEND', b'')


def _scaled(rows, dtype):
    """Return rows of bytes: values from the least to the greatest one become 0 to 255. Bytes stay as they are."""
    if dtype == 'uint8':
        return [bytes(row) for row in rows]
    finite = [value for row in rows for value in row if math.isfinite(value)]
    least = min(finite, default=0)
    span = (max(finite, default=0) - least) or 1
    return [bytes(round((value - least) * 255 / span) if math.isfinite(value) else 0 for value in row) for row in rows]


class Picture:
    """Copy of a frame as a PNG image, from picture()."""

    def __init__(self, frame):
        layout = frame.layout
        height, width, *rest = layout.shape if layout and 2 <= len(layout.shape) <= 3 else (0, 0)
        channels = rest[0] if rest else 1
        if not height or not width or channels not in _COLOURS or layout.dtype not in _FORMATS:
            raise ValueError(f'a frame of {layout} has no picture: shapes are (height, width) or (height, width, channels)')
        content = bytearray(layout.nbytes)
        frame.copy_out(content)
        values = memoryview(content).cast(_FORMATS[layout.dtype])
        step = -(-max(height, width) // _PIXELS)
        rows = []
        for y in range(0, height, step):
            line = values[y * width * channels:(y + 1) * width * channels]
            rows.append([value for x in range(0, width, step) for value in line[x * channels:(x + 1) * channels]])
        self.sequence = frame.sequence
        self._content = _png(_scaled(rows, layout.dtype), -(-width // step), channels)

    def _repr_png_(self):
        return self._content

    def __bytes__(self):
        return self._content

    def __repr__(self):
        return f'<peerlane.Picture of frame {self.sequence}, {len(self._content)} bytes>'


def picture(frame):
    """Return the picture of a frame of images: (height, width), or with a last dimension of 1, 3 or 4 channels.

    Values other than uint8 are scaled from the least to the greatest one. Sides over 512 pixels are thinned out.
    """
    return Picture(frame)


def view(subscriber, seconds=None, interval=0.1):
    """Show the latest frame of a stream in a notebook, until the stream ends or for some seconds.

    Between two pictures `interval` seconds pass; frames in between are left out. Returns the number of pictures.
    """
    from IPython import display

    end = math.inf if seconds is None else time.monotonic() + seconds
    shown, handle = 0, None
    while (left := end - time.monotonic()) > 0:
        try:
            frame = subscriber.take(min(left, 1))
        except Ended:
            break
        if frame is None:
            continue
        try:
            while (newer := subscriber.take(0)) is not None:
                frame = newer
        except Ended:
            pass
        newest = Picture(frame)
        frame.release()
        shown += 1
        if handle is None:
            handle = display.display(newest, display_id=True)
        else:
            handle.update(newest)
        time.sleep(min(interval, max(end - time.monotonic(), 0)))
    return shown
