# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane topo`: NVLink and xGMI between GPUs, from facts of NVML, the kernel's files and topology files."""
import json
import pathlib
import tarfile

import machines
import pytest
from cli_support import PEERLANE, run, run_json

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'topology'
STANDINS = pathlib.Path(PEERLANE).parent / 'tests'


def nvml(address, links, capability=90):
    """Facts of a GPU, as NVML's probe writes them; links: their values in order."""
    name = f'nvml.gpu.{address}'
    return [f'{name}.mig 0', f'{name}.capability {capability}',
            *(f'{name}.nvlink.{i} {value}' for i, value in enumerate(links))]


def write_facts(root, lines):
    (root / 'peerlane').mkdir(exist_ok=True)
    (root / 'peerlane/facts').write_text('\n'.join(lines) + '\n')
    return root


def dgx(folder, broken=()):
    """Eight GPUs with 18 links to four switches each; GPUs with numbers in `broken` have two links that are down."""
    root = machines.make(folder, FOLDER / 'dgx-h100.machine')
    facts = []
    for i, gpu in enumerate(topo(root)['gpus']):
        values = [f'up 6 switch 0000:0{5 + link % 4}:00.0' for link in range(18)]
        facts += nvml(gpu['id'], ['down'] * 2 + values[2:] if i in broken else values)
    return write_facts(root, facts)


TWO = '''numa 0 cpus=0-7
pci0000:00 numa=0
  0000:00:01.0 port
    0000:01:00.0 gpu id=10de:2335
pci0000:80 numa=1
  0000:80:01.0 port
    0000:81:00.0 gpu id=10de:2335
'''


def two(folder, left, right, **options):
    root = machines.build(folder, TWO)
    return write_facts(root, nvml('0000:01:00.0', left, **options) + nvml('0000:81:00.0', right, **options))


def topo(root, *arguments):
    return run_json('topo', '--numeric', '--sysroot', root, *arguments)


def matrix(root, *arguments):
    return run('topo', '--numeric', '--sysroot', root, *arguments).stdout


def row(text, head):
    """The words of the line that begins with these."""
    return next(line.split()[len(head.split()):] for line in text.splitlines() if line.split()[:len(head.split())] == head.split())


def test_links_to_switches(tmp_path):
    shown, text = topo(dgx(tmp_path / 'a')), matrix(tmp_path / 'a')
    assert len(shown['gpu_pairs']) == 28
    assert {(one['through'], one['links'], one['bytes_per_second']) for one in shown['gpu_pairs']} == \
        {('switches', 18, 450_000_000_000)}
    assert {one['class'] for one in shown['gpu_pairs']} == {'NODE', 'SYS'}
    links = shown['gpus'][0]['links']
    assert {one['remote']: one['active'] for one in links} == \
        {'0000:05:00.0': 5, '0000:06:00.0': 5, '0000:07:00.0': 4, '0000:08:00.0': 4}
    assert {(one['kind'], one['generation'], one['to'], one['down'], one['hops']) for one in links} == \
        {('nvlink', 4, 'switch', 0, 1)}
    assert row(text, '0 1b:00.0') == ['X'] + ['NV18'] * 7 and row(text, '7 df:00.0') == ['NV18'] * 7 + ['X']
    assert ['18', 'NVLink', '4', '450', 'GB/s', 'switches'] in [line.split()[1:] for line in text.splitlines()]
    assert 'working NVLink' not in text and 'NV or XGMI' in text


def test_links_that_are_down(tmp_path):
    root = dgx(tmp_path / 'a', broken=[3])
    shown, text = topo(root), matrix(root)
    links = {(one['gpu'], one['peer']): one['links'] for one in shown['gpu_pairs']}
    bad = shown['gpus'][3]['id']
    assert {count for pair, count in links.items() if bad in pair} == {16}
    assert {count for pair, count in links.items() if bad not in pair} == {18}
    assert sum(one['down'] for one in shown['gpus'][3]['links']) == 2
    assert 'GPU 3 has 16 working NVLink links, another GPU has 18.' in shown['notes']
    assert '16 NVLink 4, 2 down' in text and row(text, '3 61:00.0')[:4] == ['NV16', 'NV16', 'NV16', 'X']


