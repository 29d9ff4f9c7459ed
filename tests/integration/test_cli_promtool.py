# SPDX-License-Identifier: BSD-2-Clause
"""Prometheus' own promtool accepts the metrics of `peerlane check`, `topo`, `routes` and `serve`, and what the pages configure."""
import json
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest
from check_machines import cloud, ideal, old
from cli_support import DEADLINE, PEERLANE, content, run, serving, write

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(PEERLANE).resolve().parent
PROMTOOL = shutil.which('promtool')
pytestmark = pytest.mark.skipif(not PROMTOOL, reason='promtool is not installed (prometheus)')


def complaints(*arguments, text=None):
    """Returns what promtool says, empty if it accepts the input."""
    done = subprocess.run([PROMTOOL, 'check', *map(str, arguments)], input=text, capture_output=True, text=True, timeout=DEADLINE)
    said = done.stderr + (done.stdout if done.returncode else '')
    assert bool(done.returncode) == bool(said), (done.returncode, done.stdout, done.stderr)
    return said


def blocks(page):
    """Returns the YAML in a page by its first word."""
    return {text.split(':')[0]: text for text in re.findall(r'```yaml\n(.*?)```', (ROOT / page).read_text(), re.DOTALL)}


def test_promtool_finds_defects():
    good = '# HELP peerlane_x Text.\n# TYPE peerlane_x gauge\npeerlane_x 1\n'
    assert complaints('metrics', text=good) == ''
    assert 'no help text' in complaints('metrics', text='\n'.join(good.splitlines()[1:]) + '\n')
    assert complaints('metrics', text=good.rstrip())


@pytest.mark.parametrize('command', ['check', 'topo'])
@pytest.mark.parametrize('machine', [ideal, cloud, lambda: old(loaded=False)], ids=['ideal', 'cloud', 'old'])
def test_textfiles(command, machine, tmp_path):
    machine().write(tmp_path)
    text = run(command, '--sysroot', tmp_path, '--expect', 'gpus=1', '--format', 'prometheus').stdout
    assert text.startswith('# HELP') and complaints('metrics', text=text) == ''


@pytest.mark.skipif(not (BUILD / 'tests/card/libibverbs.so.1').exists(), reason='no stand-in card')
def test_textfile_of_routes():
    text = run('routes', '--expect', 'direct=1', '--format', 'prometheus', LD_LIBRARY_PATH=f'{BUILD}/tests/card:{BUILD}/tests',
               STANDIN_CARD='cx7-roce').stdout
    assert 'device="' in text and complaints('metrics', text=text) == ''


def test_metrics_of_a_server(tmp_path):
    write(tmp_path / 'pub/model', content(300_001))
    with serving(tmp_path / 'pub', '--metrics', '0', '--json') as server:
        run('get', server.address, 'model', '-o', tmp_path / 'copy')
        run('get', server.address, 'none', '-o', tmp_path / 'copy', expect=1)
        address = json.loads(server.first)['metrics']
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f'http://{address}/metrics', timeout=DEADLINE) as answer:
            text = answer.read().decode()
    assert 'peerlane_operation_seconds_bucket' in text and 'id="NOT-PUBLISHED"' in text
    assert complaints('metrics', text=text) == ''


def test_rules_and_configuration_of_the_page(tmp_path):
    found = blocks('docs/metrics.md')
    assert set(found) == {'groups', 'scrape_configs'}
    for kind, name in ('rules', 'groups'), ('config', 'scrape_configs'):
        path = tmp_path / f'{kind}.yml'
        path.write_text(found[name])
        assert complaints(kind, path) == ''
    path.write_text(found['groups'].replace('rate(', 'rat(', 1))
    assert 'rat' in complaints('rules', path)
