# SPDX-License-Identifier: BSD-2-Clause
"""Units of systemd that run `peerlane check`."""
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess

import pytest
from check_formats import metrics
from check_machines import ideal
from cli_support import DEADLINE, PEERLANE, environment, free_port, make_key, run_json

NAMES = ('peerlane.service', 'peerlane.socket', 'peerlane-bench.service', 'peerlane-bench.socket', 'peerlane-check.service',
         'peerlane-check.timer')
UNITS = pathlib.Path(__file__).resolve().parents[2] / 'packaging/systemd'


def settings(unit):
    """Returns the settings of a unit, each with the list of its values."""
    found = {}
    for line in (UNITS / unit).read_text().replace('\\\n', '').splitlines():
        name, equals, value = line.partition('=')
        if equals and not line.startswith('#'):
            found.setdefault(name, []).append(value)
    return found


def run_command(text, variables):
    """Runs a command of a unit as systemd does: ${NAME} is one word, $NAME becomes several or none, $$ is $, and %% is %."""
    words = []
    for word in shlex.split(text):
        bare = re.fullmatch(r'\$(\w+)', word)
        words += shlex.split(variables.get(bare[1], '')) if bare else \
            [re.sub(r'\$\{(\w+)\}', lambda name: variables.get(name[1], ''), word.replace('$$', '\0')).replace('%%', '%')]
    words = [PEERLANE if word == '@bindir@/peerlane' else word.replace('\0', '$') for word in words]
    return subprocess.run(words, capture_output=True, text=True, env=environment(**variables), timeout=DEADLINE)


def run_check_service(tmp_path, **variables):
    """Runs the commands of peerlane-check.service, with its folders below tmp_path."""
    unit = settings('peerlane-check.service')
    for text in unit['ExecStart'] + unit['ExecStartPost']:
        text = text.replace('/run/peerlane/', f'{tmp_path}/run/').replace('/var/lib/prometheus/', f'{tmp_path}/var/')
        done = run_command(text, variables)
        if done.returncode or done.stdout or done.stderr:
            break
    return done.returncode, done.stdout, done.stderr


def test_check_service_writes_the_metrics(tmp_path):
    ideal().write(tmp_path / 'machine')
    (tmp_path / 'run').mkdir()
    result, collected = tmp_path / 'run/check.prom', tmp_path / 'var/node-exporter/peerlane.prom'
    options = f'--sysroot {tmp_path}/machine --expect gpus=2'
    # A host without node_exporter.
    assert run_check_service(tmp_path, PEERLANE_CHECK_OPTIONS=options) == (0, '', '')
    assert metrics(result.read_text())['check_expected_met', ('key', 'gpus')] == 0
    assert not (tmp_path / 'var').exists()
    collected.parent.mkdir(parents=True)
    assert run_check_service(tmp_path, PEERLANE_CHECK_OPTIONS=options) == (0, '', '')
    assert collected.read_text() == result.read_text()
    assert os.listdir(collected.parent) == ['peerlane.prom']
    collected.unlink()
    other = tmp_path / 'a folder' / 'x.prom'
    other.parent.mkdir()
    for path in (other, result):
        done = run_check_service(tmp_path, PEERLANE_CHECK_OPTIONS=options, PEERLANE_TEXTFILE=str(path))
        assert done == (0, '', '') and path.read_text() == result.read_text()
    assert os.listdir(other.parent) == ['x.prom'] and not os.listdir(collected.parent)
    assert other.stat().st_mode & 0o777 == 0o644
    status, _, error = run_check_service(tmp_path, PEERLANE_CHECK_OPTIONS=options, PEERLANE_TEXTFILE=str(tmp_path / 'none/x'))
    assert status == 1 and 'No such file' in error


def test_check_service_follows_no_link_of_the_folder(tmp_path):
    """The owner of the folder cannot direct the copy into another file or folder."""
    ideal().write(tmp_path / 'machine')
    for name in ('run', 'folder', 'elsewhere'):
        (tmp_path / name).mkdir()
    other, to = tmp_path / 'elsewhere/file', tmp_path / 'folder/x.prom'
    other.write_text('kept')
    (tmp_path / 'folder/x.prom.part').symlink_to(other)
    for target in (other, other.parent):
        to.unlink(missing_ok=True)
        to.symlink_to(target)
        done = run_check_service(tmp_path, PEERLANE_CHECK_OPTIONS=f'--sysroot {tmp_path}/machine', PEERLANE_TEXTFILE=str(to))
        assert done == (0, '', '') and not to.is_symlink() and to.read_text() == (tmp_path / 'run/check.prom').read_text()
        assert other.read_text() == 'kept' and os.listdir(other.parent) == ['file']


def test_a_missing_result_names_the_service(tmp_path):
    done = subprocess.run([PEERLANE, 'check', '--cached', str(tmp_path / 'none')], capture_output=True, text=True,
                          env=environment(), timeout=DEADLINE)
    assert done.returncode == 1 and '  hint: systemctl status peerlane-check.timer peerlane-check.service' in done.stderr


def test_units_name_the_installed_command():
    build = pathlib.Path(PEERLANE).resolve().parent
    if not (build / 'peerlane.service').exists():
        pytest.skip('the command is not in a folder of its build')
    options = {option['name']: option['value']
               for option in json.loads((build / 'meson-info/intro-buildoptions.json').read_text())}
    command = f"{pathlib.Path(options['prefix'], options['bindir'])}/peerlane"
    for unit in NAMES:
        source, built = (UNITS / unit).read_text(), (build / unit).read_text()
        assert built == source.replace('@bindir@/peerlane', command)
        assert all(line.split('=')[1].split()[0] in (command, '/bin/sh')
                   for line in built.splitlines() if line.startswith(('ExecStart', 'ExecReload')))


