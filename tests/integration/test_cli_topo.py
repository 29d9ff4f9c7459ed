# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane topo` on machines that are described in tests/topology, and on topology files."""
import json
import os
import pathlib
import random
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import machines
import pytest
from cli_support import DEADLINE, PEERLANE, environment, run, run_json

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'topology'
SOURCES = {path.stem: path for path in [*FOLDER.glob('*.machine'), *FOLDER.glob('*.files')]}
MACHINES = sorted(SOURCES)
FILES = sorted(path.stem for path in FOLDER.glob('*.xml'))


def machine(folder, name):
    return machines.make(folder, SOURCES[name])


def topo(root, *arguments, **options):
    return run_json('topo', '--numeric', '--sysroot', root, *arguments, **options)


def described(folder, text, *arguments):
    return topo(machines.build(folder / str(random.random()), text), *arguments)


def best(shown):
    return {pair['gpu']: pair['nic'] for pair in shown['pairs'] if pair['best']}


def pair(shown, gpu, nic):
    return next(one for one in shown['pairs'] if one['gpu'] == gpu and one['nic'] == nic)


def compare(name, text):
    """With what is checked in; UPDATE_GOLDEN=1 writes that anew."""
    path = FOLDER / name
    if os.environ.get('UPDATE_GOLDEN'):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize('name', MACHINES)
def test_golden_matrix(tmp_path, name):
    compare(f'{name}.txt', run('topo', '--numeric', '--sysroot', machine(tmp_path, name)).stdout)


@pytest.mark.parametrize('name', MACHINES)
def test_golden_tree(tmp_path, name):
    compare(f'{name}.tree', run('topo', '--tree', '--numeric', '--sysroot', machine(tmp_path, name)).stdout)


@pytest.mark.parametrize('name', MACHINES)
def test_every_pair_agrees_with_the_tree(tmp_path, name):
    """The class anew, from the parents that the JSON has: what meets where, and how many switches are on the way."""
    shown = topo(machine(tmp_path, name))
    nodes = {node['id']: node for node in shown['pci']}

    def above(node):
        chain = [node]
        while nodes[chain[-1]]['parent']:
            chain.append(nodes[chain[-1]]['parent'])
        return chain

    only = len(shown['numa_nodes']) == 1
    for one in shown['pairs']:
        left, right = above(one['gpu']), above(one['nic'])
        meeting = next((node for node in left if node in right), None)
        way = set(left) ^ set(right) | {meeting}
        switches = sum(nodes[node]['kind'] == 'upstream-port' for node in way if node)
        numa = {nodes[left[0]]['numa_node'], nodes[right[0]]['numa_node']}
        if meeting and nodes[meeting]['kind'] != 'host-bridge':
            expected = 'PIX' if switches <= 1 else 'PXB'
        elif meeting:
            expected = 'PHB'
        else:
            expected = 'NODE' if only or len(numa) == 1 and None not in numa else 'SYS'
        assert one['class'] == expected, one
        assert one['reasons']
    assert len(shown['pairs']) == len(shown['gpus']) * len(shown['nics'])


def test_dgx(tmp_path):
    shown = topo(machine(tmp_path, 'dgx-h100'))
    names = {nic['id']: nic['rdma_device'] for nic in shown['nics']}
    assert [names[best(shown)[gpu['id']]] for gpu in shown['gpus']] == \
        ['mlx5_0', 'mlx5_3', 'mlx5_4', 'mlx5_5', 'mlx5_6', 'mlx5_9', 'mlx5_10', 'mlx5_11']
    assert all(one['class'] == 'PIX' and one['bottleneck_bytes_per_second'] == 50_000_000_000
               for one in shown['pairs'] if one['best'])
    gpu = shown['gpus'][0]
    assert gpu['name'] == 'NVIDIA H100 80GB HBM3' and gpu['numa_node'] == 0
    assert gpu['link'] == {'speed_mts': 32000, 'width': 16, 'bytes_per_second': 63015384608}
    assert gpu['bars'][1]['bytes'] == 128 << 30 and max(gpu['bars'][1]['resizable_to']) == 2 << 40
    assert len(shown['drives']) == 8


