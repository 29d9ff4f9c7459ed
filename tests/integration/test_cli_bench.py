# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench`: results are counted correctly.  Speeds are not tested."""
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from cli_support import (DEADLINE, GPU, PEERLANE, bench_servers, children, environment, free_port, make_key, run, run_json, serving, start,
                         wait_exited, write)

SHORT = ['--iterations', '200', '--warmup', '10']
# Operations on large messages, which must be right and need not be many.
FEW = ['--iterations', '10', '--warmup', '2']
ROW = {'tool', 'operation', 'size', 'fabric', 'route', 'reason', 'memory', 'peer_memory', 'lanes', 'depth', 'vector',
       'post_list', 'peers', 'working_set', 'operations', 'seconds', 'bytes_per_second', 'bytes_per_second_out', 'bytes_per_second_in',
       'operations_per_second', 'runs', 'latency_us', 'cpu_percent', 'server_cpu_percent', 'processors_busy', 'cycles_per_operation',
       'cycles_per_byte', 'joules', 'card_counters', 'min_rate_met', 'verified'}
TIMES = ['min', 'p50', 'p90', 'p95', 'p99', 'p999', 'p9999', 'max']


def rows(*arguments, **options):
    return run_json('bench', *arguments, **options)['results']


def check_row(row, operation, size, operations=None):
    assert set(row) == ROW
    assert (row['operation'], row['size'], row['fabric'], row['route']) == (operation, size, 'local', 'direct')
    assert row['reason'] and row['lanes'] >= 1 and row['depth'] >= 1
    assert row['card_counters'] is row['min_rate_met'] is None
    latency = row['latency_us']
    assert list(latency) == [*TIMES, 'mean', 'stddev']
    assert sorted(latency[name] for name in TIMES) == [latency[name] for name in TIMES] and latency['min'] > 0
    assert latency['min'] <= latency['mean'] <= latency['max'] and latency['stddev'] <= latency['max']
    assert row['tool'] == 'peerlane' and row['memory'] == row['peer_memory'] == 'host'
    assert operations is None or row['operations'] == operations
    assert row['operations_per_second'] > 0 and row['seconds'] > 0 and row['cpu_percent'] >= 0
    # perftest's arithmetic: bytes of the payload by the time from the first post to the last completion
    assert row['bytes_per_second'] == pytest.approx(row['operations'] * size / row['seconds'], rel=0.01)
    assert row['operations_per_second'] == pytest.approx(row['operations'] / row['seconds'], rel=0.01, abs=1)


@pytest.mark.parametrize('operation', ['write', 'read', 'send'])
def test_bandwidth_of_a_list_of_sizes(operation):
    result = rows('--op', operation, '--size', '8,4K,1M', '--validate', *SHORT)
    assert [row['size'] for row in result] == [8, 4096, 1 << 20]
    for row in result:
        check_row(row, operation, row['size'], 200)
        assert row['verified'] is True


@pytest.mark.parametrize('operation', ['fetch-add', 'compare-swap'])
def test_atomic_operations(operation):
    row, = rows('--op', operation, '--validate', *SHORT)
    check_row(row, operation, 8, 200)
    assert row['verified'] is True


@pytest.mark.parametrize('operation', ['write', 'read', 'send', 'fetch-add'])
def test_latency(operation):
    row, = rows('--latency', '--op', operation, '--size', '8', '--validate', '--iterations', '300', '--warmup', '10')
    assert row['depth'] == 1 and row['verified'] is True
    assert row['operations'] == (600 if operation in ['write', 'send'] else 300)


@pytest.mark.parametrize('ends', [('cuda:0', 'cuda:1'), ('host', 'cuda:0'), ('cuda:0', 'host')])
def test_latency_of_writes_of_gpu_memory_ends_with_the_completion(ends):
    arguments = ['--latency', '--memory', ends[0], '--peer-memory', ends[1], '--size', '64K', '--validate', '--iterations', '50',
                 '--warmup', '5']
    row, = rows(*arguments, **GPU)
    assert row['verified'] is True and row['operations'] == 50
    assert 'until the completion' in run('bench', *arguments, **GPU).stdout
    # To and fro: for messages, and if the receiver reads the bytes.
    assert rows(*arguments, '--op', 'send', **GPU)[0]['operations'] == 100
    assert rows(*arguments, '--touch', **GPU)[0]['operations'] == 100


