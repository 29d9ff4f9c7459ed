# SPDX-License-Identifier: BSD-2-Clause
"""Programs in docs/examples, which README.md quotes."""
import contextlib
import os
import random
import socket
import struct
import subprocess
import time

from cli_support import DEADLINE, free_port

COMMAND, SERVE, READ, PROXY = (os.environ[name] for name in ('PEERLANE', 'EXAMPLE_SERVE', 'EXAMPLE_READ', 'EXAMPLE_PROXY'))


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=DEADLINE)


def serve(text):
    process = subprocess.Popen([SERVE, '127.0.0.1:0', text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, *process.stdout.readline().split()


def stop(process):
    process.kill()
    process.communicate(timeout=DEADLINE)


def test_the_text_is_read_from_the_server_process():
    for text in ['x', 'It was never sent: it was read.', 'long ' * 20000]:
        server, address, token = serve(text)
        try:
            done = run(READ, address, token)
            assert (done.returncode, done.stdout, done.stderr) == (0, text + '\n', '')
            assert server.communicate(timeout=DEADLINE) == ('', '') and server.returncode == 0
        finally:
            stop(server)


def test_a_damaged_token_is_refused():
    server, address, token = serve('a secret')
    try:
        damaged = run(READ, address, token[:-2] + ('00' if token[-2:] != '00' else '01'))
        assert damaged.returncode == 1 and damaged.stdout == ''
        assert 'TOKEN-DAMAGED' in damaged.stderr and 'hint: ' in damaged.stderr
    finally:
        stop(server)


def test_errors_are_reported():
    error = run(SERVE, 'nonsense:port', 'text')
    assert error.returncode == 1 and 'ADDRESS-' in error.stderr
    assert run(SERVE).returncode == run(READ).returncode == 2


def test_the_proxy_publishes_sums_of_frames_in_gpu_memory(tmp_path):
    """Frames may be lost, as nobody holds them back; each sum that comes is that of its frame."""
    frames = [random.randbytes(4000) for _ in range(40)]
    (tmp_path / 'frames').write_bytes(b''.join(frames))
    processes = []

    def start(*command):
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    def await_listener(port):
        for _ in range(DEADLINE * 10):
            with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port)):
                return
            time.sleep(0.1)
        raise TimeoutError('the proxy does not listen')

    port = free_port()
    try:
        camera = start(COMMAND, 'publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--from', tmp_path / 'frames',
                       '--frame-bytes', '4000', '--rate', '100', '--subscribers', '2', '--slots', '64')
        address = camera.stdout.readline().split()[-1]
        proxy = start(PROXY, address, f'127.0.0.1:{port}')
        await_listener(port)
        reader = start(COMMAND, 'subscribe', f'127.0.0.1:{port}', 'sums', '--queue', '64', '--to',
                       tmp_path / 'sums')
        # The camera starts with its second subscriber.
        second = start(COMMAND, 'subscribe', address, 'cam0', '--queue', '64', '--count', '1')
        for process in camera, second, proxy, reader:
            out, error = process.communicate(timeout=DEADLINE)
            assert process.returncode == 0, out + error
    finally:
        for process in processes:
            stop(process)
    sums = list(struct.iter_unpack('<QII', (tmp_path / 'sums').read_bytes()))
    came = [(sequence, total) for sequence, result, total in sums if result == 1]
    assert came and [sequence for sequence, _ in came] == sorted({sequence for sequence, _ in came})
    for sequence, total in came:
        assert total == sum(struct.unpack('<1000I', frames[sequence])) % 2**32
    # Waits that were under way when the stream ended have no frame.
    assert {result for _, result, _ in sums[-3:]} <= {1, 3}
