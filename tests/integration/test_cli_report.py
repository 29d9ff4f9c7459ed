# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane report`: pages, SVG pictures and terminal output of real and of hostile results."""
import base64
import csv
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib

import machines
import pytest
from cli_support import DEADLINE, run, run_json
from matrix_support import fleet_matrix, rails_matrix

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = '{http://www.w3.org/2000/svg}'
HOSTILE = '<script>alert("x")</script>&\'\x1b[31m\u0000\ufffe\u0085\U0001f600</style><img src=http://e.example/>'


def point(size, rate=1e9, **more):
    return {'operation': 'write', 'fabric': 'tcp', 'size': size, 'bytes_per_second': rate,
            'latency_us': {'p50': 1 + size / 1e4, 'p99': 3 + size / 1e4, 'p999': 9 + size / 1e4, 'max': 20}, **more}


def bench(*results, **more):
    return {'format': 1, 'kind': 'bench', 'version': '0.1.0', 'mode': 'bandwidth', 'results': list(results), **more}


def workflow(arms='AB', sizes=(4096, 1 << 20)):
    return {'format': 1, 'kind': 'workflow', 'device': 'simulated', 'fabric': 'tcp',
            'arms': [{'name': arm, 'title': f'the method {arm}'} for arm in arms],
            'results': [{'arm': arm, 'size': size, 'frames_per_second': 100.0 * (2 if arm == 'B' else 1),
                         'bytes_per_second': size * 100.0, 'runs': [90.0, 100.0, 110.0], 'verified': True,
                         'phases_us': {'receive': 40.0, 'to_device': 0 if arm == 'B' else 30.0, 'compute': 10.0}}
                        for arm in arms for size in sizes],
            'ratios': [{'size': 1 << 20, 'arm': 'B', 'over': 'A', 'ratio': 2.0, 'low': 1.9, 'high': 2.1}]}


def matrix(ranks):
    return {'format': 1, 'kind': 'matrix', 'size': 1 << 20,
            'ranks': [{'rank': i, 'host': f'h{i}', 'memory': 'host'} for i in range(ranks)],
            'bytes_per_second': [[None if i == j else 5e9 + i * 1e8 + j for j in range(ranks)] for i in range(ranks)],
            'latency_us': [[None if i == j else 2.0 + i / 10 for j in range(ranks)] for i in range(ranks)],
            'slow': [{'from': 0, 'to': 1, 'what': 'bandwidth', 'value': 1e9, 'median': 5e9, 'reason': 'why not'}]}


def save(folder, document, name='a.json'):
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def page(folder, *documents, arguments=()):
    """Returns the page as text and as a tree, and checks that it is well-formed and self-contained."""
    files = [save(folder, document, f'{index}.json') for index, document in enumerate(documents)]
    output = folder / 'page.html'
    run('report', *files, '-o', output, *arguments)
    text = output.read_text(encoding='utf-8')
    assert text.startswith('<!DOCTYPE html>')
    tree = ElementTree.fromstring(text.split('\n', 1)[1])
    check_self_contained(text, tree)
    return text, tree


def check_self_contained(text, tree):
    anchors = {element.get('id') for element in tree.iter()}
    for element in tree.iter():
        tag = element.tag.replace(SVG, '')
        assert tag not in {'script', 'link', 'img', 'iframe', 'object', 'use', 'base'}
        for name, value in element.attrib.items():
            # Pictures are in the page, and links lead to its parts.
            if name == 'href' and tag == 'image':
                assert value.startswith('data:image/png;base64,')
                continue
            if name == 'href' and tag == 'a':
                assert value[0] == '#' and value[1:] in anchors
                continue
            assert name not in {'href', 'src', 'action'} and not name.endswith('}href') and not name.startswith('on')
            assert 'http' not in value and 'url(' not in value
    for style in [element.text for element in tree.iter() if element.tag.replace(SVG, '') == 'style']:
        assert '@import' not in style and 'url(' not in style
    assert len(text.encode()) < 2 << 20


@pytest.fixture(scope='module')
def measured(tmp_path_factory):
    """Documents of peerlane bench on this machine."""
    folder = tmp_path_factory.mktemp('measured')
    files = []
    for fabric in ['tcp', 'local']:
        for mode in [[], ['--latency']]:
            done = run('bench', '--fabric', fabric, '--size', '64,4K,64K', '--iterations', 50, *mode, '--json')
            files.append(save(folder, done.stdout, f'{fabric}{len(mode)}.json'))
    return files


def test_page_of_real_results(tmp_path, measured):
    text, tree = page(tmp_path, *[path.read_text() for path in measured])
    titles = [title.text for title in tree.iter(f'{SVG}title')]
    assert 'Bandwidth over size' in titles and 'Latency over size' in titles
    assert 'Highest bandwidth' in text and 'Lowest latency' in text and 'times as long' in text
    # Each plot has a description for screen readers, and a table below.
    plots = [svg for svg in tree.iter(f'{SVG}svg')]
    ids = [element.get('id') for element in tree.iter() if element.get('id')]
    assert len(set(ids)) == len(ids)
    for svg in plots:
        assert svg.get('role') == 'img' and set(svg.get('aria-labelledby').split()) <= set(ids)
    assert len(list(tree.iter('table'))) >= len(plots) // 2
    for name in ['prefers-color-scheme:dark', '@media print', 'max-width:599px', 'details::details-content']:
        assert name in text
    # Printed tables repeat their head on each page.
    for table in tree.iter('table'):
        head = table[0]
        assert head.tag == 'thead' and {cell.get('scope') for cell in head.iter('th')} == {'col'}
        assert 'col' not in {cell.get('scope') for row in table[1:] for cell in row.iter('th')}
    # Printed pages omit the second table of latencies.
    assert [figure.get('class') for figure in tree.iter('figure')].count('card again') == 1


