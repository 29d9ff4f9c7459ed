# SPDX-License-Identifier: BSD-2-Clause
"""Pairs of connected contexts, for each fabric and each kind of progress."""
import contextlib
import threading

import peerlane as pl
import pytest

SETTINGS = [('local', 'thread'), ('tcp', 'thread'), ('local', 'manual'), ('tcp', 'manual')]


class Pair:
    """Two contexts in one process: `near` posts the operations, `far` owns the remote memory."""

    def __init__(self, near, far, listener, peer, other):
        self.near, self.far, self.listener, self.peer, self.other = near, far, listener, peer, other

    def remote(self, size=4096, access='rwa'):
        """Return a region of `far` and the remote region that `near` has imported."""
        region = self.far.allocate(size, access=access)
        return region, self.peer.import_(region.share())


@contextlib.contextmanager
def progressing(context):
    """Let a thread make progress in a context without threads of its own."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            try:
                context._wait_event(0.01)
            except pl.Closed:
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def connected(fabric='local', progress='thread', **options):
    with pl.Context(fabric=fabric, progress=progress, **options) as near, \
            pl.Context(fabric=fabric, progress=progress, **options) as far, \
            (progressing(far) if progress == 'manual' else contextlib.nullcontext()):
        with far.listen() as listener:
            peer = near.connect(listener.address, timeout=120)
            other = listener.accept(timeout=120)
            yield Pair(near, far, listener, peer, other)


@pytest.fixture(params=SETTINGS, ids='-'.join)
def pair(request):
    with connected(*request.param) as made:
        yield made


@pytest.fixture
def local():
    with connected() as made:
        yield made