def test_latency_of_large_messages_verifies_all_bytes():
    for operation in ['write', 'send']:
        row, = rows('--latency', '--op', operation, '--size', '3M', '--validate', *FEW)
        assert row['verified'] is True


def test_range_of_sizes_uses_the_step():
    assert [row['size'] for row in rows('--size', '8-128', '--step', '4', *SHORT)] == [8, 32, 128]
    assert [row['size'] for row in rows('--size', '16-64', *SHORT)] == [16, 32, 64]


def test_both_ways_adds_both_directions():
    for operation in ['write', 'read', 'send']:
        row, = rows('--both-ways', '--op', operation, '--size', '64K', '--validate', *SHORT)
        assert row['verified'] is True
        assert row['bytes_per_second'] == pytest.approx(row['bytes_per_second_out'] + row['bytes_per_second_in'], abs=2)
        assert min(row['bytes_per_second_out'], row['bytes_per_second_in']) > 0


def test_threads_streams_vectors_depth_and_duration():
    row, = rows('--fabric', 'tcp', '--progress', 'thread', '--lanes', '4', '--size', '16M', '--validate', *FEW)
    assert row['lanes'] > 1 and row['verified'] is True
    row, = rows('--vector', '16', '--depth', '3', '--size', '100', '--validate', *SHORT)
    assert (row['vector'], row['depth'], row['verified']) == (16, 3, True)
    row, = rows('--duration', '0.3', '--size', '1K', '--repeat', '3')
    assert 0.2 < row['seconds'] < 5 and row['verified'] is None


def test_document_has_command_and_machines():
    report = run_json('bench', '--size', '64', '--repeat', '3', '--memory', 'host', '--peer-memory', 'host', *SHORT)
    assert (report['format'], report['kind'], report['mode']) == (1, 'bench', 'bandwidth')
    assert report['command'][:4] == ['peerlane', 'bench', '--size', '64']
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', report['time'])
    for machine in [report['machine'], report['peer_machine']]:
        assert machine['cores'] == os.sysconf('SC_NPROCESSORS_ONLN') and machine['kernel'] and machine['memory_bytes'] > 0
    assert 'topology' not in report and 'check' not in report and report['staging_locked'] == 0
    row, = report['results']
    assert len(row['runs']) == 3 and sorted(row['runs'])[1] == row['bytes_per_second']
    # A counter that cannot be read is null, with its reason.
    for name, value in [('cycles', row['cycles_per_operation']), ('joules', row['joules'])]:
        assert value is not None or report['not_readable'][name]
    row, = rows('--latency', '--op', 'read', '--size', '8', '--repeat', '2', *SHORT)
    assert row['latency_us']['p50'] in row['runs']


def test_document_with_topology_and_check():
    report = run_json('bench', '--with-machine', '--size', '8', *SHORT)
    assert set(report['topology']) == set(run_json('topo')) and 'error' not in report['topology']
    assert isinstance(report['check'], dict) and report['results'][0]['size'] == 8
    run('bench', '--with-machine', expect=2)


def test_rate_is_limited():
    for progress in ['manual', 'thread']:
        row, = rows('--op', 'read', '--rate', '1000op', '--size', '1K', '--iterations', '300', '--warmup', '10',
                    '--progress', progress)
        assert row['operations'] == 300 and 0.29 < row['seconds'] and row['operations_per_second'] < 1010
    row, = rows('--rate', '10KB', '--size', '1000', '--iterations', '4')
    assert row['bytes_per_second'] < 14000


def test_results_have_the_least_rate():
    report = run_json('bench', '--min-rate', '1KB', '--size', '8,64K', *SHORT)
    assert report['min_rate_bytes_per_second'] == 1000 and 'error' not in report
    assert [row['min_rate_met'] for row in report['results']] == [True, True]


# The rate of 64K is above the limit, as --rate counts operations and not bytes.
BELOW = ['--size', '8,64K', '--rate', '2000op', '--iterations', '200', '--warmup', '10', '--min-rate', '1MB']


