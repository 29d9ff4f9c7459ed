# SPDX-License-Identifier: BSD-2-Clause
"""Many files, directories and standard input: `peerlane put` and `peerlane get`."""
import os
import random
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, Server, content, environment, make_key, run, run_json, serving, write
from test_cli_metrics import measured, samples
from test_cli_sync import lines, recording

SMALL = 256 << 10  # largest file that travels with others


def tree_of(folder):
    """Returns content, permissions and time of each file below a folder."""
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            status = os.stat(path)
            with open(path, 'rb') as file:
                files[os.path.relpath(path, folder)] = (file.read(), status.st_mode & 0o777, status.st_mtime_ns)
    return files


@pytest.fixture
def tree(tmp_path):
    """Small files in nested directories, sizes around the limit between small and large files, and a large file."""
    source = random.Random(3)
    folder = tmp_path / 'tree'
    for i in range(700):
        path = write(folder / f'd{i % 7}/e{i % 3}/f{i}', source.randbytes(source.randrange(2000)))
        path.chmod(source.choice([0o600, 0o644, 0o755]))
        os.utime(path, ns=(10**18 + i, 10**18 + i))
    for i, size in enumerate([0, 1, SMALL - 1, SMALL, SMALL + 1, 3 << 20]):
        write(folder / f'size{i}', source.randbytes(size))
    return folder


@pytest.fixture
def inbox(tmp_path):
    (tmp_path / 'inbox').mkdir()
    return tmp_path / 'inbox'


@pytest.mark.parametrize('options', [[], ['--verify', '--no-sync'], ['--fabric', 'tcp', '--lanes', '2']])
def test_put_a_directory(tree, inbox, options):
    with serving('--upload', inbox) as server:
        run('put', '-q', '-r', *options, server.address, tree)
        assert tree_of(inbox / 'tree') == tree_of(tree)
        run('put', '-q', '-r', *options, server.address, f'{tree}/', '--as', 'other/place')
        assert tree_of(inbox / 'other/place') == tree_of(tree)
        run('put', '-q', '-r', *options, server.address, '.', cwd=tree / 'd1')
        assert tree_of(inbox / 'e1') == tree_of(tree / 'd1/e1')


@pytest.mark.parametrize('options', [[], ['--verify', '--sync'], ['--fabric', 'tcp', '--encrypt']])
def test_get_a_directory(tmp_path, tree, options):
    key = make_key(tmp_path)
    with serving(tree, '--key', key) as server:
        connection = ['-q', '--key', key, *options, server.address]
        for name in ['all', 'part']:
            (tmp_path / name).mkdir()
        run('get', '-r', *connection, cwd=tmp_path / 'all')
        assert tree_of(tmp_path / 'all') == tree_of(tree)
        run('get', '-r', *connection, 'd3', 'd4/e1', 'size5', '-o', tmp_path / 'part')
        assert tree_of(tmp_path / 'part/d3') == tree_of(tree / 'd3')
        assert tree_of(tmp_path / 'part/e1') == tree_of(tree / 'd4/e1')
        assert sorted(os.listdir(tmp_path / 'part')) == ['d3', 'e1', 'size5']
        assert '[NOT-PUBLISHED]' in run('get', '-r', *connection, 'd33', expect=1).stderr


def requests(server):
    """Returns the number of requests that the server has done, by kind."""
    found = {}
    for key, value in samples(server).items():
        if key[0] == 'requests_total':
            found[key[1]] = found.get(key[1], 0) + value
    return found