def test_slow_links_and_acs_and_a_port_that_is_down(tmp_path):
    shown = topo(machine(tmp_path, 'hgx-a100-cascade'))
    nodes = {node['id']: node for node in shown['pci']}
    assert {name for name, node in nodes.items() if node['degraded']} == {'0000:88:00.0', '0000:93:00.0'}
    narrow = pair(shown, '0000:85:00.0', '0000:88:00.0')
    assert narrow['bottleneck_bytes_per_second'] < narrow['possible_bytes_per_second'] == 25_000_000_000
    assert any('above 0000:88:00.0 runs at 16 GT/s x8' in reason for reason in narrow['reasons'])
    # Between the two inner switches, not between those below the same one.
    assert any('above 0000:93:00.0' in reason for reason in pair(shown, '0000:85:00.0', '0000:97:00.0')['reasons'])
    assert not any('above 0000:93:00.0' in reason for reason in pair(shown, '0000:95:00.0', '0000:97:00.0')['reasons'])
    assert any('ACS' in reason for reason in pair(shown, '0000:25:00.0', '0000:28:00.0')['reasons'])
    assert not any('ACS' in reason for reason in pair(shown, '0000:15:00.0', '0000:17:00.0')['reasons'])
    assert nodes['0000:23:00.0']['acs'] is None and nodes['0000:24:00.0']['acs']['control'] == '001d'
    # Half of a good card is less than a whole narrow one; a port that is down leaves one card for two.
    assert best(shown) == {
        '0000:15:00.0': '0000:17:00.0', '0000:16:00.0': '0000:18:00.0', '0000:25:00.0': '0000:28:00.0',
        '0000:26:00.0': '0000:28:00.0', '0000:85:00.0': '0000:87:00.0', '0000:86:00.0': '0000:88:00.0',
        '0000:95:00.0': '0000:97:00.0', '0000:96:00.0': '0000:98:00.0'}
    assert any('2 GPUs' in reason for reason in pair(shown, '0000:25:00.0', '0000:28:00.0')['reasons'])


def test_flat_virtual_machine(tmp_path):
    shown = topo(machine(tmp_path, 'h200-vm'))
    assert shown['machine']['virtual'] and {one['class'] for one in shown['pairs']} == {'PHB'}
    assert any('distances are not real' in note for note in shown['notes'])
    assert sorted(best(shown).values()) == sorted(nic['id'] for nic in shown['nics'])


def test_a_file_for_a_virtual_machine(tmp_path):
    """The file says where, the machine says what; the daemon's file is found by itself."""
    root = machine(tmp_path, 'h200-vm')
    groups = ''
    for cpu in range(2):
        groups += f'<cpu numaid="{cpu}" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">'
        for one in range(4 * cpu, 4 * cpu + 4):
            groups += (f'<pci busid="ffff:ff:{one:02x}.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">'
                       f'<pci busid="0000:00:{one + 4:02x}.0" class="0x030200" link_speed="" link_width="0"/>'
                       f'<pci busid="0000:00:{0x17 - one:02x}.0" class="0x020700" link_speed="" link_width="0"/></pci>')
        groups += '</cpu>'
    daemon = root / 'var/run/nvidia-topologyd/virtualTopology.xml'
    daemon.parent.mkdir(parents=True)
    daemon.write_text(f'<system version="1">{groups}</system>')
    shown = topo(root)
    assert shown['machine']['topology_file'] == '/var/run/nvidia-topologyd/virtualTopology.xml'
    assert best(shown) == {f'0000:00:{4 + one:02x}.0': f'0000:00:{0x17 - one:02x}.0' for one in range(8)}
    assert [nic['rdma_device'] for nic in shown['nics']] == [f'mlx5_{7 - one}' for one in range(8)]
    assert shown['gpus'][5]['driver'] == 'nvidia' and shown['gpus'][5]['numa_node'] == 1
    assert not any('distances are not real' in note for note in shown['notes'])
    daemon.write_text('<system><cpu numaid="0"><pci busid="0000:00:04.0" class="0x030200"/></cpu></system>')
    assert any(note.startswith('15 of the GPUs and cards') for note in topo(root)['notes'])
    # As on Azure: what NCCL itself would follow comes first.
    (root / 'etc').mkdir()
    (root / 'etc/nccl.conf').write_text('# NCCL\nNCCL_DEBUG=WARN\n NCCL_TOPO_FILE = /opt/maker/topo.xml # ours\n')
    assert topo(root)['machine']['topology_file'] == '/var/run/nvidia-topologyd/virtualTopology.xml'
    (root / 'opt/maker').mkdir(parents=True)
    (root / 'opt/maker/topo.xml').write_text(f'<system version="1">{groups}</system>')
    assert topo(root)['machine']['topology_file'] == '/opt/maker/topo.xml' and best(topo(root)) == best(shown)
    dump = tmp_path / 'dump.tar'
    run('dump', '--sysroot', root, '--output', dump)
    assert best(topo(dump)) == best(shown)


