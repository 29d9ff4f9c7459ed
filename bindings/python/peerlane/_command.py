# SPDX-License-Identifier: BSD-2-Clause
"""Results of the command `peerlane`, as Python objects with pictures for notebooks."""
import base64
import errno
import html
import json
import os
import shutil
import subprocess

from . import _peerlane
from ._errors import Error, make_error


def _call(*arguments, timeout, text=None):
    """Run the command, and return the completed process."""
    command = os.environ.get('PEERLANE') or shutil.which('peerlane')
    if not command:
        raise make_error(errno.ENOENT, 'PY-COMMAND', 'run', 'peerlane', 'the command is not installed',
                         'install the package peerlane, or name the file in the environment variable PEERLANE')
    given = {'stdin': subprocess.DEVNULL} if text is None else {'input': text.encode()}
    return subprocess.run([command, *map(str, arguments)], capture_output=True, timeout=timeout, check=False, **given)


def _run(*arguments, timeout):
    done = _call(*arguments, '--json', timeout=timeout)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise make_error(errno.EPROTO, 'PY-COMMAND', 'run', ' '.join(('peerlane', *map(str, arguments))),
                         done.stderr.decode(errors='replace').strip()[:300] or f'exit status {done.returncode}',
                         '') from None


def _picture(*arguments, title, text=None):
    """Return an image of the SVG document that the command prints; None if there is none.

    An image keeps the styles of the document to itself, and runs no scripts.
    """
    try:
        done = _call(*arguments, timeout=60, text=text)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode or not done.stdout:
        return None
    content = base64.b64encode(done.stdout).decode()
    return f'<img alt="{html.escape(title)}" src="data:image/svg+xml;base64,{content}">'


def _table(names, rows):
    """Return a table of texts and numbers."""
    def line(cells, kind):
        return '<tr>' + ''.join(f'<{kind}>{html.escape(str(cell))}</{kind}>' for cell in cells) + '</tr>'

    return '<table>' + line(names, 'th') + ''.join(line(row, 'td') for row in rows) + '</table>'


class Topology(dict):
    """Result of `peerlane topo --json`: GPUs, cards and their places. A notebook shows its picture."""

    def __repr__(self):
        return (f'<peerlane.Topology of {self.get("host")}: {len(self.get("gpus", ()))} GPUs, '
                f'{len(self.get("nics", ()))} cards>')

    def _repr_html_(self):
        return _picture('topo', '--svg', '-', title=repr(self))


class Check(dict):
    """Result of `peerlane check --json`: its rows with remedies, and the verdict. A notebook shows the rows with faults."""

    def __repr__(self):
        return f'<peerlane.Check of {self.get("host")}: {self.get("status")}, {self.get("summary")}>'

    def _repr_html_(self):
        rows = [(row['status'], row['title'],
                 '; '.join(': '.join(filter(None, (finding['object'], finding['found']))) for finding in row['findings']),
                 row['remedy'] or '') for row in self.get('checks', ()) if row['status'] not in ('none', 'OK')]
        head = f'<p><b>{html.escape(str(self.get("status")))}</b>: {html.escape(str(self.get("summary")))}</p>'
        return head + (_table(('status', 'check', 'finding', 'remedy'), rows) if rows else '')


class Bench(dict):
    """Result of `peerlane bench --json`. A notebook shows the picture of `peerlane report`."""

    def __repr__(self):
        results = self.get('results', ())
        kinds = sorted({f'{row.get("operation") or self.get("kind")} over {row.get("fabric") or self.get("fabric")}'
                        for row in results})
        return f'<peerlane.Bench {", ".join(kinds) or "without results"}: {len(results)} results>'

    def _repr_html_(self):
        return _picture('report', '-', '--svg', '-', title=repr(self), text=json.dumps(self))


class Gpus(list):
    """Properties of the GPUs of this host, as dictionaries. A notebook shows a table."""

    def _repr_html_(self):
        return _table(self[0], [gpu.values() for gpu in self]) if self else '<p>no GPU</p>'


def check(timeout=60):
    """Return the result of `peerlane check --json`: its rows with remedies, and the verdict."""
    return Check(_run('check', timeout=timeout))


def topology(timeout=60):
    """Return the result of `peerlane topo --json`: GPUs, cards and their places."""
    return Topology(_run('topo', timeout=timeout))


def bench(*arguments, timeout=None):
    """Return the result of `peerlane bench ARGUMENTS --json`, such as bench('--op', 'read', '--size', '64K').

    Raises the error of a measurement without any result; otherwise the key "error" has it.
    """
    result = Bench(_run('bench', *arguments, timeout=timeout))
    error = result.get('error')
    if error and not result.get('results'):
        raise make_error(-error['code'], *(error[name] or '' for name in ('id', 'call', 'object', 'message', 'hint')))
    return result


def gpus():
    """Return a list of the properties of all GPUs of this host, as gpu() returns them; empty without a driver."""
    found = Gpus()
    while True:
        try:
            found.append({'number': len(found), **_peerlane.gpu(len(found))})
        except Error as error:
            if error.errno != errno.ENODEV:
                raise
            return found
