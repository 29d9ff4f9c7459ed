# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench --mpi`, started by Open MPI's mpirun, and without it."""
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from cli_support import DEADLINE, PEERLANE, environment, make_key, run

MPIRUN = shutil.which('mpirun')
needs_mpi = pytest.mark.skipif(not MPIRUN, reason='mpirun is not installed (openmpi-bin)')
# Open MPI keeps some memory to its end, of which LeakSanitizer would accuse the command.
MPI = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
       'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}
FEW = ['--duration', '0.004', '--size', '4K']


def mpi(ranks, *arguments, expect=0):
    """More ranks than cores, and as whichever user the tests have."""
    done = subprocess.run([MPIRUN, '--oversubscribe', '-n', str(ranks), PEERLANE, 'bench', '--mpi', *map(str, arguments)],
                          capture_output=True, text=True, timeout=110,
                          env=environment(**MPI))
    assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
    return done


@needs_mpi
def test_eight_ranks(tmp_path):
    document = json.loads(mpi(8, *FEW, '--json').stdout)
    assert document['kind'] == 'matrix' and document['format'] == 1 and document['size'] == 4096
    assert document['command'][:3] == ['peerlane', 'bench', '--mpi']
    assert [rank['rank'] for rank in document['ranks']] == list(range(8)) and not document['failed']
    for name in ['bytes_per_second', 'latency_us']:
        for row, values in enumerate(document[name]):
            assert [index for index, value in enumerate(values) if value is None] == [row]
            assert all(value > 0 for index, value in enumerate(values) if index != row)
    path = tmp_path / 'all.json'
    path.write_text(json.dumps(document))
    page = run('report', path, '-o', '-').stdout
    ElementTree.fromstring(page.split('\n', 1)[1])
    assert 'between 8 ranks' in page


HOSTS = 4
# What mpirun calls in place of ssh: HOST COMMAND...; a "host" has a network and a name of its own.
AGENT = """#!/bin/sh
number=${1##*.}
shift
exec ip netns exec "$PREFIX$number" unshare --uts sh -c 'hostname "node$1"; shift; exec sh -c "$*"' sh "$number" "$@"
"""


def quietly(command):
    return subprocess.run(command.split(), capture_output=True, timeout=DEADLINE).returncode == 0


@pytest.fixture
def hosts(tmp_path):
    """Hosts on one switch, 10.77.0.1 and on; what goes to the last one passes through 30 Mbit/s."""
    prefix = f'pl{os.getpid() % 100000}-'
    bridge = f'{prefix}b'
    if os.geteuid() or not shutil.which('ip') or not quietly(f'ip link add {bridge} type bridge'):
        pytest.skip('no root, or no networks of one\'s own here')
    try:
        assert quietly(f'ip address add 10.77.0.100/24 dev {bridge}') and quietly(f'ip link set {bridge} up')
        for number in range(1, HOSTS + 1):
            if not quietly(f'ip netns add {prefix}{number}'):
                pytest.skip('no network namespaces here')
            for command in [f'link add {prefix}v{number} type veth peer name eth0 netns {prefix}{number}',
                            f'link set {prefix}v{number} master {bridge} up',
                            f'-n {prefix}{number} address add 10.77.0.{number}/24 dev eth0',
                            f'-n {prefix}{number} link set eth0 up', f'-n {prefix}{number} link set lo up']:
                assert quietly(f'ip {command}'), command
        slow = quietly(f'tc qdisc add dev {prefix}v{HOSTS} root tbf rate 30mbit burst 32k latency 50ms')
        agent = tmp_path / 'agent'
        agent.write_text(AGENT.replace('$PREFIX', prefix))
        agent.chmod(0o755)
        (tmp_path / 'hosts').write_text(''.join(f'10.77.0.{number} slots=2\n' for number in range(1, HOSTS + 1)))
        yield tmp_path, slow
    finally:
        for number in range(1, HOSTS + 1):
            quietly(f'ip netns delete {prefix}{number}')
        quietly(f'ip link delete {bridge}')


