# SPDX-License-Identifier: BSD-2-Clause
"""Sparse files stay sparse, and ranges of files."""
import json
import os
import subprocess

import pytest
from cli_support import PEERLANE, content, cut_transfer, environment, make_key, run, run_json, serving, wait_unlocked, write

MIB = 1 << 20


def sparse(path, size, *parts):
    """Makes a sparse file with some bytes at the offsets of the parts."""
    write(path, b'')
    with open(path, 'r+b') as file:
        file.truncate(size)
        for offset, data in parts:
            file.seek(offset)
            file.write(data)
    return path


def same(a, b):
    return subprocess.run(['cmp', '-s', a, b], check=False).returncode == 0


def blocks(path):
    """Bytes of disk that a file takes. While the kernel writes a file back, it counts some twice: as reserved and as allocated."""
    with open(path, 'rb') as file:
        os.fsync(file.fileno())
    return os.stat(path).st_blocks * 512


@pytest.fixture
def world(tmp_path):
    (tmp_path / 'in').mkdir()
    probe = sparse(tmp_path / 'probe', 16 * MIB, (MIB, b'x'))
    if blocks(probe) >= 16 * MIB:
        pytest.skip('the file system has no holes')
    return tmp_path


@pytest.fixture
def server(world):
    (world / 'pub').mkdir()
    with serving(world / 'pub', '--upload', world / 'in') as server:
        yield server


FILES = {
    'middle': (8 * MIB, (3 * MIB, content(MIB))),
    'both ends': (9 * MIB + 5, (0, content(70000, 2)), (9 * MIB, b'12345')),
    'only a hole': (4 * MIB + 1,),
    'many': (64 * MIB, *((i * 256 * 1024 + 7, content(5000, i)) for i in range(200))),
    'close together': (2 * MIB, *((i * 16384, b'x') for i in range(64))),
}


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('verify', [[], ['--verify']])
def test_holes_stay_holes(server, world, name, verify):
    size, *parts = FILES[name]
    source = sparse(world / 'pub/file', size, *parts)
    run('get', server.address, 'file', '-o', world / 'out', *verify)
    run('put', server.address, source, *verify)
    for copy in [world / 'out', world / 'in/file']:
        assert copy.stat().st_size == size and same(source, copy)
        # Small holes are filled, and the kernel allocates up to some hundred KiB around written bytes.
        assert blocks(copy) <= blocks(source) + len(parts) * 256 * 1024


def test_only_data_is_moved(server, world):
    size = 10 << 30
    source = sparse(world / 'pub/big', size, (5 << 30, content(MIB)))
    got = run_json('get', server.address, 'big', '-o', world / 'out')['files'][0]
    sent = run_json('put', server.address, source)['files'][0]
    for result, copy in [(got, world / 'out'), (sent, world / 'in/big')]:
        assert result['size'] == size and result['bytes'] <= 2 * MIB
        assert copy.stat().st_size == size and blocks(copy) <= 2 * MIB
        with open(copy, 'rb') as file:
            file.seek(5 << 30)
            assert file.read(MIB) == content(MIB)
    shown = run('get', server.address, 'big', '-o', world / 'again').stdout
    assert '10.7 GB with 1.05 MB of data' in shown


