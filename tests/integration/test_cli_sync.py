# SPDX-License-Identifier: BSD-2-Clause
"""Durability of `peerlane put` and `peerlane get`: order of fsync(2) and rename(2), and failures of storage."""
import os
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, content, environment, run, serving, write


def recording(log, fail=None):
    """Returns environment variables that record synchronisation in `log`, and make it fail from call `fail` on."""
    options = os.environ.get('ASAN_OPTIONS', '')
    changes = {'LD_PRELOAD': os.environ['SYNC_RECORDER'], 'SYNC_LOG': str(log),
               'ASAN_OPTIONS': f'{options}:verify_asan_link_order=0'.lstrip(':')}
    if fail:
        changes['SYNC_FAIL'] = str(fail)
    return changes


@pytest.fixture(scope='module', autouse=True)
def key_of_parts(tmp_path_factory):
    """The key of partial files exists: the first upload makes it, and synchronises it."""
    folder = tmp_path_factory.mktemp('state')
    (folder / 'inbox').mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(folder))
        with serving('--upload', folder / 'inbox') as server:
            run('put', server.address, write(folder / 'file', content(300000)))
        yield


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / 'inbox'
    (folder / 'sub').mkdir(parents=True)
    return folder


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / 'model.bin', content(300000))


def lines(log):
    return log.read_text().splitlines() if log.exists() else []


def test_put_is_answered_after_the_file_and_its_name_are_on_storage(tmp_path, inbox, source):
    log = tmp_path / 'log'
    with serving('--upload', inbox, **recording(log)) as server:
        run('put', server.address, source)
        assert lines(log) == ['fsync .model.bin.part', 'rename model.bin', 'fsync inbox']
        log.write_text('')
        run('put', server.address, source, '--as', 'sub/other', '--verify')
        assert lines(log) == ['fsync .other.part', 'rename other', 'fsync sub']
    assert (inbox / 'sub/other').read_bytes() == source.read_bytes()


def test_no_sync_leaves_storage_to_the_kernel(tmp_path, inbox, source):
    log = tmp_path / 'log'
    with serving('--upload', inbox, **recording(log)) as server:
        run('put', server.address, source, '--no-sync')
        assert lines(log) == ['rename model.bin']
    assert (inbox / 'model.bin').read_bytes() == source.read_bytes()


def test_delete_is_answered_after_the_folder_is_on_storage(tmp_path, inbox):
    log = tmp_path / 'log'
    for name in ['one', 'sub/two', 'three']:
        write(inbox / name, b'bytes')
    with serving('--upload', inbox, '--allow-delete', **recording(log)) as server:
        run('delete', server.address, 'one', 'sub/two')
        assert lines(log) == ['fsync inbox', 'fsync sub']
        log.write_text('')
        run('delete', server.address, 'three', '--no-sync')
        assert lines(log) == []
    assert os.listdir(inbox) == ['sub'] and not os.listdir(inbox / 'sub')


def test_a_failure_of_storage_fails_the_delete(tmp_path, inbox):
    write(inbox / 'one', b'bytes')
    with serving('--upload', inbox, '--allow-delete', **recording(tmp_path / 'log', fail=1)) as server:
        assert '[SYNC-FAILED]' in run('delete', server.address, 'one', expect=1).stderr


def test_put_of_several_files_and_of_an_empty_one(tmp_path, inbox, source):
    log = tmp_path / 'log'
    empty = write(tmp_path / 'empty', b'')
    with serving('--upload', inbox, **recording(log)) as server:
        run('put', server.address, source, empty)
    assert lines(log) == ['fsync .model.bin.part', 'rename model.bin', 'fsync inbox',
                          'fsync .empty.part', 'rename empty', 'fsync inbox']
    assert sorted(os.listdir(inbox)) == ['empty', 'model.bin', 'sub']


def test_a_failure_of_storage_fails_the_put_and_keeps_the_old_file(tmp_path, inbox, source):
    write(inbox / 'model.bin', b'old')
    with serving('--upload', inbox, **recording(tmp_path / 'log', fail=1)) as server:
        failed = run('put', server.address, source, '--verify', expect=1)
        assert '[SYNC-FAILED]' in failed.stderr
        assert (inbox / 'model.bin').read_bytes() == b'old'
        # The kernel may have dropped bytes of the part, so it does not serve another attempt.
        assert sorted(os.listdir(inbox)) == ['model.bin', 'sub']
        run('put', server.address, source, '--no-sync')
    assert (inbox / 'model.bin').read_bytes() == source.read_bytes()


def test_a_failure_of_the_directory_fails_the_put(tmp_path, inbox, source):
    with serving('--upload', inbox, **recording(tmp_path / 'log', fail=2)) as server:
        assert '[SYNC-FAILED]' in run('put', server.address, source, expect=1).stderr


def test_a_failure_of_the_directory_fails_small_files(tmp_path, inbox):
    """The first file is synchronised, its directory is not; the second file comes with the first, or after it."""
    files = [write(tmp_path / name, b'bytes') for name in ('one', 'two')]
    with serving('--upload', inbox, **recording(tmp_path / 'log', fail=2)) as server:
        assert run('put', server.address, *files, expect=1).stderr.count('[SYNC-FAILED]') == 2


def test_small_files_whose_directory_failed_use_the_quota(tmp_path, inbox):
    """They have their names: the client sees a failure, and the server has the files."""
    files = [write(tmp_path / f'file{i}', b'') for i in range(33)]
    with serving('--upload', inbox, '--quota', '128K', SYNC_FAIL_NAME='inbox', **recording(tmp_path / 'log')) as server:
        assert run('put', server.address, *files[:32], expect=1).stderr.count('[SYNC-FAILED]') == 32
        assert '[QUOTA]' in run('put', server.address, files[32], expect=1).stderr
    assert len(list(inbox.glob('file*'))) == 32


def get(server, *options, expect=0, **changes):
    done = subprocess.run([PEERLANE, 'get', server.address, 'model.bin', *map(str, options)], capture_output=True,
                          text=True, timeout=DEADLINE, env=environment(**changes))
    assert done.returncode == expect, done.stderr
    return done


def test_get_syncs_on_request(tmp_path, source):
    log = tmp_path / 'log'
    (tmp_path / 'out').mkdir()
    with serving(source) as server:
        get(server, '-o', tmp_path / 'out', **recording(log))
        assert lines(log) == ['rename model.bin']
        log.write_text('')
        get(server, '-o', tmp_path / 'out', '--sync', **recording(log))
        assert lines(log) == ['fsync .model.bin.part', 'rename model.bin', 'fsync out']
        failed = get(server, '-o', tmp_path / 'out', '--sync', expect=1, **recording(log, fail=1))
        assert '[SYNC-FAILED]' in failed.stderr


def test_commits_of_many_clients(tmp_path, inbox, source):
    with serving('--upload', inbox, **recording(tmp_path / 'log')) as server:
        processes = [subprocess.Popen([PEERLANE, 'put', server.address, source, '--as', f'f{i}'],
                                      env=environment()) for i in range(8)]
        for process in processes:
            assert process.wait(DEADLINE) == 0
    for i in range(8):
        assert (inbox / f'f{i}').read_bytes() == source.read_bytes()
