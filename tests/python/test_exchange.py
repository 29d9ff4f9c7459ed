# SPDX-License-Identifier: BSD-2-Clause
"""Exchange of regions between all processes of a group; threads with contexts of their own stand in for processes."""
import concurrent.futures
import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
import types

import peerlane as pl
import pytest
from peerlane import _exchange, _rendezvous


class Comm:
    """Communicator with the methods of mpi4py's, for threads."""

    def __init__(self, rank, shared):
        self.rank, self.shared = rank, shared

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.shared['barrier'].parties

    def allgather(self, value):
        self.shared['barrier'].wait()
        self.shared['values'][self.rank] = value
        self.shared['barrier'].wait()
        return list(self.shared['values'])


def in_ranks(size, function):
    """Call a function with a communicator for each rank; return the results by rank."""
    shared = {'barrier': threading.Barrier(size, timeout=120), 'values': [None] * size}
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        return list(pool.map(function, [Comm(rank, shared) for rank in range(size)]))


def write_to_all(group, region, barrier):
    """Write the own rank into a byte of each other member's region; return the own region's bytes."""
    for member in group.others():
        member.peer.write(member.remote, region, group.rank, 8, 1)
    barrier()
    return bytes(region)[:len(group)]


def test_each_rank_writes_to_all_others():
    def run(comm):
        with pl.Context() as context:
            region = context.allocate(16, access='w')
            region.copy_in(bytes([100 + comm.rank]), 8)
            with pl.mpi.exchange(comm, context, region, extra=b'%d' % comm.rank) as group:
                assert (len(group), group.rank, group[comm.rank]) == (4, comm.rank, None)
                assert [member.rank for member in group.others()] == [(comm.rank + i) % 4 for i in (1, 2, 3)]
                assert all(member.extra == b'%d' % member.rank and member.remote.rights == 'w' for member in group.others())
                got = write_to_all(group, region, lambda: comm.allgather(None))
                comm.allgather(None)
            assert group.others()[0].peer.closed
            return got

    for rank, got in enumerate(in_ranks(4, run)):
        assert got == bytes(0 if other == rank else 100 + other for other in range(4))


def test_processes_of_one_host_reach_listeners_of_all_addresses():
    def run(comm):
        with pl.Context(key=b'kQ7vX2pL9mR4tY8wB3nZ6cF1') as context:
            region = context.allocate(8, access='r')
            with pl.mpi.exchange(comm, context, region, address=':0') as group:
                comm.allgather(None)
                return len(group.others())

    assert in_ranks(2, run) == [1, 1]


def test_lists_of_regions_and_rights():
    def run(comm):
        with pl.Context(key=b'a key of 16 bytes') as context:
            regions = [context.allocate(length, access='rw') for length in (10, 20)]
            with pl.mpi.exchange(comm, context, regions, rights='r', address='127.0.0.1:0') as group:
                member, = group.others()
                comm.allgather(None)
                return [(remote.length, remote.rights) for remote in member.remote]

    assert in_ranks(2, run) == [[(10, 'r'), (20, 'r')]] * 2


def test_a_failure_of_one_rank_ends_all():
    def run(comm):
        with pl.Context(key=b'one key, of rank %d' % (comm.rank == 2)) as context:
            with pytest.raises(pl.Error) as caught:
                pl.mpi.exchange(comm, context, context.allocate(8, access='r'), timeout=0.5)
            return caught.value.id, caught.value.errno == 103

    assert in_ranks(3, run) == [('PY-EXCHANGE', True)] * 3

    def refuse(comm):
        with pl.Context() as context:
            region = context.allocate(8, access='r' if comm.rank else '')
            with pytest.raises(pl.Error, match='rank 0') as caught:
                pl.mpi.exchange(comm, context, region)
            return caught.value.id

    assert in_ranks(2, refuse) == ['PY-EXCHANGE'] * 2


def test_a_rank_that_comes_twice():
    def run(comm):
        with pl.Context() as context:
            with pytest.raises(pl.Error, match='rank 0: .*no connection came in time') as caught:
                _exchange.exchange(context, context.allocate(8, access='r'), min(comm.rank, 1), 3, comm.allgather, timeout=5)
            # The traceback keeps the objects of the exchange.
            return caught.traceback and context.state()['peers']

    assert in_ranks(3, run) == [0, 0, 0]


