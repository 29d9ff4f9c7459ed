# SPDX-License-Identifier: BSD-2-Clause
"""Outputs that are full or closed, open descriptors, and symbolic links."""
import contextlib
import json
import pathlib
import re
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, content, environment, run, serving, shown_in, write
from stream_support import publishing


def run_unwritable(how, *arguments):
    """Runs a command whose standard output is full or closed."""
    return subprocess.run(['sh', '-c', 'exec "$0" "$@" >' + {'full': '/dev/full', 'closed': '&-'}[how], PEERLANE,
                           *map(str, arguments)], stderr=subprocess.PIPE, text=True, timeout=DEADLINE, env=environment())


@pytest.fixture(scope='module')
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp('results') / 'bench.json'
    path.write_text(run('bench', '--size', '1K', '--duration', '0.01', '--json').stdout)
    return path


RECORDING = pathlib.Path(__file__).parent.parent / 'fuzz/corpus/recording/whole'
# SERVER and PUBLISHER stand for addresses, RESULTS, NEW and RECORDING for a document, a new path and a recorded stream.
WRITERS = [
    ['version', '--json'], ['--version'], ['--help'], ['help', 'options'], ['get', '--help'], ['put', '--usage'], ['help', 'list'], ['check'], ['check', '--json'],
    ['check', '--list'], ['topo'], ['topo', '--json'], ['topo', '--svg', '-'], ['dump', '-o', '-'],
    ['bench', '--size', '1K', '--duration', '0.01'], ['bench', '--size', '1K', '--duration', '0.01', '--json'],
    ['bench', 'compare', 'RESULTS', 'RESULTS'], ['report', 'RESULTS'], ['report', 'RESULTS', '-o', '-'],
    ['report', 'RESULTS', '--svg', '-'], ['list', 'SERVER'], ['list', 'SERVER', '--json'], ['get', 'SERVER', 'data', '-o', '-'],
    ['get', 'SERVER', 'data', '-o', 'NEW'], ['get', 'SERVER', 'data', '-o', 'NEW', '--json'], ['put', 'SERVER', 'RESULTS'],
    ['streams', 'PUBLISHER'], ['streams', 'PUBLISHER', '--json'], ['publish', '--name', 'x', '--listen', '127.0.0.1:0', '--count', '1'],
    ['publish', '--name', 'x', '--listen', '127.0.0.1:0', '--count', '1', '--json'],
    ['replay', 'RECORDING', '--check'], ['replay', 'RECORDING', '--info', '--json'],
    ['replay', 'RECORDING', '--listen', '127.0.0.1:0', '--fast', '--json'],
    ['demo', '--size', '1M', '--frames', '1'], ['key', 'generate', 'NEW'], ['key', 'group', 'NEW'], ['serve', '127.0.0.1:0', 'RESULTS', '--for', '0.1'],
]


@pytest.mark.parametrize('arguments', WRITERS, ids=' '.join)
def test_output_that_cannot_be_written_is_a_failure(tmp_path, results, arguments):
    data = content(100_000)
    write(tmp_path / 'pub/data', data)
    (tmp_path / 'inbox').mkdir()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / 'pub', '--upload', tmp_path / 'inbox'))
        publisher = stack.enter_context(publishing('--from', '-', '--frame-bytes', '1K')) if 'PUBLISHER' in arguments else server
        for how, reason in [('full', 'No space left on device'), ('closed', 'Bad file descriptor')]:
            new = tmp_path / how
            words = {'SERVER': server.address, 'PUBLISHER': publisher.address, 'RESULTS': results, 'NEW': new, 'RECORDING': RECORDING}
            done = run_unwritable(how, *[words.get(word, word) for word in arguments])
            assert done.returncode == 4 and reason in done.stderr, (how, done.returncode, done.stderr)
            # A closed descriptor is no place for a file of the command, which would then have its output as well.
            if arguments[0] == 'get' and 'NEW' in arguments:
                assert new.read_bytes() == data


@pytest.mark.parametrize('arguments', [['topo', '--svg', '-', '--html', '-'], ['topo', '--json', '--svg', '-'], ['topo', '--html', '-', '--tree'],
                                       ['topo', '--svg', '-', '--expect', 'gpus=1'], ['report', 'RESULTS', '-o', '-', '--svg', '-'],
                                       ['report', 'RESULTS', '-o', '-', '--json'], ['report', 'RESULTS', '--svg', '-', '--csv'],
                                       ['report', 'RESULTS', '--svg', '-', '--terminal']], ids=' '.join)
