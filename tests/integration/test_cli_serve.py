# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane serve` and `peerlane list`."""
import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import pytest
from cli_support import DEADLINE, PEERLANE, Server, content, environment, free_port, make_key, run, run_json, serving, \
    start, write


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / 'published'
    write(folder / 'model.bin', content(100000))
    write(folder / 'empty', b'')
    write(folder / 'sub/deep/file with spaces', b'x')
    return folder


def names(server, *options):
    return [entry['name'] for entry in run_json('list', server.address, *options)['entries']]


def test_lists_files_directories_and_memory(tree, tmp_path):
    single = write(tmp_path / 'single.txt', b'12345')
    with serving(tree, single, '--memory', 'frames=1M') as server:
        listing = run_json('list', server.address)
        assert [(entry['name'], entry['kind'], entry['size']) for entry in listing['entries']] == [
            ('empty', 'file', 0), ('frames', 'memory', 1 << 20), ('model.bin', 'file', 100000),
            ('single.txt', 'file', 5), ('sub/deep/file with spaces', 'file', 1)]
        assert listing['bytes'] == 100006 + (1 << 20)
        table = run('list', server.address).stdout.splitlines()
        assert table[0].split() == ['NAME', 'SIZE', 'MODIFIED']
        assert re.match(r'model\.bin +100 kB +\d{4}-\d\d-\d\d \d\d:\d\d$', table[3])
        assert re.match(r'frames +1\.05 MB +in memory$', table[2])
        assert table[-1] == '5 entries, 1.15 MB'


def test_long_listing_is_complete(tmp_path):
    folder = tmp_path / 'many'
    expected = sorted(f'{i:05d}-{"n" * 150}' for i in range(3000))
    folder.mkdir()
    for name in expected:
        (folder / name).touch()
    with serving(folder) as server:
        assert names(server) == expected


def test_listing_follows_changes_of_the_directory(tree):
    with serving(tree) as server:
        write(tree / 'new', b'n')
        (tree / 'empty').unlink()
        end = time.monotonic() + DEADLINE
        while names(server) != ['model.bin', 'new', 'sub/deep/file with spaces']:
            assert time.monotonic() < end
            time.sleep(0.2)
        run('get', server.address, 'empty', '-o', tree / 'sub', expect=1)


def test_control_characters_in_names_are_replaced(tmp_path):
    write(tmp_path / 'pub' / 'evil\033[2Jname', b'1')
    write(tmp_path / 'pub' / os.fsdecode(b'bad\xffutf8'), b'2')
    with serving(tmp_path / 'pub') as server:
        assert '\033' not in run('list', server.address).stdout
        listing = run_json('list', server.address)
        assert {entry['name'] for entry in listing['entries']} == {'evil\033[2Jname', 'bad\ufffdutf8'}


def test_no_name_leads_out_of_the_directory(tree, tmp_path):
    secret = write(tmp_path / 'secret', b'secret')
    (tree / 'link').symlink_to(secret)
    (tree / 'dirlink').symlink_to(tmp_path)
    server = Server(tree)
    assert names(server) == ['empty', 'model.bin', 'sub/deep/file with spaces']
    for name in ['link', 'dirlink/secret']:
        error = run('get', server.address, name, '-o', tmp_path / 'out', expect=1).stderr
        assert 'peerlane: ' in error and not (tmp_path / 'out').exists()
    assert 'NOT-FOLLOWED' in run('get', server.address, 'link', '-o', tmp_path / 'out', expect=1).stderr
    for name in ['../secret', '/etc/passwd', 'sub/../../secret', './model.bin', 'sub//deep', '']:
        run('get', server.address, name, '-o', tmp_path / 'out', expect=2)
    warnings = server.stop()[1]
    assert 'symbolic links not published: 2' in warnings and '--follow' in warnings


def test_follow_publishes_targets_of_links_and_survives_loops(tree, tmp_path):
    secret = write(tmp_path / 'secret', b'secret')
    (tree / 'link').symlink_to(secret)
    (tree / 'sub/loop').symlink_to(tree)
    (tree / 'dangling').symlink_to('nowhere')
    with serving(tree, '--follow') as server:
        assert names(server) == ['empty', 'link', 'model.bin', 'sub/deep/file with spaces']
        run('get', server.address, 'link', '-o', tmp_path / 'out')
        assert (tmp_path / 'out').read_bytes() == b'secret'


def test_only_regular_files_are_published(tree):
    os.mkfifo(tree / 'pipe')
    write(tree / '.model.bin.part', b'unfinished')
    with serving(tree) as server:
        assert names(server) == ['empty', 'model.bin', 'sub/deep/file with spaces']
        run('get', server.address, 'pipe', '-o', tree / 'sub', expect=1)
        run('get', server.address, '.model.bin.part', '-o', tree / 'sub', expect=1)
        run('get', server.address, 'sub/deep', '-o', tree / 'sub', expect=1)