def test_strangers_do_not_stop_an_exchange():
    """One connects before all ranks and sends nothing, another one has a wrong rank, a third one the rank of a member."""
    def run(comm):
        def gather(value):
            values = comm.allgather(value)
            if comm.rank == 2 and isinstance(value, bytes):
                address = pl.Invitation.from_bytes(values[0]).address
                peers = [strangers.connect(address) for _ in range(3)]
                for peer, rank in zip(peers, (7, 2)):
                    peer.send(rank.to_bytes(8, 'little'), tag=_exchange._TAG)
            comm.allgather(None)
            return values

        with pl.Context() as context, pl.Context() as strangers:
            region = context.allocate(16, access='w')
            region.copy_in(bytes([100 + comm.rank]), 8)
            with _exchange.exchange(context, region, comm.rank, 3, gather) as group:
                got = write_to_all(group, region, lambda: comm.allgather(None))
                comm.allgather(None)
            return got

    assert in_ranks(3, run) == [bytes(0 if other == rank else 100 + other for other in range(3)) for rank in range(3)]


def test_strangers_do_not_stop_a_rendezvous():
    address, came = free_address(), threading.Barrier(2, timeout=120)

    def run(rank):
        with pl.Context() as context, pl.Context() as other:
            if rank:
                # A stranger that goes like a rank of another run, and one that sends nothing.
                with pl.rendezvous(other, rank=5, ranks=6, address=address), other.connect(address), \
                        pl.rendezvous(context, rank=rank, ranks=2, address=address) as meeting:
                    came.wait()
                    return meeting.allgather('one')
            with pl.rendezvous(context, rank=rank, ranks=2, address=address) as meeting:
                came.wait()
                return meeting.allgather('zero')

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [['zero', 'one']] * 2


class Listening(pl.Context):
    """Context that keeps its listeners."""

    def listen(self, *address):
        self.listener = super().listen(*address)
        return self.listener


@pytest.mark.parametrize('gathers', [1, 2, 3])
def test_a_failed_exchange_leaves_nothing_open(gathers):
    class Breaking(Comm):
        def allgather(self, value):
            self.gathered.append(value)
            if len(self.gathered) > gathers:
                raise RuntimeError('the communicator failed')
            return super().allgather(value)

    def run(comm):
        broken = Breaking(comm.rank, comm.shared)
        broken.gathered = []
        with Listening() as context:
            region = context.allocate(8, access='r')
            with pytest.raises(RuntimeError, match='communicator') as caught:
                pl.mpi.exchange(broken, context, region)
            with pytest.raises(pl.Error) as refused:
                region.revoke(pl.Invitation.from_bytes(broken.gathered[1]).token)
            with pytest.raises(pl.Closed):
                context.listener.accept(timeout=0)
            state = context.state()
            return caught.traceback and (refused.value.id, state['peers'], state['remotes'])

    assert in_ranks(2, run) == [('PY-NO-GRANT', 0, 0)] * 2


def test_torch_distributed(monkeypatch):
    current = threading.local()

    def all_gather_object(values, value, group=None):
        assert group == 'group'
        values[:] = current.comm.allgather(value)

    distributed = types.SimpleNamespace(get_world_size=lambda group: current.comm.Get_size(),
                                        get_rank=lambda group: current.comm.Get_rank(), all_gather_object=all_gather_object)
    monkeypatch.setitem(sys.modules, 'torch', types.SimpleNamespace(distributed=distributed))
    monkeypatch.setitem(sys.modules, 'torch.distributed', distributed)

    def run(comm):
        current.comm = comm
        with pl.Context() as context:
            region = context.allocate(16, access='w')
            region.copy_in(bytes([100 + comm.rank]), 8)
            with pl.torch.exchange('group', context, region) as group:
                got = write_to_all(group, region, lambda: comm.allgather(None))
                comm.allgather(None)
                return got

    assert in_ranks(2, run) == [bytes([0, 101]), bytes([100, 0])]


