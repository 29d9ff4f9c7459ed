# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane get` and `peerlane put`."""
import json
import os
import pathlib
import pty
import re
import resource
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest
from cli_support import DEADLINE, GPU, PEERLANE, Server, content, cut_transfer, environment, read_terminal, recorded, run, run_json, \
    serving, start, wait_until, write

# Size of a file whose transfer takes half a second at the rate of the slow server, so that a test can act in its middle.
RATE = '32M'
BIG = 16 << 20


@pytest.fixture
def world(tmp_path):
    for name in ['pub', 'in', 'out']:
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def server(world):
    write(world / 'pub/small', b'small')
    write(world / 'pub/empty', b'')
    write(world / 'pub/sub/other', content(1000003))
    with serving(world / 'pub', '--memory', 'frames=64K', '--upload', world / 'in', '--writable') as running:
        yield running


@pytest.fixture
def slow_server(world):
    with serving(world / 'pub', '--upload', world / 'in', '--rate', RATE) as running:
        yield running


def partial_files(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith('.part')]


@pytest.mark.parametrize('begin, character, count', [('', 'x', 249), ('', 'x', 250), ('', 'x', 255), ('', 'ä', 127), ('x', 'ä', 127),
                                                     ('', '日', 84)])
def test_names_that_leave_no_room_for_those_of_partial_files(server, world, begin, character, count):
    names = [begin + character * count, begin + character * (count - 1) + 'z']
    for at, each in enumerate(names):
        write(world / 'pub' / each, content(100000 + at))
    run('get', server.address, *names, '-o', world / 'out')
    run('put', server.address, *[world / 'pub' / each for each in names])
    for folder in (world / 'out', world / 'in'):
        assert all((folder / each).read_bytes() == (world / 'pub' / each).read_bytes() for each in names)
        assert not partial_files(folder)
    # A longer name fails before any bytes move.
    assert 'File name too long' in run('get', server.address, 'small', '-o', world / 'out' / ('x' * 256), expect=1).stderr


def test_get_several_into_a_directory(server, world):
    done = run('get', server.address, 'small', 'empty', 'sub/other', '-o', world / 'out')
    for name in ['small', 'empty', 'sub/other']:
        assert (world / 'out' / os.path.basename(name)).read_bytes() == (world / 'pub' / name).read_bytes()
    assert not partial_files(world / 'out')
    lines = done.stdout.splitlines()
    assert re.match(r'small: 5 B in \S+ \S+, \S+ \S+$', lines[0])
    assert lines[1].startswith('empty: 0 B in ')
    assert not done.stderr


def test_get_into_the_current_directory_and_under_another_name(server, world):
    run('get', server.address, 'small', cwd=world / 'out')
    assert (world / 'out/small').read_bytes() == b'small'
    run('get', server.address, 'small', '-o', 'renamed', cwd=world / 'out')
    assert (world / 'out/renamed').read_bytes() == b'small'
    write(world / 'out/renamed', b'much longer than what replaces it')
    run('get', server.address, 'small', '-o', world / 'out/renamed')
    assert (world / 'out/renamed').read_bytes() == b'small'


def test_get_prints_the_result_as_json(server, world):
    result = run_json('get', server.address, 'sub/other', '-o', world / 'out', '--verify')
    assert result['address'] == server.address and result['authenticated'] is False
    (one,) = result['files']
    assert one['name'] == 'sub/other' and one['size'] == one['bytes'] == 1000003
    assert one['resumed'] == 0 and one['verified'] and one['error'] is None
    assert one['route'] == 'direct' and one['fabric'] == 'local' and one['reason'] and one['bytes_per_second'] > 0
    assert re.fullmatch('[0-9a-f]{32}', one['xxh128'])


def test_get_continues_after_a_failed_file(server, world):
    done = run('get', server.address, 'missing', 'small', '-o', world / 'out', expect=1)
    assert 'missing: ' in done.stderr and 'NOT-PUBLISHED' in done.stderr and 'hint: ' in done.stderr
    assert (world / 'out/small').read_bytes() == b'small'
    result = run('get', server.address, 'missing', 'small', '-o', world / 'out', '--json', expect=1)
    assert '"id": "NOT-PUBLISHED"' in result.stdout


