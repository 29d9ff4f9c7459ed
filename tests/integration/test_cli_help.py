# SPDX-License-Identifier: BSD-2-Clause
"""Help, version, completion and man pages, and their agreement with each other."""
import functools
import json
import pathlib
import re
import shlex
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, environment, make_key, run, run_json, serving, write
from stream_support import publishing

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = ['serve', 'list', 'get', 'put', 'delete', 'top', 'publish', 'streams', 'subscribe', 'relay', 'record', 'replay', 'key', 'routes', 'topo', 'bench', 'report', 'demo', 'check', 'fleet',
            'dump', 'version']
# Commands of two words, and another mode of bench that has its own options.
SUBCOMMANDS = [['bench', 'compare'], ['bench', 'kv'], ['bench', 'workflow'], ['bench', 'proxy'], ['bench', '--mpi'], ['bench', '--matrix'], ['fleet', 'check'],
               ['fleet', 'topo'], ['fleet', 'bench'], ['fleet', 'show'], ['fleet', 'compare']]
ALL_COMMANDS = [[command] for command in COMMANDS] + SUBCOMMANDS
CONNECTING = ['serve', 'list', 'get', 'put', 'delete', 'top', 'publish', 'streams', 'subscribe', 'relay', 'record', 'replay', 'demo', 'bench']  # accept the connection options
OUTPUT_OPTIONS = {'--json', '--quiet', '--help', '--usage'}
OPTION = re.compile(r'^  (?:-\S, |    )(--[a-z-]+)', re.MULTILINE)
COLUMNS = 80


def name_of(command):
    return ' '.join(command)


@functools.cache
def shown_by(*arguments):
    """Standard output of a command that prints the same each time: many cases read it."""
    done = run(*arguments)
    assert not done.stderr
    return done.stdout


def help_of(command):
    return shown_by(*command, '--help')


def own_options(*command):
    """Long options that the help of a command lists."""
    return set(OPTION.findall(help_of(command)))


def shared_options(command):
    """Shared options that a command accepts."""
    return set(OPTION.findall(shown_by('help', 'options'))) if command in CONNECTING else OUTPUT_OPTIONS


def options(command):
    return own_options(command) | shared_options(command)


def sections(command):
    """The help of a command: its first lines, its examples, and the rest."""
    head, rest = help_of(command).split('\nExamples:\n')
    examples, rest = rest.split('\n\n', 1)
    return head.splitlines(), [line.strip() for line in examples.splitlines()], rest