def test_one_process_alone():
    gathered = []

    class Alone(Comm):
        def allgather(self, value):
            gathered.append(value)
            return super().allgather(value)

    with pl.Context() as context:
        region = context.allocate(8, access='r')
        group = pl.mpi.exchange(Alone(0, {'barrier': threading.Barrier(1), 'values': [None]}), context, region)
        assert len(group) == 1 and group.others() == [] and repr(group) == '<peerlane.Group of 1, rank 0>'
        group.close()
        group.close()
        token = next(pl.Invitation.from_bytes(value).token for value in gathered if isinstance(value, bytes))
        with pytest.raises(pl.Error) as caught:
            region.revoke(token)
        assert caught.value.id == 'PY-NO-GRANT'  # as the end of the group has revoked it


def free_address():
    """Returns an address on which nothing listens, with a port below those that the kernel gives to connections and to port 0."""
    while True:
        address = '127.0.0.1', random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(address):
            return f'{address[0]}:{address[1]}'


PROCESS = """
import sys
import peerlane as pl
with pl.Context() as context, pl.rendezvous(context) as meeting:
    region = context.allocate(16, access='w')
    region.copy_in(bytes([100 + meeting.rank]), 8)
    with meeting.exchange(region) as group:
        for member in group.others():
            member.peer.write(member.remote, region, meeting.rank, 8, 1)
        meeting.barrier()
        print(list(bytes(region)[:meeting.ranks]))
        meeting.barrier()
"""


def test_processes_of_a_launcher_meet():
    variables = {name: value for name, value in os.environ.items() if 'RANK' not in name}
    variables['PEERLANE_RENDEZVOUS'] = free_address()
    started = [subprocess.Popen([sys.executable, '-c', PROCESS], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**variables, 'SLURM_PROCID': str(rank), 'SLURM_NTASKS': '3'}) for rank in range(3)]
    done = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], done
    assert [out for out, _ in done] == ['[0, 101, 102]\n', '[100, 0, 102]\n', '[100, 101, 0]\n']


