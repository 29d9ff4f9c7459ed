# SPDX-License-Identifier: BSD-2-Clause
"""Formats of `peerlane check` that programs read: JSON and its schema, lines, metrics, output of a plugin."""
import datetime
import json
import os
import pathlib
import re
import stat
import subprocess

import check_machines as machines
import jsonschema
import pytest
from check_formats import LINE, SCHEMA, document, metrics, nagios, schema_errors, show
from check_machines import CARD, GPU, ideal, old
from cli_support import DEADLINE, PEERLANE, environment, run, run_json

STATUSES = ['OK', 'UNKNOWN', 'WARN', 'FAIL']


def soft():
    """Soft-RoCE and no card."""
    machine = machines.bare()
    machine.set('sys/module/ib_core', None).set('sys/class/net/eth0/mtu', '1500\n')
    machine.rdma('rxe0', '', dmabuf=95)
    return machine.remove('sys/class/infiniband/rxe0/device').set('sys/class/infiniband/rxe0/parent', 'eth0\n')


MACHINES = {'ideal': ideal, 'old': lambda: old(loaded=False), 'cloud': machines.cloud, 'connectx3': machines.connectx3,
            'gpu_only': machines.gpu_only, 'container': machines.container, 'soft': soft, 'empty': machines.Machine}


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Folders of all machines, which the tests only read."""
    top = tmp_path_factory.mktemp('machines')
    for name, make in MACHINES.items():
        (top / name).mkdir()
        make().write(top / name)
    return top


# -- JSON ------------------------------------------------------------------------------------------------------------

def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize('name', MACHINES)
def test_json_fits_the_schema(folders, name):
    shown = document(folders / name, '--host', 'gpu017')
    assert schema_errors(shown) == []
    assert (shown['format'], shown['kind'], shown['host'], shown['boot_id']) == (1, 'check', 'gpu017', None)
    states = [one['status'] for one in shown['checks']]
    assert shown['counts'] == {**{state.lower(): states.count(state) for state in ['none', *STATUSES]}, 'accepted': 0}
    assert shown['status'] == max((state for state in states if state != 'none'), key=STATUSES.index, default='OK')


def test_schema_refuses_other_documents(folders):
    good = document(folders / 'ideal')
    assert schema_errors(good) == []
    for change in [{'format': 2}, {'kind': 'topo'}, {'status': 'none'}, {'time': '2026-11-22 23:10:05'},
                   {'boot_id': 'x'}, {'verdict': 'fine'}, {'counts': {}}, {'checks': [{}]}, {'inventory': None}]:
        assert schema_errors({**good, **change}), change
    assert schema_errors({**good, 'new_member': 1}) == []


def test_json_names_this_machine_and_its_start():
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    done = run('check', '--json', expect=None, SLURMD_NODENAME='', NODE_NAME='')
    shown = json.loads(done.stdout)
    after = datetime.datetime.now(datetime.timezone.utc)
    assert schema_errors(shown) == []
    assert shown['host'] == os.uname().nodename
    assert shown['boot_id'] == pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    assert before <= datetime.datetime.strptime(shown['time'], '%Y-%m-%dT%H:%M:%S%z') <= after
    assert 0 < shown['duration_seconds'] <= (after - before).total_seconds() + 1 and shown['uptime_seconds'] > 0
    assert shown['root'] == (os.geteuid() == 0)
    named = json.loads(run('check', '--json', expect=None, SLURMD_NODENAME='node7', NODE_NAME='other').stdout)
    assert named['host'] == 'node7'


def test_dumps_have_no_name(folders):
    shown = document(folders / 'ideal')
    assert [shown[name] for name in ('host', 'boot_id', 'uptime_seconds')] == [None] * 3


def test_inventory(folders):
    shown = document(folders / 'ideal')['inventory']
    assert shown['driver'] == '570.124.06' and shown['kernel']
    gpu, = shown['gpus']
    card, = shown['cards']
    device, = shown['devices']
    assert gpu == {'pci': GPU, 'model': 'NVIDIA H100 80GB HBM3', 'numa': 0, 'width_lanes': 16,
                   'speed_transfers_per_second': 32_000_000_000, 'idle': False}
    assert (card['pci'], card['width_lanes'], card['virtual_function']) == (CARD, 16, False)
    assert (device['device'], device['pci'], device['firmware']) == ('mlx5_0', CARD, '28.39.1002')
    assert device['ports'] == [{'port': 1, 'state': 'ACTIVE', 'layer': 'InfiniBand',
                                'rate_bytes_per_second': 50_000_000_000}]
    soft_device, = document(folders / 'soft')['inventory']['devices']
    assert soft_device['pci'] is None


def test_errors_fit_the_schema(tmp_path):
    shown = json.loads(run('check', '--json', '--sysroot', tmp_path / 'none', expect=1).stdout)
    assert schema_errors(shown) == [] and shown['error']['id'] == 'SYSROOT-OPEN'


def test_json_has_all_findings(tmp_path):
    """A machine with many devices: no finding is left out."""
    machine = ideal()
    for i in range(40):
        machine.card(f'pci0000:00/0000:00:{i // 8 + 8:02x}.{i % 8}', f'mlx5_{i + 1}', device=0x101e, layer='Ethernet',
                     netdev=f'eth{i + 1}', node=i + 1)
    shown = document(machine.write(tmp_path))
    states, = [one for one in shown['checks'] if one['id'] == 'port-state']
    assert len(states['findings']) == 41 and all(one['left_out'] == 0 for one in shown['checks'])
    text = run('check', '--sysroot', tmp_path, expect=None).stdout
    assert '\n           ... and ' in text


def test_wrong_host_names():
    for name in ['', 'x' * 256]:
        assert '--host takes a name' in run('check', '--host', name, expect=2).stderr


# -- choice of a format ----------------------------------------------------------------------------------------------

def test_format_json_is_json(folders):
    def results(*arguments):
        shown = json.loads(run('check', '--sysroot', folders / 'old', *arguments, expect=3).stdout)
        return {name: value for name, value in shown.items() if name not in ('time', 'duration_seconds')}

    assert results('--json') == results('--format', 'json') == results('--json', '--format=json')
    text = run('check', '--sysroot', folders / 'old', expect=3).stdout
    assert text == run('check', '--sysroot', folders / 'old', '--format', 'text', expect=3).stdout


@pytest.mark.parametrize('arguments', [
    ('--format', 'xml'), ('--format', ''), ('--format', 'line', '--json'), ('--format', 'line', '--list'),
    ('--format', 'prometheus', '--fix'), ('--format', 'line', '--explain', 'gpu-count'), ('--output', 'FILE'),
    ('--format', 'line', '--call', 'mmap', '--errno', 'ENOMEM'), ('--json', '--list', '-o', 'FILE')])
def test_wrong_formats(arguments, tmp_path):
    run('check', *(tmp_path / 'x' if argument == 'FILE' else argument for argument in arguments), expect=2)
    assert list(tmp_path.iterdir()) == []


# -- lines -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', MACHINES)
def test_line(folders, name):
    shown = document(folders / name)
    done = show(folders / name, 'line')
    line = LINE.fullmatch(done.stdout)
    assert line, done.stdout
    assert (line['host'], line['status']) == ('gpu017', shown['status'])
    assert [int(line[count]) for count in ('fail', 'warn', 'unknown')] == \
        [shown['counts'][count] for count in ('fail', 'warn', 'unknown')]
    bad = [one['id'] for one in shown['checks'] if one['status'] in ('WARN', 'FAIL')]
    assert (line['ids'] or '').split(',') == (bad or [''])
    worst = [one for one in shown['checks'] if one['status'] == shown['status']]
    if shown['status'] == 'OK':
        assert (line['check'], line['text']) == ('-', shown['summary'])
    else:
        assert line['check'] == (shown['first'] or worst[0]['id'])
        told, = [one for one in worst if one['id'] == line['check']]
        found = next(one for one in told['findings'] if one['status'] == shown['status'])
        assert line['text'] == ': '.join(filter(None, [found['object'], found['found']])).replace('|', '/')
    head = done.stdout[:80]
    assert head.startswith(f"gpu017 {shown['status']} {line['check']} ") and len(head) > len('gpu017 FAIL') + 20
    assert done.returncode == run('check', '--sysroot', folders / name, expect=None).returncode


def test_line_without_a_name(folders):
    assert run('check', '--sysroot', folders / 'ideal', '--format', 'line').stdout.startswith('- OK - ')
    assert show(folders / 'ideal', 'line', '--host', 'a b|c').stdout.startswith('a_b_c OK - ')


# -- metrics ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', MACHINES)
def test_prometheus(folders, name):
    shown = document(folders / name)
    done = show(folders / name, 'prometheus', expect=0)
    samples = metrics(done.stdout)
    for one in shown['checks']:
        states = {state: samples['check_status', ('check', one['id']), ('group', one['group']), ('status', state)]
                  for state in ['none', 'ok', 'unknown', 'warn', 'fail']}
        assert states == {state: float(state == one['status'].lower()) for state in states}
    for verdict in 'ready', 'degraded', 'no-rdma':
        assert samples['check_verdict', ('verdict', verdict)] == (verdict == shown['verdict'])
    for state in STATUSES:
        assert samples['check_findings', ('status', state.lower())] == \
            sum(finding['status'] == state for one in shown['checks'] for finding in one['findings'])
    inventory = shown['inventory']
    assert samples['gpus',] == len(inventory['gpus']) and samples['cards',] == len(inventory['cards'])
    for device in inventory['devices']:
        for port in device['ports']:
            assert samples['port_rate_bytes_per_second', ('device', device['device']), ('port', str(port['port']))] == \
                port['rate_bytes_per_second']
    links = {one['pci']: (one['width_lanes'], one['speed_transfers_per_second'])
             for one in inventory['gpus'] + inventory['cards']}
    for at, metric in enumerate(['pcie_width_lanes', 'pcie_speed_transfers_per_second']):
        assert {key[1][1]: value for key, value in samples.items() if key[0] == metric} == \
            {pci: link[at] for pci, link in links.items() if link[at]}
    assert abs(samples['check_last_success_timestamp_seconds',] -
               datetime.datetime.now(datetime.timezone.utc).timestamp()) < 60
    assert 0 < samples['check_duration_seconds',] < 60 and samples['build_info', ('version', shown['version'])] == 1


def test_prometheus_names(folders):
    """Rules of `promtool check metrics`; and no line has a time stamp, for which node_exporter drops the file."""
    text = show(folders / 'cloud', 'prometheus', expect=0).stdout
    assert text.endswith('\n')
    seen = set()
    for line in text.splitlines():
        comment = re.fullmatch(r'# (HELP|TYPE) (\w+) .+', line)
        if comment:
            assert (comment[1], comment[2]) not in seen
            seen.add((comment[1], comment[2]))
            continue
        name = re.fullmatch(r'(peerlane_[a-z][a-z0-9_]*)(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? [0-9.e+-]+', line)[1]
        assert {('HELP', name), ('TYPE', name)} <= seen
        assert not re.search(r'(_total|_count|_sum|_bucket|_gauge|_ms|_mb|_gb|_percent)$', name)


def test_prometheus_escapes_labels(tmp_path):
    ideal().fact(f'cuda.gpu.{GPU}.name', 'a "quoted" \\ name').write(tmp_path)
    samples = metrics(show(tmp_path, 'prometheus', expect=0).stdout)
    assert ('gpu_info', ('model', 'a "quoted" \\ name'), ('numa', '0'), ('pci', GPU)) in samples


# -- plugin of Nagios ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', MACHINES)
def test_nagios(folders, name):
    shown = document(folders / name)
    head, data, rest = nagios(show(folders / name, 'nagios'))
    state = {'FAIL': 'CRITICAL', 'WARN': 'WARNING'}.get(shown['status'], 'OK')
    assert head.startswith(f'PEERLANE {state} - ')
    assert [int(data[count].split(';')[0]) for count in ('fail', 'warn', 'unknown')] == \
        [shown['counts'][count] for count in ('fail', 'warn', 'unknown')]
    bad = [one['id'] for one in shown['checks'] if one['status'] in ('WARN', 'FAIL')]
    assert [re.fullmatch(r'(WARN|FAIL) ([a-z0-9-]+): .+', line)[2] for line in rest] == bad[:10]
    if shown['counts']['unknown'] and state == 'OK':
        assert nagios(show(folders / name, 'nagios', '--strict'))[0].startswith('PEERLANE UNKNOWN - ')


def test_nagios_limits(folders):
    _, data, _ = nagios(show(folders / 'cloud', 'nagios', '--expect', 'gpus=9'))
    assert data['gpus'] == '8;;9:;0' and data['cards'] == '8;;;0' and data['duration'].endswith('s;;;0')


def test_nagios_errors(tmp_path):
    head, data, _ = nagios(show(tmp_path / 'none', 'nagios'))
    assert head.startswith('PEERLANE UNKNOWN - ') and 'No such file' in head and data == {}
    for arguments in [('--format', 'nagios', '--bad'), ('--bad', '--format=nagios'), ('--format=nagios', '--yes')]:
        run('check', *arguments, expect=3)


# -- files -----------------------------------------------------------------------------------------------------------

def test_output_replaces_the_file(folders, tmp_path):
    path = tmp_path / 'peerlane.prom'
    path.write_text('old')
    with path.open() as old_file:
        done = subprocess.run([PEERLANE, 'check', '--sysroot', folders / 'old', '--format', 'prometheus', '-o', path],
                              capture_output=True, text=True, umask=0o077, env=environment(), timeout=DEADLINE)
        assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
        assert old_file.read() == 'old'
    assert stat.S_IMODE(path.stat().st_mode) == 0o644 and list(tmp_path.iterdir()) == [path]
    assert metrics(path.read_text())
    for form, status in [('json', 3), ('line', 3), ('nagios', 2)]:
        show(folders / 'old', form, '-o', path, expect=status)
        assert path.read_text().endswith('\n') and not path.read_text().endswith('\n\n')
    assert LINE.fullmatch(show(folders / 'old', 'line', '-o', '-').stdout)


def test_output_reaches_the_disk_first(folders, tmp_path):
    """The file has its name after fsync(2), and keeps its old content if that fails."""
    path, log = tmp_path / 'peerlane.prom', tmp_path / 'log'
    options = os.environ.get('ASAN_OPTIONS', '')
    preload = {'LD_PRELOAD': os.environ['SYNC_RECORDER'], 'SYNC_LOG': str(log),
               'ASAN_OPTIONS': f'{options}:verify_asan_link_order=0'.lstrip(':')}
    show(folders / 'ideal', 'line', '-o', path, expect=0, **preload)
    assert re.fullmatch(r'fsync peerlane\.prom\.\w{6}\nrename peerlane\.prom\n', log.read_text()) and LINE.fullmatch(path.read_text())
    path.write_text('old')
    assert 'Input/output error' in show(folders / 'ideal', 'line', '-o', path, expect=1, SYNC_FAIL='1', **preload).stderr
    assert path.read_text() == 'old' and sorted(tmp_path.iterdir()) == [log, path]


def test_output_that_cannot_be_written_leaves_the_old_file(folders, tmp_path):
    path = tmp_path / 'no' / 'x.prom'
    assert 'No such file' in show(folders / 'ideal', 'prometheus', '-o', path, expect=1).stderr
    folder = tmp_path / 'folder'
    folder.mkdir()
    assert show(folders / 'ideal', 'prometheus', '-o', folder, expect=1).stderr
    assert sorted(tmp_path.iterdir()) == [folder] and list(folder.iterdir()) == []
    assert show(folders / 'ideal', 'prometheus', '-o', '/dev/full', expect=1).stderr
    assert stat.S_ISCHR(os.stat('/dev/full').st_mode)


# -- cached result ----------------------------------------------------------------------------------------------------------


def test_cached_results_have_the_status_of_the_check(folders, tmp_path):
    """Each machine's result, with each policy, ends as the check itself does."""
    worst = set()
    for folder in (folders / name for name in MACHINES):
        path = tmp_path / f'{folder.name}.prom'
        run('check', '--sysroot', folder, '--format', 'prometheus', '-o', path)
        found = run_json('check', '--sysroot', folder, expect=None)
        for policy in ((), ('--strict',), ('--fail-on', 'fail'), ('--fail-on', 'warn'), ('--fail-on', 'unknown')):
            status = run('check', '--sysroot', folder, '--format', 'line', *policy, expect=None).returncode
            cached = run('check', '--cached', path, *policy, expect=status).stdout
        counts = found['counts']
        told = re.fullmatch(r'(\S+), \d+ s ago: (\d+) FAIL, (\d+) WARN, (\d+) UNKNOWN(?:; first (\S+))?\n', cached)
        assert told.groups()[:4] == (found['verdict'], *(str(counts[key]) for key in ('fail', 'warn', 'unknown')))
        listed = [check['id'] for check in found['checks'] if check['status'] == found['status']]
        assert told[5] == (listed[0] if found['status'] in ('WARN', 'FAIL') else None)
        worst.add(found['status'])
    assert {'OK', 'FAIL'} <= worst


