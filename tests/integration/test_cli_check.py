# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane check` on machines that are folders: each row in each state, and the verdict."""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import struct
import subprocess
import tarfile
import termios

import check_machines as machines
import pytest
from check_machines import CARD, GPU, ideal, old
from cli_support import DEADLINE, PEERLANE, environment, read_terminal, run, write
from machines import make as captured

SWITCH = 'sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0'
GPU_FOLDER = f'{SWITCH}/0000:3c:00.0/{GPU}'
CARD_FOLDER = f'{SWITCH}/0000:3c:01.0/{CARD}'
CARD_PATH = CARD_FOLDER.removeprefix('sys/devices/')
PORT = 'sys/class/infiniband/mlx5_0/ports/1'
PEERS = 'sys/kernel/mm/memory_peers'


def check(machine, folder, expect=None, *more):
    machine.write(folder)
    done = run('check', '--sysroot', folder, '--json', *more, expect=expect)
    assert expect is not None or done.returncode in (0, 1, 3), done
    return json.loads(done.stdout)


def roce():
    """The ideal machine with Ethernet in place of InfiniBand."""
    machine = ideal().remove('sys/class/infiniband', f'{CARD_FOLDER}/net').forget('net.ib0')
    return machine.card(CARD_PATH, layer='Ethernet', netdev='eth0', config=machines.express(0), group=11)


def our_module(version='0.1.0', **counters):
    """Peerlane's own kernel module with these counters; without a version, with none."""
    def make():
        machine = old(loaded=False).set('sys/module/peerlane_peermem', None)
        text = ''.join(f'{name} {value}\n' for name, value in {
            'version': version, 'regions': 3, 'bytes': 196608, 'registered': 9, 'refused': 0, **counters}.items())
        return machine.set('proc/driver/peerlane_peermem', text) if version else machine
    return make


def our_service(onboot):
    """Nothing but our service loads a client."""
    def make():
        machine = old().remove('etc/modules-load.d/gpu.conf').set('etc/peerlane/peermem.conf', f'# Boot\nONBOOT={onboot}\n')
        return machine.set('etc/systemd/system/multi-user.target.wants/peerlane-peermem.service')
    return make


def fallen(machine):
    """The GPU is gone from the bus; its driver is still loaded."""
    return machine.remove(GPU_FOLDER, f'{machines.DEVICES}/{GPU}', f'sys/bus/pci/drivers/nvidia/{GPU}')


def two_gpus():
    """A second GPU, so that the driver has one when the first one falls."""
    return ideal().gpu('pci0000:3a/0000:3a:02.0/0000:40:00.0')


def dead(machine):
    """The GPU is still listed, but reads from its configuration space return ones."""
    return machine.remove(f'{GPU_FOLDER}/config').set(f'{GPU_FOLDER}/config', b'\xff' * 64)


def started_with(machine, *addresses):
    """The kernel found these GPUs at the start before this one."""
    lines = [f'[    0.61{number}] kernel: pci {address}: [10de:2330] type 00 class 0x030200 PCIe Endpoint'
             for number, address in enumerate(addresses)]
    lines += [f'[    0.7] kernel: pci {GPU}: BAR 0 [mem 0x0-0xff]', '[    0.7] kernel: pci 0000:00:01.0: [8086:352a] type 01',
              '[    0.8] kernel: pci 0000:3f:00.4: [10de:2330] type 7f class 0x030200', lines[0] if lines else '']
    return machine.set('var/log/dmesg.0', '\n'.join(lines) + '\n')


def no_driver():
    """The card is there and nothing is bound to it."""
    return ideal().remove(f'{CARD_FOLDER}/driver', 'sys/class/infiniband', f'{CARD_FOLDER}/infiniband',
                          'dev/infiniband')


def with_virtual_function():
    """The card has a virtual function with a driver, whose payload and read request sizes are reserved fields."""
    return ideal().card(CARD_PATH.replace(CARD, '0000:3e:00.1'), 'mlx5_1', netdev='ib1', device=0x101e, node=1,
                        config=machines.express(0, payload=0, request=0), physfn=f'-> ../{CARD}')


def without_numa(machine):
    """The firmware does not say at which NUMA nodes the devices are."""
    for path in [path for path in machine.files if path.endswith('/numa_node')]:
        machine.remove(path).set(path, '-1\n')
    return machine


def virtual():
    machine = machines.bare(virtual=True)
    machine.files.update({path: content for path, content in ideal().files.items() if path != 'proc/cpuinfo'})
    machine.facts.update(ideal().facts)
    return machine


def libraries(*paths):
    def change(machine):
        for path in paths:
            machine.set(path)
    return change


def chained(base, *changes):
    def make():
        machine = base()
        for change in changes:
            change(machine)
        return machine
    return make


def facts(base=ideal, **values):
    """`__` stands for a dot."""
    def change(machine):
        for key, value in values.items():
            machine.fact(key.replace('__', '.'), value)
    return chained(base, change)


def fact(key, value, base=ideal):
    return lambda: base().fact(key, value)


def forget(*keys, base=ideal):
    return lambda: base().forget(*keys)


def file(path, content, base=ideal):
    return lambda: base().remove(path).set(path, content)


def remove(*paths, base=ideal):
    return lambda: base().remove(*paths)


def gpu_like(**options):
    """The ideal machine with another GPU."""
    def make():
        machine = ideal().remove(GPU_FOLDER, 'proc/driver/nvidia/gpus').forget('cuda.gpu', 'nvml.gpu')
        return machine.gpu(GPU_FOLDER.removeprefix('sys/devices/'), config=machines.express(0), group=10, **options)
    return make


def cuda(number, value):
    return fact(f'cuda.gpu.{GPU}.attribute.{number}', value)


def closed():
    machine = gpu_like(cuda=(9, 0, 1, 1, 1, 100, 0))()
    return machines.with_nvidia(machine, machines.CLOSED)


def not_asked():
    """As it is read from files alone."""
    return ideal().forget('cuda', 'nvml', 'verbs', 'log', 'kallsyms', 'limit', 'net', 'node', 'system.machine')


def soft():
    machine = machines.bare()
    machine.set('sys/module/ib_core', None)
    machine.set('sys/class/net/eth0/mtu', '1500\n')
    machine.rdma('rxe0', '', dmabuf=95)
    return machine.remove('sys/class/infiniband/rxe0/device').set('sys/class/infiniband/rxe0/parent', 'eth0\n')


ROOT = pathlib.Path(__file__).resolve().parents[2]
HPCX = 'opt/hpcx-2.18/ompi/lib/openmpi'
MULTIARCH = 'usr/lib/x86_64-linux-gnu'



def topology_file():
    """One that says of all devices of the cloud machine that they are at one processor."""
    devices = [(number, '0x030200' if number < 16 else '0x020000') for number in [*range(4, 12), *range(16, 24)]]
    return '<system><cpu numaid="0">' + ''.join(f'<pci busid="0000:00:{number:02x}.0" class="{kind}"/>'
                                                for number, kind in devices) + '</cpu></system>'

# Facts of plugins: one that was installed and loads, one that needs a library that is not there.
PEERLANE_PLUGIN = {'asked': '/usr/lib/libnccl-net-peerlane.so', 'reason': 0, 'file': '/usr/lib/libnccl-net-peerlane.so',
                   'tables': 0x1f00, 'name': 'Peerlane', 'state': 'done'}
BAD_PLUGIN = {'asked': '/opt/libnccl-net-x.so', 'state': 'done',
              'error': 'libx.so.1: cannot open shared object file: No such file or directory'}

# What a sandbox shows in place of addresses; and a BAR for which there was no room.
HIDDEN = f'0x{0:016x} 0x{0:016x} 0x{0:016x}\n' * 13
UNASSIGNED = (f'0x{1 << 40:016x} 0x{(1 << 40) + 0xffffff:016x} 0x{0x14220c:016x}\n'
              f'0x{0:016x} 0x{0:016x} 0x{0:016x}\n' f'0x{0:016x} 0x{(128 << 30) - 1:016x} 0x{0x2014220c:016x}\n')

OTHER_LIBCUDA = '/usr/local/cuda-12.9/compat/libcuda.so.575.57.08'