def test_a_result_below_the_least_rate_fails_after_all_results():
    report = run_json('bench', *BELOW, expect=1)
    assert [row['min_rate_met'] for row in report['results']] == [False, True]
    low = report['results'][0]['bytes_per_second']
    error = report['error']
    assert error['id'] == 'RATE-TOO-LOW' and error['object'] == 'write of size 8' and error['code'] < 0
    assert f'{low} bytes a second' in error['message'] and '1000000 (1.00 MB/s) of --min-rate' in error['message']
    assert '1 of 2 results' in error['message'] and 'peerlane check' in error['hint']
    for output in [[], ['--csv'], ['--perftest']]:
        done = run('bench', *BELOW, *output, expect=1)
        assert re.search(r'(^|,| )(64K|65536)[ ,]', done.stdout, re.MULTILINE), done.stdout
        assert 'write of size 8: ' in done.stderr and '[RATE-TOO-LOW]' in done.stderr and 'hint: ' in done.stderr
    # All powers of two: small messages are too slow, and the error names the slowest.
    report = run_json('bench', '--all', '--rate', '1000op', '--iterations', '20', '--warmup', '2', '--min-rate', '1MB',
                      expect=1)
    met = [row['min_rate_met'] for row in report['results']]
    assert met == [row['bytes_per_second'] >= 1e6 for row in report['results']] and len(met) == 23 and not met[0] and met[-1]
    slowest = min(report['results'], key=lambda row: row['bytes_per_second'])
    assert report['error']['object'] == f'write of size {slowest["size"]}'
    assert f'{met.count(False)} of 23 results' in report['error']['message']


def test_least_rate_of_several_servers_is_that_of_the_total():
    with bench_servers(2) as addresses:
        report = run_json('bench', *addresses, '--size', '1K', '--min-rate', '1024T', *SHORT, expect=1)
        row, = report['results']
        assert len(row['servers']) == 2 and row['min_rate_met'] is False
        assert report['error']['message'].startswith(f'{row["bytes_per_second"]} bytes a second')
        assert rows(*addresses, '--size', '1K', '--min-rate', '1K', *SHORT)[0]['min_rate_met'] is True


@pytest.mark.parametrize('arguments, reason', [
    (['--latency'], '--latency has no rate'), (['--latency', '--op', 'read'], '--latency has no rate'),
    (['--op', 'connect'], '--op connect has no rate'), (['--op', 'register'], '--op register has no rate'),
    (['--server'], 'option of the client'), (['--min-rate', '0'], "not '0'"), (['--min-rate', '5op'], "not '5op'"),
    (['--min-rate', '1025T'], "not '1025T'"),
])
def test_modes_without_a_least_rate(arguments, reason):
    done = run('bench', '--min-rate', '1K', *arguments, expect=2)
    assert '--min-rate' in done.stderr and reason in done.stderr and not done.stdout


@pytest.mark.parametrize('other', ['compare', 'workflow', 'proxy'])
def test_other_measurements_refuse_the_least_rate_by_name(other):
    assert "'--min-rate'" in run('bench', other, '--min-rate', '1K', expect=2).stderr


def test_samples_over_time():
    row, = rows('--rate', '2000op', '--size', '500', '--samples', '0.05', '--iterations', '1000', '--warmup', '10')
    samples = row['samples']['bytes_per_second']
    assert row['samples']['interval_seconds'] == 0.05 and len(samples) >= 9
    assert min(samples) == row['minimum_bytes_per_second'] <= row['bytes_per_second'] * 1.01
    # Samples count all completed operations except those of the last interval.
    assert sum(samples) * 0.05 <= 1000 * 500 and sum(samples) * 0.05 >= 1000 * 500 * 0.5
    assert 'samples' not in rows('--size', '8', *SHORT)[0]


def test_cost_of_registrations_and_connections():
    row, = rows('--op', 'register', '--size', '1M', '--iterations', '5')
    assert row['operations'] == 5 and set(row['registration_us']) == {'cold', 'cached', 'operation'}
    assert min(row['registration_us'].values()) > 0 and row['registration_us']['cold'] == row['latency_us']['p50']
    for fabric in ['tcp', 'local']:
        row, = rows('--op', 'connect', '--iterations', '4', '--fabric', fabric)
        assert row['operations'] == 4 and row['fabric'] == fabric and row['connect_us'] == row['latency_us']['p50'] > 0
    assert 'write alone' in run('bench', '--op', 'register', '--size', '4K', '--iterations', '3').stdout