@pytest.mark.parametrize('name', FILES)
def test_files_of_others(tmp_path, name):
    """The expected pairs are written at the head of each file: GPU CARD CLASS."""
    (tmp_path / 'sys').mkdir()
    path = FOLDER / f'{name}.xml'
    shown = topo(tmp_path, '--nccl-topology', path)
    wanted = re.findall(r'^ *best (\S+) (\S+) (\S+)$', path.read_text(), re.MULTILINE)
    assert wanted and [(one['gpu'], one['nic'], one['class']) for one in shown['pairs'] if one['best']] == wanted
    assert any('none of its devices exists here' in note for note in shown['notes'])


def of_file(folder, content):
    """What a topology file with this content shows, of a machine that is not here."""
    (folder / 'sys').mkdir(exist_ok=True)
    path = folder / 'file.xml'
    path.write_text(f'<system version="1">{content}</system>')
    return topo(folder, '--nccl-topology', path)


def pci(address, inner='', class_='', link='16.0 GT/s PCIe', width=16, **more):
    more = ''.join(f' {name}="{value}"' for name, value in more.items())
    return (f'<pci busid="{address}" class="{class_}" link_speed="{link}" link_width="{width}"{more}>{inner}</pci>')


NET = '<nic><net name="{}" dev="0" speed="100000" port="{}" guid="{}" gdr="{}"/></nic>'


def test_files_count_what_can_rdma(tmp_path):
    """AWS's files give EFA the GUID 0, and NCCL gives the second socket the GUID 1: ports tell the two apart."""
    shown = of_file(tmp_path, '<cpu numaid="0">' + pci('0000:01:00.0', class_='0x060400', inner=(
        pci('0000:02:00.0', '<gpu dev="0"/>', '0x030200') + pci('0000:03:00.0', NET.format('rdmap3s0', 1, 0, 1), '0x020000') +
        pci('0000:04:00.0', NET.format('eth1', 0, '0x1', 0), '0x020000'))) + '</cpu>')
    assert [nic['rdma_device'] for nic in shown['nics']] == ['rdmap3s0'] and shown['pairs'][0]['class'] == 'PIX'


def test_files_that_say_little(tmp_path):
    """Switches are known by what is below them, and GPUs and cards by what is in them."""
    shown = of_file(tmp_path, '<cpu numaid="0">' + pci('00000000:01:00.0', (
        pci('0000:02:00.0', '<gpu dev="0"/>') + pci('0000:03:00.0', NET.format('mlx5_0', 1, '0x5', 1)))) +
        pci('0000:04:00.0') + '</cpu>')
    assert [(one['gpu'], one['nic'], one['class']) for one in shown['pairs']] == [('0000:02:00.0', '0000:03:00.0', 'PIX')]
    assert next(node['kind'] for node in shown['pci'] if node['id'] == '0000:01:00.0') == 'upstream-port'
    assert any('the type of 1 device' in note for note in shown['notes'])


