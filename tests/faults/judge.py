# SPDX-License-Identifier: BSD-2-Clause
"""One cell: the fault, what each end does then, and the state of the files before and after the command is repeated."""
import concurrent.futures
import dataclasses
import itertools
import os
import shutil
import signal
import time

import fault_support as support
from cells import CLIENT, OPERATIONS, RECEIVER, SERVER


@dataclasses.dataclass
class Outcome:
    sees: str
    left: str
    problems: list
    seconds: float = 0
    ids: tuple = ()


class Case:
    def __init__(self, cell, reference, folder, files):
        self.cell, self.problems, self.notes = cell, [], []
        fault = cell.fault
        if fault.kind == 'memory' and not support.ALLOCATOR:
            raise support.Untestable('allocations cannot be replaced in this build')
        link = support.Link() if fault.kind in ('flap', 'cut') else None
        try:
            self.bench = support.Bench(folder, files, cell.operation, small_disk=fault.kind == 'fill', link=link)
        except BaseException:
            if link:
                link.close()
            raise
        self.trapped = cell.operation.receiver if cell.phase.end == RECEIVER else cell.phase.end
        self.at = reference.event(cell)

    def options(self, end):
        return {'at': self.at if self.trapped == end else None,
                'memory': self.cell.fault.kind == 'memory' and self.cell.fault.end == end}

    def start(self):
        stops = self.cell.fault.kind == 'stop' and self.cell.fault.end == CLIENT
        self.bench.start_server(idle=support.IDLE if stops else support.LONG_IDLE, **self.options(SERVER))
        self.server = self.bench.server
        self.other = None
        if self.server_survives():
            self.other = self.bench.client('other', ['get', 'ADDRESS', 'other', '-o', self.bench.folder / 'other'],
                                           at='traffic:1000000')
            if not support.wait_until(self.other.stopped):
                raise AssertionError('the other client does not run: ' + self.other.text())
        self.silent = self.cell.fault.kind in ('stop', 'cut', 'memory')
        self.client = self.bench.client('client', self.cell.operation.arguments,
                                        timeout=support.TIMEOUT if self.silent else support.LONG_TIMEOUT,
                                        **self.options(CLIENT))
        self.ends = {CLIENT: self.client, SERVER: self.server}
        frozen = self.ends[self.trapped]
        if not support.wait_until(lambda: frozen.stopped() or self.client.ended()) or not frozen.stopped():
            raise AssertionError(f'{self.cell}: the point was not reached: {self.client.text()}')

    def server_survives(self):
        fault = self.cell.fault
        return fault.end != SERVER or fault.kind in ('pause', 'clock') or (fault.kind == 'signal' and fault.value == 1)

    def resume(self, end):
        """Continues the end that the trap stopped, unless the fault keeps it."""
        if not end.hit:
            end.send(signal.SIGCONT)

    def make_fault(self):
        fault, target = self.cell.fault, self.ends.get(self.cell.fault.end)
        frozen = self.ends[self.trapped]
        if fault.kind == 'kill':
            target.hit = True
            target.send(signal.SIGKILL)
        elif fault.kind in ('stop', 'pause'):
            target.hit = True
            target.send(signal.SIGSTOP)
        elif fault.kind in ('cut', 'flap'):
            self.bench.link.set('down')
        elif fault.kind == 'fill':
            self.bench.fill_disk()
        elif fault.kind == 'clock':
            target.jump(fault.value)
        elif fault.kind == 'memory':
            target.fail_memory(*self.cell.value)
        elif fault.kind == 'signal':
            target.send(fault.value)
        self.resume(frozen)
        if fault.kind in ('pause', 'flap'):
            time.sleep(1)
            if fault.kind == 'flap':
                self.bench.link.set('up')
            else:
                target.hit = False
                target.send(signal.SIGCONT)
        if self.other:
            self.other.send(signal.SIGCONT)

    def judge_client(self):
        """Waits for the client; returns what its user sees."""
        fault, client = self.cell.fault, self.client
        if fault.kind == 'stop' and fault.end == CLIENT:
            return 'nothing: the client is stopped'
        limit = support.ERROR_TIME if self.silent else support.DEADLINE
        status = client.wait(limit)
        if status is None:
            self.problems.append(f'the client does not end within {limit} s')
            return 'nothing'
        ids = sorted(set(support.ERROR_ID.findall(client.text())))
        self.status, files = status, support.judge_json(client, status, self.problems)
        if fault.end == CLIENT and fault.kind in ('kill', 'signal'):
            number = 9 if fault.kind == 'kill' else fault.value
            if status != -number and status != 0:
                self.problems.append(f'exit status {status} after signal {number}: {client.text()}')
        elif status < 0:
            self.problems.append(f'the client crashed by signal {-status}: {client.text()}')
        elif status and not ids:
            self.problems.append(f'exit status {status} without a named error: {client.text()}')
        elif status and fault.kind in ('pause', 'clock', 'flap') or status and fault.kind == 'signal' and fault.value == 1:
            self.problems.append(f'the transfer fails: {client.text()}')
        self.judge_files(files)
        if status == 0:
            return 'success'
        self.ids = tuple(ids)
        return f'killed by {signal.Signals(-status).name}' if status < 0 else f'exit {status}'

    def judge_files(self, reported):
        """Files are old or new, and complete if they are reported as such."""
        stored = self.bench.stored()
        for name, data in self.bench.expected.items():
            if name not in stored:
                self.problems.append(f'{name} is lost')
            elif stored[name] not in (data, support.old_bytes(name)):
                self.problems.append(f'{name} is neither old nor new: {len(stored[name])} bytes')
            elif self.status == 0 and stored[name] != data:
                self.problems.append(f'{name} is old after success')
            elif name in reported and not reported[name]['error'] and stored[name] != data:
                self.problems.append(f'{name} is reported as transferred, and old')

    def describe_files(self):
        stored = self.bench.stored()
        parts = [name for name in stored if os.path.basename(name).startswith('.') and name.endswith('.part')]
        for name in stored:
            if name not in self.bench.expected and name not in parts:
                self.problems.append(f'unknown file {name}')
        new = sum(stored.get(name) == data for name, data in self.bench.expected.items())
        state = 'new file' if new == len(self.bench.expected) else 'old file' if not new else 'old and new files'
        return state + (', partial file' if parts else '')

    def judge_server(self):
        """After the fault: the server has ended as it must, or runs; the other client has noticed nothing."""
        fault = self.cell.fault
        if fault.kind == 'stop' and fault.end == SERVER:
            self.server.hit = False
            self.server.send(signal.SIGCONT)
        if fault.kind in ('kill', 'signal') and fault.end == SERVER and fault.value != 1:
            status = self.server.wait()
            wanted = [-9] if fault.kind == 'kill' else [0, -fault.value]
            if status not in wanted:
                self.problems.append(f'the server ends with {status}: {self.server.text()}')
        elif self.server.ended():
            self.problems.append(f'the server ended: {self.server.wait()} {self.server.text()}')
        if self.other:
            status = self.other.wait()
            got = self.bench.folder / 'other'
            if status != 0 or got.read_bytes() != self.bench.files.new['other']:
                self.problems.append(f'another client notices it: {status} {self.other.text()}')

    def repair(self):
        fault = self.cell.fault
        if fault.kind == 'cut':
            self.bench.link.set('up')
        if fault.kind == 'fill':
            (self.bench.destination / 'filler').unlink()
        if fault.kind == 'memory' and fault.end == SERVER:
            self.server.fail_memory(0, 0)
        if self.server.ended():
            self.bench.start_server()

    def repeat(self):
        """The same command again must succeed; a server may take some time to notice that the first client is gone."""
        end = time.monotonic() + support.RETRY_TIME
        stopped = self.client.hit and self.cell.fault.kind == 'stop'
        # A stopped client that receives files has them locked on its own host.
        if stopped and self.cell.operation.receiver == CLIENT:
            self.wake_client()
        while True:
            again = self.bench.client('again', self.cell.operation.arguments)
            status = again.wait()
            # The kernel needs a moment to find the other host again behind a link that was down.
            passing = 'TRANSFER-BUSY', *(['CONNECT-FAILED'] if self.cell.fault.kind == 'cut' else [])
            if status == 0 or not set(passing) & set(support.ERROR_ID.findall(again.text())) or time.monotonic() > end:
                break
            time.sleep(0.2)
        if status != 0:
            self.problems.append(f'the repeated command fails: {status} {again.text()}')
        self.status = status
        self.judge_files(support.judge_json(again, status, self.problems))
        if stopped and self.cell.operation.receiver == SERVER:
            self.wake_client()
        stored = self.bench.stored()
        for name in stored.keys() - self.bench.expected.keys():
            self.problems.append(f'{name} is left after the repeated command')

    def wake_client(self):
        self.client.send(signal.SIGCONT)
        status = self.client.wait()
        if status is None or status < 0 or (status and not support.ERROR_ID.findall(self.client.text())):
            self.problems.append(f'the client ends with {status} when it continues: {self.client.text()}')
        self.status = status
        self.judge_files(support.judge_json(self.client, status, self.problems))

    def stop_server(self):
        self.bench.server.send(signal.SIGTERM)
        status = self.bench.server.wait()
        if status != 0:
            self.problems.append(f'the server ends with {status}: {self.bench.server.text()}')

    def run(self):
        self.status, self.ids = None, ()
        begun = time.monotonic()
        try:
            self.start()
            self.make_fault()
            sees = self.judge_client()
            left = self.describe_files()
            self.judge_server()
            self.repair()
            self.repeat()
            self.stop_server()
        finally:
            self.bench.close()
        return Outcome(sees, left, self.problems, time.monotonic() - begun, self.ids)


def run_cell(cell, reference, folder, files):
    try:
        return Case(cell, reference, folder, files).run()
    except support.Untestable:
        raise
    except Exception as error:  # pylint: disable=broad-except
        return Outcome('', '', [f'{type(error).__name__}: {error}'])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Matrix:
    """Runs cells side by side in a folder."""

    def __init__(self, folder):
        self.folder, self.files, self.numbers = folder, support.Files(folder), itertools.count()
        self.references = {name: support.Reference(folder / f'reference{i}', self.files, operation)
                           for i, (name, operation) in enumerate(OPERATIONS.items())}
        support.level_greetings(self.references.values())

    def run(self, cells, jobs):
        """Yields each cell with its outcome, or with the reason why it cannot run here."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(run_cell, cell, self.references[cell.operation.name],
                                   self.folder / f'cell{next(self.numbers)}', self.files): cell for cell in cells}
            for future in concurrent.futures.as_completed(running):
                try:
                    yield running[future], future.result()
                except support.Untestable as reason:
                    yield running[future], reason
