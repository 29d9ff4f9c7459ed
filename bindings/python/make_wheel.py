#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes a wheel of the package from a build folder, without network and without other packages.

The wheel is for Python 3.11 and later, or with --python for one free-threaded version.

The wheel contains the library, so one file is enough on other machines with the same C library, or a newer one, and
OpenSSL 3: pip install --no-index --no-deps FILE, or PYTHONPATH=FILE's content.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files make the same wheel


def version():
    return re.search(r"^\tversion: '([^']+)'", (ROOT / 'meson.build').read_text(), re.M)[1]


def dynamic_paths(content):
    """Return (offset, space) of the run path in an ELF file of 64 bits and little endian; None without one."""
    if content[:6] != b'\x7fELF\x02\x01':
        raise SystemExit('make_wheel: the extension is no ELF file of 64 bits')
    start, count = struct.unpack_from('<Q', content, 32)[0], struct.unpack_from('<H', content, 56)[0]
    headers = [struct.unpack_from('<IIQQQQQQ', content, start + 56 * at) for at in range(count)]

    def offset_of(address):
        return next(address - header[3] + header[2] for header in headers
                    if header[0] == 1 and header[3] <= address < header[3] + header[5])

    dynamic = next(header for header in headers if header[0] == 2)
    entries = dict(struct.iter_unpack('<qQ', content[dynamic[2]:dynamic[2] + dynamic[5]]))
    at = entries.get(29, entries.get(15))
    if at is None:
        return None
    at += offset_of(entries[5])
    return at, content.index(b'\0', at) - at


def with_run_path(content, path):
    """Return an ELF file with another run path, which is not longer than the present one."""
    found = dynamic_paths(content)
    if found is None or len(path) > found[1]:
        raise SystemExit('make_wheel: the extension has no run path: use that of the build folder, not an installed one')
    at, space = found
    return content[:at] + path.encode().ljust(space, b'\0') + content[at + space:]


def stripped(path):
    """Return an ELF file without debug information, if strip(1) is installed."""
    if not shutil.which('strip'):
        return path.read_bytes()
    with tempfile.NamedTemporaryFile() as output:
        subprocess.run(['strip', '--strip-unneeded', '-o', output.name, path], check=True)
        return pathlib.Path(output.name).read_bytes()


def target_of(interpreter):
    """Return the name of the extension, and the tag of the wheel without the platform."""
    if interpreter is None:
        return '_peerlane.abi3.so', 'cp311-abi3', '>=3.11'
    facts = ('import sys, sysconfig; variable = sysconfig.get_config_var; '
             'print(variable("Py_GIL_DISABLED") or 0, variable("EXT_SUFFIX"), *sys.version_info[:2])')
    asked = subprocess.run([interpreter, '-c', facts], capture_output=True, text=True)
    if asked.returncode != 0:
        raise SystemExit(f'make_wheel: {interpreter} is no Python: {asked.stderr.strip()}')
    disabled, suffix, major, minor = asked.stdout.split()
    if disabled != '1':
        raise SystemExit(f'make_wheel: {interpreter} is not free-threaded: the wheel without --python serves it')
    return f'_peerlane{suffix}', f'cp{major}{minor}-cp{major}{minor}t', f'=={major}.{minor}.*'


def contents(build, extension):
    """Return the files of the wheel."""
    package = build / 'bindings/python/peerlane'
    if not (package / extension).exists():
        need = ('build with Python 3.11 or later and its headers' if extension.endswith('.abi3.so') else
                'configure the build with -Dpython_free_threaded=INTERPRETER')
        raise SystemExit(f'make_wheel: {package} has no {extension}: {need}')
    files = {f'peerlane/{path.name}': path.read_bytes()
             for path in sorted((ROOT / 'bindings/python/peerlane').glob('*.py*')) + [
                 ROOT / 'bindings/python/peerlane/py.typed'] if path.is_file()}
    files[f'peerlane/{extension}'] = with_run_path(stripped(package / extension), '$ORIGIN')
    files['peerlane/libpeerlane.so.0'] = stripped(build / 'libpeerlane.so.0')
    return files


def metadata(number, tag, versions):
    """Return the name of the folder of metadata, and its files."""
    tag = f'{tag}-linux_{platform.machine()}'
    folder = f'peerlane-{number}.dist-info'
    text = (ROOT / 'bindings/python/METADATA.in').read_text().replace('@VERSION@', number).replace('@PYTHON@', versions)
    return tag, folder, {
        f'{folder}/METADATA': text.encode(),
        f'{folder}/WHEEL': f'Wheel-Version: 1.0\nGenerator: peerlane\nRoot-Is-Purelib: false\nTag: {tag}\n'.encode(),
        f'{folder}/LICENSE': (ROOT / 'LICENSE').read_bytes(),
    }


def make(build, folder, interpreter):
    """Write the wheel; return its path."""
    number = version()
    extension, tag, versions = target_of(interpreter)
    tag, information, further = metadata(number, tag, versions)
    files = {**contents(build, extension), **further}
    record = ''.join(
        f'{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()},{len(content)}\n'
        for name, content in files.items())
    files[f'{information}/RECORD'] = (record + f'{information}/RECORD,,\n').encode()
    path = folder / f'peerlane-{number}-{tag}.whl'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if '.so' in name else 0o644) << 16
            wheel.writestr(entry, content)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0], epilog=__doc__.split('\n\n', 1)[1])
    parser.add_argument('--python', metavar='INTERPRETER',
                        help='free-threaded interpreter that BUILD was configured for, with -Dpython_free_threaded=INTERPRETER')
    parser.add_argument('build', metavar='BUILD', type=pathlib.Path, help='folder of a build')
    parser.add_argument('folder', metavar='FOLDER', type=pathlib.Path, nargs='?', help='of the wheel, by default BUILD')
    given = parser.parse_args()
    folder = given.folder or given.build
    os.makedirs(folder, exist_ok=True)
    print(make(given.build, folder, given.python))


if __name__ == '__main__':
    main()
