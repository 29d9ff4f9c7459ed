# SPDX-License-Identifier: BSD-2-Clause
"""Examples of docs/python.md, and the texts of help()."""
import inspect
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time

import peerlane as pl
import pytest
from peerlane import aio

TEXT = (pathlib.Path(__file__).parents[2] / 'docs/python.md').read_text()
EXAMPLES = re.findall(r'^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```', TEXT, re.M | re.S)


def test_the_page_has_examples():
    assert len(EXAMPLES) == TEXT.count('```python') == 10


@pytest.mark.parametrize('name, code', EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(name, code):
    exec(compile(code, f'docs/python.md: {name}', 'exec'), {'__name__': 'example'})


@pytest.mark.skipif(not shutil.which('mpirun'), reason='openmpi-bin is not installed')
def test_the_example_of_mpi_runs(tmp_path):
    """Three processes, which need a key as those of several hosts do."""
    pytest.importorskip('mpi4py', reason='python3-mpi4py is not installed')
    code, = re.findall(r'^(    from mpi4py .*?)^\S', TEXT, re.M | re.S)
    (tmp_path / 'example.py').write_text(textwrap.dedent(code) + 'ends = comm.gather(len(group))\nif ends:\n    print(ends)\n')
    (tmp_path / 'key').touch(0o600)
    (tmp_path / 'key').write_text('kQ7vX2pL9mR4tY8wB3nZ6cF1')
    # The processes need none of the settings of this one, and hwloc no names of devices.
    done = subprocess.run(['mpirun', '--oversubscribe', '-n', '3', sys.executable, 'example.py'], cwd=tmp_path, timeout=300,
                          capture_output=True, text=True,
                          env={**os.environ, 'PYTHONMALLOC': 'default', 'HWLOC_COMPONENTS': '-pci', 'OMPI_ALLOW_RUN_AS_ROOT': '1',
                               'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == '[3, 3, 3]\n'


def test_the_example_of_torch_runs(tmp_path):
    """Two processes of one host, or a check of the syntax where PyTorch is not installed."""
    code, = re.findall(r'^(    import torch\n.*?)^\S', TEXT, re.M | re.S)
    code = textwrap.dedent(code)
    compile(code, 'docs/python.md', 'exec')
    pytest.importorskip('torch', reason='PyTorch is not installed')
    with socket.create_server(('127.0.0.1', 0)) as probe:
        port = str(probe.getsockname()[1])
    variables = {**os.environ, 'PYTHONMALLOC': 'default', 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port}
    (tmp_path / 'example.py').write_text(code + 'print(len(group))\n')
    processes = [subprocess.Popen([sys.executable, 'example.py'], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env={**variables, 'RANK': str(rank)}) for rank in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0] and outputs == ['2\n', '2\n'], outputs


@pytest.mark.parametrize('kind', [pl.Context, pl.Region, pl.Remote, pl.RemoteSet, pl.Listener, pl.Peer, pl.Operation,
                                  pl.Receipt, pl.Vector, pl.Publisher, pl.Subscriber, pl.Frame, pl.Layout, pl.Group, pl.Rendezvous,
                                  aio.Context, aio.Subscriber, aio.Peer, aio.Listener, aio.Vector])
def test_public_names_have_texts_and_signatures(kind):
    assert kind.__doc__
    for name, member in inspect.getmembers(kind):
        if name.startswith('_'):
            continue
        assert member.__doc__, f'{kind.__name__}.{name}'
        if callable(member):
            inspect.signature(member)


def test_the_c_parts_for_programs_of_kiro_compile(tmp_path):
    """With the headers that the page names, and declarations of the variables that its parts leave out."""
    root = pathlib.Path(__file__).parents[2]
    parts = re.findall(r'^```c\n(.*?)^```', (root / 'docs/from-kiro.md').read_text(), re.M | re.S)
    headers = [part for part in parts if part.startswith('#include')]
    calls = [part for part in parts if part not in headers]
    assert len(headers) == 1 and len(calls) == 5
    declarations = '''
        struct pl_context *context; struct pl_region *region; struct pl_listener *listener; struct pl_peer *peer;
        struct pl_remote *remote; struct pl_operation *operation; struct pl_publisher *publisher;
        struct pl_subscriber *subscriber; struct pl_stream_frame *frame; struct pl_frame_info info;
        struct pl_subscriber_info subscriber_info; struct pl_error error;
        unsigned char token[PL_TOKEN_MAX]; size_t token_length, size, length; void *memory; uint64_t offset, timeout, y;
        void grab_into(void *data); void process(const void *data, size_t length, uint64_t sequence, uint64_t lost);'''
    functions = ''.join(f'void part{at}(void)\n{{\n{part}}}\n' for at, part in enumerate(calls))
    (tmp_path / 'page.c').write_text(headers[0] + declarations + '\n' + functions)
    done = subprocess.run(['cc', '-std=c11', '-Wall', '-Werror', '-fsyntax-only', f'-I{root / "include"}', 'page.c'], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # Without a key, the address of the page would be refused.
    with_key, = (part for part in calls if 'options.key' in part and 'pl_listen' in part)
    assert with_key.index('if (key_length < 0)') < with_key.index('(size_t)key_length')


@pytest.mark.skipif(not os.environ.get('PEERLANE'), reason='the build has no command')
@pytest.mark.parametrize('page', ['python.md', 'from-kiro.md'])
def test_the_command_of_the_page_makes_a_key(tmp_path, page):
    """A key that contexts take."""
    text = (pathlib.Path(__file__).parents[2] / 'docs' / page).read_text()
    command, = re.findall(r'`peerlane (key \w+) \w+`', text)
    subprocess.run([os.environ['PEERLANE'], *command.split(), tmp_path / 'key'], check=True, capture_output=True, timeout=300)
    pl.Context(key_file=tmp_path / 'key').close()


@pytest.mark.skipif(not os.environ.get('PEERLANE'), reason='the build has no command')
@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost'])
def test_the_examples_of_two_processes_run(tmp_path, host):
    """The reader gets the host as the program got it, with the port that the listener has."""
    command, = re.findall(r'`peerlane (key \w+ key)`', TEXT)
    subprocess.run([os.environ['PEERLANE'], *command.split()], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    examples = pathlib.Path(__file__).parents[2] / 'docs/examples'
    variables = {**os.environ, 'PYTHONMALLOC': 'default'}
    server = subprocess.Popen([sys.executable, examples / 'serve.py', 'key', f'{host}:0', 'invitation'], cwd=tmp_path,
                              env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        while not (tmp_path / 'invitation').exists() and server.poll() is None:
            time.sleep(0.01)
        address = pl.Invitation.from_bytes((tmp_path / 'invitation').read_bytes()).address
        assert address.startswith(f'{host}:') and int(address.rpartition(':')[2]) > 0
        done = subprocess.run([sys.executable, examples / 'read.py', 'key', 'invitation'], cwd=tmp_path, env=variables,
                              capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (0, '499500.0\n', '')
        assert server.communicate(timeout=300)[0] == '' and server.returncode == 0
    finally:
        server.kill()
        server.communicate()
