# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench --matrix`: ranks that meet without MPI, on hosts of which some are slow, absent or die."""
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import pytest
from cli_support import DEADLINE, GPU, PEERLANE, environment, free_port, make_key, run
from netns_support import can_make_hosts, hosts

needs_hosts = pytest.mark.skipif(os.geteuid() != 0 or not can_make_hosts(), reason='needs root and namespaces')
FEW = ['--duration', '0.004', '--size', '4K']
# Seconds that no measurement of these tests reaches.
ENDLESS = 600.0
LAUNCHERS = ['PEERLANE_', 'OMPI_', 'SLURM', 'PMI', 'FLUX_', 'RANK', 'WORLD_SIZE', 'MASTER_', 'JOB_COMPLETION', 'TORCHELASTIC',
             'LOCAL_WORLD', 'MPI_']


def clean(**changes):
    """Returns an environment without variables of launchers."""
    variables = {name: value for name, value in environment().items() if not name.startswith(tuple(LAUNCHERS))}
    return {**variables, **{name: str(value) for name, value in changes.items()}}


class Rank:
    running = []

    def __init__(self, *arguments, inside=lambda *command: command, **variables):
        self.process = subprocess.Popen(inside(PEERLANE, 'bench', '--matrix', *map(str, arguments)), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean(**variables))
        Rank.running.append(self.process)

    def end(self, expect=0):
        output, errors = self.process.communicate(timeout=DEADLINE)
        assert expect in (None, self.process.returncode), (self.process.args, self.process.returncode, output, errors)
        return output, errors

    def refused(self, error):
        """Waits for the end of a rank that fails with this error; returns its message."""
        errors = self.end(expect=1)[1]
        assert f'[{error}]' in errors, errors
        return errors


@pytest.fixture(autouse=True)
def end_ranks():
    """Kills ranks that a failed test has left."""
    yield
    for process in Rank.running:
        process.kill()
        process.wait()
    Rank.running.clear()


def free_address():
    return f'127.0.0.1:{free_port()}'


def refused(error, *arguments, **variables):
    return Rank(*FEW, *arguments, **variables).refused(error)


def pairs(document, name='bytes_per_second'):
    """Returns the pairs with a value, in both directions."""
    return {(i, j): value for i, row in enumerate(document[name]) for j, value in enumerate(row) if value is not None}


def measure(count, *arguments):
    """Measures between ranks of this host; returns the document of rank 0."""
    address = free_address()
    ranks = [Rank('--rendezvous', address, '--rank', rank, '--ranks', count, *FEW, '--json', *arguments)
             for rank in range(count)]
    ended = [rank.end() for rank in ranks]
    assert all(not output for output, _ in ended[1:])
    return json.loads(ended[0][0])


# -- hosts -------------------------------------------------------------------------------------------------

COUNT = 32
SLOW, DYING, DEAD = 20, 12, 27  # numbers of hosts, from 1 on


def measure_fleet(fleet, saved, names, seconds):
    """Measures without the dead host, and kills the dying one; returns the output and the errors of rank 0, and all exit statuses."""
    ranks = {number: Rank('--host', f'node{number}.cluster', *names, '--join-timeout', seconds,
                          *(['--save', saved, '--json'] if number == 1 else []),
                          inside=lambda *command, number=number: fleet.inside(number, *command))
             for number in range(1, COUNT + 1) if number != DEAD}
    end = time.monotonic() + DEADLINE
    while not (saved.exists() and pairs(json.loads(saved.read_text()))):
        assert ranks[1].process.poll() is None and time.monotonic() < end, ranks[1].end(expect=None)
        time.sleep(0.01)
    ranks[DYING].process.kill()
    ends = [rank.end(expect=None) for rank in ranks.values()]
    return *ends[0], {number: rank.process.returncode for number, rank in ranks.items()}