def test_values_of_a_rendezvous():
    address = free_address()

    def run(rank):
        with pl.Context() as context, \
                pl.rendezvous(context, rank=rank, ranks=2, address=address) as meeting:
            large = b'x' * 100000 * rank
            return meeting.allgather((None, 'text')[rank]) + [len(value) for value in meeting.allgather(large)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [[None, 'text', 0, 100000]] * 2


class Timed:
    """Object that records the timeouts of the calls of another object, and of the peers and listeners that they return."""

    def __init__(self, real, timeouts):
        self.real, self.timeouts = real, timeouts

    def __getattr__(self, name):
        member = getattr(self.real, name)

        def call(*arguments, **options):
            # The other accepts are parts of the first one's time.
            if options.get('timeout', _exchange._SLICE) != _exchange._SLICE:
                self.timeouts.append(options['timeout'])
            made = member(*arguments, **options)
            return Timed(made, self.timeouts) if isinstance(made, (pl.Peer, pl.Listener)) else made
        return call if callable(member) else member

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.real.close()


def test_the_steps_of_a_call_share_its_time():
    address, falling = free_address(), lambda timeouts: all(a > b for a, b in zip(timeouts, timeouts[1:]))

    def run(rank):
        timeouts = []
        with pl.Context() as context:
            region = context.allocate(8, access='r')
            with pl.rendezvous(Timed(context, timeouts), rank=rank, ranks=2, address=address, timeout=60) as meeting:
                # A rank that came too early has connected more than once.
                assert len(timeouts) > 2 and falling(timeouts) and timeouts[0] <= 60
                timeouts.clear()
                meeting.allgather(b'value')
                assert len(timeouts) == 4 and falling(timeouts)
                timeouts.clear()
                with meeting.exchange(region, timeout=40):
                    # The processes connect in nine tenths of the time, and tell each other of failures in the rest.
                    assert len(timeouts) == 19 and timeouts[0] == max(timeouts) <= 40
                    assert falling(timeouts[12:15]) and max(timeouts[12:15]) <= 36 and falling(timeouts[:12] + timeouts[15:])
                    meeting.barrier()
        return True

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [True, True]


@pytest.mark.parametrize('variables, ranks, address', [
    ({'SLURM_PROCID': '3', 'SLURM_NTASKS': '8', 'SLURM_JOB_ID': '5', 'SLURM_STEP_ID': '1',
      'SLURM_STEP_NODELIST': 'node[007-010,20],other'}, (3, 8), 'node007:20036'),
    ({'RANK': '1', 'WORLD_SIZE': '2', 'TORCHELASTIC_RUN_ID': 'x', 'MASTER_ADDR': 'h', 'MASTER_PORT': '29500',
      'TORCHELASTIC_USE_AGENT_STORE': 'True', 'SLURM_PROCID': '0', 'SLURM_NTASKS': '1'}, (1, 2), 'h:29501'),
    ({'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'h', 'MASTER_PORT': '29500'}, (1, 2), 'h:29501'),
    ({'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_SIZE': '4', 'OMPI_COMM_WORLD_LOCAL_SIZE': '4'}, (0, 4), '127.0.0.1:19878'),
    ({'PMI_RANK': '1', 'PMI_SIZE': '2', 'MPI_LOCALNRANKS': '2', 'SLURM_PROCID': '0', 'SLURM_NTASKS': '1'}, (1, 2),
     '127.0.0.1:19878'),
    ({'PMI_RANK': '1', 'PMI_SIZE': '2', 'MPI_LOCALNRANKS': '2', 'FLUX_TASK_RANK': '0', 'FLUX_JOB_SIZE': '1'}, (1, 2),
     '127.0.0.1:19878'),
    ({'PEERLANE_RANK': '1', 'PEERLANE_RANKS': '3', 'PEERLANE_RENDEZVOUS': 'a:1', 'PMI_RANK': '0', 'PMI_SIZE': '1'}, (1, 3), 'a:1'),
])
def test_variables_of_launchers(variables, ranks, address):
    assert _rendezvous.find_ranks(variables) == ranks and _rendezvous.find_address(variables, ranks[1]) == address


@pytest.mark.parametrize('host, address', [('fd00::1', '[fd00::1]:29501'), ('[fd00::1]', '[fd00::1]:29501'), ('::1', '[::1]:29501')])
def test_addresses_of_ipv6_get_brackets(host, address):
    assert _rendezvous.find_address({'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': host, 'MASTER_PORT': '29500'}, 2) == address


@pytest.mark.parametrize('address, found, variables, own', [
    ('node:5', ['127.0.1.1'], {}, ':5'), ('node:5', ['::1', '127.0.0.1'], {}, ':5'), ('node:5', ['10.0.0.5'], {}, 'node:5'),
    ('node:5', ['127.0.1.1', '10.0.0.5'], {}, 'node:5'), ('node:5', ['127.0.1.1'], {'LOCAL_WORLD_SIZE': '2'}, 'node:5'),
    ('node:5', ['127.0.1.1'], {'LOCAL_WORLD_SIZE': '1'}, ':5'), ('node:5', ['127.0.1.1'], {'SLURM_STEP_NUM_NODES': '1'}, 'node:5'),
    ('node:5', ['127.0.1.1'], {'SLURM_JOB_NUM_NODES': '2'}, ':5'), ('localhost:5', ['127.0.0.1'], {}, 'localhost:5'),
    ('127.0.0.1:5', ['127.0.0.1'], {}, '127.0.0.1:5'), ('[::1]:5', ['::1'], {}, '[::1]:5'), (':5', [], {}, ':5'),
    ('node:5', None, {}, 'node:5')])
def test_rank_0_listens_where_other_hosts_reach_it(monkeypatch, address, found, variables, own):
    def getaddrinfo(host, port, **options):
        assert host == 'node'
        if found is None:
            raise socket.gaierror('no such name')
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', (one, 0)) for one in found]

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    assert _rendezvous.find_own_address(address, variables, 2) == own


def test_rank_0_without_a_key(monkeypatch):
    """It listens at all addresses with a key, at loopback without one, and not at all if other hosts must come."""
    real, listened = socket.getaddrinfo, []

    class Recorder:
        def __init__(self, context):
            self.context = context

        def listen(self, address):
            listened.append(address)
            return self.context.listen('127.0.0.1:0' if address == 'node:5' else ':0')

    monkeypatch.setattr(socket, 'getaddrinfo', lambda host, *rest, **options: real('127.0.0.1', *rest, **options))
    for name in [name for name in os.environ if name.startswith(('SLURM_', 'OMPI_', 'MPI_', 'LOCAL_'))]:
        monkeypatch.delenv(name)
    with pl.Context(key=b'0123456789abcdef') as context, pytest.raises(pl.TimedOut):
        pl.rendezvous(Recorder(context), rank=0, ranks=2, address='node:5', timeout=0.01)
    assert listened == [':5']
    with pl.Context() as context:
        with pytest.raises(pl.TimedOut):
            pl.rendezvous(Recorder(context), rank=0, ranks=2, address='node:5', timeout=0.01)
        assert listened == [':5', ':5', 'node:5']
        monkeypatch.setenv('LOCAL_WORLD_SIZE', '1')
        with pytest.raises(pl.Denied, match='INSECURE-ADDRESS'):
            pl.rendezvous(Recorder(context), rank=0, ranks=2, address='node:5', timeout=0.01)


@pytest.mark.parametrize('key, other, error_id, text', [
    (b'0123456789abcdef', None, 'AUTH-NEEDS-KEY', 'rank 0 has a key and this rank has none'),
    (None, b'0123456789abcdef', 'AUTH-NO-KEY', 'this rank has a key and rank 0 has none'),
    (b'0123456789abcdef', b'fedcba9876543210', 'AUTH-KEY-MISMATCH', 'this rank and rank 0 have different keys'),
])
def test_ranks_with_different_keys(key, other, error_id, text):
    """A rank that has another key than rank 0, or none, says so at once; rank 0 tells which rank did not come."""
    with pl.Context(key=key) as context, pl.Context(key=other) as other_context, context.listen() as listener:
        with pytest.raises(pl.Denied) as caught:
            pl.rendezvous(other_context, rank=1, ranks=2, address=listener.address)
        with pytest.raises(pl.TimedOut) as late:
            pl.rendezvous(context, rank=0, ranks=2, address='127.0.0.1:0', timeout=0.1)
    assert (caught.value.id, caught.value.object, caught.value.strerror) == (error_id, 'rank 1', text)
    assert 'the same key' in caught.value.hint
    assert (late.value.id, late.value.object) == ('PY-RENDEZVOUS', 'rank 1') and 'the same key' in late.value.hint


def test_unknown_ranks_and_addresses():
    for call in (lambda: _rendezvous.find_ranks({}), lambda: _rendezvous.find_ranks({'RANK': 'x', 'WORLD_SIZE': '2'}),
                 lambda: _rendezvous.find_address({'RANK': '0'}, 2)):
        with pytest.raises(pl.Invalid) as caught:
            call()
        assert caught.value.id == 'PY-RENDEZVOUS' and caught.value.hint
    with pl.Context() as context:
        with pytest.raises(pl.Invalid):
            pl.rendezvous(context, rank=2, ranks=2)
        with pytest.raises(pl.TimedOut):
            pl.rendezvous(context, rank=0, ranks=2, address='127.0.0.1:0', timeout=0.1)
        # A process that does not tell its rank.
        address = free_address()
        with concurrent.futures.ThreadPoolExecutor(1) as pool, pl.Context() as silent:
            meeting = pool.submit(pl.rendezvous, context, rank=0, ranks=2, address=address, timeout=0.5)
            peer = None
            while not peer and not meeting.done():
                with contextlib.suppress(pl.Error):
                    peer = silent.connect(address, timeout=0.5)
            with pytest.raises(pl.TimedOut) as caught:
                meeting.result(120)
            until = time.monotonic() + 120
            while context.state()['peers'] and time.monotonic() < until:
                time.sleep(0.01)
            assert caught.traceback and context.state()['peers'] == 0
        with pytest.raises((pl.Refused, pl.TimedOut)):
            pl.rendezvous(context, rank=1, ranks=2, address=free_address(), timeout=0.1)
        with pl.rendezvous(context, rank=0, ranks=1) as alone:
            assert alone.allgather('x') == ['x']


def test_equal_names_of_different_hosts_do_not_mean_one_host():
    here = _exchange._describe_host()
    assert here.split(' ')[0] == socket.gethostname() and len(here.split(' ')) == 3 and here == _exchange._describe_host()
    assert _exchange._own_address([here, here], 0) == '127.0.0.1:0'
    for other in ('node start-2 7', 'node start-1 8'):
        with pytest.raises(pl.Error, match='two hosts or containers have this name') as caught:
            _exchange._own_address(['node start-1 7', other], 0)
        assert caught.value.id == 'PY-EXCHANGE' and 'address=' in caught.value.hint
    assert _exchange._own_address(['node start-1 7', 'localhost start-2 7'], 0) in ('127.0.0.1:0', '[::1]:0')
