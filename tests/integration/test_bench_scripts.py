# SPDX-License-Identifier: BSD-2-Clause
"""Documents that the scripts in benchmarks/ make from results of other tools; the tools are not needed."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from cli_support import DEADLINE, run

BENCH = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
# Output of nccl-tests 2.13 or later, of a run between two hosts.
SENDRECV = """\
# nThread 1 nGpus 1 minBytes 256 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 1478709 on      gpu23 device  0 [0x31] NVIDIA A40
#  Rank  1 Group  0 Pid 1171742 on      gpu24 device  0 [0x31] NVIDIA A40
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
         256            64     float     sum      -1    34.24    0.01    0.01      0    33.65    0.01    0.01    N/A
        4096          1024     float     sum      -1    30.74    0.13    0.13      0    30.69    0.13    0.13    N/A
        8192          2048     float     sum      -1    31.76    0.26    0.26      0    31.59    0.26    0.26    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.133333
#
"""


def read_by_commands(folder, document):
    """Returns the report of a document, and its comparison with itself."""
    path = folder / 'nccl.json'
    path.write_text(json.dumps(document))
    page = run('report', path, '-o', '-').stdout
    compared = json.loads(run('bench', 'compare', path, path, '--json').stdout)
    return page, compared


def convert(text):
    return subprocess.run([sys.executable, BENCH / 'nccl_tests.py'], input=text, capture_output=True, text=True,
                          timeout=DEADLINE)


def test_output_of_nccl_tests(tmp_path):
    done = convert(SENDRECV)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row['size'] for row in document['results']] == [256, 4096, 8192] and document['both_ways'] is True
    for row, time in zip(document['results'], [34.24, 30.74, 31.76]):
        assert row['runs'] == [pytest.approx(row['size'] / time * 1e6)] and row['verified'] is True
        assert (row['tool'], row['operation'], row['memory'], row['peer_memory']) == ('nccl', 'send', 'cuda', 'cuda')
    assert document['machine']['gpus'] == ['NVIDIA A40'] * 2 and document['machine']['host'] == 'gpu23, gpu24'
    page, compared = read_by_commands(tmp_path, document)
    assert 'NVIDIA A40' in page and 'nccl' in page and compared


def test_repeats_wrong_content_and_invalid_input():
    twice = json.loads(convert(SENDRECV + SENDRECV.replace('31.76', '40.00')).stdout)['results']
    assert [len(row['runs']) for row in twice] == [2, 2, 2] and len(set(twice[2]['runs'])) == 2
    wrong = json.loads(convert(SENDRECV.replace('0.13      0', '0.13      7')).stdout)['results']
    assert [row['verified'] for row in wrong] == [True, False, True]
    unseen = json.loads(convert(SENDRECV.replace('0.01      0', '0.01    N/A')).stdout)['results']
    assert unseen[0]['verified'] is None
    for text in ['', 'bash: sendrecv_perf: command not found', SENDRECV.replace('34.24', 'none'),
                 SENDRECV.replace('0.01      0', '0.01      x')]:
        done = convert(text)
        assert done.returncode == 1 and done.stderr.startswith('nccl_tests: ') and not done.stdout


def test_document_of_nccl_socket(tmp_path, monkeypatch):
    """Tests everything but the measurement, which needs a GPU."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setitem(os.environ, 'NCCL_NET', 'Socket')
    import nccl_socket
    arguments = nccl_socket.parse(['29555', '--json'])
    arguments.command = ['nccl_socket.py', '29555', '--json']
    document = nccl_socket.document(arguments, [(1 << 20, [1e9, 2e9, 3e9], True), (1 << 30, [5e9] * 6, True)], '2.21.5',
                                    ['NVIDIA H200'])
    assert document['command'] == ['NCCL_NET=Socket', 'nccl_socket.py', '29555', '--json']
    assert [row['bytes_per_second'] for row in document['results']] == [2e9, 5e9]
    assert document['version'] == 'NCCL 2.21.5' and document['results'][0]['verified'] is True
    page, compared = read_by_commands(tmp_path, document)
    assert 'NVIDIA H200' in page and 'NCCL 2.21.5' in page and compared
    arguments.latency = True
    document = nccl_socket.document(arguments, [(8, [30.0, 10.0, 20.0], True)], '2.21.5', ['NVIDIA H200'] * 2)
    assert document['mode'] == 'latency' and document['results'][0]['latency_us'] == {'p50': 20.0}
    read_by_commands(tmp_path, document)


@pytest.mark.parametrize('arguments', [['--gpus', '0'], ['--gpus', '0,-1'], ['--rounds', '1'], ['--size', '0'],
                                       ['--timeout', '0'], ['70000']])
def test_nccl_socket_refuses_wrong_arguments(arguments, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import nccl_socket
    with pytest.raises(SystemExit) as ended:
        nccl_socket.parse(arguments)
    assert ended.value.code == 2
