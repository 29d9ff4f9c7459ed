# SPDX-License-Identifier: BSD-2-Clause
"""Documents that the scripts in benchmarks/ make from results of other tools; the tools are not needed."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import jsonschema
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


# -- benchmarks/machine, with programs that print what the real ones printed -----------------------------------

BLOCKS = """\
Vectors of scattered blocks, GPU 0 to GPU 1 of another process, GB/s, median of 21
  256 x  64 KiB: write  225.6, prepared  247.2, read  219.7; 32 multiprocessors  231.1; copies   13.9; cuMemcpyAsync   24.7, \
cuMemcpyBatchAsync   48.3
 4096 x  64 KiB: write  318.5, prepared  351.9, read  328.2; 32 multiprocessors  324.3; copies   13.6; cuMemcpyAsync   24.3, \
cuMemcpyBatchAsync   49.9
  local: a kernel of the GPU copies from one process's memory to the other's
"""
HOST_BLOCKS = """\
Vectors of scattered blocks, host memory and GPU 0, GB/s, median of 21; one copy of 256 MiB: to the GPU 55.3, from it 55.1
other's host,  256 x   4 KiB, to and from the GPU: kernel  0.52 (0 of 21), prepared  0.50, copies  0.51, cuMemcpyAsync  1.52; \
kernel 26.00 (20 of 21), prepared 30.60, copies  0.52, cuMemcpyAsync  2.01
other's host, 4096 x  64 KiB, to and from the GPU: kernel 49.54 (21 of 21), prepared 50.56, copies  9.62, cuMemcpyAsync 17.06; \
kernel 49.00 (21 of 21), prepared 51.57, copies  9.63, cuMemcpyAsync 17.40
own host,   64 x  64 KiB, to and from the GPU: kernel 37.12 (21 of 21), prepared 37.99, copies 10.22, cuMemcpyAsync 16.03; \
kernel 38.23 (21 of 21), prepared 39.70, copies  9.86, cuMemcpyAsync 17.86
own host, not locked,   64 x  64 KiB, to and from the GPU: kernel 12.10 (21 of 21), prepared 12.20, copies 12.00, cuMemcpyAsync 16.03; \
kernel  9.90 (0 of 21), prepared  9.80, copies  9.70, cuMemcpyAsync 17.86
"""
PEER = """\
GPU 0 to GPU 1 of another process
manual progress: write 1024 MiB 393.5 GB/s, cuMemcpyPeerAsync 395.2, ratio 0.996; read 390.1 GB/s
manual progress: write 8 bytes p50 7.70 us, p99 11.90 us; cuMemcpyPeerAsync and cuStreamSynchronize p50 7.50 us
"""
FRAMES = """\
frames from GPU 0 of another process to GPU 1
latency of a word to a waiting stream and back: p50 4.5 us, p99 9.0 us
latency of 8 KiB from publication to the stream, and back to the host: p50 15.8 us, p99 30.0 us
rate of 64 MiB frames: 389.0 GB/s, cuMemcpyPeerAsync 386.0, ratio 1.008; the program's thread slept 3 times
"""


@pytest.fixture
def machine(monkeypatch):
    """The modules of benchmarks/machine, and a run on a machine with two GPUs whose programs print given texts."""
    monkeypatch.syspath_prepend(str(BENCH))
    import machine_gpu
    import machine_run

    class Recorded(machine_run.Run):
        """`texts`: what each program prints, or a function of its arguments; a script is named by its file."""

        def __init__(self, texts, cores=32, gpus=2, rounds=1):
            self.cores, self.gpus, self.rounds, self.seconds = cores, [{'name': 'H200'}] * gpus, rounds, 0.1
            self.figures, self.failures, self.left_out, self.save_path = [], [], [], None
            self.environment = dict(os.environ)
            self.section, self.texts = machine_gpu.SECTIONS[0], texts

        def output(self, *command, **_):
            words = [str(word) for word in command if word != sys.executable]
            text = self.texts[os.path.basename(words[0])]
            return text(*words[1:]) if callable(text) else text

        def path(self, name):
            return name

        def rows(self, measure):
            measure(self)
            return {row['what']: row for row in self.figures}

    machine_gpu.Recorded = Recorded
    return machine_gpu


def test_machine_judges_what_programs_print(machine):
    rows = machine.Recorded({'gpu_blocks': BLOCKS}).rows(machine.gpu_blocks)
    assert rows['GPU 0 to 1, 4096 x 64 KiB, write']['met'] is False and rows['GPU 0 to 1, 4096 x 64 KiB, prepared']['met'] is True
    assert rows['GPU 0 to 1, 4096 x 64 KiB, read']['goal'] is None and rows['GPU 0 to 1, 256 x 64 KiB, write']['peer_figure'] == 48.3
    rows = machine.Recorded({'gpu_frames': FRAMES}).rows(machine.gpu_frames)
    assert rows['GPU 0 to 1, frames of 64 MiB']['met'] is True and rows['GPU 0 to 1, 8 KiB to a waiting stream']['met'] is False
    rows = machine.Recorded({'gpu_peer': PEER}).rows(machine.gpu_peer)
    assert rows['GPU 0 to 1, 1024 MiB, manual progress']['ratio'] == 0.996
    assert rows['GPU 0 to 1, 8 bytes, manual progress']['peer_figure'] == 7.5
    empty = json.dumps({'results': [{'size': 16 << 20, 'bytes_per_second': 19e9}]})
    rows = machine.Recorded({'gpu_blocks': HOST_BLOCKS, 'peerlane': empty}).rows(machine.host_gpu)
    assert rows["other's host, 4096 x 64 KiB, to GPU"]['met'] is False
    assert rows["other's host, 4096 x 64 KiB, from GPU"]['ratio'] == pytest.approx(49.00 / 55.1)
    assert rows['own host, 64 x 64 KiB, from GPU']['figure'] == 38.23 and rows['own host, 64 x 64 KiB, from GPU']['goal'] is None
    assert rows["other's host, 256 x 4 KiB, to GPU"]['note'] == 'copies did the work of 21 of 21 vectors'
    assert rows["other's host, 256 x 4 KiB, from GPU"]['note'] == 'copies did the work of 1 of 21 vectors'
    assert rows['own host, 64 x 64 KiB, to GPU']['note'] is None
    assert rows['own host, not locked, 64 x 64 KiB, to GPU']['note'] is None
    assert rows['own host, not locked, 64 x 64 KiB, from GPU']['note'] == 'copies did the work of 21 of 21 vectors'
    assert rows['own host, not locked, 64 x 64 KiB, to GPU']['met'] is True
    assert rows['own host, not locked, 64 x 64 KiB, from GPU']['met'] is False
    assert rows["write by the GPU's owner, 16M"]['met'] is False


def test_machine_compares_arms_of_a_workflow(machine):
    results = [{'arm': arm, 'size': size << 20, 'bytes_per_second': rate * 1e9} for size in (1, 4, 8)
               for arm, rate in {'A': 4, 'AO': 20, 'B': 5, 'BO': 21, 'BP': 10, 'S': 22}.items()]
    texts = {'peerlane': json.dumps({'results': results})}
    rows = machine.Recorded(texts).rows(machine.workflow_tcp)
    assert rows['tcp, BO next to AO, 1M']['met'] is True and rows['tcp, S, 8M, GPU']['ratio'] == 5.5
    rows = machine.Recorded(texts).rows(machine.workflow_local)
    assert [rows[f'local, {pair}, 8M']['met'] for pair in ('BP next to BO', 'S next to BO', 'S next to A')] == [False, True, False]
    rows = machine.Recorded(texts, gpus=0).rows(machine.workflow_tcp)
    assert rows['tcp, BO next to AO, 1M']['not_judged'] == 'for 1 GPU' and 'tcp, S, 8M, simulated' in rows
    rows = machine.Recorded(texts, cores=2).rows(machine.workflow_tcp)
    assert rows['tcp, BO next to AO, 1M']['met'] is None and rows['tcp, BO next to AO, 1M']['not_judged'] == 'for 16 cores or more'


def test_machine_tells_failed_tests_from_skipped_ones(machine):
    passed = '[       OK ] one\n[  SKIPPED ] two\n[  PASSED  ] 1 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] two\n'
    for text, failed in [(passed, 0), (passed + '[  FAILED  ] GPU: 1 test(s), listed below:\n[  FAILED  ] three\n', 1), ('killed', 1)]:
        run = machine.Recorded({'test_gpu': text})
        machine.tests_of(run, 'test_gpu', 'test_gpu')
        assert len(run.failures) == failed and run.figures[0]['figure'] == text.count('OK')
    assert run.failures[0]['message'] == 'test_gpu: killed'
    assert machine.Recorded({'test_gpu': passed}).rows(lambda run: machine.tests_of(run, 'x', 'test_gpu'))['x']['unit'] == \
        'passed, 1 skipped'


def build_folder(tmp_path, **programs):
    """A build folder whose programs are shell scripts; without GPUs."""
    (tmp_path / 'benchmarks').mkdir()
    for name, script in {'peerlane': "echo '{\"gpus\": []}'", **programs}.items():
        path = tmp_path / name if name == 'peerlane' else tmp_path / 'benchmarks' / name
        path.write_text('#!/bin/sh\n' + script + '\n')
        path.chmod(0o755)
    return tmp_path


def run_machine(*options):
    return subprocess.run([sys.executable, BENCH / 'machine', *options], capture_output=True, text=True, timeout=DEADLINE)


def test_machine_without_gpus_says_what_it_leaves_out(tmp_path):
    build = build_folder(tmp_path, local_threads='echo "$3 1000000 100.0 900"')
    done = run_machine('--build', build, '--only', 'threads,gpu-peer,peer-rate', '--rounds', '2', '--save', tmp_path / 'goals.json')
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'not measured: gpu-peer: 0 of 1 GPU' in done.stdout and 'not measured: peer-rate: peer_rate is not built' in done.stdout
    document = json.loads((tmp_path / 'goals.json').read_text())
    jsonschema.validate(document, json.loads((BENCH.parent / 'docs/goals.schema.json').read_text()))
    assert document['complete'] and document['kind'] == 'goals' and document['machine']['cores'] == os.cpu_count() and not document['failures']
    assert [one['section'] for one in document['sections']] == ['threads'] and len(document['left_out']) == 2
    row = next(row for row in document['figures'] if row['what'] == 'local, 8 bytes, 1 thread, p99.9')
    assert (row['figure'], row['unit'], row['goal']) == (0.9, 'us', '<= 1')
    assert run_machine('--build', build, '--only', 'gpu-peer').returncode == 77


def test_machine_cuts_sections_off(tmp_path):
    pid = tmp_path / 'pid'
    build = build_folder(tmp_path, local_threads=f'sleep 1000 & echo $! >{pid}; wait', peer_rate='echo wrong >&2; exit 3')
    done = run_machine('--build', build, '--only', 'threads,peer-rate', '--limit', '2')
    assert done.returncode == 1
    assert 'failed: threads: cut off after' in done.stdout and 'failed: peer-rate:' in done.stdout
    # The script may have had no time to begin.
    end = time.monotonic() + DEADLINE
    while pid.exists() and pid.read_text() and alive(int(pid.read_text())):
        assert time.monotonic() < end, 'a child of the program still runs'
        time.sleep(0.01)


def test_machine_names_what_is_wrong(tmp_path):
    build = build_folder(tmp_path, peerlane="echo '{\"gpus\": [{\"name\": \"H200\"}]}'", gpu_peer='echo in other words', local_threads=
                         f'echo >>{tmp_path}/ran; echo 1 1 1 1', raw_sockets="echo '{\"bytes_per_second\": 0}'",
                         tcp_posters="echo '{\"bytes_per_second\": 1}'")
    done = run_machine('--build', build, '--only', 'gpu-peer,tcp-peers')
    assert done.returncode == 1 and 'failed: gpu-peer: its programs printed no figures' in done.stdout
    assert 'failed: tcp-peers: ZeroDivisionError' in done.stdout
    done = run_machine('--build', tmp_path / 'none')
    assert done.returncode == 1 and re.fullmatch('machine: .*/none/peerlane: No such file or directory; `make` .*\n', done.stderr)
    # Before it measures anything.
    done = run_machine('--build', build, '--only', 'threads', '--save', tmp_path / 'none/goals.json')
    assert done.returncode == 1 and done.stderr == f'machine: {tmp_path}/none/goals.json: No such file or directory\n'
    assert not (tmp_path / 'ran').exists()


def test_machine_keeps_its_time_and_order(tmp_path):
    """The first section never ends, the second one cannot begin; sections run in the order of --only."""
    build = build_folder(tmp_path, raw_sockets='exec sleep 1000', peer_rate='echo 1', local_threads='echo 1')
    saved = tmp_path / 'goals.json'
    done = run_machine('--build', build, '--only', 'gpu-peer,tcp,peer-rate', '--time', '3', '--save', saved)
    assert done.returncode == 1 and 'not measured: gpu-peer: 0 of 1 GPU' in done.stdout
    # Neither the limit of a program nor that of the section ended it.
    assert 'failed: tcp: cut off after' in done.stdout and 'took more than' not in done.stdout
    assert 'failed: peer-rate: not begun: no time was left' in done.stdout
    assert json.loads(saved.read_text())['complete'] is True
    (build / 'benchmarks/peer_rate').write_text('#!/bin/sh\nexit 1\n')
    done = run_machine('--build', build, '--only', 'peer-rate,threads', '--limit', '1')
    assert re.findall('^(peer-rate|threads): [^0-9]', done.stdout, re.M) == ['peer-rate', 'threads']


def test_machine_goes_on_after_a_part_failed(tmp_path):
    """A program of a section fails and another one takes too long: the others are measured."""
    build = build_folder(tmp_path, local_threads=f'[ "$3" = 1 ] && exit 3; [ "$3" = 8 ] && exit 4; echo "$3 1000000 100.0 900"')
    done = run_machine('--build', build, '--only', 'threads', '--rounds', '1')
    assert done.returncode == 1 and 'failed: threads: local_threads local 8 1 0.2: status 3' in done.stdout
    if len(os.sched_getaffinity(0)) > 1:
        assert 'local, 8 bytes, 2 threads: 1 Mops/s' in done.stdout


def test_machine_ends_programs_that_take_too_long(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import machine_programs
    with pytest.raises(machine_programs.Failed, match='sleep 1000: took more than 1 s'):
        machine_programs.output_of(['sleep', '1000'], time.monotonic() + DEADLINE, 1, dict(os.environ))
    with pytest.raises(machine_programs.Cut, match='at its limit in sleep 1000'):
        machine_programs.output_of(['sleep', '1000'], time.monotonic() + 1, DEADLINE, dict(os.environ))
    with pytest.raises(machine_programs.Cut, match='no time was left'):
        machine_programs.output_of(['sleep', '1000'], time.monotonic(), DEADLINE, dict(os.environ))


def test_machine_does_not_wait_for_what_a_program_left(tmp_path):
    """A process that holds the output open is killed once the program has ended."""
    pid = tmp_path / 'pid'
    build = build_folder(tmp_path, local_threads=f'sleep 1000 & echo $! >>{pid}; echo "$3 1000000 100.0 900"')
    done = run_machine('--build', build, '--only', 'threads', '--rounds', '1', '--limit', str(DEADLINE))
    assert done.returncode == 0 and 'local, 8 bytes, 1 thread: 1 Mops/s' in done.stdout
    assert pid.read_text() and not any(alive(int(each)) for each in pid.read_text().split())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='one core has one figure of threads')
def test_machine_keeps_figures_of_a_killed_run(tmp_path):
    """Not even a signal that cannot be caught loses the figures of the section that runs."""
    mark, saved = tmp_path / 'mark', tmp_path / 'goals.json'
    build = build_folder(tmp_path, local_threads=f'[ "$3" = 1 ] || {{ echo >{mark}; exec sleep 20; }}; echo 1 1000000 1 900')
    with subprocess.Popen([sys.executable, BENCH / 'machine', '--build', build, '--only', 'threads', '--rounds', '1', '--save', saved],
                          stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + DEADLINE
        while not mark.exists():
            assert time.monotonic() < end, 'the program did not begin'
            time.sleep(0.01)
        process.kill()
    document = json.loads(saved.read_text())
    assert [row['what'] for row in document['figures']] == ['local, 8 bytes, 1 thread', 'local, 8 bytes, 1 thread, p99.9']
    assert document['complete'] is False


def test_machine_ends_what_left_its_session(tmp_path):
    """A server in a session of its own, as of tcp_vs_peers, is killed, too."""
    pid = tmp_path / 'pid'
    build = build_folder(tmp_path, local_threads=f'setsid sleep 1000 >/dev/null 2>&1 & echo $! >{pid}; exec sleep 1000')
    done = run_machine('--build', build, '--only', 'threads', '--limit', '2')
    assert 'failed: threads: cut off after' in done.stdout
    end = time.monotonic() + DEADLINE
    while pid.exists() and pid.read_text() and alive(int(pid.read_text())):
        assert time.monotonic() < end, 'a server still runs'
        time.sleep(0.01)


def rates_of(values):
    """Returns a program that prints these rates, one after the other."""
    rest = list(values)
    return lambda *_: json.dumps({'bytes_per_second': rest.pop(0)})


def test_machine_judges_medians_of_ratios(machine):
    """The ratio is the median of the ratios of each round, and not that of the medians."""
    import machine_host
    run = machine.Recorded({'raw_sockets': rates_of([10e9, 20e9, 40e9]), 'tcp_posters': rates_of([9e9, 16e9, 36e9])}, rounds=3)
    machine_host.eight_peers(run, ('send',), 8, 4, 1 << 20, 32)
    row, = run.figures
    assert (row['what'], row['figure'], row['peer_figure']) == ('8 peers, send 1M, 4 sockets each', 16, 20)
    assert row['ratio'] == pytest.approx(0.9) and row['met'] is True and row['least'] == 0.85
    # Plain sockets have as many bytes in buffers.
    calls = []
    machine_host.eight_peers(machine.Recorded({'raw_sockets': lambda *words: calls.append(words) or '{"bytes_per_second": 1}',
                                               'tcp_posters': '{"bytes_per_second": 1}'}), ('send',), 8, 2, 1 << 20, 32)
    assert calls == [('16', str(1 << 20), str(256 << 20), '0.1')]


def test_machine_measures_all_goals_of_tcp(machine, monkeypatch):
    import machine_host

    def ceiling(*words):
        options = dict(zip(words, words[1:]))
        return json.dumps([{'sockets': int(options['--sockets']), 'size': options['--sizes'], 'plain': 8e9, 'cipher': 4e9, 'ceiling': 5e9,
                            'bytes_per_second': 4e9, 'ratio': 0.8, 'seconds_per_gigabyte': 0.5}])
    rows = machine.Recorded({'tcp_ceiling': ceiling}).rows(machine_host.tcp)
    assert {what.split(',')[0] for what in rows} == {f'{operation} {size}' for operation in ('write', 'read', 'send')
                                                     for size in ('16K', '64K', '1M', '16M')}
    assert rows['read 1M, 16 sockets']['met'] is True and rows['read 1M, 4 sockets']['met'] is False
    assert rows['send 64K, default lanes']['ratio'] == 1 and 'send 16K, default lanes' not in rows
    rows = machine.Recorded({'tcp_ceiling': ceiling}).rows(machine_host.tcp_encrypted)
    assert set(rows) == {f'encrypted, write {size}, {count} socket{"s" if count > 1 else ""}' for size in ('64K', '1M')
                         for count in (1, 2, 4, 8)}
    assert rows['encrypted, write 1M, 4 sockets']['note'] == 'A 4, R 2 a socket'
    monkeypatch.setattr(machine_host, 'available_memory', lambda: 1 << 30)
    run = machine.Recorded({'tcp_ceiling': ceiling})
    rows = run.rows(machine_host.tcp_large)
    assert 'write 64M, 8 sockets' in rows and not any('1G' in what for what in rows)
    assert run.left_out == [{'section': run.section.name, 'what': 'messages of 1G', 'reason': '1.0 of 3.0 GiB of memory available'}]
    peers = machine.Recorded({'raw_sockets': '{"bytes_per_second": 1}', 'tcp_posters': '{"bytes_per_second": 1}'}).rows(
        machine_host.tcp_peers)
    assert {f'8 peers, send {size}, {count} socket{"s" if count > 1 else ""} each' for size in ('64K', '256K', '1M')
            for count in (1, 2, 4, 8)} <= set(peers)


def test_machine_measures_without_other_tools(machine, monkeypatch):
    import machine_host

    def compare(*words):
        case = words[-1]
        row = {'what': case, 'peerlane': 5, 'unit': 'us', 'peer': 'UCX', 'peer_value': None, 'ratio': None, 'not_judged': None}
        if 'latency' in case:
            row.update(peer_value=10, ratio=2.0)
        pathlib.Path(words[words.index('--json') + 1]).write_text(json.dumps({'rows': [row]}))
        return ''
    run = machine.Recorded({'tcp_vs_peers': compare})
    rows = run.rows(machine_host.tcp_tools)
    assert rows['latency-send']['met'] is True and rows['write-16M-iperf3']['not_judged'] == 'not measured'
    assert [one['reason'] for one in run.left_out] == ['no ucx_perftest', 'no iperf3'] and not run.failures


@pytest.fixture
def tcp_vs_peers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    loader = importlib.machinery.SourceFileLoader('tcp_vs_peers', str(BENCH / 'tcp_vs_peers'))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader('tcp_vs_peers', loader))
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    loader.exec_module(script)
    return script


def test_best_test_of_ucx_counts(tcp_vs_peers, monkeypatch):
    bandwidths = {'ucp_put_bw': 45, 'tag_bw': 3000}
    monkeypatch.setattr(tcp_vs_peers, 'write_rate', lambda _: 6e9)
    monkeypatch.setattr(tcp_vs_peers, 'ucx', lambda test, *_: {'overall_bw': bandwidths[test]})
    monkeypatch.setattr(tcp_vs_peers, 'iperf', lambda _: 5e9)
    for missing, row in ((None, (6e9, 3000 << 20, 5e9)), ('iperf3', (6e9, 3000 << 20, None)), ('ucx_perftest', (6e9, None, 5e9))):
        monkeypatch.setattr(tcp_vs_peers, 'present', lambda tool, missing=missing: tool != missing)
        assert tcp_vs_peers.large_against_ucx(None) == row


def test_too_slow_peer_is_not_judged(tcp_vs_peers, capsys):
    """A rate of UCX below a tenth of that of iperf3 tells nothing of Peerlane."""
    for ucx, reason in ((0.045e9, 'UCX tcp, put or tag has 0.009 of the rate of iperf3'), (0.49e9, '0.098 of'), (0.5e9, None), (3e9, None)):
        row = tcp_vs_peers.row_of('write-16M-ucx', [(6e9, ucx, 5e9)] * 3)
        assert (row['peer_value'], row['ratio']) == (pytest.approx(ucx / 1e9), pytest.approx(6e9 / ucx))
        assert row['rounds'] == [[6, pytest.approx(ucx / 1e9)]] * 3
        tcp_vs_peers.show(row)
        shown = capsys.readouterr().out
        if reason:
            assert reason in row['not_judged'] and f'not judged: {row["not_judged"]}' in shown
        else:
            assert row['not_judged'] is None and 'ratio >= 1.5' in shown
    # Without one of both, and for other cases, there is nothing to compare with.
    for name, values in (('write-16M-ucx', (6e9, 1e6, None)), ('write-16M-ucx', (6e9, None, 5e9)), ('write-16M-iperf3', (6e9, 1e6))):
        assert tcp_vs_peers.row_of(name, [values])['not_judged'] is None
    measured = {one.tool: one for one in tcp_vs_peers.measured_in({'write-16M-ucx': [(6e9, 3e9, 5e9)], 'write-16M-iperf3': [(7e9, 5e9)]})}
    assert sorted(measured) == ['iperf3', 'peerlane', 'ucx']


def test_machine_does_not_judge_too_slow_peer(machine):
    import machine_host

    def compare(*words):
        row = {'what': words[-1], 'peerlane': 6, 'unit': 'GB/s', 'peer': 'UCX', 'peer_value': 0.045, 'ratio': 133, 'not_judged': 'too slow'}
        pathlib.Path(words[words.index('--json') + 1]).write_text(json.dumps({'rows': [row]}))
        return ''
    rows = machine.Recorded({'tcp_vs_peers': compare}).rows(machine_host.tcp_tools)
    assert rows['write-16M-ucx']['met'] is None and rows['write-16M-ucx']['not_judged'] == 'too slow'


def test_machine_measures_scale(machine, monkeypatch):
    import machine_host

    def program(subject, count, *_):
        slow = 4 if subject == 'grants' and count == '100000' else 1
        return json.dumps({'failed': int(subject == 'connect' and count == '4000'), 'per_second': 3000, 'microseconds': 10,
                           'register_microseconds': 12, 'deregister_microseconds': 2 * slow, 'share_microseconds': 1,
                           'revoke_microseconds': 0})
    monkeypatch.setattr(machine_host.resource, 'getrlimit', lambda _: (1024, 1 << 20))
    run = machine.Recorded({'scale': program})
    rows = run.rows(machine_host.scale)
    assert rows['1,000 connections at once, failed']['met'] is True
    assert rows['4,000 connections at once with a key, failed']['met'] is False
    assert rows['deregister with a grant beside 100,000 grants']['met'] is False
    assert rows['register beside 100,000 regions']['met'] is True
    # A time that is too short to be seen is no failure.
    assert rows['revoke beside 1,000 grants']['not_judged'] == 'not measured' and not run.failures
    monkeypatch.setattr(machine_host.resource, 'getrlimit', lambda _: (1024, 4096))
    run = machine.Recorded({'scale': program})
    rows = run.rows(machine_host.scale)
    assert '1,000 connections at once' in rows and not any('4,000' in what for what in rows)
    assert run.left_out[0]['reason'] == '8,200 descriptors are needed, 4,096 allowed (ulimit -Hn)'


def test_machine_ends_its_programs_with_itself(tmp_path):
    pid, saved = tmp_path / 'pid', tmp_path / 'goals.json'
    build = build_folder(tmp_path, peer_rate=f'sleep 1000 & echo $! >{pid}; wait', local_threads='echo 1 1000000 1 900')
    process = subprocess.Popen([sys.executable, BENCH / 'machine', '--build', build, '--only', 'threads,peer-rate', '--save', saved,
                                '--limit', str(DEADLINE)], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + DEADLINE
    while not pid.exists() or not pid.read_text():
        assert time.monotonic() < end, 'the program did not begin'
        time.sleep(0.01)
    process.terminate()
    shown = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == 128 + signal.SIGTERM and 'failed: peer-rate: interrupted' in shown
    assert json.loads(saved.read_text())['figures']
    while alive(int(pid.read_text())):
        assert time.monotonic() < end, 'a child of the program still runs'
        time.sleep(0.01)


def alive(pid):
    """True if the process runs; a zombie does not."""
    try:
        state = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in 'ZX'


def test_machine_lists_and_chooses_sections(tmp_path):
    done = run_machine('--list')
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert done.returncode == 0 and len(names) == len(set(names))
    for name in ('tcp', 'tcp-peers', 'tcp-encrypted', 'threads', 'peer-rate', 'stream-fanout', 'stream-in-place', 'workflow-tcp',
                 'host-gpu', 'gpu-latency'):
        assert name in names
    for wrong in (['--only', 'cpu'], ['--skip', 'tcp,gpu'], ['--rounds', '0'], ['--limit', '0'],
                  ['--time', '-1'], ['--time', 'nan', '--list'], ['--seconds', 'nan', '--list']):
        done = run_machine(*wrong)
        assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith('machine: error: ')


@pytest.mark.skipif(not shutil.which('strip') or not shutil.which('ldd'), reason='no strip or ldd')
def test_machine_pack(tmp_path):
    """Programs of the system stand in for those of a build; scripts are no programs."""
    build, packed = tmp_path / 'build', tmp_path / 'packed'
    (build / 'benchmarks').mkdir(parents=True)
    shutil.copy(shutil.which('true'), build / 'peerlane')
    shutil.copy(shutil.which('true'), build / 'benchmarks/raw_sockets')
    (build / 'benchmarks/script').write_text('#!/bin/sh\n')
    (build / 'benchmarks/script').chmod(0o755)
    command = [sys.executable, BENCH / 'machine_pack', packed, '--build', build]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert 'without the package for Python' in done.stdout and re.search(r'packed: [\d.]+ MiB', done.stdout)
    assert [path.name for path in (packed / 'benchmarks').iterdir()] == ['raw_sockets']
    assert subprocess.run([packed / 'peerlane'], timeout=DEADLINE).returncode == 0
    assert not any(re.match(r'lib(c|m|dl|pthread|ssl|crypto|stdc\+\+)\.so', path.name) for path in packed.rglob('*'))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 2 and 'exists' in done.stderr
    done = subprocess.run([*command[:2], tmp_path / 'other', '--build', tmp_path], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 2 and 'is not built' in done.stderr


def test_machine_uses_libraries_and_commands_of_a_packed_folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import machine_programs
    monkeypatch.setenv('LD_LIBRARY_PATH', '/driver')
    assert machine_programs.environment_of(tmp_path)['LD_LIBRARY_PATH'] == '/driver'
    for name in ('lib', 'bin'):
        (tmp_path / name).mkdir()
    environment = machine_programs.environment_of(tmp_path)
    assert environment['LD_LIBRARY_PATH'] == f'/driver:{tmp_path}/lib' and environment['PATH'].endswith(f':{tmp_path}/bin')


def test_ceiling_prints_rows(tmp_path):
    """The rows of `tcp_ceiling --json` and those of its table are the same."""
    raw = tmp_path / 'raw'
    raw.write_text('#!/bin/sh\necho \'{"bytes_per_second": 4000000000}\'\n')
    command = tmp_path / 'command'
    command.write_text('#!/bin/sh\necho \'{"results": [{"bytes_per_second": 3000000000, "cpu_percent": 90, '
                       '"server_cpu_percent": null}]}\'\n')
    for path in (raw, command):
        path.chmod(0o755)
    options = [sys.executable, BENCH / 'tcp_ceiling', '--raw', raw, '--command', command, '--sockets', '0,2', '--sizes', '1M']
    text = subprocess.run(options, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    assert [line.split()[:5] for line in text.splitlines()[-2:]] == [[sockets, '1M', '4.00', '3.00', '0.75'] for sockets in
                                                                     ('default', '2')]
    rows = json.loads(subprocess.run([*options, '--json'], capture_output=True, text=True, timeout=DEADLINE, check=True).stdout)
    assert rows == [{'sockets': sockets, 'size': '1M', 'plain': 4e9, 'cipher': None, 'ceiling': 4e9, 'bytes_per_second': 3e9, 'ratio': 0.75,
                     'seconds_per_gigabyte': 0.3} for sockets in (0, 2)]
    # With encryption: 2 / (1 / 4 + 2 / 4), and both ends have the same memory.
    calls = tmp_path / 'calls'
    for path in (raw, command):
        path.write_text(path.read_text().replace('echo', f'echo "$@" >>{calls}\necho', 1))
    rows = json.loads(subprocess.run([*options, '--json', '--encrypt', '--sizes', '64M', '--rounds', '1', '--sockets', '2'],
                                     capture_output=True, text=True, timeout=DEADLINE, check=True).stdout)
    assert rows[0]['ceiling'] == pytest.approx(2e9 / 0.75) and rows[0]['ratio'] == pytest.approx(3 / 2 * 0.75)
    assert (rows[0]['cipher'], rows[0]['plain']) == (4e9, 4e9)
    lines = calls.read_text().splitlines()
    assert lines[:2] == ['cipher 1', f'2 {64 << 20} {128 << 20} 1'] and f'--working-set {128 << 20}' in lines[2]
    raw.write_text('#!/bin/sh\necho \'{"bytes_per_second": 0}\'\n')
    done = subprocess.run(options, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1 and 'allow more --seconds' in done.stderr
