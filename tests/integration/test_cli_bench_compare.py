# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench compare`: verdicts, matching of results, invalid files."""
import csv
import json
import re
import subprocess

import pytest

from cli_support import DEADLINE, PEERLANE, environment, run, run_json, write
from matrix_support import rails_matrix, save_matrix

BEFORE = [100, 101, 102, 99, 98, 100, 103]


def row(size=8, runs=(), **changes):
    return {'operation': 'write', 'size': size, 'fabric': 'local', 'memory': 'host', 'peer_memory': 'host',
            'runs': list(runs), **changes}


def document(path, *rows, **changes):
    path.write_text(json.dumps({'format': 1, 'kind': 'bench', 'mode': 'bandwidth', 'results': rows, **changes}))
    return path


def compare(tmp_path, before, after, *options, expect=0, **changes):
    """Compares two documents of one result; returns the comparison."""
    report = run_json('bench', 'compare', document(tmp_path / 'a.json', before, **changes),
                      document(tmp_path / 'b.json', after, **changes), *options, expect=expect)
    result, = report['results']
    return result


def scaled(factor):
    return [value * factor for value in BEFORE]


@pytest.mark.parametrize('factor, options, mode, verdict', [
    (1, [], 'bandwidth', 'same'), (0.99, [], 'bandwidth', 'same'), (0.9, [], 'bandwidth', 'worse'),
    (1.1, [], 'bandwidth', 'better'), (0.9, ['--threshold', '15'], 'bandwidth', 'same'),
    (0.8, ['--threshold', '15'], 'bandwidth', 'worse'), (1.1, [], 'latency', 'worse'), (0.9, [], 'latency', 'better'),
])
def test_verdicts(tmp_path, factor, options, mode, verdict):
    result = compare(tmp_path, row(runs=BEFORE), row(runs=scaled(factor)), *options, mode=mode,
                     expect=int(verdict == 'worse'))
    assert result['verdict'] == verdict
    low, high = result['comparison']['interval']
    assert low <= result['comparison']['ratio'] <= high and result['comparison']['interval_by'] == 'bootstrap'
    assert result['comparison']['ratio'] == pytest.approx(factor)
    assert low == pytest.approx(factor, rel=0.05) and high == pytest.approx(factor, rel=0.05)


def test_results_below_the_least_rate_are_complete(tmp_path):
    for ident, warns in [('RATE-TOO-LOW', False), ('INTERRUPTED', True)]:
        paths = [document(tmp_path / name, row(runs=BEFORE), error={'id': ident}) for name in 'ab']
        assert ('results may be missing' in run('bench', 'compare', *paths).stderr) == warns


def test_noise_is_not_a_change(tmp_path):
    noisy = [60, 140, 100, 75, 125, 90, 110]
    result = compare(tmp_path, row(runs=noisy), row(runs=[value * 0.85 for value in noisy]))
    assert result['verdict'] == 'same'
    low, high = result['comparison']['interval']
    assert low < 0.85 < 1 < high


def test_interval_is_reproducible(tmp_path):
    first, second = (compare(tmp_path, row(runs=BEFORE), row(runs=scaled(1.02))) for _ in range(2))
    assert first == second


def test_few_runs_must_not_overlap(tmp_path):
    apart = compare(tmp_path, row(runs=[100, 104]), row(runs=[90, 95]), expect=1)
    assert apart['verdict'] == 'worse' and apart['comparison']['interval_by'] == 'extremes'
    assert apart['comparison']['interval'] == pytest.approx([90 / 104, 95 / 100])
    assert compare(tmp_path, row(runs=[100, 104]), row(runs=[80, 101]))['verdict'] == 'same'
    # The table distinguishes medians that differ from equal ones.
    assert run('bench', 'compare', tmp_path / 'a.json', tmp_path / 'b.json').stdout.splitlines()[1].endswith(' noise')
    assert run('bench', 'compare', tmp_path / 'a.json', tmp_path / 'a.json').stdout.splitlines()[1].endswith(' same')
    single = row(bytes_per_second=50.0)
    assert compare(tmp_path, row(bytes_per_second=100), single, expect=1)['comparison']['runs_after'] == 1
    slower = compare(tmp_path, row(latency_us={'p50': 1.5}), row(latency_us={'p50': 3}), mode='latency', expect=1)
    assert slower['comparison']['ratio'] == 2


