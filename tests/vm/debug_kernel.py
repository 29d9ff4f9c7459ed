# SPDX-License-Identifier: BSD-2-Clause
"""Kernel with KASAN, lockdep and kmemleak, built from the distribution's sources with the settings of debug.config.

The build takes 15 minutes on two processors; an interrupted build continues.
"""
import os
import pathlib
import re
import shutil
import subprocess

from kernel import Kernel, Unavailable, newest_version, output_of

SETTINGS = pathlib.Path(__file__).resolve().parent / 'debug.config'


def fetch_source(folder, part=''):
    """Downloads and unpacks the sources of the distribution's kernel, or one folder of them; returns their root."""
    series = '.'.join((newest_version() or '').split('.')[:2])
    package = f'linux-source-{series}'
    source = folder / package
    if source.exists():
        return source
    partial = folder / 'partial'
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    print(f'fetching {package}', flush=True)
    if output_of('apt-get', 'download', '-q', package, cwd=partial) is None:
        raise Unavailable(f'apt-get cannot download {package}')
    for found in partial.glob('*.deb'):
        output_of('dpkg-deb', '-x', str(found), str(partial))
    archive = partial / 'usr/src' / f'{package}.tar.xz'
    if output_of('tar', '-xf', str(archive), '-C', str(partial), f'{package}/{part}') is None:
        raise Unavailable(f'{archive.name} cannot be unpacked')
    (partial / package).rename(source)
    shutil.rmtree(partial)
    return source


def has_settings(folder):
    """True if a folder's copy of the settings equals debug.config."""
    copy = folder / SETTINGS.name
    return copy.exists() and copy.read_bytes() == SETTINGS.read_bytes()


def configure(source):
    wanted = SETTINGS.read_text(encoding='utf-8')
    if has_settings(source):
        return
    make(source, 'allnoconfig', f'KCONFIG_ALLCONFIG={SETTINGS}')
    made = (source / '.config').read_text(encoding='utf-8').splitlines()
    for line in wanted.splitlines():
        if line.startswith('CONFIG_') and line not in made:
            raise Unavailable(f'{source.name} does not take the setting {line}')
    (source / SETTINGS.name).write_text(wanted, encoding='utf-8')


def make(source, *arguments):
    done = subprocess.run(['nice', '-n', '19', 'make', '-s', f'-j{os.cpu_count()}', '-C', str(source), *arguments],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace', check=False)
    if done.returncode:
        raise Unavailable(f'{source.name} does not build: {done.stdout[-2000:].strip()}')
    return done.stdout.strip()


def fetch(folder):
    """Returns the kernel, built if necessary; modules are built with its sources."""
    source = fetch_source(folder)
    root = folder / 'root'
    # The settings are copied there at the end of a complete build.
    if not has_settings(root):
        configure(source)
        print('building a kernel, for 15 minutes', flush=True)
        make(source, 'bzImage', 'modules')
        version = re.split(r'\s', make(source, 'kernelrelease'))[-1]
        partial = folder / 'partial'
        shutil.rmtree(partial, ignore_errors=True)
        (partial / 'boot').mkdir(parents=True)
        make(source, 'modules_install', f'INSTALL_MOD_PATH={partial}/usr')
        shutil.copy(source / 'arch/x86/boot/bzImage', partial / f'boot/vmlinuz-{version}')
        (partial / 'lib').symlink_to('usr/lib')
        shutil.copy(SETTINGS, partial)
        shutil.rmtree(root, ignore_errors=True)
        partial.rename(root)
    version = next((root / 'usr/lib/modules').iterdir()).name
    return Kernel(root, version, source)