def test_get_wrong_usage(server, world):
    run('get', expect=2)
    run('get', server.address, expect=2)
    assert '`peerlane get --recursive`' in run('get', server.address, 'sub', expect=1).stderr
    assert 'same file' in run('get', server.address, 'small', 'sub/small', expect=2).stderr
    assert 'NOT-A-DIRECTORY' in run('get', server.address, 'small', 'empty', '-o', world / 'none', expect=1).stderr
    run('get', server.address, 'small', '-o', str(world / 'none') + '/', expect=1)
    run('get', server.address, 'small', '-o', world / 'none/file', expect=1)


def test_quiet_prints_nothing(server, world):
    done = run('get', server.address, 'small', '-o', world / 'out', '--quiet')
    assert (done.stdout, done.stderr) == ('', '')
    done = run('put', server.address, world / 'pub/small', '--quiet')
    assert (done.stdout, done.stderr) == ('', '')


def test_put_several(server, world):
    done = run('put', server.address, world / 'pub/small', world / 'pub/empty', world / 'pub/sub/other', '--verify')
    for name in ['small', 'empty', 'sub/other']:
        assert (world / 'in' / os.path.basename(name)).read_bytes() == (world / 'pub' / name).read_bytes()
    assert not partial_files(world / 'in')
    assert done.stdout.count('verified: xxh128 ') == 3


def test_list_shows_a_stored_file_at_once(world):
    write(world / 'pub/first', b'first')
    write(world / 'large', content(300000))
    with serving(world / 'pub', '--upload', world / 'pub') as server:
        assert 'first' in run('list', server.address).stdout
        run('put', server.address, world / 'large')
        assert 'large' in run('list', server.address).stdout


def test_put_refuses_files_whose_size_tells_nothing(server, world):
    """A file of /proc has the size 0; alone, and among small files."""
    for files in [['/proc/version'], ['/proc/version', write(world / 'empty', b'')]]:
        error = run('put', server.address, *files, expect=1).stderr
        assert '[NOT-A-FILE]' in error and 'peerlane put ADDRESS - --as NAME < FILE' in error
    assert (world / 'in/empty').read_bytes() == b'' and not (world / 'in/version').exists()
    with open('/proc/version', 'rb') as given:
        subprocess.run([PEERLANE, 'put', server.address, '-', '--as', 'version'], stdin=given, check=True, timeout=DEADLINE,
                       env=environment())
    assert (world / 'in/version').read_bytes() == pathlib.Path('/proc/version').read_bytes()
    write(world / 'new', b'')
    assert (world / 'in/version').stat().st_mode == (world / 'new').stat().st_mode


def test_put_with_another_name_and_into_a_subdirectory(server, world):
    run('put', server.address, world / 'pub/small', '--as', 'renamed')
    assert (world / 'in/renamed').read_bytes() == b'small'
    (world / 'in/folder').mkdir()
    run('put', server.address, world / 'pub/sub/other', '--as', 'folder/file')
    assert (world / 'in/folder/file').read_bytes() == (world / 'pub/sub/other').read_bytes()
    write(world / 'new', b'newer')
    run('put', server.address, world / 'new', '--as', 'renamed')
    assert (world / 'in/renamed').read_bytes() == b'newer'


@pytest.mark.parametrize('size', [10, 8 << 20])
def test_put_over_a_directory_is_refused_before_any_byte(server, world, size):
    (world / 'in/sub').mkdir()
    result = run('put', server.address, write(world / 'big', content(size)), '--as', 'sub', '--json', expect=1)
    (one,) = json.loads(result.stdout)['files']
    assert one['error']['id'] == 'NOT-A-FILE' and one['error']['hint'] == 'name a file in it: --as sub/NAME'
    assert one['bytes'] == one['kept'] == 0
    assert not partial_files(world / 'in')


def test_put_whose_file_cannot_be_made_keeps_nothing(world):
    with serving('--upload', world / 'in', '--rate', RATE) as server:
        big = write(world / 'big', content(BIG))
        put = start('put', server.address, big, '--json')
        part = world / 'in/.big.part'
        wait_until(part.exists)
        (world / 'in/big').mkdir()
        output, _ = put.communicate(timeout=DEADLINE)
    (one,) = json.loads(output)['files']
    assert put.returncode == 1 and 'Is a directory' in one['error']['message']
    assert one['kept'] == 0
    assert not part.exists()


