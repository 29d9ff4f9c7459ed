# SPDX-License-Identifier: BSD-2-Clause
"""Errors, ends of objects, threads and signals."""
import ctypes
import errno
import gc
import os
import pathlib
import pickle
import re
import signal
import sys
import threading
import time
import traceback

import peerlane as pl
import pytest
from peerlane._errors import make_error

ROOT = pathlib.Path(__file__).parents[2]


def test_an_error_is_an_os_error_with_detail(local):
    _, remote = local.remote(8, access='r')
    with pytest.raises(PermissionError) as caught:
        local.peer.write(remote, local.near.register(bytearray(8)))
    error = caught.value
    assert isinstance(error, pl.Denied) and isinstance(error, OSError)
    assert error.errno == errno.EACCES and error.id and error.call and error.strerror
    assert f'[{error.id}]' in str(error)
    assert not error.hint or f'hint: {error.hint}' in ''.join(traceback.format_exception(error))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.errno, copy.id, copy.hint) == (type(error), error.errno, error.id, error.hint)


@pytest.mark.parametrize('call, kind', [
    (lambda context: context.connect('127.0.0.1:1', timeout=2), ConnectionRefusedError),
    (lambda context: context.connect('no address'), pl.Error),
    (lambda context: context.listen('no address'), pl.Error),
    (lambda context: context.allocate(0), ValueError),
    (lambda context: context.allocate(-1), ValueError),
    (lambda context: context.allocate(8, 'tape'), ValueError),
    (lambda context: context.allocate(8, access='x'), ValueError),
    (lambda context: context.allocate(8, wrong=1), TypeError),
    (lambda context: context.allocate(8, length=8), TypeError),
    (lambda context: context.allocate(), TypeError),
    (lambda context: context.allocate(8, 'host', 'r', 1), TypeError),
    (lambda context: context.allocate(8).share(length=0), ValueError),
    (lambda context: context.allocate(8).share(offset=9), ValueError),
    (lambda context: context.allocate(8, access='r').share(rights='w'), PermissionError),
    (lambda context: context.allocate(8, access='rs').share(rights='s'), ValueError),
    (lambda context: context.allocate(8).revoke(b'no token'), pl.Error),
    (lambda context: pl.Token(b'no token'), ValueError),
    (lambda context: context.connect('127.0.0.1:1', timeout=-1), ValueError),
    (lambda context: context.connect('127.0.0.1:1', timeout=float('nan')), ValueError),
    (lambda context: context.connect('a\0b'), ValueError),
])
def test_wrong_arguments_raise(call, kind):
    with pl.Context() as context, pytest.raises(kind):
        call(context)


@pytest.mark.parametrize('options, kind', [
    ({'fabric': 'pigeon'}, OSError), ({'wrong': 1}, TypeError), ({'progress': 'magic'}, ValueError),
    ({'key': b'short'}, ValueError), ({'workers': 2**40}, ValueError), ({'workers': 'many'}, TypeError),
    ({'key': b'x' * 16, 'key_file': '/dev/null'}, TypeError), ({'key_file': '/nowhere'}, FileNotFoundError)])
def test_wrong_options_raise_and_leave_nothing(options, kind):
    with pytest.raises(kind):
        pl.Context(**options)
    gc.collect()


@pytest.mark.parametrize('error_id, is_file', [('KEY-FILE-MISSING', True), ('SYSTEM', True), ('PY-NO-GRANT', False),
                                               ('STREAM-UNKNOWN', False)])
def test_only_missing_files_are_called_so(error_id, is_file):
    error = make_error(errno.ENOENT, error_id, '', '', 'not there', '')
    assert isinstance(error, pl.Missing) == isinstance(error, FileNotFoundError) == is_file and error.errno == errno.ENOENT


