# SPDX-License-Identifier: BSD-2-Clause
"""Results of the command `peerlane`, as Python objects."""
import errno
import json
import os
import shutil
import subprocess

from ._errors import make_error


def _run(*arguments, timeout):
    command = os.environ.get('PEERLANE') or shutil.which('peerlane')
    if not command:
        raise make_error(errno.ENOENT, 'PY-COMMAND', 'run', 'peerlane', 'the command is not installed',
                         'install the package peerlane, or name the file in the environment variable PEERLANE')
    done = subprocess.run([command, *arguments, '--json'], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise make_error(errno.EPROTO, 'PY-COMMAND', 'run', ' '.join(('peerlane', *arguments)),
                         done.stderr.decode(errors='replace').strip()[:300] or f'exit status {done.returncode}',
                         '') from None


def check(timeout=60):
    """Return the result of `peerlane check --json`: its rows with remedies, and the verdict."""
    return _run('check', timeout=timeout)


def topology(timeout=60):
    """Return the result of `peerlane topo --json`: GPUs, cards and their places."""
    return _run('topo', timeout=timeout)