def test_values_are_those_of_the_file(tmp_path):
    shown = run_json('report', save(tmp_path, bench(point(8, 1e9), point(65536, 4e9), point(1 << 20, 12345678901))))
    points = shown['lines'][0]['points']
    assert [one['size'] for one in points] == [8, 65536, 1 << 20]
    assert points[2]['bytes_per_second'] == 12345678901 and points[0]['latency_us']['p50'] == 1.0008
    assert any('12.3 GB/s' in one['text'] and '1 MiB' in one['text'] for one in shown['sentences'])
    text, _ = page(tmp_path, bench(point(8, 1e9), point(65536, 4e9), point(1 << 20, 12345678901)))
    assert text.count('12.3 GB/s') >= 3


def test_page_is_no_picture(tmp_path):
    file = save(tmp_path, bench(point(8)))
    result = run('report', file, '-o', tmp_path / 'a.SVG', expect=2)
    assert 'write a picture with --svg FILE' in result.stderr
    assert not (tmp_path / 'a.SVG').exists()
    assert '/dev/full: write: No space left on device' in run('report', file, '-o', '/dev/full', expect=1).stderr


def test_csv(tmp_path):
    square = rails_matrix(['mlx5_0', 'mlx5_1'], hosts=3)
    square['ranks'][0]['host'] = '=a"b,\nc'
    square['bytes_per_second'][1][2] = square['latency_us'][1][2] = None
    files = [save(tmp_path, bench(point(8, 1e9, verified=False), point(64, 12345678901)), 'a,b.json'), save(tmp_path, square, 'm.json')]
    head, *lines = csv.reader(run('report', '--csv', *files).stdout.splitlines(), strict=True)
    assert all(len(line) == len(head) for line in lines)
    small, large, *pairs = [dict(zip(head, line)) for line in lines]
    assert (small['file'], small['mode'], small['size'], small['verified']) == (str(files[0]), 'bandwidth', '8', 'false')
    assert (large['bytes_per_second'], large['p50_us'], large['p90_us'], large['verified']) == ('12345678901', '1.0064', '', '')
    assert len(pairs) == 5 + 6 + 5 and {pair['mode'] for pair in pairs} == {'matrix'}
    assert sorted({pair['rail'] for pair in pairs}) == ['', 'mlx5_0', 'mlx5_1']
    assert float(pairs[0]['bytes_per_second']) == square['bytes_per_second'][0][1] and '\'=a"b,?c' in pairs[0]['from']
    assert float(pairs[0]['p50_us']) == square['latency_us'][0][1]
    assert 'exclude' in run('report', '--csv', '--json', *files, expect=2).stderr


def test_line_names_list_differing_properties(tmp_path):
    files = [save(tmp_path, bench(point(8), point(64)), 'a.json'),
             save(tmp_path, bench(point(8, tool='iperf3'), point(64, 3e9, tool='iperf3')), 'b.json'),
             save(tmp_path, bench(point(8), point(64)), 'c.json')]
    names = [line['name'] for line in run_json('report', *files)['lines']]
    assert names == ['peerlane, a.json', 'iperf3', 'peerlane, c.json']
    assert [line['name'] for line in run_json('report', *files[:2])['lines']] == ['peerlane', 'iperf3']
    assert run_json('report', files[0])['lines'][0]['name'] == 'peerlane write'


def test_workflow(tmp_path):
    text, tree = page(tmp_path, workflow())
    assert '2.00 times as many per second as method A (rounds: 1.90 to 2.10)' in text
    assert 'the GPU is simulated' in text and 'the method A' in text
    assert any(title.text == 'Time of a frame by phase' for title in tree.iter(f'{SVG}title'))
    shown = run('report', save(tmp_path, workflow()), '--plot', 'phases').stdout
    # Bars without colours consist of letters.
    assert 'b to device' in shown and re.search(r'a{2,}b{2,}c', shown)


def test_methods_have_a_plot_of_their_own_next_to_messages(tmp_path):
    text, tree = page(tmp_path, bench(point(8), point(64)), workflow(), workflow('ABC'))
    titles = [title.text for title in tree.iter(f'{SVG}title')]
    assert 'Bandwidth over size' in titles and 'Frames through a GPU: bandwidth over size' in titles
    # Bars of each file have a scale of their own; sentences about ratios name the file if there are several.
    assert '4 KiB frames, 1.json' in text and '4 KiB frames, 2.json' in text and '2.json: with frames of 1 MiB' in text
    # Of five methods only the baselines have a sentence.
    assert 'A: the method A, 1.json: with frames' in text and 'C: the method C: with frames' not in text
    names = {line['name']: line['points'] for line in run_json('report', tmp_path / '0.json', tmp_path / '1.json')['lines']}
    assert 'frames' in run_json('report', tmp_path / '0.json', tmp_path / '1.json')['plots'] and len(names) == 3
    assert 'frames' not in run_json('report', tmp_path / '1.json')['plots']
    run('report', '--plot', 'frames', tmp_path / '1.json', expect=1)


