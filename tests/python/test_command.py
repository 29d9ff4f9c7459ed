# SPDX-License-Identifier: BSD-2-Clause
"""Results of the command as data, and pictures of results and frames in notebooks."""
import base64
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys
import time
import types
import xml.etree.ElementTree
import zlib

import peerlane as pl
import pytest

BUILD = pathlib.Path(pl.__file__).parents[3]
needs_command = pytest.mark.skipif(not os.environ.get('PEERLANE'), reason='the command is not built')


def picture(shown):
    """Return the texts of an image in HTML."""
    image, = re.findall(r'^<img alt="([^"<>]*)" src="data:image/svg\+xml;base64,([\w+/=]+)">$', shown)
    return image[0], ''.join(xml.etree.ElementTree.fromstring(base64.b64decode(image[1])).itertext())


@needs_command
def test_topology():
    result = pl.topology()
    assert isinstance(result, dict) and repr(result).startswith(f'<peerlane.Topology of {result["host"]}: ')
    title, text = picture(result._repr_html_())
    assert title.startswith('&lt;peerlane.Topology') and text.strip()


@needs_command
def test_bench():
    result = pl.bench('kv', '--size', '4K,8K', '--blocks', 2, '--iterations', 20, timeout=300)
    assert [row['requests'] for row in result['results']] == [20, 20]
    assert repr(result) == '<peerlane.Bench kv-read over local: 2 results>'
    assert 'KiB' in picture(result._repr_html_())[1]
    with pytest.raises(ConnectionRefusedError) as caught:
        pl.bench('127.0.0.1:1', '--size', 8)
    assert caught.value.id == 'CONNECT-REFUSED'
    with pytest.raises(pl.Error, match='--size'):
        pl.bench('--size', 'x')


@needs_command
def test_check():
    result = pl.check()
    assert repr(result) == f'<peerlane.Check of {result["host"]}: {result["status"]}, {result["summary"]}>'
    shown = result._repr_html_()
    xml.etree.ElementTree.fromstring(f'<div>{shown}</div>')
    faults = [row for row in result['checks'] if row['status'] not in ('none', 'OK')]
    assert shown.count('<tr>') == len(faults) + bool(faults) and all(row['status'] in shown for row in faults)


def test_texts_are_escaped():
    row = {'status': 'FAIL', 'title': '<b>', 'findings': [{'object': None, 'found': '<i>&'}], 'remedy': None}
    shown = pl.Check(host='h', status='<x>', summary='s', checks=[row, {**row, 'status': 'OK'}])._repr_html_()
    assert '<i>' not in shown and '<x>' not in shown and '&lt;i&gt;&amp;' in shown and shown.count('<td>FAIL') == 1
    assert '<script' not in pl.Gpus([{'name': '<script>'}])._repr_html_()


def test_results_without_a_picture(monkeypatch):
    monkeypatch.setenv('PEERLANE', '/nothing')
    assert pl.Topology(host='h')._repr_html_() is None and pl.Bench()._repr_html_() is None
    assert repr(pl.Bench()) == '<peerlane.Bench without results: 0 results>' and pl.Gpus()._repr_html_() == '<p>no GPU</p>'
    monkeypatch.setenv('PEERLANE', '/bin/false')
    assert pl.Topology(host='h')._repr_html_() is None


@pytest.mark.skipif(not (BUILD / 'tests/libcuda.so.1').exists(), reason='the stand-in for the GPU driver is not built')
def test_gpus():
    program = 'import peerlane as pl; a = pl.gpus(); print(len(a), a[1] == {"number": 1, **pl.gpu(1)}, a._repr_html_())'
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=300,
                          env={**os.environ, 'LD_LIBRARY_PATH': str(BUILD / 'tests')})
    assert done.returncode == 0, done.stderr
    count, same, shown = done.stdout.split(maxsplit=2)
    assert (count, same) == ('2', 'True') and shown.count('<tr>') == 3 and '<th>pci</th>' in shown