def test_the_first_of_equal_names_is_published(tmp_path):
    first = write(tmp_path / 'a/name', b'first')
    write(tmp_path / 'b/name', b'second')
    server = Server(first, tmp_path / 'b')
    assert names(server) == ['name']
    run('get', server.address, 'name', '-o', tmp_path / 'out')
    assert (tmp_path / 'out').read_bytes() == b'first'
    assert 'another file has the same name: 1' in server.stop()[1]


def test_prints_events(tree):
    with serving(tree) as server:
        assert re.fullmatch(r'listening on 127\.0\.0\.1:\d+', server.first)
        assert server.line() == 'serving 3 entries, 100 kB'
        run('get', server.address, 'model.bin', '-o', tree / 'sub/')
        assert re.fullmatch(r'127\.0\.0\.1:\d+ reads model\.bin \(100 kB\)', server.line())


def test_prints_events_as_json(tree, tmp_path):
    (tmp_path / 'in').mkdir()
    with serving(tree, '--json', '--upload', tmp_path / 'in') as server:
        first = json.loads(server.first)
        assert isinstance(first.pop('sandbox'), bool)
        assert first == {'event': 'listening', 'address': server.address, 'entries': 3, 'bytes': 100001,
                         'authenticated': False}
        run('put', server.address, tree / 'model.bin')
        events = [json.loads(server.line()) for _ in range(4)]
        assert [event['event'] for event in events] == ['connected', 'writes', 'stored', 'left']
        assert events[2]['name'] == 'model.bin' and events[2]['bytes'] == 100000


def test_quiet_prints_only_the_address(tree):
    server = Server(tree, '--quiet')
    run('get', server.address, 'empty', '-o', tree / 'sub/')
    output, _ = server.stop()
    assert output == ''


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_the_server(tree, how):
    server = Server(tree)
    run('list', server.address)
    server.stop(how)


def test_the_server_ends_with_its_terminal(tree):
    """SIGHUP reloads while the terminal is there; its end is also a SIGHUP."""
    address = f'127.0.0.1:{free_port()}'
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execve(PEERLANE, [PEERLANE, 'serve', address, str(tree)], environment())
    try:
        output = b''
        while b'serving' not in output:
            assert select.select([terminal], [], [], DEADLINE)[0]
            output += os.read(terminal, 1000)
        os.kill(pid, signal.SIGHUP)
        run('list', address)
        os.close(terminal)
        end = time.monotonic() + DEADLINE
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            assert time.monotonic() < end
            time.sleep(0.01)
        # 4: it had more to print, and no place for it.
        assert os.WIFEXITED(ended[1]) and os.WEXITSTATUS(ended[1]) in (0, 4)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_once_exits_after_the_first_client(tree):
    server = Server(tree, '--once')
    run('get', server.address, 'model.bin', '-o', tree / 'sub/')
    assert server.process.wait(timeout=DEADLINE) == 0
    server.process.communicate()


def test_for_exits_after_the_given_time(tree):
    begin = time.monotonic()
    server = Server(tree, '--for', '0.5')
    assert server.process.wait(timeout=DEADLINE) == 0
    assert time.monotonic() - begin > 0.4
    server.process.communicate()


def test_warns_once_about_a_missing_key(tree, tmp_path):
    server = Server(tree)
    run('list', server.address)
    run('list', server.address)
    assert server.stop()[1].count('peerlane: warning: any user of this host can connect') == 1
    server = Server(tree, '--key', make_key(tmp_path))
    assert server.stop()[1] == ''


def test_refuses_other_addresses_without_a_key(tree):
    error = run('serve', '0.0.0.0:0', tree, expect=1).stderr
    assert 'INSECURE-ADDRESS' in error and '--insecure' in error and 'pl_options' not in error
    server = Server(tree, '--insecure', address='0.0.0.0:0')
    run('list', '127.0.0.1:' + server.address.split(':')[-1])
    assert 'anybody' in server.stop()[1]


def test_wrong_usage(tree, tmp_path):
    for arguments in [[], ['127.0.0.1:0'], [tree, '--memory', 'frames'], [tree, '--memory', 'frames=0'],
                      [tree, '--memory', '../x=1'], [tree, '--memory', 'x=1Q'], [tree, '--writable'],
                      [tree, '--quota', '1M'], [tree, '--metrics-open'], [tree, '--allow-delete'],
                      [tree, '--for', 'soon'], [tree, '--clients', '0'], [tree, '--lanes', '17'],
                      [tree, '--timeout', '-1'], [tree, '--nonsense']]:
        done = run('serve', *arguments, expect=2)
        assert done.stderr.startswith('peerlane serve: ') and not done.stdout


