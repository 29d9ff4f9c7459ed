# SPDX-License-Identifier: BSD-2-Clause
"""Tokens, blobs and invitations: pickling, texts, damaged bytes."""
import multiprocessing
import pickle
import random
import tempfile

import peerlane as pl
import pytest


def writer(queue, invitation):
    """Run in another process: write where an invitation says."""
    with pl.Context() as context:
        peer = context.connect(invitation.address, timeout=120)
        remote = peer.import_(invitation.token)
        queue.put((peer.write(remote, context.register(invitation.extra, 'r')).bytes, pickle.dumps(invitation)))


@pytest.mark.parametrize('method', ['spawn', 'forkserver', 'fork'])
def test_an_invitation_reaches_another_process(method, monkeypatch):
    # The path of the fork server's socket has at most 107 bytes.
    monkeypatch.setattr(tempfile, 'tempdir', '/tmp')
    with pl.Context() as context:
        region = context.allocate(64, access='w')
        listener = context.listen()
        invitation = pl.Invitation(listener.address, region.share(), b'hello')
        start = multiprocessing.get_context(method)
        queue = start.Queue()
        process = start.Process(target=writer, args=(queue, invitation))
        process.start()
        peer = listener.accept(timeout=120)
        count, back = queue.get(timeout=120)
        process.join(120)
        assert (process.exitcode, count, bytes(memoryview(region)[:5])) == (0, 5, b'hello')
        assert pickle.loads(back) == invitation
        assert peer is not None


def test_tokens_compare_hash_and_do_not_change(local):
    region = local.far.allocate(64, access='rw')
    one, two = region.share(), region.share()
    copy = pl.Token(bytes(one))
    assert one == copy and hash(one) == hash(copy) and one != two and one != bytes(one)
    assert {one: 1}[copy] == 1
    for name in ('length', '_content', 'other'):
        with pytest.raises(AttributeError):
            setattr(one, name, 1)


def test_texts_do_not_show_secrets(local):
    region = local.far.allocate(64, access='rw')
    token, blob = region.share(), local.far.share_all([region])
    for thing in (token, blob, pl.Invitation('a:1', token), local.far, region):
        text = repr(thing) + str(thing)
        for secret in (bytes(token), bytes(blob)):
            assert not any(secret[at:at + 4].hex() in text or repr(secret[at:at + 4])[2:-1] in text
                           for at in range(4, len(secret) - 4))


def test_invitations_with_any_address_are_read(local):
    """Another version, or a program of one host, may have made them: only the program that makes one can mend it."""
    given = pl.Invitation('host:5', local.far.allocate(8, access='r').share())
    content = bytes(given).replace(b'\6\0\0\0host:5', b'\6\0\0\0[::]:5')
    invitation = pl.Invitation.from_bytes(content)
    assert invitation.address == '[::]:5' and bytes(invitation) == content
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(invitation, protocol)) == invitation


@pytest.mark.parametrize('kind', ['token', 'blob'])
def test_invitations_survive_as_bytes(local, kind):
    region = local.far.allocate(64, access='rw')
    secret = region.share() if kind == 'token' else local.far.share_all([region, region])
    invitation = pl.Invitation('127.0.0.1:4', secret, b'\0extra')
    content = bytes(invitation)
    for copy in (pl.Invitation.from_bytes(content), pickle.loads(pickle.dumps(invitation))):
        assert copy == invitation and hash(copy) == hash(invitation) and type(copy.token) is type(secret)
    for at in range(len(content)):
        with pytest.raises(ValueError):
            pl.Invitation.from_bytes(content[:at])
    with pytest.raises(ValueError):
        pl.Invitation.from_bytes(content + b'x')
    choose = random.Random(1)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
        try:
            assert pl.Invitation.from_bytes(damaged) != invitation
        except ValueError:
            pass


@pytest.mark.parametrize('kind', ['token', 'blob'])
def test_no_damaged_secret_is_imported(pair, kind):
    """Each bit of a token is changed, and one of each byte of a blob, whose check is the same."""
    region = pair.far.allocate(64, access='rwa')
    secret = bytes(region.share(rights='r') if kind == 'token' else pair.far.share_all([region, region], 'r'))
    take = pair.peer.import_ if kind == 'token' else pair.peer.import_all
    for at in range(len(secret) * 8 if kind == 'token' else len(secret)):
        damaged = bytearray(secret)
        damaged[at // 8 if kind == 'token' else at] ^= 1 << at % 8
        with pytest.raises(pl.Error) as caught:
            take(damaged, timeout=120)
        assert caught.value.id and not isinstance(caught.value, TimeoutError), at
    for at in range(len(secret)):
        with pytest.raises(pl.Error):
            take(secret[:at])
    with pytest.raises(pl.Error):
        take(secret + b'x')
    # The connection is in use as before, and the secret gives its rights.
    with take(secret, timeout=120) as taken:
        remote = taken if kind == 'token' else taken[1]
        assert remote.rights == 'r'
        pair.peer.read(remote, pair.near.register(bytearray(64)))


def test_live_objects_do_not_pickle(local):
    region, remote = local.remote()
    for thing in (local.near, region, remote, local.peer, local.listener):
        with pytest.raises(TypeError, match='Invitation'):
            pickle.dumps(thing)


def invitation(address, token):
    return b'PLI1B' + b''.join(len(part).to_bytes(4, 'little') + part for part in (address, token, b''))


@pytest.mark.parametrize('length', [0, 1, 19, 21, 95, 97])
def test_other_bytes_are_no_blob(length):
    for make in (lambda: pl.Blob(bytes(length)), lambda: pl.Invitation.from_bytes(invitation(b'h:1', bytes(length)))):
        with pytest.raises(pl.Invalid, match=f'{length} bytes are no blob') as caught:
            make()
        assert caught.value.id == 'PY-NO-TOKEN'


def test_an_address_that_is_no_text_names_the_invitation():
    with pytest.raises(ValueError, match='address of the invitation'):
        pl.Invitation.from_bytes(invitation(b'\xff\xfe', bytes(96)))


def test_other_objects_are_no_bytes(local):
    """bytes(5) are five zeros, and bytes([1, 2]) are two bytes: neither was meant."""
    token = local.far.allocate(8, access='r').share()
    for value in (5, 1 << 40, 'text', [1, 2], {'rank': 1}, None):
        for make in (lambda value: pl.Invitation('h:1', token, value), lambda value: pl.Invitation('h:1', value), pl.Token, pl.Blob,
                     pl.Invitation.from_bytes):
            with pytest.raises(TypeError, match='must be bytes, not'):
                make(value)
    for value in (b'ab', bytearray(b'ab'), memoryview(b'ab')):
        assert pl.Invitation('h:1', token, value).extra == b'ab'
    assert pl.Token(memoryview(bytes(token))) == token
    for address in (None, 5, ('h', 1)):
        with pytest.raises(TypeError, match='address must be a text'):
            pl.Invitation(address, token)