def test_direct_links(tmp_path):
    """Each value names the other GPU. The path over PCI stays in the JSON."""
    root = two(tmp_path / 'a', ['up 6 gpu 0000:81:00.0'] * 18, ['up 6 gpu 0000:01:00.0'] * 18)
    shown, text = topo(root), matrix(root)
    assert shown['gpu_pairs'] == [{'gpu': '0000:01:00.0', 'peer': '0000:81:00.0', 'class': 'SYS', 'through': 'links',
                                   'links': 18, 'bytes_per_second': 450_000_000_000}]
    assert row(text, '0 01:00.0') == ['X', 'NV18'] and row(text, '1 81:00.0') == ['NV18', 'X']
    assert row(text, '0 18') == ['NVLink', '4', '450', 'GB/s', 'GPU', '1']
    # Without cards, and with --quiet, the matrix is all.
    assert matrix(root, '--quiet').splitlines()[0].split() == ['GPU', 'GPU0', 'GPU1']
    page = matrix(root, '--html', '-')
    assert '<th>GPU 1</th>' in page and '"18 NVLink links; over PCI: SYS">NV18<br><small>450 GB/s</small></td>' in page
    assert '18 NVLink 4 to GPU 1' in matrix(root, '--svg', '-')


def test_one_matrix_if_it_fits(tmp_path):
    root = machines.build(tmp_path / 'a', TWO + '  0000:80:02.0 nic id=15b3:1021 rdma=mlx5_0\n')
    write_facts(root, nvml('0000:01:00.0', ['up 6 gpu 0000:81:00.0'] * 4))
    text = matrix(root)
    assert row(text, '0 01:00.0') == ['X', 'NV4', 'SYS*'] and 'GPU GPU0 GPU1 mlx5_0' in ' '.join(text.split())


@pytest.mark.parametrize('facts', [[], ['nvml.gpu.0000:01:00.0.mig 0'], nvml('0000:01:00.0', []),
                                   nvml('0000:01:00.0', ['nonsense', 'up', 'up x y z', 'up 6 gpu'])])
def test_without_links(tmp_path, facts):
    """No NVML, an old one, GPUs without NVLink, and answers that are none: the matrix has the classes of PCI."""
    root = write_facts(machines.build(tmp_path / 'a', TWO), facts)
    shown, text = topo(root), matrix(root)
    assert [(one['through'], one['links'], one['class']) for one in shown['gpu_pairs']] == [('pci', 0, 'SYS')]
    assert not any(gpu['links'] for gpu in shown['gpus'])
    assert row(text, '0 01:00.0') == ['X', 'SYS'] and 'NVLink' not in text and 'NV or XGMI' not in text


def test_an_old_driver_does_not_name_switches(tmp_path):
    """The PCI class of the other end does, and a dump keeps it."""
    root = two(tmp_path / 'a', ['up 4 unknown 0000:c4:00.0'] * 12, ['up 4 unknown 0000:c4:00.0'] * 12, capability=80)
    assert topo(root)['gpu_pairs'][0]['through'] == 'pci'
    machines.Builder(root).put('sys/bus/pci/devices/0000:c4:00.0/class', '0x068000')
    run('dump', '--sysroot', root, '--output', tmp_path / 'dump.tar')
    for place in [root, tmp_path / 'dump.tar']:
        assert [(one['through'], one['links']) for one in topo(place)['gpu_pairs']] == [('switches', 12)]
        assert topo(place)['gpus'][0]['links'][0]['generation'] == 3


def test_dump_keeps_nvlinks(tmp_path):
    root = dgx(tmp_path / 'a', broken=[5])
    run('dump', '--sysroot', root, '--output', tmp_path / 'dump.tar')
    here, there = topo(root), topo(tmp_path / 'dump.tar')
    assert here['gpu_pairs'] == there['gpu_pairs'] and [gpu['links'] for gpu in here['gpus']] == [gpu['links'] for gpu in there['gpus']]


def asked(folder, library, description):
    """The facts of NVML that a dump of this machine has, with a stand-in."""
    if not (library / 'libnvidia-ml.so.1').exists():
        pytest.skip(f'{library}/libnvidia-ml.so.1 is not built')
    run('dump', '--output', folder / 'x.tar', LD_LIBRARY_PATH=str(library), NVML_STANDIN=description)
    with tarfile.open(folder / 'x.tar') as opened:
        lines = opened.extractfile('peerlane/facts').read().decode().splitlines()
    return dict(line.split(' ', 1) for line in lines if line.startswith('nvml.'))


def test_questions_to_nvml(tmp_path):
    facts = asked(tmp_path, STANDINS, '0000:01:00.0 90 2,6,2,0000:05:00.0 1,6,2,- 1,down;0009:06:00.0 100 1,7,0,0000:01:00.0')
    assert facts['nvml.state'] == 'done' and facts['nvml.gpu.0000:01:00.0.capability'] == '90'
    assert {key.removeprefix('nvml.gpu.'): value for key, value in facts.items() if 'nvlink' in key} == {
        '0000:01:00.0.nvlink.0': 'up 6 switch 0000:05:00.0', '0000:01:00.0.nvlink.1': 'up 6 switch 0000:05:00.0',
        '0000:01:00.0.nvlink.2': 'up 6 switch -', '0000:01:00.0.nvlink.3': 'down',
        '0009:06:00.0.nvlink.0': 'up 7 gpu 0000:01:00.0'}