def test_wrong_content_is_worse(tmp_path):
    assert compare(tmp_path, row(runs=BEFORE), row(runs=scaled(2), verified=False), expect=1)['verdict'] == 'worse'


def test_only_results_with_the_same_key_are_compared(tmp_path):
    changes = [{'size': 16}, {'operation': 'read'}, {'fabric': 'tcp'}, {'memory': 'cuda:0'}, {'peer_memory': 'cuda'},
               {'mode': 'latency'}, {'both_ways': True}]
    before = document(tmp_path / 'a.json', row(runs=BEFORE), *(row(runs=BEFORE, **change) for change in changes))
    after = document(tmp_path / 'b.json', row(runs=BEFORE), row(size=32, runs=scaled(0.1)))
    report = run_json('bench', 'compare', before, after)
    assert [result['verdict'] for result in report['results']] == ['same'] + ['only before'] * 7 + ['only after']
    done = run('bench', 'compare', before, after)
    assert f'7 only in {before}, 1 only in {after}' in done.stdout and '1 unchanged' in done.stdout
    assert run('bench', 'compare', '--quiet', before, after).stdout == ''
    nothing = run('bench', 'compare', document(tmp_path / 'c.json', row(size=1, runs=[1])), after, expect=2)
    assert 'BENCH-COMPARE-NOTHING' in nothing.stderr


def test_fabric_names_of_different_tools_may_differ(tmp_path):
    result = compare(tmp_path, row(runs=BEFORE, tool='nccl', fabric='socket'), row(runs=scaled(2), fabric='tcp'))
    assert result['verdict'] == 'better'


def test_workflows_are_compared_by_method(tmp_path):
    methods = [{'arm': arm, 'size': 1 << 20, 'runs': BEFORE} for arm in 'AB']
    before = document(tmp_path / 'a.json', *methods, kind='workflow', fabric='tcp')
    methods[1] = {**methods[1], 'runs': scaled(0.5)}
    report = run_json('bench', 'compare', before, document(tmp_path / 'b.json', *methods, kind='workflow', fabric='tcp'),
                      expect=1)
    assert [(result['operation'], result['verdict']) for result in report['results']] == [('A', 'same'), ('B', 'worse')]
    assert report['results'][0]['unit'] == 'frames/s'


def test_output_of_bench_can_be_compared(tmp_path):
    for name in ['a.json', 'b.json']:
        done = run('bench', '--size', '8,64', '--iterations', '100', '--repeat', '5', '--json')
        (tmp_path / name).write_text(done.stdout)
    report = run_json('bench', 'compare', tmp_path / 'a.json', tmp_path / 'b.json', '--threshold', '1000')
    assert [result['verdict'] for result in report['results']] == ['same', 'same']
    assert report['results'][1]['comparison']['runs_before'] == 5
    done = subprocess.run([PEERLANE, 'bench', 'compare', '--threshold', '1000', '-', tmp_path / 'a.json'],
                          input=(tmp_path / 'b.json').read_bytes(), capture_output=True, timeout=DEADLINE,
                          env=environment())
    assert done.returncode == 0 and b'0 worse' in done.stdout


@pytest.mark.parametrize('text', [
    '', 'results', '[]', '{', '{}', '{"results": {}}', '{"results": [1]}', '{"results": [{}]}', '{"results": []} x',
    '{"format": 2, "results": []}', '{"kind": "matrix", "results": []}', '[' * 100000,
    '{"results": [{"size": 8, "runs": "many"}]}', '{"results": [{"size": -8, "runs": [1]}]}',
    '{"results": [{"size": 1e300, "runs": [1]}]}', '{"results": [{"size": 8, "runs": [0]}]}',
    '{"results": [{"size": 8, "runs": [-1]}]}', '{"results": [{"size": 8, "runs": [1e400]}]}',
    '{"results": [{"size": 8, "runs": [NaN]}]}', '{"results": [{"size": 8, "runs": [Infinity]}]}',
    '{"results": [{"size": 8, "runs": [1e-300]}]}', '{"results": [{"size": 8, "runs": [null]}]}',
    '{"results": [{"size": 8, "runs": [' + '1,' * 1000 + '1]}]}',
    '{"results": [' + '{"size": 8, "runs": [1]},' * 1024 + '{"size": 8, "runs": [1]}]}',
], ids=range(24))
def test_invalid_documents_are_refused(tmp_path, text):
    good = document(tmp_path / 'good.json', row(runs=BEFORE))
    bad = tmp_path / 'bad\x1b[2J.json'
    bad.write_text(text)
    for files in [(good, bad), (bad, good)]:
        done = run('bench', 'compare', *files, expect=2)
        assert 'BENCH-DOCUMENT' in done.stderr and not done.stdout and '\x1b' not in done.stderr