def test_units_are_installed_and_packaged():
    root = UNITS.parents[1]
    for unit in NAMES:
        assert f'packaging/systemd/{unit}' in (root / 'meson.build').read_text()
        assert unit in (root / 'packaging/debian/rules').read_text()
        assert f'%{{_unitdir}}/{unit}\n' in (root / 'packaging/rpm/peerlane.spec').read_text()


@pytest.mark.skipif(not shutil.which('systemd-sysusers'), reason='systemd-sysusers is not installed')
def test_users_and_folders_are_made(tmp_path):
    (tmp_path / 'etc').mkdir()
    subprocess.run(['systemd-sysusers', f'--root={tmp_path}', UNITS / 'peerlane.sysusers'], check=True, timeout=DEADLINE)
    users = [line.split(':')[0] for line in (tmp_path / 'etc/passwd').read_text().splitlines()]
    services = [name for name in NAMES if name.endswith('.service') and 'DynamicUser=yes' in (UNITS / name).read_text()]
    # A unit with a dynamic user takes the one with its own name.
    assert sorted(users) == sorted(name.removesuffix('.service') for name in services)
    (tmp_path / 'etc/passwd').write_text('root:x:0:0::/:/bin/sh\n')
    (tmp_path / 'etc/group').write_text('root:x:0:\n')
    subprocess.run(['systemd-tmpfiles', '--create', f'--root={tmp_path}', UNITS / 'peerlane.tmpfiles'], check=True, timeout=DEADLINE)
    assert (tmp_path / 'etc/peerlane').is_dir()


@pytest.mark.skipif(not shutil.which('systemd-analyze'), reason='systemd-analyze is not installed')
def test_systemd_accepts_the_units(tmp_path):
    for unit in NAMES:
        text = (UNITS / unit).read_text()
        (tmp_path / unit).write_text(text.replace('@bindir@/peerlane', shutil.which('true')))
    (tmp_path / 'wrong.timer').write_text('[Timer]\nOnBootSec=never\nUnit=peerlane-check.service\n')

    def verify(units):
        return subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no',
                               *(tmp_path / unit for unit in units)], capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, 'SYSTEMD_LOG_LEVEL': 'warning'})

    done = verify(NAMES)
    assert (done.returncode, done.stderr) == (0, ''), done.stderr
    assert 'timer value' in verify(['wrong.timer']).stderr


@pytest.mark.skipif(not shutil.which('systemd-socket-activate'), reason='systemd-socket-activate is not installed')
def test_a_client_starts_the_measurement_server(tmp_path):
    """systemd-socket-activate passes a socket that is not loopback's, as the unit does, hence the key."""
    key, address = make_key(tmp_path), f'0.0.0.0:{free_port()}'
    client = address.replace('0.0.0.0', '127.0.0.1')
    words = settings('peerlane-bench.service')['ExecStart'][0].replace('${CREDENTIALS_DIRECTORY}/key', str(key)).split()
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.bind(str(tmp_path / 'notify'))
    notices.settimeout(DEADLINE)
    process = subprocess.Popen(['systemd-socket-activate', '-l', address, '-E', 'NOTIFY_SOCKET', PEERLANE, *words[1:]],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment(NOTIFY_SOCKET=str(tmp_path / 'notify')))
    try:
        assert 'Listening on' in process.stderr.readline()
        # systemd-socket-activate replaces itself when a client connects.
        assert os.readlink(f'/proc/{process.pid}/exe') != os.path.realpath(PEERLANE)
        row, = run_json('bench', client, '--key', key, '--size', '8', '--iterations', '10')['results']
        assert row['operations'] == 10
        assert process.stdout.readline() == f'listening on {address}\n'
        assert notices.recv(100).startswith(b'READY=1')
        process.terminate()
        assert process.wait(DEADLINE) == 0
        assert notices.recv(100) == b'STOPPING=1'
    finally:
        process.kill()
        process.wait()


def test_lines_for_the_journal_have_levels(tmp_path):
    def lines(*arguments, offset=0):
        reader, writer = os.pipe()
        pipe = os.fstat(writer)
        done = subprocess.run([PEERLANE, *arguments], stderr=writer, stdout=subprocess.PIPE, timeout=DEADLINE,
                              env=environment(JOURNAL_STREAM=f'{pipe.st_dev}:{pipe.st_ino + offset}'))
        os.close(writer)
        with os.fdopen(reader) as file:
            return done.returncode, file.read().splitlines()

    failed, error = lines('serve', '0.0.0.0:0', str(tmp_path))
    assert failed == 1 and len(error) == 2
    assert error[0].startswith('<3>peerlane: 0.0.0.0') and error[1].startswith('<3>  hint: ')
    assert lines('serve', '0.0.0.0:0', str(tmp_path), offset=1)[1] == [line[3:] for line in error]
    ideal().write(tmp_path / 'machine')
    warning, = lines('check', '--sysroot', str(tmp_path / 'machine'), '--ignore', 'port-state:none_0=absent')[1]
    assert warning.startswith('<4>peerlane: warning: ')
