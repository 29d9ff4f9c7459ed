# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench compare`: verdicts, matching of results, invalid files."""
import json
import subprocess

import pytest

from cli_support import DEADLINE, PEERLANE, environment, run, run_json

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


@pytest.mark.parametrize('arguments', [
    [], ['one'], ['one', 'two', 'three'], ['-', '-'], ['--threshold', '-1', 'a', 'b'], ['--threshold', 'nan', 'a', 'b'],
    ['--threshold', '5%', 'a', 'b'], ['/nonexistent/a', '/nonexistent/b'], ['/', '/'],
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
    assert len(results) == 10
    worse, = [result for result in results if result['verdict'] != 'same']
    assert worse['operation'] == 'rank 0 to 1' and worse['mode'] == 'bandwidth' and worse['verdict'] == 'worse'
    shown = run('bench', 'compare', '--quiet', before, after, expect=1).stdout
    assert 'rank 0 to 1' in shown and 'rank 1 to 0' not in shown


@pytest.mark.parametrize('changes, text', [
    ({'ranks': []}, 'ranks'), ({'size': None}, 'size'), ({'latency_us': [[1]]}, 'latency_us'),
    ({'bytes_per_second': [[None, 1, 1], [1, None, 1], [1, 1]]}, 'bytes_per_second'),
    ({'bytes_per_second': [[None, -1, 1], [1, None, 1], [1, 1, None]]}, 'positive'),
])
def test_invalid_matrices(tmp_path, changes, text):
    path = matrix(tmp_path / 'a.json', 5e9, **changes)
    done = run('bench', 'compare', path, path, expect=2)
    assert '[BENCH-DOCUMENT]' in done.stderr and text in done.stderr