def test_hostile_texts_are_harmless(tmp_path):
    strange = row(runs=BEFORE, operation='\x1b[31m' * 40, fabric=['list'], memory={'a': 1}, verified='no', tool=None)
    result = compare(tmp_path, strange, strange, version=[1], time={}, machine='here', both_ways='yes')
    assert result['verdict'] == 'same' and len(result['operation']) < 40
    done = run('bench', 'compare', tmp_path / 'a.json', tmp_path / 'b.json')
    assert '\x1b' not in done.stdout


def read_csv(*arguments, expect=0):
    """Returns the lines of a table as dictionaries."""
    done = subprocess.run([PEERLANE, 'bench', 'compare', '--csv', *arguments], capture_output=True, timeout=DEADLINE,
                          env=environment())
    assert done.returncode == expect and done.stdout.endswith(b'\r\n') and done.stdout.count(b'\r') == done.stdout.count(b'\n')
    head, *lines = csv.reader(done.stdout.decode().splitlines(), strict=True)
    assert all(len(line) == len(head) for line in lines)
    return [dict(zip(head, line)) for line in lines]


def test_csv(tmp_path):
    strange = {'operation': 'a "b",\x1b\nc', 'runs': BEFORE}
    before = document(tmp_path / 'a.json', row(runs=BEFORE), row(**strange), row(64, runs=BEFORE))
    after = document(tmp_path / 'b.json', row(runs=scaled(0.5)), row(**strange))
    worse, same, only = read_csv(before, after, expect=1)
    shown = run_json('bench', 'compare', before, after, expect=1)['results'][0]['comparison']
    assert {name: float(worse[name]) for name in ['before', 'after', 'ratio', 'ratio_low', 'ratio_high']} == {
        'before': shown['before'], 'after': shown['after'], 'ratio': pytest.approx(shown['ratio'], rel=1e-14),
        'ratio_low': pytest.approx(shown['interval'][0], rel=1e-14), 'ratio_high': pytest.approx(shown['interval'][1], rel=1e-14)}
    assert (worse['verdict'], worse['unit'], worse['runs_after'], worse['size']) == ('worse', 'bytes/s', '7', '8')
    assert same['operation'].startswith('a "b",') and same['operation'].isprintable()
    assert (only['verdict'], only['before'], only['runs_after']) == ('only before', '', '0')
    assert read_csv(before, after, '--quiet', expect=1) == [worse]
    assert 'exclude' in run('bench', 'compare', '--csv', '--json', before, after, expect=2).stderr


@pytest.mark.parametrize('arguments', [
    [], ['one'], ['one', 'two', 'three'], ['-', '-'], ['--threshold', '-1', 'a', 'b'], ['--threshold', 'nan', 'a', 'b'],
    ['--threshold', '5%', 'a', 'b'], ['/nonexistent/a', '/nonexistent/b'], ['/sys', '/sys'],
])
def test_wrong_usage(arguments):
    assert 'peerlane' in run('bench', 'compare', *arguments, expect=2).stderr


def matrix(path, rate, **changes):
    """Three ranks; `rate` is that from rank 0 to 1.  The pair from 2 to 1 was not measured."""
    path.write_text(json.dumps({
        'format': 1, 'kind': 'matrix', 'size': 4096,
        'ranks': [{'rank': 0, 'memory': 'host'}, {'rank': 1, 'memory': 'host'}, {'rank': 2, 'memory': 'cuda:0'}],
        'bytes_per_second': [[None, rate, 5e9], [5e9, None, 5e9], [5e9, None, None]],
        'latency_us': [[None, 2, 2], [2, None, 2], [2, None, None]], **changes}))
    return path