def test_working_set():
    for operation in ['read', 'write', 'send']:
        arguments = ['--op', operation, '--size', '64K', '--depth', '4', '--validate', '--iterations', '40', '--progress', 'thread']
        assert rows(*arguments)[0]['working_set'] == 4 * 65536
        for size, used in [('1M', 1 << 20), ('100K', 65536), ('1', 65536)]:
            row, = rows(*arguments, '--working-set', size)
            assert row['verified'] is True and row['working_set'] == used
        # More slots than messages in flight, and more messages than slots: each slot has its content.
        row, = rows(*arguments, '--iterations', '300', '--working-set', '3M', '--both-ways',
                    *(['--touch'] if operation != 'write' else []))
        assert row['verified'] is True and row['working_set'] == 3 << 20
    arguments = ['--size', '4K', '--depth', '4', '--vector', '3', '--peers', '2', '--iterations', '99', '--validate']
    assert rows('--op', 'write', *arguments, '--working-set', '1M')[0]['verified'] is True
    text = run('bench', '--op', 'read', '--size', '64K', '--latency', '--working-set', '8M', *FEW).stdout
    assert 'a working set of 8M' in text
    row, = rows('--op', 'read', '--size', '64K', '--latency', '--working-set', '8M', *FEW)
    assert row['working_set'] == 8 << 20
    for arguments in [('--latency',), ('--op', 'fetch-add'), ('--op', 'register')]:
        assert '--working-set is for read' in run('bench', '--working-set', '64M', *arguments, expect=2).stderr
    for size in ['0', '1025M', '2G', 'x']:
        assert '--working-set takes a size from 1 to 1G' in run('bench', '--working-set', size, expect=2).stderr
    assert '--working-set is for' in run('bench', 'kv', '--working-set', '64M', expect=2).stderr


def test_affinity_huge_pages_and_post_lists():
    core = min(os.sched_getaffinity(0))
    report = run_json('bench', '--cpu', core, '--peer-cpu', max(os.sched_getaffinity(0)), '--huge-pages', '--size', '64K',
                      '--validate', '--post-list', '8', '--iterations', '40', '--progress', 'thread')
    row, = report['results']
    assert row['verified'] is True and row['post_list'] == 8 and report['cpus'] == str(core)
    assert report['huge_pages'] in ['hugetlb', 'transparent', None]
    assert 'BENCH-PLACE' in run('bench', '--numa', '1023', expect=1).stderr
    assert 'BENCH-PLACE' in run('bench', '--cpu', '1023', expect=1).stderr
    if os.path.exists('/sys/devices/system/node/node0'):
        assert rows('--numa', '0', '--size', '4K', '--validate', *SHORT)[0]['verified'] is True


def test_several_connections():
    for arguments in [['--fabric', 'tcp'], ['--op', 'read'], ['--op', 'fetch-add'], ['--vector', '4', '--progress', 'thread'],
                      ['--both-ways']]:
        row, = rows('--peers', '3', '--size', '8', '--validate', '--iterations', '100', '--warmup', '10', *arguments)
        assert row['verified'] is True and row['peers'] == 3 and row['operations'] % 100 == 0
    assert [row['verified'] for row in rows('--peers', '5', '--size', '8,64K', '--validate', *SHORT)] == [True, True]


@pytest.fixture
def busy_core():
    """A processor with programs that leave a measurement's ends a fraction of it, whatever else runs."""
    core = min(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, '-c', 'print(flush=True)\nwhile True: pass'], stdout=subprocess.PIPE,
                              preexec_fn=lambda: os.sched_setaffinity(0, [core])) for _ in range(6)]
    for loop in loops:
        assert loop.stdout.readline()
    yield str(core)
    for loop in loops:
        loop.kill()
        loop.communicate()


@pytest.mark.parametrize('fabric', ['tcp', 'local'])
def test_a_busy_processor_is_named(busy_core, fabric):
    place = ['--cpu', busy_core, '--peer-cpu', busy_core, '--fabric', fabric, '--size', '8', '--duration', '0.5']
    done = run('bench', *place)
    assert 'warning: the processors were busy: an end that polls' in done.stderr and 'hint: try --progress thread' in done.stderr
    assert 'busy' not in done.stdout and not run('bench', '--quiet', *place).stderr
    assert rows(*place)[0]['processors_busy'] is True
    assert rows(*place, '--progress', 'thread')[0]['processors_busy'] is None
    assert 'busy' not in run('bench', *place, '--progress', 'thread').stderr


