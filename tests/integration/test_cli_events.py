# SPDX-License-Identifier: BSD-2-Clause
"""Events of connections: --events of get, put and bench; --events and SIGUSR1 of serve."""
import fcntl
import os
import re
import select
import signal
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, Server, children, content, environment, run, run_json, serving, start, write

LINE = re.compile(r'  \+(\d+\.\d{6}) s  ([a-z-]+)( \d+)?( \(\d+ times, until \+\d+\.\d{6} s\))?(: .+?)?( \[key [0-9a-f]{16}\])?$')
HEAD = re.compile(r'events of \S+ since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z:$')


def events_of(text):
    """Returns the names of the events in each log of a text."""
    logs = []
    for line in text.splitlines():
        if HEAD.match(line):
            logs.append([])
        elif line.startswith('  +'):
            assert LINE.match(line), line
            logs[-1].append(LINE.match(line)[2])
    return logs


def read_errors(server, text):
    """Reads the server's standard error until it has the text."""
    data, end = '', time.monotonic() + DEADLINE
    while text not in data:
        assert select.select([server.process.stderr], [], [], max(0, end - time.monotonic()))[0], data
        data += os.read(server.process.stderr.fileno(), 65536).decode()
    return data


@pytest.fixture
def published(tmp_path):
    return write(tmp_path / 'published' / 'a.bin', content(300000))


@pytest.mark.parametrize('fabric', ['tcp', 'local'])
def test_get_prints_its_events(published, tmp_path, fabric):
    with serving(published) as server:
        done = run('get', '--events', '--fabric', fabric, server.address, 'a.bin', '-o', tmp_path / 'b')
        assert done.stdout.startswith(f'{tmp_path}/b: ')
        log, = events_of(done.stderr)
        assert log == ['lane-opened', 'connected', 'encryption-off', 'path-chosen']
        assert f'connected: {fabric}: ' in done.stderr
        assert 'events of' not in run('get', server.address, 'a.bin', '-o', tmp_path / 'b').stderr


