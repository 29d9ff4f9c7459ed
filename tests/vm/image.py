# SPDX-License-Identifier: BSD-2-Clause
"""The file system of the machines, in memory: an initramfs of the host's programs and a few modules."""
import glob
import os
import pathlib
import re
import shutil
import stat
import tempfile

import checkers
from kernel import Unavailable, output_of

# Programs of the host, with the package of those that not every system has.
PROGRAMS = {
    'sh': '', 'basename': '', 'cat': '', 'chmod': '', 'chrt': '', 'cmp': '', 'cut': '', 'date': '', 'dd': '', 'dmesg': '',
    'grep': '', 'gzip': '', 'head': '', 'ls': '', 'mkdir': '', 'mktemp': '', 'mount': '', 'mv': '', 'rm': '', 'sed': '',
    'seq': '', 'setpriv': 'util-linux', 'sha256sum': '', 'sleep': '', 'stty': '', 'tail': '', 'tar': '', 'tee': '',
    'timeout': '', 'uname': '', 'wc': '',
    'insmod': 'kmod', 'modprobe': 'kmod', 'rmmod': 'kmod', 'ip': 'iproute2', 'rdma': 'iproute2', 'tc': 'iproute2',
    'ss': 'iproute2',
    'ibv_devinfo': 'ibverbs-utils', 'ibv_rc_pingpong': 'ibverbs-utils', 'rping': 'rdmacm-utils',
    'ib_write_bw': 'perftest',
}

# Programs of the build folder.
BUILT = ['peerlane', 'tests/test_scenarios', 'tests/check_action']
# Programs that only a build with the verbs fabric has.
BUILT_WITH_VERBS = ['tests/ledger', 'tests/nccl/test_nccl_faults', 'tests/nccl/test_nccl_peers', 'tests/nccl/test_nccl_users', 'tests/raw_server', 'tests/raw_verbs', 'tests/test_stream_hunt', 'tests/peermem_cases', 'tests/peermem_verbs',
                    'tests/peermem_walk', 'tests/emulated/emulated_gpu',
                    'tests/emulated/emulated_peer']
# Libraries used through variables only: the emulated GPU's driver, dma-bufs for soft-RoCE, and NCCL's plugin.
BUILT_LIBRARIES = ['tests/emulated/libcuda.so.1', 'tests/emulated/roce_dmabuf.so',
                   'plugins/nccl/libnccl-net-peerlane.so']

FIRST_HOUR = pathlib.Path(__file__).resolve().parents[2] / 'src/cmd/first-hour/peerlane-first-hour'

MODULES = ['virtio_pci', 'virtio_net', 'dummy', 'rdma_rxe', 'rdma_ucm', 'ib_uverbs', 'sch_netem', 'sch_prio', 'cls_u32',
           'tcp_diag']
# Checksums that soft-RoCE and soft-iWARP load by name; newer kernels have them built in.
OPTIONAL_MODULES = ['crc32_generic', 'crc32_pclmul', 'crc32c_generic', 'libcrc32c']


class Image:
    """Collects files and writes them as a cpio archive, the format of an initramfs."""

    def __init__(self):
        self.entries = {}   # path without the leading slash: (mode, content or the path of a file)
        for path in ['dev', 'proc', 'sys', 'run', 'tmp', 'root', 'etc', 'usr/bin', 'usr/lib', 'usr/lib64']:
            self.folder(path)
        # One folder for all programs: the kernel looks for /sbin/modprobe.
        for link, target in [('bin', 'usr/bin'), ('sbin', 'usr/bin'), ('usr/sbin', 'bin'), ('lib', 'usr/lib'),
                             ('lib64', 'usr/lib64')]:
            self.entries[link] = (stat.S_IFLNK | 0o777, target.encode())

    def folder(self, path):
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.folder(parent)
        self.entries.setdefault(path, (stat.S_IFDIR | 0o755, b''))

    def add(self, path, content, mode=0o644):
        """Adds a file.  Content is bytes, or the path of a file on the host."""
        path = re.sub(r'^(lib|lib64|bin|sbin)/', r'usr/\1/', str(path).lstrip('/'))
        path = re.sub(r'^usr/sbin/', 'usr/bin/', path)
        self.folder(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, content)

    def program(self, source):
        """Adds a program or library and the libraries that it needs."""
        self.add(f'usr/bin/{os.path.basename(source)}', source, 0o755)
        self.libraries(source)

    def libraries(self, source):
        shown = output_of('ldd', source) or ''      # fails for static programs
        for line in shown.splitlines():
            if 'not found' in line:
                raise Unavailable(f'{source} needs a library that is missing: {line.strip()}')
            found = re.search(r'(/\S+) \(0x', line)
            if found:
                self.add(found.group(1), found.group(1), 0o755)

    def write(self, path, stripped=None):
        """Writes the archive.  Programs below `stripped`, a folder of the host, lose their debug information: nine tenths of them."""
        with open(path, 'wb') as archive:
            for number, (name, (mode, content)) in enumerate(sorted(self.entries.items()), 1):
                if not isinstance(content, bytes):
                    content = bytes_of(pathlib.Path(content), stripped)
                write_entry(archive, number, name, mode, content)
            write_entry(archive, 0, 'TRAILER!!!', 0, b'')


