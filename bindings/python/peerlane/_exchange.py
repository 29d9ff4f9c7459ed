# SPDX-License-Identifier: BSD-2-Clause
"""Connections and remote regions of all processes of a group."""
import contextlib
import errno
import os
import socket
import time
import typing

from ._errors import Error, TimedOut, make_error
from ._tokens import Invitation

_TAG = 0x504c4558  # of the message with the rank of the connecting process
_GUESTS_MAX = 64  # connections that have not told their rank, more than ranks are missing
_GUEST_TIME = 10  # seconds that a connection has for that
_SLICE = 0.002  # seconds of an accept while other connections are to tell their rank


class Member(typing.NamedTuple):
    """Another process of a group: its rank, the connection, its remote region, and the bytes that it added."""

    rank: int
    peer: object
    remote: object
    extra: bytes


class Group:
    """Members by rank, from exchange(); the entry of this process is None. Keeps the connections until close()."""

    def __init__(self, rank, members, opened):
        self.rank = rank
        self._members = members
        self._opened = opened

    def __len__(self):
        return len(self._members)

    def __getitem__(self, rank):
        return self._members[rank]

    def __repr__(self):
        return f'<peerlane.Group of {len(self)}, rank {self.rank}>'

    def others(self):
        """Return the members other than this process, in the order in which they follow it by rank.

        All processes that go through their lists at the same pace have different targets.
        """
        return [member for member in self._members[self.rank + 1:] + self._members[:self.rank] if member]

    def close(self):
        """Revoke the token of this process, and close the connections."""
        self._opened.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def _describe_host():
    """Return the name of this host, its start and its network as a text. Containers of different hosts may have equal names."""
    try:
        with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
            start = file.read().strip()
        network = str(os.stat('/proc/self/ns/net').st_ino)
    except OSError:
        start = network = ''
    return f'{socket.gethostname()} {start} {network}'


def _own_address(hosts, rank):
    """Return the address to listen on: that towards another host, or loopback if all processes share a host."""
    other = next((host for host in hosts if host != hosts[rank]), None)
    if other is None:
        return '127.0.0.1:0'
    name = other.split(' ')[0]
    if name == hosts[rank].split(' ')[0]:
        raise make_error(errno.EADDRNOTAVAIL, 'PY-EXCHANGE', 'exchange', name, 'two hosts or containers have this name',
                         'give address="HOST:0" with an address that the others reach')
    family, kind, _, _, target = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # sends nothing
        own = probe.getsockname()[0]
    return f'[{own}]:0' if ':' in own else f'{own}:0'


def _agree(gather, problem):
    """Raise the problem of a process, at all of them."""
    problems = gather(None if problem is None else f'{type(problem).__name__}: {problem}')
    failed = next((rank for rank, text in enumerate(problems) if text), None)
    if failed is not None:
        raise make_error(errno.ECONNABORTED, 'PY-EXCHANGE', 'exchange', f'rank {failed}', problems[failed],
                         'all processes need the same key and addresses that reach each other') from problem


class _Guest:
    """Connection that has not told its rank. `greeting` yields the operations to wait for, and returns the rank."""

    def __init__(self, peer, greeting):
        self.peer, self._greeting = peer, greeting
        self._until = time.monotonic() + _GUEST_TIME
        self._operation = next(greeting)

    def find_rank(self):
        """Return the rank, or None if it has not come yet. Raises the reason why it will not come."""
        while self._operation.done():
            try:
                self._operation.wait()
                self._operation = next(self._greeting)
            except StopIteration as end:
                return end.value
        if time.monotonic() > self._until:
            raise TimeoutError(f'it told no rank within {_GUEST_TIME} s')
        return None

    def refuse(self):
        """Close the connection, which ends the operation, and free the memory of the greeting."""
        self.peer.close()
        self._greeting.close()


