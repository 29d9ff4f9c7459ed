# SPDX-License-Identifier: BSD-2-Clause
"""A function of the program that decides about other ends."""
import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
import time
import weakref

import peerlane as pl
import pytest
from peerlane import aio

from conftest import SETTINGS, progressing

pytestmark = pytest.mark.skipif(not os.environ.get('PEERLANE'), reason='the command, which makes identities, is not built')
NAMES = ('server', 'alice', 'bob')


@pytest.fixture(scope='module')
def identities(tmp_path_factory):
    """Files of identities by name."""
    files = {name: str(tmp_path_factory.mktemp('identities') / name) for name in NAMES}
    for file in files.values():
        subprocess.run([os.environ['PEERLANE'], 'key', 'generate', file], check=True, capture_output=True)
    return files


@pytest.mark.parametrize('fabric, progress', SETTINGS, ids=['-'.join(setting) for setting in SETTINGS])
def test_a_function_admits_other_ends(identities, fabric, progress):
    prints = {name: pl.fingerprint(file) for name, file in identities.items()}
    asked, answered, refused = [], [], []

    def decide(identity):
        asked.append(identity)
        return {'access': 'r', 'quota': 10, 'until': 4e9, 'names': 'a*'} if identity['fingerprint'] == prints['alice'] else False

    def check_server(identity):
        answered.append(identity)
        return True

    with pl.Context(fabric=fabric, progress=progress, identity=identities['server'], authorize=decide,
                    refused=lambda *about: refused.append(about)) as server, \
            progressing(server), server.listen() as listener:
        with pl.Context(fabric=fabric, identity=identities['alice'], authorize=check_server) as near:
            peer, other = near.connect(listener.address, timeout=120), listener.accept(timeout=120)
            region = server.allocate(64, access='rw')
            assert peer.import_(region.share(rights='r')).rights == 'r'
            with pytest.raises(pl.Denied):
                peer.import_(region.share(rights='w'))
            got = other.identity()
            assert (got['access'], got['quota'], got['until'], got['names']) == ('r', 10, 4e9, 'a*')
        with pl.Context(fabric=fabric, identity=identities['bob']) as near, pytest.raises(pl.Denied) as caught:
            near.connect(listener.address, timeout=120)
        assert caught.value.id == 'IDENTITY-REFUSED'
    (identity, error), = refused
    assert identity['fingerprint'] == prints['bob'] and 'access' not in identity
    assert isinstance(error, pl.Denied) and error.id == 'IDENTITY-REFUSED'
    assert [identity['fingerprint'] for identity in asked] == [prints['alice'], prints['bob']]
    assert asked[0]['connected_to_us'] and asked[0]['access'] == 'rwa' and asked[0].keys() == got.keys()
    assert [(identity['fingerprint'], identity['connected_to_us']) for identity in answered] == [(prints['server'], False)]


def await_closed(thing):
    limit = time.monotonic() + 120
    while not thing.closed and time.monotonic() < limit:
        time.sleep(0.001)
    assert thing.closed


def test_a_view_that_goes_in_the_function_closes_its_region():
    """The engine waits for the function, so that another thread closes the region after it."""
    views = []

    def decide(identity):
        views.clear()
        return True

    with pl.Context(authorize=decide) as server, server.listen() as listener, pl.Context() as near:
        with pytest.raises(KeyError):
            with server.allocate(8) as region:
                views.append(memoryview(region))
                raise KeyError('the cause')
        assert not region.closed
        near.connect(listener.address, timeout=120)
        assert not views
        await_closed(region)


@pytest.mark.parametrize('answer', [None, 1, {'access': 'x'}, {'quota': -1}, {'clients': 2**32}, {'names': 'n' * 512},
                                    {'until': 'x'}, {'nothing': 1}, {1: 1}, ZeroDivisionError])
def test_exceptions_and_wrong_answers_refuse(identities, monkeypatch, answer):
    reported = []

    def decide(identity):
        if answer is ZeroDivisionError:
            raise answer
        return answer

    monkeypatch.setattr(sys, 'unraisablehook', lambda about: reported.append(about.exc_type))
    with pl.Context(authorize=decide) as server, server.listen() as listener, pl.Context() as near:
        with pytest.raises(pl.Denied):
            near.connect(listener.address, timeout=120)
    assert len(reported) == 1 and issubclass(reported[0], answer if isinstance(answer, type) else (TypeError, ValueError))


