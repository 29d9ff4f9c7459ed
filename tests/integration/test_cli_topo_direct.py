# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane topo`: cards that reach GPU memory by a Data Direct function, which has a place of its own in the PCI tree."""
import machines
from cli_support import run, run_json

# The card is far from the GPU, its Data Direct function beside it. Another card is nearer than the first one.
MACHINE = '''numa 0 cpus=0-7
numa 1 cpus=8-15
pci0000:00 numa=0
  0000:00:01.0 port link=32x16
    0000:01:00.0 nic id=15b3:1023 rdma=mlx5_0 rate=800 link=32x16
pci0000:80 numa=1
  0000:80:01.0 port link=64x16
    0000:81:00.0 switch link=64x16
      0000:82:00.0 port link=64x16
        0000:83:00.0 gpu id=10de:2901 link=64x16
      0000:82:01.0 port link=64x16
        0000:84:00.0 nic id=15b3:2100 link=64x16
  0000:80:02.0 port link=32x16
    0000:85:00.0 nic id=15b3:1023 rdma=mlx5_1 rate=400 link=32x16
'''
FUNCTION = '/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0'


def build(folder, facts=None):
    root = machines.build(folder, MACHINE)
    if facts:
        (root / 'peerlane').mkdir()
        (root / 'peerlane/facts').write_text(facts)
    return root


def topo(root, *arguments):
    return run_json('topo', '--numeric', '--sysroot', root, *arguments)


def pair(shown, nic):
    return next(one for one in shown['pairs'] if one['nic'] == nic)


def test_place_of_the_function(tmp_path):
    """Class, rate and choice are those of the function, not of the card."""
    plain = topo(build(tmp_path / 'plain'))
    assert [nic['data_direct'] for nic in plain['nics']] == [None, None]
    assert (pair(plain, '0000:01:00.0')['class'], pair(plain, '0000:85:00.0')['class']) == ('SYS', 'PHB')
    assert pair(plain, '0000:85:00.0')['best']
    root = build(tmp_path / 'direct', f'verbs.device.mlx5_0.data-direct {FUNCTION}\n')
    shown = topo(root)
    # The function is no card.
    assert {nic['rdma_device']: nic['data_direct'] for nic in shown['nics']} == {'mlx5_0': '0000:84:00.0', 'mlx5_1': None}
    near = pair(shown, '0000:01:00.0')
    assert near['class'] == 'PIX' and near['best'] and not pair(shown, '0000:85:00.0')['best']
    assert near['bottleneck_bytes_per_second'] == 100_000_000_000 > pair(plain, '0000:01:00.0')['bottleneck_bytes_per_second']
    assert 'the card reaches the GPU\'s memory by its Data Direct function, 0000:84:00.0' in near['reasons']
    assert pair(shown, '0000:85:00.0') == pair(plain, '0000:85:00.0') | {'best': False, 'reasons': pair(shown, '0000:85:00.0')['reasons']}
    assert any(note.startswith('mlx5_0 reaches GPU memory by its Data Direct function 0000:84:00.0') for note in shown['notes'])


def test_texts(tmp_path):
    root = build(tmp_path, f'verbs.device.mlx5_0.data-direct {FUNCTION}\n')
    tree = run('topo', '--tree', '--numeric', '--sysroot', root).stdout
    line = next(line for line in tree.splitlines() if '0000:84:00.0' in line)
    assert 'Data Direct of mlx5_0' in line
    assert 'best card mlx5_0, PIX' in tree
    matrix = run('topo', '--numeric', '--sysroot', root).stdout
    assert 'PIX*' in matrix and 'Data Direct function 0000:84:00.0' in matrix


