# SPDX-License-Identifier: BSD-2-Clause
"""Reads the array of serve.py from its memory, and prints its sum: read.py KEY-FILE INVITATION-FILE"""
import array
import pathlib
import sys

import peerlane as pl

key_file, invitation_file = sys.argv[1:]
invitation = pl.Invitation.from_bytes(pathlib.Path(invitation_file).read_bytes())
with pl.Context(key_file=key_file) as context:
    peer = context.connect(invitation.address)
    remote = peer.import_(invitation.token)
    numbers = array.array('d', bytes(remote.length))
    with context.register(numbers) as region:
        peer.read(remote, region)
    peer.send(b'')
    print(sum(numbers))
