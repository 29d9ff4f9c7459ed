# SPDX-License-Identifier: BSD-2-Clause
"""Agreement of each command's options in --help, in its man page and in the completion: names, letters, arguments, values."""
import os
import pathlib
import re
import subprocess

import pytest
from cli_support import DEADLINE, PEERLANE, environment
from test_cli_help import ALL_COMMANDS, COMMANDS, ROOT, SUBCOMMANDS, help_of, name_of, options, own_options

FIRST_HOUR = ROOT / 'src/cmd/first-hour/peerlane-first-hour'
# Letter, name and argument, which is in brackets if it can be left out.
IN_HELP = re.compile(r'^  (?:(-\S), |    )(--[a-z-]+)(\[?=\S+)?', re.MULTILINE)
# The pages have a backslash before each hyphen of an option that another command has, too.
IN_PAGE = re.compile(r'^(?:\*(-\S)\*(?: _\S+_)?, )?\*((?:\\-){2}[a-z-]+|--[a-z-]+)\*(\[?=\S+| [_*]\S+)?', re.MULTILINE)
FILE_LIKE = re.compile('FILE|PATH|FOLDER|DIRECTORY|^DIR$')


def page_of(command):
    """The page that describes a command: that of the first word, unless the command has one of its own."""
    own = ROOT / f'man/peerlane-{"-".join(command)}.1.scd'
    if command == ['bench', 'proxy']:
        own = ROOT / 'man/peerlane-bench-workflow.1.scd'
    return (own if own.exists() else ROOT / f'man/peerlane-{command[0]}.1.scd').read_text()


@pytest.mark.parametrize('command', ALL_COMMANDS, ids=name_of)
def test_man_page_and_help_agree(command):
    page, shown = page_of(command), IN_HELP.findall(help_of(command))
    described = {}
    for letter, name, argument in IN_PAGE.findall(page):
        described.setdefault(name.replace('\\', ''), []).append((letter, bool(argument), argument.startswith('[')))
    for letter, name, argument in shown:
        if name not in described:
            # A mode of a command can name its options in a sentence.
            assert command in SUBCOMMANDS and re.search(rf'\*{re.escape(name)}\*'.replace('\\-', r'\\?-'), page), name
            continue
        wanted = (letter, bool(argument), argument.startswith('['))
        # Modes describe an option of the command again without its letter.
        assert wanted in described[name] or command in SUBCOMMANDS and ('', *wanted[1:]) in described[name], (name, described[name])


def first_hour_options():
    """Options of the help with their arguments, "" if they have none."""
    done = subprocess.run(['sh', FIRST_HOUR, '--help'], capture_output=True, text=True, timeout=DEADLINE, check=True)
    return dict(re.findall(r'^  (--[a-z-]+)(?: ([A-Z]+))?', done.stdout, re.MULTILINE))


def test_man_page_of_the_first_hour_has_all_options():
    shown = first_hour_options()
    page = (ROOT / 'man/peerlane-first-hour.1.scd').read_text()
    described = re.findall(r'^\*(--[a-z-]+)\*(?:[= ]_([A-Z]+)_)?', page, re.MULTILINE)
    assert shown and dict(described) == shown


def test_completion_of_the_first_hour(tmp_path):
    """It offers all options, a file only where one is meant, and values that the command knows."""
    (tmp_path / 'file').write_text('')
    shown = first_hour_options()
    values = {'--fabric': {'auto', 'local', 'verbs', 'tcp'}, '--device': set(os.listdir('/sys/class/infiniband'))
              if os.path.isdir('/sys/class/infiniband') else set()}
    asked = [name for name, argument in shown.items() if argument]
    offered = offers([['--'], ['EMPTY'], ['--quick', '--o'], ['--key', 'f'], *([name, 'EMPTY'] for name in asked)], tmp_path, FIRST_HOUR)
    assert offered[:4] == [set(shown), set(shown), {'--output'}, {'file'}] and len(asked) > 5
    for name, found in zip(asked, offered[4:]):
        assert found == ({'file'} if FILE_LIKE.search(shown[name]) else values.get(name, set())), name


@pytest.mark.parametrize('command', SUBCOMMANDS, ids=name_of)
def test_completion_offers_the_options_of_subcommands(command):
    offered = {word.rstrip('=') for word in offers([[*command, '--']])[0]}
    assert own_options(*command) <= offered
    assert offered <= own_options(*command) | options(command[0])


def offers(lines, cwd=None, program=PEERLANE):
    """Returns what bash offers for the last word of each line; one process completes all of them."""
    name = pathlib.Path(program).name
    script = ('source "$1"; program=$2; complete=$3; while IFS=" " read -ra words; do COMP_WORDS=("$program" "${words[@]//EMPTY/}"); '
              'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); "$complete" "$program" 2>/dev/null; echo "${COMPREPLY[*]}" | tr "\\n" " "; '
              'echo; done')
    done = subprocess.run(['bash', '-c', script, 'bash', ROOT / f'completions/{name}.bash', program, '_' + name.replace('-', '_')],
                          text=True, capture_output=True, input=''.join(' '.join(line) + '\n' for line in lines),
                          timeout=DEADLINE, cwd=cwd, env=environment())
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.parametrize('command', [*([command] for command in COMMANDS), *SUBCOMMANDS], ids=name_of)
def test_completion_of_values_offers_files_only_where_one_is_meant(command, tmp_path):
    (tmp_path / 'file').write_text('')
    (tmp_path / 'folder').mkdir()
    taking = [(letter, name, argument[1:]) for letter, name, argument in IN_HELP.findall(help_of(command)) if argument.startswith('=')]
    asked = [(word, argument) for letter, name, argument in taking for word in (letter, name) if word]
    if not asked:
        return
    for (word, argument), offered in zip(asked, offers([[*command, word, 'EMPTY'] for word, _ in asked], tmp_path)):
        assert bool(offered & {'file', 'folder'}) == bool(FILE_LIKE.search(argument)), (word, argument, offered)
        assert not offered & set(COMMANDS) and not any(value.startswith('-') for value in offered), (word, offered)


def test_completion_of_values_that_the_command_knows():
    lines = {('bench', '--progress', 'EMPTY'): {'manual', 'thread'}, ('bench', 'kv', '-o', 'EMPTY'): {'read', 'write'},
             ('bench', '--peer-memory', 'c'): {'cuda', 'cuda:0'}, ('publish', '-m', 'EMPTY'): {'host', 'cuda', 'cuda:0'},
             ('bench', 'kv', '--blocks', 'EMPTY'): set(), ('get', '--timeout', 'EMPTY'): set()}
    assert offers(lines) == list(lines.values())
