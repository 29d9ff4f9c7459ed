# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane-first-hour` over tcp and the stand-in card, with false tools that print what must not leave the machine."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tarfile

import pytest
from cli_support import PEERLANE, environment, make_key, start

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / 'src/cmd/first-hour/peerlane-first-hour'
CARD = os.path.join(os.path.dirname(os.path.abspath(PEERLANE)), 'tests', 'card')
LIMIT = 350
HOST = os.uname().nodename
SECRETS = ['0c42:a103:00ab:cdef', 'fe80:0000:0000:0000:0e42:a1ff:feab:cdef', 'fe80::e42:a1ff:feab:cdef', '::ffff:192.168.17.4',
           '192.168.17.4', '0c:42:a1:ab:cd:ef', '/home/marie', 'GPU-01234567-89ab-cdef-0123-456789abcdef', HOST]
# What the file is for must stay.
KEPT = ['max_sge: 30', 'fw_ver: 28.39.1002', 'PCI 0000:17:00.0', '12:30:45']


@pytest.fixture
def tools(tmp_path):
    """A PATH whose ibv_devinfo prints secrets, and whose tools of perftest succeed, except one that fails."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    (folder / 'peerlane').symlink_to(PEERLANE)
    lines = ''.join(f'echo "value: {text} end"\n' for text in SECRETS + KEPT)
    for name, code in [('ibv_devinfo', lines), ('ib_write_bw', 'echo 65536 100 12.3'), ('ib_write_lat', 'exit 1'),
                       *((f'ib_{name}_lat', 'exit 0') for name in ('read', 'send', 'atomic'))]:
        (folder / name).write_text(f'#!/bin/sh\n{code}\n')
        (folder / name).chmod(0o755)
    return environment(PATH=f'{folder}:{os.environ["PATH"]}', TMPDIR=str(tmp_path / 'tmp'))


def run_script(tmp_path, variables, *arguments):
    (tmp_path / 'tmp').mkdir(exist_ok=True)
    return subprocess.run([SCRIPT, *map(str, arguments)], cwd=tmp_path, env=variables, capture_output=True, text=True,
                          timeout=LIMIT)


def contents(path):
    with tarfile.open(path) as archive:
        return {pathlib.PurePath(member.name).name: archive.extractfile(member).read().decode(errors='replace')
                for member in archive.getmembers() if member.isfile()}


def test_all_steps_are_done_and_nothing_private_is_saved(tmp_path, tools):
    done = run_script(tmp_path, tools, '--fabric', 'tcp', '--device', 'none', '--quick')
    assert done.returncode == 1, done.stderr       # ib_write_lat failed
    files = contents(tmp_path / 'first-hour.tar.gz')
    steps = dict(re.findall(r'^\d\d-(\S+): ([^(]+) \(', files['summary.txt'], re.M))
    failed = {name: text for name, text in steps.items() if text.startswith('FAILED')}
    assert failed == {'yardstick-ib_write_lat': 'FAILED: exit status 1'}, (failed, files)
    assert steps['routes'] == steps['check'] == 'ok, the machine is not fit' and '1 of 29 steps failed' in done.stderr
    for name, text in files.items():
        if not name.endswith('.tar'):
            assert not [secret for secret in SECRETS if re.search(rf'(?<!\w){re.escape(secret)}(?!\w)', text)], name
    devices = next(text for name, text in files.items() if name.endswith('-devices.txt'))
    assert all(text in devices for text in KEPT)
    writes = next(text for name, text in files.items() if name.endswith('-bench-write.txt'))
    assert writes.count('"bytes_per_second"') >= 4 and '"fabric": "tcp"' in writes
    killed = next(text for name, text in files.items() if name.endswith('-killed-server.txt'))
    assert 'PEER-LOST' in killed and re.search(r'exit status 1, \d{1,2} s after', killed)
    # Neither the key nor a folder is left.
    assert not any('key' in name for name in files) and not os.listdir(tmp_path / 'tmp')


@pytest.mark.skipif(not os.path.exists(os.path.join(CARD, 'libcard_file.so')), reason='no stand-in card')
def test_all_steps_are_done_over_the_stand_in_card(tmp_path, tools):
    (tmp_path / 'cable').mkdir()
    variables = {**tools, 'STANDIN_CABLE': str(tmp_path / 'cable'), 'LD_LIBRARY_PATH': CARD,
                 'LD_PRELOAD': os.path.join(CARD, 'libcard_file.so')}
    done = run_script(tmp_path, variables, '--device', 'mlx5_0', '--quick')
    files = contents(tmp_path / 'first-hour.tar.gz')
    steps = dict(re.findall(r'^\d\d-(\S+): ([^(]+) \(', files['summary.txt'], re.M))
    failed = {name: text for name, text in steps.items() if text.startswith('FAILED')}
    assert failed == {'yardstick-ib_write_lat': 'FAILED: exit status 1'}, (failed, files, done.stderr)
    measured = {name: json.loads(text.partition('\n')[2]) for name, text in files.items() if '-bench-' in name}
    assert len(measured) >= 15
    for name, result in measured.items():
        assert {row['fabric'] for row in result['results']} == {'verbs'}, (name, result)
    killed = next(text for name, text in files.items() if name.endswith('-killed-server.txt'))
    assert 'PEER-LOST' in killed or 'RDMA-REMOTE-ACCESS' in killed


def test_measures_with_a_peer(tmp_path, tools):
    key = make_key(tmp_path, 'a key')
    server = start('bench', '--server', '--key', key, '127.0.0.1:0')
    try:
        address = server.stdout.readline().decode().split()[-1]
        done = run_script(tmp_path, tools, '--fabric', 'tcp', '--device', 'none', '--peer', address, '--key', 'a key',
                          '--quick', '--output', tmp_path / 'result.tar.gz')
        assert done.returncode == 0, done.stderr
        files = contents(tmp_path / 'result.tar.gz')
        assert not any('yardstick' in name or 'killed' in name for name in files)
        assert any(name.endswith('-bench-read.txt') for name in files)
    finally:
        server.send_signal(signal.SIGKILL)
        server.communicate()


def test_wrong_usage(tmp_path, tools):
    for arguments, text in [(['--peer', 'host'], '--peer needs --key'), (['--what'], 'unknown option --what'),
                            (['--device'], '--device needs a value')]:
        done = run_script(tmp_path, tools, *arguments)
        assert done.returncode == 2 and text in done.stderr
    done = run_script(tmp_path, tools, '--help')
    page = (SCRIPT.parents[3] / 'man/peerlane-first-hour.1.scd').read_text(encoding='utf-8')
    assert done.returncode == 0 and all(f'*{option}*' in page for option in re.findall(r'^  (--\w+)', done.stdout, re.M))
    done = run_script(tmp_path, tools, '--list')
    assert done.returncode == 0 and len(done.stdout.splitlines()) >= 29 and not (tmp_path / 'first-hour.tar.gz').exists()


@pytest.mark.parametrize('options', [[], ['--quick']], ids=['full', 'quick'])
def test_peerlane_accepts_the_options_of_each_listed_command(tmp_path, tools, options):
    listed = run_script(tmp_path, tools, '--fabric', 'tcp', '--list', *options).stdout.splitlines()
    commands = [line.split(maxsplit=2)[2].split() for line in listed if line.split()[2] == 'peerlane']
    assert len(commands) >= 20, listed
    for command in commands:
        assert not [word for word in command if word.endswith(':')] and '--device --' not in ' '.join(command), command
        # Port 1 refuses connections, so `bench` checks its options and ends; the other commands explain themselves.
        bench = command[1] == 'bench'
        arguments = [word.replace(':PORT', ':1') for word in command[1:]] + ([] if bench else ['--help'])
        done = subprocess.run([PEERLANE, *arguments], cwd=tmp_path, env=tools, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == (1 if bench else 0), (command, done.returncode, done.stderr)


def test_the_list_names_a_device_that_is_not_known(tmp_path, tools):
    if os.path.isdir('/sys/class/infiniband') and os.listdir('/sys/class/infiniband'):
        pytest.skip('this machine has an RDMA device')
    listed = run_script(tmp_path, tools, '--list').stdout
    assert 'routes --device NAME --save' in listed and 'ib_write_bw -d NAME -F' in listed


def test_a_machine_without_a_card(tmp_path, tools):
    if os.path.isdir('/sys/class/infiniband') and os.listdir('/sys/class/infiniband'):
        pytest.skip('this machine has an RDMA device')
    done = run_script(tmp_path, tools)
    assert done.returncode == 1 and 'no RDMA device has an active port' in done.stderr
