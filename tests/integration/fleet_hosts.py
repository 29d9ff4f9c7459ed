# SPDX-License-Identifier: BSD-2-Clause
"""Simulated fleets: documents of one machine and of machines with defects, as many hosts answer them through a launcher."""
import copy
import io
import json
import re
import shlex
import tarfile
import uuid

from check_machines import Machine, bare, express, with_nvidia, with_rdma
from check_formats import document

HOSTS = 200
TIME = '@TIME@'


def name(number):
    return f'gpu{number:03d}'


def told(done):
    """Returns standard error without the lines of progress, which come each 10 s on a busy machine."""
    return re.sub(r'\d+/\d+ ended, \d+ failed, \d+ running.* \d+ s\n', '', done.stderr)


def server():
    """Returns 8 H100 and 8 ConnectX-7 with RoCE, each pair below a switch of its own."""
    machine = with_rdma(with_nvidia(bare()))
    machine.set('usr/lib/x86_64-linux-gnu/libibverbs.so.1').fact('verbs.devices', 8)
    for i in range(8):
        machine.pci(f'{port(i)}', 0x060400, 0x8086, 0x352a, config=express(4))
        machine.pci(switch(i), 0x060400, 0x1000, 0xc030, config=express(5))
        for slot in range(2):
            machine.pci(f'{switch(i)}/0000:{bus(i) + 2:02x}:0{slot}.0', 0x060400, 0x1000, 0xc030, config=express(6, acs=0))
        machine.gpu(f'{switch(i)}/0000:{bus(i) + 2:02x}:00.0/{gpu(i)}', config=express(0), group=2 * i)
        machine.card(f'{switch(i)}/0000:{bus(i) + 2:02x}:01.0/{card(i)}', f'mlx5_{i}', layer='Ethernet', netdev=f'eth{i}',
                     class_=0x020000, node=i, config=express(0), group=2 * i + 1)
    return machine


def bus(i):
    return 0x10 + 0x10 * i


def port(i):
    return f'pci0000:{bus(i):02x}/0000:{bus(i):02x}:01.0'


def switch(i):
    return f'{port(i)}/0000:{bus(i) + 1:02x}:00.0'


def gpu(i):
    return f'0000:{bus(i) + 3:02x}:00.0'


def card(i):
    return f'0000:{bus(i) + 4:02x}:00.0'


def replace(machine, path, content):
    assert path in machine.files, path
    return machine.set(path, content)


def without_gpu(machine, i=5):
    folder = f'{switch(i)}/0000:{bus(i) + 2:02x}:00.0/{gpu(i)}'
    machine.remove(f'sys/devices/{folder}', f'sys/bus/pci/devices/{gpu(i)}', f'proc/driver/nvidia/gpus/{gpu(i)}')
    return machine.forget(f'cuda.gpu.{gpu(i)}', f'nvml.gpu.{gpu(i)}')


def half_width(machine, i=2):
    folder = f'sys/devices/{switch(i)}/0000:{bus(i) + 2:02x}:01.0'
    replace(machine, f'{folder}/{card(i)}/current_link_width', '8\n')
    return replace(machine, f'{folder}/current_link_width', '8\n')


def small_packets(machine, i=6):
    replace(machine, f'sys/class/net/eth{i}/mtu', '1500\n')
    return machine.fact(f'verbs.device.mlx5_{i}.port.1.mtu', 1024)


# Defects of machines: what changes, and the rows of the fleet that have to name it, each with an object and a part of its text.
DEFECTS = {
    'lost-gpu': (without_gpu, [('gpus', 'DIFFERS', gpu(5), 'missing'), ('gpus', 'DIFFERS', None, '7, where')]),
    'half-width': (half_width, [('link', 'DIFFERS', card(2), 'x8, where'), ('path-link', 'WARN', None, 'x8')]),
    'old-firmware': (lambda machine: replace(machine, 'sys/class/infiniband/mlx5_3/fw_ver', '28.36.1010\n'),
                     [('firmware', 'DIFFERS', 'mlx5_3', '28.36.1010, where')]),
    'wrong-mtu': (small_packets, [('port-mtu', 'WARN', 'mlx5_6/1', '1024')]),
    'port-down': (lambda machine: replace(machine, 'sys/class/infiniband/mlx5_1/ports/1/state', '1: DOWN\n'),
                  [('port-state', 'WARN', 'mlx5_1/1', 'DOWN'), ('state', 'DIFFERS', 'mlx5_1/1', 'DOWN, where'),
                   ('path-class', 'DIFFERS', gpu(1), 'where')]),
    'slow-port': (lambda machine: replace(machine, 'sys/class/infiniband/mlx5_4/ports/1/rate', '200 Gb/sec (4X HDR)\n'),
                  [('rate', 'DIFFERS', 'mlx5_4/1', '200 Gbit/s, where')]),
    'other-driver': (lambda machine: replace(machine, 'sys/module/nvidia/version', '550.54.15\n').fact('cuda.init', 803),
                     [('driver', 'DIFFERS', None, '550.54.15, where')]),
    'other-kernel': (lambda machine: replace(machine, 'proc/sys/kernel/osrelease', '6.5.0-14-generic\n'),
                     [('kernel', 'DIFFERS', None, '6.5.0-14-generic, where')]),
}


