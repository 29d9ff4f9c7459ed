# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane fleet compare`: planted changes between two saved runs, and files that are no runs."""
import csv
import io
import json
import pathlib
import subprocess
import uuid

import jsonschema
import pytest
from cli_support import DEADLINE, PEERLANE, run
from fleet_hosts import Fleet, captured, card, check_row, gpu, name, on_host, slim, spoil

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / 'docs/fleet-changes.schema.json').read_text())
HOSTS = 40
CHANGED = {'lost-gpu': [17], 'half-width': [22, 23], 'old-firmware': [30, 31, 32], 'port-down': [5], 'other-kernel': [*range(1, 21)]}


@pytest.fixture(scope='module')
def documents(tmp_path_factory):
    shown = captured(tmp_path_factory.mktemp('machines') / 'machines', ['well', *CHANGED, 'wrong-mtu'])
    return {kind: slim(one) for kind, one in shown.items()}


def later(shown, number):
    """The same host a week later: other times, counters, addresses, and a new start of some."""
    shown = on_host(shown, shown['host'], number)
    shown.update(time='2026-11-27T10:00:00Z', uptime_seconds=5.0, duration_seconds=2.0)
    if number % 2:
        shown['boot_id'] = str(uuid.UUID(int=number + 5000))
    return shown


def write_run(folder, answers):
    folder.mkdir()
    for host, shown in answers.items():
        (folder / f'{host}.json').write_text(json.dumps(shown))
    return folder


@pytest.fixture
def well(documents):
    return {name(number): on_host({**documents['well'], 'host': name(number)}, name(number), number) for number in range(1, HOSTS + 1)}


def compare(before, after, *arguments, expect=1):
    shown = json.loads(run('fleet', 'compare', before, after, *arguments, '--json', expect=expect).stdout)
    assert [f'{list(error.path)}: {error.message}' for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(shown)] == []
    return shown


def rows(shown):
    return {(row['id'], row['objects'], row['was'], row['now']): row['folded'] for row in shown['changes']}


def replayed(documents, well):
    """The fleet a week later, with changes."""
    after = {host: later(shown, number) for number, (host, shown) in enumerate(well.items(), 1)}
    for kind, numbers in CHANGED.items():
        for number in numbers:
            if kind == 'other-kernel':
                after[name(number)]['inventory']['kernel'] = '6.5.0-14-generic'
            else:
                after[name(number)] = {**later({**documents[kind], 'host': name(number)}, number),
                                       'inventory': {**documents[kind]['inventory'], 'kernel': after[name(number)]['inventory']['kernel']}}
    return after


def test_all_changes_are_found_and_nothing_else(documents, well, tmp_path):
    after = replayed(documents, well)
    del after[name(40)]
    after['new1'] = after[name(39)]
    done = compare(write_run(tmp_path / 'monday', well), write_run(tmp_path / 'friday', after))
    changes = rows(done)
    link = f'{card(2)}: on the way of the card: 32.0 GT/s x8 of 32.0 GT/s x16'
    expected = {
        ('gpus', '-', '8', '7'): name(17), ('gpus', gpu(5), 'present', 'missing'): name(17),
        ('link', card(2), 'x16', 'x8'): 'gpu[022-023]',
        ('firmware', 'mlx5_3', '28.39.1002', '28.36.1010'): 'gpu[030-032]', ('state', 'mlx5_1/1', 'ACTIVE', 'DOWN'): name(5),
        ('kernel', '-', '6.8.0-45-generic', '6.5.0-14-generic'): 'gpu[001-020]',
        ('port-state', '-', 'OK', 'WARN, mlx5_1/1: DOWN (LinkUp)'): name(5), ('path-link', '-', 'OK', f'WARN, {link}'): 'gpu[022-023]',
    }
    path = next(key for key in changes if key[0] == 'path-class')
    assert changes.pop(path) == name(5) and path[1] == gpu(1)
    assert changes == {(row, None if objects == '-' else objects, was, now): hosts for (row, objects, was, now), hosts in expected.items()}
    assert (done['gone'], done['added']) == ([name(40)], ['new1']) and done['counts'] == \
        {'compared': 39, 'changed': 25, 'restarted': 20}
    text = run('fleet', 'compare', tmp_path / 'monday', tmp_path / 'friday', expect=1).stdout.splitlines()
    assert text[0].split() == ['HOSTS', 'ROW', 'OBJECT', 'WAS', 'NOW']
    assert text[-3:] == ['gpu040: no document in the second one', 'new1: no document in the first one',
                         '25 of 39 hosts changed, 20 started anew in between']
    assert [line.split()[1] for line in text[1:4]] == ['path-link', 'port-state', 'gpus']
    # Back again: what was bad is better.
    back = rows(compare(tmp_path / 'friday', tmp_path / 'monday'))
    assert back['path-link', None, f'WARN, {link}', 'OK'] == 'gpu[022-023]' and back['gpus', gpu(5), 'missing', 'present'] == name(17)