def test_failures_have_ids_and_hints(tree, tmp_path):
    assert 'NO-PATH' in run('serve', tmp_path / 'nowhere', expect=1).stderr
    assert 'NOT-A-FILE' in run('serve', '/dev/null', expect=1).stderr
    assert 'No such file' in run('serve', tree, '--upload', tmp_path / 'nowhere', expect=1).stderr
    assert 'auto, local, verbs or tcp' in run('serve', tree, '--fabric', 'pigeon', expect=2).stderr
    with serving(tree) as server:
        error = run('serve', server.address, tree, expect=1).stderr
        assert 'LISTEN-IN-USE' in error and 'hint: ' in error
    error = json.loads(run('serve', tmp_path / 'nowhere', '--json', expect=1).stdout)['error']
    assert error['id'] == 'NO-PATH' and error['code'] < 0


def test_client_failures(tmp_path):
    error = run('list', f'127.0.0.1:{free_port()}', expect=1).stderr
    assert re.search(r'peerlane: 127\.0\.0\.1:\d+: .*\[CONNECT-REFUSED\]\n  hint: ', error)
    assert 'ADDRESS-SYNTAX' in run('list', 'one:two:three', expect=1).stderr
    run('list', expect=2)
    run('list', 'a', 'b', expect=2)


def test_the_port_can_be_omitted(tree):
    server = subprocess.Popen([PEERLANE, 'serve', tree], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    try:
        listening = server.stdout.readline()
        if not listening:
            # Another program of this machine has the port.
            errors = server.communicate(timeout=DEADLINE)[1]
            assert errors.startswith(b'peerlane: 127.0.0.1:19875: ') and b'[LISTEN-IN-USE]' in errors, errors
            return
        assert listening == b'listening on 127.0.0.1:19875\n'
        assert run_json('list', '127.0.0.1')['address'] == '127.0.0.1:19875'
    finally:
        server.kill()
        server.communicate()


def test_many_clients_at_once(tree, tmp_path):
    data = content(3 << 20)
    write(tree / 'model.bin', data)
    with serving(tree) as server:
        # Stopped clients come first; they must not delay the others.
        idle = [start('get', server.address, 'model.bin', '-o', tmp_path / f'idle{i}') for i in range(4)]
        for process in idle:
            process.send_signal(signal.SIGSTOP)
        failures = []

        def fetch(number):
            for i in range(3):
                out = tmp_path / f'{number}-{i}'
                try:
                    run('get', server.address, 'model.bin', '-o', out, '--verify')
                    assert out.read_bytes() == data
                except AssertionError as failure:
                    failures.append(failure)
                out.unlink(missing_ok=True)

        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process in idle:
            process.send_signal(signal.SIGCONT)
        for process in idle:
            process.communicate(timeout=DEADLINE)
            assert process.returncode == 0
        assert not failures


def test_a_full_output_pipe_does_not_block_the_server(tree):
    with serving(tree, '--json') as server:
        fcntl.fcntl(server.process.stdout, 1031, 4096)  # F_SETPIPE_SZ: full after about 30 clients
        for _ in range(60):
            run('list', server.address)


def test_more_memory_than_there_is_is_refused(tmp_path):
    error = run('serve', '--memory', 'x=900T', expect=1).stderr
    assert 'NO-MEMORY' in error and '943718400 MiB of memory are wanted' in error


def test_clients_above_the_limit_wait(tree, tmp_path):
    with serving(tree, '--clients', '1') as server:
        processes = [start('get', server.address, 'model.bin', '-o', tmp_path / f'out{i}') for i in range(6)]
        for process in processes:
            process.communicate(timeout=DEADLINE)
            assert process.returncode == 0


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


@pytest.mark.parametrize('first', [b'', b'\x16\x03'])
def test_strangers_do_not_keep_clients_out(tree, tmp_path, first):
    key = make_key(tmp_path)
    with serving(tree, '--key', key, preexec_fn=limit_descriptors) as server:
        host, port = server.address.split(':')
        strangers = [socket.create_connection((host, int(port)), timeout=DEADLINE) for _ in range(300)]
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.sendall(first)
        for _ in range(3):
            assert names(server, '--key', key) == ['empty', 'model.bin', 'sub/deep/file with spaces']
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize('encrypted', [False, True])
def test_survives_truncation_of_a_served_file(tmp_path, encrypted):
    key = make_key(tmp_path)
    big = write(tmp_path / 'pub/big', bytes(range(256)) * (1 << 18))
    options = ['--key', key] + (['--encrypt'] if encrypted else [])
    with serving(tmp_path / 'pub', '--rate', '16M', *options) as server:
        transfer = start('get', server.address, 'big', '-o', tmp_path / 'out', '--verify', *options)
        assert server.line() == 'serving 1 entry, 67.1 MB'
        assert ' reads big' in server.line()
        os.truncate(big, 10000)
        _, errors = transfer.communicate(timeout=DEADLINE)
        assert transfer.returncode == 1, errors
        assert b'FILE-CHANGED' in errors and not (tmp_path / 'out').exists()
        # The server continues, with the current content.
        run('get', server.address, 'big', '-o', tmp_path / 'out', '--verify', *options)
        assert (tmp_path / 'out').read_bytes() == big.read_bytes()