def test_function_outside_the_tree(tmp_path):
    """A function that sysfs shows nowhere else is added, with the ports above it; a wrong path changes nothing."""
    root = build(tmp_path / 'other', 'verbs.device.mlx5_0.data-direct /sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0\n')
    shown = topo(root)
    assert shown['nics'][0]['data_direct'] == '0000:41:00.0' and pair(shown, '0000:01:00.0')['class'] == 'SYS'
    assert {'pci0000:40', '0000:40:01.0', '0000:41:00.0'} <= {node['id'] for node in shown['pci']}
    for i, wrong in enumerate(['', ' ', '/', '/sys/devices', '../../etc', 'x' * 300]):
        shown = topo(build(tmp_path / str(i), f'verbs.device.mlx5_0.data-direct {wrong}\n'))
        assert shown['nics'][0]['data_direct'] is None and pair(shown, '0000:01:00.0')['class'] == 'SYS'


def test_wrong_devices(tmp_path):
    """A host bridge, a GPU or a card is no Data Direct function."""
    above = '/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0'
    wrong = ['/sys/devices/pci0000:80', f'{above}/0000:83:00.0', '/sys/devices/pci0000:80/0000:80:02.0/0000:85:00.0',
             '/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0']
    for i, path in enumerate(wrong):
        shown = topo(build(tmp_path / str(i), f'verbs.device.mlx5_0.data-direct {path}\n'))
        assert shown['nics'][0]['data_direct'] is None and pair(shown, '0000:01:00.0')['class'] == 'SYS'
        assert not any('Data Direct' in note for note in shown['notes'])


# NCCL's form of the machine, without the Data Direct function.
FILE = '''<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:01:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" speed="800000" port="1"/></nic></pci>
  </cpu>
  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:81:00.0" class="0x060400" link_speed="64.0 GT/s PCIe" link_width="16">
      <pci busid="0000:83:00.0" class="0x030200" link_speed="64.0 GT/s PCIe" link_width="16"/>
    </pci>
  </cpu>
</system>
'''


def test_file_without_the_function(tmp_path):
    """Distances begin at the device above the function, which is not called the function."""
    root = build(tmp_path / 'root', f'verbs.device.mlx5_0.data-direct {FUNCTION}\n')
    file = tmp_path / 'topo.xml'
    file.write_text(FILE)
    shown = topo(root, '--nccl-topology', file)
    near = pair(shown, '0000:01:00.0')
    assert near['class'] == 'PIX' and shown['nics'][0]['data_direct'] is None
    assert "the card reaches the GPU's memory by its Data Direct function, below 0000:81:00.0" in near['reasons']
    assert any('Data Direct function below 0000:81:00.0' in note for note in shown['notes'])
    tree = run('topo', '--tree', '--numeric', '--sysroot', root, '--nccl-topology', file).stdout
    assert 'Data Direct of' not in tree


def test_silent_driver(tmp_path):
    """A note tells that the process that asks for the functions did not end well; without such a fact there is none."""
    for state in 'hangs', 'crashed with signal 11', 'not started':
        notes = topo(build(tmp_path / state, f'verbs.state {state}\n'))['notes']
        assert any(note.startswith('Data Direct functions of the cards are unknown') and state in note for note in notes)
    notes = topo(build(tmp_path / 'device', 'verbs.state done\nverbs.device.mlx5_0.open 110\n'))['notes']
    assert any('are unknown' in note and 'no answer about mlx5_0' in note for note in notes)
    for name, facts in ('done', 'verbs.state done\n'), ('none', None):
        assert not any('Data Direct' in note for note in topo(build(tmp_path / name, facts))['notes'])


def test_check(tmp_path):
    """The path rows of `peerlane check` follow, and a dump keeps the place."""
    root = build(tmp_path / 'a', f'verbs.device.mlx5_0.data-direct {FUNCTION}\n')
    dump = tmp_path / 'dump.tar'
    run('dump', '--sysroot', root, '--output', dump)
    for source in root, dump:
        rows = run_json('check', '--sysroot', source, expect=None)['checks']
        best = next(row for row in rows if row['id'] == 'path-class')
        assert 'mlx5_0' in str(best) and 'PIX' in str(best)
        assert topo(source)['nics'][0]['data_direct'] == '0000:84:00.0'
