# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench workflow` and `peerlane bench proxy`: counts of results, and detection of faults."""
import json
import signal

import pytest

from cli_support import DEADLINE, GPU, PEERLANE, make_key, run, run_json, start

SHORT = ['--compute', 'simulated', '--rounds', '2', '--frames', '20']
PHASES = {'receive', 'to_device', 'compute', 'to_host', 'inspect', 'other'}


def check(result, frames=40):
    assert result['verified'] is True and result['frames'] == frames and len(result['runs']) == 2
    assert result['frames_per_second'] in result['runs']
    assert result['bytes_per_second'] == pytest.approx(result['frames_per_second'] * result['size'], rel=0.001)
    assert result['seconds'] == pytest.approx(sum(frames / 2 / run for run in result['runs']), rel=0.01)
    # includes the frames before the measured ones, of which each word was compared
    assert result['bytes_direct'] + result['host_bytes_staged'] > frames * result['size']


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_all_methods_are_measured_and_verified(fabric):
    report = run_json('bench', 'workflow', '--fabric', fabric, '--size', '4K,100004', *SHORT)
    assert (report['format'], report['kind'], report['device'], report['fabric']) == (1, 'workflow', 'simulated', fabric)
    assert [method['name'] for method in report['arms']] == ['A', 'B', 'AO', 'BO', 'BP', 'S']
    assert [(row['size'], row['arm']) for row in report['results']] == [
        (size, arm) for size in (4096, 100004) for arm in ('A', 'B', 'AO', 'BO', 'BP', 'S')]
    for row in report['results']:
        check(row)
        assert set(row['phases_us']) == PHASES
        assert (row['phases_us']['to_device'] > 0) == (row['arm'] in ('A', 'AO'))
        assert (row['received_into'], row['route']) == ('host' if row['arm'] in ('A', 'AO') else 'device', 'direct')
    for ratio in report['ratios']:
        fast, slow = ([row for row in report['results'] if (row['size'], row['arm']) == (ratio['size'], arm)][0]['runs']
                      for arm in (ratio['arm'], ratio['over']))
        assert ratio['high'] == pytest.approx(max(a / b for a, b in zip(fast, slow)), rel=0.001)
        assert ratio['low'] <= ratio['ratio'] <= ratio['high']
    assert ('BO', 'A') in {(ratio['arm'], ratio['over']) for ratio in report['ratios']}


def test_proxy_serves_computed_frames():
    report = run_json('bench', 'proxy', '--size', '64K', *SHORT)
    assert report['kind'] == 'proxy' and [row['arm'] for row in report['results']] == ['A', 'B', 'AO', 'BO']
    for row in report['results']:
        check(row)
        assert row['phases_us']['serve'] > 0 and 'inspect' not in row['phases_us']
        assert (row['phases_us']['to_host'] > 0) == (row['arm'] in ('A', 'AO'))


@pytest.mark.parametrize('command, methods', [('workflow', ['A', 'B', 'AO', 'BO', 'BP', 'S']), ('proxy', ['B', 'BO'])])
@pytest.mark.parametrize('where', ['source', 'compute', 'result'])
def test_injected_fault_is_detected(command, methods, where):
    for method in methods:
        done = run('bench', command, '--size', '12K', '--inject', where, '--arms', method, *SHORT, '--json', expect=1)
        report = json.loads(done.stdout)
        assert report['error']['id'] == 'WORKFLOW-CONTENT' and report['results'] == []
        assert f'method {method}' in done.stderr and '--inject' in done.stderr and 'is wrong' in done.stderr


def test_simulated_gpu():
    methods = ['A', 'B', "A'", "B'", 'AO', 'BO', 'BP', 'S']
    report = run_json('bench', 'workflow', '--fabric', 'tcp', '--size', '300K', '--frames', '10', '--rounds', '2', **GPU)
    assert report['device'] == 'stand-in 0' and [row['arm'] for row in report['results']] == methods
    for row in report['results']:
        check(row, 20)
        # sockets cannot write into GPU memory
        staged = row['arm'][0] in 'BS'
        assert row['route'] == ('staged' if staged else 'direct') and (row['host_bytes_staged'] > 0) == staged
        assert row['reason']
    report = run_json('bench', 'proxy', '--fabric', 'tcp', '--size', '64K', '--frames', '10', '--rounds', '2',
                      '--compute', 'cuda:1', **GPU)
    assert report['device'] == 'stand-in 1' and all(row['verified'] for row in report['results'])
    done = run('bench', 'workflow', '--size', '8K', '--inject', 'compute', '--arms', "B'", expect=1, **GPU)
    assert 'WORKFLOW-CONTENT' in done.stderr


def test_text_output():
    done = run('bench', 'workflow', '--size', '64K', *SHORT)
    for word in ['PATH OF FRAMES', 'RATIO TO A', 'to_device', 'into device memory', 'A frame takes', 'BO has 8 frames in flight',
                 'no byte was staged', 'Simulated: no GPU was used']:
        assert word in done.stdout
    assert 'Simulated' not in run('bench', 'proxy', '--size', '4K', '--quiet', *SHORT).stdout


def test_server_with_a_key(tmp_path):
    key = make_key(tmp_path)
    server = start('bench', 'workflow', '--server', '--once', '--key', key, '127.0.0.1:0')
    address = server.stdout.readline().decode().split()[-1]
    report = run_json('bench', 'workflow', '--key', key, '--size', '4K', '--arms', 'BP', *SHORT, address)
    assert report['authenticated'] and report['results'][0]['verified']
    # The server sends its machine, so that it is known on other hosts too.
    assert report['peer_machine'] == report['machine'] and report['peer_machine']['cores'] >= 1
    output, errors = server.communicate(timeout=DEADLINE)
    assert server.returncode == 0 and b'frames for' in output, errors
    server = start('bench', 'workflow', '--server', '127.0.0.1:0')
    server.stdout.readline()
    server.send_signal(signal.SIGTERM)
    assert server.communicate(timeout=DEADLINE) and server.returncode == 0


@pytest.mark.parametrize('arguments, text', [
    (['--size', '2K'], '--size'), (['--size', '4097'], '--size'), (['--size', '1G'], '--size'), (['--arms', 'C'], '--arms'),
    (['--compute', 'gpu'], '--compute'), (['--inject', 'x'], '--inject'), (['--depth', '1'], '--depth'),
    (['--once'], '--once'), (['a', 'b'], 'ADDRESS')])
def test_wrong_usage(arguments, text):
    assert text in run('bench', 'workflow', *arguments, expect=2).stderr


def test_missing_gpu():
    done = run('bench', 'workflow', '--compute', 'cuda:7', expect=1, **GPU)
    assert 'GPU-NONE' in done.stderr
