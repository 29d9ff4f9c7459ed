# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane bench --mpi --save` and `--resume`: results of measurements that were ended before their end."""
import copy
import json
import os
import signal
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, children, environment, run, run_json, wait_exited
from mpi_support import FEW, MPI, MPIRUN, mpi, needs_mpi

# Seconds that no measurement of these tests reaches.
ENDLESS = 600.0
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


def launch(folder, ranks, *arguments):
    return subprocess.Popen([MPIRUN, '--oversubscribe', '-n', str(ranks), 'sh', '-c', LAUNCH, PEERLANE, 'bench', '--mpi',
                             '--size', '4K', *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=reset_signals, env=environment(**MPI, FOLDER=str(folder)))


def kill(process):
    """Ends a measurement and all its ranks without a signal that they notice."""
    processes = children(process.pid)
    for pid in [process.pid, *processes]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE)
    wait_exited(processes)


@pytest.fixture(scope='module')
def measured(tmp_path_factory):
    """Document of a complete measurement of three ranks."""
    path = tmp_path_factory.mktemp('measured') / 'all.json'
    mpi(3, *FEW, '--save', path)
    return json.loads(path.read_text())


def save_with_duration(path, document, seconds):
    """Saves results as those of a measurement with another --duration, which --resume demands again."""
    document = copy.deepcopy(document)
    document['options']['duration'] = seconds
    path.write_text(json.dumps(document))


def begin(folder, measured):
    """Resumes a measurement of three ranks with the results of one pair, which does not end.  Returns its process, and
    those of its ranks when they measure."""
    path = folder / 'all.json'
    document = {**copy.deepcopy(measured), 'complete': False}
    for name in ['bytes_per_second', 'latency_us', 'reason_of']:
        for i, j in set(pairs(document, name)) - {(0, 1), (1, 0)}:
            document[name][i][j] = None
    save_with_duration(path, document, ENDLESS)
    planted = path.stat().st_ino
    process = launch(folder, 3, '--duration', ENDLESS, '--resume', path)
    end = time.monotonic() + DEADLINE
    # Rank 0 replaces the file before it measures.
    while path.stat().st_ino == planted:
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    return process, children(process.pid)


def kill_growing_measurement(path, ranks):
    """Kills a measurement when it has saved some of its pairs; returns its document."""
    # On a busy machine a save takes long and saves are few, so that a short measurement ends before one of its middle.
    for seconds in [1, 5, 25]:
        process = launch(path.parent, ranks, '--duration', seconds, '--save', path)
        while process.poll() is None and not (path.exists() and pairs(json.loads(path.read_text()))):
            time.sleep(0.01)
        kill(process)
        document = json.loads(path.read_text())
        assert pairs(document).keys() == pairs(document, 'latency_us').keys()
        if not document['complete'] and 0 < len(pairs(document)) < ranks * (ranks - 1):
            return document
        path.unlink()
    raise AssertionError('every measurement ended before it was killed')


@needs_mpi
def test_results_of_a_killed_measurement_are_resumed(tmp_path):
    path = tmp_path / 'all.json'
    before = kill_growing_measurement(path, 5)
    # The rest is measured in a short time.
    save_with_duration(path, before, 0.004)
    path.chmod(0o640)
    document = json.loads(mpi(5, *FEW, '--resume', path, '--json').stdout)
    saved = json.loads(path.read_text())
    assert document == {**saved, 'time': document['time']} and document['complete'] and not document['failed']
    assert path.stat().st_mode & 0o777 == 0o640 and not list(tmp_path.glob('all.json.*'))
    assert len(pairs(document)) == len(pairs(document, 'latency_us')) == 20
    for name in ['bytes_per_second', 'latency_us']:
        assert {pair: pairs(document, name)[pair] for pair in pairs(before, name)} == pairs(before, name)
    assert document['seconds'] > before['seconds'] and document['reasons']
    # Nothing is left to measure.
    again = json.loads(mpi(5, *FEW, '--resume', path, '--json').stdout)
    assert pairs(again) == pairs(document) and again['reason_of'] == document['reason_of']


@needs_mpi
def test_interrupted_matrices_are_read(tmp_path, measured):
    path = tmp_path / 'all.json'
    kill(begin(tmp_path, measured)[0])
    document = json.loads(path.read_text())
    assert not document['complete'] and pairs(document).keys() == {(0, 1), (1, 0)}
    missing = 'interrupted: 4 of 6 pairs are missing'
    whole = tmp_path / 'whole.json'
    whole.write_text(json.dumps({**measured, 'options': document['options']}))
    compared = subprocess.run([PEERLANE, 'bench', 'compare', whole, path, '--json'], capture_output=True, text=True,
                              timeout=DEADLINE, env=environment())
    assert f'{path}: the measurement was {missing}' in compared.stderr and str(whole) not in compared.stderr
    verdicts = [result['verdict'] for result in json.loads(compared.stdout)['results']]
    assert verdicts.count('only before') == 2 * 4
    sentences = run_json('report', path)['sentences']
    assert [one['warning'] for one in sentences if missing in one['text']] == [True]
    assert missing in run('report', path).stdout and missing in run('report', path, '-o', '-').stdout
    assert 'interrupted' not in run('report', whole).stdout


@needs_mpi
@pytest.mark.parametrize('number', ENDING_SIGNALS)
def test_an_interrupted_rank_names_its_results(tmp_path, measured, number):
    process, processes = begin(tmp_path, measured)
    first, = [pid for pid in processes if 'OMPI_COMM_WORLD_RANK=0' in open(f'/proc/{pid}/environ').read().split('\0')]
    os.kill(first, number)
    process.communicate(timeout=DEADLINE)
    wait_exited(processes)
    # 128 and the number: rank 0 has ended by the signal.
    assert process.returncode == 128 + number
    message = (tmp_path / 'errors.0').read_text()
    assert len(pairs(json.loads((tmp_path / 'all.json').read_text()))) == 2
    assert f'{tmp_path}/all.json has the results of 1 of 3 pairs' in message and '--resume' in message
    assert not list(tmp_path.glob('all.json.*'))


@needs_mpi
def test_interrupted_mpirun_leaves_the_results(tmp_path, measured):
    process, processes = begin(tmp_path, measured)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    wait_exited(processes)
    assert process.returncode and len(pairs(json.loads((tmp_path / 'all.json').read_text()))) == 2


@needs_mpi
def test_refused_files_stay(tmp_path, measured):
    """All ranks end, and the file is left as it was.  test_matrix_resume has all differences and defects."""
    path = tmp_path / 'all.json'
    path.write_text(good := json.dumps(measured))
    errors = mpi(3, *FEW, '--size', '8K', '--resume', path, expect=1).stderr
    assert '[MATRIX-OTHER]' in errors and '--size differs: the file has 4096, this measurement 8192' in errors
    assert '[MPI-RANK]' in errors and path.read_text() == good
    assert 'number of ranks differs' in mpi(2, *FEW, '--resume', path, expect=1).stderr and path.read_text() == good
    path.write_text(good[:-9])
    done = mpi(3, *FEW, '--resume', path, expect=1)
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
def test_a_resumed_link_stays_a_link(tmp_path, measured):
    path, link = tmp_path / 'all.json', tmp_path / 'link'
    link.symlink_to(path)
    path.write_text(json.dumps({**measured, 'complete': False}))
    mpi(3, *FEW, '--resume', link)
    assert link.is_symlink() and json.loads(path.read_text())['complete']