@needs_hosts
def test_fleet_with_slow_dying_and_dead_hosts(tmp_path):
    """The dying host delays each round, so that it is killed long before the end of the run, which goes on without it."""
    saved = tmp_path / 'all.json'
    names = ['--hosts', f'node[1-{COUNT}]', '--rendezvous', '10.77.0.1', '--key', make_key(tmp_path), '--fabric', 'tcp',
             '--rounds', '8', *FEW]
    with hosts(COUNT) as fleet:
        limited = fleet.limit(SLOW, '4mbit') and fleet.limit(DYING, '512kbit')
        if not limited:
            pytest.skip('the kernel has no tbf')
        # Other ranks of a busy machine may not join in time.
        for seconds in 8, 40, 200:
            output, errors, statuses = measure_fleet(fleet, saved, names, seconds)
            document = json.loads(output or '{"left_out": []}')
            if len(document['left_out']) == 2:
                break
            saved.unlink(missing_ok=True)
    assert statuses == {number: -signal.SIGKILL if number == DYING else 3 for number in statuses}, errors
    assert document['left_out'] == [
        {'rank': DYING - 1, 'host': f'node{DYING}.cluster', 'reason': 'the connection is lost'},
        {'rank': DEAD - 1, 'host': f'node{DEAD}', 'reason': f'it has not joined within {seconds} s'}]
    assert f'rank {DYING - 1} (node{DYING}.cluster) is left out: the connection is lost' in errors
    assert document['complete'] and [rank['host'] for rank in document['ranks']] == [
        f'node{number}' if number == DEAD else f'node{number}.cluster' for number in range(1, COUNT + 1)]
    rates = pairs(document)
    measured = {pair for pair in rates if DYING - 1 not in pair}
    assert measured == {pair for pair in pairs(document, 'latency_us') if DYING - 1 not in pair}
    for rank in set(range(COUNT)) - {DYING - 1, DEAD - 1}:
        # Each round has another partner, of which one has died, and one was never there.
        assert 7 <= len({j for i, j in rates if i == rank} | {DYING - 1}) <= 9
    # No more than 4 Mbit/s and the burst of 8 KiB arrive at the slow host.
    slow = [rate for (i, j), rate in rates.items() if j == SLOW - 1]
    assert slow and all(rate < 1e6 for rate in slow)
    # Pairs are reported as slow only after they were measured again.
    reported = [pair for pair in document['slow'] if DYING - 1 not in (pair['from'], pair['to'])]
    assert document['measured_again'] >= 1 or not reported
    assert json.loads(saved.read_text()) == {**document, 'time': json.loads(saved.read_text())['time']}


@needs_hosts
def test_absent_host_is_measured_when_the_run_is_resumed(tmp_path):
    saved = tmp_path / 'all.json'

    def measure_between(fleet, numbers, expect, *arguments):
        """Returns the output and the errors of rank 0, and the exit status of each rank."""
        ranks = [Rank('--hosts', 'node[1-4]', '--host', f'node{number}', '--insecure', '--fabric', 'tcp', *FEW,
                      '--rendezvous', '10.77.0.1:20001', '--json', *arguments,
                      inside=lambda *command, number=number: fleet.inside(number, *command)) for number in numbers]
        ends = [rank.end(expect) for rank in ranks]
        return *ends[0], [rank.process.returncode for rank in ranks]

    with hosts(4) as fleet:
        # Other ranks of a busy machine may not join in time.
        for seconds in 4, 20, 100:
            output, errors, statuses = measure_between(fleet, [1, 2, 4], None, '--save', saved, '--join-timeout', seconds)
            document = json.loads(output or '{"left_out": []}')
            if len(document['left_out']) == 1:
                break
            saved.unlink(missing_ok=True)
        assert statuses == [3, 3, 3], errors
        assert f'rank 2 (node3) is left out: it has not joined within {seconds} s' in errors
        assert document['left_out'] == [{'rank': 2, 'host': 'node3', 'reason': f'it has not joined within {seconds} s'}]
        assert pairs(document).keys() == {(i, j) for i in (0, 1, 3) for j in (0, 1, 3) if i != j}
        assert not document['failed'] and document['complete']
        assert document['ranks'][2] == {'rank': 2, 'host': 'node3', 'memory': None}
        assert 'node3' in run('report', saved, '-o', '-').stdout
        resumed = json.loads(measure_between(fleet, [1, 2, 3, 4], 0, '--resume', saved)[0])
        assert len(pairs(resumed)) == 12 and resumed['left_out'] == []
        assert {pair: pairs(resumed)[pair] for pair in pairs(document)} == pairs(document)
        few = measure_between(fleet, [1, 2], 1, '--join-timeout', '1', '--minimum', '3')[0]
        assert json.loads(few)['error']['id'] == 'MATRIX-FEW'


