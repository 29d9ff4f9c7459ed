# SPDX-License-Identifier: BSD-2-Clause
"""Programs in the machines that look for their own mistakes: built with sanitizers, or under valgrind."""
import dataclasses
import glob
import os
import re

from kernel import Unavailable, output_of

VALGRIND = '/usr/libexec/valgrind'
# Reports go where guest/init looks for them after each job: a program may be meant to fail, but not in this way.
REPORTS = '/run/report'
SANITIZED = {
    'ASAN_OPTIONS': f'log_path={REPORTS}:detect_stack_use_after_return=1:strict_string_checks=1',
    'UBSAN_OPTIONS': f'log_path={REPORTS}:halt_on_error=1:print_stacktrace=1',
}
# Possible leaks are not looked at: libibverbs, libnl and the C library keep pointers into what they have, not to it.
MEMCHECKED = (f'valgrind.bin --quiet --log-file={REPORTS}.%p --error-exitcode=99 --leak-check=full '
              '--show-leak-kinds=definite --errors-for-leak-kinds=definite --suppressions=/guest/valgrind.supp')


@dataclasses.dataclass
class Checker:
    """`build` is where the programs are, `patience` what the cases' times are multiplied with, `cases` what is run."""
    build: str
    patience: int
    memory: str
    cases: list
    environment: dict = dataclasses.field(default_factory=dict)
    wrapper: str = ''


CHECKERS = {
    'asan': Checker('build-asan', 4, '1500M', ['*one:*verbs*', '*two:verbs: *', 'rails:*', 'more-rails:*'], SANITIZED),
    'valgrind': Checker('build', 4, '1500M', ['*one:verbs: scenarios*', '*rails:verbs: scenarios*'],
                        # In a process of its own each scenario would take five times as long, for all its code is
                        # translated there anew, twice: by valgrind, and by the emulator of the processor.
                        {'VALGRIND_LIB': VALGRIND, 'scenarios_here': 'yes'}, MEMCHECKED),
}


def wrapped(checker, image, name):
    """Has a program that is in the image started by the checker's wrapper."""
    mode, content = image.entries.pop(f'usr/bin/{name}')
    image.add(f'guest/programs/{name}', content, mode & 0o777)
    image.add(f'usr/bin/{name}', f'#!/bin/sh\nexec {checker.wrapper} /guest/programs/{name} "$@"\n'.encode(), 0o755)


def add_debugging(image, library):
    """What says where the functions of a library are, which valgrind replaces; some systems have it in the library."""
    shown = output_of('readelf', '-n', library) or ''
    found = re.search(r'Build ID: (..)(\S+)', shown)
    path = found and f'/usr/lib/debug/.build-id/{found.group(1)}/{found.group(2)}.debug'
    if path and os.path.exists(path):
        image.add(path, path)


def add(checker, image, root, names):
    """Adds what a checker needs, and has it look at the programs of these names."""
    settings = ''.join(f"export {name}='{value}'\n" for name, value in checker.environment.items())
    image.add('guest/environment', settings.encode())
    if not checker.wrapper:
        return
    program = '/usr/bin/valgrind.bin'
    if not os.path.exists(program):
        raise Unavailable('there is no valgrind: install valgrind')
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
