# SPDX-License-Identifier: BSD-2-Clause
"""tools/setup and tools/configure: packages that a build needs, and parts that it leaves out."""
import os
import pathlib
import re
import shutil
import subprocess

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