def test_two_documents_on_standard_output_are_refused(results, arguments):
    done = run(*[results if word == 'RESULTS' else word for word in arguments], expect=2)
    assert not done.stdout and 'would both be written to standard output' in ' '.join(done.stderr.split())


TOKEN = ['publish', '--name', 'x', '--listen', '127.0.0.1:0', '--count', '1', '--share', 'FILE']
SUBSCRIBE = ['subscribe', 'STREAM', 'cam0', '--start', 'latest', '--count', '1', '--to', 'FILE']


@pytest.mark.parametrize('arguments', [['check', '--format', 'line', '--output', 'FILE'], ['dump', '-o', 'FILE'], ['topo', '--svg', 'FILE'], ['report', 'RESULTS', '-o', 'FILE'],
                                       ['get', 'SERVER', 'data', '-o', 'FILE'], TOKEN, SUBSCRIBE], ids=lambda words: words[0])
def test_output_into_an_open_descriptor_follows_its_earlier_bytes(tmp_path, results, arguments):
    """As after `>> FILE` in a shell.  Not /dev/stdout: a command that replaced it would damage this machine."""
    write(tmp_path / 'pub/data', content(100_000))
    path = write(tmp_path / 'out/file', b'before\n' * 10_000)
    with serving(tmp_path / 'pub') as server, publishing('--from', '-', '--frame-bytes', '1K') as publisher, open(path, 'ab') as file:
        publisher.feed(bytes(1024))
        publisher.wait_for('published', 1)
        words = {'SERVER': server.address, 'STREAM': publisher.address, 'RESULTS': results, 'FILE': f'/dev/fd/{file.fileno()}'}
        done = subprocess.run([PEERLANE, *map(str, [words.get(word, word) for word in arguments])], pass_fds=[file.fileno()],
                              capture_output=True, text=True, timeout=DEADLINE, env=environment())
    # The state of this machine decides the status of a check.
    assert done.returncode == 0 or arguments[0] == 'check' and 'peerlane: ' not in done.stderr, done.stderr
    written = path.read_bytes()
    assert written.startswith(b'before\n' * 10_000) and len(written) > 70_050
    assert [*path.parent.iterdir()] == [path]


def test_descriptors_of_the_command_itself_are_no_output():
    """Without `3> FILE` in a shell, descriptor 3 is closed or one that the command has opened, such as a socket."""
    with publishing('--from', '-', '--frame-bytes', '1K') as publisher:
        publisher.feed(bytes(1024))
        publisher.wait_for('published', 1)
        for path in ['/dev/fd/3', '/dev/fd/4', '/dev/fd/5', '/dev/fd/6', '/proc/self/fd/7', '/proc/thread-self/fd/8']:
            done = run('subscribe', publisher.address, 'cam0', '--start', 'latest', '--count', '1', '--to', path, expect=1)
            assert f'{path}: open: Bad file descriptor' in done.stderr


@pytest.mark.parametrize('arguments', [['check', '--format', 'line', '--output', 'FILE'], ['dump', '-o', 'FILE'], ['topo', '--svg', 'FILE'], ['report', 'RESULTS', '-o', 'FILE'],
                                       ['get', 'SERVER', 'data', '-o', 'FILE'], TOKEN, SUBSCRIBE], ids=lambda words: words[0])
def test_output_through_a_folder_of_proc_is_an_ordinary_file(tmp_path, results, arguments):
    """A new file is made, and a longer old one keeps no bytes."""
    write(tmp_path / 'pub/data', content(1000))
    old, new = write(tmp_path / 'old', b'before\n' * 100_000), tmp_path / 'new'
    with serving(tmp_path / 'pub') as server, publishing('--from', '-', '--frame-bytes', '1K') as publisher:
        publisher.feed(bytes(1024))
        publisher.wait_for('published', 1)
        for path in [old, new]:
            words = {'SERVER': server.address, 'STREAM': publisher.address, 'RESULTS': results, 'FILE': f'/proc/self/cwd/{path.name}'}
            done = run(*[words.get(word, word) for word in arguments], cwd=tmp_path, expect=None)
            # The state of this machine decides the status of a check.
            assert done.returncode == 0 or arguments[0] == 'check' and 'peerlane: ' not in done.stderr, done.stderr
            written = path.read_bytes()
            assert written and not written.endswith(b'before\n')


