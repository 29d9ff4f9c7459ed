# SPDX-License-Identifier: BSD-2-Clause
"""Scripts of the kernel module's build, in folders that imitate systems; no kernel is needed."""
import gzip
import lzma
import os
import pathlib
import platform
import shutil
import subprocess

import pytest

KERNEL = pathlib.Path(__file__).resolve().parent.parent.parent / 'kernel'
# One version as an absolute symbol, as before Linux 5.19, and one in a section, as since 5.19.
SYMBOLS = '''
	.globl __crc_nvidia_p2p_get_pages
	__crc_nvidia_p2p_get_pages = 0x1234abcd
	.section .kcrctab, "a"
	.long 0x11111111
	.globl __crc_nvidia_p2p_put_pages
__crc_nvidia_p2p_put_pages:
	.long 0x0badcafe
	.globl __crc_something_else
__crc_something_else:
	.long 0x22222222
'''


def output_of(*command, status=0, **environment):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, check=False, env={**os.environ, 'LC_ALL': 'C', **environment})
    assert done.returncode == status, done.stdout
    return done.stdout


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f'{program} is not installed')


def compiled(folder, name, text):
    source, target = folder / name, folder / f'{name}.o'
    source.write_text(text, encoding='utf-8')
    output_of('cc', '-c', source, '-o', target)
    return target


def zstandard(data):
    return subprocess.run(['zstd', '-q', '-c'], input=data, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize('suffix, compress', [('', bytes), ('.xz', lzma.compress), ('.gz', gzip.compress),
                                              ('.zst', zstandard)])
def test_symbol_versions_are_read_from_modules(tmp_path, suffix, compress):
    needs('cc', 'objdump', *(['zstd'] if suffix == '.zst' else []), *(['xz'] if suffix == '.xz' else []))
    if platform.machine() != 'x86_64':
        pytest.skip('the assembler source is for x86-64')
    module = tmp_path / f'nvidia.ko{suffix}'
    module.write_bytes(compress(compiled(tmp_path, 'nvidia.s', SYMBOLS).read_bytes()))
    modinfo = tmp_path / 'modinfo'
    # This modinfo finds nvidia, but no ib_core.
    modinfo.write_text(f'#!/bin/sh\nfor name; do :; done\n[ "$name" = nvidia ] && echo {module}\n', encoding='utf-8')
    modinfo.chmod(0o755)
    found = tmp_path / 'found'
    said = output_of(KERNEL / 'find-symbols', '6.1.0', found, PATH=f'{tmp_path}:{os.environ["PATH"]}')
    assert said.strip() == str(found)
    assert sorted(found.read_text(encoding='utf-8').splitlines()) == [
        '0x0badcafe\tnvidia_p2p_put_pages\tnvidia\tEXPORT_SYMBOL\t',
        '0x1234abcd\tnvidia_p2p_get_pages\tnvidia\tEXPORT_SYMBOL\t']


def test_no_modules_have_no_symbol_versions(tmp_path):
    modinfo = tmp_path / 'modinfo'
    modinfo.write_text('#!/bin/sh\nexit 1\n', encoding='utf-8')
    modinfo.chmod(0o755)
    assert not output_of(KERNEL / 'find-symbols', '6.1.0', tmp_path / 'found', PATH=f'{tmp_path}:{os.environ["PATH"]}')
    assert not (tmp_path / 'found').exists()


@pytest.mark.parametrize('folders, interface, expected', [
    ([], 'ofed', None),
    ([], 'driver', None),
    # The kernel's own header comes before OFED's default.
    (['ofa_kernel/default/include/rdma/peer_mem.h', 'ofa_kernel-6.1.0/include/rdma/peer_mem.h'], 'ofed', 0),
    (['ofa_kernel/MACHINE/6.1.0/include/rdma/peer_mem.h', 'ofa_kernel/default/include/rdma/peer_mem.h'], 'ofed', 0),
    (['ofa_kernel/MACHINE/5.9.0/include/rdma/peer_mem.h'], 'ofed', None),
    (['mlnx-ofa_kernel-24.10/include/rdma/peer_mem.h'], 'ofed', 0),
    # The newest driver's header is used.
    (['nvidia-550.1/nvidia/nv-p2p.h', 'nvidia-535.2/nvidia/nv-p2p.h'], 'driver', 0),
    (['nvidia-open-560.1/kernel-open/nvidia/nv-p2p.h'], 'driver', 0),
])
def test_headers_are_found(tmp_path, folders, interface, expected):
    paths = [tmp_path / 'usr/src' / folder.replace('MACHINE', platform.machine()) for folder in folders]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    said = output_of(KERNEL / 'find-headers', '6.1.0', interface, ROOT=str(tmp_path))
    assert said.strip() == ('' if expected is None else str(paths[expected]))


def test_missing_kernel_headers_are_reported(tmp_path):
    needs('make')
    said = output_of('make', '-C', KERNEL, 'KVER=6.99.0-none', f'KDIR={tmp_path}/build', f'OUT={tmp_path}/out', status=2)
    assert f'no headers of kernel 6.99.0-none at {tmp_path}/build' in said
    assert 'linux-headers-6.99.0-none' in said and 'kernel-devel-6.99.0-none' in said


def test_gpl_only_symbols_are_reported(tmp_path):
    needs('cc', 'nm')
    module = compiled(tmp_path, 'uses.c', 'void one(void); void other(void); void f(void) { one(); other(); }')
    symvers = tmp_path / 'Module.symvers'
    symvers.write_text('0x1\tone\tvmlinux\tEXPORT_SYMBOL\t\n0x2\tother\tvmlinux\tEXPORT_SYMBOL_GPL\t\n'
                       '0x3\tunused\tvmlinux\tEXPORT_SYMBOL_GPL\t\n', encoding='utf-8')
    told = 'this kernel exports to GPL modules only: other\n'
    assert output_of(KERNEL / 'check-symbols', module, symvers).endswith(told)
    assert output_of(KERNEL / 'check-symbols', module, symvers, '1', status=1).endswith(told)
    symvers.write_text('0x2\tother\tvmlinux\tEXPORT_SYMBOL\t\n', encoding='utf-8')
    assert not output_of(KERNEL / 'check-symbols', module, symvers, '1')
