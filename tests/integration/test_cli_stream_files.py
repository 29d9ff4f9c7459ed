# SPDX-License-Identifier: BSD-2-Clause
"""Files of publish and subscribe: arrays of NumPy, pictures, full disks, closed pipes, and signals."""
import ast
import fcntl
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib

import pytest
from cli_support import DEADLINE, GPU, PEERLANE, content, environment, run, run_json, start, wait_until, write
from stream_support import pattern, publishing


def npy(shape, data, descr='<u2', order='False', version=1, text=None):
    """Bytes of a .npy file, with the padding that NumPy writes."""
    text = text or f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}"
    fixed = 10 if version == 1 else 12
    text += ' ' * (-(fixed + len(text) + 1) % 64) + '\n'
    return b'\x93NUMPY' + bytes([version, 0]) + struct.pack('<H' if version == 1 else '<I', len(text)) + text.encode() + data


def read_npy(path):
    """Parses a .npy file as NumPy does."""
    data = path.read_bytes()
    assert data[:8] == b'\x93NUMPY\1\0'
    length, = struct.unpack('<H', data[8:10])
    header = data[10:10 + length]
    assert header.endswith(b'\n') and (10 + length) % 64 == 0
    header = ast.literal_eval(header.decode().strip())
    assert sorted(header) == ['descr', 'fortran_order', 'shape'] and header['fortran_order'] is False
    return header['descr'], header['shape'], data[10 + length:]