def test_get_and_put_give_json(published, tmp_path):
    (tmp_path / 'inbox').mkdir()
    with serving(published, '--upload', tmp_path / 'inbox') as server:
        for command in ['get', '-o', tmp_path / 'b', server.address, 'a.bin'], ['put', server.address, published]:
            result = run_json(command[0], '--events', *command[1:])
            events = result['events']
            assert [event['event'] for event in events][:3] == ['lane-opened', 'connected', 'encryption-off']
            assert events[0]['lane'] == 0 and events[1]['lane'] is None
            assert [event['sequence'] - event['count'] for event in events] == [0, *(event['sequence'] for event in events[:-1])]
            seconds = [event['seconds'] for event in events]
            assert seconds[0] == 0 and seconds == sorted(seconds) and seconds[-1] < DEADLINE
            path = next(event for event in events if event['event'] == 'path-chosen')
            assert re.fullmatch('[0-9a-f]{16}', path['key']) and path['text'].startswith('local: ')
            assert all(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', event['date']) for event in events)
        assert 'events' not in run_json('get', server.address, 'a.bin', '-o', tmp_path / 'b')


def test_failed_get_prints_the_loss(tmp_path):
    published = write(tmp_path / 'large.bin', content(64 << 20))
    # So slow that the server is killed before the end of the transfer, which would take minutes.
    server = Server(published, '--rate', '64K')
    client = start('get', '--events', '--fabric', 'tcp', server.address, 'large.bin', '-o', tmp_path / 'copy')
    part = tmp_path / '.copy.part'
    end = time.monotonic() + DEADLINE
    while not part.exists():
        assert time.monotonic() < end
        time.sleep(0.001)
    server.process.kill()
    server.process.communicate()
    errors = client.communicate(timeout=DEADLINE)[1].decode()
    assert client.returncode == 1
    log, = events_of(errors)
    assert log[0] == 'lane-opened' and 'lane-lost' in log and log[-1] == 'lost'


def test_serve_prints_the_events_of_all_clients(published, tmp_path):
    with serving('--memory', 'frames=1M', published) as server:
        assert 'no clients are connected' not in server.first
        server.process.send_signal(signal.SIGUSR1)
        read_errors(server, 'no clients are connected')
        clients = [start('get', '--fabric', 'tcp', server.address, 'a.bin', '-o', tmp_path / f'pipe{i}') for i in range(2)
                   if os.mkfifo(tmp_path / f'pipe{i}') is None]
        # A client that writes into a pipe stays connected until somebody reads the bytes.
        pipes = [open(tmp_path / f'pipe{i}', 'rb') for i in range(2)]
        text, logs, end = '', [], time.monotonic() + DEADLINE
        while len(set(re.findall(r'events of (\S+) since', text))) < 2 or sum(len(log) == 3 for log in logs) < 2:
            assert time.monotonic() < end
            server.process.send_signal(signal.SIGUSR1)
            text += read_errors(server, '\n')
            # The last line may be incomplete.
            logs = events_of(text[:text.rindex('\n') + 1])
            assert all(log == ['lane-opened', 'connected', 'encryption-off'][:len(log)] for log in logs)
        for pipe in pipes:
            assert len(pipe.read()) == 300000
            pipe.close()
        for client in clients:
            client.communicate(timeout=DEADLINE)
            assert client.returncode == 0
        # The server still serves.
        run('get', server.address, 'a.bin', '-o', tmp_path / 'b')


def test_serve_prints_the_events_of_lost_clients(published, tmp_path):
    server = Server('--events', published)
    run('get', server.address, 'a.bin', '-o', tmp_path / 'b')
    log = events_of(read_errors(server, ' closed-there'))[0]
    assert log[:3] == ['lane-opened', 'connected', 'encryption-off']
    server.stop()


def test_serve_never_waits_for_a_full_pipe(published, tmp_path):
    with serving('--events', published) as server:
        fcntl.fcntl(server.process.stderr, fcntl.F_SETPIPE_SZ, 8192)
        for _ in range(40):
            for _ in range(20):
                server.process.send_signal(signal.SIGUSR1)
            run('get', server.address, 'a.bin', '-o', tmp_path / 'b')


def test_bench_prints_its_events():
    done = run('bench', '--events', '--size', '8', '--iterations', '100', '--fabric', 'tcp')
    log, = events_of(done.stderr)
    assert log[:3] == ['lane-opened', 'connected', 'encryption-off'] and 'path-chosen' in log
    result = run_json('bench', '--events', '--size', '8', '--iterations', '100')
    assert {'connected', 'path-chosen'} <= {event['event'] for event in result['events']}
    assert 'events' not in run_json('bench', '--size', '8', '--iterations', '100')


def test_bench_prints_the_limit_that_messages_meet():
    done = run('bench', '--events', '--size', '8', '--op', 'send', '--fabric', 'tcp', '--depth', '4096', '--iterations', '200000')
    log, = events_of(done.stderr)
    assert 'limit-reached' in log and log[1] == 'connected'


def test_interrupted_bench_prints_the_loss_of_its_server():
    # The client of a busy machine may not be connected after a second.
    for delay in 1, 5, 25, 125:
        client = subprocess.Popen([PEERLANE, 'bench', '--events', '--size', '64K', '--duration', '200', '--fabric', 'tcp'],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        end = time.monotonic() + DEADLINE
        while not children(client.pid):
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(delay)
        os.kill(children(client.pid)[0], signal.SIGKILL)
        errors = client.communicate(timeout=DEADLINE)[1].decode()
        assert client.returncode == 1
        if not re.search(r'\[(BENCH-SERVER-START|CONNECT-[A-Z]+)\]', errors):
            break
    log, = events_of(errors)
    assert log[-1] == 'lost' and 'lane-lost' in log
