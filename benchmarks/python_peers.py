#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The same measurements between two processes with Peerlane, pyzmq and mpi4py; benchmarks/python_cost prints them side by side.

Usage: python_peers.py TOOL FABRIC SHARE [FAR]
    TOOL    peerlane, zmq, or mpi (by mpirun with two ranks)
    FABRIC  local: the memory of the host, for zmq its local sockets; tcp: sockets over the loopback interface
    SHARE   1, or a number that makes the counts smaller
    FAR     address for the second process

The first process prints a JSON object of rows. A message has arrived in a buffer of the receiver, whose answer to the last one
is waited for, with 8 under way; a write is complete at the other process before the next one begins.
"""
import json
import os
import subprocess
import sys
import time

SIZES = {'64 KiB': 64 << 10, '1 MiB': 1 << 20, '16 MiB': 16 << 20}
SHARE = int(sys.argv[3]) if __name__ == '__main__' else 1
TRIPS = 20000 // SHARE
PUTS = 50000 // SHARE
BYTES = (1 << 30) // SHARE     # of each size
WARM = 16


def messages_of(size):
    return max(BYTES // size, 1)


def timed(count, call):
    """Returns seconds of one of `count` calls, after a warm-up."""
    for _ in range(WARM):
        call()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def measure(ends, put=None):
    """Measures as the first process. `ends` has trip(), and stream(name, size, count), which waits for the answer."""
    rows = {'message of 8 bytes one way, us': timed(TRIPS, ends.trip) / 2 * 1e6}
    for name, size in SIZES.items():
        ends.stream(name, size, 16)
        start = time.perf_counter()
        ends.stream(name, size, messages_of(size))
        rows[f'messages of {name}, GB/s'] = messages_of(size) * size / (time.perf_counter() - start) / 1e9
    if put:
        rows['write of 8 bytes, us'] = timed(PUTS, lambda: put('8 bytes', 8)) * 1e6
        for name, size in SIZES.items():
            rows[f'writes of {name}, GB/s'] = size / timed(messages_of(size), lambda: put(name, size)) / 1e9
    print(json.dumps(rows))


def answer(ends):
    """Takes part as the second process."""
    for _ in range(WARM + TRIPS):
        ends.trip_back()
    for name, size in SIZES.items():
        ends.take(name, size, 16)
        ends.take(name, size, messages_of(size))


def second(tool, fabric, address):
    """Starts the second process."""
    return subprocess.Popen([sys.executable, __file__, tool, fabric, str(SHARE), address])


class Peerlane:
    """Both processes make progress in their calls, as the other tools' do."""

    def __init__(self, context, peer):
        self.peer, self.word = peer, context.allocate(8)
        self.regions = {name: context.allocate(size) for name, size in SIZES.items()}

    def trip(self):
        self.peer.send(b'12345678', tag=1)
        self.peer.receive(self.word, tag=2)

    def trip_back(self):
        self.peer.receive(self.word, tag=1)
        self.peer.send(b'12345678', tag=2)

    def stream(self, name, size, count):
        window = []
        for _ in range(count):
            if len(window) == 8:
                window.pop(0).wait()
            window.append(self.peer.send_start(self.regions[name], tag=3))
        for one in window:
            one.wait()
        self.peer.receive(self.word, tag=4)

    def take(self, name, size, count):
        window = []
        for _ in range(count):
            if len(window) == 8:
                window.pop(0).wait()
            window.append(self.peer.receive_start(self.regions[name], tag=3))
        for one in window:
            one.wait()
        self.peer.send(b'1', tag=4)


def peerlane(fabric, far):
    import peerlane as pl
    # The second process waits for a receive while the first one measures.
    with pl.Context(fabric=fabric, progress='manual', operation_timeout=600) as context:
        if far:
            peer, target = context.connect(far[0]), context.allocate(max(SIZES.values()), access='rw')
            peer.send(bytes(target.share()), tag=6)
            answer(Peerlane(context, peer))
            peer.receive(context.allocate(8), tag=5)
            return
        listener = context.listen()
        child = second('peerlane', fabric, listener.address)
        peer, token = listener.accept(60), bytearray(256)
        length = peer.receive(context.register(token), tag=6).bytes
        remote, source = peer.import_(bytes(token[:length])), context.allocate(max(SIZES.values()))
        measure(Peerlane(context, peer), lambda name, size: peer.write(remote, source, 0, 0, size))
        peer.send(b'1', tag=5)
        child.wait()


