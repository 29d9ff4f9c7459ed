# SPDX-License-Identifier: BSD-2-Clause
"""Programs that benchmarks/machine runs: within limits of time, and without any process that stays behind."""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
DEATH_LIMIT = 10    # seconds


class Failed(Exception):
    """A program of a section failed."""


class Cut(Exception):
    """The time of a section is over."""


def environment_of(build):
    """Returns the environment of all programs: a packed build folder has libraries and commands of its own."""
    environment = {'PATH': os.defpath, **os.environ}
    for variable, folder in (('LD_LIBRARY_PATH', 'lib'), ('PATH', 'bin')):
        path = os.path.join(os.path.abspath(build), folder)
        if os.path.isdir(path):
            environment[variable] = ':'.join(filter(None, [environment.get(variable), path]))
    return environment


def adopt_orphans():
    """Makes this process the parent of what its programs leave behind, so that end_children() finds it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    """Returns the processes whose parent this process is; those that have ended, too."""
    found = []
    for name in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open(f'/proc/{name}/stat', encoding='ascii', errors='replace') as stat:
            if int(stat.read().rpartition(')')[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def end_children():
    """Kills all children, and theirs: each one that dies leaves its own to this process.  One that hangs in a driver stays."""
    end = time.monotonic() + DEATH_LIMIT
    while (left := children()) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def end_group(child):
    """Ends a command, and what it left; without any process the group is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(DEATH_LIMIT)
    end_children()


def read_again(file):
    file.seek(0)
    return file.read()


def shown(command):
    """Returns a command without the folders of its programs, for messages."""
    words = command[1:] if command[0] == sys.executable else command
    return ' '.join(os.path.basename(word) if os.path.isabs(word) else word for word in words)


def output_of(command, deadline, most, environment, status_matters=True, folder=None):
    """Returns what the command prints.  Ends it and all that it started after `most` seconds, or at the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Cut('no time was left for ' + shown(command))
    # Files, because a process that the command leaves behind would hold pipes open.
    with tempfile.TemporaryFile('w+', errors='replace') as out_file, tempfile.TemporaryFile('w+', errors='replace') as message_file:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out_file, stderr=message_file, start_new_session=True,
                                     cwd=folder, env=environment)
        except OSError as error:
            raise Failed(f'{command[0]}: {error.strerror}') from error
        try:
            child.wait(min(left, most))
        except subprocess.TimeoutExpired as error:
            if most < left:
                raise Failed(f'{shown(command)}: took more than {most:.0f} s') from error
            raise Cut('at its limit in ' + shown(command)) from error
        finally:
            end_group(child)
        out, messages = read_again(out_file), read_again(message_file)
    if child.returncode and status_matters:
        raise Failed(f'{shown(command)}: status {child.returncode}: {(messages or out).strip()[-400:]}')
    return out if status_matters else out + messages
