# SPDX-License-Identifier: BSD-2-Clause
"""Keys in the memory of `peerlane serve`: core dumps leave them out."""
import hashlib
import hmac
import os
import re
import signal
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, content, environment, make_key, run, serving, write


def mappings(pid):
    """Yields the readable private mappings of a process: address, length, and flags."""
    with open(f'/proc/{pid}/smaps', encoding='ascii', errors='replace') as smaps:
        text = smaps.read()
    for part in re.split(r'^(?=[0-9a-f]+-[0-9a-f]+ )', text, flags=re.MULTILINE)[1:]:
        begin, end, rights = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+)', part).groups()
        flags = re.search(r'^VmFlags:(.*)$', part, re.MULTILINE)
        if rights.startswith('rw') and '[v' not in part.splitlines()[0]:
            yield int(begin, 16), int(end, 16) - int(begin, 16), flags.group(1).split()


def occurrences(pid, secret):
    """Returns how often a secret stands in memory that core dumps have, and in memory that they leave out."""
    dumped = left_out = 0
    memory = os.open(f'/proc/{pid}/mem', os.O_RDONLY)
    try:
        for begin, length, flags in mappings(pid):
            if length > 256 << 20:
                continue
            try:
                found = os.pread(memory, length, begin).count(secret)
            except OSError:
                continue
            if 'dd' in flags:
                left_out += found
            else:
                dumped += found
    finally:
        os.close(memory)
    return dumped, left_out


def psk_of(key):
    """HKDF-SHA-256 without a salt, as docs/protocol.md defines the key of TLS."""
    extracted = hmac.digest(bytes(32), key, hashlib.sha256)
    return hmac.digest(extracted, b'peerlane tls 1.3 external psk\x01', hashlib.sha256)


def wait_gone(pid, secret):
    """Waits until the memory that core dumps have is without a secret."""
    end = time.monotonic() + DEADLINE
    while occurrences(pid, secret)[0] and time.monotonic() < end:
        time.sleep(0.1)
    return occurrences(pid, secret)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / 'pub/data', content(300000))


def open_client(server, tmp_path, *options):
    """Starts a client that stays connected until its output is read."""
    fifo = tmp_path / 'fifo'
    os.mkfifo(fifo)
    client = subprocess.Popen([PEERLANE, 'get', server.address, 'data', '-o', fifo, '--fabric', 'tcp', *map(str, options)],
                              env=environment())
    output = open(fifo, 'rb')
    output.read(1)
    return client, output


def test_group_keys_are_left_out_of_core_dumps(tmp_path, data):
    key = make_key(tmp_path)
    secret = key.read_bytes().rstrip(b'\n')
    psk = psk_of(secret)
    with serving(data, '--key', key, MALLOC_PERTURB_='0') as server:
        pid = server.process.pid
        dumped, left_out = occurrences(pid, psk)
        assert dumped == 0 and left_out == 1
        client, output = open_client(server, tmp_path, '--key', key)
        try:
            dumped, left_out = wait_gone(pid, psk)
            assert dumped == 0 and left_out >= 2
            assert occurrences(pid, secret) == (0, 0)
        finally:
            output.close()
            client.wait(DEADLINE)


def test_private_keys_are_left_out_of_core_dumps(tmp_path, data):
    path = tmp_path / 'server.pem'
    fingerprint = run('key', 'generate', path).stdout.strip()
    der = subprocess.run(['openssl', 'pkey', '-in', path, '-outform', 'DER'], capture_output=True, check=True).stdout
    private = der[-32:]
    # Memory that glibc fills at free would hide copies.
    with serving(data, '--identity', path, MALLOC_PERTURB_='0') as server:
        pid = server.process.pid
        run('list', server.address, '--peer', fingerprint)
        dumped, left_out = occurrences(pid, private)
        assert dumped == 0 and left_out >= 1
        server.process.send_signal(signal.SIGHUP)
        run('list', server.address, '--peer', fingerprint)
        assert wait_gone(pid, private)[0] == 0


def test_the_key_of_partial_files_is_left_out_of_core_dumps(tmp_path):
    inbox, state = tmp_path / 'inbox', tmp_path / 'state'
    inbox.mkdir()
    with serving('--upload', inbox, MALLOC_PERTURB_='0', XDG_STATE_HOME=str(state)) as server:
        # One of more than 64 KiB has a record.
        run('put', server.address, write(tmp_path / 'file', content(300000)))
        assert occurrences(server.process.pid, (state / 'peerlane/part-key').read_bytes()) == (0, 1)