def test_an_exception_of_a_function_for_refused_ends(monkeypatch):
    def learn(identity, error):
        raise KeyError(error.id)

    reported = []
    monkeypatch.setattr(sys, 'unraisablehook', lambda about: reported.append(str(about.exc_value)))
    with pl.Context(key=b'a key of 16 bytes', refused=learn) as server, server.listen() as listener, \
            pl.Context(key=b'another 16 bytes') as near:
        with pytest.raises(pl.Denied):
            near.connect(listener.address, timeout=120)
    # The close waits for the function.
    assert reported == ["'AUTH-KEY-MISMATCH'"]


def test_a_reload_asks_again(identities):
    refused = []
    with pl.Context(authorize=lambda identity: identity['address'] not in refused) as server, \
            server.listen() as listener, pl.Context() as near:
        peer = near.connect(listener.address, timeout=120)
        other = listener.accept(timeout=120)
        server.reload()
        assert peer.connected and other.connected
        refused.append(other.identity()['address'])
        server.reload()
        assert not other.connected


def answer_while_a_function_decides():
    """Return what another thread sees of an operation whose end the deciding thread is about to see."""
    answers = []

    def decide(identity):
        if not identity['connected_to_us']:
            return True
        thread = threading.Thread(target=lambda: answers.append(operation.done()))
        thread.start()
        thread.join()
        return True

    def settle():
        time.sleep(0.05)

    with pl.Context(fabric='tcp', progress='manual', authorize=decide) as server, server.listen() as listener, \
            pl.Context(fabric='tcp') as near, near.listen() as other, socket.create_server(('127.0.0.1', 0)) as gate:
        peer = server.connect(other.address, timeout=120)
        far, region = other.accept(timeout=120), server.allocate(64)
        idle = peer.receive_start(server.allocate(64), tag=1, timeout=None)
        client = threading.Thread(target=lambda: pytest.raises(pl.Error, near.connect, '%s:%d' % gate.getsockname(), timeout=120))
        client.start()
        with gate.accept()[0] as left, socket.create_connection(listener.address.rsplit(':', 1)) as right:
            left.settimeout(120), right.setblocking(False)
            while not answers:
                # The message is there first, and what the client says last.
                operation = peer.receive_start(region)
                sent = far.send_start(b'x')
                settle()
                right.sendall(left.recv(1 << 16))
                settle()
                while not operation.done():
                    pass
                operation.wait(), sent.wait()
                end = time.monotonic() + 0.1
                while time.monotonic() < end:
                    assert not idle.done()
                with contextlib.suppress(BlockingIOError):
                    left.sendall(right.recv(1 << 16))
                settle()
        client.join()
    return answers


def test_threads_test_one_operation_while_a_function_decides():
    # On a busy machine the function may run when the end was seen already, and the answer is True.
    assert any(answer_while_a_function_decides() == [False] for _ in range(5))


def test_functions_and_contexts_end(identities):
    for wrong in (dict(authorize='all'), dict(refused=1)):
        with pytest.raises(TypeError, match='function'):
            pl.Context(**wrong)

    def use():
        context = pl.Context(authorize=lambda identity: not context.closed, refused=lambda *about: print(context, about))
        context.close()
        return weakref.ref(context)

    async def use_loop():
        async with aio.Context() as context:
            return weakref.ref(context)

    gone = use(), asyncio.run(use_loop())
    gc.collect()
    assert [context() for context in gone] == [None, None]


# The thread that asks the function holds the lock of the engine for which other calls wait.
WAITING_PROGRAM = """
import asyncio, threading
import peerlane as pl
from peerlane import aio
entered, gate = threading.Event(), threading.Event()
def decide(identity):
    entered.set()
    return gate.wait(120)
async def main():
    async with aio.Context(authorize=decide) as server:
        listener = server.listen()
        with pl.Context() as near:
            gate.set()
            accepted = listener.accept()
            first = await asyncio.to_thread(near.connect, listener.address, timeout=120)
            other = await accepted
            for call in (other.identity, lambda: other.receive(server.allocate(8)).cancel()):
                entered.clear(), gate.clear()
                second = asyncio.create_task(asyncio.to_thread(near.connect, listener.address, timeout=120))
                assert await asyncio.to_thread(entered.wait, 120)
                threading.Timer(0.1, gate.set).start()
                call()
                await second
asyncio.run(main())
print('done')
"""