def test_wrong_content_and_staging_are_reported(tmp_path):
    text, _ = page(tmp_path, bench(point(8, verified=False), point(64, verified=True, route='staged', reason='no card')))
    assert 'the content was WRONG in 1 of 2 results' in text and 'staged in host memory (no card)' in text
    staged = bench(point(8, route='staged', reason='no card'))
    text, _ = page(tmp_path, staged, staged)
    assert text.count('staged in host memory (no card)') == 1


def test_registration_is_not_compared_with_messages(tmp_path):
    message, register = bench(point(8), mode='latency'), bench(point(8, operation='register', latency_us={'p50': 0.5}),
                                                                mode='latency')
    text, _ = page(tmp_path, message, register)
    assert re.search('Lowest latency: [^.]*write', text)
    assert 'register' in page(tmp_path, register)[0]


def test_samples(tmp_path):
    samples = {'interval_seconds': 0.1, 'bytes_per_second': [1e9 + i for i in range(3000)]}
    _, tree = page(tmp_path, bench(point(64, samples=samples)))
    assert any('over time' in (title.text or '') for title in tree.iter(f'{SVG}title'))


@pytest.mark.parametrize('ranks', [2, 8, 40, 200])
def test_matrix(tmp_path, ranks):
    text, tree = page(tmp_path, matrix(ranks))
    # Of many hosts, the pairs are judged by the report.
    assert ('Slow: rank 0 to rank 1, 1.00 GB/s; the median is 5.00 GB/s: why not.' in text) == (ranks < 8)
    if ranks > 24:
        assert not [svg for svg in tree.iter(f'{SVG}svg') if svg.get('width') == '640']
        run('report', tmp_path / '0.json', '--svg', tmp_path / 'a.svg')
        wide = ElementTree.parse(tmp_path / 'a.svg').getroot()
    else:
        wide = next(svg for svg in tree.iter(f'{SVG}svg') if svg.get('width') == '640')
    if ranks <= 24:
        cells = [rect for rect in wide.iter(f'{SVG}rect') if re.fullmatch('n|v[0-9]', rect.get('class') or '')]
        assert len(cells) == ranks ** 2 + 10
    else:
        drawn = sum(path.get('d').count('M') for path in wide.iter(f'{SVG}path') if path.get('class')[0] in 'nv')
        assert drawn == (ranks if ranks <= 64 else 50) ** 2
    assert 'Bandwidth of all pairs' in run('report', save(tmp_path, matrix(ranks))).stdout


def test_matrix_without_values(tmp_path):
    square = {**matrix(10), 'bytes_per_second': [[None] * 10] * 10, 'latency_us': [[None] * 10] * 10, 'slow': []}
    text, tree = page(tmp_path, square)
    shown = run('report', tmp_path / '0.json').stdout
    assert shown.count('empty: worst (-); full: best (-)') == 2
    legends = [element.text for element in tree.iter(f'{SVG}text') if element.text in ('-', '0 B/s', '0 ns')]
    assert legends and set(legends) == {'-'} and not re.search(r'\b0 (B/s|ns)', shown + text)


@pytest.mark.parametrize('ranks, width, named', [(3, 80, True), (30, 80, True), (36, 80, False), (60, 80, False), (60, 160, True)])
def test_rows_name_their_hosts(tmp_path, ranks, width, named):
    shown = run('report', save(tmp_path, matrix(ranks)), '--plot', 'matrix', '--width', width).stdout.splitlines()
    rows = [line for line in shown if line[:6].strip().isdigit() and line[6:7] == ' ' and not line.endswith(str(ranks - 1))]
    assert len(rows) >= ranks - 1 if named else rows
    assert all(line.endswith(f'  h{line.split()[0]}') == named for line in rows), shown
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize('rate, shown', [(0.1234e9, {12: '0.123', 20: '0.12'}), (12.3456e9, {12: '12.3', 20: '12.3'}),
                                         (1234.5e9, {12: '1234', 20: '1234'}), (123456e9, {12: '123456', 20: None})])
def test_numbers_fit_their_cells(tmp_path, rate, shown):
    for ranks, text in shown.items():
        square = matrix(ranks)
        square['bytes_per_second'] = [[None if i == j else rate for j in range(ranks)] for i in range(ranks)]
        square['latency_us'] = None
        _, tree = page(tmp_path, square)
        wide = next(svg for svg in tree.iter(f'{SVG}svg') if svg.get('width') == '640')
        cells = [group for group in wide.iter(f'{SVG}g') if group.find(f'{SVG}title') is not None]
        assert {number.text for cell in cells for number in cell.iter(f'{SVG}text')} == ({text} if text else set())