# -- schedules and rails -----------------------------------------------------------------------------------

CELLS = {'ring': {(0, 1), (1, 2), (2, 0)}, 'all-to-all': {(i, j) for i in range(3) for j in range(3) if i != j},
         'one-to-all': {(0, 1), (0, 2), (1, 0), (2, 0)}}


@pytest.mark.parametrize('schedule', CELLS)
def test_schedules_in_which_all_write_at_once(schedule, tmp_path):
    saved, options = tmp_path / 'all.json', ['--schedule', schedule, '--fabric', 'tcp']
    document = measure(3, *options, '--save', saved)
    assert document['schedule'] == document['options']['schedule'] == schedule and document['complete']
    assert pairs(document).keys() == CELLS[schedule] and not pairs(document, 'latency_us') and not document['failed']
    # Nothing lacks; then one result does, and all are measured again, as all write at once.
    assert pairs(measure(3, *options, '--resume', saved)) == pairs(document)
    document['bytes_per_second'][2][0] = None
    saved.write_text(json.dumps(document))
    again = pairs(measure(3, *options, '--resume', saved))
    assert again.keys() == CELLS[schedule] and not set(again.values()) & set(pairs(document).values())


@pytest.mark.skipif(not pathlib.Path('/proc/net/if_inet6').exists() or ' lo\n' not in pathlib.Path('/proc/net/if_inet6').read_text(),
                    reason='loopback has no IPv6 address')
def test_networks_with_ipv6():
    """A network without an address of IPv4 is used as well."""
    assert pairs(measure(2, '--network', '::1', '--fabric', 'tcp')).keys() == {(0, 1), (1, 0)}
    address = free_address()
    ranks = [Rank('--rendezvous', address, '--rank', rank, '--ranks', 2, *FEW, '--network', 'fd77:') for rank in range(2)]
    assert 'no address of this host matches' in ''.join(rank.end(expect=1)[1] for rank in ranks)


def test_output_beside_the_table(tmp_path):
    """--output writes the document into a file, or behind the table."""
    def first_rank(*arguments):
        address = free_address()
        ranks = [Rank('--rendezvous', address, '--rank', rank, '--ranks', 2, *FEW, *arguments) for rank in range(2)]
        return [rank.end()[0] for rank in ranks][0]

    table = first_rank('-o', tmp_path / 'run.json')
    assert 'from row to column' in table and '{' not in table and json.loads((tmp_path / 'run.json').read_text())['complete']
    table, _, document = first_rank('--output', '-').partition('\n{')
    assert 'from row to column' in table and pairs(json.loads('{' + document)).keys() == {(0, 1), (1, 0)}
    assert '--json and --output -' in run('bench', '--matrix', '--json', '-o', '-', expect=2).stderr


