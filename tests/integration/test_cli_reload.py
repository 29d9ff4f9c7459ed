# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane serve --reload`: the result of a reload, as the exit status of a command."""
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from cli_support import DEADLINE, PEERLANE, Server, environment, make_key, run, run_json, serving, wait_until, write


@pytest.fixture
def world(tmp_path):
    class World:
        path = tmp_path
        data = write(tmp_path / 'pub/data', b'data')
        server = tmp_path / 'server.pem'
        alice = tmp_path / 'alice.pem'
        server_print = run('key', 'generate', server).stdout.strip()
        alice_print = run('key', 'generate', alice).stdout.strip()
        authorized = tmp_path / 'authorized'
        pid_file = tmp_path / 'pid'

        def authorize(self, text):
            self.authorized.write_text(text)
            self.authorized.chmod(0o600)

        def list(self, server, **options):
            return run('list', server.address, '--peer', self.server_print, '--identity', self.alice, **options)
    world = World()
    world.authorize('')
    return world


def test_a_reload_tells_its_result(world):
    log = world.path / 'audit'
    with serving(world.data, '--identity', world.server, '--authorized', world.authorized, '--audit', log) as server:
        world.list(server, expect=1)
        world.authorize(f'{world.alice_print} read\n')
        done = run('serve', '--reload', server.process.pid)
        assert done.stdout == done.stderr == ''
        # The new list is in force when the command ends.
        world.list(server)
        world.authorize('nonsense\n')
        failed = run('serve', '--reload', server.process.pid, expect=1)
        assert 'AUTHORIZED-SYNTAX' in failed.stderr and 'authorized' in failed.stderr
        world.list(server)
        assert run_json('serve', '--reload', server.process.pid, expect=1)['error']['id'] == 'AUTHORIZED-SYNTAX'
        world.authorize(f'{world.alice_print} read\n')
        assert run_json('serve', '--reload', server.process.pid) == {'reloaded': True}
        # A thread of the server writes the log.
        wait_until(lambda: log.read_text().count('event="reload"') >= 2 and log.read_text().count('event="reload-failed"') >= 2)
        # An error has the end of a long path.
        assert re.search(r'event="reload-failed" name="[^"]*/authorized:1"', log.read_text())
        assert log.read_text().count('event="reload"') == 2 and log.read_text().count('event="reload-failed"') == 2


def test_a_server_without_files_has_nothing_to_reload(world):
    with serving(world.data) as server:
        assert 'RELOAD-NOTHING' in run('serve', '--reload', server.process.pid, expect=1).stderr


def test_a_server_can_be_named_by_its_pid_file(world):
    key = make_key(world.path)
    with serving(world.data, '--key', key, '--pid-file', world.pid_file) as server:
        assert world.pid_file.read_text() == f'{server.process.pid}\n'
        run('serve', '--reload', world.pid_file)
        key.write_bytes(b'short\n')
        assert run('serve', '--reload', world.pid_file, expect=1).stderr.count('[') == 1
    assert world.pid_file.read_text() == ''
    assert 'RELOAD-PROCESS' in run('serve', '--reload', world.pid_file, expect=1).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can start a process of another user')
def test_a_lock_of_another_user_does_not_keep_a_server_from_its_start(world):
    world.pid_file.write_text('')
    lock = 'import fcntl, time; fcntl.flock(0, fcntl.LOCK_EX); print("locked", flush=True); time.sleep(600)'
    with world.pid_file.open() as file, subprocess.Popen([sys.executable, '-c', lock], stdin=file, stdout=subprocess.PIPE,
                                                         user=65534, cwd='/') as other:
        try:
            assert other.stdout.readline() == b'locked\n'
            with serving(world.data, '--key', make_key(world.path), '--pid-file', world.pid_file) as server:
                assert world.pid_file.read_text() == f'{server.process.pid}\n'
        finally:
            other.kill()


