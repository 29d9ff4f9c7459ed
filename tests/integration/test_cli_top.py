# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane top`: bytes and rates of clients while they read and write, who sees whom, the terminal."""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
from cli_support import DEADLINE, GPU, PEERLANE, content, environment, read_terminal, run, run_json, serving, start, write

SIZE = 4 << 20
RATE = 4 << 20


@pytest.fixture
def tree(tmp_path):
    write(tmp_path / 'pub/model', content(SIZE))
    for i in range(3):
        write(tmp_path / f'pub/small/{i}', content(1000 + i))
    (tmp_path / 'inbox').mkdir()
    return tmp_path


def look(server, *options):
    return run_json('top', server.address, '-n', '1', '-i', '0.1', *options)


def wait_left(server, others=0):
    """Waits until this `top`, and others, are the only clients."""
    end = time.monotonic() + DEADLINE
    while (seen := look(server))['client_count'] != 1 + others:
        assert time.monotonic() < end, seen
    return seen


def watch(server, *arguments, **options):
    """Looks at the server while a command runs; one look begins where the last one ended."""
    top = start('top', server.address, '-i', '0.1', '--json')
    top.stdout.readline()
    run(*arguments, **options)
    last = wait_left(server, others=1)
    top.send_signal(signal.SIGINT)
    lines = top.communicate()[0].splitlines()
    assert top.returncode == 0, 'an interrupt is how the command ends'
    return [*map(json.loads, lines), last]


