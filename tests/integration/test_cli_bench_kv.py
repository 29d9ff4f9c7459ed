# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench kv`: requests of scattered blocks are counted, and their bytes checked.  Speeds are not tested."""
import itertools

import pytest

from cli_support import GPU, bench_servers, run, run_json

FEW = ['--iterations', '20', '--warmup', '3', '--validate']


def rows(*arguments, **options):
    return run_json('bench', 'kv', *arguments, **options)['results']


def check(row, operation, size, blocks):
    assert (row['operation'], row['size'], row['vector'], row['verified']) == (f'kv-{operation}', size, blocks, True)
    assert row['requests'] == 20 and row['operations'] == 20 * blocks
    assert row['requests_per_second'] == pytest.approx(20 / row['seconds'], rel=0.01, abs=0.1)
    assert row['bytes_per_second'] == pytest.approx(20 * blocks * size / row['seconds'], rel=0.01)
    # Both percentages are rounded to 0.1.
    percent, gigabytes = row['cpu_percent'] + row['server_cpu_percent'], row['bytes_per_second'] / 1e9
    assert row['cpu_seconds_per_gigabyte'] == pytest.approx(percent / 100 / gigabytes, abs=0.001 / gigabytes + 0.0001)
    assert 0 < row['latency_us']['p50'] <= row['latency_us']['p99']


@pytest.mark.parametrize('fabric, operation', itertools.product(['local', 'tcp'], ['read', 'write']))
def test_blocks_of_both_operations(fabric, operation):
    report = run_json('bench', 'kv', '--fabric', fabric, '--op', operation, '--size', '4K,5000', '--blocks', '33', *FEW)
    assert (report['kind'], report['progress']) == ('bench', 'thread')
    for row, size in zip(report['results'], [4096, 5000], strict=True):
        check(row, operation, size, 33)
        assert (row['fabric'], row['depth'], row['prepared']) == (fabric, 4, False)


@pytest.mark.parametrize('operation, ends', [('read', ('cuda:0', 'cuda:1')), ('write', ('cuda:1', 'host'))])
def test_blocks_of_gpus(operation, ends):
    row, = rows('--op', operation, '--memory', ends[0], '--peer-memory', ends[1], '--size', '4K', '--blocks', '16', *FEW, **GPU)
    check(row, operation, 4096, 16)
    assert (row['memory'], row['peer_memory']) == ends


def test_prepared_requests_of_two_servers():
    with bench_servers(2) as addresses:
        row, = rows('--prepared', '--progress', 'manual', '--op', 'write', '--blocks', '8', '--size', '4K', *FEW, *addresses)
    check(row, 'write', 4096, 8)
    assert row['prepared'] and sum(server['operations'] for server in row['servers']) == 160


def test_table():
    shown = run('bench', 'kv', '--size', '4K', '--blocks', '1', '--depth', '2', *FEW).stdout
    assert 'kv-read requests over local' in shown and '2 in flight, 1 scattered blocks each' in shown
    head, row = (line.split() for line in shown.splitlines() if line.lstrip().startswith(('BLOCK', '4K')))
    assert ' '.join(head) == 'BLOCK GB/s requests/s p50 us p99 us CPU s/GB CONTENT'
    assert row[0] == '4K' and row[-1] == 'correct' and all(float(value) >= 0 for value in row[1:-1])


@pytest.mark.parametrize('arguments, text', [
    (['--op', 'send'], "--op takes read or write, not 'send'"),
    (['--touch'], '--touch is not for requests of blocks'),
    (['--blocks', '65536', '--depth', '65', '--size', '4K'], 'need more than 16 GiB'),
    (['--perftest'], 'perftest has no test of --op kv-read'),
    (['--blocks', '0'], '--blocks takes'),
])
def test_wrong_usage(arguments, text):
    assert text in run('bench', 'kv', *arguments, expect=2).stderr


def test_requests_are_no_operation_of_bench():
    assert 'register or connect, not' in run('bench', '--op', 'kv-read', expect=2).stderr
