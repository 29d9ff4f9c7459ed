# SPDX-License-Identifier: BSD-2-Clause
"""Records of partial files: only those that this user's key has signed are resumed."""
import hashlib
import hmac
import os
import signal
import struct
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, content, cut_transfer, environment, recorded, run_json, serving, write

SIZE = 32 << 20
RECORD = 144
SIGNED = RECORD - 32
OTHER_KEY = bytes(range(32))
# A rate at which a transfer of SIZE takes long enough to be killed in the middle.
SLOW = ['--rate', '128M']


@pytest.fixture
def world(tmp_path, monkeypatch):
    class World:
        path = tmp_path
        state = tmp_path / 'state'
        key = state / 'peerlane/part-key'
        data = content(SIZE)
        inbox = tmp_path / 'in'
        out = tmp_path / 'out'

        def command(self, how, server):
            if how == 'get':
                return ['get', server.address, 'big', '-o', self.out]
            return ['put', server.address, self.path / 'pub/big']

        def part(self, how):
            return (self.out if how == 'get' else self.inbox) / '.big.part'

        def cut(self, how, server, **changes):
            """Interrupts a transfer; returns the bytes of its partial file."""
            cut_transfer(self.part(how), SIZE, lambda: subprocess.Popen(
                [PEERLANE, *map(str, self.command(how, server))], env=environment(**changes), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE))
            return self.part(how).read_bytes()

        def repeat(self, how, server, **changes):
            """Repeats a transfer; returns the bytes that it resumed from."""
            (one,) = run_json(*self.command(how, server), **changes)['files']
            assert (self.part(how).parent / 'big').read_bytes() == self.data and not self.part(how).exists()
            return one['resumed']
    write(tmp_path / 'pub/big', World.data)
    for folder in [World.inbox, World.out]:
        folder.mkdir()
    monkeypatch.setenv('XDG_STATE_HOME', str(World.state))
    monkeypatch.delenv('STATE_DIRECTORY', raising=False)
    return World()


def plant(part, saved, key, magic=None, resign=True):
    """Writes a partial file anew, and signs its record for the new file."""
    part.write_bytes(saved)
    part.chmod(0o600)
    status = part.stat()
    record = bytearray(saved[SIZE:])
    assert len(record) == RECORD
    struct.pack_into('<2Q', record, 40, status.st_dev, status.st_ino)
    if magic:
        record[:8] = magic
    if resign:
        record[SIGNED:] = hmac.digest(key, bytes(record[:SIGNED]), hashlib.sha256)
    with open(part, 'r+b') as file:
        file.seek(SIZE)
        file.write(record)


@pytest.mark.parametrize('how', ['get', 'put'])
def test_only_signed_records_are_resumed(world, how):
    with serving(world.path / 'pub', *SLOW, '--upload', world.inbox) as server:
        saved = world.cut(how, server)
        done = recorded(world.part(how), SIZE)
        assert world.repeat(how, server) == done > 0
        # A record names the file's inode, which no later file must get.
        os.link(world.part(how).parent / 'big', world.path / 'first')
        key = world.key.read_bytes()
        # The same record in another file, which is a copy.
        write(world.part(how), saved).chmod(0o600)
        assert world.repeat(how, server) == 0
        for changes, expected in [(dict(), done), (dict(resign=False), 0), (dict(magic=b'PLART1\0\0'), 0)]:
            plant(world.part(how), saved, key, **changes)
            assert world.repeat(how, server) == expected, changes
        for foreign in [OTHER_KEY, b'']:
            plant(world.part(how), saved, foreign)
            assert world.repeat(how, server) == 0
        cleared = saved[:-32] + bytes(32)
        plant(world.part(how), cleared, key, resign=False)
        assert world.repeat(how, server) == 0


