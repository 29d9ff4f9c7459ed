# SPDX-License-Identifier: BSD-2-Clause
"""Soft-iWARP (siw) for the machines: Debian's kernels lack it, so it is built from the distribution's sources."""
import pathlib
import shutil

import debug_kernel
import modules

PART = 'drivers/infiniband/sw/siw'


def build(folder, headers, version):
    """Returns siw.ko for a kernel, built below a folder if necessary."""
    root = folder / version
    made = root / 'siw/siw.ko'
    if not made.exists():
        source = debug_kernel.fetch_source(folder / 'source', PART)
        print('building soft-iWARP', flush=True)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        (root / 'headers').symlink_to(headers)
        shutil.copytree(source / PART, root / 'siw')
        modules.make(root / 'siw', 'CONFIG_RDMA_SIW=m')
    return pathlib.Path(made)
