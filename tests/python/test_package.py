# SPDX-License-Identifier: BSD-2-Clause
"""The package: its stubs, the symbols of the extension, the wheel, and results of the command."""
import ast
import base64
import hashlib
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import peerlane as pl
import pytest
from peerlane import _peerlane, aio

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = pathlib.Path(pl.__file__).parent
BUILD = PACKAGE.parents[2]


def stub_classes(name):
    """Return the classes of a stub: for each its members, with the names and defaults of their parameters."""
    found = {}
    for node in ast.parse((PACKAGE / name).read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        members = {}
        for base in node.bases:
            members.update(found.get(getattr(base, 'id', ''), {}))
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = item.args.posonlyargs + item.args.args
                members[item.name] = ([argument.arg for argument in given[1:]],
                                      [ast.literal_eval(value) for value in item.args.defaults])
        found[node.name] = members
    return found


STUBS = stub_classes('_peerlane.pyi')


@pytest.mark.parametrize('kind', [item for item in vars(_peerlane).values() if isinstance(item, type)
                                  and item is not _peerlane.Tensor],
                         ids=lambda kind: kind.__name__)
def test_stubs_have_the_members_of_the_extension(kind):
    name = next(name for name, item in vars(_peerlane).items() if item is kind)
    members = {member for member in vars(kind) if not member.startswith('__')}
    stub = {member for member in STUBS[name] if not member.startswith('__')}
    assert members == stub
    for member in members:
        function = getattr(kind, member)
        if member.startswith('_') or not callable(function):
            continue
        given = list(inspect.signature(function).parameters.values())[1:]
        names, defaults = STUBS[name][member]
        assert [parameter.name for parameter in given if parameter.name != '/'] == names, member
        assert [parameter.default for parameter in given if parameter.default is not parameter.empty] == defaults, member


def test_stubs_have_the_functions_of_the_extension():
    functions = {node.name for node in ast.parse((PACKAGE / '_peerlane.pyi').read_text()).body
                 if isinstance(node, ast.FunctionDef)}
    assert functions == {name for name, item in vars(_peerlane).items() if inspect.isbuiltin(item)}
    for module, classes in (('_context', {'Base', 'Context'}), ('aio', {'Context', 'Operation', 'Subscriber'}), ('_streams', {'Layout'})):
        assert set(stub_classes(f'{module}.pyi')) == classes
    public = {name for name in vars(aio.Context) if not name.startswith('_')} - {'closed'}
    assert public <= set(stub_classes('aio.pyi')['Context'])
    assert (PACKAGE / 'py.typed').exists()


def test_types_are_complete_and_those_of_the_package(tmp_path):
    pytest.importorskip('mypy', reason='python3-mypy is not installed')
    # Python 3.11 shows no __buffer__(); the options of a context are keyword arguments only.
    (tmp_path / 'allowed').write_text('.*\\.__buffer__\npeerlane\\._peerlane\\.Context\\.__init__\n')
    for tool in (['mypy.stubtest', '--allowlist', tmp_path / 'allowed', '--ignore-unused-allowlist', 'peerlane'],
                 ['mypy', '--strict', '--python-version', '3.11', '--cache-dir', tmp_path, '-p', 'peerlane']):
        # The debug hooks of the allocator would double the time of both tools.
        done = subprocess.run([sys.executable, '-m', *tool], cwd=PACKAGE.parent, capture_output=True, text=True,
                              env={**os.environ, 'PYTHONMALLOC': 'default'})
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_extension_uses_no_private_symbols():
    listed = subprocess.run(['nm', '-D', PACKAGE / '_peerlane.abi3.so'], capture_output=True, text=True, check=True).stdout
    undefined = set(re.findall(r' U (_?Py\w*)', listed))
    private = {name for name in undefined if name.startswith('_')}
    # Parts of the stable ABI, to which macros of the headers expand.
    assert undefined and private <= {'_Py_Dealloc', '_Py_NoneStruct', '_Py_TrueStruct', '_Py_FalseStruct', '_PyObject_New',
                                     '_PyObject_CallMethod_SizeT', '_Py_BuildValue_SizeT'}
    assert re.findall(r' T (\w+)', listed) == ['PyInit__peerlane']


def test_the_extension_uses_the_limited_api_of_its_headers_only(tmp_path):
    """Names in the headers with the limited API of 3.11: no header declares others, but macros may expand to them."""
    headers = pathlib.Path(sysconfig.get_path('include'))
    if not shutil.which('cc') or not (headers / 'Python.h').exists():
        pytest.skip('needs a C compiler and the headers of Python')
    source = tmp_path / 'names.c'
    source.write_text('#define Py_LIMITED_API 0x030B0000\n#include <Python.h>\n')
    text = subprocess.run(['cc', '-E', '-P', f'-I{headers}', source], capture_output=True, text=True, check=True).stdout
    declared = set(re.findall(r'\b_?Py\w+', text))
    # Of the full API, of 3.13, and of 3.12, whose headers and later ones declare it for 3.11, too.
    others = {'PyUnicode_AsUTF8', 'PyList_GetItemRef'} | ({'PyErr_SetRaisedException'} if sys.version_info < (3, 12) else set())
    assert 'PyObject_GetBuffer' in declared and not declared & others
    listed = subprocess.run(['nm', '-D', PACKAGE / '_peerlane.abi3.so'], capture_output=True, text=True, check=True).stdout
    # The headers name this function of calls with sizes by a macro.
    used = {name.removesuffix('_SizeT').removeprefix('_') if name.endswith('_SizeT') else name
            for name in re.findall(r' U (_?Py\w*)', listed)}
    assert used and used <= declared, used - declared


PROGRAM = '''
import ctypes
import os
import sys
import peerlane as pl
# Another copy of the library in the process, in the plugin of NIXL.
for plugin in sys.argv[2:]:
    library = ctypes.CDLL(plugin, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.nixl_plugin_init.restype = ctypes.c_void_p
    assert library.nixl_plugin_init()
assert pl.__file__.startswith(sys.argv[1]), pl.__file__
with pl.Context() as a, pl.Context() as b:
    target = bytearray(8)
    listener, region = a.listen(), a.register(target, "w")
    peer = b.connect(listener.address)
    peer.write(peer.import_(region.share()), b.register(b"12345678", "r"))
    assert target == b"12345678"
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libpeerlane" in line}
assert all(library.startswith(sys.argv[1]) for library in libraries) and libraries, libraries
'''


def make_wheel(*arguments):
    return subprocess.run([sys.executable, ROOT / 'bindings/python/make_wheel.py', *arguments], capture_output=True, text=True)


def test_a_wheel_for_a_free_threaded_interpreter_needs_one(tmp_path):
    with_lock = tmp_path / 'python'
    with_lock.write_text('#!/bin/sh\necho 0 .so 3 13\n')
    with_lock.chmod(0o755)
    made = make_wheel('--python', with_lock, BUILD, tmp_path)
    assert made.returncode != 0 and 'is not free-threaded' in made.stderr
    with_lock.write_text('#!/bin/sh\necho 1 .none.so 3 13\n')
    made = make_wheel('--python', with_lock, BUILD, tmp_path)
    assert made.returncode != 0 and '-Dpython_free_threaded=' in made.stderr


@pytest.mark.skipif(not os.environ.get('FREE_THREADED_PYTHON'), reason='the build has no extension for a free-threaded interpreter')
def test_the_wheel_for_a_free_threaded_interpreter_runs_alone(tmp_path):
    interpreter = os.environ['FREE_THREADED_PYTHON']
    made = make_wheel('--python', interpreter, BUILD, tmp_path)
    assert made.returncode == 0, made.stderr
    wheel = pathlib.Path(made.stdout.strip())
    assert re.fullmatch(r'peerlane-[\d.]+-cp3(\d+)-cp3\1t-linux_\w+\.whl', wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / 'site')
    inherited = {name: value for name, value in os.environ.items() if name != 'LD_LIBRARY_PATH'}
    program = PROGRAM + 'assert not sys._is_gil_enabled()\n'
    done = subprocess.run([interpreter, '-W', 'error', '-c', program, str(tmp_path)], capture_output=True, text=True, timeout=300,
                          env={**inherited, 'PYTHONPATH': str(tmp_path / 'site')})
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not (BUILD / 'build.ninja').exists(), reason='the package does not run from a build folder')
@pytest.mark.skipif(bool(sysconfig.get_config_var('Py_GIL_DISABLED')), reason='the extension is for the limited API')
def test_the_wheel_runs_alone(tmp_path):
    made = make_wheel(BUILD, tmp_path)
    assert made.returncode == 0, made.stderr
    wheel = pathlib.Path(made.stdout.strip())
    assert re.fullmatch(r'peerlane-[\d.]+-cp311-abi3-linux_\w+\.whl', wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / 'site')
        names = set(archive.namelist())
    record = next((tmp_path / 'site').glob('*.dist-info/RECORD')).read_text().splitlines()
    assert {line.split(',')[0] for line in record} == names
    for line in record[:-1]:
        name, digest, size = line.split(',')
        content = (tmp_path / 'site' / name).read_bytes()
        expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()
        assert (digest, int(size)) == ('sha256=' + expected, len(content))
    # The test runner may name the folder of the build's library there.
    inherited = {name: value for name, value in os.environ.items() if name != 'LD_LIBRARY_PATH'}
    plugins = [str(plugin) for plugin in (BUILD / 'plugins/nixl').glob('libplugin_PEERLANE.so')]
    done = subprocess.run([sys.executable, '-c', PROGRAM, str(tmp_path), *plugins], capture_output=True, text=True, timeout=300,
                          env={**inherited, 'PYTHONPATH': str(tmp_path / 'site')})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('prefix', ['/usr', '/usr/local', '/opt/peerlane'])
