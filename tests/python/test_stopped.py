# SPDX-License-Identifier: BSD-2-Clause
"""A peer whose process is stopped: each operation can be cancelled, and the memory is the program's afterwards."""
import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import peerlane as pl
import pytest
from peerlane import aio

LARGE = 64 << 20
SERVER = f'''
import sys, threading, peerlane as pl
context = pl.Context(fabric=sys.argv[1], lanes=1)
region, shared = context.allocate({LARGE}, access="rwa"), context.allocate(4096, access="r")
listener = context.listen()
print(listener.address, bytes(region.share()).hex(), bytes(shared.share()).hex(), flush=True)
peers = []
for line in sys.stdin:
    peers.append(listener.accept())
'''
STAGES = ['connect', 'import', 'write', 'read', 'writev', 'readv', 'fetch_add', 'send', 'receive']


@contextlib.contextmanager
def server(fabric):
    """Start a process with a listener and a region; yield the process, and what it has printed."""
    process = subprocess.Popen([sys.executable, '-c', SERVER, fabric], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdin.write('accept\n')
        process.stdin.flush()
        yield process, process.stdout.readline().split()
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@contextlib.contextmanager
def stopped(process):
    """Stop a process, and let it go on afterwards."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def calls(context, peer, remote, memory, address, other):
    """Return a function for each stage that begins its operation."""
    half = LARGE // 2
    return {'connect': lambda: context.connect(address), 'import': lambda: peer.import_(bytes.fromhex(other)),
            'write': lambda: peer.write(remote, memory), 'read': lambda: peer.read(remote, memory),
            'writev': lambda: peer.writev(remote, memory, [half, 0], [0, half], half),
            'readv': lambda: peer.readv(remote, memory, [half, 0], [0, half], half),
            'fetch_add': lambda: peer.fetch_add(remote, 0, 1), 'send': lambda: peer.send(memory, tag=1),
            'receive': lambda: peer.receive(memory, tag=2)}


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_each_operation_is_cancelled_while_the_peer_is_stopped(fabric):
    """After each cancellation the memory has a pattern, which stays when the peer goes on."""
    async def main(process, address, token, other):
        async with aio.Context(fabric=fabric, lanes=1) as context:
            peer = await context.connect(address)
            remote = await peer.import_(bytes.fromhex(token))
            memory = context.allocate(LARGE)
            pattern = b'\xa5' * LARGE
            begin = calls(context, peer, remote, memory, address, other)
            assert list(begin) == STAGES
            with memoryview(memory) as view:
                with stopped(process):
                    for stage in STAGES:
                        future = begin[stage]()
                        # Operations of the local fabric end without the other process.
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.05):
                                await future
                        assert future.done() and context._pending == 0, stage
                        view[:] = pattern
                # An answer of the peer comes after what it had still to send.
                with contextlib.suppress(pl.Error):
                    await peer.fetch_add(remote, 0, 1) if peer.connected else await asyncio.sleep(0.2)
                assert bytes(view) == pattern
            memory.deregister()
    with server(fabric) as (process, printed):
        asyncio.run(main(process, *printed))


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_each_operation_ends_when_the_stopped_peer_dies(fabric):
    """Operations of all stages are in flight. They end by themselves, with a named error unless they had succeeded."""
    async def main(process, address, token, other):
        async with aio.Context(fabric=fabric, lanes=1) as context:
            peer = await context.connect(address)
            remote = await peer.import_(bytes.fromhex(token))
            memory = context.allocate(LARGE)
            begin = calls(context, peer, remote, memory, address, other)
            with stopped(process):
                running = {stage: begin[stage]() for stage in STAGES}
                process.kill()
                done, left = await asyncio.wait(running.values(), timeout=300)
            assert not left and context._pending == 0
            for stage, future in running.items():
                error = future.exception()
                assert error is None or isinstance(error, pl.Error) and error.id, (stage, error)
            # Without the other process none of these can succeed.
            assert all(running[stage].exception() for stage in ('connect', 'import', 'receive'))
            with memoryview(memory) as view:
                view[:] = b'\xa5' * LARGE
                for stage in STAGES:
                    with pytest.raises(pl.Error) as caught:
                        await asyncio.wait_for(begin[stage](), 300)
                    assert caught.value.id and not isinstance(caught.value, TimeoutError), stage
                assert bytes(view) == b'\xa5' * LARGE
            memory.deregister()
    with server(fabric) as (process, printed):
        asyncio.run(main(process, *printed))


@pytest.mark.parametrize('stage', ['write', 'read', 'writev', 'readv', 'send', 'receive'])
def test_an_operation_is_cancelled_by_a_thread(stage):
    with server('tcp') as (process, (address, token, other)), pl.Context(fabric='tcp', lanes=1) as context:
        peer = context.connect(address)
        remote, memory = peer.import_(bytes.fromhex(token)), context.allocate(LARGE)
        half = LARGE // 2
        begin = {'write': lambda: peer.write_start(remote, memory), 'read': lambda: peer.read_start(remote, memory),
                 'writev': lambda: peer.writev_start(remote, memory, [half, 0], [0, half], half),
                 'readv': lambda: peer.readv_start(remote, memory, [half, 0], [0, half], half),
                 'send': lambda: peer.send_start(memory, tag=1), 'receive': lambda: peer.receive_start(memory, tag=2)}
        with stopped(process):
            operation = begin[stage]()
            with pytest.raises(TimeoutError):
                operation.wait(0.05)
            assert not operation.done()
            operation.cancel()
            with pytest.raises(pl.Cancelled):
                operation.wait(300)
            with memoryview(memory) as view:
                view[:] = b'\xa5' * LARGE
        with contextlib.suppress(pl.Error):
            peer.fetch_add(remote, 0, 1)
        with memoryview(memory) as view:
            assert bytes(view) == b'\xa5' * LARGE
        memory.deregister()


def test_an_interrupt_ends_a_read_while_the_peer_is_stopped():
    with server('tcp') as (process, (address, token, _)), pl.Context(fabric='tcp', lanes=1) as context:
        peer = context.connect(address)
        remote, memory = peer.import_(bytes.fromhex(token)), context.allocate(LARGE)
        with stopped(process):
            old = signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                with pytest.raises(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.1)
                    peer.read(remote, memory)
            finally:
                signal.signal(signal.SIGALRM, old)
            memory.deregister()


def test_a_context_closes_while_its_peer_is_stopped():
    with server('tcp') as (process, (address, token, _)):
        context = pl.Context(fabric='tcp', lanes=1)
        peer = context.connect(address)
        remote, memory = peer.import_(bytes.fromhex(token)), context.allocate(LARGE)
        with stopped(process):
            operation = peer.read_start(remote, memory)
            context.close()
            with pytest.raises(pl.Error):
                operation.wait()
            assert context.closed
