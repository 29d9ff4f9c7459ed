# SPDX-License-Identifier: BSD-2-Clause
"""Ends of the interpreter, forks, subinterpreters, and lack of descriptors."""
import asyncio
import contextlib
import errno
import gc
import os
import resource
import subprocess
import sys
import traceback
import warnings

import peerlane as pl
import pytest
from conftest import connected
from peerlane import aio


def in_child(function):
    """Run a function in a forked child. Return its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_gets_errors(local):
    region, remote = local.remote(64)
    mine = local.near.register(bytearray(64))
    operation = local.peer.receive_start(mine, tag=3)

    def child():
        for call in (lambda: local.peer.write(remote, mine), mine.share, local.near.listen, operation.wait,
                     local.peer.info):
            with pytest.raises(RuntimeError) as caught:
                call()
            assert caught.value.id == 'PY-FORKED', caught.value
        local.peer.close()
        local.near.close()
        with pl.Context() as context:
            context.allocate(8)

    assert in_child(child) == 0
    local.peer.write(remote, mine)
    local.other.send(b'x', tag=3)
    assert operation.wait(120).bytes == 1


SCRIPTS = {
    'open': 'c = pl.Context(fabric="local"); r = c.allocate(64)',
    'viewed': 'c = pl.Context(fabric="local"); v = memoryview(c.allocate(64)); v[0] = 1',
    'running': 'a = pl.Context(); b = pl.Context(); l = a.listen(); p = b.connect(l.address); q = l.accept()\n'
               'o = p.receive_start(b.register(bytearray(8)))',
    'thread': 'import contextlib, threading; a = pl.Context(); l = a.listen()\n'
              'def run():\n    with contextlib.suppress(pl.Error):\n        l.accept()\n'
              'threading.Thread(target=run, daemon=True).start()',
    'cycle': 'c = pl.Context(); c.self = c',
    # The last references go in a daemon thread, which is closing a context when the end begins.
    'dropped': 'import threading; pool = [pl.Context() for _ in range(20)]; gone = threading.Event()\n'
               'def run():\n    while pool:\n        pool.pop()\n        gone.set()\n'
               'threading.Thread(target=run, daemon=True).start(); gone.wait()',
}


@pytest.mark.parametrize('name', SCRIPTS)
def test_the_interpreter_ends_cleanly(name):
    done = subprocess.run([sys.executable, '-c', 'import peerlane as pl\n' + SCRIPTS[name]], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (0, '') or 'ResourceWarning' in done.stderr and done.returncode == 0


SUBINTERPRETER = """
import sys
import peerlane as pl
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    made = interpreters.create(sys.argv[2])
else:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated=sys.argv[2] == 'isolated')
with pl.Context() as context:
    interpreters.run_string(made, sys.argv[1])
    interpreters.destroy(made)
    print(context.allocate(8).length)
"""


@pytest.mark.parametrize('kind', ['legacy', 'isolated'])
def test_a_subinterpreter_is_refused(kind):
    """The main interpreter goes on. From 3.12 on Python itself refuses where interpreters do not share a lock."""
    code = f'import sys; sys.path[:] = {sys.path!r}\ntry:\n    import peerlane\nexcept ImportError as error:\n    print(error, flush=True)'
    done = subprocess.run([sys.executable, '-c', SUBINTERPRETER, code, kind], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and 'subinterpreter' in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith('\n8\n')


@contextlib.contextmanager
def no_descriptor():
    """No further descriptor can be opened meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize('kind', ['context', 'subscriber', 'notifications'])
def test_a_lack_of_descriptors_has_a_name(kind):
    with connected('tcp') as pair, pair.far.publish('stream', slot_bytes=8), pair.peer.subscribe('stream') as subscriber:
        call = {'context': pair.near.fileno, 'subscriber': subscriber.fileno,
                'notifications': lambda: list(pair.near.notifications(1))}[kind]
        with no_descriptor(), pytest.raises(pl.Error) as caught:
            call()
        error = caught.value
        assert (error.errno, error.id, error.call) == (errno.EMFILE, 'DESCRIPTOR-LIMIT', 'fileno') and 'ulimit' in error.hint


def test_a_context_of_asyncio_without_a_descriptor_is_closed(monkeypatch):
    """The class of the loop's contexts asks for the descriptor when it opens."""
    seen = []

    def refuse(self):
        seen.append(self)
        raise OSError(errno.EMFILE, 'none')

    async def main():
        with pytest.raises(OSError, match='none'):
            aio.Context()
    monkeypatch.setattr(aio.Context, 'fileno', refuse)
    asyncio.run(main())
    assert seen[0].closed


def test_an_unclosed_context_warns_and_is_closed():
    before = len(os.listdir('/proc/self/fd'))
    with pytest.warns(ResourceWarning, match='unclosed context'):
        context = pl.Context()
        del context
        gc.collect()
    assert len(os.listdir('/proc/self/fd')) == before