def test_an_old_driver_has_no_nvlink(tmp_path):
    facts = asked(tmp_path, STANDINS / 'nvml/old', '0000:01:00.0 90 2,6,2,0000:05:00.0')
    assert facts['nvml.state'] == 'done' and facts['nvml.gpu.0000:01:00.0.mig'] == '0'
    assert not any('nvlink' in key or 'capability' in key for key in facts)


# -- topology files --------------------------------------------------------------------------------------------------

def of_file(folder, *gpus):
    """A topology file with GPUs: address, attributes of <gpu>, elements in it."""
    (folder / 'sys').mkdir(exist_ok=True)
    content = ''.join(f'<pci busid="{address}" class="0x030200"><gpu dev="0" {attributes}>{inner}</gpu></pci>'
                      for address, attributes, inner in gpus)
    (folder / 'file.xml').write_text(f'<system version="1"><cpu numaid="0">{content}</cpu></system>')
    return topo(folder, '--nccl-topology', folder / 'file.xml')


def link(target, count, tclass='0x068000', element='nvlink'):
    return f'<{element} target="{target}" count="{count}" tclass="{tclass}"/>'


def test_files_with_links_to_switches(tmp_path):
    """The last address is that of NCCL for switches that a virtual machine does not see."""
    shown = of_file(tmp_path, ('0000:01:00.0', 'sm="90"', link('0000:D0:00.0', 10) + link('0000:d1:00.0', 8)),
                    ('0000:02:00.0', 'sm="90"', link('fffffff:ff:ff.0', 18)), ('0000:03:00.0', 'sm="90"', ''))
    assert [(one['through'], one['links'], one['bytes_per_second']) for one in shown['gpu_pairs']] == \
        [('switches', 18, 450_000_000_000), ('pci', 0, None), ('pci', 0, None)]
    assert [one['remote'] for one in shown['gpus'][0]['links']] == ['0000:d0:00.0', '0000:d1:00.0']


def test_files_with_direct_links(tmp_path):
    """A link can stand at one of its GPUs only, and before the other GPU. Ranks repeat a GPU."""
    inner = link('0001:00:00.0', 6, '0x030200') + link('0002:00:00.0', 4, '0x030200')
    shown = of_file(tmp_path, ('0000:00:00.0', 'sm="80"', f'{inner}</gpu><gpu dev="0" rank="1" sm="80">{inner}'),
                    ('0001:00:00.0', 'sm="80"', ''), ('0002:00:00.0', 'sm="80"', link('0000:00:00.0', 4, '0x030200')))
    assert [(one['through'], one['links'], one['bytes_per_second']) for one in shown['gpu_pairs']] == \
        [('links', 6, 150_000_000_000), ('links', 4, 100_000_000_000), ('pci', 0, None)]
    assert {one['generation'] for one in shown['gpus'][0]['links']} == {3}


def test_files_with_xgmi(tmp_path):
    shown = of_file(tmp_path, ('0000:01:00.0', 'gcn="gfx942"', link('0000:02:00.0', 1, '0x120000', 'xgmi')),
                    ('0000:02:00.0', 'gcn="gfx942"', ''))
    assert shown['gpus'][0]['vendor'] == 'amd' and shown['gpus'][0]['links'][0]['kind'] == 'xgmi'
    assert [(one['through'], one['links']) for one in shown['gpu_pairs']] == [('links', 1)]


@pytest.mark.parametrize('inner', [link('1', 12, ''), link('0000:09:00.0', 0), link('0000:01:00.0', 'x'), '<nvlink/>',
                                   link('0000:02:00.0', 99999)])
def test_files_with_links_that_lead_nowhere(tmp_path, inner):
    shown = of_file(tmp_path, ('0000:01:00.0', 'sm="90"', inner), ('0000:02:00.0', 'sm="90"', ''))
    assert [one['through'] for one in shown['gpu_pairs']] == ['pci']


