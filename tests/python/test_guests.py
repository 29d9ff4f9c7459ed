# SPDX-License-Identifier: BSD-2-Clause
"""Connections that come to an exchange, by stand-ins: which are refused, and which failures end it. No case waits."""
import contextlib
import itertools
import types

import peerlane as pl
import pytest
from peerlane import _exchange
from peerlane._errors import make_error


class Opened:
    """Stand-in for a connection and for the receive of its rank, which ends at once or never."""

    def __init__(self, rank=None):
        self.rank, self.closed = rank, False

    def done(self):
        return self.rank is not None

    def wait(self):
        return self.rank

    def close(self):
        self.closed = True


def take_ranks(came, wanted, times, admit=lambda rank, peer: None):
    """Let connections come, while the time that is left goes through `times`; return the admitted ones by rank."""
    def note(rank, peer):
        admit(rank, peer)
        admitted[rank] = peer

    def greet(peer):
        yield peer
        return peer.rank

    class Listener:
        def accept(self, timeout):
            silent = sum(not peer.closed and peer.rank is None for peer in taken)
            assert timeout == (_exchange._SLICE if silent else 60)
            # The wanted ranks have their own places.
            assert silent <= _exchange._GUESTS_MAX + len(wanted) - len(admitted)
            if not came:
                raise pl.TimedOut(110, 'nobody')
            taken.append(came.pop(0))
            return taken[-1]

    taken, admitted = [], {}
    with _exchange.Guests(Listener(), greet, wanted, times.__next__, 'PY-RENDEZVOUS') as guests:
        guests.take(note)
    return admitted


def test_silent_connections_make_room_for_ranks():
    silent = [Opened() for _ in range(_exchange._GUESTS_MAX + 10)]
    ranks = [Opened(rank) for rank in (2, 1)]
    came = silent[:-1] + ranks[:1] + silent[-1:] + ranks[1:]
    assert take_ranks(came, {1, 2}, itertools.repeat(60)) == {1: ranks[1], 2: ranks[0]}
    assert [peer.closed for peer in silent] == [True] * len(silent) and not any(peer.closed for peer in ranks)


def test_a_flood_of_connections_does_not_stop_the_clock():
    wrong, twice = Opened(7), Opened(1)
    came = [Opened(1), twice, wrong] + [Opened(9) for _ in range(50)]
    with pytest.raises(pl.TimedOut, match='a process came as rank 9') as caught:
        take_ranks(came, {1, 2, 3}, iter([60] * 30 + [0.001]))
    assert (caught.value.id, caught.value.object) == ('PY-RENDEZVOUS', 'rank 2, 3')
    assert wrong.closed and twice.closed and len(came) == 23


def test_a_silent_connection_is_refused_after_a_time(monkeypatch):
    monkeypatch.setattr(_exchange, '_GUEST_TIME', -1)
    silent, rank = Opened(), Opened(1)
    assert take_ranks([silent, rank], {1}, itertools.repeat(60)) == {1: rank}
    assert silent.closed


def failing_once(error_id):
    """Return an admit() of which the first call fails, as an import does."""
    errors = [make_error(13, error_id, 'pl_remote_import', '', 'refused', 'a hint of the import')]

    def admit(rank, peer):
        if errors:
            raise errors.pop()
    return admit


@pytest.mark.parametrize('error_id', ['GRANT-UNKNOWN', 'PEER-BUSY', 'PEER-MEMORY', 'RDMA-REGISTER'])
def test_a_failure_of_a_wanted_process_shows_at_once(error_id):
    came = [Opened(1), Opened(1)]
    first = came[0]
    with pytest.raises(pl.Error) as caught:
        take_ranks(came, {1}, itertools.repeat(60), failing_once(error_id))
    assert (caught.value.id, caught.value.hint) == (error_id, 'a hint of the import')
    assert len(came) == 1 and first.closed


def test_a_stranger_with_a_wanted_rank_is_refused():
    stranger, rank = Opened(1), Opened(1)
    assert take_ranks([stranger, rank], {1}, itertools.repeat(60), failing_once('TOKEN-FOREIGN')) == {1: rank}
    assert stranger.closed and not rank.closed


def test_a_late_failure_is_that_of_the_last_refusal():
    with pytest.raises(pl.Denied, match='no connection came in time; one was refused: pl_remote_import: refused') as caught:
        take_ranks([Opened(1)], {1}, iter([60, 0.001]), failing_once('TOKEN-FOREIGN'))
    error = caught.value
    assert (error.id, error.hint, error.object) == ('TOKEN-FOREIGN', 'a hint of the import', 'rank 1')
    with pytest.raises(pl.TimedOut) as caught:
        take_ranks([], {1}, iter([0.001]))
    assert (caught.value.id, caught.value.strerror) == ('PY-RENDEZVOUS', 'no connection came in time')


def test_an_import_has_all_the_time_of_the_exchange():
    timeouts = []

    class Peer(Opened):
        def __enter__(self):
            return self

        def __exit__(self, *unused):
            self.close()

        def receive_start(self, region, tag, timeout):
            region[:] = self.rank.to_bytes(8, 'little')
            return self

        def import_(self, token, timeout):
            timeouts.append(timeout)
            return types.SimpleNamespace(release=lambda: None)

    peer = Peer(1)
    context = types.SimpleNamespace(allocate=lambda length: contextlib.nullcontext(bytearray(length)))
    listener = types.SimpleNamespace(accept=lambda timeout: peer)
    with contextlib.ExitStack() as opened:
        meeting = _exchange._Meeting(context, 0, 2, float('inf'), opened)
        meeting.meet(listener, [None, types.SimpleNamespace(token=None, extra=b'')])
        assert meeting.members[1].peer is peer and timeouts == [float('inf')]
    assert peer.closed
