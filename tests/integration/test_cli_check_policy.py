# SPDX-License-Identifier: BSD-2-Clause
"""Policies of `peerlane check`: expectations, accepted findings, baselines, configuration, exit statuses."""
import json

import check_machines as machines
import pytest
from check_formats import LINE, document, metrics, nagios, schema_errors, show
from check_machines import CARD, GPU, ideal, old
from cli_support import run

SWITCH = 'sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0'
GPU_FOLDER = f'{SWITCH}/0000:3c:00.0/{GPU}'
CARD_FOLDER = f'{SWITCH}/0000:3c:01.0/{CARD}'
RDMA = 'sys/class/infiniband/mlx5_0'


def changed(**files):
    """The ideal machine with other contents of files; None removes the file."""
    places = {'gpu_width': f'{GPU_FOLDER}/current_link_width', 'gpu_speed': f'{GPU_FOLDER}/current_link_speed',
              'card_width': f'{CARD_FOLDER}/current_link_width', 'card_speed': f'{CARD_FOLDER}/current_link_speed',
              'above_width': f'{SWITCH}/0000:3c:01.0/current_link_width',
              'above_speed': f'{SWITCH}/0000:3c:01.0/current_link_speed',
              'state': f'{RDMA}/ports/1/state', 'rate': f'{RDMA}/ports/1/rate', 'layer': f'{RDMA}/ports/1/link_layer',
              'firmware': f'{RDMA}/fw_ver', 'driver': 'sys/module/nvidia/version'}
    machine = ideal()
    for name, content in files.items():
        path = places[name]
        assert path in machine.files, path
        machine.remove(path)
        if content is not None:
            machine.set(path, content)
    return machine


def without_gpu():
    return ideal().remove(GPU_FOLDER, f'{machines.DEVICES}/{GPU}', f'sys/bus/pci/drivers/nvidia/{GPU}')


def more_devices():
    machine = ideal().gpu('pci0000:3a/0000:3a:02.0/0000:40:00.0')
    return machine.card('pci0000:3a/0000:3a:03.0/0000:41:00.0', 'mlx5_1', node=1)


