# SPDX-License-Identifier: BSD-2-Clause
"""tools/setup, tools/configure, tools/run-tests: packages of a build, parts that it leaves out, builds ahead of tests."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_setup_installs_the_headers_of_each_package_that_the_readme_names():
    build = re.search(r'^\tbuild\) cat <<-END ;;\n(.*?)^\tEND', (ROOT / 'tools/setup').read_text(), re.M | re.S)[1]
    packages = {line.split()[-1] for line in build.splitlines()}
    assert {'libibverbs-dev', 'libexpat1-dev', 'libpci-dev', 'python3-dev', 'scdoc'} <= packages


def test_configure_tells_what_the_build_leaves_out(tmp_path):
    shutil.copytree(ROOT / 'tools', tmp_path / 'tools')
    (tmp_path / 'bin').mkdir()
    for name, code in [('meson', 'echo "Message: left out: the package"; echo "Message: other"'), ('ninja', ':')]:
        (tmp_path / 'bin' / name).write_text(f'#!/bin/sh\n{code}\n')
        (tmp_path / 'bin' / name).chmod(0o755)
    variables = {**os.environ, 'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}'}
    done = subprocess.run([tmp_path / 'tools/configure', 'build'], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.splitlines() == ['configuring build', 'left out: the package'], done
    said = re.findall(r"message\('(left out: [^']*)'\)", (ROOT / 'bindings/python/meson.build').read_text())
    assert len(said) == 1 and 'python3-dev' in said[0]


@pytest.fixture
def tool(monkeypatch):
    """tools/run-tests as a module."""
    loader = importlib.machinery.SourceFileLoader('run_tests', str(ROOT / 'tools/run-tests'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('run_tests', loader))
    monkeypatch.setattr('sys.dont_write_bytecode', True)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGQUIT])
def test_tests_do_not_ignore_signals_that_a_script_ignores(tool, number):
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGQUIT)}
    try:
        tool.take_signals()
        assert tool.run(['sh', '-c', f'kill -{number.value} $$'])[0] == -number
    finally:
        for each, action in before.items():
            signal.signal(each, action)


def test_a_build_ahead_goes_on_after_a_folder_that_cannot_be_configured(tool, tmp_path, monkeypatch):
    (tmp_path / 'tools').mkdir()
    (tmp_path / 'tools/configure').write_text('#!/bin/sh\necho $1 >> configured\n[ $1 != build-asan ]\n')
    (tmp_path / 'tools/configure').chmod(0o755)
    monkeypatch.setattr(tool, 'ROOT', str(tmp_path))
    tool.Ahead(['asan', 'clang']).run()
    assert (tmp_path / 'configured').read_text().split() == ['build-asan', 'build-clang']