def test_each_command_shows_hidden_bytes_alike(world):
    """As tables do: a backslash before x is escaped, so that no name looks like another."""
    names = {b'nl\nname': r'nl\x0aname', b'\xff\xfe.bin': r'\xff\xfe.bin', b'c1\xc2\x85z': r'c1\xc2\x85z', b'a\\xb': r'a\x5cxb',
             b'\xc3\xa9': '\xe9'}
    for name in names:
        write(world / 'pub' / os.fsdecode(name), b'x')
    with serving(world / 'pub', '--upload', world / 'in', '--allow-delete', LC_ALL='C.UTF-8') as server:
        listed = run('list', server.address, LC_ALL='C.UTF-8').stdout
        server.line()
        for name, shown in names.items():
            assert f'{shown} ' in listed
            name = os.fsdecode(name)
            got = run('get', server.address, name, '-o', world / 'out', LC_ALL='C.UTF-8').stdout
            put = run('put', server.address, name, cwd=world / 'out', LC_ALL='C.UTF-8').stdout
            deleted = run('delete', server.address, name, LC_ALL='C.UTF-8').stdout
            assert got.startswith(f'{shown}: ') and put.startswith(f'{shown}: ') and deleted.startswith(f'{shown}: ')
            refused = run('get', server.address, f'{name}2', '-o', world / 'out', expect=1, LC_ALL='C.UTF-8').stderr
            assert refused.startswith(f'peerlane: {shown}2: ')
            for verb in ['reads', 'writes', 'stored', 'deleted']:
                assert server.line().endswith(f' {verb} {shown} (1 B)')


def test_errors_name_a_silent_server(world):
    """The server's socket accepts, but nobody answers.  No file is begun, so that the address is the object."""
    with socket.create_server(('127.0.0.1', 0)) as silent:
        address = f'127.0.0.1:{silent.getsockname()[1]}'
        for command in [['list'], ['get', 'name'], ['put', PEERLANE], ['delete', 'name'], ['top']]:
            done = run(command[0], address, *command[1:], '--timeout', '0.1', expect=1, cwd=world)
            assert f'peerlane: {address}: connect: not done within 0.100 s [OPERATION-TIMEOUT]' in done.stderr


def test_a_name_with_escapes_has_a_hint(world):
    """A name copied from the text of a list.  Bash makes the name of it within $'...'."""
    write(world / 'pub/new\nline', b'x')
    hint = "  hint: lists show a byte that is not printable as \\xNN, and a backslash before x as \\x5c: in bash, give such a " \
           "name within $'...'\n"
    with serving(world / 'pub', '--upload', world / 'in', '--allow-delete') as server:
        copied = run('list', server.address).stdout.splitlines()[1].split()[0]
        assert copied == r'new\x0aline'
        for command in [['get'], ['get', '-r'], ['delete']]:
            assert hint in run(command[0], server.address, *command[1:], copied, expect=1, cwd=world).stderr
            assert hint not in run(command[0], server.address, *command[1:], 'none', expect=1, cwd=world).stderr
        name = subprocess.run(['bash', '-c', f"printf %s $'{copied}'"], stdout=subprocess.PIPE, check=True).stdout
        run('get', server.address, os.fsdecode(name), '-o', world / 'out')


def test_errors_name_missing_brackets():
    for text, right in [('::1:7902', '[::1]:7902'), (':::7902', '[::]:7902'), ('fe80::2:19875', '[fe80::2]:19875')]:
        for command in ['serve', 'list']:
            done = run(command, text, *([PEERLANE] if command == 'serve' else []), expect=1)
            assert f'peerlane: {text}: ' in done.stderr and f'hint: write {right}\n' in done.stderr
    # An address as a whole stays one, and errors name it.
    for command in [['serve', '2001:db8::1:7902', PEERLANE], ['list', '2001:db8::1:7902']]:
        done = run(*command, expect=1)
        assert 'peerlane: [2001:db8::1:7902]:19875: pl_' in done.stderr and '[INSECURE-ADDRESS]' in done.stderr