MACHINES = {
    'ideal': ideal, 'old': lambda: old(loaded=False), 'cloud': machines.cloud, 'more': more_devices, 'no_gpu': without_gpu,
    'no_card': lambda: ideal().remove(CARD_FOLDER, f'{machines.DEVICES}/{CARD}', 'sys/class/infiniband'),
    'x8': lambda: changed(gpu_width='8\n'), 'card_x8': lambda: changed(card_width='8\n'),
    'gen4': lambda: changed(card_speed='16.0 GT/s PCIe\n'), 'idle': lambda: changed(gpu_speed='2.5 GT/s PCIe\n'),
    'no_link': lambda: changed(card_width=None, card_speed=None, above_width=None, above_speed=None), 'slow': lambda: changed(rate='200 Gb/sec (4X HDR)\n'),
    'down': lambda: changed(state='1: DOWN\n'), 'no_rate': lambda: changed(rate=None),
    'ethernet': lambda: changed(layer='Ethernet\n'),
    'firmware': lambda: changed(firmware='28.36.1010\n'), 'driver': lambda: changed(driver='580.95.05\n'),
    'no_version': lambda: changed(driver=None),
}


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Folders of all machines, which the tests only read, and a baseline of the ideal one."""
    top = tmp_path_factory.mktemp('machines')
    for name, make in MACHINES.items():
        make().write(top / name)
    run('check', '--sysroot', top / 'ideal', '--json', '--host', 'gpu001', '-o', top / 'base.json')
    return top


def result(shown, row):
    assert schema_errors(shown) == []
    one, = [one for one in shown['checks'] if one['id'] == row]
    return one['status'], {finding['object']: finding['found'] for finding in one['findings']
                           if finding['status'] == one['status']}


# -- expectations ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, expected, row, status, found', [
    ('ideal', 'rate=400', 'expect-rate', 'OK', {'mlx5_0/1': '400 Gbit/s, 400 expected'}),
    ('ideal', 'rate=200', 'expect-rate', 'OK', {'mlx5_0/1': '400 Gbit/s, 200 expected'}),
    ('slow', 'rate=400', 'expect-rate', 'FAIL', {'mlx5_0/1': '200 Gbit/s, 400 expected'}),
    ('down', 'rate=400', 'expect-rate', 'FAIL', {'mlx5_0/1': 'DOWN, 400 Gbit/s expected'}),
    ('no_rate', 'rate=400', 'expect-rate', 'UNKNOWN', {'mlx5_0/1': 'rate not known, 400 Gbit/s expected'}),
    ('no_card', 'rate=400', 'expect-rate', 'FAIL', {None: 'no port of an RDMA card, 400 Gbit/s expected'}),
    ('ideal', 'links=16x5', 'expect-links', 'OK', {GPU: '32 GT/s x16, 32 GT/s x16 expected',
                                                 CARD: '32 GT/s x16, 32 GT/s x16 expected'}),
    ('x8', 'links=16x5', 'expect-links', 'FAIL', {GPU: '32 GT/s x8, 32 GT/s x16 expected'}),
    ('gen4', 'links=16x5', 'expect-links', 'FAIL', {CARD: '16 GT/s x16, 32 GT/s x16 expected'}),
    ('gen4', 'links=16x4', 'expect-links', 'OK', None),
    ('idle', 'links=16x5', 'expect-links', 'OK', None),
    ('no_link', 'links=16x5', 'expect-links', 'UNKNOWN', {CARD: 'link not known, 32 GT/s x16 expected'}),
    ('ideal', 'driver=570.*', 'expect-driver', 'OK', None),
    ('ideal', 'driver=580.*', 'expect-driver', 'FAIL', {None: 'driver 570.124.06, 580.* expected'}),
    ('no_version', 'driver=580.*', 'expect-driver', 'UNKNOWN', {None: 'driver not known, 580.* expected'}),
    ('ideal', 'gpus=1', 'expect-rate', 'none', {}),
    ('ideal', 'gpus=1', 'expect-links', 'none', {}),
    ('ideal', 'gpus=1', 'expect-driver', 'none', {}),
    ('ideal', 'gpus=1', 'baseline', 'none', {}),
])
def test_expectations(folders, name, expected, row, status, found):
    shown = document(folders / name, '--expect', expected)
    got, findings = result(shown, row)
    assert (got, findings if found is not None else None) == (status, found)
    assert status != 'FAIL' or shown['verdict'] != 'ready'


def test_expectations_are_options_and_metrics(folders):
    shown = document(folders / 'x8', '--expect', 'gpus=1,rate=100', '--expect', 'links=16x5,driver=57?.*,rate=200')
    assert shown['policy']['expected'] == {
        'gpus': 1, 'cards': None, 'rate_bytes_per_second': 25_000_000_000, 'width_lanes': 16,
        'speed_transfers_per_second': 32_000_000_000, 'driver': '57?.*'}
    samples = metrics(show(folders / 'x8', 'prometheus', '--expect', 'gpus=2,cards=1,rate=200,links=16x5,driver=57?.*',
                           '--baseline', folders / 'base.json', expect=0).stdout)
    assert {key[1][1]: value for key, value in samples.items() if key[0] == 'check_expected_met'} == \
        {'gpus': 0, 'cards': 1, 'rate': 1, 'links': 0, 'driver': 1, 'baseline': 0}


@pytest.mark.parametrize('expected', ['rate', 'rate=0', 'rate=-1', 'rate=4e2', 'rate=999999', 'links=16', 'links=x5', 'links=16x',
                                      'links=16x9', 'links=0x5', 'links=16x5x1', 'driver=', 'driver=' + 'x' * 64,
                                      'Rate=400', 'rate=400,,gpus=1', ',', 'x' * 400])
def test_wrong_expectations(expected):
    assert 'links=LANESxGENERATION' in run('check', '--expect', expected, expect=2).stderr


# -- accepted findings -----------------------------------------------------------------------------------------------

def test_accepted_findings_do_not_count(folders):
    plain = document(folders / 'old')
    shown = document(folders / 'old', '--ignore', 'peer-client=no module here,gpu-dmabuf', '--ignore', 'card-dmabuf')
    assert (plain['counts']['fail'], plain['counts']['warn'], plain['counts']['accepted']) == (1, 2, 0)
    assert (shown['counts']['fail'], shown['counts']['warn'], shown['counts']['accepted']) == (0, 0, 3)
    assert shown['first'] is None and shown['status'] == 'UNKNOWN'
    one, = [one for one in shown['checks'] if one['id'] == 'peer-client']
    assert (one['status'], one['remedy']) == ('OK', None)
    assert [(finding['status'], finding['accepted']) for finding in one['findings']] == [('FAIL', 'no module here')]
    # The prediction stays: no path works because a finding is accepted.
    assert shown['verdict'] == 'degraded' and shown['routes'] == plain['routes']
    text = run('check', '--sysroot', folders / 'old', '--ignore', 'peer-client=no module here', expect=3).stdout
    assert 'accepted (no module here): no peer memory client is loaded' in ' '.join(text.split())
    assert '; 1 accepted' in text


def test_objects_are_accepted_one_by_one(folders):
    shown = document(folders / 'ideal', '--expect', 'links=16x6', '--ignore', f'expect-links:{CARD}=riser')
    assert result(shown, 'expect-links') == ('FAIL', {GPU: '32 GT/s x16, 64 GT/s x16 expected',
                                                    CARD: '32 GT/s x16, 64 GT/s x16 expected'})
    one, = [one for one in shown['checks'] if one['id'] == 'expect-links']
    assert {finding['object']: finding['accepted'] for finding in one['findings']} == {GPU: None, CARD: 'riser'}
    line = show(folders / 'ideal', 'line', '--expect', 'links=16x6', '--ignore', f'expect-links:{GPU}').stdout
    assert LINE.fullmatch(line)['text'].startswith(f'{CARD}: ') and LINE.fullmatch(line)['accepted'] == '1'
    both = show(folders / 'ideal', 'line', '--expect', 'links=16x6', '--ignore', f'expect-links:{GPU},expect-links:{CARD}')
    assert LINE.fullmatch(both.stdout)['status'] == 'OK' and both.returncode == 0
    samples = metrics(show(folders / 'ideal', 'prometheus', '--expect', 'links=16x6', '--ignore', 'expect-links').stdout)
    assert samples['check_accepted',] == 2 and samples['check_findings', ('status', 'fail')] == 0


def test_unused_entries_are_named(folders):
    done = run('check', '--sysroot', folders / 'ideal', '--ignore', 'bus-iommu:0000:01:00.0,peer-client')
    assert done.stderr == 'peerlane: warning: nothing to ignore of bus-iommu:0000:01:00.0\n' \
        'peerlane: warning: nothing to ignore of peer-client\n'
    assert run('check', '--sysroot', folders / 'ideal', '--ignore', 'bus-iommu', '--quiet').stderr == ''
    used = document(folders / 'old', '--ignore', 'peer-client,bus-iommu')['policy']['ignored']
    assert [(one['id'], one['used']) for one in used] == [('peer-client', True), ('bus-iommu', False)]


@pytest.mark.parametrize('ignored, message', [
    ('peer-clent', "unknown check 'peer-clent'; the nearest is peer-client"), ('gpu_count', 'the nearest is gpu-count'),
    ('', 'no identifier'), (',', 'empty'), ('peer-client,', None), ('x' * 100, "x'; `peerlane check --list`"),
    ('nosuch', "'nosuch'; `peerlane check --list`"), ('peer-client:', 'empty'),
    ('peer-client:' + 'x' * 48, 'too long'), ('peer-client=' + 'x' * 160, 'too long'), ('peer-client=' + 'x' * 400, 'too long')])
def test_wrong_acceptances(folders, ignored, message):
    done = run('check', '--sysroot', folders / 'old', '--ignore', ignored, expect=2 if message else 3)
    assert (message or '') in done.stderr


# -- configuration ---------------------------------------------------------------------------------------------------

def test_configuration(folders, tmp_path):
    conf = tmp_path / 'check.conf'
    conf.write_bytes(b'# of this fleet\n\n  ignore peer-client  no module, by choice  \r\n\texpect gpus=2,rate=400\n'
                     b'ignore expect-rate:mlx5_0/1 uncabled\nexpect rate=800')
    shown = document(folders / 'old', '--config', conf, '--expect', 'gpus=1')
    assert (shown['policy']['expected']['gpus'], shown['policy']['expected']['rate_bytes_per_second']) == (1, 10**11)
    assert [(one['id'], one['object'], one['reason'], one['used']) for one in shown['policy']['ignored']] == [
        ('peer-client', None, 'no module, by choice', True), ('expect-rate', 'mlx5_0/1', 'uncabled', True)]
    assert result(shown, 'gpu-count')[0] == 'OK' and shown['counts']['fail'] == 0


@pytest.mark.parametrize('content, line, message', [
    (b'\n\nignore peer-clent x\n', 3, "unknown check 'peer-clent'"), (b'ignore peer-client\n', 1, 'no reason'),
    (b'ignore\n', 1, "begins with 'ignore'"), (b'expect\n', 1, "begins with 'expect'"), (b'expect gpus\n', 1, 'gpus'),
    (b'# \xc3\xa4\nfail-on warn', 2, "begins with 'fail-on'"), (b'ignore peer-client \xff\n', 1, 'no text in UTF-8'),
    (b'#\n# \0\n', 2, 'no text in UTF-8'), (b'#' * 600, 1, 'more than 511 bytes'), (b'expect nics=8', 1, 'nics=8')])
def test_wrong_configurations(folders, tmp_path, content, line, message):
    conf = tmp_path / 'check.conf'
    conf.write_bytes(content)
    done = run('check', '--sysroot', folders / 'ideal', '--config', conf, expect=1)
    assert f'check.conf:{line}: ' in done.stderr and message in done.stderr, done.stderr
    head, _, _ = nagios(show(folders / 'ideal', 'nagios', '--config', conf))
    assert head.startswith('PEERLANE UNKNOWN - ')


def test_configurations_that_cannot_be_read(folders, tmp_path):
    big = tmp_path / 'big'
    with big.open('wb') as file:
        file.truncate((1 << 20) + 1)
    for path, message in [(tmp_path / 'none', 'No such file'), (tmp_path, 'directory'), (big, 'CHECK-FILE-SIZE')]:
        assert message in run('check', '--sysroot', folders / 'ideal', '--config', path, expect=1).stderr
        run('check', '--sysroot', folders / 'ideal', '--config', path, '--fail-on', 'fail', expect=2)


# -- baselines -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, status, found', [
    ('ideal', 'OK', None), ('idle', 'OK', None),
    ('no_gpu', 'FAIL', {GPU: 'no GPU, was NVIDIA H100 80GB HBM3'}),
    ('no_card', 'FAIL', {CARD: 'no card, was there', 'mlx5_0': 'no RDMA device, was there'}),
    ('x8', 'FAIL', {GPU: 'link 32 GT/s x8, was 32 GT/s x16'}),
    ('gen4', 'FAIL', {CARD: 'link 16 GT/s x16, was 32 GT/s x16'}),
    ('no_link', 'UNKNOWN', {CARD: 'link not known, was 32 GT/s x16'}),
    ('slow', 'FAIL', {'mlx5_0/1': '200 Gbit/s, was 400 Gbit/s'}),
    ('down', 'FAIL', {'mlx5_0/1': 'DOWN, was ACTIVE'}),
    ('no_rate', 'UNKNOWN', {'mlx5_0/1': 'rate not known, was 400 Gbit/s'}),
    ('ethernet', 'FAIL', {'mlx5_0/1': 'link layer Ethernet, was InfiniBand'}),
    ('firmware', 'FAIL', {'mlx5_0': 'firmware 28.36.1010, was 28.39.1002'}),
    ('driver', 'FAIL', {'driver': 'driver 580.95.05, was 570.124.06'}),
    ('more', 'WARN', {'0000:40:00.0': 'GPU NVIDIA H100 80GB HBM3, was not there', '0000:41:00.0': 'card, was not there',
                      'mlx5_1': 'RDMA device, was not there'}),
])
def test_baseline(folders, name, status, found):
    shown = document(folders / name, '--baseline', folders / 'base.json')
    got, findings = result(shown, 'baseline')
    assert (got, findings if found is not None else None) == (status, found)
    assert shown['policy']['baseline']['host'] == 'gpu001'


def test_baseline_of_another_host_warns(folders):
    base = folders / 'base.json'
    assert result(document(folders / 'ideal', '--baseline', base, '--host', 'gpu002'), 'baseline') == \
        ('WARN', {'host': 'gpu002, and the baseline is of gpu001'})
    for arguments in [('--host', 'gpu001'), ('--host', 'gpu002', '--ignore', 'baseline:host=golden host')]:
        assert result(document(folders / 'ideal', '--baseline', base, *arguments), 'baseline')[0] == 'OK'


def damages(good):
    """Documents that are no baseline, and a part of the message about each."""
    def with_member(path, value):
        whole = json.loads(good)
        at = whole
        for name in path[:-1]:
            at = at[name]
        if value is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        return json.dumps(whole).encode()

    yield b'', 'unexpected end'
    for size in 1, len(good) // 2, len(good) - 3:
        yield good[:size], 'unexpected end'
    yield good + b'x', 'no valid JSON'
    yield good.replace(b'gpu001', b'gpu\xff01'), 'utf-8'
    yield b'[' * 100 + b']' * 100, 'nesting'
    yield b'[]', 'no JSON object'
    yield b'null\n', 'no JSON object'
    yield with_member(['format'], 2), 'another format than 1'
    yield with_member(['format'], '1'), 'wrong type of format'
    yield with_member(['kind'], 'bench'), 'no output of the check'
    yield with_member(['kind'], KeyError), 'no member kind'
    yield with_member(['host'], 'x' * 256), 'too long or with NUL: host'
    yield with_member(['host'], 'a\0b'), 'too long or with NUL: host'
    yield with_member(['inventory'], None), 'no inventory'
    yield with_member(['inventory', 'gpus'], {}), 'wrong type of gpus'
    yield with_member(['inventory', 'gpus'], [3]), 'no member pci'
    yield with_member(['inventory', 'gpus', 0, 'width_lanes'], -1), 'out of range: width_lanes'
    yield with_member(['inventory', 'gpus', 0, 'width_lanes'], 1 << 40), 'out of range: width_lanes'
    yield with_member(['inventory', 'gpus', 0, 'width_lanes'], 16.5), 'wrong type of width_lanes'
    yield with_member(['inventory', 'cards'], [{}] * 5000), 'too many entries in cards'
    yield with_member(['inventory', 'devices', 0, 'ports'], KeyError), 'no member ports'
    yield with_member(['inventory', 'devices', 0, 'ports', 0, 'port'], 1000), 'out of range: port'
    yield with_member(['inventory', 'devices', 0, 'firmware'], 'x' * 40), 'too long or with NUL: firmware'


def test_damaged_baselines(folders, tmp_path):
    good = (folders / 'base.json').read_bytes()
    path = tmp_path / 'base.json'
    for data, message in damages(good):
        path.write_bytes(data)
        done = run('check', '--sysroot', folders / 'ideal', '--baseline', path, expect=1)
        assert '[CHECK-BASELINE]' in done.stderr and message in done.stderr, (data[:200], done.stderr)
    with path.open('wb') as file:
        file.truncate(17 << 20)
    assert '[CHECK-FILE-SIZE]' in run('check', '--sysroot', folders / 'ideal', '--baseline', path, expect=1).stderr
    run('check', '--sysroot', folders / 'ideal', '--baseline', tmp_path / 'none', expect=1)
    # Members of later versions are ignored, and unknown values are not compared.
    newer = json.loads(good)
    newer['inventory'].update(driver=None, switches=[])
    newer['inventory']['gpus'][0].update(width_lanes=None, speed_transfers_per_second=None, model=None)
    path.write_text(json.dumps(newer))
    assert result(document(folders / 'x8', '--baseline', path), 'baseline')[1] == {'driver': 'driver 570.124.06, was not there'}


# -- exit statuses ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, arguments, statuses', [
    # Without --fail-on; then fail, warn, unknown; then nagios alone and with each of them.
    ('ideal', (), (0, 0, 0, 0, 0, 0, 0, 0)),
    ('old', (), (3, 1, 1, 1, 2, 2, 2, 2)),
    ('old', ('--ignore', 'peer-client'), (3, 0, 1, 1, 1, 0, 1, 1)),
    ('old', ('--ignore', 'peer-client,gpu-dmabuf,card-dmabuf'), (3, 0, 0, 1, 0, 0, 0, 3)),
    ('ideal', ('--expect', 'gpus=2'), (3, 1, 1, 1, 2, 2, 2, 2)),
    ('ideal', ('--expect', 'gpus=2', '--ignore', 'gpu-count=in repair'), (0, 0, 0, 0, 0, 0, 0, 0)),
])
def test_exit_statuses(folders, name, arguments, statuses):
    choices = [(), ('--fail-on', 'fail'), ('--fail-on', 'warn'), ('--fail-on', 'unknown')]
    got = [show(folders / name, 'line', *arguments, *choice).returncode for choice in choices]
    got += [nagios(show(folders / name, 'nagios', *arguments, *choice)) and
            show(folders / name, 'nagios', *arguments, *choice).returncode for choice in choices]
    assert tuple(got) == statuses


def test_wrong_exit_policies():
    for arguments in [('--fail-on', 'bad'), ('--fail-on', 'ok'), ('--fail-on', 'fail', '--strict')]:
        run('check', *arguments, expect=2)
