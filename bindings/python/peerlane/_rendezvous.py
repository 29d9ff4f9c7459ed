# SPDX-License-Identifier: BSD-2-Clause
"""Rendezvous of the processes that a launcher started, without MPI or PyTorch."""
import contextlib
import errno
import os
import re
import socket
import time

from . import _exchange
from ._errors import Denied, Refused, TimedOut, Unreachable, make_error

_PORT = 19878
_TAG = 0x504c5256
_VALUE_MAX = 1 << 20  # bytes of a value of one process
_RANK_MAX = 10  # digits of a rank
_RETRY = 0.05  # seconds between two attempts to connect
_TELL = 0.1  # share of an exchange's time that is kept to tell all processes of a failure

# Variables of rank and number of ranks, and one without which the launcher is another; the innermost launcher first.
_LAUNCHERS = (
    ('PEERLANE_RANK', 'PEERLANE_RANKS', None),
    ('RANK', 'WORLD_SIZE', 'TORCHELASTIC_RUN_ID'),
    ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', None),
    ('PMI_RANK', 'PMI_SIZE', None),
    ('FLUX_TASK_RANK', 'FLUX_JOB_SIZE', None),
    ('SLURM_PROCID', 'SLURM_NTASKS', None),
    ('RANK', 'WORLD_SIZE', None),
)


_KEY_HINT = 'give all ranks the same key, or none: key or key_file of peerlane.Context'
_KEY_ERRORS = {
    'AUTH-NEEDS-KEY': 'rank 0 has a key and this rank has none',
    'AUTH-NO-KEY': 'this rank has a key and rank 0 has none',
    'AUTH-KEY-MISMATCH': 'this rank and rank 0 have different keys',
}


def _fail(message, hint):
    raise make_error(errno.EINVAL, 'PY-RENDEZVOUS', 'rendezvous', '', message, hint)


def find_ranks(environment):
    """Return rank and number of ranks from the variables of the launcher."""
    for rank, ranks, mark in _LAUNCHERS:
        if environment.get(rank) and environment.get(ranks) and (mark is None or environment.get(mark)):
            try:
                return int(environment[rank]), int(environment[ranks])
            except ValueError:
                _fail(f'{rank} or {ranks} is no number', 'start the processes with srun, torchrun or mpirun')
    return _fail('no launcher tells the rank of this process',
                 'give rank and ranks, or start the processes with srun, torchrun or mpirun')


def _first_host(names):
    """Return the first host of a list of Slurm, such as node[001-032,40],other."""
    first = re.match(r'(?:[^,[]|\[[^]]*\])*', names)[0]
    return re.sub(r'\[([^],-]*)[^]]*\]', r'\1', first)


def _join(host, port):
    return f'[{host}]:{port}' if ':' in host and not host.startswith('[') else f'{host}:{port}'


def _of_one_host(environment, ranks):
    """Return whether the launcher started all ranks on one host, or None if its variables do not tell."""
    for name in ('OMPI_COMM_WORLD_LOCAL_SIZE', 'MPI_LOCALNRANKS', 'LOCAL_WORLD_SIZE'):
        if environment.get(name):
            return environment[name] == str(ranks)
    nodes = environment.get('SLURM_STEP_NUM_NODES') or environment.get('SLURM_JOB_NUM_NODES')
    return nodes == '1' if nodes else None


def find_own_address(address, environment, ranks):
    """Return the address on which rank 0 listens: all addresses of its port, if its name leads other hosts nowhere.

    Debian and Ubuntu give the name of a host the address 127.0.1.1 in /etc/hosts.
    """
    host, _, port = address.rpartition(':')
    host = host.strip('[]')
    if not host or host == 'localhost' or host[0].isdigit() or ':' in host or _of_one_host(environment, ranks):
        return address
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return address
    return address if any(not one.startswith('127.') and one != '::1' for one in found) else f':{port}'


