# SPDX-License-Identifier: BSD-2-Clause
"""The machines' kernel: the distribution's package, unpacked but not installed."""
import functools
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import zlib

# Meta packages of the newest kernel, of Debian and Ubuntu; and of the next series, in Debian 12.
NEWEST = ['linux-image-amd64', 'linux-image-generic', 'linux-image-virtual']
NEXT = ['linux-image-6.12-amd64']


class Unavailable(Exception):
    """This host lacks something that the machines need."""


def output_of(*command, cwd=None):
    """Returns the output of a command; None if it fails or does not exist."""
    try:
        done = subprocess.run(command, cwd=cwd, env={**os.environ, 'LC_ALL': 'C'}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


# ELF note with the address where an uncompressed kernel starts: XEN_ELFNOTE_PHYS32_ENTRY.
ENTRY = re.compile(rb'\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0')


def uncompressed(image):
    """The kernel in a compressed image, as a file that QEMU starts at once; the image itself if there is none such.

    An emulated processor would take seconds to decompress it.
    """
    path = image.with_name(image.name.replace('vmlinuz', 'vmlinux'))
    if path.exists():
        return path
    content = image.read_bytes()
    # Linux' Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length.
    offset, length = struct.unpack_from('<II', content, 0x248)
    payload = content[(content[0x1f1] + 1) * 512 + offset:][:length]
    if payload.startswith(b'\xfd7zXZ'):
        unpacked = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b'\x1f\x8b'):
        unpacked = zlib.decompressobj(31).decompress(payload)
    else:
        return image
    if not ENTRY.search(unpacked):
        return image
    partial = path.with_name(f'{path.name}.partial')
    partial.write_bytes(unpacked)
    partial.rename(path)
    return path


class Kernel:
    """An unpacked kernel: its image and its modules; `source` is what modules are built with, if that is here."""

    def __init__(self, root, version, source=None):
        self.root = root
        self.version = version
        self.source = source
        self.modules = root / 'usr/lib/modules' / version

    @functools.cached_property
    def image(self):
        return uncompressed(self.root / 'boot' / f'vmlinuz-{self.version}')

    def closure(self, name):
        """Returns the files to load for a module, in order; none if the module is built in or does not exist."""
        shown = output_of('modprobe', '-d', str(self.root), '-S', self.version, '--show-depends', name) or ''
        return re.findall(r'^insmod (.+\.ko\S*)', shown, re.MULTILINE)

    def headers(self, folder):
        """Returns the folder for Kbuild; downloads the headers if necessary."""
        return self.source or fetch_headers(folder, self.version)


def newest_version(packages=NEWEST):
    """Returns the distribution's current version; None if its package lists do not have it."""
    for package in packages:
        shown = output_of('apt-cache', 'depends', package) or ''
        found = re.search(r'Depends: linux-image-(?:unsigned-)?(\d\S*)', shown)
        if found:
            return found.group(1)
    return None


def refresh_lists():
    """Runs `apt-get update`, if that needs no password."""
    as_root = [] if os.geteuid() == 0 else ['sudo', '-n']
    output_of(*as_root, 'apt-get', 'update', '-q')


def download(version, folder):
    """Downloads the packages of a version into a folder; returns True if the kernel's package is there."""
    # Ubuntu has modules in packages of their own.
    wanted = [f'linux-image-{version}', f'linux-modules-{version}', f'linux-modules-extra-{version}']
    known = [package for package in wanted if output_of('apt-cache', 'show', package)]
    return bool(known) and output_of('apt-get', 'download', '-q', *known, cwd=folder) is not None


def unpack(version, folder):
    """Unpacks the packages of a folder into a root folder with /lib in /usr/lib, as in distributions."""
    for package in sorted(folder.glob('*.deb')):
        if output_of('dpkg-deb', '-x', str(package), str(folder)) is None:
            raise Unavailable(f'{package.name} cannot be unpacked')
        package.unlink()
    if (folder / 'lib').is_dir():
        shutil.copytree(folder / 'lib', folder / 'usr/lib', symlinks=True, dirs_exist_ok=True, copy_function=os.rename)
        shutil.rmtree(folder / 'lib')
    (folder / 'lib').symlink_to('usr/lib')
    if output_of('depmod', '-b', str(folder), version) is None:
        raise Unavailable('depmod failed on the kernel package')


def fetch_headers(folder, version):
    """Downloads and unpacks the packages of a kernel's headers, for building modules.

    Returns the folder that Kbuild is called in.
    """
    root = folder / version
    if not root.exists():
        partial = folder / 'partial'
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        wanted = header_packages(f'linux-headers-{version}')
        print(f'fetching {" ".join(wanted)}', flush=True)
        if output_of('apt-get', 'download', '-q', *wanted, cwd=partial) is None:
            raise Unavailable(f'apt-get cannot download {" ".join(wanted)}')
        for package in sorted(partial.glob('*.deb')):
            if output_of('dpkg-deb', '-x', str(package), str(partial)) is None:
                raise Unavailable(f'{package.name} cannot be unpacked')
            package.unlink()
        # Debian's Makefile names the common headers by their installed path.
        for makefile in partial.glob('usr/src/linux-headers-*/Makefile'):
            text = makefile.read_text(encoding='utf-8')
            makefile.write_text(re.sub(r'^include /usr/src/', f'include {root}/usr/src/', text), encoding='utf-8')
        partial.rename(root)
    return root / 'usr/src' / f'linux-headers-{version}'


def header_packages(package):
    """Returns a package of headers and its dependencies of the same build."""
    shown = output_of('apt-cache', 'depends', package) or ''
    others = re.findall(r'Depends: (linux-(?:headers|kbuild)-\S+)', shown)
    return [package, *others]


def fetch(folder, packages=NEWEST):
    """Returns the newest kernel of one of these packages, unpacked below a folder."""
    if platform.machine() != 'x86_64':
        raise Unavailable(f'the machines are x86-64, this host is {platform.machine()}')
    if not shutil.which('apt-get') or not shutil.which('dpkg-deb'):
        raise Unavailable('the kernel comes as a package of Debian or Ubuntu, and apt is not here')
    version = newest_version(packages)
    if not version:
        refresh_lists()
        version = newest_version(packages)
    if version and not (folder / version).exists():
        partial = folder / 'partial'
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        print(f'fetching linux-image-{version}', flush=True)
        good = download(version, partial)
        if not good:
            refresh_lists()
            version = newest_version(packages) or version
            good = download(version, partial)
        if good:
            unpack(version, partial)
            shutil.rmtree(folder / version, ignore_errors=True)
            partial.rename(folder / version)
    there = sorted(path.name for path in folder.glob('[0-9]*'))
    if not there:
        raise Unavailable(f'apt-get cannot download {f"linux-image-{version}" if version else "a kernel package"}')
    chosen = version if version in there else there[-1]
    return Kernel(folder / chosen, chosen)