# Row, machine, status, what is found (a regular expression).
ROWS = [
    ('gpu-count', ideal, 'OK', '^1 GPU$'),
    ('gpu-count', machines.cloud, 'OK', '^8 GPUs$'),
    ('gpu-count', lambda: fallen(ideal()), 'FAIL', 'nvidia is loaded, and there is no GPU'),
    ('gpu-count', machines.connectx3, 'none', ''),
    ('gpu-count', lambda: dead(ideal()), 'FAIL', 'fell off the bus: its configuration space reads as ones'),
    ('gpu-count', fact(f'log.gpu.{GPU}', 'fell off'), 'FAIL', "^the GPU fell off the bus, says the kernel's log$"),
    ('gpu-count', lambda: fallen(two_gpus()).fact(f'log.gpu.{GPU}', 'fell off'), 'FAIL', 'and is not on the PCI bus now$'),
    ('gpu-count', lambda: fallen(two_gpus()).fact(f'log.gpu.{GPU}', 'found'), 'WARN', 'found a GPU of NVIDIA here'),
    ('gpu-count', fact(f'log.gpu.{GPU}', 'found'), 'OK', '^1 GPU$'),
    ('gpu-count', lambda: started_with(ideal(), GPU, '0000:99:00.0'), 'WARN',
     r'^1 GPU of NVIDIA on the PCI bus, 2 at the previous start \(/var/log/dmesg.0\)$'),
    ('gpu-count', lambda: started_with(ideal(), '0000:99:00.0'), 'OK', '^1 GPU$'),
    ('gpu-count', lambda: started_with(machines.cloud(), GPU), 'OK', '^8 GPUs$'),
    ('gpu-count', lambda: ideal().set('var/log/dmesg.0', None), 'OK', '^1 GPU$'),
    ('gpu-model', ideal, 'OK', 'can do GPUDirect RDMA'),
    ('gpu-model', gpu_like(model='NVIDIA GeForce RTX 4090', device=0x2684, cuda=None), 'FAIL', 'for consumers'),
    ('gpu-model', cuda(116, 0), 'FAIL', 'cannot do GPUDirect RDMA'),
    ('gpu-model', gpu_like(model='Tesla M2090', device=0x1091, cuda=None), 'FAIL', 'older than Kepler'),
    ('gpu-model', gpu_like(model='GRID K1', device=0x0ff2, cuda=None), 'OK', 'capability 3.0'),
    ('gpu-model', gpu_like(device=0x2330, driver=None, cuda=None), 'UNKNOWN', 'no driver is loaded'),
    ('gpu-dmabuf', ideal, 'OK', 'exports dma-bufs'),
    ('gpu-dmabuf', fact(f'cuda.gpu.{GPU}.export', 0), 'OK', 'was exported'),
    ('gpu-dmabuf', fact(f'cuda.gpu.{GPU}.export', 801), 'WARN', 'failed, with CUDA.s error 801'),
    ('gpu-dmabuf', closed, 'WARN', 'closed kernel modules'),
    ('gpu-dmabuf', old, 'OK', 'peer memory takes its place'),
    ('gpu-dmabuf', lambda: not_asked().remove('proc/driver', 'sys/module/nvidia/taint'), 'UNKNOWN', 'neither'),
    ('gpu-vmm', ideal, 'OK', 'can be registered'),
    ('gpu-vmm', cuda(110, 0), 'WARN', 'cannot be registered'),
    ('gpu-vmm', not_asked, 'UNKNOWN', 'libcuda was not asked'),
    ('gpu-visibility', ideal, 'OK', 'visible'),
    ('gpu-visibility', old, 'OK', 'after a flush'),
    ('gpu-visibility', gpu_like(cuda=(8, 0, 1, 1, 0, 0, 1)), 'WARN', 'old data'),
    ('gpu-visibility', not_asked, 'UNKNOWN', 'libcuda'),
    ('gpu-partition', ideal, 'OK', 'whole'),
    ('gpu-partition', fact(f'nvml.gpu.{GPU}.mig', 1), 'WARN', 'MIG'),
    ('gpu-partition', fact(f'nvml.gpu.{GPU}.virtualization', 2), 'WARN', 'vGPU'),
    ('gpu-partition', fact('nvml.confidential', 1), 'FAIL', 'confidential'),
    ('gpu-partition', not_asked, 'UNKNOWN', 'NVML'),
    ('gpu-bar1', ideal, 'OK', '131072 MiB'),
    ('gpu-bar1', gpu_like(bar=256 << 20), 'WARN', 'only 256 MiB'),
    ('gpu-bar1', gpu_like(bar=64 << 30), 'WARN', 'not all of it'),
    ('gpu-bar1', gpu_like(bar=0), 'FAIL', 'no address'),
    ('gpu-bar1', gpu_like(bar=64 << 30, device=0x20b2), 'WARN', '65536 MiB.*not all of it'),
    ('gpu-bar1', old, 'OK', '32768 MiB'),
    ('gpu-bar1', file(f'{GPU_FOLDER}/resource', UNASSIGNED), 'FAIL', 'no address'),
    ('gpu-bar1', remove(f'{GPU_FOLDER}/resource'), 'UNKNOWN', 'no address'),
    ('gpu-bar1', file(f'{GPU_FOLDER}/resource', HIDDEN), 'UNKNOWN', 'no address'),
    ('gpu-bar1', lambda: file(f'{GPU_FOLDER}/resource', HIDDEN)().fact(f'nvml.gpu.{GPU}.bar1_total', 256 << 20), 'WARN',
     'only 256 MiB'),
    ('driver-loaded', ideal, 'OK', '^driver 570.124.06, CUDA 12.8$'),
    ('driver-loaded', lambda: gpu_like(driver=None, cuda=None)().remove('sys/module/nvidia', 'proc/driver'), 'FAIL',
     'not loaded'),
    ('driver-loaded', gpu_like(driver='nouveau', cuda=None), 'FAIL', 'nouveau'),
    ('driver-loaded', facts(cuda__file=OTHER_LIBCUDA, cuda__init=803), 'FAIL', 'libraries are of 575.57.08'),
    ('driver-loaded', facts(cuda__file=OTHER_LIBCUDA, cuda__init=804), 'FAIL', 'libraries are of 575.57.08'),
    ('driver-loaded', facts(cuda__file=OTHER_LIBCUDA, cuda__init=100), 'FAIL', r'cuInit\(\) fails with 100: no device'),
    ('driver-loaded', facts(cuda__file=OTHER_LIBCUDA, cuda__init=802), 'FAIL', 'fabric manager'),
    ('driver-loaded', lambda: ideal().fact('cuda.file', OTHER_LIBCUDA).forget('cuda.init'), 'FAIL',
     'libraries are of 575.57.08'),
    # Forward compatibility: CUDA's container brings a newer libcuda, which works with the module of the host.
    ('driver-loaded', fact('cuda.file', OTHER_LIBCUDA), 'OK', '^driver 570.124.06, CUDA 12.8, libcuda 575.57.08$'),
    ('driver-loaded', fact('cuda.init', 803), 'FAIL', 'another release|libraries are of'),
    ('driver-loaded', fact('cuda.init', 802), 'FAIL', 'fabric manager'),
    ('driver-loaded', fact('cuda.state', 'hangs'), 'FAIL', 'hangs'),
    ('driver-loaded', lambda: ideal().fact('cuda.file', OTHER_LIBCUDA).fact('cuda.state', 'hangs').forget('cuda.init'), 'FAIL',
     'did not end in time: it hangs'),
    ('driver-loaded', lambda: ideal().forget('cuda').fact('cuda.library', 'libcuda.so.1: cannot open'), 'WARN',
     'libcuda is not there'),
    ('driver-flavour', ideal, 'OK', 'open kernel modules'),
    ('driver-flavour', closed, 'WARN', 'closed'),
    ('driver-flavour', old, 'OK', 'the only ones'),
    ('driver-flavour', remove('proc/driver', 'sys/module/nvidia/taint'), 'UNKNOWN', 'does not say'),
    ('kernel-health', ideal, 'OK', 'no Oops, no Xid'),
    ('kernel-health', file('proc/sys/kernel/tainted', '128\n'), 'FAIL', 'Oops'),
    ('kernel-health', fact('log.xid', 'NVRM: Xid (PCI:0000:3d:00): 79'), 'WARN', 'Xid .PCI'),
    ('kernel-health', fact('log.gpu_fell_off', 'NVRM: GPU has fallen off the bus'), 'FAIL', 'fell off'),
    ('kernel-health', forget('log'), 'UNKNOWN', 'no Oops; whether'),
    ('peer-client', ideal, 'OK', 'none is needed'),
    ('peer-client', old, 'OK', 'nvidia_peermem is loaded'),
    ('peer-client', lambda: old(loaded=False), 'FAIL', 'no peer memory client'),
    ('peer-client', remove(PEERS + '/nv_mem', base=old), 'FAIL', 'not registered'),
    ('peer-boot', old, 'OK', 'when the machine starts'),
    ('peer-boot', file('etc/modules-load.d/gpu.conf', '# nvidia-peermem\n', base=old), 'WARN', 'nothing loads it'),
    ('peer-boot', our_service('yes'), 'OK', 'when the machine starts'),
    ('peer-boot', our_service('no'), 'WARN', 'nothing loads it'),
    ('peer-boot', remove('etc', base=old), 'UNKNOWN', 'no /etc'),
    ('peer-single', old, 'OK', 'only nvidia_peermem'),
    ('peer-single', file('sys/module/nv_peer_mem', None, base=old), 'FAIL', 'both'),
    ('peer-core', old, 'OK', 'has the interface'),
    ('peer-core', ideal, 'OK', 'does not need'),
    ('peer-core', lambda: closed().fact('kallsyms.peer_memory', 0), 'FAIL', 'own, without'),
    ('peer-core', lambda: closed().forget('kallsyms'), 'UNKNOWN', 'symbols'),
    ('peer-ofed', ideal, 'OK', 'own RDMA drivers'),
    ('peer-ofed', old, 'OK', '5.8'),
    ('peer-ofed', file('sys/module/mlx5_core/version', '5.4-1.0.3\n', base=old), 'WARN', 'deadlock'),
    ('peer-ofed', lambda: old().set('sys/module/mlx5_core/version', '5.4-1.0.3\n').set('sys/module/peerlane_peermem', None),
     'OK', 'gets along without'),
    ('peer-ofed', file('usr/bin/ofed_info', '#!/bin/sh\necho MLNX_OFED_LINUX-4.9-7.1.0.0 (OFED)\n', base=old), 'FAIL',
     'peerdirect_support'),
    ('peer-pins', old, 'OK', 'nothing is pinned'),
    ('peer-pins', lambda: old().set(f'{PEERS}/nv_mem/num_alloc_mrs', '9\n').fact('pins.holders', 1), 'OK', '2 regions'),
    ('peer-pins', lambda: old().set(f'{PEERS}/nv_mem/num_alloc_mrs', '9\n').fact('pins.holders', 0), 'WARN',
     'no process'),
    ('peer-pins', lambda: old().set(f'{PEERS}/nv_mem/num_alloc_mrs', '9\n'), 'UNKNOWN', '2 regions'),
    ('peer-module', our_module(), 'OK', 'version 0.1.0: 3 regions of 196608 bytes are registered, 9 were'),
    ('peer-module', our_module(refused=2), 'WARN', 'refused 2'),
    ('peer-module', our_module(regions=0), 'WARN', '196608 bytes without a region stay pinned'),
    ('peer-module', our_module(driver_errors=1), 'WARN', 'contradicted itself'),
    ('peer-module', our_module(old_core=4), 'WARN', 'inverted locks'),
    ('peer-module', our_module(None), 'UNKNOWN', 'cannot be read'),
    ('card-driver', ideal, 'OK', 'driver mlx5_core'),
    # A function for a virtual machine needs no driver here.
    ('card-driver', chained(ideal, lambda machine: machine.card(
        CARD_PATH.replace(CARD, '0000:3e:00.1'), None, None, 0x101e, physfn=f'-> ../{CARD}')), 'OK', 'driver mlx5_core'),
    ('card-driver', no_driver, 'FAIL', 'should be mlx5_core'),
    ('card-driver', remove('sys/class/infiniband', f'{CARD_FOLDER}/infiniband'), 'FAIL', 'no RDMA device'),
    ('card-driver', machines.bare, 'FAIL', 'no RDMA card'),
    ('card-driver', soft, 'WARN', 'by software'),
    ('card-model', ideal, 'OK', 'MT4129, firmware 28.39.1002'),
    ('card-model', machines.connectx3, 'WARN', 'ConnectX-3'),
    ('card-model', no_driver, 'UNKNOWN', '15b3:1021'),
    ('card-dmabuf', ideal, 'OK', 'was asked'),
    ('card-dmabuf', fact('verbs.device.mlx5_0.data-direct', '/sys/devices/pci0/01'), 'OK', 'by Data Direct: /sys/devices/pci0/01'),
    ('card-dmabuf', fact('verbs.device.mlx5_0.dmabuf', 95), 'WARN', 'takes no dma-bufs'),
    ('card-dmabuf', fact('verbs.device.mlx5_0.dmabuf', 38), 'WARN', 'too old'),
    ('card-dmabuf', fact('verbs.device.mlx5_0.dmabuf', 12), 'UNKNOWN', 'Cannot allocate'),
    ('access-nodes', ideal, 'OK', 'uverbs0 can be opened'),
    ('access-nodes', fact('verbs.device.mlx5_0.open', 13), 'FAIL', 'Permission denied'),
    ('access-nodes', machines.container, 'FAIL', 'No such file'),
    ('access-nodes', lambda: ideal().fact('verbs.library', 'libibverbs.so.1: cannot open'), 'FAIL', 'cannot be used'),
    ('access-nodes', fact('verbs.devices', 0), 'FAIL', 'finds none'),
    ('access-nodes', fact('verbs.state', 'hangs'), 'FAIL', 'hangs'),
    ('access-nodes', forget('verbs'), 'UNKNOWN', 'is there'),
    ('access-memlock', ideal, 'OK', 'unlimited'),
    ('access-memlock', facts(limit__memlock=8388608, process__ipc_lock=1), 'OK', 'CAP_IPC_LOCK'),
    ('access-memlock', fact('limit.memlock', 8388608), 'FAIL', 'only 8192 KiB'),
    ('access-memlock', fact('limit.memlock', 1 << 30), 'WARN', 'only 1048576 KiB'),
    ('access-memlock', not_asked, 'UNKNOWN', 'no file'),
    ('access-cgroup', ideal, 'OK', 'no limit'),
    ('access-cgroup', file('sys/fs/cgroup/user.slice/rdma.max', 'mlx5_0 hca_handle=max hca_object=max\n'), 'OK',
     'no limit'),
    ('access-cgroup', file('sys/fs/cgroup/user.slice/rdma.max', 'mlx5_0 hca_handle=2 hca_object=99\n'), 'WARN', '=99'),
    ('access-cgroup', file('sys/fs/cgroup/user.slice/rdma.max', 'mlx5_0 hca_handle=0 hca_object=0\n'), 'FAIL', '=0'),
    ('access-cgroup', remove('proc/self'), 'UNKNOWN', 'control group'),
    ('access-hugepages', ideal, 'OK', '1024 pages'),
    ('access-hugepages', file('proc/meminfo', 'HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n',
                              base=closed), 'WARN', 'less than 64 MiB'),
    ('access-hugepages', remove('proc/meminfo'), 'UNKNOWN', 'meminfo'),
    ('port-state', ideal, 'OK', 'active, 400 Gb'),
    ('port-state', file(f'{PORT}/state', '1: DOWN\n'), 'FAIL', 'DOWN .LinkUp'),
    ('port-state', file(f'{PORT}/state', '2: INIT\n'), 'FAIL', 'subnet manager'),
    ('port-state', file(f'{PORT}/rate', '100 Gb/sec (1X NDR)\n'), 'WARN', '1 lane only: 100 Gbit'),
    ('port-state', remove(f'{PORT}/state'), 'UNKNOWN', 'cannot be read'),
    ('port-layer', ideal, 'OK', 'InfiniBand'),
    ('port-layer', lambda: ideal().rdma('mlx5_0', ideal().files['sys/class/infiniband/mlx5_0/device'], port=2), 'WARN',
     'where others have'),
    ('port-layer', remove(f'{PORT}/link_layer'), 'UNKNOWN', 'does not say'),
    ('port-manager', ideal, 'OK', 'lid 17, subnet manager at 1'),
    ('port-manager', file(f'{PORT}/sm_lid', '0x0\n'), 'FAIL', 'there is none'),
    ('port-manager', file('sys/class/infiniband/mlx5_0/node_desc', '\n'), 'WARN', 'no node description'),
    ('port-manager', remove(f'{PORT}/lid'), 'UNKNOWN', 'cannot be read'),
    ('port-address', ideal, 'OK', 'ib0 has 10.0.0.1'),
    ('port-address', forget('net.ib0'), 'OK', 'only programs with rdma_cm'),
    ('port-address', lambda: roce().forget('net.eth0'), 'WARN', 'no address'),
    ('port-address', lambda: ideal().forget('net.ib0').fact('net.ib0.ipv6', 'fe80::1'), 'OK', 'only fe80'),
    ('port-address', remove(f'{CARD_FOLDER}/net'), 'OK', 'no network device'),
    ('port-address', forget('net'), 'UNKNOWN', 'no files'),
    ('port-gid', roce, 'OK', 'RoCE v2 is GID 2'),
    ('port-gid', remove(f'{PORT}/gid_attrs/types/1', f'{PORT}/gid_attrs/types/2', base=roce), 'WARN', 'none of RoCE v2'),
    ('port-gid', remove(f'{PORT}/gids', base=roce), 'FAIL', 'no GID'),
    ('port-gid', remove(f'{PORT}/gid_attrs/types', base=roce), 'UNKNOWN', 'cannot be read'),
    ('port-mtu', roce, 'OK', '9000'),
    ('port-mtu', ideal, 'OK', '4096 bytes'),
    ('port-mtu', lambda: roce().fact('verbs.device.mlx5_0.port.1.mtu', 1024).set('sys/class/net/eth0/mtu', '1500\n'),
     'WARN', '1500'),
    ('port-mtu', forget('verbs'), 'UNKNOWN', 'not known'),
    ('port-congestion', ideal, 'OK', 'out_of_sequence 3'),
    ('port-congestion', file(f'{PORT}/hw_counters/out_of_sequence', '1000000\n'), 'WARN', 'packets are lost'),
    ('port-congestion', remove(f'{PORT}/hw_counters', f'{PORT}/counters'), 'UNKNOWN', 'no counters'),
    ('path-link', ideal, 'OK', 'as wide'),
    ('path-link', file(f'{CARD_FOLDER}/current_link_width', '4\n'), 'WARN', 'x4 of 32.0 GT/s x16'),
    ('path-link', machines.cloud, 'UNKNOWN', 'no links'),
    ('path-link', file(f'{CARD_FOLDER}/current_link_width', '4\n', base=virtual), 'UNKNOWN',
     'x4 of 32.0 GT/s x16, as the virtual machine shows it'),
    ('path-class', ideal, 'OK', 'PIX'),
    ('path-class', old, 'OK', 'NODE'),
    ('path-class', lambda: old().set('sys/devices/pci0000:16/0000:16:00.0/0000:17:00.0/numa_node', '1\n')
     .set('sys/devices/pci0000:16/0000:16:00.0/numa_node', '1\n'), 'WARN', 'between processors'),
    ('path-class', machines.cloud, 'UNKNOWN', 'fiction'),
    ('path-payload', ideal, 'OK', 'payload of 256 of 512'),
    ('path-payload', file(f'{CARD_FOLDER}/config', machines.express(0, payload=0)), 'WARN', 'payload of 128'),
    ('path-payload', file(f'{CARD_FOLDER}/config', machines.express(0, size=64)), 'UNKNOWN', 'only root'),
    # The registers of a virtual function read as 0.
    ('path-payload', file(f'{CARD_FOLDER}/config', machines.express(0, payload=0, request=0), base=virtual), 'UNKNOWN',
     'payload of 128 bytes, read requests of 128, as the virtual machine shows it'),
    ('path-payload', with_virtual_function, 'OK', 'payload of 256 of 512'),
    ('path-acs', ideal, 'OK', 'no switch port redirects'),
    ('path-acs', file(f'{SWITCH}/0000:3c:00.0/config', machines.express(6, acs=0x1d)), 'WARN', 'up to the root'),
    ('path-acs', file(f'{SWITCH}/0000:3c:00.0/config', machines.express(6, size=64)), 'UNKNOWN', 'whether ACS'),
    ('bus-iommu', ideal, 'OK', 'passes its addresses through'),
    ('bus-iommu', old, 'OK', 'no IOMMU'),
    ('bus-iommu', file('sys/kernel/iommu_groups/11/type', 'DMA-FQ\n'), 'FAIL', 'translates'),
    ('bus-iommu', fact('log.dmar', 'DMAR: [DMA Read NO_PASID] Request device'), 'FAIL', 'stopped an access'),
    ('bus-iommu', remove('sys/kernel/iommu_groups/11/type'), 'OK', 'was told to pass'),
    ('bus-iommu', remove('sys/kernel/iommu_groups/11/type', 'proc/cmdline'), 'UNKNOWN', 'not known'),
    ('bus-iommu', lambda: ideal().remove('sys/kernel/iommu_groups/11/type').set('proc/cmdline', 'iommu=ptx x'), 'UNKNOWN',
     'not known'),
    ('bus-platform', ideal, 'OK', 'x86_64, Supermicro'),
    ('bus-platform', fact('system.machine', 'ppc64le'), 'WARN', 'POWER'),
    ('bus-platform', fact('system.machine', 'aarch64'), 'WARN', 'without a switch'),
    ('bus-platform', lambda: ideal().fact('system.machine', 'aarch64').set('sys/class/dmi/id/product_name', 'GH200\n'),
     'OK', 'link between processor and GPU'),
    ('bus-platform', fact('system.machine', 'aarch64', base=machines.cloud), 'UNKNOWN', 'the machine below it is not known'),
    ('bus-platform', fact('log.topology', 'nvidia: topology not supported'), 'FAIL', 'refuses'),
    ('bus-platform', fact('system.name', 'FreeBSD'), 'FAIL', 'FreeBSD'),
    ('bus-platform', not_asked, 'UNKNOWN', 'not known'),
    ('bus-virtual', ideal, 'OK', 'not a virtual machine'),
    ('bus-virtual', machines.cloud, 'OK', '^a virtual machine .QEMU .* without a topology file'),
    ('bus-virtual', lambda: machines.cloud().set('etc/nccl.conf', 'NCCL_TOPO_FILE=/opt/topo.xml\n').set('opt/topo.xml',
     topology_file()), 'OK', 'followed: /opt/topo.xml'),
    ('bus-virtual', lambda: machines.cloud().set('etc/nccl.conf', 'NCCL_TOPO_FILE=/opt/topo.xml\n').set('opt/topo.xml',
     topology_file().replace('0000:00:04', '0000:55:00')), 'WARN', '^1 of the GPUs and cards here are not in'),
    ('bus-virtual', lambda: machines.cloud().set('etc/nccl.conf', 'NCCL_TOPO_FILE=/opt/topo.xml\n').set('opt/topo.xml',
     topology_file().replace('"0000:', '"0001:')), 'WARN', 'of no use: /opt/topo.xml: none of its devices'),
    ('bus-virtual', lambda: machines.cloud().set('etc/nccl.conf', 'NCCL_TOPO_FILE=/opt/topo.xml\n').set('opt/topo.xml',
     '<system>'), 'WARN', 'of no use: /opt/topo.xml: line 1: no element found'),
    ('bus-virtual', remove('proc/cpuinfo', 'sys/class/dmi'), 'UNKNOWN', 'neither'),
    ('bus-numa', ideal, 'OK', 'NUMA node 0'),
    ('bus-numa', file('sys/devices/system/cpu/cpu0/cpufreq/scaling_governor', 'powersave\n'), 'WARN', 'powersave'),
    ('bus-numa', lambda: without_numa(ideal()).set('sys/devices/system/node/node1/cpulist', '32-63\n'), 'WARN', 'does not say which NUMA node'),
    ('bus-numa', lambda: machines.cloud().set('sys/devices/system/node/node1/cpulist', '32-63\n'), 'UNKNOWN',
     'the virtual machine does not show its NUMA node'),
    ('bus-numa', lambda: machines.cloud().remove('sys/devices/system/cpu'), 'UNKNOWN', 'neither'),
    ('kernel-signing', ideal, 'OK', 'any module'),
    ('kernel-signing', lambda: no_driver().set('sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c',
                                               b'\6\0\0\0\1'), 'WARN', 'Secure Boot is on'),
    ('kernel-signing', fact('log.key_rejected', 'Loading of module with unavailable key: Key was rejected'), 'FAIL',
     'refused'),
    ('kernel-signing', remove('sys/firmware'), 'UNKNOWN', 'cannot be read'),
    ('kernel-symbols', ideal, 'OK', 'no module was refused'),
    ('kernel-symbols', fact('log.symbol_version', 'nvidia_peermem: disagrees about version of symbol ib_x'), 'FAIL',
     'built for other'),
    ('kernel-symbols', forget('log'), 'UNKNOWN', 'not read'),
    ('soft-mpi', chained(ideal, libraries(f'{HPCX}/mca_accelerator_cuda.so', f'{HPCX}/mca_pml_ucx.so')), 'OK',
     'built with CUDA, uses UCX'),
    ('soft-mpi', chained(ideal, libraries(f'{MULTIARCH}/openmpi/lib/openmpi3/mca_pml_ob1.so')), 'WARN',
     'cannot take|no MPI here'),
    ('soft-mpi', chained(ideal, libraries('opt/mvapich2/gdr/2.3.7/lib64/libmpi.so')), 'OK', 'made for GPUs'),
    ('soft-mpi', chained(ideal, libraries('opt/ibm/spectrum_mpi/lib/libpami_cudahook.so')), 'OK',
     'Spectrum.*mpirun -gpu|mpirun -gpu'),
    ('soft-mpi', chained(ideal, libraries('opt/ibm/spectrum_mpi/lib/libmpi_ibm.so.3')), 'WARN', 'no MPI here'),
    # As MVAPICH2-GDR's packages install it.
    ('soft-mpi', chained(ideal, libraries(
        'opt/mvapich2/gdr/2.3.7/mcast/no-openacc/cuda11.3/mofed5.4/mpirun/gnu9.3.0/lib64/libmpi.so')), 'OK', 'made for GPUs'),
    # HPC-X 2.18 has Open MPI 4.1, later ones 5.0.
    ('soft-mpi', chained(ideal, libraries('opt/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64/ompi/lib/openmpi/'
                                          'mca_btl_smcuda.so')), 'OK', 'built with CUDA, without UCX'),
    # Debian's and Ubuntu's.
    ('soft-mpi', chained(ideal, libraries(f'{MULTIARCH}/openmpi/lib/openmpi3/mca_pml_ucx.so')), 'WARN', 'no MPI here'),
    ('soft-mpi', lambda: ideal().fact('search.path', '/sw/ompi/bin:/bin').set('sw/ompi/lib/openmpi/mca_coll_cuda.so'),
     'OK', '/sw/ompi: built with CUDA'),
    ('soft-mpi', ideal, 'none', 'no MPI'),
    ('soft-nccl', lambda: ideal().set(f'{MULTIARCH}/libnccl.so.2.27.3').set(f'{MULTIARCH}/libnccl.so.2',
                                                                        '-> libnccl.so.2.27.3'), 'OK', '2.27.3'),
    ('soft-nccl', lambda: ideal().set('usr/local/cuda-13.0/lib64/libnccl.so.2').set('usr/local/cuda', '-> cuda-13.0'), 'OK',
     '^/usr/local/cuda/lib64/libnccl.so.2: of unknown release$'),
    ('soft-nccl', lambda: ideal().remove(f'{MULTIARCH}/libibverbs.so.1').set(f'{MULTIARCH}/libnccl.so.2'), 'WARN',
     'falls back'),
    ('soft-nccl', ideal, 'none', 'no NCCL'),
    ('soft-ucx', chained(ideal, libraries(f'{MULTIARCH}/libucp.so.0', f'{MULTIARCH}/ucx/libuct_cuda.so.0',
                                          f'{MULTIARCH}/ucx/libuct_ib.so.0')), 'OK', 'with CUDA and RDMA'),
    ('soft-ucx', chained(ideal, libraries(f'{MULTIARCH}/libucp.so.0')), 'WARN', 'without CUDA|no UCX here'),
    ('soft-ucx', ideal, 'none', 'no UCX'),
    ('nccl-plugin', lambda: machines.with_nccl(ideal(), PEERLANE_PLUGIN, NCCL_NET_PLUGIN='peerlane'), 'OK',
     '^/usr/lib/libnccl-net-peerlane.so: loads, named Peerlane, tables v8 to v12$'),
    ('nccl-plugin', lambda: machines.with_nccl(ideal(), {**BAD_PLUGIN, 'reason': 0}), 'WARN', '^/opt/libnccl-net-x.so: libx.so.1: cannot'),
    ('nccl-plugin', lambda: machines.with_nccl(ideal(), {**BAD_PLUGIN, 'reason': 2}), 'OK', 'not chosen; libx.so.1: cannot'),
    ('nccl-plugin', lambda: ideal().set(f'{MULTIARCH}/libnccl-net.so'), 'UNKNOWN', 'not loaded here'),
    ('nccl-plugin', lambda: machines.with_nccl(ideal()), 'none', 'no network plugin'),
    ('nccl-network', lambda: machines.with_nccl(ideal(), PEERLANE_PLUGIN, NCCL_NET_PLUGIN='peerlane', NCCL_NET='peerlane'), 'OK',
     '^NCCL 2.30.4 uses the plugin Peerlane by its table v12: NCCL_NET_PLUGIN names it$'),
    ('nccl-network', lambda: machines.with_nccl(ideal()), 'OK', 'IB: there is no libnccl-net.so, .* and 1 RDMA device can'),
    ('nccl-network', lambda: machines.with_nccl(ideal(), {**PEERLANE_PLUGIN, 'reason': 2}), 'OK',
     'not chosen: NCCL_NET_PLUGIN=/usr/lib/libnccl-net-peerlane.so$'),
    ('nccl-network', lambda: machines.with_nccl(machines.bare()), 'OK', 'sockets: .* no RDMA device'),
    ('nccl-network', lambda: machines.with_nccl(ideal(), {**BAD_PLUGIN, 'reason': 0}, NCCL_NET_PLUGIN='/opt/libnccl-net-x.so'), 'WARN',
     'IB: no plugin could be used'),
    ('nccl-network', lambda: machines.with_nccl(ideal(), NCCL_NET='Peerlane'), 'FAIL', 'no network of this name'),
    ('nccl-network', lambda: ideal().set(f'{MULTIARCH}/libnccl.so.2'), 'UNKNOWN', 'are not known'),
    ('nccl-network', ideal, 'none', 'no NCCL'),
    ('nccl-variables', lambda: machines.with_nccl(ideal(), NCCL_NET_GDR_READ='1'), 'OK', '^1 variable of NCCL.* is set; none'),
    ('nccl-variables', lambda: machines.with_nccl(ideal(), NCCL_NET_GDR_READ='0'), 'WARN', 'what a GPU sends goes through the host'),
    ('nccl-variables', lambda: machines.with_nccl(ideal()).fact('nccl.unread', '/root/.nccl.conf'), 'UNKNOWN', '^/root/.nccl.conf was not'),
    ('nccl-variables', ideal, 'none', 'no NCCL'),
]
# Rows whose question has no unknown answer: a module is there or not; a library's files are there or not.
NEVER_UNKNOWN = {'gpu-count', 'peer-client', 'peer-single', 'peer-ofed', 'card-driver', 'soft-mpi', 'soft-nccl', 'soft-ucx',
                 'driver-loaded'}


