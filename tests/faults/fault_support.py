# SPDX-License-Identifier: BSD-2-Clause
"""Runs one cell of the matrix: sets a trap, waits until it springs, makes the fault, and judges the result."""
import ctypes
import json
import mmap
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import time

from cells import CLIENT, RECEIVER, SERVER

PEERLANE = os.environ['PEERLANE']
TRAP = os.environ['FAULT_TRAP']
ALLOCATOR = os.environ.get('FAULT_ALLOCATOR')
BUSY = 5           # a busy machine may take this many times as long as docs/reliability.md says
DEADLINE = 30 * BUSY
TIMEOUT = 3        # --timeout of a client whose server falls silent
LONG_TIMEOUT = 60  # of all others, on a busy machine too
IDLE = 2           # --idle of the server for clients that stop for ever
ERROR_TIME = 12 * BUSY  # within which this client reports it
RETRY_TIME = 45 * BUSY  # within which the server notices that a client is gone
LONG_IDLE = 2 * RETRY_TIME  # for all other clients, so that the server must notice them otherwise
BIG = 6 << 20
ERROR_ID = re.compile(r'\[([A-Z][A-Z0-9-]+)\]')
CLONE_NEWNS = 0x20000


class Untestable(Exception):
    """The machine lacks something, for example privileges."""


def leave_mount_namespace():
    """Gives this process its own mounts.  Returns False without privileges."""
    if os.geteuid() or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        return False
    return subprocess.run(['mount', '--make-rprivate', '/'], check=False).returncode == 0