def find_address(environment, ranks):
    """Return the address of rank 0 from the variables of the launcher."""
    if environment.get('PEERLANE_RENDEZVOUS'):
        return environment['PEERLANE_RENDEZVOUS']
    if environment.get('MASTER_ADDR'):
        given = environment.get('MASTER_PORT')
        # At the port itself the agent of torchrun listens, or the store of PyTorch in rank 0.
        return _join(environment['MASTER_ADDR'], int(given) + 1 if given else _PORT)
    hosts = environment.get('SLURM_STEP_NODELIST') or environment.get('SLURM_JOB_NODELIST')
    if environment.get('SLURM_PROCID') and hosts:
        number = int(environment.get('SLURM_JOB_ID') or 0) * 7 + int(environment.get('SLURM_STEP_ID') or 0)
        return _join(_first_host(hosts), 20000 + number % 10000)
    if _of_one_host(environment, ranks):
        return f'127.0.0.1:{_PORT}'
    return _fail('the address of rank 0 is not known',
                 'give address="HOST:PORT", with the host of rank 0, or set PEERLANE_RENDEZVOUS')


def _left(deadline):
    return max(deadline - time.monotonic(), 0.001)


def _encode(value):
    if value is None:
        return b'N'
    return b'S' + value.encode() if isinstance(value, str) else b'B' + bytes(value)


def _decode(content):
    kind, rest = content[:1], bytes(content[1:])
    return None if kind == b'N' else rest.decode() if kind == b'S' else rest