def test_rails_apart(tmp_path):
    """Rails are measured one after the other; a pair has the values of its worst rail."""
    saved = tmp_path / 'all.json'
    rails = ['--rails-apart', '--network', '127.,lo', '--fabric', 'tcp']
    document = measure(2, *rails, '--save', saved)
    assert [rail['name'] for rail in document['rails']] == ['127.', 'lo']
    for name, worst in [('bytes_per_second', min), ('latency_us', max)]:
        values = [pairs(rail, name) for rail in document['rails']]
        assert pairs(document, name) == {pair: worst(value[pair] for value in values) for pair in [(0, 1), (1, 0)]}
    resumed = measure(2, *rails, '--resume', saved)
    assert resumed['rails'] == document['rails'] and measure(2)['rails'] is None
    run('bench', '--matrix', '--rails-apart', '--network', 'lo', expect=2)
    run('bench', '--matrix', '--rails-apart', '--network', 'lo,127.', '--device', 'a,b,c', expect=2)


# -- interrupted runs --------------------------------------------------------------------------------------


def test_interrupted_run_is_resumed(tmp_path):
    saved, address = tmp_path / 'all.json', free_address()
    document = measure(3, '--save', saved)
    assert len(pairs(document)) == 6
    document['complete'] = False
    document['options']['duration'] = ENDLESS
    for name in ['bytes_per_second', 'latency_us', 'reason_of']:
        document[name][0][2] = document[name][2][0] = None
    saved.write_text(json.dumps(document))
    planted = saved.stat().st_ino
    ranks = [Rank('--rendezvous', address, '--rank', rank, '--ranks', 3, '--size', '4K', '--duration', ENDLESS, '--timeout',
                  ENDLESS, '--resume', saved) for rank in range(3)]
    end = time.monotonic() + DEADLINE
    # Rank 0 replaces the file before it measures.
    while saved.stat().st_ino == planted:
        assert ranks[0].process.poll() is None and time.monotonic() < end, ranks[0].end(expect=None)
        time.sleep(0.01)
    ranks[0].process.send_signal(signal.SIGINT)
    assert 'has the results of 2 of 3 pairs' in ranks[0].end(expect=-signal.SIGINT)[1]
    for rank in ranks[1:]:
        rank.refused('MATRIX-LOST')
    document = json.loads(saved.read_text())
    assert len(pairs(document)) == 4
    document['options']['duration'] = 0.004
    saved.write_text(json.dumps(document))
    resumed = measure(3, '--resume', saved)
    assert {pair: pairs(resumed)[pair] for pair in pairs(document)} == pairs(document) and len(pairs(resumed)) == 6


def test_interrupted_while_ranks_join(tmp_path):
    address = free_address()
    for arguments in [], ['--save', tmp_path / 'all.json']:
        first = Rank(*FEW, '--rendezvous', address, '--rank', '0', '--ranks', '2', *arguments,
                     inside=lambda *command: ['sh', '-c', 'ulimit -Sn 256; exec "$@"', 'sh', *command])
        wait_for_listener(address)
        # A rank has connections with all others.
        soft, hard = resource.prlimit(first.process.pid, resource.RLIMIT_NOFILE)
        assert soft > 256 or hard == 256
        first.process.send_signal(signal.SIGINT)
        errors = first.end(expect=-signal.SIGINT)[1]
        assert ('[INTERRUPTED]' in errors) == bool(arguments)


# -- ranks that do not fit ---------------------------------------------------------------------------------


