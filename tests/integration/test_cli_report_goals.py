# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane report` with documents of benchmarks/machine: figures, goals and verdicts."""
import csv
import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import jsonschema
import pytest
from cli_support import run, run_json

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = ROOT / 'tests/fuzz/corpus/report/goals'
SVG = '{http://www.w3.org/2000/svg}'
HOSTILE = '<script>alert("x")</script>&\'\x1b[31m\u0000\ufffe\u0085\U0001f600</style><img src=http://e.example/>'


def document():
    return json.loads(SEED.read_text())


def save(folder, content, name='goals.json'):
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_seed_is_a_document_of_the_schema():
    jsonschema.validate(document(), json.loads((ROOT / 'docs/goals.schema.json').read_text()))


@pytest.mark.parametrize('width', [40, 69, 70, 100, 101, 200])
def test_terminal(width):
    shown = run('report', SEED, '--width', width, '--quiet', LC_ALL='C').stdout
    assert max(map(len, shown.splitlines())) <= width and '\x1b' not in shown
    lines = [line for line in shown.splitlines() if line.startswith('  ')][1:]
    assert [re.search('(met|missed|not judged)$', line)[1] for line in lines] == [
        'missed', 'met', 'met', 'met', 'not judged']
    if width >= 70:
        assert re.search(r'write 1M, 4.* +20.5 GB/s +25 +0.82 ', lines[0])
    if width > 100:
        assert 'ratio >= 0.85' in lines[0]
    # Figures without a goal are in the page.
    assert '256 x 4 KiB' not in shown and [line for line in shown.splitlines() if line and line[0] != ' '] == [
        'tcp', 'threads', 'scale', 'gpu-latency']


def test_sentences():
    sentences = run_json('report', SEED)['sentences']
    texts = [one['text'] for one in sentences]
    assert texts[0] == 'goals: 3 goals met, 1 missed, 1 not judged; 6 figures.' and not sentences[0]['warning']
    assert {'text': 'Missed: tcp: write 1M, 4 sockets: 20.5 GB/s, ratio 0.82, goal ratio >= 0.85.', 'warning': True} in sentences
    assert {'text': 'Failed: gpu-tests: cut off after 600 s: at its limit in test_gpu.', 'warning': True} in sentences
    assert 'Not measured: tcp-tools: iperf3, one stream: no iperf3.' in texts and 'Not measured: nccl: no torch for python3.' in texts
    assert not any('ended before' in text for text in texts)


def test_run_that_was_cut(tmp_path):
    content = document()
    content['complete'] = False
    texts = [one['text'] for one in run_json('report', save(tmp_path, content))['sentences']]
    assert 'goals.json: the run was ended before its last section.' in texts


def test_page_and_picture(tmp_path):
    run('report', SEED, '-o', tmp_path / 'page.html', '--svg', tmp_path / 'goals.svg')
    text = (tmp_path / 'page.html').read_text(encoding='utf-8')
    tree = ElementTree.fromstring(text.split('\n', 1)[1])
    rows = [[''.join(cell.itertext()) for cell in row] for row in tree.iter('tr')]
    assert ['tcp: write 1M, 4 sockets', '20.5', 'GB/s', '25', 'plain sockets', '0.82', 'ratio >= 0.85', 'missed', ''] in rows
    assert ["host-gpu: other's host, 256 x 4 KiB, to GPU", '0.5', 'GB/s', '1.5', 'loop of cuMemcpyAsync', '0.33', '', '',
            'copies did the work of 21 of 21 vectors'] in rows
    assert [row[7:] for row in rows if row[0].startswith('gpu-latency')] == [['not judged', 'for 2 GPUs']]
    picture = ElementTree.parse(tmp_path / 'goals.svg').getroot()
    bars = {group.find(f'{SVG}title').text: [float(bar.get('width')) for bar in group.iter(f'{SVG}rect')]
            for group in picture.iter(f'{SVG}g') if group.find(f'{SVG}title') is not None}
    assert len(bars) == 5
    # The middle of the room is the goal: 0.82 of 0.85, 0.5 us of 1 us, 18 us of 15 us, none of none.
    for name, share in [('write 1M, 4 sockets: missed', 0.82 / 0.85), ('local, 8 bytes, 8 threads, p99.9: met', 2),
                        ('write and its completion, 1M: not judged', 15 / 18), ('4,000 connections at once, failed: met', 2)]:
        room, length = bars[name]
        assert length == pytest.approx(room * share / 2, abs=0.1), name
    height = float(picture.get('height'))
    assert all(0 <= float(mark.get('y')) <= height for mark in picture.iter(f'{SVG}text'))


def test_csv_and_json():
    head, *lines = csv.reader(run('report', '--csv', SEED).stdout.splitlines(), strict=True)
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    assert len(rows) == 6 and {row['mode'] for row in rows} == {'goal'}
    assert [rows[0][name] for name in ('name', 'section', 'figure', 'unit', 'peer', 'peer_figure', 'ratio', 'goal', 'verdict')] == [
        'write 1M, 4 sockets', 'tcp', '20.5', 'GB/s', 'plain sockets', '25', '0.82', 'ratio >= 0.85', 'missed']
    goals = run_json('report', SEED)['goals']
    assert goals[4]['verdict'] == 'not judged' and goals[5]['verdict'] is None and goals[2]['peer_figure'] is None