@pytest.mark.parametrize('how', ['get', 'put'])
def test_cut_transfers_of_sparse_files_resume(server, world, how):
    size = 96 * MIB
    parts = [(i * 6 * MIB, content(4 * MIB, i)) for i in range(16)]
    source = sparse(world / 'pub/file', size, *parts)
    copy = world / ('got' if how == 'get' else 'in') / 'file'
    copy.parent.mkdir(exist_ok=True)
    command = ['get', server.address, 'file', '-o', copy] if how == 'get' else ['put', server.address, source]
    cut_transfer(copy.parent / '.file.part', size, lambda: subprocess.Popen(
        [PEERLANE, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()))
    result = run_json(*command, '--verify')['files'][0]
    assert 0 < result['resumed'] < size and result['verified'] and same(source, copy)
    assert blocks(copy) <= 70 * MIB


@pytest.mark.parametrize('how', ['get', 'put'])
def test_holes_replace_bytes_of_an_older_attempt(server, world, how):
    """The source gets a hole, with the same size and time, where the partial file already has bytes."""
    size = 96 * MIB
    source = sparse(world / 'pub/file', size, (0, content(60 * MIB)), (90 * MIB, b'end'))
    os.utime(source, (1000, 1000))
    copy = world / ('got' if how == 'get' else 'in') / 'file'
    copy.parent.mkdir(exist_ok=True)
    command = ['get', server.address, 'file', '-o', copy] if how == 'get' else ['put', server.address, source]
    cut_transfer(copy.parent / '.file.part', size, lambda: subprocess.Popen(
        [PEERLANE, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()))
    subprocess.run(['fallocate', '--punch-hole', '-o', str(MIB), '-l', str(50 * MIB), source], check=True)
    os.utime(source, (1000, 1000))
    run(*command)
    assert same(source, copy)


def test_pipes_get_the_zeros_of_holes(server, world):
    size, *parts = FILES['both ends']
    source = sparse(world / 'pub/file', size, *parts)
    done = subprocess.run([PEERLANE, 'get', server.address, 'file', '-o', '-'], capture_output=True, check=True,
                          env=environment())
    assert done.stdout == source.read_bytes()


def test_sparse_files_over_an_encrypted_connection(world):
    key = make_key(world)
    size, *parts = FILES['many']
    source = sparse(world / 'pub/file', size, *parts)
    with serving(world / 'pub', '--key', key, '--encrypt', '--fabric', 'tcp') as server:
        run('get', server.address, 'file', '-o', world / 'out', '--key', key, '--verify')
    assert same(source, world / 'out') and blocks(world / 'out') < size // 2


# -- ranges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('offset, length', [(0, 1), (5, 100000), (299999, None), (0, None), (4096, 8192), (300000, None)])
@pytest.mark.parametrize('options', [[], ['--verify']])
def test_ranges_of_files_and_memory(server, world, offset, length, options):
    data = content(300000)
    write(world / 'pub/file', data)
    chosen = ['--offset', offset, *(['--length', length] if length else [])]
    expected = data[offset:offset + length if length else None]
    result = run_json('get', server.address, 'file', '-o', world / 'out', *chosen, *options)['files'][0]
    assert (world / 'out').read_bytes() == expected
    assert result['size'] == len(expected) and result.get('offset', 0) == offset
    done = subprocess.run([PEERLANE, 'get', server.address, 'file', '-o', '-', *map(str, chosen)], capture_output=True,
                          check=True, env=environment())
    assert done.stdout == expected


def test_ranges_of_memory(world):
    data = content(1 << 20)
    with serving('--memory', 'block=1M', '--writable') as server:
        run('put', server.address, write(world / 'file', data), '--as', 'block')
        run('get', server.address, 'block', '--offset', '512K', '--length', 777, '-o', world / 'out', '--verify')
    assert (world / 'out').read_bytes() == data[512 * 1024:512 * 1024 + 777]


def test_wrong_ranges(server, world):
    write(world / 'pub/file', content(1000))
    for chosen in [['--offset', 1001], ['--length', 1001], ['--offset', 1, '--length', 1000],
                   ['--offset', 1 << 62, '--length', 1 << 62]]:
        error = run('get', server.address, 'file', '-o', world / 'out', *chosen, expect=1).stderr
        assert 'RANGE' in error and '1000' in error and not (world / 'out').exists()
    for wrong in [['--offset', '-1'], ['--offset', 'x'], ['--length', 0], ['--length', '-5'],
                  ['-r', '--offset', 1], ['other', '--length', 5]]:
        run('get', server.address, 'file', '-o', world / 'out', *wrong, expect=2)
    assert 'RANGE' in json.loads(run('get', server.address, 'file', '--offset', 2000, '--json', '-o', world / 'out',
                                     expect=1).stdout)['files'][0]['error']['id']


def test_a_range_does_not_resume_the_whole_file(server, world):
    big = write(world / 'pub/big', content(64 * MIB))
    cut_transfer(world / '.out.part', 64 * MIB, lambda: subprocess.Popen(
        [PEERLANE, 'get', server.address, 'big', '-o', world / 'out'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment()))
    wait_unlocked(world / '.out.part')
    run('get', server.address, 'big', '-o', world / 'out', '--offset', '1M', '--length', '2M')
    assert (world / 'out').read_bytes() == big.read_bytes()[MIB:3 * MIB]