def test_files_of_several_hosts_and_ranks(tmp_path):
    """With NVLink between hosts, a file has those of all; with several ranks on a GPU, that is there as often."""
    ranks = '<gpu dev="0" rank="0"/><gpu dev="0" rank="1"/>'
    host = '<cpu numaid="{}" host_hash="{}">' + pci('0009:06:00.0', ranks, '0x030200') + '</cpu>'
    shown = of_file(tmp_path, host.format(0, '0x1') + host.format(0, '0x2'))
    assert [gpu['id'] for gpu in shown['gpus']] == ['0009:06:00.0'] and len(shown['numa_nodes']) == 1
    assert any('several hosts' in note for note in shown['notes'])


def test_files_with_the_same_address_twice(tmp_path):
    """AMD has some: for a switch it is only a name, a device counts where it is first."""
    gpu = pci('0000:02:00.0', '<gpu dev="0"/>', '0x030200')
    card = pci('0000:0{}:00.0', NET.format('mlx5_{}', 1, '0x5', 1), '0x020700')
    one = pci('0000:01:00.0', gpu + card.format(3, 3), '0x060400')
    other = pci('0000:01:00.0', card.format(4, 4) + gpu, '0x060400')
    shown = of_file(tmp_path, f'<cpu numaid="0">{one}</cpu><cpu numaid="1">{other}</cpu>')
    assert [(pair['nic'], pair['class']) for pair in shown['pairs']] == [('0000:03:00.0', 'PIX'), ('0000:04:00.0', 'SYS')]
    assert any('lists 1 device twice' in note for note in shown['notes'])


def test_links_that_qemu_makes_up_are_no_bottleneck(tmp_path):
    """IBM's file for H100 machines: below switches of QEMU, whose ports say 2.5 GT/s x1."""
    def side(number):
        below = (pci(f'0000:{number}3:00.0', NET.format(f'mlx5_{number}', 1, '0x5', 1), '0x020000', '32.0 GT/s PCIe', 0) +
                 pci(f'0000:{number}4:00.0', f'<gpu dev="{number}"/>', '0x030200', '32.0 GT/s PCIe', 0))
        return (f'<cpu numaid="{number}">' + pci(f'0000:{number}1:00.0', below, '0x060400', '2.5 GT/s PCIe', 1,
                                                vendor='0x104c', device='0x8232') + '</cpu>')

    shown = of_file(tmp_path, side(0) + side(1))
    assert {one['bottleneck_bytes_per_second'] for one in shown['pairs']} == {12_500_000_000}


def test_the_variable_counts_in_virtual_machines_only(tmp_path):
    """It is about this machine, so it has no say about another root."""
    root = machine(tmp_path, 'dgx-h100')
    assert run_json('topo', '--sysroot', root, NCCL_TOPO_FILE='/no/such/file')['machine']['topology_file'] is None


def test_json_names_format_and_machine(tmp_path):
    shown = run_json('topo', SLURMD_NODENAME='', NODE_NAME='node7')
    assert (shown['format'], shown['kind'], shown['host']) == (1, 'topo', 'node7') and re.fullmatch(r'[0-9.]+', shown['version'])
    assert run_json('topo', SLURMD_NODENAME='', NODE_NAME='')['host'] == os.uname().nodename
    # A description of another machine has no name.
    assert topo(machine(tmp_path, 'dgx-h100'))['host'] is None


@pytest.mark.parametrize('text, error', [
    ('', 'NCCL-FILE-SYNTAX'), ('<system>', 'NCCL-FILE-SYNTAX'), ('<graphs/>', 'NCCL-FILE-SYNTAX'),
    ('<system/>', 'NCCL-FILE-SYNTAX'), ('<system>' + '<a>' * 100, 'NCCL-FILE-SYNTAX'),
    ('<!DOCTYPE a [<!ENTITY b "c">]><system/>', 'NCCL-FILE-SYNTAX'),
    ('<system><pci busid="0000:00:00.0"/></system>', 'NCCL-FILE-SYNTAX'),
    ('<system><cpu><pci busid="nonsense"/></cpu></system>', 'NCCL-FILE-SYNTAX'),
    ('<!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology/>', 'NCCL-FILE-SYNTAX')])