def bytes_of(name, size):
    block = (name.encode() + b' ') * 97
    return (block * (size // len(block) + 1))[:size]


class Files:
    """Sources, published files and expected results of an operation."""

    def __init__(self, folder):
        self.sources = folder / 'sources'
        self.new = {}
        for name, size in [('big', BIG), ('other', 3 << 20), *((f'small{i}', 3000 + i) for i in range(60)),
                           ('tree/large', 1 << 20), *((f'tree/d{i % 3}/f{i}', 2000 + i) for i in range(40))]:
            path = self.sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self.new[name] = bytes_of(name, size)
            path.write_bytes(self.new[name])

    def expected(self, operation):
        if operation.name.endswith('-r'):
            return {name: data for name, data in self.new.items() if name.startswith('tree/')}
        return {name: self.new[name] for name in operation.arguments if name in self.new}


def old_bytes(name):
    return b'old ' + name.encode()


class Link:
    """Two network namespaces, joined by a veth pair."""

    def __init__(self):
        self.holders = []
        if os.geteuid() or not shutil.which('ip'):
            raise Untestable('network namespaces need root and ip')
        for _ in range(2):
            self.holders.append(subprocess.Popen(['unshare', '-n', 'sh', '-c', 'echo ready; exec sleep 600'],
                                                 stdout=subprocess.PIPE))
            if self.holders[-1].stdout.readline() != b'ready\n':
                self.close()
                raise Untestable('no network namespace')
        client, server = (holder.pid for holder in self.holders)
        try:
            self.ip(CLIENT, 'link', 'add', 'pl0', 'type', 'veth', 'peer', 'name', 'pl1', 'netns', str(server))
        except subprocess.CalledProcessError as error:
            self.close()
            raise Untestable('no veth cables') from error
        for end, device, address in [(CLIENT, 'pl0', '10.79.0.1/24'), (SERVER, 'pl1', '10.79.0.2/24')]:
            self.ip(end, 'addr', 'add', address, 'dev', device)
            self.ip(end, 'link', 'set', 'lo', 'up')
            self.ip(end, 'link', 'set', device, 'up')

    def prefix(self, end):
        return ['nsenter', f'--net=/proc/{self.holders[end == SERVER].pid}/ns/net']

    def ip(self, end, *words):
        subprocess.run([*self.prefix(end), 'ip', *words], check=True, stderr=subprocess.DEVNULL)

    def set(self, state):
        self.ip(SERVER, 'link', 'set', 'pl1', state)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.communicate()


class End:
    """A process of the command, with a trap, a clock and a plan of its allocations."""

    def __init__(self, folder, name, arguments, at=None, opens='', log=None, memory=False, prefix=(), cwd=None):
        self.clock = folder / f'{name}.clock'
        self.clock.write_bytes(struct.pack('<q', 0))
        self.plan = folder / f'{name}.memory'
        self.plan.write_bytes(struct.pack('<3Q', 0, 0, 0))
        options = os.environ.get('ASAN_OPTIONS', '')
        changes = {'FAULT_CLOCK': self.clock, 'FAULT_OPEN': opens, 'FAULT_MEMORY': self.plan,
                   'LD_PRELOAD': f'{TRAP} {ALLOCATOR}' if memory else TRAP,
                   'ASAN_OPTIONS': f'{options}:verify_asan_link_order=0'.lstrip(':')}
        if at:
            changes['FAULT_AT'] = at
        if log:
            changes['FAULT_LOG'] = log
        self.errors = folder / f'{name}.errors'
        self.output = folder / f'{name}.output'
        variables = {**os.environ, 'PEERLANE_KEY_FILE': '', **{key: str(value) for key, value in changes.items()}}
        variables.pop('PEERLANE_KEY_FILE')
        # The preloaded library must not stop nsenter(1).
        command = [*prefix, 'env', *(f'{key}={variables.pop(key)}' for key in changes), PEERLANE] if prefix else [PEERLANE]
        with open(self.output, 'wb') as output, open(self.errors, 'wb') as errors:
            self.process = subprocess.Popen([*command, *map(str, arguments)], stdout=output, stderr=errors, cwd=cwd,
                                            env=variables)
        self.hit = False  # the fault killed it or stops it for ever

    def state(self):
        try:
            stat = pathlib.Path(f'/proc/{self.process.pid}/stat').read_text()
        except OSError:
            return 'X'
        return stat[stat.rindex(')') + 2]

    def stopped(self):
        return self.state() in 'tT'

    def ended(self):
        return self.process.poll() is not None

    def send(self, number):
        if not self.ended():
            self.process.send_signal(number)

    def wait(self, limit=DEADLINE):
        """Returns the exit status, or None if it does not end."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def text(self):
        return self.errors.read_text(errors='replace')

    def end(self):
        if not self.ended():
            self.process.kill()
        self.process.wait()

    def fail_memory(self, first, run):
        with open(self.plan, 'r+b') as file, mmap.mmap(file.fileno(), 24) as plan:
            struct.pack_into('<Q', plan, 16, run)
            struct.pack_into('<Q', plan, 8, struct.unpack_from('<Q', plan, 0)[0] + first)

    def jump(self, seconds):
        with open(self.clock, 'r+b') as file:
            file.write(struct.pack('<q', seconds))


def wait_until(condition, limit=DEADLINE):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.003)
    return False


class Bench:
    """Folders, server and client of one cell."""

    def __init__(self, folder, files, operation, small_disk=False, link=None):
        self.folder, self.files, self.operation, self.link = folder, files, operation, link
        self.destination = folder / 'destination'
        self.destination.mkdir(parents=True)
        self.small_disk = small_disk
        if small_disk and subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', self.destination],
                                         check=False, stderr=subprocess.DEVNULL).returncode:
            raise Untestable('no small file system: mounting needs root')
        self.expected = files.expected(operation)
        for name in self.expected:
            path = self.destination / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(old_bytes(name))
        self.key = folder / 'key'
        self.key.write_bytes(b'0123456789abcdef0123456789abcdef\n')
        self.key.chmod(0o600)
        self.server = None
        self.ends = []
        self.port = 0

    def start_server(self, idle=LONG_IDLE, **options):
        host = '10.79.0.2' if self.link else '127.0.0.1'
        upload = self.destination if self.operation.receiver == SERVER else self.folder / 'upload'
        upload.mkdir(exist_ok=True)
        prefix = self.link.prefix(SERVER) if self.link else ()
        self.server = End(self.folder, f'server{len(self.ends)}',
                          ['serve', f'{host}:0', '--json', '--key', self.key, '--timeout', LONG_TIMEOUT, '--idle', idle, '--upload',
                           upload, self.files.sources], opens=self.operation.opens, prefix=prefix, **options)
        self.ends.append(self.server)
        if not wait_until(lambda: self.server.output.read_bytes().count(b'\n') or self.server.ended()):
            raise AssertionError('the server does not start')
        assert not self.server.ended(), self.server.text()
        self.address = json.loads(self.server.output.read_text().splitlines()[0])['address']

    def client(self, name, arguments, timeout=LONG_TIMEOUT, **options):
        words = [{'ADDRESS': self.address, 'DESTINATION': self.destination}.get(word, word) for word in arguments]
        prefix = self.link.prefix(SERVER if name.startswith('other') else CLIENT) if self.link else ()
        end = End(self.folder, name, [words[0], '--json', '--key', self.key, '--fabric', 'tcp', '--timeout', timeout,
                                      *words[1:]], cwd=self.files.sources, prefix=prefix, **options)
        self.ends.append(end)
        return end

    def stored(self):
        """Returns the names of files below the destination with their bytes."""
        found = {}
        for path in self.destination.rglob('*'):
            try:
                if path.is_file() and path.name != 'filler':
                    found[str(path.relative_to(self.destination))] = path.read_bytes()
            except FileNotFoundError:
                # The server renames a file at this moment; only the name of a partial file can disappear.
                assert path.name.endswith('.part'), path
        return found

    def fill_disk(self):
        with open(self.destination / 'filler', 'wb', buffering=0) as file:
            for size in [1 << 20, 4096, 1]:
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def close(self):
        for end in self.ends:
            end.end()
        if self.small_disk:
            subprocess.run(['umount', '-l', self.destination], check=False)
        if self.link:
            self.link.close()


class Reference:
    """Bytes of an operation's sockets before the server acts on the request, and in total; number of the last fsync()."""

    def __init__(self, folder, files, operation):
        bench = Bench(folder, files, operation)
        logs = {end: folder / f'{end}.log' for end in [CLIENT, SERVER]}
        try:
            bench.start_server(log=logs[SERVER])
            client = bench.client('client', operation.arguments, log=logs[CLIENT])
            assert client.wait() == 0, client.text()
        finally:
            bench.close()
        lines = {end: [line.split() for line in log.read_text().splitlines()] for end, log in logs.items()}
        event = 'open' if operation.receiver == CLIENT else 'create'
        request = [int(at) for name, _, at in lines[SERVER] if name == event]
        self.request = request[0]
        self.total = max(int(at) for name, _, at in lines[CLIENT] if name == 'traffic')
        self.synced = max(int(number) for name, number, _ in lines[operation.receiver] if name == 'synced')

    def event(self, cell):
        phase = cell.phase
        if phase.event == 'request':
            return 'open:1' if cell.operation.receiver == CLIENT else 'create:1'
        if phase.event == 'last synced':
            return f'synced:{self.synced}'
        if phase.event == 'greeting':
            return f'traffic:{int(self.request * cell.point)}'
        if phase.event == 'data':
            return f'traffic:{int(self.request + (self.total - self.request) * cell.point)}'
        return phase.event


def level_greetings(references):
    """The greeting has the same bytes before each operation; the bytes of small files also come before their names."""
    request = min(reference.request for reference in references)
    for reference in references:
        reference.request = request


def judge_json(client, status, problems):
    """Each file stands once in the result, and exit status 0 goes with no error."""
    text = client.output.read_text()
    if not text.strip():
        return {}
    try:
        result = json.loads(text)
    except ValueError:
        if status is not None and status >= 0:
            problems.append('the output is no JSON')
        return {}
    names = [file['name'] for file in result.get('files', [])]
    if len(names) != len(set(names)):
        problems.append('a file stands twice in the output')
    errors = [file['error'] for file in result.get('files', []) if file['error']]
    if status == 0 and errors:
        problems.append('exit status 0 in spite of an error')
    return {file['name']: file for file in result.get('files', [])}