@pytest.mark.parametrize('row, machine, status, found', ROWS)
def test_row(tmp_path, row, machine, status, found):
    results = {one['id']: one for one in check(machine(), tmp_path)['checks']}
    result = results[row]
    assert result['status'] == status, result
    worst = ' '.join(one['found'] for one in result['findings'] if one['status'] == status)
    assert re.search(found, worst), result
    assert bool(result['remedy']) == (status in ('WARN', 'FAIL'))
    assert bool(result['reveal']) == (status == 'UNKNOWN')


@pytest.mark.parametrize('row, loaded, remedy', [
    ('peer-client', False, 'peerlane-peermem start'),
    ('peer-boot', True, 'ONBOOT=yes in /etc/peerlane/peermem.conf; systemctl enable peerlane-peermem'),
])
def test_our_module_is_the_remedy_where_it_is_installed(tmp_path, row, loaded, remedy):
    machine = old(loaded=loaded).remove('etc/modules-load.d/gpu.conf').set('usr/sbin/peerlane-peermem', '')
    results = {one['id']: one for one in check(machine, tmp_path)['checks']}
    assert results[row]['remedy'] == remedy


def test_every_row_is_tested_in_every_state():
    # test_cli_check_policy.py tests rows that apply only where something is expected, test_cli_judgement.py tested routes.
    rows = {row['id'] for row in json.loads(run('check', '--list', '--json').stdout)
            if row['group'] not in ('Expected', 'Tested route')}
    seen = {}
    for row, _, status, _ in ROWS:
        seen.setdefault(row, set()).add(status)
    assert set(seen) == rows
    for row, states in seen.items():
        assert 'OK' in states and states & {'WARN', 'FAIL'}, row
        assert ('UNKNOWN' in states) != (row in NEVER_UNKNOWN), row


