# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane demo`."""
import json
import re
import signal
import subprocess
import time

from cli_support import DEADLINE, GPU, PEERLANE, children, environment, make_key, run, run_json, start, wait_exited

SMALL = ['--size', '24M', '--frames', '11']
TINY = ['--size', '1M', '--frames', '2']


def test_transfers_and_verifies_real_files():
    result = run_json('demo', *SMALL)
    pull, push, write = result['steps'][:3]
    assert bool(result['gpus']) is (result['gpu_error'] is None)
    assert len(result['steps']) == (8 if result['gpus'] else 3)
    assert result['verified'] is True and result['error'] is None
    assert result['authenticated'] is True and result['encrypted'] is False
    assert pull['bytes'] == pull['bytes_verified'] >= 24 << 20 and pull['count'] >= 1
    assert push['bytes'] == push['bytes_verified'] == 11 << 23 and push['count'] == 11
    assert write['count'] == 10000 and write['bytes'] == write['bytes_verified'] == 80000
    assert 0 < write['latency_p50_ns'] <= write['latency_p99_ns']
    for step in [pull, push, write]:
        assert step['fabric'] == 'local' and step['route'] == 'direct' and step['reason']


def test_prints_a_table():
    done = run('demo', *TINY)
    assert not done.stderr
    for word in ['STEP', 'RATE', 'LATENCY', 'ROUTE', 'pull ', 'push 2 frames', 'write 8 bytes', 'total', 'p50 ', 'p99 ',
                 'direct', 'GPUs  ', 'TLS', 'no differences']:
        assert word in done.stdout
    assert 'route     direct, 1 lane: local' in done.stdout
    assert re.search(r'^route     direct, \d lanes?: tcp: ', run('demo', *TINY, '--no-gpu', '--fabric', 'tcp').stdout, re.M)


def test_all_options_of_connections_and_a_key_of_the_user(tmp_path):
    options = '--lanes 2 --rails 1 --traffic-class 8 --service-level 1 --gid-index 1 --ack-timeout 14 --retries 7'
    result = run_json('demo', *TINY, '--encrypt', *options.split(), '--rnr-timer', '12', '--key', make_key(tmp_path),
                      '--no-gpu', **GPU)
    assert result['encrypted'] is True and result['verified'] is True
    assert result['gpus'] == [] and result['gpu_error'] is None and len(result['steps']) == 3


def test_wrong_usage():
    run('demo', 'argument', expect=2)
    run('demo', '--size', 'much', expect=2)
    run('demo', '--frames', '0', expect=2)
    run('demo', '--inject', 'push', expect=2)


def gpu_steps(result):
    return {step['step']: step for step in result['steps'] if step['step'].startswith('gpu-')}


def test_frames_between_gpus():
    for gpus in [2, 1]:
        result = run_json('demo', *TINY, **GPU, STANDIN_GPUS=str(gpus))
        assert [gpu['number'] for gpu in result['gpus']] == list(range(gpus)) and result['gpu_error'] is None
        assert result['verified'] is True
        steps = gpu_steps(result)
        assert list(steps) == ['gpu-push', 'gpu-pull', 'gpu-host', 'gpu-write', 'gpu-host-write']
        for name, step in steps.items():
            size = 16000 if 'write' in name else 2 << 23
            assert step['bytes'] == step['bytes_verified'] == size and step['count'] == (2000 if 'write' in name else 2)
            assert step['route'] == 'direct' and step['fabric'] == 'local' and step['reason']
            assert step['through_host'] is ('host' in name)
            assert ('latency_p50_ns' in step) is ('write' in name)
        assert steps['gpu-push']['reason'] != steps['gpu-host']['reason']
        ends = [(steps[name]['from_gpu'], steps[name]['to_gpu']) for name in ['gpu-push', 'gpu-pull', 'gpu-host']]
        assert ends == [(0, gpus - 1), (gpus - 1, 0), (0, 0)]
        assert result['bytes'] == sum(step['bytes'] for step in result['steps'])


def test_prints_gpus():
    lines = run('demo', *TINY, **GPU, STANDIN_GPUS='1').stdout.splitlines()
    starts = ['push, GPU 0 to 0 ', 'pull, GPU 0 to 0 ', 'through host memory ', '8 bytes, GPU 0 to 0 ',
              'through host memory ']
    rows = [line.strip() for line in lines if line.rstrip().endswith('GPU kernel')]
    assert len(rows) == 5 and all(row.startswith(start) for row, start in zip(rows, starts)), lines
    assert 'GPUs      both processes use GPU 0, stand-in 0' in lines


def test_finds_a_wrong_bit_in_gpu_memory():
    for step, byte in [('gpu-host', 4194305), ('gpu-write', 8001)]:
        done = run('demo', '--size', '1M', '--frames', '1', '--inject', step, '--json', expect=1, **GPU)
        result = json.loads(done.stdout)
        assert result['verified'] is False and result['error']['id'] == 'VERIFY-FAILED', result
        assert step in done.stderr and f'byte {byte} ' in done.stderr


def test_leaves_no_process_behind_when_killed():
    for how in [signal.SIGKILL, signal.SIGINT]:
        process = start('demo', '--size', '2000M', '--frames', '1000')
        end = time.monotonic() + DEADLINE
        while not (servers := children(process.pid)):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(how)
        process.communicate(timeout=DEADLINE)
        assert process.returncode == -how
        wait_exited(servers)


def test_prints_json_after_a_failure():
    # Without a device.
    done = subprocess.run([PEERLANE, 'demo', '--json', '--fabric', 'verbs', *TINY], capture_output=True, text=True,
                          timeout=DEADLINE, env=environment())
    assert done.returncode == 1 and '"verified": false' in done.stdout and 'peerlane: ' in done.stderr