def test_bad_files(tmp_path, text, error):
    path = tmp_path / 'bad.xml'
    path.write_text(text)
    done = run('topo', '--nccl-topology', path, '--json', expect=1)
    assert json.loads(done.stdout)['error']['id'] == error and str(path) in done.stderr


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / 'fifo')
    for path in [tmp_path, tmp_path / 'none', tmp_path / 'fifo']:
        assert '[NCCL-FILE-OPEN]' in run('topo', '--nccl-topology', path, expect=1).stderr
    assert '[SYSROOT-OPEN]' in run('topo', '--sysroot', tmp_path / 'none', expect=1).stderr


BASIC = 'numa 0 cpus=0-7\npci0000:00 numa=0\n'
GPU = '  0000:00:01.0 port link=16x16\n    0000:01:00.0 gpu id=10de:20b2 link=16x16\n'


def test_machines_with_less(tmp_path):
    nothing = described(tmp_path, BASIC)
    assert not nothing['gpus'] and not nothing['nics'] and len(nothing['notes']) == 2
    gpu_only = described(tmp_path, BASIC + GPU)
    assert len(gpu_only['gpus']) == 1 and not gpu_only['pairs']
    card_only = described(tmp_path, BASIC + '  0000:00:02.0 nic id=15b3:1003 rdma=mlx4_0 type=MT4099')
    assert card_only['nics'][0]['rdma_device'] == 'mlx4_0' and not card_only['pairs']
    empty = tmp_path / 'empty'
    empty.mkdir()
    assert not topo(empty)['pci']


def test_what_is_no_gpu_and_no_card(tmp_path):
    shown = described(tmp_path, BASIC + '''
  0000:00:02.0 gpu id=8086:4680 class=030000
  0000:00:03.0 port
    0000:02:00.0 gpu id=1a03:2000 class=030000
  0000:00:04.0 port
    0000:03:00.0 gpu id=10de:22a3 class=068000
  0000:00:05.0 nic id=8086:1521
  0000:00:06.0 gpu id=1002:74a1 class=120000
  0000:00:07.0 port
    0000:04:00.0 nic id=15b3:1021 rdma=mlx5_0
    0000:04:00.1 nic id=15b3:101e virtual=0000:04:00.0
''')
    assert [gpu['id'] for gpu in shown['gpus']] == ['0000:00:06.0'] and shown['gpus'][0]['vendor'] == 'amd'
    assert [nic['id'] for nic in shown['nics']] == ['0000:04:00.0']


@pytest.mark.parametrize('number', ['14e4:1750', '8086:1592', '1dd8:1002', '1414:00ba'])
def test_cards_that_could_do_rdma(tmp_path, number):
    """Without a driver they are missed; with one, and content with Ethernet, they are none."""
    text = BASIC + f'  0000:00:02.0 nic id={number}'
    assert [nic['rdma_device'] for nic in described(tmp_path, text)['nics']] == [None]
    assert not described(tmp_path, text + ' driver=some')['nics']


def test_a_card_without_a_driver(tmp_path):
    shown = described(tmp_path, BASIC + GPU + '  0000:00:02.0 port\n    0000:02:00.0 nic id=15b3:1017\n')
    assert shown['nics'][0]['rdma_device'] is None and not shown['pairs'][0]['usable']
    assert any('no driver is bound' in reason for reason in shown['pairs'][0]['reasons'])


def test_a_far_card_that_works_is_better_than_a_near_one_that_does_not(tmp_path):
    text = '''numa 0 cpus=0-7
numa 1 cpus=8-15
pci0000:00 numa=0
  0000:00:01.0 port
    0000:01:00.0 gpu id=10de:20b2 link=16x16
  0000:00:02.0 port
    0000:02:00.0 nic id=15b3:1021 rdma=mlx5_0 STATE link=NEAR
pci0000:80 numa=1
  0000:80:01.0 port
    0000:81:00.0 nic id=15b3:1021 rdma=mlx5_1 rate=200 link=16x16
'''
    near, far = '0000:02:00.0', '0000:81:00.0'
    for state, link, expected in [('state=ACTIVE', '16x16', near), ('state=DOWN', '16x16', far),
                                  ('state=ACTIVE', '16x8/16x16', near), ('state=ACTIVE', '5x4/16x16', far)]:
        shown = described(tmp_path, text.replace('STATE', state).replace('NEAR', link))
        assert list(best(shown).values()) == [expected], (state, link)
        assert pair(shown, '0000:01:00.0', far)['class'] == 'SYS'
        if expected == far:
            assert any(reason.startswith('mlx5_0 is nearer') for reason in
                       pair(shown, '0000:01:00.0', far)['reasons'])


