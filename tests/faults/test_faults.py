# SPDX-License-Identifier: BSD-2-Clause
"""A part of the matrix of faults and phases, and the table of docs/reliability.md.  `make faults` runs all of it."""
import pathlib

import fault_support as support
import judge
import pytest
import table
from cells import FAULTS, all_cells, rows

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / 'docs/reliability.md'
JOBS = 4
# Faults after which an end waits for its deadline.
SLOW = ('pause', 'stop', 'flap', 'cut')


@pytest.fixture(scope='session')
def matrix(tmp_path_factory):
    support.leave_mount_namespace()
    return judge.Matrix(tmp_path_factory.mktemp('faults'))


def is_quick(cell):
    """True for the cells that run each time: all phases of kills, some phases of the other faults."""
    if cell.point not in cell.phase.points[:1] + (0,):
        return False
    if cell.fault.kind in SLOW:
        return cell.phase.name == 'middle of the data' and cell.operation.name in ('get', 'put')
    if cell.fault.kind == 'kill':
        return cell.operation.name in ('get', 'put')
    if cell.fault.kind == 'memory':
        return cell.phase.name == 'request sent' and cell.operation.name in ('get', 'put many')
    return cell.phase.name in ('request sent', 'middle of the data', 'before the rename') and cell.operation.name in ('get', 'put')


@pytest.mark.parametrize('fault', FAULTS)
def test_fault(matrix, fault):
    chosen = [cell for cell in all_cells() if cell.fault.name == fault and is_quick(cell)]
    assert chosen
    problems, skipped = [], set()
    for cell, outcome in matrix.run(chosen, JOBS):
        if isinstance(outcome, support.Untestable):
            skipped.add(str(outcome))
        else:
            problems += [f'{cell}: {problem}' for problem in outcome.problems]
    assert not problems, '\n'.join(problems)
    if skipped:
        pytest.skip('; '.join(sorted(skipped)))


def test_the_document_has_all_rows():
    document = DOCUMENT.read_text()
    assert list(table.lines_of(document)) == rows()
    assert 'of them as promised' not in document, 'a row of docs/reliability.md tells of a failure'