def write_dump(machine, path):
    """Writes a machine as one file, as `peerlane dump` does: much faster than some thousand files."""
    files = {**machine.files, 'peerlane/facts': ''.join(f'{key} {value}\n' for key, value in machine.facts.items())}
    with tarfile.open(path, 'w', format=tarfile.GNU_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str) and content.startswith('-> '):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[3:]
            data = content.encode() if isinstance(content, str) and entry.isreg() else content if entry.isreg() else b''
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def captured(folder, kinds=('well', *DEFECTS)):
    """Documents of the server, and of machines with these defects."""
    folder.mkdir()
    return {kind: document(write_dump(DEFECTS[kind][0](server()) if kind in DEFECTS else server(), folder / f'{kind}.tar'))
            for kind in kinds}


def slim(captured_document):
    """The document without members that no comparison reads."""
    checks = [{name: value for name, value in one.items() if name not in ('group', 'title', 'why', 'remedy', 'reveal')}
              for one in captured_document['checks']]
    return {**captured_document, 'routes': [], 'checks': checks}


def on_host(captured_document, host, number, stamped=False):
    """A document as this host gives it: its name, its time if `stamped`, and everything that varies from host to host."""
    shown = copy.deepcopy(captured_document)
    shown.update(host=host, boot_id=str(uuid.UUID(int=number + 1)), time=TIME if stamped else None, uptime_seconds=1000.0 + number,
                 duration_seconds=0.1 + number / 1000)
    for one in shown['checks']:
        for finding in one['findings']:
            if finding['status'] == 'OK' and one['id'] == 'port-address':
                finding['found'] = finding['found'].replace('10.0.0.1', f'10.0.{number // 250}.{number % 250}')
            if finding['status'] == 'OK' and one['id'] in ('gpu-bar1', 'port-congestion'):
                finding['found'] += f' {number}'
    for device in shown['inventory']['gpus']:
        if number % 7 == 0:  # idle GPUs lower their speed
            device.update(idle=True, speed_transfers_per_second=2_500_000_000)
    return shown


def check_row(shown, row):
    return next(one for one in shown['checks'] if one['id'] == row)


def spoil(shown, row, status, text, thing=None):
    """Gives a check another status."""
    one = check_row(shown, row)
    one.update(status=status, findings=[{'object': thing, 'status': status, 'found': text, 'accepted': None}])
    return shown


# dash starts in a fraction of the time of bash, which alone tells the time without a further process.
LAUNCHER = '''#!/bin/sh
cd {folder}
if [ -f "$1.sh" ] || [ -f "$1.head" ]; then exec bash ./give "$1"; fi
exec cat "$1.out"
'''
GIVE = r'''now=-1 TZ=UTC
give() {
	if [[ -f $1.head ]]; then
		IFS= read -r -d "" head <"$1.head"
		printf "%s%(%Y-%m-%dT%H:%M:%SZ)T" "$head" "$now"
	fi
	exec cat "$1.out"
}
if [[ -f $1.sh ]]; then . "./$1.sh"; fi
give "$1"
'''


class Fleet:
    """Answers of hosts in a folder, and a launcher that gives them, with the present time in place of TIME."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.launcher = folder / 'launch'
        self.launcher.write_text(LAUNCHER.format(folder=shlex.quote(str(folder))))
        self.launcher.chmod(0o755)
        (folder / 'give').write_text(GIVE)
        self.names = []

    def answer(self, name, output):
        """Lets a host answer with an object or a text."""
        head, time, rest = (output if isinstance(output, str) else json.dumps(output)).partition(TIME)
        (self.folder / f'{name}.out').write_text(rest if time else head)
        if time:
            (self.folder / f'{name}.head').write_text(head)
        return self.act(name)

    def act(self, name, script=None):
        """Lets a host run a script before it answers."""
        if script:
            (self.folder / f'{name}.sh').write_text(script)
        if name not in self.names:
            self.names.append(name)
        return self

    @property
    def arguments(self):
        return [','.join(self.names), '--launch', f'{self.launcher} {{host}}']
