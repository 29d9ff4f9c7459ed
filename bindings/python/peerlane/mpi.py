# SPDX-License-Identifier: BSD-2-Clause
"""Peerlane between the processes of MPI, by mpi4py."""
from ._exchange import exchange as _exchange

__all__ = ['exchange']


def exchange(comm, context, regions, *, rights=None, address=None, extra=b'', timeout=60):
    """Connect all processes of a communicator, and import the region of each at all others; return a Group.

    comm is a communicator of mpi4py. All its processes call this, each with its own region or list of regions.
    """
    return _exchange(context, regions, comm.Get_rank(), comm.Get_size(), comm.allgather, rights=rights, address=address,
                     extra=extra, timeout=timeout)
