# SPDX-License-Identifier: BSD-2-Clause
"""Runs both ranks of a job on this host, for try.py and torch_test.py."""
import os
import subprocess
import sys
import time


def start_rank(script, rank, arguments, environment, port, file):
    """Start script --rank RANK ARGUMENT..., with its output in a file."""
    with open(file, 'w', encoding='utf-8') as log:
        return subprocess.Popen([sys.executable, script, '--rank', str(rank), *arguments], stdout=log,
                                stderr=subprocess.STDOUT, env=environment | {'MASTER_PORT': str(port)})


def end_rank(process, limit):
    """Return the exit status of a rank; None if it still runs after `limit` seconds, when it is killed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def describe_failure(statuses, limit):
    """Return the reason why ranks failed."""
    return f'not finished in {limit:.0f} s' if None in statuses else f'exit statuses {statuses}'


def run_pair(script, arguments, environment, limit, port, folder, meanwhile=None, second=None):
    """Return the output of both ranks, and their exit statuses. Ranks that run after `limit` seconds are killed: None.

    Each rank is script --rank RANK ARGUMENT..., with this environment; rank 1 also has the variables of `second`.
    meanwhile(process, file) gets rank 1 and its output.
    """
    files = [os.path.join(folder, f'{port}.{rank}') for rank in range(2)]
    processes = [start_rank(script, rank, arguments, environment | (second or {} if rank else {}), port, file)
                 for rank, file in enumerate(files)]
    if meanwhile:
        meanwhile(processes[1], files[1])
    end = time.monotonic() + limit
    statuses = [end_rank(process, max(0.1, end - time.monotonic())) for process in processes]
    outputs = []
    for file in files:
        with open(file, encoding='utf-8', errors='replace') as log:
            outputs.append(log.read())
    return outputs, statuses
