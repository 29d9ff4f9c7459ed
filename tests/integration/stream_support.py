# SPDX-License-Identifier: BSD-2-Clause
"""Helpers for tests of streams from the command line: a publisher that is fed frame by frame."""
import contextlib
import json
import socket
import struct
import subprocess
import threading
import time

from cli_support import DEADLINE, PEERLANE, Server, environment, run_json

STEP = 0x9e3779b97f4a7c15  # as in src/cmd/stream/pattern.h


def pattern(sequence, length):
    """Bytes of a frame of the test source."""
    words = (length + 7) // 8
    base = sequence * STEP
    return struct.pack(f'<{words}Q', *((base + i) % (1 << 64) for i in range(words)))[:length]


class Publisher(Server):
    """`peerlane publish`, or another command, on a free port of the loopback, with a pipe as its standard input."""

    def __init__(self, *arguments, command=('publish', '--name', 'cam0'), listen='127.0.0.1:0', stderr=subprocess.PIPE, **changes):
        self.process = subprocess.Popen([PEERLANE, *map(str, command), '--listen', listen, *map(str, arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                        env=environment(**changes))
        self.first = self.line()
        if self.first.startswith('{'):
            self.address = json.loads(self.first)['address']
        else:
            assert self.first.startswith('listening on '), (self.first, self.process.communicate())
            self.address = self.first.split()[-1]

    def feed(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def look(self):
        (stream,) = run_json('streams', self.address, '--interval', '0')['streams']
        return stream

    def wait_for(self, member, value):
        """Waits until a number of `peerlane streams` has a value."""
        end = time.monotonic() + DEADLINE
        while self.look()[member] != value:
            assert time.monotonic() < end, (member, value, self.look())
            time.sleep(0.01)

    def finish(self, expect=0):
        """Ends the input, and waits for the end of the command."""
        output, errors = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == expect, (self.process.returncode, output, errors)
        return output.decode(), errors.decode() if errors else ''

    def finish_json(self, expect=0):
        return json.loads(self.finish(expect)[0].splitlines()[-1])


@contextlib.contextmanager
def publishing(*arguments, **options):
    publisher = Publisher(*arguments, **options)
    try:
        yield publisher
    finally:
        publisher.process.kill()
        publisher.process.communicate()


class Proxy:
    """Forwards connections to a publisher, and can cut them all, or refuse them for a time."""

    def __init__(self, address):
        host, port = address.split(':')
        self.target, self.pairs, self.paused = (host, int(port)), [], False
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                if self.paused:
                    near.close()
                    continue
                far = socket.create_connection(self.target)
            except OSError:
                return
            self.pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    @staticmethod
    def forward(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        # The other end may connect again before its last socket is shut: that connection stays.
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def pause(self):
        self.paused = True
        self.cut()

    def resume(self):
        self.paused = False
