# SPDX-License-Identifier: BSD-2-Clause
"""Formats of `peerlane check` that programs read: JSON and its schema."""
import datetime
import json
import os
import pathlib

import check_machines as machines
import jsonschema
import pytest
from check_machines import CARD, GPU, ideal, old
from cli_support import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / 'docs/check.schema.json').read_text())
STATUSES = ['OK', 'UNKNOWN', 'WARN', 'FAIL']


def soft():
    """Soft-RoCE and no card."""
    machine = machines.bare()
    machine.set('sys/module/ib_core', None).set('sys/class/net/eth0/mtu', '1500\n')
    machine.rdma('rxe0', '', dmabuf=95)
    return machine.remove('sys/class/infiniband/rxe0/device').set('sys/class/infiniband/rxe0/parent', 'eth0\n')


MACHINES = {'ideal': ideal, 'old': lambda: old(loaded=False), 'cloud': machines.cloud, 'connectx3': machines.connectx3,
            'gpu_only': machines.gpu_only, 'container': machines.container, 'soft': soft, 'empty': machines.Machine}


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Folders of all machines, which the tests only read."""
    top = tmp_path_factory.mktemp('machines')
    for name, make in MACHINES.items():
        (top / name).mkdir()
        make().write(top / name)
    return top


def schema_errors(document):
    return [f'{list(error.path)}: {error.message}' for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]


def document(folder, *arguments):
    return json.loads(run('check', '--sysroot', folder, '--json', *arguments, expect=None).stdout)


# -- JSON ------------------------------------------------------------------------------------------------------------

def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize('name', MACHINES)
def test_json_fits_the_schema(folders, name):
    shown = document(folders / name, '--host', 'gpu017')
    assert schema_errors(shown) == []
    assert (shown['format'], shown['kind'], shown['host'], shown['boot_id']) == (1, 'check', 'gpu017', None)
    states = [one['status'] for one in shown['checks']]
    assert shown['counts'] == {state.lower(): states.count(state) for state in ['none', *STATUSES]}
    assert shown['status'] == max((state for state in states if state != 'none'), key=STATUSES.index, default='OK')


def test_schema_refuses_other_documents(folders):
    good = document(folders / 'ideal')
    assert schema_errors(good) == []
    for change in [{'format': 2}, {'kind': 'topo'}, {'status': 'none'}, {'time': '2026-11-22 23:10:05'},
                   {'boot_id': 'x'}, {'verdict': 'fine'}, {'counts': {}}, {'checks': [{}]}, {'inventory': None}]:
        assert schema_errors({**good, **change}), change
    assert schema_errors({**good, 'new_member': 1}) == []


def test_json_names_this_machine_and_its_start():
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    done = run('check', '--json', expect=None, SLURMD_NODENAME='', NODE_NAME='')
    shown = json.loads(done.stdout)
    after = datetime.datetime.now(datetime.timezone.utc)
    assert schema_errors(shown) == []
    assert shown['host'] == os.uname().nodename
    assert shown['boot_id'] == pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    assert before <= datetime.datetime.strptime(shown['time'], '%Y-%m-%dT%H:%M:%S%z') <= after
    assert 0 < shown['duration_seconds'] <= (after - before).total_seconds() + 1 and shown['uptime_seconds'] > 0
    assert shown['root'] == (os.geteuid() == 0)
    named = json.loads(run('check', '--json', expect=None, SLURMD_NODENAME='node7', NODE_NAME='other').stdout)
    assert named['host'] == 'node7'


def test_dumps_have_no_name(folders):
    shown = document(folders / 'ideal')
    assert [shown[name] for name in ('host', 'boot_id', 'uptime_seconds')] == [None] * 3


def test_inventory(folders):
    shown = document(folders / 'ideal')['inventory']
    assert shown['driver'] == '570.124.06' and shown['kernel']
    gpu, = shown['gpus']
    card, = shown['cards']
    device, = shown['devices']
    assert gpu == {'pci': GPU, 'model': 'NVIDIA H100 80GB HBM3', 'numa': 0, 'width_lanes': 16,
                   'speed_transfers_per_second': 32_000_000_000, 'idle': False}
    assert (card['pci'], card['width_lanes'], card['virtual_function']) == (CARD, 16, False)
    assert (device['device'], device['pci'], device['firmware']) == ('mlx5_0', CARD, '28.39.1002')
    assert device['ports'] == [{'port': 1, 'state': 'ACTIVE', 'layer': 'InfiniBand',
                                'rate_bytes_per_second': 50_000_000_000}]
    soft_device, = document(folders / 'soft')['inventory']['devices']
    assert soft_device['pci'] is None


def test_errors_fit_the_schema(tmp_path):
    shown = json.loads(run('check', '--json', '--sysroot', tmp_path / 'none', expect=1).stdout)
    assert schema_errors(shown) == [] and shown['error']['id'] == 'SYSROOT-OPEN'


def test_json_has_all_findings(tmp_path):
    """A machine with many devices: no finding is left out."""
    machine = ideal()
    for i in range(40):
        machine.card(f'pci0000:00/0000:00:{i // 8 + 8:02x}.{i % 8}', f'mlx5_{i + 1}', device=0x101e, layer='Ethernet',
                     netdev=f'eth{i + 1}', node=i + 1)
    shown = document(machine.write(tmp_path))
    states, = [one for one in shown['checks'] if one['id'] == 'port-state']
    assert len(states['findings']) == 41 and all(one['left_out'] == 0 for one in shown['checks'])
    text = run('check', '--sysroot', tmp_path, expect=None).stdout
    assert '\n           ... and ' in text


def test_wrong_host_names():
    for name in ['', 'x' * 254]:
        assert '--host takes a name' in run('check', '--host', name, expect=2).stderr
