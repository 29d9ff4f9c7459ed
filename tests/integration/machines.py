# SPDX-License-Identifier: BSD-2-Clause
"""Writes the sysfs files of a machine that is described in a few lines, for tests with --sysroot.

A line is a thing with its properties, NAME=VALUE.  More deeply indented lines are below it in the PCI tree:

    platform NVIDIA DGX H100                the maker and the product
    virtual                                 a virtual machine
    numa 0 cpus=0-55 socket=0
    pci0000:15 numa=0                       a host bridge
      0000:15:01.0 port link=32x16/32x16    a root port, or one of a switch; now/best
        0000:16:00.0 switch link=...        the upper port of a switch
          0000:17:00.0 port link=...
            0000:1b:00.0 gpu id=10de:2330 link=16x8/32x16
      0000:15:02.0 nic id=15b3:1021 rdma=mlx5_0 net=ib0 rate=400 state=ACTIVE layer=InfiniBand
      0000:15:03.0 nvme name=nvme0 model=...
    rdma rxe0 over=0000:15:02.0             a device of software, over the network device there

Further properties: class= id= sub= driver= group=12:identity numa= virtual=0000:... (of that function)
acs=001d (control) resize=0:0000000000007fc0 bars=BYTES[,BYTES...] model= guid= sm= lid=
"""
import pathlib
import re
import struct

CLASSES = {'port': 0x060400, 'switch': 0x060400, 'bridge': 0x060400, 'gpu': 0x030200, 'nic': 0x020000, 'nvme': 0x010802}
PORT_TYPES = {'root': 4, 'switch': 5, 'port': 6}


class Thing:
    """A line of a description."""

    def __init__(self, line, parent):
        words = line.split()
        self.depth = len(line) - len(line.lstrip())
        self.name, self.words = words[0], [word for word in words[1:] if '=' not in word]
        self.values = dict(word.split('=', 1) for word in words[1:] if '=' in word)
        self.parent = parent
        self.kind = self.words[0] if self.words else ''

    def get(self, name, default=None):
        return self.values.get(name, default)

    def folder(self):
        above = self.parent.folder() if self.parent else 'sys/devices'
        return f'{above}/{self.name}'


