# SPDX-License-Identifier: BSD-2-Clause
"""Changes that tools/mutants finds in C text, its tables of sources and of accepted mutants, and its selection."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from cli_support import DEADLINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = '''\
/* if (a < b) return -EPROTO; */
#define CHECK(x) \\
	if ((x) < 1) return false
static const char *text = "if (a || b) return -EPROTO;";

static int sample_check(const struct thing *thing, const char *word)
{
	// if (thing->size > 1) return NULL;
	if (thing->size > LIMIT || (word[0] != ')' && !thing->ok))
		return -EPROTO;
	if (read_word() < 0)
		return -ENOMEM;
	if (thing->size >= 1 << 4 && CRYPTO_memcmp(word, "if (a)", 6))
		reader->bad = true;
	pthread_mutex_lock(&thing->lock);
	thing->used = atomic_load_explicit(&thing->count, memory_order_acquire);
	pthread_mutex_unlock(&thing->lock);
	for (int i = 0; i < thing->size; i++)
		thing->sum += i;
	return thing->sum <= LIMIT ? 0 : -EPROTO;
}
'''


def load_mutants():
    loader = importlib.machinery.SourceFileLoader('mutants', str(ROOT / 'tools/mutants'))
    spec = importlib.util.spec_from_loader('mutants', loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


mutants = load_mutants()
sites = sys.modules['sites']


def changed_lines(order=False):
    """Returns the kind, the line and the changed line of each mutant whose change is in one line."""
    before = SAMPLE.splitlines()
    found = []
    for mutant in mutants.find_sites('sample.c', SAMPLE, order):
        after = mutants.apply(SAMPLE, mutant.edits).splitlines()
        assert len(after) == len(before) and mutant.function == 'sample_check'
        differing = [number for number, (a, b) in enumerate(zip(before, after)) if a != b]
        assert differing and differing[0] + 1 == mutant.line
        found.append((mutant.kind, mutant.line, after[differing[0]].strip()))
    return found


def is_running(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except FileNotFoundError:
        return False


def test_sites():
    first, sign, second = 9, 11, 13
    assert sorted(changed_lines()) == sorted([
        ('negate', first, "if (!(thing->size > LIMIT || (word[0] != ')' && !thing->ok)))"),
        ('operand', first, "if ((word[0] != ')' && !thing->ok))"),
        ('operand', first, 'if (thing->size > LIMIT)'),
        ('operand', first, 'if (thing->size > LIMIT || (!thing->ok))'),
        ('operand', first, "if (thing->size > LIMIT || (word[0] != ')'))"),
        ('limit', first, "if (thing->size >= LIMIT || (word[0] != ')' && !thing->ok))"),
        ('error', first + 1, ';'),
        ('negate', sign, 'if (!(read_word() < 0))'),
        ('negate', second, 'if (!(thing->size >= 1 << 4 && CRYPTO_memcmp(word, "if (a)", 6)))'),
        ('operand', second, 'if (thing->size >= 1 << 4)'),
        ('operand', second, 'if (CRYPTO_memcmp(word, "if (a)", 6))'),
        ('limit', second, 'if (thing->size > 1 << 4 && CRYPTO_memcmp(word, "if (a)", 6))'),
        ('compare', second, 'if (thing->size >= 1 << 4 && ((void)CRYPTO_memcmp(word, "if (a)", 6), 0))'),
        ('error', second + 1, ';'),
        ('negate', 20, 'return !(thing->sum <= LIMIT) ? 0 : -EPROTO;'),
        ('limit', 20, 'return thing->sum < LIMIT ? 0 : -EPROTO;'),
    ])


def test_orders_are_apart():
    assert changed_lines(order=True) == [
        ('memory order', 16, 'thing->used = atomic_load_explicit(&thing->count, memory_order_relaxed);'),
        ('lock', 15, ';'),
    ]


def test_a_lock_that_is_taken_again_loses_one_pair():
    text = ('void twice(void)\n{\n\tmy_lock(a);\n\tmy_unlock(a);\n\tmy_lock(a);\n\tif (b)\n\t\tmy_unlock(a);\n'
            '\tmy_unlock(a);\n}\n')
    left = [mutants.apply(text, mutant.edits).count('my_') for mutant in mutants.find_sites('sample.c', text, True)]
    assert left == [3, 2]


def test_literals_and_comments_are_masked():
    masked = sites.mask(SAMPLE)
    assert len(masked) == len(SAMPLE) and masked.count('\n') == SAMPLE.count('\n')
    assert masked.count('EPROTO') == 2 and "')'" not in masked and 'CHECK' not in masked


def test_names_stay():
    """A mutant keeps its name when other lines of the source change, and no two have the same name."""
    names = [mutant.name for mutant in mutants.find_sites('sample.c', SAMPLE)]
    later = [mutant.name for mutant in mutants.find_sites('sample.c', '\n\nint other;\n' + SAMPLE)]
    assert names == later and len(set(names)) == len(names)


def test_targets_and_accepted_mutants_exist():
    targets = mutants.read_targets()
    assert not mutants.unknown_names()
    assert all(targets.values())
    sources = {path: (ROOT / path).read_text() for path in targets}
    names = {mutant.name for path, text in sources.items() for order in (False, True)
             for mutant in mutants.find_sites(path, text, order)}
    for name, reason in mutants.read_accepted().items():
        assert name in names and reason, name
    assert len(names) > 200


@pytest.mark.parametrize('line, unknown', [
    ('src/wire/blob.c:pl_nothing,pl_blob_decode test_wire_blob', 'src/wire/blob.c:pl_nothing'),
    ('src/wire/nothing.c test_wire_blob', 'src/wire/nothing.c'),
    ('src/wire/blob.c test_wire_blob "test_nothing case" test_cli_nothing.py', 'src/wire/blob.c: test_nothing'),
])
def test_unknown_names_are_refused(tmp_path, monkeypatch, capsys, line, unknown):
    table = tmp_path / 'targets'
    table.write_text(line + '\n')
    monkeypatch.setattr(mutants, 'TARGETS', str(table))
    monkeypatch.setattr(sys, 'argv', ['mutants', '--list', '--json', str(tmp_path / 'results.json')])
    assert mutants.main() == 2
    output = capsys.readouterr()
    assert unknown in output.err and not output.out


def test_a_command_ends_with_its_children():
    """Programs of cases run each case in a process group of its own."""
    program = 'import os, time\npid = os.fork()\nif not pid:\n\tos.setpgid(0, 0)\n\ttime.sleep(1000)\nprint(pid)'
    status, output = mutants.Processes().run([sys.executable, '-c', program], ROOT, DEADLINE, os.environ)
    assert status == 0
    end = time.monotonic() + DEADLINE
    while is_running(output.strip()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_selection_is_deterministic():
    def chosen(*arguments):
        return subprocess.run([sys.executable, ROOT / 'tools/mutants', '--list', *arguments], capture_output=True,
                              text=True, timeout=DEADLINE, check=True).stdout.splitlines()
    once = chosen('--count', '50')
    assert len(once) == 50 and once == chosen('--count', '50') and once != chosen('--count', '50', '--seed', '2')
    assert {line.split(':')[0] for line in chosen('--files', 'src/wire/*')} >= {'src/wire/control.c', 'src/wire/lane.c'}


@pytest.mark.parametrize('arguments', [['--jobs', '0'], ['--count', '-1'], ['--build', 'nothing'],
                                       ['--files', 'src/nothing.c']])
def test_wrong_arguments(arguments):
    done = subprocess.run([sys.executable, ROOT / 'tools/mutants', *arguments], capture_output=True, text=True,
                          timeout=DEADLINE)
    assert done.returncode == 2 and done.stderr and 'Traceback' not in done.stderr


@pytest.mark.parametrize('text', ['', '[]', '{"name": {}}', '{"name": 1}', '{'])
def test_damaged_results(tmp_path, text):
    path = tmp_path / 'results.json'
    path.write_text(text)
    done = subprocess.run([sys.executable, ROOT / 'tools/mutants', '--table', '--json', path], capture_output=True,
                          text=True, timeout=DEADLINE)
    assert done.returncode == 2 and str(path) in done.stderr and 'Traceback' not in done.stderr


def test_table(tmp_path):
    """A result counts in the table while its source is unchanged."""
    path = tmp_path / 'results.json'
    text = (ROOT / 'src/wire/blob.c').read_text()
    entry = {'path': 'src/wire/blob.c', 'line': 1, 'kind': 'limit', 'status': 'killed', 'test': 'fuzz_blob'}
    path.write_text(json.dumps({'a': {'source': mutants.digest_of(text), **entry}, 'b': {'source': '0', **entry}}))
    done = subprocess.run([sys.executable, ROOT / 'tools/mutants', '--table', '--json', path], capture_output=True,
                          text=True, timeout=DEADLINE, check=True)
    assert done.stdout.splitlines()[2] == '| `src/wire` | 1 | 1 | 0 | 0 | 0 | 0 | 0 |'