def test_depth_by_default_counts_for_each_connection():
    one, two, many = ([row['depth'] for row in rows('--peers', count, '--size', '8,4M', '--iterations', '100', '--warmup', '10')]
                      for count in ('1', '2', '200'))
    assert one == [128, 16] and two == [256, 32]
    assert many == [16384, 3200]
    assert rows('--peers', '2', '--depth', '128', '--size', '8', *SHORT)[0]['depth'] == 128


def test_several_servers_at_once():
    with bench_servers(3) as addresses:
        for arguments in [['--size', '8,64K'], ['--op', 'read', '--fabric', 'tcp', '--size', '4K', '--vector', '2'],
                          ['--op', 'send', '--size', '100'], ['--op', 'fetch-add', '--post-list', '4', '--repeat', '2'],
                          ['--peers', '2', '--post-list', '8', '--size', '64'], ['--latency', '--op', 'read', '--size', '8'],
                          *(['--both-ways', '--op', op, '--size', size] for op, size in (
                              ('write', '8,64K'), ('read', '4K'), ('send', '100'), ('fetch-add', '8')))]:
            report = run_json('bench', *addresses, '--validate', '--iterations', '600', '--warmup', '10', *arguments)
            assert [server['address'] for server in report['servers']] == addresses
            for machine in [report['peer_machine'], *(server['peer_machine'] for server in report['servers'])]:
                assert machine['kernel'] and machine['cores']
            for row in report['results']:
                assert row['verified'] is True and [one['address'] for one in row['servers']] == addresses
                assert sum(one['operations'] for one in row['servers']) == row['operations'] >= 600
                assert max(one['seconds'] for one in row['servers']) <= row['seconds'] * 1.001
                assert all(one['latency_us']['max'] <= row['latency_us']['max'] for one in row['servers'])
                out, into = row['bytes_per_second_out'], row['bytes_per_second_in']
                assert out == pytest.approx(row['operations'] * row['size'] / row['seconds'], rel=0.01)
                assert row['bytes_per_second'] == pytest.approx(out + into, abs=2) and bool(into) == report['both_ways']
                assert sum(one['bytes_per_second_in'] for one in row['servers']) == pytest.approx(into, abs=4)
        shown = run('bench', *addresses, '--size', '4K', *SHORT).stdout
        assert 'SIZE, SERVER' in shown and all(f'\n{address}' in shown for address in addresses)
        lines = list(csv.DictReader(run('bench', *addresses, '--size', '8', '--csv', *SHORT).stdout.splitlines()))
        assert [line['server'] for line in lines] == ['', *addresses]
        assert sum(int(line['operations']) for line in lines[1:]) == int(lines[0]['operations'])
        for arguments in [['--latency'], ['--op', 'connect']]:
            assert 'a single ADDRESS' in run('bench', *addresses, *arguments, expect=2).stderr
        # An unreachable server ends the measurement, and the error names it.
        unreachable = f'127.0.0.1:{free_port()}'
        assert unreachable in run('bench', *addresses, unreachable, *SHORT, expect=1).stderr
        assert run_json('bench', addresses[0], '--size', '8', *SHORT)['results'][0]['operations'] == 200


def test_post_lists_complete_all_operations():
    for arguments in [['--op', 'write'], ['--op', 'read', '--fabric', 'tcp'], ['--op', 'send'], ['--op', 'compare-swap']]:
        # The last list holds the remaining operations.
        row, = rows('--post-list', '32', '--size', '8', '--validate', '--iterations', '1003', '--warmup', '10', '--depth',
                    '100', *arguments)
        assert (row['verified'], row['post_list'], row['operations']) == (True, 32, 1003)


def test_touch_reads_received_bytes():
    for arguments in [['--op', 'read'], ['--op', 'send'], ['--latency']]:
        row, = rows(*arguments, '--touch', '--size', '10000', '--validate', '--iterations', '50', '--warmup', '10')
        assert row['verified'] is True


