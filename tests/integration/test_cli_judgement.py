# SPDX-License-Identifier: BSD-2-Clause
"""Judgements of `peerlane topo` and `peerlane routes`: expectations, baselines, accepted findings, formats."""
import json

import jsonschema
import pytest
from check_formats import LINE, SCHEMA, metrics, nagios
from check_machines import CARD, GPU, ideal
from cli_support import run

SWITCH = 'sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0'
JUDGEMENT = {**SCHEMA, 'oneOf': [{'$ref': '#/$defs/judgement'}]}
FAR = '0000:c1:00.0'


@pytest.fixture(scope='module')
def top(tmp_path_factory):
    """Two machines: an ideal one, and one whose GPU has half of its lanes; with the profiles of their routes."""
    folder = tmp_path_factory.mktemp('machines')
    ideal().set('etc/peerlane/routes.json', json.dumps(profile(well()))).write(folder / 'ideal')
    narrow = ideal().remove(f'{SWITCH}/0000:3c:00.0/{GPU}/current_link_width')
    narrow.set(f'{SWITCH}/0000:3c:00.0/{GPU}/current_link_width', '8\n').write(folder / 'x8')
    run('check', '--sysroot', folder / 'ideal', '--host', 'gpu001', '--json', '-o', folder / 'base.json')
    for name, rates in [('well', well()), ('lost', lost()), ('slow', slow())]:
        (folder / f'{name}.json').write_text(json.dumps(profile(rates)))
    (folder / 'other.json').write_text(json.dumps({**profile(well()), 'machine': 'b' * 32}))
    return folder


def profile(rates):
    """Returns a profile with rates of the three paths, into the GPU and from it, of each pair of a GPU and a device."""
    def leg(rate):
        return {'proven': rate > 0, 'bytes_per_second': int(rate), 'reason': 'a reason'}
    return {'version': 1, 'machine': 'a' * 32, 'proofs': [
        {'gpu': gpu, 'model': 'A GPU', 'device': device, 'way': way, 'into': leg(into), 'from': leg(out)}
        for (gpu, device), paths in rates.items()
        for way, (into, out) in zip(('dma-buf', 'peer-memory', 'staged'), paths)]}


def well():
    return {(gpu, device): [(40e9, 38e9), (0, 0), (20e9, 20e9)] for gpu in (GPU, FAR) for device in ('mlx5_0', 'mlx5_1')}


def lost():
    """One pair is staged in one direction, and one has no path from the GPU."""
    return {**well(), (GPU, 'mlx5_1'): [(40e9, 0), (0, 0), (20e9, 20e9)], (FAR, 'mlx5_0'): [(0, 0), (0, 0), (20e9, 0)]}


def slow():
    """One pair has 79 % of its rate, one has 81 %, one is gone."""
    rates = {**well(), (GPU, 'mlx5_0'): [(40e9, 0.79 * 38e9), (0, 0), (0, 0)],
             (GPU, 'mlx5_1'): [(0.81 * 40e9, 38e9), (0, 0), (0, 0)]}
    del rates[FAR, 'mlx5_1']
    return rates


def topo(top, name, *arguments, expect=None):
    return run('topo', '--sysroot', top / name, '--host', 'gpu001', *arguments, expect=expect)


def routes(top, name, *arguments, expect=None):
    return run('routes', '--replay', top / f'{name}.json', '--host', 'gpu001', *arguments, expect=expect)


def found(done, row):
    """Returns the status of a row, and its findings with that status."""
    judged = json.loads(done.stdout)['judgement']
    assert list(jsonschema.Draft202012Validator(JUDGEMENT).iter_errors(judged)) == []
    states = [one['status'] for one in judged['checks']]
    assert judged['counts'] == {**{name.lower(): states.count(name) for name in ('none', 'OK', 'UNKNOWN', 'WARN', 'FAIL')},
                                'accepted': judged['counts']['accepted']}
    one, = [one for one in judged['checks'] if one['id'] == row]
    return one['status'], {finding['object']: finding['found'] for finding in one['findings']
                           if finding['status'] == one['status']}


def test_schema_refuses_other_judgements():
    for wrong in ({}, {'time': 1}, {'status': 'well'}):
        assert list(jsonschema.Draft202012Validator(JUDGEMENT).iter_errors(wrong))


