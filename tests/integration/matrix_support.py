# SPDX-License-Identifier: BSD-2-Clause
"""Matrices of simulated fleets, as `peerlane bench --mpi --json` writes them."""
import json
import math
import random

USUAL = 48e9


def fleet_matrix(hosts=200, seed=1, noise=0.02, factor=lambda a, b: 1, silent=(), ranks=1, **changes):
    """`factor` of two host numbers multiplies the rate from the first to the second; hosts in `silent` have no results."""
    draw = random.Random(seed)
    count = hosts * ranks
    rates, latencies = [], []
    for a in range(count):
        rate_row, latency_row = [], []
        for b in range(count):
            known = a != b and a // ranks not in silent and b // ranks not in silent
            rate = USUAL * math.exp(noise * draw.gauss(0, 1)) * factor(a // ranks, b // ranks)
            rate_row.append(round(rate) if known else None)
            latency_row.append(round(2 * math.exp(noise * draw.gauss(0, 1)), 3) if known else None)
        rates.append(rate_row)
        latencies.append(latency_row)
    return {'format': 1, 'kind': 'matrix', 'version': '0.1.0', 'time': '2026-11-20T08:00:00Z', 'size': 1 << 20,
            'complete': True, 'command': ['peerlane', 'bench', '--mpi', '--json'],
            'ranks': [{'rank': i, 'host': host_name(i // ranks), 'memory': 'host'} for i in range(count)],
            'bytes_per_second': rates, 'latency_us': latencies, 'slow': [], 'failed': [], **changes}


def host_name(number):
    return f'gpu{number:03}'


def save_matrix(path, **options):
    path.write_text(json.dumps(fleet_matrix(**options)))
    return path


def rails_matrix(names, **options):
    """A matrix with each rail by itself; of a pair, the matrix has the values of the worst rail.  `slow` is a factor for the last one."""
    slow = options.pop('slow', lambda a, b: 1)
    whole = fleet_matrix(**options, factor=slow)
    seed = options.pop('seed', 1)
    rails = [fleet_matrix(**options, seed=seed + 10 * i) for i in range(1, len(names))] + [whole]
    return {**whole, 'rails': [{'name': name, 'bytes_per_second': rail['bytes_per_second'], 'latency_us': rail['latency_us']}
                               for name, rail in zip(names, rails)]}