def watch_middles(names, watch_all):
    """Watches transfers of SIZE bytes by `watch_all` until a look has seen each of these files in the middle.

    They take a second, and more after attempts in which a busy machine did not look.
    """
    for seconds in 1, 8, 60:
        watched = watch_all(SIZE // seconds)
        if all(any(row['name'] == name and 0 < row['read_bytes'] + row['written_bytes'] < SIZE for one in seen for row in one['clients'])
               for name, seen in zip(names, watched)):
            return watched
    raise AssertionError('no look saw the middle of a transfer')


def test_reads_are_seen_while_they_run(tree):
    def watch_all(rate):
        for path in tree / 'copy', tree / 'inbox/up':
            path.unlink(missing_ok=True)
        with serving(tree / 'pub', '--upload', tree / 'inbox', '--rate', rate) as server:
            first = look(server)
            assert (first['read_bytes'], first['written_bytes'], first['client_count']) == (0, 0, 1)
            assert (first['direct_bytes'], first['staged_bytes'], first['direct_bytes_per_second']) == (0, 0, 0)
            assert first['clients'][0]['read_bytes'] == 0 and first['clients'][0]['name'] is None
            return (watch(server, 'get', server.address, 'model', '-o', tree / 'copy'),
                    watch(server, 'put', server.address, tree / 'copy', '--as', 'up'))

    reads, writes = watch_middles(['model', 'up'], watch_all)
    rows = [row for one in reads for row in one['clients'] if row['name'] == 'model']
    assert all(row['open'] == 1 and row['fabric'] == 'tcp' for row in rows)
    assert all((row['direct_bytes'], row['staged_bytes']) == (row['read_bytes'], 0) for row in rows), rows
    amounts = [row['read_bytes'] for row in rows]
    assert amounts == sorted(amounts) and any(0 < amount < SIZE for amount in amounts)
    assert any(one['clients'][0]['name'] == 'model' and one['read_bytes_per_second'] > 0 for one in reads)
    assert (reads[-1]['read_bytes'], reads[-1]['written_bytes']) == (SIZE, 0)

    rows = [row for one in writes for row in one['clients'] if row['name'] == 'up']
    assert all((row['direct_bytes'], row['staged_bytes']) == (row['written_bytes'], 0) for row in rows), rows
    amounts = [row['written_bytes'] for row in rows]
    assert amounts == sorted(amounts) and any(0 < amount < SIZE for amount in amounts)
    assert (writes[-1]['read_bytes'], writes[-1]['written_bytes']) == (SIZE, SIZE)
    # Clients that left count, and the sums begin with those of the first command.
    assert all(one['direct_bytes'] == one['read_bytes'] + one['written_bytes'] >= SIZE for one in writes), writes
    assert max(one['direct_bytes_per_second'] for one in writes) > 0 == writes[-1]['staged_bytes']


def test_bytes_are_staged(tree):
    """The GPU of the stand-in driver cannot reach the mapping of a file.  The row of the second file has the end of the first."""
    names = {'one': 70000, 'two': SIZE}
    files = [write(tree / name, content(size)) for name, size in names.items()]
    memory = [f'--memory={name}={size}@cuda:1' for name, size in names.items()]

    def watch_all(rate):
        for name in names:
            (tree / 'inbox' / name).unlink(missing_ok=True)
        with serving(*memory, '--writable', '--rate', rate, **GPU) as server:
            watched = [watch(server, *arguments, expect=3, **GPU)
                       for arguments in (['put', server.address, *files], ['get', server.address, *names, '-o', f'{tree}/inbox/'])]
            text = run('top', server.address, '-n', '1', '-i', '0.1').stdout
            assert '\nsince the server began: 4.26 MB read, 4.26 MB written, 0 B direct, 8.53 MB staged\n' in text, text
            return watched

    watched = watch_middles(['two', 'two'], watch_all)
    for seen in watched:
        rows = [row for one in seen for row in one['clients'] if row['name'] in names]
        assert all(row['staged_bytes'] == row['read_bytes'] + row['written_bytes'] for row in rows), rows
        assert any(row['staged_bytes'] for row in rows) and not any(row['direct_bytes'] for row in rows), rows
        assert any(one['staged_bytes_per_second'] > 0 == one['direct_bytes_per_second'] for one in seen), seen
    last = watched[-1][-1]
    assert (last['staged_bytes'], last['direct_bytes']) == (2 * sum(names.values()), 0), last


def test_resumed_and_partial_reads_count_once(tree):
    with serving(tree / 'pub', '--rate', RATE // 8) as server:
        get = start('get', server.address, 'model', '-o', tree / 'copy', '--quiet')
        while look(server)['read_bytes'] == 0:
            assert get.poll() is None
        get.terminate()
        get.communicate()
        before = wait_left(server)['read_bytes']
        resumed = run_json('get', server.address, 'model', '-o', tree / 'copy')['files'][0]['resumed']
        assert 0 < resumed < SIZE
        before_range = wait_left(server)['read_bytes']
        assert before_range - before == SIZE - resumed
        run('get', server.address, 'model', '--offset', '5000', '--length', '7000', '-o', tree / 'range')
        assert wait_left(server)['read_bytes'] - before_range == 7000


def test_small_files_count(tree):
    with serving(tree / 'pub', '--upload', tree / 'inbox') as server:
        (tree / 'out').mkdir()
        run('get', server.address, 'small/0', 'small/1', 'small/2', '-o', tree / 'out/')
        assert wait_left(server)['read_bytes'] == 3003
        run('put', server.address, '-r', tree / 'pub/small')
        after = wait_left(server)
        assert (after['read_bytes'], after['written_bytes']) == (3003, 3003)


def test_identities_with_names_see_their_own_clients_only(tree):
    prints = {name: run('key', 'generate', tree / f'{name}.pem').stdout.strip() for name in ('server', 'alice', 'bob')}
    write(tree / 'authorized', f'{prints["alice"]} read names=small/\n{prints["bob"]} read\n'.encode()).chmod(0o600)
    with serving(tree / 'pub', '--identity', tree / 'server.pem', '--authorized', tree / 'authorized') as server:
        alice, bob = (['--peer', prints['server'], '--identity', tree / f'{name}.pem'] for name in ('alice', 'bob'))
        run('get', server.address, 'model', '-o', tree / 'copy', *bob)
        others = [start('top', server.address, '-i', '0.1', '--json', *who) for who in (alice, bob)]
        assert all(other.stdout.readline() for other in others)
        seen = {'alice': look(server, *alice), 'bob': look(server, *bob)}
        for other in others:
            other.send_signal(signal.SIGINT)
            other.communicate()
    identities = {name: sorted(row['identity'] for row in one['clients']) for name, one in seen.items()}
    assert identities['alice'] == [prints['alice']] * 2
    assert identities['bob'] == sorted([prints['alice'], prints['bob'], prints['bob']])
    assert (seen['alice']['client_count'], seen['alice']['read_bytes']) == (2, 0)
    assert (seen['bob']['client_count'], seen['bob']['read_bytes']) == (3, SIZE)
    assert (seen['alice']['direct_bytes'], seen['bob']['direct_bytes']) == (0, SIZE), 'of connections of its own only'


def test_terminal_and_pipe(tree):
    with serving(tree / 'pub') as server:
        others = [start('top', server.address, '-i', '0.1') for _ in range(4)]
        for other in others:
            while not other.stdout.readline().startswith(b'CLIENT'):
                pass
        text = run('top', server.address, '-n', '2', '-i', '0.1').stdout
        assert re.search(r' DIRECT +STAGED .*\n.* 0 B +0 B ', text) and re.search(r' WRITING +STAGING +READ ', text)
        assert re.search(r'writing -, staging -\nsince .*: 0 B read, 0 B written, 0 B direct, 0 B staged\n', text), text
        assert '\033' not in text and text.count('CLIENT') == 2 and '5 clients, reading -' in text
        assert 'CLIENT' in run('top', server.address, '-n', '1', '-i', '0.1', '--quiet').stdout.splitlines()[0]
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 7, 90, 0, 0))
        process = subprocess.Popen([PEERLANE, 'top', server.address, '-n', '2', '-i', '0.1'], stdout=slave, env=environment())
        os.close(slave)
        text = read_terminal(master).decode()
        for other in others:
            other.send_signal(signal.SIGTERM)
            other.communicate()
    assert process.wait(DEADLINE) == 0
    screens = text.split('\033[H\033[J')[1:]
    assert len(screens) == 2
    assert all(screen.count('\n') == 6 and re.search(r'and [34] slower clients', screen) for screen in screens), screens
    # The terminal is too narrow for the bytes of each client.
    assert all('STAGING REQUESTS NAME' in screen and 'DIRECT' not in screen for screen in screens), screens
    assert max(len(line) for line in screens[1].splitlines()) <= 90, screens