def test_files_up_to_256_kib_share_requests(tmp_path, inbox):
    """Fourteen files of 70,000 bytes go with one request. Larger ones, and sparse ones, cost no request that fails."""
    for i in range(42):
        write(tmp_path / f'pub/many/{i}', content(70_000, i))
    for i in range(5):
        write(tmp_path / f'pub/large/{i}', content(SMALL + 1, i))
    (tmp_path / 'out').mkdir()
    with measured(tmp_path / 'pub', '--upload', inbox) as server:
        run('put', '-q', '-r', server.address, tmp_path / 'pub/many', tmp_path / 'pub/large')
        assert tree_of(inbox / 'many') == tree_of(tmp_path / 'pub/many')
        assert tree_of(inbox / 'large') == tree_of(tmp_path / 'pub/large')
        done = requests(server)
        assert (done['put_small'], done['create']) == (3, 5)
        run('get', '-q', '-r', server.address, 'many', '-o', tmp_path / 'out')
        done = requests(server)
        assert (done['get_small'], done['open']) == (3, 0)
        run('get', '-q', '-r', server.address, 'large', '-o', tmp_path / 'out')
        done = requests(server)
        assert (done['get_small'], done['open']) == (3, 5)
    for name in ['many', 'large']:
        assert tree_of(tmp_path / 'out' / name) == tree_of(tmp_path / 'pub' / name)


def test_sparse_files_keep_their_holes(tmp_path, inbox):
    """Holes of more than 64 KiB stay holes, although the file is small enough to travel with others."""
    for i in range(3):
        with open(write(tmp_path / f'pub/{i}', b'begin'), 'ab') as file:
            file.truncate(200_000)
    (tmp_path / 'out').mkdir()
    with serving(tmp_path / 'pub', '--upload', inbox) as server:
        run('put', '-q', '-r', server.address, tmp_path / 'pub')
        run('get', '-q', '-r', server.address, '-o', tmp_path / 'out')
    for folder in [inbox / 'pub', tmp_path / 'out']:
        assert tree_of(folder) == tree_of(tmp_path / 'pub')
        assert all((folder / f'{i}').stat().st_blocks * 512 < 100_000 for i in range(3))


def test_wrong_usage(tree, inbox):
    with serving('--upload', inbox) as server:
        assert '--recursive' in run('put', server.address, tree, expect=1).stderr
        assert 'same name' in run('put', server.address, tree / 'size0', inbox / 'size0', expect=2).stderr
        assert '--as' in run('put', server.address, '-', expect=2).stderr
        assert '[NOT-A-DIRECTORY]' in run('get', '-r', server.address, '-o', '-', expect=1).stderr


def test_links_and_pipes_are_not_sent(tmp_path, inbox):
    folder = tmp_path / 'mixed'
    write(folder / 'file', b'file')
    os.symlink('/etc/passwd', folder / 'link')
    os.mkfifo(folder / 'pipe')
    with serving('--upload', inbox) as server:
        assert 'not sent' in run('put', '-r', server.address, folder).stderr
    assert os.listdir(inbox / 'mixed') == ['file']


def test_directories_of_the_server_are_not_left_through_links(tmp_path, tree, inbox):
    (tmp_path / 'outside').mkdir()
    os.symlink(tmp_path / 'outside', inbox / 'tree')
    with serving('--upload', inbox) as server:
        run('put', '-q', '-r', server.address, tree, expect=1)
    assert not os.listdir(tmp_path / 'outside')


def test_failed_files_do_not_stop_the_others(tmp_path, inbox):
    """A directory takes the name of one file; one is not published."""
    sources = [write(tmp_path / f'f{i}', b'%d' % i) for i in range(300)]
    (inbox / 'f150').mkdir()
    with serving('--upload', inbox) as server:
        done = run('put', server.address, *sources, expect=1)
        assert done.stderr.count('peerlane: f150: ') == 1 and f'(at the server {server.address})' in done.stderr
    assert len(done.stdout.splitlines()) == 299
    assert len(list(inbox.iterdir())) == 300
    (tmp_path / 'out').mkdir()
    with serving(inbox) as server:
        names = [f'f{i}' for i in range(300)]
        result = run_json('get', server.address, *names, '-o', tmp_path / 'out', expect=1)
    failed = [file['name'] for file in result['files'] if file['error']]
    assert failed == ['f150'] and [file['name'] for file in result['files']] == names
    assert len(list((tmp_path / 'out').iterdir())) == 299
    assert (tmp_path / 'out/f299').read_bytes() == b'299'