def test_the_key_is_made_once_and_private(world):
    with serving(world.path / 'pub', *SLOW, '--upload', world.inbox) as server:
        assert world.key.stat().st_mode & 0o777 == 0o600 and len(world.key.read_bytes()) == 32
        assert world.key.parent.stat().st_mode & 0o777 == 0o700
        before = world.key.read_bytes()
        world.repeat('get', server)
        assert world.key.read_bytes() == before and os.listdir(world.key.parent) == ['part-key']
        service = world.path / 'service'
        world.repeat('get', server, STATE_DIRECTORY=f'{service}:/nowhere')
        assert os.listdir(service) == ['part-key'] and (service / 'part-key').read_bytes() != before
        home = world.path / 'home'
        world.repeat('get', server, XDG_STATE_HOME='not/absolute', HOME=str(home))
        assert len((home / '.local/state/peerlane/part-key').read_bytes()) == 32
    with serving(world.path / 'pub', XDG_STATE_HOME=str(world.path / 'unused')):
        assert not (world.path / 'unused').exists()


def test_processes_that_begin_together_agree_on_a_key(world):
    changes = {'XDG_STATE_HOME': str(world.path / 'together')}
    with serving(world.path / 'pub', *SLOW, '--clients', '20') as server:
        all_of_them = [subprocess.Popen([PEERLANE, 'get', server.address, 'big', '-o', world.out / str(i)],
                                        env=environment(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                       for i in range(8)]
        assert [process.communicate()[1] for process in all_of_them] == [b''] * 8
    assert os.listdir(world.path / 'together/peerlane') == ['part-key']


def break_key(world, how):
    key = world.key
    if how == 'others can read it':
        key.chmod(0o640)
    elif how == 'a symbolic link':
        key.rename(key.with_name('real'))
        key.symlink_to('real')
    elif how == 'too short':
        key.write_bytes(bytes(31))
    elif how == 'a FIFO':
        key.unlink()
        os.mkfifo(key, 0o600)
    elif how == 'others can write the folder':
        key.parent.chmod(0o777)


@pytest.mark.parametrize('how', ['others can read it', 'a symbolic link', 'too short', 'a FIFO',
                                 'others can write the folder'])
def test_a_key_that_is_not_private_is_not_used(world, how):
    with serving(world.path / 'pub', *SLOW) as server:
        world.cut('get', server)
        break_key(world, how)
        done = subprocess.run([PEERLANE, *map(str, world.command('get', server)), '--json'], capture_output=True, text=True,
                              timeout=DEADLINE, env=environment())
        assert done.returncode == 0 and '"resumed": 0' in done.stdout
        assert done.stderr.count('warning: interrupted transfers will begin again: ') == 1
        assert str(world.key.parent)[:79] in done.stderr and 'hint: ' in done.stderr


def test_without_a_key_nothing_is_kept(world):
    write(world.path / 'pub/other', content(1 << 20))
    changes = {'XDG_STATE_HOME': '', 'HOME': ''}
    with serving(world.path / 'pub', *SLOW, '--upload', world.inbox) as server:
        saved = world.cut('get', server, **changes)
        assert saved[-32:] == bytes(32)
        assert world.repeat('get', server, **changes) == 0
        done = subprocess.run([PEERLANE, 'get', server.address, 'big', 'other', '-o', world.out], capture_output=True,
                              text=True, timeout=DEADLINE, env=environment(**changes))
        assert done.returncode == 0 and done.stderr.count('begin again') == 1 and 'XDG_STATE_HOME' in done.stderr
        # An interrupted client leaves no file that it could not resume.
        process = subprocess.Popen([PEERLANE, *map(str, world.command('get', server))], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment(**changes))
        while process.poll() is None and recorded(world.part('get'), SIZE) <= 0:
            time.sleep(0.0005)
        process.send_signal(signal.SIGINT)
        assert b'kept' not in process.communicate(timeout=DEADLINE)[1]
        assert not world.part('get').exists()
    with serving(world.path / 'pub', *SLOW, '--upload', world.inbox, **changes) as server:
        try:
            world.cut('put', server)
        except AssertionError:
            pass  # The server removes the partial file at once.
        assert not world.part('put').exists()
        (world.inbox / 'big').unlink(missing_ok=True)
        assert world.repeat('put', server) == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stderr.read().decode().count('begin again') == 1