@needs_mpi
def test_between_hosts(hosts):
    folder, slow = hosts
    network = '10.77.0.0/24'
    done = subprocess.run([MPIRUN, '--hostfile', folder / 'hosts', '-n', str(2 * HOSTS), '--mca', 'plm_rsh_agent',
                           folder / 'agent', '--mca', 'oob_tcp_if_include', network, '--mca', 'btl_tcp_if_include', network,
                           '--mca', 'btl', 'tcp,self', '--mca', 'pml', 'ob1', PEERLANE, 'bench', '--mpi', '--insecure',
                           '--network', '10.77.', '--size', '64K', '--duration', '0.01', '--json'],
                          capture_output=True, text=True, timeout=110, env=environment(**MPI))
    assert done.returncode == 0, (done.stdout, done.stderr)
    document = json.loads(done.stdout)
    assert [rank['host'] for rank in document['ranks']] == [f'node{rank // 2 + 1}' for rank in range(2 * HOSTS)]
    assert not document['failed'] and document['median_between_hosts'] and document['median_within_hosts']
    named = {(one['from'], one['to']) for one in document['slow'] if one['what'] == 'bandwidth'}
    last = {2 * HOSTS - 2, 2 * HOSTS - 1}
    # Those that go to the slow one from another host, all of them, and no others in their place.
    assert not slow or {(i, j) for i in range(2 * HOSTS - 2) for j in last} <= named
    path = folder / 'hosts.json'
    path.write_text(done.stdout)
    page = run('report', path, '-o', '-').stdout
    assert 'node1' in page and f'node{HOSTS}' in page and ('slow' in page.lower() or not slow)


@needs_mpi
def test_over_sockets_with_a_key_for_people(tmp_path):
    shown = mpi(3, *FEW, '--fabric', 'tcp', '--key', make_key(tmp_path), '--network', 'lo').stdout
    assert shown.startswith('3 ranks, messages of 4K') and 'median' in shown
    rows = [line.split() for line in shown.splitlines() if line[:6].strip().isdigit() and len(line.split()) == 4]
    assert [row[0] for row in rows if row[int(row[0]) + 1] == '-'] == ['0', '1', '2', '0', '1', '2']


@needs_mpi
def test_memory_that_is_not_there_ends_all_ranks():
    """None of them may wait for another for ever."""
    done = mpi(2, *FEW, '--memory', 'cuda:63', expect=1)
    assert 'peerlane: ' in done.stderr and '[GPU-' in done.stderr


@needs_mpi
def test_alone_and_with_wrong_options():
    assert '[MPI-RANKS]' in run('bench', '--mpi', expect=1, **MPI).stderr
    assert '[MPI-NETWORK]' in mpi(2, *FEW, '--network', 'nosuch0', expect=1).stderr


@pytest.mark.skipif(bool(MPIRUN), reason='Open MPI is installed')
def test_without_the_library():
    assert '[MPI-NONE]' in run('bench', '--mpi', expect=1).stderr


@pytest.mark.parametrize('arguments', [['host'], ['--size', '0'], ['--size', '8,16'], ['--duration', 'x'], ['--nonsense']])
def test_wrong_usage(arguments):
    run('bench', '--mpi', *arguments, expect=2)


def test_help_teaches():
    shown = run('bench', '--mpi', '--help').stdout
    assert 'mpirun -n 8 peerlane bench --mpi' in shown and max(map(len, shown.splitlines())) < 80
    assert '--mpi' in run('bench', '--help').stdout


def test_another_mpi_is_refused_by_name(tmp_path):
    """MPICH's kin has the functions, and numbers in place of the objects that Open MPI exports."""
    source = tmp_path / 'other.c'
    source.write_text('int MPI_Init(int *c, char ***v) { (void)c; (void)v; return 0; }\n')
    subprocess.run(['cc', '-shared', '-fPIC', '-o', tmp_path / 'libmpi.so.40', source], check=True, timeout=60)
    done = run('bench', '--mpi', expect=1, LD_LIBRARY_PATH=str(tmp_path))
    assert '[MPI-FOREIGN]' in done.stderr and 'ompi_mpi_comm_world' in done.stderr
