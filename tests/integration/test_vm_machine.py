# SPDX-License-Identifier: BSD-2-Clause
"""tests/vm/machine.py with machines whose kernel panics; a script replaces QEMU."""
import pathlib
import sys
import time
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'vm'))

from machine import Lost, Machine, forget_consoles  # noqa: E402

# Replacement of QEMU: writes a panic to the first serial port, which is a file, and exits.
QEMU = """#!/bin/sh
for word; do
	case $word in
	file:*) printf '%s\\n' "$PANIC" >>"${word#file:}" ;;
	esac
done
"""


@pytest.fixture(name='start')
def standin(tmp_path, monkeypatch):
    """Returns a function that starts a machine whose kernel panics with this text."""
    programs = tmp_path / 'programs'
    programs.mkdir()
    qemu = programs / 'qemu-system-x86_64'
    qemu.write_text(QEMU)
    qemu.chmod(0o755)
    monkeypatch.setenv('PATH', str(programs), prepend=':')
    kernel = types.SimpleNamespace(image=tmp_path / 'kernel')

    def start(name, panic):
        monkeypatch.setenv('PANIC', panic)
        return Machine(name, tmp_path, kernel, tmp_path / 'initramfs', [], [], 0)

    return start


def last_words(machine):
    with pytest.raises(Lost) as lost:
        machine.hear(time.monotonic() + 120)
    machine.kill()
    return str(lost.value)


def test_the_console_of_each_start_is_kept(start, tmp_path):
    one = last_words(start('one', 'Kernel panic - not syncing: the first'))
    two = last_words(start('one', 'Kernel panic - not syncing: the second'))
    assert 'the first' in one and 'the second' in two
    # Each reason names its console file.
    for words, path, text in ((one, tmp_path / 'one.console', 'the first'),
                              (two, tmp_path / 'one.console.2', 'the second')):
        assert words.endswith(f'(its console: {path})')
        assert path.read_text() == f'Kernel panic - not syncing: {text}\n'


def test_the_next_run_removes_old_consoles(start, tmp_path):
    last_words(start('one', 'Kernel panic - not syncing: before'))
    forget_consoles(tmp_path)
    assert 'after' in last_words(start('one', 'Kernel panic - not syncing: after'))
    assert sorted(path.name for path in tmp_path.glob('*.console*')) == ['one.console']
