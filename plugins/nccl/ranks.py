# SPDX-License-Identifier: BSD-2-Clause
"""Runs both ranks of a job on this host, for try.py and torch_test.py."""
import os
import subprocess
import sys
import time


def run_pair(script, arguments, environment, limit, port, folder, meanwhile=None):
    """Return the output of both ranks, and their exit statuses; a rank that runs after `limit` seconds is killed.

    Each rank is script --rank RANK ARGUMENT..., with this environment. meanwhile(process, file) gets rank 1 and its output.
    """
    processes, files = [], [os.path.join(folder, f'{port}.{rank}') for rank in range(2)]
    for rank, file in enumerate(files):
        with open(file, 'w', encoding='utf-8') as log:
            processes.append(subprocess.Popen([sys.executable, script, '--rank', str(rank), *arguments], stdout=log,
                                              stderr=subprocess.STDOUT, env=environment | {'MASTER_PORT': str(port)}))
    if meanwhile:
        meanwhile(processes[1], files[1])
    end = time.monotonic() + limit
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            process.wait()
    outputs = []
    for file in files:
        with open(file, encoding='utf-8', errors='replace') as log:
            outputs.append(log.read())
    return outputs, [process.returncode for process in processes]
