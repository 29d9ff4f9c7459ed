# SPDX-License-Identifier: BSD-2-Clause
"""Documents of `peerlane bench --json` for results of other tools.

`peerlane bench compare` and `peerlane report` can read these documents.
"""
import collections
import json
import os
import platform
import statistics
import sys
import time

# runs: bytes per second, or microseconds in mode latency.  verified: None if the content was not checked.
Measured = collections.namedtuple('Measured', 'tool mode operation size fabric runs memory verified',
                                  defaults=['host', None])


def processor():
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as lines:
            return next(line.split(':', 1)[1].strip() for line in lines if line.startswith('model name'))
    except (OSError, StopIteration):
        return None


def result_of(measured):
    result = {'tool': measured.tool, 'operation': measured.operation, 'size': measured.size, 'mode': measured.mode,
              'fabric': measured.fabric, 'memory': measured.memory, 'peer_memory': measured.memory,
              'runs': list(measured.runs), 'verified': measured.verified}
    middle = statistics.median(measured.runs)
    result.update({'latency_us': {'p50': middle}} if measured.mode == 'latency' else {'bytes_per_second': middle})
    return result


def head(gpus=(), command=None):
    """Returns the members that tell of the time, the command and the machine."""
    return {'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
            'command': list(command or [os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
            'machine': {'host': platform.node() or None, 'kernel': f'{platform.system()} {platform.release()}',
                        'processor': processor(), 'cores': os.cpu_count(),
                        'memory_bytes': os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE'), 'gpus': list(gpus),
                        'cards': []}}


def document(mode, measured, version=None, command=None, gpus=()):
    """Returns a document.  `version` is that of another tool, `command` the measured command."""
    return {'format': 1, 'kind': 'bench', **({'version': version} if version else {}), **head(gpus, command),
            'peer_machine': None, 'mode': mode, 'both_ways': False, 'results': [result_of(one) for one in measured]}


def save(folder, measured):
    """Writes FOLDER/TOOL-MODE.json for each tool and mode."""
    groups = collections.defaultdict(list)
    for one in measured:
        groups[one.tool, one.mode].append(one)
    os.makedirs(folder, exist_ok=True)
    for (tool, mode), ones in groups.items():
        with open(os.path.join(folder, f'{tool}-{mode}.json'), 'w', encoding='utf-8') as out:
            json.dump(document(mode, ones), out, indent=2)
            out.write('\n')