def pixels(image):
    """Reads a PNG picture with a palette: its lines of colours."""
    data = base64.b64decode(image.get('href').split(',')[1])
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    chunks, at = {}, 8
    while at < len(data):
        length, = struct.unpack('>I', data[at:at + 4])
        assert zlib.crc32(data[at + 4:at + 8 + length]) == struct.unpack('>I', data[at + 8 + length:at + 12 + length])[0]
        chunks[data[at + 4:at + 8]] = data[at + 8:at + 8 + length]
        at += 12 + length
    width, height, *rest = struct.unpack('>IIBBBBB', chunks[b'IHDR'])
    assert rest == [8, 3, 0, 0, 0] and chunks[b'IEND'] == b'' and chunks[b'tRNS'] == b'\0'
    lines = zlib.decompress(chunks[b'IDAT'])
    assert len(lines) == height * (width + 1)
    palette = [tuple(chunks[b'PLTE'][i:i + 3]) for i in range(0, len(chunks[b'PLTE']), 3)]
    return [[palette[value] if value else None for value in lines[y * (width + 1) + 1:(y + 1) * (width + 1)]] for y in range(height)]


def defects(a, b):
    """Host 17 sends at 85 %, host 42 receives at half, leaf 3 reaches the others at 80 %, one link is at half."""
    rate = (0.85 if a == 17 else 1) * (0.5 if b == 42 else 1) * (0.5 if (a, b) == (101, 151) else 1)
    return rate * (0.8 if (a // 20 == 3) != (b // 20 == 3) else 1)


def check_changes(tree):
    """Checks the map of changes of test_two_hundred_hosts: cells within the noise have one colour, others are worse."""
    drawn = next(figure for figure in tree.iter('figure') if figure.get('class') == 'card map' and
                 figure.find('figcaption').text == 'Changes of bandwidth between all hosts: 0.json to 1.json')
    cells = pixels(next(drawn.iter(f'{SVG}image')))
    same, worse = cells[9][10], cells[9][42]
    # Hosts of other groups that no defect has, and the lines of one that has no results.
    sound = [row for row in range(200) if row not in (5, 17, 42, 88, 101) and row // 20 != 3]
    others = [cells[row][column] for row in sound for column in sound if row != column]
    assert max(same) - min(same) < 10 and others.count(same) > 0.999 * len(others)
    assert worse[0] > 2 * worse[1] and {cells[row][42] for row in sound} != {same} and same not in {cells[row][42] for row in sound}
    assert cells[9][88] is None and cells[9][9] is None and cells[101][151] != same != cells[17][70]
    titles = [title.text for title in drawn.iter(f'{SVG}title')]
    assert [title for title in titles if re.fullmatch(r'gpu042: receives at (49|50|51) % of the value before, beside.*', title)]


def test_two_hundred_hosts(tmp_path):
    groups = tmp_path / 'groups'
    groups.write_text(''.join(f'gpu[{i * 20:03}-{i * 20 + 19:03}] leaf{i}\n' for i in range(10)))
    before = fleet_matrix(noise=0.02)
    text, tree = page(tmp_path, before, fleet_matrix(seed=2, factor=defects, silent={5, 88}), arguments=['--groups', groups])
    assert len(text) < 5 << 20
    shown = [''.join(note.itertext()) for note in tree.iter('p') if note.get('class') == 'note']
    for name in ['1.json: No results of gpu[005,088].',
                 '1.json: Bandwidth: group leaf3 (20 hosts: gpu[060-079]) sends and receives at 80',
                 '1.json: Bandwidth: host gpu042 receives at 50', '1.json: Bandwidth: host gpu017 sends at 8',
                 '1.json: Bandwidth: gpu101 to gpu151: at 5', 'Since 0.json: Bandwidth: group leaf3 ',
                 'Since 0.json: Bandwidth: host gpu042 receives 50', 'Since 0.json: Bandwidth: host gpu017 sends 1']:
        assert len([note for note in shown if note.startswith(name[:-2])]) == 1, (name, shown)
    assert len(shown) == 9
    image = next(tree.iter(f'{SVG}image'))
    cells = pixels(image)
    assert len(cells) == 200 and len(cells[0]) == 200
    assert cells[7][7] is None and cells[5][9] is None and cells[9][88] is None
    red, green = cells[9][42], cells[9][10]
    assert red[0] > 100 > red[1] and green[1] > green[0]
    # A click into the row of a host leads to its section.
    svg = next(svg for svg in tree.iter(f'{SVG}svg') if next(svg.iter(f'{SVG}image'), None) is image)
    links = {''.join(link.itertext()).split(':')[0]: link.get('href')[1:] for link in svg.iter(f'{SVG}a')}
    sections = {section.get('id'): section for section in tree.iter('section')}
    assert len(links) == len(sections) == 200
    for name, anchor in links.items():
        assert sections[anchor].find('h3').text == name
    shown = {name: ''.join(sections[links[name]].itertext()) for name in ['gpu017', 'gpu101', 'gpu042', 'gpu088']}
    assert re.search(r'bandwidth8[456] %(99|100|101) %', shown['gpu017']) and 'bandwidthno resultsno results' in shown['gpu088']
    assert re.search(r'bandwidth(99|100|101) %(49|50|51) %', shown['gpu042'])
    assert re.search(r'Slow to: gpu151 2[345]\.\d GB/s', shown['gpu101']) and 'Slow' not in shown['gpu042']
    check_changes(tree)
    labels = [element.text for element in svg.iter(f'{SVG}text')]
    assert 'leaf3 (20): 80 %' in labels and any(re.fullmatch('gpu042: (49|50|51) %', text or '') for text in labels)


def test_rails_and_hosts_that_were_left_out(tmp_path):
    square = rails_matrix(['mlx5_0', 'mlx5_1'], hosts=12, slow=lambda a, b: 0.6 if b == 3 else 1, silent={7})
    square['left_out'] = [{'rank': 7, 'host': 'gpu007', 'reason': 'no answer in round 3'}]
    shown = run('report', save(tmp_path, square), '--plot', 'matrix').stdout.splitlines()
    assert 'a.json: rank 7 (gpu007) was left out: no answer in round 3.' in shown and 'No results of gpu007.' in shown
    assert len([line for line in shown if line.startswith('Bandwidth between 11 of 12 ranks: ')]) == 1
    assert len([line for line in shown if line.startswith('Bandwidth: host gpu003 receives at ')]) == 1
    assert len([line for line in shown if line.startswith('Rail mlx5_1: Bandwidth: host gpu003 receives at ')]) == 1
    assert not [line for line in shown if 'mlx5_0' in line]
    square['ranks'][7]['host'] = None
    assert 'No results of' not in run('report', save(tmp_path, square), '--plot', 'matrix').stdout
    later = rails_matrix(['mlx5_0', 'mlx5_1'], hosts=12, seed=3)
    text, _ = page(tmp_path, square, later)
    assert 'Since 0.json: Rail mlx5_1: Bandwidth: host <a href="#h3">gpu003</a> receives ' in text
    # A rail that stayed the same is not named; one that became slower is.
    assert 'Since 0.json: Bandwidth of the fleet' in text and not re.search(r'Rail mlx5_\d: \w+ of the fleet', text)
    slower = rails_matrix(['mlx5_0', 'mlx5_1'], hosts=12, seed=3, slow=lambda a, b: 0.8)
    text, _ = page(tmp_path, later, slower)
    assert re.findall(r'Since 0.json: Rail (mlx5_\d): (\w+) of the fleet', text) == [('mlx5_1', 'Bandwidth')]
    for rails in [[{'bytes_per_second': [1]}], [{}] * 17]:
        assert '[REPORT-CONTENT]' in run('report', save(tmp_path, {**square, 'rails': rails}), expect=1).stderr


def test_rings_are_not_judged(tmp_path):
    ring = fleet_matrix(hosts=12, factor=lambda a, b: 0.3 if a == 3 else 1, schedule='all-to-all')
    assert 'gpu003' in run('report', save(tmp_path, ring)).stdout
    done = run('report', save(tmp_path, {**ring, 'schedule': 'ring'})).stdout
    assert 'host gpu003' not in done and 'Bandwidth of all pairs' in done


def test_matrices_that_say_nothing_together(tmp_path):
    text, _ = page(tmp_path, fleet_matrix(hosts=8), fleet_matrix(hosts=8, size=64))
    assert 'messages of different sizes' in text
    others = json.loads(json.dumps(fleet_matrix(hosts=8)).replace('"gpu', '"cpu'))
    assert 'results of 0 hosts in common' in page(tmp_path, fleet_matrix(hosts=8), others)[0]


def saved_check(folder, host, **changes):
    """Saves a small document of `peerlane check` as `peerlane fleet check --save` does."""
    inventory = {'kernel': '6.8.0', 'driver': '570.1', 'gpus': [{'pci': f'0000:{i}0:00.0', 'model': 'H100'} for i in range(8)],
                 'devices': [{'device': 'mlx5_0', 'firmware': '28.39', 'ports': []}]}
    folder.mkdir(exist_ok=True)
    (folder / f'{host}.json').write_text(json.dumps(
        {'format': 1, 'kind': 'check', 'version': '0.1.0', 'host': host, 'boot_id': f'boot {host}', 'time': '2026-11-20T08:00:00Z',
         'status': 'OK', 'checks': [{'id': 'port-state', 'status': 'OK', 'findings': []}],
         'inventory': {**inventory, **changes}}))


def test_fleets(tmp_path):
    for host in map('gpu{:03}'.format, range(12)):
        saved_check(tmp_path / 'monday', host)
        saved_check(tmp_path / 'friday', host, **({'kernel': '6.5.0'} if host == 'gpu007' else {}),
                    **({'gpus': []} if host == 'gpu003' else {}))
    (tmp_path / 'friday' / 'gpu005.json').write_text('no route to host')
    (tmp_path / 'friday' / 'gpu006.json').write_text('{"format": 1, "kind": "check", "checks": [{')
    (tmp_path / 'friday' / 'gpu008.json').write_text('{"format": 7, "kind": "check", "checks": []}')
    output = tmp_path / 'page.html'
    run('report', tmp_path / 'monday', tmp_path / 'friday', '-o', output)
    text = output.read_text()
    tree = ElementTree.fromstring(text.split('\n', 1)[1])
    check_self_contained(text, tree)
    tables = {table.get('aria-label'): [[''.join(cell.itertext()) for cell in row] for row in table.iter('tr')][1:]
              for table in tree.iter('div') if table.get('aria-label')}
    found = {(status, hosts, row) for status, hosts, row, _ in tables['findings']}
    assert found == {('DIFFERS', 'gpu007', 'kernel'), ('DIFFERS', 'gpu003', 'gpus'), ('NONE', 'gpu005', 'no-document'),
                     ('NONE', 'gpu006', 'truncated'), ('NONE', 'gpu008', 'other-format')}
    changes = {(row[0], row[1]): row[3:] for row in tables['changes'] if row[2] == '-'}
    assert changes[('gpu007', 'kernel')] == ['6.8.0', '6.5.0'] and changes[('gpu003', 'gpus')] == ['8', '0']
    assert changes[('gpu005, gpu006, gpu008', 'answer')] == ['usable', 'none']
    assert [row[:2] for row in tables['inventory']] == [
        ['gpu000, gpu001, gpu002, gpu004, gpu009, gpu010, gpu011', '8 x H100'], ['gpu003', '-'], ['gpu007', '8 x H100']]
    sections = {section.find('h3').text: ''.join(section.itertext()) for section in tree.iter('section')}
    assert len(sections) == 12 and '6.5.0' in sections['gpu007'] and 'well' in sections['gpu000']
    # A line for each host of a finding.
    lines = list(csv.DictReader(run('report', '--csv', tmp_path / 'monday', tmp_path / 'friday').stdout.splitlines(), strict=True))
    assert {(line['status'], line['host'], line['row']) for line in lines} == found and len(lines) == len(found)
    assert {(line['mode'], line['name'], line['size']) for line in lines} == {('finding', 'friday', '')}
    assert any('6.5.0' in line['text'] for line in lines)
    # In the terminal there is a summary.  A file of --output is the same run.
    assert 'friday: 9 of 12 hosts answered' in run('report', tmp_path / 'friday').stdout
    run('fleet', 'show', tmp_path / 'friday', '--output', tmp_path / 'friday.json', expect=3)
    assert 'friday.json: 9 of 12 hosts answered' in run('report', tmp_path / 'friday.json').stdout
    assert '[REPORT-NO-PLOT]' in run('report', tmp_path / 'friday', '--svg', '-', expect=1).stderr


@pytest.mark.parametrize('content, identifier', [
    ('{"format": 2, "kind": "fleet", "command": "check", "hosts": [{"host": "a"}]}', 'FLEET-SAVED'),
    ('{"format": 1, "kind": "fleet", "command": "check", "hosts": [{"host": "a"}, {"host": "a"}]}', 'FLEET-SAVED'),
    ('{"format": 1, "kind": "fleet", "command": "check", "hosts": [{"host": "a"}', 'REPORT-JSON'),
    ('{"format": 1, "kind": "fleet", "command": "check", "hosts": []}', 'FLEET-SAVED'),
    ('{"format": 2, "kind": "matrix", "ranks": [1, 2]}', 'REPORT-CONTENT'),
])
def test_wrong_fleets(tmp_path, content, identifier):
    assert f'[{identifier}]' in run('report', save(tmp_path, content), expect=1).stderr
    (tmp_path / 'empty').mkdir()
    assert '[FLEET-SAVED]' in run('report', tmp_path / 'empty', expect=1).stderr


def test_names_of_hosts_are_hostile(tmp_path):
    hosts = [HOSTILE, HOSTILE + 'x' * 300, '\u00e9' * 150, '', '#', 'a b', *(f'h{i}' for i in range(24))]
    square = fleet_matrix(hosts=len(hosts), silent={1}, factor=lambda a, b: (0.4 if a == 0 else 1) * (0.5 if (a, b) == (2, 3) else 1))
    for rank, host in zip(square['ranks'], hosts):
        rank['host'] = host
    text, _ = page(tmp_path, square, square)
    assert '&lt;script&gt;' in text and '<script' not in text
    shown = run('report', tmp_path / '0.json', '--quiet').stdout + run('bench', 'compare', tmp_path / '0.json', tmp_path / '0.json').stdout
    assert '\x1b' not in shown


def test_machine_and_check(tmp_path):
    machine = machines.make(tmp_path / 'machine', next((ROOT / 'tests/topology').glob('*.machine')))
    topology = run_json('topo', '--numeric', '--sysroot', machine)
    check = {'verdict': 'degraded', 'summary': 'It works in part.', 'first_remedy': 'modprobe it',
             'checks': [{'title': 'the module', 'status': 'fail'}]}
    text, tree = page(tmp_path, bench(point(64), topology=topology, check=check, command=['peerlane', 'bench', "it's"],
                                      machine={'host': 'node1', 'processor': 'a processor', 'cores': 2, 'gpus': ['G']}))
    assert 'It works in part.' in text and 'modprobe it' in text and 'node1' in text and 'the module' in text
    assert "peerlane bench 'it'\\''s'" in ''.join(tree.itertext())
    shown = ''.join(tree.itertext())
    for gpu in topology['gpus']:
        assert gpu['id'].replace('0000:', '') in shown


def test_picture_has_links_of_gpus(tmp_path):
    machine = machines.build(tmp_path / 'machine', 'numa 0 cpus=0-7\npci0000:00 numa=0\n' + ''.join(
        f'  0000:00:0{i}.0 port\n    0000:0{i}:00.0 gpu id=10de:2335\n' for i in (1, 2)))
    (machine / 'peerlane').mkdir()
    (machine / 'peerlane/facts').write_text('\n'.join(
        f'nvml.gpu.0000:0{i}:00.0.capability 90\nnvml.gpu.0000:0{i}:00.0.nvlink.0 up 6 gpu 0000:0{3 - i}:00.0' for i in (1, 2)))
    topology = run_json('topo', '--numeric', '--sysroot', machine)
    text, _ = page(tmp_path, bench(point(64)), topology)
    assert '1 NVLink 4 to GPU 1' in text and '1 NVLink 4 to GPU 0' in text
    topology['gpus'][0]['links'][0].update(active=-1, down=1e300, remote=7, to=None, hops='x', bytes_per_second=-5)
    topology['gpus'][1]['links'] = [5, None, {}]
    text, _ = page(tmp_path, bench(point(64)), topology)
    assert 'NVLink' not in text


def test_topology_and_check_as_separate_files(tmp_path):
    machine = machines.make(tmp_path / 'machine', next((ROOT / 'tests/topology').glob('*.machine')))
    topology = run_json('topo', '--numeric', '--sysroot', machine)
    check = {'verdict': 'ready', 'summary': 'It works.', 'checks': [{'title': 'the module', 'status': 'pass'}]}
    text, tree = page(tmp_path, bench(point(64)), topology, check)
    assert 'It works.' in text and topology['gpus'][0]['id'].replace('0000:', '') in ''.join(tree.itertext())
    assert text.count('<pre>') == 0 and '2.json' not in text
    assert 'no result' in run('report', save(tmp_path, check), expect=1).stderr


def test_texts_are_escaped(tmp_path):
    hostile = bench(point(8, tool=HOSTILE, reason=HOSTILE, route='staged', operation=HOSTILE, memory=HOSTILE),
                    point(8, tool='b'), machine={'host': HOSTILE, 'gpus': [HOSTILE], 'processor': HOSTILE},
                    command=[HOSTILE, "'"], version=HOSTILE, time=HOSTILE, error={'message': HOSTILE},
                    check={'summary': HOSTILE, 'verdict': HOSTILE, 'checks': [{'title': HOSTILE}]})
    frames = json.loads(json.dumps(workflow()).replace('receive', 'X').replace('the method', 'Y'))
    frames['results'][0]['phases_us'] = {HOSTILE.replace('\0', ''): 5}
    frames['arms'][0]['title'] = frames['ratios'][0]['arm'] = frames['ratios'][0]['over'] = HOSTILE * 3
    square = matrix(3)
    square['ranks'][0]['host'] = square['slow'][0]['reason'] = HOSTILE
    text, _ = page(tmp_path, hostile, frames, square)
    assert '<script' not in text and '\x1b' not in text
    for plot in ['bandwidth', 'phases', 'matrix', 'percentiles', 'latency']:
        files = [tmp_path / f'{index}.json' for index in range(3)]
        drawn = run('report', *files, '--svg', '-', '--plot', plot).stdout
        check_self_contained(drawn, ElementTree.fromstring(drawn.split('\n', 1)[1]))
    for locale in ['C', 'C.UTF-8']:
        shown = run('report', tmp_path / '0.json', tmp_path / '1.json', LC_ALL=locale).stdout
        assert '\x1b' not in shown and '\x85' not in shown
        assert locale != 'C' or shown.isascii()


@pytest.mark.parametrize('text, fact', [
    ('', 'empty'), ('{', 'unexpected end'), ('nonsense', 'invalid JSON'), ('[1]', 'not a result'), ('{}', 'not a result'),
    ('null', 'invalid JSON|unexpected end|not a result'), ('{"results": 5}', 'not a result'), ('{"results": []}', 'no result'),
    ('{"kind": "song", "results": []}', 'not a result'), ('{"kind": 7}', 'not a result'),
    ('{"format": 2, "results": []}', 'later release'), ('{"results": [5]}', r'results\[0\] is not an object'),
    ('{"results": [{}]}', r'results\[0\]: "size"'), ('{"results": [{"size": "8"}]}', r'results\[0\]: "size"'),
    ('{"results": [{"size": 8, "bytes_per_second": NaN}]}', 'invalid JSON|bytes_per_second'),
    ('{"results": [{"size": 8, "bytes_per_second": 1e999}]}', 'bytes_per_second'),
    ('{"results": [{"size": 8, "bytes_per_second": -1}]}', 'bytes_per_second'),
    ('{"results": [{"size": 8, "latency_us": []}]}', 'latency_us'),
    ('{"results": [{"size": 8, "latency_us": {"p50": {}}}]}', 'p50'),
    ('{"results": [{"size": 8, "runs": {}}]}', 'runs'), ('{"results": [{"size": 8, "runs": [true]}]}', 'runs'),
    ('{"results": [{"size": 8, "samples": {"interval_seconds": 1, "bytes_per_second": [1, "2"]}}]}', 'samples'),
    ('{"results": [{"size": 8, "phases_us": 4}]}', 'phases_us'),
    ('{"kind": "matrix"}', 'ranks'), ('{"kind": "matrix", "ranks": [1]}', 'ranks'),
    ('{"kind": "matrix", "ranks": [1, 2]}', 'no matrix'),
    ('{"kind": "matrix", "ranks": [1, 2], "latency_us": [[1, 2]]}', '1 rows'),
    ('{"kind": "matrix", "ranks": [1, 2], "latency_us": [[1, 2], [3]]}', 'not 2 numbers'),
    ('{"results": [{"size": 8}], "topology": {"pci": [{"id": "a", "parent": "b"}]}}', 'topology'),
    ('{"results": [{"size": 8}], "topology": {"gpus": [{"id": "a"}]}}', 'topology'),
    ('{"a":' * 100000, 'invalid JSON'), ('[' * 100000, 'invalid JSON'), (b'{"results": "\xff\xfe"}', 'invalid JSON'),
    ('{"results": [' + '{"size": 8},' * 3000 + '{"size": 8}]}', 'at most 2000 results'),
], ids=lambda value: str(value)[:40])
def test_errors_name_the_file(tmp_path, text, fact):
    path = tmp_path / 'bad.json'
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run('report', path, '-o', tmp_path / 'page.html', expect=1)
    assert re.search(fact, done.stderr), done.stderr
    assert 'bad.json' in done.stderr and '[REPORT-' in done.stderr and not (tmp_path / 'page.html').exists()


def test_damaged_files_do_not_crash(tmp_path):
    source = random.Random(7)
    whole = [json.dumps(one) for one in [bench(point(8), point(64)), workflow(), matrix(4), fleet_matrix(hosts=9)]]
    for index in range(60):
        text = bytearray(whole[index % 4].encode())
        for _ in range(source.randrange(1, 4)):
            text[source.randrange(len(text))] = source.choice(b'0"{}[]:,9e-x\\')
        path = tmp_path / 'damaged.json'
        path.write_bytes(text)
        done = run('report', path, '-o', tmp_path / 'page.html') if accepts(path) else None
        if done:
            ElementTree.fromstring((tmp_path / 'page.html').read_text().split('\n', 1)[1])


def accepts(path):
    """Returns whether the command accepts a file; it must not crash."""
    from cli_support import PEERLANE, environment
    done = subprocess.run([PEERLANE, 'report', path, '--json'], capture_output=True, timeout=DEADLINE, env=environment())
    assert done.returncode in (0, 1), (done, path.read_bytes())
    return done.returncode == 0


def test_missing_and_too_large_files(tmp_path):
    assert 'No such file' in run('report', tmp_path / 'none.json', expect=1).stderr
    large = tmp_path / 'large.json'
    with open(large, 'wb') as file:
        file.truncate((256 << 20) + 1)
    assert '[REPORT-SIZE]' in run('report', large, expect=1).stderr
    assert '[REPORT-SIZE]' in run('report', *[save(tmp_path, bench(point(8)))] * 65, expect=1).stderr
    run('report', expect=2)
    run('report', large, '--plot', 'nonsense', expect=2)
    run('report', large, '--width', '5', expect=2)
    assert '[REPORT-NO-PLOT]' in run('report', save(tmp_path, bench(point(8))), '--plot', 'matrix', expect=1).stderr


def test_terminal(tmp_path):
    path = save(tmp_path, bench(point(8, 1e6), point(4096, 1e9), point(1 << 20, 8e9)))
    plain = run('report', path, LC_ALL='C').stdout
    assert plain.isascii() and 'Bandwidth over size' in plain and '1 GB/s' in plain and 'Highest bandwidth' in plain
    dots = run('report', path, LC_ALL='C.UTF-8').stdout
    assert any('\u2800' < character <= '\u28ff' for character in dots) and '\x1b' not in dots
    for width in [40, 80, 200]:
        shown = run('report', path, '--width', width, '--quiet', LC_ALL='C.UTF-8').stdout
        assert width - 2 <= max(map(len, shown.splitlines())) <= width
    assert 'Highest' not in run('report', path, '--quiet').stdout
    bars = run('report', save(tmp_path, bench(point(64, 2e9), point(64, 1e9, tool='other'))), '--plot', 'bandwidth',
               LC_ALL='C').stdout
    lengths = [line.count('#') for line in bars.splitlines() if line.startswith('  #')]
    assert len(lengths) == 2 and abs(lengths[0] - 2 * lengths[1]) <= 1


def test_largest_report_is_small(tmp_path):
    results = [point(8 << (i % 20), tool=f'tool {i // 20}') for i in range(1180)]
    text, _ = page(tmp_path, bench(*results), matrix(300), workflow('ABCDE', [4 << (2 * i) for i in range(12)]))
    assert len(text) < 2 << 20


@pytest.mark.skipif(not shutil.which('chromium'), reason='chromium is not installed')
@pytest.mark.parametrize('width', [360, 800, 1400])
def test_page_needs_no_horizontal_scrolling(tmp_path, width):
    results = [point(8 << i, tool=tool) for i in range(12) for tool in ['peerlane', 'iperf3']]
    page(tmp_path, bench(*results), workflow(), matrix(12))
    # The page is in a frame as wide as a phone, as windows have a larger minimum width.  It has no script itself.
    (tmp_path / 'frame.html').write_text(
        f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe><pre id="out"></pre><script>'
        'onload = () => {const d = document.querySelector("iframe").contentDocument;'
        'document.getElementById("out").textContent = `wide ${d.documentElement.scrollWidth} pictures ${'
        '[...d.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width > 0).length}`}</script>')
    done = subprocess.run(['chromium', '--headless', '--no-sandbox', '--disable-gpu', '--allow-file-access-from-files',
                           f'--user-data-dir={tmp_path}/profile', '--virtual-time-budget=2000', '--dump-dom',
                           f'file://{tmp_path}/frame.html'], capture_output=True, text=True, timeout=DEADLINE)
    shown = re.search(r'wide (\d+) pictures (\d+)', done.stdout)
    assert shown and int(shown[1]) <= width and int(shown[2]) == 7, (done.stdout[-300:], done.stderr[-300:])