def test_devices_of_software_are_the_last_resort(tmp_path):
    text = BASIC + GPU + '  0000:00:02.0 nic id=8086:1521 net=eth0\nrdma rxe0 over=0000:00:02.0 layer=Ethernet rate=2.5\n'
    alone = described(tmp_path, text)
    assert alone['nics'][0]['software'] and alone['pairs'][0]['best'] and alone['pairs'][0]['class'] == 'PHB'
    assert alone['nics'][0]['net_devices'][0]['name'] == 'eth0'
    both = described(tmp_path, text + 'pci0000:80 numa=0\n  0000:80:01.0 nic id=15b3:1021 rdma=mlx5_0\n')
    assert list(best(both).values()) == ['0000:80:01.0']


def test_an_idle_gpu_is_no_defect(tmp_path):
    shown = topo(machine(tmp_path, 'epyc'))
    idle = next(gpu for gpu in shown['gpus'] if gpu['id'] == '0000:21:00.0')
    assert idle['idle'] and not idle['degraded'] and not any('Slow' in note for note in shown['notes'])
    assert pair(shown, '0000:21:00.0', '0000:41:00.0')['bottleneck_bytes_per_second'] == 12_500_000_000


def apart(boxes):
    """No two boxes lie over each other."""
    return all(x >= other_x + other_width or other_x >= x + width or y >= other_y + other_height or other_y >= y + height
               for number, (x, y, width, height) in enumerate(boxes)
               for other_x, other_y, other_width, other_height in boxes[:number])


def wide_machine(nodes, switches, devices, below=False):
    """NUMA nodes with switches, each with GPUs and as many cards; `below`: the switches are below one host bridge."""
    text = ''.join(f'numa {node} cpus={node * 8}-{node * 8 + 7}\n' for node in range(nodes))
    for node in range(nodes):
        for switch in range(switches):
            bus = 16 * node + 2 * switch
            if not switch or not below:
                text += f'pci{node:04x}:{0 if below else bus:02x} numa={node}\n'
            text += f' {node:04x}:{0 if below else bus:02x}:{switch:02x}.1 port link=32x16\n  {node:04x}:{bus:02x}:1f.0 switch link=32x16\n'
            for device in range(devices):
                text += (f'   {node:04x}:{bus + 1:02x}:{device % 32:02x}.{device // 32} gpu id=10de:2330 link=32x16\n'
                         f'   {node:04x}:{bus + 1:02x}:{device % 32:02x}.{4 + device // 32} nic id=15b3:1021 rdma=m{bus:02x}_{node}_{device}\n')
    return text


WIDE = {'16-gpus': (4, 2, 2), 'one-bridge': (2, 8, 2, True), '8-nodes': (8, 1, 1), 'many-bridges': (1, 8, 1), 'many-devices': (1, 1, 40)}