def test_a_fork_that_the_interpreter_does_not_see():
    with pl.Context() as context, context.listen() as listener:
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            try:
                context.connect(listener.address)
            except pl.Forked as error:
                os._exit(error.id != 'FORKED')
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_key_files_are_private(tmp_path):
    path = tmp_path / 'key'
    path.write_bytes(b'kQ7vX2pL9mR4tY8wB3nZ6cF1\n')
    path.chmod(0o644)
    with pytest.raises(pl.Denied) as caught:
        pl.Context(key_file=path)
    assert (caught.value.id, caught.value.object) == ('KEY-FILE-OPEN', str(path))
    assert caught.value.hint.startswith(f'run `chmod o= {path}`')
    path.chmod(0o600)
    with pl.Context(key_file=path) as far, pl.Context(key=b'kQ7vX2pL9mR4tY8wB3nZ6cF1') as near, \
            pl.Context(key=b'another key of some length') as stranger:
        listener = far.listen()
        assert near.connect(listener.address).info()['authenticated']
        with pytest.raises(PermissionError):
            stranger.connect(listener.address)


@pytest.mark.parametrize('key, kind', [
    (b'x' * 15, 'KEY-FILE-LENGTH'), (b'x' * 1025, 'KEY-FILE-LENGTH'), (b'0123456789abcdefghij', 'KEY-FILE-WEAK')])
def test_wrong_keys_in_files_raise(tmp_path, key, kind):
    path = tmp_path / 'key'
    path.write_bytes(key)
    path.chmod(0o600)
    with pytest.raises(pl.Invalid, match=kind):
        pl.Context(key_file=path)


def test_use_after_the_end_is_a_named_error(local):
    region, remote = local.remote(64)
    mine = local.near.register(bytearray(64))
    remote.release()
    with pytest.raises(pl.Closed) as caught:
        local.peer.write(remote, mine)
    assert (caught.value.id, caught.value.object) == ('PY-CLOSED', 'Remote')
    remote = local.peer.import_(region.share())
    mine.deregister()
    with pytest.raises(pl.Closed):
        local.peer.write(remote, mine)
    mine = local.near.register(bytearray(64))
    running = local.peer.receive_start(mine)
    local.peer.close()
    local.peer.close()
    assert local.peer.closed and not local.peer.connected
    with pytest.raises(pl.Closed):
        local.peer.write(remote, mine)
    with pytest.raises(pl.Error):
        running.wait(120)
    local.listener.close()
    with pytest.raises(pl.Closed):
        local.listener.accept()
    local.near.close()
    local.near.close()
    for call in (lambda: mine.length, lambda: remote.rights, local.peer.info, lambda: local.near.allocate(8),
                 lambda: local.near.listen(), lambda: memoryview(mine), local.near.fileno, mine.share):
        with pytest.raises(pl.Closed):
            call()
    assert repr(mine) == '<peerlane.Region, closed>' and repr(remote) == '<peerlane.Remote, closed>'
    assert repr(local.peer) == '<peerlane.Peer, closed>' and repr(local.listener) == '<peerlane.Listener, closed>'
    assert repr(local.near) == '<peerlane.Context, closed>'


def test_objects_show_what_they_are(local):
    region, remote = local.remote(64)
    assert repr(local.near) == '<peerlane.Context, open>' and repr(local.listener) == f'<peerlane.Listener {local.listener.address}>'
    assert repr(local.peer) == f'<peerlane.Peer {local.listener.address}, local, connected>'
    assert repr(remote) == "<peerlane.Remote 64 bytes, 'rwa'>"
    assert pl.__version__ == pl.version


def test_objects_of_other_contexts_are_refused(local):
    region, remote = local.remote(64)
    with pytest.raises(pl.Invalid, match='PY-FOREIGN'):
        local.peer.write(remote, region)
    with pytest.raises(TypeError, match='register'):
        local.peer.write(remote, bytearray(8))
    with pytest.raises(TypeError):
        local.peer.write(region, local.near.register(bytearray(8)))
    for kind in (pl.Region, pl.Peer, pl.Remote, pl.Receipt, pl.Operation, pl.Listener):
        with pytest.raises(TypeError):
            kind()