def test_quota_counts_files_without_bytes(world):
    for i in range(40):
        write(world / f'many/f{i}', b'')
    with serving('--upload', world / 'in', '--quota', '128K') as server:
        result = run('put', server.address, '--recursive', world / 'many', expect=1)
    assert '[QUOTA]' in result.stderr
    assert len(list((world / 'in').rglob('f*'))) == 32


def test_quota_counts_small_files_before_they_are_written(world):
    write(world / 'one', b'')
    for i in range(40):
        write(world / f'many/f{i}', b'')
    with serving('--upload', world / 'in', '--quota', '128K') as server:
        run('put', server.address, world / 'one')
        # The first sum is older than 200 ms, so the server sums the files anew once this request reaches the limit.
        time.sleep(0.4)
        result = run('put', server.address, '--recursive', world / 'many', expect=1)
    assert '[QUOTA]' in result.stderr
    assert len([path for path in (world / 'in').rglob('*') if path.is_file()]) == 32


def test_put_cannot_leave_the_directory(server, world):
    (world / 'in/link').symlink_to(world)
    run('put', server.address, world / 'pub/small', '--as', '../escaped', expect=2)
    run('put', server.address, world / 'pub/small', '--as', 'link/escaped', expect=1)
    assert '--recursive' in run('put', server.address, world / 'pub/small', '--as', 'nowhere/file', expect=1).stderr
    run('put', server.address, world / 'pub/small', '--as', '.x.part', expect=1)
    assert not (world / 'escaped').exists()
    # A symbolic link at the destination is replaced, not followed.
    victim = write(world / 'victim', b'untouched')
    (world / 'in/small').symlink_to(victim)
    run('put', server.address, world / 'pub/small')
    assert victim.read_bytes() == b'untouched' and not (world / 'in/small').is_symlink()


def test_put_needs_a_server_with_upload_or_writable(world):
    write(world / 'pub/small', b'small')
    with serving(world / 'pub', '--memory', 'frames=4K') as server:
        assert '--upload' in run('put', server.address, world / 'pub/small', expect=1).stderr
        assert '--writable' in run('put', server.address, world / 'pub/small', '--as', 'frames', expect=1).stderr
    assert sorted(path.name for path in world.iterdir()) == ['in', 'out', 'pub']


def test_put_of_a_folder_without_files_says_so(server, world):
    (world / 'hollow/sub').mkdir(parents=True)
    assert 'hollow: nothing to send: it has no regular files' in run('put', server.address, '--recursive', world / 'hollow').stderr


def test_put_wrong_usage(server, world):
    run('put', expect=2)
    run('put', server.address, expect=2)
    run('put', server.address, 'a', 'b', '--as', 'c', expect=2)
    assert 'No such file' in run('put', server.address, world / 'missing', expect=1).stderr
    assert 'NOT-A-FILE' in run('put', server.address, world, expect=1).stderr


def test_memory_is_written_and_read(server, world):
    data = content(65536)
    run('put', server.address, write(world / 'data', data), '--as', 'frames', '--verify')
    result = run_json('get', server.address, 'frames', '-o', world / 'out/frames', '--verify')
    assert result['files'][0]['verified'] and (world / 'out/frames').read_bytes() == data
    write(world / 'data', data + b'x')
    assert 'NO-SPACE' in run('put', server.address, world / 'data', '--as', 'frames', expect=1).stderr


@pytest.mark.parametrize('local', [[], ['--memory', 'cuda'], ['--memory', 'cuda:1']])
@pytest.mark.parametrize('remote', ['', '@cuda:1'])
def test_gpu_memory_is_written_and_read(world, local, remote):
    """GPU memory of the stand-in driver at one end or both."""
    data = content(3000001)
    # The mapping of a file is not accessible to a GPU, so the bytes are staged, which the exit status shows.
    expect = 3 if remote and not local else 0
    with serving('--memory', f'frames=3000001{remote}', '--writable', **GPU) as server:
        run('put', server.address, write(world / 'data', data), '--as', 'frames', '--verify', *local, expect=expect, **GPU)
        (one,) = run_json('get', server.address, 'frames', '-o', world / 'out/frames', '--verify', *local, expect=expect,
                          **GPU)['files']
    assert one['verified'] and one['bytes'] == len(data) and (world / 'out/frames').read_bytes() == data