def watch_terminal(columns, *arguments):
    """Returns one look of `peerlane top` on a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 30, columns, 0, 0))
    process = subprocess.Popen([PEERLANE, 'top', '-n', '1', '-i', '0.1', '--quiet', *map(str, arguments)], stdout=slave,
                               env=environment())
    os.close(slave)
    text = read_terminal(master).decode()
    assert process.wait(DEADLINE) == 0
    return text.replace('\033[H\033[J', '')


@pytest.mark.parametrize('columns', [60, 80, 130])
def test_identities_fit_the_terminal(tree, columns):
    prints = {name: run('key', 'generate', tree / f'{name}.pem').stdout.strip() for name in ('server', 'alice')}
    write(tree / 'authorized', f'{prints["alice"]} read\n'.encode()).chmod(0o600)
    with serving(tree / 'pub', '--identity', tree / 'server.pem', '--authorized', tree / 'authorized') as server:
        lines = watch_terminal(columns, server.address, '--peer', prints['server'], '--identity', tree / 'alice.pem').splitlines()
        assert len(lines) == 2 and max(map(len, lines)) <= columns and lines[0].startswith('CLIENT'), lines
        assert columns < 80 or f' {prints["alice"][:15]}' in lines[1], lines


def test_certified_names_are_not_shortened(tree):
    name = 'spiffe://prod.example/training/7'
    commands = ['openssl req -x509 -newkey ed25519 -nodes -keyout ca -out ca.crt -days 2 -subj /CN=ca',
                'openssl req -newkey ed25519 -nodes -keyout client.pem -out csr -subj /CN=client',
                f'printf "subjectAltName=URI:{name}\\nbasicConstraints=CA:FALSE\\n" > ext',
                'openssl x509 -req -in csr -CA ca.crt -CAkey ca -days 2 -extfile ext >> client.pem', 'chmod 600 client.pem']
    for command in commands:
        subprocess.run(command, shell=True, check=True, capture_output=True, cwd=tree)
    server_print = run('key', 'generate', tree / 'server.pem').stdout.strip()
    write(tree / 'authorized', f'{name} read\n'.encode()).chmod(0o600)
    with serving(tree / 'pub', '--identity', tree / 'server.pem', '--authorized', tree / 'authorized', '--ca', tree / 'ca.crt') as server:
        text = watch_terminal(130, server.address, '--peer', server_print, '--identity', tree / 'client.pem')
    assert f' {name} ' in text.splitlines()[1], text


def test_bad_arguments_and_lost_servers(tree):
    for arguments in ['-i', '0.01'], ['-i', 'x'], ['-n', '0'], ['b']:
        run('top', '127.0.0.1:1', *arguments, expect=2)
    run('top', expect=2)
    with serving(tree / 'pub') as server:
        top = start('top', server.address, '-i', '0.1', '--json')
        assert json.loads(top.stdout.readline())['clients'][0]['fabric'] == 'local'
    output, errors = top.communicate(timeout=DEADLINE)
    assert top.returncode == 1 and (b'CONNECTION' in errors or b'PEER' in errors), errors