def test_calls_of_other_threads_go_on(identities):
    done = subprocess.run([sys.executable, '-c', WAITING_PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, 'done\n'), done.stderr


def test_no_collection_ends_a_peer_under_the_engines_lock(identities):
    held = []

    def decide(identity):
        if held:
            cycle = [held.pop()]
            cycle.append(cycle)
            del cycle
            _ = [[] for _ in range(20000)]    # more than a collection waits for
        return True

    with pl.Context(fabric='tcp', identity=identities['server'], authorize=decide, workers=1) as server, \
            server.listen() as listener, \
            pl.Context(fabric='tcp', identity=identities['alice'], authorize=lambda identity: True) as near:
        near.connect(listener.address, timeout=120)
        held.append(listener.accept(timeout=120))
        near.connect(listener.address, timeout=120)
        listener.accept(timeout=120)
        assert not held and gc.isenabled()
        gc.collect()


# The function runs on the thread that holds the lock of the engine, for which the end of a peer waits.
DROPPING_PROGRAM = """
import contextvars, resource, sys, threading, time, weakref
import peerlane as pl
how, progress = sys.argv[1:]
held, peers, watched = [], [], []
local, variable = threading.local(), contextvars.ContextVar('peer')
memory = resource.getrlimit(resource.RLIMIT_AS)
def drop():
    held.pop()
    dropped.set()
def decide(identity):
    if held and how == 'other':
        threading.Thread(target=drop).start()
        assert dropped.wait(120)
        for _ in range(1000):
            str(_)
    if held and how == 'local':
        local.last = held.pop()
    if held and how == 'variable':
        variable.set(held.pop())
    if held and how == 'no-thread':
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, memory[1]))
    held.clear()
    resource.setrlimit(resource.RLIMIT_AS, memory)
    return True
dropped = threading.Event()
# Too small for the stack of a thread of the library, which could take that of a thread that ended.
threading.stack_size(1 << 18)
server = pl.Context(fabric='tcp', progress=progress, authorize=decide)
listener = server.listen()
with pl.Context(fabric='tcp') as near:
    def connect():
        peers.append(near.connect(listener.address, timeout=120))
    for _ in range(2):
        client = threading.Thread(target=connect)
        client.start()
        held.append(listener.accept(timeout=120))
        watched.append(weakref.ref(held[-1]))
        client.join()
    # The thread or its next call of the function ends what only a variable of the thread holds.
    if how not in ('local', 'variable') or progress == 'thread':
        while watched[0]() is not None:
            time.sleep(0.01)
    assert watched[1]().connected
    local.__dict__.clear()
    variable.set(None)
    while peers[0].connected:
        pass
    assert peers[1].connected
held.clear()
server.close()
print('done')
"""


@pytest.mark.parametrize('progress', ['manual', 'thread'])
@pytest.mark.parametrize('how', ['own', 'other', 'local', 'variable', 'no-thread'])
def test_a_function_drops_a_peer(how, progress):
    if how == 'other' and getattr(sys, '_is_gil_enabled', lambda: True)():
        pytest.skip('with a global lock the other thread ends the peer itself')
    if how == 'no-thread' and 'libasan' in os.environ.get('LD_PRELOAD', ''):
        pytest.skip('AddressSanitizer ends a program that lacks address space')
    done = subprocess.run([sys.executable, '-c', DROPPING_PROGRAM, how, progress], capture_output=True, text=True,
                          timeout=300)
    assert (done.returncode, done.stdout) == (0, 'done\n'), done.stderr


# A context with a memoryview stays open at exit. The first handler runs last, after the one of peerlane.
ENDING_PROGRAM = """
import atexit, threading, time
def report():
    print(*asked)
    try:
        with pl.Context() as late:
            late.connect(listener.address, timeout=120)
    except pl.Denied as error:
        print(error.id, *asked)
atexit.register(report)
import peerlane as pl
asked, entered = [], threading.Event()
def decide(identity):
    entered.set()
    time.sleep(0.2)
    asked.append('decided')
    return True
def connect():
    try:
        near.connect(listener.address, timeout=120)
    except pl.Error:
        pass
server, near = pl.Context(authorize=decide), pl.Context()
view, listener = memoryview(server.allocate(8)), server.listen()
threading.Thread(target=connect, daemon=True).start()
entered.wait(120)
"""


def test_no_function_is_called_at_the_end_of_the_interpreter(identities):
    done = subprocess.run([sys.executable, '-c', ENDING_PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, 'decided\nIDENTITY-NEEDED decided\n'), done.stderr


def test_a_view_that_goes_in_authorize_ends_its_context_later():
    """The end waits for the engine, which waits for the function: another thread closes the context after it."""
    views = []

    def decide(about):
        views.pop().release()
        return True

    with pytest.raises(KeyError):
        with pl.Context(fabric='tcp', authorize=decide) as context:
            listener = context.listen()
            views.append(memoryview(context.allocate(8)))
            raise KeyError('the cause')
    with pl.Context(fabric='tcp') as near, contextlib.suppress(pl.Error):
        near.connect(listener.address, timeout=120)
    assert not views
    await_closed(context)