def test_unknown_memory_kinds_are_refused(server, world):
    data = write(world / 'data', b'x')
    expected = 'takes host, cuda or cuda:N'
    for kind, error, status in [('cuda:99', 'GPU-NONE', 1), ('tape', expected, 2), ('cuda:x', expected, 2)]:
        failed = run('get', server.address, 'small', '--memory', kind, '-o', world / 'out', expect=status, **GPU)
        assert error in failed.stderr
        assert error in run('put', server.address, data, '--memory', kind, expect=status, **GPU).stderr
        assert error in run('serve', '127.0.0.1:0', '--memory', f'x=1K@{kind}', expect=status, **GPU).stderr
    assert not partial_files(world / 'out')


def test_a_cut_get_is_resumed(slow_server, world):
    data = content(BIG)
    write(world / 'pub/big', data)
    part = world / 'out/.big.part'
    extent = cut_transfer(part, BIG, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    assert not (world / 'out/big').exists()
    (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out', '--verify')['files']
    assert one['resumed'] == extent and one['bytes'] == BIG - extent and one['verified']
    assert (world / 'out/big').read_bytes() == data
    assert not partial_files(world / 'out')


def test_a_cut_get_of_a_changed_file_begins_again(slow_server, world):
    write(world / 'pub/big', content(BIG))
    part = world / 'out/.big.part'
    cut_transfer(part, BIG, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    data = content(BIG, seed=2)
    write(world / 'pub/big', data)
    (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out')['files']
    assert one['resumed'] == 0 and (world / 'out/big').read_bytes() == data


def damage(part, at=0):
    with open(part, 'r+b') as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_cut_get_of_a_file_whose_time_was_set_back_begins_again(slow_server, world):
    old, new = content(BIG), content(BIG, 2)
    path = write(world / 'pub/big', old)
    part = world / 'out/.big.part'
    cut_transfer(part, BIG, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    times = path.stat()
    path.write_bytes(new)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out')['files']
    assert one['resumed'] == 0 and (world / 'out/big').read_bytes() == new


def test_get_into_standard_output(server, world):
    data = content(3_000_001)
    write(world / 'pub/data', data)
    for output in '-', '/dev/stdout':
        done = subprocess.run([PEERLANE, 'get', server.address, 'data', '-o', output, '--verify'], capture_output=True,
                              timeout=DEADLINE, env=environment())
        assert done.returncode == 0 and done.stdout == data
        with open(world / 'redirected', 'wb') as file:
            subprocess.run([PEERLANE, 'get', server.address, 'data', '-o', output], stdout=file, check=True,
                           timeout=DEADLINE, env=environment())
        assert (world / 'redirected').read_bytes() == data
    with open('/dev/full', 'w') as full:
        done = subprocess.run([PEERLANE, 'get', server.address, 'data', '-o', '-'], stdout=full, stderr=subprocess.PIPE,
                              timeout=DEADLINE, env=environment())
    assert done.returncode == 4 and b'No space left on device' in done.stderr
    run('get', server.address, 'data', '-o', '-', '--json', expect=2)


def test_get_into_a_pipe_and_a_device_leaves_them_there(server, world):
    data = content(500_000)
    write(world / 'pub/data', data)
    pipe = world / 'pipe'
    os.mkfifo(pipe)
    process = start('get', server.address, 'data', '-o', pipe)
    assert pipe.read_bytes() == data
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and stat.S_ISFIFO(pipe.stat().st_mode)
    run('get', server.address, 'data', '-o', '/dev/null')
    assert stat.S_ISCHR(os.stat('/dev/null').st_mode)


def test_files_in_shared_memory_are_ordinary(server, world):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        path = pathlib.Path(folder) / 'data'
        for length in 300_000, 1000:
            write(world / 'pub/data', content(length))
            run('get', server.address, 'data', '-o', path)
            assert path.read_bytes() == content(length)
    absent = '/dev/a-device-that-is-absent'
    assert 'No such file' in run('get', server.address, 'data', '-o', absent, expect=1).stderr
    assert not os.path.exists(absent)


def test_an_interrupted_get_into_a_full_pipe_ends(server, world):
    write(world / 'pub/data', content(5_000_000))
    process = start('get', server.address, 'data', '-o', '-')
    assert process.stdout.read(1000)
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE)
    assert process.returncode == -signal.SIGINT
    assert b'[INTERRUPTED]' in process.communicate()[1]


def test_get_through_a_symbolic_link_replaces_its_target(server, world):
    data = content(5000)
    write(world / 'pub/data', data)
    write(world / 'elsewhere/real', b'old')
    link = world / 'link'
    link.symlink_to(world / 'elsewhere/real')
    run('get', server.address, 'data', '-o', link)
    assert link.is_symlink() and (world / 'elsewhere/real').read_bytes() == data
    # A link that leads nowhere is not replaced by a file.
    (world / 'lost').symlink_to(world / 'elsewhere/none')
    assert '[LINK-TARGET]' in run('get', server.address, 'data', '-o', world / 'lost', expect=1).stderr
    assert (world / 'lost').is_symlink()


def test_copies_have_the_time_of_their_source(server, world):
    path = write(world / 'pub/dated', b'data')
    os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    run('get', server.address, 'dated', '-o', world / 'out')
    assert (world / 'out/dated').stat().st_mtime_ns == 1_600_000_000_123_456_789
    run('put', server.address, path, '--as', 'copy')
    assert (world / 'in/copy').stat().st_mtime_ns == 1_600_000_000_123_456_789


def stopped_transfer(part, begin):
    """Stops a transfer of BIG bytes in its first half; returns the process."""
    for _ in range(30):
        process = begin()
        while process.poll() is None and recorded(part, BIG) <= 0:
            time.sleep(0.0005)
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            if 0 < recorded(part, BIG) < BIG // 2:
                return process
            process.send_signal(signal.SIGCONT)
        process.communicate(timeout=DEADLINE)
        # A transfer that was stopped too late has made the file.
        part.with_name(part.name[1:-len('.part')]).unlink(missing_ok=True)
    raise AssertionError('no transfer could be stopped in its first half')


def go_on(process):
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=DEADLINE)
    return process.returncode, errors.decode()


def test_verify_detects_a_wrong_byte_in_a_get(slow_server, world):
    path = world / 'pub/big'
    # The server hashes 16 MiB in the pause. That of a busy machine may do so later, and hash the wrong byte.
    for pause in (1, 5, 25, 100):
        write(path, content(BIG))
        process = stopped_transfer(world / 'out/.big.part',
                                   lambda: start('get', slow_server.address, 'big', '-o', world / 'out', '--verify'))
        time.sleep(pause)
        times = path.stat()
        damage(path, BIG - 1)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        status, error = go_on(process)
        if status:
            break
        (world / 'out/big').unlink()
    assert status == 1 and 'HASH-MISMATCH' in error
    assert not (world / 'out/big').exists() and not partial_files(world / 'out')
    run('get', slow_server.address, 'big', '-o', world / 'out', '--verify')
    assert (world / 'out/big').read_bytes() == path.read_bytes()


def test_verify_detects_a_wrong_byte_in_a_put(slow_server, world):
    big = write(world / 'big', content(BIG))
    part = world / 'in/.big.part'
    process = stopped_transfer(part, lambda: start('put', slow_server.address, big, '--verify'))
    damage(part)
    status, error = go_on(process)
    assert status == 1 and 'HASH-MISMATCH' in error and not (world / 'in/big').exists()
    assert not partial_files(world / 'in')


def test_a_damaged_beginning_is_not_resumed(slow_server, world):
    """The record of the partial file is right, its bytes are not, as after a client that reported bytes it never sent."""
    data = content(BIG)
    write(world / 'pub/big', data)
    big = write(world / 'big', data)
    cut_transfer(world / 'out/.big.part', BIG, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    damage(world / 'out/.big.part')
    (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out')['files']
    assert one['resumed'] == 0 and (world / 'out/big').read_bytes() == data
    cut_transfer(world / 'in/.big.part', BIG, lambda: start('put', slow_server.address, big))
    damage(world / 'in/.big.part')
    (one,) = run_json('put', slow_server.address, big)['files']
    assert one['resumed'] == 0 and (world / 'in/big').read_bytes() == data


def test_files_of_others_are_not_resumed(slow_server, world):
    """A hard link, a file that others may write, and, for root, a file of another user, under the temporary name."""
    data = content(BIG)
    write(world / 'pub/big', data)
    part = world / 'out/.big.part'
    for spoil in [lambda: os.link(part, world / 'link'), lambda: part.chmod(0o666), lambda: os.chown(part, 65534, -1)]:
        if spoil.__code__.co_names[-1] == 'chown' and os.geteuid():
            continue
        cut_transfer(part, BIG, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
        spoil()
        (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out')['files']
        assert one['resumed'] == 0 and (world / 'out/big').read_bytes() == data
        assert (world / 'out/big').stat().st_nlink == 1 and (world / 'out/big').stat().st_uid == os.geteuid()
        (world / 'out/big').unlink()
    for plant in [lambda: part.symlink_to(world / 'victim'), lambda: os.mkfifo(part)]:
        plant()
        run('get', slow_server.address, 'big', '-o', world / 'out')
        assert (world / 'out/big').read_bytes() == data and not (world / 'victim').exists()
        (world / 'out/big').unlink()
    part.mkdir()
    assert '.big.part' in run('get', slow_server.address, 'big', '-o', world / 'out', expect=1).stderr


def test_copies_have_the_permissions_of_their_source(server, world):
    for mode in (0o600, 0o640, 0o755, 0o4755, 0o400):
        path = write(world / 'pub/file', b'data')
        path.chmod(mode)
        run('get', server.address, 'file', '-o', world / 'out')
        assert stat.S_IMODE((world / 'out/file').stat().st_mode) == mode & 0o777
        run('put', server.address, path, '--as', 'copy')
        assert stat.S_IMODE((world / 'in/copy').stat().st_mode) == mode & 0o777
        for made in (path, world / 'out/file', world / 'in/copy'):
            made.unlink()


def test_a_partial_file_is_readable_by_its_owner_only(slow_server, world):
    write(world / 'pub/big', content(BIG)).chmod(0o644)
    part = world / 'out/.big.part'
    process = stopped_transfer(part, lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    assert go_on(process)[0] == 0 and stat.S_IMODE((world / 'out/big').stat().st_mode) == 0o644


def test_an_interrupted_get_reports_it_and_is_resumed(slow_server, world):
    data = content(BIG)
    write(world / 'pub/big', data)
    part = world / 'out/.big.part'
    for _ in range(30):
        process = start('get', slow_server.address, 'big', '-o', world / 'out')
        while process.poll() is None and recorded(part, BIG) <= 0:
            time.sleep(0.0005)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE)
        if process.returncode:
            break
        (world / 'out/big').unlink()
    assert process.returncode == -signal.SIGINT and b'INTERRUPTED' in errors and b'  kept: ' in errors
    extent = recorded(part, BIG)
    (one,) = run_json('get', slow_server.address, 'big', '-o', world / 'out', '--verify')['files']
    assert one['resumed'] == extent > 0 and (world / 'out/big').read_bytes() == data


def test_a_get_is_resumed_from_a_restarted_server(world):
    data = content(BIG)
    write(world / 'pub/big', data)
    part = world / 'out/.big.part'
    for _ in range(30):
        server = Server(world / 'pub', '--quiet', '--rate', RATE)
        process = start('get', server.address, 'big', '-o', world / 'out')
        while process.poll() is None and recorded(part, BIG) <= 0:
            time.sleep(0.0005)
        server.stop(signal.SIGKILL, expect=-signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE)
        if process.returncode:
            break
        (world / 'out/big').unlink()
    assert process.returncode == 1 and errors.startswith(b'peerlane: ') and b'  kept: ' in errors
    extent = recorded(part, BIG)
    with serving(world / 'pub') as server:
        (one,) = run_json('get', server.address, 'big', '-o', world / 'out', '--verify')['files']
    assert one['resumed'] == extent > 0 and (world / 'out/big').read_bytes() == data


def test_a_cut_put_is_resumed(slow_server, world):
    data = content(BIG)
    big = write(world / 'big', data)
    extent = cut_transfer(world / 'in/.big.part', BIG, lambda: start('put', slow_server.address, big))
    assert not (world / 'in/big').exists()
    (one,) = run_json('put', slow_server.address, big, '--verify')['files']
    assert one['resumed'] == extent and one['bytes'] == BIG - extent and one['verified']
    assert (world / 'in/big').read_bytes() == data and not partial_files(world / 'in')


def test_two_transfers_cannot_write_the_same_file(slow_server, world):
    write(world / 'pub/big', content(BIG))
    first = stopped_transfer(world / 'out/.big.part', lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    error = run('get', slow_server.address, 'big', '-o', world / 'out', expect=1).stderr
    assert go_on(first)[0] == 0 and 'TRANSFER-BUSY' in error


def test_a_full_disk_is_an_error_before_the_transfer(server, world):
    space = os.statvfs(world)
    os.truncate(write(world / 'pub/huge', b''), space.f_bavail * space.f_frsize + (16 << 30))
    # The holes of the file take no space, but those of a range do.
    error = run('get', server.address, 'huge', '--offset', 1, '-o', world / 'out', expect=1).stderr
    assert 'NO-SPACE' in error and 'hint: ' in error
    assert not partial_files(world / 'out') and not partial_files(world / 'in')


def test_a_file_size_limit_is_an_error(server, world):
    done = subprocess.run([PEERLANE, 'get', server.address, 'sub/other', '-o', world / 'out'], capture_output=True,
                          text=True, timeout=DEADLINE, env=environment(),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
    assert done.returncode == 1 and 'File too large' in done.stderr
    assert not partial_files(world / 'out')


def test_a_file_that_changes_during_a_get_is_not_kept(slow_server, world):
    big = write(world / 'pub/big', content(BIG))
    process = stopped_transfer(world / 'out/.big.part', lambda: start('get', slow_server.address, 'big', '-o', world / 'out'))
    os.utime(big, (1, 1))
    status, errors = go_on(process)
    assert status == 1 and 'FILE-CHANGED' in errors
    assert not (world / 'out/big').exists() and not partial_files(world / 'out')


def test_a_put_fails_if_the_file_is_truncated(slow_server, world):
    big = write(world / 'big', content(BIG))
    process = stopped_transfer(world / 'in/.big.part', lambda: start('put', slow_server.address, big))
    os.truncate(big, 5)
    status, errors = go_on(process)
    assert status == 1 and 'FILE-CHANGED' in errors
    assert not (world / 'in/big').exists() and not partial_files(world / 'in')
    run('list', slow_server.address)


def test_all_options_transfer_the_same_bytes(world):
    data = content(5000011)
    write(world / 'pub/data', data)
    for options in [['--lanes', '1'], ['--lanes', '4'], ['--fabric', 'tcp', '--timeout', '20']]:
        with serving(world / 'pub', *options) as server:
            run('get', server.address, 'data', '-o', world / 'out', '--verify', *options)
            assert (world / 'out/data').read_bytes() == data
            (world / 'out/data').unlink()


def on_terminal(*arguments):
    """Runs the command with a terminal as its standard error; returns its outputs on both."""
    terminal, command_end = pty.openpty()
    process = subprocess.Popen([PEERLANE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=command_end,
                               env=environment(LC_ALL='C.UTF-8'))
    os.close(command_end)
    shown = read_terminal(terminal)
    output = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == 0
    return shown.decode(), output.decode()


def test_progress_is_shown_only_on_a_terminal(slow_server, world):
    write(world / 'pub/big', content(BIG))
    write(world / 'pub/small', b'small')
    shown, output = on_terminal('get', slow_server.address, 'big', '-o', world / 'out')
    assert re.search(r'\rbig [\u2501\u2500\u257a]+ +\d+%  [\d.]+ \w?B of 16\.8 MB', shown)
    assert shown.endswith('\r\033[K') and '\n' not in shown
    assert output.startswith('big: 16.8 MB in ')
    assert on_terminal('get', slow_server.address, 'small', '-o', world / 'out', '--quiet') == ('', '')