# -- topo ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, arguments, row, status, objects', [
    ('ideal', ['--expect', 'gpus=1,cards=1,rate=400,links=16x5'], 'expect-links', 'OK', {GPU, CARD}),
    ('x8', ['--expect', 'links=16x5'], 'expect-links', 'FAIL', {GPU}),
    ('ideal', ['--expect', 'gpus=2'], 'gpu-count', 'FAIL', {None}),
    ('ideal', ['--expect', 'cards=2'], 'card-driver', 'FAIL', {None}),
    ('ideal', ['--expect', 'rate=800'], 'expect-rate', 'FAIL', {'mlx5_0/1'}),
    ('x8', ['--baseline', 'base.json'], 'baseline', 'FAIL', {GPU}),
    ('ideal', ['--baseline', 'base.json'], 'baseline', 'OK', {None}),
])
def test_topo_judges(top, name, arguments, row, status, objects):
    arguments = [top / word if word == 'base.json' else word for word in arguments]
    done = topo(top, name, '--json', *arguments, expect=3 if 'FAIL' in status else 0)
    got, findings = found(done, row)
    assert (got, set(findings)) == (status, objects)
    assert json.loads(done.stdout)['kind'] == 'topo' and json.loads(done.stdout)['host'] == 'gpu001'
    # The other checks of a machine are not about its topology.
    groups = {one['group'] for one in json.loads(done.stdout)['judgement']['checks']}
    assert groups == {'GPU', 'RDMA card', 'Path', 'Platform', 'Expected'}


def test_topo_without_a_judgement_is_as_before(top):
    plain = topo(top, 'x8', '--json', expect=0)
    assert 'judgement' not in json.loads(plain.stdout)
    text = topo(top, 'x8', expect=0).stdout
    judged = topo(top, 'x8', '--expect', 'links=16x5', expect=3).stdout
    assert judged.startswith(text) and 'expect-links' in judged[len(text):] and 'expect-links' not in text


def test_topo_exit_status(top):
    assert topo(top, 'x8', '--expect', 'links=16x5', '--fail-on', 'fail').returncode == 1
    assert topo(top, 'x8', '--expect', 'links=8x5', '--fail-on', 'fail').returncode == 0
    accepted = topo(top, 'x8', '--expect', 'links=16x5', '--ignore', f'expect-links:{GPU}=known,path-link=known',
                    '--fail-on', 'fail', '--json', expect=0)
    assert found(accepted, 'expect-links')[0] == 'OK'
    assert topo(top, 'none', '--fail-on', 'fail').returncode == 2
    for wrong in (['--tree', '--format', 'line'], ['--expect', 'direct=1'], ['--nccl-topology', 'x', '--expect', 'gpus=1'],
                  ['--json', '--format', 'line'], ['--output', 'x']):
        assert topo(top, 'ideal', *wrong, expect=2).stderr


def test_topo_formats(top):
    line = LINE.fullmatch(topo(top, 'x8', '--format', 'line', '--expect', 'links=16x5', expect=3).stdout)
    assert (line['host'], line['status'], line['check']) == ('gpu001', 'FAIL', 'expect-links')
    head, data, rest = nagios(topo(top, 'x8', '--format', 'nagios', '--expect', 'gpus=1,links=16x5'))
    assert 'CRITICAL' in head and data['gpus'] == '1;;1:;0' and 'FAIL expect-links' in rest[0] + rest[1]
    # A usage error is UNKNOWN for a plugin.
    assert topo(top, 'x8', '--format', 'nagios', '--expect', 'a=1').returncode == 3
    assert nagios(topo(top, 'none', '--format', 'nagios'))[0].startswith('PEERLANE UNKNOWN - ')
    out = top / 'topo.prom'
    assert topo(top, 'x8', '--format', 'prometheus', '-o', out, '--expect', 'links=16x5', expect=0).stdout == ''
    samples = metrics(out.read_text())
    assert samples['topo_expected_met', ('key', 'links')] == 0
    assert samples['topo_path_info', ('best', 'yes'), ('card', 'mlx5_0'), ('class', 'PIX'), ('gpu', GPU)] == 1
    assert 31e9 < samples['topo_path_rate_bytes_per_second', ('card', 'mlx5_0'), ('gpu', GPU)] < 32e9
    # node_exporter refuses two files that have one series.
    check = metrics(run('check', '--sysroot', top / 'x8', '--format', 'prometheus', expect=None).stdout)
    assert not {key[0] for key in samples} & {key[0] for key in check}