# Machine, exit status, verdict, summary, the row to mend first, and its remedy.
VERDICTS = [
    (ideal, 0, 'ready', 'works for 1 GPU, by dma-buf', None, None),
    (with_virtual_function, 0, 'ready', 'works for 1 GPU, by dma-buf', None, None),
    (old, 0, 'ready', 'works for 1 GPU, by peer memory', None, None),
    (lambda: old(loaded=False), 3, 'degraded', 'No GPUDirect RDMA: GPU data is staged', 'peer-client',
     'modprobe nvidia-peermem'),
    (machines.connectx3, 3, 'degraded', 'There is no GPU. Memory of the host goes by RDMA', 'card-model', 'OFED 4.9'),
    (machines.gpu_only, 1, 'no-rdma', 'A GPU is here, and no RDMA card', 'card-driver', 'tcp fabric'),
    (machines.bare, 1, 'no-rdma', 'There is no GPU and no RDMA card', 'card-driver', 'rdma_rxe'),
    (machines.container, 1, 'no-rdma', 'No RDMA card can be used', 'access-nodes', '--device=/dev/infiniband'),
    # A virtual machine of a cloud is no defect.
    (machines.cloud, 0, 'ready', 'works for all 8 GPUs, by dma-buf, with 8 RDMA devices', None, None),
    (no_driver, 1, 'no-rdma', 'No RDMA card can be used', 'card-driver', 'modprobe mlx5_core'),
    (closed, 3, 'degraded', 'No GPUDirect RDMA', 'peer-core', 'install MLNX_OFED'),
    (file('sys/kernel/iommu_groups/11/type', 'DMA\n'), 3, 'degraded', 'by dma-buf', 'bus-iommu', 'iommu=pt'),
    (gpu_like(model='NVIDIA GeForce RTX 4090', device=0x2684, cuda=(8, 9, 0, 0, 0, 0, 0)), 3, 'degraded',
     'No GPUDirect RDMA', 'gpu-model', 'staging'),
    (soft, 3, 'degraded', 'There is no GPU. Memory of the host goes by RDMA: 1 RDMA device', 'card-driver', 'card'),
    (machines.Machine, 1, 'no-rdma', 'no RDMA card', 'card-driver', 'tcp'),
]


