# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane delete`: clients delete their own uploads, and nothing else."""
import json
import os
import re
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, content, cut_transfer, environment, make_key, run, run_json, serving, start, write

BIG = 64 << 20


def identity(folder, name):
    path = folder / f'{name}.pem'
    return path, run('key', 'generate', path).stdout.strip()


def has_attributes(folder):
    probe = write(folder / 'probe', b'')
    try:
        os.setxattr(probe, 'user.test', b'x')
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


@pytest.fixture
def world(tmp_path):
    class World:
        path = tmp_path
        inbox = tmp_path / 'inbox'
        server, server_print = identity(tmp_path, 'server')
        alice, alice_print = identity(tmp_path, 'alice')
        bob, bob_print = identity(tmp_path, 'bob')
        data = write(tmp_path / 'data', content(300000))
        small = write(tmp_path / 'small', b'small')

        def serving(self, *options, alice='read,write', bob='read,write'):
            authorized = tmp_path / 'authorized'
            authorized.write_text(f'{self.alice_print} {alice}\n{self.bob_print} {bob}\n')
            authorized.chmod(0o600)
            return serving('--upload', self.inbox, self.inbox, '--identity', self.server, '--authorized', authorized,
                           *options)

        def options(self, who):
            return ['--peer', self.server_print, '--identity', who]
    World.inbox.mkdir()
    if not has_attributes(World.inbox):
        pytest.skip('the file system has no user attributes')
    return World()


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())


def test_an_identity_deletes_its_own_files(world):
    alice, bob = world.options(world.alice), world.options(world.bob)
    log = world.path / 'audit'
    with world.serving('--audit', log, '--json') as server:
        run('put', '-r', server.address, world.data, '--as', 'a/data', *alice)
        run('put', '-r', server.address, world.small, '--as', 'a/small', *alice)
        run('put', server.address, world.data, *bob)
        failed = run('delete', server.address, 'a/data', 'a/small', *bob, expect=1).stderr
        assert failed.count('NOT-OWNER') == 2
        assert names(world.inbox) == ['a/data', 'a/small', 'data']
        done = json.loads(run('delete', server.address, 'a/data', 'none', 'a/small', 'data', '--json', *alice,
                              expect=1).stdout)
        assert [(file['name'], file['size'], file['error'] and file['error']['id']) for file in done['files']] == [
            ('a/data', 300000, None), ('none', 0, 'NOT-UPLOADED'), ('a/small', 5, None), ('data', 0, 'NOT-OWNER')]
        assert done['authenticated'] is True
        assert names(world.inbox) == ['data']
        assert run('delete', server.address, 'data', *bob).stdout == 'data: deleted, 300 kB\n'
        assert run('delete', server.address, 'data', '--quiet', *bob, expect=1).stdout == ''
        assert names(world.inbox) == []
        assert run_json('list', server.address, *bob)['entries'] == []
    events = [json.loads(line) for line in log.read_text().splitlines()]
    deleted = [(event['name'], event['bytes'], event['identity']) for event in events if event['event'] == 'delete']
    assert deleted == [('a/data', 300000, world.alice_print), ('a/small', 5, world.alice_print),
                       ('data', 300000, world.bob_print)]
    assert len([event for event in events if event.get('result') == 'NOT-OWNER']) == 3


def test_files_without_an_owner_stay(world):
    write(world.inbox / 'old', b'bytes')
    alice = world.options(world.alice)
    with world.serving() as server:
        assert 'NOT-OWNER' in run('delete', server.address, 'old', *alice, expect=1).stderr
        run('put', server.address, world.small, *world.options(world.bob))
    with world.serving('--allow-delete') as server:
        run('delete', server.address, 'old', *alice)
        assert 'NOT-OWNER' in run('delete', server.address, 'small', *alice, expect=1).stderr
    assert names(world.inbox) == ['small']


def test_an_identity_needs_the_right_and_the_name(world):
    write(world.inbox / 'old', b'bytes')
    with world.serving('--allow-delete', alice='read', bob='read,write names=b/') as server:
        assert 'IDENTITY-RIGHTS' in run('delete', server.address, 'old', *world.options(world.alice), expect=1).stderr
        assert 'IDENTITY-NAMES' in run('delete', server.address, 'old', *world.options(world.bob), expect=1).stderr
    assert names(world.inbox) == ['old']


def test_clients_without_identity_need_the_permission_of_the_server(world):
    write(world.inbox / 'old', b'bytes')
    key = make_key(world.path)
    with serving('--upload', world.inbox, '--key', key) as server:
        error = run('delete', server.address, 'old', '--key', key, expect=1).stderr
        assert 'DELETE-ANONYMOUS' in error and '--allow-delete' in error and '--identity' in error
    assert names(world.inbox) == ['old']
    with serving('--upload', world.inbox, '--key', key, '--allow-delete') as server:
        run('put', server.address, world.data, '--as', 'new', '--key', key)
        run('delete', server.address, 'old', 'new', '--key', key)
    assert names(world.inbox) == []


