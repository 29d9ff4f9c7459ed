# SPDX-License-Identifier: BSD-2-Clause
"""Help, version, completions and man pages, and that these agree with each other."""
import json
import pathlib
import re
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, environment, make_key, run, run_json, serving, write

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = ['serve', 'list', 'get', 'put', 'routes', 'topo', 'bench', 'report', 'demo', 'check', 'dump', 'version']
COMMON = ['serve', 'list', 'get', 'put', 'demo']


def options(command):
    """Long options that the command's help names."""
    return set(re.findall(r'^  (?:-\S, |    )(--[a-z-]+)', run(command, '--help').stdout, re.MULTILINE))


def complete(*words, cwd=None):
    """What bash offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _peerlane "$1" 2>/dev/null; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(['bash', '-c', script, 'bash', ROOT / 'completions/peerlane.bash', PEERLANE, *map(str, words)],
                          capture_output=True, text=True, timeout=DEADLINE, cwd=cwd, env=environment())
    assert done.returncode == 0, done.stderr
    return {word for word in done.stdout.splitlines() if word}


def test_help_names_every_command():
    shown = run('--help').stdout
    for command in COMMANDS:
        assert re.search(rf'^  {command} +\S', shown, re.MULTILINE)
    assert run('help').stdout == run('-h').stdout == shown
    assert run(expect=2).stderr == shown
    assert 'peerlane demo' in shown and 'openssl rand' in shown


@pytest.mark.parametrize('command', COMMANDS)
def test_help_of_a_command_teaches(command):
    shown = run(command, '--help')
    assert shown.stdout.startswith(f'Usage: peerlane {command} ') and not shown.stderr
    assert 'Example' in shown.stdout and f'  peerlane {command} ' in shown.stdout
    assert {'--help', '--json', '--quiet'} <= options(command) or command == 'bench'
    assert max(map(len, shown.stdout.splitlines())) < 80
    assert run('help', command).stdout == shown.stdout


@pytest.mark.parametrize('command', COMMANDS)
def test_wrong_options_are_wrong_usage(command):
    assert run(command, '--no-such-option', expect=2).stderr.startswith(f'peerlane {command}: ')


def test_unknown_command():
    done = run('frobnicate', expect=2)
    assert done.stderr.startswith("peerlane: there is no command 'frobnicate'\n  hint: ") and not done.stdout


def test_version():
    assert run('version').stdout == run('--version').stdout == run('-V').stdout
    versions = run_json('version')
    assert versions['command'] == versions['library'] and re.fullmatch(r'\d+\.\d+\.\d+', versions['command'])
    assert run('version', '--quiet').stdout == f'peerlane {versions["command"]}\n'
    run('version', 'argument', expect=2)


def test_common_options_are_common():
    for command in COMMON:
        assert {'--key', '--encrypt', '--insecure', '--fabric', '--streams', '--timeout', '--json', '--quiet'} <= \
            options(command)


def test_output_that_cannot_be_written_is_a_failure():
    with open('/dev/full', 'w') as full:
        done = subprocess.run([PEERLANE, 'version', '--json'], stdout=full, timeout=DEADLINE, env=environment())
    assert done.returncode == 1


def test_completion_of_commands():
    assert complete('') == {*COMMANDS, '--help', '--version'}
    assert complete('ge') == {'get'}
    assert complete('help', 'd') == {'demo', 'dump'}


@pytest.mark.parametrize('command', COMMANDS)
def test_completion_of_options_agrees_with_the_command(command):
    assert {word.rstrip('=') for word in complete(command, '--')} == options(command)


def test_completion_of_what_bench_has():
    assert 'compare' in complete('bench', '')
    assert complete('bench', 'comp') == {'compare'}
    offered = {word.rstrip('=') for word in complete('bench', 'compare', '--')}
    assert offered == {'--threshold', '--json', '--quiet', '--help', '--usage'}


def test_completion_of_arguments(tmp_path):
    key = make_key(tmp_path)
    write(tmp_path / 'pub/one two', b'')
    write(tmp_path / 'pub/other', b'')
    (tmp_path / 'folder').mkdir()
    assert complete('serve', '--key', 'k', cwd=tmp_path) == {'key'}
    assert complete('serve', '--upload', '', cwd=tmp_path) == {'folder', 'pub'}
    assert complete('put', 'host', 'fol', cwd=tmp_path) == {'folder'}
    assert complete('list', '--fabric', '') == {'auto', 'local', 'tcp', 'verbs'}
    assert complete('check', '--sysroot', 'k', cwd=tmp_path) == {'key'}
    assert complete('check', '--explain', 'peer-cl') == {'peer-client'}
    assert 'ibv_reg_mr' in complete('check', '--call', '')
    with serving(tmp_path / 'pub', '--key', key) as server:
        host, port = server.address.split(':')
        assert complete('get', '--key', key, host, ':', port, 'o') == {'one two', 'other'}
        assert complete('get', host, ':', port, 'o') == set()


@pytest.mark.parametrize('command', COMMANDS)
def test_man_pages_name_every_option(command):
    page = (ROOT / f'man/peerlane-{command}.1.scd').read_text()
    common = (ROOT / 'man/peerlane.1.scd').read_text()
    plain = page + (common if command in COMMON else '')
    for option in options(command) - {'--help', '--usage'}:
        assert f'*{option}*' in plain, option
    named = set(re.findall(r'^(?:\*-\S\*, )?\*(--[a-z-]+)\*', page, re.MULTILINE))
    assert named <= options(command)
    assert f'*peerlane-{command}*(1)' in common


def test_json_is_json_whatever_happens(tmp_path):
    write(tmp_path / 'data', b'data')
    with serving(tmp_path / 'data') as server:
        for arguments, status in [(['list', server.address], 0), (['get', server.address, 'none'], 1),
                                  (['get', '127.0.0.1:1', 'none'], 1), (['put', server.address, tmp_path / 'data'], 1),
                                  (['list', 'no.such.host.invalid'], 1)]:
            json.loads(run(*arguments, '--json', expect=status, cwd=tmp_path).stdout)
