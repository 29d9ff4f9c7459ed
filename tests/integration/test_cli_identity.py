# SPDX-License-Identifier: BSD-2-Clause
"""Identities of servers and clients: keys, known hosts, rights of clients, authorities, reload."""
import calendar
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest
from cli_support import (DEADLINE, PEERLANE, content, cut_transfer, environment, make_key, run, run_json, serving,
                         wait_until, write)


def identity(folder, name):
    """Makes an identity; returns its file and its fingerprint."""
    path = folder / f'{name}.pem'
    return path, run('key', 'generate', path).stdout.strip()


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with identities of a server and two clients, and files to serve."""
    class World:
        path = tmp_path
        server, server_print = identity(tmp_path, 'server')
        alice, alice_print = identity(tmp_path, 'alice')
        bob, bob_print = identity(tmp_path, 'bob')
        data = write(tmp_path / 'pub/a/data', content(300000))
        other = write(tmp_path / 'pub/b/other', content(1000, 2))
        hosts = tmp_path / 'config/peerlane/known_hosts'

        def authorize(self, *lines):
            return private(tmp_path / 'authorized', ''.join(line + '\n' for line in lines))

        def get(self, server, name, *options, **others):
            return run('get', server.address, name, '-o', tmp_path / 'out', '--peer', self.server_print, *options,
                       **others)
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    return World()


def reload(server):
    server.process.send_signal(signal.SIGHUP)


# -- the command key ----------------------------------------------------------------------------------------------


def describe(path):
    """Returns the text that OpenSSL prints of a certificate."""
    return subprocess.run(['openssl', 'x509', '-in', path, '-noout', '-text'], capture_output=True, text=True,
                          check=True).stdout


def serial_of(path):
    shown = subprocess.run(['openssl', 'x509', '-in', path, '-noout', '-serial'], capture_output=True, text=True,
                           check=True).stdout
    return int(shown.split('=')[1], 16)


def check_certificate(path, name):
    """Checks each field of a certificate that key generate made."""
    text = describe(path)
    assert 'Version: 3 (0x2)' in text
    assert f'Issuer: CN = {name}\n' in text and f'Subject: CN = {name}\n' in text
    assert 'Not After : Dec 31 23:59:59 9999 GMT' in text
    assert re.search(r'X509v3 Basic Constraints: critical\s+CA:FALSE\n', text)
    assert re.search(r'X509v3 Key Usage: critical\s+Digital Signature\n', text)
    assert re.search(r'Extended Key Usage: *\s+TLS Web Server Authentication, TLS Web Client Authentication\n', text)
    begins = re.search(r'Not Before: (.*) GMT', text)[1]
    began = calendar.timegm(time.strptime(begins, '%b %d %H:%M:%S %Y'))
    assert abs(time.time() - began) < 300
    assert serial_of(path) > 1 << 64


def test_key_generates_identities(tmp_path):
    path, fingerprint = identity(tmp_path, 'me')
    assert re.fullmatch(r'SHA256:[A-Za-z0-9+/]{43}', fingerprint)
    assert path.stat().st_mode & 0o777 == 0o600
    assert run('key', 'show', path).stdout.strip() == fingerprint
    assert run_json('key', 'show', path) == {'file': str(path), 'fingerprint': fingerprint}
    before = path.read_bytes()
    assert 'FILE-EXISTS' in run('key', 'generate', path, expect=1).stderr and path.read_bytes() == before
    check_certificate(path, socket.gethostname()[:64])
    public = subprocess.run(f'openssl pkey -in {path} -pubout -outform DER | openssl dgst -sha256 -binary | base64',
                            shell=True, capture_output=True, text=True, check=True).stdout
    assert fingerprint == 'SHA256:' + public.strip().rstrip('=')
    assert 'ED25519' in describe(path)
    identity(tmp_path, 'other')
    assert serial_of(tmp_path / 'other.pem') != serial_of(path)


def test_key_makes_other_keys(tmp_path):
    run('key', 'generate', tmp_path / 'p256', '--type', 'p256', '--name', 'gpu1')
    check_certificate(tmp_path / 'p256', 'gpu1')
    assert 'prime256v1' in describe(tmp_path / 'p256')
    assert 'a new group key' in run('key', 'group', tmp_path / 'group').stdout
    assert run('key', 'group', tmp_path / 'silent', '--quiet').stdout == ''
    assert re.fullmatch(r'[0-9a-f]{64}\n', (tmp_path / 'group').read_text())
    assert (tmp_path / 'group').stat().st_mode & 0o777 == 0o600
    with serving(write(tmp_path / 'x', b'x'), '--key', tmp_path / 'group') as server:
        run('list', server.address, '--key', tmp_path / 'group')
    for arguments in [[], ['show'], ['what', 'file'], ['group', 'a', 'b'], ['generate', 'x', '--type', 'rsa'],
                      ['generate', tmp_path / 'x', '--name', ''], ['generate', tmp_path / 'x', '--name', 'n' * 65],
                      ['group', tmp_path / 'x', '--type', 'p256'], ['show', tmp_path / 'p256', '--name', 'gpu1']]:
        run('key', *arguments, expect=2)
    run('key', 'generate', tmp_path / 'long', '--name', 'n' * 64)
    check_certificate(tmp_path / 'long', 'n' * 64)
    assert 'no such file' in run('key', 'show', tmp_path / 'missing', expect=1).stderr.lower()
    assert 'IDENTITY-FILE' in run('key', 'show', tmp_path / 'group', expect=1).stderr


def test_key_makes_the_folder_of_settings_for_the_example_of_its_help(tmp_path):
    shown = run('key', '--help').stdout
    (example,) = re.findall(r'^  peerlane (key generate ~\S+)$', shown, re.M)
    for name, variables in [('home', {'HOME': tmp_path / 'home', 'XDG_CONFIG_HOME': ''}),
                            ('config', {'XDG_CONFIG_HOME': tmp_path / 'config'})]:
        folder = tmp_path / ('home/.config/peerlane' if name == 'home' else 'config/peerlane')
        (tmp_path / name).mkdir()
        words = [word.replace('~/.config/peerlane', str(folder)) for word in example.split()]
        run(*words, **{key: str(value) for key, value in variables.items()})
        assert (folder / 'identity.pem').stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    # A mistyped path elsewhere makes no folders.
    error = run('key', 'generate', tmp_path / 'homme/.config/peerlane/identity.pem', expect=1).stderr
    assert 'No such file' in error and 'hint: create the folder' in error and not (tmp_path / 'homme').exists()


def test_key_files_are_whole_or_absent(tmp_path):
    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
    error = run('key', 'group', tmp_path / 'missing/group', expect=1).stderr
    assert 'FILE-EXISTS' not in error and 'no such file' in error.lower()
    for action in ['group', 'generate']:
        done = subprocess.run([PEERLANE, 'key', action, tmp_path / action], capture_output=True, text=True,
                              env=environment(), preexec_fn=limit_files)
        assert done.returncode == 1 and str(tmp_path / action) in done.stderr and done.stdout == ''
        assert not (tmp_path / action).exists()


# -- known hosts --------------------------------------------------------------------------------------------------------


def test_clients_pin_servers(world):
    with serving(world.data, '--identity', world.server) as server:
        error = run('get', server.address, 'data', '--identity', world.alice, expect=1).stderr
        line = f'[127.0.0.1]:{server.address.split(":")[1]} {world.server_print}'
        assert 'IDENTITY-UNKNOWN' in error and line in error
        assert not world.hosts.exists()
        options = ['--identity', world.alice, '-o', world.path / 'out']
        run('get', server.address, 'data', '--trust-new', *options)
        assert world.hosts.read_text() == line + '\n'
        run('get', server.address, 'data', *options)
        world.hosts.write_text(line.replace(world.server_print, world.bob_print) + '\n')
        for trust in [[], ['--trust-new']]:
            error = run('get', server.address, 'data', *trust, *options, expect=1).stderr
            assert 'IDENTITY-CHANGED' in error and 'known_hosts:1' in error
        world.get(server, 'data')
        assert 'IDENTITY-CHANGED' in run('list', server.address, '--peer', world.bob_print, expect=1).stderr


def test_a_server_without_identity_is_no_known_host(world):
    with serving(world.data) as server:
        error = run('list', server.address, '--identity', world.alice, '--trust-new', expect=1).stderr
        assert 'IDENTITY-NONE' in error and not world.hosts.exists()


# -- rights of clients -----------------------------------------------------------------------------------------------------


def test_only_authorized_clients_connect(world):
    authorized = world.authorize(f'{world.alice_print} read')
    with serving(world.data, '--identity', world.server, '--authorized', authorized) as server:
        world.get(server, 'data', '--identity', world.alice)
        for options, id in [(['--identity', world.bob], '[IDENTITY-REFUSED]'), ([], '[IDENTITY-NEEDED]')]:
            refused = world.get(server, 'data', *options, expect=1).stderr
            assert refused.startswith(f'peerlane: {server.address}: connect: ') and id in refused
            assert ('peerlane key generate' in refused and 'shows no identity' in refused) == (not options), refused
            assert options or 'show it with --identity FILE' in refused and 'pl_options' not in refused, refused
    assert 'AUTHORIZED-SYNTAX' in run('serve', world.data, '--authorized', private(world.path / 'bad', 'nonsense\n'),
                                      expect=1).stderr


def test_names_and_rights_of_an_identity(world):
    upload = world.path / 'upload'
    upload.mkdir()
    authorized = world.authorize(f'{world.alice_print} read names=a/,*.txt', f'{world.bob_print} write names=in/*')
    with serving(world.path / 'pub', '--upload', upload, '--identity', world.server, '--authorized',
                 authorized) as server:
        alice = ['--peer', world.server_print, '--identity', world.alice]
        bob = ['--peer', world.server_print, '--identity', world.bob]
        listed = [entry['name'] for entry in run_json('list', server.address, *alice)['entries']]
        assert listed == ['a/data']
        for name in ['a/data', 'b/other']:
            # Small files and large ones take different ways.
            done = run('get', server.address, name, '-o', world.path / 'out', *alice, expect=int(name != 'a/data'))
            assert name == 'a/data' or 'IDENTITY-NAMES' in done.stderr
        big = write(world.path / 'big', content(200000))
        small = write(world.path / 'small', b'small')
        for file in [big, small]:
            assert 'IDENTITY-RIGHTS' in run('put', server.address, file, '--as', 'a/x', *alice, expect=1).stderr
            assert 'IDENTITY-NAMES' in run('put', server.address, file, '--as', 'x', *bob, expect=1).stderr
            run('put', server.address, file, '--as', 'in/' + file.name, '-r', *bob, expect=0)
            assert (upload / 'in' / file.name).read_bytes() == file.read_bytes()
            assert 'IDENTITY-RIGHTS' in run('get', server.address, 'in/' + file.name, *bob, expect=1).stderr
        assert list(upload.glob('*')) == [upload / 'in']


def test_connections_of_an_identity_are_limited(world):
    authorized = world.authorize(f'{world.alice_print} read clients=1', f'{world.bob_print} read')
    fifo = world.path / 'fifo'
    os.mkfifo(fifo)
    with serving(world.data, '--identity', world.server, '--authorized', authorized) as server:
        options = ['--peer', world.server_print, '--identity', world.alice]
        # The first client waits for a reader of its output, and stays connected.
        first = subprocess.Popen([PEERLANE, 'get', server.address, 'data', '-o', fifo, *options], env=environment())
        with open(fifo, 'rb') as output:
            output.read(1)
            assert 'IDENTITY-BUSY' in run('list', server.address, *options, expect=1).stderr
            run('list', server.address, '--peer', world.server_print, '--identity', world.bob)
            output.read()
        assert first.wait(DEADLINE) == 0
        run('list', server.address, *options)


def test_read_only_servers_refuse_writers(world):
    with serving('--memory', 'frames=1M', '--read-only') as server:
        file = write(world.path / 'small', b'small')
        assert 'NOT-WRITABLE' in run('put', server.address, file, '--as', 'frames', expect=1).stderr
        run('get', server.address, 'frames', '-o', world.path / 'out')
    for option in [['--upload', world.path], ['--writable']]:
        run('serve', '--memory', 'x=1M', '--read-only', *option, expect=2)


# -- group keys and authorities -----------------------------------------------------------------------------------------


def test_group_keys_change_without_a_stop(world):
    old, new = make_key(world.path, 'old', b'A' * 8 + bytes(range(24))), make_key(world.path, 'new', bytes(range(100, 132)))
    key = make_key(world.path, 'key', old.read_bytes())
    with serving(world.data, '--key', key) as server:
        run('list', server.address, '--key', old)
        key.write_bytes(new.read_bytes())
        reload(server)
        wait_until(lambda: subprocess.run([PEERLANE, 'list', server.address, '--key', new], capture_output=True,
                                          env=environment()).returncode == 0)
        assert 'AUTH-KEY-MISMATCH' in run('list', server.address, '--key', old, expect=1).stderr
    with serving(world.data, '--key', new, '--old-key', old) as server:
        run('list', server.address, '--key', old)
        run('list', server.address, '--key', new)
    assert 'OLD-KEY-ALONE' in run('serve', world.data, '--old-key', old, expect=1).stderr


def certify(folder, authority, name, alternative):
    """Makes a key and a certificate of an authority with a subject alternative name."""
    pem = folder / f'{name}.pem'
    (folder / 'ext').write_text(f'subjectAltName={alternative}\nbasicConstraints=CA:FALSE\n')
    commands = [f'openssl req -newkey ed25519 -nodes -keyout {pem} -out {folder}/csr -subj /CN={name}',
                f'openssl x509 -req -in {folder}/csr -CA {authority} -CAkey {authority} -days 2 -extfile {folder}/ext'
                f' -out {folder}/crt', f'cat {folder}/crt >> {pem}', f'chmod 600 {pem}']
    for command in commands:
        subprocess.run(command, shell=True, check=True, capture_output=True)
    return pem


def test_authorities_certify_both_ends(world):
    folder = world.path
    for name in ['ca', 'foreign']:
        subprocess.run(f'openssl req -x509 -newkey ed25519 -nodes -keyout {folder}/{name} -out {folder}/{name}.crt -days 2 '
                       f'-subj /CN={name} && cat {folder}/{name}.crt >> {folder}/{name}', shell=True, check=True,
                       capture_output=True)
    server_pem = certify(folder, folder / 'ca', 'host', 'IP:127.0.0.1,DNS:host.example')
    trainer = certify(folder, folder / 'ca', 'trainer', 'URI:spiffe://prod.example/train/7')
    intruder = certify(folder, folder / 'foreign', 'intruder', 'URI:spiffe://prod.example/train/7')
    wrong_host = certify(folder, folder / 'ca', 'wrong', 'DNS:other.example')
    authorized = world.authorize('spiffe://prod.example/train/*  read', 'name:*.example read')
    ca = ['--ca', folder / 'ca.crt']
    with serving(world.data, '--identity', server_pem, '--authorized', authorized, *ca) as server:
        run('list', server.address, '--identity', trainer, *ca)
        assert 'IDENTITY-REFUSED' in run('list', server.address, '--identity', intruder, *ca, expect=1).stderr
        assert 'IDENTITY-REFUSED' in run('list', server.address, '--identity', world.alice, *ca, expect=1).stderr
    with serving(world.data, '--identity', wrong_host, *ca) as server:
        assert 'IDENTITY-UNKNOWN' in run('list', server.address, '--identity', trainer, *ca, expect=1).stderr
    with serving(world.data, '--identity', world.server) as server:
        assert 'IDENTITY-UNKNOWN' in run('list', server.address, '--identity', trainer, *ca, expect=1).stderr


# -- reload --------------------------------------------------------------------------------------------------------------


def test_reload_disconnects_revoked_clients(world):
    authorized = world.authorize(f'{world.alice_print} read', f'{world.bob_print} read')
    log = world.path / 'audit'
    fifo = world.path / 'fifo'
    os.mkfifo(fifo)
    with serving(world.data, '--identity', world.server, '--authorized', authorized, '--audit', log) as server:
        options = ['--peer', world.server_print, '--identity', world.alice]
        waiting = subprocess.Popen([PEERLANE, 'get', server.address, 'data', '-o', fifo, *options],
                                   stderr=subprocess.PIPE, env=environment())
        output = open(fifo, 'rb')
        output.read(1)
        private(authorized, 'nonsense\n')
        reload(server)
        wait_until(lambda: 'reload-failed' in log.read_text())
        run('list', server.address, '--peer', world.server_print, '--identity', world.bob)
        private(authorized, f'{world.bob_print} read\n')
        reload(server)
        wait_until(lambda: 'event="reload"' in log.read_text())
        wait_until(lambda: 'event="disconnect"' in log.read_text())
        run('list', server.address, '--peer', world.server_print, '--identity', world.bob)
        assert 'IDENTITY-REFUSED' in run('list', server.address, *options, expect=1).stderr
        output.close()
        waiting.kill()
        waiting.communicate()
        server.process.send_signal(signal.SIGTERM)
        assert 'AUTHORIZED-SYNTAX' in server.process.stderr.read().decode()


# -- audit log ------------------------------------------------------------------------------------------------------------


def fields(line):
    return {name: json.loads(value) for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)}


def test_the_audit_log_has_all_events(world):
    upload = world.path / 'upload'
    upload.mkdir()
    authorized = world.authorize(f'{world.alice_print} all')
    log = world.path / 'audit'
    with serving(world.data, '--upload', upload, '--identity', world.server, '--authorized', authorized, '--audit', log,
                 '--quiet') as server:
        options = ['--peer', world.server_print, '--identity', world.alice]
        run('get', server.address, 'data', '-o', world.path / 'out', *options)
        run('put', server.address, world.data, '--as', 'copy', *options)
        run('put', server.address, write(world.path / 's', b'12345'), '--as', 'small', *options)
        run('get', server.address, 'a\nb"c', *options, expect=1)
        run('list', server.address, '--peer', world.server_print, '--identity', world.bob, expect=1)
        wait_until(lambda: log.read_text().count('disconnect') == 4)
        assert log.stat().st_mode & 0o777 == 0o600
    lines = [fields(line) for line in log.read_text().splitlines()]
    assert [line['seq'] for line in lines] == list(range(1, len(lines) + 1))
    for event, name, size in [('open', 'data', 300000), ('close', 'data', 300000), ('create', 'copy', 300000),
                              ('store', 'copy', 300000), ('store', 'small', 5)]:
        found = [line for line in lines if line['event'] == event and line.get('name') == name]
        assert len(found) == 1 and found[0]['bytes'] == size and found[0]['identity'] == world.alice_print, (event, name)
    refused = [line for line in lines if line['event'] == 'refuse']
    assert [(line['result'], line.get('name'), line['identity']) for line in refused] == [
        ('NOT-PUBLISHED', 'a\nb"c', world.alice_print), ('IDENTITY-UNKNOWN', None, world.bob_print)]
    connected = [line for line in lines if line['event'] == 'connect']
    assert all(line['fabric'] == 'local' and line['address'].startswith('127.0.0.1:') for line in connected)


def test_the_audit_log_in_json_survives_rotation(world):
    log = world.path / 'audit'
    with serving(world.data, '--key', make_key(world.path), '--audit', log, '--json') as server:
        run('list', server.address, '--key', world.path / 'key')
        wait_until(lambda: 'disconnect' in log.read_text())
        log.rename(world.path / 'audit.1')
        reload(server)
        wait_until(lambda: log.exists() and 'reload' in log.read_text())
        run('list', server.address, '--key', make_key(world.path, 'other', bytes(range(150, 190))), expect=1)
        wait_until(lambda: 'refuse' in log.read_text())
    first = [json.loads(line) for line in (world.path / 'audit.1').read_text().splitlines()]
    second = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line['event'] for line in first] == ['connect', 'disconnect'] and len(first[0]['key_id']) == 16
    assert [line['event'] for line in second] == ['reload', 'refuse'] and second[1]['result'] == 'AUTH-KEY-MISMATCH'
    assert [line['seq'] for line in first + second] == [1, 2, 3, 4]


def test_values_in_the_journal_are_escaped(world):
    """A name that a client asks for adds no field, and a terminal that shows the journal does not act on it."""
    name = 'a\nPEERLANE_RESULT=OK\x1b[31m\u202e\\b"c'.encode() + b'\xff'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(world.path / 'journal'))
        journal.settimeout(DEADLINE)
        with serving(world.data, '--audit', f'journal={world.path / "journal"}') as server:
            subprocess.run([PEERLANE, 'get', server.address, name, '-o', '-'], capture_output=True, timeout=DEADLINE, env=environment())
            message = {}
            while message.get('PEERLANE_EVENT') != 'refuse':
                received = journal.recv(1 << 16).decode()
                lines = received.removesuffix('\n').split('\n')
                message = dict(line.split('=', 1) for line in lines)
                assert len(message) == len(lines) and received.replace('\n', '').isprintable()
    assert message['PEERLANE_RESULT'] == 'NOT-PUBLISHED' and message['MESSAGE'].startswith('refuse 127.0.0.1:')
    assert json.loads(f'"{message["PEERLANE_NAME"]}"') == 'a\nPEERLANE_RESULT=OK\x1b[31m\u202e\\b"c\u00ff'


def test_audit_errors(world):
    for path, hint in [('no/such', 'create the folder first, with mkdir -p'), ('pub', 'this is a folder: name a file')]:
        errors = run('serve', world.data, '--audit', world.path / path, expect=1).stderr
        assert '[AUDIT-OPEN]' in errors and f'hint: {hint}\n' in errors
    assert 'AUDIT-OPEN' in run('serve', world.data, '--audit', 'journal=' + str(world.path / 'no'), expect=1).stderr
    with serving(world.data, '--audit', '/dev/full') as server:
        run('list', server.address)
        run('list', server.address)
        server.process.send_signal(signal.SIGTERM)
        errors = server.process.stderr.read().decode()
        assert errors.count('/dev/full cannot be written') == 1


# -- uploads ---------------------------------------------------------------------------------------------------------------


def has_attributes(folder):
    try:
        write(folder / 'probe', b'')
        os.setxattr(folder / 'probe', 'user.test', b'x')
    except OSError:
        return False
    finally:
        (folder / 'probe').unlink()
    return True


def test_quotas(world):
    upload = world.path / 'upload'
    upload.mkdir()
    if not has_attributes(upload):
        pytest.skip('the file system has no user attributes')
    authorized = world.authorize(f'{world.alice_print} all quota=1M', f'{world.bob_print} all')
    files = [write(world.path / f'f{i}', content(400000, i)) for i in range(3)]
    small = write(world.path / 'small', content(60000))
    for _ in range(2):
        # The sums survive a restart of the server.
        with serving('--upload', upload, '--identity', world.server, '--authorized', authorized) as server:
            alice = ['--peer', world.server_print, '--identity', world.alice]
            bob = ['--peer', world.server_print, '--identity', world.bob]
            for file in files[:2]:
                if not (upload / file.name).exists():
                    run('put', server.address, file, *alice)
            error = run('put', server.address, files[2], *alice, expect=1).stderr
            assert 'QUOTA' in error and '400000' in error
            run('put', server.address, small, *alice)
            run('put', server.address, files[2], '--as', 'bobs', *bob)
            (upload / 'small').unlink()
    with serving('--upload', upload, '--identity', world.server, '--authorized', authorized, '--quota', '1300K') as server:
        assert 'QUOTA' in run('put', server.address, files[2], '--as', 'more', *bob, expect=1).stderr
        (upload / files[0].name).unlink()
        # The server counts again after a while.
        wait_until(lambda: run('put', server.address, files[2], *alice, expect=None).returncode == 0)
    assert not list(upload.glob('.*'))


def test_partial_files_belong_to_the_client_that_began_them(world):
    upload = world.path / 'upload'
    upload.mkdir()
    if not has_attributes(upload):
        pytest.skip('the file system has no user attributes')
    authorized = world.authorize(f'{world.alice_print} all', f'{world.bob_print} all')
    big = write(world.path / 'big', content(64 << 20))
    part = upload / '.big.part'
    with serving('--upload', upload, '--identity', world.server, '--authorized', authorized) as server:
        command = [PEERLANE, 'put', server.address, big, '--peer', world.server_print, '--identity']
        cut_transfer(part, 64 << 20, lambda: subprocess.Popen([*command, world.alice], env=environment(),
                                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        options = ['--peer', world.server_print, '--json', '--identity']
        done = json.loads(run('put', server.address, big, *options, world.bob).stdout)
        assert done['files'][0]['resumed'] == 0
        assert (upload / 'big').read_bytes() == big.read_bytes()
        (upload / 'big').unlink()
        cut_transfer(part, 64 << 20, lambda: subprocess.Popen([*command, world.alice], env=environment(),
                                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        done = json.loads(run('put', server.address, big, *options, world.alice).stdout)
        assert done['files'][0]['resumed'] > 0


def test_old_partial_files_are_removed(world):
    upload = world.path / 'upload'
    old, young, file = upload / 'x/.old.part', upload / '.young.part', upload / 'old'
    for path in [old, young, file]:
        write(path, b'x')
    for path in [old, file]:
        os.utime(path, (time.time() - 8 * 86400,) * 2)
    with serving('--upload', upload, '--keep-parts', '0') as server:
        run('list', server.address)
    assert old.exists()
    with serving('--upload', upload) as server:
        run('list', server.address)
    assert not old.exists() and young.exists() and file.exists()


# -- service manager --------------------------------------------------------------------------------------------------------


def test_socket_activation_and_notices(world):
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.bind(str(world.path / 'notify'))
    notices.settimeout(DEADLINE)
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    address = '127.0.0.1:%d' % listener.getsockname()[1]

    process = subprocess.Popen(
        ['sh', '-c', 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@"', PEERLANE, 'serve', '--key', make_key(world.path),
         world.data], close_fds=False, preexec_fn=lambda: os.dup2(listener.fileno(), 3), stdout=subprocess.PIPE,
        env=environment(NOTIFY_SOCKET=str(world.path / 'notify'), WATCHDOG_USEC='400000'))
    try:
        assert process.stdout.readline().decode().split()[-1] == address
        assert notices.recv(1000).startswith(b'READY=1')
        run('list', address, '--key', world.path / 'key')
        assert notices.recv(1000) == b'WATCHDOG=1' and notices.recv(1000) == b'WATCHDOG=1'
        process.send_signal(signal.SIGHUP)
        seen = []
        while not any(notice.startswith(b'READY=1') for notice in seen):
            seen.append(notices.recv(1000))
        assert any(notice.startswith(b'RELOADING=1\nMONOTONIC_USEC=') for notice in seen)
        process.send_signal(signal.SIGTERM)
        while notices.recv(1000) != b'STOPPING=1':
            pass
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()


def test_the_sandbox_can_be_seen_and_refused(world):
    with serving(world.data, '--json', '--sandbox', 'off') as server:
        assert json.loads(server.first)['sandbox'] is False
    with serving(world.data, '--json') as server:
        with open(f'/proc/{server.process.pid}/status', encoding='ascii') as status:
            restricted = 'NoNewPrivs:\t1' in status.read()
        assert json.loads(server.first)['sandbox'] is restricted
    run('serve', world.data, '--sandbox', 'what', expect=2)