def complete(*words, cwd=None):
    """Words that bash offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _peerlane "$1" 2>/dev/null; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(['bash', '-c', script, 'bash', ROOT / 'completions/peerlane.bash', PEERLANE, *map(str, words)],
                          capture_output=True, text=True, timeout=DEADLINE, cwd=cwd, env=environment())
    assert done.returncode == 0, done.stderr
    return {word for word in done.stdout.splitlines() if word}


def test_overview_lists_every_command():
    shown = run('--help').stdout
    for command in COMMANDS:
        assert re.search(rf'^  {command} +\S', shown, re.MULTILINE)
    assert run('help').stdout == run('-h').stdout == shown
    assert run('help', 'bench', 'kv').stdout == run('bench', 'kv', '--help').stdout
    assert run(expect=2).stderr == shown
    assert 'peerlane demo' in shown and 'peerlane key group' in shown and 'peerlane help options' in shown
    assert max(map(len, shown.splitlines())) <= COLUMNS


@pytest.mark.parametrize('command', ALL_COMMANDS, ids=name_of)
def test_help_begins_with_usage_and_one_sentence(command):
    name = 'bench' if command[1:] in (['--mpi'], ['--matrix']) else name_of(command)
    (usage, *summary), _, _ = sections(command)
    assert usage.startswith(f'Usage: peerlane {name} [OPTION...]')
    assert ' '.join(summary).endswith('.') and '. ' not in ' '.join(summary)


@pytest.mark.parametrize('command', ALL_COMMANDS, ids=name_of)
def test_help_has_two_examples_before_the_options(command):
    _, examples, rest = sections(command)
    assert len(examples) == 2
    for example in examples:
        assert f'peerlane {name_of(command)}' in example
    assert rest.startswith('Options:\n') == bool(own_options(*command))


@pytest.mark.parametrize('command', ALL_COMMANDS, ids=name_of)
def test_examples_have_valid_options(command):
    """--help behind the other arguments prints the help only if the options before it are valid."""
    for example in sections(command)[1]:
        stage = next(stage for stage in example.split(' | ') if f'peerlane {name_of(command)}' in stage)
        words = shlex.split(stage.split(' >')[0])
        arguments = words[words.index('peerlane') + 1:]
        # An example of a command may be one of its subcommand.
        of = arguments[:2] if arguments[:2] in SUBCOMMANDS else command
        # Words behind -- belong to another command.
        own = arguments[:arguments.index('--')] if '--' in arguments else arguments
        assert run(*own, '--help').stdout == help_of(of)


@pytest.mark.parametrize('command', ALL_COMMANDS, ids=name_of)
def test_help_refers_to_the_shared_options(command):
    shown = help_of(command)
    kinds = 'Connection and output' if command[0] in CONNECTING and command != ['bench', 'compare'] else 'Output'
    assert f'\n{kinds} options: see `peerlane help options`.\n' in shown
    if command != ['routes'] and command[0] != 'fleet':  # have a --device and a --timeout of their own
        assert not own_options(*command) & set(OPTION.findall(shown_by('help', 'options')))
    else:
        assert not own_options(*command) & OUTPUT_OPTIONS
    assert 'Mandatory or optional arguments' not in shown


@pytest.mark.parametrize('command', [*ALL_COMMANDS, ['help', 'options']], ids=name_of)
def test_help_fits_a_terminal(command):
    shown = shown_by(*command, *([] if command[0] == 'help' else ['--help']))
    assert max(map(len, shown.splitlines())) <= COLUMNS
    # A text that just fits leaves a row of spaces behind it.
    assert not re.search(' $', shown, re.MULTILINE)


@pytest.mark.parametrize('command', COMMANDS)
def test_help_of_a_command_by_name(command):
    assert run('help', command).stdout == help_of([command]) == run(command, '-?').stdout
    assert run(command, '--usage').stdout.startswith(f'Usage: peerlane {command}')


def test_page_of_shared_options():
    shown = shown_by('help', 'options')
    assert {'--key', '--encrypt', '--no-encrypt', '--insecure', '--fabric', '--lanes', '--rails', '--device', '--topology',
            '--traffic-class', '--service-level', '--gid-index', '--pkey', '--ack-timeout', '--retries', '--rnr-timer', '--gpu-multiprocessors', '--narrow-grants', '--no-narrow-grants', '--timeout', '--identity', '--peer', '--known-hosts', '--trust-new',
            '--authorized', '--ca', '--old-key'} | OUTPUT_OPTIONS == set(OPTION.findall(shown))
    assert 'Mandatory or optional arguments' not in shown


@pytest.mark.parametrize('command', COMMANDS)
def test_wrong_options_are_wrong_usage(command):
    assert run(command, '--no-such-option', expect=2).stderr.startswith(f'peerlane {command}: ')


def test_unknown_command():
    done = run('frobnicate', expect=2)
    assert done.stderr.startswith("peerlane: unknown command 'frobnicate'\n  hint: ") and not done.stdout
    assert run('help', 'frobnicate', expect=2).stderr == done.stderr


def test_version():
    assert run('version').stdout == run('--version').stdout == run('-V').stdout
    versions = run_json('version')
    assert versions['command'] == versions['library'] and re.fullmatch(r'\d+\.\d+\.\d+', versions['command'])
    assert run('version', '--quiet').stdout == f'peerlane {versions["command"]}\n'
    run('version', 'argument', expect=2)


RDMA_OPTIONS = {'--rails': ('0', '9', ''), '--service-level': ('16', '-1', 'x'), '--gid-index': ('256', '0x1'),
                '--pkey': ('0', '0x8000', '0x10000', '-1', '5x', ''), '--ack-timeout': ('0', '32'), '--retries': ('0', '8'),
                '--rnr-timer': ('0', '32'), '--gpu-multiprocessors': ('1025', '-1')}


@pytest.mark.parametrize('option', RDMA_OPTIONS)
def test_wrong_values_of_rdma_options(option):
    for value in RDMA_OPTIONS[option]:
        assert option + ' takes a ' in run('get', f'{option}={value}', expect=2).stderr


@pytest.mark.parametrize('command', COMMANDS)
def test_commands_accept_the_shared_options(command, tmp_path):
    values = {'--key': tmp_path / 'key', '--fabric': 'tcp', '--lanes': '2', '--rails': '2', '--device': 'mlx5_0',
              '--topology': '', '--traffic-class': '104', '--service-level': '3', '--gid-index': '0', '--pkey': '0x8001', '--ack-timeout': '18',
              '--retries': '7', '--rnr-timer': '12', '--gpu-multiprocessors': '32', '--timeout': '1', '--identity': 'id', '--peer': 'SHA256:x', '--known-hosts': 'hosts',
              '--authorized': 'list', '--ca': 'ca', '--old-key': 'old'}
    accepted = [word for option in sorted(shared_options(command) - {'--help', '--usage'})
                for word in [option, values.get(option)] if word is not None]
    assert run(command, *accepted, '--help').stdout == help_of([command])
    for option in {'--key', '--encrypt', '--fabric'} - options(command):
        run(command, option, *([values[option]] if option in values else []), '--help', expect=2)


def test_completion_of_commands():
    assert complete('') == {*COMMANDS, '--help', '--version'}
    assert complete('ge') == {'get'}
    assert complete('help', 'd') == {'delete', 'demo', 'dump'}
    assert complete('help', 'o') == {'options'}


@pytest.mark.parametrize('command', COMMANDS)
def test_completion_offers_own_and_shared_options(command):
    assert {word.rstrip('=') for word in complete(command, '--')} == options(command)


def test_completion_of_bench_subcommands():
    assert 'compare' in complete('bench', '')
    assert complete('bench', 'comp') == {'compare'}
    offered = {word.rstrip('=') for word in complete('bench', 'compare', '--')}
    assert offered == {'--threshold', '--groups', '--csv'} | OUTPUT_OPTIONS
    assert {'--key=', '--rounds=', '--json'} <= complete('bench', 'workflow', '--')


def test_completion_of_matrices_and_keys(tmp_path):
    assert complete('bench', '--matrix', '--rend') == {'--rendezvous='}
    assert complete('key', '') == {'generate', 'show', 'group'}
    assert complete('key', 'show', 'id', cwd=write(tmp_path / 'identity', b'').parent) == {'identity'}


def test_completion_of_fleet_subcommands(tmp_path):
    assert complete('fleet', '') == {words[1] for words in SUBCOMMANDS if words[0] == 'fleet'}
    assert {word.rstrip('=') for word in complete('fleet', 'topo', '--')} == own_options('fleet', 'topo') | OUTPUT_OPTIONS
    assert complete('fleet', 'check', '--fail-on', '') == {'fail', 'warn', 'unknown'}
    assert complete('fleet', 'check', 'ho', cwd=write(tmp_path / 'hosts', b'').parent) == set()
    assert complete('fleet', 'check', '--hosts', 'ho', cwd=tmp_path) == complete('fleet', 'show', 'ho', cwd=tmp_path) == {'hosts'}


def test_completion_of_arguments(tmp_path):
    key = make_key(tmp_path)
    write(tmp_path / 'pub/one two', b'')
    write(tmp_path / 'pub/other', b'')
    (tmp_path / 'folder').mkdir()
    assert complete('demo', '--inject', '') == {'gpu-push', 'gpu-host', 'gpu-write', 'gpu-host-write'}
    assert complete('bench', 'workflow', '--inject', 's') == {'source'}
    assert complete('bench', '-o', 'fe') == {'fetch-add'}
    assert complete('check', '-o', 'k', cwd=tmp_path) == {'key'}
    assert complete('serve', '--key', 'k', cwd=tmp_path) == {'key'}
    assert complete('serve', '--upload', '', cwd=tmp_path) == {'folder', 'pub'}
    assert complete('put', 'host', 'fol', cwd=tmp_path) == {'folder'}
    assert complete('list', '--fabric', '') == {'auto', 'local', 'tcp', 'verbs'}
    assert complete('check', '--sysroot', 'k', cwd=tmp_path) == {'key'}
    assert complete('check', '--explain', 'peer-cl') == {'peer-client'}
    assert 'ibv_reg_mr' in complete('check', '--call', '')
    assert complete('check', '--ignore', 'peer-cl') == {'peer-client'}
    assert complete('check', '--fail-on', '') == {'fail', 'warn', 'unknown'}
    assert complete('check', '--format', '') == {'text', 'json', 'line', 'prometheus', 'nagios'}
    with serving(tmp_path / 'pub', '--key', key) as server:
        host, port = server.address.split(':')
        assert complete('get', '--key', key, host, ':', port, 'o') == {r'one\ two', 'other'}
        # The shell's word has the backslash once part of the name has been completed.
        assert complete('get', '--key', key, host, ':', port, r'one\ t') == {r'one\ two'}
        # The shell keeps an open quote, and closes it.
        assert complete('get', '--key', key, host, ':', port, '"one t') == complete('get', '--key', key, host, ':', port, "'on") == {'one two'}
        assert complete('get', host, ':', port, 'o') == set()
        assert complete('delete', '--key', key, host, ':', port, 'o') == {r'one\ two', 'other'}


@pytest.mark.parametrize('command', ['get', 'delete'])
def test_completion_quotes_the_names_of_a_server(command, tmp_path):
    """The shell executes nothing that a name contains, neither at TAB nor when the completed line runs."""
    names = ['$(touch ran)', '`touch ran`', 'a;touch ran', 'say "so"', r'back\slash', '$HOME', '*']
    # Names that look like an option, or that have control characters, are not offered.
    for name in [*names, '--output=ran', '\x1b[2J']:
        write(tmp_path / 'pub' / name, b'')
    (tmp_path / 'shell').mkdir()
    with serving(tmp_path / 'pub') as server:
        host, port = server.address.split(':')
        offered = complete(command, host, ':', port, '', cwd=tmp_path / 'shell')
        # No character of these is special behind a quote.
        for quote in '"', "'":
            assert complete(command, host, ':', port, quote, cwd=tmp_path / 'shell') == {'a;touch ran', '*'}
    done = subprocess.run(['bash', '-c', 'eval "set -- $1"; printf "%s\\n" "$@"', 'bash', ' '.join(offered)], text=True,
                          capture_output=True, timeout=DEADLINE, cwd=tmp_path / 'shell', check=True)
    assert sorted(done.stdout.splitlines()) == sorted(names)
    assert not list((tmp_path / 'shell').iterdir())


def test_completion_of_streams_with_a_token(tmp_path):
    key, token = make_key(tmp_path), tmp_path / 'cam0.token'
    assert complete('publish', '--share', '', cwd=tmp_path) == complete('relay', '--token', '', cwd=tmp_path) == {'key'}
    with publishing('--key', key, '--share', token) as publisher:
        host, port = publisher.address.split(':')
        for command in ('subscribe', 'relay', 'record'):
            assert complete(command, '--key', key, '--token', token, host, ':', port, '') == {'cam0'}
            assert complete(command, '--key', key, host, ':', port, '') == set()


@pytest.mark.parametrize('command', ['get', 'delete', 'subscribe', 'relay', 'record'])
def test_completion_of_names_skips_the_values_of_options(command, tmp_path):
    key, token = make_key(tmp_path), tmp_path / 'token'
    values = {'--key': [key], '--token': [token], '--listen': ['127.0.0.1', ':', '0']}
    # The command that lists the names gets these, too.
    skipped = {'--identity', '--peer', '--known-hosts', '--ca'}
    given = [word.rstrip('=') for word in complete(command, '--') if word.endswith('=') and word.rstrip('=') not in skipped]
    write(tmp_path / 'file', b'')
    with serving(tmp_path / 'file', '--key', key) as server, publishing('--key', key, '--share', token) as publisher:
        address, name = (server.address, 'file') if command in ('get', 'delete') else (publisher.address, 'cam0')
        host, port = address.split(':')
        words = [word for option in given for word in (option, *values.get(option, ['x']))]
        assert complete(command, *words, host, ':', port, '') == {name}


@pytest.mark.parametrize('command', COMMANDS)
def test_man_page_describes_the_own_options(command):
    page = (ROOT / f'man/peerlane-{command}.1.scd').read_text()
    described = set(re.findall(r'^(?:\*-\S\*, )?\*(--[a-z-]+)\*', page, re.MULTILINE))
    # The page of fleet is that of its subcommands.
    own = own_options(command).union(*(own_options(*words) for words in SUBCOMMANDS if words[0] == command == 'fleet'))
    assert own <= described <= own | options(command)
    assert f'*peerlane-{command}*(1)' in (ROOT / 'man/peerlane.1.scd').read_text()


def test_man_page_describes_the_shared_options():
    page = (ROOT / 'man/peerlane.1.scd').read_text()
    described = set(re.findall(r'^(?:\*-\S\*, )?\*(--[a-z-]+)\*', page, re.MULTILINE))
    assert described == set(OPTION.findall(shown_by('help', 'options')))


def test_json_output_is_valid_after_errors_too(tmp_path):
    write(tmp_path / 'data', b'data')
    with serving(tmp_path / 'data') as server:
        for arguments, status in [(['list', server.address], 0), (['get', server.address, 'none'], 1),
                                  (['get', '127.0.0.1:1', 'none'], 1), (['put', server.address, tmp_path / 'data'], 1),
                                  (['list', 'no.such.host.invalid'], 1)]:
            json.loads(run(*arguments, '--json', expect=status, cwd=tmp_path).stdout)