def decoded(png):
    """Return width, height, type and rows of a PNG image without filters."""
    content, at, parts = bytes(png), 8, {}
    assert content[:8] == b'\x89PNG\r\n\x1a\n'
    while at < len(content):
        length, kind = struct.unpack_from('>I4s', content, at)
        parts[kind] = content[at + 8:at + 8 + length]
        assert struct.unpack_from('>I', content, at + 8 + length)[0] == zlib.crc32(kind + parts[kind])
        at += 12 + length
    width, height, depth, colour = struct.unpack_from('>IIBB', parts[b'IHDR'])
    lines = zlib.decompress(parts[b'IDAT'])
    size = len(lines) // height
    assert depth == 8 and all(lines[y * size] == 0 for y in range(height))
    return width, height, colour, [lines[y * size + 1:(y + 1) * size] for y in range(height)]


def test_pictures_of_frames(local):
    with local.far.publish('s', slot_bytes=1 << 20) as publisher, local.peer.subscribe('s') as subscriber:
        def shown(content, *layout):
            publisher.put(content, layout=pl.Layout(*layout))
            return decoded(pl.picture(subscriber.take(120)))

        assert shown(bytes(range(6)), (2, 3), 'uint8') == (3, 2, 0, [b'\0\1\2', b'\3\4\5'])
        assert shown(bytes(range(12)), (2, 2, 3), 'uint8') == (2, 2, 2, [bytes(range(6)), bytes(range(6, 12))])
        assert shown(struct.pack('4h', -100, 0, 100, 0), (2, 2), 'int16') == (2, 2, 0, [b'\0\x80', b'\xff\x80'])
        assert shown(struct.pack('2f', float('nan'), 1), (1, 2), 'float32') == (2, 1, 0, [b'\0\0'])
        assert shown(bytes(1024 * 600), (600, 1024), 'uint8')[:2] == (512, 300)
        for wrong in ((8,), 'uint8'), ((2, 2, 2), 'uint8'), ((2, 2), 'float16'):
            with pytest.raises(ValueError):
                shown(bytes(8), *wrong)
        publisher.put(b'bytes')
        with pytest.raises(ValueError):
            pl.picture(subscriber.take(120))


def test_view_of_a_stream(local, monkeypatch):
    shown = []

    class Handle:
        update = staticmethod(shown.append)

    def display(first, display_id):
        shown.append(first)
        return Handle()

    ipython = types.SimpleNamespace(display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, 'IPython', ipython)
    with local.far.publish('s', pl.Layout((1, 2), 'uint8'), allow_block=True) as publisher, \
            local.peer.subscribe('s', overflow='block', queue=8) as subscriber:
        assert pl.view(subscriber, seconds=0.05) == 0 and not shown
        for number in range(3):
            publisher.put(bytes([number, 9]), timeout=120)
        publisher.end()
        assert pl.view(subscriber, interval=0) == len(shown) and 1 <= len(shown) <= 3
        assert shown[-1].sequence == 2 and decoded(shown[-1])[3] == [b'\2\t']


def test_view_of_a_stream_in_ipython(local):
    pytest.importorskip('IPython', reason='IPython is not installed')
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    with local.far.publish('s', pl.Layout((1, 2), 'uint8'), allow_block=True) as publisher, \
            local.peer.subscribe('s', overflow='block', queue=8) as subscriber, capture_output() as captured:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            shown = pool.submit(pl.view, subscriber, interval=0)
            publisher.put(bytes([0, 9]), timeout=120)
            while not captured.outputs and not shown.done():
                time.sleep(0.001)
            publisher.put(bytes([1, 9]), timeout=120)
            publisher.end()
            assert shown.result(120) == 2
    assert [picture.update for picture in captured.outputs] == [False, True]
    assert [decoded(picture.data['image/png'])[3] for picture in captured.outputs] == [[b'\0\t'], [b'\1\t']]


@pytest.fixture
def python_peers(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / 'benchmarks')
    import python_peers
    return python_peers


PATH = str(pathlib.Path(pl.__file__).parents[1])


@pytest.mark.parametrize('fabric', ['local', 'tcp'])
def test_the_benchmark_of_two_processes_runs(python_peers, fabric):
    """A thousandth of its counts."""
    rows = python_peers.run('peerlane', PATH, fabric, 1000)
    assert len(rows) == 8 and all(value > 0 for value in rows.values())


def test_the_benchmark_leaves_out_a_tool_that_is_not_there(python_peers, monkeypatch):
    monkeypatch.setitem(python_peers.LAUNCHERS, 'mpi', ['/nowhere/mpirun'])
    assert python_peers.run('mpi4py', PATH) is None