@pytest.mark.parametrize('machine, expected, status, row, found', [
    (ideal, 'gpus=1,cards=1', 0, 'gpu-count', '^1 GPU$'),
    (ideal, 'gpus=2', 3, 'gpu-count', '^1 GPU on the PCI bus, 2 expected$'),
    (ideal, 'cards=2', 3, 'card-driver', '1 card on the PCI bus, 2 expected'),
    (lambda: started_with(ideal(), GPU, '0000:99:00.0'), 'gpus=1', 0, 'gpu-count', '^1 GPU$'),
    (lambda: fallen(ideal()), 'gpus=1', 3, 'gpu-count', '^0 GPUs on the PCI bus, 1 expected$'),
    (machines.cloud, 'cards=9,gpus=8', 3, 'card-driver', '8 cards on the PCI bus, 9 expected'),
])
def test_expected_devices(tmp_path, machine, expected, status, row, found):
    shown = check(machine(), tmp_path, status, '--expect', expected)
    result, = [one for one in shown['checks'] if one['id'] == row]
    assert result['status'] == ('OK' if status == 0 else 'FAIL')
    assert re.search(found, ' '.join(one['found'] for one in result['findings'] if one['status'] == result['status']))
    assert status == 0 or shown['first'] == row


def test_unknown_counts_on_request(tmp_path):
    for name, machine, strict in [('all', ideal(), 0), ('some', ideal().remove(f'{CARD_FOLDER}/config'), 3)]:
        shown = check(machine, tmp_path / name, 0)
        assert ('UNKNOWN' in {one['status'] for one in shown['checks']}) == bool(strict)
        run('check', '--sysroot', tmp_path / name, '--strict', expect=strict)


