#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nccl_tests.py [FILE]: converts the output of sendrecv_perf of nccl-tests for `peerlane report` and `peerlane bench compare`.

Reads FILE, or standard input.  Several runs in a file count as repeats.  A rate is the size divided by the out-of-place
time: the rate of one direction while both directions transmit.
"""
import argparse
import json
import re
import sys

import results

DEVICE = re.compile(r'^#\s+Rank\s+\d+ .* device +\d+ \[[^]]*\] (?P<name>.+?)\s*$')
HOST = re.compile(r'^#\s+Rank\s+\d+ .*Pid +\d+ on +(?P<host>\S+) device')
UNITS = 1e-6    # seconds in a unit of the column "time"


def rows_of(text):
    """Yields size, time, and whether the content is correct (None: unchecked) of each line with results."""
    for line in text.splitlines():
        fields = line.split()
        # size count type redop root, then out of place and in place: time algbw busbw #wrong
        if len(fields) < 9 or not fields[0].isdigit() or not fields[1].isdigit():
            continue
        try:
            time = float(fields[5])
            wrong = None if fields[8] == 'N/A' else float(fields[8])
        except ValueError:
            sys.exit(f'nccl_tests: time or errors are not numbers in this line: {line.strip()}')
        yield int(fields[0]), time * UNITS, None if wrong is None else wrong == 0


def document(text, command):
    rates, right = {}, {}
    for size, time, content in rows_of(text):
        if size and time > 0:
            rates.setdefault(size, []).append(size / time)
            right[size] = content if content is not True else right.get(size, True)
    if not rates:
        sys.exit('nccl_tests: no line with a size and a time; the input must be the output of sendrecv_perf')
    measured = [results.Measured('nccl', 'bandwidth', 'send', size, 'nccl', rates[size], 'cuda', right[size])
                for size in sorted(rates)]
    made = results.document('bandwidth', measured, 'nccl-tests', command,
                            [match['name'] for match in map(DEVICE.match, text.splitlines()) if match])
    made['both_ways'] = True
    hosts = list(dict.fromkeys(match['host'] for match in map(HOST.match, text.splitlines()) if match))
    # The output names the hosts of the run, and nothing else about them.
    if hosts:
        made['machine'] = {**dict.fromkeys(made['machine']), 'host': ', '.join(hosts), 'gpus': made['machine']['gpus'],
                           'cards': []}
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('file', nargs='?', type=argparse.FileType('rb'), default=sys.stdin.buffer)
    text = parser.parse_args().file.read().decode(errors='replace')
    print(json.dumps(document(text, ['sendrecv_perf']), indent=2))


if __name__ == '__main__':
    main()
