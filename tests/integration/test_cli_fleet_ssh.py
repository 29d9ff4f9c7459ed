# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane fleet` by ssh: 32 hosts in namespaces, each with a greeting sshd; one host has none, one a narrow GPU."""
import contextlib
import json
import os
import shutil
import subprocess

import pytest
from check_machines import GPU, ideal
from cli_support import DEADLINE, PEERLANE, environment, make_key, run_json
from fleet_hosts import on_host
from netns_support import can_make_hosts, hosts

SSHD = shutil.which('sshd', path=f'{os.environ["PATH"]}:/usr/sbin')
COUNT, SILENT, NARROW = 32, 31, 7
REPLAYED, OLD = range(33, 201), 150  # numbers of hosts whose documents are files, and the one with another firmware
LINK = f'sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:00.0/{GPU}/current_link_width'

pytestmark = [
    pytest.mark.skipif(not SSHD or not shutil.which('ssh') or not shutil.which('ssh-keygen'), reason='needs openssh-server'),
    pytest.mark.skipif(os.geteuid() != 0 or not can_make_hosts(), reason='needs root and namespaces')]

# sshd needs a folder of its own below /run.  Shells that sshd starts read ~/.bashrc, which takes long for some users.
START = """mount -t tmpfs none /run && mkdir /run/sshd &&
{ [ ! -e ~root/.bashrc ] || mount --bind /dev/null ~root/.bashrc; } && exec "$0" -D -e -f "$1"
"""
SERVER = """HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
Banner {folder}/banner
ForceCommand {folder}/login {number}
"""
CLIENT = """Host h*
IdentityFile {folder}/user_key
UserKnownHostsFile {folder}/known
BatchMode yes
KexAlgorithms curve25519-sha256
"""
# As a profile does that greets also without a terminal.
LOGIN = """#!/bin/sh
echo "Welcome to {h$1}"; echo "quota: {\\"home\\": 93}" ; echo "last login: never" >&2
PEERLANE_TEST_HOST=$1 exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
# A host has a captured machine, and measures for real.
PROGRAM = """#!/bin/sh
case $1 in
check | topo) exec {peerlane} "$@" --sysroot {folder}/machine$([ $PEERLANE_TEST_HOST = {narrow} ] && echo -x8) --host h$PEERLANE_TEST_HOST ;;
esac
exec {peerlane} "$@"
"""


def write_script(path, text):
    path.write_text(text)
    path.chmod(0o755)


def make_files(folder):
    """Writes the keys, configurations and machines of all hosts."""
    ideal().write(folder / 'machine')
    ideal().set(LINK, '8\n').write(folder / 'machine-x8')
    for name in 'host_key', 'user_key':
        subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', folder / name], check=True, timeout=DEADLINE)
    (folder / 'banner').write_text('Authorized users only {"format": 1}\n')
    write_script(folder / 'login', LOGIN)
    write_script(folder / 'peerlane', PROGRAM.format(peerlane=PEERLANE, folder=folder, narrow=NARROW))
    public = ' '.join((folder / 'host_key.pub').read_text().split()[:2])
    (folder / 'known').write_text(''.join(f'10.77.0.{number} {public}\n' for number in range(1, COUNT + 1)))
    (folder / 'client').write_text(CLIENT.format(folder=folder) + ''.join(
        f'Host h{number}\nHostName 10.77.0.{number}\n' for number in range(1, COUNT + 1)))
    for number in range(1, COUNT + 1):
        (folder / f'sshd{number}').write_text(SERVER.format(folder=folder, number=number))


def wait_for_sshd(server):
    """Reads the log up to the line that says that sshd listens."""
    for line in server.stderr:
        if 'Server listening on 0.0.0.0' in line:
            return
    raise AssertionError(server.wait())


@pytest.fixture(scope='module')
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp('ssh')
    make_files(folder)
    with hosts(COUNT) as machines, contextlib.ExitStack() as stack:
        servers = []
        for number in set(range(1, COUNT + 1)) - {SILENT}:
            servers.append(subprocess.Popen(
                machines.inside(number, 'unshare', '--mount', 'sh', '-c', START, SSHD, folder / f'sshd{number}'),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            stack.callback(servers[-1].wait, timeout=DEADLINE)
            stack.callback(servers[-1].terminate)
        for server in servers:
            wait_for_sshd(server)

        def run_fleet(command, names, *arguments, words=(), expect):
            done = subprocess.run(machines.inside(1, PEERLANE, 'fleet', command, names, '--launch',
                                                  f'ssh -F {folder}/client {{host}}', '--program', folder / 'peerlane',
                                                  '--timeout', DEADLINE, *arguments, *words), capture_output=True, text=True, timeout=2 * DEADLINE,
                                  env=environment())
            assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
            return done
        run_fleet.folder = folder
        yield run_fleet


def test_check_finds_the_narrow_host_and_names_the_silent_one(fleet):
    output = fleet.folder / 'check.json'
    shown = fleet('check', f'h[1-{COUNT}]', '--expect', 'gpus=1,links=16x5', '--output', output, expect=1).stdout
    answers = {host['host']: host for host in json.loads(output.read_text())['hosts']}
    assert {name for name, answer in answers.items() if answer['outcome'] != 'document'} == {f'h{SILENT}'}
    assert answers[f'h{SILENT}']['outcome'] == 'unreachable' and 'Connection refused' in answers[f'h{SILENT}']['reason']
    links = {name: next(check['status'] for check in answer['document']['checks'] if check['id'] == 'expect-links')
             for name, answer in answers.items() if answer['outcome'] == 'document'}
    assert {name for name, status in links.items() if status != 'OK'} == {f'h{NARROW}'} and len(links) == COUNT - 1
    first, *_ = [line for line in shown.splitlines() if line.startswith('h')]
    assert first.split()[:2] == [f'h{NARROW}', 'FAIL']
    # Greetings are no answers.
    assert 'Welcome' not in shown and 'Authorized' not in shown
    check_with_replayed_hosts(fleet.folder / 'saved', {name: answer['document'] for name, answer in answers.items()
                                                       if answer['outcome'] == 'document'})


def check_with_replayed_hosts(folder, documents):
    """The rest of 200 hosts is replayed from files."""
    folder.mkdir()
    for number in REPLAYED:
        documents[f'h{number}'] = on_host(documents['h1'], f'h{number}', number)
    documents[f'h{OLD}']['inventory']['devices'][0]['firmware'] = '28.1.1'
    for name, document in documents.items():
        (folder / f'{name}.json').write_text(json.dumps(document))
    seen = run_json('fleet', 'show', folder, expect=1)
    bad = {host['host']: host['status'] for host in seen['hosts'] if host['status'] != 'OK'}
    assert bad == {f'h{NARROW}': 'FAIL', f'h{OLD}': 'DIFFERS'} and seen['counts']['answered'] == 199, seen['rows']
    assert {row['id'] for row in seen['rows'] if row['hosts'] == [f'h{OLD}']} == {'firmware'}


def test_topo_and_bench(fleet):
    output = fleet.folder / 'topo.json'
    fleet('topo', f'h[{NARROW - 3}-{NARROW}]', '--output', output, expect=3)
    found = json.loads(output.read_text())
    assert [host['outcome'] for host in found['hosts']] == ['document'] * 4
    assert {host['host']: host['status'] for host in found['hosts']} == {
        f'h{number}': 'DIFFERS' if number == NARROW else 'OK' for number in range(NARROW - 3, NARROW + 1)}
    key = make_key(fleet.folder)
    done = fleet('bench', 'h[1-4]', '--json', words=['--', '--rendezvous', '10.77.0.1', '--key', key, '--fabric', 'tcp',
                                                     '--duration', '0.004', '--size', '4K'], expect=0)
    measured = json.loads(done.stdout[done.stdout.index('{\n'):])
    assert [rank['host'] for rank in measured['ranks']] == ['h1', 'h2', 'h3', 'h4'] and measured['complete']
    assert sum(rate is not None for row in measured['bytes_per_second'] for rate in row) == 12