def test_a_server_that_cannot_start_leaves_the_pid_file_of_the_running_one(world):
    key = make_key(world.path)
    # An earlier server was killed, and its file had more bytes.
    world.pid_file.write_text('1' * 100)
    with serving(world.data, '--key', key, '--pid-file', world.pid_file) as server:
        # At the address of the running one, and at another.
        for address in [server.address, '127.0.0.1:0']:
            second = run('serve', address, world.data, '--key', key, '--pid-file', world.pid_file, expect=1)
            assert '[PID-FILE-IN-USE]' in second.stderr and f'process {server.process.pid}' in second.stderr
            assert world.pid_file.read_text() == f'{server.process.pid}\n'
        assert '[LISTEN-IN-USE]' in run('serve', server.address, world.data, '--key', key, '--pid-file', world.path / 'other', expect=1).stderr
        run('serve', '--reload', world.pid_file)
    assert world.pid_file.read_text() == ''


def test_the_pid_file_of_a_killed_server_is_free(world):
    killed = Server(world.data, '--pid-file', world.pid_file)
    killed.stop(signal.SIGKILL, expect=-signal.SIGKILL)
    assert world.pid_file.read_text() == f'{killed.process.pid}\n'
    with serving(world.data, '--pid-file', world.pid_file) as server:
        assert world.pid_file.read_text() == f'{server.process.pid}\n'
    # The number belongs to a process that is no server.
    world.pid_file.write_text(f'{os.getpid()}\n')
    with serving(world.data, '--pid-file', world.pid_file) as server:
        assert world.pid_file.read_text() == f'{server.process.pid}\n'
    # A device is no file of one server.
    with serving(world.data, '--pid-file', '/dev/null'), serving(world.data, '--pid-file', '/dev/null'):
        pass


def test_wrong_processes_are_refused(world):
    ended = subprocess.Popen(['true'])
    ended.wait()
    for text, error in [(ended.pid, 'RELOAD-NO-SERVER'), ('0', 'RELOAD-PROCESS'), ('12x', 'RELOAD-PROCESS'),
                        ('99999999999', 'RELOAD-PROCESS'), (world.path / 'none', 'SYSTEM'), (world.data, 'RELOAD-PROCESS')]:
        assert error in run('serve', '--reload', text, expect=1).stderr, text
    assert 'SYSTEM' in run('serve', world.data, '--pid-file', world.path / 'no/pid', expect=1).stderr


def listen_as(process):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f'\0peerlane/serve/{process}')
    listener.listen()
    return listener


def test_a_process_in_place_of_the_server_is_refused(world):
    other = subprocess.Popen(['sleep', '60'])
    try:
        with listen_as(other.pid):
            assert 'RELOAD-FOREIGN' in run('serve', '--reload', other.pid, expect=1).stderr
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize('answer', [b'', b'2', b'0x', b'1', b'1ID\0call\0object\0message\0hint', b'1' + b'x' * 300 + b'\0' * 5,
                                    b'1ID\0call\0object\0message\0hint\0more'])
def test_answers_that_are_none_are_refused(world, answer):
    with listen_as(os.getpid()) as listener:
        client = subprocess.Popen([PEERLANE, 'serve', '--reload', str(os.getpid())], env=environment(),
                                  stderr=subprocess.PIPE, text=True)
        accepted, _ = listener.accept()
        with accepted:
            if answer:
                accepted.send(answer)
        assert 'RELOAD-NO-ANSWER' in client.communicate(timeout=DEADLINE)[1] and client.returncode == 1


def test_other_users_cannot_reload(world):
    if os.geteuid() != 0:
        pytest.skip('needs root, to become another user')
    with serving(world.data, '--key', make_key(world.path), '--audit', world.path / 'audit') as server:
        # The other user connects to the socket itself, as the command would refuse a server of another user.
        script = ('import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); '
                  f's.connect("\\0peerlane/serve/{server.process.pid}"); sys.stdout.write(repr(s.recv(100)))')
        done = subprocess.run(['/usr/bin/python3', '-c', script], user=65534, group=65534, capture_output=True, text=True,
                              timeout=DEADLINE)
        assert done.stdout == "b''", done
        assert 'reload' not in (world.path / 'audit').read_text()
        run('serve', '--reload', server.process.pid)