def test_unknown_kind_of_memory():
    for option in ['--peer-memory', '--memory']:
        for kind in ['nonsense', 'hosts', 'cuda:', 'cuda:x', 'cuda:1x', 'cuda:-1']:
            assert f'{option} takes host, cuda or cuda:N' in run('bench', option, kind, '--size', '8', expect=2).stderr


def test_csv_has_the_values_of_json():
    lines = list(csv.DictReader(run('bench', '--size', '8,4K', '--csv', '--validate', *SHORT).stdout.splitlines()))
    assert [(line['operation'], line['size'], line['verified']) for line in lines] == \
        [('write', '8', 'true'), ('write', '4096', 'true')]
    for line in lines:
        assert None not in line and float(line['bytes_per_second']) > 0
        assert 0 < float(line['min_us']) <= float(line['p50_us']) <= float(line['p9999_us']) <= float(line['max_us'])


# Programs that scripts use to parse the output of perftest.
AWK = [
    r'$1 ~ /^[0-9]+$/ { print $1, $2, $4 }', r'/#bytes/ { getline; print $4 }', r'/#bytes/ { getline; print $6 }',
    r'/^ #bytes/ { on = 1; next } /^---/ { on = 0 } on { print $1 "," $3 "," $NF }', r'NF == 5 && $1 + 0 > 0 { print $5 }',
    r'NF == 9 && $1 + 0 > 0 { print $3, $4, $5, $8, $9 }', r'{ last = line; line = $0 } END { split(last, f); print f[1], f[5] }',
    r'/^ *[0-9]+ +[0-9]+ / { print $1 }', r'/TX depth/ { print $4 }', r'/#bytes/ { print }',
]


def awk(program, text):
    return subprocess.run(['awk', program], input=text, capture_output=True, text=True, check=True,
                          timeout=DEADLINE).stdout


def shape(text):
    """Returns the fields of each line, with N for each number."""
    return [['N' if re.fullmatch(r'\d+(\.\d+)?', field) else field for field in re.split('[ ,]+', line.strip())]
            for line in text.splitlines()]


@pytest.mark.parametrize('recorded, arguments', [
    ('write_bw', ['-n', '200']), ('write_bw_all', ['-n', '20', '-a']), ('write_lat', ['-n', '200', '--latency', '--size', '8']),
    ('write_bw_gbits', ['-n', '200', '--report_gbits']), ('read_bw', ['-n', '100', '--op', 'read', '-s', '4096']),
    ('atomic_bw', ['-n', '100', '--op', 'fetch-add']),
    ('read_lat', ['-n', '100', '--op', 'read', '-l', '-s', '8']), ('send_lat', ['-n', '100', '--op', 'send', '-l', '-s', '64']),
])
def test_scripts_for_perftest_parse_the_output(recorded, arguments):
    expected = (pathlib.Path(__file__).parent / f'perftest/{recorded}.txt').read_text()
    output = run('bench', '--perftest', '--warmup', '10', *arguments).stdout
    for program in AWK:
        if program == r'/TX depth/ { print $4 }' and 'lat' not in recorded:
            assert awk(program, output).strip().isdigit() and awk(program, expected).strip().isdigit()
            continue
        assert shape(awk(program, output)) == shape(awk(program, expected)), program
    sizes = r'$1 ~ /^[0-9]+$/ { print $1, $2 }'
    if recorded != 'write_lat':
        assert awk(sizes, output) == awk(sizes, expected)
    if 'bw' in recorded:
        factor = 1.25e8 if 'gbits' in recorded else 1 << 20
        for line in awk(r'$1 ~ /^[0-9]+$/ { print $1, $3, $4, $5 }', output).splitlines():
            size, peak, average, rate = map(float, line.split())
            # The rate has six decimals: of a slow machine, whole messages in a second.
            assert average <= peak and average == pytest.approx(rate * 1e6 * size / factor, rel=0.01, abs=0.02 + size / factor)


def test_with_a_key_and_encrypted(tmp_path):
    report = run_json('bench', '--key', make_key(tmp_path), '--size', '1K', *SHORT)
    assert (report['authenticated'], report['encrypted']) == (True, False)
    report = run_json('bench', '--encrypt', '--size', '1M', '--validate', *SHORT)
    assert (report['authenticated'], report['encrypted']) == (True, True)
    assert report['results'][0]['verified'] is True


