# SPDX-License-Identifier: BSD-2-Clause
"""Installation: documents and man pages, the lists of files and the scripts of the packages, `make uninstall` and `make repository`."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from cli_support import DEADLINE, PEERLANE

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(PEERLANE).resolve().parent
MACROS = {'_prefix': 'usr', '_bindir': 'usr/bin', '_datadir': 'usr/share', '_mandir': 'usr/share/man', '_includedir': 'usr/include',
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
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet'], check=True, timeout=DEADLINE,
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
    assert len(source) > 25 and documents == source - INTERNAL | {'README.md', 'CONTRIBUTING.md', 'LICENSE'}
    pages = {path.name.removesuffix('.scd') for path in (ROOT / 'man').glob('*.scd')}
    assert len(pages) > 40
    assert {page for page in pages if f'usr/share/man/man{page[-1]}/{page}' not in installed} == set()


# Looks where the interpreter itself would, with another root folder.
IMPORT = '''
import importlib.metadata, site, sys
root = sys.argv[1]
site.PREFIXES = [root + prefix for prefix in site.PREFIXES]
site.addsitepackages(site.removeduppaths())
import peerlane
assert peerlane.__file__.startswith(root), peerlane.__file__
assert importlib.metadata.version("peerlane") == peerlane.version
print(peerlane.version)
'''


def test_the_interpreter_finds_the_installed_package(destination):
    extension = next(destination.rglob('_peerlane.abi3.so'), None)
    if extension is None or '-fsanitize' in (BUILD / 'build.ninja').read_text():
        pytest.skip('the build has no package that this interpreter can load')
    if not extension.is_relative_to(destination / 'usr'):
        pytest.skip('the interpreter does not look below this prefix')
    done = subprocess.run([sys.executable, '-I', '-S', '-B', '-c', IMPORT, destination], timeout=DEADLINE, capture_output=True,
                          text=True, env={'LD_LIBRARY_PATH': str(BUILD)})
    assert (done.returncode, done.stderr) == (0, '')


def debian_packages():
    """Returns the patterns of each Debian package."""
    return {path.stem: path.read_text().split() for path in (ROOT / 'packaging/debian').glob('*.install')}


def rpm_packages():
    """Returns the patterns of each rpm package; %dir has a folder without its files."""
    packages = {}
    for section in (ROOT / 'packaging/rpm/peerlane.spec').read_text().split('\n%files')[1:]:
        name, *lines = section.split('\n')
        lines = [line.split()[-1] for line in lines if line and not line.startswith(('%license', '%dir', '#'))]
        packages[name.strip()] = [re.sub(r'%\{(\w+)\}', lambda macro: MACROS.get(macro[1], ''), line) for line in lines]
    return packages


def owners(path, packages):
    """Returns the packages with a pattern for the path, or for a folder above it."""
    folders = [path, *(str(folder) for folder in pathlib.PurePath(path).parents)]
    return [name for name, patterns in packages.items()
            if any(fnmatch.fnmatchcase(folder, pattern.strip('/')) for folder in folders for pattern in patterns)]


def test_each_file_is_in_one_package(installed):
    debian, rpm = debian_packages(), rpm_packages()
    assert len(debian) == 6 and len(rpm) == 6
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
    subprocess.run(['meson', '--internal', 'uninstall'], check=True, timeout=DEADLINE, cwd=logs.parent, capture_output=True)
    assert files_below(destination) == set()


def test_uninstall_reminds_of_no_files(tmp_path):
    """Programs in place of ninja and ldconfig stand in for those of `make uninstall`."""
    (tmp_path / 'build').mkdir()
    shutil.copy(ROOT / 'Makefile', tmp_path)
    reminder = 'Remember that files created by custom scripts have not been removed.'
    programs = {'ninja': f'echo Deleted: 3; echo "{reminder}"; exit $FAILS', 'ldconfig': ':'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{script}\n')
        (tmp_path / name).chmod(0o755)
    for fails, shown in [('0', 'Deleted: 3\n'), ('1', f'Deleted: 3\n{reminder}\n')]:
        done = subprocess.run(['make', '-s', 'uninstall'], cwd=tmp_path, timeout=DEADLINE, capture_output=True, text=True,
                              env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'FAILS': fails, 'MAKEFLAGS': ''})
        assert (done.returncode != 0, done.stdout) == (fails == '1', shown)


def repairs():
    """Returns the files that `peerlane check --fix` writes, with their contents."""
    source = ''.join(path.read_text() for path in sorted((ROOT / 'src/diag/check').glob('*.c')))
    macros = dict(re.findall(r'#define (\w+_FILE) "(/etc/.*)"', source))
    calls = re.findall(r'pl_check_plan_file\(plan, (?:"(.*?)"|(\w+)), "(.*)"\);', source)
    return {path or macros[macro]: content.replace('\\n', '\n') for path, macro, content in calls}


def test_purge_removes_what_the_command_wrote(tmp_path):
    script = (ROOT / 'packaging/debian/peerlane.postrm').read_text()
    files = {'/var/lib/prometheus/node-exporter/peerlane.prom': '', '/run/peerlane/check.prom': '',
             '/var/lib/private/peerlane/state': '', **repairs()}
    assert len(files) == 5

    def run(action, changed=''):
        folder = tmp_path / f'{action}{len(changed)}'
        for path, content in files.items():
            (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (folder / path[1:]).write_text(content + (changed if path.startswith('/etc') else ''))
        (folder / 'etc/peerlane').mkdir()
        (folder / 'etc/peerlane/key').write_text(changed)
        if not changed:
            (folder / 'etc/peerlane/key').unlink()
        done = subprocess.run(['sh', '-c', re.sub(r' /(?=etc|var|run)', f' {folder}/', script), 'postrm', action], timeout=DEADLINE,
                              capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, '')
        return {f'/{path}' for path in files_below(folder)}, (folder / 'etc/peerlane').exists()

    assert run('purge') == (set(), False)
    assert run('purge', 'changed\n') == ({*repairs(), '/etc/peerlane/key'}, True)
    assert run('remove') == ({*repairs(), '/var/lib/private/peerlane/state'}, True)
    assert run('upgrade')[0] == set(files)


# -- units when a package is upgraded or removed ----------------------------------------------------------------------------

UNITS = {path.name for path in (ROOT / 'packaging/systemd').iterdir() if path.suffix in ('.service', '.socket', '.timer')}
MODULE_UNITS = {'peerlane-peermem.service'}


def run_script(script, arguments, folder):
    """Runs a script of a package where systemd runs, without root's files. Returns its calls of systemctl and deb-systemd-invoke."""
    (folder / 'bin').mkdir(exist_ok=True)
    (folder / 'systemd').mkdir(exist_ok=True)
    calls = folder / 'calls'
    calls.write_text('')
    for name in 'deb-systemd-helper', 'deb-systemd-invoke', 'dkms', 'rm', 'rmdir', 'systemctl':
        (folder / 'bin' / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\n')
        (folder / 'bin' / name).chmod(0o755)
    done = subprocess.run(['sh', '-c', script.replace('/run/systemd/system', str(folder / 'systemd')), *arguments], timeout=DEADLINE,
                          capture_output=True, text=True, env={**os.environ, 'PATH': f'{folder}/bin:{os.environ["PATH"]}'})
    assert (done.returncode, done.stderr) == (0, ''), done
    lines = [line.split() for line in calls.read_text().split('\n')]
    return [(next(word for word in line[1:] if word[0] != '-'), {word for word in line if '.' in word})
            for line in lines if line and line[0] in ('systemctl', 'deb-systemd-invoke') and 'daemon-reload' not in line]


@pytest.fixture(scope='module')
def debian_scripts(tmp_path_factory):
    """The scripts that debhelper makes for each package, as debian/rules calls it."""
    folder = tmp_path_factory.mktemp('deb')
    shutil.copytree(ROOT / 'packaging/debian', folder / 'debian')
    for package, units in ('peerlane', 'packaging/systemd'), ('peerlane-peermem-dkms', 'packaging/common'):
        target = folder / 'debian' / package / 'lib/systemd/system'
        target.mkdir(parents=True)
        for path in (ROOT / units).iterdir():
            if path.suffix in ('.service', '.socket', '.timer'):
                shutil.copy(path, target)
    packages = ['-ppeerlane', '-ppeerlane-peermem-dkms']
    for command in ['make', '-s', '-f', 'debian/rules', 'override_dh_installsystemd'], ['dh_installdeb', *packages]:
        subprocess.run(command, check=True, timeout=DEADLINE, cwd=folder)

    def run(package, name, *arguments):
        path = folder / 'debian' / package / 'DEBIAN' / name
        return run_script(path.read_text(), [name, *arguments], folder) if path.exists() else []

    return run


needs_debhelper = pytest.mark.skipif(not shutil.which('dh_installsystemd'), reason='debhelper is not installed')


@needs_debhelper
def test_debian_upgrade_restarts_what_runs(debian_scripts):
    steps = [('prerm', 'upgrade', '2'), ('preinst', 'upgrade', '1', '2'), ('postrm', 'upgrade', '2'), ('postinst', 'configure', '1')]
    assert [call for step in steps for call in debian_scripts('peerlane', *step)] == [('try-restart', UNITS)]
    # The module stays loaded.
    assert [call for step in steps for call in debian_scripts('peerlane-peermem-dkms', *step)] == []


@needs_debhelper
def test_debian_installation_starts_nothing(debian_scripts):
    for package in 'peerlane', 'peerlane-peermem-dkms':
        assert debian_scripts(package, 'preinst', 'install') + debian_scripts(package, 'postinst', 'configure') == []


@needs_debhelper
def test_debian_removal_stops_all_units(debian_scripts):
    assert debian_scripts('peerlane', 'prerm', 'remove') == [('stop', UNITS)]
    assert debian_scripts('peerlane-peermem-dkms', 'prerm', 'remove') == [('stop', MODULE_UNITS)]
    for package in 'peerlane', 'peerlane-peermem-dkms':
        assert debian_scripts(package, 'postrm', 'remove') + debian_scripts(package, 'postrm', 'purge') == []


def rpm_script(package, section, count, folder):
    """Runs a script of the rpm package with the number of packages that stay."""
    spec = (ROOT / 'packaging/rpm/peerlane.spec').read_text()
    body = re.search(rf'^%{section}{f" -n {package}" if package != "peerlane" else ""}\n(.*?)\n\n', spec, re.M | re.S)
    macros = dict(re.findall(r'^%global (\w+) (.*)$', spec, re.M), version='1')
    return run_script(re.sub(r'%\{(\w+)\}', lambda macro: macros[macro[1]], body[1]), [section, count], folder) if body else []


@pytest.mark.parametrize('package, units', [('peerlane', UNITS), ('peerlane-peermem-dkms', MODULE_UNITS)])
def test_rpm_removal_disables_and_stops_all_units(tmp_path, package, units):
    files = rpm_packages()[f'-n {package}' if package != 'peerlane' else '']
    assert {os.path.basename(path) for path in files if 'systemd/system' in path} == units
    assert rpm_script(package, 'preun', '0', tmp_path) == [('disable', units), ('stop', units)]
    assert rpm_script(package, 'postun', '0', tmp_path) == []


def test_rpm_scriptlets_without_a_body_stay_so():
    """rpm gives a body, also a comment alone, to the program of -p as a file and a number."""
    spec = (ROOT / 'packaging/rpm/peerlane.spec').read_text()
    behind = re.findall(r'^%(?:pre|post|preun|postun)\b.* -p \S+\n\s*(\S)', spec, re.M)
    assert behind and set(behind) == {'%'}


def test_rpm_upgrade_restarts_what_runs(tmp_path):
    calls = [rpm_script('peerlane', section, count, tmp_path) for section, count in (('post', '2'), ('preun', '1'), ('postun', '1'))]
    assert calls == [[], [], [('try-restart', UNITS)]]
    for section, count in ('post', '2'), ('preun', '1'), ('postun', '1'):
        assert rpm_script('peerlane-peermem-dkms', section, count, tmp_path) == []


# -- repository -------------------------------------------------------------------------------------------------------------

CONTROL = '''Package: tiny-peerlane
Version: 1
Architecture: all
Maintainer: The Peerlane authors <peerlane@peerlane.invalid>
Description: package of a test
'''


needs_apt = pytest.mark.skipif(not shutil.which('apt-ftparchive'), reason='apt-utils is not installed')


@pytest.fixture
def packages(tmp_path):
    """A folder with one small package."""
    control = tmp_path / 'tree/DEBIAN/control'
    control.parent.mkdir(parents=True, mode=0o755)
    control.write_text(CONTROL)
    (tmp_path / 'packages').mkdir()
    subprocess.run(['dpkg-deb', '--build', '--root-owner-group', tmp_path / 'tree', tmp_path / 'packages'], check=True,
                   capture_output=True)
    return tmp_path / 'packages'


def make_repository(packages, **variables):
    return subprocess.run([ROOT / 'tools/repository', packages, packages.parent / 'repository'], capture_output=True, text=True,
                          timeout=DEADLINE, env={**os.environ, **variables})


def fetch(folder, options):
    """Downloads the package with settings of its own, as a host does with `deb OPTIONS file:... ./` alone."""
    state = folder / 'apt-state'
    shutil.rmtree(state, ignore_errors=True)
    for name in 'lists/partial', 'cache/archives/partial', 'etc/preferences.d':
        (state / name).mkdir(parents=True)
    (state / 'sources.list').write_text(f'deb {options} file:{folder}/repository/apt ./\n')
    settings = {'Dir::Etc': state / 'etc', 'Dir::Etc::SourceList': state / 'sources.list', 'Dir::Etc::SourceParts': '/dev/null',
                'Dir::State': state, 'Dir::State::Lists': state / 'lists', 'Dir::State::Status': '/dev/null',
                'Dir::Cache': state / 'cache', 'APT::Sandbox::User': 'root'}
    options = [f'-o{name}={value}' for name, value in settings.items()]
    update = subprocess.run(['apt-get', *options, '-q', 'update'], capture_output=True, text=True, timeout=DEADLINE)
    if update.returncode:
        return update.stderr
    return subprocess.run(['apt-get', *options, 'download', 'tiny-peerlane'], capture_output=True, text=True, timeout=DEADLINE,
                          cwd=state).stderr or (state / 'tiny-peerlane_1_all.deb').stat().st_size


@needs_apt
def test_apt_installs_from_the_repository(tmp_path, packages):
    done = make_repository(packages)
    assert (done.returncode, done.stderr) == (0, ''), done
    assert done.stdout == f'{tmp_path}/repository: 1 .deb, 0 .rpm, not signed\n'
    assert fetch(tmp_path, '[trusted=yes]') == (packages / 'tiny-peerlane_1_all.deb').stat().st_size
    assert 'not signed' in fetch(tmp_path, '')
    # An earlier repository is replaced; names are relative to the working folder of the caller.
    (tmp_path / 'repository/old').touch()
    done = subprocess.run([ROOT / 'tools/repository', 'packages', 'repository'], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0 and not (tmp_path / 'repository/old').exists(), done


@needs_apt
@pytest.mark.parametrize('mine', ['notes', 'apt/Packages'])
def test_other_folders_are_not_replaced(tmp_path, packages, mine):
    (tmp_path / 'repository' / mine).parent.mkdir(parents=True)
    (tmp_path / 'repository' / mine).write_text('mine')
    done = make_repository(packages)
    assert done.returncode == 1 and 'no repository of Peerlane' in done.stderr
    assert (tmp_path / 'repository' / mine).read_text() == 'mine'


@pytest.fixture
def keys():
    """Variables that name a key of gpg, which is not made yet; the path of its agent's socket must be short."""
    with tempfile.TemporaryDirectory(prefix='pl', ignore_cleanup_errors=True) as home:
        variables = {'GNUPGHOME': home, 'KEY': 'site@peerlane.invalid'}
        yield variables
        subprocess.run(['gpgconf', '--kill', 'all'], check=False, env={**os.environ, **variables})


@needs_apt
def test_apt_verifies_the_signature(tmp_path, packages, keys):
    assert make_repository(packages, **keys).returncode != 0 and not (tmp_path / 'repository').exists()
    subprocess.run(['gpg', '--batch', '--quiet', '--passphrase', '', '--quick-generate-key', keys['KEY'], 'ed25519', 'sign',
                    'never'], check=True, timeout=DEADLINE, env={**os.environ, **keys}, capture_output=True)
    done = make_repository(packages, **keys)
    assert done.returncode == 0 and done.stdout.endswith('signed by site@peerlane.invalid\n'), done
    signed = f'[signed-by={tmp_path}/repository/peerlane.asc]'
    assert isinstance(fetch(tmp_path, signed), int)
    assert 'NO_PUBKEY' in fetch(tmp_path, '')
    with (tmp_path / 'repository/apt/tiny-peerlane_1_all.deb').open('ab') as file:
        file.write(b'x')
    assert 'tiny-peerlane' in fetch(tmp_path, signed)