def wait_for_listener(address):
    host, port = address.split(':')
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=DEADLINE)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_strangers_and_wrong_ranks_are_refused(tmp_path):
    """Rank 0 waits for rank 1 of three meanwhile, and then measures with it and with rank 2."""
    address = free_address()
    key, other = make_key(tmp_path), make_key(tmp_path, 'other', os.urandom(32))
    terms = ['--rendezvous', address, '--key', key, '--run', 'night']
    first = Rank(*terms, *FEW, '--rank', 0, '--ranks', 3, '--join-timeout', 200)
    with wait_for_listener(address) as silent, wait_for_listener(address) as noisy:
        noisy.sendall(b'GET / HTTP/1.0\r\n\r\n' + bytes(4096))
        silent.sendall(b'\0')
        second = Rank(*terms, *FEW, '--rank', 2, '--ranks', 3)
        refused('AUTH-KEY-MISMATCH', '--rendezvous', address, '--key', other, '--rank', 1, '--ranks', 3)
        assert 'rank 0 has 3 ranks, this rank has 4' in refused('MATRIX-DIFFERS', *terms, '--rank', 1, '--ranks', 4)
        assert 'night' in refused('MATRIX-DIFFERS', *terms, '--run', 'day', '--rank', 1, '--ranks', 3)
        assert '--size 8192' in refused('MATRIX-DIFFERS', *terms, '--size', '8K', '--rank', 1, '--ranks', 3)
        # It joins last, so rank 2 is here or comes; one of the two is refused.
        third = Rank(*terms, *FEW, '--rank', 2, '--ranks', 3)
        end = time.monotonic() + DEADLINE
        while second.process.poll() is None and third.process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        loser, winner = (second, third) if second.process.poll() is not None else (third, second)
        assert 'rank 2 has joined' in loser.refused('MATRIX-RANK-TWICE')
        done = run('list', address, '--key', key, expect=1)
        assert '[OTHER-PROGRAM]' in done.stderr
        last = Rank(*terms, *FEW, '--rank', 1, '--ranks', 3)
        last.end()
        winner.end()
        output, errors = first.end()
    assert output.startswith('3 ranks') and 'left out' not in output
    assert errors.count(' is refused: ') == 4 and '[MATRIX-RANK-TWICE]' in errors


def test_rank_0_is_another_program_or_absent(tmp_path):
    address = free_address()
    assert 'rank 1 has not reached rank 0 within 0.3 s' in refused('MATRIX-JOIN', '--rendezvous', address, '--rank', 1, '--ranks',
                                                                  2, '--join-timeout', '0.3')
    refused('MATRIX-FEW', '--rendezvous', address, '--rank', 0, '--ranks', 2, '--join-timeout', '0.3')


RANKED = {'PEERLANE_RENDEZVOUS': '127.0.0.1:9', 'PEERLANE_RANKS': 2}