def test_matrices(tmp_path):
    before, after = matrix(tmp_path / 'a.json', 5e9), matrix(tmp_path / 'b.json', 4e9)
    assert run_json('bench', 'compare', before, before)['results'][0]['verdict'] == 'same'
    results = run_json('bench', 'compare', '--threshold', '20', before, after, expect=1)['results']
    assert len(results) == 10 and {result['fabric'] for result in results} == {None}
    assert {(result['mode'], result['size']) for result in results} == {('bandwidth', 4096), ('latency', 8)}
    worse, = [result for result in results if result['verdict'] != 'same']
    assert worse['operation'] == 'rank 0 to 1' and worse['mode'] == 'bandwidth' and worse['verdict'] == 'worse'
    shown = run('bench', 'compare', '--quiet', before, after, expect=1).stdout
    assert 'not known *' in shown and 'rank 0 to 1' in shown and 'rank 1 to 0' not in shown
    assert '?' not in shown and ' -  ' in shown


@pytest.mark.parametrize('changes, text', [
    ({'ranks': []}, 'ranks'), ({'size': None}, 'size'), ({'latency_us': [[1]]}, 'latency_us'),
    ({'bytes_per_second': [[None, 1, 1], [1, None, 1], [1, 1]]}, 'bytes_per_second'),
    ({'bytes_per_second': [[None, -1, 1], [1, None, 1], [1, 1, None]]}, 'positive'),
])
def test_invalid_matrices(tmp_path, changes, text):
    path = matrix(tmp_path / 'a.json', 5e9, **changes)
    done = run('bench', 'compare', path, path, expect=2)
    assert '[BENCH-DOCUMENT]' in done.stderr and text in done.stderr


def sentences(done):
    return [line for line in done.stdout.splitlines() if line.startswith(('worse', 'better'))]


def later(a, b):
    """The whole fleet is 4 % slower, host 7 sends 10 % less, hosts 20 to 29 reach the others at 80 %, one link has lost half."""
    rate = 0.96 * (0.9 if a == 7 else 1) * (0.5 if {a, b} == {3, 4} else 1)
    return rate * (0.8 if (a in range(20, 30)) != (b in range(20, 30)) else 1)


def test_matrices_of_fleets(tmp_path):
    before = save_matrix(tmp_path / 'before.json', hosts=60)
    after = save_matrix(tmp_path / 'after.json', hosts=60, seed=2, factor=later, silent={50})
    assert sentences(run('bench', 'compare', before, before)) == []
    done = run('bench', 'compare', before, after, expect=1)
    group, host, pair = sentences(done)[1:]
    assert re.match(r'worse   bandwidth of the fleet: median .* before, .* after \(-[0-9.]+ %\)', sentences(done)[0])
    assert re.match(r'worse   bandwidth: group gpu\[020-029\] of 10 hosts sends and receives (19|20)', group) and 'check its links' in group
    assert re.match(r'worse   bandwidth: host gpu007 sends (9|10)\.?\d* % less', host)
    assert re.match(r'worse   bandwidth: gpu003 to gpu004: (4\d|5\d)[0-9.]* % less, and back', pair)
    assert f'results only in {before}: gpu050' in done.stdout
    assert sentences(run('bench', 'compare', '--quiet', '--threshold', '15', before, after, expect=1)) == [group, pair]
    lines = read_csv(before, after, '--quiet', '--threshold', '15', expect=1)
    assert [(line['kind'], line['hosts']) for line in lines] == [('group', ' '.join(f'gpu{i:03}' for i in range(20, 30))),
                                                                 ('pair', 'gpu003 gpu004')]
    assert float(lines[0]['sending_ratio']) == pytest.approx(0.8, rel=0.03) and lines[1]['text'].startswith('gpu003 to gpu004: ')
    fleet, *_ = read_csv(before, after, expect=1)
    assert (fleet['kind'], fleet['quantity'], fleet['unit']) == ('fleet', 'bandwidth', 'bytes/s')
    assert float(fleet['median_after']) < float(fleet['median_before'])
    # The other way round all is better.
    assert run_json('bench', 'compare', after, before)['worse'] == 0