@pytest.mark.parametrize('expected', ['gpus', 'gpus=', 'gpus=0', 'gpus=-1', 'gpus=8x', 'cards=9999', 'nics=1', 'gpus=1,,'])
def test_wrong_expectations(expected):
    assert 'gpus=N' in run('check', '--expect', expected, expect=2).stderr


@pytest.mark.parametrize('machine, status, verdict, summary, first, remedy', VERDICTS)
def test_verdict(tmp_path, machine, status, verdict, summary, first, remedy):
    shown = check(machine(), tmp_path, status)
    assert shown['verdict'] == verdict and summary in shown['summary'], shown['summary']
    assert shown['first'] == first, shown['first']
    assert (remedy or '') in (shown['first_remedy'] or '')
    text = run('check', '--sysroot', tmp_path, expect=status).stdout
    assert text.startswith(shown['summary'][:40])
    assert not first or f'Fix first: {first}, ' in text
    assert '\033' not in text
    assert not re.search(r'\(null\)|nan', text)


@pytest.mark.parametrize('name, row, status, found', [
    ('qemu-iommu-off', 'bus-iommu', 'OK', 'no IOMMU'),
    ('qemu-iommu-on', 'bus-iommu', 'FAIL', 'translates its addresses .group [0-9]+, DMA-FQ'),
    ('qemu-iommu-passthrough', 'bus-iommu', 'OK', 'passes its addresses through'),
    ('qemu-unbound', 'card-driver', 'FAIL', '^no driver is bound to it, it should be mlx5_core'),
])
def test_captured(tmp_path, name, row, status, found):
    """Machines of tests/vm/capture."""
    folder = captured(tmp_path, ROOT / f'tests/topology/{name}.files')
    result = next(one for one in json.loads(run('check', '--sysroot', folder, '--json', expect=1).stdout)['checks']
                  if one['id'] == row)
    assert result['status'] == status
    assert all(re.search(found, one['found']) for one in result['findings'] if one['status'] == status)
    assert name != 'qemu-unbound' or \
        [one['object'] for one in result['findings'] if one['status'] == 'FAIL'] == ['0000:87:00.0']


def test_routes(tmp_path):
    def route(machine, folder):
        one = check(machine, tmp_path / folder)['routes'][0]
        return one['class'], *(one[way]['works'] for way in ('dmabuf', 'peer_memory', 'staged'))

    assert route(ideal(), 'a') == ('PIX', 'yes', 'no', 'yes')
    assert route(old(), 'b') == ('NODE', 'no', 'yes', 'yes')
    assert route(old(loaded=False), 'c') == ('NODE', 'no', 'no', 'yes')
    assert route(machines.container(), 'd') == ('PIX', 'no', 'no', 'no')
    shown = check(machines.cloud(), tmp_path / 'e')
    assert len(shown['routes']) == 64 and sum(route['best'] for route in shown['routes']) == 8


@pytest.mark.parametrize('call, error, cause, row', [
    ('ibv_reg_mr', 'EFAULT', 'no peer memory client', 'peer-client'),
    ('ibv_reg_mr', '14', 'no peer memory client', 'peer-client'),
    ('ibv_reg_mr', '-12', 'locked memory', 'access-memlock'),
    ('ibv_reg_mr_iova2', 'ENOMEM', 'locked memory', 'access-memlock'),
    ('ibv_reg_dmabuf_mr', 'EOPNOTSUPP', 'no dma-bufs', 'card-dmabuf'),
    ('ibv_create_qp', 'ENOMEM', 'locked', 'access-memlock'),
    ('ibv_modify_qp', 'ETIMEDOUT', 'GID index', 'port-gid'),
    ('rdma_resolve_addr', 'ENODEV', 'no RDMA device', 'port-address'),
    ('rdma_connect', 'ETIMEDOUT', '4791', 'port-gid'),
    ('cuMemGetHandleForAddressRange', 'CUDA_ERROR_NOT_SUPPORTED', 'closed', 'driver-flavour'),
    ('cuMemGetHandleForAddressRange', '801', 'closed', 'driver-flavour'),
    ('cudaMalloc', 'cudaErrorOutOfMemory', 'in use', None),
    ('cudaMalloc', '2', 'in use', None),
    ('cudaSetDevice', '803', 'different releases', 'driver-loaded'),
    ('mmap', 'ENOMEM', 'huge pages', 'access-hugepages'),
    ('modprobe', 'EINVAL', 'interface', 'peer-core'),
    ('ibv_poll_cq', 'IBV_WC_RETRY_EXC_ERR', 'does not answer', 'port-state'),
    ('ibv_poll_cq', '10', 'remote key', None),
    ('ibv_reg_mr', 'EXDEV', 'refused', 'kernel-health'),
    ('ibv_reg_mr', 'Bad address', 'no peer memory client', 'peer-client'),
    ('gdr_pin_buffer', 'EINVAL', 'multiple of 64 KiB', None),
    ('nvidia_p2p_get_pages', '-524', 'MIG', 'gpu-partition'),
    ('nvidia_p2p_get_pages', 'ENOMEM', 'BAR1', 'gpu-bar1'),
    ('rdma_bind_addr', 'EADDRINUSE', 'another process', None),
])
def test_errors_are_decoded(tmp_path, call, error, cause, row):
    old(loaded=False).write(tmp_path)
    arguments = ['check', '--call', call, '--errno', error, '--sysroot', tmp_path]
    shown = json.loads(run(*arguments, '--json').stdout)
    assert cause in shown['causes'][0]['cause'] and shown['causes'][0]['check'] == row
    if row == 'peer-client':
        assert shown['causes'][0]['here'] == 'FAIL'
        assert 'here: FAIL peer-client' in run(*arguments).stdout
    assert cause.split()[0] in run(*arguments).stdout


