# SPDX-License-Identifier: BSD-2-Clause
"""Cells of the matrix: operations, phases and faults.

A phase is a point of an operation at which one end, the client or the server, stops itself (trap.c).  The fault happens
while that end stands still; then the end continues.  So a fault always hits the same point, at any speed of the machine.
"""
import dataclasses
import itertools

CLIENT, SERVER = 'client', 'server'


@dataclasses.dataclass(frozen=True)
class Operation:
    name: str
    receiver: str  # end that stores the files
    arguments: tuple
    opens: str = ''  # the server's file whose opening shows that the request arrived


OPERATIONS = {operation.name: operation for operation in [
    Operation('get', CLIENT, ('get', '--sync', 'ADDRESS', 'big', '-o', 'DESTINATION'), 'big'),
    Operation('get -r', CLIENT, ('get', '-r', '--sync', 'ADDRESS', 'tree', '-o', 'DESTINATION'), 'large'),
    Operation('put', SERVER, ('put', 'ADDRESS', 'big')),
    Operation('put many', SERVER, ('put', 'ADDRESS', *(f'small{i}' for i in range(60)))),
    Operation('put -r', SERVER, ('put', '-r', 'ADDRESS', 'tree')),
]}


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    end: str  # end that stops; RECEIVER: the one that stores the files
    event: str
    points: tuple = ()  # of `traffic`: fractions of the bytes before ('greeting') or behind ('data') the request


RECEIVER = 'receiver'
PHASES = {phase.name: phase for phase in [
    Phase('before connecting', CLIENT, 'connect:1'),
    Phase('handshake', CLIENT, 'greeting', (0.5, 0.1, 0.3, 0.8)),
    Phase('request sent', SERVER, 'request'),
    Phase('first bytes', CLIENT, 'data', (0.02,)),
    Phase('middle of the data', CLIENT, 'data', (0.5, 0.2, 0.35, 0.65, 0.8)),
    Phase('last bytes', CLIENT, 'data', (0.97,)),
    Phase('before the sync', RECEIVER, 'fsync:1'),
    Phase('before the rename', RECEIVER, 'rename:1'),
    Phase('after the rename', RECEIVER, 'renamed:1'),
    Phase('before the answer', RECEIVER, 'last synced'),
    Phase('close', CLIENT, 'shutdown:1'),
]}


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    end: str = ''
    value: int = 0
    receivers: tuple = (CLIENT, SERVER)  # operations to which it applies
    sweep: bool = False                  # at all points of a phase
    values: tuple = ()


YEARS = 20 * 365 * 86400
FAULTS = {fault.name: fault for fault in [
    Fault('kill -9 of the server', 'kill', SERVER, sweep=True),
    Fault('kill -9 of the client', 'kill', CLIENT, sweep=True),
    Fault('server stopped for 1 s', 'pause', SERVER),
    Fault('client stopped for 1 s', 'pause', CLIENT),
    Fault('server stopped for ever', 'stop', SERVER),
    Fault('client stopped for ever', 'stop', CLIENT),
    Fault('link down for 1 s', 'flap'),
    Fault('link down for ever', 'cut'),
    Fault('disk of the server full', 'fill', SERVER, receivers=(SERVER,), sweep=True),
    Fault('disk of the client full', 'fill', CLIENT, receivers=(CLIENT,), sweep=True),
    Fault('clock of the server jumps forward', 'clock', SERVER, YEARS),
    Fault('clock of the server jumps back', 'clock', SERVER, -YEARS),
    Fault('clock of the client jumps forward', 'clock', CLIENT, YEARS),
    Fault('clock of the client jumps back', 'clock', CLIENT, -YEARS),
    Fault('no memory at the server', 'memory', SERVER, values=((1, 1), (2, 1), (5, 1), (1, 20))),
    Fault('no memory at the client', 'memory', CLIENT, values=((1, 1), (2, 1), (5, 1), (12, 1), (1, 10**9), (4, 10**9))),
    Fault('SIGINT to the server', 'signal', SERVER, 2),
    Fault('SIGTERM to the server', 'signal', SERVER, 15),
    Fault('SIGHUP to the server', 'signal', SERVER, 1),
    Fault('SIGINT to the client', 'signal', CLIENT, 2),
    Fault('SIGTERM to the client', 'signal', CLIENT, 15),
    Fault('SIGHUP to the client', 'signal', CLIENT, 1),
]}


@dataclasses.dataclass(frozen=True)
class Cell:
    fault: Fault
    phase: Phase
    operation: Operation
    point: float = 0
    value: tuple = ()

    @property
    def row(self):
        return self.fault.name, self.phase.name

    def __str__(self):
        point = f' at {self.point}' if self.point else ''
        value = f' {self.value}' if self.value else ''
        return f'{self.fault.name}, {self.phase.name}{point}{value}, {self.operation.name}'


def all_cells():
    for fault, phase, operation in itertools.product(FAULTS.values(), PHASES.values(), OPERATIONS.values()):
        if operation.receiver in fault.receivers:
            points = (phase.points if fault.sweep else phase.points[:1]) or (0,)
            for point, value in itertools.product(points, fault.values or ((),)):
                yield Cell(fault, phase, operation, point, value)


def rows():
    return list(dict.fromkeys(cell.row for cell in all_cells()))