def test_text_output():
    done = run('bench', '--size', '8,1K', '--validate', *SHORT)
    for word in ['write bandwidth over local, direct', 'SIZE', 'GB/s', 'p50 us', 'p99.9 us', 'CPU %', 'CONTENT', 'correct',
                 'the same host']:
        assert word in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) >= 5 and 'cycles' in done.stdout and (' J ' in done.stdout or 'joules UNKNOWN' in done.stdout)
    # Missing values are printed before the table.
    table = next(i for i, line in enumerate(lines) if line.startswith('SIZE'))
    assert not any('UNKNOWN' in line for line in lines[table:])
    assert len(run('bench', '--quiet', '--size', '8,1K', *SHORT).stdout.splitlines()) == 3
    assert 'one way' not in run('bench', '--latency', '--op', 'read', '--size', '8', *SHORT).stdout
    # The depth differs by size.
    assert ' 128 to 4 in flight, ' in run('bench', '--size', '8,1M,16M', *FEW).stdout
    assert ' 32 in flight, ' in run('bench', '--size', '8,16M', '--depth', '32', *FEW).stdout
    assert ' 128 to 8 in flight, ' in run('bench', '--size', '8,1M,16M', '--memory', 'cuda:0', '--peer-memory', 'host', *FEW,
                                          **GPU).stdout


# Operations that would outlast run(), if a client waited for an answer.
PATIENT = ['--timeout', 2 * DEADLINE]


def test_other_servers_are_recognised_at_once(tmp_path):
    """A client that reaches another program's server says so, and does not wait for answers."""
    address = f'127.0.0.1:{free_port()}'
    server = start('bench', '--server', address)
    try:
        assert server.stdout.readline()
        for command in (['list', address, *PATIENT], ['get', address, 'x', '-o', tmp_path, *PATIENT], ['bench', 'workflow', address]):
            error = run(*command, expect=1).stderr
            assert '[OTHER-PROGRAM]' in error and '`peerlane bench --server` listens there' in error
        run('bench', address, *SHORT)
    finally:
        server.kill()
        server.communicate()
    with serving(tmp_path) as published:
        error = run('bench', published.address, expect=1).stderr
        assert '[OTHER-PROGRAM]' in error and '`peerlane serve` listens there' in error
        run('list', published.address)


def test_each_client_recognises_a_workflow_server(tmp_path):
    server = start('bench', 'workflow', '--server', '127.0.0.1:0')
    try:
        address = server.stdout.readline().split()[-1].decode()
        write(tmp_path / 'file', b'data')
        for command in (['list', address, *PATIENT], ['get', address, 'x', '-o', tmp_path, *PATIENT],
                        ['put', address, tmp_path / 'file', *PATIENT], ['bench', address]):
            error = run(*command, expect=1).stderr
            assert '[OTHER-PROGRAM]' in error and '`peerlane bench workflow` listens there' in error
    finally:
        server.kill()
        server.communicate()


def interrupt_bench(arguments, group):
    """Interrupts a measurement when it has results; returns its document."""
    delay = 2
    for _ in range(10):
        process = subprocess.Popen([PEERLANE, *arguments, '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, env=environment())
        time.sleep(delay)
        if group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE)
        # A machine that is less busy than before may be done by now.
        if process.returncode == 0:
            delay /= 2
            continue
        assert process.returncode == -signal.SIGINT
        # It may have had no time to prepare for signals, or to measure.
        if b'[INTERRUPTED]' in errors and json.loads(output)['results']:
            return json.loads(output)
        delay *= 2.5
    raise AssertionError('no measurement was interrupted when it had results')


@pytest.mark.parametrize('arguments', [['bench', '--all', '--duration', '1.5'],
                                       ['bench', 'workflow', '--size', '4K', '--rounds', '50', '--compute', 'simulated']],
                         ids=['bench', 'workflow'])
@pytest.mark.parametrize('group', [False, True], ids=['client', 'both'])
def test_an_interrupted_measurement_prints_what_it_has(arguments, group):
    """Ctrl-C also ends the server that the client started: its loss is not the reason, and no content is wrong."""
    document = interrupt_bench(arguments, group)
    assert document['error']['id'] == 'INTERRUPTED' and document['results'][0]['bytes_per_second'] > 0
    assert all(result.get('verified') in (None, True) for result in document['results'])


def test_an_ignored_signal_does_not_interrupt():
    """A shell without job control starts jobs with & so that they ignore SIGINT."""
    process = subprocess.Popen([PEERLANE, 'bench', '--size', '1K', '--duration', '1', '--json'], stdout=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), env=environment())
    end = time.monotonic() + DEADLINE
    while not children(process.pid):
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == 0 and 'error' not in json.loads(output)