@pytest.mark.parametrize('call, error', [('ibv_reg_mr', 'EWHAT'), ('ibv_reg_mr', '0'), ('ibv_reg_mr', '9999'),
                                         ('ibv_reg_mr', ''), ('printf', 'EINVAL'), ('ibv_poll_cq', 'EINVAL')])
def test_unknown_errors(call, error):
    assert '[DECODE-' in run('check', '--call', call, '--errno', error, expect=1).stderr


def test_all_known_functions_are_listed():
    shown = run('check', '--call', 'printf', '--errno', 'EINVAL', expect=1).stderr
    assert {'ibv_reg_mr', 'cuMemGetHandleForAddressRange'} <= set(shown.partition('known functions:')[2].split())


def test_wrong_usage(tmp_path):
    for arguments in [('--errno', 'EFAULT'), ('--yes',), ('--fix', '--sysroot', tmp_path), ('argument',)]:
        run('check', *arguments, expect=2)
    assert '[CHECK-UNKNOWN]' in run('check', '--explain', 'nothing', expect=1).stderr
    assert '[SYSROOT-OPEN]' in run('check', '--sysroot', tmp_path / 'none', expect=1).stderr
    (tmp_path / 'text').write_text('no tar file\n' * 100)
    assert '[DUMP-FORMAT]' in run('check', '--sysroot', tmp_path / 'text', expect=1).stderr


def test_explanations():
    listed = run('check', '--list').stdout
    for row in json.loads(run('check', '--list', '--json').stdout):
        text = ' '.join(run('check', '--explain', row['id']).stdout.split())
        for part in ('title', 'requirement', 'how', 'why', 'remedy'):
            # Each command of a remedy is on a line of its own.
            assert ' '.join(row[part].replace('; ', ' ').split() if part == 'remedy' else row[part].split()) in text
        assert row['id'] in listed


def test_sentences_of_remedies_wrap_between_words(tmp_path):
    """On a terminal of 80 columns.  A command stays on one line, which the user copies."""
    ideal().set(f'{SWITCH}/0000:3c:00.0/config', machines.express(6, acs=0x1d)).write(tmp_path)
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 80, 0, 0))
    process = subprocess.Popen([PEERLANE, 'check', '--sysroot', tmp_path], stdout=terminal, env=environment())
    os.close(terminal)
    shown = read_terminal(main).decode().replace('\r\n', '\n')
    assert process.wait(DEADLINE) == 3 and ', 1 warning, ' in shown
    assert 'setpci -s 0000:3c:00.0 ECAP_ACS+6.w=0000   # for each port\n' in shown
    assert 'need isolation, these need ATS\n                  instead\n' in shown


def test_dump_answers_as_the_machine_does(tmp_path):
    lost = lambda: started_with(dead(ideal()), GPU, '0000:99:00.0')
    for name, make in [('ideal', ideal), ('old', old), ('cloud', machines.cloud), ('roce', roce), ('lost', lost)]:
        folder = make().write(tmp_path / name)
        tar = tmp_path / f'{name}.tar'
        run('dump', '--sysroot', folder, '--output', tar)
        status = 3 if name == 'lost' else 0
        from_folder = json.loads(run('check', '--sysroot', folder, '--json', expect=status).stdout)
        from_tar = json.loads(run('check', '--sysroot', tar, '--json', expect=status).stdout)
        for shown in from_folder, from_tar:
            assert shown.pop('time') and shown.pop('duration_seconds') >= 0
        assert from_folder == from_tar
        assert run('topo', '--json', '--sysroot', folder).stdout == run('topo', '--json', '--sysroot', tar).stdout
        # And a dump of a dump is the same bytes.
        run('dump', '--sysroot', tar, '--output', tmp_path / 'again.tar', '--quiet')
        assert (tmp_path / 'again.tar').read_bytes() == tar.read_bytes()


def test_dump_is_a_tar_file_without_secrets(tmp_path):
    machine = ideal().set('proc/cmdline', 'root=/dev/sda1 luks.key=SECRET intel_iommu=on iommu=pt\n')
    machine.remove('sys/kernel/iommu_groups/11/type')
    machine.set('etc/hostname', 'SECRET\n').set('etc/shadow', 'SECRET\n').set('sys/class/dmi/id/product_serial', 'SECRET')
    machine.fact('search.path', '/home/SECRET/bin:/usr/bin:/root/SECRET')
    tar = tmp_path / 'x.tar'
    done = run('dump', '-r', machine.write(tmp_path / 'machine'), '-o', tar)
    assert 'Not in it' in done.stdout
    assert b'SECRET' not in tar.read_bytes()
    with tarfile.open(tar) as opened:
        names = opened.getnames()
        assert 'Not in it' in opened.extractfile('peerlane/README').read().decode()
        assert opened.extractfile('proc/cmdline').read() == b'intel_iommu=on iommu=pt '
        assert opened.extractfile(f'{CARD_FOLDER}/vendor').read() == b'0x15b3\n'
    assert f'{machines.DEVICES}/{CARD}' in names


@pytest.mark.parametrize('make', [ideal, old])
def test_dump_contains_no_planted_name(make, tmp_path):
    """The word stands in all places in which people write names, and in none of the dump."""
    machine = make().remove('sys/kernel/iommu_groups/11/type')
    machine.set('opt/sEcReT/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2', '')
    machine.set('opt/sEcReT/hpcx-2.19-sEcReT/ompi/lib/openmpi/mca_pml_ucx.so', '')
    machine.set('opt/sEcReT/other/file', '').set('usr/local/sEcReT/bin/x', '').set('home/sEcReT/mpi/lib/openmpi/x', '')
    machine.set('usr/lib/sEcReT/libucp.so.0', '').set('usr/lib/sEcReT/private', '')
    machine.set('etc/modules-load.d/a-sEcReT.conf', '# for sEcReT\nnvidia-peermem # sEcReT\n')
    machine.set('etc/modules', '# sEcReT\nib_uverbs\n')
    machine.set('etc/nccl.conf', 'NCCL_TOPO_FILE=/home/sEcReT/topo.xml # sEcReT\n')
    machine.set(f'sys/class/infiniband/mlx5_0/node_desc', 'sEcReT mlx5_0\n')
    machine.set('proc/cmdline', 'iommu=pt modulesecret=sEcReT mlxkey=sEcReT pcikey=sEcReT luks=sEcReT rdmax.y=sEcReT\n')
    machine.fact('search.path', '/home/sEcReT/mpi/bin:/usr/bin:/data/sEcReT/sEcReT-2')
    machine.fact('nccl.topo_file', '/home/sEcReT/topo.xml')
    machine.fact('log.xid', 'NVRM: Xid (PCI:0000:19:00): 79, pid=1, name=sEcReT, GPU has fallen off the bus.')
    machine.fact('cuda.library', '/home/sEcReT/libcuda.so.1: file too short')
    machine.fact('user.name', 'sEcReT')
    machine.set('var/log/dmesg.0', f'[ 0.6] sEcReT kernel: pci {GPU}: [10de:2330] type 00 class 0x030200\n[ 0.7] sEcReT\n')
    folder = machine.write(tmp_path / 'machine')
    run('dump', '-r', folder, '-o', tmp_path / 'x.tar')
    data = (tmp_path / 'x.tar').read_bytes()
    assert b'secret' not in data.lower()
    with tarfile.open(tmp_path / 'x.tar') as opened:
        members = opened.getmembers()
        assert all(not member.uname and not member.gname and member.uid == member.gid == member.mtime == 0
                   for member in members)
        names = [member.name for member in members]
        if make == ideal:
            assert opened.extractfile('proc/cmdline').read().decode().split() == ['iommu=pt']
        else:
            loads = [name for name in names if name.startswith('etc/modules-load.d/')]
            assert b'nvidia-peermem \n' in [opened.extractfile(name).read() for name in loads]
    # Found under another name, with the same verdict.
    here, there = (json.loads(run('check', '-r', place, '--json', expect=status).stdout)
                   for status, place in zip(statuses(folder, tmp_path / 'x.tar'), [folder, tmp_path / 'x.tar']))
    assert here['verdict'] == there['verdict']
    for ours, theirs in zip(here['checks'], there['checks']):
        assert (ours['id'], ours['status']) == (theirs['id'], theirs['status'])
    assert any('libnccl.so.2' in name for name in names) and any('hpcx' in name or 'ompi' in name for name in names)


