# SPDX-License-Identifier: BSD-2-Clause
"""Programs in docs/examples, which README.md quotes."""
import os
import subprocess

SERVE, READ = os.environ['EXAMPLE_SERVE'], os.environ['EXAMPLE_READ']
DEADLINE = 60


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
