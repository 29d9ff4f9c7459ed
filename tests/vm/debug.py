# SPDX-License-Identifier: BSD-2-Clause
"""The cases of the kernel module for a kernel with checkers (debug_kernel.py).

Everything takes several times as long.  KASAN detects use after free, lockdep inverted locks, kmemleak leaks.  Some
copies of the module have a defect that one of these must detect.  They cannot detect the defects of the other copies:
IB core is not notified, or the callback waits for IB core.
"""
import dataclasses

import peermem
from cases import GPU, PEERMEM, REMOTE, Case, Suite

SLOWER = 6


def slower(case):
    return dataclasses.replace(case, seconds=case.seconds * SLOWER)


def broken(name, complaint, *parameters):
    return slower(Case(f'broken: {name}', 60, f'broken {name} {" ".join(parameters)}', fails=complaint))


SUITES = [
    Suite('peermem', '1G', 2, ['on_cables 10.0.0.1', 'on_cables 10.0.0.2'], [
        *(slower(case) for case in REMOTE + GPU + PEERMEM if not case.name.startswith('broken: ')),
        slower(Case('nothing is left behind', 60, 'unload_all && no_leaks'))],
          devices=peermem.devices, options='kasan_multi_shot'),
    Suite('peermem-broken', '1G', 2, ['modprobe ib_uverbs'], [
        slower(Case('broken: crossed', 60, 'standins open && with_module broken_crossed persistent_api_support=0 '
                    'peermem_cases whole freed', fails='possible circular locking dependency')),
        broken('hasty', 'KASAN: use-after-free'),
        slower(Case('broken: leaky', 60, 'forgets leaky')),
        slower(Case('broken: leaky, many times', 60, 'cycles_of_leaky')),
        broken('unreferenced', 'KASAN: use-after-free'),
        broken('trusting', 'KASAN: use-after-free'),
        # The callback uses the region after it was freed.
        slower(Case('broken: disowned', 60, 'broken_case disowned elsewhere', fails='KASAN: use-after-free')),
        # Follows a freed pointer, or one that is already NULL; or peermem_walk detects the defect first.
        slower(Case('broken: impatient', 60, 'broken impatient', or_fails='KASAN')),
    ],
          devices=lambda number: peermem.devices(2), options='kasan_multi_shot'),
]
