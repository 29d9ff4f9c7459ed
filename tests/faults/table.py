# SPDX-License-Identifier: BSD-2-Clause
"""Table of docs/reliability.md: one row for each fault and phase."""
import collections

import cells

BEGIN = '<!-- begin of the table of tests/faults/run -->\n'
END = '<!-- end of the table of tests/faults/run -->\n'
HEAD = '| fault | phase | cases | the user of the client sees | files at the end that receives | result |\n|---|---|---:|---|---|---|\n'


def lines_of(document):
    """Returns the line of each row, by fault and phase."""
    body = document.split(BEGIN)[1].split(END)[0]
    return {tuple(field.strip() for field in line.split('|')[1:3]): line for line in body.splitlines(keepends=True)
            if line.startswith('| ') and not line.startswith('| fault')}


def describe_status(outcomes):
    """Joins the error identifiers of equal exit statuses."""
    found = {}
    for outcome in outcomes:
        found.setdefault(outcome.sees, set()).update(outcome.ids)
    return '; '.join(' '.join([sees, *(f'`{name}`' for name in sorted(ids))]) for sees, ids in sorted(found.items()))


def line_of(row, outcomes):
    left = '; '.join(sorted({outcome.left for outcome in outcomes}))
    good = sum(not outcome.problems for outcome in outcomes)
    result = 'as promised' if good == len(outcomes) else f'{good} of them as promised'
    return f'| {row[0]} | {row[1]} | {len(outcomes)} | {describe_status(outcomes)} | {left} | {result} |\n'


def write(path, outcomes):
    """Replaces the rows all of whose cells ran."""
    document = path.read_text()
    lines = lines_of(document)
    numbers = collections.Counter(cell.row for cell in cells.all_cells())
    for row, number in numbers.items():
        found = [outcome for cell, outcome in outcomes.items() if cell.row == row]
        if len(found) == number:
            lines[row] = line_of(row, found)
    before, after = document.split(BEGIN)[0], document.split(END)[1]
    path.write_text(before + BEGIN + HEAD + ''.join(lines[row] for row in numbers if row in lines) + END + after)
