# SPDX-License-Identifier: BSD-2-Clause
"""Peerlane between the processes of torch.distributed."""
from ._exchange import exchange as _exchange

__all__ = ['exchange']


def exchange(group, context, regions, *, rights=None, address=None, extra=b'', timeout=60):
    """Connect all processes of a process group, and import the region of each at all others; return a Group.

    group is a process group of torch.distributed; None: the default one. All its processes call this, each with its own
    region or list of regions. With NCCL, torch.cuda.set_device() must have been called.
    """
    from torch import distributed

    size = distributed.get_world_size(group)

    def gather(value):
        values = [None] * size
        distributed.all_gather_object(values, value, group=group)
        return values

    return _exchange(context, regions, distributed.get_rank(group), size, gather, rights=rights, address=address,
                     extra=extra, timeout=timeout)