def bytes_of(path, stripped):
    content = path.read_bytes()
    # A stripped module loses its signature.
    if not stripped or not path.resolve().is_relative_to(stripped) or path.suffix == '.ko' or content[:4] != b'\x7fELF':
        return content
    with tempfile.NamedTemporaryFile() as copy:
        output_of('strip', '--strip-debug', '-o', copy.name, str(path))
        return pathlib.Path(copy.name).read_bytes() or content


def write_entry(archive, number, name, mode, content):
    name = name.encode() + b'\0'
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0]
    header = b'070701' + b''.join(b'%08X' % field for field in fields) + name
    archive.write(header + bytes(-len(header) % 4) + content + bytes(-len(content) % 4))


def add_programs(image, build, more):
    for name, package in [*PROGRAMS.items(), *((name, '') for name in more)]:
        if '.so' in os.path.basename(name) and os.path.exists(name):
            # Files that a program of the host loads by their absolute path.
            image.add(name, os.path.realpath(name), 0o755)
            image.libraries(name)
            continue
        path = shutil.which(name)
        if not path:
            raise Unavailable(f'there is no program {name}' + (f': install {package}' if package else ''))
        image.add(f'usr/bin/{os.path.basename(name)}', os.path.realpath(path), 0o755)
        image.libraries(path)
    for name in BUILT:
        if not (build / name).exists():
            raise Unavailable(f'{build / name} is not there: build it first')
        image.program(str(build / name))
    for name in BUILT_WITH_VERBS:
        if (build / name).exists():
            image.program(str(build / name))
    image.add('usr/bin/peerlane-first-hour', FIRST_HOUR, 0o755)
    for name in BUILT_LIBRARIES:
        if (build / name).exists():
            image.add(f'guest/gpu/{os.path.basename(name)}', build / name, 0o755)


def add_modules(image, kernel):
    for module in MODULES + OPTIONAL_MODULES:
        for path in kernel.closure(module):
            image.add(os.path.relpath(path, kernel.root), path)
    for path in kernel.modules.glob('modules.*'):
        image.add(path.relative_to(kernel.root), path)


def add_provider(image, name):
    """Adds a provider of libibverbs."""
    drivers = glob.glob(f'/usr/lib/*/libibverbs/lib{name}-rdmav*.so')
    settings = glob.glob(f'/etc/libibverbs.d/{name}.driver') + glob.glob(f'/usr/share/libibverbs.d/{name}.driver')
    if not drivers or not settings:
        raise Unavailable(f'there is no provider {name} for libibverbs: install ibverbs-providers')
    for path in drivers + settings:
        image.add(path, path)
    image.libraries(drivers[0])


def add_verbs(image, built_modules):
    """Adds the providers of the machines' devices only: loading all takes seconds on an emulated processor."""
    add_provider(image, 'rxe')
    if any(module.stem == 'siw' for module in built_modules):
        add_provider(image, 'siw')
    # For topology files.
    for path in glob.glob('/usr/lib/*/libexpat.so.1') + glob.glob('/lib/*/libexpat.so.1'):
        image.add(path, path)
    # glibc opens it by itself to cancel threads.
    for path in glob.glob('/usr/lib/*/libgcc_s.so.1') + glob.glob('/lib/*/libgcc_s.so.1'):
        image.add(path, path)


def make(path, kernel, guest, build, more, built_modules, checker=None):
    """Writes the initramfs with everything that any case needs, more programs of the host, and modules.

    The checker looks at our own programs.
    """
    image = Image()
    add_programs(image, build, more)
    add_modules(image, kernel)
    add_verbs(image, built_modules)
    image.add('etc/passwd', b'root:x:0:0:root:/root:/bin/sh\n')
    image.add('etc/group', b'root:x:0:\n')
    image.add('etc/hosts', b'127.0.0.1 localhost\n')
    image.add('init', guest / 'init', 0o755)
    for name in ('cases.sh', 'peermem.sh'):
        image.add(f'guest/{name}', guest / name)
    for module in built_modules:
        image.add(f'guest/modules/{module.name}', module)
    image.add('guest/key', b'5d41402abc4b2a76b9719d911017c592\n', 0o600)
    if checker:
        checkers.add(checker, image, guest.parent.parent.parent,
                     [os.path.basename(name) for name in BUILT + BUILT_WITH_VERBS])
    # Reports of a checker name lines of the sources.
    image.write(path, stripped=None if checker else build.resolve())
