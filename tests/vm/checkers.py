# SPDX-License-Identifier: BSD-2-Clause
"""Programs in the machines that are built with sanitizers, or run under valgrind."""
import dataclasses
import glob
import os
import re

from kernel import Unavailable, output_of

VALGRIND = '/usr/libexec/valgrind'
# Reports go to a file that guest/init reads after each job: a program may fail on purpose, but not with a report.
REPORTS = '/run/report'
SANITIZED = {
    'ASAN_OPTIONS': f'log_path={REPORTS}:detect_stack_use_after_return=1:strict_string_checks=1',
    'UBSAN_OPTIONS': f'log_path={REPORTS}:halt_on_error=1:print_stacktrace=1',
}
# Possible leaks are not reported: libibverbs, libnl and the C library keep pointers into the middle of blocks.
MEMCHECKED = (f'valgrind.bin --quiet --log-file={REPORTS}.%p --error-exitcode=99 --leak-check=full '
              '--show-leak-kinds=definite --errors-for-leak-kinds=definite --suppressions=/guest/valgrind.supp')


@dataclasses.dataclass
class Checker:
    """`build`: folder of the programs; `patience`: factor of the cases' time limits; `cases`: patterns of cases to run."""
    build: str
    patience: int
    memory: str
    cases: list
    environment: dict = dataclasses.field(default_factory=dict)
    wrapper: str = ''


CHECKERS = {
    'asan': Checker('build-asan', 4, '1500M', ['*one:*verbs*', '*two:verbs: *', 'rails:*', 'more-rails:*'], SANITIZED),
    'valgrind': Checker('build', 4, '1500M', ['*one:verbs: scenarios*', '*rails:verbs: scenarios*'],
                        # One process runs all scenarios.  A process for each would take five times as long: valgrind and
                        # the processor's emulator both translate all code again.
                        {'VALGRIND_LIB': VALGRIND, 'scenarios_here': 'yes'}, MEMCHECKED),
}


def wrapped(checker, image, name):
    """Replaces a program in the image by a script that starts it with the checker's wrapper."""
    mode, content = image.entries.pop(f'usr/bin/{name}')
    image.add(f'guest/programs/{name}', content, mode & 0o777)
    image.add(f'usr/bin/{name}', f'#!/bin/sh\nexec {checker.wrapper} /guest/programs/{name} "$@"\n'.encode(), 0o755)


def add_debugging(image, library):
    """Adds the debug symbols of a library, where valgrind finds functions to replace; some libraries contain them."""
    shown = output_of('readelf', '-n', library) or ''
    found = re.search(r'Build ID: (..)(\S+)', shown)
    path = found and f'/usr/lib/debug/.build-id/{found.group(1)}/{found.group(2)}.debug'
    if path and os.path.exists(path):
        image.add(path, path)


def add(checker, image, root, names):
    """Adds a checker's files, and wraps the programs of these names."""
    settings = ''.join(f"export {name}='{value}'\n" for name, value in checker.environment.items())
    image.add('guest/environment', settings.encode())
    if not checker.wrapper:
        return
    program = '/usr/bin/valgrind.bin'
    if not os.path.exists(program):
        raise Unavailable('valgrind is missing: install valgrind')
    image.program(program)
    for path in glob.glob(f'{VALGRIND}/*memcheck-amd64*') + glob.glob(f'{VALGRIND}/vgpreload_core-amd64*') + glob.glob(
            f'{VALGRIND}/default.supp'):
        image.add(path, os.path.realpath(path), 0o755)
    for library in ('/lib64/ld-linux-x86-64.so.2', '/lib/x86_64-linux-gnu/libc.so.6'):
        add_debugging(image, library)
    image.add('guest/valgrind.supp', root / 'tests/valgrind.supp')
    for name in names:
        if f'usr/bin/{name}' in image.entries:
            wrapped(checker, image, name)