class Builder:
    """Writes the files of a machine."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.uverbs = 0
        self.drives = 0
        self.netdevs = {}

    def put(self, path, content):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(f'{content}\n')

    def link(self, path, target):
        """Creates a relative link, as in sysfs."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to('../' * (len(pathlib.PurePath(path).parts) - 1) + target)

    def machine(self, things):
        for folder in ['sys/bus/pci/devices', 'sys/devices', 'proc']:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        flags = 'fpu hypervisor' if any(thing.name == 'virtual' for thing in things) else 'fpu'
        self.put('proc/cpuinfo', f'processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: {flags}')
        for thing in things:
            if thing.name == 'platform':
                self.put('sys/class/dmi/id/sys_vendor', thing.words[0])
                self.put('sys/class/dmi/id/product_name', ' '.join(thing.words[1:]))
            elif thing.name == 'numa':
                self.numa(thing)
            elif thing.name == 'rdma':
                self.rdma(thing.kind, thing, None, self.netdevs[thing.get('over')])
            elif re.match(r'[0-9a-f]{4,8}:', thing.name):
                self.device(thing)

    def numa(self, thing):
        number, cpus = thing.words[0], thing.get('cpus', '')
        self.put(f'sys/devices/system/node/node{number}/cpulist', cpus)
        self.put(f'sys/devices/system/node/node{number}/meminfo', f'Node {number} MemTotal:       1048576 kB')
        if cpus:
            first = re.match(r'\d+', cpus).group()
            self.put(f'sys/devices/system/cpu/cpu{first}/topology/physical_package_id', thing.get('socket', 0))

    def device(self, thing):
        folder = thing.folder()
        vendor, device = thing.get('id', '8086:0000').split(':')
        sub_vendor, sub_device = thing.get('sub', '0000:0000').split(':')
        self.put(f'{folder}/class', f'0x{int(thing.get("class", "0"), 16) or CLASSES[thing.kind]:06x}')
        for name, value in [('vendor', vendor), ('device', device), ('subsystem_vendor', sub_vendor),
                            ('subsystem_device', sub_device)]:
            self.put(f'{folder}/{name}', f'0x{value}')
        self.put(f'{folder}/numa_node', self.numa_of(thing))
        self.put_link(folder, thing.get('link'))
        self.put(f'{folder}/resource', self.resources(thing))
        self.link(f'sys/bus/pci/devices/{thing.name}', folder)
        if thing.get('driver'):
            self.link(f'{folder}/driver', f'sys/bus/pci/drivers/{thing.get("driver")}')
        if thing.get('group'):
            group, _, kind = thing.get('group').partition(':')
            self.link(f'{folder}/iommu_group', f'sys/kernel/iommu_groups/{group}')
            if kind:
                self.put(f'sys/kernel/iommu_groups/{group}/type', kind)
        if thing.get('virtual'):
            self.link(f'{folder}/physfn', f'sys/bus/pci/devices/{thing.get("virtual")}')
        for number, sizes in re.findall(r'(\d):([0-9a-f]+)', thing.get('resize', '')):
            self.put(f'{folder}/resource{number}_resize', sizes)
        if thing.get('acs'):
            self.put(f'{folder}/config', self.config(thing))
        if thing.get('model') and thing.kind == 'gpu':
            self.put(f'proc/driver/nvidia/gpus/{thing.name}/information',
                     f'Model: \t\t {thing.get("model").replace("_", " ")}\nIRQ:   \t\t 0')
        self.owner(thing, folder)

    def owner(self, thing, folder):
        if thing.kind == 'nvme':
            name = thing.get('name', f'nvme{self.drives}')
            self.drives += 1
            self.put(f'{folder}/nvme/{name}/model', thing.get('model', 'drive').replace('_', ' '))
        if thing.get('net'):
            self.netdev(thing.get('net'), folder, thing)
            self.netdevs[thing.name] = thing.get('net')
        if thing.get('rdma'):
            self.rdma(thing.get('rdma'), thing, folder, thing.get('net'))

    def numa_of(self, thing):
        while thing:
            if 'numa' in thing.values:
                return thing.get('numa')
            thing = thing.parent
        return -1

    def put_link(self, folder, link):
        """Writes link files from SPEEDxWIDTH/SPEEDxWIDTH: current and maximum."""
        if not link:
            return
        now, _, best = link.partition('/')
        for name, text in [('current', now), ('max', best or now)]:
            speed, _, width = text.partition('x')
            shown = f'{speed if "." in speed else speed + ".0"} GT/s PCIe' if speed[0].isdigit() else speed
            self.put(f'{folder}/{name}_link_speed', shown)
            self.put(f'{folder}/{name}_link_width', width)

    def resources(self, thing):
        """Returns the file `resource`: BARs of 64-bit prefetchable memory."""
        lines = []
        for size in filter(None, thing.get('bars', '').split(',')):
            start = 0x100000000000
            lines.append(f'0x{start:016x} 0x{start + int(size) - 1:016x} 0x000000000014220c')
        return '\n'.join(lines + ['0x0000000000000000 0x0000000000000000 0x0000000000000000'] * (7 - len(lines)))

    def config(self, thing):
        """Configuration space with the capability of PCI Express, and ACS with the given control."""
        space = bytearray(4096)
        space[6], space[0x34] = 0x10, 0x40
        kind = 'root' if thing.parent and thing.parent.name.startswith('pci') else thing.kind
        struct.pack_into('<BBHIHH', space, 0x40, 0x10, 0, 2 | PORT_TYPES.get(kind, 0) << 4, 1, 0x2020, 0)
        struct.pack_into('<IHH', space, 0x100, 1 << 16 | 0x000d, 0x5f, int(thing.get('acs'), 16))
        return bytes(space)

    def netdev(self, name, folder, thing):
        self.put(f'{folder}/net/{name}/operstate', 'up' if thing.get('state', 'ACTIVE') == 'ACTIVE' else 'down')
        self.put(f'{folder}/net/{name}/mtu', thing.get('mtu', '1500'))
        self.put(f'{folder}/net/{name}/address', '00:11:22:33:44:55')
        self.link(f'{folder}/net/{name}/device', folder)
        self.link(f'sys/class/net/{name}', f'{folder}/net/{name}')

    def rdma(self, name, thing, folder, netdev):
        layer = thing.get('layer', 'InfiniBand')
        state = thing.get('state', 'ACTIVE')
        own = f'{folder}/infiniband/{name}' if folder else f'sys/devices/virtual/infiniband/{name}'
        number = {'DOWN': 1, 'INIT': 2, 'ARMED': 3, 'ACTIVE': 4}.get(state, 0)
        for file, content in [
                ('hca_type', thing.get('type', 'MT4129')), ('fw_ver', thing.get('fw', '28.39.1002')),
                ('board_id', 'MT_0000000838'), ('node_guid', thing.get('guid', 'a088:c203:0012:3456')),
                ('ports/1/state', f'{number}: {state}'),
                ('ports/1/phys_state', '5: LinkUp' if state != 'DOWN' else '3: Disabled'),
                ('ports/1/rate', f'{thing.get("rate", "400")} Gb/sec (4X NDR)'), ('ports/1/link_layer', layer),
                ('ports/1/lid', thing.get('lid', '0x5')), ('ports/1/sm_lid', thing.get('sm', '0x1')),
                ('ports/1/gids/0', 'fe80:0000:0000:0000:a288:c2ff:fe12:3456'),
                ('ports/1/gids/1', '0000:0000:0000:0000:0000:0000:0000:0000'),
                ('ports/1/gid_attrs/types/0', 'IB/RoCE v1' if layer == 'InfiniBand' else 'RoCE v2')]:
            self.put(f'{own}/{file}', content)
        if netdev:
            self.put(f'{own}/ports/1/gid_attrs/ndevs/0', netdev)
        if folder:
            self.link(f'{own}/device', folder)
        else:
            self.put(f'{own}/parent', netdev)
        self.link(f'sys/class/infiniband/{name}', own)
        self.put(f'sys/class/infiniband_verbs/uverbs{self.uverbs}/ibdev', name)
        self.uverbs += 1