def test_a_lost_peer_is_reported(local):
    waiting = local.other.receive_start(local.far.register(bytearray(8)))
    local.peer.close()
    with pytest.raises(ConnectionError):
        waiting.wait(120)
    deadline = time.monotonic() + 120
    while not (lost := local.far.lost_peers()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert lost == [local.other] and not local.other.connected and local.far.lost_peers() == []


def test_a_lost_peer_that_was_given_up_is_closed(local):
    """Events keep no reference to peers."""
    for _ in range(3):
        peer = local.near.connect(local.listener.address)
        other = local.listener.accept(120)
        peer.close()
        while other.connected:
            time.sleep(0.001)
        list(local.far.notifications(0))
        assert sys.getrefcount(other) == 2


def test_a_revoked_token_ends_a_remote_region(local):
    region = local.far.allocate(64, access='rw')
    token = region.share(8, 16, 'r', lifetime=1000)
    assert (token.length, token.rights) == (16, 'r') and token.expires > time.time()
    remote = local.peer.import_(token)
    region.revoke(token)
    with pytest.raises(PermissionError):
        local.peer.read(remote, local.near.register(bytearray(16)))
    with pytest.raises(pl.Error, match='PY-NO-GRANT') as caught:
        region.revoke(token)
    assert not isinstance(caught.value, FileNotFoundError)


def test_close_ends_waits_of_other_threads(local):
    seen = []

    def wait(call):
        try:
            call()
        except pl.Error as error:
            seen.append(error.id)

    region = local.far.register(bytearray(8))
    operation = local.other.receive_start(region, tag=1)
    calls = [operation.wait, lambda: local.other.receive(region, tag=2), lambda: local.listener.accept(),
             lambda: [None for _ in local.far.notifications()]]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    local.far.close()
    for thread in threads:
        thread.join(120)
    assert len(seen) == 4


def test_waits_let_other_threads_run(local):
    counted = 0
    waiting = threading.Thread(target=lambda: local.other.receive(local.far.register(bytearray(8))))
    waiting.start()
    for _ in range(10000):
        counted += 1
    assert waiting.is_alive() and counted == 10000
    local.peer.send(b'x')
    waiting.join(120)
    assert not waiting.is_alive()


def test_threads_share_a_peer(local):
    region, remote = local.remote(16 * 64)
    failures = []

    def run(number):
        mine = local.near.register(bytearray([number] * 64))
        try:
            for _ in range(5000):
                local.peer.write(remote, mine, number * 64)
                local.peer.write_start(remote, mine, number * 64).wait()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert bytes(memoryview(region)) == b''.join(bytes([number] * 64) for number in range(16))


def test_objects_that_go_while_the_context_closes():
    """Regions and operations lose their last references in one thread while another closes their context."""
    from conftest import connected
    for _ in range(15):
        with connected() as pair:
            regions = [pair.far.register(bytearray(64)) for _ in range(30)]
            running = [pair.other.receive_start(region, tag=at) for at, region in enumerate(regions[:10])]
            closing = threading.Thread(target=pair.far.close)
            closing.start()
            running.clear()
            regions.clear()
            closing.join()


def test_two_threads_end_one_region(local):
    for _ in range(50):
        region = local.near.register(bytearray(64))
        threads = [threading.Thread(target=region.deregister) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert region.closed


@pytest.mark.parametrize('call', ['receive', 'accept', 'wait', 'notifications'])
def test_an_interrupt_ends_a_wait(local, call):
    region = local.near.register(bytearray(8))
    operation = local.peer.receive_start(region, tag=1)
    calls = {'receive': lambda: local.peer.receive(region), 'accept': local.listener.accept, 'wait': operation.wait,
             'notifications': lambda: list(local.near.notifications())}
    threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        calls[call]()
    local.other.send(b'x', tag=1)
    assert operation.wait(120).bytes == 1
    region.deregister()


def test_a_handler_may_close_the_context(local):
    region = local.near.register(bytearray(8))
    old = signal.signal(signal.SIGUSR1, lambda *_: local.near.close())
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(pl.Cancelled):
            local.peer.receive(region)
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_counters(local):
    region, remote = local.remote(4096)
    mine = local.near.register(bytearray(4096))
    assert local.near.traffic()['write'] == {} and local.near.error_counts() == {}
    for _ in range(3):
        local.peer.write(remote, mine)
    local.peer.write_start(remote, mine).wait()
    counted = local.near.traffic()['write']['local']
    assert (counted['done'], counted['failed'], counted['bytes'], counted['staged']) == (4, 0, 4 * 4096, 0)
    assert sum(counted['times']) == 4 and counted['seconds'] > 0
    receive = local.peer.receive_start(mine, tag=1)
    receive.cancel()
    with pytest.raises(pl.Error):
        receive.wait()
    assert local.near.error_counts() == {'OPERATION-CANCELED': 1}
    assert local.near.traffic()['receive']['local']['failed'] == 1
    state = local.near.state()
    assert (state['peers'], state['lost'], state['errors'], state['running']) == (1, 0, 1, 0)
    assert state['regions'] >= 1 and state['remotes'] == 1
    none = dict.fromkeys(['peers', 'running', 'fenced', 'receives', 'unexpected'], 0)
    receive = local.peer.receive_start(mine, tag=1)
    assert local.near.queues() == {'local': {**none, 'peers': 1, 'receives': 1}, 'verbs': none, 'tcp': none}
    receive.cancel()
    with pytest.raises(pl.Error):
        receive.wait()
    local.near.close()
    for ask in local.near.traffic, local.near.error_counts, local.near.state, local.near.queues:
        with pytest.raises(pl.Error):
            ask()


def test_queries(local):
    info = local.peer.info()
    assert info['fabric'] == 'local' and info['connected'] and info['same_host'] and info['software'].startswith('peerlane')
    assert local.peer.identity()['access'] == 'rwa'
    assert any(event['event'] == 'connected' for event in local.peer.events())
    assert local.near.staging()['limit'] > 0 and 'found' in local.near.registrations()
    assert re.fullmatch(r'\d+\.\d+\.\d+', pl.version)
    with pytest.raises(pl.Error):
        pl.gpu(60000)


def test_each_id_is_documented():
    sources = ''.join(path.read_text() for path in (ROOT / 'bindings/python').rglob('*.[cp]*') if path.is_file())
    used = set(re.findall(r"[\"'](PY-[A-Z-]+)[\"']", sources))
    documented = set(re.findall(r'`(PY-[A-Z-]+)`', (ROOT / 'docs/python.md').read_text()))
    assert used == documented


def test_accept_tells_its_whole_time(local):
    """The wait is cut into slices, whose time is of no interest."""
    with local.near.listen() as listener, pytest.raises(pl.TimedOut, match=r'within 0\.120 s'):
        listener.accept(timeout=0.12)


def test_invitations_are_taken_as_tokens(local):
    region = local.far.allocate(64, access='r')
    invitation = pl.Invitation(local.listener.address, region.share())
    assert local.peer.import_(invitation).length == 64
    assert len(local.peer.import_all(pl.Invitation(local.listener.address, local.far.share_all([region])))) == 1


@pytest.mark.parametrize('address', [':5', '[::]:5', '0.0.0.0:5', '[::]', '0.0.0.0', '0:5', '0.0:5', '[::0]:5', '[0:0::0]',
                                     '[::ffff:0.0.0.0]:5', '[::%1]:5', '*:5', ''])
def test_invitations_need_an_address_that_others_reach(local, address):
    token = local.far.allocate(8, access='r').share()
    with pytest.raises(pl.Invalid, match='PY-ADDRESS') as caught:
        pl.Invitation(address, token)
    assert caught.value.hint


@pytest.mark.parametrize('address', ['[::1]:5', '[::1]', 'a.example', 'a.example:5', '0.example:5', '10.0.0.1', '127.1:5',
                                     '[fe80::1%1]:5', '[::ffff:10.0.0.1]:5'])
def test_invitations_take_addresses_with_and_without_ports(local, address):
    assert pl.Invitation(address, local.far.allocate(8, access='r').share()).address == address


@pytest.mark.parametrize('address', ['127.0.0.1', '[::1]'])
def test_an_address_without_a_port_has_that_of_the_commands(local, address):
    """The next reason to refuse the address of another host is that there is no key."""
    with pytest.raises(pl.Error) as caught:
        local.near.connect(address.replace('127.0.0.1', '192.0.2.1').replace('::1', '2001:db8::1'), timeout=1)
    assert caught.value.id == 'INSECURE-ADDRESS'