def test_servers_that_accept_no_files_delete_none(world):
    published = write(world.path / 'pub/file', b'bytes')
    for options in [['--read-only'], []]:
        with serving(published.parent, *options) as server:
            assert 'NOT-WRITABLE' in run('delete', server.address, 'file', expect=1).stderr
    with serving(published.parent, '--upload', world.inbox, '--allow-delete') as server:
        assert 'NOT-UPLOADED' in run('delete', server.address, 'file', expect=1).stderr
    assert published.exists()
    assert '--allow-delete' in run('serve', world.data, '--allow-delete', expect=2).stderr


def test_links_are_neither_deleted_nor_followed(world):
    outside = write(world.path / 'outside/file', b'bytes')
    (world.inbox / 'link').symlink_to(outside)
    (world.inbox / 'folder').symlink_to(outside.parent)
    (world.inbox / 'real').mkdir()
    os.mkfifo(world.inbox / 'fifo')
    with serving('--upload', world.inbox, '--allow-delete') as server:
        for name, error in [('link', 'NOT-A-FILE'), ('folder', 'NOT-A-FILE'), ('real', 'NOT-A-FILE'), ('fifo', 'NOT-A-FILE'),
                            ('folder/file', 'NOT-UPLOADED'), ('none/file', 'NOT-UPLOADED'), ('link/file', 'NOT-UPLOADED'),
                            ('../outside/file', 'NAME-SYNTAX'), ('.x.part', 'NAME-SYNTAX')]:
            assert error in run('delete', server.address, name, expect=1).stderr, name
    assert outside.exists() and sorted(os.listdir(world.inbox)) == ['fifo', 'folder', 'link', 'real']


def test_an_unfinished_upload_is_deleted_by_its_owner(world):
    big = write(world.path / 'big', content(BIG))
    part = world.inbox / '.big.part'
    with world.serving() as server:
        command = [PEERLANE, 'put', server.address, big, *map(str, world.options(world.alice))]
        cut_transfer(part, BIG, lambda: subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE,
                                                         stderr=subprocess.PIPE))
        assert 'NOT-OWNER' in run('delete', server.address, 'big', *world.options(world.bob), expect=1).stderr
        # A finished file of another owner stays.
        run('put', server.address, world.small, '--as', 'other', *world.options(world.bob))
        os.rename(world.inbox / 'other', world.inbox / 'big')
        assert part.exists()
        size = run_json('delete', server.address, 'big', *world.options(world.alice))['files'][0]['size']
        assert size >= BIG and names(world.inbox) == ['big']
        run('delete', server.address, 'big', *world.options(world.bob))
    assert names(world.inbox) == []


def test_deleted_partial_files_raise_no_quota(world):
    kept = write(world.path / 'kept', content(2 << 20))
    big = write(world.path / 'big', content(BIG))
    larger = write(world.path / 'larger', content(BIG + 1))
    with serving('--upload', world.inbox, '--allow-delete', '--quota', str(BIG + (2 << 20))) as server:
        run('put', server.address, kept)
        cut_transfer(world.inbox / '.big.part', BIG, lambda: start('put', server.address, big))
        run('delete', server.address, 'big')
        assert '[QUOTA]' in run('put', server.address, larger, expect=1).stderr
        run('put', server.address, big)


def test_a_reader_keeps_the_file_that_is_deleted(world):
    write(world.inbox / 'file', content(BIG))
    fifo = world.path / 'fifo'
    os.mkfifo(fifo)
    with serving('--upload', world.inbox, world.inbox, '--allow-delete') as server:
        reader = subprocess.Popen([PEERLANE, 'get', server.address, 'file', '-o', fifo], env=environment(),
                                  stdout=subprocess.PIPE)
        with open(fifo, 'rb') as output:
            got = output.read(1)
            run('delete', server.address, 'file')
            assert 'NOT-PUBLISHED' in run('get', server.address, 'file', '-o', world.path / 'copy', expect=1).stderr
            got += output.read()
        assert reader.wait(DEADLINE) == 0 and got == content(BIG)


def test_wrong_usage_and_help(world):
    run('delete', expect=2)
    assert 'NAME' in run('delete', '127.0.0.1:1', expect=2).stderr
    assert 'CONNECT-REFUSED' in run('delete', '127.0.0.1:1', 'x', expect=1).stderr
    assert re.search('--no-sync', run('delete', '--help').stdout)


def test_a_full_file_system_does_not_keep_files(world):
    """The file that locks a name needs an inode, which a full file system does not have."""
    script = ('mount -t tmpfs -o nr_inodes=3 none "$1" && echo bytes >"$1/file" && echo bytes >"$1/other" && '
              'exec "$0" serve 127.0.0.1:0 --upload "$1" "$1" --allow-delete')
    server = subprocess.Popen(['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', script, PEERLANE,
                               world.inbox], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True)
    try:
        first = server.stdout.readline()
        if not first:
            pytest.skip('no mounts in user namespaces: ' + server.stderr.read())
        address = first.split()[-1]
        run('delete', address, 'file')
        assert [entry['name'] for entry in run_json('list', address)['entries']] == ['other']
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE)