def test_nvml_knows_better_than_a_file(tmp_path):
    """Of the GPUs that it has answers for."""
    root = machines.build(tmp_path / 'a', TWO)
    path = tmp_path / 'file.xml'
    gpu = '<pci busid="{}" class="0x030200"><gpu dev="0" sm="90">' + link('0000:d0:00.0', 18) + '</gpu></pci>'
    path.write_text(f'<system version="1"><cpu numaid="0">{gpu.format("0000:01:00.0")}{gpu.format("0000:81:00.0")}</cpu></system>')
    assert topo(root, '--nccl-topology', path)['gpu_pairs'][0]['links'] == 18
    write_facts(root, nvml('0000:01:00.0', ['up 6 switch 0000:d0:00.0'] * 7 + ['down'] * 11))
    assert topo(root, '--nccl-topology', path)['gpu_pairs'][0]['links'] == 7


# -- xGMI ------------------------------------------------------------------------------------------------------------

def amd(folder, links, partitions=()):
    """Three GPUs of AMD, nodes 1 to 3 of amdkfd. links: (from, to, weight, least and most MB/s)."""
    text = 'numa 0 cpus=0-7\n' + ''.join(
        f'pci0000:{bus}0 numa=0\n  0000:{bus}0:01.0 port\n    0000:{bus}1:00.0 gpu id=1002:74a1 class=120000\n' for bus in '123')
    root = machines.build(folder, text)
    builder = machines.Builder(root)
    nodes = 'sys/devices/virtual/kfd/kfd/topology/nodes'
    builder.link('sys/class/kfd/kfd', 'sys/devices/virtual/kfd/kfd')
    builder.put(f'{nodes}/0/properties', 'cpu_cores_count 8\nsimd_count 0\nlocation_id 0\ndomain 0')
    for node, bus, function in [(1, 0x11, 0), (2, 0x21, 0), (3, 0x31, 0), *partitions]:
        builder.put(f'{nodes}/{node}/properties',
                    f'cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\nlocation_id {bus << 8 | function}\ndomain 0')
        builder.put(f'{nodes}/{node}/io_links/0/properties', f'type 2\nnode_from {node}\nnode_to 0\nweight 20')
    for number, (start, end, weight, least, most) in enumerate(links, 1):
        builder.put(f'{nodes}/{start}/io_links/{number}/properties', f'type 11\nversion_major 0\nnode_from {start}\n'
                    f'node_to {end}\nweight {weight}\nmin_bandwidth {least}\nmax_bandwidth {most}')
    return root


def test_xgmi(tmp_path):
    """Four links, then one of an old kernel, which tells no rate, then two hops. A dump keeps them."""
    root = amd(tmp_path / 'a', [(1, 2, 15, 50000, 200000), (2, 1, 15, 50000, 200000), (2, 3, 15, 0, 0), (3, 2, 15, 0, 0),
                                (1, 3, 30, 0, 0), (3, 1, 30, 0, 0)])
    run('dump', '--sysroot', root, '--output', tmp_path / 'dump.tar')
    for place in [root, tmp_path / 'dump.tar']:
        shown = topo(place)
        assert [(one['through'], one['links'], one['bytes_per_second']) for one in shown['gpu_pairs']] == \
            [('links', 4, 200_000_000_000), ('gpus', 0, None), ('links', 1, None)]
        assert [one['hops'] for one in shown['gpus'][0]['links']] == [1, 2]
    text = matrix(root)
    assert row(text, '0 11:00.0') == ['X', 'XGMI4', 'XGMI'] and row(text, '2 31:00.0') == ['XGMI', 'XGMI1', 'X']
    assert row(text, '0 4') == ['xGMI', '200', 'GB/s', 'GPU', '1']


def test_partitions_of_a_gpu_repeat_its_links(tmp_path):
    root = amd(tmp_path / 'a', [(1, 2, 15, 64000, 64000), (4, 2, 15, 64000, 64000), (1, 4, 15, 64000, 64000),
                                (2, 1, 15, 64000, 64000), (2, 4, 15, 64000, 64000), (3, 900, 15, 1, 1), (3, 0, 15, 1, 1)],
               partitions=[(4, 0x11, 1)])
    shown = topo(root)
    assert [one['links'] for one in shown['gpu_pairs']] == [1, 0, 0]
    assert [len(gpu['links']) for gpu in shown['gpus']] == [1, 1, 0]


# -- virtual machines ------------------------------------------------------------------------------------------------

def test_virtual_machine_says_what_is_missing(tmp_path):
    root = machines.make(tmp_path / 'a', FOLDER / 'h200-vm.machine')
    note = next(note for note in topo(root)['notes'] if note.startswith('PCI distances are not real in a virtual machine'))
    assert '--nccl-topology FILE' in note
    assert json.dumps(note) not in json.dumps(topo(machines.make(tmp_path / 'b', FOLDER / 'dgx-h100.machine')))
