# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench --mpi --save` and `--resume`: results of measurements that were ended before their end."""
import json
import os
import signal
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, children, environment, make_key, run, run_json, wait_exited
from mpi_support import FEW, MPI, MPIRUN, mpi, needs_mpi

# Each pair takes 1 s, so that a test can end a measurement in the middle.
SLOW = ['--duration', '0.6', '--size', '4K']
ENDING_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# Standard error of each rank in a file of its own, as mpirun may drop it.
LAUNCH = 'exec "$0" "$@" 2>"$FOLDER/errors.$OMPI_COMM_WORLD_RANK"'


def pairs(document, name='bytes_per_second'):
    """Returns the pairs with a value, in both directions."""
    return {(i, j): value for i, row in enumerate(document[name]) for j, value in enumerate(row) if value is not None}


def reset_signals():
    """Restores the default of signals that the environment of the test may ignore."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def begin(folder, ranks):
    """Starts a measurement; returns its process, and those of its ranks when the file of results has the first pair."""
    path = folder / 'all.json'
    process = subprocess.Popen([MPIRUN, '--oversubscribe', '-n', str(ranks), 'sh', '-c', LAUNCH, PEERLANE, 'bench', '--mpi',
                                *SLOW, '--save', path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=reset_signals, env=environment(**MPI, FOLDER=str(folder)))
    end = time.monotonic() + DEADLINE
    while not path.exists() or not pairs(json.loads(path.read_text())):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    return process, children(process.pid)


def kill_measurement(folder, ranks):
    """Ends a measurement and all its ranks in the middle, without a signal that they notice; returns its document."""
    path = folder / 'all.json'
    for _ in range(5):
        process, processes = begin(folder, ranks)
        for pid in [process.pid, *processes]:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE)
        wait_exited(processes)
        document = json.loads(path.read_text())
        assert pairs(document).keys() == pairs(document, 'latency_us').keys()
        if not document['complete'] and len(pairs(document)) < ranks * (ranks - 1):
            return document
        # The machine was so busy that the measurement ended first.
        path.unlink()
    raise AssertionError('every measurement ended before it was killed')


@needs_mpi
def test_results_of_a_killed_measurement_are_resumed(tmp_path):
    path = tmp_path / 'all.json'
    before = kill_measurement(tmp_path, 4)
    path.chmod(0o640)
    document = json.loads(mpi(4, *SLOW, '--resume', path, '--json').stdout)
    saved = json.loads(path.read_text())
    assert document == {**saved, 'time': document['time']} and document['complete'] and not document['failed']
    assert path.stat().st_mode & 0o777 == 0o640 and not list(tmp_path.glob('all.json.*'))
    assert len(pairs(document)) == len(pairs(document, 'latency_us')) == 12
    for name in ['bytes_per_second', 'latency_us']:
        assert {pair: pairs(document, name)[pair] for pair in pairs(before, name)} == pairs(before, name)
    assert document['seconds'] > before['seconds'] and document['reasons']
    # Nothing is left to measure.
    again = json.loads(mpi(4, *SLOW, '--resume', path, '--json').stdout)
    assert pairs(again) == pairs(document) and again['reason_of'] == document['reason_of']


@needs_mpi
def test_interrupted_matrices_are_read(tmp_path):
    path = tmp_path / 'all.json'
    document = kill_measurement(tmp_path, 3)
    missing = f'interrupted: {6 - len(pairs(document))} of 6 pairs are missing'
    whole = tmp_path / 'whole.json'
    full = [[None if i == j else 1e9 for j in range(3)] for i in range(3)]
    whole.write_text(json.dumps({**document, 'complete': True, 'bytes_per_second': full, 'latency_us': full}))
    compared = subprocess.run([PEERLANE, 'bench', 'compare', whole, path, '--json'], capture_output=True, text=True,
                              timeout=DEADLINE, env=environment())
    assert f'{path}: the measurement was {missing}' in compared.stderr and str(whole) not in compared.stderr
    verdicts = [result['verdict'] for result in json.loads(compared.stdout)['results']]
    assert verdicts.count('only before') == 2 * (6 - len(pairs(document)))
    sentences = run_json('report', path)['sentences']
    assert [one['warning'] for one in sentences if missing in one['text']] == [True]
    assert missing in run('report', path).stdout and missing in run('report', path, '-o', '-').stdout
    assert 'interrupted' not in run('report', whole).stdout


@needs_mpi
@pytest.mark.parametrize('number', ENDING_SIGNALS)
def test_an_interrupted_rank_names_its_results(tmp_path, number):
    process, processes = begin(tmp_path, 4)
    first, = [pid for pid in processes if 'OMPI_COMM_WORLD_RANK=0' in open(f'/proc/{pid}/environ').read().split('\0')]
    os.kill(first, number)
    process.communicate(timeout=DEADLINE)
    wait_exited(processes)
    # 128 and the number: rank 0 has ended by the signal.
    assert process.returncode == 128 + number
    message = (tmp_path / 'errors.0').read_text()
    count = len(pairs(json.loads((tmp_path / 'all.json').read_text()))) // 2
    assert f'{tmp_path}/all.json has the results of {count} of 6 pairs' in message and '--resume' in message
    assert not list(tmp_path.glob('all.json.*'))


@needs_mpi
def test_interrupted_mpirun_leaves_the_results(tmp_path):
    process, processes = begin(tmp_path, 4)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    wait_exited(processes)
    assert process.returncode and pairs(json.loads((tmp_path / 'all.json').read_text()))


@needs_mpi
def test_refused_files_stay(tmp_path):
    """All ranks end, and the file is left as it was.  test_matrix_resume has all differences and defects."""
    path = tmp_path / 'all.json'
    mpi(2, *FEW, '--save', path)
    good = path.read_text()
    errors = mpi(2, *FEW, '--size', '8K', '--resume', path, expect=1).stderr
    assert '[MATRIX-OTHER]' in errors and '--size differs: the file has 4096, this measurement 8192' in errors
    assert '[MPI-RANK]' in errors and path.read_text() == good
    assert 'number of ranks differs' in mpi(3, *FEW, '--resume', path, expect=1).stderr and path.read_text() == good
    path.write_text(good[:-9])
    done = mpi(2, *FEW, '--resume', path, expect=1)
    assert '[MATRIX-DAMAGED]' in done.stderr and path.read_text() == good[:-9] and not done.stdout


@needs_mpi
def test_files_that_cannot_take_results(tmp_path):
    """The measurement ends before it begins, in place of losing its results at its end."""
    existing = tmp_path / 'existing'
    existing.write_text('results of a night')
    assert '[MATRIX-SAVE-EXISTS]' in mpi(2, *FEW, '--save', existing, expect=1).stderr
    assert existing.read_text() == 'results of a night'
    assert '[MATRIX-SAVE-EXISTS]' in mpi(2, *FEW, '--save', '/dev/stdout', expect=1).stderr
    assert 'No such file' in mpi(2, *FEW, '--save', tmp_path / 'none' / 'all.json', expect=1).stderr
    assert '[MATRIX-DAMAGED]' in mpi(2, *FEW, '--resume', '/dev/null', expect=1).stderr


@needs_mpi
def test_a_resumed_link_stays_a_link(tmp_path):
    path, link = tmp_path / 'all.json', tmp_path / 'link'
    mpi(2, *FEW, '--save', path)
    link.symlink_to(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), 'complete': False}))
    mpi(2, *FEW, '--resume', link)
    assert link.is_symlink() and json.loads(path.read_text())['complete']