class Rendezvous:
    """All processes of a run, which meet at rank 0. Values of other processes are bytes, texts or None, never code."""

    def __init__(self, context, rank, ranks, address, timeout):
        self.rank, self.ranks = rank, ranks
        self._context, self._timeout = context, timeout
        self._peers, self._opened = {}, contextlib.ExitStack()
        deadline = time.monotonic() + timeout
        try:
            if rank == 0:
                self._accept(address, deadline)
            else:
                self._peers[0] = self._connect(address, deadline)
        except BaseException:
            self.close()
            raise

    def _connect(self, address, deadline):
        while True:
            left = _left(deadline)
            try:
                peer = self._opened.enter_context(self._context.connect(address, timeout=left))
                break
            except (Refused, Unreachable, TimedOut):
                if left <= _RETRY:
                    raise
                time.sleep(_RETRY)
            except Denied as error:
                if error.id not in _KEY_ERRORS:
                    raise
                raise make_error(error.errno, error.id, 'rendezvous', f'rank {self.rank}', _KEY_ERRORS[error.id],
                                 _KEY_HINT) from error
        self._send(peer, b'%d' % self.rank, deadline)
        return peer

    def _listen(self, address):
        own = find_own_address(address, os.environ, self.ranks)
        try:
            return self._context.listen(own)
        except Denied as error:
            # Without a key only ranks of this host can come, if its launcher does not tell of others.
            if own == address or _of_one_host(os.environ, self.ranks) is False:
                raise make_error(error.errno, error.id, 'rendezvous', f'rank 0 at {own}', error.strerror,
                                 _KEY_HINT if error.id == 'INSECURE-ADDRESS' else error.hint) from error
            return self._context.listen(address)

    def _greet(self, peer, deadline):
        """Receive the rank of a process, as _send() sends it."""
        with self._context.allocate(8) as region:
            yield peer.receive_start(region, tag=_TAG, timeout=_left(deadline))
            length = int.from_bytes(bytes(region), 'little')
        if not 0 < length <= _RANK_MAX:
            raise ValueError('a process told no rank')
        with self._context.allocate(length) as region:
            yield peer.receive_start(region, tag=_TAG, timeout=_left(deadline))
            return int(bytes(region))

    def _accept(self, address, deadline):
        def admit(rank, peer):
            self._peers[rank] = self._opened.enter_context(peer)

        with self._listen(address) as listener, \
                _exchange.Guests(listener, lambda peer: self._greet(peer, deadline), range(1, self.ranks),
                                 lambda: _left(deadline), 'PY-RENDEZVOUS') as guests:
            guests.take(admit)

    def _send(self, peer, content, deadline):
        peer.send(len(content).to_bytes(8, 'little'), tag=_TAG, timeout=_left(deadline))
        if content:
            with self._context.register(content, 'r') as region:
                peer.send(region, tag=_TAG, timeout=_left(deadline))

    def _receive(self, peer, deadline, most=_VALUE_MAX):
        with self._context.allocate(8) as region:
            peer.receive(region, tag=_TAG, timeout=_left(deadline))
            length = int.from_bytes(bytes(region), 'little')
        if length > most:
            _fail(f'a process sent a value of {length} bytes', f'values have at most {_VALUE_MAX} bytes')
        content = bytearray(length)
        if length:
            with self._context.register(content) as region:
                peer.receive(region, tag=_TAG, timeout=_left(deadline))
        return bytes(content)

    def allgather(self, value):
        """Return the values of all processes by rank: bytes, texts or None. All processes call it.

        The whole call has the time of the rendezvous.
        """
        return self._gather(value, time.monotonic() + self._timeout)

    def _gather(self, value, deadline):
        own = _encode(value)
        if len(own) > _VALUE_MAX:
            _fail(f'the value has {len(own)} bytes', f'values have at most {_VALUE_MAX} bytes')
        if self.rank:
            self._send(self._peers[0], own, deadline)
            whole = self._receive(self._peers[0], deadline, self.ranks * (_VALUE_MAX + 8))
        else:
            parts = [own] + [self._receive(self._peers[rank], deadline) for rank in range(1, self.ranks)]
            whole = b''.join(len(part).to_bytes(8, 'little') + part for part in parts)
            for peer in self._peers.values():
                self._send(peer, whole, deadline)
        values, at = [], 0
        while at < len(whole):
            end = at + 8 + int.from_bytes(whole[at:at + 8], 'little')
            values.append(_decode(whole[at + 8:end]))
            at = end
        return values

    def barrier(self):
        """Wait until all processes have called it."""
        self.allgather(None)

    def exchange(self, regions, *, rights=None, address=None, extra=b'', timeout=60):
        """Connect all processes, and import the regions of each at all others; return a Group, as mpi.exchange().

        timeout is the time for all of it, in seconds, also for processes that come late. A tenth of it is kept to tell all
        processes of a failure.
        """
        deadline = time.monotonic() + timeout
        return _exchange.exchange(self._context, regions, self.rank, self.ranks,
                                  lambda value: self._gather(value, deadline), rights=rights, address=address,
                                  extra=extra, deadline=deadline - timeout * _TELL)

    def close(self):
        """Close the connections with rank 0."""
        self._opened.close()
        self._peers = {}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __repr__(self):
        return f'<peerlane.Rendezvous of {self.ranks}, rank {self.rank}>'


def rendezvous(context, *, rank=None, ranks=None, address=None, timeout=60):
    """Meet all processes that a launcher started, at rank 0; return a Rendezvous.

    Rank, number of ranks and the address of rank 0 come from the variables of srun, torchrun, mpirun, Flux or MPICH, or
    PEERLANE_RANK, PEERLANE_RANKS and PEERLANE_RENDEZVOUS, unless given. Raises PY-RENDEZVOUS if they are not known.
    """
    if rank is None or ranks is None:
        found = find_ranks(os.environ)
        rank, ranks = found[0] if rank is None else rank, found[1] if ranks is None else ranks
    if not 0 <= rank < ranks:
        _fail(f'there is no rank {rank} of {ranks}', 'ranks count from 0')
    if ranks > 1 and address is None:
        address = find_address(os.environ, ranks)
    return Rendezvous(context, rank, ranks, address or '127.0.0.1:0', timeout)
