# SPDX-License-Identifier: BSD-2-Clause
"""Installation: all documents and man pages, the lists of files of the packages, and `make uninstall`."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from cli_support import PEERLANE

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(PEERLANE).resolve().parent
MACROS = {'_bindir': 'usr/bin', '_datadir': 'usr/share', '_mandir': 'usr/share/man', '_includedir': 'usr/include',
          '_unitdir': 'usr/lib/systemd/system', '_libdir': 'usr/lib/*'}
# Files of the source that are for its developers only.
INTERNAL = {'docs/renames.tsv', 'docs/examples/meson.build'}


def files_below(folder):
    """Returns the paths of files and links below a folder, relative to it."""
    return {os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names}


@pytest.fixture(scope='module')
def destination(tmp_path_factory):
    """The installation of the build folder; at the end, what `make uninstall` does leaves nothing."""
    folder = tmp_path_factory.mktemp('destination')
    log = BUILD / 'meson-logs/install-log.txt'
    kept = log.read_bytes() if log.exists() else None
    try:
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet'], check=True, timeout=60,
                       env={**os.environ, 'DESTDIR': str(folder)})
        shutil.copy(log, folder.parent / 'install-log.txt')
        yield folder
    finally:
        # The log names what a developer has installed.
        if kept is None:
            log.unlink(missing_ok=True)
        else:
            log.write_bytes(kept)


@pytest.fixture(scope='module')
def installed(destination):
    """Returns the installed paths as packages have them, below usr."""
    prefix, = (path for path in (destination, *destination.glob('**/')) if (path / 'bin/peerlane').exists())
    return {f'usr/{path}' for path in files_below(prefix)}


def test_documents_and_pages_are_installed(installed):
    source = {str(path.relative_to(ROOT)) for path in (ROOT / 'docs').rglob('*')
              if path.is_file() and '__pycache__' not in path.parts}
    documents = {path.removeprefix('usr/share/doc/peerlane/') for path in installed if path.startswith('usr/share/doc')}
    assert len(source) > 25 and documents == source - INTERNAL | {'README.md'}
    pages = {path.name.removesuffix('.scd') for path in (ROOT / 'man').glob('*.scd')}
    assert len(pages) > 40
    assert {page for page in pages if f'usr/share/man/man{page[-1]}/{page}' not in installed} == set()


def debian_packages():
    """Returns the patterns of each Debian package."""
    return {path.stem: path.read_text().split() for path in (ROOT / 'packaging/debian').glob('*.install')}


def rpm_packages():
    """Returns the patterns of each rpm package."""
    packages = {}
    for section in (ROOT / 'packaging/rpm/peerlane.spec').read_text().split('\n%files')[1:]:
        name, *lines = section.split('\n')
        lines = [line.split()[-1] for line in lines if line and not line.startswith(('%license', '#'))]
        packages[name.strip()] = [re.sub(r'%\{(\w+)\}', lambda macro: MACROS.get(macro[1], ''), line) for line in lines]
    return packages


def owners(path, packages):
    """Returns the packages with a pattern for the path, or for a folder above it."""
    folders = [path, *(str(folder) for folder in pathlib.PurePath(path).parents)]
    return [name for name, patterns in packages.items()
            if any(fnmatch.fnmatchcase(folder, pattern.strip('/')) for folder in folders for pattern in patterns)]


def test_each_file_is_in_one_package(installed):
    debian, rpm = debian_packages(), rpm_packages()
    assert len(debian) == 5 and len(rpm) == 5
    for path in installed:
        # debian/rules moves the units.
        moved = path.replace('usr/lib/systemd', 'lib/systemd')
        assert len(owners(moved, debian)) == 1, (path, owners(moved, debian))
        if 'dist-packages' not in path and 'site-packages' not in path:
            assert len(owners(path, rpm)) == 1, (path, owners(path, rpm))


def test_uninstall_leaves_nothing(destination):
    assert len(files_below(destination)) > 100
    logs = destination.parent / 'build/meson-logs'
    logs.mkdir(parents=True)
    shutil.move(destination.parent / 'install-log.txt', logs / 'install-log.txt')
    assert 'meson --internal uninstall' in (BUILD / 'build.ninja').read_text()
    subprocess.run(['meson', '--internal', 'uninstall'], check=True, timeout=60, cwd=logs.parent, capture_output=True)
    assert files_below(destination) == set()
