# SPDX-License-Identifier: BSD-2-Clause
"""Peerlane moves data straight between memory of this process and of another host. See docs/python.md.

All times are in seconds and all sizes in bytes. `peerlane.aio` has the same objects for asyncio.
"""
import atexit as _atexit
import os as _os

from . import _peerlane, mpi, torch
from ._command import Bench, Check, Gpus, Topology, bench, check, gpus, topology
from ._context import Context
from ._errors import (BufferRefused, Cancelled, Closed, Denied, Ended, Error, Forked, Invalid, Missing, NoMemory, Refused, Reset,
                      TimedOut, Unreachable)
from ._exchange import Group, Member
from ._peerlane import (Frame, Listener, Operation, Peer, Publisher, Receipt, Region, Remote, RemoteSet, Subscriber,
                        Vector, fingerprint, gpu, stream_wait)
from ._picture import Picture, picture, view
from ._rendezvous import Rendezvous, rendezvous
from ._streams import Layout
from ._tokens import Blob, Invitation, Notification, Token

__all__ = ['Bench', 'Blob', 'BufferRefused', 'Cancelled', 'Check', 'Closed', 'Context', 'Denied', 'Ended', 'Error',
           'Forked', 'Frame', 'Gpus', 'Group', 'Invalid', 'Invitation', 'Layout', 'Listener', 'Member', 'Missing', 'NoMemory',
           'Notification', 'Operation', 'Peer', 'Picture', 'Publisher', 'Receipt', 'Refused', 'Region', 'Remote',
           'RemoteSet', 'Rendezvous', 'Reset', 'Subscriber', 'TimedOut', 'Token', 'Topology', 'Unreachable', 'Vector',
           'bench', 'check', 'fingerprint', 'gpu', 'gpus', 'mpi', 'picture', 'rendezvous', 'stream_wait', 'topology', 'torch',
           'version', 'view']

__version__ = version = _peerlane.version()

_os.register_at_fork(after_in_child=_peerlane._forked)
_atexit.register(_peerlane._close_all)