def statuses(*places):
    return [subprocess.run([PEERLANE, 'check', '-r', place], capture_output=True, env=environment(), check=False).returncode
            for place in places]


def test_dump_of_this_machine_contains_no_planted_name(tmp_path):
    folder = tmp_path / 'sEcReT'
    write(folder / 'mpi/lib/libnccl.so.2', b'')
    write(folder / 'mpi/lib/openmpi/mca_pml_ucx.so', b'')
    os.symlink(folder / 'mpi', folder / 'link')
    path = f'{folder}/mpi/bin:{folder}/link/bin:{os.environ["PATH"]}'
    run('dump', '-o', tmp_path / 'x.tar', PATH=path, HOME=str(folder), NCCL_TOPO_FILE=str(folder / 'topo.xml'),
        PASSWORD='sEcReT', USER='sEcReT', LD_LIBRARY_PATH=str(folder))
    assert b'secret' not in (tmp_path / 'x.tar').read_bytes().lower()


def test_dump_of_another_tar(tmp_path):
    """What tar(1) packs of a folder is taken as well: names with ./ in front, and the headers of pax."""
    folder = ideal().write(tmp_path / 'machine')
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / 'x.tar', 'w', format=form) as archive:
            archive.add(folder, './')
        assert json.loads(run('check', '-r', tmp_path / 'x.tar', '--json').stdout)['verdict'] == 'ready'


def test_damaged_dumps(tmp_path):
    whole = tmp_path / 'x.tar'
    run('dump', '-r', ideal().write(tmp_path / 'machine'), '-o', whole)
    data = whole.read_bytes()
    damaged = tmp_path / 'y.tar'
    for size in (0, 1, 511, 512, 700, len(data) // 2 + 100):
        damaged.write_bytes(data[:size])
        done = run('check', '-r', damaged, '--json', expect=1)
        json.loads(done.stdout)
    for at in range(600, len(data) - 1, len(data) // 30):
        damaged.write_bytes(data[:at])
        assert '[DUMP-FORMAT]' in run('check', '-r', damaged, expect=1).stderr, at
        if at < len(data) - 2048:
            damaged.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
            assert '[DUMP-FORMAT]' in run('check', '-r', damaged, expect=1).stderr, at
    damaged.write_bytes(data[:148] + b'9999999\0' + data[156:])
    assert '[DUMP-FORMAT]' in run('check', '-r', damaged, expect=1).stderr
    unwritten = run('dump', '-r', whole, '-o', tmp_path / 'none/x.tar', expect=1).stderr
    assert 'open: No such file or directory [DUMP-WRITE]' in unwritten and 'create the folder first' in unwritten


def test_a_dump_that_cannot_be_written_leaves_the_old_one(tmp_path):
    machine, tar = ideal().write(tmp_path / 'machine'), tmp_path / 'x.tar'
    run('dump', '-r', machine, '-o', tar)
    before = tar.read_bytes()
    done = subprocess.run([PEERLANE, 'dump', '-r', machine, '-o', tar], capture_output=True, text=True, env=environment(),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000)))
    assert done.returncode == 1 and '[DUMP-WRITE]' in done.stderr
    assert tar.read_bytes() == before and sorted(os.listdir(tmp_path)) == ['machine', 'x.tar']
    piped = subprocess.run([PEERLANE, 'dump', '-r', machine, '-o', '-'], capture_output=True, env=environment(), check=True)
    assert piped.stdout == before


def test_hostile_files(tmp_path):
    """Links in circles and out of the folder, files where folders should be, and rubbish: an answer for each."""
    machine = ideal()
    machine.set('sys/class/infiniband/loop', '-> ../infiniband/loop').set('sys/class/infiniband/out', '-> /../../../etc')
    machine.set('sys/class/infiniband/mlx5_9/ports/1', 'a file\n').set('sys/class/infiniband/mlx5_9/device', '-> ' + 'x' * 200)
    machine.remove(f'{GPU_FOLDER}/resource').set(f'{GPU_FOLDER}/resource', b'\xff\0\n' * 2000)
    machine.set('proc/meminfo', 'HugePages_Total: 99999999999999999999\nHugePages_Free: 9\nHugepagesize: 9999999999999999\n')
    machine.set('proc/self/cgroup', '0::/' + 'a/' * 500 + '\n').set('proc/sys/kernel/tainted', 'x' * 70000)
    machine.set('proc/driver/nvidia/version', b'\x1b[31m\n').remove(f'{PORT}/rate').set(f'{PORT}/rate', b'\x1b]0;x\7\xc2\x9b9m' * 3)
    folder = machine.write(tmp_path / 'machine')
    for arguments in ([], ['--all'], ['--quiet']):
        done = run('check', '-r', folder, *arguments, expect=3)
        assert not set('\x1b\7\x9b') & set(done.stdout)
    run('dump', '-r', folder, '-o', tmp_path / 'x.tar')
    assert run('check', '-r', tmp_path / 'x.tar', expect=3).stdout == run('check', '-r', folder, expect=3).stdout


def test_this_machine():
    """Whatever it is: an answer, also where probes of libraries run into limits."""
    done = subprocess.run([PEERLANE, 'check', '--json'], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode in (0, 1, 3) and not done.stderr
    assert {one['status'] for one in json.loads(done.stdout)['checks']} <= {'none', 'OK', 'UNKNOWN', 'WARN', 'FAIL'}


def test_what_libcuda_is_asked(tmp_path):
    """The stand-in's GPUs: all are described, and memory of the first one is exported."""
    libcuda = pathlib.Path(PEERLANE).parent / 'tests/libcuda.so.1'
    if not libcuda.exists():
        pytest.skip(f'{libcuda} is not built')
    run('dump', '--output', tmp_path / 'x.tar', LD_LIBRARY_PATH=str(libcuda.parent))
    with tarfile.open(tmp_path / 'x.tar') as opened:
        facts = dict(line.split(' ', 1) for line in opened.extractfile('peerlane/facts').read().decode().splitlines())
    assert facts['cuda.library'] == 'ok' and facts['cuda.state'] == 'done' and facts['cuda.devices'] == '2'
    assert facts['cuda.gpu.0000:f0:00.0.name'] == 'stand-in 0' and facts['cuda.gpu.0000:f1:00.0.attribute.124'] == '1'
    assert facts.get('cuda.gpu.0000:f0:00.0.export', '0') == '0'    # not there where all is slow


def test_fix_shows_and_does_not_do():
    done = run('check', '--fix')
    assert done.returncode == 0 and done.stdout
    assert run('check', '--fix', '--json').stdout.startswith('[')


def test_man_page_has_every_check():
    """peerlane-checks(7) says the same as --explain, in the same order."""
    page = (ROOT / 'man/peerlane-checks.7.scd').read_text()
    rows = json.loads(run('check', '--list', '--json').stdout)
    entries = re.split(r'^\*([a-z0-9-]+)\*$', page, flags=re.MULTILINE)
    assert entries[1::2] == [row['id'] for row in rows]
    for row, entry in zip(rows, entries[2::2]):
        plain = ' '.join(re.sub(r'\\(.)', r'\1', entry).split())
        for label, part in [('Must hold', 'requirement'), ('See it', 'how'), ('Why', 'why'), ('Remedy', 'remedy')]:
            assert f'*{label}*: {" ".join(row[part].split())}' in plain, (row['id'], part)