@pytest.mark.parametrize('name', [*MACHINES, *WIDE])
def test_pictures_are_whole(tmp_path, name):
    """All GPUs and cards are there, no two boxes lie over each other, and nothing is outside.

    A window of 1,400 px shows the text in its size."""
    root = machines.build(tmp_path / 'root', wide_machine(*WIDE[name])) if name in WIDE else machine(tmp_path / 'root', name)
    shown = topo(root)
    run('topo', '--sysroot', root, '--svg', tmp_path / 'a.svg', '--html', tmp_path / 'a.html')
    svg = ElementTree.fromstring((tmp_path / 'a.svg').read_text())
    space = '{http://www.w3.org/2000/svg}'
    boxes = [[int(box.get(side)) for side in ('x', 'y', 'width', 'height')] for box in svg.iter(f'{space}rect')
             if box.get('class') in ('gpu', 'card', 'card off', 'drive', 'bar')]
    panels = [[int(box.get(side)) for side in ('x', 'y', 'width', 'height')] for box in svg.iter(f'{space}rect')
              if box.get('class') == 'panel']
    texts = [text.text for text in svg.iter(f'{space}text')]
    for gpu in shown['gpus']:
        assert f'GPU {gpu["index"]}' in texts
    for nic in shown['nics']:
        assert (nic['rdma_device'] or 'card') in texts
    for x, y, width, height in boxes + panels:
        assert x >= 0 and y >= 0 and x + width <= int(svg.get('width')) and y + height <= int(svg.get('height'))
    assert apart(boxes) and apart(panels) and int(svg.get('width')) <= 1400
    assert all(any(px <= x and py <= y and x + width <= px + pwidth and y + height <= py + pheight
                   for px, py, pwidth, pheight in panels) for x, y, width, height in boxes)
    page = (tmp_path / 'a.html').read_text()
    assert '<svg' in page and not re.search(r'(src|href)=', page) and 'prefers-color-scheme:dark' in page


def test_a_picture_cannot_be_written(tmp_path):
    assert '[SYSTEM]' in run('topo', '--svg', tmp_path / 'no/such', expect=1).stderr
    assert run('topo', '--svg', '-').stdout.startswith('<?xml')
    assert '/dev/full: write: No space left on device' in run('topo', '--svg', '/dev/full', expect=1).stderr


def test_a_full_disk_leaves_the_old_page(tmp_path):
    """A limit of the size of files stands in for the full disk."""
    page = tmp_path / 'a.html'
    page.write_text('old')
    result = subprocess.run(['sh', '-c', 'ulimit -f 1; exec "$0" topo --html "$1"', PEERLANE, page], env=environment(), check=False,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
    assert result.returncode == 1 and 'a.html: write: File too large' in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ['a.html'] and page.read_text() == 'old'


def test_a_page_keeps_its_mode(tmp_path):
    page = tmp_path / 'a.html'
    page.write_text('old')
    page.chmod(0o600)
    run('topo', '--html', page)
    assert page.stat().st_mode & 0o777 == 0o600 and page.read_text() != 'old'


def test_nothing_that_sysfs_holds_breaks_it(tmp_path):
    """Files with nonsense in them, and folders where files should be."""
    source = random.Random(1)
    root = machine(tmp_path, 'hgx-a100-cascade')
    files = sorted(path for path in root.rglob('*') if path.is_file() and not path.is_symlink())
    for number in range(40):
        for path in source.sample(files, 60):
            if path.is_file():
                path.write_bytes(source.choice([b'', b'\0' * 64, b'9' * 300, b'<&">\x1b[31m\xff', b'-1\n', b'0xffffffff\n',
                                                source.randbytes(source.choice([1, 100, 5000]))]))
        shown = topo(root)
        assert len(shown['pairs']) == len(shown['gpus']) * len(shown['nics'])
        if number % 10 == 0:
            ElementTree.fromstring(run('topo', '--sysroot', root, '--svg', '-').stdout)
            assert '\x1b' not in run('topo', '--sysroot', root).stdout
            run('topo', '--tree', '--sysroot', root)


def test_links_in_circles(tmp_path):
    root = machine(tmp_path, 'epyc')
    devices = root / 'sys/bus/pci/devices'
    (devices / '0000:21:00.0').unlink()
    (devices / '0000:21:00.0').symlink_to('0000:21:00.0')
    (devices / '0000:41:00.0').unlink()
    (devices / '0000:41:00.0').symlink_to('../../../../../../../../../../../../etc')
    assert [gpu['id'] for gpu in topo(root)['gpus']] == ['0000:a1:00.0']


@pytest.mark.parametrize('name, grouped', [('qemu-iommu-off', False), ('qemu-iommu-on', True),
                                           ('qemu-iommu-passthrough', True)])
def test_groups_of_the_iommu(tmp_path, name, grouped):
    shown = topo(machine(tmp_path, name))
    for device in shown['gpus'] + shown['nics']:
        assert (device['iommu_group'] is not None) == (device['iommu_type'] is not None) == grouped