def build(root, text):
    """Makes the machine of a description below a folder, which is returned."""
    things, stack = [], []
    for line in text.splitlines():
        line = line.split('#')[0].rstrip()
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        while stack and stack[-1].depth >= depth:
            stack.pop()
        thing = Thing(line, stack[-1] if stack else None)
        things.append(thing)
        stack.append(thing)
    Builder(root).machine(things)
    return pathlib.Path(root)


# What QEMU has in place of GPUs and cards, by vendor and device; and what they are made to be: vendor, device, class.
REPLACED = {('0x1234', '0x1111'): ('10de', '20b2', '030200'), ('0x8086', '0x10d3'): ('15b3', '101b', '020700')}


def unpack(root, text):
    """Makes the machine that tests/vm/capture wrote down, with GPUs and cards in it, below a folder.

    Where cards have drivers, one without has no RDMA device."""
    builder = Builder(root)
    files, bound = {}, set()
    for line in text.splitlines():
        path, mark, content = re.match(r'([^=>]*?)([=>]|:(?=[0-9a-f]*$))(.*)', line).groups()
        if mark == '>' and path.endswith('/driver') and content.endswith('/e1000e'):
            bound.add(path.removesuffix('/driver'))
            builder.link(path, 'sys/bus/pci/drivers/mlx5_core')
        elif mark == '>':
            builder.link(path, content.lstrip('/'))
        elif mark == ':':
            builder.put(path, bytes.fromhex(content).ljust(4096, b'\0'))
        else:
            files[path] = content.replace('|', '\n')
    for path, content in files.items():
        builder.put(path, content)
    cards = 0
    for path in sorted(files):
        folder, _, name = path.rpartition('/')
        made = REPLACED.get((files[path], files.get(f'{folder}/device'))) if name == 'vendor' else None
        if not made:
            continue
        for file, content in zip(['vendor', 'device', 'class'], made):
            builder.put(f'{folder}/{file}', f'0x{content}')
        if made[0] == '15b3' and (not bound or folder in bound):
            builder.rdma(f'mlx5_{cards}', Thing('card rate=100', None), folder, None)
            cards += 1
    return pathlib.Path(root)


def make(root, path):
    """Either of both, by the name of the file."""
    text = pathlib.Path(path).read_text(encoding='ascii')
    return (unpack if str(path).endswith('.files') else build)(root, text)


if __name__ == '__main__':
    import sys
    make(sys.argv[2], sys.argv[1])