@pytest.mark.parametrize('error, arguments, variables', [
    ('MATRIX-RANK', [], {}),
    ('MATRIX-RANK', ['--rank', '1'], {}),
    ('MATRIX-RANK', ['--rank', '2', '--ranks', '2', '--rendezvous', '127.0.0.1:9'], {}),
    ('MATRIX-RANK', ['--hosts', 'a,b', '--host', 'c'], {}),
    ('MATRIX-ADDRESS', ['--rank', '1', '--ranks', '2'], {}),
    ('MATRIX-ADDRESS', ['--rank', '1', '--ranks', '2', '--rendezvous', '127.0.0.1:0'], {}),
    ('MATRIX-ADDRESS', ['--rank', '1', '--ranks', '2', '--rendezvous', ':20001'], {}),
    ('MATRIX-ENVIRONMENT', [], {**RANKED, 'PEERLANE_RANK': 'x'}),
    ('MATRIX-ENVIRONMENT', [], {**RANKED, 'PEERLANE_RANK': '-1'}),
    ('MATRIX-ENVIRONMENT', [], {'SLURM_PROCID': '1', 'SLURM_NTASKS': '0'}),
    ('MATRIX-ENVIRONMENT', [], {'JOB_COMPLETION_INDEX': '1'}),
    ('MATRIX-ENVIRONMENT', [], {'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'a', 'MASTER_PORT': '99999999999'}),
    ('MATRIX-RANKS', [], {**RANKED, 'PEERLANE_RANK': '0', 'PEERLANE_RANKS': '1'}),
    ('MATRIX-RANKS', ['--ranks', '3'], {**RANKED, 'PEERLANE_RANK': '0'}),
    ('FLEET-HOSTS', [], {'SLURM_PROCID': '1', 'SLURM_NTASKS': '2', 'SLURM_JOB_NODELIST': 'node[1-'}),
])
def test_missing_or_garbage_membership(error, arguments, variables):
    refused(error, *arguments, **variables)


@pytest.mark.parametrize('arguments', [['host'], ['--schedule', 'star'], ['--rounds', '0'], ['--rank', '-1'], ['--minimum', '1'],
                                       ['--rounds', '4', '--schedule', 'ring'], ['--ranks', '1025']])
def test_wrong_usage(arguments):
    run('bench', '--matrix', *arguments, expect=2)


# -- launchers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize('launcher, address', [
    (lambda rank, port: {'OMPI_COMM_WORLD_RANK': rank, 'OMPI_COMM_WORLD_SIZE': 2, 'PMIX_RANK': 9, 'SLURM_PROCID': 0,
                         'SLURM_NTASKS': 1}, True),
    (lambda rank, port: {'PMI_RANK': rank, 'PMI_SIZE': 2}, True),
    # Processes of MPICH's mpirun have the variables of the task, of Slurm or Flux, that started them.
    (lambda rank, port: {'PMI_RANK': rank, 'PMI_SIZE': 2, 'SLURM_PROCID': 0, 'SLURM_NTASKS': 1}, True),
    (lambda rank, port: {'PMI_RANK': rank, 'PMI_SIZE': 2, 'FLUX_TASK_RANK': 0, 'FLUX_JOB_SIZE': 1}, True),
    (lambda rank, port: {'RANK': rank, 'WORLD_SIZE': 2, 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port - 1,
                         'TORCHELASTIC_RUN_ID': 'a', 'TORCHELASTIC_USE_AGENT_STORE': 'True', 'SLURM_PROCID': 0,
                         'SLURM_NTASKS': 1}, False),
    (lambda rank, port: {'SLURM_PROCID': rank, 'SLURM_NTASKS': 2, 'SLURM_JOB_ID': 7, 'SLURM_STEP_ID': 1,
                         'SLURM_STEP_NODELIST': 'node[1-2]', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port}, False),
    (lambda rank, port: {'JOB_COMPLETION_INDEX': rank, 'PEERLANE_RENDEZVOUS': f'127.0.0.1:{port}'}, None),
], ids=['mpirun', 'pmi', 'pmi-slurm', 'pmi-flux', 'torchrun', 'srun', 'kubernetes'])
def test_launchers(launcher, address):
    port = free_port(2) + 1
    # torchrun's agent listens at MASTER_PORT.
    agent = socket.create_server(('127.0.0.1', port - 1))
    arguments = [*FEW, *(['--rendezvous', f'127.0.0.1:{port}'] if address else []), *(['--ranks', 2] if address is None else [])]
    ranks = [Rank(*arguments, **launcher(rank, port)) for rank in range(2)]
    output = [rank.end()[0] for rank in ranks]
    agent.close()
    assert output[0].startswith('2 ranks, messages of 4K') and not output[1]


@pytest.mark.parametrize('seen, memory, warning', [
    (('1', 'second'), ['cuda:0', 'cuda:0'], ''),
    (('2', '2'), ['cuda:0', 'cuda:1'], ''),
    (('1', '1'), ['cuda:0', 'cuda:0'], 'peerlane: warning: 1 rank has no GPU of its own: rank 1 (one) shares 0000:F0:00.0 with rank 0\n'),
], ids=['each-sees-one', 'all-see-two', 'too-few'])
def test_gpu_for_each_rank(seen, memory, warning):
    address = free_address()
    ranks = [Rank(*FEW, '--memory', 'cuda', '--json', '--rendezvous', address, '--ranks', 2, '--rank', rank, '--host', 'one', **GPU,
                  STANDIN_GPUS=gpus) for rank, gpus in enumerate(seen)]
    (output, errors), _ = [rank.end() for rank in ranks]
    assert errors == warning and [rank['memory'] for rank in json.loads(output)['ranks']] == memory