class Zmq:
    def __init__(self, socket):
        self.socket, self.buffers = socket, {name: bytearray(size) for name, size in SIZES.items()}

    def trip(self):
        self.socket.send(b'12345678')
        self.socket.recv()

    def trip_back(self):
        self.socket.recv()
        self.socket.send(b'12345678')

    def stream(self, name, size, count):
        for _ in range(count):
            self.socket.send(self.buffers[name], copy=False)
        self.socket.recv()

    def take(self, name, size, count):
        for _ in range(count):
            assert len(self.socket.recv(copy=False)) == size
        self.socket.send(b'1')


def zmq(fabric, far):
    import zmq as library
    with library.Context() as context, context.socket(library.PAIR) as socket:
        if far:
            socket.connect(far[0])
            answer(Zmq(socket))
            return
        socket.bind('tcp://127.0.0.1:*' if fabric == 'tcp' else f'ipc://@python_peers-{os.getpid()}')
        child = second('zmq', fabric, socket.getsockopt_string(library.LAST_ENDPOINT))
        measure(Zmq(socket))
        child.wait()


class Mpi:
    def __init__(self, comm):
        self.comm, self.other = comm, 1 - comm.Get_rank()
        self.word, self.buffers = bytearray(8), {name: bytearray(size) for name, size in SIZES.items()}

    def trip(self):
        self.comm.Send(self.word, self.other)
        self.comm.Recv(self.word, self.other)

    def trip_back(self):
        self.comm.Recv(self.word, self.other)
        self.comm.Send(self.word, self.other)

    def stream(self, name, size, count):
        window = []
        for _ in range(count):
            if len(window) == 8:
                window.pop(0).Wait()
            window.append(self.comm.Isend(self.buffers[name], self.other))
        for one in window:
            one.Wait()
        self.comm.Recv(self.word, self.other, tag=4)

    def take(self, name, size, count):
        window = []
        for _ in range(count):
            if len(window) == 8:
                window.pop(0).Wait()
            window.append(self.comm.Irecv(self.buffers[name], self.other))
        for one in window:
            one.Wait()
        self.comm.Send(self.word, self.other, tag=4)


def mpi(fabric, far):
    del fabric, far    # mpirun has both
    import mpi4py
    mpi4py.rc.threads = False    # windows over sockets (osc pt2pt) refuse a program with threads
    from mpi4py import MPI
    comm, sources = MPI.COMM_WORLD, {name: bytearray(size) for name, size in {'8 bytes': 8, **SIZES}.items()}
    window = MPI.Win.Allocate(max(SIZES.values()), comm=comm)
    window.Lock_all()

    def put(name, size):
        del size
        window.Put(sources[name], 1)
        window.Flush(1)

    if comm.Get_rank() == 0:
        measure(Mpi(comm), put)
    else:
        answer(Mpi(comm))
    comm.Barrier()
    window.Unlock_all()
    window.Free()


LAUNCHERS = {'peerlane': [], 'zmq': [], 'mpi': ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '2']}
# Open MPI would use memory of the host for messages, and for windows in any case.
OVER_TCP = {'mpi': ['--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self', '--mca', 'btl_tcp_if_include', 'lo', '--mca', 'osc', 'pt2pt']}
TOOLS = {'peerlane': 'peerlane', 'pyzmq': 'zmq', 'mpi4py': 'mpi'}


def run(tool, path, fabric='local', share=1):
    """Returns the results of a tool, or None if it does not run here. `path` is the folder of the package peerlane."""
    name = TOOLS[tool]
    command = [*LAUNCHERS[name], *(OVER_TCP.get(name, []) if fabric == 'tcp' else []), sys.executable, __file__, name, fabric,
               str(share)]
    try:
        done = subprocess.run(command, env={**os.environ, 'PYTHONPATH': path}, capture_output=True, text=True, timeout=300)
    except FileNotFoundError:
        return None
    if done.returncode == 0:
        return json.loads(done.stdout)
    if 'ModuleNotFoundError' not in done.stderr:
        print(f'{tool}: status {done.returncode}: {done.stderr.strip()[-500:]}', file=sys.stderr)
    return None


if __name__ == '__main__':
    {'peerlane': peerlane, 'zmq': zmq, 'mpi': mpi}[sys.argv[1]](sys.argv[2], sys.argv[4:])