def test_noise_of_the_fleet(tmp_path):
    """The median of ten noisy hosts is 9 % lower, which noise may cause; that of 50 quiet ones is not."""
    for hosts, noise, worse in [(10, 0.5, 0), (50, 0.02, 1)]:
        before = save_matrix(tmp_path / 'before.json', hosts=hosts, noise=noise)
        after = save_matrix(tmp_path / 'after.json', hosts=hosts, noise=noise, seed=2, factor=lambda a, b: 0.91)
        assert len(sentences(run('bench', 'compare', before, after, expect=worse))) == worse


def test_groups_of_hosts(tmp_path):
    before = save_matrix(tmp_path / 'before.json', hosts=40)
    after = save_matrix(tmp_path / 'after.json', hosts=40, seed=2, factor=lambda a, b: 1 if a // 10 == b // 10 else
                        0.7 if 1 in (a // 10, b // 10) else 1)
    groups = tmp_path / 'groups'
    groups.write_text('# leaf switches\n' + ''.join(f'gpu[{i * 10:03}-{i * 10 + 9:03}]\tleaf{i}\n' for i in range(4)))
    bandwidth, latency = run_json('bench', 'compare', '--groups', groups, before, after, expect=1)['matrices']
    effect, = bandwidth['effects']
    assert effect['kind'] == 'group' and effect['group'] == 'leaf1' and effect['verdict'] == 'worse'
    assert effect['hosts'] == [f'gpu{i:03}' for i in range(10, 20)]
    assert abs(effect['sending_ratio'] - 0.7) < 0.02 and abs(effect['receiving_ratio'] - 0.7) < 0.02
    assert latency['effects'] == [] and latency['verdict'] == 'same' and 1.5 < latency['noise_percent'] < 4


@pytest.mark.parametrize('text, fact', [
    ('gpu001\n', 'line 1'), ('gpu001 a b\n', 'line 1'), ('gpu001 a\n\ngpu[000-003] b\n', 'line 3'),
    ('gpu[1- a\n', 'bracket'), ('gpu001 a\0\n', 'no text'),
])
def test_wrong_groups(tmp_path, text, fact):
    path, groups = save_matrix(tmp_path / 'a.json', hosts=8), tmp_path / 'groups'
    groups.write_text(text)
    assert fact in run('bench', 'compare', '--groups', groups, path, path, expect=2).stderr


def test_groups_without_an_end_take_little_memory(tmp_path):
    path = save_matrix(tmp_path / 'a.json', hosts=8)
    done = subprocess.run(['sh', '-c', 'ulimit -v 4000000; exec "$0" "$@"', PEERLANE, 'bench', 'compare', '--groups', '/dev/zero', path, path],
                          capture_output=True, text=True, timeout=DEADLINE, env=environment())
    assert done.returncode == 2 and '[BENCH-GROUPS]' in done.stderr and 'more than 4 MiB' in done.stderr


def test_groups_from_a_pipe_and_from_a_folder(tmp_path):
    path = save_matrix(tmp_path / 'a.json', hosts=8)
    done = subprocess.run(['bash', '-c', '"$0" bench compare --groups <(printf "gpu[000-007] leaf1") "$1" "$1"', PEERLANE, path],
                          capture_output=True, text=True, timeout=DEADLINE, env=environment())
    assert done.returncode == 0, done.stderr
    assert 'Is a directory' in run('bench', 'compare', '--groups', tmp_path, path, path, expect=2).stderr


def test_matrices_that_cannot_be_compared(tmp_path):
    whole = save_matrix(tmp_path / 'a.json', hosts=70)
    others = [save_matrix(tmp_path / 'b.json', hosts=70, ranks=1, size=4096),
              write(tmp_path / 'c.json', whole.read_bytes().replace(b'"gpu', b'"cpu')),
              write(tmp_path / 'd.json', whole.read_bytes().replace(b'"memory": "host"', b'"memory": "cuda"'))]
    for other in others:
        done = run('bench', 'compare', whole, other, expect=2)
        assert '[BENCH-COMPARE-NOTHING]' in done.stderr
    cut = write(tmp_path / 'e.json', whole.read_bytes()[:-100])
    assert 'unexpected end' in run('bench', 'compare', whole, cut, expect=2).stderr
    fleet = write(tmp_path / 'f.json', b'{"format": 1, "kind": "fleet"}')
    assert 'no document of peerlane fleet' in run('bench', 'compare', whole, fleet, expect=2).stderr
    # A small matrix is compared rank by rank, with a warning if the ranks are on other hosts.
    small = save_matrix(tmp_path / 'g.json', hosts=3)
    moved = write(tmp_path / 'h.json', small.read_bytes().replace(b'gpu002', b'gpu102'))
    done = run('bench', 'compare', small, moved)
    assert 'rank 2 is on gpu002' in done.stderr and 'rank 0 to 2' in done.stdout


def keep_pairs(path, keep, **changes):
    """Keeps the results of the pairs for which `keep` is true."""
    whole = {**json.loads(path.read_text()), **changes}
    for member in 'bytes_per_second', 'latency_us':
        whole[member] = [[value if keep(a, b) else None for b, value in enumerate(row)] for a, row in enumerate(whole[member])]
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize('keep, schedule', [
    (lambda a, b: (b - a) % 70 in (1, 69), 'pairs'), (lambda a, b: b == (a + 1) % 70, 'ring'), (lambda a, b: (b - a) % 70 < 5, 'ring'),
    (lambda a, b: 0 in (a, b), 'one-to-all')], ids=['rounds', 'ring', 'judged', 'one-to-all'])
def test_few_pairs_are_compared_by_themselves(tmp_path, keep, schedule):
    """With one or two partners, what is usual of a host is unknown: each of many ranks is compared by its number."""
    before = keep_pairs(save_matrix(tmp_path / 'a.json', hosts=70), keep, schedule=schedule)
    after = keep_pairs(save_matrix(tmp_path / 'b.json', hosts=70, seed=2, factor=lambda a, b: 0.5), keep, schedule=schedule)
    shown = run_json('bench', 'compare', '--threshold', '40', before, after, expect=1)
    pairs = sum(keep(a, b) for a in range(70) for b in range(70) if a != b)
    assert shown['worse'] == pairs and len(shown['results']) == 2 * pairs


def test_a_document_of_many_rails(tmp_path):
    large = save_matrix(tmp_path / 'a.json', hosts=8)
    large.write_bytes(large.read_bytes() + b' ' * (33 << 20))
    assert 'better, 0 worse' in run('bench', 'compare', large, large).stdout and run('report', large).stdout
    with (tmp_path / 'b.json').open('wb') as file:
        file.truncate((256 << 20) + 1)
    assert 'more than 256 MiB' in run('bench', 'compare', large, file.name, expect=2).stderr


def test_hosts_with_several_ranks(tmp_path):
    before = save_matrix(tmp_path / 'a.json', hosts=10, ranks=4)
    after = save_matrix(tmp_path / 'b.json', hosts=10, ranks=4, seed=2, factor=lambda a, b: 0.6 if b == 3 else 1)
    text, = sentences(run('bench', 'compare', before, after, expect=1))
    assert re.match(r'worse   bandwidth: host gpu003 receives (39|40)', text)


def test_rails(tmp_path):
    paths = []
    for name, slow in [('a.json', lambda a, b: 1), ('b.json', lambda a, b: 0.6 if b == 3 else 1)]:
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps(rails_matrix(['mlx5_0', 'mlx5_1'], hosts=12, seed=len(paths), slow=slow)))
    lines = sentences(run('bench', 'compare', *paths, expect=1))
    assert len(lines) == 2 and lines[0].startswith('worse   bandwidth: host gpu003 receives ')
    assert lines[1].startswith('worse   bandwidth, rail mlx5_1: host gpu003 receives ')
    found = run_json('bench', 'compare', *paths, expect=1)['matrices']
    assert [(one['rail'], one['quantity'], len(one['effects'])) for one in found] == [
        (None, 'bandwidth', 1), (None, 'latency', 0), ('mlx5_0', 'bandwidth', 0), ('mlx5_0', 'latency', 0),
        ('mlx5_1', 'bandwidth', 1), ('mlx5_1', 'latency', 0)]
    damaged = json.loads(paths[0].read_text())
    for rails in [[{'name': 'x'}], [3], damaged['rails'][:1] * 17]:
        path = write(tmp_path / 'c.json', json.dumps({**damaged, 'rails': rails}).encode())
        assert '[BENCH-DOCUMENT]' in run('bench', 'compare', path, paths[0], expect=2).stderr