def test_cached_results_must_be_young(folders, tmp_path):
    path = tmp_path / 'x.prom'
    run('check', '--sysroot', folders / 'ideal', '--format', 'prometheus', '-o', path)
    name = 'peerlane_check_last_success_timestamp_seconds '
    whole = path.read_text()
    written = float(re.search(f'^{name}(.*)$', whole, re.MULTILINE)[1])

    def answer(seconds, *options):
        path.write_text(re.sub(f'^{name}.*$', f'{name}{written + seconds:.3f}', whole, flags=re.MULTILINE))
        done = run('check', '--cached', path, *options, expect=None)
        return done.returncode, 'CHECK-STALE' in done.stderr

    assert answer(-600) == (0, False) and answer(-1000) == (1, True) and answer(2000) == (1, True)
    assert answer(-1000, '--fail-on', 'fail') == (2, True) and answer(-1000, '--max-age', '5000') == (0, False)
    for lost in 'check_verdict', 'check_status', 'check_last_success':
        path.write_text(whole.replace(f'peerlane_{lost}', 'peerlane_x'))
        assert 'CHECK-CACHE' in run('check', '--cached', path, expect=1).stderr
    missing = run('check', '--cached', tmp_path / 'none', expect=1).stderr
    assert 'No such file' in missing and 'peerlane-check.timer' in missing
    assert '--max-age takes seconds' in run('check', '--cached', '60', expect=2, cwd=tmp_path).stderr


@pytest.mark.parametrize('options', [('--cached', 'x', '--json'), ('--cached', 'x', '--expect', 'gpus=1'),
                                     ('--cached', 'x', '--fix'), ('--cached', 'x', '--all'), ('--max-age', '5'),
                                     ('--cached', 'x', '--max-age', '0')])
def test_cached_refuses_options_that_need_a_check(options):
    assert '--max-age' in run('check', *options, expect=2).stderr
