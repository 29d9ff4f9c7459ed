# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane serve --audit-strict`: no access without a line in the audit log."""
import fcntl
import json
import os
import select
import signal
import threading
import time

import pytest
from cli_support import DEADLINE, content, run, serving, wait_until, write

SET_PIPE_SIZE = 1031
# Bytes of waiting lines from which a strict log stops accesses: QUEUE_MAX of src/cmd/transfer/audit.c.
QUEUE_MAX = 4 << 20


@pytest.fixture
def world(tmp_path):
    write(tmp_path / 'pub/data', content(300000))
    (tmp_path / 'in').mkdir()
    return tmp_path


def strict(world, log, *options):
    return serving(world / 'pub', '--upload', world / 'in', '--allow-delete', '--audit', log, '--audit-strict', '--json',
                   *options, XDG_STATE_HOME=str(world / 'state'))


def attempts(server, world):
    """Each kind of access; returns the standard error of each."""
    write(world / 'small', b'small')
    return [run(*arguments, expect=1).stderr for arguments in [
        ('get', server.address, 'data', '-o', world / 'out'),
        ('get', server.address, 'data', 'none', '-o', world / 'in'),
        ('put', server.address, world / 'pub/data', '--as', 'x'),
        ('put', server.address, world / 'small', world / 'pub/data'),
        ('delete', server.address, 'old'),
    ]]


@pytest.mark.parametrize('options', [[], ['--json']], ids=['text', 'json'])
def test_names_neither_break_lines_nor_reach_the_terminal(world, options):
    # A byte that is no UTF-8, the second set of control characters (CSI), a reversed direction, and letters.
    name = 'bad\udcff\udce2\udc82\x9b31m\u202eeé€😀\x1b"\\name'
    log = world / 'audit'
    with serving(world / 'pub', '--upload', world / 'in', '--audit', log, *options) as server:
        run('put', server.address, world / 'pub/data', '--as', name)
    data = log.read_bytes()
    text = data.decode()
    assert not any(character < ' ' or '\x7f' <= character <= '\x9f' or character == '\u202e'
                   for character in text.replace('\n', ''))
    quoted = r'"bad\u00ff\u00e2\u0082\u009b31m\u202eeé€😀\u001b\"\\name"'
    lines = [line for line in text.splitlines() if quoted in line]
    assert lines and all('event' in line for line in text.splitlines())
    if options:
        names = {json.loads(line).get('name') for line in text.splitlines()}
        assert 'badÿâ\x82\x9b31m\u202eeé€😀\x1b"\\name' in names


def test_a_log_that_cannot_be_written_stops_accesses(world):
    log = world / 'audit'
    log.symlink_to('/dev/full')
    write(world / 'in/old', b'old')
    with strict(world, log) as server:
        # The line of this connection fails, and it is the last one that is not refused.
        run('list', server.address)
        wait_until(lambda: 'AUDIT-BUSY' in run('get', server.address, 'data', '-o', world / 'out', '--timeout', '5',
                                               expect=None).stderr)
        (world / 'out').unlink(missing_ok=True)
        for error in attempts(server, world):
            assert error.count('AUDIT-BUSY') >= 1, error
        assert sorted(os.listdir(world / 'in')) == ['old'] and not (world / 'out').exists()
        # A listing is no access.
        run('list', server.address)
        log.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(log.exists)
        wait_until(lambda: run('get', server.address, 'data', '-o', world / 'out', expect=None).returncode == 0)
        run('delete', server.address, 'old')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line['seq'] for line in lines] == list(range(1, len(lines) + 1))
    assert not any('dropped' in line for line in lines)
    assert not any(line.get('result') == 'AUDIT-BUSY' for line in lines)
    assert lines[0]['event'] == 'connect' and [line['name'] for line in lines if line['event'] == 'delete'] == ['old']


def test_without_the_option_lines_are_lost_instead(world):
    with serving(world / 'pub', '--audit', '/dev/full') as server:
        for _ in range(3):
            run('get', server.address, 'data', '-o', world / 'out')


def test_a_slow_log_stops_accesses_and_loses_no_line(world):
    fifo = world / 'fifo'
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, SET_PIPE_SIZE, 4096)
    # A control character takes six bytes in a line.
    names = [f'{i:05}' + '\x01' * 900 for i in range(300)]
    data = []

    def drain():
        fcntl.fcntl(reader, SET_PIPE_SIZE, 1 << 20)
        os.set_blocking(reader, True)
        while piece := os.read(reader, 1 << 20):
            data.append(piece)
    with strict(world, fifo) as server:
        refused = ''
        for _ in range(10):
            refused = run('get', server.address, *names, '-o', world / 'in', expect=1).stderr
            if 'AUDIT-BUSY' in refused:
                break
        assert 'AUDIT-BUSY' in refused
        assert 'AUDIT-BUSY' in run('get', server.address, 'data', '-o', world / 'out', expect=1).stderr
        thread = threading.Thread(target=drain)
        thread.start()
        wait_until(lambda: run('get', server.address, 'data', '-o', world / 'out', expect=None).returncode == 0)
    thread.join()
    os.close(reader)
    lines = [json.loads(line) for line in b''.join(data).splitlines()]
    assert sum(map(len, data)) > QUEUE_MAX and [line['seq'] for line in lines] == list(range(1, len(lines) + 1))
    assert not any('dropped' in line for line in lines)


def test_a_pipe_without_a_reader_is_refused(world):
    os.mkfifo(world / 'fifo')
    errors = run('serve', world / 'pub', '--audit', world / 'fifo', expect=1).stderr
    assert '[AUDIT-OPEN]' in errors and 'hint: start the reader of the pipe first' in errors


def test_a_pipe_whose_reader_has_ended_delays_no_reload(world):
    """The server keeps the log that it has, tells that, and goes on."""
    fifo = world / 'fifo'
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with serving(world / 'pub', '--audit', fifo) as server:
        os.close(reader)
        server.process.send_signal(signal.SIGHUP)
        told = b''
        while f'{fifo} cannot be opened again'.encode() not in told:
            assert select.select([server.process.stderr], [], [], DEADLINE)[0]
            told += os.read(server.process.stderr.fileno(), 4096)
        assert 'data' in run('list', server.address).stdout
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        server.process.send_signal(signal.SIGHUP)
        with open(reader, 'rb') as lines:
            assert lines.readline()


def test_a_server_that_ends_waits_for_a_log_that_takes_lines(world):
    """The lines need more time than the server gives a log that takes none: 5 s."""
    fifo = world / 'fifo'
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, SET_PIPE_SIZE, 4096)
    with strict(world, fifo) as server:
        run('get', server.address, *[f'{i}' + '\x01' * 900 for i in range(10)], '-o', world / 'in', expect=1)
        server.process.send_signal(signal.SIGTERM)
        os.set_blocking(reader, True)
        data = b''
        # Half of the pipe at a time.
        while piece := os.read(reader, 2048):
            data += piece
            time.sleep(0.25)
        server.process.wait(DEADLINE)
    os.close(reader)
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line['seq'] for line in lines] == list(range(1, len(lines) + 1)) and len(lines) > 10
    assert lines[-1]['event'] in ('disconnect', 'stop'), lines[-1]


def test_a_strict_log_needs_a_log(world):
    assert '--audit' in run('serve', world / 'pub', '--audit-strict', expect=2).stderr