def test_an_installation_goes_where_the_interpreter_looks(prefix):
    """Debian's interpreters share /usr/lib/python3, and have a folder of each version in /usr/local."""
    interpreter = '/usr/bin/python3'
    if not pathlib.Path('/etc/debian_version').exists() or not os.access(interpreter, os.X_OK):
        pytest.skip('this is no Debian')
    asked = subprocess.run([interpreter, '-I', '-c', 'import sys; print(*sys.path, sep="\\n")'], capture_output=True, text=True, check=True)
    done = subprocess.run([interpreter, '-I', ROOT / 'bindings/python/install_folder.py', prefix], capture_output=True, text=True,
                          check=True)
    folder = done.stdout.strip()
    assert not folder if prefix.startswith('/opt') else folder.startswith(f'{prefix}/lib/python3') and folder.endswith('/dist-packages')
    # The interpreter leaves folders out that do not exist.
    assert folder in asked.stdout.splitlines() or not pathlib.Path(folder).exists() or not folder


def command(tmp_path, text):
    path = tmp_path / 'peerlane'
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return str(path)


def test_results_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv('PEERLANE', command(tmp_path, 'echo "{\\"arguments\\": \\"$*\\"}"; exit 3'))
    assert pl.check() == {'arguments': 'check --json'}
    assert pl.topology() == {'arguments': 'topo --json'}
    monkeypatch.setenv('PEERLANE', command(tmp_path, 'echo broken >&2; exit 2'))
    with pytest.raises(pl.Error, match='broken') as caught:
        pl.check()
    assert caught.value.id == 'PY-COMMAND'
    monkeypatch.delenv('PEERLANE')
    monkeypatch.setenv('PATH', str(tmp_path / 'nothing'))
    with pytest.raises(pl.Error, match='not installed'):
        pl.topology()


@pytest.mark.skipif(not os.environ.get('PEERLANE'), reason='the command is not built')
def test_the_command_itself():
    assert isinstance(pl.topology(), dict) and isinstance(pl.check(), dict)
