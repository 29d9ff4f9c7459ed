# SPDX-License-Identifier: BSD-2-Clause
"""Units of systemd that run `peerlane check`."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from check_formats import metrics
from check_machines import ideal
from cli_support import PEERLANE, environment

UNITS = pathlib.Path(__file__).resolve().parents[2] / 'packaging/systemd'


def settings(unit):
    """Returns the settings of a unit, each with the list of its values."""
    found = {}
    for line in (UNITS / unit).read_text().splitlines():
        name, equals, value = line.partition('=')
        if equals and not line.startswith('#'):
            found.setdefault(name, []).append(value)
    return found


def run_service(**variables):
    """Runs the command of the service as systemd does: ${NAME} is one word, $NAME becomes several or none."""
    unit = settings('peerlane-check.service')
    variables = {**dict(line.split('=', 1) for line in unit['Environment']), **variables}
    words = []
    for word in unit['ExecStart'][0].split():
        bare = re.fullmatch(r'\$(\w+)', word)
        words += shlex.split(variables.get(bare[1], '')) if bare else \
            [re.sub(r'\$\{(\w+)\}', lambda name: variables.get(name[1], ''), word)]
    assert words[0] == '/usr/bin/peerlane'
    return subprocess.run([PEERLANE, *words[1:]], capture_output=True, text=True, env=environment(), timeout=60)


def test_service_writes_the_metrics(tmp_path):
    ideal().write(tmp_path / 'machine')
    path = tmp_path / 'a folder' / 'x.prom'
    path.parent.mkdir()
    options = f'--sysroot {tmp_path}/machine --expect gpus=2'
    done = run_service(PEERLANE_TEXTFILE=str(path), PEERLANE_CHECK_OPTIONS=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert metrics(path.read_text())['check_expected_met', ('key', 'gpus')] == 0
    assert settings('peerlane-check.service')['Environment'] == \
        ['PEERLANE_TEXTFILE=/var/lib/prometheus/node-exporter/peerlane.prom']
    failed = run_service(PEERLANE_TEXTFILE=str(tmp_path / 'none' / 'x.prom'), PEERLANE_CHECK_OPTIONS=options)
    assert failed.returncode == 1 and 'No such file' in failed.stderr


def test_units_are_installed_and_packaged():
    root = UNITS.parents[1]
    for unit in 'peerlane-check.service', 'peerlane-check.timer':
        assert f'packaging/systemd/{unit}' in (root / 'meson.build').read_text()
        assert unit in (root / 'packaging/debian/rules').read_text()
        assert f'%{{_unitdir}}/{unit}\n' in (root / 'packaging/rpm/peerlane.spec').read_text()


@pytest.mark.skipif(not shutil.which('systemd-analyze'), reason='systemd-analyze is not installed')
def test_systemd_accepts_the_units(tmp_path):
    for unit in 'peerlane-check.service', 'peerlane-check.timer':
        text = (UNITS / unit).read_text()
        (tmp_path / unit).write_text(text.replace('/usr/bin/peerlane', shutil.which('true')))

    def verify():
        return subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no',
                               tmp_path / 'peerlane-check.service', tmp_path / 'peerlane-check.timer'],
                              capture_output=True, text=True, timeout=60, env={**os.environ, 'SYSTEMD_LOG_LEVEL': 'warning'})

    done = verify()
    assert (done.returncode, done.stderr) == (0, ''), done.stderr
    with (tmp_path / 'peerlane-check.timer').open('a') as file:
        file.write('[Timer]\nOnBootSec=never\n')
    assert 'timer value' in verify().stderr