def test_server_serves_clients_one_after_the_other():
    address = f'127.0.0.1:{free_port()}'
    server = start('bench', '--server', address)
    try:
        end = time.monotonic() + DEADLINE
        while subprocess.run([PEERLANE, 'bench', address, '--size', '8', '--json', *SHORT], capture_output=True,
                             env=environment(), timeout=DEADLINE).returncode:
            assert server.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        for operation in ['read', 'send']:
            assert rows(address, '--op', operation, '--size', '32K', '--validate', *SHORT)[0]['verified'] is True
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=DEADLINE)
        assert server.returncode in (0, 128 + signal.SIGTERM)
    finally:
        server.kill()
        server.wait()


def test_server_with_once_exits_after_a_client():
    address = f'127.0.0.1:{free_port()}'
    server = start('bench', '--server', '--once', address)
    try:
        end = time.monotonic() + DEADLINE
        done = None
        while not done or done.returncode:
            assert time.monotonic() < end
            done = subprocess.run([PEERLANE, 'bench', address, '--size', '8', *SHORT], capture_output=True,
                                  env=environment(), timeout=DEADLINE)
        server.communicate(timeout=DEADLINE)
        assert server.returncode == 0
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGINT])
def test_local_server_exits_with_the_client(number):
    process = start('bench', '--duration', '60')
    end = time.monotonic() + DEADLINE
    while not (born := children(process.pid)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(number)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == -number
    wait_exited(born)


def test_killed_server_is_reported_at_once():
    process = start('bench', '--duration', '60', '--json')
    end = time.monotonic() + DEADLINE
    while not (born := children(process.pid)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(born[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1 and b'peerlane: ' in errors
    assert json.loads(output)['error']['id']


@pytest.mark.parametrize('arguments', [
    ['--size', '0'], ['--latency', '--size', '4'], ['--size', '2G'], ['--size', '8,'], ['--size', '16-8'], ['--op', 'throw'], ['--depth', '0'],
    ['--lanes', '17'], ['--latency', '--bandwidth', '--depth', '4', '--vector', '2', '--op', 'send'],
    ['--latency', '--depth', '3'], ['--duration', '0'], ['--op', 'send', '--vector', '2'],
    ['--op', 'fetch-add', '--size', '16'], ['--progress', 'magic'], ['--server', 'one', 'two'], ['one', 'two', '--latency'], ['one', 'two', '--op', 'register'], ['one', 'two', '--peers', '129'],
    ['--post-list', '4', '--peers', '3', '--depth', '11'], ['--rate', '0'],
    ['--rate', '5x'], ['--rate', '0op'], ['--samples', '0'], ['--samples', '0.1', '--both-ways'], ['--cpu', '1-'], ['--cpu', '3-1'], ['--cpu', '0,'], ['--numa', 'x'],
    ['--csv', '--json'], ['--gbits'], ['--op', 'connect', '--size', '8'], ['--op', 'register', '--both-ways'], ['--touch'],
    ['--depth', '4', '--post-list', '5'], ['--latency', '--rate', '5op'], ['--perftest', '--op', 'connect'],
    ['--peer-cpu', '0', 'host'],
    ['--peers', '2', '--op', 'send'], ['--peers', '257'], ['--latency', '--peers', '2'], ['--samples', '0.0001', '--duration', '100'], ['--memory', 'x' * 24], ['--server', '--latency', '--once=1'],
])
def test_wrong_usage(arguments):
    done = run('bench', *arguments, expect=2)
    assert 'peerlane' in done.stderr and not done.stdout


def test_unreachable_server():
    done = run('bench', f'127.0.0.1:{free_port()}', expect=1)
    assert 'CONNECT' in done.stderr or 'refused' in done.stderr
