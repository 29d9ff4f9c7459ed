# SPDX-License-Identifier: BSD-2-Clause
"""The cases of the kernel module for a kernel that checks itself (debug_kernel.py).

There everything takes several times as long.  KASAN sees memory used after it was freed, lockdep locks that are taken
in different orders, kmemleak what nobody knows any more.  Some copies of the module are broken so that they must see it;
what is wrong with the others, none of them can see: that IB core was not told, or is waited for.
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
        # What the callback would find of it.
        slower(Case('broken: disowned', 60, 'broken_case disowned elsewhere', fails='KASAN: use-after-free')),
        # Follows a pointer to what is freed, or one that is NULL by then; unless the walk finds it before.
        slower(Case('broken: impatient', 60, 'broken impatient', or_fails='KASAN')),
    ],
          devices=lambda number: peermem.devices(2), options='kasan_multi_shot'),
]