class Guests:
    """Connections to a listener, of which each wanted rank must have one.

    Anyone who reaches the listener of a context without a key can connect. So several connections tell their ranks at a
    time, each in a short time, and those that do not, or that tell another rank, are closed.
    """

    def __init__(self, listener, greet, wanted, left, error_id):
        self._listener, self._greet, self._left, self._error_id = listener, greet, left, error_id
        self._wanted, self._guests, self._reason = set(wanted), [], None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for guest in self._guests:
            guest.refuse()

    def _fail_late(self):
        ranks = 'rank ' + ', '.join(map(str, sorted(self._wanted)))
        code, error_id, hint = errno.ETIMEDOUT, self._error_id, 'start each rank once, with the same number of ranks and the same key'
        text = 'no connection came in time'
        if self._reason:
            text += f'; one was refused: {self._reason}'
        if isinstance(self._reason, Error):
            code, error_id, hint = self._reason.errno, self._reason.id, self._reason.hint
        raise make_error(code, error_id, 'accept', ranks, text, hint)

    def _accept(self):
        left = self._left()
        if left <= _SLICE:
            self._fail_late()
        try:
            peer = self._listener.accept(timeout=_SLICE if self._guests else left)
        except TimedOut:
            return
        # The oldest one makes room: a connection of a rank tells its rank at once.
        if len(self._guests) >= _GUESTS_MAX + len(self._wanted):
            self._refuse(self._guests[0], 'too many connections came that told no rank')
        try:
            self._guests.append(_Guest(peer, self._greet(peer)))
        except Error as error:
            self._reason = error
            peer.close()

    def _refuse(self, guest, reason):
        self._reason = reason
        self._guests.remove(guest)
        guest.refuse()

    def take(self, admit):
        """Call admit(rank, peer) for each wanted rank.

        A stranger may tell a wanted rank: the connection is refused if admit() raises TOKEN-FOREIGN. Other errors of admit()
        are those of the wanted process, and end the call.
        """
        while self._wanted:
            self._accept()
            for guest in list(self._guests):
                try:
                    rank = guest.find_rank()
                except (Error, ValueError, TimeoutError) as error:
                    self._refuse(guest, error)
                    continue
                if rank is None:
                    continue
                if rank not in self._wanted:
                    self._refuse(guest, f'a process came as rank {rank}')
                    continue
                try:
                    admit(rank, guest.peer)
                except Error as error:
                    if error.id != 'TOKEN-FOREIGN':
                        raise
                    self._refuse(guest, error)
                else:
                    self._guests.remove(guest)
                    self._wanted.remove(rank)


class _Meeting:
    """One exchange, at one process. `opened` closes what the meeting has opened."""

    def __init__(self, context, rank, size, deadline, opened):
        self.context, self.rank, self.size = context, rank, size
        self.deadline, self.opened = deadline, opened
        self.members = [None] * size

    def left(self):
        return max(self.deadline - time.monotonic(), 0.001)

    def add(self, rank, peer, invitation, opened):
        several = type(invitation.token).__name__ == 'Blob'
        remote = (peer.import_all if several else peer.import_)(invitation.token, timeout=self.left())
        opened.callback(remote.release)
        self.members[rank] = Member(rank, peer, remote, invitation.extra)

    def greet(self, peer):
        with self.context.allocate(8) as region:
            yield peer.receive_start(region, tag=_TAG, timeout=self.left())
            return int.from_bytes(bytes(region), 'little')

    def meet(self, listener, invitations):
        """Connect to the processes of lower ranks, and accept those of higher ranks."""
        for rank in range(self.rank):
            peer = self.opened.enter_context(self.context.connect(invitations[rank].address, timeout=self.left()))
            peer.send(self.rank.to_bytes(8, 'little'), tag=_TAG, timeout=self.left())
            self.add(rank, peer, invitations[rank], self.opened)

        def admit(rank, peer):
            # The import refuses a process that has come with the rank of another one: the token is not its own.
            with contextlib.ExitStack() as opened:
                opened.enter_context(peer)
                self.add(rank, peer, invitations[rank], opened)
                self.opened.enter_context(opened.pop_all())

        with Guests(listener, self.greet, range(self.rank + 1, self.size), self.left, 'PY-EXCHANGE') as guests:
            guests.take(admit)


def exchange(context, regions, rank, size, gather, *, rights=None, address=None, extra=b'', timeout=60, deadline=None):
    """Connect all processes of a group, and import the regions of each at all others.

    gather(object) returns the objects of all processes by rank. Each process calls this with its own region, or with a
    list of regions. Returns a Group. Raises PY-EXCHANGE at all processes if one of them fails. The processes have
    `timeout` seconds to connect once all have come, or until `deadline` by time.monotonic().
    """
    several = isinstance(regions, (list, tuple))
    problem = None
    hosts = gather(_describe_host())
    with contextlib.ExitStack() as opened, contextlib.ExitStack() as listening:
        try:
            listener = listening.enter_context(context.listen(address or _own_address(hosts, rank)))
            token = context.share_all(regions, rights) if several else regions.share(rights=rights)
            opened.callback(context.revoke_all if several else regions.revoke, token)
            own = bytes(Invitation._make(listener.address, token, extra))
        except Exception as error:
            problem, own = error, None
        invitations = gather(own)
        _agree(gather, problem)
        meeting = _Meeting(context, rank, size, time.monotonic() + timeout if deadline is None else deadline, opened)
        try:
            meeting.meet(listener, [Invitation.from_bytes(one) for one in invitations])
        except Exception as error:
            problem = error
        _agree(gather, problem)
        return Group(rank, meeting.members, opened.pop_all())
