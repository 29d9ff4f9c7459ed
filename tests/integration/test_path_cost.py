# SPDX-License-Identifier: BSD-2-Clause
"""tools/path-cost refuses to mix counts of two compilers, and skips the paths that this kernel cannot count."""
import errno
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / 'tools/path-cost'


@pytest.mark.skipif(not shutil.which('valgrind'), reason='valgrind is not installed')
def test_record_of_two_compilers(tmp_path):
    """Records one path by a program of another compiler than that of the recorded counts."""
    program = tmp_path / 'path_cost'
    program.write_text('#!/bin/sh\necho "othercc 1"\necho 2.0\n')
    program.chmod(0o755)
    for path in 'tools/path-cost', 'tests/card/path_cost.json':
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(ROOT / path, tmp_path / path)
    record = tmp_path / 'tests/card/path_cost.json'
    before = record.read_bytes()
    command = [sys.executable, tmp_path / 'tools/path-cost', '--record', '--programs', tmp_path, 'tcp-send-1']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and 'here are' in done.stderr and 'othercc 1 and glibc 2.0' in done.stderr
    assert done.stderr.endswith('record all paths, by tools/path-cost --record\n') and record.read_bytes() == before


def test_paths_without_pidfd(monkeypatch, capsys):
    loader = importlib.machinery.SourceFileLoader('path_cost', str(TOOL))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader('path_cost', loader))
    loader.exec_module(tool)
    paths = ['verbs-write-1', 'local-write-1', 'tcp-send-1']

    def missing(_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr(os, 'pidfd_open', missing)
    assert tool.split_paths(paths) == ['verbs-write-1', 'tcp-send-1']
    assert capsys.readouterr().out == 'skipped local-write-1: pidfd_open: [Errno 38] Function not implemented\n'
    monkeypatch.setattr(os, 'pidfd_open', lambda _: os.dup(0))
    assert tool.split_paths(paths) == paths and capsys.readouterr().out == ''