def test_small_files_replace_older_ones_and_partial_files(tmp_path, inbox):
    sources = [write(tmp_path / name, content(1000, i)) for i, name in enumerate(['one', 'two'])]
    write(inbox / 'one', content(5000, 9))
    write(inbox / '.two.part', content(7000, 9))
    with serving('--upload', inbox) as server:
        run('put', server.address, *sources)
    assert sorted(os.listdir(inbox)) == ['one', 'two']
    assert [(inbox / path.name).read_bytes() for path in sources] == [path.read_bytes() for path in sources]


def test_storage_has_all_files_before_their_names(tmp_path, inbox):
    sources = [write(tmp_path / f'f{i}', b'%d' % i) for i in range(3)]
    log = tmp_path / 'log'
    with serving('--upload', inbox, **recording(log)) as server:
        run('put', server.address, *sources)
        assert lines(log) == [f'fsync .f{i}.part' for i in range(3)] + [f'rename f{i}' for i in range(3)] + ['fsync inbox']
        log.write_text('')
        run('put', '--no-sync', server.address, *sources)
        assert lines(log) == [f'rename f{i}' for i in range(3)]


def test_failures_of_storage_fail_the_files(tmp_path, inbox):
    sources = [write(tmp_path / f'f{i}', b'%d' % i) for i in range(3)]
    with serving('--upload', inbox, **recording(tmp_path / 'log', fail=3)) as server:
        failed = run('put', server.address, *sources, expect=1)
    assert failed.stderr.count('[SYNC-FAILED]') == 3  # the third file, and the directory with the names of the others


def test_get_syncs_small_files(tmp_path):
    names = [write(tmp_path / f'pub/f{i}', b'%d' % i).name for i in range(3)]
    (tmp_path / 'out').mkdir()
    log = tmp_path / 'log'
    with serving(tmp_path / 'pub') as server:
        subprocess.run([PEERLANE, 'get', server.address, *names, '--sync', '-o', tmp_path / 'out'], check=True,
                       timeout=DEADLINE, env=environment(**recording(log)))
    assert sorted(lines(log)[:-1]) == sorted([f'fsync .f{i}.part' for i in range(3)] + [f'rename f{i}' for i in range(3)])
    assert lines(log)[-1] == 'fsync out'


def test_put_standard_input(inbox):
    data = content(3 << 20)
    with serving('--upload', inbox, '--memory', 'frames=4M', '--writable') as server:
        for options in [['--verify'], ['--fabric', 'tcp']]:
            subprocess.run([PEERLANE, 'put', server.address, '-', '--as', 'data', *options], input=data, check=True,
                           stdout=subprocess.DEVNULL, timeout=DEADLINE, env=environment())
            assert (inbox / 'data').read_bytes() == data
        subprocess.run([PEERLANE, 'put', '-q', server.address, '-', '--as', 'frames'], input=data, check=True,
                       timeout=DEADLINE, env=environment())
        got = subprocess.run([PEERLANE, 'get', server.address, 'frames', '-o', '-'], capture_output=True, check=True,
                             timeout=DEADLINE, env=environment()).stdout
    assert got[:len(data)] == data


def test_a_lost_server_fails_the_rest(tmp_path, tree, inbox):
    server = Server('--upload', inbox, '--once')
    client = subprocess.Popen([PEERLANE, 'put', '-r', server.address, tree], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment())
    client.stdout.readline()
    server.process.kill()
    server.process.communicate()
    _, errors = client.communicate(timeout=DEADLINE)
    assert client.returncode in [0, 1] and (client.returncode == 0 or '[' in errors)
    sent = tree_of(tree)
    for name, file in tree_of(inbox / 'tree').items():
        if not name.endswith('.part'):
            assert file == sent[name]