def test_figures_without_goals(tmp_path):
    """Sections such as tcp-manual have none: the terminal and the page show all figures."""
    content = document()
    content['figures'] = [{**row, 'goal': None, 'met': None} for row in content['figures']]
    path = save(tmp_path, content)
    for width in 70, 120:
        lines = run('report', path, '--width', width, '--quiet', LC_ALL='C').stdout.splitlines()
        assert len([line for line in lines if line.startswith('  ')]) == 7 and max(map(len, lines)) <= width
    run('report', path, '-o', tmp_path / 'page.html', '--svg', tmp_path / 'goals.svg')
    tree = ElementTree.fromstring((tmp_path / 'page.html').read_text(encoding='utf-8').split('\n', 1)[1])
    assert len([row for row in tree.iter('tr') if row[0].get('scope') == 'row']) == 6
    picture = ElementTree.parse(tmp_path / 'goals.svg').getroot()
    assert 'No figure has a goal.' in [text.text for text in picture.iter(f'{SVG}text')]
    assert {one['verdict'] for one in run_json('report', path)['goals']} == {None}
    assert len(run('report', '--csv', path).stdout.splitlines()) == 7


@pytest.mark.parametrize('shift', range(3))
def test_long_texts_are_cut_between_characters(tmp_path, shift):
    content, text = document(), shift * 'x' + 500 * '\u65e5'
    for row in content['figures']:
        row.update(section=text, what=text, unit=text, goal=text)
    content['failures'] = [{'section': text, 'message': text}]
    content['left_out'] = [{'section': text, 'what': text, 'reason': text}]
    path = save(tmp_path, content)
    run('report', path, '-o', tmp_path / 'page.html')
    ElementTree.fromstring((tmp_path / 'page.html').read_text(encoding='utf-8').split('\n', 1)[1])
    # Invalid text would have a replacement.
    assert '\ufffd' not in run('report', path, '--json').stdout


def test_sentence_of_a_figure_without_a_ratio(tmp_path):
    content = document()
    content['figures'][2]['met'] = False
    texts = [one['text'] for one in run_json('report', save(tmp_path, content))['sentences']]
    assert 'Missed: threads: local, 8 bytes, 8 threads, p99.9: 0.5 us, goal <= 1.' in texts


def test_several_files(tmp_path):
    """A run in several calls has a file for each."""
    first, second = document(), document()
    second['figures'] = second['figures'][4:]
    files = [save(tmp_path, first, 'first.json'), save(tmp_path, second, 'second.json')]
    run('report', *files, '-o', tmp_path / 'page.html')
    text = (tmp_path / 'page.html').read_text(encoding='utf-8')
    assert '<caption>first.json' in text and '<caption>second.json' in text and 'gpu-latency, second.json' in text
    assert len(run_json('report', *files)['goals']) == 8
    shown = run('report', *files, '--quiet', LC_ALL='C').stdout
    assert re.findall('^(.*)\n  FIGURE', shown, re.M) == ['first.json', 'second.json']


@pytest.mark.parametrize('locale, mark', [('C', '~'), ('C.UTF-8', '\u2026')])
def test_terminal_marks_names_that_are_cut(locale, mark):
    shown = run('report', SEED, '--width', 80, '--quiet', LC_ALL=locale).stdout
    assert f'  4,000 connections at once, fai{mark}' in shown and '  write and its completion, 1M  ' in shown
    assert mark not in run('report', SEED, '--width', 100, '--quiet', LC_ALL=locale).stdout


def test_texts_are_escaped(tmp_path):
    content = document()
    for row in content['figures']:
        for name in ('section', 'what', 'unit', 'peer', 'goal', 'note'):
            row[name] = HOSTILE
    content['failures'] = [{'section': HOSTILE, 'message': HOSTILE}]
    path = save(tmp_path, content)
    run('report', path, '-o', tmp_path / 'page.html')
    text = (tmp_path / 'page.html').read_text(encoding='utf-8')
    ElementTree.fromstring(text.split('\n', 1)[1])
    assert '<script' not in text and '<img' not in text and '\x1b' not in text
    assert '\x1b' not in run('report', path, LC_ALL='C.UTF-8').stdout
    assert run('report', path, LC_ALL='C').stdout.isascii()


@pytest.mark.parametrize('change, fact', [
    ({'figures': None}, '"figures" is not an array'), ({'figures': [1]}, r'figures\[0\]: "section" or "what" is no text'),
    ({'figures': [{'section': 's', 'what': 'w', 'figure': -1}]}, r'figures\[0\]: a value is not a number from 0 to 1e18'),
    ({'figures': [{'section': 's', 'what': 'w', 'least': 'x'}]}, r'figures\[0\]: a value is not a number'),
    ({'figures': []}, 'no results'), ({'format': 2}, 'later release'),
    ({'figures': [{'section': 's', 'what': 'w'}] * 2001}, 'at most 2000 figures')])
def test_errors_name_the_file(tmp_path, change, fact):
    done = run('report', save(tmp_path, {**document(), **change}), expect=1)
    assert re.search(fact, done.stderr) and 'goals.json' in done.stderr and '[REPORT-' in done.stderr
