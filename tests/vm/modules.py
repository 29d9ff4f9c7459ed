# SPDX-License-Identifier: BSD-2-Clause
"""The machines' kernel modules: peerlane_peermem, and the stand-ins for a GPU, its driver and IB core."""
import gzip
import lzma
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class BuildFailed(Exception):
    """A module does not build without warnings; the text is the build's output."""


def make(folder, *arguments):
    """Runs Kbuild; a warning is a failure."""
    command = ['make', '-s', f'-j{os.cpu_count()}', '-C', str(folder.parent / 'headers'), f'M={folder}', *arguments,
               # BTF is not needed here, and needs pahole.
               'CONFIG_DEBUG_INFO_BTF_MODULES=', 'modules']
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='replace', check=False)
    if done.returncode or 'warning:' in done.stdout or 'WARNING:' in done.stdout:
        raise BuildFailed(f'{" ".join(command)}\n{done.stdout}')


def apply(patch, folder, *options):
    done = subprocess.run(['patch', '-p1', '-s', '-F0', '-i', str(patch), *options], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f'{patch.name} does not fit any more\n{done.stdout}')


def state(headers, changes):
    """Returns a digest of the modules' sources; a change means a new build."""
    files = sorted(path for folder in ('kernel', 'tests/kernel') for path in (ROOT / folder).rglob('*')
                   if path.is_file())
    others = [pathlib.Path(__file__), headers / '.config', *changes]
    return ''.join(f'{path} {path.stat().st_mtime_ns}\n' for path in [*files, *others])


def build(folder, headers, version, changes=()):
    """Builds all modules with the headers of a kernel, and a variant with each patch; returns their files."""
    root = folder / version
    stamp = root / 'stamp'
    if not stamp.exists() or stamp.read_text(encoding='utf-8') != state(headers, changes):
        print('building modules', flush=True)
        shutil.rmtree(root, ignore_errors=True)
        (root / 'out').mkdir(parents=True)
        (root / 'headers').symlink_to(headers)
        (root / 'tests').mkdir()
        (root / 'tests/headers').symlink_to(headers)
        build_all(root, changes)
        stamp.write_text(state(headers, changes), encoding='utf-8')
    return sorted((root / 'out').glob('*.ko'))


def build_module(root, name, *arguments, patch=None):
    """Builds a variant of peerlane_peermem.  All variants share a folder, so that equal files are compiled once."""
    folder = root / 'kernel'
    if patch:
        apply(patch, folder)
    make(folder, 'W=1', *arguments)
    (folder / 'peerlane_peermem.ko').rename(root / 'out' / name)
    if patch:
        apply(patch, folder, '-R')


def build_changed(root, patch, versions):
    """Builds a variant with a patch; leaves it out if it does not build."""
    try:
        build_module(root, f'broken_{patch.stem}.ko', versions, patch=patch)
    except BuildFailed:
        apply(patch, root / 'kernel', '-R')


def symbols_of(standins, flavour, target):
    """Writes the symbol versions of a flavour's stand-ins; returns Kbuild's argument for them."""
    lines = (standins / 'Module.symvers').read_text(encoding='utf-8').splitlines(keepends=True)
    target.write_text(''.join(line for line in lines if f'standin_nvidia_{flavour}' in line or 'standin_core' in line),
                      encoding='utf-8')
    return f'KBUILD_EXTRA_SYMBOLS={target}'


def check_find_symbols(root, driver):
    """Checks that kernel/find-symbols reads the versions from compressed modules that Kbuild has written."""
    shim, found = root / 'shim', root / 'found.symvers'
    shim.mkdir()
    for name, source, compress in (('ib_core', 'standin_core', lzma.compress), ('nvidia', driver, gzip.compress)):
        suffix = 'xz' if compress is lzma.compress else 'gz'
        packed = shim / f'{name}.ko.{suffix}'
        packed.write_bytes(compress((root / f'out/{source}.ko').read_bytes()))
        (shim / name).write_text(str(packed), encoding='utf-8')
    modinfo = shim / 'modinfo'
    modinfo.write_text(f'#!/bin/sh\nfor name; do :; done\ncat {shim}/"$name"\n', encoding='utf-8')
    modinfo.chmod(0o755)
    subprocess.run([ROOT / 'kernel/find-symbols', 'any', found], stdout=subprocess.DEVNULL, check=True,
                   env={**os.environ, 'PATH': f'{shim}:{os.environ["PATH"]}'})
    seen, wanted = ({tuple(line.split('\t')[:2]) for line in path.read_text(encoding='utf-8').splitlines()}
                    for path in (found, root / 'open.symvers'))
    if seen != wanted:
        raise BuildFailed(f'find-symbols found {seen}, not {wanted}')


def check_interfaces(root):
    """Checks that the module builds with the interfaces' headers, and does not build with changed ones."""
    theirs = ROOT / 'tests/kernel/headers'
    ofed, driver = theirs / 'peer_mem.h', theirs / 'nv-p2p.h'
    build_module(root, 'compared.ko', f'OFED_HEADER={ofed}', f'DRIVER_HEADER={driver}')
    other = root / 'other.h'
    other.write_text(driver.read_text(encoding='utf-8').replace('uint32_t entries;', 'uint64_t entries;'),
                     encoding='utf-8')
    try:
        make(root / 'kernel', 'W=1', f'OFED_HEADER={ofed}', f'DRIVER_HEADER={other}')
    except BuildFailed as failure:
        if 'static assertion failed' in str(failure):
            return
        raise
    raise BuildFailed('a driver with another interface goes unnoticed')


def build_all(root, changes):
    """Builds the stand-ins, and all variants of the module; with changes, only a variant for each of them."""
    standins = root / 'tests/kernel'
    check = ['C=1'] if shutil.which('sparse') else []
    # A variant without symbol versions, for a system without both interfaces.  The stand-ins include its headers, too.
    shutil.copytree(ROOT / 'kernel', root / 'kernel')
    build_module(root, 'unversioned.ko', *check)
    shutil.copytree(ROOT / 'tests/kernel', standins)
    make(standins, 'W=1', *check)
    for path in standins.glob('*.ko'):
        path.rename(root / 'out' / path.name)
    versions = {flavour: symbols_of(standins, flavour, root / f'{flavour}.symvers') for flavour in ('open', 'closed')}
    if changes:
        for patch in changes:
            build_changed(root, patch, versions['closed'])
        return
    check_find_symbols(root, 'standin_nvidia_open')
    build_module(root, 'peerlane_peermem.ko', versions['open'])
    # A variant with the symbol versions of another driver.
    stale = root / 'stale.symvers'
    stale.write_text(re.sub(r'^0x........(?=\tnvidia_p2p_get_pages\t)', '0x12345678',
                            (root / 'open.symvers').read_text(encoding='utf-8'), flags=re.MULTILINE), encoding='utf-8')
    build_module(root, 'stale.ko', f'KBUILD_EXTRA_SYMBOLS={stale}')
    build_module(root, 'closed.ko', versions['closed'])
    broken = ROOT / 'tests/kernel/broken'
    # Defects that only a kernel with KASAN, lockdep or kmemleak detects.
    more = broken.glob('debug/*.patch') if root.name.endswith('-debug') else []
    for patch in sorted([*broken.glob('*.patch'), *more]):
        build_module(root, f'broken_{patch.stem}.ko', versions['closed'], patch=patch)
    check_interfaces(root)
