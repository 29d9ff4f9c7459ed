# SPDX-License-Identifier: BSD-2-Clause
"""Helpers for tests of the command: running it, running a server, cutting transfers."""
import contextlib
import fcntl
import json
import os
import pty
import random
import select
import signal
import socket
import struct
import subprocess
import termios
import time

PEERLANE = os.environ['PEERLANE']
# Variables of commands with the two GPUs of tests/libcuda.
GPU = {'LD_LIBRARY_PATH': os.path.join(os.path.dirname(PEERLANE), 'tests')}
# Seconds after which an action counts as hanging, also on a machine ten times slower than usual.
DEADLINE = 300


def environment(**changes):
    variables = {name: value for name, value in os.environ.items() if name != 'PEERLANE_KEY_FILE'}
    variables.update(changes)
    return variables


def run(*arguments, expect=0, cwd=None, **changes):
    """Runs the command to its end; returns the completed process with text output.  `expect` None: any exit status."""
    done = subprocess.run([PEERLANE, *map(str, arguments)], capture_output=True, text=True, errors='surrogateescape',
                          timeout=DEADLINE, cwd=cwd, env=environment(**changes))
    assert expect in (None, done.returncode), (arguments, done.returncode, done.stdout, done.stderr)
    return done


def run_json(*arguments, **options):
    return json.loads(run(*arguments, '--json', **options).stdout)


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def read_terminal(terminal):
    """Returns what processes write to the other end of a terminal until all have closed it; closes the terminal."""
    shown = b''
    while select.select([terminal], [], [], DEADLINE)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    os.close(terminal)
    return shown


def shown_in(columns, *arguments, expect=0, errors=False):
    """Lines that a command shows on a terminal of this width, with `errors` also those of standard error."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('4H', 25, columns, 0, 0))
    process = subprocess.Popen([PEERLANE, *map(str, arguments)], stdout=terminal, env=environment(),
                               stderr=terminal if errors else subprocess.DEVNULL)
    os.close(terminal)
    shown = read_terminal(main).decode().splitlines()
    assert process.wait(timeout=DEADLINE) == expect
    return shown


def content(size, seed=1):
    source = random.Random(seed)
    return b''.join(source.randbytes(min(1 << 20, size - at)) for at in range(0, size, 1 << 20))


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def make_key(folder, name='key', data=b'0123456789abcdef0123456789abcdef\n'):
    path = folder / name
    path.write_bytes(data)
    path.chmod(0o600)
    return path


class Server:
    """`peerlane serve` on a free port of the loopback."""

    def __init__(self, *arguments, address='127.0.0.1:0', preexec_fn=None, **changes):
        self.process = subprocess.Popen([PEERLANE, 'serve', address, *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(**changes), preexec_fn=preexec_fn)
        self.first = self.line()
        if self.first.startswith('{'):
            self.address = json.loads(self.first)['address']
        else:
            assert self.first.startswith('listening on '), (self.first, self.process.communicate())
            self.address = self.first.split()[-1]

    def line(self):
        """Returns the next line of its standard output."""
        data = b''
        end = time.monotonic() + DEADLINE
        while not data.endswith(b'\n'):
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            byte = os.read(self.process.stdout.fileno(), 1) if ready else b''
            if not byte:
                break
            data += byte
        return data.decode(errors='surrogateescape').rstrip('\n')

    def stop(self, how=signal.SIGTERM, expect=0):
        # communicate() ends the input, which the process must not see before the signal.
        given, self.process.stdin = self.process.stdin, None
        self.process.send_signal(how)
        output, errors = self.process.communicate(timeout=DEADLINE)
        if given:
            given.close()
        assert self.process.returncode == expect, (self.process.returncode, output, errors)
        return output.decode(errors='replace'), errors.decode(errors='replace')


@contextlib.contextmanager
def serving(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
        server.stop()
    finally:
        server.process.kill()
        server.process.wait()


def recorded(path, size):
    """Returns the bytes that the record in a .part file claims; -1 if there is no record."""
    try:
        with open(path, 'rb') as file:
            file.seek((size + 4095) // 4096 * 4096)
            return struct.unpack('<5Q', file.read(40))[4]
    except (OSError, struct.error):
        return -1


def wait_unlocked(part):
    """Waits until no transfer writes a .part file: its lock is free, or the file is removed."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            with open(part, 'rb') as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.005)
        except FileNotFoundError:
            return
    raise AssertionError(f'{part} stays locked')


def cut_transfer(part, size, start, attempts=30):
    """Starts a transfer and kills it in the middle; returns the bytes recorded by then."""
    for _ in range(attempts):
        process = start()
        while process.poll() is None and recorded(part, size) < size // 8:
            time.sleep(0.0005)
        process.kill()
        process.communicate()
        wait_unlocked(part)
        if 0 < recorded(part, size) < size:
            return recorded(part, size)
        # The transfer finished before it was killed.
        part.with_name(part.name[1:-len('.part')]).unlink(missing_ok=True)
    raise AssertionError('every transfer finished before it was killed')


def start(*arguments, **changes):
    return subprocess.Popen([PEERLANE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(**changes))


@contextlib.contextmanager
def bench_servers(count):
    """Runs servers of `peerlane bench`, and returns their addresses."""
    servers = [start('bench', '--server', '--quiet', '--json', '127.0.0.1:0') for _ in range(count)]
    try:
        yield [json.loads(server.stdout.readline())['address'] for server in servers]
    finally:
        for server in servers:
            server.kill()
            server.wait()


def children(pid):
    """Returns the child processes of a process, from /proc, whose entries may vanish during the search."""
    found = []
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{name}/stat', encoding='ascii', errors='replace') as stat:
                fields = stat.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(name))
    return found


def wait_exited(pids):
    """Waits until all of these processes have exited."""
    end = time.monotonic() + DEADLINE
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.01)


def is_running(pid):
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as stat:
            return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError:
        return False


def free_port(count=1):
    """Returns the first of free ports in a row, below those that the kernel gives to connections and to port 0."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for i in range(count):
                stack.enter_context(socket.create_server(('127.0.0.1', port + i)))
            return port
