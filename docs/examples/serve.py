# SPDX-License-Identifier: BSD-2-Clause
"""Shares an array with one reader: serve.py KEY-FILE HOST:PORT INVITATION-FILE

HOST is the name or the address by which the reader reaches this host, as the invitation says it. Port 0 picks a free one.
"""
import array
import os
import sys

import peerlane as pl

key_file, address, invitation_file = sys.argv[1:]
with pl.Context(key_file=key_file) as context:
    numbers = array.array('d', range(1000))
    region = context.register(numbers, access='r')
    listener = context.listen(address)
    # The listener's own address is a number, which may mean this host only: 127.0.1.1 for its name.
    host, port = address.rpartition(':')[0], listener.address.rpartition(':')[2]
    invitation = pl.Invitation(f'{host}:{port}', region.share(rights='r'))
    # The token is a secret. The file appears with all of its bytes.
    with open(os.open(invitation_file + '.part', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'wb') as file:
        file.write(bytes(invitation))
    os.rename(invitation_file + '.part', invitation_file)
    peer = listener.accept()
    # Reads need no action here. The reader's empty message announces that all reads are over.
    peer.receive(None)
