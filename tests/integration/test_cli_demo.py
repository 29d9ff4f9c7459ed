# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane demo`."""
import signal
import subprocess
import time

from cli_support import DEADLINE, PEERLANE, children, environment, make_key, run, run_json, start, wait_exited

SMALL = ['--size', '24M', '--frames', '11']
TINY = ['--size', '1M', '--frames', '2']


def test_transfers_and_verifies_real_files():
    result = run_json('demo', *SMALL)
    pull, push, write = result['steps']
    assert result['verified'] is True and result['error'] is None
    assert result['authenticated'] is True and result['encrypted'] is False
    assert pull['bytes'] == pull['bytes_verified'] >= 24 << 20 and pull['count'] >= 1
    assert push['bytes'] == push['bytes_verified'] == 11 << 23 and push['count'] == 11
    assert write['count'] == 10000 and write['bytes'] == write['bytes_verified'] == 80000
    assert 0 < write['latency_p50_ns'] <= write['latency_p99_ns']
    for step in result['steps']:
        assert step['fabric'] == 'local' and step['route'] == 'direct' and step['reason']


def test_prints_a_table():
    done = run('demo', *TINY)
    assert not done.stderr
    for word in ['STEP', 'RATE', 'LATENCY', 'ROUTE', 'pull ', 'push 2 frames', 'write 8 bytes', 'total', 'p50 ', 'p99 ',
                 'direct', 'TLS', 'no differences']:
        assert word in done.stdout


def test_all_options_of_connections_and_a_key_of_the_user(tmp_path):
    options = '--lanes 2 --rails 1 --traffic-class 8 --service-level 1 --gid-index 1 --ack-timeout 14 --retries 7'
    result = run_json('demo', *TINY, '--encrypt', *options.split(), '--rnr-timer', '12', '--key', make_key(tmp_path))
    assert result['encrypted'] is True and result['verified'] is True


def test_wrong_usage():
    run('demo', 'argument', expect=2)
    run('demo', '--size', 'much', expect=2)
    run('demo', '--frames', '0', expect=2)


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
    done = subprocess.run([PEERLANE, 'demo', '--json', '--fabric', 'pigeon'], capture_output=True, text=True,
                          timeout=DEADLINE, env=environment())
    assert done.returncode == 1 and '"verified": false' in done.stdout and 'peerlane: ' in done.stderr