def test_bench_compare_takes_runs(documents, well, tmp_path):
    """Folders, files of --output and documents of one host give what `peerlane fleet compare` gives; results are another matter."""
    after = replayed(documents, well)
    well = {name(number): well[name(number)] for number in (1, 17, 22, 39, 40)}
    after = {host: after[host] for host in [*well][:-1]}
    folders = write_run(tmp_path / 'monday', well), write_run(tmp_path / 'friday', after)
    files = [tmp_path / 'monday.json', tmp_path / 'friday.json']
    for folder, file in zip(folders, files):
        file.write_text(run('fleet', 'show', folder, '--json', expect=None).stdout)
    hosts = [folder / f'{name(17)}.json' for folder in folders]
    whole = run('fleet', 'compare', *files, expect=1).stdout
    for pair in folders, (folders[0], files[1]):
        assert run('bench', 'compare', *pair, expect=1).stdout == whole
    for option in '--json', '--csv', '--quiet':
        expected = run('fleet', 'compare', *hosts, option, expect=1).stdout
        assert run('bench', 'compare', *hosts, option, expect=1).stdout == expected and expected
    with files[1].open() as later_run:
        done = subprocess.run([PEERLANE, 'bench', 'compare', files[0], '-'], stdin=later_run, capture_output=True, text=True,
                              timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (1, whole)
    run('bench', 'compare', folders[0], files[0])
    assert 'have no threshold' in run('bench', 'compare', '--threshold', '50', *folders, expect=2).stderr
    results = tmp_path / 'bench.json'
    results.write_text(json.dumps({'results': [{'operation': 'write', 'size': 1, 'bytes_per_second': 1.0}]}))
    for pair in (folders[0], results), (results, files[0]), (hosts[0], results):
        assert 'compare runs of peerlane fleet with runs' in run('bench', 'compare', *pair, expect=2).stderr
    (tmp_path / 'topo.json').write_text(json.dumps({'format': 1, 'kind': 'topo', 'version': '0.1.0', 'gpus': []}))
    assert 'one of peerlane fleet topo' in run('bench', 'compare', files[0], tmp_path / 'topo.json', expect=2).stderr
    (tmp_path / 'empty').mkdir()
    assert 'no documents' in run('bench', 'compare', tmp_path / 'empty', files[0], expect=2).stderr


def test_csv(documents, well, tmp_path):
    """A line for each host and change, also of hosts that one run lacks."""
    few = {name(number): well[name(number)] for number in (1, 2, 3)}
    after = {**{host: {**shown, 'inventory': {**shown['inventory'], 'kernel': '9,9'}} for host, shown in few.items()}, 'new': well[name(4)]}
    del after[name(3)]
    done = run('fleet', 'compare', write_run(tmp_path / 'a', few), write_run(tmp_path / 'b', after), '--csv', expect=1)
    kernel = few[name(1)]['inventory']['kernel']
    assert [*csv.reader(io.StringIO(done.stdout, newline=''))] == [
        ['host', 'row', 'object', 'was', 'now'], [name(1), 'kernel', '', kernel, '9,9'], [name(2), 'kernel', '', kernel, '9,9'],
        [name(3), 'document', '', 'present', 'missing'], ['new', 'document', '', 'missing', 'present']]
    assert 'exclude each other' in run('fleet', 'compare', 'a', 'b', '--csv', '--json', expect=2).stderr


def test_nothing_changed(documents, well, tmp_path):
    after = {host: later(shown, number) for number, (host, shown) in enumerate(well.items(), 1)}
    done = compare(write_run(tmp_path / 'a', well), write_run(tmp_path / 'b', after), expect=0)
    assert done['changes'] == [] and done['counts'] == {'compared': 40, 'changed': 0, 'restarted': 20}
    assert run('fleet', 'compare', tmp_path / 'a', tmp_path / 'b').stdout == '0 of 40 hosts changed, 20 started anew in between\n'
    assert run('fleet', 'compare', tmp_path / 'a', tmp_path / 'b', '--quiet').stdout == ''


def test_changes_of_many_devices_share_a_line(documents, well, tmp_path):
    after = {host: later(shown, number) for number, (host, shown) in enumerate(well.items(), 1)}
    for shown in after.values():
        for device in shown['inventory']['devices']:
            device['firmware'] = '28.43.2026'
    changes = rows(compare(write_run(tmp_path / 'a', well), write_run(tmp_path / 'b', after)))
    assert changes == {('firmware', 'mlx5_[0-7]', '28.39.1002', '28.43.2026'): 'gpu[001-040]'}


def test_ignored_changes(documents, well, tmp_path):
    after = {host: later(shown, number) for number, (host, shown) in enumerate(well.items(), 1)}
    after[name(3)]['inventory']['devices'][0]['firmware'] = '1'
    after[name(4)]['inventory']['kernel'] = '7'
    write_run(tmp_path / 'a', well), write_run(tmp_path / 'b', after)
    assert [row['id'] for row in compare(tmp_path / 'a', tmp_path / 'b', '--ignore', 'kernel')['changes']] == ['firmware']
    compare(tmp_path / 'a', tmp_path / 'b', '--ignore', 'kernel,firmware:mlx5_0', expect=0)
    compare(tmp_path / 'a', tmp_path / 'b', '--ignore', 'kernel,firmware:mlx5_1')


def test_findings_that_last_are_no_changes(documents, well, tmp_path):
    """Counters of a lasting finding are no change; another object is one."""
    def lossy(host, number, lost, ports):
        one = spoil(on_host({**documents['well'], 'host': host}, host, number), 'port-congestion', 'WARN', f'{lost} packets were lost')
        check_row(one, 'port-congestion')['findings'] = [{'object': port, 'status': 'WARN', 'found': f'{lost} packets were lost', 'accepted': None}
                                                         for port in ports]
        return one
    before = {name(1): lossy(name(1), 1, 7, ['mlx5_0/1']), name(2): lossy(name(2), 2, 7, ['mlx5_0/1', 'mlx5_1/1'])}
    after = {name(1): lossy(name(1), 1, 90, ['mlx5_0/1', 'mlx5_2/1']), name(2): lossy(name(2), 2, 90, ['mlx5_0/1'])}
    assert rows(compare(write_run(tmp_path / 'a', before), write_run(tmp_path / 'b', after))) == {
        ('port-congestion', 'mlx5_2/1', 'no finding', '90 packets were lost'): name(1),
        ('port-congestion', 'mlx5_1/1', '7 packets were lost', 'no finding'): name(2)}


def test_another_user_sees_other_things(documents, well, tmp_path):
    """What only root can know is no change if another user ran the second check; that user is one."""
    after = later(well[name(1)], 1)
    after['root'] = False
    spoil(after, 'path-acs', 'UNKNOWN', 'only root sees this')
    changes = rows(compare(write_run(tmp_path / 'a', {name(1): well[name(1)]}), write_run(tmp_path / 'b', {name(1): after})))
    assert changes == {('root', None, 'yes', 'no'): name(1)}


def test_runs_of_the_command_are_compared(documents, tmp_path):
    """A folder of --save against a file of --output."""
    fleet = Fleet(tmp_path / 'fleet')
    for number in range(1, 5):
        fleet.answer(name(number), on_host(documents['well'], name(number), number))
    run('fleet', 'check', *fleet.arguments, '--save', tmp_path / 'a')
    fleet.answer(name(2), on_host(documents['wrong-mtu'], name(2), 2)).act(name(3), 'exit 1\n')
    run('fleet', 'check', *fleet.arguments, '--output', tmp_path / 'b.json', expect=3)
    done = compare(tmp_path / 'a', tmp_path / 'b.json')
    assert [(row['id'], row['folded']) for row in done['changes']] == [('port-mtu', name(2))]
    assert (done['silent'], done['gone']) == ([name(3)], [])
    assert compare(tmp_path / 'b.json', tmp_path / 'a')['answering'] == [name(3)]
    compare(tmp_path / 'b.json', tmp_path / 'b.json', expect=0)


def test_documents_of_one_host(well, tmp_path):
    """What `peerlane check --json` wrote, with a name and, of a dump, without one."""
    path = [tmp_path / 'monday.json', tmp_path / 'friday.json']
    for host in name(1), None:
        before, after = {**well[name(1)], 'host': host}, {**well[name(1)], 'host': host}
        path[0].write_text(json.dumps(before, indent=2))
        path[1].write_text(json.dumps({**after, 'inventory': {**after['inventory'], 'kernel': '9.9'}}))
        done = compare(*path)
        assert [(row['id'], row['folded'], row['now']) for row in done['changes']] == [('kernel', host or 'unnamed', '9.9')]
        assert compare(path[0], path[0], expect=0)['counts']['compared'] == 1
    shown = run('fleet', 'show', write_run(tmp_path / 'run', {name(1): well[name(1)]})).stdout.splitlines()
    path[0].write_text(json.dumps(well[name(1)]))
    assert run('fleet', 'show', path[0]).stdout.splitlines() == shown


def test_members_in_another_order(documents, well, tmp_path):
    """As `jq -S` writes them, in each form of a run."""
    few = {host: well[host] for host in [name(1), name(2)]}
    plain, ordered = write_run(tmp_path / 'plain', few), tmp_path / 'ordered'
    ordered.mkdir()
    for host, shown in few.items():
        (ordered / f'{host}.json').write_text(json.dumps(shown, sort_keys=True, indent=2))
    assert list(json.loads((ordered / f'{name(1)}.json').read_text()))[0] == 'boot_id'
    fleet = tmp_path / 'fleet.json'
    fleet.write_text(json.dumps(json.loads(run('fleet', 'show', plain, '--json').stdout), sort_keys=True))
    for other in ordered, fleet:
        assert compare(plain, other, expect=0)['counts'] == {'compared': 2, 'changed': 0, 'restarted': 0}
        assert run('fleet', 'show', other).stdout == run('fleet', 'show', plain).stdout
    compare(plain / f'{name(1)}.json', ordered / f'{name(1)}.json', expect=0)


def test_damaged_files_are_named(documents, well, tmp_path):
    before, after = write_run(tmp_path / 'a', well), write_run(tmp_path / 'b', well)
    (after / 'gpu001.json').write_text('{"format": 1, "kind": "check"')
    (after / 'gpu002.json').write_bytes(b'\xff')
    (after / 'gpu003.json').write_text(json.dumps({**well[name(3)], 'format': 2}))
    (after / 'gpu004.json').unlink()
    (after / 'gpu004.json').mkdir()
    (after / 'README').write_text('not a document')
    done = compare(before, after)
    assert done['silent'] == ['gpu001', 'gpu002', 'gpu003', 'gpu004'] and done['changes'] == []


@pytest.mark.parametrize('content, message', [
    (None, 'No such file'), ('', 'no whole JSON'), ('{"kind": "fleet"', 'no whole JSON'), ('[]', 'no document of peerlane fleet'),
    ('{"kind": "check", "format": 1}', 'no list of checks'), ('{"kind": "topo", "format": 2}', 'this is format 1'),
    ('{"kind": "check", "format": 1, "host": "a,b", "checks": []}', 'no name of a host'),
    ('{"kind": "fleet", "format": 1, "command": "check", "hosts": []}', 'no document of peerlane fleet'),
    ('{"kind": "fleet", "format": 2, "command": "check", "hosts": [{"host": "a"}]}', 'another format'),
    ('{"kind": "fleet", "format": 1, "command": "check", "hosts": [{"host": "a"}, {"host": "a"}]}', 'name of another one'),
    ('{"kind": "fleet", "format": 1, "command": "check", "hosts": [{"host": "a,b"}]}', 'name of another one'),
    ('{"kind": "fleet", "format": 1, "command": "check", "hosts": [{"host": ""}]}', 'no name'),
    ('{"kind": "fleet", "format": 1, "command": "check", "hosts": [3]}', 'no name')])
def test_files_that_are_no_runs(content, message, tmp_path):
    path = tmp_path / 'file.json'
    if content is not None:
        path.write_text(content)
    done = run('fleet', 'compare', path, path, expect=2)
    assert message in done.stderr and done.stdout == ''
    assert json.loads(run('fleet', 'compare', path, path, '--json', expect=2).stdout)['error']['message']


def test_wrong_arguments(well, tmp_path):
    assert 'OLD and NEW are needed' in run('fleet', 'compare', 'a', expect=2).stderr
    assert 'there are OLD and NEW already' in run('fleet', 'compare', 'a', 'b', 'c', expect=2).stderr
    write_run(tmp_path / 'noise', {'x': 'noise'})
    assert 'no host has a document' in run('fleet', 'compare', tmp_path / 'noise', tmp_path / 'noise', expect=2).stderr
    (tmp_path / 'empty').mkdir()
    assert 'no documents' in run('fleet', 'compare', tmp_path / 'empty', tmp_path / 'empty', expect=2).stderr
    topology = {'format': 1, 'kind': 'topo', 'version': '0.1.0', 'gpus': []}
    assert 'one of peerlane fleet topo' in run('fleet', 'compare', write_run(tmp_path / 'a', {'x': well[name(1)]}),
                                               write_run(tmp_path / 'b', {'x': topology}), expect=2).stderr
    assert 'no name of a host' in run('fleet', 'compare', write_run(tmp_path / 'c', {'a,b': topology}), tmp_path / 'a', expect=2).stderr


def test_schema_is_a_schema(well, tmp_path):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    good = compare(write_run(tmp_path / 'a', well), tmp_path / 'a', expect=0)
    for change in [{'format': 2}, {'kind': 'fleet'}, {'changes': [{}]}, {'counts': {}}]:
        assert [*jsonschema.Draft202012Validator(SCHEMA).iter_errors({**good, **change})], change