def test_output_through_a_symbolic_link_replaces_its_target(tmp_path):
    link, target = tmp_path / 'link', write(tmp_path / 'far/target', b'old')
    link.symlink_to('far/target')
    run('check', '--json', '--output', link, expect=None)
    assert link.is_symlink() and json.loads(target.read_text())['kind'] == 'check'
    # A link that leads nowhere gets a target, as a shell makes it.
    target.unlink()
    run('check', '--json', '--output', link, expect=None)
    assert link.is_symlink() and json.loads(target.read_text())['kind'] == 'check'
    assert [*target.parent.iterdir()] == [target]


def test_system_errors_name_a_remedy(tmp_path):
    """Of the command and of the library: a missing input has another remedy than a missing folder of an output."""
    path = tmp_path / 'none/file'
    (tmp_path / 'pub').mkdir()
    with serving(tmp_path / 'pub', '--upload', tmp_path / 'pub') as server:
        inputs = [('list', 'localhost:1', '--identity', path), ('replay', path), ('report', path), ('put', server.address, path),
                  ('key', 'show', path), ('publish', '--name', 'x', '--listen', '127.0.0.1:0', '--from', path)]
        outputs = [('topo', '--svg', path), ('key', 'generate', path), ('get', server.address, 'x', '-o', path),
                   ('serve', '127.0.0.1:0', '--upload', path)]
        for arguments in inputs + outputs:
            hint = 'create the folder first, with mkdir -p' if arguments in outputs else 'check the name'
            assert f'No such file or directory [SYSTEM]\n  hint: {hint}\n' in run(*arguments, expect=1).stderr
            if arguments[0] in ['topo', 'list', 'replay']:
                assert json.loads(run(*arguments, '--json', expect=1).stdout)['error']['hint'] == hint


def test_closed_standard_input_is_no_empty_file(tmp_path):
    write(tmp_path / 'pub/data', b'data')
    (tmp_path / 'inbox').mkdir()
    with serving(tmp_path / 'pub', '--upload', tmp_path / 'inbox') as server:
        done = subprocess.run(['sh', '-c', 'exec "$0" "$@" <&-', PEERLANE, 'put', server.address, '-', '--as', 'new'],
                              stderr=subprocess.PIPE, text=True, timeout=DEADLINE, env=environment())
    assert done.returncode == 1 and 'Bad file descriptor' in done.stderr and not (tmp_path / 'inbox/new').exists()


def test_rows_on_a_terminal_end_between_words(tmp_path):
    """Messages, and the lines above a table, end their rows between words; an id and a command between backticks stay whole."""
    refused = ['list', '127.0.0.1:1']
    rows = shown_in(80, *refused, expect=1, errors=True)
    assert len(rows) == 3 and '[CONNECT-REFUSED]' in rows[1] and max(map(len, rows)) <= 80
    assert rows[1].startswith('    ') and rows[2].startswith('  hint: ')
    whole = run(*refused, expect=1).stderr
    assert ' '.join(row.strip() for row in rows) == ' '.join(line.strip() for line in whole.splitlines())
    assert shown_in(200, *refused, expect=1, errors=True) == whole.splitlines()
    write(tmp_path / 'key', b'0123456789abcdef').chmod(0o644)
    rows = shown_in(40, 'list', '--key', tmp_path / 'key', '127.0.0.1:1', expect=1, errors=True)
    assert any(f'`chmod o= {tmp_path}/key`' in row for row in rows)
    # The name has a backtick of its own.
    rows = shown_in(40, 'list', '--key', 'a`b', '127.0.0.1:1', expect=1, errors=True)
    assert rows[:2] == ['peerlane: a`b: there is no such file', '    [KEY-FILE-MISSING]'] and max(map(len, rows)) <= 40
    rows = shown_in(60, 'bench', '--size', '1K', '--duration', '0.01')
    table = next(number for number, row in enumerate(rows) if row.lstrip().startswith('SIZE'))
    assert rows[0].startswith('write bandwidth over local, direct (') and max(len(row) for row in rows[:2]) <= 60
    assert re.match(r'  \S', rows[1]) and table > 2