def read_png(path):
    """Decodes a PNG without filters: width, height, depth, kind and the bytes of the rows."""
    data = path.read_bytes()
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    chunks, at = {}, 8
    while at < len(data):
        length, = struct.unpack('>I', data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        assert struct.unpack('>I', data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(body)
        chunks[body[:4]] = body[4:]
        at += 12 + length
    assert list(chunks) == [b'IHDR', b'IDAT', b'IEND']
    width, height, depth, kind, *rest = struct.unpack('>IIBBBBB', chunks[b'IHDR'])
    assert rest == [0, 0, 0]
    rows = zlib.decompress(chunks[b'IDAT'])
    row = width * depth // 8 * {0: 1, 2: 3}[kind]
    assert len(rows) == (row + 1) * height and not any(rows[::row + 1])
    return width, height, depth, kind, b''.join(rows[i * (row + 1) + 1:(i + 1) * (row + 1)] for i in range(height))


def ended(process, expect=0):
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == expect, (process.returncode, output, errors)
    return output, errors.decode()


def publish_once(path, *arguments, expect=0):
    return run('publish', '--name', 'x', '--listen', '127.0.0.1:0', '--from', path, *arguments, '--json', expect=expect)


# -- .npy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('version', [1, 2, 3])
def test_array_is_published_and_saved_again(tmp_path, version):
    data = content(6 * 4 * 5 * 2, version)
    path = write(tmp_path / 'in.npy', npy((6, 4, 5), data, version=version))
    with publishing('--from', path, '--subscribers', '1', '--slots', '8') as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--to', tmp_path / 'out.npy', '--queue', '8')
        publisher.finish()
    assert (got['frames'], got['written'], got['stream']['dtype'], got['stream']['shape']) == (6, 6, 'u16', [4, 5])
    assert read_npy(tmp_path / 'out.npy') == ('<u2', (6, 4, 5), data)


def test_one_frame_or_many(tmp_path):
    path = write(tmp_path / 'in.npy', npy((4, 5), content(40)))

    def published(*arguments):
        first, last = map(json.loads, publish_once(path, *arguments).stdout.splitlines())
        return first['stream']['shape'], last['frames']
    assert published() == ([5], 4)
    assert published('--dtype', 'u16', '--shape', '4x5') == ([4, 5], 1)
    assert published('--dtype', 'u16', '--shape', '5') == ([5], 4)
    assert published('--count', '2') == ([5], 2)
    done = publish_once(path, '--dtype', 'u16', '--shape', '20', expect=1)
    assert '[NPY-LAYOUT]' in done.stderr and 'frames of u16 5,' in done.stderr
    write(tmp_path / 'scalars.npy', npy((3,), content(24), '<c8'))
    first, last = map(json.loads, publish_once(tmp_path / 'scalars.npy').stdout.splitlines())
    assert (first['stream']['dtype'], first['stream']['shape'], last['frames']) == ('c64', [], 3)


MALFORMED = {
    'magic': (b'raw bytes, no array', 'NPY-HEADER'),
    'empty file': (b'', 'NPY-HEADER'),
    'version': (npy((1,), b'', version=1).replace(b'NUMPY\1', b'NUMPY\7'), 'NPY-HEADER'),
    'cut header': (npy((3,), b'')[:40], 'NPY-HEADER'),
    'long header': (b'\x93NUMPY\2\0' + struct.pack('<I', 1 << 30), 'NPY-HEADER'),
    'no dict': (npy((1,), b'', text='[1, 2]'), 'NPY-HEADER'),
    'code': (npy((1,), b'', text="{'descr': '<u2', 'fortran_order': False, 'shape': (__import__('os'),)}"), 'NPY-HEADER'),
    'member': (npy((1,), b'', text="{'descr': '<u2', 'shape': (1,)}"), 'NPY-HEADER'),
    'Fortran': (npy((2, 2), bytes(8), order='True'), 'NPY-HEADER'),
    'big-endian': (npy((2,), bytes(4), '>u2'), 'NPY-HEADER'),
    'objects': (npy((2,), bytes(16), '|O'), 'NPY-HEADER'),
    'structure': (npy((2,), bytes(8), [('a', '<u2'), ('b', '<u2')]), 'NPY-HEADER'),
    'nothing': (npy((0, 4), b''), 'NPY-HEADER'),
    'overflow': (npy((1 << 40, 1 << 40), b''), 'NPY-HEADER'),
    'short': (npy((4, 4), bytes(31)), 'NPY-SHORT'),
}


@pytest.mark.parametrize('name', MALFORMED)
def test_malformed_arrays_are_refused(tmp_path, name):
    data, error = MALFORMED[name]
    done = publish_once(write(tmp_path / 'in.npy', data), expect=1)
    assert json.loads(done.stdout)['error']['id'] == error and '  hint: ' in done.stderr
    assert ('ascontiguousarray' in done.stderr) == (name in ('Fortran', 'big-endian'))


def test_a_directory_is_refused_before_anything_is_published(tmp_path):
    done = run('publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--from', tmp_path, '--frame-bytes', '8', expect=1)
    assert 'Is a directory' in done.stderr and 'listening' not in done.stdout


def test_array_cannot_be_a_pipe(tmp_path):
    os.mkfifo(tmp_path / 'pipe.npy')
    assert '[NPY-PIPE]' in publish_once(tmp_path / 'pipe.npy', expect=1).stderr
    with publishing('--from', '-', '--frame-bytes', '8') as publisher:
        reader = os.open(tmp_path / 'pipe.npy', os.O_RDONLY | os.O_NONBLOCK)
        done = run('subscribe', publisher.address, 'cam0', '--to', tmp_path / 'pipe.npy', expect=1)
        os.close(reader)
        assert '[NPY-PIPE]' in done.stderr
        os.mkfifo(tmp_path / 'pipe')
        done = run('subscribe', publisher.address, 'cam0', '--to', tmp_path / 'pipe', expect=1)
        assert '[NO-READER]' in done.stderr


def test_types_that_arrays_do_not_have(tmp_path):
    with publishing('--from', '-', '--dtype', 'u12', '--shape', '16', '--slots', '4') as publisher:
        publisher.feed(bytes(24))
        publisher.wait_for('published', 1)
        take = ['subscribe', publisher.address, 'cam0', '--start', 'latest', '--count', '1']
        assert '[NPY-TYPE]' in run(*take, '--to', write(tmp_path / 'a.npy', b'precious'), expect=1).stderr
        assert (tmp_path / 'a.npy').read_bytes() == b'precious'
        assert '[NPY-TYPE]' in run(*take, '--snapshot', tmp_path / 'b.npy', expect=1).stderr
        assert '[PNG-LAYOUT]' in run(*take, '--snapshot', tmp_path / 'b.png', expect=1).stderr
        run(*take, '--to', tmp_path / 'raw')
    assert (tmp_path / 'raw').read_bytes() == bytes(24) and not (tmp_path / 'b.npy').exists()


def test_array_is_kept_if_the_frames_have_no_layout(tmp_path):
    kept = write(tmp_path / 'a.npy', b'precious')
    with publishing('--from', '-', '--frame-bytes', '8', '--slots', '4') as publisher:
        publisher.feed(bytes(8))
        publisher.wait_for('published', 1)
        done = run('subscribe', publisher.address, 'cam0', '--start', 'latest', '--count', '1', '--to', kept, expect=1)
        assert '[NPY-TYPE]' in done.stderr and 'the frames have no type and shape' in done.stderr
        assert kept.read_bytes() == b'precious'
        # Without a frame, there is nothing that the file could not have.
        process = start('subscribe', publisher.address, 'cam0', '--to', kept)
        publisher.wait_for('subscribers', 1)
        publisher.finish()
        ended(process)
    assert kept.read_bytes() == b''


@pytest.fixture
def default_hangup():
    """nohup(1) may run the tests: the processes that they start inherit that SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures('default_hangup')
def test_header_is_complete_after_a_signal(tmp_path, how):
    data = content(4 * 12)
    with publishing('--from', '-', '--dtype', 'f32', '--shape', 'scalar', '--slots', '64') as publisher:
        # An array without frames is an array, too.
        process = start('subscribe', publisher.address, 'cam0', '--to', tmp_path / 'none.npy')
        publisher.wait_for('subscribers', 1)
        process.send_signal(how)
        ended(process)
        process = start('subscribe', publisher.address, 'cam0', '--to', tmp_path / 'out.npy', '--queue', '64')
        publisher.wait_for('subscribers', 1)
        publisher.feed(data)
        while not (tmp_path / 'out.npy').exists() or (tmp_path / 'out.npy').stat().st_size < 384 + len(data):
            assert process.poll() is None
        process.send_signal(how)
        output, _ = ended(process)
    assert output.startswith(b'12 of 12 frames')
    assert read_npy(tmp_path / 'none.npy') == ('<f4', (0,), b'')
    assert read_npy(tmp_path / 'out.npy') == ('<f4', (12,), data)


def test_hangup_that_is_ignored_ends_nothing(tmp_path):
    """nohup(1) ignores SIGHUP."""
    with publishing('--from', '-', '--dtype', 'u8', '--shape', '4', '--slots', '64') as publisher:
        process = subprocess.Popen(['nohup', PEERLANE, 'subscribe', publisher.address, 'cam0', '--to', tmp_path / 'out.npy', '--count', '1'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment())
        publisher.wait_for('subscribers', 1)
        process.send_signal(signal.SIGHUP)
        publisher.feed(b'data')
        ended(process)
    assert read_npy(tmp_path / 'out.npy') == ('|u1', (1, 4), b'data')


def test_killed_subscriber_leaves_an_array(tmp_path):
    data, path = content(4 * 12), tmp_path / 'out.npy'
    with publishing('--from', '-', '--dtype', 'f32', '--shape', 'scalar', '--slots', '64') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--to', path, '--queue', '64')
        publisher.wait_for('subscribers', 1)
        publisher.feed(data)
        wait_until(lambda: path.exists() and path.stat().st_size == 384 + len(data) and read_npy(path)[1] == (12,))
        process.kill()
        process.communicate(timeout=DEADLINE)
    assert read_npy(path) == ('<f4', (12,), data)


# -- GPU memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('near,far', [('cuda:1', 'cuda'), ('host', 'cuda:1'), ('cuda', 'host')])
def test_frames_in_gpu_memory(tmp_path, near, far):
    """From an array through slots and frames in memory of GPUs, into an array and a picture."""
    data = content(6 * 4 * 5 * 2)
    path = write(tmp_path / 'in.npy', npy((6, 4, 5), data))
    with publishing('--from', path, '--subscribers', '1', '--slots', '8', '--memory', far, **GPU) as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--memory', near, '--queue', '8', '--to', tmp_path / 'out.npy',
                       '--snapshot', tmp_path / 'last.npy', **GPU)
        publisher.finish()
    assert (got['frames'], got['memory'], got['stream']['memory']) == (6, near, far.split(':')[0])
    assert read_npy(tmp_path / 'out.npy') == ('<u2', (6, 4, 5), data)
    assert read_npy(tmp_path / 'last.npy') == ('<u2', (4, 5), data[-40:])


def test_pattern_is_verified_in_gpu_memory():
    with publishing('--rate', '0', '--count', '20', '--shape', '300x7', '--dtype', 'u8', '--slots', '32', '--subscribers', '1',
                    '--memory', 'cuda', **GPU) as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--memory', 'cuda', '--queue', '32', '--verify', **GPU)
        publisher.finish()
    assert got['verified'] and got['frames'] == 20


def test_guide_from_a_camera_into_a_gpu(tmp_path):
    """The camera and the commands of docs/streams.md; its program for PyTorch compiles."""
    text = (pathlib.Path(__file__).parents[2] / 'docs/streams.md').read_text()
    camera, program = re.findall(r'^```\n(import sys.*?)^```$', text, re.M | re.S)
    compile(program, 'docs/streams.md', 'exec')
    source = subprocess.Popen([sys.executable, '-c', camera], stdout=subprocess.PIPE)
    try:
        publisher = subprocess.Popen([PEERLANE, 'publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--from', '-', '--dtype', 'u8',
                                      '--shape', '480x640', '--slots', '64', '--allow-block'], stdin=source.stdout,
                                     stdout=subprocess.PIPE, env=environment())
        source.stdout.close()
        address = publisher.stdout.readline().split()[-1].decode()
        done = run('subscribe', address, 'cam0', '--memory', 'cuda:0', '--count', '10', '--snapshot', tmp_path / 'latest.png',
                   expect=None, **GPU)
    finally:
        source.kill()
        source.wait()
    publisher.communicate(timeout=DEADLINE)
    # On a slow machine the queue drops frames of the camera, and the command tells that.
    frames, lost = re.match(r'10 of (\d+) frames, 3.07 MB.*lost (\d+)', done.stdout).groups()
    assert int(frames) == 10 + int(lost) and done.returncode == (3 if int(lost) else 0), done
    assert 'route: direct, local: a GPU copies' in done.stdout
    assert (tmp_path / 'latest.png').read_bytes()[16:24] == struct.pack('>II', 640, 480)


def test_signal_after_the_end_of_the_input_keeps_the_status(tmp_path):
    """The command has its results, and waits for a reader of its output."""
    output, inlet = os.pipe()
    process = subprocess.Popen([PEERLANE, 'publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--from', '-', '--frame-bytes', '100'],
                               stdin=subprocess.PIPE, stdout=inlet, stderr=subprocess.PIPE, env=environment())
    with open(output, 'rb', buffering=0) as reader:
        text = b''
        while b'publishing' not in text or not text.endswith(b'\n'):
            text += reader.read(4096)
        host, port = text.split()[2].decode().split(':')
        os.write(inlet, bytes(fcntl.fcntl(inlet, fcntl.F_GETPIPE_SZ)))
        process.stdin.write(bytes(250))
        process.stdin.close()
        end = time.monotonic() + DEADLINE
        while True:  # until the publisher has closed its port
            assert time.monotonic() < end
            try:
                socket.create_connection((host, int(port)), timeout=DEADLINE).close()
            except ConnectionRefusedError:
                break
            except ConnectionResetError:  # it closed its port during this connection
                pass
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        os.close(inlet)
        text = reader.read(1 << 20)
        while more := reader.read(1 << 20):
            text += more
    errors = process.stderr.read()
    assert process.wait(DEADLINE) == 1 and b'FRAME-PARTIAL' in errors
    assert text.strip(b'\0').startswith(b'2 frames')


@pytest.mark.parametrize('limit,slow', [([], False), (['--staging-memory', '64K'], True)], ids=['default', 'small'])
def test_route_tells_that_memory_is_not_locked(limit, slow):
    # The ring is locked after as many bytes as it has were copied.
    with publishing('--rate', '0', '--count', '60', '--frame-bytes', 65536, '--slots', '16', '--subscribers', '1', '--allow-block',
                    '--patience', 'never', **GPU) as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--fabric', 'local', '--memory', 'cuda', '--overflow', 'block', '--verify',
                        *limit, **GPU)
        output, errors = process.communicate(timeout=DEADLINE)
        publisher.finish()
    assert process.returncode == 0, errors
    route = output.decode().splitlines()[-1]
    assert route.startswith('route: direct, local: a GPU copies between the host memory')
    assert ('locking the host memory would exceed the limit, see staging_bytes of pl_open' in route) == slow


def test_route_is_in_the_results():
    with publishing('--rate', '0', '--count', '5', '--subscribers', '1', '--allow-block', '--patience', 'never') as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--overflow', 'block', '--fabric', 'tcp')
        publisher.finish()
    assert got['route'] == 'direct' and got['reason'].startswith('tcp')


def test_unknown_memory_is_refused():
    with publishing('--rate', '0', **GPU) as publisher:
        expected = '--memory takes host, cuda or cuda:N'
        for kind, error, status in [('cuda:99', 'GPU-NONE', 1), ('tape', expected, 2), ('cuda:x', expected, 2)]:
            assert error in run('subscribe', publisher.address, 'cam0', '--memory', kind, expect=status, **GPU).stderr
            assert error in run('publish', '--name', 'x', '--memory', kind, '--listen', '127.0.0.1:0', expect=status,
                                **GPU).stderr


# -- snapshots -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('dtype,shape,kind', [('u8', '7x300', 0), ('u16', '5x3', 0), ('u8', '300x400x3', 2), ('u8x3', '2x3', 2)])
def test_snapshot_is_a_picture_of_the_last_frame(tmp_path, dtype, shape, kind):
    height, width, *_ = map(int, shape.split('x'))
    with publishing('--rate', '0', '--count', '3', '--dtype', dtype, '--shape', shape, '--subscribers', '1') as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--snapshot', tmp_path / 'last.png')
        publisher.finish()
    depth = 16 if dtype == 'u16' else 8
    data = pattern(2, height * width * depth // 8 * (3 if kind else 1))
    if depth == 16:
        data = b''.join(data[i + 1:i + 2] + data[i:i + 1] for i in range(0, len(data), 2))
    assert read_png(tmp_path / 'last.png') == (width, height, depth, kind, data)
    assert 1 <= got['snapshots'] <= 3 and os.listdir(tmp_path) == ['last.png']


def test_snapshot_is_an_array_and_appears_while_the_stream_goes_on(tmp_path):
    path = tmp_path / 'last.npy'
    with publishing('--from', '-', '--dtype', 'i32', '--shape', '2x3', '--slots', '8') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--snapshot', path)
        publisher.wait_for('subscribers', 1)
        for i in range(3):
            # The second and the third frame come within the least time between two snapshots.
            publisher.feed(bytes([i] * 24))
        while not path.exists() or read_npy(path) != ('<i4', (2, 3), bytes([2] * 24)):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        ended(process)


@pytest.mark.parametrize('memory', ['host', 'cuda'])
def test_slow_file_of_a_snapshot_delays_no_frame(tmp_path, memory):
    """The file does not come to its place until all frames but the last one have been taken."""
    hold, frames, last = tmp_path / 'hold', tmp_path / 'frames', tmp_path / 'last.npy'
    hold.write_text('')
    held = {**GPU, 'LD_PRELOAD': os.environ['SYNC_RECORDER'], 'RENAME_HOLD': str(hold)}
    with publishing('--from', '-', '--dtype', 'u8', '--shape', '100', '--slots', '8', '--allow-block') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--overflow', 'block', '--memory', memory, '--count', '41', '--to', frames,
                        '--snapshot', last, **held)
        publisher.wait_for('subscribers', 1)
        try:
            for i in range(40):
                publisher.feed(bytes([i] * 100))
            wait_until(lambda: process.poll() is not None or frames.exists() and frames.stat().st_size == 40 * 100)
            assert process.poll() is None and (tmp_path / 'last.npy.part').exists() and not last.exists()
            hold.unlink()
            publisher.feed(bytes([40] * 100))
            output, _ = ended(process)
        finally:
            process.kill()
    assert output.startswith(b'41 of 41 frames')
    assert read_npy(last) == ('|u1', (100,), bytes([40] * 100))


def test_snapshot_that_cannot_be_replaced(tmp_path):
    with publishing('--from', '-', '--dtype', 'u8', '--shape', '2x3', '--slots', '8') as publisher:
        publisher.feed(bytes(6))
        publisher.wait_for('published', 1)
        done = run('subscribe', publisher.address, 'cam0', '--start', 'latest', '--snapshot', tmp_path / 'none/last.png', expect=1)
    # Before any frame is taken.
    assert f'{tmp_path}/none/: access: No such file or directory' in done.stderr and not done.stdout


KINDS = {'pipe': os.mkfifo, 'folder': os.mkdir}


@pytest.mark.parametrize('make', [*KINDS.values(), lambda path: path.symlink_to('/dev/null')], ids=[*KINDS, 'link'])
def test_snapshot_needs_a_regular_file_beside(tmp_path, make):
    """What has the name of the new file stays as it is, and the command ends: it does not wait for the reader of a pipe."""
    part = tmp_path / 'last.png.part'
    make(part)
    before = os.lstat(part)
    with publishing('--rate', '100', '--dtype', 'u8', '--shape', '2x3', '--slots', '8') as publisher:
        errors = run('subscribe', publisher.address, 'cam0', '--snapshot', tmp_path / 'last.png', expect=1).stderr
    assert str(part) in errors
    if make in KINDS.values():
        assert 'FILE-KIND' in errors and 'hint: remove it' in errors
    assert os.lstat(part).st_ino == before.st_ino and os.listdir(tmp_path) == ['last.png.part']


def test_snapshot_writes_nothing_into_a_pipe_that_is_read(tmp_path):
    part = tmp_path / 'last.png.part'
    os.mkfifo(part)
    reader = os.open(part, os.O_RDONLY | os.O_NONBLOCK)
    with publishing('--rate', '100', '--dtype', 'u8', '--shape', '2x3', '--slots', '8') as publisher:
        assert 'FILE-KIND' in run('subscribe', publisher.address, 'cam0', '--snapshot', tmp_path / 'last.png', expect=1).stderr
    assert os.read(reader, 1) == b''
    os.close(reader)


@pytest.mark.parametrize('make', KINDS.values(), ids=KINDS)
def test_snapshot_replaces_regular_files_only(tmp_path, make):
    path = tmp_path / 'last.png'
    make(path)
    with publishing('--rate', '100', '--dtype', 'u8', '--shape', '2x3', '--slots', '8') as publisher:
        done = run('subscribe', publisher.address, 'cam0', '--snapshot', path, expect=1)
    assert 'FILE-KIND' in done.stderr and str(path) in done.stderr and not done.stdout
    assert os.listdir(tmp_path) == ['last.png'] and not path.is_file()


def test_snapshot_replaces_a_link_and_an_older_part(tmp_path):
    path, target = tmp_path / 'last.png', tmp_path / 'target'
    target.write_text('target')
    path.symlink_to('target')
    (tmp_path / 'last.png.part').write_bytes(bytes(9999))
    with publishing('--rate', '0', '--count', '1', '--dtype', 'u8', '--shape', '2x3', '--subscribers', '1') as publisher:
        run('subscribe', publisher.address, 'cam0', '--snapshot', path)
        publisher.finish()
    assert read_png(path)[4] == pattern(0, 6) and not path.is_symlink()
    assert target.read_text() == 'target' and sorted(os.listdir(tmp_path)) == ['last.png', 'target']


# -- outputs that fail -----------------------------------------------------------------------------------------------


def subscribe_by_shell(address, shell, *arguments):
    return subprocess.run(['sh', '-c', 'exec "$0" "$@" ' + shell, PEERLANE, 'subscribe', address, 'cam0', '--start', 'latest',
                           *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE, env=environment())


def test_full_disk_and_closed_pipe(tmp_path):
    with publishing('--rate', '100', '--frame-bytes', '256K', '--slots', '4') as publisher:
        done = subscribe_by_shell(publisher.address, '', '--to', '/dev/full')
        assert done.returncode == 1 and '/dev/full: write: No space left on device' in done.stderr
        assert 'hint: free space there' in done.stderr and done.stdout.startswith('1 of ')
        done = subscribe_by_shell(publisher.address, '>/dev/full', '--to', '-')
        assert done.returncode == 4 and 'No space left' in done.stderr
        done = subscribe_by_shell(publisher.address, '>&-', '--to', '-')
        assert done.returncode == 4 and 'Bad file descriptor' in done.stderr
        # A reader that has closed its pipe gets no message.
        read, wrote = os.pipe()
        process = subprocess.Popen([PEERLANE, 'subscribe', publisher.address, 'cam0', '--to', '-'], stdout=wrote,
                                   stderr=subprocess.PIPE, env=environment())
        os.close(wrote)
        os.read(read, 1)
        os.close(read)
        _, errors = ended(process, expect=4)
        assert 'peerlane:' not in errors and re.search(' frames?, ', errors)


@pytest.mark.parametrize('name', ['raw', 'out.npy'])
def test_full_disk_leaves_whole_frames(tmp_path, name):
    """A limit of the size of files stands in for the full disk: two frames fit."""
    size = 1_000_000
    with publishing('--from', '-', '--dtype', 'u8', '--shape', size, '--slots', '8') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--queue', '4', '--to', tmp_path / name)
        publisher.wait_for('subscribers', 1)
        publisher.feed(pattern(0, size))
        # The limit would also hold for the memory of the subscriber's slots, which it has once it writes.
        wait_until(lambda: (tmp_path / name).exists() and (tmp_path / name).stat().st_size >= size)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size * 5 // 2, size * 5 // 2))
        for i in range(1, 4):
            publisher.feed(pattern(i, size))
        output, errors = ended(process, expect=1)
    assert 'File too large' in errors and 'ulimit -f' in errors and output.startswith(b'3 of 3 frames')
    data = pattern(0, size) + pattern(1, size)
    if name == 'raw':
        assert (tmp_path / name).read_bytes() == data
    else:
        assert read_npy(tmp_path / name) == ('|u1', (2, size), data)


@pytest.mark.parametrize('mode', ['append', 'behind', 'inside'])
def test_full_disk_keeps_the_earlier_bytes_of_standard_output(tmp_path, mode):
    """Standard output is a file with 300,000 bytes; the limit of its size ends the command within the third frame."""
    size, before = 262_144, content(300_000)
    path, offset = write(tmp_path / 'all.raw', before), len(before)
    if mode == 'inside':
        before, offset = write(path, content(900_000)).read_bytes(), 100_000
    limit = offset + size * 5 // 2
    with publishing('--from', '-', '--dtype', 'u8', '--shape', size, '--slots', '8') as publisher:
        with open(path, 'ab' if mode == 'append' else 'r+b', buffering=0) as output:
            output.seek(offset)
            process = subprocess.Popen([PEERLANE, 'subscribe', publisher.address, 'cam0', '--queue', '4', '--to', '-'], stdout=output,
                                       stderr=subprocess.PIPE, env=environment())
        publisher.wait_for('subscribers', 1)
        publisher.feed(pattern(0, size))
        # The limit would also hold for the memory of the subscriber's slots, which it has once it writes.
        wait_until(lambda: path.read_bytes()[offset:offset + size] == pattern(0, size))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        for i in range(1, 4):
            publisher.feed(pattern(i, size))
        _, errors = ended(process, expect=4)
    assert 'File too large' in errors
    frames = b''.join(pattern(i, size) for i in range(3))
    # Bytes that were behind the frames stay, and with them the part of the third frame.
    kept = frames[:limit - offset] + before[limit:] if mode == 'inside' else frames[:2 * size]
    assert path.read_bytes() == before[:offset] + kept


@pytest.mark.parametrize('to', ['-', '/dev/fd/1'])
def test_signal_while_a_pipe_is_full(to):
    with publishing('--from', '-', '--frame-bytes', '1M') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--to', to, '--quiet')
        publisher.wait_for('subscribers', 1)
        publisher.feed(bytes(1 << 20))
        # The frame does not fit the pipe, of which nobody reads more than its first byte.
        assert os.read(process.stdout.fileno(), 1) == b'\0'
        process.send_signal(signal.SIGINT)
        output, errors = ended(process, expect=4 if to == '-' else 1)
    # A reader finds no frame behind a part of one.
    frame = output if to == '-' else output[:output.index(b'1 of 1 frame, ')]
    cut = int(re.search(r'after (\d+) of 1048576 bytes of frame 0 \[FRAME-CUT\]', errors)[1])
    assert 0 < cut == len(frame) + 1 < 1 << 20