# -- routes ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, arguments, status, row, judged, objects', [
    ('well', ['--expect', 'gpus=2,cards=2,direct=2,rate=300'], 0, 'expect-direct', 'OK', {GPU, FAR}),
    ('well', ['--expect', 'gpus=2,cards=2'], 0, 'route-works', 'OK', None),
    ('well', ['--expect', 'gpus=3'], 3, 'route-works', 'FAIL', {None}),
    ('well', ['--expect', 'cards=3'], 3, 'route-works', 'FAIL', {None}),
    ('well', ['--expect', 'rate=310'], 3, 'expect-route-rate', 'FAIL', None),
    ('well', ['--expect', 'direct=3'], 3, 'expect-direct', 'FAIL', {GPU, FAR}),
    ('lost', ['--expect', 'direct=1'], 1, 'expect-direct', 'OK', {GPU, FAR}),
    ('lost', ['--expect', 'direct=2'], 1, 'expect-direct', 'FAIL', {GPU, FAR}),
    ('lost', ['--expect', 'direct=1'], 1, 'route-works', 'FAIL', {f'{FAR}/mlx5_0'}),
    ('lost', ['--expect', 'direct=1'], 1, 'route-direct', 'WARN', {f'{GPU}/mlx5_1', f'{FAR}/mlx5_0'}),
    ('well', ['--baseline', 'well'], 0, 'route-baseline', 'OK', {None}),
    ('well', ['--baseline', 'other'], 0, 'route-baseline', 'WARN', {'machine'}),
    ('lost', ['--baseline', 'well'], 1, 'route-baseline', 'FAIL', {f'{GPU}/mlx5_1', f'{FAR}/mlx5_0'}),
    ('slow', ['--baseline', 'well'], 3, 'route-baseline', 'FAIL', {f'{GPU}/mlx5_0', f'{FAR}/mlx5_1'}),
    ('well', ['--baseline', 'slow'], 0, 'route-baseline', 'WARN', {f'{FAR}/mlx5_1'}),
])
def test_routes_judges(top, name, arguments, status, row, judged, objects):
    if arguments[0] == '--baseline':
        arguments = ['--baseline', top / f'{arguments[1]}.json']
    got, findings = found(routes(top, name, '--json', *arguments, expect=status), row)
    assert got == judged and (objects is None or set(findings) == objects)


def test_routes_exit_status_and_root(top):
    plain = run('routes', '--replay', top / 'well.json', '--json', expect=0)
    assert run('routes', '--sysroot', top / 'ideal', '--json', expect=0).stdout == plain.stdout
    # A dump has the profile, without the number that is derived from the machine's identifier.
    run('dump', '--sysroot', top / 'ideal', '-o', top / 'dump.tar', '--quiet', expect=0)
    dumped, shown = (json.loads(run('routes', '--sysroot', top / at, '--json', expect=0).stdout) for at in ('dump.tar', 'ideal'))
    assert shown.pop('machine') == 'a' * 32 and dumped == shown
    missing = json.loads(run('routes', '--sysroot', top / 'x8', '--json', expect=1).stdout)['error']
    assert missing['object'] == '/etc/peerlane/routes.json'
    assert routes(top, 'lost', '--fail-on', 'fail').returncode == 1
    assert routes(top, 'lost', '--ignore', f'route-works:{FAR}/mlx5_0=far', '--fail-on', 'fail').returncode == 0
    assert routes(top, 'lost', '--ignore', f'route-works:{FAR}/mlx5_0=far', '--fail-on', 'warn').returncode == 1
    assert routes(top, 'none', '--fail-on', 'fail').returncode == 2
    for wrong in (['--expect', 'links=16x5'], ['--expect', 'driver=5'], ['--sysroot', top / 'ideal'], ['--output', 'x']):
        assert routes(top, 'well', *wrong, expect=2).stderr
    assert 'direct=N' in run('check', '--expect', 'direct=1', expect=2).stderr
    assert 'direct=N' in run('fleet', 'check', 'a', '--expect', 'direct=1', expect=2).stderr


def test_routes_formats(top):
    line = LINE.fullmatch(routes(top, 'lost', '--format', 'line', expect=1).stdout)
    assert (line['host'], line['status'], line['check']) == ('gpu001', 'FAIL', 'route-works')
    assert line['ids'] == 'route-works,route-direct'
    head, data, _ = nagios(routes(top, 'lost', '--format', 'nagios', '--expect', 'gpus=2'))
    assert 'CRITICAL' in head and data['gpus'] == '2;;2:;0' and data['cards'] == '2;;;0'
    assert nagios(routes(top, 'well', '--format', 'nagios'))[0] == 'PEERLANE OK - routes between 2 GPUs and 2 cards are well'
    samples = metrics(routes(top, 'lost', '--format', 'prometheus', '--expect', 'direct=2', expect=0).stdout)
    assert samples['routes_expected_met', ('key', 'direct')] == 0
    assert samples['routes_rate_bytes_per_second', ('device', 'mlx5_1'), ('direction', 'into'), ('gpu', GPU),
                   ('path', 'dma-buf'), ('used', 'yes')] == 40e9
    assert ('routes_rate_bytes_per_second', ('device', 'mlx5_1'), ('direction', 'from'), ('gpu', GPU),
            ('path', 'dma-buf'), ('used', 'yes')) not in samples
    text = routes(top, 'lost', expect=1).stdout
    assert routes(top, 'lost', '--expect', 'direct=2', expect=1).stdout.startswith(text)
