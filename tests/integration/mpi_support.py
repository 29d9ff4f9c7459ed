# SPDX-License-Identifier: BSD-2-Clause
"""Helpers for tests of `peerlane bench --mpi`: Open MPI's mpirun, and ranks of this host."""
import os
import shutil
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, environment

# mpirun uses the path of its command as its prefix, which fails for /bin/mpirun, so it is started by name.
MPIRUN = 'mpirun'
HAVE_MPI = bool(shutil.which(MPIRUN))
needs_mpi = pytest.mark.skipif(not HAVE_MPI, reason='mpirun is not installed (openmpi-bin)')
# Open MPI does not free all memory, which LeakSanitizer would report.  Without its part for PCI, hwloc does not read the
# names of all devices, whose table grows by a realloc(3) for each line: with AddressSanitizer that takes a rank 10 s.
MPI = {'HWLOC_COMPONENTS': '-pci', 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
       'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}
FEW = ['--duration', '0.004', '--size', '4K']


def mpi(ranks, *arguments, expect=0):
    """Runs the command with ranks of this host, also more than it has cores."""
    done = subprocess.run([MPIRUN, '--oversubscribe', '-n', str(ranks), PEERLANE, 'bench', '--mpi', *map(str, arguments)],
                          capture_output=True, text=True, timeout=DEADLINE,
                          env=environment(**MPI))
    assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
    return done
