# SPDX-License-Identifier: BSD-2-Clause
"""Streams that need a token: shared, hidden, revoked, expired."""
import asyncio
import errno
import pickle

import peerlane as pl
import pytest
from peerlane import aio


def refusal(call, *arguments, **options):
    with pytest.raises(pl.Error) as caught:
        call(*arguments, **options)
    return caught.value.id, caught.value.errno


def test_only_peers_with_the_token_see_and_take(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher, pair.far.publish('open', slot_bytes=64):
        token = publisher.share()
        assert isinstance(token, pl.Token) and (token.length, token.expires) == (0, None) and not token.rights
        assert repr(token) == '<peerlane.Token of a stream>' and pickle.loads(pickle.dumps(token)) == token
        assert [stream['name'] for stream in pair.peer.streams()] == ['open']
        assert {stream['name']: stream['needs_token'] for stream in pair.peer.streams(token=token)} == {'s': True, 'open': False}
        assert refusal(pair.peer.subscribe, 's') == ('STREAM-TOKEN-NEEDED', errno.EACCES)
        # The bytes of a token are enough.
        for given in (token, bytes(token)):
            with pair.peer.subscribe('s', start='latest', token=given) as subscriber:
                publisher.put(b'frame')
                assert bytes(subscriber.take(120)) == b'frame'


def test_wrong_tokens(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher, \
            pair.far.publish('t', slot_bytes=64, needs_token=True) as other, pair.far.publish('open', slot_bytes=64) as free:
        token = publisher.share()
        assert refusal(pair.peer.subscribe, 's', token=other.share()) == ('STREAM-TOKEN-REFUSED', errno.EACCES)
        assert refusal(pair.peer.subscribe, 's', token=b'short') == ('TOKEN-MALFORMED', errno.EINVAL)
        assert refusal(pair.peer.subscribe, 's', token=pair.far.allocate(64, access='r').share()) == ('TOKEN-KIND', errno.EINVAL)
        assert refusal(pair.peer.streams, token=b'short') == ('TOKEN-MALFORMED', errno.EINVAL)
        assert refusal(free.share) == ('STREAM-TOKEN-UNUSED', errno.EINVAL)
        assert refusal(publisher.revoke, other.share()) == ('PY-NO-GRANT', errno.ENOENT)
        assert refusal(publisher.revoke, b'short') == ('PY-NO-TOKEN', errno.EINVAL)
        for wrong in (5, 'text'):
            with pytest.raises(TypeError):
                pair.peer.subscribe('s', token=wrong)
            with pytest.raises(TypeError):
                pair.peer.streams(token=wrong)
        publisher.revoke(token)
        assert refusal(publisher.revoke, token) == ('PY-NO-GRANT', errno.ENOENT)


def test_revoked_subscription_goes_on_with_another_token(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher:
        token = publisher.share(lifetime=3600)
        assert token.expires and repr(token).startswith('<peerlane.Token of a stream, until ')
        with pair.peer.subscribe('s', token=token) as subscriber:
            publisher.put(b'0')
            assert bytes(subscriber.take(120)) == b'0'
            publisher.revoke(token)
            assert refusal(subscriber.take, 120) == ('STREAM-TOKEN-REVOKED', errno.EACCES)
            assert refusal(subscriber.attach, pair.peer) == ('STREAM-TOKEN-REFUSED', errno.EACCES)
            publisher.put(b'1')
            subscriber.set_token(publisher.share())
            subscriber.attach(pair.peer)
            frame = subscriber.take(120)
            assert (frame.sequence, bytes(frame)) == (1, b'1')
            with pytest.raises(TypeError):
                subscriber.set_token(5)
            subscriber.set_token(None)
            assert refusal(subscriber.attach, pair.peer) == ('STREAM-TOKEN-NEEDED', errno.EACCES)


def test_expired_token(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher:
        token = publisher.share(lifetime=1e-9)
        assert refusal(pair.peer.subscribe, 's', token=token) == ('STREAM-TOKEN-EXPIRED', errno.EACCES)


class Closing:
    """Bytes of a token that close an object when they are read."""

    def __init__(self, token, closed):
        self.token, self.closed = token, closed

    def __bytes__(self):
        self.closed.close()
        return bytes(self.token)


def test_token_that_closes_the_object(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher:
        token = publisher.share()
        with pair.peer.subscribe('s', token=token) as subscriber:
            assert refusal(subscriber.set_token, Closing(token, subscriber)) == ('PY-CLOSED', errno.EBADF)
        with pair.peer.subscribe('s', token=token) as subscriber:
            assert refusal(publisher.revoke, Closing(token, publisher)) == ('PY-CLOSED', errno.EBADF)
    assert refusal(pair.peer.subscribe, 's', token=Closing(token, pair.peer)) == ('PY-CLOSED', errno.EBADF)


def test_token_that_closes_the_listed_peer(pair):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher:
        token = publisher.share()
        assert refusal(pair.peer.streams, token=Closing(token, pair.peer)) == ('PY-CLOSED', errno.EBADF)


@pytest.mark.parametrize('lifetime', [0, 0.0, 1e-10, -1, float('nan')])
def test_lifetime_must_be_above_zero(pair, lifetime):
    with pair.far.publish('s', slot_bytes=64, needs_token=True) as publisher, pair.far.allocate(64, access='r') as region:
        for call in (publisher.share, region.share, lambda **options: pair.far.share_all([region], **options)):
            with pytest.raises(ValueError, match='lifetime must be at least'):
                call(lifetime=lifetime)
            assert call(lifetime=None)


def test_asyncio():
    async def run():
        async with aio.Context(fabric='local') as near:
            with pl.Context(fabric='local') as far, far.listen() as listener, \
                    far.publish('s', slot_bytes=64, needs_token=True) as publisher:
                accepted = asyncio.get_running_loop().run_in_executor(None, listener.accept, 120)
                peer = await near.connect(listener.address)
                assert (await accepted).connected
                token = publisher.share()
                async with await aio.subscribe(peer, 's', token=token) as subscriber:
                    publisher.put(b'0')
                    assert bytes(await subscriber.take(120)) == b'0'
                    publisher.revoke(token)
                    with pytest.raises(pl.Error) as caught:
                        await subscriber.take(120)
                    assert caught.value.id == 'STREAM-TOKEN-REVOKED'
                    subscriber.set_token(publisher.share())
                    await subscriber.attach(peer)
                    publisher.put(b'1')
                    assert bytes(await subscriber.take(120)) == b'1'
    asyncio.run(run())
